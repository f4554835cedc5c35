"""The reference decoder: from a batch to its records, through the schemas in `formats`.

Follows `DefaultRecordBatch`, `DefaultRecord` and `AbstractLegacyRecordBatch` of Kafka: what
they accept is decoded, what they reject raises. A record that is as it should be needs no schema
(`sound_records`) unless `formats.decoder` says so.
"""

from __future__ import annotations

import dataclasses
import io
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from formats import constants as c
from formats import decoder
from kafkalog.errors import CorruptDataError, LimitExceededError
from kafkalog.io.codecs import DECOMPRESSED_SIZE_MAX, crc32, decompress
from kafkalog.io.paths.reading_errors import reason
from kafkalog.io.wording import counted
from kafkalog.log.batches.sound_records import record_at, sizes_in
from kafkalog.model import Batch, Header, Record, TimestampType, increment_sequence, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.io.paths.source import Readable
    from kafkalog.log.batches.sound_records import Fields


RECORDS_HELD_MAX: Final = 1 << 21
"""Maximum number of records of one batch that are held at a time, if they must be held."""
HEADERS_MAX: Final = 1 << 20
"""A record with more headers is not read: a few kilobytes can be hundreds of millions of them.

Kafka has no such limit, but an uncompressed request of the usual size has no room for so many.
"""
_OVERHEAD: Final = c.MESSAGE_HEADER.part("offset", "size")
_MESSAGES_KEPT_MAX: Final = 1 << 20  # bytes; messages of a larger set are parsed twice
_READ_WHOLE_MAX: Final = 1 << 20  # bytes; a larger uncompressed batch is read piece by piece


def require_few_records(count: int) -> None:
    """Raise `LimitExceededError` if a batch has too many records to hold them all."""
    if count > RECORDS_HELD_MAX:
        raise LimitExceededError(
            f"A batch has {count} records; at most {RECORDS_HELD_MAX} can be held at a time."
        )


def too_many_headers(count: int, batch: Batch) -> LimitExceededError:
    """Return the error for a record with more headers than `HEADERS_MAX`."""
    return LimitExceededError(
        f"A record has {count} headers; at most {HEADERS_MAX} are read.",
        path=batch.path,
        position=batch.position,
    )


def hold_records(source: Readable, batch: Batch) -> list[Record]:
    """Return all records of a batch. Raises as `decode_records` and `require_few_records`."""
    require_few_records(batch.records)
    found = list(islice(decode_records(source, batch), RECORDS_HELD_MAX + 1))
    require_few_records(len(found))
    return found


def decode_records(
    source: Readable, batch: Batch, *, size_max: int = DECOMPRESSED_SIZE_MAX
) -> Iterator[Record]:
    """Yield the records of a batch in the order they are stored.

    Args:
        source: the file that contains the batch.
        batch: a batch of that file.
        size_max: maximum decompressed size of a batch, in bytes.

    Raises:
        CorruptDataError: the batch does not hold what its header says; the records before the
            damage have been yielded.
        LimitExceededError: the batch is larger than `size_max` when decompressed, or a record has
            more than HEADERS_MAX headers.
    """
    if batch.magic < 2:
        return _decode_messages(source, batch, size_max)
    return _decode_records(source, batch, size_max)


def resolve_batch(
    source: Readable, batch: Batch, *, size_max: int = DECOMPRESSED_SIZE_MAX
) -> Batch:
    """Return a compressed message of magic 0 or 1 with its true base offset and count.

    Any other batch is returned as it is. Raises as `decode_records`.
    """
    if not batch.is_wrapper:
        return batch
    first = count = 0
    for record in decode_records(source, batch, size_max=size_max):
        first = record.offset if not count else first
        count += 1
    return dataclasses.replace(batch, base_offset=first, records=count)


def stated_sizes(source: Readable, batch: Batch) -> Iterator[int]:
    """Yield the size that each record of a sound compressed batch states: that of its fields.

    For magic 0 and 1 it is that of an inner message. Raises as `decode_records`.
    """
    if batch.magic >= 2:
        size = batch.size_bytes - c.RECORD_BATCH_OVERHEAD
        body = source.read(batch.position + c.RECORD_BATCH_OVERHEAD, size)
        yield from sizes_in(_decompress(batch, body, DECOMPRESSED_SIZE_MAX))
        return
    from formats.record_batch import Message

    body = source.read(batch.position, batch.size_bytes)
    wrapper = _parse(Message, io.BytesIO(body), batch, "The message")
    for message in _inner_messages(batch, _decompress(batch, wrapper.value, DECOMPRESSED_SIZE_MAX)):
        yield message.size


def _decode_records(source: Readable, batch: Batch, size_max: int) -> Iterator[Record]:
    if batch.magic > 2:
        raise _corrupt("magic-unknown", batch, f"Magic {batch.magic} is unknown.")
    if batch.records < 0:
        raise _corrupt(
            "records-count-invalid", batch, f"The header says {counted(batch.records, 'record')}."
        )
    # DefaultRecordBatch does not look at the bytes then, not even if there are some.
    if batch.records == 0:
        return
    start, size = batch.position + c.RECORD_BATCH_OVERHEAD, batch.size_bytes
    size -= c.RECORD_BATCH_OVERHEAD
    stream: io.BytesIO | _FileRange
    if batch.compression:
        _require_room(size, size_max)
        body = _decompress(batch, source.read(start, size), size_max)
        stream, size = io.BytesIO(body), len(body)
        # The stream has a copy, so that one of the two is freed while records are parsed.
        del body
    # Compressed batches have to be whole; others need not be, and can have 2 GiB.
    elif size > _READ_WHOLE_MAX:
        stream = _FileRange(source, start, start + size)
    else:
        stream = io.BytesIO(source.read(start, size))
    append_time = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    for ordinal in range(batch.records):
        if stream.tell() == size:
            raise _corrupt(
                "records-count-invalid",
                batch,
                f"The header says {counted(batch.records, 'record')}; the batch holds {ordinal}.",
            )
        timestamp_delta, offset_delta, key, value, headers = _fields(stream, batch, ordinal)
        timestamp = batch.max_timestamp
        if not append_time:
            # A horizon in place of the base, or damage, may lead anywhere: Java's sum wraps.
            timestamp = wrap_int64(batch.base_timestamp + timestamp_delta)
        sequence = -1
        if batch.base_sequence >= 0:
            sequence = increment_sequence(batch.base_sequence, offset_delta)
        yield Record(
            batch=batch,
            offset=wrap_int64(batch.base_offset + offset_delta),
            timestamp=timestamp,
            timestamp_type=batch.timestamp_type,
            key=key,
            value=value,
            headers=headers,
            sequence=sequence,
        )
        del key, value, headers  # freed while the next one is parsed
    left = size - stream.tell()
    if left:
        raise _corrupt(
            "records-left-over",
            batch,
            f"The last record of the batch is followed by {counted(left, 'byte')}.",
        )


def _fields(stream: io.BytesIO | _FileRange, batch: Batch, ordinal: int) -> Fields:
    """Return what the next record holds, by its schema if it is out of the ordinary."""
    if isinstance(stream, io.BytesIO) and not decoder.BY_SCHEMA:
        found = record_at(stream.getvalue(), stream.tell(), HEADERS_MAX)
        if found is not None:
            fields, end = found
            stream.seek(end)
            return fields
    from formats.record_batch import Record as RecordSchema

    parsed = _parse(RecordSchema, stream, batch, f"Record {ordinal} of the batch")
    headers = tuple(Header(header.key, header.value) for header in parsed.headers)
    return parsed.timestamp_delta, parsed.offset_delta, parsed.key, parsed.value, headers


def _decode_messages(source: Readable, batch: Batch, size_max: int) -> Iterator[Record]:
    from formats.record_batch import Message

    if batch.compression:
        _require_room(batch.size_bytes, size_max)
    body = source.read(batch.position, batch.size_bytes)
    if batch.header_defect is not None:  # the schema goes by the length field
        length = (batch.size_bytes - c.LOG_OVERHEAD).to_bytes(4, "big")
        body = body[: c.LENGTH_POSITION] + length + body[c.LENGTH_POSITION + 4 :]
    wrapper = _parse(Message, io.BytesIO(body), batch, "The message")
    if not batch.compression:
        wrapper.computed_crc = crc32(memoryview(body)[c.MAGIC_POSITION :])
        del body
        yield _message_record(batch, wrapper, batch.last_offset)
        return
    # LegacyRecord never had zstd: brokers refuse it for magic 0 and 1.
    if batch.compression == c.ZSTD:
        raise _corrupt("unknown-codec", batch, f"Magic {batch.magic} has no zstd.")
    if wrapper.value is None:
        raise _corrupt("message-set-invalid", batch, "A compressed message has no value.")
    del body
    body = _decompress(batch, wrapper.value, size_max)
    wrapper = None
    found = _inner_messages(batch, body)
    inner: Iterable[Any]
    if len(body) <= _MESSAGES_KEPT_MAX:
        inner = kept = list(found)
        last = kept[-1].offset
    else:  # nothing is returned before all of it is known to be sound
        for message in found:
            last = message.offset
        inner = _inner_messages(batch, body)
    base = 0
    if batch.magic == 1:
        if batch.last_offset and batch.last_offset < last:
            raise _corrupt(
                "message-set-invalid",
                batch,
                f"The last inner offset {last} is above the message's own {batch.last_offset}.",
            )
        # Offset 0 is what an old librdkafka sent: its inner offsets count from 0.
        base = batch.last_offset - last if batch.last_offset else 0
        first = wrap_int64(base + next(_inner_messages(batch, body)).offset)
        if batch.low is not None and first < batch.low:
            raise _corrupt(
                "batch-offset-not-increasing",
                batch,
                f"The batch has offsets {first} to {batch.last_offset}, after {batch.low - 1}.",
            )
    for message in inner:
        yield _message_record(batch, message, wrap_int64(base + message.offset))


def _require_room(size: int, size_max: int) -> None:
    """Raise `LimitExceededError` if the compressed data alone exceeds the limit."""
    if size > size_max:
        raise LimitExceededError(
            f"The batch has {size} compressed bytes, more than the limit of {size_max}."
        )


class _FileRange:
    """A range of a file as a stream, so that only one record of a large batch is in memory."""

    def __init__(self, source: Readable, start: int, end: int) -> None:
        self._source = source
        self._start = self._position = start
        self._end = end

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes, fewer at the end."""
        data = self._source.read(self._position, min(size, self._end - self._position))
        self._position += len(data)
        return data

    def tell(self) -> int:
        """Return the number of bytes read."""
        return self._position - self._start


def _inner_messages(batch: Batch, body: bytes) -> Iterator[Any]:
    """Yield the messages of a decompressed set; like Kafka, drop an incomplete last one."""
    from formats.record_batch import Message

    count = position = 0
    while len(body) - position >= c.LOG_OVERHEAD:
        _, size = _OVERHEAD.unpack_from(body, position)
        if size < c.MESSAGE_V0_LENGTH_MIN:
            raise _corrupt("message-set-invalid", batch, f"An inner message has size {size}.")
        end = position + c.LOG_OVERHEAD + size
        if end > len(body):
            break
        view = memoryview(body)[position:end]
        message = _parse(Message, io.BytesIO(view), batch, "An inner message")
        # Nested sets are an error in AbstractLegacyRecordBatch, too.
        if message.attributes.compression:
            raise _corrupt("message-set-invalid", batch, "An inner message is compressed.")
        message.computed_crc = crc32(view[c.MAGIC_POSITION :])
        yield message
        del message
        count += 1
        position = end
    if not count:
        raise _corrupt("message-set-invalid", batch, "A compressed message contains no messages.")


def _message_record(batch: Batch, message: Any, offset: int) -> Record:
    timestamp_type = batch.timestamp_type
    timestamp = -1 if message.timestamp is None else message.timestamp
    if batch.magic == 0:
        timestamp = -1
    # An inner message of another magic (KAFKA-4298) keeps what it has.
    elif timestamp_type == TimestampType.LOG_APPEND_TIME and message.magic == 1:
        timestamp = batch.max_timestamp
    return Record(
        batch=batch,
        offset=offset,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        key=message.key,
        value=message.value,
        crc=message.crc,
        crc_valid=message.computed_crc == message.crc,
    )


def _decompress(batch: Batch, body: bytes, size_max: int) -> bytes:
    try:
        return decompress(body, batch.compression, magic=batch.magic, limit=size_max)
    except CorruptDataError as error:
        raise _corrupt(error.reference, batch, error.message) from error


def _parse(schema: Any, stream: io.BytesIO | _FileRange, batch: Batch, what: str) -> Any:
    from formats.constructs import ConstructError
    from formats.record_batch import TooManyHeadersError

    try:
        # Without a root, construct's context refers to itself, and so keeps a large record alive
        # until a garbage collection.
        return schema.parse_stream(stream, _root=None, headers_max=HEADERS_MAX)
    except TooManyHeadersError as error:
        raise too_many_headers(error.count, batch) from error
    except ConstructError as error:
        message = f"{what} cannot be parsed: {reason(error)}."
        raise _corrupt("record-malformed", batch, message) from error


def _corrupt(reference: str, batch: Batch, message: str) -> CorruptDataError:
    return CorruptDataError(message, reference=reference, path=batch.path, position=batch.position)
