"""Invariants of an index file alone: it exists, its size, and the order of its entries.

Follows the `sanityCheck` methods of `OffsetIndex`, `TimeIndex` and `TransactionIndex` of Kafka
and goes beyond them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from formats import constants as c
from formats.file_names import FileKind
from kafkalog.check.batches import PartitionCheck, partition_check, running_max
from kafkalog.files.indexes import ENTRY_SIZES, OffsetIndex, TimeIndex
from kafkalog.io.paths.source import Source
from kafkalog.io.wording import counted
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.side_files import aborted_columns, offset_columns, time_columns
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import ExitStack

    from numpy.typing import NDArray

    from kafkalog.check.batches import CheckedLog, CheckedPartition, Found
    from kafkalog.files.log_dir import FileEntry
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.model import Defect

    Column = NDArray[np.int64]


def size_is_multiple(entry: FileEntry) -> Iterator[Defect]:
    """The size of an index is a multiple of 8, 12 or 34 bytes."""
    size = ENTRY_SIZES[entry.name.kind]
    rest = entry.size_bytes % size
    if rest:
        detail = f"The size {entry.size_bytes} is not a multiple of {size}: "
        detail += f"{counted(rest, 'byte')} too many."
        yield make_defect(
            "index-size-not-multiple",
            entry.path,
            detail,
            position=entry.size_bytes - rest,
            size_bytes=rest,
        )


def index_alone(
    entry: FileEntry, log: CheckedLog, files: ExitStack
) -> Generator[Defect, None, CheckedLog]:
    """Check an index by itself, and attach it to its log if its entries are in order.

    Args:
        files: keeps the index open.

    Returns:
        The log, with the index if that can be compared with it.
    """
    yield from size_is_multiple(entry)
    base_offset, is_active = log.base_offset, log.next_base_offset is None
    assert base_offset is not None, "an index lies beside a segment"
    if entry.name.kind == FileKind.OFFSET_INDEX:
        offsets = files.enter_context(OffsetIndex(entry.path, base_offset))
        yield from padding_is_sound(offsets, is_active=is_active)
        # The comparison with the log searches the entries, so they must be in order.
        if not (yield from _tell(offset_index_is_monotonic(offsets))):
            log = replace(log, offset_index=offsets)
    elif entry.name.kind == FileKind.TIME_INDEX:
        times = files.enter_context(TimeIndex(entry.path, base_offset))
        yield from padding_is_sound(times, is_active=is_active)
        if not (yield from _tell(time_index_is_monotonic(times))):
            log = replace(log, time_index=times)
    else:
        yield from transaction_index_is_sound(entry.path, base_offset)
    return log


def _tell(defects: Iterator[Defect]) -> Generator[Defect, None, bool]:
    told = False
    for defect in defects:
        told = True
        yield defect
    return told


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
    # A roll or a shutdown trims an index to its entries (AbstractIndex.trimToValidSize).
    elif not is_active:
        reference = "index-not-trimmed"
        detail = f"{index.slot_count - index.entry_count} slots after the entries are zero."
    if reference is not None:
        yield make_defect(reference, index.path, detail, position=position)


def _shifted(before: int, column: Column) -> Column:
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


@partition_check
class IndexesAreThere(PartitionCheck):
    """A log with batches has an offset index and a time index.

    Brokers before 0.10.1 wrote no time index, and messages of magic 0 have no timestamps for it.
    """

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        self._magics: dict[str, int] = {}  # the largest magic in each log

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        magic = int(columns.headers[h.MAGIC].max())
        self._magics[self.log.path] = max(magic, self._magics.get(self.log.path, magic))
        return iter(())

    def end(self) -> Iterator[Defect]:
        for segment in self.partition.directory.segments:
            missing = []
            if segment.offset_index is None:
                missing.append("index")
            if segment.time_index is None and self._magics.get(segment.log.path) != 0:
                missing.append("timeindex")
            # Kafka opens indexes lazily, and makes them then: an empty log may have none yet.
            for suffix in missing if segment.log.size_bytes else ():
                path = f"{segment.log.path.removesuffix('log')}{suffix}"
                yield make_defect(
                    "index-missing", path, "The segment has batches, but no such index."
                )
