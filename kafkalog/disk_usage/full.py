"""When a disk is full: growth as it was, minus what retention deletes.

Existing segments are deleted when `simulate-retention` says so. What is appended from now on stays
for `retention.ms`, or until `retention.bytes` balances it. Compaction is not counted on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kafkalog.disk_usage.model import HOUR_MS, HOURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.retention import PartitionRetention

_HORIZON_MS: Final = 10 * 365 * 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what a log occupies, or of how fast it grows.

    Attributes:
        at_ms: when.
        size_bytes: how much is added at once; negative if it is deleted.
        rate: how much faster it grows from then on, bytes per millisecond.
    """

    at_ms: int
    size_bytes: int = 0
    rate: float = 0.0


def changes_of(found: PartitionRetention, growth: tuple[int, ...]) -> Iterator[Change]:
    """Yield how the size of a log changes, if it grows on as it did."""
    now, policy = found.now_ms, found.policy
    rate = sum(growth) / (HOURS * HOUR_MS)
    yield Change(now, -found.bytes_freed - found.side_bytes_freed, rate)
    is_limited = policy.inert is None and policy.deletes
    balanced_at = None
    kept = [one for one in found.verdicts if not one.is_deleted]
    if rate and is_limited and kept and kept[0].bytes_to_append is not None:
        balanced_at = now + round(kept[0].bytes_to_append / rate)
    ends = [balanced_at]
    if is_limited and policy.retention_ms >= 0:
        ends.append(now + policy.retention_ms)
    end = min((one for one in ends if one is not None), default=None)
    if end is not None:
        yield Change(end, 0, -rate)
    for verdict in kept:
        at = verdict.deletable_at
        if at is not None and at > now and (balanced_at is None or at <= balanced_at):
            yield Change(at, -verdict.segment.size_bytes - verdict.segment.side_bytes)


def _time(change: Change) -> int:
    return change.at_ms


def full_at(free_bytes: int, changes: Iterable[Change], now_ms: int) -> int | None:
    """Return when nothing is free any more, milliseconds; None if not within ten years."""
    free, rate, at = float(free_bytes), 0.0, now_ms
    for time, together in groupby(sorted(changes, key=_time), key=_time):
        needed = rate * (time - at)
        if free <= needed and time > at:
            break
        free, at = free - needed, time
        for change in together:
            free, rate = free - change.size_bytes, rate + change.rate
        if free <= 0:
            return at
    if free <= 0:
        return at
    if rate <= 0 or free / rate > _HORIZON_MS:
        return None
    return at + round(free / rate)
