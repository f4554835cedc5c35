"""The files of a directory: names and sizes, as they are on disk, whatever else is wrong with them.

Listing never fails because of one odd entry: an entry that cannot be read is listed with its error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, overload

from formats.file_names import (
    FileKind,
    FileName,
    FileState,
    parse_directory_name,
    parse_file_name,
)
from formats.late_classes import dataclass
from kafkalog.errors import FileChangedError, UnreadableError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.source import BLOCK_SIZE
from kafkalog.model import computed_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


T = TypeVar("T")

_A_DIRECTORY = "a directory"
_LISTINGS_MAX = 8
_LASTING = (FileState.LIVE, FileState.SWAP)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a directory.

    Attributes:
        path: where it is.
        name: its parsed name; in a view (`kafkalog.node.view`) the name that it has there.
        modified_timestamp: time of its last modification.
        error: why nothing else is known about it.
        hole_bytes: how much of its length is holes, which take no room on the disk.
        disk_bytes: the blocks that it occupies; its length in an object store.
        inode: tells it from a later file of its name; 0 if the file system has no such number.
        end: the position at which a view cuts it off; None if all of it is shown.
        is_stale: whether a start would rewrite this index; readers verify all that it answers.
    """

    path: str
    name: FileName
    size_bytes: int = 0
    modified_timestamp: int = 0
    error: str | None = None
    hole_bytes: int = 0
    inode: int = 0
    end: int | None = None
    is_stale: bool = False
    disk_bytes: int = 0

    @property
    def used_bytes(self) -> int:
        """The length, without the slots that a broker preallocated if it is an index."""
        is_index = self.name.kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
        return self.size_bytes - self.hole_bytes if is_index else self.size_bytes


class Late(Sequence[T]):
    """A sequence that is made when it is first looked at."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make

    @computed_once
    def _made(self) -> tuple[T, ...]:
        return tuple(self._make())

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._made[index]

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[T]:
        return iter(self._made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Late | tuple) and self._made == tuple(other)

    def __hash__(self) -> int:
        return hash(self._made)


def list_files(path: str) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Return the files and directories in a directory, listed again if names change meanwhile.

    A broker renames files while they are listed, and seeing half of a swap would hide a segment.

    Raises:
        FileChangedError: at each attempt an entry disappeared before it was looked at.
    """
    with _told(path):
        listed = file_system.contents(path)
    if listed is None:
        whole = _looked_at(path)
    else:
        whole = [_entry(os.path.join(path, name), name, listed[name]) for name in sorted(listed)]
    files = tuple(entry for entry in whole if entry.error != _A_DIRECTORY)
    return files, tuple(one.name.name for one in whole if one.error == _A_DIRECTORY)


def _looked_at(path: str) -> list[FileEntry]:
    """Look at each entry of a directory. Raises as `list_files`."""
    whole: list[FileEntry] | None = None
    names = list_names(path)
    for _ in range(_LISTINGS_MAX):
        entries = [file_entry(os.path.join(path, name), name) for name in names]
        there = [entry for entry in entries if entry is not None]
        gone = {*names} - {entry.name.name for entry in there}
        # A reader of the log does not miss files that were being deleted or not finished.
        if not any(parse_file_name(name).state in _LASTING for name in gone):
            whole = there
        before, names = names, list_names(path)
        # Nothing came or went meanwhile: all entries are of one moment.
        if names == before:
            break
    if whole is None:
        raise FileChangedError("Its files keep changing while they are listed.", path=path)
    return whole


def list_names(path: str) -> list[str]:
    """Return the names in a directory, sorted. Raises as `list_files`."""
    with _told(path):
        return file_system.names(path)


@contextmanager
def _told(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise reading_error(error, path) from error


def file_entry(path: str, name: str) -> FileEntry | None:
    """Describe the file at a path; None if it does not exist any more."""
    try:
        status = file_system.stat(path)
    except OSError as error:
        # Else it is a link that leads nowhere, which stays in the listing.
        if isinstance(error, FileNotFoundError) and not file_system.exists(path):
            return None
        failure = reading_error(error, path)
        # By its name a partition: if it cannot be listed, it is missing, and is not a stray file.
        is_partition = isinstance(failure, UnreadableError) and parse_directory_name(name)
        words = _A_DIRECTORY if is_partition else failure.message
        return FileEntry(path, parse_file_name(name), error=words)
    return _entry(path, name, status)


def _entry(path: str, name: str, status: file_system.Status) -> FileEntry:
    parsed = parse_file_name(name)
    if stat.S_ISDIR(status.st_mode):
        if parsed.kind == FileKind.UNKNOWN:
            return FileEntry(path, parsed, error=_A_DIRECTORY)
        return FileEntry(path, parsed, error="This is a directory instead of a file.")
    if not stat.S_ISREG(status.st_mode):
        return FileEntry(path, parsed, error="This is not a regular file.")
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
