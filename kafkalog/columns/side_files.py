"""Index entries and the producers of a snapshot as columns of int64.

Follows `ProducerStateManager.readSnapshot` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from formats import constants as c
from formats.constants import (
    ABORTED_TRANSACTION,
    OFFSET_INDEX_ENTRY,
    PRODUCER_SNAPSHOT_ENTRY,
    PRODUCER_SNAPSHOT_HEADER,
    TIME_INDEX_ENTRY,
)
from kafkalog.codecs import crc32c
from kafkalog.errors import KafkaLogError
from kafkalog.paths.source import read_file

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
    """Yield blocks of entries: the number of the first, their offsets and positions.

    Offsets beyond the largest possible one are clipped to it.
    """
    for first, block in index.blocks(at_once=_ENTRIES_AT_ONCE):
        slots = np.frombuffer(block, _OFFSET_ENTRY)
        yield first, _absolute(slots["relative_offset"], index), slots["position"].astype(np.int64)


def time_columns(
    index: TimeIndex, *, padding: bool = False
) -> Iterator[tuple[int, Column, Column]]:
    """Yield blocks of entries: the number of the first, timestamps, offsets."""
    for first, block in index.blocks(padding=padding, at_once=_ENTRIES_AT_ONCE):
        slots = np.frombuffer(block, _TIME_ENTRY)
        yield first, slots["timestamp"].astype(np.int64), _absolute(slots["relative_offset"], index)


def _absolute(relative: NDArray[np.int32], index: OffsetIndex | TimeIndex) -> Column:
    room = c.INT64_MAX - index.base_offset
    return np.minimum(relative.astype(np.int64), room) + index.base_offset


def aborted_columns(source: Source) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield blocks of entries: the number of the first, and fields as in `AbortedTransaction`.

    A partial last entry is left out.
    """
    count = source.size_bytes // c.ABORTED_TXN_SIZE
    for first in range(0, count, _ENTRIES_AT_ONCE):
        size = min(_ENTRIES_AT_ONCE, count - first) * c.ABORTED_TXN_SIZE
        yield first, np.frombuffer(source.read(first * c.ABORTED_TXN_SIZE, size), _ABORTED_TXN)


_VERSION: Final = b"\0\1"
_CRC: Final = PRODUCER_SNAPSHOT_HEADER.positions["crc"]
_COUNT: Final = PRODUCER_SNAPSHOT_HEADER.size
_ENTRIES: Final = _COUNT + 4
_ENTRY: Final = np.dtype(PRODUCER_SNAPSHOT_ENTRY.dtype())


def snapshot_columns(path: str) -> NDArray[np.int64] | None:
    """Return one row per field in file order, one column per producer, by producer id.

    If a producer occurs twice, the last entry counts. None if the file cannot be read or is not
    sound: `read_producer_snapshot` reports why.
    """
    try:
        data = read_file(path, size_max=1 << 30)
    except KafkaLogError:
        return None
    if data[:_CRC] != _VERSION or int.from_bytes(data[_CRC:_COUNT], "big") != crc32c(data[_COUNT:]):
        return None
    count = int.from_bytes(data[_COUNT:_ENTRIES], "big", signed=True)
    if not 0 <= count <= (len(data) - _ENTRIES) // _ENTRY.itemsize:
        return None
    entries = np.frombuffer(data, _ENTRY, count, _ENTRIES)
    columns = np.array([entries[name] for name in _ENTRY.names or ()], np.int64)
    columns = columns[:, np.argsort(columns[0], kind="stable")]
    is_last = np.append(columns[0, 1:] != columns[0, :-1], True)
    return columns[:, is_last] if count else columns
