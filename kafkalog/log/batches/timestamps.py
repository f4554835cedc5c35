"""The largest timestamps of a log's segments: of their time indexes, or as metadata tell them.

Follows `LogSegment.largestTimestamp` and `RemoteLogManager.findOffsetByTimestamp` of Kafka.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from formats.file_names import parse_file_name
from kafkalog.files.remote_metadata import UNKNOWN
from kafkalog.io.paths import file_system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.files.log_dir import Segment
    from kafkalog.log.batches.segment import OpenSegment
    from kafkalog.node.unified_log import UnifiedLog


def largest_timestamps(log: UnifiedLog, wanted: int) -> Iterator[tuple[Segment, tuple[int, str]]]:
    """Yield each segment with its largest timestamp and where that is from.

    A store is asked about one segment, then about as many more at the same time as before.
    """
    look = partial(_largest_timestamp, log, wanted)
    segments = log.segments
    at_once = file_system.requests_at_once(log.partition.path)
    if at_once < 2:
        yield from zip(segments, map(look, segments), strict=True)
        return
    from kafkalog.io.engine import in_order

    done = 0
    while done < len(segments):
        # 1, 1, 2, 4 …: the first segments often answer, and a few too many requests cost little.
        some = segments[done : 2 * done or 1]
        yield from zip(some, in_order(look, some, at_once), strict=True)
        done += len(some)


def _largest_timestamp(log: UnifiedLog, wanted: int, segment: Segment) -> tuple[int, str]:
    told = _told_timestamp(log, segment)
    # Good enough to rule a segment out; one that may answer is looked at itself.
    if 0 <= told < wanted:
        return told, "metadata"
    with log.open_segment(segment) as opened:
        timestamp, _ = opened.largest_timestamp(recovered=is_recovered(log, opened))
    if timestamp >= 0:
        return timestamp, "time index"
    return segment.log.modified_timestamp, "file time"


def _told_timestamp(log: UnifiedLog, segment: Segment) -> int:
    """Return the largest timestamp of a remote segment by the metadata; -1 if it is not known."""
    tier = log.partition.tier
    segment_id = parse_file_name(os.path.basename(segment.log.path)).segment_id
    told = None if tier is None or segment_id is None else tier.segments.get(segment_id)
    return UNKNOWN if told is None else told.max_timestamp


def is_recovered(log: UnifiedLog, opened: OpenSegment) -> bool:
    """Return whether a start would have scanned the segment: an active one, not closed cleanly.

    In the view of a start, also a segment whose time index the start would rebuild.
    """
    loaded = log.partition.loaded
    if loaded is not None and opened.time_index is None:
        base = opened.segment.base_offset
        return any(one.max_timestamp >= 0 for one in loaded.segments if one.base_offset == base)
    return opened.segment.is_active and not log.has_closed_indexes
