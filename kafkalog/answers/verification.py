"""A run of `verify`: opens its targets, walks over them as scheduled, and remembers its state."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import one_line
from kafkalog.check.schedule import History, Sample, Schedule, Summary
from kafkalog.check.verify import Verification
from kafkalog.errors import KafkaLogError, UnwritableError, UsageError, contained
from kafkalog.files.ahead import files_of
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir
from kafkalog.files.topics import is_meant
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading import reading
from kafkalog.io.paths.reading_errors import unread_places
from kafkalog.io.paths.source import read_file
from kafkalog.io.rows import Rows
from kafkalog.io.storage import NewFile
from kafkalog.log.defects import UNREADABLE
from kafkalog.log.events import reporting
from kafkalog.model import Defect, Level, named_member
from kafkalog.node.targets import Target, open_targets, require_named, unlisted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Sequence

    from kafkalog.check.walk import ReadColumns, RemoteWalk
    from kafkalog.errors import Event, OnEvent
    from kafkalog.files.log_dir import AnyPath
    from kafkalog.files.topics import PartitionNumbers
    from kafkalog.io.engine import Engine
    from kafkalog.node.recovery import NextStart

_STATE_SIZE_MAX: Final = 1 << 30


class Findings(Rows[Defect]):
    """The findings of one run of the checks: iterate over it, or take it as a table, once.

    Args:
        targets: log directories, partition directories or files, checked against each other; paths,
            or what is open already.
        level: how much is read.
        sample: check this share of the segments (0 to 1) at `level`, the others at `quick`.
        seed: seed of the sample: the same seed selects the same segments; None for the date (UTC).
        max_duration_s: start nothing new after this many seconds.
        state: a file that remembers what was checked when: what was checked longest ago comes
            first, and the next run continues where this one stopped.
        threads: number of checking threads; None for one per processor, up to 8, or one per task
            with an engine.
        rate_limit: bytes read per second, by all tasks together.
        leaves_cache: leave the page cache as it was, for use next to a running broker.
        topics: of log directories, only the partitions of these; None for all that is in them.
        numbers: of log directories, only partitions with these numbers.
        internal: whether internal topics are checked that are not named.
        on_event: is passed an error that stops the work on a target, while the run continues with
            the others, and what was read; without it the error is raised.
        progress: whether to draw a bar while it runs.

    Attributes:
        schedule: what is read at which level, and what is deferred.
        verification: the walk, whose counts are complete at the end.
        errors: the errors that stopped the work on targets.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: a target cannot be opened.
        UsageError: an argument makes no sense, or `state` lies inside a target.
        NothingFoundError: a topic has no partition.
        UnwritableError: `state` could not be written after the run.
    """

    def __init__(
        self,
        *targets: AnyPath,
        level: Level | str = Level.STANDARD,
        sample: float | None = None,
        seed: int | None = None,
        max_duration_s: float | None = None,
        state: str | None = None,
        threads: int | None = None,
        rate_limit: int | None = None,
        leaves_cache: bool = False,
        topics: Collection[str] | None = None,
        numbers: PartitionNumbers | None = None,
        internal: bool = True,
        on_event: OnEvent | None = None,
        progress: bool = False,
    ) -> None:
        if seed is not None and sample is None:
            raise UsageError("A seed requires a sample.", hint="For example sample=0.05.")
        seed = _seed_of_the_day() if seed is None else seed
        chosen = None if sample is None else Sample(sample, seed)
        super().__init__(self._checked, Defect)
        self.errors: list[KafkaLogError] = []
        self._on_event = on_event
        self._progress = progress
        self._state = state
        self._threads = threads
        self._rate_limit = rate_limit
        self._leaves_cache = leaves_cache
        opened = open_targets(targets, hear=self._hear)
        if topics is not None or numbers is not None or not internal:
            opened = list(self._of(opened, topics, numbers, internal=internal))
        self._history = None if state is None else _read_history(state, opened)
        self.schedule = Schedule(
            opened,
            named_member(Level, level),
            sample=chosen,
            history=self._history,
            duration_s=max_duration_s,
        )
        self.verification = Verification(schedule=self.schedule, threads=threads)

    def _of(
        self,
        targets: Sequence[Target],
        topics: Collection[str] | None,
        numbers: PartitionNumbers | None,
        *,
        internal: bool,
    ) -> Iterator[Target]:
        """Yield the partitions of log directories that are meant, as if each was a target."""

        def means(one: PartitionDir) -> bool:
            is_number = numbers is None or one.partition in numbers
            return is_number and is_meant(one.topic, topics, internal=internal)

        if not self.errors:
            require_named(targets, topics, numbers)
        for target in targets:
            for one, error in unlisted_of([target]):
                if means(one):
                    self._fail(error)
            if not isinstance(target, LogDirListing):
                yield target
                continue
            yield from filter(means, target.partitions)

    @property
    def targets(self) -> Sequence[Target]:
        """The targets, in order."""
        return self.schedule.targets

    @property
    def summary(self) -> Summary:
        """What has been read and found so far."""
        return self.verification.summary

    @property
    def next_starts(self) -> list[NextStart]:
        """What the next start of a broker would do, if that is worth mentioning."""
        return self.verification.next_starts

    def _checked(self) -> Iterator[Defect]:
        with reporting(self._on_event, progress=self._progress, targets=self.targets) as report:
            yield from self.run(report.advance)

    def __repr__(self) -> str:
        paths = (repr(target.path) for target in self.targets)
        counts = f"{self.summary.defects.total()} so far, {self.summary.files} files read"
        return one_line("Findings", counts, *paths)

    def run(
        self,
        progress: Callable[[int], None] | None = None,
        engine: Engine | None = None,
        read: ReadColumns | None = None,
    ) -> Generator[Defect, None, None]:
        """Yield the findings: of each target, then of all of them together.

        Args:
            progress: called with the number of bytes checked since the last call.
            engine: checks partitions in tasks of its own; its workers read the same paths.
            read: yields the batches and the damage of a log, as `batch_columns` does, which it is
                by default; not with an engine.

        Raises:
            UsageError: an engine together with `state` or `max_duration_s`, which are about the
                order of
                work in one process.
            KafkaLogError: an error that stops the work, without `on_event`.
        """
        if engine is not None and (self._history is not None or self.schedule.is_limited):
            raise UsageError("A state and a duration are about the order of work in one process.")
        with (
            reading(rate_limit=self._rate_limit, leaves_cache=self._leaves_cache),
            file_system.listings_held(target.path for target in self.targets),
            file_system.announced(() if engine else files_of(self._partitions())),
            self._remote(engine) as remote,
        ):
            self.verification = Verification(
                progress=progress,
                schedule=self.schedule,
                threads=self._threads,
                read=read,
                remote=remote,
            )
            try:
                yield from self._found()
            finally:
                if self._history is not None and self._state is not None:
                    with contained(self._state, self._fail):
                        _write_history(self._history, self._state, self.targets)

    def _partitions(self) -> Iterator[PartitionDir]:
        """Yield the partitions whose files are read, in the order in which they are checked."""
        for target in self.targets:
            if isinstance(target, LogDirListing):
                found = self.schedule.in_order(target.partitions)
            else:
                found = [target] if isinstance(target, PartitionDir) else []
            # Of a tier, names are enough for a quick look.
            is_quick = self.schedule.level == Level.QUICK
            yield from (one for one in found if not (is_quick and one.is_remote))

    def _found(self) -> Iterator[Defect]:
        reported: set[str] = set()
        with unread_places() as unread:
            for target in self.targets:
                with contained(target.path, self._fail):
                    for defect in self.verification.check(target):
                        if defect.reference in UNREADABLE:
                            reported.add(defect.path)
                        yield defect
            yield from self.verification.check_together()
            for path in reported:
                unread.forget(path)
            # What a finding names is not repeated as an error.
            if unread and not self.errors:
                self._fail(unread.error())

    @contextmanager
    def _remote(self, engine: Engine | None) -> Iterator[RemoteWalk | None]:
        """Open the remote walk over partitions; None if this process walks over them."""
        if engine is None:
            yield None
            return
        from kafkalog.check.tasks import ReadOptions, WalkedByTasks

        rate = self._rate_limit
        # The tasks keep no account of each other.
        share = None if rate is None else max(1, rate // engine.workers)
        options = ReadOptions(self._threads or 1, share, self._leaves_cache)
        with WalkedByTasks(engine, self.schedule, options) as remote:
            yield remote

    def _hear(self, event: Event) -> None:
        if isinstance(event, KafkaLogError):
            self._fail(event)

    def _fail(self, error: KafkaLogError) -> None:
        self.errors.append(error)
        if self._on_event is None:
            raise error
        self._on_event(error)


def verify(
    *targets: str | os.PathLike[str], level: Level | str = Level.STANDARD, **options: Any
) -> Findings:
    """Check log directories, partition directories or files, each against the others.

    A log that a healthy broker wrote has no finding above a note. Nothing is written except the
    file of `state`.

    Args:
        targets: paths, or the results of `kafkalog.open`.
        level: `quick`: headers and indexes; `standard`: also checksums; `deep`: also every record.
        options: the other arguments of `Findings`.

    Returns:
        The findings, each a `Defect`: iterate over them, then look at `summary`.
    """
    return Findings(*targets, level=level, **options)


def _seed_of_the_day() -> int:
    return int(time.strftime("%Y%m%d", time.gmtime()))


def _read_history(path: str, targets: Sequence[Target]) -> History:
    """Return the history in the state file; an empty one if the file is missing.

    Raises:
        UsageError: the file lies inside a target, where nothing is ever written.
        UnwritableError: it could not be written after the run.
        NotAKafkaFileError: it is something else.
    """
    place = os.path.realpath(path)
    for target in targets:
        if place.startswith(os.path.join(os.path.realpath(_directory(target)), "")):
            raise UsageError(
                "The state file lies inside the checked directory.",
                path=path,
                hint="Put it elsewhere: kafkalog never writes to what it reads.",
            )
    if not os.access(os.path.dirname(place), os.W_OK):
        raise UnwritableError("The state file cannot be written there.", path=path)
    if not file_system.exists(path):
        return History()
    text = read_file(path, _STATE_SIZE_MAX).decode("utf-8", "surrogateescape")
    return History.from_json(text, path)


def _write_history(history: History, path: str, targets: Sequence[Target]) -> None:
    """Replace the file, dropping segments that are gone. Raises `UnwritableError`.

    A crash leaves the old file or the new one.
    """
    for target in targets:
        if isinstance(target, LogDirListing):
            history.forget_missing(target.partitions, [target.path])
        elif isinstance(target, PartitionDir):
            history.forget_missing([target], [target.path])
    with NewFile(path, replaces=True) as new:
        new.file.write(history.to_json().encode("utf-8", "surrogateescape"))


def _directory(target: Target) -> str:
    is_file = isinstance(target, FileEntry)
    return os.path.dirname(target.path) or "." if is_file else target.path
