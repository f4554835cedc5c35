"""Changes to the files of one directory, step by step, in an order that survives a crash."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO

from kafkalog.storage.system import exists, sync_directory, unwritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEMPORARY_SUFFIX = ".tmp"
"""Kafka's own, for checkpoints that are being written: a broker takes no notice of them."""


class StepKind(StrEnum):
    """What was done to a directory."""

    CREATE = "create"
    """A new file has its bytes; neither they nor its name last yet."""
    TRUNCATE = "truncate"
    """A file is shorter; its new length does not last yet."""
    SYNC = "sync"
    """The bytes of a file last."""
    LINK = "link"
    """A file has a second name, the new one, in this directory."""
    RENAME = "rename"
    """A file has another name; what had it is gone. It does not last yet."""
    REMOVE = "remove"
    """A name is gone. It does not last yet."""
    SYNC_DIRECTORY = "sync-directory"
    """All names in the directory last."""


@dataclass(frozen=True, slots=True)
class Step:
    """One of the things done.

    Attributes:
        kind: what.
        path: of the file, or of the directory.
        new_path: the new name of a `RENAME` or `LINK`.
    """

    kind: StepKind
    path: str
    new_path: str | None = None


class Changes:
    """Changes to the files of one directory; each method does what it says at once.

    What was created or truncated is synced before the method returns. Names last from
    `sync_directory` on: until then a crash may undo any of the renames and removals since the last
    one, in any combination, as far as the file system goes.

    Args:
        directory: a partition directory, or a log directory.
        observe: called after each step; what a crash leaves can be told from these.

    Raises:
        UnwritableError: a step failed; those before it stay.
        DestinationExistsError: what is to be created is there.
    """

    def __init__(self, directory: str, observe: Callable[[Step], None] | None = None) -> None:
        self.directory = directory
        self._observe = observe

    def path(self, name: str) -> str:
        """Where a file of the directory is."""
        return os.path.join(self.directory, name)

    @contextmanager
    def create(
        self, name: str, *, like: str | None = None, mtime_ms: int | None = None
    ) -> Iterator[BinaryIO]:
        """A new file, synced when the block ends, removed when it ends badly.

        Args:
            name: what it is called.
            like: path of a file whose owner, group, permissions and labels it gets, as far as we
                may give them.
            mtime_ms: when it shall have been modified last, milliseconds.
        """
        path = self.path(name)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError as error:
            raise exists(path) from error
        except OSError as error:
            raise unwritable(error, path) from error
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if like is not None:
                    _take_after(path, like)
                if mtime_ms is not None:
                    os.utime(descriptor, ns=(mtime_ms * 1_000_000,) * 2)
                self._tell(StepKind.CREATE, path)
                os.fsync(descriptor)
                self._tell(StepKind.SYNC, path)
        except BaseException as error:
            self.remove(name, missing_ok=True)
            if isinstance(error, OSError):
                raise unwritable(error, path) from error
            raise

    def replace(self, name: str, data: bytes) -> None:
        """A small file of these bytes in place of the one of that name: one of both, whole.

        As Kafka writes checkpoints: under a temporary name first.
        """
        temporary = name + TEMPORARY_SUFFIX
        self.remove(temporary, missing_ok=True)
        old = self.path(name)
        with self.create(temporary, like=old if os.path.lexists(old) else None) as file:
            file.write(data)
        self.rename(temporary, name)
        self.sync_directory()

    def link(self, source: str, name: str) -> None:
        """A file from elsewhere under a name here: the same file, a copy across file systems."""
        path = self.path(name)
        try:
            os.link(source, path, follow_symlinks=False)
        except FileExistsError as error:
            raise exists(path) from error
        except OSError:
            with (
                open(source, "rb") as original,
                self.create(
                    name, like=source, mtime_ms=os.stat(source).st_mtime_ns // 1_000_000
                ) as copy,
            ):
                shutil.copyfileobj(original, copy, 1 << 20)
        else:
            self._tell(StepKind.LINK, source, path)

    def rename(self, name: str, new_name: str) -> None:
        """Give a file another name, in place of what has it."""
        path, new_path = self.path(name), self.path(new_name)
        try:
            os.rename(path, new_path)
        except OSError as error:
            raise unwritable(error, path) from error
        self._tell(StepKind.RENAME, path, new_path)

    def remove(self, name: str, *, missing_ok: bool = False) -> None:
        """Take a file away."""
        path = self.path(name)
        try:
            os.unlink(path)
        except FileNotFoundError as error:
            if not missing_ok:
                raise unwritable(error, path) from error
        except OSError as error:
            raise unwritable(error, path) from error
        else:
            self._tell(StepKind.REMOVE, path)

    def truncate(self, name: str, size_bytes: int) -> None:
        """Cut the end of a file off."""
        path = self.path(name)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.ftruncate(descriptor, size_bytes)
                self._tell(StepKind.TRUNCATE, path)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unwritable(error, path) from error
        self._tell(StepKind.SYNC, path)

    def sync_directory(self) -> None:
        """Make all names last."""
        try:
            sync_directory(self.directory)
        except OSError as error:
            raise unwritable(error, self.directory) from error
        self._tell(StepKind.SYNC_DIRECTORY, self.directory)

    def _tell(self, kind: StepKind, path: str, new_path: str | None = None) -> None:
        if self._observe is not None:
            self._observe(Step(kind, path, new_path))


def _take_after(path: str, like: str) -> None:
    """Owner, group, permissions and labels of a file; what only root may give is left."""
    status = os.stat(like, follow_symlinks=False)
    with suppress(PermissionError):
        os.chown(path, status.st_uid, status.st_gid)
    os.chmod(path, stat.S_IMODE(status.st_mode))
    for label in _labels(like):
        with suppress(OSError):
            os.setxattr(path, label, os.getxattr(like, label, follow_symlinks=False))


def _labels(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []
