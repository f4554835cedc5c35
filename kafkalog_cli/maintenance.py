"""The target of a command that changes logs: opened, locked, listed; and consent to changes."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from kafkalog.errors import UsageError
from kafkalog.journal import Run
from kafkalog.journal.requirements import log_dir_around, require_no_backup, require_own_checkpoints
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir, open_partition, open_path
from kafkalog.names import FileKind, FileState
from kafkalog.paths.uris import require_local
from kafkalog.storage import LogDirLock
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output.configs import note_metadata
from kafkalog_cli.standard_streams import put_work_first, require_stdout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.configs import ConfigSources, LogDirConfigs
    from kafkalog.recovery import Hosting
    from kafkalog_cli.outcome import Outcome


class Maintenance:
    """A target that nobody else changes meanwhile.

    Attributes:
        target: the log directory or partition, as it is now.
        log_dir: the log directory at or around it; None for a copied partition.
        run: performs changes; None for a plan.
    """

    def __init__(
        self, target: LogDirListing | PartitionDir, log_dir: str | None, run: Run | None
    ) -> None:
        self.target = target
        self.log_dir = log_dir
        self.run = run

    def partitions(self, outcome: Outcome) -> Iterator[PartitionDir]:
        """Yield the partitions to work on; note those that an earlier run finished."""
        if isinstance(self.target, LogDirListing):
            for error in self.target.errors.values():
                outcome.error(error)
        target = self.target
        for partition in target.partitions if isinstance(target, LogDirListing) else (target,):
            if self.run is not None and self.run.is_done(partition):
                show_note(
                    f"{partition.path} is skipped: an earlier run with this backup finished it"
                )
            else:
                yield partition


@contextmanager
def maintenance(
    path: str, command: str, *, in_place: bool, backup: str | None = None, of_log: bool = False
) -> Iterator[Maintenance]:
    """Hold a log directory or partition, for a plan or for changes.

    The lock of the log directory keeps brokers off. With a backup, partitions that an earlier run
    of the command did not finish are restored first, which is noted.

    Args:
        path: path of the log directory or partition.
        command: the name of the command.
        in_place: whether it may be changed.
        backup: as given; only with `in_place`.
        of_log: whether the path may also be a log, which stands for its partition.

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
        put_work_first()
        require_no_backup(target)
        run = Run(log_dir, command=command, arguments=sys.argv[1:], backup=backup)
    reading = nullcontext() if run is not None or log_dir is None else LogDirLock(log_dir)
    with reading, run or nullcontext():
        for name in run.restored if run is not None else ():
            show_note(f"{name} was restored to its state before the killed run")
        yield Maintenance(target_at(path, of_log=of_log), log_dir, run)


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


def configs_at(
    target: LogDirListing | PartitionDir, sources: ConfigSources, outcome: Outcome
) -> LogDirConfigs:
    """Return the configs of the topics; report what is wrong with the metadata log."""
    path = target.path
    if not isinstance(target, LogDirListing):
        path = os.path.normpath(os.path.join(path, os.pardir))
    found = sources.in_log_dir(path)
    note_metadata(found, outcome)
    return found


def hosting_at(log_dir: str | None, metadata_dir: str | None) -> Hosting | None:
    """Return which partitions the broker hosts; None if the log directories do not say."""
    from kafkalog.recovery import read_hosting

    own, other = (None if path is None else open_path(path) for path in (log_dir, metadata_dir))
    if not isinstance(own, LogDirListing):
        return None
    return read_hosting(own, other if isinstance(other, LogDirListing) else None)


def require_consent(*, in_place: bool, yes: bool, backup: str | None = None) -> None:
    """Check, before any work, that consent can be obtained.

    Raises:
        UsageError: there is no terminal to ask, or the options contradict each other.
    """
    if yes and not in_place:
        raise UsageError("--yes requires --in-place.", hint="Without it only the plan is shown.")
    if backup is not None and not in_place:
        raise UsageError("--backup requires --in-place.", hint="Without it only the plan is shown.")
    if in_place and not yes and not sys.stdin.isatty():
        raise UsageError(
            "Cannot ask: stdin is not a terminal.",
            hint="--yes applies the plan without asking.",
        )


def consents(question: str, *, yes: bool) -> bool:
    """Ask whether the source may be changed, after the plan was shown."""
    if yes:
        return True
    import typer

    require_stdout()
    return typer.confirm(question, err=True)
