"""The inputs and the results of a compaction.

Follows `CleanerConfig`, `LogToClean` and `CleanerStats` of Kafka.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Self

from formats.constants import INT32_MAX
from formats.late_classes import dataclass
from kafkalog.errors import CorruptDataError
from kafkalog.log.defects import corrupt_data
from kafkalog.log.producers import EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.files.offsets import LogOffset
    from kafkalog.model import Defect
    from kafkalog.node.configs import ConfigValue

MAP_SLOT_SIZE: Final = 24
"""Bytes of a slot in Kafka's offset map: an MD5 digest and an offset."""
_DECOMPRESSED_MAX: Final = INT32_MAX - 8
"""The largest array of a JVM, and so the default of `max.decompressed.message.bytes`."""


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """The configs that affect the result; the defaults are Kafka's, but for the map.

    Attributes:
        segment_bytes: `segment.bytes` of the topic.
        segment_index_bytes: `segment.index.bytes` of the topic.
        index_interval_bytes: `index.interval.bytes` of the topic.
        delete_retention_ms: `delete.retention.ms` of the topic.
        min_compaction_lag_ms: `min.compaction.lag.ms` of the topic.
        min_cleanable_dirty_ratio: `min.cleanable.dirty.ratio` of the topic.
        max_decompressed_message_bytes: `max.decompressed.message.bytes` of the topic.
        producer_id_expiration_ms: `producer.id.expiration.ms` of the broker.
        map_memory: bytes of the offset map, 24 per slot; None for as many as are needed.
        load_factor: `log.cleaner.io.buffer.load.factor`, how far the map is filled.
        keeps_end_of_round: as in `Release`.
    """

    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.5
    max_decompressed_message_bytes: int = _DECOMPRESSED_MAX
    producer_id_expiration_ms: int = EXPIRATION_MS
    map_memory: int | None = None
    load_factor: float = 0.9
    keeps_end_of_round: bool = False

    @property
    def measures_records(self) -> bool:
        """Whether the cleaner may refuse records for their size, so that it has to be looked at."""
        return self.max_decompressed_message_bytes < _DECOMPRESSED_MAX

    @property
    def keys_max(self) -> int | None:
        """Number of keys that the map takes, None without a limit."""
        if self.map_memory is None:
            return None
        # As SkimpyOffsetMap.slots and Cleaner.buildOffsetMap: whole slots first, then the load
        # factor.
        return int(self.map_memory // MAP_SLOT_SIZE * self.load_factor)


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """What is requested, apart from the configs.

    Attributes:
        map_memory: bytes of the offset map, 24 per slot; None for as many as are needed.
        load_factor: how far the map is filled.
        high_watermark: overrides the checkpoint's: an offset, or `end` for the log end.
        first_dirty_offset: overrides the checkpoint's.
        up_to_offset: the segment that holds it and later ones are not cleaned.
        single_pass: stop after one pass, even if a full map left some to clean.
        old_formats: whether messages of magic 0 and 1 may become batches of magic 2, as a broker
            makes them.
    """

    now_ms: int
    map_memory: int | None = None
    load_factor: float = 0.9
    high_watermark: int | Literal["end"] | None = None
    first_dirty_offset: int | None = None
    up_to_offset: int | None = None
    single_pass: bool = False
    old_formats: bool = False


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The dirty part of a log, and its size: `LogToClean`.

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
        """The dirty share of the bytes, 0 if there are none."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


class MapOutgrownError(Exception):
    """The map of all keys needs more memory than allowed: another method is required.

    The log is not at fault, so code that judges logs and continues after errors lets this through.
    """


class Dropped(StrEnum):
    """Why a record is not kept."""

    SUPERSEDED = "superseded"
    TOMBSTONE = "tombstone"
    ABORTED = "aborted"
    NO_KEY = "no_key"
    MARKER = "marker"


@dataclass(slots=True)
class Tally:
    """Counts of what was read and kept: `CleanerStats`.

    Attributes:
        cleaner_gives_up: the first failure that a broker's cleaner would have had; None without.
    """

    read_records: int = 0
    kept_records: int = 0
    read_bytes: int = 0
    bytes_written: int = 0
    dropped: Counter[Dropped] = field(default_factory=Counter)
    cleaner_gives_up: str | None = None

    def add(self, other: Tally) -> None:
        self.read_records += other.read_records
        self.kept_records += other.kept_records
        self.read_bytes += other.read_bytes
        self.bytes_written += other.bytes_written
        self.dropped.update(other.dropped)
        self.note_refusal(other.cleaner_gives_up)

    def note_refusal(self, why: str | None) -> None:
        """Record why a broker's cleaner would fail; the first reason counts."""
        if self.cleaner_gives_up is None:
            self.cleaner_gives_up = why


class Action(StrEnum):
    """What a pass makes of a batch."""

    COPIED = "copied"
    """It stays byte for byte."""
    REWRITTEN = "rewritten"
    """It loses records, or gets a delete horizon."""
    EMPTIED = "emptied"
    """It loses all records, and stays for the offsets and sequences in its header."""
    DROPPED = "dropped"
    """Nothing of it stays."""


class Skip(StrEnum):
    """Why a partition is not compacted, although nothing is wrong with it."""

    METADATA = "the metadata log is compacted by snapshots"
    NOT_LIVE = "the directory is not a live partition"
    NOT_COMPACTED = "cleanup.policy is not known to contain compact"
    REMOTE = "remote.storage.enable is set"
    NO_HIGH_WATERMARK = "no high watermark is known"
    NOTHING = "nothing to clean"
    CLEAN_ENOUGH = "not above min.cleanable.dirty.ratio"


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What limits the cleaner of a broker: `CleanerConfig`.

    Attributes:
        map_keys: number of keys that the map of a thread takes in a pass.
        bytes_per_second: how much its threads may read and write together; None without a limit.
    """

    map_keys: int
    bytes_per_second: float | None

    @classmethod
    def of(cls, threads: int, buffer_bytes: int, load_factor: float, rate: float) -> Self:
        """Return the limits that configs of a broker set: those named `log.cleaner.*`."""
        memory = min(buffer_bytes // threads, INT32_MAX) if threads else 0
        is_limited = rate < sys.float_info.max
        return cls(int(memory // MAP_SLOT_SIZE * load_factor), rate if is_limited else None)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition, and the part of it that can be cleaned.

    Attributes:
        configs: every config that was looked up, with its source.
        marks: log start offset, high watermark and cleaner offset, with their sources.
        high_watermark: up to where the log is replicated; None if not recorded.
        cleanable: the dirty part; None if it was not requested.
        delay_ms: how long the cleaning is overdue by max.compaction.lag.ms.
        skip: why it is not compacted, None if it is.
        limits: of the broker's cleaner; None if its configs were not looked up.
    """

    partition: PartitionDir
    config: CompactionConfig
    configs: tuple[ConfigValue, ...]
    marks: tuple[LogOffset, ...] = ()
    high_watermark: int | None = None
    cleanable: Cleanable | None = None
    delay_ms: int = 0
    skip: Skip | None = None
    limits: BrokerLimits | None = None

    @property
    def why_reset(self) -> str | None:
        """Why cleaning begins at the log start, and not at the checkpoint; None if it does not."""
        if self.cleanable is None or not self.cleanable.checkpoint_is_wrong:
            return None
        start, noted = self.marks[0].known, self.marks[-1].known
        if noted < start:
            return f"the checkpointed offset {noted} is below the log start offset {start}"
        return f"the checkpointed offset {noted} is larger than the log end offset"

    @property
    def why_skipped(self) -> str | None:
        """Why it is not compacted, with the threshold that is decisive; None if it is."""
        if self.skip == Skip.CLEAN_ENOUGH:
            return f"{self.skip} {self.config.min_cleanable_dirty_ratio:g}"
        return None if self.skip is None else str(self.skip)


@dataclass(frozen=True, slots=True)
class Group:
    """Segments that became one.

    Attributes:
        base_offset: base offset of the new segment.
        sources: base offsets of the segments it is made of.
        before_bytes: total size of their logs.
        after_bytes: size of its log.
    """

    base_offset: int
    sources: Sequence[int]
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of a compaction, actual or predicted.

    Attributes:
        candidate: the partition as it was.
        is_done: whether anything was written.
        keys: number of keys in the offset maps of all passes.
        tally: what was read and kept in all passes.
        next_dirty_offset: where the next cleaning begins; None if nothing was examined.
        before_bytes: size of all logs of the partition.
        after_bytes: their size afterwards.
        groups: the new segments, pass after pass.
    """

    candidate: Candidate
    is_done: bool
    passes: int
    keys: int
    tally: Tally
    next_dirty_offset: int | None
    before_bytes: int
    after_bytes: int
    groups: tuple[Group, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing cleanable is left."""
        cleanable = self.candidate.cleanable
        if cleanable is None or self.next_dirty_offset is None:
            return True
        return self.next_dirty_offset >= cleanable.first_uncleanable_offset

    @property
    def broker_passes(self) -> int | None:
        """How many passes a broker needs at least, by the keys that its map takes."""
        limits = self.candidate.limits
        # Of several passes the keys are counted more than once, of an unfinished one not all.
        if limits is None or not limits.map_keys or self.passes != 1 or not self.is_complete:
            return None
        return max(1, -(-self.keys // limits.map_keys))

    @property
    def broker_ms(self) -> int | None:
        """How long a broker needs at least, by its limit of bytes per second."""
        limits, cleanable = self.candidate.limits, self.candidate.cleanable
        if limits is None or limits.bytes_per_second is None or cleanable is None:
            return None
        # It reads the dirty part for the map, everything below its end to clean it, and writes.
        of_map = (
            segment.log.size_bytes
            for segment in self.candidate.partition.segments
            if cleanable.first_dirty_offset
            <= segment.base_offset
            < cleanable.first_uncleanable_offset
        )
        size_bytes = sum(of_map) + self.tally.read_bytes + self.tally.bytes_written
        return int(size_bytes / limits.bytes_per_second * 1000)


def read_otherwise(path: str, defect: Defect | None = None) -> CorruptDataError:
    """Return the error for a log that was sound when it was judged, and now reads otherwise.

    Args:
        defect: the defect found now, if the reference reader reports one.
    """
    if defect is None:
        return CorruptDataError(
            "The log was sound when it was judged, and no longer is, or cannot be read.",
            reference="bytes-unreadable",
            path=path,
        )
    return corrupt_data(defect, note="The log was sound when it was judged.")
