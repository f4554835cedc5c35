"""Defaults of fields in schemas of Avro, as the bytes that they would be."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UsageError
from kafkalog.log.typed.schema_size import SchemaSize

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.typed.avro_schema import Field, Node

_BITS: Final = {"int": 32, "long": 64}


class Defaults:
    """Encodes defaults: a field that one lacks has its own; a union takes the first branch."""

    def __init__(self) -> None:
        self._right: dict[tuple[int, int], bool] = {}

    def encoded(self, field: Field) -> bytes:
        """Return the bytes of a field's default.

        Raises:
            ValueError: it does not have the type, or has no end.
        """
        data = bytearray()
        try:
            self._write(field.default, field.type, data, SchemaSize())
        except (RecursionError, ArithmeticError, UsageError) as error:
            raise ValueError("it has no end, or is beyond all bounds") from error
        return bytes(data)

    def _write(self, value: Any, node: Node, data: bytearray, size: SchemaSize) -> None:
        with size.inside(node.short):
            if not self._is_right(value, node):
                raise ValueError(f"{value!r:.40} is no {node.kind}")
            if node.kind == "union":
                branches = enumerate(node.parts)
                place = next(i for i, one in branches if self._is_right(value, one))
                data += _varint(place)
                self._write(value, node.parts[place], data, size)
            elif node.kind == "record":
                for one in node.fields:
                    self._write(value.get(one.name, one.default), one.type, data, size)
            elif node.kind in ("array", "map"):
                if value:
                    data += _varint(len(value))
                for one in value:
                    if node.kind == "map":
                        data += _sized(one.encode())
                    item = value[one] if node.kind == "map" else one
                    self._write(item, node.parts[0], data, size)
                data += _varint(0)
            else:
                data += _SCALARS[node.kind](value, node)

    def _is_right(self, value: Any, node: Node) -> bool:
        """Return whether a default has a type, as Java sees it."""
        # By identity: both are in schemas that are still there.
        key = (id(value), id(node))
        if key not in self._right:
            self._right[key] = True  # for a record within itself
            self._right[key] = self._is_of(value, node)
        return self._right[key]

    def _is_of(self, value: Any, node: Node) -> bool:
        kind = node.kind
        if kind in _BITS:
            bound = 1 << (_BITS[kind] - 1)
            return type(value) is int and -bound <= value < bound
        if kind == "array":
            return type(value) is list and all(self._is_right(one, node.parts[0]) for one in value)
        if kind == "map":
            return type(value) is dict and all(
                self._is_right(one, node.parts[0]) for one in value.values()
            )
        if kind == "record":
            return type(value) is dict and all(
                (one.name in value or one.has_default)
                and self._is_right(value.get(one.name, one.default), one.type)
                for one in node.fields
            )
        if kind == "union":
            return any(self._is_right(value, one) for one in node.parts)
        if kind == "enum":
            return value in node.symbols
        return type(value) in _TYPES[kind]


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "float": (int, float),
    "double": (int, float),
    "bytes": (str,),
    "fixed": (str,),
    "string": (str,),
}


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _latin(value: str) -> bytes:
    return value.encode("iso-8859-1", "replace")


_SCALARS: Final[dict[str, Callable[[Any, Node], bytes]]] = {
    "null": lambda _value, _node: b"",
    "boolean": lambda value, _: bytes([value]),
    "int": lambda value, _: _varint(value),
    "long": lambda value, _: _varint(value),
    "float": lambda value, _: struct.pack("<f", value),
    "double": lambda value, _: struct.pack("<d", value),
    "string": lambda value, _: _sized(value.encode()),
    "bytes": lambda value, _: _sized(_latin(value)),
    # As Java: cut, or filled with zeros.
    "fixed": lambda value, node: _latin(value)[: node.size].ljust(node.size, b"\0"),
    "enum": lambda value, node: _varint(node.symbols.index(value)),
}
