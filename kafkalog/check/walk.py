"""One reading of a partition, a segment or a file by all checks.

Levels: `quick` reads headers and indexes, `standard` also every byte for its checksum, `deep` also
every record.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from kafkalog.check.elsewhere import closed_cleanly
from kafkalog.check.index_files import ENTRY_SIZES, index_alone, size_is_multiple
from kafkalog.check.schedule import Reading, lowest_level
from kafkalog.check.small_files import READERS
from kafkalog.check.summary import Summary
from kafkalog.defects import REFERENCES, make_defect
from kafkalog.errors import BytesUnreadableError, KafkaLogError
from kafkalog.model import Defect, Level
from kafkalog.names import DirectoryState, FileKind, FileState
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from kafkalog.check.batch_checks import CheckedLog, CheckedPartition, PartitionCheck
    from kafkalog.check.elsewhere import Watch
    from kafkalog.check.schedule import Schedule
    from kafkalog.columnar.headers import Stretch
    from kafkalog.configs import TopicConfigs
    from kafkalog.log_dir import FileEntry, PartitionDir, Segment
    from kafkalog.recovery import NextStart

    Stretches = Callable[[CheckedLog, Source, Level], Iterator[Stretch | Defect]]

T = TypeVar("T")


class Walk:
    """One reading of what is to be judged together.

    Args:
        schedule: what is read at which level.
        progress: called with the number of bytes checked since the last call.
        threads: how many check.
        watch: is shown the batches of the logs; may be None.
        stretches: gives the batches and the damage of a log; None: they are read here.

    Attributes:
        summary: what was looked at and found so far.
        next_starts: as those of `Verification`.
        put_off: as that of `Verification`.
    """

    def __init__(
        self,
        schedule: Schedule,
        progress: Callable[[int], None] | None,
        threads: int | None,
        watch: Watch | None,
        stretches: Stretches | None,
    ) -> None:
        self.schedule = schedule
        self.level = schedule.level
        self.summary = Summary()
        self.put_off: set[str] = set()
        self.next_starts: list[NextStart] = []
        self._progress = progress
        self._threads = threads
        self._watch = watch
        self._stretches = stretches or self._read

    def lone_segment(self, directory: PartitionDir, segment: Segment) -> Iterator[Defect]:
        """A segment on its own."""
        if not self.schedule.has_time_for(segment.log.size_bytes):
            self._put_off(segment.log.path, segment.files, 1)
            return
        reading = Reading(segment, self.schedule.level_of(segment))
        yield from self._segment(segment, reading.level, was_closed=closed_cleanly(directory))
        self.schedule.segment_read(reading)

    def partition(
        self, directory: PartitionDir, configs: TopicConfigs | None, *, afresh: bool
    ) -> Generator[Defect, None, CheckedPartition]:
        """All files of a partition, whose topic has configs; `afresh` is for the schedule."""
        from kafkalog.check.batch_checks import CheckedPartition
        from kafkalog.check.contained import contained, contained_all
        from kafkalog.check.next_start import PartitionStart
        from kafkalog.check.registry import DIRECTORY_CHECKS, partition_checks

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
        """Note a prediction; a defect where it is bad and no other defect says why."""
        from kafkalog.check.next_start import unexplained

        if start.is_remarkable:
            self.next_starts.append(start)
        if not is_explained:
            yield from unexplained(start, state)

    def _put_off(self, path: str, entries: Iterable[FileEntry], segments: int) -> None:
        """There is no time left for these files of a partition, or of a segment on its own."""
        self.put_off.add(path)
        self.summary.bytes_deferred += sum(
            entry.size_bytes
            for entry in entries
            if entry.name.kind != FileKind.UNKNOWN and entry.name.state == FileState.LIVE
        )
        self.summary.segments_deferred += segments

    def file(self, entry: FileEntry) -> Iterator[Defect]:
        """A file outside the live segments."""
        self.summary.files += 1
        if entry.error is not None:
            yield make_defect("file-unreadable", entry.path, entry.error)
            return
        if entry.name.kind == FileKind.UNKNOWN:
            yield make_defect("file-unknown", entry.path, "Kafka has no file with this name.")
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
