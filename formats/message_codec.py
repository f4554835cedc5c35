"""A fast encoding of requests and responses: functions made of the table, one per field.

The same bytes as those of `message_schema.py`, some ten times faster; tests compare both. In
difference to it:

- a decoded message has all fields of the table, those that the version lacks with their defaults;
- an encoder passes over fields that its version does not have, fills in defaults for those that
  are missing, and leaves tagged fields out that equal their defaults, as Kafka does;
- the value of a `records` field may be anything with a length: it becomes a part of its own, and
  the caller sends its bytes.

Nothing that is read is trusted: the elements of one message are counted, and their number is
bounded.
"""

from __future__ import annotations

import base64
import binascii
import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from formats.message_schema import STRING_SIZE_MAX, MessageError, message
from formats.primitives import UnsignedVarint

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from formats.message_table import Field, Struct

ELEMENTS_MAX: Final = 200_000
"""Elements of all arrays of one message."""
TAGS_MAX: Final = 1_000
_FIXED: Final = {
    "bool": struct.Struct(">?"),
    "i8": struct.Struct(">b"),
    "i16": struct.Struct(">h"),
    "i32": struct.Struct(">i"),
    "i64": struct.Struct(">q"),
    "u16": struct.Struct(">H"),
    "f64": struct.Struct(">d"),
}
_I8, _I16, _I32 = _FIXED["i8"], _FIXED["i16"], _FIXED["i32"]


class Input:
    """Bytes that are decoded, and how far.

    Args:
        data: the message.
        position: where it begins.
    """

    __slots__ = ("data", "elements_left", "end", "position", "tags_left")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.elements_left = ELEMENTS_MAX
        self.tags_left = TAGS_MAX

    def unpack(self, fixed: struct.Struct) -> Any:
        """Return a number of a fixed size."""
        position = self.position
        self.position = position + fixed.size
        if self.position > self.end:
            raise MessageError("the message ends inside a number")
        return fixed.unpack_from(self.data, position)[0]

    def take(self, size: int) -> bytes:
        position = self.position
        # Also for a size that leads past a tag's own end: that is compared behind the field.
        if size > self.end - position:
            left = self.end - position
            reason = f"Error reading byte array of {size} byte(s): only {left} byte(s) available"
            raise MessageError(reason)
        self.position = position + size
        return self.data[position : position + size]

    def varint(self) -> int:
        """Return an unsigned varint of 32 bits."""
        value = 0
        for shift in (0, 7, 14, 21, 28):
            if self.position >= self.end:
                raise MessageError("the message ends inside a varint")
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF
        raise MessageError("Varint is too long, the most significant bit in the 5th byte is set")

    def compact_length(self) -> int:
        """Return a length that is held as length + 1; negative for null."""
        length = self.varint() - 1
        # Java's int: lengths above 2^31 are negative, and so null.
        return length if length < 1 << 31 else length - (1 << 32)


class Output:
    """Encoded parts: bytes, and values of `records` fields as they were given."""

    __slots__ = ("buffer", "parts")

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.parts: list[Any] = []

    def varint(self, value: int) -> None:
        """Write an unsigned varint."""
        if value < 0x80:
            self.buffer.append(value)
        else:
            self.buffer += UnsignedVarint.encode(value)

    def part(self, value: Sized) -> None:
        """Write a value whose bytes the caller sends."""
        if isinstance(value, bytes):
            self.buffer += value
            return
        self.parts.append(self.buffer)
        self.parts.append(value)
        self.buffer = bytearray()

    def end(self) -> list[Any]:
        """Return all parts in order."""
        self.parts.append(self.buffer)
        return self.parts


@cache
def decoder(name: str, version: int) -> Callable[[Input], dict[str, Any]]:
    """Return the function that decodes one version of a message. Raises as `schema`."""
    found = message(name)
    _require(name, version)
    return _struct_decoder(found.struct, version, version in found.flexible_versions)


@cache
def encoder(name: str, version: int) -> Callable[[Output, dict[str, Any]], None]:
    """Return the function that encodes one version of a message. Raises as `schema`."""
    found = message(name)
    _require(name, version)
    return _struct_encoder(found.struct, version, version in found.flexible_versions)


def decode(name: str, version: int, data: bytes, position: int = 0) -> dict[str, Any]:
    """Decode a message; bytes after it are ignored, as in Kafka.

    Raises:
        MessageError: the bytes are no such message.
    """
    return decoder(name, version)(Input(data, position))


def encode(name: str, version: int, value: dict[str, Any]) -> list[Any]:
    """Encode a message as a list of parts: bytes, and values of `records` fields."""
    output = Output()
    encoder(name, version)(output, value)
    return output.end()


def default_of(field: Field) -> Any:
    """Return the value of a field that is absent, a new one each time."""
    if field.array:
        return None if field.default is None else []
    if field.struct is not None and field.default is not None:
        return {one.name: default_of(one) for one in field.struct.fields}
    return field.default


def _require(name: str, version: int) -> None:
    if version not in message(name).versions:
        raise ValueError(f"{name} has no version {version}")


def _struct_decoder(
    described: Struct, version: int, flexible: bool
) -> Callable[[Input], dict[str, Any]]:
    there = described.fields_of(version)
    names = {field.name for field in there}
    plain = [(one.name, _decoder(one, version, flexible)) for one in there if one.tag is None]
    tagged = {
        one.tag: (one.name, _decoder(one, version, flexible))
        for one in there
        if one.tag is not None
    }
    absent = [one for one in described.fields if one.name not in names or one.tag is not None]
    # Values that can be shared; lists and dicts are made new for each message.
    constant = {one.name: default_of(one) for one in absent if not (one.array or one.struct)}
    made = [one for one in absent if one.array or one.struct]

    def read(source: Input) -> dict[str, Any]:
        values: dict[str, Any] = dict(constant)
        for one in made:
            values[one.name] = default_of(one)
        for name, decode_field in plain:
            values[name] = decode_field(source)
        if flexible:
            for _ in range(source.varint()):
                source.tags_left -= 1
                if source.tags_left < 0:
                    raise MessageError("the message has too many tagged fields")
                tag, size = source.varint(), source.varint()
                if tag in tagged:
                    name, decode_field = tagged[tag]
                    end = source.position + size
                    values[name] = decode_field(source)
                    # Kafka's readers ignore the size of a tag they know; a wrong one would shift
                    # the rest.
                    if source.position != end:
                        raise MessageError(f"tagged field {name} has another size than it says")
                else:
                    source.take(size)
        return values

    return read


def _decoder(field: Field, version: int, flexible: bool) -> Callable[[Input], Any]:
    if field.array:
        return _array_decoder(field, version, flexible)
    if field.struct is not None:
        inner = _struct_decoder(field.struct, version, flexible)
        return _nullable_decoder(inner, field) if field.nullable else inner
    if field.type in _FIXED:
        fixed = _FIXED[field.type]
        return lambda source: source.unpack(fixed)
    if field.type == "uuid":
        return lambda source: _uuid_text(source.take(16))
    short = _I16 if field.type == "str" else _I32
    is_text = field.type == "str"

    def read(source: Input) -> Any:
        size = source.compact_length() if flexible else source.unpack(short)
        if size < 0:
            if field.nullable:
                return None
            raise MessageError(f"non-nullable field {field.name} was serialized as null")
        if not is_text:
            return source.take(size)
        if size > STRING_SIZE_MAX:
            raise MessageError(f"string field {field.name} had invalid length {size}")
        return source.take(size).decode("utf-8", "surrogateescape")

    return read


def _array_decoder(field: Field, version: int, flexible: bool) -> Callable[[Input], Any]:
    element = _element_of(field)
    inner = _decoder(element, version, flexible)

    def read(source: Input) -> Any:
        count = source.compact_length() if flexible else source.unpack(_I32)
        if count < 0:
            if field.nullable:
                return None
            raise MessageError(f"non-nullable field {field.name} was serialized as null")
        source.elements_left -= count
        # An element takes a byte at least; the sum bounds nested arrays, too.
        if count > source.end - source.position or source.elements_left < 0:
            raise MessageError(f"field {field.name} has too many elements: {count}")
        return [inner(source) for _ in range(count)]

    return read


def _nullable_decoder(inner: Callable[[Input], Any], field: Field) -> Callable[[Input], Any]:
    if field.tag is not None:
        return lambda source: inner(source) if source.compact_length() >= 0 else None
    return lambda source: inner(source) if source.unpack(_I8) >= 0 else None


def _element_of(field: Field) -> Field:
    from dataclasses import replace

    return replace(field, array=False, nullable=False, tag=None)


def _struct_encoder(
    described: Struct, version: int, flexible: bool
) -> Callable[[Output, dict[str, Any]], None]:
    there = described.fields_of(version)
    plain = [(one.name, one, _encoder(one, version, flexible)) for one in there if one.tag is None]
    tagged = sorted(
        (one.tag, one.name, _encoder(one, version, flexible), default_of(one))
        for one in there
        if one.tag is not None
    )

    def write(output: Output, value: dict[str, Any]) -> None:
        for name, one, encode_field in plain:
            encode_field(output, value[name] if name in value else default_of(one))
        if not flexible:
            return
        present = [
            (tag, name, encode_field)
            for tag, name, encode_field, default in tagged
            # Absence stands for the default, which Kafka never writes.
            if name in value and value[name] != default
        ]
        output.varint(len(present))
        for tag, name, encode_field in present:
            field_output = Output()
            encode_field(field_output, value[name])
            output.varint(tag)
            output.varint(len(field_output.buffer))
            output.buffer += field_output.buffer

    return write


def _encoder(field: Field, version: int, flexible: bool) -> Callable[[Output, Any], None]:
    if field.array:
        return _array_encoder(field, version, flexible)
    if field.struct is not None:
        inner = _struct_encoder(field.struct, version, flexible)
        return _nullable_encoder(inner, field) if field.nullable else inner
    if field.type in _FIXED:
        pack = _FIXED[field.type].pack

        def write_number(output: Output, value: Any) -> None:
            output.buffer += pack(value)

        return write_number
    if field.type == "uuid":

        def write_uuid(output: Output, value: str) -> None:
            output.buffer += _uuid_bytes(value)

        return write_uuid
    short = _I16 if field.type == "str" else _I32
    is_text = field.type == "str"

    def write(output: Output, value: Any) -> None:
        if value is None:
            if not field.nullable:
                raise MessageError(f"field {field.name} is not nullable")
            _write_length(output, -1, short, flexible)
            return
        encoded = value.encode("utf-8", "surrogateescape") if is_text else value
        if is_text and len(encoded) > STRING_SIZE_MAX:
            raise MessageError(f"'{field.name}' field is too long to be serialized")
        _write_length(output, len(encoded), short, flexible)
        output.part(encoded)

    return write


def _array_encoder(field: Field, version: int, flexible: bool) -> Callable[[Output, Any], None]:
    inner = _encoder(_element_of(field), version, flexible)

    def write(output: Output, value: Any) -> None:
        if value is None:
            if not field.nullable:
                raise MessageError(f"field {field.name} is not nullable")
            _write_length(output, -1, _I32, flexible)
            return
        _write_length(output, len(value), _I32, flexible)
        for one in value:
            inner(output, one)

    return write


def _nullable_encoder(
    inner: Callable[[Output, Any], None], field: Field
) -> Callable[[Output, Any], None]:
    null = 0 if field.tag is not None else -1

    def write(output: Output, value: Any) -> None:
        output.buffer += _I8.pack(null if value is None else 1)
        if value is not None:
            inner(output, value)

    return write


def _write_length(output: Output, size: int, short: struct.Struct, flexible: bool) -> None:
    if flexible:
        output.varint(size + 1)
    else:
        output.buffer += short.pack(size)


def _uuid_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii")[:22]


def _uuid_bytes(text: str) -> bytes:
    try:
        data = base64.urlsafe_b64decode(text + "==")
    except (ValueError, binascii.Error) as error:
        raise MessageError(f"{text!r} is not a UUID") from error
    if len(data) != 16:
        raise MessageError(f"{text!r} is not a UUID")
    return data
