"""Files that appear whole or not at all, their owners, and their syncs.

A broker runs as a user of its own: a file that root leaves behind and this user cannot open keeps
the broker from starting.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from kafkalog.errors import (
    DestinationExistsError,
    ShortageError,
    UnsupportedError,
    UnwritableError,
)
from kafkalog.io.engine import Crew
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error, require_regular
from kafkalog.io.paths.retry import shortage, tried

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future


_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED: Final = _DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)  # search permission is enough


@contextmanager
def open_directory(path: str) -> Iterator[int]:
    """Open a directory by its absolute path, and close it when the block ends.

    It is opened component by component from the root, so that no symbolic link is followed.
    Operations relative to the descriptor stay in that directory, even if somebody renames or links
    it meanwhile.

    Raises:
        OSError: it cannot be opened; `ENOTDIR` or `ELOOP` if a component is a symbolic link.
    """
    # O_NOFOLLOW covers the last component only, so each one is opened by itself.
    names = [name for name in os.path.abspath(path).split(os.sep) if name]
    flags = _PASSED if names else _DIRECTORY | os.O_RDONLY
    descriptor = tried(path, os.open, os.sep, flags)
    try:
        for left, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
            flags = _PASSED if left else _DIRECTORY | os.O_RDONLY
            inner = tried(path, os.open, name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""Errors of a file system without locks."""

CANNOT_EXCHANGE: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""Errors of a kernel or file system that cannot exchange two names."""
# RENAME_EXCHANGE of linux/fs.h; Python's os module has no renameat2.
_EXCHANGE: Final = 2

_CLONE: Final = 0x40049409
"""`FICLONE` of Linux."""
_CANNOT_CLONE: Final = (
    errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS, errno.EPERM,
    errno.ETXTBSY,
)  # fmt: skip
"""Errors of file systems that share no blocks, or not between these files."""
# below the 2 GiB that Linux copies in one call
_COPIED_AT_ONCE: Final = 1 << 30
_READ_AT_ONCE: Final = 1 << 20


def exchange(directory: int, name: str, other_directory: int, other: str) -> None:
    """Exchange names in open directories atomically: `renameat2` with `RENAME_EXCHANGE`."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError) as error:  # another system, or an old C library
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from error
    if rename(directory, os.fsencode(name), other_directory, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def cannot_exchange(path: str) -> UnsupportedError:
    """Return the error for a kernel or file system that cannot exchange two names."""
    return UnsupportedError(
        "The file system cannot exchange two names at once.",
        path=path,
        note="Nothing was changed. Linux 3.15 or newer can, on ext4, XFS, Btrfs and tmpfs.",
    )


def sync_directory(path: str) -> None:
    """Sync a directory, so that its names are durable."""
    directory = tried(path, os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def walked(path: str, *, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk as `os.walk`, but raise `OSError` for a directory that cannot be listed."""

    def fail(error: OSError) -> None:
        raise error

    return os.walk(path, topdown, fail)


def make_directories(path: str) -> None:
    """Make a directory and those on the way to it, all of them durable.

    Raises:
        OSError: one cannot be made.
    """
    # From the outside in, and each synced in its parent: a synced file below a directory whose own
    # name was lost in a crash cannot be reached.
    missing = []
    while path and not file_system.is_there(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        # Another process made it meanwhile.
        with suppress(FileExistsError):
            os.mkdir(one)
        sync_directory(os.path.dirname(one) or ".")


def sync_file_system(path: str) -> None:
    """Make everything durable that was written to the file system of a directory: `syncfs`."""
    directory = tried(path, os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            sync = ctypes.CDLL(None, use_errno=True).syncfs
        except (AttributeError, OSError):  # another system
            os.sync()
            return
        if sync(directory):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(directory)


def cloned(source: int, target: int) -> bool:
    """Let an open, empty file share the blocks of another (`FICLONE`); False if it cannot."""
    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError as error:
        # Not an error: the caller copies the bytes instead.
        if error.errno in _CANNOT_CLONE:
            return False
        raise
    return True


@contextmanager
def source_opened(path: str, flags: int = 0) -> Iterator[tuple[int, os.stat_result]]:
    """Open a file that will be copied, and close it when the block ends; its status comes with it.

    Raises:
        NotAKafkaFileError: it is a directory, a device or the like, whose bytes may never end.
        NotFoundError, UnreadableError: it cannot be opened.
    """
    try:
        # O_NONBLOCK: opening a FIFO does not wait for its writer.
        opened = tried(path, os.open, path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except OSError as error:
        raise reading_error(error, path) from error
    try:
        try:
            status = tried(path, os.fstat, opened)
        except OSError as error:
            raise reading_error(error, path) from error
        require_regular(path, status.st_mode)
        yield opened, status
    finally:
        os.close(opened)


def copy_bytes(source: int, target: int, path: str, size_bytes: int) -> None:
    """Copy bytes of an open file to another, from where they stand, or as many as there are.

    Args:
        source: what is read.
        target: what is written.
        path: of the source, for its errors.
        size_bytes: how many bytes: a file that grows meanwhile must not keep this going.

    Raises:
        UnreadableError: the source cannot be read.
        OSError: the target cannot be written.
    """
    left = size_bytes
    # Refused for these files, or a failure of either, which the calls below tell apart.
    with suppress(OSError):
        while left and (count := os.copy_file_range(source, target, min(left, _COPIED_AT_ONCE))):
            left -= count
    while left:
        try:
            data = os.read(source, min(left, _READ_AT_ONCE))
        except OSError as error:
            raise reading_error(error, path) from error
        if not data:
            return
        left -= len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(target, rest) :]


def exists(path: str) -> DestinationExistsError:
    """Return the error for a destination that already exists."""
    return DestinationExistsError(
        "It already exists.", path=path, hint="Choose another name, or remove it."
    )


def unwritable(error: OSError | ValueError, path: str) -> UnwritableError | ShortageError:
    """Return the error for a failed write."""
    if (short := shortage(error, path)) is not None:
        return short
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else str(error)
    hints: dict[int | None, str] = {errno.ENOENT: "Make the directory around it first."}
    hints |= dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Make room, and repeat the command.")
    return UnwritableError(
        f"The path cannot be written: {reason}.", path=path, hint=hints.get(number)
    )


# What a directory's mode says about files: no execute bit; the owner always reads and writes.
_OF_A_FILE: Final = 0o666
_OWNERS: Final = 0o600


def take_after(descriptor: int, like: str) -> None:
    """Copy owner, group, permissions and labels of another file to an open file or directory.

    Attributes that only root may set are left as they are.
    """
    status = tried(like, os.stat, like, follow_symlinks=False)
    assert not stat.S_ISLNK(status.st_mode), f"{like}: a link says nothing of permissions"
    _give(descriptor, status)
    os.chmod(descriptor, stat.S_IMODE(status.st_mode))
    for label in _labels(like):
        # Labels as of SELinux: setting them needs rights that the owner of a log seldom has.
        with suppress(OSError):
            value = os.getxattr(like, label, follow_symlinks=False)
            os.setxattr(descriptor, label, value)


def take_after_directory(descriptor: int, around: os.stat_result) -> None:
    """Give a new file or directory the owner and group of another, and no more permissions."""
    status = _status(descriptor)
    mode = stat.S_IMODE(status.st_mode)
    given = stat.S_IMODE(around.st_mode)
    if stat.S_ISREG(status.st_mode):
        given = given & _OF_A_FILE | _OWNERS
    else:
        given |= stat.S_IRWXU
    _give(descriptor, around)
    # Only ever narrower: the umask has already taken away what the user does not want to give.
    if mode & ~given:
        os.chmod(descriptor, mode & given)


def _give(descriptor: int, status: os.stat_result) -> None:
    """Set owner and group, as far as permitted."""
    now = _status(descriptor)
    if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
        # Only root may give files away; everybody else owns what they make.
        with suppress(PermissionError):
            os.chown(descriptor, status.st_uid, status.st_gid)


def _status(descriptor: int) -> os.stat_result:
    return tried(f"/dev/fd/{descriptor}", os.fstat, descriptor)


def _labels(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    # A file system without extended attributes.
    except OSError:
        return []


# Syncing while there is more to write keeps the disk busy, and leaves little for the last fsync.
_SYNCED_AT_ONCE: Final = 1 << 24
_WRITTEN_APART: Final = 1 << 16  # pieces from this size on are worth a thread


def written(file: BinaryIO, pieces: Iterable[bytes | memoryview]) -> Iterator[memoryview]:
    """Pass pieces on while other threads write them to a file, and sync what was written.

    A piece must keep its bytes until the next one is there. When the last one was taken, all are
    written; the end of the file is left for the caller to sync.

    Raises:
        OSError: a piece cannot be written or synced.
    """
    # One thread each: writes stay in order, and a slow fsync holds up no write.
    with Crew(1, "kafkalog-sync") as syncer, Crew(1, "kafkalog-write") as writer:
        syncing: Future[None] | None = None
        writing: Future[int] | None = None
        size = 0
        for piece in pieces:
            data = memoryview(piece)
            # The caller may reuse the last piece's memory from here on.
            if writing is not None:
                writing.result()
                writing = None
            if size >= _SYNCED_AT_ONCE and (syncing is None or syncing.done()):
                if syncing is not None:
                    syncing.result()
                file.flush()
                syncing, size = syncer.submit(os.fsync, file.fileno()), 0
            size += len(data)
            if len(data) < _WRITTEN_APART:
                file.write(data)
            else:
                writing = writer.submit(file.write, data)
            yield data
        for one in (writing, syncing):
            if one is not None:
                one.result()


class NewFile:
    """A file that appears whole, or not at all; use it as a context manager and write to `file`.

    The bytes go to `<path>.<random>.tmp` in the same directory. If the block succeeds, they are
    synced, then the file gets its name, then the directory is synced; otherwise they are removed.
    After a crash the file is whole under its name or missing; the temporary file may be left.

    Not guaranteed: anything on a file system that ignores syncs. Without hard links, a file that
    somebody else creates under the same name at the last moment is replaced.

    Args:
        path: its final path.
        replaces: whether a file of that name is replaced: it is the old one or the new one, whole,
            at any moment, with the owner and permissions of the old one.

    Raises:
        DestinationExistsError: a file of that name exists, possibly only when the block ends, and
            must not be replaced.
        UnwritableError: it cannot be created there, or written.
    """

    def __init__(self, path: str, *, replaces: bool = False) -> None:
        self.path = path
        self._replaces = replaces
        if not replaces and file_system.is_there(path):
            raise exists(path)
        # In the same directory: a rename is atomic only within a file system.
        self._temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(self._temporary, flags, 0o666)
        except (OSError, ValueError) as error:
            raise unwritable(error, path) from error
        self.file: BinaryIO = os.fdopen(descriptor, "wb")
        self._is_wanted = True

    def __enter__(self) -> Self:
        return self

    def discard(self) -> None:
        """Leave no file, however the block ends."""
        self._is_wanted = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        try:
            if kind is None and self._is_wanted:
                self.file.flush()
                if self._replaces and file_system.is_there(self.path):
                    take_after(self.file.fileno(), os.path.realpath(self.path))
                # Before the name, else a crash may show the name with none of the bytes.
                os.fsync(self.file.fileno())
                self.file.close()
                self._publish()
        except OSError as failure:
            raise unwritable(failure, self.path) from failure
        finally:
            with suppress(OSError):
                self.file.close()
            with suppress(OSError):
                os.unlink(self._temporary)
        if isinstance(error, OSError):
            raise unwritable(error, self.path) from error

    def _publish(self) -> None:
        if self._replaces:
            os.replace(self._temporary, self.path)
        else:
            self._link()
        sync_directory(os.path.dirname(self.path) or ".")

    def _link(self) -> None:
        """Give the file its final name, unless a file of that name exists by now."""
        try:
            # Unlike a rename, a link fails if somebody has made a file of that name meanwhile.
            os.link(self._temporary, self.path)
        except FileExistsError as error:
            raise exists(self.path) from error
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            os.rename(self._temporary, self.path)  # a file system without links
        else:
            os.unlink(self._temporary)
