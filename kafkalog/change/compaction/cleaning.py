"""One pass of the cleaner over a log: the fate of each batch, and the new segments.

Follows `Cleaner.doClean`, `cleanInto` and `groupSegmentsBySize`, `MemoryRecords.filterTo` and
`MemoryRecordsBuilder` of Kafka.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from formats import constants as c
from formats.constants import INT32_MAX
from kafkalog.change.compaction.candidates import segments_between
from kafkalog.change.compaction.model import Action, Dropped, Tally, read_otherwise
from kafkalog.change.compaction.offset_map import OffsetMap, build_map
from kafkalog.change.compaction.transactions import TransactionState, collect_aborted
from kafkalog.check.checkpoints import EMPTY_BATCH, why_not_rewritten
from kafkalog.io.codecs import compress, crc32c
from kafkalog.log.batches.records import decode_records, hold_records, stated_sizes
from kafkalog.model import AbortedTransaction, Batch, Record, TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.change.compaction.model import Cleanable, CompactionConfig
    from kafkalog.files.log_dir import Segment
    from kafkalog.io.paths.source import Source
    from kafkalog.log.batches.segment import OpenSegment
    from kafkalog.log.producers import LastRecord
    from kafkalog.node.unified_log import UnifiedLog


def rewritten(batch: Batch, records: Sequence[Record], horizon_ms: int | None) -> bytes:
    """Build a magic 2 batch that keeps only some of the records of a batch.

    Args:
        batch: the original; if it is of magic 0 or 1, the new one begins and ends at the offsets of
            the kept records, else it keeps its range.
        records: the kept ones, in order, at least one.
        horizon_ms: the delete horizon, stored in place of the base timestamp; None for none, and
            so is a negative one.
    """
    from formats.record_batch import Record as RecordSchema

    # Since 4.0 MemoryRecords.filterTo makes magic 2 of whatever is kept of older batches; what is
    # dropped at either end of one is lost from its range.
    is_legacy = batch.magic < 2
    base_offset = records[0].offset if is_legacy else batch.base_offset
    last_offset = records[-1].offset if is_legacy else batch.last_offset
    append_time = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    # With LogAppendTime all records have the batch's time, whatever their deltas say.
    timestamps = [batch.max_timestamp if append_time else record.timestamp for record in records]
    has_horizon = horizon_ms is not None and horizon_ms >= 0  # as MemoryRecordsBuilder has it
    # KIP-534 has no field of its own: the horizon takes the place of the base timestamp, and the
    # deltas get negative.
    base_timestamp = horizon_ms if horizon_ms is not None and has_horizon else timestamps[0]
    body = b"".join(
        RecordSchema.build(
            {
                "attributes": 0,
                "timestamp_delta": timestamp - base_timestamp,
                "offset_delta": record.offset - base_offset,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": one.key, "value": one.value} for one in record.headers],
            }
        )
        for record, timestamp in zip(records, timestamps, strict=True)
    )
    attributes = batch.attributes & ~c.DELETE_HORIZON_MASK
    # Its bit of the timestamp type means nothing: magic 0 has no timestamps, and becomes
    # CreateTime.
    if batch.magic == 0:
        attributes &= c.COMPRESSION_MASK
    if has_horizon:
        attributes |= c.DELETE_HORIZON_MASK
    return _built(
        batch,
        base_offset,
        last_offset,
        attributes,
        base_timestamp,
        batch.max_timestamp if append_time else max(timestamps),
        len(records),
        compress(body, batch.compression),
    )


def emptied(batch: Batch) -> bytes:
    """Build the batch without its records; it keeps its offsets, producer and sequences."""
    # As DefaultRecordBatch.writeEmptyHeader: no codec and no horizon.
    attributes = batch.attributes & ~(c.DELETE_HORIZON_MASK | c.COMPRESSION_MASK)
    return _built(
        batch,
        batch.base_offset,
        batch.last_offset,
        attributes,
        c.NO_TIMESTAMP,
        batch.max_timestamp,
        0,
        b"",
    )


def _built(
    batch: Batch,
    base_offset: int,
    last_offset: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    body: bytes,
) -> bytes:
    from formats.record_batch import Attributes, RecordBatch

    is_legacy = batch.magic < 2
    fields = {
        "base_offset": base_offset,
        "partition_leader_epoch": batch.leader_epoch,
        "magic": 2,
        "crc": 0,
        "attributes": Attributes.parse(attributes.to_bytes(2, "big")),
        "last_offset_delta": last_offset - base_offset,
        "base_timestamp": base_timestamp,
        "max_timestamp": max_timestamp,
        # Magic 0 and 1 have no producers, and MemoryRecordsBuilder writes -1.
        "producer_id": -1 if is_legacy else batch.producer_id,
        "producer_epoch": -1 if is_legacy else batch.producer_epoch,
        "base_sequence": -1 if is_legacy else batch.base_sequence,
        "records_count": count,
        "records": body,
    }
    data: bytes = RecordBatch.build(fields)
    checksum = crc32c(data[c.ATTRIBUTES_POSITION :])
    return data[: c.CRC_POSITION] + checksum.to_bytes(4, "big") + data[c.ATTRIBUTES_POSITION :]


class CleaningPass:
    """The common part of passes over batches and over columns.

    Attributes:
        tally: counts of what was read and written so far.
        config: the configs of the topic that affect the result.
        end_offset: offset from which on nothing is cleaned.
    """

    end_offset: int

    def __init__(
        self,
        log: UnifiedLog,
        config: CompactionConfig,
        cleanable: Cleanable,
        producers: Mapping[int, LastRecord],
        progress: Callable[[int], None] | None,
        transactions: TransactionState | None = None,
    ) -> None:
        self.tally = Tally()
        self.config = config
        self._log = log
        self._producers = producers
        self._upper = cleanable.first_uncleanable_offset
        self._kept_end = self._upper if config.keeps_end_of_round else log.high_watermark
        self._progress = progress
        self._transactions = transactions or TransactionState()

    def groups(self) -> list[list[Segment]]:
        """Return the segments to clean, grouped by the new segment that they are merged into."""
        # From the head of the log, not from the first dirty offset: the map says which records of
        # the clean part are superseded.
        segments = segments_between(self._log.segments, 0, self.end_offset)
        return group_segments(segments, self.config, self._upper)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """Transaction index entries for the new segment of the group that was cleaned last."""
        return self._transactions.kept

    def _expect_aborted(self, segment: Segment, upper: int) -> None:
        """Read which of the transactions that overlap a segment were aborted."""
        lower = self._log.log_start_offset
        self._transactions.expect(
            collect_aborted(self._log.segments, segment.base_offset, lower, upper)
        )


class Pass(CleaningPass):
    """One pass over batches: builds the offset map, then cleans one group after another.

    Args:
        config: the configs of the topic that affect the result.
        now_ms: the clock at the start of the pass.
        producers: the active producers at the log end.
        progress: called with the number of bytes read since the last call, for the map and again
            for the new segments.

    Raises:
        CorruptDataError, LimitExceededError: a batch cannot be decoded.
    """

    def __init__(
        self,
        log: UnifiedLog,
        config: CompactionConfig,
        now_ms: int,
        cleanable: Cleanable,
        producers: Mapping[int, LastRecord],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(log, config, cleanable, producers, progress)
        self._now_ms = now_ms
        self._legacy_horizon_ms = self._legacy_horizon(cleanable.first_dirty_offset)
        self.map = self._build(cleanable)
        self.end_offset = self.map.latest_offset + 1

    def _legacy_horizon(self, first_dirty: int) -> int:
        # As Cleaner.doClean: messages of magic 0 and 1 have no place for a horizon, so the time of
        # the file tells how long a tombstone has been there.
        clean = [
            s.log.modified_timestamp for s in self._log.segments if s.base_offset < first_dirty
        ]
        return clean[-1] - self.config.delete_retention_ms if clean else 0

    def _build(self, cleanable: Cleanable) -> OffsetMap:
        first, upper = cleanable.first_dirty_offset, self._upper
        dirty = segments_between(self._log.segments, first, upper)
        transactions = TransactionState()
        if dirty:
            start = dirty[0].base_offset
            lower = self._log.log_start_offset
            transactions.expect(collect_aborted(self._log.segments, start, lower, upper))
        return build_map(
            self._log, dirty, cleanable, transactions, self.config.keys_max, self._progress
        )

    def clean(self, group: Sequence[Segment]) -> Iterator[bytes]:
        """Yield the batches of the new segment of a group; the groups must be cleaned in order."""
        # The state goes on through all groups, but each new segment gets a transaction index of its
        # own.
        self._transactions.kept = []
        for segment in group:
            upper = self._next_base(segment)
            # The index goes along, not the log: a marker may lie in a later segment than its data.
            self._expect_aborted(segment, upper)
            keep_legacy = segment.log.modified_timestamp > self._legacy_horizon_ms
            with self._log.open_segment(segment) as opened:
                for batch in opened.scan_from(segment.base_offset):
                    # It was judged before: a defect now is a change behind our back.
                    if not isinstance(batch, Batch):
                        raise read_otherwise(batch.path, batch)
                    data = self._clean(opened, batch, keep_legacy)
                    if self._progress is not None:
                        self._progress(batch.size_bytes)
                    if data:
                        yield data

    @property
    def keys(self) -> int:
        return len(self.map)

    def _next_base(self, segment: Segment) -> int:
        if segment.next_base_offset is not None:
            return segment.next_base_offset
        with self._log.open_segment(segment) as opened:
            return opened.next_offset()

    def _clean(self, opened: OpenSegment, batch: Batch, keep_legacy: bool) -> bytes:
        """Return the bytes that replace a batch in the new segment, empty if it is dropped."""
        source = opened.source
        is_discardable = self._transactions.is_discardable(source, batch)
        drop_all = is_discardable
        horizon = batch.delete_horizon_timestamp
        # A marker whose data is gone stays until its horizon: a consumer that lags must learn how
        # the transaction ended (KIP-534).
        if batch.is_control:
            drop_all = is_discardable and horizon is not None and horizon <= self._now_ms
        # As RETAIN_EMPTY in Cleaner.cleanInto: the sequence of a live producer guards against
        # duplicates, and the last offset (KAFKA-17076) tells where the log ended.
        stays_empty = self._is_last_of_producer(batch) or batch.next_offset == self._kept_end
        records = 0
        kept: list[Record] = []
        dropped = Counter[Dropped]()
        if drop_all and not stays_empty:
            records = sum(1 for _ in decode_records(source, batch))
            dropped[Dropped.MARKER if batch.is_control else Dropped.ABORTED] = records
        else:
            if batch.compression and self.config.measures_records:
                self.tally.note_refusal(self._why_too_large(source, batch))
            held = hold_records(source, batch)
            records = len(held)
            for record in held:
                why = self._why_dropped(batch, record, drop_all=drop_all, keep_legacy=keep_legacy)
                if why is None:
                    kept.append(record)
                else:
                    dropped[why] += 1
        has_tombstone = any(record.value is None for record in kept)
        sets_horizon = horizon is None and (has_tombstone or (is_discardable and batch.is_control))
        # An empty batch has no horizon: the next pass that sees it drops it or not by other rules.
        sets_horizon = sets_horizon and bool(kept)
        if sets_horizon:
            horizon = self._now_ms + self.config.delete_retention_ms
        action = Action.REWRITTEN
        if not kept:
            action = Action.EMPTIED if stays_empty else Action.DROPPED
        # Only if nothing changes, its bytes stay, and with them the producer's compression.
        elif len(kept) == records and batch.magic >= 2 and not sets_horizon:
            action = Action.COPIED
        data = self._replacing(source, batch, action, kept, horizon)
        self.tally.read_records += records
        self.tally.kept_records += len(kept)
        self.tally.dropped.update(dropped)
        self.tally.read_bytes += batch.size_bytes
        self.tally.bytes_written += len(data)
        return data

    def _replacing(
        self,
        source: Source,
        batch: Batch,
        action: Action,
        kept: Sequence[Record],
        horizon: int | None,
    ) -> bytes:
        """Return what an action makes of a batch, and note why a broker's cleaner would fail."""
        if action == Action.COPIED:
            return source.read(batch.position, batch.size_bytes)
        if action == Action.DROPPED:
            return b""
        if action == Action.EMPTIED:
            if batch.magic < 2:
                # Kafka's cleaner throws an IllegalStateException here, and marks the partition
                # uncleanable; an empty batch of magic 2 is what it meant to write.
                self.tally.note_refusal(f"{EMPTY_BATCH} (offset {batch.last_offset})")
            return emptied(batch)
        self.tally.note_refusal(
            why_not_rewritten(batch, ((record.offset, record.timestamp) for record in kept))
        )
        return rewritten(batch, kept, horizon)

    def _why_too_large(self, source: Source, batch: Batch) -> str | None:
        limit = self.config.max_decompressed_message_bytes
        size = next((one for one in stated_sizes(source, batch) if one > limit), None)
        if size is None:
            return None
        words = f"Invalid record size: {size} exceeds the configured maximum record size of {limit}"
        return f"{words} (batch at offset {batch.base_offset})"

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self._producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        return last is not None and last.is_held_by(batch)

    def _why_dropped(
        self, batch: Batch, record: Record, *, drop_all: bool, keep_legacy: bool
    ) -> Dropped | None:
        if drop_all:
            return Dropped.MARKER if batch.is_control else Dropped.ABORTED
        # Beyond the map nothing is known about later records, so even records without a key stay.
        if batch.is_control or record.offset > self.map.latest_offset:
            return None
        if record.key is None:
            return Dropped.NO_KEY
        # A key that is not in the map gives -1, and the record stays.
        if record.offset < self.map.get(record.key):
            return Dropped.SUPERSEDED
        if record.value is not None:
            return None
        horizon = batch.delete_horizon_timestamp
        # Without a horizon no pass has seen the tombstone yet, so it stays and gets one.
        stays = horizon is None or self._now_ms < horizon if batch.magic >= 2 else keep_legacy
        return None if stays else Dropped.TOMBSTONE


def group_segments(
    segments: Sequence[Segment], config: CompactionConfig, upper: int
) -> list[list[Segment]]:
    """Group consecutive segments, greedily, so that each group fits into one segment.

    Args:
        segments: in order.
        config: gives `segment_bytes` and `segment_index_bytes`, the limits.
        upper: the offset after the last of them.
    """
    groups: list[list[Segment]] = []
    used = (0, 0, 0)
    # As Cleaner.groupSegmentsBySize: the bound is the next base offset, since an index that is
    # empty, or was just loaded, does not know the last offset.
    following = [*(s.base_offset for s in segments), upper][1:]
    for segment, next_base in zip(segments, following, strict=True):
        sizes = _sizes(segment)
        total = (used[0] + sizes[0], used[1] + sizes[1], used[2] + sizes[2])
        limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
        # The sizes are those before the cleaning, and the limits inclusive, as in Kafka.
        fits = bool(groups) and all(a <= b for a, b in zip(total, limits, strict=True))
        # Relative offsets in indexes are 31 bits; an empty segment adds no offset.
        if fits and sizes[0]:
            fits = next_base - 1 - groups[-1][0].base_offset <= INT32_MAX
        if fits:
            groups[-1].append(segment)
            used = total
        else:
            groups.append([segment])
            used = sizes
    return groups


def _sizes(segment: Segment) -> tuple[int, int, int]:
    indexes = (segment.offset_index, segment.time_index)
    sizes = [entry.size_bytes if entry else 0 for entry in indexes]
    return segment.log.size_bytes, sizes[0], sizes[1]
