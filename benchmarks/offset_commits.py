"""A segment of `__consumer_offsets` with its offset index: batches of one size, as numpy's rows.

`python -m benchmarks.offset_commits LOG RECORDS GROUPS SEED` prints the end offset.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from tests.builders import batch, record

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTITIONS = 20
"""Offsets that a group commits at once: each batch has one of each."""
START_MS = 1_700_000_000_000
_BATCHES_AT_ONCE = 50_000
_NAME = b"analytics-service-eu-%08d"
_DIGITS = 8
_INDEX_INTERVAL = 4096
_CRC_AT, _CRC_FROM, _TIMES_AT = 17, 21, (27, 35)


def write(path: Path, records: int, groups: int, seed: int, base_offset: int = 0) -> int:
    """Write a segment, in which groups commit in a random order; return its end offset."""
    random = np.random.default_rng(seed)
    template = np.frombuffer(_template(), np.uint8)
    size = len(template)
    names = [at for at in range(size) if template[at:].tobytes().startswith(_NAME % 0)]
    values = [at for at in range(size) if template[at:].tobytes().startswith(_value())]
    count = max(1, records // PARTITIONS)
    with path.open("wb") as file:
        for start in range(0, count, _BATCHES_AT_ONCE):
            numbers = np.arange(start, min(start + _BATCHES_AT_ONCE, count))
            rows = np.tile(template, (len(numbers), 1))
            offsets = base_offset + PARTITIONS * numbers
            times = START_MS + offsets // 10
            _put(rows, 0, offsets)
            for at in _TIMES_AT:
                _put(rows, at, times)
            digits = (random.integers(0, groups, len(rows)) // 10 ** _POWERS[:, None] % 10).T + 48
            for name, value in zip(names, values, strict=True):
                first = name + len(_NAME % 0) - _DIGITS
                rows[:, first : first + _DIGITS] = digits
                _put(rows, value + 2, offsets + value)
                _put(rows, value + len(_value()) - 8, times)
            sums = np.array([crc32c(row[_CRC_FROM:].data) for row in rows], ">u4")
            rows[:, _CRC_AT : _CRC_AT + 4] = sums.view(np.uint8).reshape(-1, 4)
            file.write(rows.data)
    # As LogSegment.append: a batch after more than index.interval.bytes, by its last offset.
    indexed = np.arange(0, count, _INDEX_INTERVAL // size + 1)[1:]
    entries = np.stack((PARTITIONS * (indexed + 1) - 1, indexed * size), axis=1)
    path.with_suffix(".index").write_bytes(entries.astype(">i4").tobytes())
    return base_offset + PARTITIONS * count


_POWERS = np.arange(_DIGITS - 1, -1, -1)


def _put(rows: NDArray[np.uint8], at: int, numbers: NDArray[np.int64]) -> None:
    rows[:, at : at + 8] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)


def _template() -> bytes:
    """A batch, of which offsets, times and the group change."""
    keys = (
        struct.pack(">hh", 1, len(_NAME % 0)) + _NAME % 0
        + struct.pack(">h19si", 19, b"payments.events-%03d" % (number % 4), number // 4)
        for number in range(PARTITIONS)
    )  # fmt: skip
    return batch(0, [record(number, key, _value()) for number, key in enumerate(keys)])


def _value() -> bytes:
    """A value of version 3: offset, leader epoch, no metadata, time."""
    return struct.pack(">hqihq", 3, 0, 7, 0, 0)


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), *map(int, sys.argv[2:])))
