"""Producer states updated to an offset: the newest snapshot, then the batches after it.

Follows `LogSegment.updateProducerState`, `UnifiedLog.rebuildProducerState` and
`UnifiedLog.loadProducersFromRecords` of Kafka: a scan merges each batch before the next, a
replay merges all batches of a read together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from formats import constants as c
from formats import file_names
from kafkalog.errors import CorruptDataError
from kafkalog.files.payloads.control_records import control_record
from kafkalog.log.batches.records import decode_records
from kafkalog.node.recovery.model import StartRefusedError
from kafkalog.node.recovery.producers import ProducerStates, hash_order
from kafkalog.node.recovery.walk import CorruptRecordError, Frame, Walker

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkalog.io.paths.source import Source
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.log.producers import AppendInfo, CompletedTransaction
    from kafkalog.model import Batch
    from kafkalog.node.recovery.indexes import AbortedList
    from kafkalog.node.recovery.segment_state import SegmentState


def readable_markers(columns: BatchColumns) -> NDArray[np.bool_]:
    """Return which batches are not markers of a producer, or are markers that can be read whole."""
    from kafkalog.log.columns import header_table as h

    headers, kinds = columns.headers, columns.markers[h.MARKER_TYPE]
    is_marker = (kinds == c.ABORT) | (kinds == c.COMMIT)
    is_empty = (kinds == h.EMPTIED) & (headers[h.SIZE] == c.RECORD_BATCH_OVERHEAD)
    # An empty batch with a codec still has a stream to open, which may fail: left to the plain
    # reader.
    is_empty &= headers[h.ATTRIBUTES] & c.COMPRESSION_MASK == 0
    readable: NDArray[np.bool_] = (
        (kinds == h.NO_MARKER) | (headers[h.PRODUCER_ID] < 0) | is_marker | is_empty
    )
    return readable


class Appends(ABC):
    """The changes since the states were last updated.

    Args:
        producers: the states; `finish` updates them.
    """

    def __init__(self, producers: ProducerStates) -> None:
        self.producers = producers
        self._infos: dict[int, AppendInfo] = {}

    def frame(self, source: Source, frame: Frame) -> None:
        """Apply one batch.

        Raises:
            CorruptRecordError: a marker cannot be read; then nothing has changed.
            StartRefusedError: a batch contradicts the state.
        """
        if frame.magic < 2 or frame.batch.producer_id < 0:
            return  # a legacy message has no producer
        batch = frame.batch
        info = self._infos.get(batch.producer_id) or self.producers.prepare(batch.producer_id)
        if batch.is_control:
            self._marker(info, source, batch)
        else:
            _require_own(info, batch.producer_id, batch.base_offset, batch.is_transactional)
            if info.append_batch(batch):
                self.opened(batch.producer_id, batch.base_offset)
        self._infos[batch.producer_id] = info

    def columns(self, columns: BatchColumns) -> None:
        """Apply batches whose markers `readable_markers` accepts.

        Raises:
            StoppedError: a batch contradicts the state.
        """
        from kafkalog.log.columns import header_table as h
        from kafkalog.log.columns.headers import producer_rows

        infos, prepare = self._infos, self.producers.prepare
        for row in producer_rows(columns, columns.headers[h.PRODUCER_ID] >= 0):
            (ordinal, producer_id, epoch, sequence, base_offset, last_offset, timestamp,
             is_transactional, marker, coordinator_epoch, marked_at) = row  # fmt: skip
            info = infos.get(producer_id)
            if info is None:
                info = infos[producer_id] = prepare(producer_id)
            try:
                if marker == h.NO_MARKER:
                    _require_own(info, producer_id, base_offset, is_transactional)
                    if info.append_data(
                        epoch,
                        sequence,
                        base_offset,
                        last_offset,
                        timestamp,
                        is_transactional=is_transactional,
                    ):
                        self.opened(producer_id, base_offset)
                elif marker != h.EMPTIED:
                    is_abort = marker == c.ABORT
                    completed = info.append_marker(
                        epoch, coordinator_epoch, marked_at, base_offset, is_abort=is_abort
                    )
                    if completed is not None:
                        self.completed(completed)
            except StartRefusedError as error:
                raise StoppedError(ordinal, error) from error

    def _marker(self, info: AppendInfo, source: Source, batch: Batch) -> None:
        if batch.magic > 2:  # Kafka's loader takes it for 2, and no checksum covers it
            batch = replace(batch, magic=2)
        try:
            record = next(decode_records(source, batch), None)
            if record is None:
                return  # the cleaner has removed the whole transaction
            marker = control_record(record)
        except CorruptDataError as error:
            raise CorruptRecordError("InvalidRecordException", error.message) from error
        if marker.coordinator_epoch is None:
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Invalid control record type for end transaction marker {marker.type_name}",
            )
        completed = info.append_marker(
            batch.producer_epoch,
            marker.coordinator_epoch,
            record.timestamp,
            batch.base_offset,
            is_abort=marker.type_name == "ABORT",
        )
        if completed is not None:
            self.completed(completed)

    @abstractmethod
    def opened(self, producer_id: int, first_offset: int) -> None:
        """Record that a transaction has begun."""

    @abstractmethod
    def completed(self, transaction: CompletedTransaction) -> None:
        """Record that a transaction has ended."""

    @abstractmethod
    def finish(self) -> None:
        """Update the states."""


def _require_own(info: AppendInfo, producer_id: int, offset: int, is_transactional: bool) -> None:
    """Refuse data outside the transaction that the producer has open."""
    if info.txn_first_offset is not None and not is_transactional:
        raise StartRefusedError(
            "InvalidTxnStateException",
            f"Expected transactional write from producer {producer_id} at offset {offset}",
        )


class StoppedError(Exception):
    """Refuses the batch with this ordinal among those given."""

    def __init__(self, ordinal: int, refusal: StartRefusedError) -> None:
        super().__init__(ordinal)
        self.ordinal = ordinal
        self.refusal = refusal


class AppendsOneByOne(Appends):
    """Applies batches as a scan does: transactions begin and end immediately.

    Args:
        producers: the states; `finish` updates them.
        aborted: gets the aborted transactions.
    """

    def __init__(self, producers: ProducerStates, aborted: AbortedList) -> None:
        super().__init__(producers)
        self._aborted = aborted

    def opened(self, producer_id: int, first_offset: int) -> None:
        self.producers.open.begin(first_offset, producer_id)

    def completed(self, transaction: CompletedTransaction) -> None:
        if transaction.is_aborted:
            self._aborted.append(transaction, self.producers.open.last_stable_offset(transaction))
        self.producers.complete(transaction)

    def finish(self) -> None:
        for producer_id, info in self._infos.items():
            self.producers.states[producer_id] = info.state()


class AppendsTogether(Appends):
    """Applies batches as a replay does: first all batches, then the ends of transactions."""

    def __init__(self, producers: ProducerStates) -> None:
        super().__init__(producers)
        self._opened: list[tuple[int, int]] = []
        self._completed: list[CompletedTransaction] = []

    def opened(self, producer_id: int, first_offset: int) -> None:
        self._opened.append((first_offset, producer_id))

    def completed(self, transaction: CompletedTransaction) -> None:
        self._completed.append(transaction)

    def finish(self) -> None:
        """Update the states.

        Raises:
            StartRefusedError: a transaction ends that is not open.
        """
        for producer_id in hash_order(self._infos, len(self._infos)):
            self.producers.states[producer_id] = self._infos[producer_id].merged_state()
        for first_offset, producer_id in self._opened:
            self.producers.open.begin(first_offset, producer_id)
        for transaction in self._completed:
            self.producers.complete(transaction)


def rebuild_producers(
    producers: ProducerStates,
    segments: dict[int, SegmentState],
    log_start_offset: int,
    end_offset: int,
    *,
    is_clean: bool,
) -> None:
    """Update the states to `end_offset`, and take the snapshots that Kafka takes on the way.

    After a clean shutdown without any snapshot nothing is read: all producers are forgotten.

    Raises:
        StartRefusedError: a batch cannot be read or contradicts the state; checksums are not
            verified.
    """
    # UnifiedLog.rebuildProducerState: the last two bases, so that a later truncation needs no scan
    # of the whole log.
    snapshot_offsets = [*sorted(segments)[-2:], end_offset]
    # The shortcut for upgrades: Kafka takes a log without snapshots for one written before there
    # were any, and scans nothing.
    if is_clean and not producers.snapshots:
        for offset in snapshot_offsets:
            producers.end_offset = offset
            producers.take_snapshot()
        return
    # Asked before the reload, as in Kafka: afterwards the states are those of the snapshot.
    was_empty = producers.is_empty and producers.end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset, end_offset)
    if end_offset > producers.end_offset and not was_empty:
        floor = max((base for base in segments if base <= end_offset), default=None)
        for segment in segments_between(segments, producers.end_offset, end_offset):
            start = max(segment.base_offset, producers.end_offset, log_start_offset)
            producers.end_offset = start
            if segment.base_offset in snapshot_offsets:
                producers.take_snapshot()
            end = segment.size_bytes
            if segment.base_offset == floor:
                found = segment.find(end_offset)
                end = found.position if found else end
            _replay(producers, segment, start, end)
    producers.end_offset = end_offset
    producers.take_snapshot()


def segments_between(segments: dict[int, SegmentState], start: int, end: int) -> list[SegmentState]:
    """Return the segments with offsets from `start` up to `end`, including the floor of `start`."""
    if start == end:
        return []
    floor = max((base for base in segments if base <= start), default=None)
    return [
        segments[base]
        for base in sorted(segments)
        if base < end and (floor is None or base >= floor)
    ]


def _replay(producers: ProducerStates, segment: SegmentState, start: int, end: int) -> None:
    """Apply the batches from offset `start` up to position `end`, all at once."""
    found = segment.find(start)
    if found is None:
        return
    if end < found.position:
        raise StartRefusedError(
            "IllegalArgumentException",
            f"Invalid size: {end - found.position} in read from {segment.name(file_names.LOG)}",
        )
    replay = _Replay(AppendsTogether(producers))
    segment.walk(replay, found.position, end)
    # Once for all batches of a read, as UnifiedLog.loadProducersFromRecords: transactions complete
    # after all producers are up to date.
    replay.appends.finish()


class _Replay(Walker):
    """Applies batches of producers, without verifying checksums."""

    def __init__(self, appends: AppendsTogether) -> None:
        self.appends = appends

    def columns(self, columns: BatchColumns) -> int:
        """Process batches; return how many were accepted."""
        plain = readable_markers(columns)
        count = columns.count if plain.all() else int(plain.argmin())
        try:
            if count:
                self.appends.columns(columns.part(0, count))
        except StoppedError as stopped:
            raise stopped.refusal from stopped
        return count

    def frame(self, source: Source, frame: Frame) -> bool:
        self.appends.frame(source, frame)
        return True
