"""One run of the retention policies over a log, as Kafka runs them.

Follows `UnifiedLog.deleteOldSegments`, `deletableSegments` and the three `delete...Segments` of
Kafka 4.3: log start offset, then size, then time, each with what the one before left.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.retention.model import Deletion, LogFacts, Outcome, Policy, Reason, SegmentFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    Predicate = Callable[[LogFacts, int], bool]


def run_policies(log: LogFacts, policy: Policy, now_ms: int) -> Outcome:
    """What a broker would delete at this moment. Pure: nothing is read, nothing is changed.

    Args:
        log: the log; its offsets in order, the high watermark within it.
        policy: what is to be kept.
        now_ms: the broker's clock.

    Cost:
        A few operations a segment.
    """
    if policy.inert is not None or not log.segments:
        return Outcome((), log, rolled=False)
    deleted: list[Deletion] = []
    rolled = False
    reasons = (Reason.LOG_START_OFFSET, Reason.RETENTION_BYTES, Reason.RETENTION_MS)
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
        log = _without(log, count, now_ms)
    return Outcome(tuple(deleted), log, rolled)


def _deletable(log: LogFacts, policy: Policy, predicate: Predicate) -> int:
    """How many segments from the front the policy takes."""
    count = 0
    for number, segment in enumerate(log.segments):
        is_last = number == len(log.segments) - 1
        if log.high_watermark < log.upper_bound(number) or not predicate(log, number):
            break
        if is_last and segment.size_bytes == 0:
            break
        if policy.is_tiered and (is_last or log.log_start_offset < log.upper_bound(number)):
            break
        count += 1
    return count


def _without(log: LogFacts, count: int, now_ms: int) -> LogFacts:
    """The log without its first segments; one that would have none gets an empty one."""
    if not count:
        return log
    left = log.segments[count:] or (SegmentFacts(log.log_end_offset, 0, now_ms),)
    start = max(log.log_start_offset, left[0].base_offset)
    return replace(log, segments=left, log_start_offset=start)


def _below_log_start(log: LogFacts, number: int) -> bool:
    is_last = number == len(log.segments) - 1
    return not is_last and log.upper_bound(number) <= log.log_start_offset


def _over_size(log: LogFacts, policy: Policy) -> Predicate:
    """True while what remains is still at least `retention.bytes`; it remembers what it took."""
    surplus = log.size_bytes - policy.retention_bytes
    is_on = policy.retention_bytes >= 0 and surplus >= 0

    def predicate(log: LogFacts, number: int) -> bool:
        nonlocal surplus
        if not is_on or surplus < log.segments[number].size_bytes:
            return False
        surplus -= log.segments[number].size_bytes
        return True

    return predicate


def _over_time(policy: Policy, now_ms: int) -> Predicate:
    def predicate(log: LogFacts, number: int) -> bool:
        age_ms = now_ms - log.segments[number].largest_timestamp
        return policy.retention_ms >= 0 and age_ms > policy.retention_ms

    return predicate
