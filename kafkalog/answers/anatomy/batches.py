"""The fields of a log: batches of magic 2, messages of magic 0 and 1, and what is damaged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from formats import constants as c
from formats.record_batch import Message, RecordBatchHeader
from formats.trace import TracedField, Tracer
from kafkalog.answers.anatomy.meanings import (
    BATCH,
    Said,
    attribute_words,
    compression_name,
    dotted,
    item_of,
    items_of,
)
from kafkalog.answers.anatomy.model import Bytes, Content, Item, Stream
from kafkalog.answers.anatomy.records import (
    Shown,
    checksum,
    checksum_words,
    message_items,
    records_of,
)
from kafkalog.errors import CorruptDataError, KafkaLogError, LimitExceededError
from kafkalog.io.codecs import DECOMPRESSED_SIZE_MAX, crc32c, decompress
from kafkalog.io.wording import counted
from kafkalog.log.batches.framing import Frames
from kafkalog.model import Batch, Defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.io.paths.source import Source

COUNTED_MAX: Final = 100_000
"""Maximum number of batches that are counted after the last one shown."""
_OVERHEAD: Final = c.MESSAGE_HEADER.part("offset", "size")
_WRONG_FIELDS: Final = {
    "batch-length-invalid": ("batch_length", "size"),
    "magic-unknown": ("magic",),
}


def log_items(source: Source, start: int, limit: int, shown: Shown) -> Iterator[Item]:
    """Yield the fields of a log from a position on: `limit` batches, the rest as one field."""
    space = Bytes(source, 0, source.size_bytes)
    frames = Frames(source, check_crc=True)
    if start:
        yield space.left_out(
            "", 0, start, f"{counted(start, 'byte')} before the position asked for"
        )
    position = start
    for number in count():
        if position >= frames.end:
            return
        if number == limit:
            yield space.left_out("", position, frames.end, _left_out_words(source, position))
            return
        found = frames.at(position)
        if isinstance(found, Batch):
            yield from _batch(space, found, shown)
        else:
            yield from _damaged(space, found, position)
        position += found.size_bytes or 0


def position_before(source: Source, wanted: int, start: int = 0) -> int:
    """Return where the batch or the damage at a position begins, searched from another one on."""
    frames = Frames(source)
    while start < frames.end:
        size = frames.at(start).size_bytes or 0
        if start + size > wanted:
            break
        start += size
    return start


def _left_out_words(source: Source, position: int) -> str:
    frames = Frames(source)
    batches = stretches = 0
    while position < frames.end and batches + stretches < COUNTED_MAX:
        found = frames.at(position)
        is_batch = isinstance(found, Batch)
        batches, stretches = batches + is_batch, stretches + (not is_batch)
        position += found.size_bytes or 0
    more = "more than " if position < frames.end else ""
    words = f"{more}{counted(batches, 'batch')} left out"
    if stretches:
        words += f", and {counted(stretches, 'stretch')} without a batch"
    return words


def _batch(space: Bytes, batch: Batch, shown: Shown) -> Iterator[Item]:
    start, end = batch.position, batch.end_position
    damage = None if batch.crc_valid else "batch-crc-mismatch"
    if batch.magic < 2:
        yield space.structure("batch", start, end, _message_words(batch), damage)
        yield from message_items(space, batch, start, end, "batch.", shown.kind)
        if batch.compression:
            yield from _messages_within(space, batch, shown)
        return
    yield space.structure("batch", start, end, _batch_words(batch), damage)
    trace = Tracer(RecordBatchHeader).trace(Stream(space.source, start, end))
    describe = partial(_describe_header, space=space, batch=batch)
    yield from items_of(space, trace.fields, "batch.", describe)
    yield from _records(space, batch, start + c.RECORD_BATCH_OVERHEAD, end, shown)


def _batch_words(batch: Batch) -> str:
    words = f"offsets {batch.base_offset}–{batch.last_offset}, {counted(batch.records, 'record')}"
    if batch.compression:
        words += f", {compression_name(batch.compression)}"
    if batch.is_control:
        words += ", control"
    elif batch.is_transactional:
        words += ", transactional"
    return words


def _message_words(batch: Batch) -> str:
    if batch.compression:
        codec = compression_name(batch.compression)
        return f"messages up to offset {batch.last_offset}, magic {batch.magic}, {codec}"
    return f"message with offset {batch.last_offset}, magic {batch.magic}"


def _describe_header(field: TracedField, space: Bytes, batch: Batch) -> Said:
    name = dotted(field.path)
    if name == "crc":
        start, end = batch.position + c.ATTRIBUTES_POSITION, batch.end_position
        computed = checksum(space, crc32c, start, end)
        return checksum_words("CRC-32C", "attributes", field.value, computed, start, end)
    if name == "attributes":
        words, details = attribute_words(field, batch.magic)
        return Said(words, None, details)
    damage = "magic-unknown" if name == "magic" and batch.magic > 2 else None
    if name == "records_count" and batch.records < 0:
        damage = "records-count-invalid"
    return Said(BATCH[name](field.value, batch), damage)


def _records(space: Bytes, batch: Batch, start: int, end: int, shown: Shown) -> Iterator[Item]:
    if start == end:
        if batch.magic == 2:  # what is missing is said, whatever the codec
            yield from records_of(space, batch, start, end, shown)
        return
    if batch.magic > 2 or batch.records < 0:
        words = "not read: the magic is unknown" if batch.magic > 2 else "not read: negative count"
        damage = "magic-unknown" if batch.magic > 2 else "records-count-invalid"
        yield space.field("batch.records", start, end, None, words, damage=damage)
    elif not batch.compression:
        yield from records_of(space, batch, start, end, shown)
    else:
        opened = _opened(space, batch, space.source.read(start, end - start))
        codec = compression_name(batch.compression)
        if isinstance(opened, Bytes):
            words = (
                f"{codec}: {counted(end - start, 'byte')} hold {opened.size_bytes}, which follow"
            )
            yield space.field("batch.records", start, end, None, words)
            yield from records_of(opened, batch, 0, opened.size_bytes, shown)
        else:
            words = f"{codec}: {opened.message}"
            yield space.field("batch.records", start, end, None, words, damage=opened.reference)


def _opened(space: Bytes, batch: Batch, data: bytes) -> Bytes | KafkaLogError:
    """Return what a batch holds compressed, or why it cannot be had."""
    try:
        found = decompress(data, batch.compression, magic=batch.magic, limit=DECOMPRESSED_SIZE_MAX)
    except (CorruptDataError, LimitExceededError) as error:
        return error
    return Bytes(Content(space.source.path, found), space.level + 1, len(found))


def _messages_within(space: Bytes, batch: Batch, shown: Shown) -> Iterator[Item]:
    from formats.constructs import ConstructError

    stream = Stream(space.source, batch.position, batch.end_position)
    try:
        value = Message.parse_stream(stream, _root=None).value
    except ConstructError:
        return
    if value is None:
        return
    inner = _opened(space, batch, value)
    if not isinstance(inner, Bytes):
        end = batch.end_position
        yield space.structure("batch.messages", end, end, inner.message, inner.reference)
        return
    position = 0
    for ordinal in count():
        left = inner.size_bytes - position
        if not left:
            return
        if ordinal == shown.limit:
            words = f"{counted(left, 'byte')} left out"
            yield inner.left_out("batch.", position, inner.size_bytes, words)
            return
        head = inner.source.read(position, c.HEADER_SIZE_UP_TO_MAGIC)
        size = 0 if left < c.LOG_OVERHEAD else _OVERHEAD.unpack_from(head)[1]
        end = position + c.LOG_OVERHEAD + size
        if size < c.MESSAGE_V0_LENGTH_MIN or end > inner.size_bytes:
            words = "no whole message: Kafka drops it"
            yield inner.field("batch.rest", position, inner.size_bytes, None, words,
                              damage="message-set-invalid")  # fmt: skip
            return
        name = f"batch.messages[{ordinal}]"
        size, magic = end - position, head[c.MAGIC_POSITION]
        one = replace(batch, size_bytes=size, attributes=0, magic=magic)
        yield inner.structure(name, position, end, "")
        yield from message_items(inner, one, position, end, f"{name}.", shown.kind)
        position = end


def _damaged(space: Bytes, defect: Defect, position: int) -> Iterator[Item]:
    """Yield what can be said of bytes without a batch: fields of the header, then the rest."""
    end = position + (defect.size_bytes or 0)
    reference = defect.reference
    yield space.structure("damage", position, end, defect.detail, reference)
    if reference == "bytes-unreadable":
        yield space.field("damage.unreadable", position, end, None, defect.detail,
                          damage=reference, is_readable=False)  # fmt: skip
        return
    if reference == "zero-tail" or end - position <= c.HEADER_SIZE_UP_TO_MAGIC:
        name = "damage.zeros" if reference == "zero-tail" else "damage.bytes"
        yield space.field(name, position, end, None, defect.detail, damage=reference)
        return
    wrong = _WRONG_FIELDS.get(reference, ())
    magic = space.source.read(position + c.MAGIC_POSITION, 1)
    schema = Message if magic in (b"\0", b"\1") else RecordBatchHeader
    trace = Tracer(schema).trace(Stream(space.source, position, end))
    for one in trace.fields:
        is_wrong = one.path[0] in wrong
        said = Said("impossible" if is_wrong else "", reference if is_wrong else None)
        yield item_of(space, one, "damage.", said)
    done = trace.fields[-1].end if trace.fields else position
    if done < end:
        yield space.field("damage.bytes", done, end, None, defect.detail, damage=reference)
