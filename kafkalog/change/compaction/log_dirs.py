"""Compaction over a log directory: its candidates, and a working copy of it."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import OFFSET_CHECKPOINTS, FileKind, is_staging
from kafkalog.change.compaction.candidates import filthiest_first, find_candidate
from kafkalog.change.compaction.compact import require_compactable
from kafkalog.change.compaction.model import Skip
from kafkalog.change.compaction.plan import require_known_layout
from kafkalog.change.journal.requirements import log_dir_around, require_settled
from kafkalog.errors import KafkaLogError, RefusedError, contained
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_path
from kafkalog.files.text_files import checkpoint_text
from kafkalog.io.storage import LogDirLock, NewDirectory, require_outside, require_space
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.change.compaction.model import Candidate, CompactionRequest
    from kafkalog.node.configs import TopicConfigs

# The checkpoint entries that a copied partition needs.
_COPIED_CHECKPOINTS: Final = tuple(OFFSET_CHECKPOINTS)


def find_candidates(
    partitions: Iterable[PartitionDir],
    configs_of: Callable[[str], TopicConfigs],
    request: CompactionRequest,
    *,
    take_all: bool,
    failed: Callable[[PartitionDir, KafkaLogError], None],
) -> list[Candidate]:
    """Return what can be cleaned in a log directory, in the order in which a cleaner takes it.

    Args:
        partitions: the partitions of the log directory.
        configs_of: returns the configs of a topic.
        request: as for `find_candidate`.
        take_all: as for `filthiest_first`.
        failed: called with a partition that cannot be judged, and why.
    """
    found = []
    for partition in partitions:
        if is_staging(os.path.basename(partition.path)):
            continue  # left by a killed run; the next run continues or removes it
        with contained(partition.path, partial(failed, partition)):
            candidate = find_candidate(partition, configs_of(partition.topic), request)
            if candidate.skip == Skip.NOTHING:  # an unfinished swap may hide what there is to clean
                require_settled(partition)
            found.append(candidate)
    return filthiest_first(found, take_all=take_all)


def named_candidate(
    partition: PartitionDir, configs: TopicConfigs, request: CompactionRequest
) -> Candidate:
    """Return what can be cleaned of a partition that was named, however little it is.

    Raises:
        RefusedError: it must not be compacted.
        KafkaLogError: as `find_candidate`.
    """
    require_known_layout(partition)
    candidate = find_candidate(partition, configs, request)
    require_compactable(candidate)
    return candidate


@contextmanager
def working_copy(target: LogDirListing | PartitionDir, destination: str) -> Iterator[LogDirListing]:
    """Make a working copy that becomes a log directory of its own when the block succeeds.

    The source is only read, under a lock that keeps brokers off. For a log directory, everything
    except `.lock` is copied; for a partition, the directory and its entries in the checkpoints
    around it.

    Args:
        target: what to copy.
        destination: the new log directory: a free name, or an empty directory.

    Raises:
        UsageError: the destination lies inside the source.
        RefusedError: the source has an unknown layout.
        DestinationExistsError, LogDirInUseError, UnwritableError: refused, or the disk is full.

    Cost:
        Reads and writes all of it once.
    """
    log_dir = log_dir_around(target)
    require_outside(destination, [target.path, *([] if log_dir is None else [log_dir])])
    partitions = target.partitions if isinstance(target, LogDirListing) else (target,)
    partitions = tuple(one for one in partitions if not is_staging(os.path.basename(one.path)))
    if isinstance(target, LogDirListing):
        _require_whole(target)
    # A copy of a log that a broker appends to would be torn in many places.
    with nullcontext() if log_dir is None else LogDirLock(log_dir):
        require_space(destination, sum(partition.size_bytes for partition in partitions))
        with NewDirectory(destination, target.path) as directory:
            for partition in partitions:
                name = os.path.basename(os.path.abspath(partition.path))
                directory.make(name)
                for entry in partition.files:
                    _copy(entry, directory, f"{name}/{entry.name.name}")
            if isinstance(target, LogDirListing):
                for entry in target.files:
                    # The lock is on the file of that directory; the copy gets its own.
                    if entry.name.kind != FileKind.LOCK:
                        _copy(entry, directory, entry.name.name)
            else:
                _copy_offsets(target, directory)
            copy = open_path(directory.building)
            assert isinstance(copy, LogDirListing), "it holds a partition"
            yield copy
            # Made by the run on the copy; a broker makes its own, as its own user.
            directory.remove(file_names.LOCK)


def _require_whole(log_dir: LogDirListing) -> None:
    for path, error in log_dir.errors.items():
        raise RefusedError(f"The partition cannot be copied: {error.message}", path=path)
    for name in log_dir.others:
        raise RefusedError(
            "This is not a partition, and a broker would start on a copy neither with it nor "
            "without it.",
            path=os.path.join(log_dir.path, name),
            hint="Name one partition, or move it elsewhere.",
        )


def _copy(entry: FileEntry, directory: NewDirectory, name: str) -> None:
    """Copy a file with its times, owner and permissions."""
    if entry.error is not None:
        raise RefusedError(f"The file cannot be copied: {entry.error}", path=entry.path)
    directory.copy(entry.path, name, entry.modified_timestamp, clones=False, like=entry.path)


def _copy_offsets(partition: PartitionDir, directory: NewDirectory) -> None:
    if partition.partition is None:
        return
    log = UnifiedLog(partition)
    for name in _COPIED_CHECKPOINTS:
        offset = log.checkpoint(name)
        # A missing entry has a meaning, as 0 or as the log start: it is not made up.
        if offset is not None:
            entry = (partition.topic, partition.partition, offset)
            directory.write(name, checkpoint_text([entry]))
