"""Invariants of an index file alone: the order of its entries.

Follows the `sanityCheck` methods of `OffsetIndex`, `TimeIndex` and `TransactionIndex` of Kafka 4.3
and goes beyond them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from formats import constants as c
from kafkalog.check.batches import running_max
from kafkalog.columns.side_files import aborted_columns, offset_columns, time_columns
from kafkalog.defects import make_defect
from kafkalog.paths.source import Source
from kafkalog.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.indexes import OffsetIndex, TimeIndex
    from kafkalog.model import Defect

    Column = NDArray[np.int64]

_NOTHING = -c.INT64_MAX - 1  # below every value in range


def offset_index_is_monotonic(index: OffsetIndex) -> Iterator[Defect]:
    """Offsets and positions of an offset index increase strictly; no offset is below the base."""
    before = (_NOTHING, _NOTHING)
    for number, offsets, positions in offset_columns(index):
        ahead, above = _shifted(before[0], offsets), _shifted(before[1], positions)
        low = (offsets < index.base_offset) | (positions < 0)
        for i in np.flatnonzero(low | (offsets <= ahead) | (positions <= above)).tolist():
            wrong = f"({offsets[i]}, {positions[i]}) follows ({ahead[i]}, {above[i]})"
            if low[i]:
                wrong = f"offset {offsets[i]} at position {positions[i]} is below the segment"
            yield _odd("offset-index-not-monotonic", index, number + i, int(offsets[i]), wrong)
        before = int(offsets[-1]), int(positions[-1])


def time_index_is_monotonic(index: TimeIndex) -> Iterator[Defect]:
    """Timestamps of a time index increase strictly, offsets never decrease."""
    before = (_NOTHING, _NOTHING)
    for number, timestamps, offsets in time_columns(index):
        ahead, above = _shifted(before[0], timestamps), _shifted(before[1], offsets)
        low = (offsets < index.base_offset) | (timestamps < 0)
        for i in np.flatnonzero(low | (timestamps <= ahead) | (offsets < above)).tolist():
            wrong = f"({timestamps[i]}, {offsets[i]}) follows ({ahead[i]}, {above[i]})"
            if low[i]:
                wrong = f"offset {offsets[i]} at time {timestamps[i]} is out of range"
            yield _odd("time-index-not-monotonic", index, number + i, int(offsets[i]), wrong)
        before = int(timestamps[-1]), int(offsets[-1])


def padding_is_sound(index: OffsetIndex | TimeIndex, *, is_active: bool) -> Iterator[Defect]:
    """Only zeros follow the entries, and only an open index has such padding.

    Kafka takes every slot of a file that it opens for an entry, zero or not. In a time index a
    single slot of zeros is an entry: that of a record of time 0.
    """
    is_of_time_zero = index.size_bytes == c.TIME_INDEX_ENTRY_SIZE == index.entry_size
    if not index.is_padded or is_of_time_zero:
        return
    position = index.entry_count * index.entry_size
    reference = None
    if not index.padding_is_zero():
        reference = "index-padding-not-zero"
        detail = "The bytes after the entries are not all zero."
    elif not is_active:
        reference = "index-not-trimmed"
        detail = (
            f"The index ends with {counted(index.slot_count - index.entry_count, 'slot')} of zeros."
        )
    if reference is not None:
        yield make_defect(reference, index.path, detail, position=position)


def _shifted(before: int, column: Column) -> Column:
    """Return the value before each."""
    return np.concatenate(([before], column[:-1]))


def _odd(
    reference: str, index: OffsetIndex | TimeIndex, number: int, offset: int, wrong: str
) -> Defect:
    return make_defect(
        reference,
        index.path,
        f"Entry {number}: {wrong}.",
        position=number * index.entry_size,
        offset=offset,
    )


def transaction_index_is_sound(path: str, base_offset: int) -> Iterator[Defect]:
    """Versions are 0, last offsets rise within the segment, first offsets are not after them."""
    highest = -1
    with Source(path) as source:
        for number, entries in aborted_columns(source):
            version, first, last = (
                entries[name].astype(np.int64)
                for name in ("version", "first_offset", "last_offset")
            )
            before = running_max(highest, last)
            highest = int(before[-1])
            odd = (version != 0) | (last < base_offset) | (last <= before[:-1])
            for i in np.flatnonzero(odd | (first < 0) | (first > last)).tolist():
                wrong = f"first offset {first[i]} is after last offset {last[i]}"
                if version[i] != 0:
                    wrong = f"version {version[i]} is unknown"
                elif last[i] < base_offset:
                    wrong = f"last offset {last[i]} is below the segment"
                elif last[i] <= before[i]:
                    wrong = f"last offset {last[i]} follows {before[i]}"
                yield make_defect(
                    "transaction-index-invalid",
                    path,
                    f"Entry {number + i}: {wrong}.",
                    position=(number + i) * c.ABORTED_TXN_SIZE,
                    offset=int(last[i]),
                )
