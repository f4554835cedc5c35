"""Fields with their meanings: one function per name, and the structures that a trace's fields make.

The names are those of `formats.constants` and of the schemas. Deltas become absolute values here,
and numbers of variable length show how they come from their bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats import constants as c
from formats.primitives import VariableLengthInteger
from formats.trace import Bits, Path, TracedField, bits_of
from kafkalog.io.wording import counted, utc_text
from kafkalog.model import Batch, TimestampType, increment_sequence, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.answers.anatomy.model import Bytes, Field, Item

    OfBatch = Callable[[Any, Batch], str]


def time_of(timestamp_ms: int) -> str:
    return "no timestamp" if timestamp_ms == c.NO_TIMESTAMP else utc_text(timestamp_ms)


def size_of(length: int) -> str:
    """Return what the length of a nullable field says."""
    return "null" if length < 0 else f"{counted(length, 'byte')} follow{'s' * (length == 1)}"


def compression_name(codec: int) -> str:
    known = codec < len(c.COMPRESSION_NAMES)
    return c.COMPRESSION_NAMES[codec] if known else f"unknown codec {codec}"


def _base_timestamp(value: int, batch: Batch) -> str:
    if batch.delete_horizon_timestamp is not None:
        return f"delete horizon: its tombstones and markers may go at {time_of(value)}"
    return f"{time_of(value)}; the records' deltas count from here"


def _base_sequence(value: int, batch: Batch) -> str:
    if value < 0 or batch.producer_id < 0:
        return "none: the producer is not idempotent"
    return f"sequence of the first record; the last has {batch.last_sequence}"


def _producer(value: int, batch: Batch) -> str:
    if value < 0:
        return "none: the producer is not idempotent"
    return "of a transactional producer" if batch.is_transactional else "of an idempotent producer"


BATCH: Final[dict[str, OfBatch]] = {
    "base_offset": lambda _, batch: "offset of the first record"
    if batch.records else "offset of the first record that was here",
    "batch_length": lambda value, batch: f"bytes after this field: {c.LOG_OVERHEAD} + {value} = "
    f"{batch.size_bytes} bytes in all",
    "partition_leader_epoch": lambda *_: "leader epoch in which it was appended",
    "magic": lambda *_: "version of the batch format",
    "last_offset_delta": lambda value, batch: f"last offset: {batch.base_offset} + {value} = "
    f"{batch.last_offset}",
    "base_timestamp": _base_timestamp,
    "max_timestamp": lambda value, batch: time_of(value)
    + (", of all its records" if batch.timestamp_type == TimestampType.LOG_APPEND_TIME
       else ", the largest of its records"),
    "producer_id": _producer,
    "producer_epoch": lambda value, _: "none" if value < 0 else "epoch of the producer",
    "base_sequence": _base_sequence,
    "records_count": lambda value, _: f"{counted(value, 'record')} follow{'s' * (value == 1)}"
    if value else "none: the cleaner kept the batch for its sequence numbers",
}  # fmt: skip
"""Fields of a batch of magic 2, but for the checksum and the attributes."""

MESSAGE: Final[dict[str, OfBatch]] = {
    "offset": lambda _, batch: "offset of the last record in it" if batch.compression
    else "offset of the record",
    "size": lambda value, batch: f"bytes after this field: {c.LOG_OVERHEAD} + {value} = "
    f"{batch.size_bytes} bytes in all",
    "magic": lambda *_: "version of the message format",
    "timestamp": lambda value, _: time_of(value),
    "rest": lambda *_: "bytes after the value, which Kafka ignores",
}  # fmt: skip
"""Fields of a message of magic 0 or 1, likewise; key and value are those of records."""


def _offset_delta(value: int, batch: Batch) -> str:
    words = f"offset {batch.base_offset} + {value} = {wrap_int64(batch.base_offset + value)}"
    if batch.base_sequence >= 0 and batch.producer_id >= 0:
        words += f", sequence {increment_sequence(batch.base_sequence, value)}"
    return words


def _timestamp_delta(value: int, batch: Batch) -> str:
    if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
        return f"not used: the broker's time counts, {time_of(batch.max_timestamp)}"
    timestamp = wrap_int64(batch.base_timestamp + value)
    return f"{batch.base_timestamp} + {value} = {timestamp}, {time_of(timestamp)}"


RECORD: Final[dict[str, OfBatch]] = {
    "length": lambda value, _: f"the record has {counted(value, 'byte')} after this field",
    "attributes": lambda value, _: (
        "no bit is used" if not value else "bits that Kafka does not use"
    ),
    "timestamp_delta": _timestamp_delta,
    "offset_delta": _offset_delta,
    "key.length": lambda value, _: f"key: {size_of(value)}",
    "key": lambda *_: "key",
    "value.length": lambda value, _: f"value: {size_of(value)}",
    "value": lambda *_: "value",
    "headers.count": lambda value, _: counted(value, "header"),
}
"""Fields of a record of magic 2; key and value are those of messages, too."""

HEADER: Final = {
    "key.length": "name of the header: {}",
    "key": "name of the header",
    "value.length": "value: {}",
    "value": "value of the header",
}

SIDE_FILES: Final[dict[str, str]] = {
    "version": "version of the format",
    "crc": "CRC-32C of all bytes after it",
    "producer_id": "producer",
    "producer_epoch": "its epoch",
    "last_sequence": "sequence of its last record",
    "last_offset": "offset of its last record",
    "offset_delta": "last offset − first offset of its last batch",
    "timestamp": "time of its last batch",
    "coordinator_epoch": "coordinator epoch of its last marker",
    "current_txn_first_offset": "first offset of its open transaction",
    "first_offset": "first offset of the transaction",
    "last_stable_offset": "last stable offset when it ended",
    "metadata_partition": "partition of __remote_log_metadata",
    "metadata_partition_offset": "offset up to which the entries are included",
    "count": "number of entries",
}
"""Fields of snapshots and of transaction indexes."""

_FLAGS: Final = {
    "has_delete_horizon": "the base timestamp is a delete horizon",
    "is_control": "control batch: a marker, or a record of KRaft's",
    "is_transactional": "belongs to a transaction",
}


def attribute_words(field: TracedField, magic: int) -> tuple[str, tuple[str, ...]]:
    """Return what the attributes of a batch or message say, and each bit of them."""
    words, details = [], []
    for bits in bits_of(field.codec, field.value):
        said = _bits_meaning(bits, magic)
        if bits.value or bits.name in ("compression", "timestamp_type"):
            words.append(said)
        last = bits.lowest + bits.width - 1
        place = f"bit {last}" if bits.width == 1 else f"bits {last}–{bits.lowest}"
        details.append(f"{place}: {bits.value:0{bits.width}b} {bits.name}: {said}")
    return ", ".join(reversed(words)), tuple(details)


def _bits_meaning(bits: Bits, magic: int) -> str:
    if bits.name == "compression":
        return compression_name(bits.value) if bits.value else "not compressed"
    if bits.name == "timestamp_type":
        if magic == 0:
            return "not used in magic 0"
        return "LogAppendTime" if bits.value else "CreateTime"
    if bits.name in _FLAGS:
        return _FLAGS[bits.name] if bits.value else "no"
    return "bits that Kafka does not use" if bits.value else "not used"


def varint_details(field: TracedField, raw: bytes) -> tuple[str, ...]:
    """Return how a number of variable length comes from its bytes; nothing for other fields."""
    codec = getattr(field.codec, "encoding", field.codec)
    if not isinstance(codec, VariableLengthInteger) or not raw:
        return ()
    groups = [f"{byte & 0x7F:07b}" for byte in reversed(raw)]
    number = int("".join(groups), 2) & codec.mask
    words = f"groups of 7 bits, the last byte first: {' '.join(groups)} = {number}"
    if codec.signed:
        words += f"; zigzag: {(number >> 1) ^ -(number & 1)}"
    return (words,)


def value_of(field: TracedField) -> Any:
    if bits := bits_of(field.codec, field.value):
        number = 0
        for one in bits:
            number |= one.value << one.lowest
        return number
    value = field.value
    return None if isinstance(value, dict | list | tuple) else value


class Said(NamedTuple):
    """What is said of a field."""

    meaning: str = ""
    damage: str | None = None
    details: tuple[str, ...] = ()


def dotted(path: Path) -> str:
    """Return names and ordinals as text: `headers[0].key`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def items_of(
    space: Bytes,
    fields: Sequence[TracedField],
    prefix: str,
    describe: Callable[[TracedField], Said],
    structure: Callable[[Path], str] = lambda _: "",
) -> Iterator[Item]:
    """Yield traced fields, and before its first field each element of an array.

    Args:
        describe: says what a field means.
        structure: says what an element is.
    """
    seen: set[Path] = set()
    for i, one in enumerate(fields):
        for size in range(1, len(one.path)):
            element = one.path[:size]
            if isinstance(element[-1], int) and element not in seen:
                seen.add(element)
                end = one.end
                for other in fields[i + 1 :]:
                    if other.path[:size] != element:
                        break
                    end = other.end
                name = prefix + dotted(element)
                yield space.structure(name, one.position, end, structure(element))
        yield item_of(space, one, prefix, describe(one))


def item_of(space: Bytes, field: TracedField, prefix: str, said: Said) -> Field:
    """Return a traced field with what is said of it."""
    raw = space.source.read(field.position, min(field.length, 16))
    return space.field(
        prefix + dotted(field.path),
        field.position,
        field.end,
        value_of(field),
        said.meaning,
        details=said.details or varint_details(field, raw),
        damage=said.damage,
    )
