"""One message of magic 0 or 1 with its log overhead; a message set is a sequence of them.

Follows `LegacyRecord` and `AbstractLegacyRecordBatch` of Kafka 4.3, where every magic but 0 has the
layout of magic 1. The value of a message with a codec is a compressed message set.
"""

from __future__ import annotations

from typing import Any, Final

from construct import (
    BitsInteger,
    BitStruct,
    Bytes,
    If,
    Int32sb,
    Int64sb,
    Rebuild,
    Struct,
)

from formats.constants import MESSAGE_V0_LENGTH_MIN, MESSAGE_V1_LENGTH_MIN
from formats.layouts import MESSAGE_HEADER
from formats.primitives import NullableBytes, fixed

MessageAttributes: Final = BitStruct(
    "unused" / BitsInteger(4),
    "timestamp_type" / BitsInteger(1),
    "compression" / BitsInteger(3),
)


def _has_timestamp(context: Any) -> bool:
    return bool(context.magic != 0)


def _size_up_to_rest(context: Any) -> int:
    fixed = MESSAGE_V1_LENGTH_MIN if context.magic != 0 else MESSAGE_V0_LENGTH_MIN
    return fixed + len(context.key or b"") + len(context.value or b"")


def _size(context: Any) -> int:
    return _size_up_to_rest(context) + len(context.rest)


def _rest_size(context: Any) -> int:
    # Negative if key and value run past the message's size, which Bytes refuses as a StreamError.
    return int(context.size) - _size_up_to_rest(context)


# `rest` holds the bytes after the value, which Kafka ignores. Building computes the size; the crc
# is written as given.
Message: Final = Struct(
    *fixed(
        MESSAGE_HEADER,
        size=Rebuild(Int32sb, _size),
        attributes=MessageAttributes,
        timestamp=If(_has_timestamp, Int64sb),
    ),
    "key" / NullableBytes(Int32sb),
    "value" / NullableBytes(Int32sb),
    "rest" / Bytes(_rest_size),
)
