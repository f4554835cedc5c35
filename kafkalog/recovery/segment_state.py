"""One segment during a start: its log, its indexes, and the scan that recovers it.

Follows `LogSegment` and `TransactionIndex` of Kafka 4.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.framing import scan_batches
from kafkalog.model import Batch
from kafkalog.recovery.batches import CorruptRecordError, find_offset, frames
from kafkalog.recovery.directory import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Content,
    segment_file,
)
from kafkalog.recovery.index_slots import NO_TIMESTAMP, OffsetSlots, TimeSlots
from kafkalog.recovery.model import RebuildIndexes, StartRefusedError, TruncateLog
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.recovery.batches import Frame
    from kafkalog.recovery.directory import Directory
    from kafkalog.recovery.epochs import LeaderEpochs
    from kafkalog.recovery.model import StartConfig
    from kafkalog.recovery.producers import CompletedTransaction, ProducerStates

_ABORTED = struct.Struct(">hqqqq")


class OffsetOverflowError(Exception):
    """A batch does not fit into its segment: Kafka splits the segment and begins again.

    `aborted` is what the transaction index has got until then.
    """

    def __init__(self, segment: SegmentState, aborted: bytes) -> None:
        super().__init__(segment.base_offset)
        self.segment = segment
        self.aborted = aborted


@dataclass(frozen=True, slots=True)
class Found:
    """The batch that a read from an offset on begins with; its position in the log."""

    position: int
    base_offset: int


class AbortedList:
    """The entries of a `.txnindex` that is written anew."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._last_offset: int | None = None

    def append(self, completed: CompletedTransaction, last_stable_offset: int) -> None:
        """Add an aborted transaction.

        Raises:
            StartRefusedError: it does not end after the last one.
        """
        if self._last_offset is not None and self._last_offset >= completed.last_offset:
            raise StartRefusedError(
                "IllegalArgumentException",
                "The last offset of appended transactions must increase sequentially, but "
                f"{completed.last_offset} is not greater than current last offset "
                f"{self._last_offset}",
            )
        self._last_offset = completed.last_offset
        self.data += _ABORTED.pack(
            0,
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            last_stable_offset,
        )


class SegmentState:
    """A segment whose files are in a `Directory`, or will be.

    Args:
        directory: the files.
        base_offset: which segment.
        config: index sizes and density.
        log: its log; None: what is in the directory under its name.
    """

    def __init__(
        self, directory: Directory, base_offset: int, config: StartConfig, log: Content | None
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        if log is None:
            log = directory.contents.get(self.name(LOG), Content(None, 0, 0, b""))
        if log.size_bytes > c.INT32_MAX:
            raise StartRefusedError(
                "KafkaException",
                f"The size of segment {base_offset} ({log.size_bytes}) is larger than the maximum "
                f"allowed segment size of {c.INT32_MAX}",
            )
        self.log = log
        self._offset_index: OffsetSlots | None = None
        self._time_index: TimeSlots | None = None
        self._max_timestamp: tuple[int, int] | None = None
        self.end_of_batches = 0  # where the walk of `next_offset` ended
        self.has_epochs = False  # whether its last batch has a leader epoch

    def name(self, suffix: str) -> str:
        """Name of one of its files."""
        return segment_file(self.base_offset, suffix)

    @property
    def size_bytes(self) -> int:
        """Size of the log."""
        return self.log.size_bytes

    @property
    def offset_index(self) -> OffsetSlots:
        """The offset index, as it is or as it was made."""
        if self._offset_index is None:
            self._offset_index = OffsetSlots(
                self.base_offset,
                self.directory.contents.get(self.name(OFFSET_INDEX)),
                self.config.segment_index_bytes,
            )
        return self._offset_index

    @property
    def time_index(self) -> TimeSlots:
        """The time index, as it is or as it was made."""
        if self._time_index is None:
            self._time_index = TimeSlots(
                self.base_offset,
                self.directory.contents.get(self.name(TIME_INDEX)),
                self.config.segment_index_bytes,
            )
        return self._time_index

    def use_index(self, index: OffsetSlots) -> None:
        """Search by this offset index, not by the one under the segment's name."""
        self._offset_index = index

    @property
    def aborted_count(self) -> int:
        """Entries of the transaction index."""
        content = self.directory.contents.get(self.name(TRANSACTION_INDEX))
        return content.size_bytes // _ABORTED.size if content else 0

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and its offset: from a scan, else from the time index."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last
        return self._max_timestamp

    def fits(self, offset: int) -> bool:
        """Whether the segment can hold the offset."""
        return 0 <= offset - self.base_offset <= c.INT32_MAX

    def find(self, offset: int) -> Found | None:
        """Where a read of `offset` begins, positions in the log; None behind the last batch."""
        if self.log.path is None:
            return None  # a new log has none
        start = self.log.start + max(self.offset_index.position_below(offset), 0)
        with Source(self.log.path) as source:  # a frame reads its header when it is asked for it
            frame = find_offset(frames(source, start, self.log.end), offset)
            return Found(frame.position - self.log.start, frame.base_offset) if frame else None

    def frames(self, position: int = 0, end: int | None = None) -> Iterator[tuple[Source, Frame]]:
        """The batches between two positions in the log, each with the open file."""
        if self.log.path is None:
            return  # a new log has none
        stop = self.log.end if end is None else self.log.start + end
        with Source(self.log.path) as source:
            for frame in frames(source, self.log.start + position, stop):
                yield source, frame

    def next_offset(self) -> int:
        """The offset after the last batch, found by way of the index; the base where that fails.

        Raises:
            StartRefusedError: a header on the way there is corrupt.
        """
        found = self.find(self.offset_index.last_offset)
        self.end_of_batches = 0
        if found is None:
            return self.base_offset
        end = self.base_offset
        for _, frame in self.frames(found.position):
            end = frame.next_offset
            self.end_of_batches = frame.end_position - self.log.start
            self.has_epochs = frame.magic >= 2 and frame.batch.partition_leader_epoch >= 0
        return end

    def check_transaction_index(self) -> bool:
        """Whether no entry is below the base; the only check of an index at a start.

        Raises:
            StartRefusedError: an entry has a version that is unknown.
        """
        content = self.directory.contents.get(self.name(TRANSACTION_INDEX))
        if content is None or content.path is None:
            return True
        with Source(content.path) as source:
            for position in range(0, content.size_bytes - _ABORTED.size + 1, _ABORTED.size):
                entry = source.read(position, _ABORTED.size)
                version = int.from_bytes(entry[:1], "big", signed=True)
                if version > 0:
                    raise StartRefusedError(
                        "KafkaException",
                        f"Unexpected aborted transaction version {version} in transaction index "
                        f"{self.name(TRANSACTION_INDEX)}, current version is 0",
                    )
                if _ABORTED.unpack(entry)[3] < self.base_offset:
                    return False
        return True

    def recover(self, producers: ProducerStates, epochs: LeaderEpochs, why: str) -> int:
        """Scan the log, cut it at the first thing that is wrong, write its indexes anew.

        Args:
            producers: their states at the base offset; brought up to the end.
            epochs: gets the epochs of the batches.
            why: what made the broker do it.

        Returns:
            How many bytes are cut off.

        Raises:
            OffsetOverflowError: an offset does not fit into the segment.
            StartRefusedError: anything Kafka does not catch; `InvalidOffsetError` among them.
        """
        self._offset_index = OffsetSlots(self.base_offset, None, self.config.segment_index_bytes)
        self._time_index = TimeSlots(self.base_offset, None, self.config.segment_index_bytes)
        self._max_timestamp = NO_TIMESTAMP, self.base_offset
        aborted = AbortedList()
        valid, last_entry, next_offset = 0, 0, self.base_offset
        reason = "the last batch is not complete"
        try:
            for source, frame in self.frames():
                frame.ensure_valid()
                if not self.fits(frame.last_offset):
                    raise OffsetOverflowError(self, bytes(aborted.data))
                last_entry = self.index_batch(frame, valid, last_entry)
                valid += frame.size_bytes
                next_offset = frame.next_offset
                if frame.magic >= 2:
                    _note_epoch(epochs, frame.batch)
                    _note_producer(producers, source, frame, aborted)
        except CorruptRecordError as error:
            reason = f"{error.error}: {error.message}"
        truncated = self.size_bytes - valid
        if truncated > 0:
            self._truncate(valid, next_offset, reason)
        self._time_index.maybe_append(*self.max_timestamp, at_end=True)
        self._write_indexes(bytes(aborted.data), why)
        return truncated

    def index_batch(self, frame: Frame, valid: int, last_entry: int) -> int:
        """Add the index entries that are due at a batch; the position of the last entry."""
        batch = frame.batch
        if batch.max_timestamp > self.max_timestamp[0]:
            self._max_timestamp = batch.max_timestamp, frame.last_offset
        if valid - last_entry > self.config.index_interval_bytes:
            self.offset_index.append(frame.last_offset, valid)
            self.time_index.maybe_append(*self.max_timestamp)
            return valid
        return last_entry

    def build_indexes(self, why: str) -> None:
        """Write the indexes of a segment that a split makes; it has no transaction index yet."""
        self._offset_index = OffsetSlots(self.base_offset, None, self.config.segment_index_bytes)
        self._time_index = TimeSlots(self.base_offset, None, self.config.segment_index_bytes)
        self._max_timestamp = NO_TIMESTAMP, self.base_offset
        last_entry = 0
        for _, frame in self.frames():
            last_entry = self.index_batch(frame, frame.position - self.log.start, last_entry)
        self._time_index.maybe_append(*self.max_timestamp, at_end=True)
        self._write_indexes(None, why)

    def truncate_to_base(self, reason: str) -> int:
        """Empty the segment after offsets that go back; how many bytes are cut off."""
        found = self.find(self.base_offset)
        self.offset_index.truncate_to(self.base_offset)
        self.time_index.truncate_to(self.base_offset)
        truncated = 0
        if found is not None:
            truncated = self.size_bytes - found.position
            if truncated:
                self._truncate(found.position, self.base_offset, reason)
        self._max_timestamp = None
        self._write_indexes(b"", reason)
        return truncated

    def forget_entries(self) -> None:
        """Drop indexes that were made, now that later segments are looked at."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.forget()

    def count_records(self, start: int) -> int:
        """Records in the batches that begin at or behind a position, by their headers."""
        if self.log.path is None:
            return 0
        with Source(self.log.path) as source:
            found = scan_batches(source, self.log.start + start, self.log.end)
            return sum(max(batch.count, 0) for batch in found if isinstance(batch, Batch))

    def _truncate(self, size_bytes: int, offset: int, reason: str) -> None:
        self.directory.actions.append(
            TruncateLog(
                self.base_offset,
                size_bytes,
                offset,
                self.size_bytes - size_bytes,
                self.count_records(size_bytes),
                reason,
            )
        )
        self.log = Content(self.log.path, self.log.start, self.log.start + size_bytes)
        self.directory.contents[self.name(LOG)] = self.log

    def _write_indexes(self, aborted: bytes | None, why: str) -> None:
        """The transaction index is made for its first entry, and emptied where it is there.

        With None it is left alone.
        """
        assert self._offset_index, "made by who calls"
        assert self._time_index, "made by who calls"
        new = {OFFSET_INDEX: self._offset_index.data(), TIME_INDEX: self._time_index.data()}
        is_there = self.name(TRANSACTION_INDEX) in self.directory
        if aborted or (aborted is not None and is_there):
            new[TRANSACTION_INDEX] = aborted
        changed = tuple(
            self.name(suffix)
            for suffix, data in new.items()
            if not _is_same(self.directory.contents.get(self.name(suffix)), data)
        )
        self.directory.actions.append(
            RebuildIndexes(
                self.base_offset,
                self._offset_index.entry_count,
                self._time_index.entry_count,
                len(aborted or b"") // _ABORTED.size,
                changed,
                why,
            )
        )
        for suffix, data in new.items():
            self.directory.contents[self.name(suffix)] = Content(None, 0, len(data))
            self.directory.tell(self.name(suffix), data)


def _is_same(content: Content | None, data: bytes) -> bool:
    """Whether a file holds these entries, followed by nothing but the zeros of preallocation."""
    if content is None or content.size_bytes < len(data):
        return False
    if content.path is None:
        return content.size_bytes == len(data)
    with Source(content.path) as source:
        return source.read(0, len(data)) == data and source.is_zero_from(len(data))


def _note_epoch(epochs: LeaderEpochs, batch: Batch) -> None:
    epoch = batch.partition_leader_epoch
    if epoch >= 0 and (epochs.latest is None or epoch > epochs.latest):
        epochs.assign(epoch, batch.base_offset)


def _note_producer(
    producers: ProducerStates, source: Source, frame: Frame, aborted: AbortedList
) -> None:
    if frame.batch.producer_id >= 0:
        info = producers.prepare(frame.batch.producer_id)
        completed = info.append(source, frame.batch)
        producers.update(info)
        if completed is not None:
            if completed.is_aborted:
                aborted.append(completed, producers.last_stable_offset(completed))
            producers.complete(completed)
    producers.end_offset = frame.next_offset
