"""Decodes JSON by the types in a JSON Schema."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.log.typed.cells import COUNTER, cells_of
from kafkalog.log.typed.column_steps import UnsupportedSchemaError
from kafkalog.log.typed.json_columns import AnyJsonColumns, Column, JsonColumns
from kafkalog.log.typed.json_shapes import FLOAT32, FLOAT64, Decimals, Shape
from kafkalog.log.typed.json_text import Digits, exact_text, parsed, unicode
from kafkalog.log.typed.lake_types import (
    INTEGER,
    JSON,
    TEXT,
    TIMESTAMP,
    column_names,
    decimal_type,
    struct_type,
)
from kafkalog.log.typed.reasons import step
from kafkalog.log.typed.remarks import LOCAL_AS_UTC, LOST_DIGITS, UNKNOWN_FIELDS, Remark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.json_shapes import Members

_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_ADDITIONAL: Final = "_additional"
_DECIMAL_DIGITS: Final = 38
# An exponent of a few bytes stands for any number of zeros.
_PLACES_MAX: Final = 1000
_NO_NUMBERS: Final = {one: float(one) for one in ("NaN", "Infinity", "-Infinity")}


class ShapeDecoder:
    """Decodes JSON: objects become structs of the properties in the schema; missing ones are null.

    `integer` becomes int64, `number` float64, `string` a string, a date, a timestamp or bytes by
    its format; objects without properties maps. What a schema allows several types for, or says
    nothing of, becomes JSON text. Values of another type than the schema's, numbers out of range,
    and malformed JSON do not decode. Required properties, patterns and ranges are ignored.

    Args:
        shape: what the schema allows.

    Attributes:
        remarks: the parts that are JSON text, or that the column lacks.
        losses: how many numbers and times are not exactly as in their text, by what they lost.
    """

    def __init__(self, shape: Shape) -> None:
        self.remarks: list[Remark] = []
        self.losses: Counter[str] = Counter()
        self._noted: list[str] = []
        column = _Columns(self.remarks, self._noted)
        self._column = column.of(shape, "")
        self.type, self._convert = self._column[:2]

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:  # noqa: ARG002 # one schema
        self._noted.clear()
        try:
            value = self._convert(parsed(data))
        except RecursionError as error:
            raise ValueError("too deep") from error
        if self._noted:
            self.losses.update({*self._noted})  # of a value each once
        return value

    def by_columns(self, schema_id: SchemaId | None) -> JsonColumns | None:  # noqa: ARG002 # one schema
        """Return what decodes many values at once; None if that is impossible."""
        return self._by_columns

    @cached_property
    def _by_columns(self) -> JsonColumns | None:
        if kernels_work():
            with suppress(UnsupportedSchemaError):
                return JsonColumns(self._column, self._noted, self.losses)
        return None


class JsonDecoder(ShapeDecoder):
    """Decodes JSON by a JSON Schema.

    Args:
        references: the schemas that a `$ref` of it or of one of them can name.

    Raises:
        UsageError: the schema is not JSON.
    """

    def __init__(self, schema: bytes, references: Mapping[str, str] | None = None) -> None:
        from kafkalog.log.typed.json_types import shape_of

        trees = {}
        for name, text in (references or {}).items():
            with suppress(RecursionError):  # what refers to it is JSON text
                trees[name] = schema_tree(text)
        try:
            shape = shape_of(schema_tree(schema), trees)
        except RecursionError:
            shape = Shape(text="the schema is nested too deeply")
        super().__init__(shape)


class AnyJsonDecoder:
    """Takes any JSON; the column has its text."""

    type = JSON

    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self.losses: Counter[str] = Counter()

    def by_columns(self, schema_id: SchemaId | None) -> AnyJsonColumns | None:  # noqa: ARG002 # no schema
        """Return what takes many values at once; None if that is impossible."""
        if not kernels_work():
            return None
        return AnyJsonColumns(self.losses)

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:  # noqa: ARG002 # no schema
        try:
            parsed(data)
        except RecursionError as error:
            raise ValueError("too deep") from error
        return data.decode("utf-8")


def decoder_of_texts(texts: Sequence[str]) -> JsonDecoder:
    """Return the decoder of a schema that follows names and texts of those that it refers to."""
    return JsonDecoder(texts[-1].encode(), dict(zip(texts[:-1:2], texts[1::2], strict=True)))


def schema_tree(text: str | bytes) -> Any:
    """Parse a schema.

    Raises:
        UsageError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        # Of a schema, only the kinds of numbers count.
        return json.loads(text, parse_int=lambda digits: int(digits[:99]))
    except ValueError as error:
        raise UsageError(f"The schema is not JSON: {error}.") from error


# The values ---------------------------------------------------------------------------------------


def _unfit(value: Any, name: str) -> ValueError:
    shown = value.text if isinstance(value, Digits) else repr(value)
    return ValueError(f"{shown:.40} is no {name}")


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if type(value) is not str:
        raise _unfit(value, "string")
    return unicode(value)


def _boolean(value: Any) -> bool | None:
    if value is None or value is True or value is False:
        return value
    raise _unfit(value, "boolean")


def _integer(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int:
        if type(value) is float and value.is_integer():  # 1.0 is an integer in JSON Schema
            value = int(value)
        elif isinstance(value, Digits):
            value = _integer_of(value)
        else:  # also a bool, which is an int in Python
            raise _unfit(value, "integer")
    if not _INT64[0] <= value <= _INT64[1]:
        raise ValueError("out of range")
    return value  # type: ignore[no-any-return] # checked above


def _integer_of(digits: Digits) -> int:
    number = _decimal_of(digits)
    if not number:
        return 0
    if number.adjusted() > _DECIMAL_DIGITS:
        raise ValueError("out of range")
    if number != number.to_integral_value():
        raise _unfit(digits, "integer")
    return int(number)


def _decimal_of(digits: Digits) -> Decimal:
    try:
        return Decimal(digits.text)
    except ArithmeticError as error:
        raise ValueError("out of range") from error


def _is_exactly(digits: Digits, value: float) -> bool:
    """Return whether the shortest text of a double is the same number."""
    try:
        return Decimal(digits.text) == Decimal(repr(value))
    except ArithmeticError:  # an exponent of more digits than Decimal takes
        return False


def _date(value: Any) -> date | None:
    if value is None:
        return None
    if type(value) is not str or len(value) != 10 or value[4] + value[7] != "--":
        raise _unfit(value, "date")
    try:
        return date.fromisoformat(value)  # which also knows weeks, as in 2024-W01-1
    except ValueError as error:
        raise _unfit(value, "date") from error


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if type(value) is not str:
        raise _unfit(value, "string")
    return b64decode(value, validate=True)


def _unscaled(raw: bytes) -> int:
    if not raw:
        raise ValueError("a decimal without bytes")
    return int.from_bytes(raw, signed=True)


def _scaled(value: Any) -> Any:
    """Return the parts of a decimal that has its scale next to it."""
    if value is None:
        return None
    if type(value) is not dict:
        raise _unfit(value, "object")
    scale, raw = _integer(value.get("scale")), _bytes(value.get("value"))
    if scale is None or raw is None:
        raise ValueError("a decimal without a scale or a value")
    return {"scale": scale, "value": raw}


_SCALARS: Final = {
    "integer": Column(INTEGER, _integer, "integer"),
    "boolean": Column(pa.bool_(), _boolean, "boolean"),
    "string": Column(TEXT, _text, "string"),
    "date": Column(pa.date32(), _date, "date"),
    "base64": Column(pa.binary(), _bytes, "base64"),
}


class _Field(NamedTuple):
    """A field of a struct, by its name in JSON and in the column."""

    name: str
    column: str
    convert: Any


class _Columns:
    """Makes the types of columns, and the functions that check and convert their values.

    The functions take None for a null.

    Args:
        remarks: where what is said of parts is added to.
        noted: where what values lose is added to.
    """

    def __init__(self, remarks: list[Remark], noted: list[str]) -> None:
        self._remarks = remarks
        self._noted = noted

    def of(self, shape: Shape, path: str) -> Column:
        """Return the column of a shape."""
        return self._of(shape, path) or self._as_json(path, "it is always null")

    def _as_json(self, path: str, reason: str) -> Column:
        self._remarks.append(Remark(path, "json", reason))
        return Column(JSON, exact_text)

    def _of(self, shape: Shape, path: str) -> Column | None:
        """Return what `of` does, or None if all values are null."""
        if shape.text:
            return self._as_json(path, shape.text)
        if shape.kinds is None:
            return self._as_json(path, "the schema gives no type")
        kinds = shape.kinds - {"null"}
        if not kinds:
            return None
        if kinds <= {"integer", "number"}:
            return self._number(shape)
        if len(kinds) > 1:
            names = sorted(kinds - {"integer"} if "number" in kinds else kinds)
            return self._as_json(path, f"it has several types: {', '.join(names)}")
        [kind] = kinds
        if kind == "array":
            return self._array(shape, path)
        if shape.numbers == "scaled-decimal" and shape.members.named.keys() == {"scale", "value"}:
            return self._logical(shape.numbers, _scaled)
        if kind == "object":
            return self._object(shape.members, path)
        if kind == "string" and shape.strings == "date-time":
            return Column(TIMESTAMP, self._timestamp, "date-time")
        return _SCALARS[shape.strings or kind if kind == "string" else kind]

    def _number(self, shape: Shape) -> Column:
        if isinstance(shape.numbers, Decimals):
            return self._decimal(shape.numbers)
        if shape.kinds is None or "number" not in shape.kinds:
            if shape.numbers in (None, FLOAT32, FLOAT64):
                return _SCALARS["integer"]
            return self._logical(shape.numbers, _integer)
        if shape.numbers == FLOAT32:
            return Column(pa.float32(), self._float32, "float32")
        is_named = shape.numbers == FLOAT64
        return Column(pa.float64(), self._named_float if is_named else self._float, "number")

    def _logical(self, logical: str, plain: Any) -> Column:
        from kafkalog.log.typed.connect_values import column_of_logical

        return column_of_logical(logical, plain, self._noted)

    def _named_float(self, value: Any) -> float | None:
        if type(value) is str and value in _NO_NUMBERS:
            return _NO_NUMBERS[value]
        return self._float(value)

    def _float32(self, value: Any) -> float | None:
        found = self._named_float(value)
        if found is None:
            return None
        with np.errstate(over="ignore"):
            single = np.float32(found)
        if np.isinf(single) and not np.isinf(found):
            raise ValueError("out of range")
        # The shortest text of the number is the one that there is, unless digits are lost.
        if float(str(single)) != found and not np.isnan(found):
            self._noted.append(LOST_DIGITS)
        return float(single)

    def _float(self, value: Any) -> float | None:
        if type(value) is float or value is None:
            return value
        if type(value) is int:
            try:
                found = float(value)
            except OverflowError as error:
                raise ValueError("out of range") from error
            if int(found) != value:
                self._noted.append(LOST_DIGITS)
            return found
        if not isinstance(value, Digits):
            raise _unfit(value, "number")
        found = float(value.text)
        if found in (float("inf"), float("-inf")):
            raise ValueError("out of range")
        if not _is_exactly(value, found):
            self._noted.append(LOST_DIGITS)
        return found

    def _decimal(self, numbers: Decimals) -> Column:
        scale, is_packed = numbers.scale, numbers.is_packed
        kind = decimal_type(numbers.precision, scale)
        least = None if kind == TEXT else Decimal(1).scaleb(-scale)
        context = Context(prec=numbers.precision, rounding=ROUND_HALF_EVEN) if least else None

        def decimal(value: Any) -> Any:
            if value is None:
                return None
            if isinstance(value, Digits):
                number = _decimal_of(value)
            elif type(value) in (int, float):
                number = Decimal(repr(value))
            elif is_packed and type(value) is str:
                unscaled = _unscaled(b64decode(value, validate=True))
                if abs(unscaled) >= 10**_DECIMAL_DIGITS and least is not None:
                    raise ValueError("out of range")
                number = Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
            else:
                raise _unfit(value, "number")
            if least is None:
                if abs(number.adjusted()) > _PLACES_MAX:
                    raise ValueError("out of range")
                return COUNTER.add_text(f"{number:f}")
            try:
                found = number.quantize(least, context=context)
            except ArithmeticError as error:
                raise ValueError("out of range") from error
            if found != number:
                self._noted.append(LOST_DIGITS)
            return found

        form = "packed-decimal" if is_packed else "decimal"
        return Column(kind, decimal, "" if least is None else form)

    def _timestamp(self, value: Any) -> datetime | None:
        if value is None:
            return None
        # More than a date.
        if type(value) is not str or len(value) < 16 or value[10] not in "Tt ":
            raise _unfit(value, "date-time")
        try:
            found = datetime.fromisoformat(value.upper())
        except ValueError as error:
            raise _unfit(value, "date-time") from error
        if found.tzinfo is None:
            self._noted.append(LOCAL_AS_UTC)
            found = found.replace(tzinfo=UTC)
        elif found.tzinfo is not UTC:
            try:
                found = found.astimezone(UTC)
            except OverflowError as error:
                raise ValueError("out of range") from error
        if len(value) > 26:
            self._count_digits(value)
        return found

    def _count_digits(self, time: str) -> None:
        """Note a time with more digits than microseconds have."""
        fraction = time[20:]
        digits = len(fraction) - len(fraction.lstrip("0123456789"))
        if fraction[6:digits].strip("0"):
            self._noted.append(LOST_DIGITS)

    def _array(self, shape: Shape, path: str) -> Column:
        if shape.is_map and shape.items is not None:
            found = self._map_of_pairs(shape.items, path)
            if found:
                return found
        place = f"{path}[]"
        if shape.items is None:
            reason = "each item has a type of its own" if shape.is_tuple else "items have no type"
            item = self._as_json(place, reason)
        else:
            item = self.of(shape.items, place)
        convert, width = item.convert, cells_of(item.type)

        def array(value: Any) -> Any:
            if type(value) is list:
                COUNTER.add(len(value), width)
                return [convert(one) for one in value]
            if value is None:
                return None
            raise _unfit(value, "array")

        return Column(pa.list_(item.type), array, "array", {"": item})

    def _map_of_pairs(self, pair: Shape, path: str) -> Column | None:
        """Return the map that Kafka Connect writes as a list of keys and values.

        Each two are an object, as its converter for JSON Schema has it, or a list.
        """
        named, are_lists = pair.members.named, pair.kinds == frozenset(("array",))
        if set(named) != {"key", "value"}:
            return None
        mark = len(self._remarks)
        key = self.of(named["key"], f"{path}{{}}.key")
        if pa.types.is_nested(key.type):
            del self._remarks[mark:]
            return None
        item = self.of(named["value"], f"{path}{{}}")
        key_of, convert = key.convert, item.convert
        width = cells_of(key.type) + cells_of(item.type)

        def pairs(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is not list:
                raise _unfit(value, "array")
            COUNTER.add(len(value), width)
            found = {}
            for one in value:
                if are_lists and type(one) is list and len(one) == 2:
                    given, item_value = one
                elif type(one) is dict and not are_lists:
                    given, item_value = one.get("key"), one.get("value")
                else:
                    raise _unfit(one, "pair" if are_lists else "object")
                name = key_of(given)
                if name is None:
                    raise ValueError("a key of a map is null")
                found[name] = convert(item_value)
            return list(found.items())

        return Column(pa.map_(key.type, item.type), pairs)

    def _object(self, members: Members, path: str) -> Column:
        if not members.named and members.rest is not None:
            return self._map(members.rest, frozenset(), f"{path}{{}}")
        found: dict[str, Column] = {}
        mark = len(self._remarks)
        for name, shape in members.named.items():
            shown = name.encode("utf-8", "backslashreplace").decode()
            place = f"{path}.{shown}" if path else shown
            one = self._of(shape, place) if shown == name else None
            if one is None:
                reason = "it is always null" if shown == name else "its name is not Unicode"
                self._remarks.append(Remark(place, "omitted", reason))
            else:
                found[name] = one
        if not found:
            del self._remarks[mark:]
            return self._as_json(path, "it is an object without properties")
        rest = None
        if members.rest is not None:
            place = f"{path}.{_ADDITIONAL}" if path else _ADDITIONAL
            rest = self._map(members.rest, frozenset(members.named), f"{place}{{}}")
        kinds = [(name, one.type) for name, one in found.items()] + (
            [(_ADDITIONAL, rest.type)] if rest else []
        )
        names = column_names(name for name, _ in kinds)
        of_columns = {name: kind for name, (_, kind) in zip(names, kinds, strict=True)}
        fields = [
            _Field(name, column, one.convert)
            for (name, one), column in zip(found.items(), names, strict=False)
        ]
        additional = rest.convert if rest else None
        declared, noted = frozenset(members.named), self._noted

        def struct(value: Any) -> Any:
            if type(value) is dict:
                get = value.get
                if additional is None and not value.keys() <= declared:
                    noted.append(UNKNOWN_FIELDS)
                row = {}
                column = names[-1]
                try:
                    for name, column, convert in fields:
                        row[column] = convert(get(name))
                    if additional is not None:
                        column = names[-1]
                        row[column] = additional(value)
                except ValueError as error:
                    error.add_note(step(column, of_columns[column]))
                    raise
                return row
            if value is None:
                return None
            raise _unfit(value, "object")

        parts = {name: found.get(name) for name in members.named}
        return Column(struct_type(kinds), struct, "" if rest else "object", parts)

    def _map(self, shape: Shape, named: frozenset[str], path: str) -> Column:
        item = self.of(shape, path)
        convert, width = item.convert, cells_of(TEXT) + cells_of(item.type)

        def members(value: Any) -> Any:
            if type(value) is dict:
                COUNTER.add(len(value), width)
                return [
                    (unicode(key), convert(one)) for key, one in value.items() if key not in named
                ]
            if value is None:
                return None
            raise _unfit(value, "object")

        return Column(pa.map_(TEXT, item.type), members, "map", {"": item})
