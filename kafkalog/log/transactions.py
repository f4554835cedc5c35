"""Transactions of a log, replayed from the headers of its batches and from its markers.

Follows `ProducerStateManager` of Kafka, as `kafkalog.log.producers` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.files.payloads.control_records import coordinator_epoch, is_abort
from kafkalog.log.batches.records import decode_records
from kafkalog.log.producers import AppendInfo
from kafkalog.model import AbortedTransaction, Batch, ProducerState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.io.paths.source import Source
    from kafkalog.log.columns.headers import BatchColumns


class TransactionReplay:
    """Applies the transactional batches between two offsets, in the order of the log.

    Args:
        states: the producers at the start.
        start: batches that end below this offset are in those states already.
        end: the replay ends at the first batch that reaches beyond this offset.
        idempotent: whether to apply batches outside transactions, too.

    Attributes:
        aborted: the transactions that were aborted on the way.
    """

    def __init__(
        self, states: Iterable[ProducerState], start: int, end: int, *, idempotent: bool = False
    ) -> None:
        self.aborted: list[AbortedTransaction] = []
        self._infos = {one.producer_id: AppendInfo(one.producer_id, one) for one in states}
        self._start, self._end = start, end
        self._idempotent = idempotent

    def states(self) -> list[ProducerState]:
        """Return the states of all producers."""
        return [info.state() for info in self._infos.values()]

    def apply(self, found: Batch | BatchColumns, source: Source) -> bool:
        """Apply a batch of a log, or several; return whether the replay goes on.

        Raises:
            CorruptDataError: a marker cannot be decoded.
        """
        if not isinstance(found, Batch):
            return self._apply_columns(found, source)
        if found.last_offset >= self._end:
            return False
        is_wanted = found.producer_id >= 0 if self._idempotent else found.is_transactional
        if is_wanted and found.last_offset >= self._start:
            if found.is_control:
                self._apply_marker(found, source)
            else:
                self._info(found.producer_id).append_batch(found)
        return True

    def _apply_columns(self, columns: BatchColumns, source: Source) -> bool:
        from kafkalog.log.columns import header_table as h
        from kafkalog.log.columns.headers import producer_rows

        headers = columns.headers
        last, attributes = headers[h.LAST_OFFSET], headers[h.ATTRIBUTES]
        is_wanted = (
            headers[h.PRODUCER_ID] >= 0
            if self._idempotent
            else attributes & c.TRANSACTIONAL_MASK != 0
        )
        is_wanted &= (headers[h.MAGIC] >= 2) & (last >= self._start)
        is_beyond = last >= self._end
        goes_on = not is_beyond.any()
        if not goes_on:
            is_wanted[is_beyond.argmax() :] = False
        for row in producer_rows(columns, is_wanted):
            (ordinal, producer_id, epoch, sequence, base_offset, last_offset, timestamp,
             is_transactional, marker, by_coordinator, _) = row  # fmt: skip
            if marker == h.NO_MARKER:
                self._info(producer_id).append_data(
                    epoch,
                    sequence,
                    base_offset,
                    last_offset,
                    timestamp,
                    is_transactional=is_transactional,
                )
            elif marker in (c.ABORT, c.COMMIT):
                is_aborted = marker == c.ABORT
                self._end_transaction(
                    producer_id, epoch, by_coordinator, timestamp, last_offset, is_aborted
                )
            else:
                self._apply_marker(h.batch_at(headers, ordinal, source.path), source)
        return goes_on

    def _apply_marker(self, batch: Batch, source: Source) -> None:
        marker = next(decode_records(source, batch), None)
        if marker is not None:  # otherwise the cleaner has removed it
            self._end_transaction(
                batch.producer_id,
                batch.producer_epoch,
                coordinator_epoch(marker),
                batch.max_timestamp,
                batch.last_offset,
                is_abort(marker),
            )

    def _end_transaction(
        self, producer_id: int, epoch: int, by: int, timestamp: int, offset: int, is_aborted: bool
    ) -> None:
        info = self._info(producer_id)
        ended = info.append_marker(epoch, by, timestamp, offset, is_abort=is_aborted)
        if ended is not None and is_aborted:
            entry = AbortedTransaction(0, producer_id, ended.first_offset, offset, offset + 1)
            self.aborted.append(entry)

    def _info(self, producer_id: int) -> AppendInfo:
        info = self._infos.get(producer_id)
        if info is None:
            info = self._infos[producer_id] = AppendInfo(producer_id)
        return info
