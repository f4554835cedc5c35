"""From a run of the policies to what is said of each segment: why, when, and what is in the way.

The rules are those of `kafkalog.retention.policies`; what will be assumes that nothing is appended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.constants import INT64_MAX
from kafkalog.retention.model import Blocker, LogFacts, Outcome, Policy, Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.retention.model import SegmentFacts

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ForecastDay:
    """What goes within 24 hours: from `from_ms`, exclusive, to `to_ms`, inclusive."""

    from_ms: int
    to_ms: int
    segments: int
    bytes_freed: int


def judge_segments(log: LogFacts, policy: Policy, outcome: Outcome, now_ms: int) -> list[Verdict]:
    """A verdict for every segment of the log, in order."""
    verdicts = list(_deleted(log, policy, outcome, now_ms))
    if len(verdicts) < len(log.segments):
        verdicts += _kept(outcome.log, policy, now_ms)
    return verdicts


def _deleted(log: LogFacts, policy: Policy, outcome: Outcome, now_ms: int) -> Iterator[Verdict]:
    """The segments that go: those that time takes may have been ripe for long."""
    ripe_at: int | None = None
    for number, deletion in enumerate(outcome.deleted):
        own = _expires_at(deletion.segment, policy)
        ripe_at = own if ripe_at is None else max(own, ripe_at)
        is_timed = deletion.reason == Reason.RETENTION_MS
        yield Verdict(
            segment=deletion.segment,
            upper_bound=log.upper_bound(number),
            is_active=number == len(log.segments) - 1,
            is_deleted=True,
            reason=deletion.reason,
            deletable_at=min(ripe_at, now_ms) if is_timed else now_ms,
        )


def _expires_at(segment: SegmentFacts, policy: Policy) -> int:
    """The first millisecond at which `retention.ms` takes it."""
    return segment.largest_timestamp + policy.retention_ms + 1


def _kept(log: LogFacts, policy: Policy, now_ms: int) -> Iterator[Verdict]:
    """The segments that are left, each seen with those before it."""
    is_timed = policy.deletes and policy.retention_ms >= 0 and policy.inert is None
    is_sized = policy.deletes and policy.retention_bytes >= 0 and policy.inert is None
    ripe_at, longest, size = 0, 0, 0
    for number, segment in enumerate(log.segments):
        is_last = number == len(log.segments) - 1
        size += segment.size_bytes
        own = _expires_at(segment, policy)
        blocker = _blocker(log, policy, number)
        blocking = None
        if is_timed and blocker is None and number and ripe_at > own:
            blocking = log.segments[longest].base_offset
        is_wanted = _is_wanted(log, policy, number, size, now_ms)
        if is_wanted and blocking is not None:
            blocker = Blocker.SEGMENT
        if own > ripe_at:
            ripe_at, longest = own, number
        may_ripen = blocker in (None, Blocker.SEGMENT)
        left = policy.retention_bytes + size - log.size_bytes
        yield Verdict(
            segment=segment,
            upper_bound=log.upper_bound(number),
            is_active=is_last,
            is_deleted=False,
            reason=Reason.BLOCKED if is_wanted and blocker else _why_kept(policy),
            deletable_at=ripe_at if is_timed and may_ripen and ripe_at <= INT64_MAX else None,
            blocked_by=blocker if is_wanted else None,
            blocking_segment=blocking,
            bytes_to_append=max(left, 0) if is_sized and not is_last else None,
        )


def _blocker(log: LogFacts, policy: Policy, number: int) -> Blocker | None:
    """What keeps this segment whatever the policies say, earlier segments aside."""
    is_last = number == len(log.segments) - 1
    if is_last and log.segments[number].size_bytes == 0:
        return Blocker.ACTIVE_EMPTY
    if log.high_watermark < log.upper_bound(number):
        return Blocker.HIGH_WATERMARK
    if policy.is_tiered and (is_last or log.log_start_offset < log.upper_bound(number)):
        return Blocker.REMOTE_STORAGE
    return None


def _is_wanted(log: LogFacts, policy: Policy, number: int, size: int, now_ms: int) -> bool:
    """Whether a policy would take the segment if nothing were in the way."""
    if policy.inert is not None:
        return False
    is_last = number == len(log.segments) - 1
    if not is_last and log.upper_bound(number) <= log.log_start_offset:
        return True
    if not policy.deletes or log.segments[number].size_bytes == 0:
        return False
    if policy.retention_ms >= 0 and _expires_at(log.segments[number], policy) <= now_ms:
        return True
    return policy.retention_bytes >= 0 and log.size_bytes - size >= policy.retention_bytes


def _why_kept(policy: Policy) -> Reason:
    if policy.inert is not None:
        return policy.inert
    if not policy.deletes:
        return Reason.COMPACT_ONLY
    if policy.retention_ms < 0 and policy.retention_bytes < 0:
        return Reason.UNLIMITED
    return Reason.WITHIN_RETENTION


def forecast(verdicts: Iterable[Verdict], now_ms: int, until_ms: int) -> list[ForecastDay]:
    """What time alone will free, a row for each 24 hours from now in which anything goes.

    Cost:
        A row a day in which something goes, however far `until_ms` is.
    """
    days: dict[int, tuple[int, int]] = {}
    for verdict in verdicts:
        at = verdict.deletable_at
        if verdict.is_deleted or at is None or not now_ms < at <= until_ms:
            continue
        day = (at - now_ms - 1) // DAY_MS
        segments, size = days.get(day, (0, 0))
        days[day] = (segments + 1, size + verdict.segment.size_bytes)
    return [
        ForecastDay(now_ms + day * DAY_MS, now_ms + (day + 1) * DAY_MS, segments, size)
        for day, (segments, size) in sorted(days.items())
    ]
