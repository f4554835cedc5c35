"""The bounded output of a decompression, and the error for its failure."""

from __future__ import annotations

import re
import threading
from io import BytesIO
from typing import TYPE_CHECKING, Final

from formats.constants import COMPRESSION_NAMES
from formats.late_patterns import pattern
from kafkalog.errors import CorruptDataError, LimitExceededError, OutOfMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGE_SIZE: Final = 64 * 1024 * 1024
_IN_PLACE_MAX: Final = 4 * 1024 * 1024
# libzstd and liblz4, by error or for a context; that a frame wants too much is said otherwise.
_NO_MEMORY: Final = pattern(r"not enough memory|allocation.failed|unable to create", re.IGNORECASE)
_large = threading.Lock()
"""Held while a large output is produced, so that a log full of compression bombs takes the memory
of one, not of one per thread.
"""


class Output:
    """The decompressed bytes so far, at most `limit` of them."""

    def __init__(self, codec: int, limit: int) -> None:
        self.codec = codec
        self.limit = limit
        self.size = 0
        self._only: bytes | None = None  # a single piece need not be copied
        self._buffer: BytesIO | None = None
        self._is_large = False

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Append a piece. Raises as `reserve`."""
        self.reserve(len(piece))
        if not self.size and isinstance(piece, bytes):
            self._only = piece
        else:
            if self._buffer is None:
                self._buffer = BytesIO()
                self._buffer.write(self._only or b"")
                self._only = None
            self._buffer.write(piece)
        self.size += len(piece)

    def room(self, size: int) -> memoryview | None:  # noqa: ARG002
        """Return room for `size` bytes, to confirm by `filled`; None if `write` must be used."""
        return None

    def filled(self, size: int) -> None:
        """Confirm that `size` bytes were put into the room. Raises as `reserve`."""
        self.reserve(size)
        self.size += size

    def value(self) -> bytes:
        """Return everything that was written."""
        return self._buffer.getvalue() if self._buffer is not None else self._only or b""

    def clear(self) -> None:
        """Start over."""
        self.size = 0
        self._only = self._buffer = None

    def reserve(self, size: int) -> None:
        """Raise if `size` more bytes would exceed the limit."""
        if self.size + size > self.limit:
            name = COMPRESSION_NAMES[self.codec]
            raise LimitExceededError(
                f"The decompressed data ({name}) is larger than the limit of {self.limit} bytes."
            )
        if self.size + size > _LARGE_SIZE and not self._is_large:
            _large.acquire()
            self._is_large = True

    def end(self) -> None:
        """End the output: nothing else will be written."""
        if self._is_large:
            _large.release()
            self._is_large = False


class OutputInPlace(Output):
    """An output in the caller's memory, unless it is large: it must not be copied as it grows.

    Args:
        codec, limit: as for `Output`.
        place: called with the number of bytes in place and the number wanted; returns the memory
            for
            these.

    Attributes:
        is_in_place: whether everything is in the caller's memory; otherwise `value` returns all.
    """

    def __init__(self, codec: int, limit: int, place: Callable[[int, int], memoryview]) -> None:
        super().__init__(codec, limit)
        self.is_in_place = True
        self._place = place

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        """Append a piece. Raises as `reserve`."""
        room = self.room(len(piece))
        if room is None:
            super().write(piece)
        else:
            self.filled(len(piece))
            room[:] = piece

    def room(self, size: int) -> memoryview | None:
        if self.is_in_place and self.size + size > _IN_PLACE_MAX:
            self.is_in_place = False
            so_far, self.size = bytes(self._place(0, self.size)), 0
            super().write(so_far)
        return self._place(self.size, size) if self.is_in_place else None

    def clear(self) -> None:
        super().clear()
        self.is_in_place = True


def refused(codec: int, words: str) -> CorruptDataError | OutOfMemoryError:
    """Return the error for what a codec's library says, which may be that memory ran out."""
    if _NO_MEMORY.search(words):
        return OutOfMemoryError(f"Memory ran out while {COMPRESSION_NAMES[codec]} data was read.")
    return damage(codec, words)


def damage(codec: int, detail: str) -> CorruptDataError:
    """Return the error for data that cannot be decompressed."""
    return CorruptDataError(
        f"The {COMPRESSION_NAMES[codec]} data cannot be decompressed: {detail}.",
        reference="decompression-failed",
    )
