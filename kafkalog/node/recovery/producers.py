"""Leader epochs, producer states and open transactions, as a start updates or rebuilds them.

Follows `LeaderEpochFileCache`, `LeaderEpochCheckpointFile` and `ProducerStateManager` of Kafka;
the rules are those of `kafkalog.log.producers`.

Snapshots list producers in the order of JDK 17's `java.util.HashMap` with `Long` keys: by bucket,
then by insertion. Java turns a bucket of more than eight keys, which consecutive producer ids never
produce, into a tree: then the order may differ.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import segment_file
from kafkalog.errors import CorruptDataError
from kafkalog.io.paths.source import Source, read_file
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.producers import (
    AppendInfo,
    OpenTransactions,
    is_expired,
    read_producer_snapshot,
    snapshot_bytes,
)
from kafkalog.model import Batch, EpochEntry, ProducerState
from kafkalog.node.recovery.directory import Directory, checkpoint_lines, offset_from_name
from kafkalog.node.recovery.model import Refusal, StartConfig, StartRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.log.producers import CompletedTransaction


class LeaderEpochs:
    """Epoch to start offset, ascending in both.

    Args:
        directory: the files.
        rebuilds: whether a file that Kafka cannot read is rebuilt from the batches of the logs.

    Attributes:
        refusal: Kafka's error for a file that was rebuilt; None if Kafka can read the file.

    Raises:
        StartRefusedError: the file is malformed and not rebuilt.
    """

    def __init__(self, directory: Directory, *, rebuilds: bool = False) -> None:
        self.refusal: Refusal | None = None
        self._directory = directory
        self._starts: dict[int, int] = {}  # ascending in both
        self._data = b""
        self._is_changed = False
        # LeaderEpochCheckpointFile creates a missing file, and a clean start does not fill it.
        content = directory.contents.get(file_names.LEADER_EPOCHS)
        if content is None or content.path is None:
            directory.write(file_names.LEADER_EPOCHS, b"", "it is missing", routine=True)
            return
        self._data = read_file(content.path)
        try:
            for _, epoch, start_offset in [
                *checkpoint_lines(content.path, file_names.LEADER_EPOCHS, 2)
            ]:
                self._assign(epoch, start_offset)
        except StartRefusedError as refused:
            if not rebuilds:
                raise
            self.refusal = refused.refusal()
            self._rebuild()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(EpochEntry(epoch, start) for epoch, start in self._starts.items())

    @property
    def latest(self) -> int | None:
        return next(reversed(self._starts), None)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that an epoch begins at an offset; `write` puts it into the file.

        Raises:
            StartRefusedError: one of them is negative.
        """
        self._is_changed |= self._assign(epoch, start_offset)

    def write(self) -> None:
        """Write the file if epochs were recorded."""
        if self._is_changed:
            self._write("epochs found in the log", routine=False)

    def _rebuild(self) -> None:
        """Rebuild the epochs from all batches, as scans of all segments would."""
        self._starts.clear()
        logs = self._directory.names(file_names.LOG, file_names.LOG + file_names.SWAP)
        for name in sorted(logs, key=offset_from_name):
            content = self._directory.contents[name]
            assert content.path is not None, "nothing is made yet"
            with Source(content.path) as source:
                for batch in scan_batches(source, check_crc=True):
                    if isinstance(batch, Batch) and batch.crc_valid:
                        self._note(batch)
        self._write("Kafka cannot read it", routine=False)

    def _note(self, batch: Batch) -> None:
        latest = -1 if self.latest is None else self.latest
        # Only rising epochs count, as in LogSegment.recover.
        if batch.leader_epoch > latest:
            self._assign(batch.leader_epoch, batch.base_offset)

    def _assign(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Received invalid partition leader epoch entry {epoch} at {start_offset}",
            )
        latest = self.latest
        # LeaderEpochFileCache.assign: the epoch is known, and began earlier.
        if latest is not None and epoch == latest and start_offset >= self._starts[latest]:
            return False
        # Entries that the new one contradicts go: epochs and start offsets rise together.
        while self._starts:
            other, start = self._starts.popitem()
            if other < epoch and start < start_offset:
                self._starts[other] = start
                break
        self._starts[epoch] = start_offset
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or above the log end offset.

        An epoch that begins at the end belongs to a leader without appends, which is usual.
        """
        removed = []
        while self._starts:
            epoch, start = self._starts.popitem()
            if start < end_offset or end_offset < 0:
                self._starts[epoch] = start
                break
            removed.append(start)
        if removed:
            is_usual = max(removed) == end_offset
            self._write("epochs at or above the log's end", routine=is_usual)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs before that of the log's start, and let that one begin there."""
        left = epochs_from_start(self.entries, start_offset)
        if self._starts and self.entries[0].start_offset <= start_offset:
            self._starts = {entry.leader_epoch: entry.start_offset for entry in left}
            self._write("epochs before the log's start", routine=True)

    def clear(self) -> None:
        self._starts.clear()
        self._write("the log starts over", routine=True)

    def _write(self, why: str, *, routine: bool) -> None:
        self._is_changed = False
        lines = ["0", str(len(self._starts))]
        lines += [f"{entry.leader_epoch} {entry.start_offset}" for entry in self.entries]
        data = "".join(f"{line}\n" for line in lines).encode()
        if data != self._data:  # Kafka rewrites it even so, without any visible effect
            self._data = data
            self._directory.write(file_names.LEADER_EPOCHS, data, why, routine=routine)


def epochs_from_start(entries: Sequence[EpochEntry], start_offset: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of a log from an offset on: the epoch it begins in, and those after it.

    Args:
        entries: ascending in both numbers.
        start_offset: the log start offset.
    """
    below = [entry for entry in entries if entry.start_offset <= start_offset]
    left = tuple(entry for entry in entries if entry.start_offset > start_offset)
    return (EpochEntry(below[-1].leader_epoch, start_offset), *left) if below else left


_CAPACITY_MIN = 16


def hash_order(keys: Iterable[int], count_max: int) -> list[int]:
    """Return the keys in the order in which Java iterates over them.

    Args:
        keys: 64-bit keys, in the order of insertion.
        count_max: the largest number of keys so far; the map never shrinks.
    """
    capacity = _CAPACITY_MIN
    while count_max > capacity * 3 // 4:
        capacity *= 2
    return sorted(keys, key=lambda key: _spread(key) & (capacity - 1))


def _spread(key: int) -> int:
    hashed = (key ^ (key >> 32 & 0xFFFFFFFF)) & 0xFFFFFFFF
    return hashed ^ (hashed >> 16)


class ProducerStates:
    """All producers of a partition, and its snapshot files.

    Args:
        directory: the directory of the snapshots.
        config: when producers expire.

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
        """Whether nothing is known about any producer."""
        return not self.states and not self.unreplicated

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open or not replicated."""
        first = self.open.first()
        return min([*([] if first is None else [first]), *self.unreplicated], default=None)

    def prepare(self, producer_id: int) -> AppendInfo:
        """Return the state of a producer, to be changed by batches and then put into `states`."""
        return AppendInfo(producer_id, self.states.get(producer_id))

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
        """Drop snapshots that are out of range, and load the newest sound one of the others."""
        for offset in list(self.snapshots):
            # As ProducerStateManager.truncateAndReload: one at the log start itself goes, too.
            if offset > end_offset or offset <= log_start_offset:
                self._delete(offset, "outside the log, from its start to its end")
        # ProducerStateManager.truncateAndReload: states that end there already stay as they are.
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
                    # One with an open transaction never expires, else its marker would find nothing
                    # to complete.
                    if not is_expired(state, self._now_ms, self._config.producer_id_expiration_ms):
                        self.states[state.producer_id] = state
                        if state.current_txn_first_offset is not None:
                            self.open.begin(state.current_txn_first_offset, state.producer_id)
                self._snapshot_offset = self.end_offset = offset
                return
            # ProducerStateManager.loadFromSnapshot: deletes it, and tries the next older one.
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
            # A producer without a data batch is loaded without one, whatever else the snapshot says
            # of it.
            else dataclasses.replace(state, last_sequence=-1, last_offset=-1, offset_delta=0)
            for state in states
        )

    def take_snapshot(self) -> None:
        """Write a snapshot at the end offset, unless the newest one has that offset."""
        # ProducerStateManager.takeSnapshot: nothing was appended since.
        if self.end_offset <= self._snapshot_offset:
            return
        name = segment_file(self.end_offset, file_names.SNAPSHOT)
        self._note_count()
        states = tuple(self.states[who] for who in hash_order(self.states, self._count_max))
        self._directory.producer_snapshots[name] = states
        self._directory.write(name, snapshot_bytes(states), "producer states", routine=True)
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
        """Remove snapshots except those at segments' base offsets and the newest after these."""
        self.snapshots = self._directory.snapshots()
        # Of those at no base, the newest may be the one of the last shutdown. It is told by its
        # number only: a bogus high one drives out the good one, and is dropped itself later.
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
