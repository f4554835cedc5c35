"""Batches whose successors are known, and the entries of an index as far as the log was read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from formats.constants import INT64_MAX
from formats.late_classes import dataclass
from kafkalog.check.batches import running_max
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import BatchColumns, joined

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.log.columns.headers import PlainRun

    Column = NDArray[np.int64]
    Columns = tuple[int, Column, Column]

FEW: Final = 64
"""So many entries and batches are faster compared one by one than as columns."""

_NOWHERE: Final = -INT64_MAX - 1


class Entries:
    """Reads the ordered entries of an index as far as the log has been read."""

    def __init__(self, blocks: Iterator[Columns]) -> None:
        self._blocks = blocks
        self._block = next(blocks, None)

    def left(self) -> list[tuple[int, int]] | None:
        """Return what is left as pairs if that is little; None otherwise."""
        if self._block is None:
            return []
        number, one, two = self._block
        while len(one) <= FEW and (more := next(self._blocks, None)) is not None:
            one, two = np.concatenate((one, more[1])), np.concatenate((two, more[2]))
        self._block = number, one, two
        return list(zip(one.tolist(), two.tolist(), strict=True)) if len(one) <= FEW else None

    def pass_by(self) -> None:
        self._block = None

    def up_to(self, limit: int) -> Iterator[Columns]:
        """Yield blocks of the next entries whose second column is at most `limit`."""
        while self._block is not None:
            number, one, two = self._block
            count = int(np.searchsorted(two, limit, "right"))
            if count:
                yield number, one[:count], two[:count]
            if count < len(two):
                self._block = number + count, one[count:], two[count:]
                return
            self._block = next(self._blocks, None)


@dataclass(frozen=True, slots=True)
class KnownBatches:
    """Batches whose successors are known, with what can be trusted about them.

    Attributes:
        highest: the largest last offset before each, and after the last.
        is_whole: bool, whether nothing before each, and before the end, is damaged.
        starts: where the batch before each ends.
        is_unsure: bool, whether what comes directly before each is no evidence.
    """

    columns: BatchColumns
    highest: Column
    is_whole: NDArray[np.bool_]
    starts: Column
    is_unsure: NDArray[np.bool_]

    def reaching(self, offsets: Column) -> tuple[Column, NDArray[np.bool_]]:
        """Return the first batch that reaches each offset, and whether it may be another batch."""
        batch = np.searchsorted(self.highest[1:], offsets)
        return batch, self.is_unsure[batch] & (offsets < first_offsets(self.columns)[batch])


class Successors:
    """Passes on each batch once the next one is known."""

    def __init__(self, highest: int) -> None:
        self.highest = highest
        self._held: BatchColumns | None = None
        self._is_whole = self._is_trusted = True
        self._end_position = 0

    def take(self, columns: BatchColumns) -> tuple[int, KnownBatches | None]:
        """Return the batches before the last one, and the shift of their numbers."""
        shift = 1 if self._held is None else 0
        both = columns if self._held is None else joined([self._held, columns])
        # The next columns reuse this memory.
        self._held = _copy_of_last(both)
        headers, valid = both.headers, both.crc_valid
        first = np.where(headers[h.MAGIC] < 2, headers[h.LAST_OFFSET], headers[h.BASE_OFFSET])
        # A damaged successor says nothing against the batch before it.
        follows = (first[1:] > headers[h.LAST_OFFSET, :-1]) | ~valid[1:]
        return shift, self._known(_part(both, 0, both.count - 1), follows)

    def goes_on(self, run: PlainRun) -> bool:
        """Return whether a run begins where sound batches end, and nothing is held back."""
        is_next = run.position == self._end_position and run.first_offset == self.highest + 1
        return self._held is None and self._is_whole and self._is_trusted and is_next

    def pass_by(self, run: PlainRun) -> None:
        """Take a run that goes on here, and after which there are no more batches."""
        self.highest, self._end_position = run.next_offset - 1, run.end_position

    def rest(self) -> KnownBatches | None:
        if self._held is None:
            return None
        return self._known(self._held, np.ones(1, np.bool_))

    def _known(self, columns: BatchColumns, follows: NDArray[np.bool_]) -> KnownBatches | None:
        if not columns.count:
            return None
        headers, valid = columns.headers, columns.crc_valid
        last, positions = headers[h.LAST_OFFSET], headers[h.POSITION]
        trusted = valid & follows
        trusted &= last >= headers[h.BASE_OFFSET]
        highest = running_max(self.highest, np.where(trusted, last, _NOWHERE))
        ends = positions + headers[h.SIZE]
        starts = np.concatenate(([self._end_position], ends[:-1]))
        sound = np.concatenate(([self._is_whole], valid))
        sound[:-1] &= positions == starts
        is_whole = np.logical_and.accumulate(sound)
        first = np.where(headers[h.MAGIC] < 2, last, headers[h.BASE_OFFSET])
        trusted &= first > highest[:-1]
        is_unsure = ~np.concatenate(([self._is_trusted], trusted[:-1])) | (positions != starts)
        self._is_trusted = bool(trusted[-1])
        self.highest, self._is_whole = int(highest[-1]), bool(is_whole[-1])
        self._end_position = int(ends[-1])
        return KnownBatches(columns, highest, is_whole, starts, is_unsure)


def _part(columns: BatchColumns, start: int, end: int) -> BatchColumns:
    """Return a range of the batches, without the refusals."""
    # Refusals are numbered in the whole, and no user of the parts needs them.
    return replace(columns.part(start, end), refusals=())


def _copy_of_last(columns: BatchColumns) -> BatchColumns:
    last = _part(columns, columns.count - 1, columns.count)
    return BatchColumns(
        last.headers.copy(),
        last.crc_valid.copy(),
        last.markers.copy(),
        None if last.facts is None else last.facts.copy(),
    )


def first_offsets(columns: BatchColumns) -> Column:
    """Return the first offset of each batch; for an undecoded legacy message its only offset."""
    headers, facts = columns.headers, columns.facts
    first: Column = headers[h.BASE_OFFSET]
    if facts is not None:
        is_known = (headers[h.MAGIC] < 2) & (facts[h.FOUND] > 0)
        first = np.where(is_known, facts[h.FIRST], first)
    return first
