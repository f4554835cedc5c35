"""Where a log can be cut into parts: at batches, which its offset index tells."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kafkalog.errors import KafkaLogError
from kafkalog.framing import align

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.indexes import OffsetIndex
    from kafkalog.segment import OpenSegment


def cut_positions(opened: OpenSegment, start: int, end: int, size_bytes: int) -> Iterator[int]:
    """Positions of batches between two others, about as far apart as parts are to be large.

    None are there without an offset index. An entry that hits no sound batch is passed over.
    """
    index = opened.offset_index
    if index is None:
        return
    before = start
    while before + size_bytes < end:
        position = _position_from(index, before + size_bytes)
        while position is not None and checked_position(opened, position) is None:
            position = _position_from(index, position + 1)
        if position is None or position >= end:
            return
        yield position
        before = position


def checked_position(opened: OpenSegment, position: int) -> int | None:
    """The position, if a sound batch begins there."""
    with suppress(KafkaLogError):
        if 0 < position < opened.source.size_bytes and align(opened.source, position) == position:
            return position
    return None


def _position_from(index: OffsetIndex, position: int) -> int | None:
    """The lowest position in an index from one on."""
    number = index.first_at(position)
    return index.entry(number).position if number < index.entry_count else None
