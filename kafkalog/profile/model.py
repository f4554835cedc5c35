"""The profile of a partition or of a topic."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodecUse:
    """The batches of one codec.

    Attributes:
        codec: Kafka's name of it.
        batches, size_bytes: how many, and what they take in the log, headers of batches included.
        data_bytes: of the keys, values and headers in them, uncompressed.
    """

    codec: str
    batches: int
    size_bytes: int
    data_bytes: int

    @property
    def ratio(self) -> float | None:
        """Data by what it takes; None where nothing is there."""
        return self.data_bytes / self.size_bytes if self.size_bytes else None


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that many records have; how many is known within bounds.

    Attributes:
        key: its bytes.
        at_least, at_most: records with it; the same where few keys were met.
    """

    key: bytes
    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True)
class TimeBucket:
    """The records whose timestamps lie in one stretch of time.

    Attributes:
        start: of the stretch, milliseconds since 1970 UTC.
        records: how many.
        data_bytes: of their keys, values and headers, uncompressed.
    """

    start: int
    records: int
    data_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What a partition holds, or all partitions of a topic together.

    All numbers are exact but those of keys and producers, which are estimates with bounds (two
    standard deviations) where there are many. Records are those that a consumer is given, of sound
    batches; batches and codecs are all that can be framed.

    Attributes:
        topic: whose.
        partition: which one; None: all of the topic.
        logs: how many partition directories were read.
        segments, size_bytes: their segments, and the bytes of all their files.
        batches, control_batches, transactional_batches, idempotent_batches: how many.
        records, null_keys, tombstones: how many; a tombstone has a key and no value.
        key_bytes, value_bytes, header_bytes: uncompressed.
        first_offset, last_offset: of records; None without any.
        earliest, latest: their timestamps, milliseconds since 1970 UTC; None without any.
        batch_records_max, batch_size_max: the fullest batch, and the largest in bytes.
        codecs: by name.
        producers, producers_at_least, producers_at_most: how many producer ids.
        keys, keys_at_least, keys_at_most: how many different keys.
        hot_keys: those that most records have, first those with the most.
        bucket_ms: how long the stretches of the histogram are.
        histogram: where records lie in time; stretches without any are left out.
        defects: how much damage was passed over, and parts of logs that were deleted unread.
    """

    topic: str
    partition: int | None
    logs: int
    segments: int
    size_bytes: int
    batches: int
    control_batches: int
    transactional_batches: int
    idempotent_batches: int
    records: int
    null_keys: int
    tombstones: int
    key_bytes: int
    value_bytes: int
    header_bytes: int
    first_offset: int | None
    last_offset: int | None
    earliest: int | None
    latest: int | None
    batch_records_max: int
    batch_size_max: int
    codecs: tuple[CodecUse, ...]
    producers: int
    producers_at_least: int
    producers_at_most: int
    keys: int
    keys_at_least: int
    keys_at_most: int
    hot_keys: tuple[HotKey, ...]
    bucket_ms: int
    histogram: tuple[TimeBucket, ...]
    defects: int

    @property
    def data_bytes(self) -> int:
        """Of keys, values and headers, uncompressed."""
        return self.key_bytes + self.value_bytes + self.header_bytes
