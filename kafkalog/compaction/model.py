"""What a compaction depends on and what it comes to, as values.

Follows `CleanerConfig`, `LogToClean` and `CleanerStats` of Kafka 4.3.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MAP_SLOT_SIZE: Final = 24
"""Bytes that Kafka's offset map takes for a slot: an MD5 digest and an offset."""


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """The configs that decide the result; the defaults are Kafka's, but for the map.

    Attributes:
        segment_bytes: `segment.bytes` of the topic.
        segment_index_bytes: `segment.index.bytes` of the topic.
        index_interval_bytes: `index.interval.bytes` of the topic.
        delete_retention_ms: `delete.retention.ms` of the topic.
        min_compaction_lag_ms: `min.compaction.lag.ms` of the topic.
        min_cleanable_dirty_ratio: `min.cleanable.dirty.ratio` of the topic.
        producer_id_expiration_ms: `producer.id.expiration.ms` of the broker; None: none expires.
        map_memory: bytes of the offset map, 24 a slot; None: as many as are needed.
        load_factor: `log.cleaner.io.buffer.load.factor`, up to where the map is filled.
    """

    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.5
    producer_id_expiration_ms: int | None = None
    map_memory: int | None = None
    load_factor: float = 0.9

    @property
    def keys_max(self) -> int | None:
        """How many keys the map takes, None without a limit."""
        if self.map_memory is None:
            return None
        return int(self.map_memory // MAP_SLOT_SIZE * self.load_factor)


@dataclass(frozen=True, slots=True)
class Cleanable:
    """Which part of a log is dirty, and how much of it that is; `LogToClean`.

    Attributes:
        first_dirty_offset: where the dirty part begins.
        first_uncleanable_offset: base offset of the first segment that stays as it is.
        clean_bytes: bytes of the segments below the dirty part.
        cleanable_bytes: bytes of the segments of the dirty part that can be cleaned.
        checkpoint_is_wrong: the checkpoint is outside the log, and the dirty part begins elsewhere.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    checkpoint_is_wrong: bool = False

    @property
    def ratio(self) -> float:
        """The dirty part of the whole, 0 where there is nothing."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


class Dropped(StrEnum):
    """Why a record is not kept."""

    SUPERSEDED = "superseded"
    TOMBSTONE = "tombstone"
    ABORTED = "aborted"
    NO_KEY = "no_key"
    MARKER = "marker"


@dataclass(slots=True)
class Tally:
    """What was read and kept; `CleanerStats`."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    dropped: Counter[Dropped] = field(default_factory=Counter)
