"""What serializers put before the data: the id of the schema that it was written with."""

from __future__ import annotations

import zlib
from enum import StrEnum
from typing import Final
from uuid import UUID

VALUE_SIZE_MAX: Final = 16 << 20
"""Larger values are not decoded, since each byte can become a Python object."""
# Of Apicurio's `DefaultIdHandler` and `Default4ByteIdHandler`, and of Glue's
# `AWSSchemaRegistryConstants`.
_ID_SIZES: Final = {"confluent": 4, "apicurio": 8, "apicurio4": 4}
GUID_SIZE: Final = 17
"""Size of the prefix with a GUID."""
_GUID_VERSION: Final = 1
# Of Confluent's `SchemaId` and of Apicurio's `KafkaSerdeHeaders`.
_ID_HEADERS: Final = {
    "confluent": (("__{}_schema_id", b""),),
    "apicurio": (("apicurio.{}.globalId", b"\0"), ("apicurio.{}.contentId", b"\0")),
}
MESSAGE_HEADER: Final = "apicurio.protobuf.type"
"""The header in which Apicurio names the message of Protobuf, where an id is in a header, too."""
_GLUE_SIZE: Final = 18
PREFIX_MAX: Final = _GLUE_SIZE
"""Size of the longest prefix, without what names a message of Protobuf."""
_GLUE_VERSION: Final = 3
_GLUE_PLAIN: Final = 0
_GLUE_ZLIB: Final = 5


class TypedForm(StrEnum):
    """The format of the bytes."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    CONNECT = "connect"
    """JSON of Kafka Connect, where each message has its schema."""

    @property
    def has_registry(self) -> bool:
        """Whether registries have schemas of it."""
        return self != TypedForm.CONNECT


class Framing(StrEnum):
    """The prefix before the data."""

    NONE = "none"
    CONFLUENT = "confluent"
    """A zero byte and the id of a schema in a registry, four bytes, or a one and its GUID; for
    Protobuf also the indexes of the message. The same may be in a header.
    """
    APICURIO = "apicurio"
    """A zero byte and the global or content id, eight bytes; for Protobuf also the name of the
    message. Or a header with the id.
    """
    APICURIO4 = "apicurio4"
    """Likewise with an id of four bytes, the default since Apicurio Registry 3."""
    GLUE = "glue"
    """Three, whether zlib compressed the data, and the UUID of a version of a schema; for Protobuf
    also the number of the message.
    """


SchemaId = int | str
"""The number of a schema, or the text of a UUID."""


def split(framing: Framing, data: bytes) -> tuple[SchemaId | None, int]:
    """Return the id in the prefix, and where what follows begins; no id if there is no prefix."""
    if framing == Framing.GLUE:
        if len(data) < _GLUE_SIZE or data[0] != _GLUE_VERSION:
            return None, 0
        return str(UUID(bytes=bytes(data[2:_GLUE_SIZE]))), _GLUE_SIZE
    if framing == Framing.CONFLUENT and data[:1] == bytes([_GUID_VERSION]):
        if len(data) < GUID_SIZE:
            return None, 0
        return str(UUID(bytes=bytes(data[1:GUID_SIZE]))), GUID_SIZE
    size = _ID_SIZES.get(framing)
    if size is None or len(data) <= size or data[0]:  # a magic byte that is not zero
        return None, 0
    return int.from_bytes(data[1 : 1 + size], "big"), 1 + size


def prefixes_of(schema_id: SchemaId) -> list[bytes]:
    """Return what can stand before data that a schema with this id wrote, but for the message."""
    if isinstance(schema_id, str):
        uuid = UUID(schema_id).bytes
        glue = [bytes([_GLUE_VERSION, way]) + uuid for way in (_GLUE_PLAIN, _GLUE_ZLIB)]
        return [bytes([_GUID_VERSION]) + uuid, *glue]
    sizes = {size for size in _ID_SIZES.values() if schema_id < 1 << 8 * size}
    return [b"\0" + schema_id.to_bytes(size, "big") for size in sorted(sizes)]


def id_headers(framing: Framing, source: str) -> list[tuple[str, bytes]]:
    """Return the headers that have the id of a key or value, and what a prefix has before that.

    The first that a record has counts; of several with that name the last.
    """
    return [(name.format(source), before) for name, before in _ID_HEADERS.get(framing, ())]


def is_whole_id(framing: Framing, value: bytes, *, names_message: bool) -> bool:
    """Return whether the value of an id's header is one; else it would take bytes of the data.

    Args:
        names_message: whether indexes of a message of Protobuf may stand behind the id.
    """
    if framing == Framing.APICURIO:
        return len(value) == _ID_SIZES["apicurio"]
    sizes = {0: 1 + _ID_SIZES["confluent"], _GUID_VERSION: GUID_SIZE}
    size = sizes.get(value[0], 0) if value else 0
    return len(value) == size or (names_message and 0 < size < len(value))


def delimited_name(name: bytes) -> bytes:
    """Return the name of a message as Apicurio's prefix has it: a message with one string."""
    text = b"\x0a" + _varint(len(name)) + name
    return _varint(len(text)) + text


def _varint(number: int) -> bytes:
    low = bytes([number & 0x7F | (0x80 if number > 0x7F else 0)])
    return low + _varint(number >> 7) if number > 0x7F else low


def prefix_size(framing: Framing) -> int:
    """Return the size of the shortest prefix."""
    # 1 - 1 without a framing.
    return _GLUE_SIZE if framing == Framing.GLUE else 1 + _ID_SIZES.get(framing, -1)


def unpacked(framing: Framing, data: bytes, start: int) -> bytes:
    """Return what follows the prefix.

    Raises:
        ValueError: it is compressed in an unknown way, damaged, or too large.
    """
    if framing != Framing.GLUE or data[1] == _GLUE_PLAIN:
        return data[start:]
    if data[1] != _GLUE_ZLIB:
        raise ValueError(f"{data[1]} is no compression of Glue")
    stream = zlib.decompressobj()
    try:
        # Bounded, since a few bytes can decompress to gigabytes.
        found = stream.decompress(data[start:], VALUE_SIZE_MAX)
    except zlib.error as error:
        raise ValueError(f"the compressed data is damaged: {error}") from error
    if not stream.eof or stream.unused_data:
        is_large = len(found) == VALUE_SIZE_MAX
        raise ValueError(
            f"larger than {VALUE_SIZE_MAX} bytes" if is_large else "the compressed data is damaged"
        )
    return found
