"""Counts the cells of Protobuf messages before Google's library makes them.

The library takes some 8 bytes for each field of a message, also if it is not there; and a message
takes two bytes. So messages in a message are counted where it is not yet known what they hold.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafkalog.log.typed.cells import CELLS_MAX
from kafkalog.log.typed.proto_known import known_message
from kafkalog.log.typed.schema_size import NODES_MAX

_VARINT, _FIXED64, _SIZED, _GROUP, _GROUP_END, _FIXED32 = range(6)
_MESSAGE_SIZE_MIN: Final = 2
_DATA_SIZE_MIN: Final = 1 << 12


class _Inner(NamedTuple):
    """A field that holds messages: their descriptor, and the cells of each."""

    descriptor: Any
    cells: int


class MessageCells:
    """Counts the cells of messages.

    Args:
        pool: has the types of all messages.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._inner: dict[str, dict[int, _Inner]] = {}
        self._widest: dict[str, int] = {}

    def require_few(self, descriptor: Any, data: bytes) -> None:
        """Raise `ValueError` if a message holds messages with too many cells.

        Damage is left to the library, which stops there.
        """
        if len(data) < _DATA_SIZE_MIN:
            return
        if len(data) // _MESSAGE_SIZE_MIN * self._most(descriptor) <= CELLS_MAX:
            return
        try:
            self._count(descriptor, data)
        except IndexError:  # it ends early
            return

    def _count(self, descriptor: Any, data: bytes) -> None:
        # Beyond lists, the fields of the column itself.
        left = CELLS_MAX + NODES_MAX
        fields, at, end = self._fields(descriptor), 0, len(data)
        around: list[tuple[dict[int, _Inner], int]] = []
        while at < end or around:
            if at >= end:
                fields, end = around.pop()
                continue
            tag, at = _varint(data, at)
            form = tag & 7
            inner = fields.get(tag >> 3) if form in (_SIZED, _GROUP) else None
            if inner is not None:
                left -= inner.cells
                if left < 0:
                    raise ValueError(f"its messages have more than {CELLS_MAX} cells")
            if form == _VARINT:
                _, at = _varint(data, at)
            elif form == _SIZED:
                size, at = _varint(data, at)
                if inner is None:
                    at += size
                else:
                    around.append((fields, end))
                    fields, end = self._fields(inner.descriptor), min(at + size, end)
            elif form == _GROUP:
                around.append((fields, end))
                fields = {} if inner is None else self._fields(inner.descriptor)
            elif form == _GROUP_END and around:
                fields, end = around.pop()
            elif form in (_FIXED32, _FIXED64):
                at += 4 if form == _FIXED32 else 8
            else:
                return

    def _fields(self, descriptor: Any) -> dict[int, _Inner]:
        """Return the fields of a message that hold messages, by their numbers."""
        found = self._inner.get(descriptor.full_name)
        if found is None:
            found = self._inner[descriptor.full_name] = {
                field.number: _Inner(field.message_type, self._cells(descriptor, field))
                for field in (*descriptor.fields, *self._pool.FindAllExtensions(descriptor))
                if field.message_type is not None
            }
        return found

    def _cells(self, holder: Any, field: Any) -> int:
        inner = field.message_type
        if holder.GetOptions().map_entry:
            return 0  # the entry has them, which can lack the value
        if inner.GetOptions().map_entry:
            value = inner.fields_by_name["value"].message_type
            return 1 + (1 if value is None else self._own(value))
        return self._own(inner)

    def _own(self, descriptor: Any) -> int:
        """Return the cells of a message without those of messages in it."""
        if known_message(descriptor, {}) is not None:
            return 1
        return 1 + len(descriptor.fields) + len(self._pool.FindAllExtensions(descriptor))

    def _most(self, descriptor: Any) -> int:
        """Return the most cells of a message in a message, at any depth."""
        name = descriptor.full_name
        if name not in self._widest:
            seen = {name}
            waiting = [descriptor]
            most = 0
            while waiting:
                for inner in self._fields(waiting.pop()).values():
                    most = max(most, inner.cells)
                    if inner.descriptor.full_name not in seen:
                        seen.add(inner.descriptor.full_name)
                        waiting.append(inner.descriptor)
            self._widest[name] = most
        return self._widest[name]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint; raise `IndexError` if it ends early."""
    byte = data[at]
    at += 1
    if byte < 0x80:  # the last byte
        return byte, at
    number, shift = byte & 0x7F, 7
    while byte >= 0x80 and shift < 70:  # bits
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number, at
