"""The leader epochs of a salvaged log: from its batches, and what the old file says beside them."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.model import EpochEntry
from kafkalog.salvage.pieces import BASE_OFFSET, EPOCH, LAST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.salvage.pieces import Table


class EpochsInLog:
    """Where each leader epoch begins and ends in the batches that are copied, in log order."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._first: list[int] = []
        self._last: list[int] = []

    def add(self, pieces: Table) -> None:
        """Some batches more; an epoch that goes back, between segments, is passed over."""
        dated = pieces[:, pieces[EPOCH] >= 0]
        if not dated.shape[1]:
            return
        epochs = dated[EPOCH]
        starts = np.flatnonzero(np.diff(epochs, prepend=-1))
        ends = np.append(starts[1:], len(epochs)) - 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            epoch, last = int(epochs[start]), int(dated[LAST_OFFSET, end])
            if not self._epochs or epoch > self._epochs[-1]:
                self._epochs.append(epoch)
                self._first.append(int(dated[BASE_OFFSET, start]))
                self._last.append(last)
            elif epoch == self._epochs[-1]:
                self._last[-1] = last

    def entries(self, known: Sequence[EpochEntry]) -> list[EpochEntry]:
        """The entries of the new file: those of the old one that no batch contradicts stay.

        An epoch may begin before its first batch, or have none. If the old entries do not increase,
        none of them counts.
        """
        starts = dict(zip(self._epochs, self._first, strict=True))
        rising = all(
            one.epoch < other.epoch and one.start_offset < other.start_offset
            for one, other in itertools.pairwise(known)
        )
        for entry in known if rising else ():
            if self._fits(entry):
                starts[entry.epoch] = entry.start_offset
        return [EpochEntry(epoch, starts[epoch]) for epoch in sorted(starts)]

    def _fits(self, entry: EpochEntry) -> bool:
        at = bisect_left(self._epochs, entry.epoch)
        is_behind = at == 0 or self._last[at - 1] < entry.start_offset
        is_before = at == len(self._epochs) or entry.start_offset <= self._first[at]
        return entry.epoch >= 0 and entry.start_offset >= 0 and is_behind and is_before
