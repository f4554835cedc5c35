"""Files that only grow, line by line, each line durable before the next."""

from __future__ import annotations

import os
from contextlib import contextmanager
from tempfile import TemporaryFile, gettempdir
from typing import TYPE_CHECKING, BinaryIO, Self

from kafkalog.errors import DestinationExistsError
from kafkalog.storage.files import sync_directory, unwritable
from kafkalog.storage.locks import lock_open

if TYPE_CHECKING:
    from collections.abc import Iterator


class AppendedFile:
    """A file to which lines are appended; use it as a context manager.

    A line is durable when `append` returns. A crash may leave part of the last line, without a
    newline, which is cut off when the file is opened again. Only one process at a time can have it
    open.

    Args:
        path: the file, created if missing.

    Raises:
        DestinationExistsError: another process has it open.
        UnwritableError: it cannot be opened or written; a partly written line is cut off, as far as
            that is possible.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = -1
        self._size = 0

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.open(self.path, flags, 0o666)
            lock_open(self._file, self.path)
            self._size = self._whole_lines()
            os.ftruncate(self._file, self._size)
            os.fsync(self._file)
            sync_directory(os.path.dirname(self.path) or ".")
        except OSError as error:
            self.__exit__()
            raise unwritable(error, self.path) from error
        except DestinationExistsError:
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
                os.ftruncate(self._file, self._size)
            except OSError as second:
                error.add_note(f"It cannot be truncated either: {second}")
            raise unwritable(error, self.path) from error
        self._size += len(data)

    def _whole_lines(self) -> int:
        """Return the position after the last newline."""
        end = os.fstat(self._file).st_size
        while end:
            start = max(0, end - (1 << 16))
            found = os.pread(self._file, end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


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
