"""The types of values: the full name of a record of Avro or a message, the title of JSON.

The id of a schema says it, with the index after it where a schema has several: the messages of a
file of Protobuf, and the branches of a union of Avro that is a schema itself.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.log.typed.framing import TypedForm
from kafkalog.log.typed.schema_size import MALFORMED, missing_package

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.typed.avro_schema import Node
    from kafkalog.log.typed.framing import Framing, SchemaId
    from kafkalog.log.typed.model import TypedColumn


class TypeName(NamedTuple):
    """What a type of values is called: names of two forms may be equal."""

    form: TypedForm
    name: str


class Written(NamedTuple):
    """A schema that values were written with.

    Attributes:
        texts: as `TypedColumn.writers` has them.
        other_name: the name of a JSON Schema without a title.
    """

    form: TypedForm
    texts: tuple[str, ...]
    other_name: str = ""


class TypeNames:
    """Names the types of values.

    Args:
        written: returns a schema by its id; None for an unknown one.
        framing: what precedes the data.
    """

    def __init__(self, written: Callable[[SchemaId], Written | None], framing: Framing) -> None:
        self._written = written
        self._framing = framing
        self._known: dict[SchemaId, _Names | None] = {}

    def all_of(self, schema_id: SchemaId) -> tuple[TypeName, ...]:
        """Return the types that values of a schema can have; none of one that names nothing."""
        found = self._of_schema(schema_id)
        return () if found is None else found.names

    def has_index(self, schema_id: SchemaId) -> bool:
        """Return whether the data tells which of the types it is."""
        found = self._of_schema(schema_id)
        return found is not None and found.read is not None

    def of(self, schema_id: SchemaId, data: bytes) -> TypeName:
        """Return the type of data that follows an id.

        Raises:
            ValueError: the schema is unknown or names nothing, or the data does not say it.
        """
        found = self._of_schema(schema_id)
        if found is None:
            raise ValueError(f"the schema {schema_id} is unknown")
        return found.names[0] if found.read is None else found.read(data)

    def _of_schema(self, schema_id: SchemaId) -> _Names | None:
        if schema_id not in self._known:
            one = self._written(schema_id)
            if one is None:
                return None  # not kept: data can claim any number of ids
            try:
                self._known[schema_id] = _names(one, self._framing)
            except (*MALFORMED, UsageError):
                self._known[schema_id] = None
        return self._known[schema_id]


class _Names(NamedTuple):
    names: tuple[TypeName, ...]
    read: Callable[[bytes], TypeName] | None = None


def _names(one: Written, framing: Framing) -> _Names:
    if one.form == TypedForm.JSON:
        tree = json.loads(one.texts[-1])
        title = tree.get("title") if isinstance(tree, dict) else None
        name = title if isinstance(title, str) and title else one.other_name
        return _Names((TypeName(one.form, name or "json"),))
    if one.form == TypedForm.AVRO:
        return _names_of_avro(one)
    try:
        from kafkalog.log.typed.protobuf import MessageNames, main_file
    except ModuleNotFoundError as error:
        raise missing_package(one.form, error) from error

    messages = MessageNames(main_file(one.texts), framing)

    def of_message(data: bytes) -> TypeName:
        return TypeName(one.form, messages.split(data)[0])

    return _Names(tuple(TypeName(one.form, name) for name in messages.names), of_message)


def _names_of_avro(one: Written) -> _Names:
    from kafkalog.log.typed.avro_schema import parse
    from kafkalog.log.typed.avro_types import is_struct

    node = parse(one.texts)
    if node.kind != "union" or not is_struct(node):
        return _Names((TypeName(one.form, _name_of(node)),))
    # Branches without a name are called as in the struct of a column: int and long are two.
    branches = [TypeName(one.form, part.name or part.kind) for part in node.parts]

    def of_branch(data: bytes) -> TypeName:
        return branches[branch_of(data, len(branches))[0]]

    return _Names(tuple(branches), of_branch)


def branch_of(data: bytes, count: int) -> tuple[int, int]:
    """Return the index of a union's branch that data begins with, and where that ends.

    Raises:
        ValueError: it is none of that many.
    """
    from kafkalog.log.typed.avro_values import Cursor, read_long

    cursor = Cursor(data)
    index = read_long(cursor)
    if not 0 <= index < count:
        raise ValueError(f"the union has no branch {index}")
    return index, cursor.at


def _name_of(node: Node) -> str:
    """Return the full name of a type of Avro; of one without, the name of its type in the lake."""
    from kafkalog.log.typed.avro_types import Shapes

    if node.kind == "union":
        others = [part for part in node.parts if part.kind != "null"]
        if len(others) == 1:
            return _name_of(others[0])
    if node.name or node.kind in ("array", "map", "null"):
        return node.name or node.kind
    return lake_name(Shapes().of(node).type)


def lake_name(kind: Any) -> str:
    """Return the name of a type of the lake as documents have it, without what it is made of."""
    names = {pa.float32(): "float32", pa.float64(): "float64", pa.bool_(): "boolean"}
    return names.get(kind) or str(kind).partition("(")[0].partition("[")[0].partition("<")[0]


@lru_cache(64)
def names_of(column: TypedColumn) -> TypeNames:
    """Return what names the types of the values of a column with ids."""
    written: dict[SchemaId, Written] = {}
    for one in [of_type for _, of_type in column.types] or [column]:
        others = dict(one.names)
        for schema_id, texts in one.writers:
            written[schema_id] = Written(one.form, texts, others.get(schema_id, ""))
    for schema_id, texts in column.writers if column.types else ():
        written[schema_id] = Written(TypedForm.AVRO, texts)

    def of_id(schema_id: SchemaId) -> Written | None:
        found = written.get(schema_id)
        if found is None and column.place is not None and not column.types:
            texts = column.all_writers().get(schema_id)
            found = None if texts is None else Written(column.form, texts)
        return found

    return TypeNames(of_id, column.framing)


def one_type(column: TypedColumn, names: TypeNames, whole: bytes) -> str | None:
    """Return the full name of the type of a value with its prefix; None if nothing says it."""
    try:
        data, schema_id = column.unframed(whole)
        return None if schema_id is None else names.of(schema_id, data).name
    except ValueError:
        return None
