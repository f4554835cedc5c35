"""Read-only bytes: the one place where kafkalog opens files to read them.

Files are opened O_RDONLY and read by position (`pread`), not through a mapping: if a running broker
truncates a file meanwhile, the result is an error, not a signal. Only regular files are opened,
because a FIFO or a device could hang, or be changed by reading.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, cast

from kafkalog.errors import (
    BytesUnreadableError,
    FileChangedError,
    NotAKafkaFileError,
    NotFoundError,
    ShortageError,
)
from kafkalog.io.paths import reading
from kafkalog.io.paths.file_system import is_part, normalize
from kafkalog.io.paths.reading_errors import announced, reading_error, require_regular
from kafkalog.io.paths.retry import tried
from kafkalog.io.paths.uris import is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.io.paths.read_ahead import ReadAhead

WINDOW_SIZE_MIN = 4096
WINDOW_SIZE_MAX = 1 << 20
BLOCK_SIZE = 512  # of st_blocks, whatever the file system
_PAGE_SIZE = 4096
_BLOCKS_TRIED = 64
_READ_SIZE = 1 << 18  # read size when the page cache is preserved
_LARGE = 1 << 20  # while a broker runs, reads of larger files spare its page cache


class Readable(Protocol):
    """Bytes by position, and the file they are from."""

    path: str

    def read(self, position: int, size: int) -> bytes:
        """Read as `Source.read` does."""


class Source:
    """A regular file or an object, open for reading, with its length when it was opened.

    Small reads are served from a window that grows during forward reading, so that both header
    walks over large batches and sequential reads are cheap.

    Attributes:
        size_bytes: the end of what is read.
        file_bytes: its length.
        stored_bytes: the space it occupies: less than its length if it has holes.
        modified_timestamp: when it was modified.
        inode: tells it from another file of its name; 0 if it has no such number.

    Args:
        path: the file, symbolic links are followed; or the URI of an object.
        end: treat it as ending at this position, if it is longer; None for its size.

    Raises:
        NotFoundError, UnreadableError: the file is missing, or cannot be opened or read.
        NotAKafkaFileError: it is not a regular file.
    """

    __slots__ = ("_failed", "_fd", "_options", "_window", "_window_position", "_window_size",
                 "file_bytes", "inode", "modified_timestamp", "path", "size_bytes",
                 "stored_bytes")  # fmt: skip

    others: ClassVar[list[tuple[Callable[[str], bool], type[Source]]]] = []
    """Which paths are not simply those of files, and what opens them; the first one counts."""
    size_bytes: int
    file_bytes: int
    stored_bytes: int
    modified_timestamp: int
    inode: int

    def __new__(cls, path: str, end: int | None = None) -> Self:  # noqa: ARG004 # as __init__
        kind = next((kind for opens, kind in Source.others if opens(path)), cls)
        if is_part(path):  # by its name: it rests on this module, and most runs do not need it
            kind = import_module("kafkalog.io.paths.chunked").ChunkedSource
        return cast("Self", object.__new__(kind))

    def __init__(self, path: str, end: int | None = None) -> None:
        self.path = path
        self._options = reading.read_options()
        self._window = b""
        self._window_position = 0
        self._window_size = WINDOW_SIZE_MIN
        # For each unreadable block, the position from which on it is unreadable.
        self._failed: dict[int, int] = {}
        self.inode = 0
        self._open()
        self.file_bytes = self.size_bytes
        if end is not None:
            self.size_bytes = min(self.size_bytes, end)

    def _open(self) -> None:
        path = self.path = normalize(self.path)
        try:
            # Before it is opened: opening a device can have effects.
            require_regular(path, tried(path, os.stat, path).st_mode)
            # O_NONBLOCK: a FIFO that takes its place now would wait for a writer.
            self._fd = tried(path, os.open, path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise reading_error(error, path) from error
        except ValueError as error:
            raise NotFoundError("The path cannot name a file.", path=path) from error
        try:
            status = tried(path, os.fstat, self._fd)
            require_regular(path, status.st_mode)  # it may have been replaced since
        except OSError as error:
            self.close()
            raise reading_error(error, path) from error
        except (NotAKafkaFileError, ShortageError):
            self.close()
            raise
        self.size_bytes = status.st_size
        self.stored_bytes = status.st_blocks * BLOCK_SIZE  # less with holes
        self.modified_timestamp = status.st_mtime_ns // 1_000_000
        self.inode = status.st_ino
        if (
            not self._options.leaves_cache
            and self.size_bytes >= _LARGE
            and self._is_beside_broker()
        ):
            self._options = replace(self._options, leaves_cache=True)
        if self._options.leaves_cache:
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        keeper = reading.keeper.get()
        if keeper is not None:
            self._window = keeper.keep(self)

    def _is_beside_broker(self) -> bool:
        if self.size_bytes < _LARGE:  # it displaces little
            return False
        from kafkalog.io.broker_lock import is_of_running_broker

        return is_of_running_broker(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor of the file, as `os.sendfile` wants it.

        Raises:
            UnsupportedOperation: it is an object.
        """
        return self._fd

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, position: int, size: int) -> bytes:
        """Return exactly `size` bytes from `position`, fewer only at the end of the file.

        Raises:
            BytesUnreadableError: the disk does not return these bytes.
            FileChangedError: the file became shorter after it was opened.
        """
        size = min(size, self.size_bytes - position)
        if size <= 0:
            return b""
        start = position - self._window_position
        if start >= 0 and start + size <= len(self._window):
            return self._window[start : start + size]
        if size >= WINDOW_SIZE_MAX:
            return self._pread(position, size)
        ahead = 0 <= start <= len(self._window) + WINDOW_SIZE_MIN
        grown = min(self._window_size * 2, WINDOW_SIZE_MAX)
        self._window_size = grown if ahead and self._window else WINDOW_SIZE_MIN
        wanted = min(max(size, self._window_size), self.size_bytes - position)
        # A window must not fail because of a bad block that nobody asked for.
        bad = self._bad_place(position, position + wanted)
        if bad is not None and bad >= position + size:
            wanted = bad - position
        try:
            self._window = self._pread(position, wanted)
        except BytesUnreadableError:  # perhaps after the bytes that are wanted
            return self._pread(position, size)
        self._window_position = position
        return self._window[:size]

    def read_apart(self, position: int, size: int) -> bytes:
        """Return what `read` does, without reading more: for a few bytes in each of many places."""
        is_plain = type(self) is Source and self._options is reading.AS_FAST_AS_IT_GOES
        is_new = not self._window and not self._failed
        if is_plain and is_new and size <= self.size_bytes - position:
            with suppress(OSError):  # `read` tells what it is
                if len(data := os.pread(self._fd, size, position)) == size:
                    return data
        return self.read(position, size)

    def read_exactly(self, position: int, size: int) -> bytes:
        """Read bytes that existed when the file was listed, as `read` does.

        Raises:
            FileChangedError: the file became shorter after it was listed or opened.
        """
        data = self.read(position, size)
        if len(data) < size:
            raise self._became_shorter(position + len(data))
        return data

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill the buffer from `position`; the file must have that many bytes. Raises as `read`."""

        def give(start: int, end: int) -> int:
            part = buffer[start - position : end - position]
            if self._options.leaves_cache:
                from kafkalog.io.paths.page_cache import read_block

                count = read_block(self._fd, part, start)
            else:
                count = os.preadv(self._fd, [part], start)
            if self._options.limiter is not None:
                self._options.limiter.spend(count)
            return count

        self._read_all(position, position + len(buffer), give)

    def _read_all(self, position: int, end: int, give: Callable[[int, int], int]) -> None:
        """Read a range; `give` reads some of a part of it and returns the number of bytes.

        A disk can refuse a large read because of one bad block, or return what precedes that block:
        from there on each block is read separately.
        """
        bad = self._bad_place(position, end)
        if bad is not None:
            raise self._not_given(OSError(errno.EIO, ""), bad)
        is_gentle = self._options.leaves_cache  # cached pages are read separately
        step = _READ_SIZE if is_gentle else end
        while position < end:
            stop = min(position - position % step + step, end)
            try:
                count = tried(self.path, give, position, stop)
            except OSError as error:
                # A single block that fails is lost; a longer range is tried block by block.
                if position // _PAGE_SIZE == (stop - 1) // _PAGE_SIZE:
                    raise self._not_given(error, position) from error
                step = _PAGE_SIZE
                continue
            if not count:
                raise self._became_shorter(position)
            position += count
            if position < stop and not is_gentle:
                step = _PAGE_SIZE

    def is_zero_from(self, position: int) -> bool:
        """Return whether every byte from `position` to the end of the file is zero.

        Holes of sparse files are skipped without reading them.
        """
        size = WINDOW_SIZE_MIN
        while (position := self.next_data(position)) < self.size_bytes:
            chunk = self._pread(position, min(size, self.size_bytes - position))
            if chunk.strip(b"\0"):
                return False
            position += len(chunk)
            size = min(2 * size, WINDOW_SIZE_MAX)
        return True

    def next_data(self, position: int) -> int:
        """Return the position of the next data that is not a hole; the file size if none.

        The position itself if the file system does not support holes.

        Raises:
            UnreadableError: the file became shorter after it was opened.
        """
        try:
            return min(os.lseek(self._fd, position, os.SEEK_DATA), self.size_bytes)
        except OSError as error:
            # ENXIO: there is a hole up to the end, or the file ends before.
            if error.errno != errno.ENXIO:
                return position
        try:
            size_bytes = tried(self.path, os.fstat, self._fd).st_size
        except OSError as error:
            raise reading_error(error, self.path) from error
        if size_bytes < self.size_bytes:
            raise self._became_shorter(position)
        return self.size_bytes

    def _pread(self, position: int, size: int) -> bytes:
        if self._options != reading.AS_FAST_AS_IT_GOES:
            chunk = bytearray(size)
            self.read_into(position, memoryview(chunk))
            return bytes(chunk)
        pieces: list[bytes] = []

        def give(start: int, end: int) -> int:
            pieces.append(os.pread(self._fd, end - start, start))
            return len(pieces[-1])

        self._read_all(position, position + size, give)
        return b"".join(pieces)

    def next_readable(self, position: int) -> int:
        """Return where the disk returns bytes again, after an unreadable `position`.

        Each attempt can take a drive half a minute. So after `_BLOCKS_TRIED` consecutive failures
        the steps grow, and shrink again before the first success; readable bytes between two
        attempts may be skipped.

        Returns:
            The beginning of a block; the size of the file if its last block is unreadable, too.
        """
        failed, step, tried = position - position % _PAGE_SIZE, _PAGE_SIZE, 0
        last = (self.size_bytes - 1) // _PAGE_SIZE * _PAGE_SIZE
        while failed < last:
            given = min(failed + step, last)
            if self._gives(given):
                break
            failed, tried = given, tried + 1
            step = _PAGE_SIZE if tried < _BLOCKS_TRIED else 2 * step
        else:
            return self.size_bytes
        while given - failed > _PAGE_SIZE:
            middle = (failed + given) // 2 // _PAGE_SIZE * _PAGE_SIZE
            if self._gives(middle):
                given = middle
            else:
                failed = middle
        return given

    def _gives(self, position: int) -> bool:
        try:
            self._pread(position, min(_PAGE_SIZE, self.size_bytes - position))
        except BytesUnreadableError:
            return False
        return True

    def _bad_place(self, position: int, end: int) -> int | None:
        """Return the first place of a range that has failed before: it is not read again."""
        if not self._failed:
            return None
        places = [
            max(start, position)
            for block, start in self._failed.items()
            if start < end and position < (block + 1) * _PAGE_SIZE
        ]
        return min(places, default=None)

    def _not_given(self, error: OSError, position: int) -> BytesUnreadableError:
        block = position // _PAGE_SIZE
        self._failed[block] = min(position, self._failed.get(block, position))
        unreadable = BytesUnreadableError(
            f"The bytes at this position cannot be read: {os.strerror(error.errno or 0)}.",
            path=self.path,
            position=position,
            hint="Check the system log. If the disk is failing, image it first, and work on the "
            "image.",
        )
        return announced(unreadable)

    def has_changed(self) -> bool:
        """Return whether the file's length changed after it was opened."""
        return tried(self.path, os.fstat, self._fd).st_size != self.file_bytes

    def _became_shorter(self, position: int) -> FileChangedError:
        return FileChangedError(
            "The file became shorter while it was being read.",
            path=self.path,
            position=position,
            hint="Is a broker still writing to it? Stop it, or work on a copy.",
        )


def read_file(path: str, size_max: int = 64 << 20) -> bytes:
    """Return the whole of a small file.

    Raises:
        NotAKafkaFileError: the file is larger than `size_max` bytes.
    """
    try:
        return _whole(path, size_max)
    except FileChangedError:
        if not is_object(path):
            raise
        return _whole(path, size_max)  # it was replaced after it was listed


def _whole(path: str, size_max: int) -> bytes:
    with Source(path) as source:
        if source.size_bytes > size_max:
            raise NotAKafkaFileError(
                f"The file has {source.size_bytes} bytes; files of this kind are far smaller.",
                path=path,
            )
        return source.read(0, source.size_bytes)


class ObjectSource(Source):
    """An object of a store, open for reading."""

    __slots__ = ("_ahead", "_is_small", "_read_at")
    _ahead: ReadAhead | None
    _read_at: Callable[[int, int], bytes] | None

    def _open(self) -> None:
        from kafkalog.io.paths.object_store import open_object

        opened = open_object(self.path)
        self.path, self.modified_timestamp = opened.path, opened.modified_timestamp
        self.size_bytes = self.stored_bytes = opened.size_bytes
        self._read_at, self._is_small, self._ahead = opened.read_at, opened.is_small, None

    def fileno(self) -> int:
        """Raise: an object has no descriptor."""
        raise io.UnsupportedOperation("fileno")

    def close(self) -> None:
        """Stop reading; closing twice does no harm."""
        self._read_at = None
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill the buffer from `position`; the object must be that long. Raises as `read`."""
        assert self._read_at is not None, "closed"
        if position + len(buffer) > self.size_bytes:
            raise self._became_shorter(self.size_bytes)
        if self._ahead is None:
            from kafkalog.io.paths.read_ahead import ReadAhead

            self._ahead = ReadAhead(partial(self._fetched, self._read_at), self.size_bytes)
        self._ahead.read_into(position, buffer.cast("B"))
        if self._options.limiter is not None:
            self._options.limiter.spend(len(buffer))

    def _fetched(self, read_at: Callable[[int, int], bytes], position: int, size: int) -> bytes:
        data = read_at(position, size)
        if len(data) < size:
            raise self._became_shorter(position + len(data))
        return data

    def has_changed(self) -> bool:
        """Return False: an object is replaced whole, which the next request to it notices."""
        return False

    def next_data(self, position: int) -> int:
        """Return the position: objects have no holes."""
        return min(position, self.size_bytes)

    def _pread(self, position: int, size: int) -> bytes:
        # What is fetched whole needs nothing ahead.
        if self._is_small and self._read_at is not None and self._options.limiter is None:
            return self._fetched(self._read_at, position, size)
        chunk = bytearray(size)
        self.read_into(position, memoryview(chunk))
        return bytes(chunk)


Source.others.append((is_object, ObjectSource))
