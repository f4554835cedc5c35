"""Avro's binary encoding by a schema."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.log.typed.avro_columns import AvroColumns
from kafkalog.log.typed.avro_conflicts import Conflicts
from kafkalog.log.typed.avro_resolution import Resolution
from kafkalog.log.typed.avro_schema import parse
from kafkalog.log.typed.avro_types import Shapes, marked
from kafkalog.log.typed.avro_values import Cursor
from kafkalog.log.typed.column_steps import UnsupportedSchemaError
from kafkalog.log.typed.evolution import merge
from kafkalog.log.typed.merging import kept
from kafkalog.log.typed.placing import PlacedColumns, Placing
from kafkalog.log.typed.schema_size import MALFORMED, brief

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.log.typed.avro_schema import Node
    from kafkalog.log.typed.avro_types import Shape
    from kafkalog.log.typed.avro_values import Reader
    from kafkalog.log.typed.framing import SchemaId

    Columns = AvroColumns | PlacedColumns


class AvroDecoder:
    """Decodes Avro to the types of `lake_types`.

    Records become structs; so does a union of several types, with a field for each of them. What
    has no type of its own becomes JSON. Bytes after the value are damage.

    Args:
        schema: the schema of the column, or the texts of it and, before it, of those that it
            refers to.
        writers: the schemas that values were written with, by id, each after those that it refers
            to. Values are resolved from theirs to the column's, as Avro specifies it. If empty, all
            values were written with the column's.
        versions: ids of the writers whose values all have a place: those that Avro does not resolve
            to the column's schema get conflict fields, as `merging` makes them, and null is null
            also where that schema does not allow it. Values of other writers are refused then.

    Attributes:
        type: the `pyarrow.DataType` of the column.
        remarks: parts of the schema that have no type of their own.
        losses: counts values with fewer digits in the column than they have.

    Raises:
        UsageError: the schema is malformed, or describes too many fields or levels.
    """

    def __init__(
        self,
        schema: bytes | Sequence[str],
        writers: Mapping[SchemaId, Sequence[str]] | None = None,
        versions: Sequence[SchemaId] = (),
    ) -> None:
        texts: Sequence[str | bytes] = [schema] if isinstance(schema, bytes) else schema
        self.losses: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()  # of one value
        try:
            self._node = parse(texts)
            shapes = Shapes()
            shape = shapes.of(self._node)
            own = Resolution(self._node, shape, self._noted, has_aliases=False)
            self._own = self._writer_of(own, self._node)
        except MALFORMED as error:
            raise UsageError(f"This is not an Avro schema: {brief(error)}.") from error
        self._shape = shape
        self.remarks = shapes.remarks
        self._trees = [json.loads(text) for text in texts]
        self._resolution = Resolution(self._node, shape, self._noted, has_aliases=True)
        self._texts = writers or {}
        self._writers: dict[SchemaId, _Writer | ValueError] = {}
        self._field = marked(pa.field("", shape.type), shape)
        self._shapes: dict[SchemaId, tuple[Node, Shape]] = {}
        for number in versions:
            self._add_conflicts(number)
        self.type = self._field.type
        self._own = self._placed(self._own, shape)

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        writer = self._writer(schema_id) if self._texts else self._own
        cursor = Cursor(data)
        self._noted.clear()
        try:
            value = writer.read(cursor)
        except RecursionError as error:
            raise ValueError("the value is nested too deeply") from error
        if cursor.at != len(data):
            raise ValueError("more bytes than the value has")
        self.losses.update({*+self._noted})  # of a value each once; without zeros
        return value

    def by_columns(self, schema_id: SchemaId | None) -> Columns | None:
        """Return what decodes values of a schema by columns; None if that is impossible."""
        try:
            return (self._writer(schema_id) if self._texts else self._own).columns
        except ValueError:
            return None

    def _writer(self, schema_id: SchemaId | None) -> _Writer:
        """Return what reads values of a schema; raise `ValueError` if nothing does."""
        texts = None if schema_id is None else self._texts.get(schema_id)
        if schema_id is None or texts is None:
            raise ValueError(f"the schema {schema_id} is unknown")
        if schema_id not in self._writers:
            self._writers[schema_id] = self._made(schema_id, texts)
        found = self._writers[schema_id]
        if isinstance(found, ValueError):
            raise found
        return found

    def _add_conflicts(self, number: SchemaId) -> None:
        """Give the column a field for each type of a version that does not fit."""
        with suppress(*MALFORMED):  # then its values do not decode
            if self._is_own(self._texts[number]):
                return
            node = parse(self._texts[number])
            shape = Conflicts(self._resolution).shape(node)
            other = marked(pa.field("", shape.type), shape)
            self._field, remarks = merge(self._field, other, number, kept)
            self.remarks += remarks
            self._shapes[number] = node, shape

    def _is_own(self, texts: Sequence[str]) -> bool:
        """Return whether the column has this schema: its aliases name no fields of its values."""
        return [json.loads(text) for text in texts] == self._trees

    def _made(self, schema_id: SchemaId, texts: Sequence[str]) -> _Writer | ValueError:
        try:
            if self._is_own(texts):
                return self._own
            if schema_id not in self._shapes:
                return self._placed(self._writer_of(self._resolution, parse(texts)), self._shape)
            node, shape = self._shapes[schema_id]
            resolution = Resolution(
                self._node, shape, self._noted, has_aliases=True, has_conflicts=True
            )
            return self._placed(self._writer_of(resolution, node), shape)
        except MALFORMED as error:
            return ValueError(f"the schema {schema_id} is malformed: {brief(error)}")

    def _placed(self, writer: _Writer, shape: Shape) -> _Writer:
        """Return what reads values of a shape as the column has them."""
        found = Placing(marked(pa.field("", shape.type), shape), self._field, kept)
        columns = writer.columns
        if columns is not None and found.array is not None:
            columns = PlacedColumns(columns, found, self.type, self.losses)
        return _Writer(_placed(writer.read, found), columns)

    def _writer_of(self, resolution: Resolution, node: Node) -> _Writer:
        columns = None
        if kernels_work():
            with suppress(UnsupportedSchemaError):
                columns = AvroColumns(resolution, node, self.losses)
        return _Writer(resolution.of(node), columns)


def _placed(read: Reader, placing: Placing) -> Reader:
    place = placing.value
    if place is None and placing.cells is None:
        return read

    def placed(cursor: Cursor) -> Any:
        value = read(cursor)
        placing.require_room(value)
        return value if place is None else place(value)

    return placed


class _Writer(NamedTuple):
    """What reads values of one schema.

    Attributes:
        read: reads one of them.
        columns: reads many by columns, if that is possible.
    """

    read: Reader
    columns: Columns | None
