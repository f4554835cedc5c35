"""Producer states brought up to an offset: the newest snapshot, then the batches behind it.

Follows `UnifiedLog.rebuildProducerState` and `loadProducersFromRecords` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.recovery.appends import AppendsTogether, StoppedError
from kafkalog.recovery.model import StartRefusedError
from kafkalog.recovery.walk import Walker

if TYPE_CHECKING:
    from kafkalog.columnar.headers import Stretch
    from kafkalog.recovery.batches import Frame
    from kafkalog.recovery.producers import ProducerStates
    from kafkalog.recovery.segment_state import SegmentState
    from kafkalog.source import Source


def rebuild_producers(
    producers: ProducerStates,
    segments: dict[int, SegmentState],
    log_start_offset: int,
    end_offset: int,
    *,
    is_clean: bool,
) -> None:
    """Bring the states up to `end_offset` and take the snapshots that Kafka takes on the way.

    After a clean shutdown without any snapshot nothing is read: all producers are forgotten.

    Raises:
        StartRefusedError: a batch cannot be read or contradicts the state; checksums are not
            looked at.
    """
    snapshot_offsets = [*sorted(segments)[-2:], end_offset]
    if is_clean and not producers.snapshots:
        for offset in snapshot_offsets:
            producers.end_offset = offset
            producers.take_snapshot()
        return
    was_empty = producers.is_empty and producers.end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset)
    if end_offset > producers.end_offset and not was_empty:
        floor = max((base for base in segments if base <= end_offset), default=None)
        for segment in segments_between(segments, producers.end_offset, end_offset):
            start = max(segment.base_offset, producers.end_offset, log_start_offset)
            producers.end_offset = start
            if segment.base_offset in snapshot_offsets:
                producers.take_snapshot()
            end = segment.size_bytes
            if segment.base_offset == floor:
                found = segment.find(end_offset)
                end = found.position if found else end
            _replay(producers, segment, start, end)
    producers.end_offset = end_offset
    producers.take_snapshot()


def segments_between(segments: dict[int, SegmentState], start: int, end: int) -> list[SegmentState]:
    """The segments with offsets from `start` up to `end`, the floor of `start` included."""
    if start == end:
        return []
    floor = max((base for base in segments if base <= start), default=None)
    return [
        segments[base]
        for base in sorted(segments)
        if base < end and (floor is None or base >= floor)
    ]


def _replay(producers: ProducerStates, segment: SegmentState, start: int, end: int) -> None:
    """Take the batches from offset `start` up to position `end` into account, all at once."""
    found = segment.find(start)
    if found is None:
        return
    if end < found.position:
        raise StartRefusedError(
            "IllegalArgumentException",
            f"Invalid size: {end - found.position} in read from {segment.name(file_names.LOG)}",
        )
    replay = _Replay(AppendsTogether(producers))
    segment.walk(replay, found.position, end)
    replay.appends.finish()


class _Replay(Walker):
    """Batches of producers; checksums are not looked at."""

    def __init__(self, appends: AppendsTogether) -> None:
        self.appends = appends

    def columns(self, stretch: Stretch) -> int:
        """Take in batches; how many."""
        from kafkalog.recovery.producer_columns import readable_markers

        plain = readable_markers(stretch)
        count = stretch.count if plain.all() else int(plain.argmin())
        try:
            if count:
                self.appends.columns(stretch.part(0, count))
        except StoppedError as stopped:
            raise stopped.refusal from stopped
        return count

    def frame(self, source: Source, frame: Frame) -> bool:
        """Take in one batch."""
        self.appends.frame(source, frame)
        return True
