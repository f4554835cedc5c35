"""The sources of a salvage: the logs of a partition as a broker would load them, and other files.

Follows `LogLoader` of Kafka 4.3 in what an interrupted swap means.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.batches.framing import find_batch, read_batch
from kafkalog.errors import UsageError
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir
from kafkalog.model import Batch
from kafkalog.names import FileKind, FileState, parse_directory_name
from kafkalog.paths.source import Source
from kafkalog.recovery import RemoveFile, RenameFile, StartMode, predict_start

if TYPE_CHECKING:
    from collections.abc import Sequence

Target = LogDirListing | PartitionDir | FileEntry


@dataclass(frozen=True, slots=True)
class SourceLog:
    """A log file, and the base offset of its segment."""

    path: str
    base_offset: int
    size_bytes: int


def partitions_of(target: Target) -> tuple[PartitionDir, ...]:
    """Return the partitions of a target; a single log counts as a partition of one segment.

    Raises:
        UsageError: it is a file, but not a log.
        KafkaLogError: a partition of a log directory cannot be listed.
    """
    if isinstance(target, PartitionDir):
        return (target,)
    if isinstance(target, LogDirListing):
        for error in target.errors.values():
            raise error
        return target.partitions
    if target.name.kind != FileKind.LOG:
        raise UsageError(
            "Only logs are salvaged; all other files are rebuilt from them.",
            path=target.path,
            hint="Give a log directory, a partition directory or a .log file.",
        )
    directory = os.path.dirname(os.path.abspath(target.path))
    return (PartitionDir(directory, parse_directory_name(os.path.basename(directory)), (target,)),)


def log_dir_of(target: Target) -> str:
    """Return the log directory that a target is, or would be in."""
    path = os.path.realpath(target.path)
    depth = 0 if isinstance(target, LogDirListing) else 1 if isinstance(target, PartitionDir) else 2
    for _ in range(depth):
        path = os.path.dirname(path)
    return path


def logs_of(partition: PartitionDir) -> list[SourceLog]:
    """Return the logs of a partition by base offset.

    After an interrupted swap, these are the logs that a broker's start would find once the swap is
    completed; if there are none, the `.deleted` logs, else the `.cleaned` ones. A single file
    counts regardless of its suffix.
    """
    logs = [entry for entry in partition.files if entry.name.kind == FileKind.LOG]
    if len(partition.files) > 1:
        found = {entry.name.name: entry for entry in logs if entry.name.state == FileState.LIVE}
        swaps = {entry.name.name: entry for entry in logs if entry.name.state == FileState.SWAP}
        if swaps:
            for action in predict_start(partition, StartMode.CLEAN).actions:
                if isinstance(action, RemoveFile):
                    found.pop(action.name, None)
                elif isinstance(action, RenameFile) and action.name in swaps:
                    found[action.new_name] = swaps[action.name]
        for state in (FileState.DELETED, FileState.CLEANED):
            if not found:
                found = {one.name.name: one for one in logs if one.name.state == state}
        logs = list(found.values())
    listed = [SourceLog(log.path, log.name.offset or 0, log.size_bytes) for log in logs]
    return sorted(listed, key=lambda log: log.base_offset)


def next_epoch(following: Sequence[SourceLog]) -> int | None:
    """Return the leader epoch of the first sound batch in some logs; None without a sound batch.

    Cost:
        A few kilobytes, and the logs up to there if they begin with damage.
    """
    for log in following:
        with Source(log.path) as source:
            position = find_batch(source, 0, source.size_bytes)
            found = read_batch(source, position, source.size_bytes)
        if isinstance(found, Batch):
            return found.partition_leader_epoch if found.partition_leader_epoch >= 0 else None
    return None
