"""The fields of records and of messages of magic 0 and 1, wherever they lie.

Follows `DefaultRecord` and `AbstractLegacyRecordBatch` of Kafka, as
`kafkalog.log.batches.records`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from formats import constants as c
from formats.late_classes import dataclass
from formats.record_batch import Message, Record
from formats.trace import Trace, TracedField, Tracer
from kafkalog.answers.anatomy.meanings import (
    HEADER,
    MESSAGE,
    RECORD,
    Said,
    attribute_words,
    dotted,
    item_of,
    items_of,
    size_of,
)
from kafkalog.answers.anatomy.model import Bytes, Item, Stream
from kafkalog.answers.anatomy.payloads import ELEMENTS_MAX, payload_of
from kafkalog.io.codecs import crc32
from kafkalog.io.paths.reading_errors import reason
from kafkalog.io.wording import counted
from kafkalog.log.batches.records import HEADERS_MAX
from kafkalog.model import Batch, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.files.payloads.kinds import PayloadKind


@dataclass(frozen=True)
class Shown:
    """What is shown of each batch.

    Attributes:
        limit: maximum number of records.
        offset: the first record that is shown; None for the first of the batch.
        kind: how records of the topic are read, None for a user's topic.
    """

    limit: int
    offset: int | None = None
    kind: PayloadKind | None = None


def records_of(space: Bytes, batch: Batch, start: int, end: int, shown: Shown) -> Iterator[Item]:
    """Yield the records of a batch of magic 2, which lie between two positions."""
    tracer = Tracer(Record, ELEMENTS_MAX)
    position, first = start, 0
    if shown.offset is not None:
        first, position = _first_record(space, batch, start, end, shown.offset)
        if position > start:
            words = f"{counted(first, 'record')} before the one asked for"
            yield space.left_out("batch.", start, position, words)
    for ordinal in range(first, batch.records):
        name = f"batch.records[{ordinal}]"
        if position >= end:
            words = f"missing: the header says {counted(batch.records, 'record')}"
            yield space.structure(name, end, end, words, "records-count-invalid")
            return
        if ordinal == first + shown.limit:
            words = f"{counted(batch.records - ordinal, 'record')} left out"
            yield space.left_out("batch.", position, end, words)
            return
        trace = tracer.trace(Stream(space.source, position, end))
        after, whole = _end_of(trace, position, end)
        yield space.structure(name, position, after, _record_words(trace, batch),
                              None if whole else "record-malformed")  # fmt: skip
        yield from _record(space, batch, trace, f"{name}.", shown.kind)
        done = trace.fields[-1].end if trace.fields else position
        if done < after and trace.is_cut:
            words = f"more than {counted(ELEMENTS_MAX, 'header')}"
            yield space.left_out(f"{name}.", done, after, words)
        elif not whole:
            if done < end:
                words = "" if trace.error is None else f"{reason(trace.error)}."
                yield space.field(
                    f"{name}.unreadable", done, end, None, words, damage="record-malformed"
                )
            return
        position = after
    if position < end:
        words = f"{counted(end - position, 'byte')} after the last record"
        yield space.field("batch.rest", position, end, None, words, damage="records-left-over")


def _end_of(trace: Trace, start: int, end: int) -> tuple[int, bool]:
    """Return the position after a record, and whether it is whole; if not, where its bytes end."""
    if trace.is_cut:
        return trace.fields[0].end + trace.fields[0].value, True
    if trace.error is None:
        return trace.fields[-1].end if trace.fields else start, True
    return end, False


def _first_record(space: Bytes, batch: Batch, start: int, end: int, offset: int) -> tuple[int, int]:
    """Return ordinal and position of the first record at or above an offset, or of the first."""
    from formats.constructs import ConstructError

    stream = Stream(space.source, start, end)
    for ordinal in range(batch.records):
        position = stream.tell()
        try:
            record = Record.parse_stream(stream, _root=None, headers_max=HEADERS_MAX)
        except ConstructError:
            break
        if wrap_int64(batch.base_offset + record.offset_delta) >= offset:
            return ordinal, position
    return 0, start


def _record_words(trace: Trace, batch: Batch) -> str:
    for one in trace.fields:
        if one.path == ("offset_delta",):
            return f"offset {wrap_int64(batch.base_offset + one.value)}"
    return ""


def _record(
    space: Bytes, batch: Batch, trace: Trace, prefix: str, kind: PayloadKind | None
) -> Iterator[Item]:
    own: list[TracedField] = []
    key = next((one.value for one in trace.fields if one.path == ("key",)), None)
    describe = partial(_describe_record, batch=batch)
    for one in trace.fields:
        payload = None
        if one.path in (("key",), ("value",)):
            payload = payload_of(space, one, key, batch, kind)
        if payload is None:
            own.append(one)
            continue
        yield from items_of(space, own, prefix, describe)
        own = []
        yield from items_of(space, payload.fields, prefix, payload.describe)
    yield from items_of(space, own, prefix, describe)


def _describe_record(field: TracedField, batch: Batch) -> Said:
    name = dotted(field.path)
    if name in RECORD:
        return Said(RECORD[name](field.value, batch))
    said = HEADER.get(dotted(field.path[2:]), "")
    return Said(said.format(size_of(field.value) if isinstance(field.value, int) else ""))


def message_items(
    space: Bytes, batch: Batch, start: int, end: int, prefix: str, kind: PayloadKind | None
) -> Iterator[Item]:
    """Yield the fields of one message of magic 0 or 1."""
    trace = Tracer(Message).trace(Stream(space.source, start, end))
    describe = partial(_describe_message, space=space, batch=batch, start=start, end=end)
    key = next((one.value for one in trace.fields if one.path == ("key",)), None)
    for one in trace.fields:
        payload = None
        if one.path in (("key",), ("value",)) and not batch.compression:
            payload = payload_of(space, one, key, batch, kind)
        if payload is not None:
            yield from items_of(space, payload.fields, prefix, payload.describe)
        else:
            yield item_of(space, one, prefix, describe(one))
    done = trace.fields[-1].end if trace.fields else start
    if done < end:
        words = "" if trace.error is None else f"{reason(trace.error)}."
        yield space.field(f"{prefix}unreadable", done, end, None, words, damage="record-malformed")


def _describe_message(field: TracedField, space: Bytes, batch: Batch, start: int, end: int) -> Said:
    name = dotted(field.path)
    if name == "crc":
        computed = checksum(space, crc32, start + c.MAGIC_POSITION, end)
        return checksum_words(
            "CRC-32", "magic", field.value, computed, start + c.MAGIC_POSITION, end
        )
    if name == "attributes":
        words, details = attribute_words(field, batch.magic)
        return Said(words, None, details)
    if name in MESSAGE:
        return Said(MESSAGE[name](field.value, batch))
    return Said(RECORD[name](field.value, batch))


def checksum(space: Bytes, algorithm: Any, start: int, end: int) -> int:
    """Compute a checksum of a range, piece by piece."""
    computed = 0
    while start < end:
        piece = space.source.read(start, min(1 << 20, end - start))
        if not piece:
            break
        computed = algorithm(piece, computed)
        start += len(piece)
    return computed


def checksum_words(
    algorithm: str, first: str, stored: int, computed: int, start: int, end: int,
    damage: str = "batch-crc-mismatch",
) -> Said:  # fmt: skip
    covers = f"{algorithm} of positions {start} to {end - 1}, {first} to the end"
    if stored == computed:
        return Said(f"{covers}: it holds")
    return Said(f"{covers}: wrong, stored 0x{stored:08x}, computed 0x{computed:08x}", damage)
