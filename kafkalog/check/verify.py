"""The walk over files, partitions and log directories that runs every check.

Levels: `quick` reads headers and indexes, `standard` also every byte for its checksum, `deep` also
every record.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from kafkalog import places
from kafkalog.check.elsewhere import closed_cleanly
from kafkalog.check.index_files import ENTRY_SIZES, index_alone, size_is_multiple
from kafkalog.check.lfs_pointers import pointer_defect, pointers_among
from kafkalog.check.schedule import Reading, Schedule, lowest_level
from kafkalog.check.small_files import READERS
from kafkalog.check.summary import Summary
from kafkalog.defects import REFERENCES, make_defect
from kafkalog.errors import KafkaLogError
from kafkalog.log_dir import FileEntry, LogDir, PartitionDir, Segment, open_path
from kafkalog.model import Defect, Level, Severity
from kafkalog.names import REMOTE_INDEX_CACHE, DirectoryState, FileKind, FileState
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from pathlib import Path

    from kafkalog.check.batch_checks import CheckedLog, CheckedPartition, PartitionCheck
    from kafkalog.check.elsewhere import Elsewhere, Walked, Watch
    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.columnar.headers import Stretch
    from kafkalog.configs import LogDirConfigs, TopicConfigs
    from kafkalog.recovery import NextStart

    Stretches = Callable[[CheckedLog, Source, Level], Iterator[Stretch | Defect]]

T = TypeVar("T")


class Verification:
    """One run of the checks.

    Args:
        level: how much is read.
        progress: called with the number of bytes checked since the last call.
        schedule: what is read at which level, and what is put off; its level counts.
        threads: how many check; as many as there are processors, up to 8, where None.
        watch: is shown the batches of the logs.
        stretches: gives the batches and the damage of a log as `header_stretches` does, which it is
            where None. Without `watch`.
        elsewhere: walks over the partitions; without a history or a duration in `schedule`.

    Attributes:
        summary: what was looked at and found so far.
        next_starts: what the next start of a broker would do with the partitions and log
            directories so far, where there is something to say.
        put_off: paths of the partition directories (of the log, for a segment on its own) for which
            time was up before all of it had been checked.
    """

    def __init__(
        self,
        level: Level = Level.STANDARD,
        progress: Callable[[int], None] | None = None,
        *,
        schedule: Schedule | None = None,
        threads: int | None = None,
        watch: Watch | None = None,
        stretches: Stretches | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.schedule = schedule or Schedule(level=level)
        self.level = self.schedule.level
        self.summary = Summary()
        self.put_off: set[str] = set()
        self.next_starts: list[NextStart] = []
        self._progress = progress
        self._threads = threads
        self._watch = watch
        self._stretches = stretches or self._read
        self._elsewhere = elsewhere
        self._pointers: list[FileEntry] = []  # of Git LFS, in the target that is checked
        self._log_dirs: list[CheckedLogDir] = []
        self._configs: dict[str, LogDirConfigs] = {}
        self._partitions: list[CheckedLogDir] = []  # those that were given by themselves

    def verify(self, *targets: str | Path | LogDir | PartitionDir | FileEntry) -> Iterator[Defect]:
        """Yield every defect of the targets: of each one, and of all of them together.

        Raises:
            NotFoundError, UnreadableError, NotAKafkaFileError: a target itself cannot be opened.
                What cannot be read inside it is a defect.
        """
        for target in targets:
            yield from self.check(target)
        yield from self.check_together()

    def check(self, target: str | Path | LogDir | PartitionDir | FileEntry) -> Iterator[Defect]:
        """Yield the defects of one target; `check_together` after the last one yields the rest.

        Raises:
            NotFoundError, UnreadableError, NotAKafkaFileError: as `verify`.
        """
        if not isinstance(target, LogDir | PartitionDir | FileEntry):
            target = open_path(str(target))
        yield from self._counted(self._checks(target))

    def verify_partition(self, directory: PartitionDir) -> Generator[Defect, None, int]:
        """As `verify`; returns the offset behind the batches."""
        partition = yield from self._counted(self._contained_partition(directory))
        return partition.end_offset

    def _counted(self, defects: Generator[Defect, None, T]) -> Generator[Defect, None, T]:
        while True:
            try:
                defect = next(defects)
            except StopIteration as end:
                found: T = end.value
                return found
            self.summary.defects[defect.severity] += 1
            yield defect

    def check_together(self) -> Iterator[Defect]:
        """Compare the targets with each other; report bytes that the run should have checked."""
        from kafkalog.check.contained import contained_all
        from kafkalog.check.next_start import with_strays
        from kafkalog.check.registry import COPY_CHECKS, TOGETHER_CHECKS

        copies = [*self._log_dirs, *self._partitions]
        checks = [
            *((check, self._log_dirs) for check in TOGETHER_CHECKS if self._log_dirs),
            *((check, copies) for check in COPY_CHECKS if copies),
        ]
        for check, of_these in checks:
            what = f"The check {check.__name__}"
            for defect in contained_all(of_these[0].log_dir.path, what, check, of_these):
                self.summary.defects[defect.severity] += 1
                yield defect
        self.next_starts = with_strays(self.next_starts, self._log_dirs)
        missing = self.summary.bytes_expected - self.summary.bytes_checked
        if missing > 0:
            defect = make_defect("bytes-not-checked", ".", f"{missing} bytes were not checked.")
            self.summary.defects[defect.severity] += 1
            yield defect

    def _checks(self, target: LogDir | PartitionDir | FileEntry) -> Generator[Defect, None, None]:
        from kafkalog.check.contained import contained_all

        if isinstance(target, FileEntry) and pointers_among([target]):
            yield pointer_defect(target.path, [target])
        elif isinstance(target, FileEntry):
            yield from contained_all(target.path, "The checks", self._single_file, target)
        elif isinstance(target, PartitionDir):
            from kafkalog.check.identity import around

            walked_alone = yield from self._contained_partition(target)
            yield from self._told_pointers(target.path)
            if target.path not in self.put_off:
                self._partitions.append(around(walked_alone))
        else:
            from kafkalog.check.identity import CheckedLogDir
            from kafkalog.check.next_start import log_dir_starts
            from kafkalog.check.registry import LOG_DIR_CHECKS

            before = self._grave
            for path, error in target.errors.items():
                yield make_defect("file-unreadable", path, error.message)
            for name in target.others:
                if name != REMOTE_INDEX_CACHE:
                    detail = "The name is none of a partition: a broker does not start on it."
                    yield make_defect("directory-unknown", os.path.join(target.path, name), detail)
            self._pointers += pointers_among(target.files)
            has_pointers = bool(self._pointers)
            for entry in target.files:
                if entry.name.kind != FileKind.UNKNOWN and entry not in self._pointers:
                    yield from contained_all(entry.path, "The check", self._file, entry)
            of_files = self._grave - before
            walked: list[CheckedPartition] = []
            for partition in self.schedule.in_order(target.partitions):
                walked += [(yield from self._contained_partition(partition))]
            yield from self._told_pointers(target.path)
            if not self.put_off.isdisjoint(partition.path for partition in target.partitions):
                return
            in_partitions = self._grave
            for check in LOG_DIR_CHECKS:
                what = f"The check {check.__name__}"
                yield from contained_all(target.path, what, check, target, walked)
            self._log_dirs.append(CheckedLogDir(target, walked))
            is_explained = has_pointers or self._grave - in_partitions + of_files > 0
            for start in log_dir_starts(target):
                yield from self._next_start(start, is_explained=is_explained)

    def _single_file(self, entry: FileEntry) -> Iterator[Defect]:
        """A file named on its own: its segment's log and indexes are checked together."""
        kinds = (FileKind.LOG, *ENTRY_SIZES)
        if entry.name.kind in kinds and entry.name.state == FileState.LIVE:
            parent = open_path(os.path.dirname(places.absolute(entry.path)))
            if isinstance(parent, PartitionDir):
                was_closed = closed_cleanly(parent)
                for segment in parent.segments:
                    if segment.base_offset == entry.name.offset:
                        yield from self._lone_segment(segment, was_closed=was_closed)
                        return
        yield from self._file(entry)

    def _lone_segment(self, segment: Segment, *, was_closed: bool) -> Iterator[Defect]:
        if not self.schedule.has_time_for(segment.log.size_bytes):
            self._put_off(segment.log.path, segment.files, 1)
            return
        reading = Reading(segment, self.schedule.level_of(segment))
        yield from self._segment(segment, reading.level, was_closed=was_closed)
        self.schedule.segment_read(reading)

    def _contained_partition(
        self, directory: PartitionDir
    ) -> Generator[Defect, None, CheckedPartition]:
        """As `_partition`; what fails in it costs nothing else."""
        from kafkalog.check.batch_checks import CheckedPartition
        from kafkalog.check.contained import FAILED, contained

        failed = CheckedPartition(directory)
        pointers = pointers_among(directory.files)
        if pointers:
            self._pointers += pointers
            failed.is_judged = False
            return failed
        checks = contained(self._partition(directory), directory.path, "The checks", failed)
        is_judged = True
        while True:
            try:
                defect = next(checks)
            except StopIteration as end:
                partition: CheckedPartition = end.value
                partition.is_judged = is_judged
                return partition
            is_judged &= defect.reference != FAILED
            yield defect

    def _told_pointers(self, path: str) -> Iterator[Defect]:
        """One finding about the Git LFS pointers that were met below a path."""
        if self._pointers:
            yield pointer_defect(path, self._pointers)
            self._pointers = []

    def _partition(self, directory: PartitionDir) -> Generator[Defect, None, CheckedPartition]:
        from kafkalog.check.batch_checks import CheckedPartition
        from kafkalog.check.contained import contained, contained_all
        from kafkalog.check.next_start import PartitionStart
        from kafkalog.check.registry import DIRECTORY_CHECKS, partition_checks

        before = self._grave
        partition = CheckedPartition(directory, configs=self._configs_of(directory))
        if self._elsewhere is not None:
            walked = yield from self._elsewhere.walk(directory)
            if walked is not None:
                self._take(partition, walked)
                return partition
        if not self.schedule.has_time_for(directory.size_bytes):
            self._put_off(directory.path, directory.files, len(directory.segments))
            return partition
        readings = self.schedule.readings(directory)
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
            walk = self._segment(segment, reading.level, checks, was_closed=was_closed)
            end = yield from contained(walk, segment.log.path, "The walk over the batches", None)
            is_walked &= end is not None
            partition.end_offset = max(partition.end_offset, end or 0)
            in_segments |= {entry.path for entry in segment.files}
            self.schedule.segment_read(reading)
        for check in checks if is_walked else ():
            yield from check.end()
        for entry in directory.files:
            if entry.path not in in_segments:
                yield from contained_all(entry.path, "The check", self._file, entry)
        for check_directory in DIRECTORY_CHECKS:
            what = f"The check {check_directory.__name__}"
            yield from contained_all(directory.path, what, check_directory, partition)
        predicted = start.predicted()
        if predicted is not None:
            yield from self._next_start(
                predicted, directory.state, is_explained=self._grave > before
            )
        self.schedule.partition_read(directory)
        return partition

    def _take(self, partition: CheckedPartition, walked: Walked) -> None:
        """A partition was walked over elsewhere."""
        partition.end_offset = walked.end_offset
        self.summary.add_looked_at(walked.summary)
        self.next_starts += walked.next_starts
        if self._progress is not None:
            self._progress(walked.summary.bytes_checked)

    def _next_start(
        self, start: NextStart, state: DirectoryState | None = None, *, is_explained: bool
    ) -> Iterator[Defect]:
        """Note a prediction; a defect where it is bad and no other defect says why."""
        from kafkalog.check.next_start import unexplained

        if start.is_remarkable:
            self.next_starts.append(start)
        if not is_explained:
            yield from unexplained(start, state)

    def _configs_of(self, directory: PartitionDir) -> TopicConfigs | None:
        """Return the configs of a topic; the metadata log beside its partitions is read once."""
        from kafkalog.configs import ConfigSources

        around = os.path.dirname(places.absolute(directory.path))
        configs = self._configs.setdefault(around, ConfigSources().in_log_dir(around))
        try:
            return configs.of_topic(directory.topic)
        except KafkaLogError:
            return None  # what is wrong with the metadata log its own checks report

    @property
    def _grave(self) -> int:
        """How many defects are more than notes."""
        return self.summary.defects.total() - self.summary.defects[Severity.NOTE]

    def _put_off(self, path: str, entries: Iterable[FileEntry], segments: int) -> None:
        """There is no time left for these files of a partition, or of a segment on its own."""
        self.put_off.add(path)
        self.summary.bytes_deferred += sum(
            entry.size_bytes
            for entry in entries
            if entry.name.kind != FileKind.UNKNOWN and entry.name.state == FileState.LIVE
        )
        self.summary.segments_deferred += segments

    def _file(self, entry: FileEntry) -> Iterator[Defect]:
        """A file outside the live segments."""
        self.summary.files += 1
        if entry.error is not None:
            yield make_defect("file-unreadable", entry.path, entry.error)
            return
        if entry.name.kind == FileKind.UNKNOWN:
            yield make_defect("file-unknown", entry.path, "Kafka has no file of this name.")
            return
        if entry.name.state != FileState.LIVE:
            detail = f"A file in state {entry.name.state}."
            yield make_defect("leftover-file", entry.path, detail)
            return
        self.summary.bytes_expected += entry.size_bytes
        try:
            if entry.name.kind in (FileKind.LOG, FileKind.KRAFT_SNAPSHOT):
                from kafkalog.check.batch_checks import CheckedLog

                yield from self._batches(CheckedLog(entry.path), self.level)
                return
            if entry.name.kind in ENTRY_SIZES:
                yield from size_is_multiple(entry)
            elif reader := READERS.get(entry.name.kind):
                reader(entry.path)
        except KafkaLogError as error:
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
        """One live segment: its files alone, then its indexes against its log; where it ends."""
        from kafkalog.check.batch_checks import CheckedLog

        entries = segment.files
        self.summary.files += len(entries)
        self.summary.bytes_expected += sum(entry.size_bytes for entry in entries)
        log = CheckedLog(
            segment.log.path,
            segment.base_offset,
            next_base_offset=segment.next_base_offset,
            is_closed=was_closed or not segment.is_active,
        )
        end = segment.base_offset
        with ExitStack() as files:
            for entry in entries[1:]:
                try:
                    log = yield from index_alone(entry, log, files)
                    self._checked(entry.size_bytes)
                except KafkaLogError as error:
                    yield _file_defect(entry, error)
            try:
                end = yield from self._batches(log, level, checks)
            except KafkaLogError as error:
                yield _file_defect(segment.log, error)
        return end

    def _batches(
        self, log: CheckedLog, level: Level, checks_of_partition: Sequence[PartitionCheck] = ()
    ) -> Generator[Defect, None, int]:
        """All batches of a log file; the offset behind them."""
        from kafkalog.check.batch_checks import defects_of_stretch
        from kafkalog.check.registry import segment_checks
        from kafkalog.columnar.header_table import COUNT, LAST_OFFSET
        from kafkalog.columnar.record_facts import FOUND

        end = log.base_offset or 0
        self.summary.levels.add(level)
        alone = segment_checks(log, level)
        for check in checks_of_partition:
            check.begin(log)
        with Source(log.path) as source:
            for found in self._stretches(log, source, level):
                if isinstance(found, Defect):
                    yield found
                else:
                    self.summary.batches += found.count
                    counts = found.headers[COUNT] if found.facts is None else found.facts[FOUND]
                    self.summary.records += int(counts.clip(0).sum())
                    end = max(end, int(found.headers[LAST_OFFSET].max()) + 1)
                    yield from defects_of_stretch([*alone, *checks_of_partition], found)
                    if self._watch is not None:
                        self._watch.take(log.path, found)
                self._checked(found.size_bytes or 0)
            for ended in alone:
                yield from ended.end()
        return end

    def _read(self, _log: CheckedLog, source: Source, level: Level) -> Iterator[Stretch | Defect]:
        from kafkalog.columnar.headers import header_stretches

        look = None if self._watch is None else self._watch.look
        return header_stretches(source, level, self._threads, look=look)

    def _checked(self, size_bytes: int) -> None:
        self.summary.bytes_checked += size_bytes
        if self._progress is not None:
            self._progress(size_bytes)


def _file_defect(entry: FileEntry, error: KafkaLogError) -> Defect:
    name = error.reference if error.reference in REFERENCES else "file-unreadable"
    return make_defect(name, entry.path, error.message, position=error.position)
