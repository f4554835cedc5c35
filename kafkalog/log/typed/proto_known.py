"""Messages of Google and Confluent that have a meaning of their own: times, decimals, JSON."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from formats.late_classes import dataclass
from kafkalog.log.typed.cells import COUNTER
from kafkalog.log.typed.lake_types import (
    JSON,
    TEXT,
    TIMESTAMP,
    UNSIGNED,
    decimal_type,
    json_text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DURATION: Final = pa.decimal128(21, 9)
"""Seconds: Google's range has 12 digits of these, and nanoseconds."""
SCALARS: Final = {
    FieldDescriptorProto.TYPE_DOUBLE: pa.float64(),
    FieldDescriptorProto.TYPE_FLOAT: pa.float32(),
    FieldDescriptorProto.TYPE_INT64: pa.int64(),
    FieldDescriptorProto.TYPE_SINT64: pa.int64(),
    FieldDescriptorProto.TYPE_SFIXED64: pa.int64(),
    FieldDescriptorProto.TYPE_UINT64: UNSIGNED,
    FieldDescriptorProto.TYPE_FIXED64: UNSIGNED,
    FieldDescriptorProto.TYPE_INT32: pa.int64(),
    FieldDescriptorProto.TYPE_SINT32: pa.int64(),
    FieldDescriptorProto.TYPE_SFIXED32: pa.int64(),
    FieldDescriptorProto.TYPE_UINT32: pa.int64(),
    FieldDescriptorProto.TYPE_FIXED32: pa.int64(),
    FieldDescriptorProto.TYPE_BOOL: pa.bool_(),
    FieldDescriptorProto.TYPE_STRING: pa.string(),
    FieldDescriptorProto.TYPE_BYTES: pa.binary(),
}
"""The types of fields without fields of their own."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_SECOND: Final = -62_135_596_800
"""Of the year 1."""
LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999."""
_DURATION_MAX_S: Final = 315_576_000_000
NANOS: Final = 1_000_000_000
_DECIMAL_BYTES_MAX: Final = 1024
_PLAIN_SCALE_MAX: Final = 1000
# Doubles have all integers up to here.
_INTEGER_MAX: Final = 1 << 53
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)\.\d{9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Known:
    """A message that becomes one value.

    Attributes:
        type: of the column.
        value: returns what the column has for a message.
        as_json: returns what JSON has for it.
        is_lossy: returns whether the column has fewer digits than a message.
        reason: why the column is JSON; empty if it is not.
    """

    type: Any
    value: Callable[[Any], Any]
    as_json: Callable[[Any], Any]
    is_lossy: Callable[[Any], bool] | None = None
    reason: str = ""


def known_message(descriptor: Any, params: Mapping[str, str]) -> Known | None:
    """Return what a message means; None if it is like any other.

    Args:
        descriptor: of the message.
        params: what Confluent's `field_meta` says about the field that holds it.
    """
    # A message may have the name of a known one, and nothing else of it.
    if not _has_shape(descriptor):
        return None
    name = descriptor.full_name
    if name in _JSON_MESSAGES:
        around = descriptor.file.message_types_by_name
        if not all(_has_shape(around.get(one.rpartition(".")[2])) for one in _JSON_MESSAGES):
            return None
    return _decimal(params) if name == CONFLUENT_DECIMAL else _KNOWN.get(name)


def is_wrapper(known: Known) -> bool:
    """Return whether a message means what its only field has."""
    return known.value in (_value, _text_value)


def is_any(descriptor: Any) -> bool:
    """Return whether a message is Google's `Any`, which holds the bytes of another one."""
    return descriptor.full_name == _ANY and _has_shape(descriptor)


def _has_shape(descriptor: Any) -> bool:
    """Return whether a message has the fields that its name promises."""
    wanted = None if descriptor is None else _SHAPES.get(descriptor.full_name)
    if wanted is None or len(descriptor.fields) != len(wanted):
        return False
    return [_words(one) for one in descriptor.fields] == wanted


def _words(field: Any) -> str:
    """Return a field as a `.proto` file has it, as far as it matters here."""
    inner = field.message_type or field.enum_type
    if field.message_type is not None and inner.GetOptions().map_entry:
        kind = f"map {inner.fields_by_name['value'].message_type.full_name}"
    else:
        kind = _TYPE_WORDS.get(field.type, "") if inner is None else inner.full_name
        kind = f"repeated {kind}" if field.is_repeated else kind
    return f"{kind} {field.name} = {field.number}"


def text_of(value: Any) -> str:
    """Return text; Google's library returns the bytes of that which is not UTF-8.

    Raises:
        ValueError: it is not UTF-8.
    """
    if isinstance(value, str):
        return value
    raise ValueError("text that is not UTF-8")


def _checked_timestamp(message: Any) -> tuple[int, int]:
    seconds, nanos = message.seconds, message.nanos
    if not FIRST_SECOND <= seconds <= LAST_SECOND or not 0 <= nanos < NANOS:
        raise ValueError(f"{seconds} s and {nanos} ns are no time in the years 1 to 9999")
    return seconds, nanos


def _timestamp(message: Any) -> int:
    seconds, nanos = _checked_timestamp(message)
    return int(seconds * 1_000_000 + nanos // 1000)


def _timestamp_text(message: Any) -> str:
    seconds, nanos = _checked_timestamp(message)
    days, rest = divmod(seconds, 86_400)
    day = (_EPOCH + timedelta(days=days)).date()
    return f"{day.isoformat()}T{time_text(rest * NANOS + nanos)}Z"


def _duration(message: Any) -> Decimal:
    seconds, nanos = message.seconds, message.nanos
    # The two have one sign.
    if abs(seconds) > _DURATION_MAX_S or abs(nanos) >= NANOS or seconds * nanos < 0:
        raise ValueError(f"{seconds} s and {nanos} ns are no duration")
    return Decimal(seconds * NANOS + nanos).scaleb(-9)


def _json_value(message: Any) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    found = getattr(message, kind)
    if kind == "number_value":
        is_integer = abs(found) <= _INTEGER_MAX and found == int(found)
        return int(found) if is_integer and (found or str(found) == "0.0") else found
    if kind == "string_value":
        return text_of(found)
    if kind == "struct_value":
        return _json_struct(found)
    return _json_list(found) if kind == "list_value" else found


def _json_struct(message: Any) -> dict[str, Any]:
    names = sorted(map(text_of, message.fields))
    return {name: _json_value(message.fields[name]) for name in names}


def _json_list(message: Any) -> list[Any]:
    return [_json_value(one) for one in message.values]


def _json(reason: str, tree: Callable[[Any], Any]) -> Known:
    return Known(JSON, lambda message: json_text(tree(message)), tree, reason=f"it is {reason}")


def _field_mask(message: Any) -> str:
    return ",".join(map(text_of, message.paths))


def _date(message: Any) -> date:
    year, month, day = message.year, message.month, message.day
    try:
        return date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{year}-{month}-{day} is no date") from error


def _time_of_day(message: Any) -> str:
    """Return the time; Google's has 24:00:00, and seconds of 60."""
    hours, minutes, seconds, nanos = (
        message.hours, message.minutes, message.seconds, message.nanos
    )  # fmt: skip
    text = f"{hours:02}:{minutes:02}:{seconds:02}.{nanos:09}"
    is_within = _TIME.fullmatch(text) is not None or text == "24:00:00.000000000"
    if not is_within:
        raise ValueError(f"{text} is no time of a day")
    return text if nanos else text.partition(".")[0]


def _value(message: Any) -> Any:
    return message.value


def _text_value(message: Any) -> str:
    return text_of(message.value)


def _decimal(params: Mapping[str, str]) -> Known:
    """Return what Confluent's decimal means in a field for which precision and scale are given."""
    precision, scale = _number(params.get("precision", "")), _number(params.get("scale", "0"))
    kind = TEXT
    if precision is not None and scale is not None:
        kind = decimal_type(precision, scale)

    def exact(message: Any) -> Decimal:
        if len(message.value) > _DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal of more than {_DECIMAL_BYTES_MAX} bytes")
        unscaled = int.from_bytes(message.value, "big", signed=True)
        return Decimal(f"{unscaled}E{-message.scale}")

    def text(message: Any) -> str:
        found = exact(message)
        is_plain = abs(message.scale) <= _PLAIN_SCALE_MAX
        return COUNTER.add_text(f"{found:f}" if is_plain else str(found))

    def value(message: Any) -> Decimal:
        found = exact(message)
        sign, digits, exponent = found.as_tuple()
        assert isinstance(exponent, int), "it is finite"
        if not any(digits):
            return Decimal(0)
        # The digits without the zeros at their end.
        kept = "".join(map(str, digits)).rstrip("0")
        exponent += len(digits) - len(kept)
        if exponent < -kind.scale or len(kept) + exponent > kind.precision - kind.scale:
            raise ValueError(f"a decimal that is no decimal({kind.precision}, {kind.scale})")
        return Decimal(f"{'-' * sign}{kept}E{exponent}")

    # JSON has the digits as the message has them, as text where a number would have many zeros.
    def as_json(message: Any) -> Any:
        is_plain = abs(message.scale) <= _PLAIN_SCALE_MAX
        return exact(message) if is_plain else text(message)

    return Known(kind, text if kind == TEXT else value, as_json)


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) < 10  # digits
    return int(text) if is_number else None


def shortest(value: float) -> float:
    """Return the number with the fewest digits among those that are the same float32."""
    return float(str(np.float32(value)))


_ANY: Final = "google.protobuf.Any"
CONFLUENT_DECIMAL: Final = "confluent.type.Decimal"
_JSON_MESSAGES: Final = (
    "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue",
)  # fmt: skip
_TYPE_WORDS: Final = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
_WRAPPED: Final = {
    "Double": FieldDescriptorProto.TYPE_DOUBLE,
    "Float": FieldDescriptorProto.TYPE_FLOAT,
    "Int64": FieldDescriptorProto.TYPE_INT64,
    "UInt64": FieldDescriptorProto.TYPE_UINT64,
    "Int32": FieldDescriptorProto.TYPE_INT32,
    "UInt32": FieldDescriptorProto.TYPE_UINT32,
    "Bool": FieldDescriptorProto.TYPE_BOOL,
    "Bytes": FieldDescriptorProto.TYPE_BYTES,
}
_KNOWN: Final = {
    **{
        f"google.protobuf.{name}Value": Known(SCALARS[kind], _value, _value)
        for name, kind in _WRAPPED.items()
    },
    "google.protobuf.FloatValue": Known(
        pa.float32(), _value, lambda message: shortest(message.value)
    ),
    "google.protobuf.StringValue": Known(TEXT, _text_value, _text_value),
    "google.protobuf.Timestamp": Known(
        TIMESTAMP, _timestamp, _timestamp_text, lambda message: message.nanos % 1000 != 0
    ),
    "google.protobuf.Duration": Known(DURATION, _duration, _duration),
    "google.protobuf.FieldMask": Known(TEXT, _field_mask, _field_mask),
    "google.protobuf.Struct": _json("an object of any JSON", _json_struct),
    "google.protobuf.Value": _json("any JSON", _json_value),
    "google.protobuf.ListValue": _json("a list of any JSON", _json_list),
    "google.type.Date": Known(pa.date32(), _date, _date),
    "google.type.TimeOfDay": Known(TEXT, _time_of_day, _time_of_day),
    "google.type.Decimal": Known(TEXT, _text_value, _text_value),
}
_SHAPES: Final = {
    **{
        f"google.protobuf.{name}Value": [f"{_TYPE_WORDS[kind]} value = 1"]
        for name, kind in _WRAPPED.items()
    },
    "google.protobuf.StringValue": ["string value = 1"],
    "google.protobuf.Timestamp": ["int64 seconds = 1", "int32 nanos = 2"],
    "google.protobuf.Duration": ["int64 seconds = 1", "int32 nanos = 2"],
    "google.protobuf.FieldMask": ["repeated string paths = 1"],
    "google.protobuf.Struct": ["map google.protobuf.Value fields = 1"],
    "google.protobuf.Value": [
        "google.protobuf.NullValue null_value = 1", "double number_value = 2",
        "string string_value = 3", "bool bool_value = 4",
        "google.protobuf.Struct struct_value = 5", "google.protobuf.ListValue list_value = 6",
    ],
    "google.protobuf.ListValue": ["repeated google.protobuf.Value values = 1"],
    _ANY: ["string type_url = 1", "bytes value = 2"],
    "google.type.Date": ["int32 year = 1", "int32 month = 2", "int32 day = 3"],
    "google.type.TimeOfDay": [
        "int32 hours = 1", "int32 minutes = 2", "int32 seconds = 3", "int32 nanos = 4"
    ],
    "google.type.Decimal": ["string value = 1"],
    CONFLUENT_DECIMAL: ["bytes value = 1", "uint32 precision = 2", "int32 scale = 3"],
}  # fmt: skip
