"""The only module that creates, writes, syncs, renames, removes and locks files.

What reads (`check`, `lookup`, `records`, `columnar`) never imports it. What writes a log makes a
`NewDirectory` while it holds a `LogDirLock` on what it reads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from kafkalog.errors import (
    DestinationExistsError,
    LogDirInUseError,
    UnreadableError,
    UnwritableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

BUILDING_SUFFIX: Final = ".kafkalog-partial"
"""Ends the name of a directory that is still being written, or that a killed run left."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class NewFile:
    """A file that appears whole, or not at all; use it as a context manager and write to `file`.

    The bytes go to `<path>.<random>.tmp` in the same directory. Where the block ends well, they are
    synced, then the file gets its name, then the directory is synced; else they are removed. After
    a crash there is the whole file under its name or none; the temporary file may be left.

    Not guaranteed: what a file system does that ignores syncs, or has no links: there a file that
    somebody else creates under the same name in the last moment is replaced.

    Args:
        path: what it shall be called.
        replaces: whether a file of that name is replaced: it is the old one or the new one, whole,
            at any moment.

    Raises:
        DestinationExistsError: there is something of that name, also when the block ends, and it
            is not to be replaced.
        UnwritableError: it cannot be created there, or written.
    """

    def __init__(self, path: str, *, replaces: bool = False) -> None:
        self.path = path
        self._replaces = replaces
        if not replaces and os.path.lexists(path):
            raise _exists(path)
        self._temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(self._temporary, flags, 0o666)
        except (OSError, ValueError) as error:
            raise _unwritable(error, path) from error
        self.file: BinaryIO = os.fdopen(descriptor, "wb")
        self._is_wanted = True

    def __enter__(self) -> Self:
        return self

    def discard(self) -> None:
        """Leave no file, however the block ends."""
        self._is_wanted = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._is_wanted:
                self.file.flush()
                os.fsync(self.file.fileno())
                self.file.close()
                self._publish()
        except OSError as failure:
            raise _unwritable(failure, self.path) from failure
        finally:
            with suppress(OSError):
                self.file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._temporary)
        if isinstance(error, OSError):
            raise _unwritable(error, self.path) from error

    def _publish(self) -> None:
        """Give the file its name, and make that last."""
        if self._replaces:
            os.replace(self._temporary, self.path)
        else:
            self._link()
        _sync_directory(os.path.dirname(self.path) or ".")

    def _link(self) -> None:
        """Give the file its name, unless there is one of that name by now."""
        try:
            os.link(self._temporary, self.path)
        except FileExistsError as error:
            raise _exists(self.path) from error
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            os.rename(self._temporary, self.path)  # a file system without links
        else:
            os.unlink(self._temporary)


class NewDirectory:
    """A directory of files that appears whole, or not at all; use it as a context manager.

    The files are written below `<path>.kafkalog-partial`, beside the place where the directory will
    be. Where the block ends well, every directory is synced, then the whole gets its name by one
    rename, then the directory around it is synced; else all is removed. After a crash there is the
    whole directory under its name, or none and the other one, which the next run removes.

    Not guaranteed: what a file system does that ignores syncs. An empty directory of that name is
    replaced; its owner and permissions go with it.

    Args:
        path: what it shall be called: nothing of that name, or an empty directory.

    Attributes:
        building: where its files are until the block ends.
        left_over_removed: whether the left-over of a run that was killed was removed for it.

    Raises:
        DestinationExistsError: something is there, or another run is writing it now.
        UnwritableError: it cannot be created there, or written.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path)
        self.building = self.path + BUILDING_SUFFIX
        require_vacant(self.path)
        try:
            self.left_over_removed = _remove_left_over(self.building)
            os.mkdir(self.building)
            self._lock = _locked(self.building)
        except (OSError, ValueError) as error:
            raise _unwritable(error, path) from error

    def __enter__(self) -> Self:
        return self

    def place(self, name: str) -> str:
        """Where a file is until the directory gets its name; `name` is relative, with slashes."""
        return os.path.join(self.building, name)

    @contextmanager
    def create(self, name: str, mtime_ms: int | None = None) -> Iterator[BinaryIO]:
        """A new file, synced when the block ends; directories on the way to it are made.

        With `mtime_ms` it is as old as that: a broker goes by the age of a log without timestamps.
        """
        path = self.place(name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
                yield file
                file.flush()
                if mtime_ms is not None:
                    os.utime(file.fileno(), ns=(mtime_ms * 1_000_000,) * 2)
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritable(error, self._final(name)) from error

    def write(self, name: str, data: bytes) -> None:
        """A file of these bytes, in place of one of that name."""
        self.remove(name)
        with self.create(name) as file:
            file.write(data)

    def make(self, name: str) -> None:
        """A directory, with those on the way to it."""
        try:
            os.makedirs(self.place(name), exist_ok=True)
        except OSError as error:
            raise _unwritable(error, self._final(name)) from error

    def remove(self, name: str) -> None:
        """Take a file away, where there is one."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.place(name))
        except OSError as error:
            raise _unwritable(error, self._final(name)) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._publish()
        except OSError as failure:
            raise _unwritable(failure, self.path) from failure
        finally:
            shutil.rmtree(self.building, ignore_errors=True)
            os.close(self._lock)

    def _publish(self) -> None:
        require_vacant(self.path)
        for directory, _, _ in os.walk(self.building, topdown=False):
            _sync_directory(directory)
        os.rename(self.building, self.path)
        _sync_directory(os.path.dirname(self.path))

    def _final(self, name: str) -> str:
        return os.path.join(self.path, name)


class LogDirLock:
    """Keeps brokers off a log directory while it is read; use it as a context manager.

    A broker holds an exclusive lock on `.lock` (`FileLock` of Kafka). A shared one beside it is not
    given, and while we have it no broker starts. The file is opened for reading; without one nobody
    is kept off.

    Args:
        path: the log directory.

    Raises:
        LogDirInUseError: a broker, or another program that writes, has it.
        UnreadableError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.join(path, ".lock")
        self._file = -1

    def __enter__(self) -> Self:
        try:
            self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            fcntl.lockf(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if self._file < 0:
                reason = os.strerror(error.errno or 0)
                raise UnreadableError(f"It cannot be read: {reason}.", path=self.path) from error
            if error.errno not in _NO_LOCKS:
                self.__exit__()
                raise LogDirInUseError(
                    "A broker is running on this log directory.",
                    path=self.path,
                    hint="Stop the broker, or work on a copy.",
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def require_space(path: str, size_bytes: int) -> None:
    """Raise `UnwritableError` unless there is room for so many bytes where `path` will be."""
    place = os.path.dirname(os.path.realpath(path))
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        raise _unwritable(error, path) from error
    if free < size_bytes:
        raise UnwritableError(
            f"It needs up to {size_bytes} bytes, the file system has {free} left.",
            path=path,
            hint="Free some space, or choose another file system.",
        )


def require_vacant(path: str) -> None:
    """Raise unless there is nothing of that name, or an empty directory that can be replaced."""
    if not os.path.lexists(path):
        return
    try:
        is_empty = stat.S_ISDIR(os.lstat(path).st_mode) and not os.listdir(path)
    except OSError as error:
        raise _unwritable(error, path) from error
    if not is_empty:
        raise DestinationExistsError(
            "There is something of that name, and it is no empty directory.",
            path=path,
            hint="Choose another name, or remove it.",
        )
    if os.path.ismount(path):
        raise DestinationExistsError(
            "This is a mount point, whose place the new directory cannot take.",
            path=path,
            hint=f"Name a directory in it, such as {os.path.join(path, 'result')}.",
        )


def _remove_left_over(path: str) -> bool:
    """Remove what a run that was killed left; whether there was anything."""
    if not os.path.lexists(path):
        return False
    lock = _locked(path)
    try:
        shutil.rmtree(path)
    finally:
        os.close(lock)
    return True


def _locked(path: str) -> int:
    """A directory, open and locked against other runs of ours."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return directory
        os.close(directory)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise DestinationExistsError(
            "Another run is writing it.", path=path, hint="Wait for it, or choose another name."
        ) from error
    return directory


def _sync_directory(path: str) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _exists(path: str) -> DestinationExistsError:
    return DestinationExistsError(
        "There is something of that name.", path=path, hint="Choose another name, or remove it."
    )


def _unwritable(error: OSError | ValueError, path: str) -> UnwritableError:
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else str(error)
    return UnwritableError(f"It cannot be written: {reason}.", path=path)
