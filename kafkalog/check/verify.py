"""Runs every check over files, partitions and log directories.

Levels: `quick` reads headers and indexes, `standard` also every byte for its checksum, `deep` also
every record.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from formats import file_names
from formats.file_names import FileKind, FileState
from kafkalog.check.schedule import Schedule, Summary
from kafkalog.errors import DataError
from kafkalog.files.indexes import ENTRY_SIZES
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_path
from kafkalog.io.paths import file_system
from kafkalog.io.paths.kept_files import each_file_once
from kafkalog.io.wording import counted
from kafkalog.log.defects import make_defect
from kafkalog.model import Defect, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from kafkalog.check.batches import CheckedPartition
    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.check.moments import SeenPartition
    from kafkalog.check.walk import ReadColumns, RemoteWalk, Walk, Walked, Watch
    from kafkalog.files.log_dir import AnyPath, Target
    from kafkalog.node.configs import ConfigsAround, TopicConfigs
    from kafkalog.node.recovery import NextStart

T = TypeVar("T")
Seen = TypeVar("Seen")


class Verification:
    """One run of the checks.

    Args:
        level: how much is read.
        schedule: what is read at which level, and what is deferred; its level takes precedence.
        threads: number of checking threads; None for one per processor, up to 8.
        watch: observes the batches of the logs.
        read: yields the batches and the damage of a log; None for `batch_columns`. Cannot
            be combined with `watch`.
        remote: walks over the partitions instead; requires a schedule without a history or a
            duration.

    Attributes:
        summary: what has been read and found so far.
        next_starts: what the next start of a broker would do to the partitions and log directories
            so far, if that is worth mentioning.
        put_off: paths of the partition directories (or of the log, for a single segment) that were
            not checked completely before time was up.
    """

    def __init__(
        self,
        level: Level = Level.STANDARD,
        progress: Callable[[int], None] | None = None,
        *,
        schedule: Schedule | None = None,
        threads: int | None = None,
        watch: Watch | None = None,
        read: ReadColumns | None = None,
        remote: RemoteWalk | None = None,
    ) -> None:
        self.schedule = schedule or Schedule(level=level)
        self.level = self.schedule.level
        self.summary = Summary()
        self.put_off: set[str] = set()
        self.next_starts: list[NextStart] = []
        self._progress = progress
        self._threads = threads
        self._watch = watch
        self._read = read
        self._remote = remote
        self._log_dirs: list[CheckedLogDir] = []
        self._configs: ConfigsAround | None = None
        self._partitions: list[CheckedLogDir] = []  # those that were given individually

    def verify(self, *targets: AnyPath) -> Iterator[Defect]:
        """Yield every defect of the targets: of each target, then of all of them together.

        Raises:
            NotFoundError, UnreadableError, NotAKafkaFileError: a target itself cannot be opened.
                Anything unreadable inside it is a defect.
        """
        for target in targets:
            yield from self.check(target)
        yield from self.check_together()

    def check(self, target: AnyPath) -> Iterator[Defect]:
        """Yield the defects of one target; `check_together` yields the rest after the last one.

        Raises:
            NotFoundError, UnreadableError, NotAKafkaFileError: as in `verify`.
        """
        yield from self.summary.counting(self._checks(open_path(target)))

    def verify_partition(self, directory: PartitionDir) -> Generator[Defect, None, int]:
        """Yield a partition's defects, as `verify` does; return the offset after its batches."""
        partition = yield from self.summary.counting(self._contained_partition(directory))
        return partition.end_offset

    def check_together(self) -> Iterator[Defect]:
        """Compare the targets with each other; report bytes that should have been checked."""
        from kafkalog.check.moments import judged_together
        from kafkalog.check.next_start import with_nodes
        from kafkalog.check.registry import COPY_CHECKS, TOGETHER_CHECKS

        copies = [*self._log_dirs, *self._partitions]
        for checks, of_these in ((TOGETHER_CHECKS, self._log_dirs), (COPY_CHECKS, copies)):
            if of_these:
                named = [(check.__name__, check) for check in checks]
                yield from self.summary.counting(judged_together(of_these, named))
        self.next_starts = with_nodes(self.next_starts, self._log_dirs)
        missing = self.summary.expected_bytes - self.summary.checked_bytes
        if missing > 0:
            defect = make_defect(
                "bytes-not-checked", ".", f"Not checked: {counted(missing, 'byte')}."
            )
            self.summary.defects[defect.severity] += 1
            yield defect

    def _checks(self, target: Target) -> Generator[Defect, None, None]:
        from kafkalog.check.registry import contained_all

        if isinstance(target, FileEntry):
            yield from contained_all(target.path, "The checks", self._single_file, target)
        elif isinstance(target, PartitionDir):
            from kafkalog.check.identity import around

            walked_alone = yield from self._contained_partition(target)
            if target.path not in self.put_off:
                self._partitions.append(around(walked_alone))
        else:
            from kafkalog.check.identity import CheckedLogDir
            from kafkalog.check.moments import judged_together, look_at_log_dir
            from kafkalog.check.registry import LOG_DIR_CHECKS

            yield from self._judged(target.path, target, lambda: look_at_log_dir(target), _top)
            walked: list[CheckedPartition] = []
            for partition in self.schedule.in_order(target.partitions):
                walked += [(yield from self._contained_partition(partition))]
            if not self.put_off.isdisjoint(partition.path for partition in target.partitions):
                return
            checked = CheckedLogDir(target, walked)
            named = [(check.__name__, partial(_of_log_dir, check)) for check in LOG_DIR_CHECKS]
            yield from judged_together([checked], named)
            self._log_dirs.append(checked)

    def _judged(
        self,
        path: str,
        seen: Seen,
        look: Callable[[], Seen],
        judge: Callable[[Walk, Seen, int], Generator[Defect, None, T]],
    ) -> Generator[Defect, None, T]:
        """Judge something through `of_one_moment`; only the last reading counts."""
        from kafkalog.check.moments import of_one_moment
        from kafkalog.check.walk import Walk

        def read(seen: Seen, reading: int) -> Generator[Defect, None, tuple[Walk, T]]:
            read = None if reading else self._read  # these belong to the first moment
            walk = Walk(self.schedule, self._progress, self._threads, self._watch, read)
            judgement = walk.summary.counting(judge(walk, seen, reading))
            return walk, (yield from each_file_once(judgement))

        if self._watch is not None:  # it cannot unsee batches
            walk, result = yield from read(seen, 0)
        else:
            (walk, result), is_settled = yield from of_one_moment(
                path, seen, look, read, lambda read: read[0].summary.is_complete
            )
            if not is_settled:
                walk.summary.give_up()
        self.summary.add_looked_at(walk.summary)
        self.next_starts += walk.next_starts
        self.put_off |= walk.put_off
        return result

    def _single_file(self, entry: FileEntry) -> Generator[Defect, None, None]:
        """Check a file that was named by itself; a log or an index is checked with its segment."""
        from kafkalog.check.moments import look_at_partition

        parent = PartitionDir(os.path.dirname(file_system.absolute(entry.path)), None, ())

        def judge(walk: Walk, seen: SeenPartition, _reading: int) -> Generator[Defect, None, None]:
            kinds = (FileKind.LOG, *ENTRY_SIZES)
            if entry.name.kind in kinds and entry.name.state == FileState.LIVE:
                for segment in seen.directory.segments:
                    if segment.base_offset == entry.name.offset:
                        yield from walk.lone_segment(seen.directory, segment)
                        return
            yield from walk.file(entry)

        yield from self._judged(
            entry.path, look_at_partition(parent), lambda: look_at_partition(parent), judge
        )

    def _contained_partition(
        self, directory: PartitionDir
    ) -> Generator[Defect, None, CheckedPartition]:
        """Check a partition as `_partition` does; a failure does not affect other partitions.

        An exception of the watch ends the run: it is passed on to the caller.
        """
        from kafkalog.check.batches import CheckedPartition
        from kafkalog.check.registry import FAILED, contained

        failed = CheckedPartition(directory)
        if self._watch is not None:
            return (yield from self._partition(directory))
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

    def _partition(self, directory: PartitionDir) -> Generator[Defect, None, CheckedPartition]:
        from kafkalog.check.batches import CheckedPartition
        from kafkalog.check.moments import look_at_partition

        if self._remote is not None:
            partition = CheckedPartition(directory)
            walked = yield from self._remote.walk(directory)
            if walked is not None:
                self._take(partition, walked)
                return partition
        seen, configs = look_at_partition(directory), self._configs_of(directory)
        # It was listed with files; a directory that is gone would pass for an empty one.
        if directory.files and not seen.directory.files:
            detail = "The directory disappeared: its topic was deleted, or a broker moved it."
            yield make_defect("changed-while-reading", directory.path, detail)
        partition = yield from self._judged(
            directory.path,
            seen,
            lambda: look_at_partition(directory),
            lambda walk, seen, reading: walk.partition(seen.directory, configs, afresh=reading > 0),
        )
        if directory.path not in self.put_off:
            self.schedule.partition_read(directory)
        return partition

    def _configs_of(self, directory: PartitionDir) -> TopicConfigs | None:
        """Return the configs of a topic; each metadata log is read once."""
        from kafkalog.node.configs import ConfigsAround, ConfigSources

        if self._configs is None:
            self._configs = ConfigsAround(ConfigSources(), directory.log_dirs)
        try:
            return self._configs.of_log_dir_of(directory.path).of_topic(directory.topic)
        except DataError:
            return None  # the metadata log's defects are reported by its own checks

    def _take(self, partition: CheckedPartition, walked: Walked) -> None:
        partition.end_offset = walked.end_offset
        self.summary.add_looked_at(walked.summary)
        self.next_starts += walked.next_starts
        if self._progress is not None:
            self._progress(walked.summary.checked_bytes)


def _of_log_dir(
    check: Callable[[LogDirListing, Sequence[CheckedPartition]], Iterator[Defect]],
    log_dirs: Sequence[CheckedLogDir],
) -> Iterator[Defect]:
    [checked] = log_dirs
    return check(checked.log_dir, checked.partitions)


def _top(walk: Walk, target: LogDirListing, _reading: int) -> Generator[Defect, None, None]:
    """Check the files of a log directory that belong to no partition."""
    from kafkalog.check.registry import contained_all

    for path, error in target.errors.items():
        yield make_defect("file-unreadable", path, error.message)
    for name in target.others:
        if name != file_names.REMOTE_INDEX_CACHE:
            path = os.path.join(target.path, name)
            detail = "This is not the name of a partition; a broker does not start with it."
            yield make_defect("directory-unknown", path, detail)
    for entry in target.files:
        if entry.name.kind != FileKind.UNKNOWN:
            yield from contained_all(entry.path, "The check", walk.file, entry)
