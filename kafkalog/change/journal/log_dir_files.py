"""What a directory holds before a run: its files as `stat` reports them, checkpoints and marks.

Entries of checkpoints are set and reverted one by one, since other partitions have theirs in the
same files; when all are as they were, so are the bytes: a broker leaves an empty file if there
never was an entry.

Follows `CleanShutdownFileHandler` and `LogManager.loadLogs` of Kafka: a start that finds the
mark scans nothing, and removes it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final, Self

from formats import file_names
from formats.constants import INT64_MAX
from formats.file_names import OFFSET_CHECKPOINTS, is_plain, is_topic
from formats.late_classes import dataclass
from kafkalog.errors import ChangedSinceError, RefusedError, UnsupportedError
from kafkalog.files.text_files import checkpoint_text, read_offset_checkpoint
from kafkalog.io.documents import Fields, Items, Number, Text
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.retry import tried
from kafkalog.io.storage import Changes, Step, require_no_link
from kafkalog.io.storage.files import open_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.model import CheckpointEntry


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What distinguishes a file from another of the same name; for a directory, without a size.

    Attributes:
        size_bytes: its length.
        mtime_ns: time of its last modification, in nanoseconds.
        mode: its permission bits.
        uid, gid: its owner and group.
    """

    size_bytes: int
    mtime_ns: int
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        # A directory's size depends on the file system, and on how many names it ever had.
        size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        mode = stat.S_IMODE(status.st_mode)
        return cls(size, status.st_mtime_ns, mode, status.st_uid, status.st_gid)


def _statuses(path: str) -> tuple[os.stat_result, list[tuple[str, os.stat_result]]]:
    """Return the status of a directory, and of what is in it by name."""
    with open_directory(path) as opened:
        with os.scandir(opened) as found:
            entries = [(entry.name, entry.stat(follow_symlinks=False)) for entry in found]
        return os.fstat(opened), entries


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory and its files, by name, at one moment."""

    directory: FileStatus
    files: dict[str, FileStatus]

    @classmethod
    def of(cls, path: str) -> Self:
        """List a directory as it is now.

        Raises:
            NotFoundError, UnreadableError: it cannot be listed, or is reached by a link.
            UnsupportedError: something in it is not a regular file; Kafka makes only these.
        """
        try:
            directory, entries = tried(path, _statuses, path)
        except OSError as error:
            raise reading_error(error, path) from error
        # A backup is made of hard links, which directories cannot have.
        for name, status in entries:
            if not stat.S_ISREG(status.st_mode):
                raise UnsupportedError(
                    "A backup cannot hold what is not a regular file.",
                    path=os.path.join(path, name),
                    hint="Move it away first; Kafka creates no such thing.",
                )
        files = {name: FileStatus.of(status) for name, status in sorted(entries)}
        return cls(FileStatus.of(directory), files)

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": status_fields(self.directory),
            "files": [
                {"name": name, **status_fields(status)} for name, status in self.files.items()
            ],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Make a listing from what follows `LISTING`; raise `ValueError` if a name occurs twice."""
        files = {entry["name"]: status_of(entry) for entry in fields["files"]}
        if len(files) != len(fields["files"]):
            raise ValueError("a file is listed twice")
        return cls(status_of(fields["directory"]), files)


def status_fields(status: FileStatus) -> dict[str, int]:
    return {name: getattr(status, name) for name in FileStatus.__slots__}


def status_of(fields: dict[str, Any]) -> FileStatus:
    """Make a status from an object that has at least the fields of `STATUS`."""
    return FileStatus(**{name: fields[name] for name in FileStatus.__slots__})


STATUS: Final = {
    "size_bytes": Number(),
    "mtime_ns": Number(-INT64_MAX, INT64_MAX),
    "mode": Number(0, 0o7777),
    "uid": Number(0, (1 << 32) - 1),
    "gid": Number(0, (1 << 32) - 1),
}
FILE_NAME: Final = Text(is_plain)
LISTING: Final = Fields(
    {"directory": Fields(STATUS), "files": Items(Fields({"name": FILE_NAME, **STATUS}))}
)


class PartitionOffsets:
    """The entries of one partition; each is read and written on request.

    Args:
        log_dir: the log directory; None if there are no checkpoints: all entries are missing, and
            setting one does nothing.
        topic, partition: whose entries; without a partition number all entries are missing.
        observe: called after each step on the disk.
    """

    def __init__(
        self,
        log_dir: str | None,
        topic: str,
        partition: int | None,
        observe: Callable[[Step], None] | None = None,
    ) -> None:
        self._log_dir = None if partition is None else log_dir
        self._key = (topic, partition)
        self._observe = observe

    def get(self, checkpoint: str) -> int | None:
        """Return the entry in a checkpoint. Raises `CorruptDataError` if that is malformed."""
        return self._entries(checkpoint).get(self._key)

    def all(self) -> dict[str, int | None]:
        """Return the entries by the name of the checkpoint; raises as `get`."""
        return {checkpoint: self.get(checkpoint) for checkpoint in OFFSET_CHECKPOINTS}

    def set(self, checkpoint: str, offset: int | None) -> None:
        """Replace a checkpoint by one with this entry, or without it; the other entries stay.

        After a crash it is the old one or the new one, whole. Raises as `get`, and `RefusedError`
        if Kafka does not allow the topic's name, which would break the file.
        """
        if self._log_dir is None:
            return
        entries = self._entries(checkpoint)
        # Rewriting a file that stays the same would only give it another time and owner.
        if entries.get(self._key) == offset:
            return
        entries.pop(self._key, None)
        if offset is not None:
            if not is_topic(self._key[0]):
                raise RefusedError(
                    f"No checkpoint can have an entry of {self._key[0]!a}: it is no topic.",
                    path=os.path.join(self._log_dir, checkpoint),
                )
            entries[self._key] = offset
        text = checkpoint_text([(*name, value) for name, value in entries.items()])
        Changes(self._log_dir, self._observe).replace(checkpoint, text)

    def _entries(self, checkpoint: str) -> dict[tuple[str, int | None], int]:
        if self._log_dir is None:
            return {}
        path = os.path.join(self._log_dir, checkpoint)
        if not file_system.is_there(path):
            return {}
        return {
            (found.topic, found.partition): found.offset for found in read_offset_checkpoint(path)
        }


DIRECTORY: Final = "checkpoints"
_TEMPORARY: Final = ".tmp"


def keep_checkpoints(
    log_dir: str, backup: str, observe: Callable[[Step], None] | None = None
) -> None:
    """Link the checkpoints of a log directory into a backup, before anything is changed."""
    around = Changes(backup, observe)
    if not file_system.is_there(around.path(DIRECTORY)):
        around.make_directory(DIRECTORY)
    kept = Changes(around.path(DIRECTORY), observe)
    # Whole files next to the entries in the journal: with all entries as before, the very bytes and
    # times come back (`bring_checkpoints_back`).
    for name in OFFSET_CHECKPOINTS:
        # An earlier attempt was killed before its journal had a line.
        kept.remove(name, missing_ok=True)
        path = os.path.join(log_dir, name)
        if file_system.is_there(path):
            kept.link(path, name)
    kept.sync_directory()
    around.sync_directory()


def require_checkpoints(log_dir: str, backup: str) -> None:
    """Check that `bring_checkpoints_back` could succeed; raise what it would raise."""
    kept = os.path.join(backup, DIRECTORY)
    require_no_link(kept)
    for directory in (kept, log_dir):
        for name in OFFSET_CHECKPOINTS:
            require_no_link(os.path.join(directory, name))
            _entries(os.path.join(directory, name))


def bring_checkpoints_back(
    log_dir: str, backup: str, observe: Callable[[Step], None] | None = None
) -> None:
    """Put the kept files in place of those with the same entries.

    Raises:
        CorruptDataError: a checkpoint is malformed.
        ChangedSinceError: the owner of one of them has changed.
    """
    changes = Changes(log_dir, observe)
    kept = os.path.join(backup, DIRECTORY)
    if not file_system.is_there(kept):
        return
    for name in OFFSET_CHECKPOINTS:
        before, now = os.path.join(kept, name), changes.path(name)
        # Other partitions may have moved on since: then the entries of this run were reverted one
        # by one.
        if not file_system.is_there(now) or _entries(before) != _entries(now):
            continue
        # A file of another owner in its place could keep the broker from writing it, or starting.
        _require_same_owner(before, now)
        if file_system.is_there(before):
            if os.path.samestat(file_system.status(before), file_system.status(now)):
                continue  # a rename to itself does nothing
            changes.remove(name + _TEMPORARY, missing_ok=True)
            # Linked, then renamed: a broker's start finds the old or the new file, never none.
            changes.link(before, name + _TEMPORARY)
            changes.rename(name + _TEMPORARY, name)
        else:
            changes.remove(name)
    changes.sync_directory()


def _require_same_owner(before: str, now: str) -> None:
    """Raise `ChangedSinceError` if the kept file has another owner than the current one."""
    if not file_system.is_there(before):
        return
    was, found = file_system.status(before), file_system.status(now)
    if (was.st_mode, was.st_uid, was.st_gid) != (found.st_mode, found.st_uid, found.st_gid):
        raise ChangedSinceError("The backup has changed since the run.", path=before)


def _entries(path: str) -> list[CheckpointEntry]:
    """Return the entries sorted by name: their order means nothing."""
    found = read_offset_checkpoint(path) if file_system.is_there(path) else []
    return sorted(found, key=lambda entry: (entry.topic, entry.partition))


def has_mark(log_dir: str) -> bool:
    return file_system.is_there(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN))


def keep_mark(log_dir: str, backup: str, observe: Callable[[Step], None] | None) -> None:
    """Link the mark, which must exist, into a backup."""
    kept = Changes(os.path.join(backup, DIRECTORY), observe)
    kept.remove(file_names.CLEAN_SHUTDOWN, missing_ok=True)
    # A link keeps its content, too: the broker epoch, sent at registration since Kafka 3.7
    # (KIP-966).
    kept.link(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN), file_names.CLEAN_SHUTDOWN)
    kept.sync_directory()


def remove_mark(log_dir: str, observe: Callable[[Step], None] | None) -> None:
    around = Changes(log_dir, observe)
    around.remove(file_names.CLEAN_SHUTDOWN, missing_ok=True)
    # Durable before a log is changed: a mark that comes back after a crash would make a broker
    # trust indexes and a log end that no longer fit (LogLoader.recoverLog scans nothing then).
    around.sync_directory()


def bring_mark_back(log_dir: str, backup: str, observe: Callable[[Step], None] | None) -> None:
    """Restore the kept mark, unless there is one again, after everything else is restored."""
    around = Changes(log_dir, observe)
    if not has_mark(log_dir):
        require_no_link(os.path.join(backup, DIRECTORY, file_names.CLEAN_SHUTDOWN))
        around.remove(file_names.CLEAN_SHUTDOWN + _TEMPORARY, missing_ok=True)
        kept = os.path.join(backup, DIRECTORY, file_names.CLEAN_SHUTDOWN)
        around.link(kept, file_names.CLEAN_SHUTDOWN + _TEMPORARY)
        around.rename(file_names.CLEAN_SHUTDOWN + _TEMPORARY, file_names.CLEAN_SHUTDOWN)
        around.sync_directory()
