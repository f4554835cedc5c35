"""Invariants of `leader-epoch-checkpoint` against the batches of its partition.

Follows `LeaderEpochFileCache` and `UnifiedLog` of Kafka: an epoch is written to the file, and
synced, before its first batch is appended, so the file never lacks an epoch of a batch. It may have
epochs without batches: the leader appended nothing, or compaction removed its batches.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from formats import file_names
from formats.constants import INT64_MAX, NO_EPOCH
from formats.file_names import DirectoryState
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.check.batches import CheckedLog, CheckedPartition, PartitionCheck, partition_check
from kafkalog.errors import DataError
from kafkalog.files.text_files import read_leader_epochs
from kafkalog.io.paths import file_system
from kafkalog.io.wording import counted
from kafkalog.log.columns import header_table as h
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.check.batches import Found
    from kafkalog.log.columns.headers import BatchColumns, PlainRun
    from kafkalog.model import Defect, EpochEntry

_RUNS_MAX: Final = 10_000


@dataclass
class _Run:
    """Consecutive batches with the same epoch.

    Attributes:
        first: base offset of the first batch.
        last: base offset of the last batch.
        path: the log with the first batch.
        position: position of the first batch.
    """

    epoch: int
    first: int
    last: int
    count: int
    path: str
    position: int


class _Last(NamedTuple):
    """The last batch of a plain run."""

    epoch: int
    base_offset: int
    position: int


@partition_check
class EpochsMatchFile(PartitionCheck):
    """The epoch of every batch is the one that leader-epoch-checkpoint has at its base offset.

    Batches of magic 0 and 1, and those with epoch -1, have none. A batch that is out of order or
    has a wrong checksum is not evidence for anything else.

    Cost:
        Memory for the epochs of the file, and for up to 10,000 changes of epoch among the batches;
        later changes are not compared.
    """

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        self._runs: list[_Run] = []
        self._last_offset = self._highest = -1
        self._cut_batches: dict[int, int] = {}
        self._held: tuple[NDArray[np.int64], NDArray[np.bool_]] | None = None
        self._plain: _Last | None = None  # what is held back, if it is of a plain run

    @classmethod
    def applies(cls, partition: CheckedPartition) -> bool:
        """Return whether a broker would load the partition, that is, does not delete it."""
        return partition.directory.state != DirectoryState.DELETE

    @property
    def _path(self) -> str:
        return self.partition.directory.place_of(file_names.LEADER_EPOCHS)

    @cached_property
    def _entries(self) -> Sequence[EpochEntry] | None:
        """The file's entries; None if malformed, which another check reports."""
        if not file_system.exists(self._path):
            return ()
        try:
            return read_leader_epochs(self._path)
        except DataError:
            return None

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.array([entry.start_offset for entry in self._entries or ()], np.int64)

    @cached_property
    def _is_ascending(self) -> bool:
        entries = self._entries or ()
        return all(min(one.leader_epoch, one.start_offset) >= 0 for one in entries) and all(
            one.leader_epoch < other.leader_epoch and one.start_offset < other.start_offset
            for one, other in pairwise(entries)
        )

    def begin(self, log: CheckedLog) -> None:
        """Start a segment: no batch before it reaches its base offset."""
        self._release(INT64_MAX if log.base_offset is None else log.base_offset)
        self._last_offset = self._highest = -1
        super().begin(log)

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if columns.plain is not None and self._goes_on(columns, columns.plain):
            return iter(())
        self._plain = None
        headers, valid = columns.headers, columns.crc_valid
        if self._held is not None:
            headers = np.concatenate((self._held[0], headers), axis=1)
            valid = np.concatenate((self._held[1], valid))
        self._take(headers[:, :-1], valid[:-1], headers[h.BASE_OFFSET, 1:])
        self._held = headers[:, -1:].copy(), valid[-1:].copy()
        return iter(())

    def _goes_on(self, columns: BatchColumns, run: PlainRun) -> bool:
        """Take a run of one epoch, in which no entry begins after the first offset; else False."""
        before = self._last_offset if self._plain is None else self._plain.base_offset
        # A held batch that is not of a plain run has to be judged together with its successor.
        is_held_otherwise = self._held is not None and self._plain is None
        if run.epoch is None or is_held_otherwise or run.first_offset <= before:
            return False
        starts = self._starts
        if len(starts) and ((starts > run.first_offset) & (starts < run.next_offset)).any():
            return False
        self._release(run.first_offset)
        if run.count > 1:
            self._last_offset = int(columns.headers[h.BASE_OFFSET, -2])
            self._highest = max(self._highest, self._last_offset)
            count = run.count - 1
            self._add(run.epoch, run.first_offset, self._last_offset, count, run.position)
        self._plain = _Last(run.epoch, run.last_base_offset, run.last_position)
        self._held = columns.headers[:, -1:].copy(), columns.crc_valid[-1:].copy()
        return True

    def _release(self, limit: int) -> None:
        one, self._plain = self._plain, None
        if one is not None and one.base_offset < limit:
            self._held = None
            self._last_offset = one.base_offset
            self._highest = max(self._highest, one.base_offset)
            self._add(one.epoch, one.base_offset, one.base_offset, 1, one.position)
        if self._held is not None:
            headers, valid = self._held
            self._held = None
            self._take(headers, valid, np.array([limit], np.int64))

    def _take(
        self, headers: NDArray[np.int64], valid: NDArray[np.bool_], following: NDArray[np.int64]
    ) -> None:
        base, last = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
        if not len(base):
            return
        before = np.concatenate(([self._last_offset], base[:-1]))
        self._last_offset = int(base[-1])
        speaks = valid & (headers[h.MAGIC] >= 2) & (headers[h.EPOCH] != NO_EPOCH)
        # A batch out of order would move the boundaries between epochs.
        speaks &= (before < base) & (base < following) & (last >= base)
        of = np.flatnonzero(speaks)
        if len(of):
            self._add_runs(headers[:, of])
            if len(self._starts):
                self._find_cuts(base[of], np.minimum(last, following - 1)[of])

    def _add_runs(self, headers: NDArray[np.int64]) -> None:
        epochs = headers[h.EPOCH]
        edges = np.flatnonzero(np.diff(epochs)) + 1
        for begin, end in zip((0, *edges.tolist()), (*edges.tolist(), len(epochs)), strict=True):
            first, last = int(headers[h.BASE_OFFSET, begin]), int(headers[h.BASE_OFFSET, end - 1])
            position = int(headers[h.POSITION, begin])
            if not self._add(int(epochs[begin]), first, last, end - begin, position):
                return

    def _add(self, epoch: int, first: int, last: int, count: int, position: int) -> bool:
        """Add consecutive batches of an epoch, by base offsets; return whether there was room."""
        if self._runs and self._runs[-1].epoch == epoch:
            self._runs[-1].last = last
            self._runs[-1].count += count
        elif len(self._runs) < _RUNS_MAX:
            self._runs.append(_Run(epoch, first, last, count, self.log.path, position))
        else:
            return False
        return True

    def _find_cuts(self, base: NDArray[np.int64], last: NDArray[np.int64]) -> None:
        """Collect the entries that begin inside a batch, after its first offset.

        Considers only batches above all earlier ones in the segment, so that the result does not
        depend on how the batches are divided.
        """
        highest = np.maximum.accumulate(np.concatenate(([self._highest], base)))
        self._highest = int(highest[-1])
        base, last = base[base > highest[:-1]], last[base > highest[:-1]]
        if not len(base):
            return
        batch = np.searchsorted(base, self._starts) - 1
        inside = (batch >= 0) & (self._starts <= last[batch])
        for i in np.flatnonzero(inside).tolist():
            self._cut_batches[i] = int(base[batch[i]])

    def end(self) -> Iterator[Defect]:
        self._release(INT64_MAX)
        entries = self._entries
        # A file that is out of order proves nothing: judge the batches alone.
        if entries is None or not self._is_ascending:
            if entries is not None:
                yield from self._disorder(entries)
            yield from self._falling_epochs()
        elif not entries:
            yield from self._no_entries()
        else:
            yield from self._contradictions(entries)
            yield from self._ends(entries)

    def _disorder(self, entries: Sequence[EpochEntry]) -> Iterator[Defect]:
        """Yield the entries that Kafka drops for a later one, and negative ones, which stop it."""
        before: EpochEntry | None = None
        for number, entry in enumerate(entries):
            wrong = None
            if entry.leader_epoch < 0 or entry.start_offset < 0:
                wrong = "is negative"
            elif before and not (
                entry.leader_epoch > before.leader_epoch
                and entry.start_offset > before.start_offset
            ):
                wrong = f"follows epoch {before.leader_epoch} from offset {before.start_offset}"
            if wrong:
                yield make_defect(
                    "leader-epochs-invalid",
                    self._path,
                    f"Entry {number} (epoch {entry.leader_epoch} from offset {entry.start_offset}) "
                    f"{wrong}.",
                    offset=entry.start_offset,
                )
                return
            before = entry

    def _falling_epochs(self) -> Iterator[Defect]:
        """Check, without a file, that epochs do not decrease.

        If the earlier epoch belongs to a single batch, that batch is reported.
        """
        for number in range(1, len(self._runs)):
            before, run = self._runs[number - 1 : number + 1]
            if run.epoch >= before.epoch:
                continue
            if before.count == 1 and (number < 2 or self._runs[number - 2].epoch <= run.epoch):
                yield self._batch_defect(before, f"before epoch {run.epoch}")
            else:
                yield self._batch_defect(run, f"after epoch {before.epoch}")

    def _no_entries(self) -> Iterator[Defect]:
        """Report falling epochs, and a missing or empty file unless this is a copy."""
        yield from self._falling_epochs()
        log_dir = os.path.dirname(file_system.absolute(self.partition.directory.path))
        # No log directory around it: a copy, perhaps of the segments only.
        is_copy = not file_system.exists(os.path.join(log_dir, file_names.META_PROPERTIES))
        is_missing = not file_system.exists(self._path)
        if self._runs and self._runs[-1].epoch >= 0 and not (is_copy and is_missing):
            yield make_defect(
                "leader-epochs-missing",
                self._path,
                f"The file is empty or missing; the batches from offset "
                f"{self._runs[0].first} on have epochs up to {self._runs[-1].epoch}.",
                offset=self._runs[0].first,
            )

    def _contradictions(self, entries: Sequence[EpochEntry]) -> Iterator[Defect]:
        told: set[int] = set()
        starts = self._starts.tolist()
        for number, run in enumerate(self._runs):
            first, last = bisect_right(starts, run.first) - 1, bisect_right(starts, run.last) - 1
            if self._agrees(entries, run, first, last):
                continue
            entry = entries[max(first, last, 0)]
            if self._is_odd(number):
                said = (
                    f"leader-epoch-checkpoint has epoch {entries[max(first, 0)].leader_epoch} there"
                )
                yield self._batch_defect(run, said)
            elif last not in told:
                told |= {first, last}
                yield make_defect(
                    "leader-epochs-contradict-log",
                    self._path,
                    f"Epoch {entry.leader_epoch} starts at offset {entry.start_offset} in the "
                    f"file; {counted(run.count, 'batch')} from {run.first} to {run.last} "
                    f"{'has' if run.count == 1 else 'have'} epoch {run.epoch}.",
                    offset=run.first,
                )
        for number, base_offset in self._cut_batches.items():
            # Neighbouring entries that are already reported explain the cut, too.
            if number and not {number, number - 1} & told:
                entry = entries[number]
                yield make_defect(
                    "leader-epochs-contradict-log",
                    self._path,
                    f"Epoch {entry.leader_epoch} starts at offset {entry.start_offset} in the "
                    f"file, inside the batch at offset {base_offset}.",
                    offset=entry.start_offset,
                )

    def _agrees(self, entries: Sequence[EpochEntry], run: _Run, first: int, last: int) -> bool:
        """Return whether the file agrees with a run; before its first entry it states nothing."""
        if last < 0:
            return 0 <= run.epoch <= entries[0].leader_epoch
        return max(first, 0) == last and run.epoch == entries[last].leader_epoch

    def _is_odd(self, number: int) -> bool:
        """Return whether the run is wrong rather than the file."""
        run = self._runs[number]
        before = self._runs[number - 1].epoch if number else None
        after = self._runs[number + 1].epoch if number + 1 < len(self._runs) else None
        # Between two runs of one other epoch: no leader comes back under an old epoch.
        if run.epoch < 0 or (before is not None and before == after):
            return True
        if run.count == 1:
            return True
        # Epochs fall at one of the two runs; the smaller one is more likely damaged.
        falls = (before is not None and run.epoch < before) or (
            after is not None and after < run.epoch
        )
        neighbours = [other.count for other in self._runs[max(number - 1, 0) : number + 2]]
        return falls and run.count < max(neighbours)

    def _ends(self, entries: Sequence[EpochEntry]) -> Iterator[Defect]:
        """Yield entries beyond the log end, and a first entry that is not at the log start."""
        end = self.partition.end_offset
        for entry in entries:
            if entry.start_offset > end:
                yield make_defect(
                    "leader-epoch-beyond-log",
                    self._path,
                    f"Epoch {entry.leader_epoch} starts at offset {entry.start_offset}, the log "
                    f"ends at {end}.",
                    offset=entry.start_offset,
                )
                return
        is_live = self.partition.directory.state == DirectoryState.LIVE
        if not is_live or self.partition.directory.topic == CLUSTER_METADATA or not self._runs:
            return
        start, first = self.partition.log.log_start_offset, entries[0]
        lacks = any(run.first < first.start_offset and run.first >= start for run in self._runs)
        if first.start_offset < start or lacks:
            yield make_defect(
                "leader-epochs-start-elsewhere",
                self._path,
                f"The first entry (epoch {first.leader_epoch}) starts at "
                f"offset {first.start_offset}, the log at {start}.",
                offset=first.start_offset,
            )

    def _batch_defect(self, run: _Run, said: str) -> Defect:
        return make_defect(
            "batch-leader-epoch-wrong",
            run.path,
            f"{run.count} batches from offset {run.first} to {run.last} have leader epoch "
            f"{run.epoch}, {said}."
            if run.count > 1
            else f"The batch has leader epoch {run.epoch}, {said}.",
            position=run.position,
            offset=run.first,
        )
