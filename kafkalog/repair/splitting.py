"""The split of a segment whose offsets do not fit into it, by the swap protocol.

Follows `LocalLog.splitOverflowedSegment` and `replaceSegments` of Kafka 4.3.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.recovery.directory import segment_file
from kafkalog.repair.index_data import index_data
from kafkalog.source import Source

if TYPE_CHECKING:
    from typing import BinaryIO

    from kafkalog.recovery import SegmentPart, SplitSegment, StartConfig
    from kafkalog.storage import Changes

_COPIED_AT_ONCE = 1 << 20
_SUFFIXES = (file_names.LOG, file_names.OFFSET_INDEX, file_names.TIME_INDEX)


def write_parts(changes: Changes, action: SplitSegment, config: StartConfig) -> None:
    """Write the parts of a segment, up to where their files are called `.swap`.

    A start, or `tidy`, then replaces the segment by them. After a crash there are `.cleaned` files,
    with which all goes back to the segment, or `.swap` files alone, with which it goes on to the
    parts: these get their names from the last part to the first, as one that is still called
    `.cleaned` takes back those behind it.
    """
    log = changes.path(segment_file(action.base_offset, file_names.LOG))
    modified_ms = os.stat(log).st_mtime_ns // 1_000_000
    with Source(log) as source:
        for part in action.parts:
            _write(changes, source, part, config, modified_ms)
    changes.sync_directory()
    for part in sorted(action.parts, key=lambda part: part.base_offset, reverse=True):
        for suffix in _SUFFIXES:
            name = segment_file(part.base_offset, suffix)
            changes.rename(name + file_names.CLEANED, name + file_names.SWAP)
        changes.sync_directory()


def _write(
    changes: Changes, source: Source, part: SegmentPart, config: StartConfig, modified_ms: int
) -> None:
    data = index_data(source, part.start, part.end, part.base_offset, config)
    for suffix in _SUFFIXES:
        name = segment_file(part.base_offset, suffix) + file_names.CLEANED
        with changes.create(name, like=source.path, mtime_ms=modified_ms) as file:
            if suffix == file_names.LOG:
                _copy(source, part, file)
            else:
                file.write(data[suffix])


def _copy(source: Source, part: SegmentPart, file: BinaryIO) -> None:
    starts = range(part.start, part.end, _COPIED_AT_ONCE)
    sizes = (min(_COPIED_AT_ONCE, part.end - start) for start in starts)
    file.writelines(source.read(*piece) for piece in zip(starts, sizes, strict=True))
