"""One run of the retention policies over a log: what is deleted, why, when, and what blocks it.

Follows `UnifiedLog.deleteOldSegments`, `deletableSegments` and the three `delete...Segments` of
Kafka: log start offset, then size, then time, each with what the one before left. Forecasts
assume that nothing is appended.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from formats.constants import INT64_MAX
from formats.late_classes import dataclass
from kafkalog.change.retention.model import (
    Blocker,
    Deletion,
    LogFacts,
    Outcome,
    Policy,
    Reason,
    SegmentFacts,
    TimestampSource,
    Verdict,
)
from kafkalog.io.wording import counted, utc_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Predicate = Callable[[LogFacts, int], bool]
    from collections.abc import Iterable, Iterator


def run_policies(log: LogFacts, policy: Policy, now_ms: int) -> Outcome:
    """Compute what a broker would delete at this moment. Pure: nothing is read or changed.

    Args:
        log: the log; its offsets in order, the high watermark within it.

    Cost:
        A few operations per segment.
    """
    if policy.inert is not None or not log.segments:
        return Outcome((), log, rolled=False)
    deleted: list[Deletion] = []
    rolled = False
    reasons = (Reason.LOG_START_OFFSET, Reason.RETENTION_BYTES, Reason.RETENTION_MS)
    # A compact-only topic still loses whole segments below its log start.
    for reason in reasons if policy.deletes else reasons[:1]:
        predicate: Predicate = _below_log_start
        if reason == Reason.RETENTION_BYTES:
            predicate = _over_size(log, policy)
        elif reason == Reason.RETENTION_MS:
            predicate = _over_time(policy, now_ms)
        count = _deletable(log, policy, predicate)
        deleted += [Deletion(segment, reason) for segment in log.segments[:count]]
        if count == len(log.segments):
            rolled = True
        # Each policy sees what the one before left: the size is taken again, as in Kafka.
        log = _without(log, count, now_ms)
    return Outcome(tuple(deleted), log, rolled)


def _deletable(log: LogFacts, policy: Policy, predicate: Predicate) -> int:
    """Return how many segments from the front the policy deletes."""
    count = 0
    for number, segment in enumerate(log.segments):
        is_last = number == len(log.segments) - 1
        # In this order: the predicate for the size counts down, and must not see a segment that
        # stays.
        if log.high_watermark < log.upper_bound(number) or not predicate(log, number):
            break
        # Rolling an empty active segment would only make another one.
        if is_last and segment.size_bytes == 0:
            break
        if not _may_go(log, policy, number):
            break
        count += 1
    return count


def _may_go(log: LogFacts, policy: Policy, number: int) -> bool:
    """Return whether a segment is uploaded, if that matters, or lies before the log start offset.

    Source: `UnifiedLog.isSegmentEligibleForDeletion`.
    """
    end, is_last = log.upper_bound(number), number == len(log.segments) - 1
    is_uploaded = policy.remote_end is not None and 0 < end <= policy.remote_end
    return not policy.is_tiered or is_uploaded or (not is_last and log.log_start_offset >= end)


def _without(log: LogFacts, count: int, now_ms: int) -> LogFacts:
    """Return the log without its first segments; if none is left, with an empty new one."""
    if not count:
        return log
    # A log has at least one segment: Kafka rolls before it deletes all.
    left = log.segments[count:] or (SegmentFacts(log.log_end_offset, 0, now_ms),)
    # The base of the first that is left, even if its first record comes later.
    start = max(log.log_start_offset, left[0].base_offset)
    return replace(log, segments=left, log_start_offset=start)


def _below_log_start(log: LogFacts, number: int) -> bool:
    is_last = number == len(log.segments) - 1
    return not is_last and log.upper_bound(number) <= log.log_start_offset


def _over_size(log: LogFacts, policy: Policy) -> Predicate:
    """Return a predicate that holds while the remaining segments have `retention.bytes` or more."""
    surplus = log.size_bytes - policy.retention_bytes
    is_on = policy.retention_bytes >= 0 and surplus >= 0

    def predicate(log: LogFacts, number: int) -> bool:
        nonlocal surplus
        # A segment goes only if what remains is not below retention.bytes.
        if not is_on or surplus < log.segments[number].size_bytes:
            return False
        surplus -= log.segments[number].size_bytes
        return True

    return predicate


def _over_time(policy: Policy, now_ms: int) -> Predicate:
    def predicate(log: LogFacts, number: int) -> bool:
        age_ms = now_ms - log.segments[number].max_timestamp
        return policy.retention_ms >= 0 and age_ms > policy.retention_ms

    return predicate


_SOURCES = {
    TimestampSource.TIME_INDEX: "largest timestamp",
    TimestampSource.BATCHES: "largest timestamp",
    TimestampSource.MTIME: "no timestamp; modification time",
}
_KEPT = {
    Reason.UNLIMITED: "neither retention.ms nor retention.bytes is limited",
    Reason.COMPACT_ONLY: "cleanup.policy has no delete: only segments below the log start offset "
    "are deleted",
    Reason.CLEANER_DISABLED: "log.cleaner.enable=false: nothing deletes from compacted topics",
    Reason.METADATA_LOG: "the metadata log is truncated after snapshots, not by retention",
    Reason.NOT_LIVE: "the directory is not a live partition",
}


def detail_of(verdict: Verdict, policy: Policy, log: LogFacts, now_ms: int) -> str:
    """Describe a verdict in one or two sentences, without a full stop at the end."""
    if verdict.is_deleted:
        return _why_deleted(verdict, policy, log)
    if verdict.reason in _KEPT:
        return _KEPT[verdict.reason]
    if verdict.reason == Reason.BLOCKED:
        return _why_blocked(verdict, policy, log)
    parts = []
    if policy.retention_ms >= 0:
        parts.append(_time_left(verdict, policy, log, now_ms))
    if verdict.remaining_bytes is not None:
        parts.append(
            f"retention.bytes deletes it {counted(verdict.remaining_bytes, 'byte')} from now"
        )
    return "; ".join(parts) or "only retention.bytes could delete it, once it is rolled"


def _why_deleted(verdict: Verdict, policy: Policy, log: LogFacts) -> str:
    segment = verdict.segment
    if verdict.reason == Reason.LOG_START_OFFSET:
        return f"the log starts at {log.log_start_offset}, it ends before {verdict.upper_bound}"
    if verdict.reason == Reason.RETENTION_BYTES:
        return f"without it the log still holds retention.bytes {policy.retention_bytes}"
    stamp = f"{_SOURCES[segment.timestamp_source]} {_time(segment.max_timestamp)}"
    rolled = ", the log is rolled for it" if verdict.is_active else ""
    return f"{stamp} is more than {policy.retention_ms} ms old{rolled}"


def _why_blocked(verdict: Verdict, policy: Policy, log: LogFacts) -> str:
    if verdict.blocked_by == Blocker.HIGH_WATERMARK:
        return (
            f"it ends before {verdict.upper_bound}, the high watermark is {log.high_watermark}: "
            f"deletable once all of it is replicated"
        )
    if verdict.blocked_by == Blocker.REMOTE_STORAGE:
        known = "what is uploaded is not known without the tier"
        if policy.remote_end is not None:
            known = f"that ends at {policy.remote_end} now"
        return f"deletable once it is uploaded to remote storage; {known}"
    return _behind(verdict)


def _behind(verdict: Verdict) -> str:
    until = _time(verdict.deletable_timestamp)
    return (
        f"segment {verdict.blocking_segment} before it stays until {until}, and segments are "
        f"deleted from the front only"
    )


def _time_left(verdict: Verdict, policy: Policy, log: LogFacts, now_ms: int) -> str:
    segment = verdict.segment
    if verdict.is_active and segment.size_bytes == 0:
        return "an empty active segment stays"
    if segment.max_timestamp > now_ms:
        words = f"{_SOURCES[segment.timestamp_source]} {_time(segment.max_timestamp)} lies in "
        words += "the future"
    else:
        words = f"{_SOURCES[segment.timestamp_source]} {_time(segment.max_timestamp)}"
    if (record := verdict.latest_record) is not None:
        words += f" (record at offset {record.offset}, position {record.position})"
    if verdict.blocking_segment is not None:
        return f"{words}; {_behind(verdict)}"
    if verdict.deletable_timestamp is not None:
        return f"{words}: goes at {_time(verdict.deletable_timestamp)}"
    if log.high_watermark < verdict.upper_bound:
        return f"{words}; not all of it is replicated"
    return f"{words}, and retention.ms is {policy.retention_ms}"


def _time(timestamp_ms: int | None) -> str:
    """Format as ISO 8601 in UTC, or as a number outside the calendar."""
    if timestamp_ms is None:
        return "an unknown time"
    return utc_text(timestamp_ms)


DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class ForecastDay:
    """The deletions within 24 hours: from `from_ms`, exclusive, to `to_ms`, inclusive."""

    from_ms: int
    to_ms: int
    segments: int
    freed_bytes: int


def judge_segments(log: LogFacts, policy: Policy, outcome: Outcome, now_ms: int) -> list[Verdict]:
    """Return a verdict for every segment of the log, in order."""
    verdicts = list(_deleted(log, policy, outcome, now_ms))
    if len(verdicts) < len(log.segments):
        verdicts += _kept(outcome.log, policy, now_ms)
    return verdicts


def _deleted(log: LogFacts, policy: Policy, outcome: Outcome, now_ms: int) -> Iterator[Verdict]:
    """Yield the segments that are deleted; some may have been deletable for long."""
    ripe_at: int | None = None
    for number, deletion in enumerate(outcome.deleted):
        own = expires_at(deletion.segment, policy)
        ripe_at = own if ripe_at is None else max(own, ripe_at)
        is_timed = deletion.reason == Reason.RETENTION_MS
        yield Verdict(
            segment=deletion.segment,
            upper_bound=log.upper_bound(number),
            is_active=number == len(log.segments) - 1,
            is_deleted=True,
            reason=deletion.reason,
            deletable_timestamp=min(ripe_at, now_ms) if is_timed else now_ms,
        )


def expires_at(segment: SegmentFacts, policy: Policy) -> int:
    """Return the first millisecond at which `retention.ms` deletes it."""
    # + 1: a segment goes when it is older than that, not as old.
    return segment.max_timestamp + policy.retention_ms + 1


def _kept(log: LogFacts, policy: Policy, now_ms: int) -> Iterator[Verdict]:
    """Yield the remaining segments, each judged with those before it."""
    is_timed = policy.deletes and policy.retention_ms >= 0 and policy.inert is None
    is_sized = policy.deletes and policy.retention_bytes >= 0 and policy.inert is None
    ripe_at, longest, size = 0, 0, 0
    for number, segment in enumerate(log.segments):
        is_last = number == len(log.segments) - 1
        size += segment.size_bytes
        own = expires_at(segment, policy)
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
            deletable_timestamp=ripe_at
            if is_timed and may_ripen and ripe_at <= INT64_MAX
            else None,
            blocked_by=blocker if is_wanted else None,
            blocking_segment=blocking,
            remaining_bytes=max(left, 0) if is_sized and not is_last else None,
        )


def _blocker(log: LogFacts, policy: Policy, number: int) -> Blocker | None:
    """Return what keeps this segment whatever the policies say, apart from earlier segments."""
    is_last = number == len(log.segments) - 1
    if is_last and log.segments[number].size_bytes == 0:
        return Blocker.ACTIVE_EMPTY
    if log.high_watermark < log.upper_bound(number):
        return Blocker.HIGH_WATERMARK
    if not _may_go(log, policy, number):
        return Blocker.REMOTE_STORAGE
    return None


def _is_wanted(log: LogFacts, policy: Policy, number: int, size: int, now_ms: int) -> bool:
    """Return whether a policy would delete the segment if nothing blocked it."""
    if policy.inert is not None:
        return False
    is_last = number == len(log.segments) - 1
    if not is_last and log.upper_bound(number) <= log.log_start_offset:
        return True
    if not policy.deletes or log.segments[number].size_bytes == 0:
        return False
    if policy.retention_ms >= 0 and expires_at(log.segments[number], policy) <= now_ms:
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
    """Forecast what time alone will delete: a row per 24 hours in which something is deleted.

    Cost:
        A row per day with deletions, however far `until_ms` is.
    """
    days: dict[int, tuple[int, int]] = {}
    for verdict in verdicts:
        at = verdict.deletable_timestamp
        if verdict.is_deleted or at is None or not now_ms < at <= until_ms:
            continue
        day = (at - now_ms - 1) // DAY_MS
        segments, size = days.get(day, (0, 0))
        days[day] = (segments + 1, size + verdict.segment.size_bytes)
    return [
        ForecastDay(now_ms + day * DAY_MS, now_ms + (day + 1) * DAY_MS, segments, size)
        for day, (segments, size) in sorted(days.items())
    ]
