"""Checks of producers: epochs, sequences, coordinators, and transactions without an end.

All checks share one replay of the producers' batches. Follows `ProducerStateManager` and
`ProducerAppendInfo` of Kafka, with the rules of a leader's append. A leader accepts any
sequence from a producer that it has forgotten, but clients do not make use of that.

Only brokers' clocks count as time: the timestamps of markers, and those of LogAppendTime.
Producers' timestamps may be arbitrary.
"""

from __future__ import annotations

import dataclasses
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from formats.constants import INT64_MAX
from formats.file_names import DirectoryState, FileKind
from formats.topic_names import CONSUMER_OFFSETS
from kafkalog.check import producer_rows as r
from kafkalog.check import producer_states as p
from kafkalog.check.aborted_transactions import AbortedTransactions
from kafkalog.check.batches import PartitionCheck, partition_check, unread_range
from kafkalog.check.producer_rows import Believed, ProducerWindow, Timeline
from kafkalog.check.producer_states import History, ProducerStates
from kafkalog.check.snapshots import SnapshotCheck
from kafkalog.io.wording import counted, utc_text
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.header_table import MARKER_TYPE
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batches import CheckedLog, CheckedPartition, Found
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.log.columns.headers import BatchColumns, PlainRun
    from kafkalog.model import Defect

_HALF: Final = 1 << 30


def epochs_never_go_back(window: ProducerWindow, history: History) -> Iterator[Found]:
    """No batch of a producer has an epoch below that of the one before it."""
    odd = history.epoch[1:] < history.epoch[:-1]
    odd &= ~history.is_first[1:]
    which = np.flatnonzero(odd) + 1
    for i, origin in zip(which.tolist(), history.origin(which - 1).tolist(), strict=True):
        yield window.found(
            "producer-epoch-went-back",
            int(history.row[i]),
            f"Producer {history.producer_id[i]} has epoch {history.epoch[i]}, after "
            f"{history.epoch[i - 1]}.",
            origin,
        )


def coordinator_epochs_never_go_back(window: ProducerWindow, history: History) -> Iterator[Found]:
    """No marker of a producer has a coordinator epoch below that of the one before it."""
    markers, before = history.markers()
    epoch = history.get(p.COORDINATOR_OF, markers)
    known = history.get(p.COORDINATOR_OF, before)
    origin = history.origin(before, p.MARKER_ORIGIN)
    for i in np.flatnonzero(epoch < known).tolist():
        yield window.found(
            "coordinator-epoch-went-back",
            int(history.row[markers[i]]),
            f"The marker of producer {history.producer_id[markers[i]]} has coordinator epoch "
            f"{epoch[i]}, after {known[i]}.",
            int(origin[i]),
        )


def sequences_continue(window: ProducerWindow, history: History) -> Iterator[Found]:
    """The sequences of a producer continue where they ended, or start from 0 in a new epoch.

    Where offsets are missing in between, batches may have been removed.
    """
    which = np.flatnonzero((history.row >= 0) & (history.kind != r.MARKER) & ~history.is_first)
    if not len(which):
        return
    found = window.rows[r.BASE_SEQUENCE, history.row[which]]
    expected, origin = _expected_sequences(history, which), history.origin(which - 1)
    for i in np.flatnonzero((expected >= 0) & (found != expected)).tolist():
        at, sequence, wanted = int(which[i]), int(found[i]), int(expected[i])
        # Sequences wrap at 2^31: more than half the range ahead is behind.
        is_back = (sequence - wanted) & c.INT32_MAX >= _HALF
        yield window.found(
            "producer-sequence-repeated" if is_back else "producer-sequence-skipped",
            int(history.row[at]),
            f"Producer {history.producer_id[at]} of epoch {history.epoch[at]} continues with "
            f"sequence {sequence}, expected {wanted}.",
            int(origin[i]),
        )


def _expected_sequences(history: History, which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first sequence that some batches should have, -1 if any is legal."""
    gap, epoch, before = history.gap[which], history.epoch[which], history.epoch[which - 1]
    # The last batch of the state before, in the epoch that the state has then.
    batch = history.batch[which - 1]
    is_same = epoch == before
    follows = is_same & (batch >= 0) & (history.get(p.GAP_OF_BATCH, batch) == gap)
    after = (history.get(p.LAST_SEQUENCE_OF, batch) + 1) & c.INT32_MAX
    # A marker began the epoch; its first batch has sequence 0 (ProducerAppendInfo.checkSequence).
    begins = (epoch > before) & (history.gap[which - 1] == gap)
    begins |= is_same & (batch < 0) & (history.epoch_gap()[which - 1] == gap)
    return np.where(follows, after, np.where(begins, 0, -1))


def transactions_hold_only_their_own(window: ProducerWindow, history: History) -> Iterator[Found]:
    """A producer with an open transaction writes nothing outside the transaction."""
    which = np.flatnonzero((history.kind == r.PLAIN) & (history.started >= 0))
    started = history.started[which]
    known = history.blind(which) == history.blind(started)
    first = history.get(p.FIRST_OF_TRANSACTION, started)
    origin = history.origin(started, p.TXN_ORIGIN)
    for i in np.flatnonzero(known).tolist():
        yield window.found(
            "batch-outside-transaction",
            int(history.row[which[i]]),
            f"Producer {history.producer_id[which[i]]} has a transaction open since offset "
            f"{first[i]}, the batch is not transactional.",
            int(origin[i]),
        )


HANGING_MS: Final = 86_400_000
"""A day without a batch: many times the default of `transaction.max.timeout.ms`, 15 minutes, which
is raised to hours for applications with long transactions."""


class OpenTransactions:
    """Follows the brokers' clocks, and reports the transactions that are open at the end."""

    def __init__(self, states: ProducerStates) -> None:
        self._states = states
        self._newest = -1

    def window(self, window: ProducerWindow) -> None:
        """Read the clocks of some batches, once the states are updated with them."""
        headers = window.part.headers
        # Times of LogAppendTime and of markers are a broker's; those of records are the clients'.
        tells = (headers[h.ATTRIBUTES] & c.TIMESTAMP_TYPE_MASK != 0) & (headers[h.MAGIC] == 2)
        tells |= window.part.markers[MARKER_TYPE] >= 0
        tells &= headers[h.MAX_TIMESTAMP] >= 0
        table = self._states.table
        if not tells.any():
            return
        offsets, times = headers[h.LAST_OFFSET, tells], headers[h.MAX_TIMESTAMP, tells]
        self._newest = max(self._newest, int(times.max()))
        unheard = np.flatnonzero((table[p.TXN_FIRST] >= 0) & (table[p.HEARD_AT] < 0))
        at = np.searchsorted(offsets, table[p.EVENT_OFFSET, unheard])
        is_told = at < len(offsets)
        table[p.HEARD_AT, unheard[is_told]] = times[at[is_told]]

    def end(self, directory: PartitionDir, timeline: Timeline) -> Iterator[Defect]:
        """Yield the open transactions, by first offset."""
        path = directory.segments[-1].log.path if directory.segments else directory.path
        table = self._states.table[:, p.is_open(self._states.table, timeline)]
        for i in np.argsort(table[p.TXN_FIRST], kind="stable").tolist():
            state = table[:, i]
            first = int(state[p.TXN_FIRST])
            last = int(state[p.LAST_OFFSET] - state[p.OFFSET_DELTA])
            heard_at = int(state[p.HEARD_AT])
            idle_ms = self._newest - heard_at if heard_at >= 0 else 0
            detail = (
                f"Producer {state[p.PRODUCER_ID]} of epoch {state[p.PRODUCER_EPOCH]} has a "
                f"transaction open since offset {first}; its last batch, at offset {last}, has "
                f"timestamp {utc_text(int(state[p.TIMESTAMP]))}"
            )
            if idle_ms >= 1000:
                detail += f", at least {idle_ms // 1000} seconds before the newest"
            name = "transaction-hanging" if idle_ms > HANGING_MS else "transaction-open"
            defect = make_defect(name, path, f"{detail}.", offset=first)
            yield dataclasses.replace(defect, hint=_hint(directory, state))


def _hint(directory: PartitionDir, state: NDArray[np.int64]) -> str:
    line = (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic "
        f"{directory.topic} --partition {directory.partition or 0}"
    )
    old = f"--producer-id {state[p.PRODUCER_ID]} --producer-epoch {state[p.PRODUCER_EPOCH]}"
    return (
        f"If its application is gone: `{line} --start-offset {state[p.TXN_FIRST]}`; with brokers "
        f"before 3.0 `{line} {old} --coordinator-epoch {max(int(state[p.COORDINATOR]), 0)}`."
    )


@partition_check
class ProducerHistory(PartitionCheck):
    """Batches of producers follow each other, and agree with transaction indexes and snapshots.

    Memory: the states of all producers, as in a broker, and up to a million gaps between offsets.
    """

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        directory = partition.directory
        start = partition.log.log_start_offset
        self._log_start: int | None = start
        self._timeline = Timeline(start)
        self._states = ProducerStates()
        self._snapshots = SnapshotCheck(
            directory.live(FileKind.PRODUCER_SNAPSHOT), self._states, self._timeline
        )
        self._aborted = AbortedTransactions(directory, self._timeline, start)
        self._open = OpenTransactions(self._states)
        self._of_rows = [
            epochs_never_go_back,
            coordinator_epochs_never_go_back,
            transactions_hold_only_their_own,
        ]
        if directory.topic != CONSUMER_OFFSETS:  # the group coordinator writes all with sequence 0
            self._of_rows.append(sequences_continue)
        self._segments = {segment.base_offset: segment for segment in directory.segments}
        self._limit = INT64_MAX
        self._size_bytes = 0
        self._is_end_known = True
        self._late: list[Defect] = []

    def begin(self, log: CheckedLog) -> None:
        super().begin(log)
        assert log.base_offset is not None, "a segment of a partition"
        segment = self._segments[log.base_offset]
        self._late += self._aborted.close(segment.base_offset)
        self._aborted.begin(segment)
        self._timeline.begin(self._size_bytes)
        self._size_bytes = segment.log.size_bytes
        self._is_end_known = True
        self._limit = INT64_MAX if segment.next_base_offset is None else segment.next_base_offset

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        found = [(0, defect) for defect in self._late]
        self._late, self._is_end_known = [], True
        run = columns.plain
        if run is not None and self._timeline.goes_on(run, self._limit):
            while (stop := self._next_stop()) is not None and stop <= run.first_offset:
                found += [(0, defect) for defect in self._at_stop(None)]
            if self._is_nothing_told_by(run):
                self._timeline.pass_by(run)
                yield from found
                return
        believed = self._timeline.believed(columns, self._limit)
        bases = believed.base_offsets
        done = 0
        while done < len(bases):
            stop = self._next_stop()
            cut = len(bases) if stop is None else int(np.searchsorted(bases, stop))
            if cut > done:
                found += self._window(columns, believed.part(done, cut))
                done = cut
            if done < len(bases):
                number = int(believed.numbers[done])
                ahead = believed.part(done, done + 1)
                found += [(number, defect) for defect in self._at_stop(ahead)]
        yield from sorted(found, key=itemgetter(0))

    def _is_nothing_told_by(self, run: PlainRun) -> bool:
        """Return whether a run says nothing of producers, and no snapshot is of its middle."""
        stop = self._next_stop()
        is_whole = stop is None or stop > run.last_base_offset
        is_told = run.has_producers or run.has_broker_times or self._aborted.has_entries
        return is_whole and not is_told

    def damage(self, defect: Defect) -> None:
        self._is_end_known = unread_range(defect) is None

    def _window(self, columns: BatchColumns, part: Believed) -> Iterator[Found]:
        rows = self._timeline.rows(part)
        before = self._states.table
        history = self._states.replay(rows) if rows.size else None
        window = ProducerWindow(
            self.log.path, columns.headers, part, rows, history, self._timeline,
            self._snapshots.paths,
        )  # fmt: skip
        if history is not None:
            for check in self._of_rows:
                yield from check(window, history)
        yield from self._aborted.window(window, before)
        self._open.window(window)

    def _next_stop(self) -> int | None:
        """Return the next offset at which a snapshot or the log start must be handled, if any."""
        stops = [self._log_start, self._snapshots.next_offset]
        return min((stop for stop in stops if stop is not None), default=None)

    def _at_stop(self, ahead: Believed | None) -> Iterator[Defect]:
        if self._log_start is not None and self._log_start == self._next_stop():
            self._timeline.advance_to(self._log_start, ahead)
            if self._log_start > min(self._segments, default=self._log_start):
                self._timeline.lose_sight()
            self._log_start = None
        else:
            yield from self._snapshots.compare_next(ahead)

    def end(self) -> Iterator[Defect]:
        yield from self._late
        self._timeline.begin(self._size_bytes)
        end_offset = max(self.partition.end_offset, self._timeline.next_offset)
        yield from self._aborted.close(end_offset if self._is_end_known else INT64_MAX)
        while (stop := self._next_stop()) is not None and stop <= end_offset:
            yield from self._at_stop(None)
        directory = self.partition.directory
        if directory.state in (DirectoryState.LIVE, DirectoryState.FUTURE):
            if self._is_end_known:
                yield from self._snapshots.beyond(end_offset)
            yield from self._forgotten()
        yield from self._open.end(directory, self._timeline)

    def _forgotten(self) -> Iterator[Defect]:
        """Yield a defect if a closed log with producers has no snapshot of them."""
        states = self._states.table
        if self.partition.log.was_closed and states.size and not self._snapshots.paths:
            detail = (
                f"The log has batches of {counted(states.shape[1], 'producer')}, but no snapshot."
            )
            yield make_defect("producer-snapshots-missing", self.partition.directory.path, detail)
