"""Protobuf messages by a descriptor set, with Google's own library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from kafkalog.errors import UsageError
from kafkalog.typed.schema_size import SchemaSize, brief

if TYPE_CHECKING:
    from collections.abc import Callable

_VARINT_SIZE_MAX: Final = 5
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    _FIELD.TYPE_DOUBLE: pa.float64(),
    _FIELD.TYPE_FLOAT: pa.float32(),
    _FIELD.TYPE_INT64: pa.int64(),
    _FIELD.TYPE_SINT64: pa.int64(),
    _FIELD.TYPE_SFIXED64: pa.int64(),
    _FIELD.TYPE_UINT64: pa.uint64(),
    _FIELD.TYPE_FIXED64: pa.uint64(),
    _FIELD.TYPE_INT32: pa.int32(),
    _FIELD.TYPE_SINT32: pa.int32(),
    _FIELD.TYPE_SFIXED32: pa.int32(),
    _FIELD.TYPE_UINT32: pa.uint32(),
    _FIELD.TYPE_FIXED32: pa.uint32(),
    _FIELD.TYPE_BOOL: pa.bool_(),
    _FIELD.TYPE_STRING: pa.string(),
    _FIELD.TYPE_BYTES: pa.binary(),
}


class ProtobufDecoder:
    """Decodes Protobuf: messages become structs, enums strings, an unnamed enum number its digits.

    A field with presence that is not set is null; a field without presence has its default, as
    usual. Fields that the descriptor does not know are skipped, as in Protobuf.

    Args:
        schema: a `FileDescriptorSet`.
        name: the message's full name.
        has_indexes: whether the indexes of the message precede the data.

    Raises:
        UsageError: the schema is not a descriptor set, lacks the message, or the message contains
            itself.
        ModuleNotFoundError: protobuf is missing.
    """

    def __init__(self, schema: bytes, name: str, *, has_indexes: bool) -> None:
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(schema).file:
                pool.AddSerializedFile(file.SerializeToString())
            descriptor = pool.FindMessageTypeByName(name)
        except KeyError as error:
            raise UsageError(f"The descriptor set has no message {name!r}.") from error
        except (message.DecodeError, TypeError) as error:
            raise UsageError(
                f"This is not a descriptor set: {brief(error)}.",
                hint="protoc --include_imports -o FILE NAME.proto",
            ) from error
        self._class = message_factory.GetMessageClass(descriptor)
        self._indexes = _indexes_of(descriptor) if has_indexes else None
        self.type, self._convert = _message(descriptor, (), SchemaSize())

    def decode(self, data: bytes, schema_id: int | None = None) -> Any:  # noqa: ARG002 # one schema
        """Return the message as a dictionary."""
        if self._indexes is not None:
            data = _without_indexes(data, self._indexes)
        try:
            return self._convert(self._class.FromString(data))
        except (message.DecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error


def _message(
    descriptor: Any, around: tuple[str, ...], size: SchemaSize
) -> tuple[Any, Callable[[Any], Any]]:
    if descriptor.full_name in around or not descriptor.fields:
        what = "is empty" if not descriptor.fields else "contains itself"
        raise UsageError(f"The message {descriptor.full_name} {what}: no column can hold it.")
    inside = (*around, descriptor.full_name)
    fields = {}
    for field in descriptor.fields:
        with size.inside(field.full_name):
            fields[field.name] = (field, *_field(field, inside, size))
    kind = pa.struct([pa.field(name, one) for name, (_, one, _) in fields.items()])

    def convert(found: Any) -> Any:
        return {
            name: None
            if field.has_presence and not found.HasField(name)
            else one(getattr(found, name))
            for name, (field, _, one) in fields.items()
        }

    return kind, convert


def _field(
    field: Any, around: tuple[str, ...], size: SchemaSize
) -> tuple[Any, Callable[[Any], Any]]:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        keys, values = inner.fields_by_name["key"], inner.fields_by_name["value"]
        key, _ = _single(keys, around, size)
        value, convert = _single(values, around, size)
        return pa.map_(key, value), lambda found: [
            (name, convert(found[name])) for name in sorted(found)
        ]
    kind, convert = _single(field, around, size)
    if field.is_repeated:
        return pa.list_(kind), lambda found: [convert(one) for one in found]
    return kind, convert


def _single(
    field: Any, around: tuple[str, ...], size: SchemaSize
) -> tuple[Any, Callable[[Any], Any]]:
    if field.message_type is not None:
        return _message(field.message_type, around, size)
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return pa.string(), lambda number: names.get(number, str(number))
    return _SCALARS[field.type], lambda value: value


def _indexes_of(descriptor: Any) -> list[int]:
    """Return the location of a message in its file: ordinals from the outermost message to it."""
    around = descriptor.containing_type
    if around is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    names = [one.name for one in around.nested_types]
    return [*_indexes_of(around), names.index(descriptor.name)]


def _without_indexes(data: bytes, wanted: list[int]) -> bytes:
    """Return the data after the indexes of a message; a lone zero means the first message."""
    count, position = _varint(data, 0)
    found = [] if count else [0]
    if count > len(wanted):
        raise ValueError("another message")
    for _ in range(count):
        index, position = _varint(data, position)
        found.append(index)
    if found != wanted:
        raise ValueError("another message")
    return data[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint; return it and the position after it."""
    number = 0
    for i in range(_VARINT_SIZE_MAX):
        if position + i >= len(data):
            break
        byte = data[position + i]
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:  # the last byte
            return number >> 1 ^ -(number & 1), position + i + 1
    raise ValueError("no indexes of a message")
