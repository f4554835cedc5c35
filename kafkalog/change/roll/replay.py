"""When a broker starts a new segment: appends replayed one after another, and the results.

Follows `UnifiedLog.maybeRoll`, `LocalLog.roll`, `LogSegment.shouldRoll`, `LogSegment.append`,
`TimeIndex.maybeAppend`, `LogConfig` and `AbstractIndex` of Kafka.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from formats import constants as c
from formats.constants import INT32_MAX
from formats.late_classes import dataclass
from kafkalog.model import Batch, Defect, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RollCondition(StrEnum):
    """Why a segment ended; the conditions are tested in this order."""

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
    """The settings that decide when a segment ends.

    Attributes:
        segment_bytes: largest size.
        segment_ms: longest time, `max.compaction.lag.ms` of a compacted topic included.
        segment_jitter_ms: largest random amount subtracted from it; below `segment_ms`.
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
        """Number of entries that an offset index has room for."""
        return self.segment_index_bytes // c.OFFSET_INDEX_ENTRY_SIZE

    @property
    def time_entries_max(self) -> int:
        """Number of entries that a time index has room for; with one less it counts as full."""
        return self.segment_index_bytes // c.TIME_INDEX_ENTRY_SIZE


@dataclass(frozen=True, slots=True)
class SimulatedSegment:
    """A simulated segment.

    Attributes:
        base_offset: the offset in its name.
        last_offset: offset of its last batch; its base offset - 1 if it is empty.
        size_bytes: size of its batches.
        batches: number of batches.
        first_timestamp: largest timestamp of its first batch, -1 if none; its age counts from
            this.
        max_timestamp: largest timestamp of all its batches, -1 if none.
        index_entries: number of entries in its `.index`.
        timeindex_entries: number in its `.timeindex`, including the one that is added when it ends.
        rolled_by: why it ended, None for the active segment and for a roll on request.
        is_active: whether a broker would append to it.
    """

    base_offset: int
    last_offset: int
    size_bytes: int
    batches: int
    first_timestamp: int
    max_timestamp: int
    index_entries: int
    timeindex_entries: int
    rolled_by: RollCondition | None
    is_active: bool

    def index_bytes(self, settings: RollSettings) -> int:
        """Return the length of its `.index`: trimmed when it ended, otherwise preallocated."""
        entries = settings.offset_entries_max if self.is_active else self.index_entries
        return entries * c.OFFSET_INDEX_ENTRY_SIZE

    def timeindex_bytes(self, settings: RollSettings) -> int:
        """Return the length of its `.timeindex`, as for the `.index`."""
        entries = settings.time_entries_max if self.is_active else self.timeindex_entries
        return entries * c.TIME_INDEX_ENTRY_SIZE

    def file_size_bytes(self, settings: RollSettings) -> int:
        """Return the length of its `.log`, which may be preallocated while it is active."""
        is_whole = self.is_active and settings.preallocate
        return max(self.size_bytes, settings.segment_bytes) if is_whole else self.size_bytes


@dataclass(slots=True)
class RollReplay:
    """The result of a replay.

    Attributes:
        settings: the settings of the replay.
        segments: by base offset, the active one last.
        refused: number of batches larger than `segment.bytes`, which a broker rejects; left out.
        untimed: number of batches for which the clock decides instead of their timestamps: they
            cause no roll by time.
        defects: damage in the log; what it covers is left out.
    """

    settings: RollSettings
    segments: list[SimulatedSegment]
    refused: int = 0
    untimed: int = 0
    defects: list[Defect] = field(default_factory=list)


class _Active:
    """The active segment."""

    def __init__(self, base_offset: int, jitter_ms: int, created_ms: int | None) -> None:
        self.base_offset = base_offset
        self.jitter_ms = jitter_ms
        self.created_ms = created_ms
        self.last_offset = base_offset - 1
        self.size_bytes = 0
        self.batches = 0
        self.first_timestamp: int | None = None
        self.max_timestamp = -1
        self.bytes_since_entry = 0
        self.index_entries = 0
        self.timeindex_entries = 0
        self.last_indexed_timestamp = -1

    def append(self, batch: Batch, interval: int) -> None:
        """Append one batch: its index entry comes before it is counted."""
        # The first batch's largest timestamp, not its first record's
        # (LogSegment.loadFirstBatchTimestamp).
        if self.first_timestamp is None:
            self.first_timestamp = batch.max_timestamp
        self.max_timestamp = max(self.max_timestamp, batch.max_timestamp)
        if self.bytes_since_entry > interval:
            self.index_entries += 1
            self.index_time()
            self.bytes_since_entry = 0
        self.bytes_since_entry += batch.size_bytes
        self.size_bytes += batch.size_bytes
        self.last_offset = batch.last_offset
        self.batches += 1

    def index_time(self) -> None:
        """Add the largest timestamp so far, if it is larger than the indexed one."""
        if self.max_timestamp > self.last_indexed_timestamp:
            self.timeindex_entries += 1
            self.last_indexed_timestamp = self.max_timestamp

    def ended(self, rolled_by: RollCondition | None, *, is_active: bool) -> SimulatedSegment:
        return SimulatedSegment(
            base_offset=self.base_offset,
            last_offset=self.last_offset,
            size_bytes=self.size_bytes,
            batches=self.batches,
            first_timestamp=-1 if self.first_timestamp is None else self.first_timestamp,
            max_timestamp=self.max_timestamp,
            index_entries=self.index_entries,
            timeindex_entries=self.timeindex_entries,
            rolled_by=rolled_by,
            is_active=is_active,
        )


class Replay:
    """Replays batches into a log that is empty at first.

    Args:
        settings: the settings that end segments.
        base_offset: base offset of the first segment.
        jitters: the jitter of each segment; None for no jitter.
        now_ms: the clock at the start, None if it is unknown.
    """

    def __init__(
        self,
        settings: RollSettings,
        base_offset: int,
        jitters: Iterator[int] | None = None,
        now_ms: int | None = None,
    ) -> None:
        self.settings = settings
        self.refused = 0
        self.untimed = 0
        self._jitters = jitters
        self._done: list[SimulatedSegment] = []
        self._active = self._new(base_offset, now_ms)

    def segments(self) -> list[SimulatedSegment]:
        """Return all segments so far, the active one as it is."""
        return [*self._done, self._active.ended(None, is_active=True)]

    def append(self, batches: Sequence[Batch], now_ms: int | None = None) -> RollCondition | None:
        """Append once: a batch of a producer, or what a follower fetched at once.

        Return why a new segment was started for it, None if none was. Batches that no broker
        accepts are counted in `refused`.
        """
        size = sum(batch.size_bytes for batch in batches)
        if size > self.settings.segment_bytes:
            self.refused += len(batches)
            return None
        condition = self._why_roll(batches, size, now_ms)
        if condition is not None:
            first, last = batches[0], batches[-1]
            expected = first.base_offset
            if first.magic < 2:
                expected = wrap_int64(last.last_offset - INT32_MAX)
            before = self._active.base_offset
            self._roll(condition, max(wrap_int64(self._active.last_offset + 1), expected), now_ms)
            # It was empty, so nothing was rolled: only its clock and jitter are new.
            if self._active.base_offset == before:
                condition = None
        for batch in batches:
            self._active.append(batch, self.settings.index_interval_bytes)
        return condition

    def restart(self, now_ms: int | None = None) -> None:
        """Simulate a clean restart of the broker, which resets the clock and the index distance."""
        active = self._active
        # A clean close adds the last entry of the time index (LogSegment.close), as a roll does.
        active.index_time()
        active.bytes_since_entry = 0
        active.created_ms = now_ms
        # Drawn for each segment object, and a restart makes new ones.
        active.jitter_ms = self._next_jitter()

    def roll(self, now_ms: int | None = None) -> None:
        """Roll without an append; an empty segment is replaced, and its age counts from now."""
        self._roll(None, wrap_int64(self._active.last_offset + 1), now_ms)

    def _why_roll(
        self, batches: Sequence[Batch], size: int, now_ms: int | None
    ) -> RollCondition | None:
        settings, active = self.settings, self._active
        if active.size_bytes > settings.segment_bytes - size:
            return RollCondition.SEGMENT_BYTES
        # An empty segment never rolls by time.
        if active.size_bytes:
            waited = self._waited(max(batch.max_timestamp for batch in batches), now_ms)
            if waited is None:
                self.untimed += len(batches)
            elif waited > settings.segment_ms - active.jitter_ms:
                return RollCondition.SEGMENT_MS
        if (
            active.index_entries >= settings.offset_entries_max
            or active.timeindex_entries >= settings.time_entries_max - 1
        ):
            return RollCondition.INDEX_FULL
        if not 0 <= batches[-1].last_offset - active.base_offset <= INT32_MAX:
            return RollCondition.OFFSET_RANGE
        return None

    def _waited(self, timestamp: int, now_ms: int | None) -> int | None:
        """Return the age of the segment, by timestamps, else by the clock if that is known.

        Differences wrap as Java's do: a timestamp far below the first one rolls the segment.
        """
        active = self._active
        if active.first_timestamp is not None and active.first_timestamp >= 0:
            return wrap_int64(timestamp - active.first_timestamp)
        if now_ms is None or active.created_ms is None:
            return None
        return wrap_int64(now_ms - active.created_ms)

    def _roll(self, condition: RollCondition | None, base_offset: int, now_ms: int | None) -> None:
        self._active.index_time()
        if self._active.base_offset != base_offset:  # otherwise it was empty, and is replaced
            self._done.append(self._active.ended(condition, is_active=False))
        self._active = self._new(base_offset, now_ms)

    def _new(self, base_offset: int, now_ms: int | None) -> _Active:
        return _Active(base_offset, self._next_jitter(), now_ms)

    def _next_jitter(self) -> int:
        return 0 if self._jitters is None else next(self._jitters)
