"""The columns of an Iceberg table, and how a run with others changes them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform

from kafkalog.change.lake.evolution import Evolution, with_fields
from kafkalog.errors import DestinationExistsError, UnsupportedError
from kafkalog.log.typed.lake_types import (
    NAME_KEY,
    aliases_of,
    as_json_text,
    given_name,
    is_json_text,
    with_aliases,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.table import Table, Transaction

_KEY: Final = ("topic", "partition", "offset", "leader_epoch")
"""What identifies a row: an offset may be in the log of two leaders."""
_DOC: Final = b"doc"
"""The key by which pyiceberg has the comments of fields in Arrow's metadata."""
_GIVEN: Final = "In its schema: "
"""Before the name of a field in the comment about it, if the table has another."""
_JSON: Final = "JSON"
"""The comment about a field whose text is that; before the name, if it has one, and a point."""


def evolution_of(table: Table, schema: Any, shown: str, decoded: Iterable[str] = ()) -> Evolution:
    """Return the columns of a table after a run with rows of a `pyarrow.Schema`.

    Args:
        decoded: as for `Evolution`.

    Raises:
        DestinationExistsError: a column has another type, or identifies rows and is missing.
    """
    found = arrow_schema(table.schema(), has_ids=False)
    as_table = arrow_schema(iceberg_schema(schema), has_ids=False)
    # Iceberg has no place for them.
    wanted = pa.schema(map(_with_aliases_of, schema, as_table))
    for name in table.schema().identifier_field_names():
        if name not in wanted.names:
            raise DestinationExistsError(
                f"The column {name} identifies the rows of the table, and is not exported now.",
                path=shown,
                hint="Name it in --columns, or export into another table.",
            )
    return Evolution(found, wanted, shown, widens=True, decoded=decoded, renames=True)


def change_columns(change: Transaction, evolution: Evolution) -> None:
    """Give a table the columns of an `Evolution`, as part of a transaction."""
    if evolution.renamed:
        with change.update_schema() as update:
            for path, name in evolution.renamed.items():
                within = path.replace("[]", ".element").replace("{}", ".value")
                update.rename_column(within, name)
    with change.update_schema() as update:  # it finds columns by the names of now
        update.union_by_name(iceberg_schema(evolution.schema))


def iceberg_schema(schema: Any) -> Schema:
    """Return the schema of a table for rows of a `pyarrow.Schema`.

    Raises:
        UnsupportedError: Iceberg has no such type.
    """
    # pyiceberg converts only fields that have ids.
    numbers = iter(range(1, 1 << 31))
    try:
        made = pyarrow_to_schema(pa.schema([_numbered(field, numbers) for field in schema]))
    except Exception as error:  # it does no I/O: whatever it raises is about the columns
        words = " ".join(str(error).split()).rstrip(".")
        raise UnsupportedError(
            f"Iceberg cannot have these columns: {words}.", hint="Choose others with --columns."
        ) from error
    # Iceberg lets only required columns identify rows.
    required = [one.field_id for one in made.fields if one.name in _KEY and one.required]
    is_key = len(required) == len(_KEY)
    return Schema(*made.fields, identifier_field_ids=required if is_key else [])


def arrow_schema(schema: Schema, *, has_ids: bool) -> Any:
    """Return the `pyarrow.Schema` for rows of a table, whose fields know their given names."""
    found = schema_to_pyarrow(schema, include_field_ids=has_ids)
    return pa.schema([with_fields(one, _with_given_name) for one in found])


def _with_given_name(field: Any) -> Any:
    metadata = dict(field.metadata or {})
    text = metadata.get(_DOC, b"").decode()
    rest = text.removeprefix(_JSON).removeprefix(". ")
    if rest.startswith(_GIVEN):
        metadata[NAME_KEY] = rest.removeprefix(_GIVEN).encode()
    found = field.with_metadata(metadata)
    return as_json_text(found) if text == _JSON or text.startswith(f"{_JSON}. ") else found


def _with_aliases_of(one: Any, field: Any) -> Any:
    """Return a field that knows the aliases of another one, as the fields within it do."""
    kind, other = field.type, one.type
    if pa.types.is_struct(kind):
        kind = pa.struct(map(_with_aliases_of, other, kind))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _with_aliases_of(other.item_field, kind.item_field))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_with_aliases_of(other.value_field, kind.value_field))
    return with_aliases(field.with_type(kind), aliases_of(one))


def _numbered(field: Any, numbers: Iterator[int]) -> Any:
    """Return a `pyarrow.Field` that has an id, as all fields within it have."""
    number = next(numbers)
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_numbered(one, numbers) for one in kind])
    elif pa.types.is_map(kind):
        key, item = _numbered(kind.key_field, numbers), _numbered(kind.item_field, numbers)
        kind = pa.map_(key, item)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_numbered(kind.value_field, numbers))
    metadata = {b"PARQUET:field_id": str(number).encode()}
    notes = [_JSON] if is_json_text(field) else []
    if (given := given_name(field)) != field.name:
        notes.append(f"{_GIVEN}{given}")
    if notes:
        metadata[_DOC] = ". ".join(notes).encode()
    return pa.field(field.name, kind, field.nullable, metadata)


def spec_of(schema: Schema) -> PartitionSpec:
    """Return the partitions of a new table: records by topic and day, other rows by topic."""
    fields = [
        # Ids of partition fields begin at 1000, as those of Iceberg's own library do.
        PartitionField(schema.find_field("topic").field_id, 1000, IdentityTransform(), "topic")
    ]
    with suppress(ValueError):  # it has no such column
        time = schema.find_field("timestamp")
        if DayTransform().can_transform(time.field_type):
            fields.append(PartitionField(time.field_id, 1001, DayTransform(), "timestamp_day"))
    return PartitionSpec(*fields)
