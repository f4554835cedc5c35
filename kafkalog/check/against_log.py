"""Invariants of a segment's indexes against its batches, in one pass over the log.

Follows `LogSegment.append`, `OffsetIndex` and `TimeIndex`, also those of releases before 3.9.1. A
batch with a wrong checksum is no evidence, nor is the last offset of a batch that the next batch
does not follow. Per index, a few wrong entries are reported individually, the others as a count.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check.batches import SegmentCheck, running_max, segment_check, unread_range
from kafkalog.check.successors import FEW, Entries, KnownBatches, Successors, first_offsets
from kafkalog.io.wording import counted
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.side_files import offset_columns, time_columns
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.check.batches import CheckedLog, Found
    from kafkalog.files.indexes import OffsetIndex, TimeIndex
    from kafkalog.log.columns.headers import BatchColumns, PlainRun
    from kafkalog.model import Defect

    Column = NDArray[np.int64]
    Columns = tuple[int, Column, Column]

_TOLD_ONE_BY_ONE: Final = 8


@segment_check
class IndexesMatchLog(SegmentCheck):
    """The offset index and the time index agree with the log."""

    def __init__(self, log: CheckedLog) -> None:
        super().__init__(log)
        base_offset = log.base_offset
        assert base_offset is not None, "an index lies beside a segment"
        self._walk = Successors(base_offset - 1)
        self._indexes: list[_IndexCheck] = []
        self._unread: range | None = None
        if log.offset_index is not None:
            self._indexes += [_Positions(log.offset_index), _LastOffsets(log.offset_index)]
        if log.time_index is not None:
            self._indexes.append(_Timestamps(log.time_index, is_closed=log.is_closed))

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        """Return whether the log has everything that the check compares."""
        return log.offset_index is not None or log.time_index is not None

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        """Yield the defects of the next batches, ordered by batch number."""
        self._unread = None
        if columns.plain is not None and self._is_right(columns, columns.plain):
            return
        shift, batches = self._walk.take(columns)
        if batches is not None:
            found = [index.judge(batches) for index in self._indexes]
            for number, defect in heapq.merge(*found, key=itemgetter(0)):
                yield number + shift, defect

    def _is_right(self, columns: BatchColumns, run: PlainRun) -> bool:
        """Take a small plain log if each entry of the indexes says what is usual; else False."""
        is_end = self.log.size_bytes is not None and run.end_position >= self.log.size_bytes
        if run.count > FEW or not is_end or not self._walk.goes_on(run):
            return False
        rows = columns.headers.tolist()
        # All of them first: `pass_by` consumes entries, which `judge` would miss.
        if not all(index.fits(rows) for index in self._indexes):
            return False
        for index in self._indexes:
            index.pass_by(rows)
        self._walk.pass_by(run)
        return True

    def damage(self, defect: Defect) -> None:
        """Note damage between batches, or after the last one."""
        self._unread = unread_range(defect)

    def end(self) -> Iterator[Defect]:
        """Yield the defects of the last batch, and of entries beyond the log's end."""
        # The last batch was held back, waiting for a successor that would confirm its last offset.
        batches = self._walk.rest()
        if batches is not None:
            for index in self._indexes:
                for _, defect in index.judge(batches):
                    yield defect
        for index in self._indexes:
            yield from index.end(self._walk.highest, self._unread)


class _IndexCheck(ABC):
    """Checks one index, and counts the entries that it has reported."""

    def __init__(self, index: OffsetIndex | TimeIndex, entries: Entries) -> None:
        self.index = index
        self._entries = entries
        self._told = 0

    @abstractmethod
    def fits(self, rows: Sequence[list[int]]) -> bool:
        """Return whether the entries left are those that brokers usually write for all of a log.

        Args:
            rows: the header table of its batches, a plain run.
        """

    def pass_by(self, rows: Sequence[list[int]]) -> None:  # noqa: ARG002 # some count batches
        """Take the batches, and the entries that fit them."""
        self._entries.pass_by()

    @abstractmethod
    def judge(self, batches: KnownBatches) -> Iterator[Found]:
        """Yield the defects of the entries for some batches, ordered by batch number."""

    @abstractmethod
    def end(self, highest: int, unread: range | None) -> Iterator[Defect]:
        """Yield the defects that show once all batches have been seen.

        Args:
            highest: the last offset that was seen.
            unread: the positions at the end that could not be read; None if the log was read to
                its end.
        """

    def _tell(self, reference: str, entry: int, offset: int, detail: str) -> Iterator[Defect]:
        """Yield the defect of an entry, unless many have been reported already."""
        self._told += 1
        if self._told <= _TOLD_ONE_BY_ONE:
            yield make_defect(
                reference,
                self.index.path,
                f"Entry {entry}{detail}.",
                position=entry * self.index.entry_size,
                offset=offset,
            )

    def _others(self, reference: str) -> Iterator[Defect]:
        """Yield one defect for all entries that were not reported individually."""
        if self._told > _TOLD_ONE_BY_ONE:
            detail = f"{counted(self._told - _TOLD_ONE_BY_ONE, 'more wrong entry')}."
            yield make_defect(reference, self.index.path, detail)

    def _beyond(
        self, reference: str, left: Iterator[tuple[int, Column]], problem: str
    ) -> Iterator[Defect]:
        """Yield one defect for all entries that are left after the last batch."""
        count, first, offset = 0, 0, 0
        for number, offsets in left:
            if not count:
                first, offset = number, int(offsets[0])
            count += len(offsets)
        if count:
            more = f" and {count - 1} more after it" if count > 1 else ""
            yield make_defect(
                reference,
                self.index.path,
                f"Entry {first}{more} (offset {offset}): {problem}.",
                position=first * self.index.entry_size,
                offset=offset,
            )


class _Positions(_IndexCheck):
    """Each entry's position is the start of a batch, and no batch before it reaches its offset.

    Up to 3.9.0, and in 4.0.0, Kafka made one entry per append: the last offset of the append at the
    position of its first batch. Such entries are legal if the append ends before the next entry's
    position. An entry that points into damage is not reported.
    """

    def __init__(self, index: OffsetIndex) -> None:
        super().__init__(index, Entries(offset_columns(index)))
        self._offset_before = -1

    def fits(self, rows: Sequence[list[int]]) -> bool:
        """Return whether each entry has the position and the last offset of a batch."""
        last_offsets = dict(zip(rows[h.POSITION], rows[h.LAST_OFFSET], strict=True))
        left = self._entries.left()
        return left is not None and all(last_offsets.get(two) == one for one, two in left)

    def judge(self, batches: KnownBatches) -> Iterator[Found]:
        """Yield the defects of the entries for some batches, ordered by batch number."""
        positions = batches.columns.headers[h.POSITION]
        for number, offsets, places in self._entries.up_to(int(positions[-1])):
            batch = np.searchsorted(positions, places)
            hits, highest = positions[batch] == places, batches.highest[batch]
            # Between `starts` and the batch is damage, which may have begun with a batch.
            misses = ~hits & (places < batches.starts[batch])
            reached = hits & (offsets <= highest)
            # The entry before is judged here: an append must end before the next entry's position.
            before = np.concatenate(([self._offset_before], offsets[:-1]))
            is_sure = batches.is_whole[batch] & ~batches.is_unsure[batch]
            beyond = hits & is_sure & (before > highest)
            self._offset_before = int(offsets[-1])
            for i in np.flatnonzero(misses | reached | beyond).tolist():
                place, offset = int(places[i]), int(offsets[i])
                reference, entry = "index-entry-misses-batch", number + i
                detail = f"no batch starts at position {place}"
                if reached[i]:
                    detail = f"a batch before position {place} reaches it"
                elif beyond[i]:
                    reference, entry, offset = "index-entry-offset-wrong", entry - 1, int(before[i])
                    detail = f"no batch before position {place}, the next entry's, reaches it"
                for defect in self._tell(reference, entry, offset, f" (offset {offset}): {detail}"):
                    yield int(batch[i]), defect

    def end(self, highest: int, unread: range | None) -> Iterator[Defect]:
        """Yield the entries after the last batch, unless they point to unreadable bytes."""
        left = _outside(self._entries.up_to(c.INT64_MAX), unread or range(0))
        problem = f"no batch starts at its position; the log ends at offset {highest}"
        yield from self._beyond("index-entry-misses-batch", left, problem)
        yield from self._others("index-entry-misses-batch")


class _LastOffsets(_IndexCheck):
    """Each entry's offset is the last one of a batch.

    Also legal: the largest offset left in a batch, as the cleaner wrote it up to 3.9.0 and in
    4.0.0; and the first offset of a batch, as brokers before 2.0 wrote it, if at least as many
    entries of the index hold a first offset as a last one.
    """

    def __init__(self, index: OffsetIndex) -> None:
        blocks = offset_columns(index)
        super().__init__(index, Entries((number, two, one) for number, one, two in blocks))
        self._firsts: list[tuple[int, int]] = []
        self._first_count = self._last_count = 0

    def fits(self, rows: Sequence[list[int]]) -> bool:
        """Return whether each entry has the last offset of a batch; none begins anywhere else."""
        left = self._entries.left()
        return left is not None and {two for _, two in left} <= {*rows[h.LAST_OFFSET]}

    def pass_by(self, rows: Sequence[list[int]]) -> None:
        """Take the batches, and count the entries for batches of several records."""
        # With a single record, first and last offset are the same, so no evidence of either.
        several = zip(rows[h.LAST_OFFSET], rows[h.COUNT], strict=True)
        ends = {last for last, count in several if count > 1}
        self._last_count += sum(two in ends for _, two in self._entries.left() or ())
        super().pass_by(rows)

    def judge(self, batches: KnownBatches) -> Iterator[Found]:
        """Yield the defects of the entries for some batches, ordered by batch number."""
        columns = batches.columns
        headers = columns.headers
        for number, _, offsets in self._entries.up_to(int(batches.highest[-1])):
            batch, unsure = batches.reaching(offsets)
            is_last = offsets == headers[h.LAST_OFFSET, batch]
            is_first = ~is_last & (offsets == first_offsets(columns)[batch])
            self._last_count += int((is_last & (headers[h.COUNT, batch] > 1)).sum())
            self._first_count += int(is_first.sum())
            room = max(_TOLD_ONE_BY_ONE - len(self._firsts), 0)
            # Whether they are wrong is known only at the end, from the entries of the whole index.
            for i in np.flatnonzero(is_first).tolist()[:room]:
                self._firsts.append((number + i, int(offsets[i])))
            odd = ~(is_last | is_first | unsure | _largest_left(columns, batch, offsets))
            for i in np.flatnonzero(odd).tolist():
                offset = int(offsets[i])
                detail = f": no batch ends at offset {offset}"
                for defect in self._tell("index-entry-offset-wrong", number + i, offset, detail):
                    yield int(batch[i]), defect

    def end(self, highest: int, unread: range | None) -> Iterator[Defect]:
        """Yield a last entry beyond the log, and first offsets in an index of last offsets."""
        if self._first_count < self._last_count:
            for entry, offset in self._firsts:
                detail = f": offset {offset} is the first one of a batch, not the last"
                yield from self._tell("index-entry-offset-wrong", entry, offset, detail)
        yield from self._others("index-entry-offset-wrong")
        if unread is not None:
            return  # it is unknown how far the log reaches
        left = ((number, two) for number, _, two in self._entries.up_to(c.INT64_MAX))
        problem = f"the log ends at offset {highest}"
        yield from self._beyond("index-entry-beyond-log", left, problem)


class _Timestamps(_IndexCheck):
    """Each entry holds the largest timestamp so far, and the last offset of the batch that has it.

    Brokers before 3.8 could write the offset of the record that has it. Messages of magic 0 have no
    timestamps, yet a topic with LogAppendTime indexes the broker's clock. The index of a closed
    segment ends with the largest timestamp of the segment.
    """

    def __init__(self, index: TimeIndex, *, is_closed: bool) -> None:
        super().__init__(index, Entries(time_columns(index)))
        self._last = index.last()
        # Without entries, a slot of zeros still counts, as `TimeIndex.lastEntry` would take it.
        self._indexed = self._last.timestamp if self._last else index.last_slot_timestamp()
        self._is_closed = is_closed
        self._largest = -1
        self._knows_times = True

    def fits(self, rows: Sequence[list[int]]) -> bool:
        """Return whether each entry has a new largest timestamp, and the end of its batch."""
        largest, risen = self._largest, {}
        for last_offset, timestamp in zip(rows[h.LAST_OFFSET], rows[h.MAX_TIMESTAMP], strict=True):
            if timestamp > largest:
                largest = risen[last_offset] = timestamp
        left = self._entries.left()
        return left is not None and all(risen.get(two) == one for one, two in left)

    def pass_by(self, rows: Sequence[list[int]]) -> None:
        """Take the batches with their timestamps, and the entries that fit them."""
        self._largest = max(self._largest, *rows[h.MAX_TIMESTAMP])
        super().pass_by(rows)

    def judge(self, batches: KnownBatches) -> Iterator[Found]:
        """Yield the defects of the entries for some batches, ordered by batch number."""
        columns = batches.columns
        headers = columns.headers
        # -1, where a broker's search for the largest timestamp starts, stands for no evidence.
        times = np.where(columns.crc_valid, headers[h.MAX_TIMESTAMP], -1)
        largest = running_max(self._largest, times)
        self._largest = int(largest[-1])
        has_time = headers[h.MAGIC] > 0
        self._knows_times = self._knows_times and bool(has_time.all())
        for number, timestamps, offsets in self._entries.up_to(int(batches.highest[-1])):
            batch, unsure = batches.reaching(offsets)
            is_whole = batches.is_whole[batch]
            is_right = (timestamps == largest[1:][batch]) & (timestamps > largest[batch])
            # A damaged part may have held a larger timestamp.
            is_right = np.where(is_whole, is_right, timestamps >= largest[1:][batch])
            is_right &= _holds_largest(columns, batch, offsets) | ~is_whole
            for i in np.flatnonzero(has_time[batch] & ~(is_right | unsure)).tolist():
                offset = int(offsets[i])
                detail = f" says {timestamps[i]} up to offset {offset}, the log says "
                detail += f"{largest[batch[i] + 1]} up to {headers[h.LAST_OFFSET, batch[i]]}"
                for defect in self._tell("time-index-entry-wrong", number + i, offset, detail):
                    yield int(batch[i]), defect

    def end(self, highest: int, unread: range | None) -> Iterator[Defect]:
        """Yield the entries beyond the log, and a closed index without the largest timestamp."""
        # A part that could not be read may hold what the entries point to.
        if unread is None:
            left = ((number, two) for number, _, two in self._entries.up_to(c.INT64_MAX))
            problem = f"the log ends at offset {highest}"
            yield from self._beyond("index-entry-beyond-log", left, problem)
        yield from self._others("time-index-entry-wrong")
        if self._is_closed and self._knows_times and self._indexed < self._largest:
            ends = f"ends with timestamp {self._indexed}" if self._last else "is empty"
            detail = f"The index {ends}, the largest one of the segment is {self._largest}."
            yield make_defect("time-index-incomplete", self.index.path, detail)


def _outside(entries: Iterator[Columns], unread: range) -> Iterator[tuple[int, Column]]:
    """Yield the numbers and offsets of the entries whose positions are outside a range."""
    for number, offsets, positions in entries:
        outside = np.flatnonzero((positions < unread.start) | (positions >= unread.stop))
        if len(outside):
            yield number + int(outside[0]), offsets[outside]


def _is_inside(columns: BatchColumns, batch: Column, offsets: Column) -> NDArray[np.bool_]:
    """Return whether each offset can be in its batch, as far as the header says."""
    headers = columns.headers
    # The header of a compressed old message has only its last offset: nothing bounds the first.
    is_wrapper = headers[h.MAGIC] < 2
    is_wrapper &= headers[h.ATTRIBUTES] & c.COMPRESSION_MASK != 0
    inside: NDArray[np.bool_] = is_wrapper[batch] | (offsets >= headers[h.BASE_OFFSET, batch])
    return inside


def _largest_left(columns: BatchColumns, batch: Column, offsets: Column) -> NDArray[np.bool_]:
    """Return whether each offset is, or if not decoded could be, the largest left in its batch."""
    headers, facts = columns.headers, columns.facts
    could_be: NDArray[np.bool_]
    if facts is not None:
        could_be = offsets == facts[h.LAST, batch]
        return could_be
    # Only in a batch that lost records can the largest left differ from the last offset.
    is_cleaned = headers[h.COUNT] <= headers[h.LAST_OFFSET] - headers[h.BASE_OFFSET]
    is_cleaned |= headers[h.MAGIC] < 2
    could_be = is_cleaned[batch] & _is_inside(columns, batch, offsets)
    return could_be


def _holds_largest(columns: BatchColumns, batch: Column, offsets: Column) -> NDArray[np.bool_]:
    """Return whether each offset is, or could be, that of its batch's largest timestamp."""
    holds: NDArray[np.bool_] = offsets == columns.headers[h.LAST_OFFSET, batch]
    if columns.facts is None:
        holds |= _is_inside(columns, batch, offsets)
    else:
        holds |= offsets == columns.facts[h.OFFSET_OF_MAX, batch]
    return holds
