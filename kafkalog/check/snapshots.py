"""Producer snapshots against the producer states derived from the log.

A snapshot may lack producers that had expired. It may know what the log has lost: batches that
compaction or retention removed. Follows `ProducerStateManager` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.check import producer_states as p
from kafkalog.io.wording import counted
from kafkalog.log.columns.side_files import snapshot_columns
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from kafkalog.check.producer_rows import Believed, Timeline
    from kafkalog.check.producer_states import ProducerStates
    from kafkalog.files.log_dir import FileEntry
    from kafkalog.model import Defect

    Flags = NDArray[np.bool_]
    Table = NDArray[np.int64]

_NAMES: Final = {
    p.PRODUCER_EPOCH: "epoch",
    p.LAST_SEQUENCE: "last sequence",
    p.LAST_OFFSET: "last offset",
    p.OFFSET_DELTA: "offset delta",
    p.TIMESTAMP: "timestamp",
    p.COORDINATOR: "coordinator epoch",
    p.TXN_FIRST: "first offset of the transaction",
}


class SnapshotCheck:
    """Compares the snapshots of a partition one by one, as the log reaches their offsets.

    Memory: one snapshot at a time.
    """

    def __init__(self, files: list[FileEntry], states: ProducerStates, timeline: Timeline) -> None:
        self.paths = [entry.path for entry in files]
        self.offsets = [entry.name.offset or 0 for entry in files]
        self._states = states
        self._timeline = timeline
        self._next = 0

    @property
    def next_offset(self) -> int | None:
        """The offset of the next snapshot, None after the last."""
        return self.offsets[self._next] if self._next < len(self.offsets) else None

    def compare_next(self, ahead: Believed | None) -> Iterator[Defect]:
        """Compare the next snapshot with the states before its offset, given the batches ahead."""
        number, offset, path = self._next, self.offsets[self._next], self.paths[self._next]
        self._next += 1
        if offset < self._timeline.next_offset:
            detail = f"Offset {offset} is inside a batch: no snapshot is taken there."
            yield make_defect("producer-snapshot-misplaced", path, detail, offset=offset)
            return
        self._timeline.advance_to(offset, ahead)
        found = snapshot_columns(path)
        if found is None or not (found.size or self._states.table.size):
            return
        differences = self._differences(found, offset)
        # A broker that starts reads the latest snapshot, and goes on from there.
        self._adopt(found, differences, offset, number)
        differences += self._missing(found)
        self._mark_absent(found)
        if differences:
            producer_id, what = differences[0]
            more = counted(len(differences) - 1, "more producer")
            rest = f" The same is true of {more}." if len(differences) > 1 else ""
            detail = f"Producer {producer_id} differs from the log: {what}.{rest}"
            yield make_defect("producer-snapshot-wrong", path, detail, offset=offset)

    def beyond(self, end_offset: int) -> Iterator[Defect]:
        """Yield the snapshots that are left when the log has ended."""
        for offset, path in zip(self.offsets[self._next :], self.paths[self._next :], strict=True):
            detail = f"The snapshot is of offset {offset}, the log ends at {end_offset}."
            yield make_defect("producer-snapshot-misplaced", path, detail, offset=offset)

    def _differences(self, found: Table, offset: int) -> list[tuple[int, str]]:
        at = self._states.find(found[p.PRODUCER_ID])
        known = at >= 0
        if known.any():
            # With damage since the producer's last batch, the log's state may be behind.
            known[known] = self._states.table[p.BLIND, at[known]] == self._timeline.blind
        told: dict[int, str] = {}
        if known.any():
            told = self._against_log(found[:, known], self._states.table[:, at[known]], offset)
        told |= self._against_nothing(found[:, ~known], offset)
        return sorted(told.items())

    def _against_nothing(self, found: Table, offset: int) -> dict[int, str]:
        """Compare the producers that the log does not know, because it lost their batches."""
        told: dict[int, str] = {}
        if self._timeline.gap == 0:
            return dict.fromkeys(found[p.PRODUCER_ID].tolist(), "the log has no batch of it")
        if self._timeline.blind:
            return told
        for field in (p.TXN_FIRST, p.LAST_OFFSET):
            # The batch at that offset was seen, and is not this producer's.
            wrong = self._has_batch(found[field]) | (found[field] >= offset)
            for i in np.flatnonzero(wrong).tolist():
                what = f"{_NAMES[field]} {found[field, i]} belongs to no batch of it"
                told[int(found[p.PRODUCER_ID, i])] = what
        return told

    def _against_log(self, found: Table, states: Table, offset: int) -> dict[int, str]:
        """Compare the producers that the log knows with the states it has for them."""
        wrong = _wrong_fields(found, states, self._timeline.gap, self._has_batch)
        is_sure = p.is_open(states, self._timeline)
        is_sure &= states[p.TXN_BLIND] == self._timeline.blind
        wrong[p.TXN_FIRST] &= (states[p.TXN_FIRST] < 0) | is_sure
        wrong[p.LAST_OFFSET] |= found[p.LAST_OFFSET] >= offset
        wrong[p.TXN_FIRST] |= found[p.TXN_FIRST] >= offset
        told: dict[int, str] = {}
        for field in reversed(_NAMES):
            for i in np.flatnonzero(wrong[field]).tolist():
                what = f"{_NAMES[field]} {found[field, i]}, expected {states[field, i]}"
                told[int(found[p.PRODUCER_ID, i])] = what
        absent = (states[p.ABSENT_GAP] >= 0) & (states[p.ABSENT_GAP] == self._timeline.gap)
        for i in np.flatnonzero(absent).tolist():
            what = "an older snapshot lacks it, and it has no batch since"
            told.setdefault(int(found[p.PRODUCER_ID, i]), what)
        return told

    def _has_batch(self, offsets: NDArray[np.int64]) -> Flags:
        return (offsets >= 0) & ~self._timeline.removed.hold(offsets)

    def _missing(self, found: Table) -> list[tuple[int, str]]:
        """Return producers with an open transaction that the snapshot lacks; they never expire."""
        states = self._states.table
        is_open = p.is_open(states, self._timeline)
        is_open &= states[p.TXN_BLIND] == self._timeline.blind
        lost = states[p.PRODUCER_ID, is_open & ~np.isin(states[p.PRODUCER_ID], found[0])]
        return [(producer_id, "it has an open transaction and is missing") for producer_id in lost]

    def _adopt(
        self, found: Table, differences: list[tuple[int, str]], offset: int, number: int
    ) -> None:
        """Adopt the states of a snapshot, except where the log knows better."""
        at = self._states.find(found[p.PRODUCER_ID])
        table = self._states.table
        wrong = np.isin(found[p.PRODUCER_ID], [producer_id for producer_id, _ in differences])
        left_out = wrong
        if table.size:
            mine = table[:, at]
            compared = [p.PRODUCER_EPOCH, p.LAST_OFFSET, p.TXN_FIRST]
            is_same = (mine[compared] == found[compared]).all(axis=0)
            is_known = (at >= 0) & (mine[p.BLIND] == self._timeline.blind)
            # If two snapshots contradict each other, neither is known to be right.
            is_mine = (is_same | wrong) & ~(wrong & (mine[p.ORIGIN] >= 0))
            left_out = np.where(is_known, is_mine, wrong)
        taken = found[:, ~left_out]
        states = np.full((p.FIELDS, taken.shape[1]), -1, np.int64)
        states[: p.SNAPSHOT_FIELDS] = taken
        states[p.EVENT_OFFSET] = offset - 1  # the latest possible offset
        states[p.EVENT] = p.LONE_MARKER
        states[[p.GAP, p.BATCH_GAP, p.MARKER_GAP]] = self._timeline.gap
        states[[p.BLIND, p.TXN_BLIND]] = self._timeline.blind
        states[p.IS_THINNED] = 0
        states[[p.ORIGIN, p.TXN_ORIGIN, p.MARKER_ORIGIN]] = number
        self._states.put(states)

    def _mark_absent(self, found: Table) -> None:
        states = self._states.table
        is_absent = ~np.isin(states[p.PRODUCER_ID], found[p.PRODUCER_ID])
        states[p.ABSENT_GAP] = np.where(is_absent, self._timeline.gap, -1)


def _wrong_fields(
    found: Table, states: Table, gap: int, has_batch: Callable[[NDArray[np.int64]], Flags]
) -> dict[int, Flags]:
    """Return, per field, the producers that neither the log nor its losses explain.

    Args:
        states: the same producers according to the log.
        gap: the gap stamp at the snapshot's offset.
        has_batch: returns whether the log has a batch for each offset.
    """
    # Batches or markers may have been removed since the last one.
    lossy = states[p.GAP] != gap
    last, mine = found[p.LAST_OFFSET], states[p.LAST_OFFSET]
    is_same, is_ahead, is_none = last == mine, last > mine, (last < 0) & (mine >= 0)
    epoch, my_epoch = found[p.PRODUCER_EPOCH], states[p.PRODUCER_EPOCH]
    is_later_epoch = lossy & (epoch > my_epoch)
    wrong: dict[int, Flags] = {}
    wrong[p.LAST_OFFSET] = np.where(
        is_none,
        (states[p.EVENT] != p.LONE_MARKER) & ~is_later_epoch,
        np.where(is_ahead, has_batch(last), ~is_same),
    )
    may_differ = is_later_epoch & (is_ahead | is_none | (last < 0))
    wrong[p.PRODUCER_EPOCH] = (epoch != my_epoch) & ~may_differ
    for field in (p.LAST_SEQUENCE, p.OFFSET_DELTA):
        wrong[field] = is_same & (found[field] != states[field])
    time, my_time = found[p.TIMESTAMP], states[p.TIMESTAMP]
    is_thinned = (states[p.EVENT] == p.DATA) & (states[p.IS_THINNED] != 0)
    wrong[p.TIMESTAMP] = (time != my_time) & ~lossy & ~is_ahead & ~(is_thinned & (time > my_time))
    wrong[p.COORDINATOR] = _wrong_coordinators(found, states, gap)
    first, my_first = found[p.TXN_FIRST], states[p.TXN_FIRST]
    is_removed = (first >= 0) & ~has_batch(first)
    is_over = (states[p.EVENT] != p.DATA) & (first <= states[p.EVENT_OFFSET])
    wrong[p.TXN_FIRST] = (first != my_first) & ~(
        is_removed & np.where(my_first < 0, ~is_over, first < my_first)
    )
    return wrong


def _wrong_coordinators(found: Table, states: Table, gap: int) -> Flags:
    """Return wrong coordinator epochs; a forgotten producer has none until its next marker."""
    theirs, mine = found[p.COORDINATOR], states[p.COORDINATOR]
    is_lossy = (states[p.MARKER_GAP] != gap) & (gap > 0)
    is_forgotten = (theirs < 0) & (states[p.EVENT] == p.DATA)
    wrong: Flags = (theirs != mine) & ~is_forgotten & ~(is_lossy & (theirs > mine))
    return wrong
