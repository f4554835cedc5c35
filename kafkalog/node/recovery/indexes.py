"""Offset, time and transaction indexes as a broker reads them, and as a scan rebuilds them.

Follows `AbstractIndex`, `OffsetIndex` and `TimeIndex` of Kafka down to the steps of the binary
search, because its answer over garbage or over the zeros of a preallocated index depends on them.

Follows `LogSegment.recover` of Kafka: an entry is due once more than index.interval.bytes
follow the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from formats import constants as c
from formats.constants import (
    INT32_MAX,
    INT64_MAX,
    NO_TIMESTAMP,
    OFFSET_INDEX_ENTRY,
    TIME_INDEX_ENTRY,
)
from kafkalog.files.indexes import aborted_transaction_bytes
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.io.paths.source import WINDOW_SIZE_MIN
from kafkalog.model import AbortedTransaction
from kafkalog.node.recovery.model import StartConfig, StartRefusedError

if TYPE_CHECKING:
    import struct
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from kafkalog.log.producers import CompletedTransaction
    from kafkalog.node.recovery.directory import Content


class AbortedList:
    """Aborted transactions, in the order of their markers."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._last_offset: int | None = None

    def append(self, completed: CompletedTransaction, last_stable_offset: int) -> None:
        """Add an aborted transaction.

        Raises:
            StartRefusedError: it does not end after the last one.
        """
        if self._last_offset is not None and self._last_offset >= completed.last_offset:
            raise StartRefusedError(
                "IllegalArgumentException",
                "The last offset of appended transactions must increase sequentially, but "
                f"{completed.last_offset} is not greater than current last offset "
                f"{self._last_offset}",
            )
        self._last_offset = completed.last_offset
        ends = completed.first_offset, completed.last_offset, last_stable_offset
        entry = AbortedTransaction(0, completed.producer_id, *ends)
        self.data += aborted_transaction_bytes(entry)


# As AbstractIndex.warmEntries: where binary search begins decides what it meets in unsorted slots.
_WARM_BYTES = 8192


class InvalidOffsetError(StartRefusedError):
    """Kafka's `InvalidOffsetException`: offsets go back at a batch for which an entry is due."""


class IndexSlots:
    """Base of the offset index and the time index.

    Args:
        content: the file; None for a new, empty index.
        capacity_bytes: size that the broker preallocates.
    """

    entry: ClassVar[struct.Struct]

    def __init__(self, base_offset: int, content: Content | None, capacity_bytes: int) -> None:
        self.base_offset = base_offset
        self.capacity = capacity_bytes // self.entry.size
        self._content = content
        self._written = bytearray()
        self._page = b""
        # Every whole slot counts, the zeros of a preallocated file too: Kafka does not tell them
        # apart.
        self.entry_count = content.size_bytes // self.entry.size if content else 0

    def slot(self, number: int) -> tuple[int, int]:
        position = number * self.entry.size
        if self._content is None or self._page:
            fields = self.entry.unpack_from(self._page or self._written, position)
        else:
            fields = self.entry.unpack(self._content.read(position, self.entry.size))
        return fields[0], fields[1]

    def resize(self) -> None:
        """Grow the file to its capacity, as a broker does for an active segment.

        Raises:
            StartRefusedError: it has more entries than that, which Kafka does not expect.
        """
        if self.entry_count > self.capacity:
            size, limit = self.entry_count * self.entry.size, self.capacity * self.entry.size
            raise StartRefusedError(
                "IllegalArgumentException", f"newPosition > limit: ({size} > {limit})"
            )

    def data(self) -> bytes:
        """Return the entries, as a trimmed file holds them."""
        size = self.entry_count * self.entry.size
        if self._content is not None:
            return self._content.read(0, size)
        return bytes(self._written[:size])

    def forget(self) -> None:
        """Drop the entries of a rebuilt index that will hardly be read again.

        Later searches then begin at position 0, which finds the same batch more slowly.
        """
        if self._content is None:
            self._written = bytearray()

    def _extend(self, entries: bytes) -> None:
        assert self._content is None, "only rebuilt indexes grow"
        self._written += entries
        self.entry_count += len(entries) // self.entry.size

    def _append(self, first: int, second: int) -> None:
        self._extend(self.entry.pack(first, second))

    def _keep(self, count: int) -> None:
        self.entry_count = count
        if self._content is None:
            del self._written[count * self.entry.size :]

    def _floor(self, target: int, key: Callable[[int], int]) -> int:
        """Return the ordinal of the largest entry <= target that Kafka's search finds, or -1."""
        if not self.entry_count or (self._content is None and not self._written):
            return -1
        # A search takes a dozen steps; a read of the file for each would cost more than the whole
        # file.
        if self._content is not None and self._content.size_bytes <= WINDOW_SIZE_MIN:
            self._page = self._content.read(0, self._content.size_bytes)  # one look at the file
        try:
            return self._search(target, key)
        finally:
            self._page = b""

    def _search(self, target: int, key: Callable[[int], int]) -> int:
        # AbstractIndex.indexSlotRangeFor: the warm end first, then the first entry, then all the
        # rest.
        first_warm = max(0, self.entry_count - 1 - _WARM_BYTES // self.entry.size)
        if key(first_warm) < target:
            low, high = first_warm, self.entry_count - 1
        elif key(0) > target:
            return -1
        else:
            low, high = 0, first_warm
        while low < high:
            middle = (low + high + 1) // 2
            found = key(middle)
            if found == target:
                return middle
            if found > target:
                high = middle - 1
            else:
                low = middle
        return low

    def _count_below(self, offset: int, key: Callable[[int], int]) -> int:
        """Return the number of entries that `truncateTo` keeps."""
        slot = self._floor(offset, key)
        # OffsetIndex.truncateTo: an entry of exactly this offset goes, too.
        return slot if slot >= 0 and key(slot) == offset else slot + 1

    def _relative(self, offset: int) -> int:
        if not self.fits(offset):
            raise StartRefusedError(
                "IndexOffsetOverflowException", f"Integer overflow for offset: {offset}"
            )
        return offset - self.base_offset

    def fits(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= c.INT32_MAX


class OffsetSlots(IndexSlots):
    """An offset index, `.index`."""

    entry = OFFSET_INDEX_ENTRY.struct

    def __init__(self, base_offset: int, content: Content | None, capacity_bytes: int) -> None:
        super().__init__(base_offset, content, capacity_bytes)
        self.last_offset = self._last_offset()

    def offset(self, number: int) -> int:
        return self.base_offset + self.slot(number)[0]

    def position_below(self, offset: int) -> int:
        """Return the position at which a search for the offset starts."""
        slot = self._floor(offset, self.offset)
        return self.slot(slot)[1] if slot >= 0 else 0

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises:
            InvalidOffsetError: the offset is not above the last one.
            StartRefusedError: the index is full.
        """
        if self.entry_count >= self.capacity:
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Attempt to append to a full index (size = {self.entry_count}).",
            )
        if self.entry_count and offset <= self.last_offset:
            raise InvalidOffsetError(
                "InvalidOffsetException",
                f"Attempt to append an offset {offset} to position {self.entry_count} no larger "
                f"than the last offset appended ({self.last_offset})",
            )
        self._append(self._relative(offset), position)
        self.last_offset = offset

    def extend(self, entries: bytes, last_offset: int) -> None:
        """Add entries that `append` would accept; `last_offset` is that of the last one."""
        self._extend(entries)
        self.last_offset = last_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from the offset on."""
        self._keep(self._count_below(offset, self.offset))
        self.last_offset = self._last_offset()

    def _last_offset(self) -> int:
        return self.offset(self.entry_count - 1) if self.entry_count else self.base_offset


class TimeSlots(IndexSlots):
    """A time index, `.timeindex`."""

    entry = TIME_INDEX_ENTRY.struct

    def __init__(self, base_offset: int, content: Content | None, capacity_bytes: int) -> None:
        super().__init__(base_offset, content, capacity_bytes)
        self.last = self._last()

    def offset(self, number: int) -> int:
        return self.base_offset + self.slot(number)[1]

    def maybe_append(self, timestamp: int, offset: int, *, at_end: bool = False) -> None:
        """Add an entry if its timestamp is later than the last; one slot is reserved for the end.

        Raises:
            InvalidOffsetError: the offset is below the last one.
            StartRefusedError: the index is full.
        """
        if not at_end and self.entry_count >= self.capacity - 1:
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Attempt to append to a full time index (size = {self.entry_count}).",
            )
        if self.entry_count and offset < self.last[1]:
            raise InvalidOffsetError(
                "InvalidOffsetException",
                f"Attempt to append an offset ({offset}) to slot {self.entry_count} no larger than "
                f"the last offset appended ({self.last[1]})",
            )
        if timestamp > self.last[0]:
            self._append(timestamp, self._relative(offset))
            self.last = (timestamp, offset)

    def extend(self, entries: bytes, last: tuple[int, int]) -> None:
        """Add entries that `maybe_append` would accept; `last` holds the last one's two fields."""
        self._extend(entries)
        self.last = last

    def truncate_to(self, offset: int) -> None:
        self._keep(self._count_below(offset, self.offset))
        self.last = self._last()

    def _last(self) -> tuple[int, int]:
        """Return the last entry's timestamp and offset, else `NO_TIMESTAMP` and the base offset."""
        if not self.entry_count:
            return c.NO_TIMESTAMP, self.base_offset
        timestamp, relative_offset = self.slot(self.entry_count - 1)
        return timestamp, self.base_offset + relative_offset


class IndexBuild:
    """The indexes of a segment while they are being rebuilt.

    Attributes:
        offsets: the offset index.
        times: the time index.
        max_timestamp: the largest timestamp, and the last offset of the batch that has it.
    """

    def __init__(self, base_offset: int, config: StartConfig) -> None:
        self.offsets = OffsetSlots(base_offset, None, config.segment_index_bytes)
        self.times = TimeSlots(base_offset, None, config.segment_index_bytes)
        self.max_timestamp = NO_TIMESTAMP, base_offset
        self._base_offset = base_offset
        self._interval = config.index_interval_bytes
        self._last_entry = 0

    def batch(self, max_timestamp: int, last_offset: int, position: int) -> None:
        """Add the entries that are due at a batch, whose position is that in the log.

        Raises:
            InvalidOffsetError: offsets go back at a batch for which an entry is due.
            StartRefusedError: an index is full.
        """
        if max_timestamp > self.max_timestamp[0]:
            self.max_timestamp = max_timestamp, last_offset
        # Measured before the batch: the first batch of a segment never gets an entry.
        if position - self._last_entry > self._interval:
            self.offsets.append(last_offset, position)
            self.times.maybe_append(*self.max_timestamp)
            self._last_entry = position

    def columns(
        self,
        max_timestamps: NDArray[np.int64],
        last_offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
    ) -> bool:
        """Do what `batch` does, for several; return False, changing nothing, if it would raise."""
        import numpy as np

        largest, of_largest = self.max_timestamp
        running = np.maximum.accumulate(np.concatenate(([largest], max_timestamps)))
        rises = np.where(max_timestamps > running[:-1], np.arange(1, len(running)), 0)
        holders = np.concatenate(([of_largest], last_offsets))[np.maximum.accumulate(rises)]
        due = self._due(positions)
        if len(due):
            offsets = np.concatenate(([self.offsets.last_offset], last_offsets[due]))
            times = np.concatenate(([self.times.last[0]], running[1:][due]))
            later = times[1:] > times[:-1]
            of_times = np.concatenate(([self.times.last[1]], holders[due][later]))
            if not self._is_plain(offsets, of_times, len(due)):
                return False
            self._extend(offsets[1:], positions[due], times[1:][later], of_times[1:])
            self._last_entry = int(positions[due[-1]])
        self.max_timestamp = int(running[-1]), int(holders[-1])
        return True

    def end(self) -> None:
        """Add the entry that the time index of a segment ends with."""
        self.times.maybe_append(*self.max_timestamp, at_end=True)

    def _due(self, positions: NDArray[np.int64]) -> Sequence[int] | NDArray[np.int64]:
        """Return the ordinals of the batches for which entries are due."""
        # Each due batch depends on the one before: a loop, which the kernel does at full speed.
        if kernels_work():
            import numpy as np

            from kafkalog.log.columns.fact_kernels import list_due

            found = np.empty(len(positions), np.int64)
            return found[: list_due(positions, self._last_entry, self._interval, found)]
        # Without kernels: for all batches at once where the next entry is due, then from one to the
        # next.
        behind = positions.searchsorted(positions + self._interval, "right").tolist()
        due = []
        ordinal = int(positions.searchsorted(self._last_entry + self._interval, "right"))
        while ordinal < len(behind):
            due.append(ordinal)
            ordinal = behind[ordinal]
        return due

    def _is_plain(
        self, offsets: NDArray[np.int64], of_times: NDArray[np.int64], count: int
    ) -> bool:
        """Return whether entries can be appended; each column starts with the last one."""
        # The column begins with the last entry; in an empty index that is no entry to compare with.
        first = 0 if self.offsets.entry_count else 1
        if not (offsets[first + 1 :] > offsets[first:-1]).all():
            return False
        first = 0 if self.times.entry_count else 1
        if not (of_times[first + 1 :] >= of_times[first:-1]).all():
            return False
        limit = min(self._base_offset + INT32_MAX, INT64_MAX)
        for column in (offsets[1:], of_times[1:]):
            if len(column) and not self._base_offset <= column.min() <= column.max() <= limit:
                return False
        return (
            self.offsets.entry_count + count <= self.offsets.capacity
            and self.times.entry_count + count < self.times.capacity
        )

    def _extend(
        self,
        offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
        times: NDArray[np.int64],
        of_times: NDArray[np.int64],
    ) -> None:
        import numpy as np

        entries = np.empty((len(offsets), 2), ">i4")
        entries[:, 0], entries[:, 1] = offsets - self._base_offset, positions
        self.offsets.extend(entries.tobytes(), int(offsets[-1]))
        if len(times):
            slots = np.empty(len(times), [("timestamp", ">i8"), ("offset", ">i4")])
            slots["timestamp"], slots["offset"] = times, of_times - self._base_offset
            self.times.extend(slots.tobytes(), (int(times[-1]), int(of_times[-1])))
