"""Index entries as columns of int64, some at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from formats import constants as c
from formats.layouts import ABORTED_TRANSACTION, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.indexes import OffsetIndex, TimeIndex
    from kafkalog.paths.source import Source

    Column = NDArray[np.int64]

_OFFSET_ENTRY: Final = np.dtype(OFFSET_INDEX_ENTRY.dtype())
_TIME_ENTRY: Final = np.dtype(TIME_INDEX_ENTRY.dtype())
_ABORTED_TXN: Final = np.dtype(ABORTED_TRANSACTION.dtype())
_ENTRIES_AT_ONCE: Final = 1 << 16


def offset_columns(index: OffsetIndex) -> Iterator[tuple[int, Column, Column]]:
    """Offsets and positions of some entries at a time, after the number of the first.

    Offsets beyond the largest possible one come as that one.
    """
    for first, block in index.blocks(at_once=_ENTRIES_AT_ONCE):
        slots = np.frombuffer(block, _OFFSET_ENTRY)
        yield first, _absolute(slots["relative_offset"], index), slots["position"].astype(np.int64)


def time_columns(
    index: TimeIndex, *, padding: bool = False
) -> Iterator[tuple[int, Column, Column]]:
    """Timestamps and offsets, as `offset_columns`; with `padding` every slot of the file."""
    for first, block in index.blocks(padding=padding, at_once=_ENTRIES_AT_ONCE):
        slots = np.frombuffer(block, _TIME_ENTRY)
        yield first, slots["timestamp"].astype(np.int64), _absolute(slots["relative_offset"], index)


def _absolute(relative: NDArray[np.int32], index: OffsetIndex | TimeIndex) -> Column:
    room = c.INT64_MAX - index.base_offset
    return np.minimum(relative.astype(np.int64), room) + index.base_offset


def aborted_columns(source: Source) -> Iterator[tuple[int, NDArray[Any]]]:
    """Entries of a transaction index, fields as in `AbortedTransaction`, after the first's number.

    A partial last entry is left out.
    """
    count = source.size_bytes // c.ABORTED_TXN_SIZE
    for first in range(0, count, _ENTRIES_AT_ONCE):
        size = min(_ENTRIES_AT_ONCE, count - first) * c.ABORTED_TXN_SIZE
        yield first, np.frombuffer(source.read(first * c.ABORTED_TXN_SIZE, size), _ABORTED_TXN)
