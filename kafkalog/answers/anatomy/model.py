"""What an anatomy is made of: structures and fields, each with its place and its meaning."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass

if TYPE_CHECKING:
    from kafkalog.io.paths.source import Readable

RAW_MAX: Final = 256
"""Maximum number of bytes of a field that are kept with it."""
LEFT_OUT: Final = "left_out"


@dataclass(frozen=True, slots=True)
class Field:
    """Some bytes of a file, or of what a batch holds compressed, and what they mean.

    Attributes:
        path: the file.
        level: 0 for bytes of the file, 1 for those that a batch holds compressed.
        position: of the first byte, in the file or in what the batch holds.
        size_bytes: number of bytes.
        name: names and ordinals of the structures that it is in, and its own.
        value: number, text, bytes, or None for null.
        meaning: what the value says, in words.
        details: how the value comes from the bytes: bits, groups of 7 bits.
        raw: the first of its bytes.
        damage: kind of defect that is here, or None.
    """

    path: str
    level: int
    position: int
    size_bytes: int
    name: str
    value: object
    meaning: str
    details: tuple[str, ...] = ()
    raw: bytes = b""
    damage: str | None = None

    @property
    def is_left_out(self) -> bool:
        """Whether it stands for bytes that the limit left out."""
        return self.name.endswith(LEFT_OUT)


@dataclass(frozen=True, slots=True)
class Structure:
    """A batch, record, entry or payload: the fields that follow belong to it.

    Attributes are those of `Field`; `name` leads the names of its fields.
    """

    path: str
    level: int
    position: int
    size_bytes: int
    name: str
    meaning: str
    damage: str | None = None


Item = Field | Structure


@dataclass(frozen=True)
class Bytes:
    """Bytes that are one level: a file, or what a batch holds compressed."""

    source: Readable
    level: int
    size_bytes: int

    def field(
        self,
        name: str,
        start: int,
        end: int,
        value: object = None,
        meaning: str = "",
        *,
        details: tuple[str, ...] = (),
        damage: str | None = None,
        is_readable: bool = True,
    ) -> Field:
        raw = self.source.read(start, min(end - start, RAW_MAX)) if is_readable else b""
        return Field(
            self.source.path, self.level, start, end - start, name, value, meaning, details, raw,
            damage,
        )  # fmt: skip

    def structure(
        self, name: str, start: int, end: int, meaning: str, damage: str | None = None
    ) -> Structure:
        return Structure(self.source.path, self.level, start, end - start, name, meaning, damage)

    def left_out(self, prefix: str, start: int, end: int, meaning: str) -> Field:
        """Return the field of a range that is not shown."""
        return self.field(f"{prefix}{LEFT_OUT}", start, end, None, meaning)


@dataclass
class Content:
    """Decompressed bytes of a batch, as a source."""

    path: str
    data: bytes

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


class Stream:
    """A range of a source as the stream that schemas read; positions are the source's."""

    def __init__(self, source: Readable, start: int, end: int) -> None:
        self._source = source
        self._position = start
        self._end = end

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, all that are left if it is negative."""
        left = max(self._end - self._position, 0)
        data = self._source.read(self._position, left if size < 0 else min(size, left))
        self._position += len(data)
        return data

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset if whence == io.SEEK_SET else self._end + offset
        return self._position
