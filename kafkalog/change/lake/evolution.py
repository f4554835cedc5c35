"""Columns of a table that grows: a later run may have more of them, fewer, or wider ones.

What only the run has is added to the table, and is null in the rows before. What only the table has
is null in the rows of the run. This holds for the fields of structs as for columns; they are the
same if their schema gives them one name. Another type is refused, unless one of both holds all
values of the other.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.change.lake.model import ColumnChanges
from kafkalog.errors import CorruptDataError, DestinationExistsError
from kafkalog.log.typed.lake_types import NAME_KEY, column_names, given_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NOT_IN_DELTA: Final = str.maketrans(dict.fromkeys(" ,;{}()\n\t=", "_"))
_FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())


@dataclass
class Evolution:
    """The columns of a table for the rows that it has and those of a run.

    Args:
        table: the `pyarrow.Schema` of the table.
        rows: that of the run.
        place: the table, for messages.
        widens: whether a column may get a wider type; otherwise only the rows of the run may be
            converted to one.

    Attributes:
        schema: all columns; those that the run adds are last.

    Raises:
        DestinationExistsError: a column has another type in the table.
    """

    table: Any
    rows: Any
    place: str
    widens: bool
    schema: Any = None
    _added: list[str] = field(default_factory=list)
    _widened: list[str] = field(default_factory=list)
    _absent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.schema = pa.schema(self._fields(self.table, self.rows, ""))

    @property
    def changes(self) -> ColumnChanges:
        """The columns, and fields of columns, that are not the same in the table and the run."""
        return ColumnChanges(tuple(self._added), tuple(self._widened), tuple(self._absent))

    def _fields(self, table: Iterable[Any], rows: Iterable[Any], prefix: str) -> list[Any]:
        new = {given_name(one): one for one in rows}
        found = []
        for one in table:
            name = f"{prefix}{one.name}"
            other = new.pop(given_name(one), None)
            if other is None:
                self._absent.append(name)
                # Null in the rows of the run, so no longer required.
                found.append(one.with_nullable(True))
            else:
                is_nullable = one.nullable or other.nullable
                kind = self._type(one.type, other.type, name)
                found.append(one.with_type(kind).with_nullable(is_nullable))
        names = [one.name for one in (*found, *new.values())]
        if prefix:
            names = column_names(names)
        for one, name in zip(new.values(), names[len(found) :], strict=True):
            self._added.append(f"{prefix}{name}")
            # Null in the rows before.
            found.append(_renamed(one, name).with_nullable(True))
        return found

    def _type(self, table: Any, rows: Any, name: str) -> Any:
        is_ = pa.types
        if _is_same(table, rows):
            return table
        if is_.is_struct(table) and is_.is_struct(rows):
            return pa.struct(self._fields(table, rows, f"{name}."))
        if _is_list(table) and _is_list(rows):
            item = self._item(table.value_field, rows.value_field, f"{name}[]")
            return pa.large_list(item) if is_.is_large_list(table) else pa.list_(item)
        if is_.is_map(table) and is_.is_map(rows) and table.key_type == rows.key_type:
            item = self._item(table.item_field, rows.item_field, f"{name}[]")
            return pa.map_(table.key_field, item)
        if _holds(table, rows):
            return table
        if not _holds(rows, table) or not self.widens:
            raise DestinationExistsError(
                f"The column {name} has the type {_named(table)} in the table, and "
                f"{_named(rows)} now.",
                path=self.place,
                hint="Export into another table, or leave it out with --columns.",
            )
        self._widened.append(name)
        return rows

    def _item(self, table: Any, rows: Any, name: str) -> Any:
        kind = self._type(table.type, rows.type, name)
        return table.with_type(kind).with_nullable(table.nullable or rows.nullable)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether types are equal, and their fields have the same given names."""
    if one != other:
        return False
    pairs = zip(_fields_of(one), _fields_of(other), strict=True)
    return all(given_name(a) == given_name(b) and _is_same(a.type, b.type) for a, b in pairs)


def _named(kind: Any) -> str:
    return str(kind).replace("large_", "")  # how pyiceberg holds it in memory says nothing


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _holds(wide: Any, narrow: Any) -> bool:
    """Return whether every value of one type is one of the other, exactly."""
    is_ = pa.types
    if is_.is_signed_integer(wide) and is_.is_signed_integer(narrow):
        return bool(wide.bit_width >= narrow.bit_width)
    if wide in _FLOATS and narrow in _FLOATS:
        return bool(wide.bit_width >= narrow.bit_width)
    if is_.is_decimal128(wide) and is_.is_decimal128(narrow):
        # Another scale would move the decimal point in values that are already stored.
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return False


# Rows ----------------------------------------------------------------------------------------


def conformed(batch: Any, schema: Any) -> Any:
    """Return a `pyarrow.RecordBatch` with the columns of a table: null where it has none."""
    if batch.schema == schema and all(
        _is_same(one.type, other.type) for one, other in zip(batch.schema, schema, strict=True)
    ):
        return batch
    arrays = [
        converted(batch.column(one.name), one.type)
        if one.name in batch.schema.names
        else pa.nulls(batch.num_rows, one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def converted(array: Any, kind: Any) -> Any:
    """Return an array with a type that has more fields, or wider ones."""
    if _is_same(array.type, kind):
        return array
    if pa.types.is_struct(kind):
        parts = dict(zip(map(given_name, array.type), array.flatten(), strict=True))
        found = [
            converted(parts[given_name(one)], one.type)
            if given_name(one) in parts
            else pa.nulls(len(array), one.type)
            for one in kind
        ]
        return pa.StructArray.from_arrays(found, fields=list(kind), mask=array.is_null())
    if _is_list(kind) or pa.types.is_map(kind):
        return _items_converted(array, kind)
    return array.cast(kind)


def _items_converted(array: Any, kind: Any) -> Any:
    # A slice keeps offsets into the whole array: only its own items are converted.
    offsets = array.offsets
    first, count = offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()
    offsets = pc.subtract(offsets, offsets[0])
    absent = array.is_null()
    if pa.types.is_map(kind):
        keys = converted(array.keys.slice(first, count), kind.key_type)
        items = converted(array.items.slice(first, count), kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=absent)
    items = converted(array.values.slice(first, count), kind.value_type)
    made, size = (
        (pa.LargeListArray, pa.int64())
        if pa.types.is_large_list(kind)
        else (pa.ListArray, pa.int32())
    )
    return made.from_arrays(offsets.cast(size), items, type=kind, mask=absent)


# Names of fields ---------------------------------------------------------------------------------


def delta_named(schema: Any) -> Any:
    """Return a `pyarrow.Schema` whose nested fields have names that Delta allows."""
    return pa.schema([one.with_type(_delta_type(one.type)) for one in schema])


def _delta_type(kind: Any) -> Any:
    if not pa.types.is_struct(kind):
        return _with_types(kind, lambda one: one.with_type(_delta_type(one.type)))
    # Those whose names are allowed keep them, whatever comes before.
    wanted = {one.name: one.name.translate(_NOT_IN_DELTA) for one in kind}
    kept = [name for name, other in wanted.items() if name == other]
    changed = {name: other for name, other in wanted.items() if name != other}
    names = dict(zip((*kept, *changed), column_names((*kept, *changed.values())), strict=True))
    return pa.struct(
        _renamed(one, names[one.name]).with_type(_delta_type(one.type)) for one in kind
    )


def _renamed(field: Any, name: str) -> Any:
    """Return a field with another name, whose metadata has the given one."""
    given = given_name(field)
    found = field.with_name(name)
    if given == name:
        return found
    return found.with_metadata({**(field.metadata or {}), NAME_KEY: given.encode()})


def with_fields(field: Any, change: Callable[[Any], Any]) -> Any:
    """Return a field that was changed, as all fields within it."""
    kind = _with_types(field.type, lambda one: with_fields(one, change))
    return change(field.with_type(kind))


def _with_types(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return a type whose fields, or items, were changed."""
    is_ = pa.types
    if is_.is_struct(kind):
        return pa.struct([change(one) for one in kind])
    if is_.is_map(kind):
        return pa.map_(change(kind.key_field), change(kind.item_field))
    if is_.is_large_list(kind):
        return pa.large_list(change(kind.value_field))
    return pa.list_(change(kind.value_field)) if is_.is_list(kind) else kind


def _fields_of(kind: Any) -> list[Any]:
    """Return the fields within a type, or its items."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if _is_list(kind):
        return [kind.value_field]
    return list(kind) if pa.types.is_struct(kind) else []


# In documents --------------------------------------------------------------------------------


def schema_text(schema: Any) -> str:
    """Return a `pyarrow.Schema` as text, from which `schema_from` rebuilds it."""
    return base64.b64encode(schema.serialize()).decode()


def schema_from(text: str, place: str) -> Any:
    """Rebuild a `pyarrow.Schema` from the result of `schema_text`, found at a place.

    Raises:
        CorruptDataError: it is none.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, ValueError, OSError, EOFError) as error:
        raise CorruptDataError("The columns of the table cannot be read.", path=place) from error
