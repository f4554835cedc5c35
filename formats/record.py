"""One record of magic 2, with its headers.

Follows `DefaultRecord.readFrom` of Kafka 4.3, its full parser (the one that keeps key and value).
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

from construct import (
    Construct,
    Container,
    FormatFieldError,
    Int8sb,
    ListContainer,
    StreamError,
    stream_read,
    stream_write,
)
from construct.core import BytesIOWithOffsets

from formats.primitives import NullableBytes, PlainStruct, Varint, Varlong


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


class Headers(Construct):  # type: ignore[misc] # construct has no types
    """A signed count and that many headers; a negative count is damage.

    A header takes at least two bytes, so the end of the record stops a hostile count before the
    list grows longer than the data.
    """

    def __init__(self, count: Any, header: Any) -> None:
        super().__init__()
        self.count = count
        self.header = header

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        count = self.count._parse(stream, context, path)  # noqa: SLF001 # construct's own protocol
        if count < 0:
            raise FormatFieldError(f"negative count of headers: {count}", path=path)
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
