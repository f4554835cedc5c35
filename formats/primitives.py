"""The encodings of numbers, strings and arrays that all of Kafka's formats are made of.

Follows `ByteUtils` (variable-length integers) and the message protocol's README of Kafka.
Variable-length integers are read as Kafka reads them: at most 5 or 10 bytes, bits that do not fit
are dropped, and overlong forms are accepted (and built back in their shortest form).
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from formats.constructs import (
    Adapter,
    Bytes,
    Construct,
    Container,
    FormatFieldError,
    Int8sb,
    Int16sb,
    Int32sb,
    Int32ub,
    Int64sb,
    IntegerError,
    StreamError,
    Struct,
    stream_read,
    stream_write,
)

if TYPE_CHECKING:
    from formats.constants import Layout

_INTEGERS: Final = {"b": Int8sb, "h": Int16sb, "i": Int32sb, "I": Int32ub, "q": Int64sb}


def fixed(layout: Layout, **schemas: Any) -> list[Any]:
    """Return the fields of a fixed layout as subconstructs; `schemas` overrides some of them."""
    return [name / schemas.get(name, _INTEGERS[kind]) for name, kind in layout.fields.items()]


class VariableLengthInteger(Construct):  # type: ignore[misc] # construct has no types
    """A little-endian base-128 integer of 32 or 64 bits, zigzag-encoded when signed.

    Raises `IntegerError` for an encoding longer than 5 (32 bits) or 10 (64 bits) bytes.
    """

    def __init__(self, bits: int, *, signed: bool) -> None:
        super().__init__()
        self.bits = bits
        self.mask = (1 << bits) - 1
        self.size_max = (bits + 6) // 7
        self.signed = signed

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        value = 0
        for shift in range(0, 7 * self.size_max, 7):
            byte: bytes = stream.read(1)
            if not byte:
                raise StreamError("stream ended inside a variable-length integer", path=path)
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                break
        else:
            message = f"variable-length integer is longer than {self.size_max} bytes"
            raise IntegerError(message, path=path)
        # ByteUtils drops the bits of the last byte that do not fit.
        value &= self.mask
        if self.signed:
            return (value >> 1) ^ -(value & 1)
        return value

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        encoded = self.encode(obj, path)
        stream_write(stream, encoded, len(encoded), path)
        return obj

    def encode(self, number: Any, path: str = "") -> bytes:
        """Return the shortest encoding of `number`; raises `IntegerError` if it does not fit."""
        if not isinstance(number, int):
            raise IntegerError(f"{number!r} is not an integer", path=path)
        low, high = (-(1 << (self.bits - 1)), self.mask >> 1) if self.signed else (0, self.mask)
        if not low <= number <= high:
            raise IntegerError(f"{number} does not fit into {self.bits} bits", path=path)
        rest = ((number << 1) ^ (number >> (self.bits - 1))) & self.mask if self.signed else number
        encoded = bytearray()
        while rest > 0x7F:
            encoded.append(0x80 | (rest & 0x7F))
            rest >>= 7
        encoded.append(rest)
        return bytes(encoded)


Varint: Final = VariableLengthInteger(32, signed=True)
Varlong: Final = VariableLengthInteger(64, signed=True)
UnsignedVarint: Final = VariableLengthInteger(32, signed=False)


class PlainStruct(Struct):  # type: ignore[misc] # construct has no types
    """A struct whose fields need nothing of each other: it is parsed without a context of its own.

    Making one takes longer than to parse the fields of a record.
    """

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        found = Container()
        for field in self.subcons:
            where = f"{path} -> {field.name}"
            found[field.name] = field.subcon._parsereport(stream, context, where)  # noqa: SLF001 # construct's own protocol
        return found


class NullableBytes(Construct):  # type: ignore[misc] # construct has no types
    """Bytes after a signed length; any negative length is null, built back as -1."""

    def __init__(self, length: Any) -> None:
        super().__init__()
        self.length = length

    def _parse(self, stream: Any, context: Any, path: str) -> bytes | None:
        size = self.length._parsereport(stream, context, path)  # noqa: SLF001 # construct's own protocol
        if size < 0:
            return None
        return bytes(stream_read(stream, size, path))

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        size = -1 if obj is None else len(obj)
        self.length._build(size, stream, context, path)  # noqa: SLF001 # construct's own protocol
        if obj is not None:
            stream_write(stream, obj, size, path)
        return obj


class UuidAdapter(Adapter):  # type: ignore[misc] # construct has no types
    """16 big-endian bytes as 22 characters of base64url, as Kafka prints them."""

    def _decode(self, obj: bytes, context: Any, path: str) -> str:
        return base64.urlsafe_b64encode(obj).decode("ascii").rstrip("=")

    def _encode(self, obj: str, context: Any, path: str) -> bytes:
        try:
            decoded = base64.urlsafe_b64decode(obj + "==")
        except ValueError as error:
            raise FormatFieldError(f"{obj!r} is not a UUID", path=path) from error
        if len(decoded) != 16:
            raise FormatFieldError(f"{obj!r} is not a UUID", path=path)
        return decoded


Uuid: Final = UuidAdapter(Bytes(16))
