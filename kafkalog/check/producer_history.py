"""The invariants of producers, transactions, transaction indexes and producer snapshots.

One replay of all batches of producers serves them all. Follows `ProducerStateManager` of Kafka 4.3.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from formats.constants import INT64_MAX
from kafkalog.check import sequences
from kafkalog.check.aborted_transactions import AbortedTransactions
from kafkalog.check.batch_checks import PartitionCheck, unread_range
from kafkalog.check.open_transactions import OpenTransactions
from kafkalog.check.passages import Passage
from kafkalog.check.producer_rows import Timeline
from kafkalog.check.producer_states import ProducerStates
from kafkalog.check.snapshots import SnapshotCheck
from kafkalog.defects import make_defect
from kafkalog.names import DirectoryState, FileKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.check.batch_checks import CheckedLog, CheckedPartition, Found
    from kafkalog.check.producer_rows import Believed
    from kafkalog.columnar.headers import Stretch
    from kafkalog.model import Defect

# Its batches all have sequence 0: the group coordinator writes them, not the producer.
_WITHOUT_SEQUENCES: Final = "__consumer_offsets"


class ProducerHistory(PartitionCheck):
    """Batches of producers follow each other; indexes of transactions and snapshots agree.

    Memory: the states of all producers, as in a broker, and up to a million gaps of offsets.
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
            sequences.epochs_never_go_back,
            sequences.coordinator_epochs_never_go_back,
            sequences.transactions_hold_only_their_own,
        ]
        if directory.topic != _WITHOUT_SEQUENCES:
            self._of_rows.append(sequences.sequences_continue)
        self._segments = {segment.base_offset: segment for segment in directory.segments}
        self._limit = INT64_MAX
        self._size_bytes = 0
        self._is_end_known = True
        self._late: list[Defect] = []

    def begin(self, log: CheckedLog) -> None:
        """The batches of a segment follow."""
        super().begin(log)
        assert log.base_offset is not None, "a segment of a partition"
        segment = self._segments[log.base_offset]
        self._late += self._aborted.close(segment.base_offset)
        self._aborted.begin(segment)
        self._timeline.begin(self._size_bytes)
        self._size_bytes = segment.log.size_bytes
        self._is_end_known = True
        self._limit = INT64_MAX if segment.next_base_offset is None else segment.next_base_offset

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        found = [(0, defect) for defect in self._late]
        self._late, self._is_end_known = [], True
        believed = self._timeline.believed(stretch, self._limit)
        bases = believed.base_offsets
        done = 0
        while done < len(bases):
            stop = self._next_stop()
            cut = len(bases) if stop is None else int(np.searchsorted(bases, stop))
            if cut > done:
                found += self._passage(stretch, believed.part(done, cut))
                done = cut
            if done < len(bases):
                number = int(believed.numbers[done])
                ahead = believed.part(done, done + 1)
                found += [(number, defect) for defect in self._at_stop(ahead)]
        yield from sorted(found, key=itemgetter(0))

    def damage(self, defect: Defect) -> None:
        """Something that is no batch comes between those of the segment, or after them."""
        self._is_end_known = unread_range(defect) is None

    def _passage(self, stretch: Stretch, part: Believed) -> Iterator[Found]:
        rows = self._timeline.rows(part)
        before = self._states.table
        history = self._states.replay(rows) if rows.size else None
        passage = Passage(
            self.log.path, stretch.headers, part, rows, history, self._timeline,
            self._snapshots.paths,
        )  # fmt: skip
        if history is not None:
            for check in self._of_rows:
                yield from check(passage, history)
        yield from self._aborted.passage(passage, before)
        self._open.passage(passage)

    def _next_stop(self) -> int | None:
        """The next offset at which something is to be done before the batches from there on."""
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
        """What is wrong now that all batches have been seen."""
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
        """A closed log with producers has a snapshot of them."""
        states = self._states.table
        if self.partition.log.was_closed and states.size and not self._snapshots.paths:
            detail = f"The log has batches of {states.shape[1]} producers, but no snapshot."
            yield make_defect("producer-snapshots-missing", self.partition.directory.path, detail)
