"""One column for values that many versions of a schema wrote: it has the fields of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.log.typed.schema_size import MALFORMED, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.model import Decoder

# Not uint64 with a signed type: no integer type has the values of both.
_WIDER: Final = {
    frozenset((pa.int32(), pa.int64())): pa.int64(),
    frozenset((pa.uint32(), pa.int32())): pa.int64(),
    frozenset((pa.uint32(), pa.int64())): pa.int64(),
    frozenset((pa.uint32(), pa.uint64())): pa.uint64(),
    frozenset((pa.float32(), pa.float64())): pa.float64(),
    frozenset((pa.int32(), pa.float64())): pa.float64(),
    frozenset((pa.int64(), pa.float64())): pa.float64(),
}


class EvolvedDecoder:
    """Decodes each value by its own schema, into a column with the fields of several.

    Fields are the same if they have one name. One that a schema lacks is null in its values;
    numbers of two widths get the wider one. A schema whose field has another type than that of a
    newer one does not fit, and none of its values decode.

    Args:
        make: returns the decoder of a schema.
        texts: the schemas by id.
        versions: ids of the schemas whose fields the column has, the newest first.
        column: the type of the column; None for the fields of `versions`.

    Raises:
        UsageError: the newest version is malformed, or no column can hold it.
    """

    def __init__(
        self,
        make: Callable[[Sequence[str]], Decoder],
        texts: Mapping[SchemaId, Sequence[str]],
        versions: Sequence[SchemaId],
        column: Any = None,
    ) -> None:
        self._make = make
        self._texts = texts
        self._decoders: dict[SchemaId, Decoder | ValueError] = {}
        self.type = column
        for number in versions:
            if self.type is None:
                made = self._newest(number)
                self.type = made.type
                self._decoders[number] = made
            else:
                self._decoders[number] = self._of_version(number)
        if self.type is None:
            raise UsageError("There is no schema for the column.")

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        found = None if schema_id is None else self._decoders.get(schema_id)
        if found is None:
            found = self._of_other(schema_id)
        if isinstance(found, ValueError):
            raise found
        return found.decode(data)

    def _newest(self, number: SchemaId) -> Decoder:
        try:
            return self._make(self._texts[number])
        except UsageError as error:
            error.message = f"The newest schema, {number}, decodes nothing: {error.message}"
            raise

    def _of_version(self, number: SchemaId) -> Decoder | ValueError:
        """Return the decoder of a schema whose fields the column gets."""
        try:
            made = self._make(self._texts[number])
            self.type = _merged(self.type, made.type, "")
        except (*MALFORMED, UsageError) as error:
            return _useless(number, error)
        return made

    def _of_other(self, number: SchemaId | None) -> Decoder | ValueError:
        """Return the decoder of a schema that values may have, and the column need not have."""
        # Not kept in `_decoders`: data can claim any number of ids.
        if number is None or number not in self._texts:
            raise ValueError(f"the schema {number} is unknown")
        try:
            made = self._make(self._texts[number])
            # The type of the column is settled: the schema only has to fit into it.
            _merged(self.type, made.type, "")
            self._decoders[number] = made
        except (*MALFORMED, UsageError) as error:
            self._decoders[number] = _useless(number, error)
        return self._decoders[number]


def _useless(number: SchemaId, error: Exception) -> ValueError:
    return ValueError(f"the schema {number} does not fit: {brief(error).rstrip('.')}")


def _merged(one: Any, other: Any, place: str) -> Any:
    """Return the type that holds values of both.

    Raises:
        ValueError: there is none.
    """
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        there = {field.name: field.type for field in other}
        names = {field.name for field in one}
        if not names & set(there):
            raise ValueError(f"{place or 'it'} has no field that the column has")
        fields = [
            pa.field(
                field.name,
                _merged(field.type, there[field.name], f"{place}.{field.name}".lstrip("."))
                if field.name in there
                else field.type,
            )
            for field in one
        ]
        return pa.struct(fields + [field for field in other if field.name not in names])
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type, f"{place}[]"))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        return pa.map_(one.key_type, _merged(one.item_type, other.item_type, f"{place}{{}}"))
    wider = _WIDER.get(frozenset((one, other)))
    if wider is None:
        raise ValueError(f"{place or 'it'} is {_named(other)}, and {_named(one)} in the column")
    return wider


def _named(kind: Any) -> str:
    for name, is_it in (("an object", pa.types.is_struct), ("a list", pa.types.is_list)):
        if is_it(kind):
            return name
    return "a map" if pa.types.is_map(kind) else str(kind)
