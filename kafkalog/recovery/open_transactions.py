"""The transactions that are not yet decided; follows `ProducerStateManager.ongoingTxns`."""

from __future__ import annotations

import heapq


class OpenTransactions:
    """First offset to producer id; the smallest first offset is at hand, however many there are."""

    def __init__(self) -> None:
        self._producers: dict[int, int] = {}
        self._firsts: list[int] = []  # a heap; holds offsets that are gone, too

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A transaction begins; it takes the place of one with that first offset."""
        if first_offset not in self._producers:
            heapq.heappush(self._firsts, first_offset)
        self._producers[first_offset] = producer_id

    def end(self, first_offset: int) -> bool:
        """A transaction ends; whether it was open."""
        return self._producers.pop(first_offset, None) is not None

    def clear(self) -> None:
        """Forget all."""
        self._producers.clear()
        self._firsts.clear()

    def first(self, without: int = -1) -> int | None:
        """The smallest first offset, but for those of one producer; None where there is none."""
        passed = []
        while self._firsts:
            first_offset = self._firsts[0]
            producer_id = self._producers.get(first_offset)
            if producer_id is not None and producer_id != without:
                break
            heapq.heappop(self._firsts)
            if producer_id is not None:
                passed.append(first_offset)
        found = self._firsts[0] if self._firsts else None
        for first_offset in passed:
            heapq.heappush(self._firsts, first_offset)
        return found
