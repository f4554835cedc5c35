"""The findings of an audit, and the walk over a log's batches and records that it needs.

Follows `CleanedTransactionMetadata` and `ProducerStateManager` of Kafka, from the log alone:
which transactions were aborted, and which batch is a producer's last.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from kafkalog.files.payloads.control_records import control_record
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.order import batch_defects
from kafkalog.log.batches.records import decode_records, hold_records, resolve_batch
from kafkalog.log.defects import corrupt_data
from kafkalog.log.producers import EXPIRATION_MS, AppendInfo, is_expired
from kafkalog.model import Batch, Defect, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.files.log_dir import Segment
    from kafkalog.io.paths.source import Source
    from kafkalog.node.unified_log import UnifiedLog


class Reason(StrEnum):
    """How a log violates the rules of compaction."""

    STALE_KEY = "stale-key"
    """A record below the cleaner offset has a key that a later record there has, too."""
    NO_KEY = "no-key"
    """A record without a key lies below the cleaner offset."""
    LIVE_KEY_LOST = "live-key-lost"
    """The latest committed record of a key is gone, and it was not a tombstone."""
    TOMBSTONE_TOO_EARLY = "tombstone-dropped-too-early"
    """The latest record of a key was a tombstone, and is gone before its delete horizon."""
    MARKER_TOO_EARLY = "marker-dropped-too-early"
    """A transaction marker is gone before its delete horizon, or while its data existed."""
    RECORD_LOST = "record-lost"
    """A record at or above the cleaner offset is gone."""
    RECORD_CHANGED = "record-changed"
    """A record was changed."""
    RECORD_ADDED = "record-added"
    """A record or a batch is new."""
    BATCH_CHANGED = "batch-changed"
    """The offsets, the epoch, the producer or the transaction in a batch's header changed."""
    HORIZON_CHANGED = "delete-horizon-changed"
    """A delete horizon that was set was changed or removed."""
    PRODUCER_LOST = "producer-state-lost"
    """The last batch of an active producer is gone, and its sequence with it."""
    LOG_START_CHANGED = "log-start-changed"
    LOG_END_CHANGED = "log-end-changed"
    EPOCHS_CHANGED = "leader-epochs-changed"
    LAST_STABLE_CHANGED = "last-stable-offset-changed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A counterexample.

    Attributes:
        reason: which rule it breaks.
        detail: a description, without the key.
        path: the `.log` of the record or batch, the directory for the log as a whole.
        position: position of its batch in the file; None for the log as a whole.
        offset: offset of the record, or base offset of the batch; None for the log as a whole.
        key: key of the record; None if none.
        other_offset: offset of the record that it is compared with; None if none.
    """

    reason: Reason
    detail: str
    path: str
    position: int | None = None
    offset: int | None = None
    key: bytes | None = None
    other_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The part of a log that is judged.

    Attributes:
        first_dirty_offset: where the cleanings began to look for later records.
        cleaner_offset: where the last of them ended; nothing from there on was compacted.
        now_ms: latest possible time of the last cleaning: horizons up to it may have passed.
        producer_expiration_ms: time without a batch after which a producer is forgotten.
    """

    first_dirty_offset: int
    cleaner_offset: int
    now_ms: int
    producer_expiration_ms: int = EXPIRATION_MS


@dataclass(frozen=True, slots=True)
class Walked:
    """A batch; its records can be read until the next batch is requested."""

    batch: Batch
    _source: Source
    _framed: Batch

    def records(self) -> Iterator[Record]:
        """Decode the records. Raises as `decode_records`."""
        return decode_records(self._source, self._framed)

    def held_records(self) -> list[Record]:
        """Decode all records. Raises as `hold_records`."""
        return hold_records(self._source, self._framed)


def walk(log: UnifiedLog, below: int | None = None) -> Iterator[Walked]:
    """Yield the batches of a log in order; base offsets of magic 0 and 1 are resolved.

    Args:
        below: leaves out the segments that begin at this offset or above.

    Raises:
        CorruptDataError: a batch is damaged or out of place, or a message of magic 0 or 1 cannot be
            decoded.
        LimitExceededError: such a message is too large when decompressed.

    Cost:
        Memory for the header of a batch.
    """
    for segment in segments_below(log, below):
        with log.open_segment(segment) as opened:
            for found in opened.order().scan(0):
                if isinstance(found, Defect):
                    raise corrupt_data(found)
                for defect in batch_defects(found):
                    raise corrupt_data(defect)
                yield Walked(resolve_batch(opened.source, found), opened.source, found)


def segments_below(log: UnifiedLog, offset: int | None) -> list[Segment]:
    """Return the segments that begin below an offset (all for None), which a cleaner reads."""
    return [one for one in log.segments if offset is None or one.base_offset < offset]


def record_at(log: UnifiedLog, offset: int) -> Record | None:
    """Return the record at that offset, None if none. Raises as `walk`."""
    segments = [segment for segment in log.segments if segment.base_offset <= offset]
    for segment in segments[-1:]:
        with log.open_segment(segment) as opened:
            for found in scan_batches(opened.source):
                if isinstance(found, Batch) and found.last_offset >= offset:
                    records = decode_records(opened.source, found)
                    return next((one for one in records if one.offset == offset), None)
    return None


@dataclass(slots=True)
class Transactions:
    """Aborted transactions, markers and last batches of producers of a whole log.

    Attributes:
        lone_markers: offsets of markers whose transaction has no batch in the log.
        producers: the state of each producer at the log end.

    Memory:
        About 100 bytes per aborted transaction that still has data and per lone marker, and about
        500 per producer.
    """

    lone_markers: set[int] = field(default_factory=set)
    producers: dict[int, AppendInfo] = field(default_factory=dict)
    _holders: dict[int, int] = field(default_factory=dict)  # producer id -> base offset
    _starts: dict[int, list[int]] = field(default_factory=dict)
    _ends: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: UnifiedLog) -> Transactions:
        """Read the transactions of a log. Raises as `walk`."""
        found = cls()
        for walked in walk(log):
            if walked.batch.producer_id >= 0:
                found.add(walked.batch, is_abort=_is_abort(walked))
        return found

    def add(self, batch: Batch, *, is_abort: bool) -> None:
        """Add a producer's next batch; `is_abort` if its record aborts a transaction."""
        who, offset = batch.producer_id, batch.base_offset
        info = self.producers.get(who)
        if info is None:
            info = self.producers[who] = AppendInfo(who)
        if not batch.is_control:
            info.append_batch(batch)
            self._holders[who] = offset
            return
        # A broker still knows the marker that an emptied batch was: its epoch must stay.
        ended = info.append_marker(
            batch.producer_epoch, -1, batch.max_timestamp, offset, is_abort=is_abort
        )
        if not info.has_data:
            self._holders[who] = offset
        if ended is None:
            self.lone_markers.add(offset)
        elif is_abort:
            self._starts.setdefault(who, []).append(ended.first_offset)
            self._ends.setdefault(who, []).append(offset)

    def last_batches(self, bounds: Bounds) -> set[int]:
        """Return the base offsets of the batches that hold the state of active producers."""
        return {
            self._holders[who]
            for who, producer in self.producers.items()
            if not is_expired(producer.state(), bounds.now_ms, bounds.producer_expiration_ms)
        }

    def is_aborted(self, batch: Batch) -> bool:
        """Return whether a batch of data belongs to an aborted transaction."""
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
