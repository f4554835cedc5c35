"""A log directory or partition held for a plan, or to be changed: opened, locked, read again."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from kafkalog.errors import UsageError
from kafkalog.journal.requirements import log_dir_around, require_no_backup, require_own_checkpoints
from kafkalog.journal.run import Run
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir, open_partition, open_path
from kafkalog.names import FileKind, FileState
from kafkalog.paths.uris import require_local
from kafkalog.storage import LogDirLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.configs import ConfigSources, LogDirConfigs
    from kafkalog.errors import KafkaLogError


class Listener:
    """Hears what a run says besides its results. Derive from it to hear more."""

    def failed(self, error: KafkaLogError) -> None:
        """Take what stops the work on one partition; by default it stops the run."""
        raise error

    def noted(self, text: str) -> None:
        """Take one line worth knowing."""

    def configured(self, configs: LogDirConfigs) -> None:
        """Take the configs of the topics, before they are used."""


class Maintenance:
    """A target that nobody else changes meanwhile.

    Attributes:
        target: the log directory or partition, as it is now.
        log_dir: the log directory at or around it; None for a copied partition.
        run: performs changes; None for a plan.
    """

    def __init__(
        self,
        target: LogDirListing | PartitionDir,
        log_dir: str | None,
        run: Run | None,
        listener: Listener,
    ) -> None:
        self.target = target
        self.log_dir = log_dir
        self.run = run
        self.listener = listener

    @property
    def has_changed(self) -> bool:
        """Whether anything is not as it was before the run."""
        return self.run is not None and self.run.has_changed

    def partitions(
        self, failed: Callable[[KafkaLogError], None] | None = None
    ) -> Iterator[PartitionDir]:
        """Yield the partitions to work on; note those that an earlier run finished.

        Args:
            failed: called with why a partition cannot be listed; the listener's by default.
        """
        target = self.target
        if isinstance(target, LogDirListing):
            for error in target.errors.values():
                (failed or self.listener.failed)(error)
        for partition in target.partitions if isinstance(target, LogDirListing) else (target,):
            if self.run is not None and self.run.is_done(partition):
                self.listener.noted(
                    f"{partition.path} is skipped: an earlier run with this backup finished it"
                )
            else:
                yield partition

    def configs(self, sources: ConfigSources) -> LogDirConfigs:
        """Return the configs of the topics, which the listener hears of."""
        found = configs_around(self.target, sources)
        self.listener.configured(found)
        return found


@contextmanager
def maintenance(
    path: str,
    command: str,
    listener: Listener,
    *,
    in_place: bool,
    backup: str | None = None,
    of_log: bool = False,
    arguments: Sequence[str] = (),
) -> Iterator[Maintenance]:
    """Hold a log directory or partition, for a plan or for changes.

    The lock of the log directory keeps brokers off. With a backup, partitions that an earlier run
    of the command did not finish are restored first, which is noted.

    Args:
        path: path of the log directory or partition.
        command: the name of the command.
        listener: hears what is said besides results.
        in_place: whether it may be changed.
        backup: as that of `Run`; only with `in_place`.
        of_log: whether the path may also be a log, which stands for its partition.
        arguments: of the command, for the journal alone.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: the path cannot be opened.
        LogDirInUseError: a broker is using it.
        RefusedError: it would be changed, but is the backup of a run, or a checkpoint is a link.
        UnwritableError: it would be changed, but is read-only.
        Also the errors of `Run`.
    """
    target = target_at(path, of_log=of_log)
    log_dir = log_dir_around(target)
    if log_dir is not None:
        require_own_checkpoints(log_dir)
    run = None
    if in_place:
        require_no_backup(target)
        run = Run(log_dir, command=command, arguments=arguments, backup=backup)
    reading = nullcontext() if run is not None or log_dir is None else LogDirLock(log_dir)
    with reading, run or nullcontext():
        for name in run.restored if run is not None else ():
            listener.noted(f"{name} was restored to its state before the killed run")
        yield Maintenance(target_at(path, of_log=of_log), log_dir, run, listener)


def segment_at(path: str) -> int | None:
    """Return the base offset of the segment if a path names a log; None for anything larger."""
    target = open_path(path)
    return target.name.offset if isinstance(target, FileEntry) else None


def target_at(path: str, *, of_log: bool = False) -> LogDirListing | PartitionDir:
    """Open what is at a path. Raises as `maintenance`."""
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


def configs_around(target: LogDirListing | PartitionDir, sources: ConfigSources) -> LogDirConfigs:
    """Return the configs of the topics in a log directory, or in the one around a partition."""
    path = target.path
    if not isinstance(target, LogDirListing):
        path = os.path.normpath(os.path.join(path, os.pardir))
    return sources.in_log_dir(path)


@contextmanager
def share_of(
    progress: Callable[[int], None] | None, size_bytes: int
) -> Iterator[Callable[[int], None] | None]:
    """Report progress on one piece of the work; bytes that were not read count at its end."""
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
