"""Parsed messages as JSON values, by the rules of Kafka's generated `*JsonConverter` classes (4.3).

Members are in the order of the definition; untagged fields always, tagged ones only if they differ
from their default; bytes in base64; NaN and infinities as strings; malformed UTF-8 as U+FFFD, the
way Java decodes it.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

from construct import ConstructError

from formats.internal_topics import CoordinatorValue
from formats.message_schema import UNKNOWN_TAGS, message, schema_with_rest
from kafkalog.payloads.java_text import java_double, java_text

if TYPE_CHECKING:
    from formats.message_table import Field, Message, Struct

JsonObject = dict[str, Any]


def message_json(found: Message, version: int, values: dict[str, Any]) -> JsonObject:
    """Return a message's fields as JSON; `values` may be parsed by any version's schema."""
    fields = _struct_json(found.struct, version, values)
    if found.name == "GroupMetadataValue" and fields["protocolType"] == "consumer":
        for parsed, shown in zip(values["members"], fields["members"], strict=True):
            for name in ("subscription", "assignment"):
                decoded = _consumer_protocol_json(name, parsed[name])
                if decoded is not None:
                    shown[name] = decoded
    return fields


def has_struct(values: dict[str, Any]) -> bool:
    """Return whether a parsed message holds a struct, in a field or as an element of an array."""
    for value in values.values():
        if isinstance(value, dict):
            return True
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return True
    return False


def _consumer_protocol_json(part: str, data: bytes) -> JsonObject | None:
    """Return a member's subscription or assignment, None if it stays opaque bytes.

    Follows `DumpLogSegments.OffsetsMessageParser.replaceField`, which reads any stored version: one
    below 0 has the fields of version 0, one above 3 those of version 3 as long as no nested struct
    has to be read.
    """
    name = f"ConsumerProtocol{part.capitalize()}"
    found = message(name)
    newest = found.versions[-1]
    try:
        frame = CoordinatorValue.parse(data)
        version = min(max(frame.version, 0), newest)
        values = schema_with_rest(name, version).parse(frame.message).fields
    except ConstructError:
        return None
    if frame.version > newest and has_struct(values):
        return None
    return _struct_json(found.struct, version, values)


def _struct_json(struct: Struct, version: int, values: dict[str, Any]) -> JsonObject:
    shown = {}
    for field in struct.fields_of(version):
        value = values.get(field.name, field.default)
        if field.tag is None or not _is_default(field, value):
            shown[field.name] = _field_json(field, version, value)
    return shown


def _field_json(field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.array:
        return [_single_json(field, version, element) for element in value]
    return _single_json(field, version, value)


def _single_json(field: Field, version: int, value: Any) -> Any:
    if field.struct is not None:
        return _struct_json(field.struct, version, value)
    if field.type == "str":
        return java_text(value.encode("utf-8", "surrogateescape"))
    if field.type == "bytes":
        return base64.b64encode(value).decode("ascii")
    if field.type == "bool":
        return bool(value)
    if field.type == "f64" and not math.isfinite(value):
        return java_double(value)
    return value


def _is_default(field: Field, value: Any) -> bool:
    if field.struct is None or field.array or value is None or field.default is None:
        return bool(value == field.default)
    return UNKNOWN_TAGS not in value and all(
        _is_default(part, value[part.name]) for part in field.struct.fields if part.name in value
    )
