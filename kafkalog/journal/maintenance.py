"""The common part of runs that change a log directory: opens, locks and lists it, finds configs."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kafkalog.errors import UsageError
from kafkalog.journal.requirements import log_dir_around, require_no_backup, require_own_checkpoints
from kafkalog.journal.run import Run
from kafkalog.listener import Listener
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir, open_partition, open_path
from kafkalog.names import FileKind, FileState
from kafkalog.paths.uris import require_local
from kafkalog.storage import LogDirLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from kafkalog.configs import ConfigSources, LogDirConfigs
    from kafkalog.errors import KafkaLogError


class Maintenance:
    """One run over a log directory or partition, which plans or changes it; a context manager.

    Within the block the log directory is locked, so that no broker can start on it. With a backup,
    partitions that an earlier run of the command did not finish are restored first, and noted.

    Args:
        path: path of the log directory or partition.
        command: the name of the command.
        sources: the sources of the configs.
        in_place: whether it may be changed.
        backup: as for `Run`; only with `in_place`.
        of_log: whether the path may also be a `.log` file, which stands for its partition.
        arguments: those of the command, recorded in the journal.
        listener: receives everything reported besides the results.

    Attributes:
        target: the log directory or partition in its current state.
        log_dir: the log directory at or around it; None for a copied partition.
        configs: the configs of its topics.

    Raises, when the block is entered:
        NotFoundError, UnreadableError, NotAKafkaFileError: the path cannot be opened.
        LogDirInUseError: a broker is using it.
        RefusedError: it would be changed but is the backup of a run, or a checkpoint is a link.
        UnwritableError: it would be changed but is read-only.
        Also the errors of `Run`.
    """

    target: LogDirListing | PartitionDir
    configs: LogDirConfigs

    def __init__(
        self,
        path: str | os.PathLike[str],
        command: str,
        sources: ConfigSources,
        *,
        in_place: bool = False,
        backup: str | None = None,
        of_log: bool = False,
        arguments: Sequence[str] = (),
        listener: Listener | None = None,
    ) -> None:
        self._path = os.fspath(path)
        self._command = command
        self._sources = sources
        self._in_place = in_place
        self._backup = backup
        self._of_log = of_log
        self._arguments = arguments
        self._listener = listener or Listener()
        self._held = ExitStack()
        self._run: Run | None = None
        self.log_dir: str | None = None

    def __enter__(self) -> Self:
        with ExitStack() as held:
            self._hold(held)
            self._held = held.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._held.__exit__(*raised)

    @property
    def is_plan(self) -> bool:
        """Whether the run only plans and cannot change anything."""
        return self._run is None

    @property
    def has_changed(self) -> bool:
        """Whether the run has changed anything."""
        return self._run is not None and self._run.has_changed

    @property
    def is_one(self) -> bool:
        """Whether the path names a single partition."""
        return isinstance(self.target, PartitionDir)

    def _hold(self, held: ExitStack) -> None:
        target = target_at(self._path, of_log=self._of_log)
        self.log_dir = log_dir_around(target)
        if self.log_dir is not None:
            require_own_checkpoints(self.log_dir)
        if self._in_place:
            require_no_backup(target)
            self._run = held.enter_context(
                Run(
                    self.log_dir,
                    command=self._command,
                    arguments=self._arguments,
                    backup=self._backup,
                )
            )
            for name in self._run.restored:
                self._listener.noted(f"{name} was restored to its state before the killed run")
        elif self.log_dir is not None:
            held.enter_context(LogDirLock(self.log_dir))
        self.target = target_at(self._path, of_log=self._of_log)
        self._configure()

    def _configure(self) -> None:
        """Find the configs of the topics in the log directory."""
        path = self.target.path
        if not isinstance(self.target, LogDirListing):
            path = os.path.normpath(os.path.join(path, os.pardir))
        self.configs = self._sources.in_log_dir(path)
        self._listener.configured(self.configs)

    def _changing(self) -> Run:
        """Return the `Run` that changes logs; raise `UsageError` if this run only plans."""
        if self._run is None:
            raise UsageError("This run is only a plan.", hint="in_place=True changes logs.")
        return self._run

    def _fail(self, error: KafkaLogError) -> None:
        """Pass the failure of one partition to the listener."""
        self._listener.failed(error)

    def _partitions(self) -> Iterator[PartitionDir]:
        """Yield the partitions to work on; note those that an earlier run finished."""
        target = self.target
        if isinstance(target, LogDirListing):
            for error in target.errors.values():
                self._fail(error)
        for partition in target.partitions if isinstance(target, LogDirListing) else (target,):
            if self._run is not None and self._run.is_done(partition):
                self._listener.noted(
                    f"{partition.path} is skipped: an earlier run with this backup finished it"
                )
            else:
                yield partition


def segment_at(path: str) -> int | None:
    """Return the base offset if a path names a `.log` file, None if it names a directory."""
    target = open_path(path)
    return target.name.offset if isinstance(target, FileEntry) else None


def target_at(path: str, *, of_log: bool = False) -> LogDirListing | PartitionDir:
    """Open the log directory or partition at a path; raises the same errors as `Maintenance`."""
    require_local(path)
    target = open_path(path)
    if not isinstance(target, FileEntry):
        return target
    if not of_log:
        raise UsageError(
            "This is a file, not a partition or log directory.",
            path=path,
            hint="All segments of a partition are judged together.",
        )
    if (target.name.kind, target.name.state) != (FileKind.LOG, FileState.LIVE):
        raise UsageError(
            "This is neither a directory nor the log of a segment.",
            path=path,
            hint="Give a log directory, a partition directory, or a .log file.",
        )
    return open_partition(os.path.dirname(os.path.abspath(path)))


@contextmanager
def share_of(
    progress: Callable[[int], None] | None, size_bytes: int
) -> Iterator[Callable[[int], None] | None]:
    """Report progress on one piece of work; bytes not read are counted when it ends."""
    if progress is None:
        yield None
        return
    left = size_bytes

    def advance(done: int) -> None:
        nonlocal left
        done = min(done, left)
        left -= done
        progress(done)

    try:
        yield advance
    finally:
        progress(left)


def present_ms() -> int:
    """Return the current time in milliseconds."""
    return time.time_ns() // 1_000_000
