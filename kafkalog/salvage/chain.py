"""Which batches of a log follow each other, where some contradict others.

Offset and leader epoch of a batch are outside its checksum: one flipped bit makes a batch claim a
place that others have. The longest chain in which every batch follows the one before it gives up
the fewest of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]

_ONE: Final = 1 << 32  # of the length of a chain; below it count the neighbours without a gap


def longest_chain(
    low: Column, high: Column, floor: int, weights: Column | None = None
) -> NDArray[np.bool_]:
    """Marks the longest chain: each `low` above the `high` of the one before, and above `floor`.

    Of chains of the same length the one with the most neighbours without a gap is taken, of these
    the one that ends lowest.

    Args:
        low: int64, first value of each item.
        high: int64, last value of each item, not below `low` - 1.
        floor: what the first item has to be above.
        weights: int64, what each item counts; one where None.

    Returns:
        One bool per item.

    Cost:
        Linear where all items are in order; else n log n steps in Python over the items between
        the first and the last that others contradict.
    """
    count = len(low)
    chosen = np.ones(count, np.bool_)
    if not count:
        return chosen
    before = np.maximum.accumulate(np.concatenate(([floor], high)))[:-1]
    after = np.minimum.accumulate(np.concatenate((low, [np.iinfo(np.int64).max]))[::-1])[-2::-1]
    disputed = np.flatnonzero((low <= before) | (high >= after))
    if not len(disputed):
        return chosen
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
        """Ordinals of the items of the longest chain."""
        ranks_low = np.searchsorted(self._values, low).tolist()
        ranks_high = np.searchsorted(self._values, high).tolist()
        previous = [-1] * len(low)
        top = (0, 0, 1)  # score, minus where it ends, minus the item
        for i, (start, end, weight) in enumerate(zip(low, high, weights, strict=True)):
            if start <= self._floor:
                continue
            score, at = self._below(ranks_low[i])
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
        """The best chain that ends in one of the lowest `rank` values."""
        best = (0, -1)
        while rank > 0:
            if self._best[rank][0] > best[0]:
                best = self._best[rank]
            rank &= rank - 1
        return best

    def _raise(self, rank: int, chain: tuple[int, int]) -> None:
        while rank < len(self._best):
            if chain[0] > self._best[rank][0]:
                self._best[rank] = chain
            rank += rank & -rank
