"""The batches and records of a log in order, and what only the whole log tells of them.

Follows `CleanedTransactionMetadata` and `ProducerStateManager` of Kafka 4.3, from the log alone:
which transactions were aborted, which batch is a producer's last.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.control_records import control_record
from kafkalog.errors import CorruptDataError
from kafkalog.framing import scan_batches
from kafkalog.model import Batch, Defect
from kafkalog.records import decode_records, hold_records, resolve_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.audit.model import Bounds
    from kafkalog.log_dir import Segment
    from kafkalog.model import Record
    from kafkalog.source import Source
    from kafkalog.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class Walked:
    """A batch; its records can be read until the next batch is asked for."""

    batch: Batch
    _source: Source
    _framed: Batch

    def records(self) -> Iterator[Record]:
        """Decode the records; raises as `decode_records`."""
        return decode_records(self._source, self._framed)

    def held_records(self) -> list[Record]:
        """Decode all records; raises as `hold_records`."""
        return hold_records(self._source, self._framed)


def walk(log: UnifiedLog, below: int | None = None) -> Iterator[Walked]:
    """The batches of a log in order; base offsets of magic 0 and 1 are resolved.

    Args:
        log: the log.
        below: leaves out the segments that begin at this offset or above.

    Raises:
        CorruptDataError: a batch is damaged, or a message of magic 0 or 1 cannot be decoded.
        LimitExceededError: such a message is too large when decompressed.

    Cost:
        Memory for the header of a batch.
    """
    for segment in segments_below(log, below):
        with log.open_segment(segment) as opened:
            for found in scan_batches(opened.source, check_crc=True):
                if isinstance(found, Defect):
                    raise CorruptDataError(
                        found.detail,
                        reference=found.reference,
                        path=found.path,
                        position=found.position,
                    )
                if found.crc_valid is False:
                    raise CorruptDataError(
                        f"Batch at base offset {found.base_offset} does not match its checksum.",
                        reference="batch-crc-mismatch",
                        path=found.path,
                        position=found.position,
                    )
                yield Walked(resolve_batch(opened.source, found), opened.source, found)


def segments_below(log: UnifiedLog, offset: int | None) -> list[Segment]:
    """Return the segments that begin below an offset, all for None: a cleaner reads no others."""
    return [one for one in log.segments if offset is None or one.base_offset < offset]


def record_at(log: UnifiedLog, offset: int) -> Record | None:
    """The record of that offset, None without one; raises as `walk`."""
    segments = [segment for segment in log.segments if segment.base_offset <= offset]
    for segment in segments[-1:]:
        with log.open_segment(segment) as opened:
            for found in scan_batches(opened.source):
                if isinstance(found, Batch) and found.last_offset >= offset:
                    records = decode_records(opened.source, found)
                    return next((one for one in records if one.offset == offset), None)
    return None


@dataclass(slots=True)
class LastBatches:
    """The last batches of a producer; `data` is None where it began anew with a marker."""

    epoch: int
    data: Batch | None
    marker: Batch | None
    timestamp: int


@dataclass(slots=True)
class Transactions:
    """Aborted transactions, markers and last batches of producers of a whole log.

    Attributes:
        lone_markers: offsets of markers of whose transaction no batch is in the log.
        producers: the state of each producer at the log end.

    Memory:
        Some 100 bytes an aborted transaction that still has data, or a lone marker, and some 500 a
        producer.
    """

    lone_markers: set[int] = field(default_factory=set)
    producers: dict[int, LastBatches] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)  # producer id -> first offset
    _starts: dict[int, list[int]] = field(default_factory=dict)
    _ends: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: UnifiedLog) -> Transactions:
        """Read them from a log; raises as `walk`."""
        found = cls()
        for walked in walk(log):
            if walked.batch.producer_id >= 0:
                found.add(walked.batch, is_abort=_is_abort(walked))
        return found

    def add(self, batch: Batch, *, is_abort: bool) -> None:
        """A batch with a producer follows; `is_abort` where its record aborts a transaction."""
        who = batch.producer_id
        if batch.is_control:
            self._end(batch, is_abort=is_abort)
            return
        if batch.is_transactional:
            self._open.setdefault(who, batch.base_offset)
        known = self.producers.get(who)
        marker = known.marker if known is not None else None
        self.producers[who] = LastBatches(batch.producer_epoch, batch, marker, batch.max_timestamp)

    def _end(self, batch: Batch, *, is_abort: bool) -> None:
        who = batch.producer_id
        first = self._open.pop(who, None)
        if first is None:
            self.lone_markers.add(batch.base_offset)
        elif is_abort:
            self._starts.setdefault(who, []).append(first)
            self._ends.setdefault(who, []).append(batch.base_offset)
        known = self.producers.get(who)
        data = known.data if known is not None and known.epoch == batch.producer_epoch else None
        self.producers[who] = LastBatches(batch.producer_epoch, data, batch, batch.max_timestamp)

    def last_batches(self, bounds: Bounds) -> set[int]:
        """Base offsets of the batches that tell the state of a producer that is still active."""
        return {
            last.base_offset
            for producer in self.producers.values()
            if bounds.now_ms - producer.timestamp < bounds.producer_expiration_ms
            and (last := producer.data or producer.marker) is not None
        }

    def is_aborted(self, batch: Batch) -> bool:
        """Whether a batch of data belongs to an aborted transaction."""
        if not batch.is_transactional or batch.is_control:
            return False
        starts = self._starts.get(batch.producer_id)
        if starts is None:
            return False
        number = bisect_right(starts, batch.base_offset) - 1
        return number >= 0 and batch.base_offset < self._ends[batch.producer_id][number]


def _is_abort(walked: Walked) -> bool:
    first = next(walked.records(), None) if walked.batch.is_control else None
    return first is not None and control_record(first).type_name == "ABORT"
