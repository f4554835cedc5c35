"""Producer states and open transactions as a start rebuilds them, with the snapshot files.

Follows `ProducerStateManager`, `ProducerAppendInfo` and `ProducerStateEntry` of Kafka 4.3 with
origin REPLICATION: nothing is checked that only a leader checks.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.checksums import crc32c
from kafkalog.control_records import control_record
from kafkalog.errors import CorruptDataError
from kafkalog.model import ProducerState
from kafkalog.producer_snapshot import read_producer_snapshot
from kafkalog.records import decode_records
from kafkalog.recovery.batches import CorruptRecordError, wrap_int64
from kafkalog.recovery.directory import SNAPSHOT, segment_file
from kafkalog.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from kafkalog.model import Batch
    from kafkalog.recovery.directory import Directory
    from kafkalog.recovery.model import StartConfig
    from kafkalog.source import Source

_ENTRY = struct.Struct(">qhiqiqiq")
_HEAD = struct.Struct(">hI")
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
    """What batches of one producer change in its state."""

    def __init__(self, producer_id: int, current: ProducerState | None) -> None:
        before = current or _NONE
        # No batch is remembered yet: what stays of the current ones is decided when it is merged.
        self.state = dataclasses.replace(
            before, producer_id=producer_id, last_sequence=-1, last_offset=-1, offset_delta=0
        )
        self.has_batch = False
        self.started: list[int] = []

    def append(self, source: Source, batch: Batch) -> CompletedTransaction | None:
        """Take a batch into account; the transaction that it completes, if it does.

        Raises:
            StartRefusedError: a marker is no marker, or a batch is outside an open transaction.
        """
        if batch.is_control:
            return self._append_marker(source, batch)
        state = self.state
        self.has_batch = True
        self.state = dataclasses.replace(
            state,
            producer_epoch=batch.producer_epoch,
            last_sequence=_wrap_int32(batch.last_sequence),
            last_offset=batch.last_offset,
            offset_delta=_wrap_int32(batch.last_offset - batch.base_offset),
            last_timestamp=batch.max_timestamp,
        )
        if state.current_txn_first_offset is not None and not batch.is_transactional:
            raise StartRefusedError(
                "InvalidTxnStateException",
                f"Expected transactional write from producer {batch.producer_id} at offset "
                f"{batch.base_offset}",
            )
        if state.current_txn_first_offset is None and batch.is_transactional:
            self.started.append(batch.base_offset)
            self.state = dataclasses.replace(self.state, current_txn_first_offset=batch.base_offset)
        return None

    def _append_marker(self, source: Source, batch: Batch) -> CompletedTransaction | None:
        try:
            record = next(decode_records(source, batch), None)
            if record is None:
                return None  # the cleaner has removed the whole transaction
            marker = control_record(record)
        except CorruptDataError as error:
            raise CorruptRecordError("InvalidRecordException", error.message) from error
        if marker.coordinator_epoch is None:
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Invalid control record type for end transaction marker {marker.type_name}",
            )
        state = self.state
        if state.producer_epoch != batch.producer_epoch:
            self.has_batch = False
            state = dataclasses.replace(state, last_sequence=-1, last_offset=-1, offset_delta=0)
        self.state = dataclasses.replace(
            state,
            producer_epoch=batch.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            last_timestamp=record.timestamp,
            current_txn_first_offset=None,
        )
        if state.current_txn_first_offset is None:
            return None
        return CompletedTransaction(
            batch.producer_id,
            state.current_txn_first_offset,
            batch.base_offset,
            marker.type_name == "ABORT",
        )


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
        self.open: dict[int, int] = {}  # first offset -> producer id
        self.unreplicated: dict[int, int] = {}  # first offset -> offset of the marker
        self.end_offset = 0
        self._snapshot_offset = 0
        self.snapshots = self._directory.snapshots()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any producer."""
        return not self.states and not self.unreplicated

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not replicated."""
        return min([*self.open, *self.unreplicated], default=None)

    def prepare(self, producer_id: int) -> AppendInfo:
        """The state of a producer, to be changed by batches and given back with `update`."""
        return AppendInfo(producer_id, self.states.get(producer_id))

    def update(self, info: AppendInfo) -> None:
        """Merge what batches changed."""
        new = info.state
        current = self.states.get(new.producer_id)
        if current and not info.has_batch and current.producer_epoch == new.producer_epoch:
            new = dataclasses.replace(
                new,
                last_sequence=current.last_sequence,
                last_offset=current.last_offset,
                offset_delta=current.offset_delta,
            )
        self.states[new.producer_id] = new
        self.open.update(dict.fromkeys(info.started, new.producer_id))

    def last_stable_offset(self, completed: CompletedTransaction) -> int:
        """The last stable offset at the end of a transaction that is not yet marked completed."""
        others = (first for first, who in self.open.items() if who != completed.producer_id)
        return min(others, default=wrap_int64(completed.last_offset + 1))

    def complete(self, completed: CompletedTransaction) -> None:
        """Mark a transaction completed.

        Raises:
            StartRefusedError: it is not open, as in a log that holds the same bytes twice.
        """
        if self.open.pop(completed.first_offset, None) is None:
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
                            self.open[state.current_txn_first_offset] = state.producer_id
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
        name = segment_file(self.end_offset, SNAPSHOT)
        states = tuple(self.states.values())
        self._directory.producer_snapshots[name] = states
        self._directory.write(name, _snapshot(states), "producer states", routine=True)
        self.snapshots[self.end_offset] = name
        self._snapshot_offset = self.end_offset

    def truncate_fully(self, offset: int) -> None:
        """Forget all producers and delete all snapshots."""
        self.states.clear()
        self.open.clear()
        self.unreplicated.clear()
        for snapshot in list(self.snapshots):
            self._delete(snapshot, "the log starts anew")
        self._snapshot_offset = 0
        self.end_offset = offset

    def remove_with_segment(self, base_offset: int) -> None:
        """Delete the snapshot at the base of a segment that is deleted."""
        name = self.snapshots.pop(base_offset, None)
        if name is not None:
            self._directory.remove(name, "its segment is deleted", routine=True)

    def remove_strays(self, base_offsets: list[int]) -> None:
        """Keep the snapshots at bases of segments, and the newest one behind the last base."""
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
    """The bytes of a snapshot file; `PidSnapshotMap` version 1."""
    entries = b"".join(
        _ENTRY.pack(
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
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def _wrap_int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31
