"""The values that kafkalog reads from disk, as frozen dataclasses named with Kafka's nouns.

Offsets are record offsets, positions are byte positions in a file, sizes are in bytes and times in
integer milliseconds since 1970 (UTC). Null (None) and empty (b"") are always different.
"""

from __future__ import annotations

import time
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Self, TypeVar, overload

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.errors import EventKind, UsageError

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class computed_once(cached_property[T]):  # noqa: N801 # used as a decorator
    """A `functools.cached_property` that waits for no other object.

    That of Python 3.11 holds one lock for all objects of a class while it computes; what reads
    files computes long. Two threads that ask one object at the same time may both compute.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        """Compute the value and keep it; Python asks no more once it is kept."""
        if instance is None:
            return self
        assert self.attrname is not None, "it is in a class"
        value = instance.__dict__[self.attrname] = self.func(instance)
        return value


class Severity(StrEnum):
    """How bad a defect is, worst first."""

    DAMAGE = "damage"
    """Data is unreadable or wrong."""
    INDEX = "index"
    """A derived file is wrong; Kafka rebuilds it."""
    WARNING = "warning"
    """Something a person should look at."""
    NOTE = "note"
    """Worth knowing, no action needed."""


class TimestampType(StrEnum):
    """Who set a batch's timestamps: `org.apache.kafka.common.record.TimestampType`."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
    NO_TIMESTAMP_TYPE = "NoTimestampType"


class Level(StrEnum):
    """How much is read."""

    QUICK = "quick"
    """Headers and indexes."""
    STANDARD = "standard"
    """Also every byte of every batch, for its checksum."""
    DEEP = "deep"
    """Also every record of every batch."""


class Isolation(StrEnum):
    """The isolation of a read: how far into the log it may look."""

    LOG = "log"
    """Anywhere in the log, also at records that other replicas may never have received."""
    READ_UNCOMMITTED = "read_uncommitted"
    """Below the high watermark."""
    READ_COMMITTED = "read_committed"
    """Below the last stable offset."""


class LogView(StrEnum):
    """Which files of a partition directory readers show."""

    RECOVERED = "recovered"
    """What the next start of a broker would show."""
    AS_IS = "as-is"
    """The files under their final names."""
    ALL = "all"
    """Also files that await deletion or were never finished."""


class Replicas(StrEnum):
    """How to handle several log directories that hold the same partition."""

    ALL = "all"
    BEST = "best"
    """Each record once, of the most complete one: the latest leader epoch, then the largest log end
    offset. Where it has no sound batches of the right epoch, other ones help."""


class Special(StrEnum):
    """The special timestamps of ListOffsets."""

    EARLIEST = "earliest"
    LATEST = "latest"
    MAX_TIMESTAMP = "max-timestamp"
    EARLIEST_LOCAL = "earliest-local"
    """The first offset that is not in remote storage alone."""
    LATEST_TIERED = "latest-tiered"
    """The last offset in remote storage."""
    EARLIEST_PENDING_UPLOAD = "earliest-pending-upload"
    """The first offset that is not in remote storage."""


@dataclass(frozen=True, slots=True)
class Defect:
    """Something that is wrong, and its place.

    Attributes:
        reference: kebab-case name of the kind of defect, documented in `docs/defects.md`.
        severity: how bad it is.
        path: the file concerned, as given or found.
        position: byte position in the file; None for the whole file.
        offset: record offset concerned, if any.
        detail: what was found, as a sentence or phrase.
        hint: what to do, or None.
        size_bytes: number of bytes that the defect covers; None if not applicable.
    """

    _in_repr = ("reference", "path", "position", "offset")

    reference: str
    severity: Severity
    path: str
    detail: str
    position: int | None = None
    offset: int | None = None
    hint: str | None = None
    size_bytes: int | None = None

    @property
    def kind(self) -> EventKind:
        """What it is as an event."""
        return EventKind.NOTE if self.severity == Severity.NOTE else EventKind.DEFECT


MISPLACED: Final = ("batch-offset-not-increasing", "batch-below-base-offset")
"""Defects of batches whose offsets are wrong, while nobody knows the right ones."""


@dataclass(slots=True, unsafe_hash=True)
class Batch:
    """The header of one record batch, or one top-level message of magic 0 or 1.

    For magic 0 and 1 the producer fields are -1 and the flags false, as Kafka reports them.
    `base_offset` of a compressed message of magic 0 or 1 is known only after decompression: framing
    gives the offset of the message, which is its last offset; see `records.resolve_batch`.
    `crc_valid` is None if the checksum was not computed. `header_defect` is what is wrong
    with the part of its header that no checksum covers, as readers see it; see `order.Order`. `low`
    is the lowest offset that the batches before leave to it, None if they were not compared; only
    compressed messages of magic 1 have it, whose header does not say where they begin.

    Never assign to a field. It is not frozen because a frozen one takes eight times as long to
    make, and a walk makes one per batch.

    Follows `org.apache.kafka.common.record.internal.RecordBatch`.
    """

    _in_repr = ("base_offset", "last_offset", "position", "size_bytes", "crc_valid")
    _row = (
        "path", "position", "size_bytes", "base_offset", "last_offset", "records", "magic",
        "compression=codec_name", "timestamp_type", "base_timestamp", "max_timestamp",
        "delete_horizon_timestamp", "producer_id", "producer_epoch", "base_sequence",
        "last_sequence", "leader_epoch", "is_transactional", "is_control", "crc", "crc_valid",
    )  # fmt: skip

    path: str
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    crc: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    crc_valid: bool | None = None
    header_defect: Defect | None = None
    low: int | None = field(default=None, compare=False)

    @property
    def has_place(self) -> bool:
        """Whether its offsets are right, as far as the batches around it show."""
        if self.header_defect is None:
            return self.last_offset >= self.base_offset
        return self.header_defect.reference not in MISPLACED

    @property
    def is_sound(self) -> bool:
        """Whether its records and its offsets are right, as far as that was checked."""
        return self.crc_valid is not False and self.has_place

    @property
    def end_position(self) -> int:
        """Position of the byte after the batch."""
        return self.position + self.size_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.last_offset + 1

    @property
    def compression(self) -> int:
        """Codec id: 0 none, 1 gzip and so on; `COMPRESSION_NAMES` lists those that Kafka knows."""
        return self.attributes & c.COMPRESSION_MASK

    @property
    def codec_name(self) -> str:
        """The name of the codec, `unknown(5)` for an id that Kafka does not know."""
        codec = self.compression
        known = codec < len(c.COMPRESSION_NAMES)
        return c.COMPRESSION_NAMES[codec] if known else f"unknown({codec})"

    @property
    def is_wrapper(self) -> bool:
        """Whether it is a compressed message of magic 0 or 1, whose header has its last offset."""
        return self.magic < 2 and self.compression != 0

    @property
    def timestamp_type(self) -> TimestampType:
        """Who set the timestamps; magic 0 has no timestamps."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & c.TIMESTAMP_TYPE_MASK:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction; markers do, too."""
        return self.magic >= 2 and bool(self.attributes & c.TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records."""
        return self.magic >= 2 and bool(self.attributes & c.CONTROL_MASK)

    @property
    def delete_horizon_timestamp(self) -> int | None:
        """When the cleaner may drop tombstones and markers of the batch, None if not set."""
        if self.magic >= 2 and self.attributes & c.DELETE_HORIZON_MASK:
            return self.base_timestamp
        return None

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without sequences; wraps after 2147483647."""
        return last_sequence(self.base_sequence, wrap_int64(self.last_offset - self.base_offset))


@dataclass(frozen=True, slots=True)
class Header:
    """One record header; `key` as raw bytes (UTF-8 by convention), `value` may be null."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """One record, with the attributes that it inherits from its batch.

    `crc` and `crc_valid` are those of the record's own message in magic 0 and 1, None in magic 2.
    Follows `org.apache.kafka.common.record.internal.Record`.
    """

    _in_repr = ("offset", "timestamp", "key", "value")
    _row = (
        "batch.path", "offset", "timestamp", "timestamp_type", "key", "value", "headers",
        "sequence", "batch.producer_id", "batch.producer_epoch", "batch.leader_epoch",
        "batch.is_transactional", "batch.is_control", "compression=batch.codec_name",
        "batch.magic", "batch_base_offset=batch.base_offset", "batch_position=batch.position",
    )  # fmt: skip

    batch: Batch
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = -1
    crc: int | None = None
    crc_valid: bool | None = None


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A decoded control record: `ControlRecordType` and `EndTransactionMarker`.

    `type_name` is None for a type that Kafka does not know; `coordinator_epoch` is set for
    ABORT and COMMIT; `fields` holds the decoded KRaft message of the other types.
    """

    type_id: int
    type_name: str | None
    coordinator_epoch: int | None = None
    fields: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class OffsetIndexEntry:
    """One entry of an `.index` file; `offset` is absolute."""

    entry: int
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexEntry:
    """One entry of a `.timeindex` file; `offset` is absolute."""

    entry: int
    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One entry of a `.txnindex` file, `AbortedTxn`."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerState:
    """One entry of a `.snapshot` file, `ProducerStateEntry`; None stands for a missing value."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    current_txn_first_offset: int | None

    @property
    def first_sequence(self) -> int:
        """Sequence of the first record of the last batch; wraps below 0."""
        return decrement_sequence(self.last_sequence, self.offset_delta)


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """One line of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """One line of a leader-epoch-checkpoint."""

    leader_epoch: int
    start_offset: int


def present_ms() -> int:
    """Return the current time."""
    return time.time_ns() // 1_000_000


def named_member(kind: type[E], text: str) -> E:
    """Return the member of an enumeration that a text names.

    Raises:
        UsageError: the text names no member.
    """
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{text!r} is not known.", hint=f"There are {', '.join(kind)}.") from None


def wrap_int64(number: int) -> int:
    """Return the number as Java's 64-bit arithmetic wraps it."""
    return (number + 2**63) % 2**64 - 2**63


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence, wrapping from 2147483647 to 0: `DefaultRecordBatch.incrementSequence`."""
    total = sequence + increment
    return total - c.INT32_MAX - 1 if total > c.INT32_MAX else total


def last_sequence(base_sequence: int, offset_delta: int) -> int:
    """Return the sequence of the last record of a batch, -1 without sequence."""
    return -1 if base_sequence == -1 else increment_sequence(base_sequence, offset_delta)


def decrement_sequence(sequence: int, decrement: int) -> int:
    """Subtract from a sequence, wrapping below 0: `DefaultRecordBatch.decrementSequence`."""
    rest = sequence - decrement
    return rest + c.INT32_MAX + 1 if rest < 0 else rest


@dataclass(frozen=True, slots=True)
class Reference:
    """One kind of defect.

    Attributes:
        name: kebab-case, fixed.
        severity: how bad it is.
        meaning: what was found.
        broker: what Kafka makes of it.
        hint: what to do.
        arises: what it comes from.
        command: the command line that repairs or shows it, with PATH for the path of the finding.
        example: the `detail` of one such finding, as a command gave it; a test damages a real log
            and compares, numbers aside.
    """

    name: str
    severity: Severity
    meaning: str
    broker: str
    hint: str | None = None
    arises: str = field(kw_only=True)
    command: str | None = field(default=None, kw_only=True)
    example: str | None = field(default=None, kw_only=True)
