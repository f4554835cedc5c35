"""Values that Avro's resolution cannot bring to the column's schema keep the type of their own.

A field whose values may be such has several types while it is read: the one of the column, and one
for each type of the writer that does not fit. `merging` gives these fields of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.log.typed.avro_types import Shape, Shapes, is_struct, marked
from kafkalog.log.typed.merging import ONE_OF_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.typed.avro_resolution import Resolution
    from kafkalog.log.typed.avro_schema import Node

_PARTS_MAX: Final = 10_000


class Conflicts:
    """Makes the shape that values of a writer have in a column with conflict fields.

    Args:
        resolution: says which types fit.
    """

    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution
        self._count = 0

    def shape(self, writer: Node) -> Shape:
        """Return the shape of a writer's values; that of the column if all types fit.

        Raises:
            ValueError: the two schemas together are too large.
        """
        reader, shape = self._resolution.root
        return self._of([writer], reader, shape)

    def _of(self, writers: Sequence[Node], reader: Node, shape: Shape) -> Shape:
        """Return the shape of a part that values of some writers have."""
        self._count += 1
        if self._count > _PARTS_MAX:
            raise ValueError("the two schemas are too large to be resolved")
        nodes = [one for writer in writers for one in self._branches(writer, reader)]
        if shape.is_json or not nodes:
            return shape
        if reader.kind == "union":
            return self._union(nodes, reader, shape)
        if reader.kind == "record" and not reader.logical:
            return self._record(nodes, reader, shape)
        if reader.kind in ("array", "map"):
            [part] = shape.parts
            assert part is not None, "it is JSON otherwise"
            items = [one.parts[0] for one in nodes if one.kind == reader.kind]
            inner = self._of(items, reader.parts[0], part)
            return shape if inner is part else _container(shape, inner)
        return shape

    def _branches(self, writer: Node, reader: Node) -> list[Node]:
        """Return the types of a writer that need not fit, if the part below can have conflicts."""
        if writer.kind != "union":
            return [writer]
        is_same = reader.kind == "union" and self._resolution.is_same(writer, reader)
        return [] if is_same else writer.parts

    def _union(self, nodes: Sequence[Node], reader: Node, shape: Shape) -> Shape:
        found = list(shape.parts)
        for i, part in enumerate(shape.parts):
            here = [one for one in nodes if self._resolution.branch(one, reader) == i]
            if part is not None:
                found[i] = self._of(here, reader.parts[i], part)
        if all(one is other for one, other in zip(found, shape.parts, strict=True)):
            return shape
        if is_struct(reader):
            return _struct(shape, found)
        [kind] = {one.type for one in found if one is not None}
        return replace(shape, type=kind, parts=found)

    def _record(self, nodes: Sequence[Node], reader: Node, shape: Shape) -> Shape:
        records = [
            names
            for one in nodes
            if one.kind == "record" and self._resolution.fits_at(one, reader)
            for names in [dict(self._resolution.names.fields(one))]
            if len(names) == len(one.fields)  # else no value of it is read
        ]
        found = list(shape.parts)
        for i, (one, part) in enumerate(zip(reader.fields, shape.parts, strict=True)):
            writers = [fields[one.name] for fields in records if one.name in fields]
            if part is not None:
                found[i] = self._field(writers, one.type, part)
        if all(one is other for one, other in zip(found, shape.parts, strict=True)):
            return shape
        return _struct(shape, found)

    def _field(self, writers: Sequence[Node], reader: Node, part: Shape) -> Shape:
        if part.is_json:  # which has values of all types
            return part
        main = self._of(writers, reader, part)
        others: dict[int, tuple[str, Shape]] = {}
        for writer in writers:
            for one in self._branches(writer, reader):
                if self._may_differ(one, reader):
                    others[id(one)] = str(len(others)), Shapes().of(one)
        if not others:
            return main
        kinds = [("", main), *others.values()]
        kind = pa.struct([marked(pa.field(name, one.type), one) for name, one in kinds])
        return Shape(kind, main=main, others=others)

    def _may_differ(self, writer: Node, reader: Node) -> bool:
        """Return whether a value may not fit; fields of records are asked for themselves."""
        if writer.kind == "null":
            return False  # every column has it
        if writer.kind == "union":
            return any(self._may_differ(one, reader) for one in self._branches(writer, reader))
        if reader.kind == "union":
            place = self._resolution.branch(writer, reader)
            return place is None or self._may_differ(writer, reader.parts[place])
        if not self._resolution.fits_at(writer, reader):
            return True
        is_container = writer.kind in ("array", "map")
        return is_container and self._may_differ(writer.parts[0], reader.parts[0])


def _struct(shape: Shape, parts: list[Shape | None]) -> Shape:
    """Return a shape with other parts."""
    fields: list[Any] = []
    for name, one in zip(shape.names, parts, strict=True):
        if one is not None:
            field = shape.type.field(name).with_type(one.type)
            if one.main is not None:
                field = field.with_metadata({**(field.metadata or {}), ONE_OF_KEY: b"true"})
            fields.append(field)
    return replace(shape, type=pa.struct(fields), parts=parts)


def _container(shape: Shape, part: Shape) -> Shape:
    kind = shape.type
    if pa.types.is_map(kind):
        made = pa.map_(kind.key_field, kind.item_field.with_type(part.type))
    else:
        made = pa.list_(kind.value_field.with_type(part.type))
    return replace(shape, type=made, parts=[part])
