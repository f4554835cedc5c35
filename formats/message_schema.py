"""The encoding of Kafka's generated messages: schemas of `messages.txt` and `requests.txt`.

Follows `MessageDataGenerator`, `ByteBufferAccessor` and `Readable` of Kafka: what they accept
is accepted, and the texts of their exceptions are the reasons of `MessageError`.

A parsed message is a dict in the order of the definition, by the names that Kafka's tools print:

- fields that the version does not have, and tagged fields that were not written, are absent;
- strings that are not UTF-8 keep their bytes (`surrogateescape`), and a bool that is neither
  0 nor 1 stays a number, so that `build` can return the same bytes;
- tagged fields with unknown tags are under `UNKNOWN_TAGS`, a list of (tag, bytes), if any.

`build(parse(data)) == data` for everything that Kafka writes. It does not hold for encodings that
Kafka reads but never writes: overlong varints, negative lengths other than -1, and tags out of
order or repeated (of a known tag the last one counts, as in Kafka).
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cache
from typing import Any, Final

from formats.constructs import (
    Adapter,
    BytesIOWithOffsets,
    Construct,
    ConstructError,
    Float64b,
    GreedyBytes,
    Int8sb,
    Int16sb,
    Int16ub,
    Int32sb,
    Int64sb,
    IntegerError,
    stream_write,
)
from formats.constructs import Struct as ConstructStruct
from formats.message_table import Field, Message, Struct, messages, requests
from formats.primitives import UnsignedVarint, Uuid

UNKNOWN_TAGS: Final = "_unknownTaggedFields"
AS_KAFKA: Final = {"ignore_sizes_of_tagged_fields": True}
STRING_SIZE_MAX: Final = 0x7FFF


class MessageError(ConstructError):  # type: ignore[misc] # construct has no types
    """Bytes are not a valid message; `reason` is the text of Kafka's exception."""

    def __init__(self, reason: str, path: str | None = None) -> None:
        super().__init__(reason, path=path)
        self.reason = reason


def message(name: str, release: str | None = None) -> Message:
    """Return a message by name; raises KeyError if no table has such a message."""
    return messages(release).get(name) or requests()[name]


def by_key(
    family: str, api_key: int, part: str = "value", release: str | None = None
) -> Message | None:
    """Return the message for a record type, apiKey or control record type, None if unknown.

    Args:
        family: `offsets`, `transaction-log`, `share-group-state`, `cluster-metadata`,
            `remote-log-metadata` or `control`.
        api_key: the number found in the data.
        part: `key` or `value`.
        release: as which release knows it; None for the newest.
    """
    return _by_key(release).get((family, api_key, part))


@cache
def _by_key(release: str | None) -> dict[tuple[str, int, str], Message]:
    return {
        (found.family, found.api_key, found.part): found
        for found in messages(release).values()
        if found.api_key is not None
    }


@cache  # bounded by the size of the table
def schema(name: str, version: int, release: str | None = None) -> Construct:
    """Return the schema of one version of a message, from bytes to dict and back.

    A tagged field must end where its size says. `parse(data, **AS_KAFKA)` ignores the size, as
    Kafka's readers do: a wrong size shifts what is read after the field.

    Raises:
        KeyError: there is no such message.
        ValueError: the message has no such version.
    """
    found = message(name, release)
    if version not in found.versions:
        raise ValueError(f"{name} has no version {version}")
    return StructCodec(found.struct, version, flexible=version in found.flexible_versions)


@cache  # bounded by the size of the table
def schema_with_rest(name: str, version: int, release: str | None = None) -> Construct:
    """Return `schema` as `fields`, and the ignored bytes after the message as `rest`."""
    return ConstructStruct("fields" / schema(name, version, release), "rest" / GreedyBytes)


def bytes_left(stream: Any) -> int:
    """Return the number of bytes between a seekable stream's position and its end."""
    position = stream.tell()
    end = stream.seek(0, io.SEEK_END)
    stream.seek(position)
    return int(end - position)


def parse_with(codec: Any, stream: Any, context: Any, path: str) -> Any:
    """Parse a part of a message through construct's internal protocol."""
    return codec._parsereport(stream, context, path)  # noqa: SLF001


def build_with(codec: Any, obj: Any, stream: Any, context: Any, path: str) -> None:
    """Build a part of a message through construct's internal protocol."""
    codec._build(obj, stream, context, path)  # noqa: SLF001


def parse_varint(stream: Any, context: Any, path: str) -> int:
    """Parse an unsigned varint of 32 bits: `ByteUtils.readUnsignedVarint`."""
    start = stream.tell()
    try:
        return int(parse_with(UnsignedVarint, stream, context, path))
    except IntegerError as error:
        stream.seek(start)
        # The text of Kafka's exception has the value of all five bytes.
        groups = enumerate(stream.read(5))
        value = sum((byte & 0x7F) << (7 * index) for index, byte in groups) & 0xFFFFFFFF
        reason = "Varint is too long, the most significant bit in the 5th byte is set, "
        raise MessageError(f"{reason}converted value: {value:x}", path) from error


class CompactLength(Construct):  # type: ignore[misc] # construct has no types
    """An unsigned varint that holds length + 1, read as Java's int: 0 stands for -1, null."""

    encoding = UnsignedVarint

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        length = parse_varint(stream, context, path) - 1
        return length if length < 1 << 31 else length - (1 << 32)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        build_with(UnsignedVarint, obj + 1, stream, context, path)
        return obj


COMPACT_LENGTH: Final = CompactLength()


class TagNumber(Construct):  # type: ignore[misc] # construct has no types
    """An unsigned varint of a tagged section: a count, a tag or a size."""

    encoding = UnsignedVarint

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        return parse_varint(stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        return build_with(UnsignedVarint, obj, stream, context, path)


TAG_NUMBER: Final = TagNumber()


class BoolAdapter(Adapter):  # type: ignore[misc] # construct has no types
    """A byte: 0 is false, everything else true; values that Kafka never writes stay numbers."""

    def _decode(self, obj: int, context: Any, path: str) -> bool | int:
        return bool(obj) if obj in {0, 1} else obj

    def _encode(self, obj: bool | int, context: Any, path: str) -> int:
        return int(obj)


class SizedField(Construct, ABC):  # type: ignore[misc] # construct has no types
    """A length-prefixed field, the base of strings, bytes and arrays."""

    def __init__(self, field: Field, length: Any) -> None:
        super().__init__()
        self.field = field
        self.length = length

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        size = parse_with(self.length, stream, context, path)
        if size >= 0:
            return self.parse_items(size, stream, context, path)
        if not self.field.nullable:
            reason = f"non-nullable field {self.field.name} was serialized as null"
            raise MessageError(reason, path)
        return None

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is not None:
            self.build_items(obj, stream, context, path)
        elif self.field.nullable:
            build_with(self.length, -1, stream, context, path)
        else:
            raise MessageError(f"field {self.field.name} is not nullable", path)
        return obj

    @abstractmethod
    def parse_items(self, size: int, stream: Any, context: Any, path: str) -> Any:
        """Parse the content of a field whose length is 0 or more."""

    @abstractmethod
    def build_items(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        """Build the length and the content of a value that is not null."""


class BytesField(SizedField):
    """Length-prefixed bytes."""

    def parse_items(self, size: int, stream: Any, context: Any, path: str) -> Any:
        return read_array(stream, size, path)

    def build_items(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        build_with(self.length, len(obj), stream, context, path)
        stream_write(stream, obj, len(obj), path)


class StringField(SizedField):
    """Length-prefixed text, at most 32767 bytes."""

    def parse_items(self, size: int, stream: Any, context: Any, path: str) -> Any:
        if size > STRING_SIZE_MAX:
            reason = f"string field {self.field.name} had invalid length {size}"
            raise MessageError(reason, path)
        return read_array(stream, size, path).decode("utf-8", "surrogateescape")

    def build_items(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        try:
            encoded = obj.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise MessageError(f"field {self.field.name} is no text: {error}", path) from error
        if len(encoded) > STRING_SIZE_MAX:
            raise MessageError(f"'{self.field.name}' field is too long to be serialized", path)
        build_with(self.length, len(encoded), stream, context, path)
        stream_write(stream, encoded, len(encoded), path)


class ArrayField(SizedField):
    """Count-prefixed elements; the count is bounded by the bytes left."""

    def __init__(self, field: Field, length: Any, element: Any) -> None:
        super().__init__(field, length)
        self.element = element

    def parse_items(self, size: int, stream: Any, context: Any, path: str) -> Any:
        """Read `size` elements; each has at least one byte."""
        left = bytes_left(stream)
        if size > left:
            reason = f"Tried to allocate a collection of size {size}, but there are only {left} "
            raise MessageError(f"{reason}bytes remaining.", path)
        return [parse_with(self.element, stream, context, path) for _ in range(size)]

    def build_items(self, obj: Any, stream: Any, context: Any, path: str) -> None:
        """Write the count and the elements."""
        build_with(self.length, len(obj), stream, context, path)
        for element in obj:
            build_with(self.element, element, stream, context, path)


class NullableStruct(Construct):  # type: ignore[misc] # construct has no types
    """A struct after a null flag: a byte (-1 is null), or a varint (0 is null) if tagged."""

    def __init__(self, struct: Any, *, tagged: bool) -> None:
        super().__init__()
        self.struct = struct
        self.tagged = tagged
        self.flag = COMPACT_LENGTH if tagged else Int8sb

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        flag = parse_with(self.flag, stream, context, path)
        return None if flag < 0 else parse_with(self.struct, stream, context, path)

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        null = 0 if self.tagged else -1
        build_with(Int8sb, null if obj is None else 1, stream, context, path)
        if obj is not None:
            build_with(self.struct, obj, stream, context, path)
        return obj


class StructCodec(Construct):  # type: ignore[misc] # construct has no types
    """The fields of one version of a struct, with a tagged section if the version is flexible."""

    def __init__(self, struct: Struct, version: int, *, flexible: bool) -> None:
        super().__init__()
        self.version = version
        self.flexible = flexible
        fields = struct.fields_of(version)
        codecs = [(field, field_codec(field, version, flexible=flexible)) for field in fields]
        self.order = tuple(field.name for field in fields)
        self.plain = [(field.name, codec) for field, codec in codecs if field.tag is None]
        self.tagged = {
            field.tag: (field.name, codec) for field, codec in codecs if field.tag is not None
        }
        self.foreign_tags = {field.tag for field in struct.fields if field.tag is not None}
        self.foreign_tags -= self.tagged.keys()
        self.tags = self.tag = self.size = TAG_NUMBER

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, codec in self.plain:
            values[name] = parse_with(codec, stream, context, f"{path} -> {name}")
        if not self.flexible:
            return values
        count = parse_with(self.tags, stream, context, path)
        ignore_sizes = context._params.get("ignore_sizes_of_tagged_fields", False)  # noqa: SLF001
        # A count is an int for Kafka's readers: negative, it has no fields.
        if count == 0 or (ignore_sizes and count >> 31):
            return values
        unknown = self.parse_tagged(count, ignore_sizes, values, stream, context, path)
        values = {name: values[name] for name in self.order if name in values}
        if unknown:
            values[UNKNOWN_TAGS] = unknown
        return values

    def parse_tagged(
        self,
        count: int,
        ignore_sizes: bool,
        values: dict[str, Any],
        stream: Any,
        context: Any,
        path: str,
    ) -> list[tuple[int, bytes]]:
        """Read `count` tagged fields, the known ones into `values`; return the unknown ones."""
        unknown = []
        for _ in range(count):
            tag = parse_with(self.tag, stream, context, path)
            size = parse_with(self.size, stream, context, path)
            # Known in another version only: Kafka's generated readers throw.
            if tag in self.foreign_tags:
                reason = f"Tag {tag} is not valid for version {self.version}"
                raise MessageError(reason, path)
            if tag not in self.tagged:
                unknown.append((tag, read_array(stream, size, path)))
                continue
            name, codec = self.tagged[tag]
            if ignore_sizes:
                values[name] = parse_with(codec, stream, context, f"{path} -> {name}")
                continue
            start = stream.tell()
            part = BytesIOWithOffsets(read_array(stream, size, path), stream, start)
            values[name] = parse_with(codec, part, context, f"{path} -> {name}")
            used = part.tell() - start
            if used != size:
                reason = f"tagged field {name} of {size} byte(s) ends after {used}"
                raise MessageError(reason, path)
        return unknown

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        foreign = obj.keys() - {*self.order, UNKNOWN_TAGS}
        missing = {name for name, _ in self.plain} - obj.keys()
        if foreign or missing or (UNKNOWN_TAGS in obj and not self.flexible):
            detail = f"fields missing: {sorted(missing)}, not in version: {sorted(foreign)}"
            raise MessageError(f"{detail}, flexible: {self.flexible}", path)
        for name, codec in self.plain:
            build_with(codec, obj[name], stream, context, f"{path} -> {name}")
        if not self.flexible:
            return obj
        tags = list(obj.get(UNKNOWN_TAGS, ()))
        for tag, (name, codec) in self.tagged.items():
            if name in obj:
                part = io.BytesIO()
                build_with(codec, obj[name], part, context, f"{path} -> {name}")
                tags.append((tag, part.getvalue()))
        build_with(UnsignedVarint, len(tags), stream, context, path)
        for tag, data in sorted(tags, key=lambda item: int(item[0])):
            build_with(UnsignedVarint, tag, stream, context, path)
            build_with(UnsignedVarint, len(data), stream, context, path)
            stream_write(stream, data, len(data), path)
        return obj


_PRIMITIVES: Final[dict[str, Any]] = {
    "bool": BoolAdapter(Int8sb),
    "i8": Int8sb,
    "i16": Int16sb,
    "i32": Int32sb,
    "i64": Int64sb,
    "u16": Int16ub,
    "f64": Float64b,
    "uuid": Uuid,
}


def field_codec(field: Field, version: int, *, flexible: bool) -> Any:
    """Return the schema of one field in one version of its message."""
    if field.array:
        element = replace(field, name=f"{field.name} element", array=False, nullable=False)
        length = COMPACT_LENGTH if flexible else Int32sb
        return ArrayField(field, length, field_codec(element, version, flexible=flexible))
    if field.struct is not None:
        single = StructCodec(field.struct, version, flexible=flexible)
        return NullableStruct(single, tagged=field.tag is not None) if field.nullable else single
    if field.type == "str":
        return StringField(field, COMPACT_LENGTH if flexible else Int16sb)
    if field.type in ("bytes", "records"):
        return BytesField(field, COMPACT_LENGTH if flexible else Int32sb)
    return _PRIMITIVES[field.type]


def read_array(stream: Any, size: int, path: str) -> bytes:
    """Read `size` bytes of the stream: `ByteBufferAccessor.readArray`."""
    left = bytes_left(stream)
    if size > left:
        reason = f"Error reading byte array of {size} byte(s): only {left} byte(s) available"
        raise MessageError(reason, path)
    return bytes(stream.read(size))
