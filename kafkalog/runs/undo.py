"""Taking back what a run did, from its journal and the files it kept."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.errors import ChangedSinceError, CorruptDataError, KafkaLogError
from kafkalog.names import parse_directory_name
from kafkalog.runs.checkpoint_files import bring_checkpoints_back, require_checkpoints
from kafkalog.runs.clean_mark import bring_mark_back, has_mark
from kafkalog.runs.journal import PartitionState, encoded, journal_path, read_journal
from kafkalog.runs.lines import MARK_REMOVED, MARK_RESTORED
from kafkalog.runs.listing import Listing
from kafkalog.runs.requirements import require_place
from kafkalog.runs.restore import offsets_of, require_unchanged, restore
from kafkalog.storage import AppendedFile, LogDirLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.runs.journal import Journal, PartitionEntry
    from kafkalog.storage import Step


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """An entry of a checkpoint, and what it becomes; None: no entry."""

    checkpoint: str
    now: int | None
    before: int | None


@dataclass(frozen=True, slots=True)
class PartitionUndo:
    """What it takes to bring one partition back to what it was before the run.

    Attributes:
        path: of its directory.
        topic: the topic, the whole name where the directory's is none of a partition.
        partition: its number.
        state: how far the run, or an earlier undoing, came.
        files_restored, bytes_restored: those that are not there, or not as they were.
        files_removed, bytes_removed: those that were not there, or otherwise.
        offsets: the entries in checkpoints that change.
    """

    path: str
    topic: str
    partition: int | None
    state: PartitionState
    files_restored: int
    bytes_restored: int
    files_removed: int
    bytes_removed: int
    offsets: tuple[OffsetChange, ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """What was done, or would be.

    Attributes:
        journal: path of the journal.
        command: what is undone.
        log_dir: the log directory; None: copied partitions were changed.
        partitions: those to bring back, the last one changed first.
    """

    journal: str
    command: str
    log_dir: str | None
    partitions: tuple[PartitionUndo, ...]


def undo(
    path: str, *, in_place: bool = False, observe: Callable[[Step], None] | None = None
) -> Undo:
    """Bring each partition that a run changed back to the bytes, owners and times it had.

    Each must be as the run left it, at whatever point that was interrupted, or as it was before.
    Nothing is changed where one is not. The mark of a clean shutdown, where the run took it away,
    comes back last, and once only. After a crash each partition is the old log or the new one,
    whole, and undoing goes on when it is called again.

    Args:
        path: the journal, or the backup it is in.
        in_place: whether it is done; else it is only said.
        observe: called after each step on the disk.

    Returns:
        What was done, or would be; without partitions where all is undone already.

    Raises:
        NotFoundError: there is no journal, no log directory, or no partition any more.
        CorruptDataError: the journal is malformed, or a checkpoint.
        RefusedError: the journal names what is no log directory, or leads through a link.
        ChangedSinceError: a partition or its backup has changed since the run.
        LogDirInUseError: a broker, or another run, has the log directory.
        UnsupportedError: the file system cannot exchange two names at once.
        UnwritableError: a step failed.

    Cost:
        Links and removals; bytes are copied only where the backup is on another file system.
    """
    path = journal_path(path)
    with ExitStack() as held:
        journal = _journal(path)
        require_place(journal.log_dir, journal.partitions)
        if journal.log_dir is not None:
            held.enter_context(LogDirLock(journal.log_dir, writes=in_place))
        file = held.enter_context(AppendedFile(path)) if in_place else None
        locked, journal = journal.log_dir, _journal(path)  # another run may have written it since
        if journal.log_dir != locked:
            raise ChangedSinceError(
                "The journal was just replaced by that of another run.", path=path
            )
        require_place(journal.log_dir, journal.partitions)
        entries = _entries(journal)
        for entry in entries:
            require_unchanged(entry, journal)
        if journal.log_dir is not None:
            require_checkpoints(journal.log_dir, journal.backup)
        planned = Undo(
            path,
            journal.command,
            journal.log_dir,
            tuple(_partition_undo(entry, journal) for entry in entries),
        )
        if file is not None:
            for entry in entries:
                restore(entry, journal, lambda fields: file.append(encoded(fields)), observe)
            if journal.log_dir is not None:
                bring_checkpoints_back(journal.log_dir, journal.backup, observe)
                if journal.lacks_mark:
                    _bring_mark_back(journal.log_dir, journal.backup, file, observe)
    return planned


def _bring_mark_back(
    log_dir: str, backup: str, file: AppendedFile, observe: Callable[[Step], None] | None
) -> None:
    """The mark of a clean shutdown, and the line that says so.

    The line comes first: a mark that comes twice, after a broker was started and killed, would keep
    it from scanning; one that never comes makes it scan too much.
    """
    file.append(encoded({"type": "mark", "state": MARK_RESTORED}))
    try:
        bring_mark_back(log_dir, backup, observe)
    except KafkaLogError:
        if not has_mark(log_dir):  # else nobody would try again
            file.append(encoded({"type": "mark", "state": MARK_REMOVED}))
        raise


def _journal(path: str) -> Journal:
    journal = read_journal(path)
    if journal is None:
        raise CorruptDataError("The journal has no complete line: nothing was done.", path=path)
    return journal


def _entries(journal: Journal) -> list[PartitionEntry]:
    """Those to bring back, the last one first."""
    entries = reversed(journal.partitions.values())
    return [entry for entry in entries if entry.state != PartitionState.UNDONE]


def _partition_undo(entry: PartitionEntry, journal: Journal) -> PartitionUndo:
    name = parse_directory_name(entry.name)
    before, now = entry.before.files, Listing.of(entry.path).files
    restored = [status for file, status in before.items() if now.get(file) != status]
    removed = [status for file, status in now.items() if before.get(file) != status]
    offsets = offsets_of(entry, journal)
    changes = [
        OffsetChange(checkpoint, offsets.get(checkpoint), entry.offsets_before[checkpoint])
        for checkpoint in sorted(entry.offsets_set)
    ]
    return PartitionUndo(
        entry.path,
        name.topic if name else entry.name,
        name.partition if name else None,
        entry.state,
        len(restored),
        sum(status.size_bytes for status in restored),
        len(removed),
        sum(status.size_bytes for status in removed),
        tuple(change for change in changes if change.now != change.before),
    )
