"""When a broker begins a new segment, and what comes of it: values without any I/O.

Follows `LogSegment.shouldRoll`, `LogConfig` and `AbstractIndex` of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from formats import constants as c

if TYPE_CHECKING:
    from kafkalog.model import Defect

JITTERS: Final = 4096
"""So many draws of jitter are made; segments take them in turn."""


class RollCondition(StrEnum):
    """Why a segment ended; they are asked in this order."""

    SEGMENT_BYTES = "segment.bytes"
    """The next append would have made it too large."""
    SEGMENT_MS = "segment.ms"
    """The next append is too much later than its first batch."""
    INDEX_FULL = "segment.index.bytes"
    """One of its indexes is full."""
    OFFSET_RANGE = "offset-range"
    """The next append's last offset is more than 2^31 - 1 above its base offset."""


@dataclass(frozen=True, slots=True)
class RollSettings:
    """What decides when a segment ends.

    Attributes:
        segment_bytes: largest size.
        segment_ms: longest time, `max.compaction.lag.ms` of a compacted topic included.
        segment_jitter_ms: up to how much shorter that is, by chance; below `segment_ms`.
        segment_index_bytes: size of each index file.
        index_interval_bytes: bytes between two index entries.
        preallocate: whether a new `.log` has its full size at once.
    """

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False

    @property
    def offset_entries_max(self) -> int:
        """Entries that an offset index has room for."""
        return self.segment_index_bytes // c.OFFSET_INDEX_ENTRY_SIZE

    @property
    def time_entries_max(self) -> int:
        """Entries that a time index has room for; with the last but one it is full."""
        return self.segment_index_bytes // c.TIME_INDEX_ENTRY_SIZE


@dataclass(frozen=True, slots=True)
class SimulatedSegment:
    """A segment as it would be.

    Attributes:
        base_offset: of its name.
        last_offset: of its last batch; its base offset - 1 where it is empty.
        size_bytes: of its batches.
        batches: how many it holds.
        first_timestamp: largest timestamp of its first batch, -1 without one: what its age counts
            from.
        largest_timestamp: of all its batches, -1 without one.
        index_entries: in its `.index`.
        timeindex_entries: in its `.timeindex`, with the one that is added when it ends.
        rolled_by: why it ended, None for the active segment and where it was told to.
        is_active: whether a broker would append to it.
    """

    base_offset: int
    last_offset: int
    size_bytes: int
    batches: int
    first_timestamp: int
    largest_timestamp: int
    index_entries: int
    timeindex_entries: int
    rolled_by: RollCondition | None
    is_active: bool

    def index_size_bytes(self, settings: RollSettings) -> int:
        """Length of its `.index`: trimmed where it ended, else whole entries at full size."""
        entries = settings.offset_entries_max if self.is_active else self.index_entries
        return entries * c.OFFSET_INDEX_ENTRY_SIZE

    def timeindex_size_bytes(self, settings: RollSettings) -> int:
        """Length of its `.timeindex`, as for the `.index`."""
        entries = settings.time_entries_max if self.is_active else self.timeindex_entries
        return entries * c.TIME_INDEX_ENTRY_SIZE

    def file_size_bytes(self, settings: RollSettings) -> int:
        """Length of its `.log`: preallocated while it is appended to."""
        is_whole = self.is_active and settings.preallocate
        return max(self.size_bytes, settings.segment_bytes) if is_whole else self.size_bytes


@dataclass(slots=True)
class RollReplay:
    """What a replay came to.

    Attributes:
        settings: what it was run under.
        segments: by base offset, the active one last.
        refused: batches larger than `segment.bytes`, which a broker does not take; left out.
        untimed: batches for which the clock decides, not their timestamps: no roll by time.
        defects: damage in the log; what it covers is left out.
    """

    settings: RollSettings
    segments: list[SimulatedSegment]
    refused: int = 0
    untimed: int = 0
    defects: list[Defect] = field(default_factory=list)
