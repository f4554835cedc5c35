"""Decodes records that are as they should be, without the schemas in `formats`.

To load these takes longer than to read the records of a lookup. What is out of the ordinary is
left to them, and they say what is wrong with it. Follows `DefaultRecord.readFrom` and `ByteUtils`
of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.model import Header

if TYPE_CHECKING:
    from collections.abc import Iterator

Fields = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]
"""What a record holds: timestamp delta, offset delta, key, value and headers."""

_INT: Final = 32
_LONG: Final = 64


def record_at(data: bytes, position: int, headers_max: int) -> tuple[Fields, int] | None:
    """Return the record at a position, and where it ends; None if it is left to the schema.

    Args:
        data: the uncompressed records of a batch.
        position: where its length begins.
        headers_max: a record with more headers is left to the schema.
    """
    try:
        length, position = _number(data, position, _INT)
        end = position + length
        timestamp_delta, position = _number(data, position + 1, _LONG)  # after the attributes
        offset_delta, position = _number(data, position, _INT)
        key, position = _bytes(data, position)
        value, position = _bytes(data, position)
        count, position = _number(data, position, _INT)
        # A header takes 2 bytes at least, so that a count beyond the bytes left is damage.
        if not 0 <= count <= min(headers_max, end - position):
            return None
        headers = []
        for _ in range(count):
            name, position = _bytes(data, position)
            content, position = _bytes(data, position)
            if name is None:
                return None
            headers.append(Header(name, content))
    except (IndexError, OverflowError):
        return None
    if position != end or end > len(data):  # a field may have run past either
        return None
    return (timestamp_delta, offset_delta, key, value, tuple(headers)), end


def sizes_in(data: bytes) -> Iterator[int]:
    """Yield the size of each of the records, as it says before its fields."""
    position = 0
    while position < len(data):
        size, position = _number(data, position, _INT)
        yield size
        position += size


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Return bytes after their length, null if that is negative, and where they end."""
    size, position = _number(data, position, _INT)
    # Any negative length is null for DefaultRecord, not only -1.
    if size < 0:
        return None, position
    return data[position : position + size], position + size


def _number(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """Return a signed variable-length integer, and where it ends.

    Raises:
        IndexError: the data end before.
        OverflowError: it is longer than such an integer can be.
    """
    value = data[position]
    position += 1
    if value >= 0x80:
        value &= 0x7F
        for shift in range(7, bits + 6, 7):
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise OverflowError
        # ByteUtils drops the bits that do not fit, and so accepts them.
        value &= (1 << bits) - 1
    return (value >> 1) ^ -(value & 1), position
