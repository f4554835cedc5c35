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
_GLUE_SIZE: Final = 18
_GLUE_VERSION: Final = 3
_GLUE_PLAIN: Final = 0
_GLUE_ZLIB: Final = 5


class Framing(StrEnum):
    """The prefix before the data."""

    NONE = "none"
    CONFLUENT = "confluent"
    """A zero byte and the id of a schema in a registry, four bytes; for Protobuf also the indexes
    of the message.
    """
    APICURIO = "apicurio"
    """A zero byte and the global or content id, eight bytes; for Protobuf also the name of the
    message.
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
    size = _ID_SIZES.get(framing)
    if size is None or len(data) <= size or data[0]:  # a magic byte that is not zero
        return None, 0
    return int.from_bytes(data[1 : 1 + size], "big"), 1 + size


def prefix_size(framing: Framing) -> int:
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
