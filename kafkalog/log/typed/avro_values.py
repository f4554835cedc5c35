"""Reads values of Avro's binary encoding, one after the other."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kafkalog.log.typed.cells import COUNTER

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.typed.avro_schema import Node

    Reader = Callable[["Cursor"], Any]

_INT_SIZE_MAX: Final = 5
_LONG_SIZE_MAX: Final = 10
SIZES: Final = {"boolean": 1, "float": 4, "double": 8}
_BARE_ITEMS_MAX: Final = 10_000
_ENDS_EARLY: Final = "the value ends early, or does not fit its schema"


class Cursor:
    """A place in the bytes of a value."""

    __slots__ = ("at", "bare", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.bare = 0  # items of arrays that have no bytes

    def take(self, size: int) -> bytes:
        """Return the next bytes; raise `ValueError` if there are fewer."""
        start = self.at
        end = start + size
        if size < 0:
            raise ValueError(f"a size of {size} bytes")
        if end > len(self.data):
            raise ValueError(_ENDS_EARLY)
        self.at = end
        return self.data[start:end]

    def claim(self, count: int) -> None:
        """Refuse items without bytes, of which a few bytes could claim any number."""
        if count > len(self.data) - self.at:
            self.bare += count
            if self.bare > _BARE_ITEMS_MAX:
                raise ValueError(f"an array of {count} items has fewer bytes")


def read_long(cursor: Cursor) -> int:
    """Read a zigzag varint of 64 bits."""
    data, at = cursor.data, cursor.at
    try:
        byte = data[at]
        if byte < 0x80:  # most numbers
            cursor.at = at + 1
            return (byte >> 1) ^ -(byte & 1)
        found, shift = byte & 0x7F, 7
        while True:
            at += 1
            byte = data[at]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift == 7 * _LONG_SIZE_MAX:
                break
    except IndexError as error:
        raise ValueError(_ENDS_EARLY) from error
    if byte >= 0x80 or found >> 64:
        raise ValueError("a number of more than 64 bits")
    cursor.at = at + 1
    return (found >> 1) ^ -(found & 1)


def read_int(cursor: Cursor) -> int:
    """Read a zigzag varint of 32 bits."""
    start = cursor.at
    found = read_long(cursor)
    if not -0x8000_0000 <= found <= 0x7FFF_FFFF or cursor.at - start > _INT_SIZE_MAX:
        raise ValueError("a number of more than 32 bits")
    return found


def read_bytes(cursor: Cursor) -> bytes:
    return cursor.take(read_long(cursor))


def read_text(cursor: Cursor) -> str:
    return cursor.take(read_long(cursor)).decode()


def read_boolean(cursor: Cursor) -> bool:
    byte = cursor.take(1)
    if byte > b"\1":
        raise ValueError(f"{byte[0]} is no boolean")
    return byte == b"\1"


def _floating(code: str) -> Reader:
    form = struct.Struct(code)
    unpack, size = form.unpack_from, form.size

    def read(cursor: Cursor) -> Any:
        at = cursor.at
        try:
            [found] = unpack(cursor.data, at)
        except struct.error as error:
            raise ValueError(_ENDS_EARLY) from error
        cursor.at = at + size
        return found

    return read


def read_null(cursor: Cursor) -> None:  # noqa: ARG001 # no bytes
    return None


PRIMITIVE_READERS: Final[dict[str, Reader]] = {
    "null": read_null,
    "boolean": read_boolean,
    "int": read_int,
    "long": read_long,
    "float": _floating("<f"),
    "double": _floating("<d"),
    "bytes": read_bytes,
    "string": read_text,
}


def index(cursor: Cursor, count: int) -> int:
    """Read the number of a branch or symbol, of which there are `count`."""
    found = read_int(cursor)
    if not 0 <= found < count:
        raise ValueError(f"{found} is none of {count} branches or symbols")
    return found


def read_blocks(
    cursor: Cursor, read: Callable[[Cursor], Any], add: Callable[[Any], Any], width: int
) -> None:
    """Read the items of an array or a map, of `width` cells each."""
    while count := read_long(cursor):
        if count < 0:
            count = -count
            read_long(cursor)  # the size of the block
        cursor.claim(count)
        COUNTER.add(count, width)
        for _ in range(count):
            add(read(cursor))


class Skips:
    """Makes what passes over values that the reader has no field for."""

    def __init__(self) -> None:
        self._made: dict[int, Reader] = {}

    def of(self, node: Node) -> Reader:
        """Return what passes over a value of a type, which can be within itself."""
        made = self._made
        key = id(node)
        if key not in made:
            made[key] = lambda cursor: made[key](cursor)  # noqa: PLW0108 # not made yet
            made[key] = self._skip(node)
        return made[key]

    def _skip(self, node: Node) -> Reader:
        if node.kind == "record":
            fields = [self.of(one.type) for one in node.fields]

            def record(cursor: Cursor) -> None:
                for skip in fields:
                    skip(cursor)

            return record
        if node.kind == "union":
            branches = [self.of(one) for one in node.parts]
            return lambda cursor: branches[index(cursor, len(branches))](cursor)
        if node.kind == "array":
            return _skip_blocks(self.of(node.parts[0]))
        if node.kind == "map":
            value = self.of(node.parts[0])

            def entry(cursor: Cursor) -> None:
                read_bytes(cursor)
                value(cursor)

            return _skip_blocks(entry)
        if node.kind == "fixed" or node.kind in SIZES:
            size = SIZES.get(node.kind, node.size)
            return lambda cursor: cursor.take(size)
        if node.kind == "enum":
            return read_int
        return read_bytes if node.kind == "string" else PRIMITIVE_READERS[node.kind]


def _skip_blocks(skip: Reader) -> Reader:
    def blocks(cursor: Cursor) -> None:
        while count := read_long(cursor):
            if count < 0:
                cursor.take(read_long(cursor))
                continue
            cursor.claim(count)
            for _ in range(count):
                skip(cursor)

    return blocks
