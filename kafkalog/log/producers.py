"""Producers of a partition: how batches change their states, and `.snapshot` files of the states.

Follows `ProducerStateManager`, `ProducerAppendInfo` and `ProducerStateEntry` of Kafka with
origin REPLICATION, that is, without the checks of a leader. `check.producer_states` does the same
on columns.
"""

from __future__ import annotations

import dataclasses
import heapq
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from formats.constants import PRODUCER_SNAPSHOT_ENTRY, PRODUCER_SNAPSHOT_HEADER
from formats.late_classes import dataclass
from kafkalog.errors import CorruptDataError
from kafkalog.io.codecs import crc32c
from kafkalog.io.paths.reading_errors import parse
from kafkalog.io.paths.source import read_file
from kafkalog.model import Batch, ProducerState, last_sequence, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Sequence


EXPIRATION_MS: Final = 86_400_000
"""Default of `producer.id.expiration.ms`."""

_NO_DATA: Final = -1, -1, 0  # last sequence, last offset, offset delta
_NONE: Final = ProducerState(-1, -1, -1, *_NO_DATA, -1, None)


def is_expired(state: ProducerState, now_ms: int, expiration_ms: int) -> bool:
    """Return whether a broker forgets the producer, which it never does during a transaction."""
    idle_ms = now_ms - state.last_timestamp
    return state.current_txn_first_offset is None and idle_ms >= expiration_ms


@dataclass(frozen=True, slots=True)
class LastRecord:
    """What the cleaner keeps of an active producer: `lastRecordsOfActiveProducers`.

    Attributes:
        last_data_offset: offset of its last data batch; None if its epoch began with a marker.
        producer_epoch: the epoch.
    """

    last_data_offset: int | None
    producer_epoch: int

    @classmethod
    def of(cls, state: ProducerState) -> LastRecord:
        return cls(state.last_offset if state.last_offset >= 0 else None, state.producer_epoch)

    def is_held_by(self, batch: Batch) -> bool:
        """Return whether a batch of the producer holds the last sequence, or else the epoch."""
        if self.last_data_offset is not None:
            return batch.last_offset == self.last_data_offset
        return batch.is_control and batch.producer_epoch == self.producer_epoch


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
        current: the state before them, None if none.
        has_batch: whether one of these batches is the last that the state remembers.
        txn_first_offset: first offset of its open transaction, None if none.
    """

    __slots__ = (
        "_coordinator_epoch",
        "_epoch",
        "_last",
        "_last_timestamp",
        "_producer_id",
        "current",
        "has_batch",
        "txn_first_offset",
    )

    def __init__(self, producer_id: int, current: ProducerState | None = None) -> None:
        before = current or _NONE
        self.current = current
        self.has_batch = False
        self.txn_first_offset = before.current_txn_first_offset
        self._producer_id = producer_id
        self._epoch = before.producer_epoch
        self._last = before.last_sequence, before.last_offset, before.offset_delta
        self._last_timestamp = before.last_timestamp
        self._coordinator_epoch = before.coordinator_epoch

    def state(self) -> ProducerState:
        """Return the state after all of them, if each was merged before the next came."""
        return ProducerState(
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            last_sequence=self._last[0],
            last_offset=self._last[1],
            offset_delta=self._last[2],
            last_timestamp=self._last_timestamp,
            coordinator_epoch=self._coordinator_epoch,
            current_txn_first_offset=self.txn_first_offset,
        )

    @property
    def has_data(self) -> bool:
        """Whether the state remembers a data batch: at the start of an epoch it does not."""
        return self._last != _NO_DATA

    def merged_state(self) -> ProducerState:
        """Return the state after all of them, if they are merged together.

        The batches that the current state remembers stay if the epoch is the same in the end.
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

    def append_batch(self, batch: Batch) -> bool:
        """Apply a data batch: `append_data` of its header."""
        return self.append_data(
            batch.producer_epoch,
            batch.base_sequence,
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            is_transactional=batch.is_transactional,
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
        """Apply a data batch; return whether a transaction begins with it.

        Kafka refuses a batch outside the open transaction; here the transaction stays open.

        Args:
            epoch: epoch of the producer.
            sequence: sequence of the first record.
            base_offset: base offset of the batch.
            last_offset: last offset of the batch.
            timestamp: largest timestamp of the batch.
            is_transactional: whether it is part of a transaction.
        """
        delta = wrap_int64(last_offset - base_offset)
        self.has_batch = True
        self._epoch = epoch
        self._last = _wrap_int32(last_sequence(sequence, delta)), last_offset, _wrap_int32(delta)
        self._last_timestamp = timestamp
        begins = is_transactional and self.txn_first_offset is None
        if begins:
            self.txn_first_offset = base_offset
        return begins

    def append_marker(
        self, epoch: int, coordinator_epoch: int, timestamp: int, offset: int, *, is_abort: bool
    ) -> CompletedTransaction | None:
        """Apply a transaction marker; return the transaction that it completes, if any.

        A control batch without records, as the cleaner leaves it, is not a marker.
        """
        # With transactions of version 2 a marker's epoch is that of its data + 1: remembered
        # batches go.
        if self._epoch != epoch:
            self.has_batch = False
            self._last = _NO_DATA
        self._epoch = epoch
        self._coordinator_epoch = coordinator_epoch
        self._last_timestamp = timestamp
        first_offset, self.txn_first_offset = self.txn_first_offset, None
        # A repeated marker, or one whose data is gone: only the state changes.
        if first_offset is None:
            return None
        return CompletedTransaction(self._producer_id, first_offset, offset, is_abort)


def _wrap_int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


class OpenTransactions:
    """First offset to producer id, with fast access to the smallest first offset."""

    def __init__(self) -> None:
        self._producers: dict[int, int] = {}
        self._firsts: list[int] = []  # a heap, which may still hold removed offsets

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Begin a transaction; it replaces one with the same first offset."""
        if first_offset not in self._producers:
            heapq.heappush(self._firsts, first_offset)
        self._producers[first_offset] = producer_id

    def end(self, first_offset: int) -> bool:
        """End a transaction; return whether it was open."""
        return self._producers.pop(first_offset, None) is not None

    def clear(self) -> None:
        self._producers.clear()
        self._firsts.clear()

    def first(self, without: int = -1) -> int | None:
        """Return the smallest first offset, except those of one producer; None if none is left."""
        passed = []
        # Offsets that were removed from the dict are dropped only when they come to the top.
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

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset at the end of a transaction that is still among these."""
        first = self.first(without=completed.producer_id)
        return wrap_int64(completed.last_offset + 1) if first is None else first


_VERSION: Final = 1
_FIRST_FIELD: Final = PRODUCER_SNAPSHOT_HEADER.part("version")
_CRC_START: Final = PRODUCER_SNAPSHOT_HEADER.size
_SIZE_MAX: Final = 1 << 28  # more than five million producers
# Most snapshots of a log directory are empty or alike: 256 bytes are five producers.
_SMALL_SIZE: Final = 1 << 8


def read_producer_snapshot(path: str) -> list[ProducerState]:
    """Return the producers of a `.snapshot` file in file order.

    Raises:
        CorruptDataError: version, checksum or layout is wrong; a broker discards such a file.
        NotFoundError, UnreadableError: the file cannot be read.
    """
    data = _data(path)
    if len(data) <= _SMALL_SIZE:
        with suppress(CorruptDataError):  # which does not name the file
            return list(_small_snapshot(data))
    return _states(data, path)


@lru_cache(1 << 6)
def _small_snapshot(data: bytes) -> tuple[ProducerState, ...]:
    """Return the producers in a file that many partitions have alike."""
    return tuple(_states(data, ""))


def _states(data: bytes, path: str) -> list[ProducerState]:
    from formats.side_files import ProducerSnapshot

    snapshot = parse(ProducerSnapshot, data, path, reference="producer-snapshot-corrupt")
    # Behind the checksum itself: ProducerStateManager leaves out version and checksum.
    computed = crc32c(memoryview(data)[_CRC_START:])
    if computed != snapshot.crc:
        raise _corrupt(
            path,
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {snapshot.crc}. "
            f"Computed crc: {computed}",
        )
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_sequence=entry.last_sequence,
            last_offset=entry.last_offset,
            offset_delta=entry.offset_delta,
            last_timestamp=entry.timestamp,
            current_txn_first_offset=(
                entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
            ),
        )
        for entry in snapshot.entries
    ]


def _data(path: str) -> bytes:
    """Return the bytes of a snapshot of a known version."""
    data = read_file(path, size_max=_SIZE_MAX)
    if len(data) >= _FIRST_FIELD.size:
        [version] = _FIRST_FIELD.unpack_from(data)
        if version != _VERSION:
            raise _corrupt(path, f"Snapshot contained an unknown file version {version}")
    return data


def _corrupt(path: str, message: str) -> CorruptDataError:
    return CorruptDataError(
        message,
        reference="producer-snapshot-corrupt",
        path=path,
        hint="When it starts, a broker discards the file and uses an older one.",
    )


def snapshot_bytes(states: Sequence[ProducerState]) -> bytes:
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
