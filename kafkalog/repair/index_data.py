"""Offset and time index of a stretch of a log that is sound: of a split, of a swap without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.model import Level
from kafkalog.recovery.indexes import IndexBuild
from kafkalog.recovery.walk import Indexing, walk

if TYPE_CHECKING:
    from kafkalog.recovery import StartConfig
    from kafkalog.source import Source


def index_data(
    source: Source, start: int, end: int, base_offset: int, config: StartConfig
) -> dict[str, bytes]:
    """The bytes of both, by suffix, for a segment that begins at position `start` of a log.

    Raises:
        StartRefusedError: offsets go back, or do not fit into the segment.

    Cost:
        Reads the headers of the batches; memory for the entries.
    """
    indexes = IndexBuild(base_offset, config)
    walk(source, start, end, Level.QUICK, Indexing(indexes, start))
    indexes.end()
    return {
        file_names.OFFSET_INDEX: indexes.offsets.data(),
        file_names.TIME_INDEX: indexes.times.data(),
    }
