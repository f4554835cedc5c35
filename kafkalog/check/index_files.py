"""Invariants of an index file alone: its size and the order of its entries.

Follows the `sanityCheck` methods of `OffsetIndex`, `TimeIndex` and `TransactionIndex` of Kafka 4.3
and goes beyond them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.defects import make_defect
from kafkalog.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.names import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log_dir import FileEntry
    from kafkalog.model import Defect

ENTRY_SIZES = {
    FileKind.OFFSET_INDEX: c.OFFSET_INDEX_ENTRY_SIZE,
    FileKind.TIME_INDEX: c.TIME_INDEX_ENTRY_SIZE,
    FileKind.TRANSACTION_INDEX: c.ABORTED_TXN_SIZE,
}


def size_is_multiple(entry: FileEntry) -> Iterator[Defect]:
    """The size of an index is a multiple of 8, 12 or 34 bytes."""
    size = ENTRY_SIZES[entry.name.kind]
    rest = entry.size_bytes % size
    if rest:
        detail = f"The size {entry.size_bytes} is no multiple of {size}: {rest} bytes are over."
        yield make_defect(
            "index-size-not-multiple",
            entry.path,
            detail,
            position=entry.size_bytes - rest,
            size_bytes=rest,
        )


def offset_index_is_monotonic(index: OffsetIndex) -> Iterator[Defect]:
    """Offsets and positions of an offset index increase strictly; no offset is below the base."""
    before = None
    for entry in index.entries():
        wrong = None
        if entry.offset < index.base_offset or entry.position < 0:
            wrong = f"offset {entry.offset} at position {entry.position} is below the segment"
        elif before and (entry.offset <= before.offset or entry.position <= before.position):
            wrong = (
                f"({entry.offset}, {entry.position}) follows ({before.offset}, {before.position})"
            )
        if wrong:
            yield make_defect(
                "offset-index-not-monotonic",
                index.path,
                f"Entry {entry.entry}: {wrong}.",
                position=entry.entry * index.entry_size,
                offset=entry.offset,
            )
        before = entry


def time_index_is_monotonic(index: TimeIndex) -> Iterator[Defect]:
    """Timestamps of a time index increase strictly, offsets never decrease."""
    before = None
    for entry in index.entries():
        wrong = None
        if entry.offset < index.base_offset or entry.timestamp < 0:
            wrong = f"offset {entry.offset} at time {entry.timestamp} is out of range"
        elif before and (entry.timestamp <= before.timestamp or entry.offset < before.offset):
            wrong = (
                f"({entry.timestamp}, {entry.offset}) follows ({before.timestamp}, {before.offset})"
            )
        if wrong:
            yield make_defect(
                "time-index-not-monotonic",
                index.path,
                f"Entry {entry.entry}: {wrong}.",
                position=entry.entry * index.entry_size,
                offset=entry.offset,
            )
        before = entry


def transaction_index_is_sound(path: str, base_offset: int) -> Iterator[Defect]:
    """Versions are 0, last offsets rise and lie in the segment, first offsets before them."""
    before = -1
    for number, entry in enumerate(read_aborted_transactions(path)):
        wrong = None
        if entry.version != 0:
            wrong = f"version {entry.version} is unknown"
        elif entry.last_offset < base_offset:
            wrong = f"last offset {entry.last_offset} is below the segment"
        elif entry.last_offset <= before:
            wrong = f"last offset {entry.last_offset} follows {before}"
        elif not 0 <= entry.first_offset <= entry.last_offset:
            wrong = f"first offset {entry.first_offset} is after last offset {entry.last_offset}"
        if wrong:
            yield make_defect(
                "transaction-index-invalid",
                path,
                f"Entry {number}: {wrong}.",
                position=number * c.ABORTED_TXN_SIZE,
                offset=entry.last_offset,
            )
        before = max(before, entry.last_offset)
