"""Small files that many questions are about, read once.

What the checks of a partition ask of a checkpoint, an index or a snapshot is then of one moment. A
log is read again, since it may grow.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from formats.file_names import LOG
from kafkalog.io.paths import reading
from kafkalog.io.paths.source import Source

if TYPE_CHECKING:
    from collections.abc import Generator

SIZE_MAX: Final = 4096
"""Files up to this size are kept."""
FILES_MAX: Final = 1024
"""So many files are kept at most; what is opened after them is read each time."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def each_file_once(steps: Generator[Item, None, Result]) -> Generator[Item, None, Result]:
    """Run a generator that reads each small file once; its caller reads them again."""
    files = _Files()
    while True:
        # Set only while the generator runs: a generator shares the context of its caller.
        token = reading.keeper.set(files)
        try:
            item = next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            reading.keeper.reset(token)
        yield item


class _Kept(NamedTuple):
    """The whole of a file, with what is known of it."""

    data: bytes
    stored_bytes: int
    modified_timestamp: int


class _Files(dict[str, _Kept]):
    """The files that were read so far, by path."""

    def keep(self, source: Source) -> bytes:
        """Read a small file that cannot grow by appends, for all who open it after this."""
        # With a rate limit or a spared page cache, `Source` itself accounts for each read.
        size, is_gentle = source.size_bytes, reading.read_options() != reading.AS_FAST_AS_IT_GOES
        if size > SIZE_MAX or len(self) >= FILES_MAX or is_gentle or source.path.endswith(LOG):
            return b""
        try:
            data = os.pread(source.fileno(), size, 0)
        except OSError:
            return b""  # told where the bytes are asked for
        if len(data) < size:
            return b""
        self[source.path] = _Kept(data, source.stored_bytes, source.modified_timestamp)
        return data


def _kept() -> _Files:
    files = reading.keeper.get()
    return files if isinstance(files, _Files) else _Files()


class KeptSource(Source):
    """A file that was read before."""

    __slots__ = ()

    def _open(self) -> None:
        self._window, self.stored_bytes, self.modified_timestamp = _kept()[self.path]
        self.size_bytes = len(self._window)
        self._fd = -1

    def fileno(self) -> int:
        """Raise: the file is not open."""
        raise io.UnsupportedOperation("fileno")

    def has_changed(self) -> bool:
        """Return False: it is what it was."""
        return False

    def next_data(self, position: int) -> int:
        """Return the position: holes were read as zeros."""
        return min(position, self.size_bytes)

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill the buffer from `position`; the file must be that long. Raises as `read`."""
        if position + len(buffer) > self.size_bytes:
            raise self._became_shorter(self.size_bytes)
        buffer[:] = self._window[position : position + len(buffer)]

    def _pread(self, position: int, size: int) -> bytes:
        if position + size > self.size_bytes:
            raise self._became_shorter(self.size_bytes)
        return self._window[position : position + size]


Source.others.append((lambda path: path in _kept(), KeptSource))
