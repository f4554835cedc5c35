"""Columns of a table that grows: a later run may have more of them, fewer, or wider ones.

What only the run has is added to the table, and is null in the rows before. What only the table has
is null in the rows of the run. This holds for the fields of structs as for columns; they are the
same if their schema gives them one name. What has another type now, and is decoded by a schema,
gets a conflict field, as `merging` makes it; another type of other columns is refused, unless one
of both holds all values of the other.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.change.lake.model import ColumnChanges
from kafkalog.errors import CorruptDataError, DestinationExistsError
from kafkalog.log.typed.evolution import conflict_reason
from kafkalog.log.typed.lake_types import column_names, given_name
from kafkalog.log.typed.merging import (
    Merger,
    column_name,
    is_list,
    kept,
    paired,
    renamed,
    sources,
    widened,
)
from kafkalog.log.typed.placing import Placing
from kafkalog.log.typed.remarks import CONFLICT, NEW_NAME, OLD_NAME, Remark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NOT_IN_DELTA: Final = str.maketrans(dict.fromkeys(" ,;{}()\n\t=", "_"))


class Evolution:
    """The columns of a table for the rows that it has and those of a run.

    Args:
        table: the `pyarrow.Schema` of the table.
        rows: that of the run.
        place: the table, for messages.
        widens: whether a column may get a wider type; otherwise only the rows of the run may be
            converted to one.
        decoded: columns that get conflict fields, themselves or below them.
        by_name: whether fields are the same that have one name, whatever their schemas call them.
        renames: whether a field whose schema renames it by an alias gets the new name.

    Attributes:
        schema: all columns; those that the run adds are last.
        names: those in which the table has the columns of the run.

    Raises:
        DestinationExistsError: a column has another type in the table.
    """

    def __init__(
        self, table: Any, rows: Any, place: str, *, widens: bool, decoded: Iterable[str] = (),
        by_name: bool = False, renames: bool = False,
    ) -> None:  # fmt: skip
        self.table = table
        self._place = place
        self._decoded = frozenset(decoded)
        name_of = column_name if by_name else given_name
        self._merger = Merger(widened if widens else kept, self._refuse, name_of, renames)
        self.schema = pa.schema(self._merger.fields(list(table), list(rows), are_columns=True))
        self.names = [column_in(self.schema, one, name_of) for one in rows]

    @property
    def changes(self) -> ColumnChanges:
        """The columns, and fields of columns, that are not the same in the table and the run."""
        made = self._merger
        return ColumnChanges(tuple(made.added), tuple(made.widened), tuple(made.absent))

    @property
    def renamed(self) -> dict[str, str]:
        """The new names of fields of the table, by their paths."""
        return self._merger.renamed

    @property
    def remarks(self) -> list[Remark]:
        """What the run has conflict fields for, and what its schema calls otherwise."""
        made = self._merger
        names = [(OLD_NAME, made.old), (NEW_NAME, made.renamed)]
        return [
            *(Remark(one.path, CONFLICT, conflict_reason(one.base, one.field, "this run"))
              for one in made.conflicts),
            *(Remark(path, kind, f"its name is {name} now")
              for kind, some in names for path, name in some.items()),
        ]  # fmt: skip

    def _refuse(self, path: str, table: Any, rows: Any) -> None:
        if path.partition(".")[0].partition("[")[0].partition("{")[0] in self._decoded:
            return
        raise DestinationExistsError(
            f"The column {path} has the type {_named(table.type)} in the table, and "
            f"{_named(rows.type)} now.",
            path=self._place,
            hint="Export into another table, or leave it out with --columns.",
        )


def _named(kind: Any) -> str:
    return str(kind).replace("large_", "")  # how pyiceberg holds it in memory says nothing


def _is_same(one: Any, other: Any) -> bool:
    """Return whether types are equal, and their fields have the same given names."""
    if one != other:
        return False
    pairs = zip(fields_of(one), fields_of(other), strict=True)
    return all(given_name(a) == given_name(b) and _is_same(a.type, b.type) for a, b in pairs)


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
    change = Placing(pa.field("", array.type), pa.field("", kind), kept).array
    return array if change is None else change(array)


def column_in(schema: Any, field: Any, name_of: Callable[[Any], str] = given_name) -> str:
    """Return the name of the column in which a table has one of a run."""
    [place] = paired(list(schema), sources([field]), kept, name_of)
    assert place is not None, "the table was evolved"
    name: str = schema[place].name
    return name


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
    return pa.struct(renamed(one, names[one.name]).with_type(_delta_type(one.type)) for one in kind)


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


def fields_of(kind: Any) -> list[Any]:
    """Return the fields within a type, or its items."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if is_list(kind):
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
