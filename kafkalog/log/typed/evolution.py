"""One column for values that many versions of a schema wrote: it has the fields of all of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.log.typed.lake_types import PRESENT, as_json_text, given_name, with_json_marked
from kafkalog.log.typed.merging import Merger, common_type, fits, refusal, type_words
from kafkalog.log.typed.placing import PlacedDecoder
from kafkalog.log.typed.remarks import CONFLICT, Remark
from kafkalog.log.typed.schema_size import MALFORMED, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.merging import Rule
    from kafkalog.log.typed.model import Decoder


class EvolvedDecoder:
    """Decodes each value by its own schema, into a column with the fields of several.

    Fields are the same if they have one name. One that a schema lacks is null in its values; a
    float and a double become a double, and so do an integer and a double. A field that has another
    type than in a newer schema gets a conflict field, as `Merger` makes it; so does one that is
    JSON as text, and any text there. A schema that is no record where the column is one, or that
    has none of its fields, does not fit, and none of its values decode.

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
        self._conflicts: list[Remark] = []
        made: dict[SchemaId, Decoder] = {}
        self._field = None if column is None else column_field("", column)
        for number in versions:
            if self._field is None:
                made[number] = self._newest(number)
                self._field = column_field("", made[number])
                continue
            try:
                one = self._make(self._texts[number])
                self._field = self._merged(number, column_field("", one))
                made[number] = one
            except (*MALFORMED, UsageError) as error:
                self._decoders[number] = _useless(number, error)
        if self._field is None:
            raise UsageError("There is no schema for the column.")
        self.type = self._field.type
        for number, one in made.items():
            self._decoders[number] = self._placed(one)

    @property
    def remarks(self) -> list[Remark]:
        made = [*filter(None, [self._column]), *self._fitting()]
        found = [one for decoder in made for one in decoder.remarks]
        return list(dict.fromkeys([*found, *self._conflicts]))

    @property
    def losses(self) -> Counter[str]:
        return sum((one.losses for one in self._fitting()), Counter())

    def _fitting(self) -> list[Decoder]:
        return [one for one in self._decoders.values() if not isinstance(one, ValueError)]

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        found = self._decoder(schema_id)
        if isinstance(found, ValueError):
            raise found
        return found.decode(data)

    def by_columns(self, schema_id: SchemaId | None) -> Any:
        """Return what decodes values of a schema by columns; None if that is impossible."""
        found = self._decoder(schema_id)
        make = getattr(found, "by_columns", None)
        return None if make is None else make(None)

    def _decoder(self, number: SchemaId | None) -> Decoder | ValueError:
        """Return the decoder of a schema, or why its values do not decode."""
        found = None if number is None else self._decoders.get(number)
        # Not kept in `_decoders`: data can claim any number of ids.
        if number is None or (found is None and number not in self._texts):
            return ValueError(f"the schema {number} is unknown")
        if found is None:
            # The column need not have its fields, and is settled.
            try:
                made = self._make(self._texts[number])
                _require_alike(self._field, column_field("", made))
                found = self._placed(made)
            except (*MALFORMED, UsageError) as error:
                found = _useless(number, error)
            self._decoders[number] = found
        return found

    def _newest(self, number: SchemaId) -> Decoder:
        try:
            return self._make(self._texts[number])
        except UsageError as error:
            error.message = f"The newest schema, {number}, decodes nothing: {error.message}"
            raise

    def _placed(self, made: Decoder) -> Decoder:
        return PlacedDecoder(made, column_field("", made), self._field, common_type)

    def _merged(self, number: SchemaId, field: Any) -> Any:
        """Return the field for values of the column and of a version."""
        _require_alike(self._field, field)
        assert self._field is not None, "the newest version comes first"
        found, remarks = merge(self._field, field, number, common_type)
        self._conflicts += remarks
        return found


def merge(column: Any, other: Any, number: SchemaId, rule: Rule) -> tuple[Any, list[Remark]]:
    """Return the field for values of a column and of a schema, and its conflict fields."""
    merger = Merger(rule)
    kind = merger.type(column, other, "")
    return column.with_type(kind), [
        Remark(one.path, CONFLICT, conflict_reason(one.base, one.field, f"the schema {number}"))
        for one in merger.conflicts
    ]


def column_field(name: str, decoder: Decoder) -> Any:
    """Return the `pyarrow.Field` of a decoder's column, which knows what is JSON as text.

    An evolved decoder knows that already of the fields in its column.
    """
    field = pa.field(name, decoder.type)
    paths = {one.path for one in decoder.remarks if one.type == "json"}
    if isinstance(decoder, EvolvedDecoder):
        return as_json_text(field) if "" in paths else field
    return with_json_marked(field, paths)


def conflict_reason(base: Any, other: Any, where: str) -> str:
    """Return why a field has a conflict field: it has another type somewhere."""
    return f"{given_name(other)} is {type_words(other)} in {where}, not {type_words(base)}"


def _useless(number: SchemaId, error: Exception) -> ValueError:
    return ValueError(f"the schema {number} does not fit: {brief(error).rstrip('.')}")


def _require_alike(column: Any, other: Any) -> None:
    """Raise `ValueError` unless a column can have the values of another field."""
    if not fits(column, other, common_type):
        raise ValueError(refusal(column, other, ""))
    if pa.types.is_struct(column.type):
        here, there = (
            {given_name(one).casefold() for one in field.type} for field in (column, other)
        )
        # One without fields may get some, and lose them.
        if not here & there and PRESENT not in here | there:
            raise ValueError("it has no field that the column has")
