"""The contents of a partition directory: its files as `stat` reports them, and itself."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Any, Final, Self

from formats.constants import INT64_MAX
from kafkalog.documents import Fields, Items, Number, Text
from kafkalog.errors import UnsupportedError
from kafkalog.names import is_plain
from kafkalog.paths.reading_errors import reading_error
from kafkalog.storage.files import open_directory


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
        """Make a status from the result of `stat`."""
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
        """List a directory as it is now.

        Raises:
            NotFoundError, UnreadableError: it cannot be listed, or is reached by a link.
            UnsupportedError: something in it is not a regular file; Kafka makes only these.
        """
        try:
            with open_directory(path) as opened:
                with os.scandir(opened) as found:
                    entries = [(entry.name, entry.stat(follow_symlinks=False)) for entry in found]
                directory = os.fstat(opened)
        except OSError as error:
            raise reading_error(error, path) from error
        for name, status in entries:
            if not stat.S_ISREG(status.st_mode):
                raise UnsupportedError(
                    "It is not a regular file; a backup cannot hold it.",
                    path=os.path.join(path, name),
                    hint="Move it away first; Kafka creates no such thing.",
                )
        files = {name: FileStatus.of(status) for name, status in sorted(entries)}
        return cls(FileStatus.of(directory), files)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as the journal has them."""
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
    """Return the fields as the journal has them."""
    return {name: getattr(status, name) for name in FileStatus.__slots__}


def status_of(fields: dict[str, Any]) -> FileStatus:
    """Make a status from an object with the fields of `STATUS`, and maybe others."""
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
