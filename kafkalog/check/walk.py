"""One reading of a partition, a segment or a file by all checks.

After a sound batch, a reading continues regardless of what came before. So a piece yields, from its
start to the first unsound thing, exactly what a reading of the whole log yields if it reaches the
start of the piece. Otherwise, and after anything unsound, the log is read on sequentially.
"""

from __future__ import annotations

import os
import pickle
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import numpy as np

from formats.file_names import DirectoryState, FileKind, FileState
from formats.late_classes import dataclass
from kafkalog.check.index_files import index_alone, size_is_multiple
from kafkalog.check.log_dir_files import READERS, unknown_file
from kafkalog.check.schedule import Reading, Schedule, Summary, lowest_level
from kafkalog.errors import BytesUnreadableError, DataError, KafkaLogError
from kafkalog.files.indexes import ENTRY_SIZES
from kafkalog.files.tiers import is_half_uploaded
from kafkalog.io.paths.source import Source
from kafkalog.log.columns.header_table import POSITION
from kafkalog.log.columns.headers import BatchColumns, batch_columns
from kafkalog.log.defects import kind_of, make_defect
from kafkalog.model import Defect, Level, Severity
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from kafkalog.check.batches import CheckedLog
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.log.columns.headers import Look
    from kafkalog.node.recovery import NextStart

    Key = tuple[int, str]
    from collections.abc import Callable, Iterable

    from kafkalog.check.batches import CheckedPartition, PartitionCheck
    from kafkalog.files.log_dir import FileEntry, Segment
    from kafkalog.node.configs import TopicConfigs

    ReadColumns = Callable[[CheckedLog, Source, Level], Iterator[BatchColumns | Defect]]


@dataclass(frozen=True, slots=True)
class Walked:
    """What a run needs to know of a partition that another run walked over, besides its defects.

    Attributes:
        end_offset: the offset after its batches.
        summary: the summary of that run.
        next_starts: as in `Verification`.
    """

    end_offset: int
    summary: Summary
    next_starts: Sequence[NextStart]


class RemoteWalk(Protocol):
    """Walks over partitions in place of this run."""

    def walk(self, directory: PartitionDir) -> Generator[Defect, None, Walked | None]:
        """Yield its defects; return None if nothing was reported and it must be walked here."""


class Watch(Protocol):
    """Observer of the batches that verification reads."""

    @property
    def look(self) -> Look | None:
        """The `look` argument for `batch_columns`."""

    def take(self, path: str, columns: BatchColumns) -> None:
        """Observe the next batches of a log, after their defects were reported."""


def closed_cleanly(directory: PartitionDir) -> bool:
    """Return whether the broker closed the log; logs that are being deleted are not closed."""
    is_hosted = directory.state in (DirectoryState.LIVE, DirectoryState.FUTURE)
    return is_hosted and UnifiedLog(directory).has_closed_indexes


_NO_LOG: Final = (1 << 63, "")


def read_range(part: Mapping[str, Any], threads: int | None) -> Iterator[bytes]:
    """Yield the sound batches of a part of a log, in order, up to the first thing that is wrong.

    Args:
        part: `path`, `base_offset`, `start` (the position of a batch), `end` (None for the end of
            the file) and `level`.
        threads: as in `batch_columns`.
    """
    key = (part["base_offset"], os.path.basename(part["path"]))
    try:
        with Source(part["path"]) as source:
            for found in batch_columns(
                source, Level(part["level"]), threads, position=part["start"], end=part["end"]
            ):
                if isinstance(found, Defect):
                    return
                wrong = np.flatnonzero(~found.crc_valid)
                sound = found.part(0, int(wrong[0])) if len(wrong) else found
                if sound.count:
                    yield pickle.dumps((key, sound), pickle.HIGHEST_PROTOCOL)
                if len(wrong):
                    return
    except DataError:
        return  # the next reader of this part reports it, too


class PrecomputedColumns:
    """Returns the batches that `read_range` read from parts of a partition's logs; reads the rest.

    Args:
        made: the results for all parts, by base offset, name and position.
        threads: as in `batch_columns`.

    Cost:
        Holds one result at a time.
    """

    def __init__(self, made: Iterator[bytes], threads: int | None) -> None:
        self._made = made
        self._threads = threads
        self._key: Key = _NO_LOG
        self._columns: BatchColumns | None = None
        self._advance()

    def read(
        self, log: CheckedLog, source: Source, level: Level
    ) -> Iterator[BatchColumns | Defect]:
        """Yield the same as `batch_columns`; call it in order of base offset, then name."""
        position = 0
        if log.base_offset is not None:
            key = (log.base_offset, os.path.basename(log.path))
            while self._key < key:
                self._advance()
            while self._key == key:
                found = self._columns
                assert found is not None, "there is a key only if there are columns"
                # A part ended early, at something wrong: the rest of the file is read here.
                if int(found.headers[POSITION, 0]) != position:
                    break
                self._advance()
                position += found.size_bytes
                yield found
        if position < source.size_bytes:
            yield from batch_columns(source, level, self._threads, position=position)

    def _advance(self) -> None:
        row = next(self._made, None)
        if row is None:
            self._key, self._columns = _NO_LOG, None
        else:
            self._key, self._columns = pickle.loads(row)  # noqa: S301 # made by `read_range`


T = TypeVar("T")


class Walk:
    """One reading of everything that is judged together.

    Args:
        schedule: what is read at which level.
        progress: called with the number of bytes checked since the last call.
        threads: number of checking threads.
        watch: observes the batches of the logs, or None.
        read: yields the batches and the damage of a log; None reads them here.

    Attributes:
        summary: what has been read and found so far.
        next_starts: as in `Verification`.
        put_off: as in `Verification`.
    """

    def __init__(
        self,
        schedule: Schedule,
        progress: Callable[[int], None] | None,
        threads: int | None,
        watch: Watch | None,
        read: ReadColumns | None,
    ) -> None:
        self.schedule = schedule
        self.level = schedule.level
        self.summary = Summary()
        self.put_off: set[str] = set()
        self.next_starts: list[NextStart] = []
        self._progress = progress
        self._threads = threads
        self._watch = watch
        self._read = read or self._read_here

    def lone_segment(self, directory: PartitionDir, segment: Segment) -> Iterator[Defect]:
        if not self.schedule.has_time_for(segment.log.size_bytes):
            self._put_off(segment.log.path, segment.files, 1)
            return
        reading = Reading(segment, self.schedule.level_of(segment))
        yield from self._segment(segment, reading.level, was_closed=closed_cleanly(directory))
        self.schedule.segment_read(reading)

    def partition(
        self, directory: PartitionDir, configs: TopicConfigs | None, *, afresh: bool
    ) -> Generator[Defect, None, CheckedPartition]:
        """Check all files of a partition, given its configs; `afresh` is for the schedule."""
        if directory.is_remote and self.level == Level.QUICK:
            return self._listed(directory)
        found = self._partition(directory, configs, afresh=afresh)
        return _of_remote_indexes(found) if directory.is_remote else found

    def _listed(self, directory: PartitionDir) -> Generator[Defect, None, CheckedPartition]:
        """Check a partition in remote storage by its listing and its manifests."""
        from kafkalog.check.batches import CheckedPartition
        from kafkalog.check.registry import contained_all
        from kafkalog.check.remote_segments import manifests_say_what_is_there
        from kafkalog.check.segments import files_have_their_segment

        partition = CheckedPartition(directory)
        self.summary.has_listed_only = True
        for entry in directory.files:
            is_read = entry.name.kind != FileKind.UNKNOWN and entry.name.state == FileState.LIVE
            if entry.error is not None or not is_read:
                yield from self.file(entry)
            else:
                self.summary.files += 1
        for check in (files_have_their_segment, manifests_say_what_is_there):
            what = f"The check {check.__name__}"
            yield from contained_all(directory.path, what, check, partition)
        return partition

    def _partition(
        self, directory: PartitionDir, configs: TopicConfigs | None, *, afresh: bool
    ) -> Generator[Defect, None, CheckedPartition]:
        from kafkalog.check.batches import CheckedPartition
        from kafkalog.check.next_start import PartitionStart
        from kafkalog.check.registry import (
            DIRECTORY_CHECKS,
            contained,
            contained_all,
            partition_checks,
        )

        partition = CheckedPartition(directory, configs=configs)
        if not self.schedule.has_time_for(directory.size_bytes):
            self._put_off(directory.path, directory.files, len(directory.segments))
            return partition
        before = self.summary.grave
        readings = self.schedule.readings(directory, afresh=afresh)
        lowest = lowest_level(readings, self.level)
        start = PartitionStart(partition, lowest)
        checks = [*partition_checks(partition, lowest), start]
        in_segments: set[str] = set()
        was_closed, is_walked = closed_cleanly(directory), True
        for number, reading in enumerate(readings):
            if reading.is_due and self.schedule.is_over():
                left = [entry for entry in directory.files if entry.path not in in_segments]
                self._put_off(directory.path, left, len(readings) - number)
                return partition
            segment = reading.segment
            walk: Generator[Defect, None, int | None]
            walk = self._segment(segment, reading.level, checks, was_closed=was_closed)
            if self._watch is None:
                walk = contained(walk, segment.log.path, "The walk over the batches", None)
            end = yield from walk
            is_walked &= end is not None
            partition.end_offset = max(partition.end_offset, end or 0)
            in_segments |= {entry.path for entry in segment.files}
            self.schedule.segment_read(reading)
        for check in checks if is_walked else ():
            yield from check.end()
        for entry in directory.files:
            if entry.path not in in_segments:
                yield from contained_all(entry.path, "The check", self.file, entry)
        for check_directory in DIRECTORY_CHECKS:
            what = f"The check {check_directory.__name__}"
            yield from contained_all(directory.path, what, check_directory, partition)
        predicted = start.predicted()
        if predicted is not None:
            yield from self._next_start(
                predicted, directory.state, is_explained=self.summary.grave > before
            )
        return partition

    def _next_start(
        self, start: NextStart, state: DirectoryState | None = None, *, is_explained: bool
    ) -> Iterator[Defect]:
        """Record a prediction; yield a defect if it is bad and no other defect says why."""
        from kafkalog.check.next_start import unexplained

        if start.is_remarkable:
            self.next_starts.append(start)
        if not is_explained:
            yield from unexplained(start, state)

    def _put_off(self, path: str, entries: Iterable[FileEntry], segments: int) -> None:
        self.put_off.add(path)
        self.summary.deferred_bytes += sum(
            entry.size_bytes
            for entry in entries
            if entry.name.kind != FileKind.UNKNOWN and entry.name.state == FileState.LIVE
        )
        self.summary.deferred_segments += segments

    def file(self, entry: FileEntry) -> Iterator[Defect]:
        self.summary.files += 1
        if entry.error is not None:
            yield make_defect("file-unreadable", entry.path, entry.error)
            return
        if is_half_uploaded(entry):
            return  # what the metadata say of it decides
        if entry.name.kind == FileKind.UNKNOWN:
            yield unknown_file(entry.path)
            return
        if entry.name.state != FileState.LIVE:
            detail = f"A file in state {entry.name.state}."
            yield make_defect("leftover-file", entry.path, detail)
            return
        self.summary.expected_bytes += entry.size_bytes
        try:
            if entry.name.kind in (FileKind.LOG, FileKind.KRAFT_SNAPSHOT):
                from kafkalog.check.batches import CheckedLog

                yield from self._batches(CheckedLog(entry.path), self.level)
                is_snapshot = entry.name.epoch is not None  # unlike `bootstrap.checkpoint`
                if is_snapshot and not entry.size_bytes:
                    from kafkalog.node.cluster_image.reader import empty_snapshot

                    yield empty_snapshot(entry.path)
                return
            if entry.name.kind in ENTRY_SIZES:
                yield from size_is_multiple(entry)
            elif reader := READERS.get(entry.name.kind):
                reader(entry.path)
        except DataError as error:
            yield _file_defect(entry, error)
        self._checked(entry.size_bytes)

    def _segment(
        self,
        segment: Segment,
        level: Level,
        checks: Sequence[PartitionCheck] = (),
        *,
        was_closed: bool,
    ) -> Generator[Defect, None, int]:
        """Check a live segment: each file, then indexes against log; return where the log ends."""
        from kafkalog.check.batches import CheckedLog

        entries = segment.files
        self.summary.files += len(entries)
        self.summary.expected_bytes += sum(entry.size_bytes for entry in entries)
        log = CheckedLog(
            segment.log.path,
            segment.base_offset,
            next_base_offset=segment.next_base_offset,
            is_closed=was_closed or not segment.is_active,
            size_bytes=segment.log.size_bytes,
        )
        end = segment.base_offset
        with ExitStack() as files:
            for entry in entries[1:]:
                try:
                    log = yield from index_alone(entry, log, files)
                    self._checked(entry.size_bytes)
                except DataError as error:
                    yield _file_defect(entry, error)
            try:
                end = yield from self._batches(log, level, checks)
            except DataError as error:
                yield _file_defect(segment.log, error)
        return end

    def _batches(
        self, log: CheckedLog, level: Level, checks_of_partition: Sequence[PartitionCheck] = ()
    ) -> Generator[Defect, None, int]:
        """Check all batches of a log file; return the offset after them."""
        from kafkalog.check.batches import defects_of_batches
        from kafkalog.check.registry import segment_checks
        from kafkalog.log.columns.header_table import COUNT, FOUND, LAST_OFFSET

        end = log.base_offset or 0
        self.summary.levels.add(level)
        alone = segment_checks(log, level)
        for check in checks_of_partition:
            check.begin(log)
        with Source(log.path) as source:
            for found in self._read(log, source, level):
                if isinstance(found, Defect):
                    for each in (*alone, *checks_of_partition):
                        each.damage(found)
                    yield found
                    if found.reference == BytesUnreadableError.reference:
                        self.summary.bytes_unreadable += found.size_bytes or 0
                        continue
                else:
                    self.summary.batches += found.count
                    counts = found.headers[COUNT] if found.facts is None else found.facts[FOUND]
                    self.summary.records += int(counts.clip(0).sum())
                    end = max(end, int(found.headers[LAST_OFFSET].max()) + 1)
                    yield from defects_of_batches([*alone, *checks_of_partition], found)
                    if self._watch is not None:
                        self._watch.take(log.path, found)
                self._checked(found.size_bytes or 0)
            for ended in alone:
                yield from ended.end()
        return end

    def _read_here(
        self, _log: CheckedLog, source: Source, level: Level
    ) -> Iterator[BatchColumns | Defect]:
        from kafkalog.log.columns.headers import batch_columns

        look = None if self._watch is None else self._watch.look
        return batch_columns(source, level, self._threads, look=look)

    def _checked(self, size_bytes: int) -> None:
        self.summary.checked_bytes += size_bytes
        if self._progress is not None:
            self._progress(size_bytes)


def _file_defect(entry: FileEntry, error: KafkaLogError) -> Defect:
    return make_defect(kind_of(error), entry.path, error.message, position=error.position)


def _of_remote_indexes(found: Generator[Defect, None, T]) -> Generator[Defect, None, T]:
    """Tell what is wrong with an index in a tier once: no broker rebuilds it."""
    told: set[str] = set()
    while True:
        try:
            defect = next(found)
        except StopIteration as end:
            result: T = end.value
            return result
        if defect.severity != Severity.INDEX:
            yield defect
        elif defect.path not in told:
            told.add(defect.path)
            yield make_defect("remote-indexes-wrong", defect.path, defect.detail)
