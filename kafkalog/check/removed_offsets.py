"""Which offsets a log has no batch for: removed by compaction or retention, or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_RANGES_MAX: Final = 1 << 20


class RemovedOffsets:
    """Ranges of offsets without a batch, told in rising order.

    Memory is bounded: of more than a million ranges the oldest half is forgotten, and every offset
    up to its end counts as removed.

    Args:
        start: everything below it counts as removed.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._first = np.empty(16, np.int64)
        self._end = np.empty(16, np.int64)
        self._count = 0

    def add(self, first: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        """More ranges, `end` exclusive, behind those that are known."""
        needed = self._count + len(first)
        if needed > _RANGES_MAX:
            self._forget()
            needed = self._count + len(first)
        if needed > len(self._first):
            self._first = np.resize(self._first, 2 * needed)
            self._end = np.resize(self._end, 2 * needed)
        self._first[self._count : needed] = first
        self._end[self._count : needed] = end
        self._count = needed

    def _forget(self) -> None:
        half = self._count // 2
        if half:
            self._start = max(self._start, int(self._end[half - 1]))
        self._count -= half
        self._first = self._first[half : half + self._count].copy()
        self._end = self._end[half : half + self._count].copy()

    def hold(self, offsets: ArrayLike) -> NDArray[np.bool_]:
        """Whether each offset has no batch, as far as the log has been read; not of negatives."""
        wanted = np.asarray(offsets, np.int64)
        at = np.searchsorted(self._first[: self._count], wanted, "right") - 1
        inside = at >= 0
        inside[inside] = wanted[inside] < self._end[at[inside]]
        return (inside | (wanted < self._start)) & (wanted >= 0)
