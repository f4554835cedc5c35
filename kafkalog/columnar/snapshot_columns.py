"""The producers of a snapshot as columns of int64.

Follows `ProducerStateManager.readSnapshot` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats.layouts import PRODUCER_SNAPSHOT_ENTRY, PRODUCER_SNAPSHOT_HEADER
from kafkalog.checksums import crc32c
from kafkalog.errors import KafkaLogError
from kafkalog.paths.source import read_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VERSION: Final = b"\0\1"
_CRC: Final = PRODUCER_SNAPSHOT_HEADER.positions["crc"]
_COUNT: Final = PRODUCER_SNAPSHOT_HEADER.size
_ENTRIES: Final = _COUNT + 4
_ENTRY: Final = np.dtype(PRODUCER_SNAPSHOT_ENTRY.dtype())


def snapshot_columns(path: str) -> NDArray[np.int64] | None:
    """One row per field in the order of the file, one column per producer, by producer id.

    Of a producer that is there twice the last entry counts. None where the file cannot be read or
    is not sound: `read_producer_snapshot` tells why.
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
