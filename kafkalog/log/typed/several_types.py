"""One column for values of several types: a struct with a field for each, of which one is set."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.log.typed.framing import Framing, TypedForm
from kafkalog.log.typed.lake_types import column_names
from kafkalog.log.typed.remarks import placed
from kafkalog.log.typed.type_names import TypeName, branch_of, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.model import Decoder, TypedColumn
    from kafkalog.log.typed.remarks import Remark

NULL: Final = TypeName(TypedForm.AVRO, "null")
"""The branch of a union that has no value."""


def field_names(types: Iterable[str], taken: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the fields of types with these full names: short ones, or the full ones with `_`.

    Args:
        types: the full names.
        taken: the names of types that have a field, and those of these fields.
    """
    names = list(types)
    short = [name.rpartition(".")[2] for name in names]
    fields = {field for _, field in taken}
    wanted = [
        name.replace(".", "_") if short.count(one) > 1 or one in fields else one
        for name, one in zip(names, short, strict=True)
    ]
    return column_names([*(field for _, field in taken), *wanted])[len(taken) :]


class SeveralTypes:
    """Decodes each value by the decoder of its type.

    Args:
        column: one with `types`.
        decoders: those of its types.
        fields: the names of their fields; empty for those that the column has.

    Attributes:
        type: a struct with a field for each type.
        parts: the columns of the types, and what decodes them.
    """

    def __init__(
        self, column: TypedColumn, decoders: Sequence[Decoder], fields: Sequence[str] = ()
    ) -> None:
        self._names = names_of(column)
        self._fields = fields or [field for field, _ in column.types]
        self.parts = [
            (one, decoder) for (_, one), decoder in zip(column.types, decoders, strict=True)
        ]
        self.type = pa.struct([
            pa.field(field, decoder.type)
            for field, (_, decoder) in zip(self._fields, self.parts, strict=True)
        ])  # fmt: skip
        self._unions = {one for one, _ in column.writers}
        self._places = {
            TypeName(one.form, one.type_name or ""): place
            for place, (_, one) in enumerate(column.types)
        }

    @property
    def remarks(self) -> tuple[Remark, ...]:
        each = (decoder.remarks for _, decoder in self.parts)
        return placed(dict(zip(self._fields, each, strict=True)))

    @property
    def losses(self) -> Counter[str]:
        return sum((decoder.losses for _, decoder in self.parts), Counter())

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        if schema_id is None:
            raise ValueError("no schema id")
        name = self._names.of(schema_id, data)
        if name == NULL:
            return None
        place = self.place(name)
        if place is None:
            raise ValueError(f"the column has no type {name.name:.100}")
        _, decoder = self.parts[place]
        value = decoder.decode(self._of_branch(data, schema_id), schema_id)
        return None if value is None else {self._fields[place]: value}

    def place(self, name: TypeName) -> int | None:
        """Return the index of a type; None if the column lacks it."""
        return self._places.get(name)

    def of_types(self, column: TypedColumn, data: Any) -> Any:
        """Return values of some type without the index of a branch, as its decoder takes them.

        Args:
            column: that of the type.
            data: a `pyarrow.BinaryArray` of them, with prefixes.
        """
        unions = self._unions.intersection(one for one, _ in column.writers)
        if not unions:
            return data
        return pa.array([self._without_branch(column, one) for one in data.to_pylist()],
                        pa.binary())  # fmt: skip

    def _without_branch(self, column: TypedColumn, whole: bytes) -> bytes:
        schema_id, start = column.split(whole)
        if schema_id not in self._unions:
            return whole
        data, _ = column.unframed(whole)
        prefix = whole[:start]
        if column.framing == Framing.GLUE:  # by now it is not compressed
            prefix = prefix[:1] + b"\0" + prefix[2:]
        return prefix + self._of_branch(data, schema_id)

    def _of_branch(self, data: bytes, schema_id: SchemaId) -> bytes:
        """Return data without the index of a branch, if its schema is a union of Avro."""
        if schema_id not in self._unions:
            return data
        return data[branch_of(data, len(self._names.all_of(schema_id)))[1] :]
