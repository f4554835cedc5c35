"""A log as pieces in file order, and which of its batches are sound and follow each other.

Offset and leader epoch of a batch are outside its checksum: one flipped bit makes a batch claim the
place of others. The longest chain in which every batch follows the one before it drops the fewest;
a batch that exactly fills the room between two of it has its offset there, and one between two of a
leader epoch has that. Lengths and magics that are wrong are corrected as for readers.

A batch is sound if its frame, its version and its checksum are right, all its records decode, and
its offsets and leader epoch fit its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from formats.constants import COMPRESSION_MASK, INT32_MAX, INT64_MAX, NO_EPOCH
from kafkalog.check.batches import (
    CheckedLog,
    ChecksumsMatch,
    MagicIsKnown,
    RecordsDecode,
    defects_of_batches,
)
from kafkalog.log.batches.order import Order, Span, length_of, settle
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import BatchColumns, batch_columns, columns_of
from kafkalog.log.defects import make_defect
from kafkalog.model import Defect, Level, Severity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    from collections.abc import Callable, Iterator

    from kafkalog.io.paths.source import Source

    Table = NDArray[np.int64]


_ONE: Final = 1 << 32  # scores: length counts in units of this, gapless neighbours below it


def longest_chain(
    low: Column, high: Column, floor: int, weights: Column | None = None
) -> NDArray[np.bool_]:
    """Mark the longest chain: each `low` above the `high` of the one before, and above `floor`.

    Among chains of the same length, the one with the most gapless neighbours wins, and among these
    the one that ends lowest.

    Args:
        low: int64, first value of each item.
        high: int64, last value of each item, not below `low` - 1.
        floor: what the first item must be above.
        weights: int64, weight of each item; None for one each.

    Returns:
        One bool per item.

    Cost:
        Linear if all items are in order; otherwise n log n steps in Python over the items between
        the first and the last contradiction.
    """
    count = len(low)
    chosen = np.ones(count, np.bool_)
    if not count:
        return chosen
    # In order with all before and all after: such an item is in the longest chain anyway.
    before = np.maximum.accumulate(np.concatenate(([floor], high)))[:-1]
    after = np.minimum.accumulate(np.concatenate((low, [np.iinfo(np.int64).max]))[::-1])[-2::-1]
    disputed = np.flatnonzero((low <= before) | (high >= after))
    if not len(disputed):
        return chosen
    # With one undisputed neighbour on each side, for gapless joints across the edges.
    first, last = max(int(disputed[0]) - 1, 0), min(int(disputed[-1]) + 2, count)
    floor = int(before[first])
    counts = [1] * (last - first) if weights is None else weights[first:last].tolist()
    kept = _Chains(high[first:last], floor).longest(
        low[first:last].tolist(), high[first:last].tolist(), counts
    )
    chosen[first:last] = False
    chosen[[first + i for i in kept]] = True
    return chosen


class _Chains:
    """The best chain up to each value: a tree of prefix maxima over the values that occur."""

    def __init__(self, high: Column, floor: int) -> None:
        self._floor = floor
        self._values = np.unique(high)
        self._best = [(0, -1)] * (len(self._values) + 1)  # score and last item
        self._ending: dict[int, tuple[int, int]] = {}

    def longest(self, low: list[int], high: list[int], weights: list[int]) -> list[int]:
        """Return the ordinals of the items in the longest chain."""
        ranks_low = np.searchsorted(self._values, low).tolist()
        ranks_high = np.searchsorted(self._values, high).tolist()
        previous = [-1] * len(low)
        top = (0, 0, 1)  # score, minus where it ends, minus the item
        for i, (start, end, weight) in enumerate(zip(low, high, weights, strict=True)):
            if start <= self._floor:
                continue
            score, at = self._below(ranks_low[i])
            # Joins what is before the window without a gap.
            if start == self._floor + 1:
                score += 1
            adjoining = self._ending.get(start - 1)
            if adjoining is not None and adjoining[0] + 1 > score:
                score, at = adjoining[0] + 1, adjoining[1]
            score += weight * _ONE
            previous[i] = at
            if score > self._ending.get(end, (0, -1))[0]:
                self._ending[end] = (score, i)
                self._raise(ranks_high[i] + 1, (score, i))
            top = max(top, (score, -end, -i))
        kept, item = [], -top[2]
        while item >= 0:
            kept.append(item)
            item = previous[item]
        return kept

    def _below(self, rank: int) -> tuple[int, int]:
        """Return the best chain that ends in one of the lowest `rank` values."""
        best = (0, -1)
        while rank > 0:
            if self._best[rank][0] > best[0]:
                best = self._best[rank]
            # A Fenwick tree: the lowest bit that is set is dropped, and added in `_raise`.
            rank &= rank - 1
        return best

    def _raise(self, rank: int, chain: tuple[int, int]) -> None:
        while rank < len(self._best):
            if chain[0] > self._best[rank][0]:
                self._best[rank] = chain
            rank += rank & -rank


(POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, EPOCH, RECORDS, IS_SOUND, IS_CORRECTED, MAGIC,
 IS_WRAPPER, FIELDS) = range(11)  # fmt: skip
"""Rows of a table of pieces, one column per piece. IS_CORRECTED is whether its header says other
than SIZE, BASE_OFFSET, EPOCH or MAGIC, which are proved; the offset in the header of a wrapper, a
compressed message of magic 0 or 1, is its last one.
"""

WINDOW: Final = 1 << 16
"""Number of pieces examined together; a choice is made for the first half of them."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a log's name and neighbours say about its batches.

    Attributes:
        base_offset: base offset of the segment.
        next_base_offset: base offset of the next segment; None if none.
        next_epoch: leader epoch of the first sound batch after it; None if unknown.
        noted_epoch: returns the epoch of an offset by leader-epoch-checkpoint, None if unknown.
    """

    base_offset: int
    next_base_offset: int | None = None
    next_epoch: int | None = None
    noted_epoch: Callable[[int], int | None] = lambda _: None

    @property
    def offset_max(self) -> int:
        """The largest offset that the segment can hold."""
        end = INT64_MAX if self.next_base_offset is None else self.next_base_offset - 1
        return min(end, self.base_offset + INT32_MAX)


@dataclass(frozen=True, slots=True)
class Decided:
    """Some pieces that are decided, in file order, with the defects of those that are not sound.

    `table` is int64 with a row per field and a column per piece; `wrong` has an entry, by position,
    for every piece whose row IS_SOUND is 0.
    """

    table: Table
    wrong: dict[int, Defect]


def decided_pieces(source: Source, bounds: Bounds, threads: int | None = None) -> Iterator[Decided]:
    """Yield all pieces of a log; together they cover every byte.

    Args:
        source: the log.
        bounds: what is known about its batches.
        threads: as for `batch_columns`.

    Raises:
        UnreadableError: the log cannot be read any further.

    Cost:
        Every byte is read and every record decoded once; memory as for `batch_columns`, and some
        40 MB for the window.
    """
    window = _Window(source.path, bounds)
    judge = _Judge(source, bounds)
    for found in batch_columns(source, Level.DEEP, threads):
        pieces = judge.of_defect(found) if isinstance(found, Defect) else judge.of_batches(found)
        for one in pieces:
            window.add(one.table, one.wrong)
        while window.is_full:
            yield window.decide(window.count // 2)
    if window.count:
        yield window.decide(window.count)


class _Judge:
    """Judges pieces without the offsets and epochs of others."""

    def __init__(self, source: Source, bounds: Bounds) -> None:
        self._source = source
        self._order = Order(source, None, bounds.base_offset, None, is_log=False)
        checked = CheckedLog(source.path)
        self._alone = (ChecksumsMatch(checked), MagicIsKnown(checked), RecordsDecode(checked))

    def of_batches(self, found: BatchColumns) -> Iterator[Decided]:
        """Yield them, with corrected lengths and magics."""
        one = self._judged(found)
        for position in sorted(one.wrong):
            fixed = self._fixed(position)
            [i] = np.flatnonzero(one.table[POSITION] == position)
            if fixed is not None and fixed.table[SIZE, 0] == one.table[SIZE, i]:
                one.table[:, i] = fixed.table[:, 0]
                del one.wrong[position]
                one.wrong.update(fixed.wrong)
        yield one

    def of_defect(self, found: Defect) -> Iterator[Decided]:
        """Yield the batches where a walk finds none, and what is left."""
        position, size = found.position or 0, found.size_bytes or 0
        end = position + size
        while position < end and (fixed := self._fixed(position)) is not None:
            yield fixed
            position += int(fixed.table[SIZE, 0])
        if position < end or not size:
            column = np.zeros((FIELDS, 1), np.int64)
            column[[POSITION, SIZE, EPOCH], 0] = position, end - position, -1
            yield Decided(column, {position: replace(found, position=position)})

    def _fixed(self, position: int) -> Decided | None:
        batch = self._order.framed(position)
        if isinstance(batch, Defect) or batch.header_defect is None:
            return None
        one = self._judged(columns_of(self._source, [batch], Level.DEEP))
        one.table[IS_CORRECTED] = 1
        return one

    def _judged(self, found: BatchColumns) -> Decided:
        table = _table_of(found)
        wrong = {
            defect.position or 0: defect
            for defect in defects_of_batches(self._alone, found)
            if defect.severity == Severity.DAMAGE
        }
        wrong |= _unreadable_markers(self._source.path, found)
        table[IS_SOUND, np.isin(table[POSITION], list(wrong))] = 0
        return Decided(table, wrong)


def _table_of(columns: BatchColumns) -> Table:
    headers, found = columns.headers, columns.facts
    assert found is not None, "records are decoded at level deep"
    table = np.empty((FIELDS, columns.count), np.int64)
    table[POSITION] = headers[h.POSITION]
    table[SIZE] = headers[h.SIZE]
    # The header of a compressed message of magic 0 or 1 has only its last offset.
    inner = (headers[h.MAGIC] < 2) & (found[h.FOUND] > 0)
    table[BASE_OFFSET] = np.where(inner, found[h.FIRST], headers[h.BASE_OFFSET])
    table[LAST_OFFSET] = headers[h.LAST_OFFSET]
    table[EPOCH] = headers[h.EPOCH]
    table[RECORDS] = found[h.FOUND].clip(0)
    table[IS_SOUND] = 1
    table[IS_CORRECTED] = 0
    table[MAGIC] = headers[h.MAGIC]
    table[IS_WRAPPER] = (table[MAGIC] < 2) & (headers[h.ATTRIBUTES] & COMPRESSION_MASK != 0)
    return table


def _unreadable_markers(path: str, columns: BatchColumns) -> dict[int, Defect]:
    """Return the control batches on which recovery would fail, by position."""
    wrong = {}
    bad = columns.crc_valid & (columns.markers[h.MARKER_TYPE] == h.UNREADABLE)
    for i in np.flatnonzero(bad).tolist():
        position = int(columns.headers[h.POSITION, i])
        wrong[position] = make_defect(
            "control-record-malformed",
            path,
            "The control record of the batch cannot be read.",
            position=position,
            offset=int(columns.headers[h.BASE_OFFSET, i]),
            size_bytes=int(columns.headers[h.SIZE, i]),
        )
    return wrong


class _Window:
    """Pieces that wait until enough of their successors are known."""

    def __init__(self, path: str, bounds: Bounds) -> None:
        self._path = path
        self._bounds = bounds
        self._tables: list[Table] = []
        self._wrong: dict[int, Defect] = {}
        self._last_offset = bounds.base_offset - 1
        self._last_epoch = -1
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether some can be decided."""
        return self.count >= WINDOW

    def add(self, table: Table, wrong: dict[int, Defect]) -> None:
        """Add pieces, in file order."""
        self._tables.append(table)
        self._wrong |= wrong
        self.count += table.shape[1]

    def decide(self, count: int) -> Decided:
        """Return the first pieces; all if nothing follows.

        Contradicted pieces are examined again, with more of what follows, until they are decided.
        """
        table = np.concatenate(self._tables, axis=1)
        sound = table[IS_SOUND] != 0
        is_end = count == self.count
        self._settle(table, sound, is_end=is_end)
        inside = np.flatnonzero(sound & self._fits(table))
        low, high = table[BASE_OFFSET, inside], table[LAST_OFFSET, inside]
        chain = inside[longest_chain(low, high, self._last_offset)]
        misplaced = np.setdiff1d(np.flatnonzero(sound), chain)
        sound[misplaced] = False
        chain = self._epoch_chain(table, sound, is_end=is_end)
        strange = np.setdiff1d(np.flatnonzero(sound), chain)
        strange = np.union1d(strange, np.flatnonzero(sound & (table[EPOCH] < NO_EPOCH)))
        strange = self._date(table, sound, strange, is_end=is_end)
        sound[strange] = False
        decided = table[:, :count].copy()
        decided[IS_SOUND] = sound[:count]
        if sound[:count].any():
            last = int(np.flatnonzero(sound[:count])[-1])
            self._last_offset = int(decided[LAST_OFFSET, last])
            self._last_epoch = max(self._last_epoch, int(decided[EPOCH, last]))
        end = int(decided[POSITION, -1])
        wrong = {at: defect for at, defect in self._wrong.items() if at <= end}
        self._wrong = {at: defect for at, defect in self._wrong.items() if at > end}
        for ordinals, is_strange in ((misplaced, False), (strange, True)):
            for piece in table[:, ordinals[ordinals < count]].T.tolist():
                wrong[piece[POSITION]] = self._defect(piece, is_strange=is_strange)
        self._tables, self.count = [table[:, count:].copy()], self.count - count
        return Decided(decided, wrong)

    def _fits(self, table: Table) -> NDArray[np.bool_]:
        """Return whether the segment can have the offsets, whatever other batches there are."""
        base, last = table[BASE_OFFSET], table[LAST_OFFSET]
        fits: NDArray[np.bool_] = (base >= self._bounds.base_offset) & (last >= base)
        fits &= last <= self._bounds.offset_max
        return fits

    def _settle(self, table: Table, sound: NDArray[np.bool_], *, is_end: bool) -> None:
        """Correct the offsets of batches that have only one place between their neighbours."""
        which = np.flatnonzero(sound)
        high = self._bounds.next_base_offset if is_end else None
        spans = table[[BASE_OFFSET, LAST_OFFSET, IS_WRAPPER]][:, which]
        first, last, _ = spans
        floors = np.concatenate(([self._last_offset], last))
        limits = np.append(first, INT64_MAX if high is None else high)[1:]
        steps = np.diff(which, prepend=which[:1] - 1, append=which[-1:] + 1)
        disputed = np.flatnonzero((first <= floors[:-1]) | (last < first) | (last >= limits))
        for i in disputed[disputed < len(which) - (not is_end)].tolist():
            if steps[i] > 1 or steps[i + 1] > 1 or (i and first[i - 1] <= floors[i - 1]):
                continue  # damage lies between, or the batch before it is out of place itself
            span, *after = (Span(*one) for one in spans[:, i : i + 2].T.tolist())
            ends = [int(first[at]) if at < len(which) else high for at in (i + 1, i + 2)]
            floor = int(floors[i]) + 1
            limit, end = ends[0], ends[-1]
            place = settle(span, after[0] if after else None, floor, limit, high, end)
            if place == "next":
                first[i], last[i] = floor, floor + length_of(span) - 1
                floors[i + 1] = last[i]
                table[[BASE_OFFSET, LAST_OFFSET], which[i]] = first[i], last[i]
                table[IS_CORRECTED, which[i]] = 1

    def _epoch_chain(
        self, table: Table, sound: NDArray[np.bool_], *, is_end: bool
    ) -> NDArray[np.int64]:
        """Return the ordinals of the batches whose leader epochs never go back, by runs."""
        which = np.flatnonzero(sound)
        with_epoch = table[EPOCH, which] >= 0
        dated = which[with_epoch]
        epochs = table[EPOCH, dated]
        # Runs, not batches: a leader's many batches outweigh the one whose epoch was damaged.
        starts = np.flatnonzero(np.diff(epochs, prepend=-2))
        runs = epochs[starts]
        weights = np.diff(starts, append=len(epochs))
        if is_end and self._bounds.next_epoch is not None:
            runs = np.append(runs, self._bounds.next_epoch)  # the next segment's first batch
            weights = np.append(weights, 1)
        chosen = longest_chain(runs, runs - 1, self._last_epoch - 1, weights)[: len(starts)]
        kept = np.repeat(chosen, weights[: len(starts)])
        return np.sort(np.concatenate((which[~with_epoch], dated[kept])))

    def _date(
        self, table: Table, sound: NDArray[np.bool_], strange: NDArray[np.int64], *, is_end: bool
    ) -> NDArray[np.int64]:
        """Correct leader epochs that those around them, or the noted ones, prove; return the rest.

        A last one may be too high without a contradiction.
        """
        dated = np.flatnonzero(sound & (table[EPOCH] >= 0))
        kept = np.setdiff1d(dated, strange)
        before, following = self._last_epoch, self._bounds.next_epoch if is_end else None
        wrong = strange.tolist()
        if is_end and len(kept) and following is None:
            wrong = sorted({*wrong, int(kept[-1])})
        left = []
        for i in wrong:
            at, after = np.searchsorted(kept, i).item(), np.searchsorted(kept, i, "right").item()
            low = max(before, int(table[EPOCH, kept[at - 1]]) if at else -1)
            high = int(table[EPOCH, kept[after]]) if after < len(kept) else following
            right = low if low == high else self._bounds.noted_epoch(int(table[BASE_OFFSET, i]))
            if right is not None and low <= right <= (INT32_MAX if high is None else high):
                table[IS_CORRECTED, i] |= table[EPOCH, i] != right
                table[EPOCH, i] = before = right
            elif at == after:
                left.append(i)
        return np.array(left, np.int64)

    def _defect(self, piece: list[int], *, is_strange: bool) -> Defect:
        bounds, reference = self._bounds, "batch-offset-not-increasing"
        detail = "More batches around it contradict its offsets."
        if is_strange:
            reference = "batch-leader-epoch-wrong"
            detail = f"Leader epoch {piece[EPOCH]} contradicts the batches around it."
        elif piece[BASE_OFFSET] < bounds.base_offset:
            reference = "batch-below-base-offset"
            detail = f"The segment starts at offset {bounds.base_offset}."
        elif not piece[BASE_OFFSET] <= piece[LAST_OFFSET] <= bounds.offset_max:
            detail = f"The segment can hold offsets up to {bounds.offset_max}."
        return make_defect(
            reference,
            self._path,
            f"A batch claims offsets {piece[BASE_OFFSET]} to {piece[LAST_OFFSET]}. {detail}",
            position=piece[POSITION],
            offset=piece[BASE_OFFSET],
            size_bytes=piece[SIZE],
        )
