"""One partition's log as a broker knows it: its offsets, epochs and open transactions.

Follows `UnifiedLog`, `LogManager`, `LogLoader`, `OffsetCheckpointFile`, `ProducerStateManager` and
`LeaderEpochFileCache` of Kafka.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from formats import file_names
from formats.file_names import DirectoryState, FileKind
from formats.late_classes import dataclass, one_line
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.files.indexes import read_aborted_transactions
from kafkalog.files.log_dir import PartitionDir, Segment, open_partition
from kafkalog.files.offsets import LogOffset, OffsetSource, PartitionOffsets
from kafkalog.files.text_files import checkpointed, read_leader_epochs
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.io.jit import fast_path
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.framing import is_dense
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.living import listed_again
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.log.transactions import TransactionReplay
from kafkalog.model import (
    AbortedTransaction,
    Batch,
    Defect,
    EpochEntry,
    Isolation,
    LogView,
    computed_once,
)
from kafkalog.node.identity import release_around
from kafkalog.node.in_sync import in_sync
from kafkalog.node.view import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.model import ProducerState


END: Final = "end"
"""Stands for the log end offset as a high watermark."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction without an end marker.

    Attributes:
        producer_id, producer_epoch: its producer.
        first_offset: its first record.
        last_timestamp: of the producer's last batch.
        coordinator_epoch: of the coordinator that wrote the producer's last marker, -1 without one.
    """

    producer_id: int
    first_offset: int
    producer_epoch: int
    last_timestamp: int
    coordinator_epoch: int


class Given(NamedTuple):
    """Offsets that a caller says; None for those that are found out."""

    log_start_offset: int | None
    high_watermark: int | Literal["end"] | None
    log_end_offset: int | None


class UnifiedLog:
    """The log of one partition directory.

    Offsets that are not given come from the checkpoints of the log directory around the partition,
    or, without them, from the log itself.

    Args:
        partition: the directory to use as it is; a path stands for the view of the next start.
        high_watermark: offset up to which the log is replicated, exclusive, or `end` for the log
            end; None reads it from the checkpoint.
        log_start_offset: first readable offset; None derives it from the checkpoint and the first
            segment.
        log_end_offset: the log end offset, if the caller knows it.
        use_index: whether offset indexes may be used.

    Attributes:
        damage: what was passed over so far to answer questions, by path and position.
        copies: other directories of the partition that help to answer; none here.
    """

    def __init__(
        self,
        partition: PartitionDir | str,
        *,
        high_watermark: int | Literal["end"] | None = None,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
        use_index: bool = True,
    ) -> None:
        if isinstance(partition, str):
            partition = show(open_partition(partition)).partition
        self.partition = partition
        self.use_index = use_index
        self.given = Given(log_start_offset, high_watermark, log_end_offset)
        self.damage: dict[tuple[str, int | None], Defect] = {}
        self.copies: tuple[str, ...] = ()

    def listed_again(self, view: LogView = LogView.RECOVERED) -> UnifiedLog:
        """List the partition again; return its log, same options. Raises as `listed_again`."""
        return self.shown_as(show(listed_again(self.partition), view).partition)

    def shown_as(self, partition: PartitionDir, end: int | None = None) -> UnifiedLog:
        """Return the log with other files of its partition, same options; it may end earlier."""
        ends = [one for one in (self.given.log_end_offset, end) if one is not None]
        found = UnifiedLog(
            partition,
            high_watermark=self.given.high_watermark,
            log_start_offset=self.given.log_start_offset,
            log_end_offset=min(ends, default=None),
            use_index=self.use_index,
        )
        found.damage = self.damage
        return found

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The live segments by base offset."""
        return self.partition.segments

    def open_segment(self, segment: Segment) -> OpenSegment:
        """Open a segment for reading; use it as a context manager."""
        return OpenSegment(segment, use_index=self.use_index, damaged=self._passed_over)

    def _passed_over(self, defect: Defect) -> None:
        if defect.reference != "torn-tail" or not self.may_grow:  # it may be an append
            self.damage[defect.path, defect.position] = defect

    def checkpoint(self, name: str) -> int | None:
        """Return this partition's entry in a checkpoint of the log directory, or None."""
        if self.partition.state not in (DirectoryState.LIVE, DirectoryState.FUTURE):
            return None
        partition = self.partition
        with suppress(DataError):  # `verify` reports it; read what is readable
            return checkpointed(self._log_dir, name, partition.topic, partition.partition)
        return None

    def lacks(self, first: int, end: int) -> bool:
        """Return whether it does not have offsets that no segment of the partition has."""
        return first < end

    @computed_once
    def _log_dir(self) -> str:
        return os.path.dirname(file_system.absolute(self.partition.path))

    @property
    def was_closed(self) -> bool:
        """Whether the broker shut down cleanly, that is, left its mark in the log directory."""
        return file_system.exists(os.path.join(self._log_dir, file_names.CLEAN_SHUTDOWN))

    @property
    def has_closed_indexes(self) -> bool:
        """Whether the indexes of the active segment were closed: trimmed, with all entries."""
        is_closed = self.was_closed
        if is_closed and self.partition.topic == CLUSTER_METADATA:
            return release_around(self.partition).trims_metadata_indexes
        return is_closed

    @property
    def may_grow(self) -> bool:
        """Whether a running broker may append to the log."""
        return is_broker_running(self._log_dir)

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment, 0 without segments."""
        return self.segments[0].base_offset if self.segments else 0

    @computed_once
    def offsets(self) -> LogOffsets:
        """Its named offsets, each with its source."""
        return LogOffsets(self)

    @property
    def log_start_offset(self) -> int:
        """The first readable offset: given or noted in the checkpoint, at least the first
        segment's.
        """
        return self.offsets.log_start_offset.known

    @property
    def high_watermark(self) -> int:
        """The end of what is replicated, see `LogOffsets.high_watermark`."""
        return self.offsets.high_watermark.known

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed sees: the high watermark or the first open transaction."""
        return self.offsets.last_stable_offset.known

    @computed_once
    def log_end_offset(self) -> int:
        """The offset that the next record would get: given, or read from the active segment."""
        if self.given.log_end_offset is not None:
            return self.given.log_end_offset
        if self.partition.loaded is not None:
            return self.partition.loaded.log_end_offset
        if self.partition.end_offset is not None:
            return self.partition.end_offset
        if not self.segments:
            return self.log_start_offset
        with self.open_segment(self.segments[-1]) as active:
            return active.next_offset()

    def end_of_copy(self, copy: PartitionDir) -> int:
        """Return the log end offset of a copy after a start, which may be this one."""
        return self.log_end_offset if copy is self.partition else _end_of(copy)

    def fetch_bounds(self, isolation: Isolation) -> tuple[int, int]:
        """Return the first offset and the end offset that consumers of an isolation level may read.

        All readers use these bounds: from the log start offset to the high watermark for
        read_uncommitted, to the last stable offset for read_committed, and to the log end for
        `log`.
        """
        end = {
            Isolation.READ_COMMITTED: lambda: self.last_stable_offset,
            Isolation.READ_UNCOMMITTED: lambda: self.high_watermark,
            Isolation.LOG: lambda: self.log_end_offset,
        }[isolation]()
        return self.log_start_offset, end

    @computed_once
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """The entries of `leader-epoch-checkpoint`, empty if it is missing or damaged.

        In the view of a start, the entries that the log would have then. The entry of a leader that
        has appended nothing yet, at the log end, stays: a start drops it, but no other leader can
        have it.
        """
        noted: tuple[EpochEntry, ...] = ()
        with suppress(DataError):
            noted = tuple(read_leader_epochs(self.partition.place_of(file_names.LEADER_EPOCHS)))
        loaded = self.partition.loaded
        if loaded is None:
            return noted
        end = loaded.log_end_offset
        return loaded.leader_epochs + tuple(one for one in noted if one.start_offset == end)

    def producer_epochs(self) -> dict[int, int]:
        """Return the epoch of each producer by its id, up to the high watermark."""
        return self._replayed[2]

    def open_transactions(self) -> list[OpenTransaction]:
        """Return the transactions without a marker below the high watermark, by first offset.

        Starts from the newest sound producer snapshot, as a broker does, and reads the headers of
        the batches after it.
        """
        return self._replayed[0]

    @computed_once
    def _replayed(self) -> tuple[list[OpenTransaction], list[AbortedTransaction], dict[int, int]]:
        """The transactions after the snapshot, open and aborted, and the epochs of producers."""
        replay = self._replay(self.log_start_offset, self.high_watermark)
        states = replay.states()
        pending = [
            OpenTransaction(
                state.producer_id,
                state.current_txn_first_offset,
                state.producer_epoch,
                state.last_timestamp,
                state.coordinator_epoch,
            )
            for state in states
            if state.current_txn_first_offset is not None
        ]
        epochs = {state.producer_id: state.producer_epoch for state in states}
        pending.sort(key=lambda one: one.first_offset)
        return pending, replay.aborted, epochs

    def producer_states(self) -> list[ProducerState]:
        """Return the states of all producers at the log end; none has expired."""
        return self._replay(self.first_offset, self.log_end_offset, idempotent=True).states()

    def _replay(self, start: int, end: int, *, idempotent: bool = False) -> TransactionReplay:
        """Apply the batches up to an offset to the producers of the newest sound snapshot.

        Without a sound one, all batches from `start` on; without any after a clean shutdown, none:
        a broker forgets all producers then, see `rebuild_producers`.
        """
        states, start = self._producers_in_snapshot(start, end)
        replay = TransactionReplay(states, start, end, idempotent=idempotent)
        for found, opened in self.headers_from(start):
            if not replay.apply(found, opened.source):
                break
        return replay

    def _producers_in_snapshot(self, start: int, end: int) -> tuple[list[ProducerState], int]:
        """Return the producers in the newest sound snapshot up to `end`, and its offset."""
        snapshots = self.partition.live(FileKind.PRODUCER_SNAPSHOT)
        is_live = self.partition.state in (DirectoryState.LIVE, DirectoryState.FUTURE)
        if not snapshots and is_live and self.was_closed:
            return [], end
        for entry in reversed(snapshots):
            offset = entry.name.offset or 0
            if offset > end:
                continue
            with suppress(DataError):
                return read_producer_snapshot(entry.path), offset
        return [], start

    def batches_from(self, offset: int) -> Iterator[tuple[Batch, OpenSegment]]:
        """Yield the batch headers from `offset` on, each with its open segment."""
        for segment in self._segments_from(offset):
            with self.open_segment(segment) as opened:
                for found in opened.batches(opened.start_before(offset)):
                    if found.last_offset >= offset:
                        yield found, opened

    def headers_from(self, offset: int) -> Iterator[tuple[Batch | BatchColumns, OpenSegment]]:
        """Yield the batch headers from `offset` on and some before it, also as columns."""
        for segment in self._segments_from(offset):
            with self.open_segment(segment) as opened:
                for found in _headers(opened, opened.start_before(offset)):
                    yield found, opened

    def _segments_from(self, offset: int) -> list[Segment]:
        return [
            one
            for one in self.segments
            if one.next_base_offset is None or one.next_base_offset > offset
        ]

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """Return the entries of the transaction indexes of all segments, in log order."""
        found: list[AbortedTransaction] = []
        rebuilt = self.partition.aborted
        for segment in self.segments:
            end = segment.next_base_offset
            # A start may split a segment, and then there are several.
            lists = [
                listed
                for base, listed in rebuilt
                if segment.base_offset <= base and (end is None or base < end)
            ]
            if lists:
                found.extend(one for listed in lists for one in listed)
            elif segment.transaction_index is not None:
                found.extend(read_aborted_transactions(segment.transaction_index.path))
        return found

    def hidden_transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions below the last stable offset, which consumers do not get.

        Those after the newest snapshot are computed from the log, as the last stable offset is: a
        broker creates the transaction index of a segment with its first entry, maybe after the
        listing.
        """
        listed = self.aborted_transactions()
        known = {(one.producer_id, one.last_offset) for one in listed}
        return listed + [
            one for one in self._replayed[1] if (one.producer_id, one.last_offset) not in known
        ]

    def floor_segment(self, offset: int) -> int | None:
        """Return the ordinal of the last segment with a base offset <= `offset`, or None."""
        below = [i for i, segment in enumerate(self.segments) if segment.base_offset <= offset]
        return below[-1] if below else None


def _headers(opened: OpenSegment, start: int) -> Iterator[Batch | BatchColumns]:
    """Yield what `OpenSegment.batches` yields; where that is much, as columns."""
    source, end = opened.source, opened.source.size_bytes
    size = min(source.stored_bytes, end - start)
    if not (fast_path.is_worth_it(size) and is_dense(source, start, end)):
        return opened.batches(start)
    from kafkalog.log.columns.headers import sound_columns

    return sound_columns(opened, start)


@lru_cache(256)
def _end_of(copy: PartitionDir) -> int:
    return UnifiedLog(show(copy).partition).log_end_offset


class LogOffsets:
    """The named offsets of one log, computed when asked for."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log

    def __iter__(self) -> Iterator[LogOffset]:
        """Yield all of them, the log start offset first."""
        yield self.log_start_offset
        yield self.log_end_offset
        yield self.high_watermark
        yield self.last_stable_offset
        yield self.recovery_point
        yield self.cleaner_offset

    def __repr__(self) -> str:
        ends = (self.log_start_offset, self.log_end_offset, self.high_watermark)
        return one_line("LogOffsets", *(f"{one.name}: {one.value}" for one in ends))

    @computed_once
    def log_start_offset(self) -> LogOffset:
        """The first readable offset."""
        first, source = self.log.first_offset, OffsetSource.GIVEN
        noted = self.log.given.log_start_offset
        if noted is None:
            noted, source = self.log.checkpoint(file_names.LOG_STARTS), OffsetSource.CHECKPOINT
        if noted is None or (noted <= first and source == OffsetSource.CHECKPOINT):
            noted, source = first, OffsetSource.LOG
        return LogOffset("log start offset", max(first, noted), source)

    @computed_once
    def log_end_offset(self) -> LogOffset:
        """The offset that the next record would get."""
        end, source = self.log.log_end_offset, OffsetSource.LOG
        # No reader needs it, and a store would be asked once more.
        is_asked = not is_object(self.log.partition.path) and self.log.was_closed
        if is_asked and self.log.checkpoint(file_names.RECOVERY_POINTS) == end:
            source = OffsetSource.RECOVERY_POINT
        return LogOffset("log end offset", end, source)

    @computed_once
    def high_watermark(self) -> LogOffset:
        """The end of what is replicated.

        It is given, or noted in the checkpoint of a log directory that was closed cleanly, or the
        smallest end of the copies that the metadata in the run's log directories say are in sync.
        Of a broker that runs, and where nobody knows that, the checkpoint counts, which brokers
        write every 5 seconds; without an entry it is the log end.

        Cost:
            Where a checkpoint is behind the log: reads the metadata and the ends of other copies.
        """
        end, source, reason = self.log.log_end_offset, OffsetSource.GIVEN, ""
        noted = self.log.given.high_watermark
        if noted == END:
            noted = end
        if noted is None:
            noted, source = self.log.checkpoint(file_names.HIGH_WATERMARKS), OffsetSource.CHECKPOINT
            if (noted is None or noted < end) and self._is_known_to_metadata:
                found = in_sync(self.log.partition, self.log.end_of_copy)
                reason = found.reason
                if found.end is not None:
                    noted, source = found.end, OffsetSource.IN_SYNC
        if noted is None:
            noted, source = end, OffsetSource.LOG
        value = max(self.log.log_start_offset, min(noted, end))
        above = max(0, end - value)
        missing = max(0, noted - end)
        if missing and (source == OffsetSource.GIVEN or self.log.may_grow):
            missing = 0  # a broker may note it after the log was read
        return LogOffset("high watermark", value, source, above, reason if above else "", missing)

    @property
    def _is_known_to_metadata(self) -> bool:
        """Whether the metadata say more of the high watermark than the checkpoint does."""
        partition = self.log.partition
        is_hosted = partition.name is not None and partition.state == DirectoryState.LIVE
        if not is_hosted or partition.topic == CLUSTER_METADATA:
            return False
        return not (self.log.was_closed or self.log.may_grow)

    @computed_once
    def last_stable_offset(self) -> LogOffset:
        """The first open transaction or the high watermark, whichever is smaller.

        Cost:
            Reads the headers after the newest producer snapshot.
        """
        mark = self.high_watermark
        value, source = mark.known, mark.source
        for one in self.log.open_transactions()[:1]:
            value, source = one.first_offset, OffsetSource.TRANSACTION
        end = self.log.log_end_offset
        return LogOffset("last stable offset", value, source, max(0, end - value))

    @computed_once
    def recovery_point(self) -> LogOffset:
        """The end of what is known to be flushed to disk."""
        return self._checkpointed("recovery point", file_names.RECOVERY_POINTS)

    @computed_once
    def cleaner_offset(self) -> LogOffset:
        """The first offset that has not been compacted."""
        return self._checkpointed("cleaner offset", file_names.CLEANER_OFFSETS)

    def _checkpointed(self, name: str, file: str) -> LogOffset:
        return LogOffset(name, self.log.checkpoint(file), OffsetSource.CHECKPOINT)

    def of_partition(self, isolation: Isolation) -> PartitionOffsets:
        """Return those that decide what a reader gets."""
        partition = self.log.partition
        return PartitionOffsets(
            partition.topic,
            -1 if partition.partition is None else partition.partition,
            self.log.first_offset,
            self.log_start_offset,
            self.high_watermark,
            self.last_stable_offset if isolation == Isolation.READ_COMMITTED else None,
            self.log_end_offset,
        )
