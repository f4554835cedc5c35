"""What a log consists of: record batches of magic 2 and their records, messages of magic 0 and 1.

Follows Kafka. Magic 2: `DefaultRecordBatch`, and `DefaultRecord.readFrom`, its full parser (the
one that keeps key and value). In a batch, the records stay payload bytes, because they may be
compressed; `Record` is the schema of one of them. Magic 0 and 1: `LegacyRecord` and
`AbstractLegacyRecordBatch`, where every magic but 0 has the layout of magic 1. The value of a
message with a codec is a compressed message set.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from formats.constants import (
    BATCH_LENGTH_MIN,
    MESSAGE_FIELD,
    MESSAGE_HEADER,
    MESSAGE_V0_LENGTH_MIN,
    MESSAGE_V1_LENGTH_MIN,
    RECORD_BATCH_HEADER,
)
from formats.constructs import (
    BitsInteger,
    BitStruct,
    Bytes,
    BytesIOWithOffsets,
    Construct,
    ConstructError,
    Container,
    Flag,
    FormatFieldError,
    If,
    Int8sb,
    Int32sb,
    Int64sb,
    ListContainer,
    Rebuild,
    StreamError,
    Struct,
    stream_read,
    stream_write,
)
from formats.primitives import NullableBytes, PlainStruct, Varint, Varlong, fixed


class HeaderKey(NullableBytes):
    """Bytes after a signed length that must not be negative: a header without a key is damage."""

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        key = super()._parse(stream, context, path)
        if key is None:
            raise FormatFieldError("negative size of a header key", path=path)
        return key

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        if obj is None:
            raise FormatFieldError("a header key cannot be null", path=path)
        return super()._build(obj, stream, context, path)


class TooManyHeadersError(ConstructError):  # type: ignore[misc] # construct has no types
    """A record has more headers than are wanted: `count` of them."""

    def __init__(self, count: int, path: str) -> None:
        super().__init__(f"{count} headers", path=path)
        self.count = count


class Headers(Construct):  # type: ignore[misc] # construct has no types
    """A signed count and that many headers; a negative count is damage.

    A header takes at least two bytes, so the end of the record stops a hostile count before the
    list grows longer than the data. If there are more than `headers_max` of the context, where so
    many have room, none is read.
    """

    def __init__(self, count: Any, header: Any) -> None:
        super().__init__()
        self.count = count
        self.header = header

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self.count._parse(stream, context, path)  # noqa: SLF001 # construct's own protocol
        if count < 0:
            raise FormatFieldError(f"negative count of headers: {count}", path=path)
        most = context.get("headers_max", count)
        # Without room for that number of records, the end of the record says what is wrong, as in
        # Kafka.
        if count > most and len(stream.getbuffer()) >= 2 * most:
            raise TooManyHeadersError(count, path)
        headers = ListContainer()
        for _ in range(count):
            headers.append(self.header._parse(stream, context, path))  # noqa: SLF001
        return headers

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        self.count._build(len(obj), stream, context, path)  # noqa: SLF001 # construct's own protocol
        for header in obj:
            self.header._build(header, stream, context, path)  # noqa: SLF001
        return obj


class SizedRecord(Construct):  # type: ignore[misc] # construct has no types
    """A length and exactly that many bytes of a record's body.

    Kafka lets a field of an uncompressed record run past the record's own end and compares the
    consumed size afterwards; cutting the body first accepts and rejects the same bytes.
    Building computes the length.
    """

    def __init__(self, length: Any, body: Any) -> None:
        super().__init__()
        self.length = length
        self.body = body

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        length = self.length._parse(stream, context, path)  # noqa: SLF001 # construct's own protocol
        start = stream.tell()
        body = BytesIOWithOffsets(stream_read(stream, length, path), stream, start)
        record = Container(length=length)
        record.update(self.body._parse(body, context, path))  # noqa: SLF001
        used = body.tell() - start
        if used != length:
            raise StreamError(f"record of {length} bytes ends after {used} of them", path=path)
        return record

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        body = BytesIO()
        self.body._build(obj, body, context, path)  # noqa: SLF001 # construct's own protocol
        self.length._build(body.tell(), stream, context, path)  # noqa: SLF001
        stream_write(stream, body.getvalue(), body.tell(), path)
        return obj


RecordHeader: Final = PlainStruct(
    "key" / HeaderKey(Varint),
    "value" / NullableBytes(Varint),
)

RecordBody: Final = PlainStruct(
    "attributes" / Int8sb,
    "timestamp_delta" / Varlong,
    "offset_delta" / Varint,
    "key" / NullableBytes(Varint),
    "value" / NullableBytes(Varint),
    "headers" / Headers(Varint, RecordHeader),
)

Record: Final = SizedRecord(Varint, RecordBody)


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


MessageField: Final = Struct(*fixed(MESSAGE_FIELD))

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


Attributes: Final = BitStruct(
    "unused" / BitsInteger(9),
    "has_delete_horizon" / Flag,
    "is_control" / Flag,
    "is_transactional" / Flag,
    "timestamp_type" / BitsInteger(1),
    "compression" / BitsInteger(3),
)

RecordBatchHeader: Final = Struct(*fixed(RECORD_BATCH_HEADER, attributes=Attributes))


def _batch_length(context: Any) -> int:
    return len(context.records) + BATCH_LENGTH_MIN


def _records_size(context: Any) -> int:
    # Negative if batch_length is below 49, which Bytes refuses as a StreamError.
    return int(context.batch_length) - BATCH_LENGTH_MIN


# Building computes batch_length from the records; the crc is written as given.
RecordBatch: Final = Struct(
    *(
        field if field.name != "batch_length" else "batch_length" / Rebuild(Int32sb, _batch_length)
        for field in RecordBatchHeader.subcons
    ),
    "records" / Bytes(_records_size),
)
