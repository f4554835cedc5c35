"""How many bytes were appended to a log in each hour, by the timestamps of its batches.

The indexes lead to the batches around each hour; only those are read. Bytes that compaction or
retention has removed since do not count, nor do batches dated after the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import INT64_MAX
from kafkalog.batches.framing import scan_batches
from kafkalog.batches.segment import OpenSegment
from kafkalog.disk_usage.model import HOUR_MS, HOURS
from kafkalog.model import Batch

if TYPE_CHECKING:
    from kafkalog.log_dir import PartitionDir, Segment


def growth_of(partition: PartitionDir, now_ms: int) -> tuple[int, ...]:
    """Return the bytes appended in each of the last hours before a time, oldest first.

    A batch counts in the hour of the largest timestamp up to it in its segment, as in the index.
    A segment without any timestamp counts when its file was modified.

    Raises:
        UnreadableError: a log cannot be read.

    Cost:
        Per segment the last entry of its time index; per hour that it touches a search of both
        indexes and about `index.interval.bytes` of the log.
    """
    hours = [0] * HOURS
    start = now_ms - HOURS * HOUR_MS
    for segment in partition.segments:
        with OpenSegment(segment) as opened:
            largest, _ = opened.largest_timestamp(recovered=segment.is_active)
            if largest < 0:
                _add_undated(hours, segment, start)
            elif largest > start:
                _add(hours, opened, start, largest)
    return tuple(hours)


def _add(hours: list[int], opened: OpenSegment, start: int, largest: int) -> None:
    before = _bytes_up_to(opened, start)
    for hour in range(HOURS):
        end = start + (hour + 1) * HOUR_MS
        after = _bytes_up_to(opened, end) if end < largest else _end_of(opened)
        hours[hour] += max(0, after - before)
        before = max(before, after)
        if end >= largest:
            return


def _end_of(opened: OpenSegment) -> int:
    """Return the end of the last batch, before any preallocated room."""
    entry = opened.index_entry(INT64_MAX)
    position = entry.position if entry is not None else 0
    for found in scan_batches(opened.source, position):
        if isinstance(found, Batch):
            position = found.end_position
    return position


def _add_undated(hours: list[int], segment: Segment, start: int) -> None:
    hour = (segment.log.mtime_ms - start - 1) // HOUR_MS
    if 0 <= hour < HOURS:
        hours[hour] += segment.log.size_bytes


def _bytes_up_to(opened: OpenSegment, timestamp: int) -> int:
    """Return the size of the batches before the first one that is later than a time."""
    position = 0
    times = opened.time_index
    entry = None if times is None or not times.entry_count else times.lookup(timestamp)
    if entry is not None and (indexed := opened.index_entry(entry.offset)) is not None:
        position = indexed.position
    for found in scan_batches(opened.source, position):
        if not isinstance(found, Batch):
            continue
        if found.max_timestamp > timestamp:
            return found.position
        position = found.end_position
    return position
