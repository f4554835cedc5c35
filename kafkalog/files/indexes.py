"""Offset, time and transaction indexes: entries and binary search, read straight from the file.

Follows `AbstractIndex`, `OffsetIndex`, `TimeIndex` and `TransactionIndex` of Kafka, except that
the zero padding of a preallocated index is distinguished from its entries, which Kafka does not do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from formats import constants as c
from formats.constants import ABORTED_TRANSACTION, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from formats.file_names import FileKind, parse_file_name
from formats.late_classes import dataclass
from kafkalog.errors import BytesUnreadableError
from kafkalog.io.paths.source import Source
from kafkalog.model import AbortedTransaction, OffsetIndexEntry, TimeIndexEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

ENTRY_SIZES = {
    FileKind.OFFSET_INDEX: c.OFFSET_INDEX_ENTRY_SIZE,
    FileKind.TIME_INDEX: c.TIME_INDEX_ENTRY_SIZE,
    FileKind.TRANSACTION_INDEX: c.ABORTED_TXN_SIZE,
}
ENTRIES_A_BLOCK = 8192
# A binary search ends among neighbours, and the next one begins with the same entries.
_BLOCK_SIZE = 4096
_BLOCKS_KEPT = 64

Entry = TypeVar("Entry", OffsetIndexEntry, TimeIndexEntry)


@dataclass(frozen=True, slots=True)
class Probe(Generic[Entry]):
    """One step of a binary search: the range of entries still possible and the entry probed."""

    low: int
    high: int
    entry: Entry


class _Index(ABC, Generic[Entry]):
    """Base of the offset index and the time index.

    `entry_count` excludes the zero padding; `slot_count` is what Kafka would take for the number of
    entries.
    """

    entry_size: int

    def __init__(self, path: str, base_offset: int | None = None) -> None:
        self.path = path
        if base_offset is None:
            # A cached remote index is named by its offset, too, but not padded.
            base_offset = parse_file_name(path.rpartition("/")[2]).offset or 0
        self.base_offset = base_offset
        self._source = Source(path)
        self._blocks: dict[int, bytes] = {}
        self.size_bytes = self._source.size_bytes
        self.slot_count = self.size_bytes // self.entry_size
        self.entry_count = self._count_entries()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._source.close()

    @property
    def is_padded(self) -> bool:
        """Whether unused slots follow the entries, as in an index that a broker has open."""
        return self.entry_count < self.slot_count

    def padding_is_zero(self) -> bool:
        """Return whether only zeros follow the entries; holes of the file are not read."""
        return self._source.is_zero_from(self.entry_count * self.entry_size)

    def _slot(self, number: int) -> bytes:
        size, count = self.entry_size, _BLOCK_SIZE // self.entry_size
        block, ordinal = divmod(number, count)
        if block not in self._blocks:
            if len(self._blocks) == _BLOCKS_KEPT:
                self._blocks.clear()
            try:
                self._blocks[block] = self._source.read(block * count * size, count * size)
            except BytesUnreadableError:  # perhaps those of another entry
                return self._source.read(number * size, size)
        return self._blocks[block][ordinal * size : (ordinal + 1) * size]

    def _count_entries(self) -> int:
        """Count the slots before the zero padding, by binary search: zeros only follow entries.

        Slot 0 may be zero in a time index (a record of time 0), never in an offset index.
        """
        zero = bytes(self.entry_size)
        # A closed index is trimmed to its entries: no search.
        if self.slot_count == 0 or self._slot(self.slot_count - 1) != zero:
            return self.slot_count
        low, high = 0, self.slot_count - 1
        while low < high:
            middle = (low + high) // 2
            if self._slot(middle) == zero:
                high = middle
            else:
                low = middle + 1
        return low

    @abstractmethod
    def entry(self, number: int) -> Entry:
        """Return entry `number`, counted from 0."""

    @abstractmethod
    def entries(self, *, padding: bool = False) -> Iterator[Entry]:
        """Yield all entries in file order; with `padding`, every slot of the file."""

    def blocks(
        self, *, padding: bool = False, at_once: int = ENTRIES_A_BLOCK
    ) -> Iterator[tuple[int, bytes]]:
        """Yield blocks of stored entries, each with the number of its first entry."""
        count = self.slot_count if padding else self.entry_count
        for first in range(0, count, at_once):
            number = min(at_once, count - first)
            yield first, self._source.read(first * self.entry_size, number * self.entry_size)

    def _floor(
        self, target: int, key: str, probes: list[Probe[Entry]] | None = None
    ) -> Entry | None:
        low, high = 0, self.entry_count
        found = None
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if probes is not None:
                probes.append(Probe(low, high, entry))
            if getattr(entry, key) <= target:
                # A plain search: Kafka's split into a warm and a cold part changes only which pages
                # are touched.
                found, low = entry, middle + 1
            else:
                high = middle
        return found


class OffsetIndex(_Index[OffsetIndexEntry]):
    """An `.index` file: 8-byte entries, relative offset and position.

    Args:
        base_offset: base offset of the segment; None takes it from the file's name.
    """

    entry_size = c.OFFSET_INDEX_ENTRY_SIZE

    def entry(self, number: int) -> OffsetIndexEntry:
        relative, position = OFFSET_INDEX_ENTRY.struct.unpack(self._slot(number))
        return OffsetIndexEntry(number, self.base_offset + relative, position)

    def entries(self, *, padding: bool = False) -> Iterator[OffsetIndexEntry]:
        for first, chunk in self.blocks(padding=padding):
            for number, (relative, position) in enumerate(
                OFFSET_INDEX_ENTRY.struct.iter_unpack(chunk), first
            ):
                yield OffsetIndexEntry(number, self.base_offset + relative, position)

    def lookup(
        self, offset: int, probes: list[Probe[OffsetIndexEntry]] | None = None
    ) -> OffsetIndexEntry | None:
        """Return the last entry with an offset <= `offset`, or None, as `OffsetIndex.lookup` does.

        The steps of the binary search are appended to `probes`.
        """
        return self._floor(offset, "offset", probes)

    def first_at(self, position: int) -> int:
        """Return the number of the first entry at or after a position, or the entry count."""
        return bisect_left(range(self.entry_count), position, key=lambda i: self.entry(i).position)


class TimeIndex(_Index[TimeIndexEntry]):
    """A `.timeindex` file: 12-byte entries, timestamp and relative offset.

    Args:
        base_offset: base offset of the segment; None takes it from the file's name.
    """

    entry_size = c.TIME_INDEX_ENTRY_SIZE

    def entry(self, number: int) -> TimeIndexEntry:
        timestamp, relative = TIME_INDEX_ENTRY.struct.unpack(self._slot(number))
        return TimeIndexEntry(number, timestamp, self.base_offset + relative)

    def entries(self, *, padding: bool = False) -> Iterator[TimeIndexEntry]:
        for first, chunk in self.blocks(padding=padding):
            for number, (timestamp, relative) in enumerate(
                TIME_INDEX_ENTRY.struct.iter_unpack(chunk), first
            ):
                yield TimeIndexEntry(number, timestamp, self.base_offset + relative)

    def lookup(
        self, timestamp: int, probes: list[Probe[TimeIndexEntry]] | None = None
    ) -> TimeIndexEntry | None:
        """Return the last entry with a timestamp <= `timestamp`, or None."""
        return self._floor(timestamp, "timestamp", probes)

    def last(self) -> TimeIndexEntry | None:
        """Return the last entry, which holds the largest timestamp of the segment."""
        return self.entry(self.entry_count - 1) if self.entry_count else None

    def last_slot_timestamp(self) -> int:
        """Return the timestamp of the file's last slot, which Kafka takes for an entry in any case.

        A broker that opens a cleanly closed log uses this timestamp. -1 for an empty file.
        """
        return self.entry(self.slot_count - 1).timestamp if self.slot_count else -1


def read_aborted_transactions(path: str) -> Iterator[AbortedTransaction]:
    """Yield the entries of a `.txnindex` file in file order, without a partial last entry."""
    with Source(path) as source:
        # TransactionIndex ignores a partial last entry, and leaves it where it is.
        size = source.size_bytes - source.size_bytes % c.ABORTED_TXN_SIZE
        for position in range(0, size, c.ABORTED_TXN_SIZE):
            yield from aborted_transactions(source.read(position, c.ABORTED_TXN_SIZE))


def aborted_transactions(entries: bytes) -> Iterator[AbortedTransaction]:
    """Yield the entries that some bytes of a `.txnindex` file hold."""
    for fields in ABORTED_TRANSACTION.struct.iter_unpack(entries):
        yield AbortedTransaction(*fields)


def aborted_transaction_bytes(entry: AbortedTransaction) -> bytes:
    """Return the bytes of one entry of a `.txnindex` file."""
    return ABORTED_TRANSACTION.struct.pack(
        entry.version,
        entry.producer_id,
        entry.first_offset,
        entry.last_offset,
        entry.last_stable_offset,
    )
