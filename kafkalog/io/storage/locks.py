"""Locks on a log directory, as the JVM takes them, and on what we write; files that only grow."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
from contextlib import contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from formats import file_names
from kafkalog.errors import (
    CorruptDataError,
    DestinationExistsError,
    LogDirInUseError,
    ShortageError,
    UnreadableError,
)
from kafkalog.io.broker_lock import held_here
from kafkalog.io.paths.retry import shortage, tried
from kafkalog.io.storage.files import NO_LOCKS, sync_directory, take_after_directory, unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator


_FLOCK: Final = struct.Struct("hhqqi4x")  # `struct flock` of Linux, 64 bit: type, …, process
_TORN_SIZE_MAX: Final = 1 << 24


class LogDirLock:
    """Keeps brokers off a log directory; use it as a context manager.

    A broker holds an exclusive lock on `.lock` (Kafka's `FileLock`). A reader takes a shared lock,
    and opens the file only for reading: without the file nobody is kept off. A writer takes an
    exclusive lock, and creates a missing file with the owner of the log directory; it stays, as
    after a killed broker. A broker removes the file when it ends, which makes a lock on it
    worthless, so the lock is then taken again.

    POSIX drops the lock when the process closes any descriptor of the file: nothing else may open
    it meanwhile. Not guaranteed: locks across hosts, on network file systems.

    Args:
        path: the log directory.
        writes: whether it will be changed.

    Raises:
        LogDirInUseError: a broker, or another program that writes, has it.
        UnreadableError: the file cannot be opened.
        UnwritableError: a writer cannot write or create the file.
    """

    def __init__(self, path: str, *, writes: bool = False) -> None:
        self.path = os.path.join(path, file_names.LOCK)
        self._writes = writes
        self._file = -1
        self._held = (-1, -1)

    def __enter__(self) -> Self:
        try:
            # As long as brokers end: each removes the file, and with it the lock that we have just
            # taken.
            while not self._take():
                self.__exit__()
        # A reader without a file to lock goes on: no broker that runs there has one either.
        except (FileNotFoundError, NotADirectoryError) as error:
            if self._writes:
                raise unwritable(error, self.path) from error
        except OSError as error:
            self.__exit__()
            if self._writes:
                raise unwritable(error, self.path) from error
            reason = os.strerror(error.errno or 0)
            raise shortage(error, self.path) or UnreadableError(
                f"The file cannot be opened: {reason}.", path=self.path
            ) from error
        except (LogDirInUseError, ShortageError):
            self.__exit__()
            raise
        return self

    def _take(self) -> bool:
        """Open and lock the file; return whether it still has its name."""
        # An exclusive POSIX lock needs a file open for writing.
        flags = (os.O_RDWR | os.O_NOFOLLOW) if self._writes else os.O_RDONLY
        flags |= os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._file = tried(self.path, os.open, self.path, flags)
        except FileNotFoundError:
            if not self._writes:
                raise
            log_dir = os.path.dirname(self.path) or "."
            # First: a file of the wrong owner would keep a broker from starting.
            around = tried(log_dir, os.stat, log_dir)
            try:
                new = flags | os.O_CREAT | os.O_EXCL
                self._file = tried(self.path, os.open, self.path, new, 0o666)
            except FileExistsError:  # a broker is starting at this moment
                return False
            take_after_directory(self._file, around)
        kind = fcntl.LOCK_EX if self._writes else fcntl.LOCK_SH
        status = tried(self.path, os.fstat, self._file)
        self._held = status.st_dev, status.st_ino
        # Before the lock: `broker_lock` must not open and close this file, which would drop the
        # lock.
        held_here.add(self._held)
        # lockf, not flock: FileChannel.tryLock of the JVM takes a POSIX record lock (F_SETLK), and
        # on Linux the two kinds do not see each other.
        try:
            fcntl.lockf(self._file, kind | fcntl.LOCK_NB)
        except OSError as error:
            # A reader goes on where there are no locks: it changes nothing, and reports what it
            # sees.
            if self._writes or error.errno not in NO_LOCKS:
                raise self._in_use(error) from error
            return True
        try:
            # A broker removes the file when it ends: a lock on a removed file keeps nobody off.
            return os.path.samestat(status, tried(self.path, os.stat, self.path))
        except FileNotFoundError:
            return not self._writes  # the broker that had it has just ended

    def _in_use(self, error: OSError) -> LogDirInUseError:
        if error.errno in NO_LOCKS:
            # A writer refuses here: without locks nothing would stop a broker from starting
            # meanwhile.
            return LogDirInUseError(
                "The file system has no locks, so nothing would keep a broker away.",
                path=self.path,
                hint="Work on a copy on another file system.",
            )
        holder = self._holder()
        if holder is not None and _is_ours(holder[1]):
            return LogDirInUseError(
                "Another kafkalog is working on this log directory.",
                path=self.path,
                note=f"Process {holder[0]} has the lock.",
                hint="Wait for it to end, or work on a copy.",
            )
        note = None
        if holder is not None:
            name = os.path.basename(holder[1][0]) if holder[1] else "another user's"
            note = f"Process {holder[0]} ({name}) has the lock."
        return LogDirInUseError(
            "A broker is running on this log directory.",
            path=self.path,
            note=note,
            hint="Stop the broker, or work on a copy.",
        )

    def _holder(self) -> tuple[int, list[str]] | None:
        """Return the process that has the lock and its command line; None if unknown."""
        kind = fcntl.F_WRLCK if self._writes else fcntl.F_RDLCK
        try:
            asked = _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)
            # Only for the message: a holder on another host or in another container stays unknown.
            process = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, asked))[-1]
            if process <= 0:
                return None  # it has ended, or is invisible to this process
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read(1 << 16).split(b"\0")[:-1]
        except OSError:
            return None
        return process, [os.fsdecode(word) for word in words]

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            held_here.discard(self._held)


def _is_ours(words: list[str]) -> bool:
    """Return whether a command line is kafkalog's: `kafkalog …` or `python …/kafkalog …`."""
    # The interpreter, or the script behind it.
    return "kafkalog" in [os.path.basename(word) for word in words[:2]]


def lock_directory(path: str) -> int:
    """Return a directory's descriptor, locked against our other runs until it is closed.

    Raises:
        DestinationExistsError: another run is using it.
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    directory = tried(path, os.open, path, flags)
    try:
        lock_open(directory, path)
    except (OSError, DestinationExistsError):
        os.close(directory)
        raise
    return directory


def lock_open(file: int, path: str) -> None:
    """Lock an open file or directory as `lock_directory` does; do nothing without locks."""
    try:
        # flock here: no JVM takes part, directories can be locked, and closing another descriptor
        # of the same file does not drop it.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Between our own runs only: without it, two at a time fail later, on names that exist.
        if error.errno in NO_LOCKS:
            return
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise DestinationExistsError(
            "Another run is writing it.", path=path, hint="Wait for it to end.", is_temporary=True
        ) from error


class AppendedFile:
    """A file to which lines are appended; use it as a context manager.

    A line is durable when `append` returns. A crash may leave part of the last line, without a
    newline, which is cut off when the file is opened again. Only one process at a time can have it
    open.

    Args:
        path: the file, created if missing.
        begins: what its lines begin with: a file that ends with anything else keeps it.

    Raises:
        DestinationExistsError: another process has it open.
        CorruptDataError: it ends with something else than part of a line.
        UnwritableError: it cannot be opened or written; a partly written line is cut off, as far as
            that is possible.
    """

    def __init__(self, path: str, begins: tuple[bytes, ...]) -> None:
        self.path = path
        self._begins = begins
        self._file = -1
        self._size = 0

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = tried(self.path, os.open, self.path, flags, 0o666)
            lock_open(self._file, self.path)
            self._size = self._whole_lines()
            self._require_torn()
            # A crash may have left half a line, and the next one would be appended to it.
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            # The name of a new file: lines that nobody finds are not durable.
            sync_directory(os.path.dirname(self.path) or ".")
        except OSError as error:
            self.__exit__()
            raise unwritable(error, self.path) from error
        except (DestinationExistsError, CorruptDataError, ShortageError):
            self.__exit__()
            raise
        return self

    def append(self, line: bytes) -> None:
        """Write a line without a newline in it, and sync it."""
        data = line + b"\n"
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
            os.fsync(self._file)
        except OSError as error:
            try:
                # A full disk must leave no half line in front of the next attempt.
                os.ftruncate(self._file, self._size)
            except OSError as second:
                error.add_note(f"The file cannot be truncated either: {second}")
            raise unwritable(error, self.path) from error
        self._size += len(data)

    def _whole_lines(self) -> int:
        """Return the position after the last newline."""
        end = tried(self.path, os.fstat, self._file).st_size
        while end:
            start = max(0, end - (1 << 16))
            data = tried(self.path, os.pread, self._file, end - start, start)
            found = data.rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def _require_torn(self) -> None:
        """Raise unless what follows the last newline is part of a line, or nothing."""
        left = tried(self.path, os.fstat, self._file).st_size - self._size
        if not left:
            return
        tail = tried(self.path, os.pread, self._file, min(left, _TORN_SIZE_MAX), self._size)
        is_begun = any(one.startswith(tail[: len(one)]) for one in self._begins)
        # A whole document behind other lines lacks its newline; alone it may be anybody's.
        if is_begun and (self._size or not _is_document(tail)):
            return
        raise CorruptDataError(
            "The file ends with something that kafkalog did not write.",
            path=self.path,
            position=self._size,
            note="Nothing was changed.",
            hint="Name another file.",
        )

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _is_document(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


@contextmanager
def spooled() -> Iterator[BinaryIO]:
    """Open an unnamed file below `TMPDIR` that disappears with the block or the process.

    Raises:
        UnwritableError: there is no room for it.
    """
    try:
        with TemporaryFile(prefix="kafkalog-") as file:
            yield file
    except OSError as error:
        raise unwritable(error, gettempdir()) from error
