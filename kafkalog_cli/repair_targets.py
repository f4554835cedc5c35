"""The partitions that a repair is about, and the log directory that is locked for it."""

from __future__ import annotations

import os

from kafkalog.errors import NotAKafkaFileError
from kafkalog.log_dir import FileEntry, LogDir, PartitionDir, open_partition, open_path
from kafkalog.names import FileKind, FileState
from kafkalog.runs.requirements import log_dir_around


def locked_directory(path: str) -> str | None:
    """The log directory at or around a path; None for a partition with none around it.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: what `open_path` raises.
    """
    target = open_path(path)
    if isinstance(target, LogDir):
        return target.path
    return log_dir_around(_partition_of(target))


def partitions_at(path: str) -> tuple[PartitionDir, ...]:
    """The partitions of a log directory, or the one that is there or holds the log."""
    target = open_path(path)
    return target.partitions if isinstance(target, LogDir) else (_partition_of(target),)


def segment_at(path: str) -> int | None:
    """Base offset of the segment whose log a path names; None where it names more."""
    target = open_path(path)
    return target.name.offset if isinstance(target, FileEntry) else None


def _partition_of(target: PartitionDir | FileEntry) -> PartitionDir:
    if isinstance(target, PartitionDir):
        return target
    if target.name.kind != FileKind.LOG or target.name.state != FileState.LIVE:
        raise NotAKafkaFileError(
            "This is neither a directory nor the log of a segment.",
            path=target.path,
            hint="Give a log directory, a partition directory, or a .log file.",
        )
    return open_partition(os.path.dirname(os.path.abspath(target.path)))
