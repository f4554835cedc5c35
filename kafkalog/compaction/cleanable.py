"""Which part of a log can be cleaned.

Follows `LogCleanerManager.cleanableOffsets` and `LogToClean` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import INT64_MAX
from kafkalog.compaction.model import Cleanable
from kafkalog.framing import scan_batches
from kafkalog.model import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.compaction.model import CompactionConfig
    from kafkalog.log_dir import Segment
    from kafkalog.unified_log import UnifiedLog


def find_cleanable(
    log: UnifiedLog,
    config: CompactionConfig,
    now_ms: int,
    checkpoint: int | None,
    up_to_offset: int | None = None,
) -> Cleanable:
    """The dirty part of a log below its last stable offset.

    Args:
        log: with the high watermark that counts; nothing above it is cleaned.
        config: min_compaction_lag_ms.
        now_ms: the clock.
        checkpoint: where the last cleaning ended, None without one.
        up_to_offset: nothing from the segment that holds it on is cleaned; None without a limit.
    """
    start, end = log.log_start_offset, log.log_end_offset
    first_dirty = start if checkpoint is None else checkpoint
    is_wrong = not start <= first_dirty <= end
    if is_wrong:
        first_dirty = start
    active = log.segments[-1]
    limits = [log.last_stable_offset, active.base_offset]
    if up_to_offset is not None:
        limits.append(up_to_offset)
    if config.min_compaction_lag_ms > 0 and first_dirty <= active.base_offset:
        youngest = now_ms - config.min_compaction_lag_ms
        limits += [
            segment.base_offset
            for segment in segments_between(log.segments, first_dirty, active.base_offset)
            if largest_timestamp(log, segment) > youngest
        ][:1]
    not_beyond = max(first_dirty, min(limits))
    first_uncleanable = _aligned_down(log.segments, not_beyond)
    cleanable = segments_between(
        log.segments, min(first_dirty, first_uncleanable), first_uncleanable
    )
    clean = [s.log.size_bytes for s in log.segments if s.base_offset < first_dirty]
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(clean),
        sum(segment.log.size_bytes for segment in cleanable),
        is_wrong,
    )


def compaction_delay_ms(
    log: UnifiedLog, cleanable: Cleanable, max_compaction_lag_ms: int, now_ms: int
) -> int:
    """For how long the log should have been cleaned: `LogCleanerManager.maxCompactionDelay`.

    Above 0 it is cleaned however little of it is dirty.
    """
    dirty = segments_between(
        log.segments,
        min(cleanable.first_dirty_offset, log.segments[-1].base_offset),
        log.segments[-1].base_offset,
    )
    if not dirty or max_compaction_lag_ms == INT64_MAX:
        return 0
    firsts = [_first_timestamp(log, segment) for segment in dirty]
    earliest = min((first for first in firsts if first > 0), default=None)
    return 0 if earliest is None else max(0, now_ms - max_compaction_lag_ms - earliest)


def _first_timestamp(log: UnifiedLog, segment: Segment) -> int:
    """Max timestamp of the first batch, -1 where there is none."""
    with log.open_segment(segment) as opened:
        first = next(scan_batches(opened.source, 0), None)
    return first.max_timestamp if isinstance(first, Batch) else -1


def segments_between(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """Segments from the one that holds `start` up to base offset `end`: `LogSegments.values`."""
    if start == end:
        return []
    floor = max((s.base_offset for s in segments if s.base_offset <= start), default=start)
    return [segment for segment in segments if floor <= segment.base_offset < end]


def largest_timestamp(log: UnifiedLog, segment: Segment) -> int:
    """The last one of the time index, the file's time of modification without one, in ms."""
    with log.open_segment(segment) as opened:
        if log.was_closed:
            timestamp = -1 if opened.time_index is None else opened.time_index.last_slot_timestamp()
        else:
            timestamp, _ = opened.largest_timestamp(recovered=True)
    return timestamp if timestamp >= 0 else segment.log.mtime_ms


def _aligned_down(segments: Sequence[Segment], offset: int) -> int:
    """Base offset of the segment that holds the offset; of the active one where none else does."""
    below = [s.base_offset for s in segments[:-1] if s.base_offset <= offset]
    following = next((s.base_offset for s in segments if s.base_offset > offset), None)
    if below and following is not None:
        return below[-1]
    return segments[-1].base_offset
