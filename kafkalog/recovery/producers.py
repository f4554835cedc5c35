"""Producer states and open transactions as a start rebuilds them, with the snapshot files.

Follows `java.util.HashMap` of JDK 17 with keys of `Long`: bucket by bucket, in each by time of
insertion. Where a bucket has more than eight keys, which consecutive producer ids never give, Java
makes a tree of it: then the order may be another.

Follows `ProducerStateManager`, `ProducerAppendInfo` and `ProducerStateEntry` of Kafka 4.3 with
origin REPLICATION: nothing is checked that only a leader checks.
"""

from __future__ import annotations

import dataclasses
import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import file_names
from formats.layouts import PRODUCER_SNAPSHOT_ENTRY, PRODUCER_SNAPSHOT_HEADER
from kafkalog.checksums import crc32c
from kafkalog.errors import CorruptDataError
from kafkalog.model import ProducerState, increment_sequence
from kafkalog.producer_snapshot import read_producer_snapshot
from kafkalog.recovery.directory import segment_file
from kafkalog.recovery.model import StartRefusedError
from kafkalog.recovery.walk import wrap_int64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.recovery.directory import Directory
    from kafkalog.recovery.model import StartConfig


_CAPACITY_MIN = 16


def hash_order(keys: Iterable[int], count_max: int) -> list[int]:
    """Return the keys in the order in which Java goes through them.

    Args:
        keys: of 64 bits, in the order of insertion.
        count_max: how many the map has held at most; it never shrinks.
    """
    capacity = _CAPACITY_MIN
    while count_max > capacity * 3 // 4:
        capacity *= 2
    return sorted(keys, key=lambda key: _spread(key) & (capacity - 1))


def _spread(key: int) -> int:
    hashed = (key ^ (key >> 32 & 0xFFFFFFFF)) & 0xFFFFFFFF
    return hashed ^ (hashed >> 16)


class OpenTransactions:
    """First offset to producer id; the smallest first offset is at hand, however many there are."""

    def __init__(self) -> None:
        self._producers: dict[int, int] = {}
        self._firsts: list[int] = []  # a heap; holds offsets that are gone, too

    def begin(self, first_offset: int, producer_id: int) -> None:
        """A transaction begins; it takes the place of one with that first offset."""
        if first_offset not in self._producers:
            heapq.heappush(self._firsts, first_offset)
        self._producers[first_offset] = producer_id

    def end(self, first_offset: int) -> bool:
        """A transaction ends; whether it was open."""
        return self._producers.pop(first_offset, None) is not None

    def clear(self) -> None:
        """Forget all."""
        self._producers.clear()
        self._firsts.clear()

    def first(self, without: int = -1) -> int | None:
        """Return the smallest first offset, except those of one producer; None if none is left."""
        passed = []
        while self._firsts:
            first_offset = self._firsts[0]
            producer_id = self._producers.get(first_offset)
            if producer_id is not None and producer_id != without:
                break
            heapq.heappop(self._firsts)
            if producer_id is not None:
                passed.append(first_offset)
        found = self._firsts[0] if self._firsts else None
        for first_offset in passed:
            heapq.heappush(self._firsts, first_offset)
        return found


_VERSION = 1
_NONE = ProducerState(-1, -1, -1, -1, -1, 0, -1, None)


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction with its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class AppendInfo:
    """What batches of one producer change in its state.

    Attributes:
        current: the state before them, None without one.
        has_batch: whether the last batch that the state remembers is one of these.
    """

    __slots__ = (
        "_coordinator_epoch",
        "_epoch",
        "_last",
        "_last_timestamp",
        "_producer_id",
        "_txn_first_offset",
        "current",
        "has_batch",
    )

    def __init__(self, producer_id: int, current: ProducerState | None) -> None:
        before = current or _NONE
        self.current = current
        self.has_batch = False
        self._producer_id = producer_id
        self._epoch = before.producer_epoch
        self._last = before.last_sequence, before.last_offset, before.offset_delta
        self._last_timestamp = before.last_timestamp
        self._coordinator_epoch = before.coordinator_epoch
        self._txn_first_offset = before.current_txn_first_offset

    def state(self) -> ProducerState:
        """Return the state after all of them, where each was merged before the next came."""
        return ProducerState(
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            last_sequence=self._last[0],
            last_offset=self._last[1],
            offset_delta=self._last[2],
            last_timestamp=self._last_timestamp,
            coordinator_epoch=self._coordinator_epoch,
            current_txn_first_offset=self._txn_first_offset,
        )

    def merged_state(self) -> ProducerState:
        """Return the state after all of them, where they are merged together.

        The batches that the current state remembers stay where the epoch is the same in the end.
        """
        current, state = self.current, self.state()
        if current is None or self.has_batch or current.producer_epoch != self._epoch:
            return state
        return dataclasses.replace(
            state,
            last_sequence=current.last_sequence,
            last_offset=current.last_offset,
            offset_delta=current.offset_delta,
        )

    def append_data(
        self,
        epoch: int,
        sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        *,
        is_transactional: bool,
    ) -> bool:
        """Take a batch of data into account; whether a transaction begins with it.

        Args:
            epoch: of the producer.
            sequence: of its first record.
            base_offset: of the batch.
            last_offset: of the batch.
            timestamp: the largest.
            is_transactional: whether it is part of a transaction.

        Raises:
            StartRefusedError: it is not, and a transaction is open.
        """
        delta = wrap_int64(last_offset - base_offset)
        last_sequence = -1 if sequence == -1 else increment_sequence(sequence, delta)
        self.has_batch = True
        self._epoch = epoch
        self._last = _wrap_int32(last_sequence), last_offset, _wrap_int32(delta)
        self._last_timestamp = timestamp
        if is_transactional:
            if self._txn_first_offset is not None:
                return False
            self._txn_first_offset = base_offset
            return True
        if self._txn_first_offset is not None:
            raise StartRefusedError(
                "InvalidTxnStateException",
                f"Expected transactional write from producer {self._producer_id} at offset "
                f"{base_offset}",
            )
        return False

    def append_marker(
        self, epoch: int, coordinator_epoch: int, timestamp: int, offset: int, *, is_abort: bool
    ) -> CompletedTransaction | None:
        """Take a transaction marker into account; the transaction that it completes, if any."""
        if self._epoch != epoch:
            self.has_batch = False
            self._last = -1, -1, 0
        self._epoch = epoch
        self._coordinator_epoch = coordinator_epoch
        self._last_timestamp = timestamp
        first_offset, self._txn_first_offset = self._txn_first_offset, None
        if first_offset is None:
            return None
        return CompletedTransaction(self._producer_id, first_offset, offset, is_abort)


class ProducerStates:
    """All producers of a partition, and its snapshot files.

    Args:
        directory: where the snapshots are.
        config: when producers expire.
        now_ms: the clock.

    Raises:
        StartRefusedError: a file with the suffix of a snapshot has no number for a name.
    """

    def __init__(self, directory: Directory, config: StartConfig, now_ms: int) -> None:
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self.states: dict[int, ProducerState] = {}
        self.open = OpenTransactions()
        self.unreplicated: dict[int, int] = {}  # first offset -> offset of the marker
        self.end_offset = 0
        self._count_max = 0  # of states at a time
        self._snapshot_offset = 0
        self.snapshots = self._directory.snapshots()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any producer."""
        return not self.states and not self.unreplicated

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not replicated."""
        first = self.open.first()
        return min([*([] if first is None else [first]), *self.unreplicated], default=None)

    def prepare(self, producer_id: int) -> AppendInfo:
        """The state of a producer, to be changed by batches; the new one goes into `states`."""
        return AppendInfo(producer_id, self.states.get(producer_id))

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset at the end of a transaction that is not yet marked completed."""
        first = self.open.first(without=completed.producer_id)
        return wrap_int64(completed.last_offset + 1) if first is None else first

    def complete(self, completed: CompletedTransaction) -> None:
        """Mark a transaction completed.

        Raises:
            StartRefusedError: it is not open, as in a log that holds the same bytes twice.
        """
        if not self.open.end(completed.first_offset):
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Attempted to complete transaction of producer {completed.producer_id} from "
                f"{completed.first_offset} to {completed.last_offset} which was not started",
            )
        self.unreplicated[completed.first_offset] = completed.last_offset

    def truncate_and_reload(self, log_start_offset: int, end_offset: int) -> None:
        """Drop snapshots out of range and load the newest sound one of the others."""
        for offset in list(self.snapshots):
            if offset > end_offset or offset <= log_start_offset:
                self._delete(offset, "outside the log, from its start to its end")
        if end_offset != self.end_offset:
            self._note_count()
            self.states.clear()
            self.open.clear()
            self.unreplicated.clear()
            self._load(log_start_offset)
        else:
            self.drop_replicated(log_start_offset)
            self.end_offset = max(self.end_offset, log_start_offset)
            self._snapshot_offset = max(self.snapshots, default=log_start_offset)

    def drop_replicated(self, offset: int) -> None:
        """Forget completed transactions whose markers are below the offset."""
        self.unreplicated = {
            first: last for first, last in self.unreplicated.items() if last >= offset
        }

    def _load(self, log_start_offset: int) -> None:
        while self.snapshots:
            offset = max(self.snapshots)
            states = self._read(self.snapshots[offset])
            if states is not None:
                for state in states:
                    if not self._is_expired(state):
                        self.states[state.producer_id] = state
                        if state.current_txn_first_offset is not None:
                            self.open.begin(state.current_txn_first_offset, state.producer_id)
                self._snapshot_offset = self.end_offset = offset
                return
            self._delete(offset, "a corrupt producer snapshot", routine=False)
        self._snapshot_offset = self.end_offset = log_start_offset

    def _read(self, name: str) -> tuple[ProducerState, ...] | None:
        kept = self._directory.producer_snapshots.get(name)
        if kept is not None:
            return kept
        path = self._directory.contents[name].path
        assert path is not None, "snapshots are on disk or made here"
        try:
            states = read_producer_snapshot(path)
        except CorruptDataError:
            return None
        return tuple(
            state
            if state.last_offset >= 0
            else dataclasses.replace(state, last_sequence=-1, last_offset=-1, offset_delta=0)
            for state in states
        )

    def _is_expired(self, state: ProducerState) -> bool:
        idle = self._now_ms - state.last_timestamp
        return (
            state.current_txn_first_offset is None
            and idle >= self._config.producer_id_expiration_ms
        )

    def take_snapshot(self) -> None:
        """Write a snapshot at the end offset, unless the newest one is of there."""
        if self.end_offset <= self._snapshot_offset:
            return
        name = segment_file(self.end_offset, file_names.SNAPSHOT)
        self._note_count()
        states = tuple(self.states[who] for who in hash_order(self.states, self._count_max))
        self._directory.producer_snapshots[name] = states
        self._directory.write(name, _snapshot(states), "producer states", routine=True)
        self.snapshots[self.end_offset] = name
        self._snapshot_offset = self.end_offset

    def truncate_fully(self, offset: int) -> None:
        """Forget all producers and delete all snapshots."""
        self._note_count()
        self.states.clear()
        self.open.clear()
        self.unreplicated.clear()
        for snapshot in list(self.snapshots):
            self._delete(snapshot, "the log starts over")
        self._snapshot_offset = 0
        self.end_offset = offset

    def _note_count(self) -> None:
        self._count_max = max(self._count_max, len(self.states))

    def remove_with_segment(self, base_offset: int) -> None:
        """Delete the snapshot at the base of a segment that is deleted."""
        name = self.snapshots.pop(base_offset, None)
        if name is not None:
            self._directory.remove(name, "its segment is deleted", routine=True)

    def remove_strays(self, base_offsets: list[int]) -> None:
        """Keep the snapshots at base offsets of segments, and the newest one after these."""
        self.snapshots = self._directory.snapshots()
        stray: int | None = None
        for offset in sorted(self.snapshots):
            if offset not in base_offsets:
                if stray is not None:
                    self._delete(stray, "of no segment, and not the newest")
                stray = offset
        if stray is not None and base_offsets and stray < max(base_offsets):
            self._delete(stray, "of no segment")

    def _delete(self, offset: int, why: str, *, routine: bool = True) -> None:
        self._directory.remove(self.snapshots.pop(offset), why, routine=routine)


def _snapshot(states: tuple[ProducerState, ...]) -> bytes:
    """Return the bytes of a snapshot file; `PidSnapshotMap` version 1."""
    entries = b"".join(
        PRODUCER_SNAPSHOT_ENTRY.struct.pack(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_offset,
            state.offset_delta,
            state.last_timestamp,
            state.coordinator_epoch,
            -1 if state.current_txn_first_offset is None else state.current_txn_first_offset,
        )
        for state in states
    )
    body = len(states).to_bytes(4, "big") + entries
    return PRODUCER_SNAPSHOT_HEADER.struct.pack(_VERSION, crc32c(body)) + body


def _wrap_int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31
