"""Tracks which batches belong to aborted transactions, and which markers are no longer needed.

Follows `CleanedTransactionMetadata` and `LocalLog.collectAbortedTransactions` of Kafka.
"""

from __future__ import annotations

import heapq
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from formats import constants as c
from kafkalog.files.indexes import read_aborted_transactions
from kafkalog.files.payloads.control_records import control_record
from kafkalog.log.batches.records import decode_records
from kafkalog.model import AbortedTransaction, Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.files.log_dir import Segment
    from kafkalog.io.paths.source import Readable


def collect_aborted(
    segments: Sequence[Segment], start: int, lower: int, upper: int
) -> Iterator[AbortedTransaction]:
    """Yield the transaction index entries, from segment `start` on, that reach into a range."""
    for segment in segments:
        # An entry is in the segment of its marker, so earlier segments have none that reach here.
        if segment.base_offset < start or segment.transaction_index is None:
            continue
        for entry in read_aborted_transactions(segment.transaction_index.path):
            if entry.last_offset >= lower and entry.first_offset < upper:
                yield entry
            # All transactions that begin below are decided by then: later entries begin behind the
            # range.
            if entry.last_stable_offset >= upper:
                return


class TransactionState:
    """The open transactions while a log is read from its beginning, batch by batch."""

    def __init__(self) -> None:
        self.kept: list[AbortedTransaction] = []
        self._pending: list[tuple[int, int, AbortedTransaction]] = []
        self._count = 0
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        self._committed: set[int] = set()

    def to_json(self) -> dict[str, Any]:
        """Return the state, without the kept entries, so that another process can continue."""
        return {
            "pending": [asdict(entry) for _, _, entry in sorted(self._pending)],
            "aborted": [[who, asdict(entry)] for who, entry in self._aborted.items()],
            "with_data": sorted(self._with_data),
            "committed": sorted(self._committed),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Read back what `to_json` wrote."""
        state = cls()
        state.expect(AbortedTransaction(**one) for one in given["pending"])
        state._aborted = {who: AbortedTransaction(**one) for who, one in given["aborted"]}
        state._with_data, state._committed = {*given["with_data"]}, {*given["committed"]}
        return state

    def expect(self, entries: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions to expect; adding one twice does no harm."""
        for entry in entries:
            self._count += 1
            # The count keeps the order of equal first offsets, and entries from being compared.
            heapq.heappush(self._pending, (entry.first_offset, self._count, entry))

    def is_discardable(self, source: Readable, batch: Batch, kind: int | None = None) -> bool:
        """Return whether the batch was aborted, or is a marker of a transaction without data.

        Args:
            source: the log, or the chunk of it that has the batch.
            batch: the next one.
            kind: ABORT or COMMIT if it is known to be such a marker.

        Raises:
            CorruptDataError: a control record cannot be read.
        """
        while self._pending and self._pending[0][0] <= batch.last_offset:
            entry = heapq.heappop(self._pending)[2]
            # The first one counts: the segments of a group report the same transaction again.
            self._aborted.setdefault(entry.producer_id, entry)
        if batch.is_control:
            if kind not in (c.ABORT, c.COMMIT):
                record = next(decode_records(source, batch), None)
                # An empty control batch: an earlier pass has dropped the marker, and only the
                # producer's epoch is left of it.
                if record is None:
                    return True
                kind = control_record(record).type_id
            return self._is_marker_discardable(batch.producer_id, kind)
        if not batch.is_transactional:
            return False
        # An empty batch counts as data, so that its marker stays, and what it says of the producer.
        if batch.producer_id in self._aborted:
            self._with_data.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def _is_marker_discardable(self, who: int, kind: int) -> bool:
        if kind == c.ABORT:
            entry = self._aborted.pop(who, None)
            has_data = who in self._with_data
            self._with_data.discard(who)
            if entry is not None and has_data:
                self.kept.append(entry)
                return False
            return True
        if kind == c.COMMIT:
            is_known = who in self._committed
            self._committed.discard(who)
            return not is_known
        return False
