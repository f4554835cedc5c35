"""Compares index entries with the log, by the kernels if the log is large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.batches import index_matches
from kafkalog.jit import fast_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.batches.index_matches import TimeMatches
    from kafkalog.indexes import OffsetIndex, TimeIndex
    from kafkalog.paths.source import Source

_BASE_OFFSET_MAX: Final = 1 << 62
"""Above this, sums of offsets could overflow."""


def match_times(
    index: TimeIndex, offsets: OffsetIndex | None, log: Source
) -> Iterator[TimeMatches]:
    """Do what `index_matches.match_times` does; a large log is read once, at memory speed."""
    if fast_path.is_worth_it(log.stored_bytes) and index.base_offset < _BASE_OFFSET_MAX:
        from kafkalog.columns import side_files

        return side_files.match_times(index, offsets, log)
    return index_matches.match_times(index, offsets, log)
