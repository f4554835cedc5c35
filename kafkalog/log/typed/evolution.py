"""One column for values that many versions of a schema wrote: it has the fields of all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.log.typed.lake_types import PRESENT, given_name
from kafkalog.log.typed.schema_size import MALFORMED, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.model import Decoder
    from kafkalog.log.typed.remarks import Remark

# A large integer that float64 has not exactly does not decode. Decimals of other digits do not fit.
_WIDER: Final = {
    frozenset((pa.float32(), pa.float64())): pa.float64(),
    frozenset((pa.int64(), pa.float64())): pa.float64(),
}


class EvolvedDecoder:
    """Decodes each value by its own schema, into a column with the fields of several.

    Fields are the same if they have one name. One that a schema lacks is null in its values; a
    float and a double become a double, and so do an integer and a double. A schema whose field has
    another type than that of a newer one does not fit, and none of its values decode; so does one
    for which a part is JSON as text that has a type for a newer one, or that is any text there.

    Args:
        make: returns the decoder of a schema.
        texts: the schemas by id.
        versions: ids of the schemas whose fields the column has, the newest first.
        column: decodes the schema whose fields the column has; None for those of `versions`.

    Raises:
        UsageError: the newest version is malformed, or no column can hold it.
    """

    def __init__(
        self,
        make: Callable[[Sequence[str]], Decoder],
        texts: Mapping[SchemaId, Sequence[str]],
        versions: Sequence[SchemaId],
        column: Decoder | None = None,
    ) -> None:
        self._make = make
        self._texts = texts
        self._decoders: dict[SchemaId, Decoder | ValueError] = {}
        self._column = column
        self.type = None if column is None else column.type
        self._json = set() if column is None else _json_of(column.remarks)
        for number in versions:
            if self.type is None:
                made = self._newest(number)
                self.type, self._json = made.type, _json_of(made.remarks)
                self._decoders[number] = made
            else:
                self._decoders[number] = self._of_version(number)
        if self.type is None:
            raise UsageError("There is no schema for the column.")

    @property
    def remarks(self) -> list[Remark]:
        made = [*filter(None, [self._column]), *self._fitting()]
        return list(dict.fromkeys(one for decoder in made for one in decoder.remarks))

    @property
    def losses(self) -> Counter[str]:
        return sum((one.losses for one in self._fitting()), Counter())

    def _fitting(self) -> list[Decoder]:
        return [one for one in self._decoders.values() if not isinstance(one, ValueError)]

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        return self._of(schema_id).decode(data)

    def by_columns(self, schema_id: SchemaId | None) -> Any:
        """Return what decodes values of a schema by columns; None if that is impossible."""
        try:
            made: Any = self._of(schema_id)
        except ValueError:
            return None
        return made.by_columns(None, self.type) if hasattr(made, "by_columns") else None

    def _of(self, schema_id: SchemaId | None) -> Decoder:
        """Return the decoder of a schema; raise `ValueError` if it has none."""
        found = None if schema_id is None else self._decoders.get(schema_id)
        if found is None:
            found = self._of_other(schema_id)
        if isinstance(found, ValueError):
            raise found
        return found

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
            self.type = self._with(made)
            self._json |= _json_of(made.remarks)
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
            self._with(made)
            self._decoders[number] = made
        except (*MALFORMED, UsageError) as error:
            self._decoders[number] = _useless(number, error)
        return self._decoders[number]

    def _with(self, made: Decoder) -> Any:
        """Return the type that holds values of the column and of a decoder."""
        return _merged(self.type, made.type, "", self._json, _json_of(made.remarks))


def _json_of(remarks: Sequence[Remark]) -> set[str]:
    """Return the paths of what is JSON as text."""
    return {one.path for one in remarks if one.type == "json"}


def _useless(number: SchemaId, error: Exception) -> ValueError:
    return ValueError(f"the schema {number} does not fit: {brief(error).rstrip('.')}")


def _merged(one: Any, other: Any, place: str, json: Set[str], others_json: Set[str]) -> Any:
    """Return the type that holds values of both.

    Args:
        json, others_json: the paths of what is JSON as text in each.

    Raises:
        ValueError: there is none.
    """
    if (place in json) != (place in others_json):
        now = "JSON" if place in others_json else _named(other)
        here = "JSON" if place in json else _named(one)
        raise ValueError(f"{place or 'it'} is {now}, and {here} in the column")
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return _merged_fields(one, other, place, json, others_json)
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type, f"{place}[]", json, others_json))
    if pa.types.is_map(one) and pa.types.is_map(other) and one.key_type == other.key_type:
        items = _merged(one.item_type, other.item_type, f"{place}{{}}", json, others_json)
        return pa.map_(one.key_type, items)
    if one == other:
        return one
    wider = _WIDER.get(frozenset((one, other)))
    if wider is None:
        raise ValueError(f"{place or 'it'} is {_named(other)}, and {_named(one)} in the column")
    return wider


def _merged_fields(one: Any, other: Any, place: str, json: Set[str], others_json: Set[str]) -> Any:
    there = {field.name: field for field in other}
    here = {field.name.casefold(): field for field in one}
    names = {field.name for field in one}
    # One without fields may get some, and lose them.
    if not names & there.keys() and PRESENT not in names | there.keys():
        raise ValueError(f"{place or 'it'} has no field that the column has")
    for field in other:
        same = here.get(field.name.casefold(), field)
        if (same.name, given_name(same)) != (field.name, given_name(field)):
            path = f"{place}.{field.name}".lstrip(".")
            raise ValueError(f"{path} is {same.name} in the column, but for case")
    fields = []
    for field in one:
        found = there.pop(field.name, None)
        if found is not None:
            path = f"{place}.{field.name}".lstrip(".")
            kind = _merged(field.type, found.type, path, json, others_json)
            fields.append(field.with_type(kind))
        else:
            fields.append(field)
    return pa.struct([*fields, *there.values()])


def _named(kind: Any) -> str:
    for name, is_it in (("an object", pa.types.is_struct), ("a list", pa.types.is_list)):
        if is_it(kind):
            return name
    return "a map" if pa.types.is_map(kind) else str(kind)
