"""The states of all producers of a partition as columns, brought forward by rows of batches.

Follows `ProducerStateEntry` and `ProducerAppendInfo` of Kafka 4.3 with origin REPLICATION.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.check import producer_rows as r

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.int64]
    Table = NDArray[np.int64]

# Rows of a table of states, one column per producer; the first eight as in a snapshot.
(PRODUCER_ID, PRODUCER_EPOCH, LAST_SEQUENCE, LAST_OFFSET, OFFSET_DELTA, TIMESTAMP, COORDINATOR,
 TXN_FIRST, EVENT_OFFSET, EVENT, GAP, BLIND, BATCH_GAP, EPOCH_GAP, MARKER_GAP, TXN_BLIND,
 IS_THINNED, ORIGIN, ABSENT_GAP, FIELDS) = range(20)  # fmt: skip
"""EVENT_OFFSET and EVENT: of the last thing that happened; GAP, BLIND: the stamps it had (see
`producer_rows`). BATCH_GAP, MARKER_GAP, TXN_BLIND: those of the last batch, the last marker and the
first batch of the transaction. EPOCH_GAP: that of the first batch of the epoch, -1 where that was
not seen. ORIGIN: the snapshot that the state is from, -1: the log. ABSENT_GAP: the stamp of the
last snapshot without the producer, -1 without such. Everything is -1 where it is not known."""

SNAPSHOT_FIELDS: Final = 8

DATA: Final = 0
"""EVENT: a batch."""
END_OF_TRANSACTION: Final = 1
"""EVENT: a marker that ended a transaction."""
LONE_MARKER: Final = 2
"""EVENT: a marker without a transaction."""


@dataclass(frozen=True, slots=True)
class History:
    """Batches of producers with what came before them, by producer, then offset.

    The first columns of a producer may be its state from before; `row` is -1 there. Indexes into
    these columns are -1 where there is none.

    Attributes:
        row: number of the column in the table of rows.
        producer_id, epoch, kind, type, base_offset, gap, blind: as in `producer_rows`; a state with
            a transaction has the `blind` of its beginning.
        first_sequence, sequence: of the batch.
        batch_gap: stamp of the producer's last batch.
        previous: index of what came before.
        batch: index of the batch that the state holds before, as an epoch ago it holds none.
        marker: index of the last marker before.
        epoch_gap: stamp of the first batch of the epoch, as EPOCH_GAP.
        started: index of the batch that began the transaction that is open before.
        first_offset: of the transaction, where one began.
        coordinator: epoch of the coordinator in a marker.
        origin: the snapshot that a state is from.
    """

    row: Column
    producer_id: Column
    epoch: Column
    kind: Column
    type: Column
    base_offset: Column
    gap: Column
    blind: Column
    first_sequence: Column
    sequence: Column
    batch_gap: Column
    coordinator: Column
    origin: Column
    first_offset: Column
    previous: Column
    batch: Column
    marker: Column
    epoch_gap: Column
    started: Column


class ProducerStates:
    """The state of each producer as the batches and snapshots so far tell it.

    Memory: 160 bytes a producer; a broker keeps several times as much.
    """

    def __init__(self) -> None:
        self.table: Table = np.empty((FIELDS, 0), np.int64)

    def find(self, producer_ids: Column) -> Column:
        """Where the producers are in the table, -1 where they are not."""
        ids = self.table[PRODUCER_ID]
        if not len(ids):
            return np.full(len(producer_ids), -1)
        at = np.minimum(np.searchsorted(ids, producer_ids), len(ids) - 1)
        return np.where(ids[at] == producer_ids, at, -1)

    def put(self, states: Table) -> None:
        """Replace or add states, by rising producer ids."""
        at = self.find(states[PRODUCER_ID])
        is_new = at < 0
        self.table[:, at[~is_new]] = states[:, ~is_new]
        if is_new.any():
            table = np.concatenate((self.table, states[:, is_new]), axis=1)
            self.table = table[:, np.argsort(table[PRODUCER_ID], kind="stable")]

    def replay(self, rows: Table) -> History:
        """Bring the states forward by rows, at least one; what came before each of them."""
        ids = rows[r.PRODUCER_ID]
        at = self.find(np.unique(ids))
        carried = self.table[:, at[at >= 0]]
        table = np.concatenate((_as_rows(carried), _extended(rows)), axis=1)
        order = np.argsort(table[r.PRODUCER_ID], kind="stable")
        history, states = _replayed(table[:, order], order - carried.shape[1])
        self.put(states)
        return history


def is_open(states: Table, timeline: r.Timeline) -> NDArray[np.bool_]:
    """Which states have a transaction that is surely still open.

    Of one that only a snapshot knows, compaction may have removed the batches and the marker.
    """
    first = states[TXN_FIRST]
    may_be_over = timeline.removed.hold(first) & (states[GAP] != timeline.gap)
    found: NDArray[np.bool_] = (first >= 0) & ~may_be_over
    return found


# More rows of the table that is replayed: states have them from before, batches have none.
(_EPOCH_GAP, _BATCH_GAP, _MARKER_GAP, _FIRST, _ORIGIN, _DELTA, _EVENT, _FIELDS) = range(
    r.FIELDS, r.FIELDS + 8
)


def _extended(rows: Table) -> Table:
    more = np.full((_FIELDS, rows.shape[1]), -1, np.int64)
    more[: r.FIELDS] = rows
    more[[_BATCH_GAP, _MARKER_GAP]] = rows[r.GAP]
    more[_FIRST] = rows[r.BASE_OFFSET]
    more[_DELTA] = rows[r.LAST_OFFSET] - rows[r.BASE_OFFSET]
    return more


def _as_rows(states: Table) -> Table:
    """States as the first rows of their producers."""
    table = np.full((_FIELDS, states.shape[1]), -1, np.int64)
    for to, of in (
        (r.PRODUCER_ID, PRODUCER_ID),
        (r.PRODUCER_EPOCH, PRODUCER_EPOCH),
        (r.LAST_SEQUENCE, LAST_SEQUENCE),
        (r.LAST_OFFSET, LAST_OFFSET),
        (r.TIMESTAMP, TIMESTAMP),
        (r.COORDINATOR, COORDINATOR),
        (r.IS_THINNED, IS_THINNED),
        (r.GAP, GAP),
        (r.BASE_OFFSET, EVENT_OFFSET),
        (_EPOCH_GAP, EPOCH_GAP),
        (_BATCH_GAP, BATCH_GAP),
        (_MARKER_GAP, MARKER_GAP),
        (_FIRST, TXN_FIRST),
        (_ORIGIN, ORIGIN),
        (_DELTA, OFFSET_DELTA),
        (_EVENT, EVENT),
    ):
        table[to] = states[of]
    is_open = states[TXN_FIRST] >= 0
    table[r.KIND] = np.where(is_open, r.TRANSACTIONAL, r.MARKER)
    table[r.BLIND] = np.where(is_open, states[TXN_BLIND], states[BLIND])
    return table


def _replayed(table: Table, row: Column) -> tuple[History, Table]:
    """The history of sorted rows, and the states behind them; `row` is negative for states."""
    count = table.shape[1]
    is_state = row < 0
    kind, epoch, gap = table[r.KIND], table[r.PRODUCER_EPOCH], table[r.GAP]
    is_first = np.ones(count, np.bool_)
    is_first[1:] = table[r.PRODUCER_ID, 1:] != table[r.PRODUCER_ID, :-1]
    at = np.arange(count)
    group = np.maximum.accumulate(np.where(is_first, at, 0))

    def latest(mask: NDArray[np.bool_]) -> Column:
        """Index of the last such row of the producer, the row itself included."""
        found = np.maximum.accumulate(np.where(mask, at, -1))
        return np.where(found < group, -1, found)

    def before(index: Column) -> Column:
        return np.where(is_first, -1, np.concatenate(([-1], index[:-1])))

    is_marker = ~is_state & (kind == r.MARKER)
    has_batch = np.where(is_state, table[r.LAST_OFFSET] >= 0, kind != r.MARKER)
    changes = ~is_first & (epoch != np.concatenate((epoch[:1], epoch[:-1])))
    batch = latest(has_batch)
    # A batch of another epoch is forgotten.
    batch = np.where(batch >= latest(changes), batch, -1)
    began = np.where(changes & (gap != np.concatenate((gap[:1], gap[:-1]))), -1, gap)
    began = np.where(is_state, table[_EPOCH_GAP], began)
    began = np.where(~is_state & is_first & (gap > 0), -1, began)[latest(changes | is_first)]
    marker = latest(is_marker | (is_state & (table[r.COORDINATOR] >= 0)))
    event = latest(kind != r.PLAIN)
    previous_event = before(event)
    is_start = (kind == r.TRANSACTIONAL) & (
        (previous_event < 0) | (kind[previous_event] == r.MARKER)
    )
    started = np.where((event >= 0) & (kind[event] == r.TRANSACTIONAL), latest(is_start), -1)
    open_before = before(started)
    happened = np.where(
        is_marker, np.where(open_before >= 0, END_OF_TRANSACTION, LONE_MARKER), DATA
    )
    happened = np.where(is_state, table[_EVENT], happened)
    history = History(
        row, table[r.PRODUCER_ID], epoch, kind, table[r.TYPE], table[r.BASE_OFFSET], gap,
        table[r.BLIND], table[r.BASE_SEQUENCE], table[r.LAST_SEQUENCE], table[_BATCH_GAP],
        table[r.COORDINATOR], table[_ORIGIN], table[_FIRST],
        before(at), before(batch), before(marker), before(began), open_before,
    )  # fmt: skip
    end = np.flatnonzero(np.append(is_first[1:], True))
    return history, _states(table, end, batch[end], marker[end], started[end], began, happened)


def _states(
    table: Table,
    end: Column,
    batch: Column,
    marker: Column,
    started: Column,
    began: Column,
    happened: Column,
) -> Table:
    """The states behind the last rows of their producers."""
    states = np.full((FIELDS, len(end)), -1, np.int64)

    def of(field: int, index: Column, default: int = -1) -> Column:
        return np.where(index >= 0, table[field, index], default)

    states[PRODUCER_ID] = table[r.PRODUCER_ID, end]
    states[PRODUCER_EPOCH] = table[r.PRODUCER_EPOCH, end]
    states[LAST_SEQUENCE] = of(r.LAST_SEQUENCE, batch)
    states[LAST_OFFSET] = of(r.LAST_OFFSET, batch)
    states[OFFSET_DELTA] = of(_DELTA, batch, 0)
    states[TIMESTAMP] = table[r.TIMESTAMP, end]
    states[COORDINATOR] = of(r.COORDINATOR, marker)
    states[TXN_FIRST] = of(_FIRST, started)
    states[EVENT_OFFSET] = table[r.BASE_OFFSET, end]
    states[EVENT] = happened[end]
    states[GAP] = table[r.GAP, end]
    states[BLIND] = table[r.BLIND, end]
    states[BATCH_GAP] = of(_BATCH_GAP, batch)
    states[EPOCH_GAP] = began[end]
    states[MARKER_GAP] = of(_MARKER_GAP, marker)
    states[TXN_BLIND] = of(r.BLIND, started)
    states[IS_THINNED] = of(r.IS_THINNED, batch, 0)
    return states
