"""The backup of a run: the files it touches, under a second name, and its journal."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from formats import file_names
from kafkalog.change.journal.journal import (
    BEGINS,
    JOURNAL_NAME,
    Journal,
    PartitionEntry,
    PartitionState,
    encoded,
    parsed_line,
    read_journal,
)
from kafkalog.change.journal.log_dir_files import Listing, keep_checkpoints
from kafkalog.errors import DestinationExistsError, RefusedError, UnwritableError, UsageError
from kafkalog.io.paths import file_system
from kafkalog.io.storage import AppendedFile, Changes, Step, require_space
from kafkalog.model import present_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.files.log_dir import PartitionDir


class Backup:
    """A directory with the journal of a run and the files it removes, replaces or cuts.

    Files are kept by hard links, by copies across file systems. Use it as a context manager, within
    the lock of the log directory. If the directory has the journal of the same command on
    the same log directory, that run is resumed.

    Args:
        path: the directory, created if missing; outside of any log directory.
        log_dir: the log directory; None if copied partitions are changed.
        arguments: of the command, for the journal alone.
        observe: called after each step on the disk.

    Raises:
        UsageError: the backup is in a log directory.
        DestinationExistsError: something else is there, or the journal of another run.
        CorruptDataError: the journal is malformed.
        UnwritableError: it cannot be written.
    """

    def __init__(
        self,
        path: str,
        command: str,
        log_dir: str | None,
        arguments: Sequence[str] = (),
        observe: Callable[[Step], None] | None = None,
    ) -> None:
        self.path = os.path.realpath(path)
        self._log_dir = None if log_dir is None else os.path.realpath(log_dir)
        self._command = command
        self._arguments = list(arguments)
        self._observe = observe
        self._held = ExitStack()

    def __enter__(self) -> Self:
        _require_outside(self.path, self._log_dir)
        self._make()
        journal = os.path.join(self.path, JOURNAL_NAME)
        with ExitStack() as held:
            # Opened, and so locked, before it is read: another run with this backup cannot append
            # meanwhile.
            self._file = held.enter_context(AppendedFile(journal, BEGINS))
            found = read_journal(journal)
            if found is not None and not found.is_of(self._command, self._log_dir):
                raise _another_run(journal, found)
            self.journal = found or Journal(journal, self._command, self._log_dir)
            if found is None and self._log_dir is not None:
                # Only in the first run: a resumed one would keep the entries that the killed run
                # has changed.
                keep_checkpoints(self._log_dir, self.path, self._observe)
            # After the checkpoints are kept: a journal with a line promises that `undo` has all it
            # needs.
            self._append(self._run_line())
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def note(self, fields: dict[str, object]) -> None:
        """Append a line to the journal, and sync it before anything else happens."""
        self.journal.require(fields)
        self._append(fields)
        self.journal.note(fields)

    def begin(
        self, partition: PartitionDir, touched: Iterable[str], offsets: dict[str, int | None]
    ) -> PartitionEntry:
        """Keep the files of a partition that will be touched, and note that it is in progress.

        Raises:
            UnwritableError: they cannot be kept with their owner, permissions and times.
            UnsupportedError: something in the partition is not a regular file.
            RefusedError: `undo` would reject the journal because of the names in it.
        """
        path = os.path.realpath(partition.path)
        _require_outside(self.path, path)
        name, before = os.path.basename(path), Listing.of(path)
        if self._log_dir is None and any(other != path for other in self.journal.partitions):
            raise _another_run(self.journal.path, self.journal)
        kept = tuple(sorted(set(touched) & set(before.files)))
        kept_in = self._vacant(name)
        entry = PartitionEntry(
            name, path, PartitionState.IN_PROGRESS, before, offsets, kept, kept_in
        )
        # Before a file is linked: what `undo` would refuse to read must not become a backup.
        self._require_undoable(entry)
        # Files first, then the line: a crash in between leaves links that nobody refers to, never a
        # line without its files.
        self._keep(path, kept, kept_in, before)
        self.note(entry.to_json())
        return self.journal.partitions[path]

    def _require_undoable(self, entry: PartitionEntry) -> None:
        try:
            # By way of the bytes, as `undo` will read it: the limit of a line shows only there.
            self.journal.require(parsed_line(encoded(entry.to_json())))
        except ValueError as error:
            raise RefusedError(
                f"The run could not be undone: in its journal, {error}.",
                path=entry.path,
                note="Nothing was changed.",
                hint="Work on a copy, without --backup.",
            ) from error

    def _keep(self, path: str, kept: tuple[str, ...], kept_in: str, before: Listing) -> None:
        around = Changes(self.path, self._observe)
        if file_system.status(self.path).st_dev != file_system.status(path).st_dev:
            size = sum(before.files[name].size_bytes for name in kept)
            require_space(around.path(kept_in), size)
        around.make_directory(kept_in)
        inner = Changes(around.path(kept_in), self._observe)
        for name in kept:
            inner.link(os.path.join(path, name), name)
        # From the inside out: the entries are durable before the name that leads to them.
        inner.sync_directory()
        around.sync_directory()
        if Listing.of(inner.directory).files != {name: before.files[name] for name in kept}:
            raise UnwritableError(
                "The copies cannot keep the owners, permissions and times of the files.",
                path=inner.directory,
                note="The partition was not changed.",
                hint="Name a directory on the file system of the log, or run it as root.",
            )

    def _make(self) -> None:
        """Create the directory; an existing one must be empty, or have a journal."""
        if not file_system.is_there(self.path):
            # The first of several runs also makes the directory that holds the backups of all.
            for path in (os.path.dirname(self.path), self.path):
                if not file_system.is_there(path):
                    around = Changes(os.path.dirname(path), self._observe)
                    around.make_directory(os.path.basename(path))
                    around.sync_directory()
            return
        try:
            names = file_system.names(self.path)
        except OSError as error:
            raise DestinationExistsError(
                "It exists, and is not a readable directory.", path=self.path
            ) from error
        # Links with names like those of the files there would fail halfway, or be mixed up with
        # them.
        if names and JOURNAL_NAME not in names:
            raise DestinationExistsError(
                "The directory is not empty, and has no journal of a run to continue.",
                path=self.path,
                hint="Choose a new directory.",
            )

    def _vacant(self, name: str) -> str:
        """Return a free name for a partition's files; an earlier attempt may have used one."""
        number, found = 1, name
        # Never into the old directory: the journal may refer to it, and its files may be other
        # ones.
        while file_system.is_there(os.path.join(self.path, found)):
            number += 1
            found = f"{name}.{number}"
        return found

    def _run_line(self) -> dict[str, object]:
        from importlib.metadata import version  # only a run with a backup needs it

        return {
            "type": "run",
            "command": self._command,
            "version": version("kafkalog"),
            "log_dir": self._log_dir,
            "arguments": self._arguments,
            "time_ms": present_ms(),
        }

    def _append(self, fields: dict[str, object]) -> None:
        self._file.append(encoded(fields))


def _require_outside(path: str, directory: str | None) -> None:
    """Raise if a path is in a directory, or in any log directory of a broker."""
    # Up to the root, not only next to it: in a log directory, a broker stops at any directory whose
    # name is no partition's (LogManager.loadLogs).
    parent = path
    while True:
        is_log_dir = parent != path and file_system.is_there(
            os.path.join(parent, file_names.META_PROPERTIES)
        )
        if parent == directory or is_log_dir:
            raise UsageError(
                "The backup cannot be in a log directory: a broker would not start on it.",
                path=path,
                hint=f"Choose a directory next to {parent}, preferably on the same file system.",
            )
        if parent == os.path.dirname(parent):
            return
        parent = os.path.dirname(parent)


def require_no_journal(path: str) -> None:
    """Check that a directory, which will hold several backups, is not a backup itself.

    Raises:
        DestinationExistsError: it has a journal.
    """
    journal = os.path.join(path, JOURNAL_NAME)
    if file_system.is_there(journal) and (found := read_journal(journal)) is not None:
        raise _another_run(journal, found)


def _another_run(path: str, journal: Journal) -> DestinationExistsError:
    what = journal.log_dir or ", ".join(journal.partitions) or "no partition"
    return DestinationExistsError(
        f"The journal belongs to another run: `{journal.command}` on {what}.",
        path=path,
        hint="Choose a new directory.",
    )
