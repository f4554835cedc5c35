"""Conditions that a directory must meet before anything in it is changed.

Each function raises if one is not met; none of them writes. The reasons are those of a broker's
start, `LogManager` and `LogLoader` of Kafka.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import OFFSET_CHECKPOINTS, DirectoryState, FileState
from formats.topic_names import CLUSTER_METADATA
from kafkalog.change.journal.journal import JOURNAL_NAME
from kafkalog.errors import RefusedError
from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.storage import require_no_link
from kafkalog.io.storage.files import open_directory
from kafkalog.node.recovery import RemoveFile, StartMode, Verdict, start_line, start_mode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kafkalog.node.recovery import LoadedLog, PredictedStart


_TOP_FILES: Final = (
    file_names.META_PROPERTIES,
    file_names.LOCK,
    file_names.CLEAN_SHUTDOWN,
    *OFFSET_CHECKPOINTS,
)
_UNFINISHED: Final = (FileState.CLEANED, FileState.SWAP)


def log_dir_around(target: LogDirListing | PartitionDir) -> str | None:
    """Return the log directory that is the target, or holds it; None for a copy outside one.

    It is recognized by its files at the top. No broker can run on a copy without them.
    """
    if isinstance(target, LogDirListing):
        return target.path
    parent = os.path.dirname(os.path.abspath(target.path))
    return parent if _is_log_dir(parent) else None


def require_place(log_dir: str | None, partitions: Iterable[str]) -> None:
    """Check that the directories named in a journal are where and what it says.

    Args:
        log_dir: the log directory, which is about to be locked; None for copied partitions.
        partitions: paths of partitions.

    Raises:
        NotFoundError, UnreadableError: one is missing, or cannot be opened.
        RefusedError: a path contains a symbolic link, or it is not a log directory, or a partition
            lies in one that would not be locked.
    """
    for path in (log_dir,) if log_dir is not None else partitions:
        try:
            with open_directory(path):
                pass
        except OSError as error:
            if os.path.realpath(path) != path:
                raise RefusedError(
                    "The journal names a path that leads through a symbolic link.",
                    path=path,
                    hint="A run records real paths: was the backup changed?",
                ) from error
            raise reading_error(error, path) from error
        place = path if log_dir is not None else os.path.dirname(path)
        if _is_log_dir(place) != (log_dir is not None):
            raise RefusedError(
                "The journal disagrees about which directories are log directories.",
                path=place,
                hint="Was the backup changed?",
            )
    if log_dir is not None:
        require_own_checkpoints(log_dir)


def require_own_checkpoints(log_dir: str) -> None:
    """Check that no offset checkpoint is a symbolic link: they will be replaced.

    Raises:
        RefusedError: one of them is a symbolic link.
    """
    for name in OFFSET_CHECKPOINTS:
        require_no_link(os.path.join(log_dir, name))


def require_no_backup(target: LogDirListing | PartitionDir) -> None:
    """Check that the target is not, and is not part of, what a run keeps for `undo`.

    Raises:
        RefusedError: there is a journal of a run.
    """
    path = os.path.abspath(target.path)
    place = path if isinstance(target, LogDirListing) else os.path.dirname(path)
    # Files in a backup are links to those of the log, so a change in one place changes the other.
    if _is_there(place, JOURNAL_NAME):
        raise RefusedError(
            "This is the backup of a run; once changed, it restores nothing.",
            path=target.path,
            hint=f"`kafkalog undo {place}` undoes the run; otherwise work on a copy of it.",
        )


def mode_to_judge_by(log_dir: str | None) -> StartMode:
    """Return the kind of the next start, which must have nothing to do for a reliable log.

    A copy, with no `meta.properties` at the top, is judged by itself, as if it had been closed.
    """
    if log_dir is not None and _is_there(log_dir, file_names.META_PROPERTIES):
        return start_mode(log_dir)
    return StartMode.CLEAN


def require_own_files(partition: PartitionDir) -> None:
    """Check that the directory and its files are not links or special files.

    Raises:
        RefusedError: one of them is a symbolic link, or not a regular file.
    """
    path = os.path.abspath(partition.path)
    for link in (path, *(entry.path for entry in partition.files)):
        require_no_link(link)
    for entry in partition.files:
        if entry.error is not None:
            raise RefusedError(
                f"The file cannot be used: {entry.error}", path=entry.path,
                hint="If it is not one of Kafka's files, move it elsewhere.",
            )  # fmt: skip


def require_live(partition: PartitionDir) -> None:
    """Check that it is a partition of a topic that a broker serves.

    Raises:
        RefusedError: it is being deleted, moved or stray, or the metadata log of KRaft.
    """
    # KafkaRaftLog loads it with rules of its own, always as after a crash.
    if partition.topic == CLUSTER_METADATA:
        raise RefusedError(
            "KRaft maintains its metadata log by snapshots, not by topic configs.",
            path=partition.path,
        )
    if partition.state != DirectoryState.LIVE:
        raise RefusedError(
            f"The directory is not a live partition: its name says {partition.state}.",
            path=partition.path,
        )


def require_settled(partition: PartitionDir) -> None:
    """Check that there is no interrupted cleaning that a start would finish or undo.

    Raises:
        RefusedError: there is a file of one.
    """
    for entry in partition.files:
        if entry.name.state in _UNFINISHED:
            raise _unsettled("This was left by an unfinished cleaning.",
                             entry.path, partition.path)  # fmt: skip


def require_start(
    predicted: PredictedStart, partition: PartitionDir,
    allowed: Collection[Verdict] = (Verdict.NOTHING,),
) -> LoadedLog:  # fmt: skip
    """Check that a broker's start would only remove `.deleted` files, and load the log as it is.

    Args:
        predicted: the start by `mode_to_judge_by`.
        partition: the directory.
        allowed: the results that are accepted.

    Returns:
        The log as the start loads it.

    Raises:
        RefusedError: the start would change something.
    """
    # `.deleted` files are gone with any start (LogLoader.removeTempFilesAndCollectSwapFiles), so
    # they decide nothing.
    is_allowed = predicted.verdict in allowed or _removes_left_overs(predicted, partition)
    if predicted.loaded is None or not is_allowed:
        raise _unsettled(f"A broker's start would change it: {start_line(predicted)}.",
                         partition.path)  # fmt: skip
    return predicted.loaded


def _removes_left_overs(predicted: PredictedStart, partition: PartitionDir) -> bool:
    names = {entry.name.name for entry in partition.left_overs}
    return predicted.verdict == Verdict.TIDY and all(
        isinstance(action, RemoveFile) and action.name in names for action in predicted.tidying
    )


def _is_log_dir(path: str) -> bool:
    """Return whether a directory is a log directory by its files at the top."""
    return any(_is_there(path, name) for name in _TOP_FILES)


def _is_there(directory: str, name: str) -> bool:
    return file_system.is_there(os.path.join(directory, name))


def _unsettled(message: str, path: str, to_recover: str | None = None) -> RefusedError:
    return RefusedError(
        message,
        path=path,
        hint=f"Run `kafkalog recover {to_recover or path} --apply` first, or start and stop a "
        "broker.",
    )
