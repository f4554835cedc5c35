"""Chooses what decodes headers, records, varints and index entries: fast code, or the schemas.

Sound data pass the schemas by, which are the reference: with `KAFKALOG_DECODER=schema` they decode
everything, and all output has to stay the same.
"""

from __future__ import annotations

import os
import struct
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE: Final = "KAFKALOG_DECODER"
NAMES: Final = ("fast", "schema")
CHOSEN: Final = os.environ.get(VARIABLE) or NAMES[0]
BY_SCHEMA: Final = CHOSEN == "schema"


class SchemaStruct:
    """Does what a `struct.Struct` of consecutive fields does, but unpacks them by their schema.

    Args:
        schema: module and name of a schema of `formats` that begins with the fields of a layout.
        fields: names of the fields to parse, in order.
        wanted: names of those to return.
        plain: packs the wanted ones.
    """

    def __init__(
        self, schema: str, fields: list[str], wanted: tuple[str, ...], plain: struct.Struct
    ) -> None:
        self._home, self._fields, self._wanted = schema, fields, wanted
        self.size, self.pack, self.pack_into = plain.size, plain.pack, plain.pack_into

    @cached_property
    def _schema(self) -> Any:
        # Not before: schemas are made of layouts, and small reads need none.
        module, name = self._home.split(".")
        whole = getattr(import_module(f"formats.{module}"), name)
        by_name = {field.name: field for field in whole.subcons}
        if list(by_name) == self._fields:
            return whole
        return type(whole)(*(by_name[name] for name in self._fields))

    def unpack(self, data: Any) -> tuple[Any, ...]:
        """Return the wanted fields of bytes that hold nothing else."""
        if len(data) != self.size:
            raise struct.error(f"{len(data)} bytes are not the {self.size} of these fields")
        return self.unpack_from(data)

    def unpack_from(self, data: Any, position: int = 0) -> tuple[Any, ...]:
        """Return the wanted fields from a position on."""
        piece = bytes(memoryview(data)[position : position + self.size])
        if len(piece) < self.size:
            raise struct.error(f"{len(piece)} bytes do not hold the {self.size} of these fields")
        parsed = self._schema.parse(piece)
        return tuple(self._number(name, parsed[name]) for name in self._wanted)

    def iter_unpack(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted fields again and again, up to the end."""
        if len(data) % self.size:
            raise struct.error(f"{len(data)} bytes are not pieces of {self.size}")
        for position in range(0, len(data), self.size):
            yield self.unpack_from(data, position)

    def _number(self, name: str, value: Any) -> Any:
        if isinstance(value, int):
            return value
        bits = getattr(self._schema, name).build(value)  # attributes: a schema of single bits
        return int.from_bytes(bits, "big", signed=True)
