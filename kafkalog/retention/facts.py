"""What retention goes by, read from a partition directory: sizes, largest timestamps, log end.

Follows `LogSegment.largestTimestamp`, `LogSegment.lastModified` and `LogLoader.recoverLog` of Kafka
4.3. Logs are read only where a broker would know more than the indexes say.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.errors import KafkaLogError
from kafkalog.framing import scan_batches
from kafkalog.model import Batch, Defect
from kafkalog.names import FileKind
from kafkalog.records import decode_records
from kafkalog.retention.model import LatestRecord, SegmentFacts, TimestampSource
from kafkalog.segment import OpenSegment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.indexes import OffsetIndex, TimeIndex
    from kafkalog.log_dir import FileEntry, Segment
    from kafkalog.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class _Tail:
    """What the batches of a recovered segment say."""

    end_offset: int
    end_position: int
    largest_timestamp: int


def read_segments(log: UnifiedLog) -> tuple[list[SegmentFacts], int]:
    """The facts of every live segment, and the log end offset.

    After a clean shutdown a broker believes the last slot of each time index, zeros included. Else
    it recovers the segments from the recovery point on, and what their batches say counts; so does
    it for a segment without `.index`.

    Raises:
        UnreadableError: a log cannot be read.

    Cost:
        Two index lookups a segment; of recovered segments, and of the active one, the batches
        behind the last entry of the offset index.
    """
    segments = log.segments
    first_recovered = _first_recovered(log)
    snapshots = {
        entry.name.offset: entry.size_bytes
        for entry in log.partition.live(FileKind.PRODUCER_SNAPSHOT)
    }
    found, end_offset = [], log.log_start_offset
    for number, segment in enumerate(segments):
        with OpenSegment(segment) as opened:
            if number >= first_recovered or segment.offset_index is None:
                tail = _read_tail(opened)
                found.append(_facts(segment, snapshots, tail.largest_timestamp, tail))
                end_offset = tail.end_offset
            else:
                times = opened.time_index
                timestamp = -1 if times is None else times.last_slot_timestamp()
                found.append(_facts(segment, snapshots, timestamp))
                if segment.is_active:
                    end_offset = opened.next_offset()
    return found, end_offset


def _first_recovered(log: UnifiedLog) -> int:
    """Ordinal of the first segment that the next start recovers; none: behind the last."""
    if log.was_closed:
        return len(log.segments)
    recovery_point = log.checkpoint(file_names.RECOVERY_POINTS) or 0
    return log.floor_segment(recovery_point) or 0


def _facts(
    segment: Segment, snapshots: dict[int | None, int], timestamp: int, tail: _Tail | None = None
) -> SegmentFacts:
    source = TimestampSource.TIME_INDEX if tail is None else TimestampSource.BATCHES
    if timestamp < 0:
        timestamp, source = segment.log.mtime_ms, TimestampSource.MTIME
    indexes: tuple[FileEntry | None, ...] = (
        segment.offset_index,
        segment.time_index,
        segment.transaction_index,
    )
    return SegmentFacts(
        base_offset=segment.base_offset,
        size_bytes=segment.log.size_bytes if tail is None else tail.end_position,
        largest_timestamp=timestamp,
        timestamp_source=source,
        side_bytes=sum(entry.size_bytes for entry in indexes if entry is not None)
        + snapshots.get(segment.base_offset, 0),
        path=segment.log.path,
    )


def _read_tail(opened: OpenSegment) -> _Tail:
    """What recovery finds, up to the first byte that is no batch.

    Each entry of the offset index brought the time index up to date: only where both are there may
    the batches before the last of them stay unread.
    """
    segment = opened.segment
    offsets, times = opened.offset_index, opened.time_index
    largest, position = -1, 0
    if offsets is not None and offsets.entry_count and times is not None and times.entry_count:
        last = offsets.entry(offsets.entry_count - 1)
        if opened.index_entry(last.offset) == last:
            largest, position = _covered(times, offsets), last.position
    end_offset = segment.base_offset
    for found in scan_batches(opened.source, position):
        if isinstance(found, Defect):
            break
        largest = max(largest, found.max_timestamp)
        end_offset = found.next_offset
        position = found.position + found.size_bytes
    return _Tail(end_offset, position, largest)


def _covered(times: TimeIndex, offsets: OffsetIndex) -> int:
    """Largest timestamp in the time index up to the last entry of the offset index."""
    last_offset = offsets.entry(offsets.entry_count - 1).offset
    for number in range(times.entry_count - 1, -1, -1):
        entry = times.entry(number)
        if entry.offset <= last_offset:
            return entry.timestamp
    return -1


def find_latest_record(segment: Segment, facts: SegmentFacts) -> LatestRecord | None:
    """The record that a segment's largest timestamp comes from; None: no record, or not readable.

    Cost:
        Reads the batches around the last entry of the time index, all of a segment without one.
    """
    if facts.timestamp_source == TimestampSource.MTIME:
        return None
    with suppress(KafkaLogError), OpenSegment(segment) as opened:
        for batch in _batches_with(opened, facts.largest_timestamp):
            for record in decode_records(opened.source, batch):
                if record.timestamp == facts.largest_timestamp:
                    return LatestRecord(record.offset, record.timestamp, batch.position)
    return None


def _batches_with(opened: OpenSegment, timestamp: int) -> Iterator[Batch]:
    """Batches whose largest timestamp is this one, from where the indexes say on."""
    start = 0
    if opened.time_index is not None:
        entry = opened.time_index.lookup(timestamp)
        if entry is not None and entry.timestamp == timestamp:
            before = opened.index_entry(entry.offset - 1)
            start = before.position if before is not None else 0
    for found in scan_batches(opened.source, start):
        if isinstance(found, Batch) and found.max_timestamp == timestamp:
            yield found
