"""What a directory must be like before anything in it is changed.

Each function raises where it is not; none of them writes. The reasons are those of a broker's
start, `LogManager` and `LogLoader` of Kafka 4.3.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.errors import RefusedError, UnwritableError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC
from kafkalog.names import OFFSET_CHECKPOINTS, DirectoryState, FileState
from kafkalog.recovery import StartMode, Verdict, predict_start, start_line

if TYPE_CHECKING:
    from kafkalog.log_dir import PartitionDir
    from kafkalog.recovery import LoadedLog

_TOP_FILES = ("meta.properties", ".lock", ".kafka_cleanshutdown", *OFFSET_CHECKPOINTS)
_LEFT_OVERS = (FileState.CLEANED, FileState.SWAP)


def log_dir_around(partition: PartitionDir) -> str | None:
    """The log directory that holds a partition; None for a copy with none around it.

    It is one by its files at the top. On a copy without any no broker can run.
    """
    parent = os.path.dirname(os.path.abspath(partition.path))
    if any(os.path.lexists(os.path.join(parent, name)) for name in _TOP_FILES):
        return parent
    return None


def require_own_files(partition: PartitionDir) -> None:
    """The directory and its files are really there, and it may be written.

    Raises:
        RefusedError: one of them is a symbolic link, or no regular file.
        UnwritableError: the directory is read-only, for us or at all.
    """
    path = os.path.abspath(partition.path)
    for link in (path, *(entry.path for entry in partition.files)):
        if os.path.islink(link):
            raise RefusedError(
                "It is a symbolic link: what it leads to belongs to someone else.",
                path=link,
                hint="Work on the directory it leads to, or on a copy.",
            )
    for entry in partition.files:
        if entry.error is not None:
            raise RefusedError(entry.error, path=entry.path)
    if not os.access(path, os.W_OK | os.X_OK):
        raise UnwritableError("The directory cannot be written.", path=path)


def require_live(partition: PartitionDir) -> None:
    """It is a partition of a topic that a broker serves.

    Raises:
        RefusedError: it is being deleted, moved or stray, or the metadata log of KRaft.
    """
    if partition.topic == CLUSTER_METADATA_TOPIC:
        raise RefusedError(
            "The metadata log of KRaft is looked after by its snapshots, not by configs of topics.",
            path=partition.path,
        )
    if partition.state != DirectoryState.LIVE:
        raise RefusedError(
            f"The directory is no live partition: its name says {partition.state}.",
            path=partition.path,
        )


def require_sound_start(partition: PartitionDir, log_dir: str | None) -> LoadedLog:
    """The log was closed, and a start would load it as it is.

    Returns:
        The log as the start loads it.

    Raises:
        RefusedError: a crash left something that a start, or `kafkalog recover`, has to settle.

    Cost:
        As of a start after a clean shutdown: the end of the active segment.
    """
    for entry in partition.files:
        if entry.name.state in _LEFT_OVERS:
            raise _unsettled("A compaction was interrupted: this file is left over.", entry.path)
    if log_dir is not None and not os.path.lexists(os.path.join(log_dir, ".kafka_cleanshutdown")):
        raise _unsettled("The log directory has no mark of a clean shutdown.", log_dir)
    predicted = predict_start(partition, StartMode.CLEAN)
    if predicted.loaded is None or predicted.verdict not in (Verdict.NOTHING, Verdict.TIDY):
        raise _unsettled(f"A broker's start would do this: {start_line(predicted)}.",
                         partition.path)  # fmt: skip
    return predicted.loaded


def _unsettled(message: str, path: str) -> RefusedError:
    return RefusedError(
        message,
        path=path,
        hint=f"Run `kafkalog recover {path}` first, or start and stop a broker on it.",
    )
