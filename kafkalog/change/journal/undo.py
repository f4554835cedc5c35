"""Undo a run, from its journal and its backup."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import FileKind, FileState, is_known, parse_directory_name, parse_file_name
from formats.late_classes import dataclass
from kafkalog.change.journal import top_files
from kafkalog.change.journal.journal import (
    BEGINS,
    PartitionState,
    encoded,
    journal_path,
    name_beside,
    read_journal,
    state_line,
)
from kafkalog.change.journal.log_dir_files import (
    FileStatus,
    Listing,
    PartitionOffsets,
    bring_checkpoints_back,
    require_checkpoints,
)
from kafkalog.change.journal.requirements import require_place
from kafkalog.errors import ChangedSinceError, CorruptDataError, KafkaLogError, UnwritableError
from kafkalog.io.paths import file_system
from kafkalog.io.storage import AppendedFile, Changes, LogDirLock, Step, require_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.change.journal.journal import Journal, PartitionEntry


_INDEXED = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)


def require_unchanged(entry: PartitionEntry, journal: Journal) -> None:
    """Check that a partition is as a run left it, or as it was before.

    An interrupted run may have stopped at any point: each file must be one that was there
    before or that the run made. A broker that starts changes the indexes it appends to, at least.

    Raises:
        ChangedSinceError: somebody else has changed the partition, its entries or its backup.
        NotFoundError, UnreadableError: it cannot be listed.
    """
    now = Listing.of(entry.path).files
    if now != entry.before.files:
        odd = _odd_file(entry, now)
        if odd is not None:
            raise ChangedSinceError(
                "The partition has changed since the run.",
                path=os.path.join(entry.path, odd),
                note="Undoing would lose what was written since.",
                hint=f"The files it had are in {os.path.join(journal.backup, entry.kept_in)}.",
            )
        # Only if it is needed: a partition that is as before needs no file from the backup.
        _require_backup(entry, journal)
    _require_no_strangers(entry, now)
    offsets = offsets_of(entry, journal)
    for checkpoint, set_to in entry.offsets_set.items():
        if offsets.get(checkpoint) not in {entry.offsets_before[checkpoint], *set_to}:
            raise ChangedSinceError(
                f"The entry of {entry.name} has changed since the run.",
                path=os.path.join(journal.log_dir or "", checkpoint),
            )


def restore(
    entry: PartitionEntry,
    journal: Journal,
    note: Callable[[dict[str, object]], None],
    observe: Callable[[Step], None] | None,
) -> None:
    """Restore a partition to its state before the run.

    The old directory is built of hard links next to the partition, under a name that a broker takes
    for a deleted partition; then the two exchange names atomically; then the other one is removed.
    Entries in checkpoints are set before that if valid for both logs, else after. After a crash
    there is the old log or the new one, whole; it can be repeated.

    Args:
        entry: the partition; `require_unchanged` holds for it.
        note: adds a line to the journal.
        observe: called after each step on the disk.

    Raises:
        UnsupportedError: the file system cannot exchange two names at once; nothing was changed.
        UnwritableError: a step failed; a repeated call continues.
    """
    around = Changes(os.path.dirname(entry.path), observe)
    offsets = offsets_of(entry, journal, observe)
    if entry.beside is not None:
        # An interrupted undo built it, or left it after the exchange: it holds links only, see
        # `_require_no_strangers`.
        _remove_tree(around, entry.beside)
    beside = name_beside(entry.name)
    # Before the directory is made: a repeated undo knows which directory it may remove.
    note(state_line(entry, PartitionState.UNDOING, beside=beside))
    first, last = _changed_offsets(entry, offsets)
    if Listing.of(entry.path).files != entry.before.files:
        try:
            _build(around, beside, entry, journal)
            _exchange(around, beside, entry, offsets, first)
        except KafkaLogError:
            _remove_tree(around, beside)
            raise
        around.sync_directory()  # else a crash could remove the log in use
        _remove_tree(around, beside)
    for checkpoint in (*first, *last):
        offsets.set(checkpoint, entry.offsets_before[checkpoint])
    note(state_line(entry, PartitionState.UNDONE))


def offsets_of(
    entry: PartitionEntry, journal: Journal, observe: Callable[[Step], None] | None = None
) -> PartitionOffsets:
    """Return the partition's entries in the checkpoints of the journal's log directory."""
    name = parse_directory_name(entry.name)
    topic, number = (name.topic, name.partition) if name else (entry.name, None)
    return PartitionOffsets(journal.log_dir, topic, number, observe)


def _odd_file(entry: PartitionEntry, now: dict[str, FileStatus]) -> str | None:
    """Return a file that was neither there before nor made by the run, if any."""
    before = entry.before.files
    untouched = set(before) - set(entry.kept)
    gone = _first(name for name in untouched if before[name] != now.get(name))
    if gone is not None:
        return gone
    if entry.after is not None:
        after = entry.after.files
        return _first(name for name in {*after, *now} if after.get(name) != now.get(name))
    return _first(
        name for name, status in now.items() if status not in _known(entry) and _is_served(name)
    )


def _known(entry: PartitionEntry) -> set[FileStatus]:
    """Return the files that existed before or were made by the run, under any name."""
    after = entry.after.files.values() if entry.after is not None else ()
    return {*entry.before.files.values(), *after, *entry.made}


def _require_no_strangers(entry: PartitionEntry, now: dict[str, FileStatus]) -> None:
    """Check that undo would remove only files that a run has made.

    Undo removes files that were not there before, and the directory that an earlier undo left.
    """
    found = {entry.path: now}
    if entry.beside is not None:
        beside = os.path.join(os.path.dirname(entry.path), entry.beside)
        if file_system.is_there(beside):
            found[beside] = Listing.of(beside).files
    for directory, files in found.items():
        for name, status in files.items():
            is_ours = name in entry.before.files or is_known(name)
            if directory != entry.path and _is_served(name):
                is_ours = status in _known(entry)
            if not is_ours:
                raise ChangedSinceError(
                    "No run created this file, and undoing would remove it.",
                    path=os.path.join(directory, name),
                    hint="Move it elsewhere first.",
                )


def _is_served(name: str) -> bool:
    """Return whether a broker reads records by it, as it does not from unfinished files."""
    parsed = parse_file_name(name)
    return parsed.kind in _INDEXED and parsed.state == FileState.LIVE


def _first(names: Iterable[str]) -> str | None:
    return min(names, default=None)


def _require_backup(entry: PartitionEntry, journal: Journal) -> None:
    directory = os.path.join(journal.backup, entry.kept_in)
    files = Listing.of(directory).files
    for name in entry.kept:
        if files.get(name) != entry.before.files[name]:
            raise ChangedSinceError(
                "The backup has changed since the run.", path=os.path.join(directory, name)
            )


def _changed_offsets(
    entry: PartitionEntry, offsets: PartitionOffsets
) -> tuple[list[str], list[str]]:
    """Return the checkpoints whose entries change before the files, and those after.

    Before: entries that become lower, or are removed, which is right for both logs. The log start
    always comes after: it hides what an interrupted run had not removed yet.
    """
    first: list[str] = []
    last: list[str] = []
    for checkpoint in entry.offsets_set:
        before, now = entry.offsets_before[checkpoint], offsets.get(checkpoint)
        is_lower = before is None or (now is not None and before < now)
        is_first = is_lower and checkpoint != file_names.LOG_STARTS
        (first if is_first else last).append(checkpoint)
    return first, last


def _build(around: Changes, beside: str, entry: PartitionEntry, journal: Journal) -> None:
    """Build the directory as it was, under another name. Each log comes after its indexes.

    A broker that starts meanwhile rebuilds missing indexes, and what it cuts off such a log would
    be lost under all names of the file.
    """
    kept, kept_in = set(entry.kept), os.path.join(journal.backup, entry.kept_in)
    if file_system.status(kept_in).st_dev != file_system.status(entry.path).st_dev:
        size = sum(entry.before.files[name].size_bytes for name in kept)
        require_space(entry.path, size)
    around.make_directory(beside, like=entry.path)
    inner = Changes(around.path(beside), around.observe)
    for name in sorted(entry.before.files, key=lambda name: (_is_log(name), name)):
        inner.link(os.path.join(kept_in if name in kept else entry.path, name), name)
    inner.set_times(entry.before.directory.mtime_ns)
    inner.sync_directory()
    around.sync_directory()
    # A file that the broker's user cannot open keeps the broker from starting; better not restored.
    if Listing.of(inner.directory) != entry.before:
        raise UnwritableError(
            "The owners, permissions and times of the files cannot be restored.",
            path=entry.path,
            note="Nothing was changed.",
            hint="Run it as root, or as the user who owns them.",
        )


def _exchange(
    around: Changes, beside: str, entry: PartitionEntry, offsets: PartitionOffsets, first: list[str]
) -> None:
    """Put the directory in place, some entries first; these are reverted if it fails."""
    before = {checkpoint: offsets.get(checkpoint) for checkpoint in first}
    try:
        for checkpoint in first:
            offsets.set(checkpoint, entry.offsets_before[checkpoint])
        around.exchange(beside, entry.name)
    except KafkaLogError:
        for checkpoint, offset in before.items():
            offsets.set(checkpoint, offset)
        raise


def _remove_tree(around: Changes, name: str) -> None:
    """Remove an unneeded partition directory, logs first: no log may lack its index."""
    path = around.path(name)
    if not file_system.is_there(path):
        return
    inner = Changes(path, around.observe)
    for file in sorted(file_system.names_in(path), key=lambda file: (not _is_log(file), file)):
        inner.remove(file)
    around.remove_directory(name)
    around.sync_directory()


def _is_log(name: str) -> bool:
    return parse_file_name(name).kind == FileKind.LOG


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """An entry of a checkpoint, and its new value; None for no entry."""

    checkpoint: str
    now: int | None
    before: int | None


@dataclass(frozen=True, slots=True)
class PartitionUndo:
    """The changes that restore one partition to its state before the run.

    Attributes:
        topic: the topic, or the whole name if the directory is not named as a partition.
        state: how far the run, or an earlier undo, came.
        reason: why the run gave it up; None if it did not.
        restored_files, restored_bytes: those that are missing or different.
        removed_files, removed_bytes: those that were not there, or were different.
        offsets: the entries in checkpoints that change.
    """

    path: str
    topic: str
    partition: int | None
    state: PartitionState
    reason: str | None
    restored_files: int
    restored_bytes: int
    removed_files: int
    removed_bytes: int
    offsets: tuple[OffsetChange, ...]


@dataclass(frozen=True, slots=True)
class Undo:
    """What was done, or would be.

    Attributes:
        journal: path of the journal.
        command: the command that is undone.
        log_dir: the log directory; None if copied partitions were changed.
        partitions: those to restore, the last one changed first.
        files: names of files at the top of the log directory to restore.
    """

    journal: str
    command: str
    log_dir: str | None
    partitions: tuple[PartitionUndo, ...]
    files: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of partitions and files at the top to restore."""
        return len(self.partitions) + len(self.files)

    @property
    def is_empty(self) -> bool:
        """Whether everything is restored."""
        return not self.count


def undo(
    path: str | os.PathLike[str],
    *,
    in_place: bool = False,
    observe: Callable[[Step], None] | None = None,
) -> Undo:
    """Do what `kafkalog.undo` describes, and raise as it does.

    A clean shutdown mark that the run removed is restored last, and only once.

    Args:
        path: the journal, or the backup it is in.
        in_place: whether to make the changes; else only report them.
        observe: called after each step on the disk.

    Returns:
        What was done, or would be; without partitions and files if everything is restored.

    Cost:
        Links and removals; bytes are copied only if the backup is on another file system.
    """
    path = journal_path(os.fspath(path))
    with ExitStack() as held:
        journal = _journal(path)
        require_place(journal.log_dir, journal.partitions)
        if journal.log_dir is not None:
            # The journal says which directory to lock, so it is read once before and once behind
            # the lock.
            held.enter_context(LogDirLock(journal.log_dir, writes=in_place))
        file = held.enter_context(AppendedFile(path, BEGINS)) if in_place else None
        locked, journal = journal.log_dir, _journal(path)  # another run may have written it since
        if journal.log_dir != locked:
            raise ChangedSinceError(
                "The journal was just replaced by that of another run.", path=path
            )
        require_place(journal.log_dir, journal.partitions)
        entries = _entries(journal)
        # All checks before the first change: either everything can be restored, or nothing is
        # touched.
        for entry in entries:
            require_unchanged(entry, journal)
        if journal.log_dir is not None:
            require_checkpoints(journal.log_dir, journal.backup)
            top_files.require_tops(journal)
        planned = Undo(
            path,
            journal.command,
            journal.log_dir,
            tuple(_partition_undo(entry, journal) for entry in entries),
            tuple(sorted(journal.tops)),
        )
        if file is not None:
            # From here on no broker starts until the last file is back.
            top_files.close_log_dir(journal, observe)
            for entry in entries:
                restore(entry, journal, lambda fields: file.append(encoded(fields)), observe)
            if journal.log_dir is not None:
                # After the entries were reverted one by one, so that equal files can be recognized.
                bring_checkpoints_back(journal.log_dir, journal.backup, observe)
            top_files.bring_tops_back(journal, file, observe)
            # Last: a mark says that everything else is complete, and a broker would not check it.
            top_files.bring_the_mark_back(journal, file, observe)
    return planned


def _journal(path: str) -> Journal:
    journal = read_journal(path)
    if journal is None:
        raise CorruptDataError("The journal has no complete line: nothing was done.", path=path)
    return journal


def _entries(journal: Journal) -> list[PartitionEntry]:
    """Return the partitions to restore, the last one first."""
    # Backwards, as a transaction is rolled back.
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
        entry.reason,
        len(restored),
        sum(status.size_bytes for status in restored),
        len(removed),
        sum(status.size_bytes for status in removed),
        tuple(change for change in changes if change.now != change.before),
    )
