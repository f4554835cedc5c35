"""Avro's binary encoding by a schema, with fastavro."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from decimal import DecimalException
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fastavro
import pyarrow as pa

from formats.constants import INT32_MAX
from kafkalog.errors import UsageError
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.log.typed.avro_columns import AvroColumns, UnsupportedSchemaError
from kafkalog.log.typed.schema_size import SchemaSize, brief

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.remarks import Remark

_PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_FIXED_SIZE_MAX: Final = 1024  # an array of fixed width reserves room for its nulls, too
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("string", "uuid"): pa.string(),
}
# What fastavro raises for bytes that are not such a value.
_DAMAGE: Final = (
    ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, StopIteration,
    RecursionError, MemoryError, struct.error, DecimalException,
)  # fmt: skip


class AvroDecoder:
    """Decodes Avro: records become structs, enums strings, a union of null and one type that type.

    Bytes after the value are damage. Supported logical types: decimal, date, times and timestamps
    of milliseconds and microseconds, uuid; others are treated as their underlying types.

    Args:
        schema: the schema of the column, or the texts of it and, before it, of those that it
            refers to.
        writers: the schemas that values were written with, by id, each after those that it refers
            to. Values are resolved from theirs to the column's, as Avro specifies it. If empty, all
            values were written with the column's.

    Raises:
        UsageError: the schema is malformed, recursive, or has unions of several types.
        ModuleNotFoundError: fastavro is missing.
    """

    def __init__(
        self, schema: bytes | Sequence[str], writers: Mapping[SchemaId, Sequence[str]] | None = None
    ) -> None:
        texts: Sequence[str | bytes] = [schema] if isinstance(schema, bytes) else schema
        try:
            schemas = [json.loads(text) for text in texts]
            tree = _expanded(schemas)
            self._schema = _parsed(schemas)
        except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as error:
            raise UsageError(f"This is not an Avro schema: {brief(error)}.") from error
        self.type = _type(tree, "#", SchemaSize())
        self.remarks: list[Remark] = []
        self.losses: Counter[str] = Counter()
        self._texts = writers or {}
        self._writers: dict[SchemaId, _Writer] = {}
        self._own = _Writer(self._schema, None, _has_uuids(schemas), _columns(tree, self.type))

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        file = io.BytesIO(data)
        writer = self._writer(schema_id) if self._texts else self._own
        try:
            value = fastavro.schemaless_reader(file, writer.schema, writer.reader)
        except fastavro.read.SchemaResolutionError as error:
            raise ValueError(f"the schema {schema_id} does not fit that of the column") from error
        except (EOFError, IndexError) as error:
            raise ValueError("the value ends early, or does not fit its schema") from error
        except _DAMAGE as error:
            # Fastavro also names its stream.
            raise ValueError(brief(error).partition(" from <")[0]) from error
        if file.tell() != len(data):
            raise ValueError("more bytes than the value has")
        return _plain(value) if writer.has_uuids else value

    def by_columns(self, schema_id: SchemaId | None) -> AvroColumns | None:
        """Return what decodes values of a schema by columns; None if that is impossible."""
        try:
            return (self._writer(schema_id) if self._texts else self._own).columns
        except ValueError:
            return None

    def _writer(self, schema_id: SchemaId | None) -> _Writer:
        """Return the schema of an id; raise `ValueError` if there is none to decode with."""
        known = None if schema_id is None else self._writers.get(schema_id)
        if known is not None:
            return known
        texts = None if schema_id is None else self._texts.get(schema_id)
        if schema_id is None or texts is None:
            raise ValueError(f"the schema {schema_id} is unknown")
        try:
            schemas = [json.loads(text) for text in texts]
            _type(_expanded(schemas), "#", SchemaSize())
            schema = _parsed(schemas)
        except (*_DAMAGE, UsageError, fastavro.schema.SchemaParseException) as error:
            raise ValueError(f"the schema {schema_id} is malformed: {brief(error)}") from error
        reader = None if schema == self._schema else self._schema
        columns = self._own.columns if reader is None else None
        found = _Writer(schema, reader, self._own.has_uuids or _has_uuids(schemas), columns)
        self._writers[schema_id] = found
        return found


class _Writer(NamedTuple):
    """A parsed schema that values were written with.

    Attributes:
        reader: that of the column; None if it is the same.
        has_uuids: whether values have UUIDs, which are no types of Arrow.
        columns: decodes values by columns, if that is possible.
    """

    schema: Any
    reader: Any
    has_uuids: bool
    columns: AvroColumns | None


def _columns(tree: Any, kind: Any) -> AvroColumns | None:
    try:
        return AvroColumns(tree, kind) if kernels_work() else None
    except UnsupportedSchemaError:
        return None


def _has_uuids(schemas: Sequence[Any]) -> bool:
    return '"uuid"' in json.dumps(schemas)  # anywhere: at worst a walk in vain


def _expanded(schemas: Sequence[Any]) -> Any:
    """Return the last schema with the definition of each name that it uses."""
    return fastavro.schema.expand_schema(list(schemas))[-1]


def _parsed(schemas: Sequence[Any]) -> Any:
    named: dict[str, Any] = {}
    return [fastavro.parse_schema(_usual(one), named_schemas=named) for one in schemas][-1]


def _usual(node: Any) -> Any:
    """Return a schema without logical types that a column lacks: fastavro knows more of them."""
    if isinstance(node, list):
        return [_usual(one) for one in node]
    if not isinstance(node, dict):
        return node
    kind = node.get("logicalType")
    is_usual = kind == "decimal" or any(kind == name for _, name in _LOGICAL)
    return {
        name: _usual(one) if name in ("type", "fields", "items", "values") else one
        for name, one in node.items()
        if is_usual or name != "logicalType"
    }


def _plain(value: Any) -> Any:
    """Convert a fastavro value to types that pyarrow accepts."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value) if type(value).__name__ == "UUID" else value


def _type(node: Any, place: str, size: SchemaSize) -> Any:
    with size.inside(place):
        return _column_type(node, place, size)


def _column_type(node: Any, place: str, size: SchemaSize) -> Any:
    if isinstance(node, list):
        wanted = [one for one in node if one not in ("null", {"type": "null"})]
        if len(wanted) != 1:
            raise _unknown(place, "a union of several types")
        return _type(wanted[0], place, size)
    if isinstance(node, str):
        node = {"type": node}
    kind = node["type"]
    if not isinstance(kind, str):
        return _type(kind, place, size)
    if kind == "fixed" and not 0 < node["size"] <= INT32_MAX:
        raise _unknown(place, f"a fixed of {node['size']} bytes")
    if kind in ("bytes", "fixed") and node.get("logicalType") == "decimal":
        return pa.decimal128(node["precision"], node.get("scale", 0))
    if kind in _PRIMITIVES:
        return _LOGICAL.get((kind, node.get("logicalType", "")), _PRIMITIVES[kind])
    if kind == "fixed":
        return pa.binary(node["size"]) if node["size"] <= _FIXED_SIZE_MAX else pa.binary()
    if kind == "enum":
        return pa.string()
    if kind in ("record", "error") and node["fields"]:
        fields = [(one["name"], _type(one["type"], f"{place}/{one['name']}", size))
                  for one in node["fields"]]  # fmt: skip
        return pa.struct(fields)
    if kind == "array":
        # There could be any number of items without bytes: a few bytes would never end.
        return pa.list_(_type(_with_bytes(node["items"], place), f"{place}/items", size))
    if kind == "map":
        return pa.map_(pa.string(), _type(node["values"], f"{place}/values", size))
    raise _unknown(place, f"{kind!r:.60}")


def _with_bytes(items: Any, place: str) -> Any:
    """Return the item type of an array; raise if items can have no bytes."""
    kind = items["type"] if isinstance(items, dict) else items
    if kind == "null":
        raise _unknown(place, "an array of nothing")
    return items


def _unknown(place: str, what: str) -> UsageError:
    return UsageError(f"The schema of Avro has {what} at {place}, which no column can hold.")
