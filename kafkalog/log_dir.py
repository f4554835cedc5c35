"""Log directories, partition directories and segments as they are on disk, in any state.

Follows `LogManager`, `LogLoader` and `LogSegments` of Kafka 4.3 in which files belong together.
Listing never fails because of one odd entry: an entry that cannot be read is listed with its error.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import (
    INDEX_KINDS,
    DirectoryName,
    DirectoryState,
    FileKind,
    FileName,
    FileState,
    parse_directory_name,
    parse_file_name,
)
from kafkalog.errors import (
    FileChangedError,
    KafkaLogError,
    NotAKafkaFileError,
    NotFoundError,
    UsageError,
)
from kafkalog.parents import Parent, is_partition, log_dirs_below, may_be_partition
from kafkalog.paths import file_system
from kafkalog.paths.reading_errors import reading_error
from kafkalog.paths.source import BLOCK_SIZE

if TYPE_CHECKING:
    from kafkalog.model import AbortedTransaction, LogSurvey
    from kafkalog.recovery.model import LoadedLog

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
_A_DIRECTORY = "a directory"
_LISTINGS_MAX = 8
_LASTING = (FileState.LIVE, FileState.SWAP)
_TOP = (FileKind.META_PROPERTIES, FileKind.OFFSET_CHECKPOINT, FileKind.CLEAN_SHUTDOWN)
_NAMED_MAX = 5  # names in a hint


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a directory.

    Attributes:
        path: where it is.
        name: its parsed name; in a view (`kafkalog.view`) the name that it has there.
        size_bytes: its length.
        mtime_ms: time of its last modification.
        error: why nothing else is known about it.
        hole_bytes: how much of its length is holes, which take no room on the disk.
        disk_bytes: the blocks that it occupies; its length in an object store.
        inode: tells it from a later file of its name; 0 if the file system has no such number.
        end: the position at which a view cuts it off; None if all of it is shown.
        is_stale: whether a start would rewrite this index; readers verify all that it answers.
        survey: what its batches show, if this run has read all of them and there are some.
    """

    path: str
    name: FileName
    size_bytes: int = 0
    mtime_ms: int = 0
    error: str | None = None
    hole_bytes: int = 0
    inode: int = 0
    end: int | None = None
    is_stale: bool = False
    disk_bytes: int = 0
    survey: LogSurvey | None = field(default=None, compare=False)

    @property
    def used_bytes(self) -> int:
        """The length, without the slots that a broker preallocated if it is an index."""
        is_index = self.name.kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
        return self.size_bytes - self.hole_bytes if is_index else self.size_bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """One live segment: its log and its existing indexes.

    `next_base_offset` is the base offset of the segment that follows, None for the active segment.
    """

    base_offset: int
    log: FileEntry
    offset_index: FileEntry | None
    time_index: FileEntry | None
    transaction_index: FileEntry | None
    next_base_offset: int | None

    @property
    def is_active(self) -> bool:
        """Whether this is the segment that a broker appends to."""
        return self.next_base_offset is None

    @property
    def files(self) -> list[FileEntry]:
        """Its log, then its existing indexes."""
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        return [self.log, *(entry for entry in indexes if entry is not None)]


@dataclass(frozen=True)
class PartitionDir:
    """One partition directory.

    Attributes:
        path: the directory.
        name: its parsed name, None if it is not a partition's name (a copy, say).
        files: every file in it, by name.
        directories: names of the directories in it, which Kafka never makes.
        loaded: what a broker would know of the log, if a view shows it as after a start.
        aborted: by base offset of their segment, the contents of the transaction indexes that a
            start would rewrite with other bytes.
    """

    path: str
    name: DirectoryName | None
    files: tuple[FileEntry, ...]
    directories: tuple[str, ...] = ()
    loaded: LoadedLog | None = None
    aborted: tuple[tuple[int, tuple[AbortedTransaction, ...]], ...] = ()

    @property
    def log_dir(self) -> str:
        """The directory around it, as the path was given."""
        return os.path.dirname(self.path) or os.curdir

    @property
    def topic(self) -> str:
        """The topic; the directory's whole name if that is not a partition's name."""
        return self.name.topic if self.name else os.path.basename(file_system.absolute(self.path))

    @property
    def partition(self) -> int | None:
        """The partition's number, None if the name has none."""
        return self.name.partition if self.name else None

    @property
    def state(self) -> DirectoryState:
        """Whether the partition is live, being deleted, moving here, or stray."""
        return self.name.state if self.name else DirectoryState.LIVE

    def live(self, kind: FileKind) -> list[FileEntry]:
        """Return the live files of one kind, by offset, then by name."""
        found = [
            entry
            for entry in self.files
            if entry.name.kind == kind
            and entry.name.state == FileState.LIVE
            and entry.name.segment_id is None
        ]
        return sorted(found, key=lambda entry: (entry.name.offset or 0, entry.name.name))

    @property
    def other_logs(self) -> list[FileEntry]:
        """The logs of segments that are not live, by offset, then by name."""
        found = [
            entry
            for entry in self.files
            if entry.name.kind == FileKind.LOG and entry.name.state != FileState.LIVE
        ]
        return sorted(found, key=lambda entry: (entry.name.offset or 0, entry.name.name))

    @property
    def left_overs(self) -> list[FileEntry]:
        """The `.deleted` files: nothing reads them, and the next start of a broker removes them.

        They stay when a broker stops within `file.delete.delay.ms` of a deletion or a compaction.
        """
        return [entry for entry in self.files if entry.name.name.endswith(file_names.DELETED)]

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The live segments by base offset."""
        indexes = {
            kind: {entry.name.offset: entry for entry in self.live(kind)} for kind in INDEX_KINDS
        }
        logs = self.live(FileKind.LOG)
        following = [*(entry.name.offset for entry in logs[1:]), None]
        return tuple(
            Segment(
                base_offset=log.name.offset or 0,
                log=log,
                offset_index=indexes[FileKind.OFFSET_INDEX].get(log.name.offset),
                time_index=indexes[FileKind.TIME_INDEX].get(log.name.offset),
                transaction_index=indexes[FileKind.TRANSACTION_INDEX].get(log.name.offset),
                next_base_offset=next_base,
            )
            for log, next_base in zip(logs, following[: len(logs)], strict=True)
        )

    @property
    def size_bytes(self) -> int:
        """Length of all files in bytes, including the holes of sparse files."""
        return sum(entry.size_bytes for entry in self.files)


@dataclass(frozen=True)
class LogDirListing:
    """What is in one log directory, an entry of `log.dirs`.

    Attributes:
        path: the directory.
        files: the files at its top, by name.
        partitions: its partition directories, by name.
        others: its other directories, such as `remote-log-index-cache`.
        errors: path to error of the entries that could not be listed.
    """

    path: str
    files: tuple[FileEntry, ...]
    partitions: tuple[PartitionDir, ...]
    others: tuple[str, ...] = ()
    errors: dict[str, KafkaLogError] = field(default_factory=dict)

    def file(self, name: str) -> FileEntry | None:
        """Return the file with a name at the top of the directory, or None."""
        return next((entry for entry in self.files if entry.name.name == name), None)


@dataclass(frozen=True, slots=True)
class LogDirTop:
    """A log directory whose partitions are not listed: the files and directories at its top."""

    path: str
    files: tuple[FileEntry, ...]
    directories: tuple[str, ...]


def open_path(path: str) -> LogDirListing | PartitionDir | FileEntry:
    """Open the log directory, the partition directory or the single file at a path.

    Raises:
        NotFoundError: the path does not exist.
        UnreadableError: it cannot be listed.
        NotAKafkaFileError: it exists, but it is nothing that Kafka writes, or it is a parent of log
            directories.
    """
    found = open_any(path)
    if isinstance(found, Parent):
        names = ", ".join(found.names[:_NAMED_MAX])
        names += ", …" if len(found.log_dirs) > _NAMED_MAX else ""
        raise NotAKafkaFileError(
            "The directory holds log directories; one path is needed here.",
            path=found.path,
            hint=f"Name one of them: {names}.",
        )
    return found


def open_any(path: str) -> LogDirListing | PartitionDir | FileEntry | Parent:
    """Open what is at a path as `open_path` does, or return that it is a parent of log dirs."""
    return _log_dir(found) if isinstance(found := look_at(path), LogDirTop) else found


def look_at(path: str) -> LogDirTop | PartitionDir | FileEntry | Parent:
    """Say what is at a path without listing the partitions of a log directory.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.
    """
    path = file_system.normalize(path)
    try:
        status = file_system.stat(path)
    except OSError as error:
        raise reading_error(error, path) from error
    except ValueError as error:
        raise NotFoundError("The path cannot name a file.", path=path) from error
    return _directory(path) if stat.S_ISDIR(status.st_mode) else _file(path)


def _file(path: str) -> FileEntry:
    entry = _file_entry(path, os.path.basename(path))
    if entry is None:
        raise NotFoundError("No such file or directory.", path=path)
    if entry.error is not None:
        raise NotAKafkaFileError(entry.error, path=path)
    if entry.name.kind == FileKind.UNKNOWN:
        raise NotAKafkaFileError(
            "Kafka gives no file this name.",
            path=path,
            hint="Segments are called 00000000000000000000.log and so on; a copy needs the "
            "original name.",
        )
    return entry


def _directory(path: str) -> LogDirTop | PartitionDir | Parent:
    files, directories = _list(path)
    name = parse_directory_name(os.path.basename(file_system.absolute(path)))
    partitions = _partition_names(directories)
    top = LogDirTop(path, files, directories)
    if any(entry.name.kind in _TOP for entry in files):
        return top
    if any(entry.name.offset is not None for entry in files):
        return PartitionDir(path, name, files, directories)
    # Folders of brokers may have names like partitions, such as broker-1.
    if not any(is_partition(os.path.join(path, one)) for one in partitions):
        is_known = any(entry.name.kind != FileKind.UNKNOWN for entry in files)
        has_cache = file_names.REMOTE_INDEX_CACHE in directories
        if not (is_known or has_cache) and (below := log_dirs_below(path, directories)):
            return Parent(path, tuple(below))
    if name is not None and not partitions:
        return PartitionDir(path, name, files, directories)
    if file_names.REMOTE_INDEX_CACHE in directories:
        return top
    if any(may_be_partition(os.path.join(path, one)) for one in partitions):
        return top
    raise NotAKafkaFileError(
        "The directory holds neither partitions nor segments.",
        path=path,
        hint="Give a log directory (an entry of log.dirs), a partition directory such as orders-0, "
        "or one file.",
    )


def open_partition(path: str) -> PartitionDir:
    """Return the partition directory at a path. Raises the errors of `open_path`."""
    found = open_path(path)
    if isinstance(found, PartitionDir):
        return found
    one_log(found)
    raise UsageError(
        "This is a file, not a partition directory.",
        path=path,
        hint="Give its partition directory.",
    )


def list_partition(path: str) -> PartitionDir:
    """List a directory that is known to be a partition's, whatever it contains.

    Raises:
        NotFoundError, UnreadableError: it cannot be listed.
    """
    return PartitionDir(path, parse_directory_name(os.path.basename(path)), *_list(path))


def one_log(target: LogDirListing | PartitionDir | FileEntry) -> PartitionDir | FileEntry:
    """Return the target if it stands for a single log.

    Raises:
        UsageError: it is a log directory, which holds many logs.
    """
    if isinstance(target, LogDirListing):
        raise UsageError(
            "This is a log directory: name one of its partitions, or a file.",
            path=target.path,
            hint=f"`kafkalog ls {target.path}` lists them.",
        )
    return target


def open_remote_index_cache(path: str) -> tuple[FileEntry, ...]:
    """Return the files of a `remote-log-index-cache` directory, by name."""
    return _list(path)[0]


def _partition_names(directories: tuple[str, ...]) -> list[str]:
    return [name for name in directories if parse_directory_name(name)]


def _log_dir(top: LogDirTop) -> LogDirListing:
    path, files, directories = top.path, top.files, top.directories
    partitions, others, errors = [], [], {}
    if _partition_names(directories):
        file_system.prefetch_listing(path)
    for directory in directories:
        if parse_directory_name(directory) is None:
            others.append(directory)
            continue
        inner = os.path.join(path, directory)
        try:
            partitions.append(list_partition(inner))
        except KafkaLogError as error:
            if file_system.exists(inner):  # if it is gone, a broker deleted or renamed it meanwhile
                errors[inner] = error
    return LogDirListing(path, files, tuple(partitions), tuple(others), errors)


def _list(path: str) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Return the files and directories in a directory, listed again if names change meanwhile.

    A broker renames files while they are listed, and seeing half of a swap would hide a segment.

    Raises:
        FileChangedError: at each attempt an entry disappeared before it was looked at.
    """
    whole: list[FileEntry] | None = None
    names = _names(path)
    for _ in range(_LISTINGS_MAX):
        entries = [_file_entry(os.path.join(path, name), name) for name in names]
        there = [entry for entry in entries if entry is not None]
        gone = {*names} - {entry.name.name for entry in there}
        # A reader of the log does not miss files that were being deleted or not finished.
        if not any(parse_file_name(name).state in _LASTING for name in gone):
            whole = there
        before, names = names, _names(path)
        if names == before:
            break
    if whole is None:
        raise FileChangedError("Its files keep changing while they are listed.", path=path)
    files = tuple(entry for entry in whole if entry.error != _A_DIRECTORY)
    return files, tuple(one.name.name for one in whole if one.error == _A_DIRECTORY)


def _names(path: str) -> list[str]:
    try:
        return file_system.names(path)
    except OSError as error:
        raise reading_error(error, path) from error


def _file_entry(path: str, name: str) -> FileEntry | None:
    """Describe the file at a path; None if it does not exist any more."""
    parsed = parse_file_name(name)
    try:
        status = file_system.stat(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not file_system.exists(path):
            return None
        return FileEntry(path, parsed, error=reading_error(error, path).message)
    if stat.S_ISDIR(status.st_mode):
        if parsed.kind == FileKind.UNKNOWN:
            return FileEntry(path, parsed, error=_A_DIRECTORY)
        return FileEntry(path, parsed, error="It is a directory instead of a file.")
    if not stat.S_ISREG(status.st_mode):
        return FileEntry(path, parsed, error="It is not a regular file.")
    blocks = getattr(status, "st_blocks", None)  # object stores report none
    on_disk = status.st_size if blocks is None else blocks * BLOCK_SIZE
    return FileEntry(
        path,
        parsed,
        status.st_size,
        status.st_mtime_ns // 1_000_000,
        hole_bytes=max(status.st_size - on_disk, 0),
        inode=status.st_ino,
        disk_bytes=on_disk,
    )
