"""The states of all producers of a partition as columns, updated by rows of batches.

The rules are those of `kafkalog.log.producers`, batch by batch; a test holds the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.check import producer_rows as r

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    Table = NDArray[np.int64]

# Rows of a table of states, one column per producer; the first eight as in a snapshot.
(PRODUCER_ID, PRODUCER_EPOCH, LAST_SEQUENCE, LAST_OFFSET, OFFSET_DELTA, TIMESTAMP, COORDINATOR,
 TXN_FIRST, EVENT_OFFSET, EVENT, GAP, BLIND, BATCH_GAP, EPOCH_GAP, MARKER_GAP, TXN_BLIND,
 IS_THINNED, ORIGIN, TXN_ORIGIN, MARKER_ORIGIN, ABSENT_GAP, HEARD_AT, FIELDS,
 ) = range(23)  # fmt: skip
"""EVENT_OFFSET and EVENT: the last event. GAP, BLIND: its stamps (see `producer_rows`). BATCH_GAP,
MARKER_GAP, TXN_BLIND: those of the last batch, the last marker and the first batch of the
transaction. EPOCH_GAP: that of the first batch of the epoch, -1 if that was not seen. ORIGIN:
the snapshot that the state comes from, -1 for the log; TXN_ORIGIN, MARKER_ORIGIN: those of its
transaction and of its last marker. ABSENT_GAP: the stamp of the last snapshot without the
producer, or -1. HEARD_AT: the time on a broker's clock when it was first looked at since the
last event. Unknown values are -1.
"""

SNAPSHOT_FIELDS: Final = 8

DATA: Final = 0
"""EVENT: a batch."""
END_OF_TRANSACTION: Final = 1
"""EVENT: a marker that ended a transaction."""
LONE_MARKER: Final = 2
"""EVENT: a marker without a transaction."""


# Sources of a history's column: a row of the batch table and a row of the state table.
Field = tuple[int, int]
LAST_SEQUENCE_OF: Final[Field] = r.LAST_SEQUENCE, LAST_SEQUENCE
GAP_OF_BATCH: Final[Field] = r.GAP, BATCH_GAP
COORDINATOR_OF: Final[Field] = r.COORDINATOR, COORDINATOR
FIRST_OF_TRANSACTION: Final[Field] = r.BASE_OFFSET, TXN_FIRST


class History:
    """Batches of producers with what came before them, by producer, then by offset.

    The first column of a producer may be its state before the batches; `row` is negative there.
    Indexes into these columns are -1 if missing.

    Args:
        states: the known states of producers that are among the rows.
        rows: the batches, at least one.

    Attributes:
        row: number of the column in the table of rows.
        producer_id, epoch, gap: as in `producer_rows`.
        kind: as in `producer_rows`; for a state, TRANSACTIONAL if a transaction is open, else
            MARKER.
        is_first: whether it is the first column of its producer.
        batch: index of the last batch, -1 in an epoch without batches so far.
        started: index of the batch that began the open transaction, or of the state that has it.
    """

    def __init__(self, states: Table, rows: Table) -> None:
        self._states, self._rows = states, rows
        self._count = states.shape[1]
        ids = np.concatenate((states[PRODUCER_ID], rows[r.PRODUCER_ID]))
        self._order: Column | None = None
        if (ids[1:] < ids[:-1]).any():
            self._order = np.argsort(ids, kind="stable")
            ids = ids[self._order]
        self._index = np.arange(len(ids))
        self.row = (self._index if self._order is None else self._order) - self._count
        self.producer_id = ids
        self.is_first = np.ones(len(ids), np.bool_)
        np.not_equal(ids[1:], ids[:-1], out=self.is_first[1:])
        self._group = np.maximum.accumulate(np.where(self.is_first, self._index, 0))
        self.epoch = self._column(rows[r.PRODUCER_EPOCH], states[PRODUCER_EPOCH])
        self.gap = self._column(rows[r.GAP], states[GAP])
        is_open = states[TXN_FIRST] >= 0
        self.kind = self._column(rows[r.KIND], np.where(is_open, r.TRANSACTIONAL, r.MARKER))
        has_batch = self._column(rows[r.KIND] != r.MARKER, states[LAST_OFFSET] >= 0)
        self._changes = ~self.is_first
        self._changes[1:] &= self.epoch[1:] != self.epoch[:-1]
        batch = self._latest(has_batch)
        # A new epoch forgets the batches of the old one
        # (ProducerStateEntry.maybeUpdateProducerEpoch).
        self.batch = np.where(batch >= self._latest(self._changes), batch, -1)
        self.started = self._started()

    def _column(self, of_rows: NDArray[Any], of_states: NDArray[Any]) -> NDArray[Any]:
        column = np.concatenate((of_states, of_rows))
        return column if self._order is None else column[self._order]

    def _latest(self, mask: NDArray[np.bool_]) -> Column:
        """Return, per column, the index of the producer's last masked column up to it."""
        found = np.maximum.accumulate(np.where(mask, self._index, -1))
        found[found < self._group] = -1
        return found

    def before(self, index: Column) -> Column:
        """Shift such an index by one column; -1 for the first column of a producer."""
        shifted = np.empty_like(index)
        shifted[0], shifted[1:] = -1, index[:-1]
        shifted[self.is_first] = -1
        return shifted

    def _started(self) -> Column:
        is_data = self.kind == r.TRANSACTIONAL
        if not is_data.any():
            return np.full(len(is_data), -1)
        event = self._latest(self.kind != r.PLAIN)
        before = self.before(event)
        is_start = is_data & ((before < 0) | (self.kind[before] == r.MARKER))
        is_open = (event >= 0) & is_data[event]
        return np.where(is_open, self._latest(is_start), -1)

    @property
    def is_marker(self) -> NDArray[np.bool_]:
        """Which columns are markers in the log."""
        found: NDArray[np.bool_] = (self.kind == r.MARKER) & (self.row >= 0)
        return found

    def get(self, field: Field, index: Column, default: int = -1) -> Column:
        """Return a field of the indexed columns, or `default` for index -1."""
        row = self.row[index]
        values = np.empty(len(index), np.int64)
        is_row = row >= 0
        values[is_row] = self._rows[field[0], row[is_row]]
        values[~is_row] = self._states[field[1], row[~is_row] + self._count]
        values[index < 0] = default
        return values

    def blind(self, index: Column) -> Column:
        """Return the blind stamps of columns; for an open transaction that of its beginning."""
        is_open = self.kind[index] == r.TRANSACTIONAL
        return np.where(
            is_open, self.get((r.BLIND, TXN_BLIND), index), self.get((r.BLIND, BLIND), index)
        )

    def origin(self, index: Column, field: int = ORIGIN) -> Column:
        """Return the snapshots from which columns have a field; -1 for the log."""
        row = self.row[index]
        is_state = (index >= 0) & (row < 0)
        found = np.full(len(index), -1)
        found[is_state] = self._states[field, row[is_state] + self._count]
        return found

    def markers(self) -> tuple[Column, Column]:
        """Return the markers, and for each the previous marker, or the state that knows of one."""
        which = np.flatnonzero(self.is_marker)
        return which, self.before(self._last_marker())[which]

    def _last_marker(self) -> Column:
        none = np.zeros(self._rows.shape[1], np.bool_)
        is_known = self._column(none, self._states[COORDINATOR] >= 0)
        return self._latest(self.is_marker | is_known)

    def epoch_gap(self) -> Column:
        """Return the gap stamp of the first batch of the epoch, -1 if that was not seen."""
        began = self.gap.copy()
        began[1:][self._changes[1:] & (self.gap[1:] != self.gap[:-1])] = -1
        is_state = self.row < 0
        began[~is_state & self.is_first & (self.gap > 0)] = -1
        began[is_state] = self._states[EPOCH_GAP, self.row[is_state] + self._count]
        return began[self._latest(self._changes | self.is_first)]

    def after(self) -> Table:
        end = np.flatnonzero(np.append(self.is_first[1:], True))
        batch, started = self.batch[end], self.started[end]
        states = np.full((FIELDS, len(end)), -1, np.int64)
        states[PRODUCER_ID] = self.producer_id[end]
        states[PRODUCER_EPOCH] = self.epoch[end]
        states[LAST_SEQUENCE] = self.get(LAST_SEQUENCE_OF, batch)
        states[LAST_OFFSET] = self.get((r.LAST_OFFSET, LAST_OFFSET), batch)
        delta = self.get((r.BASE_OFFSET, OFFSET_DELTA), batch, 0)
        is_row = (batch >= 0) & (self.row[batch] >= 0)
        states[OFFSET_DELTA] = np.where(is_row, states[LAST_OFFSET] - delta, delta)
        states[TIMESTAMP] = self.get((r.TIMESTAMP, TIMESTAMP), end)
        states[TXN_FIRST] = self.get(FIRST_OF_TRANSACTION, started)
        states[EVENT_OFFSET] = self.get((r.BASE_OFFSET, EVENT_OFFSET), end)
        ended = np.where(self.before(self.started)[end] >= 0, END_OF_TRANSACTION, LONE_MARKER)
        states[EVENT] = np.where(self.kind[end] == r.MARKER, ended, DATA)
        states[GAP] = self.gap[end]
        states[BLIND] = self.get((r.BLIND, BLIND), end)
        states[BATCH_GAP] = self.get(GAP_OF_BATCH, batch)
        states[EPOCH_GAP] = self.epoch_gap()[end]
        states[TXN_BLIND] = np.where(started >= 0, self.blind(started), -1)
        states[TXN_ORIGIN] = self.origin(started, TXN_ORIGIN)
        states[IS_THINNED] = self.get((r.IS_THINNED, IS_THINNED), batch, 0)
        marker = self._last_marker()[end]
        states[COORDINATOR] = self.get(COORDINATOR_OF, marker)
        states[MARKER_GAP] = self.get((r.GAP, MARKER_GAP), marker)
        states[MARKER_ORIGIN] = self.origin(marker, MARKER_ORIGIN)
        return states


class ProducerStates:
    """The state of each producer according to the batches and snapshots so far.

    Memory: 185 bytes per producer; a broker needs several times that.
    """

    def __init__(self) -> None:
        self.table: Table = np.empty((FIELDS, 0), np.int64)

    def find(self, producer_ids: Column) -> Column:
        """Return the producers' positions in the table, -1 for unknown producers."""
        ids = self.table[PRODUCER_ID]
        if not len(ids):
            return np.full(len(producer_ids), -1)
        at = np.minimum(np.searchsorted(ids, producer_ids), len(ids) - 1)
        return np.where(ids[at] == producer_ids, at, -1)

    def put(self, states: Table) -> None:
        """Replace or add states, given by rising producer id."""
        at = self.find(states[PRODUCER_ID])
        is_new = at < 0
        self.table[:, at[~is_new]] = states[:, ~is_new]
        if is_new.any():
            table = np.concatenate((self.table, states[:, is_new]), axis=1)
            self.table = table[:, np.argsort(table[PRODUCER_ID], kind="stable")]

    def replay(self, rows: Table) -> History:
        """Apply rows to the states; return the history of rows and the states before them."""
        at = self.find(_distinct(rows[r.PRODUCER_ID]))
        history = History(self.table[:, at[at >= 0]], rows)
        self.put(history.after())
        return history


def is_open(states: Table, timeline: r.Timeline) -> NDArray[np.bool_]:
    """Return which states have a transaction that is certainly still open.

    If only a snapshot knows the transaction, compaction may have removed its batches and marker.
    """
    first = states[TXN_FIRST]
    may_be_over = timeline.removed.hold(first) & (states[GAP] != timeline.gap)
    found: NDArray[np.bool_] = (first >= 0) & ~may_be_over
    return found


def _distinct(ids: Column) -> Column:
    return ids[:1] if (ids == ids[0]).all() else np.unique(ids)
