"""What is in a partition directory: its files as `stat` tells them, and the directory itself."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any, Self

from kafkalog.errors import UnsupportedError
from kafkalog.source import reading_error


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What tells a file from another of that name; for a directory without a size.

    Attributes:
        size_bytes: its length.
        mtime_ns: when it was modified last, nanoseconds.
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
        """From what `stat` says."""
        size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        mode = stat.S_IMODE(status.st_mode)
        return cls(size, status.st_mtime_ns, mode, status.st_uid, status.st_gid)


@dataclass(frozen=True, slots=True)
class Listing:
    """A directory and its files, by name, at one moment."""

    directory: FileStatus
    files: dict[str, FileStatus]

    @classmethod
    def of(cls, path: str) -> Self:
        """As it is now.

        Raises:
            NotFoundError, UnreadableError: it cannot be listed.
            UnsupportedError: something in it is no regular file; Kafka makes no such thing.
        """
        try:
            with os.scandir(path) as found:
                entries = [(entry.name, entry.stat(follow_symlinks=False)) for entry in found]
            directory = os.stat(path)
        except OSError as error:
            raise reading_error(error, path) from error
        for name, status in entries:
            if not stat.S_ISREG(status.st_mode):
                raise UnsupportedError(
                    "It is no regular file: a backup would not hold it.",
                    path=os.path.join(path, name),
                    hint="Move it away first; Kafka makes no such thing.",
                )
        files = {name: FileStatus.of(status) for name, status in sorted(entries)}
        return cls(FileStatus.of(directory), files)

    def to_json(self) -> dict[str, Any]:
        """As the journal has it."""
        return {
            "directory": _fields(self.directory),
            "files": [{"name": name, **_fields(status)} for name, status in self.files.items()],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """From the journal; raises `KeyError`, `TypeError` where that is malformed."""
        files = {entry["name"]: _status(entry) for entry in fields["files"]}
        return cls(_status(fields["directory"]), files)


def _fields(status: FileStatus) -> dict[str, int]:
    return {name: getattr(status, name) for name in FileStatus.__slots__}


def _status(fields: dict[str, Any]) -> FileStatus:
    return FileStatus(**{name: int(fields[name]) for name in FileStatus.__slots__})
