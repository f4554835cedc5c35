"""Values: the inputs and the results of retention, without any I/O.

Follows `UnifiedLog.deleteOldSegments` of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TimestampSource(StrEnum):
    """The source of a segment's largest timestamp, as a broker takes it."""

    TIME_INDEX = "time-index"
    """The last entry of the `.timeindex`."""
    BATCHES = "batches"
    """The batches: the segment is appended to, or recovered at the next start."""
    MTIME = "mtime"
    """When the `.log` was last modified: there is no timestamp."""


class Reason(StrEnum):
    """Why a segment goes, or stays."""

    LOG_START_OFFSET = "log-start-offset"
    RETENTION_BYTES = "retention.bytes"
    RETENTION_MS = "retention.ms"
    BLOCKED = "blocked"
    """A policy would take it, but something is in the way."""
    WITHIN_RETENTION = "within-retention"
    """No policy takes it yet."""
    UNLIMITED = "unlimited"
    """Neither time nor size is limited."""
    COMPACT_ONLY = "compact-only"
    """The topic's `cleanup.policy` has no `delete`."""
    CLEANER_DISABLED = "cleaner-disabled"
    """A compacted topic, and `log.cleaner.enable=false`: nobody looks after it."""
    METADATA_LOG = "metadata-log"
    """The log of KRaft has a retention of its own, by snapshots."""
    NOT_LIVE = "not-live"
    """The directory is being deleted, or stray."""


class Blocker(StrEnum):
    """What blocks a deletion."""

    HIGH_WATERMARK = "high-watermark"
    """Not all of the segment is replicated."""
    SEGMENT = "segment"
    """An earlier segment stays, and segments go from the front only."""
    ACTIVE_EMPTY = "active-empty"
    """It is the active segment, and holds nothing."""
    REMOTE_STORAGE = "remote-storage"
    """Tiered: only uploaded segments go, and nothing here shows which were uploaded."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as retention sees it.

    Attributes:
        base_offset: of its name.
        size_bytes: of its batches.
        largest_timestamp: milliseconds, as a broker takes it.
        timestamp_source: what it is taken from.
        side_bytes: bytes of the files that go with it: indexes, producer snapshot.
        path: its `.log`.
    """

    base_offset: int
    size_bytes: int
    largest_timestamp: int
    timestamp_source: TimestampSource = TimestampSource.TIME_INDEX
    side_bytes: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """A log as retention sees it; segments by base offset, the active one last."""

    segments: tuple[SegmentFacts, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def upper_bound(self, number: int) -> int:
        """Return where a segment ends: the next one's base offset, or the log end."""
        following = number + 1
        if following < len(self.segments):
            return self.segments[following].base_offset
        return self.log_end_offset


@dataclass(frozen=True, slots=True)
class Policy:
    """What is to be kept.

    Attributes:
        deletes: whether `cleanup.policy` has `delete`; else only the log start offset counts.
        retention_ms: negative: unlimited.
        retention_bytes: negative: unlimited.
        is_tiered: whether only uploaded segments go.
        inert: why no policy is run at all, None if they are.
    """

    deletes: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    is_tiered: bool = False
    inert: Reason | None = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A segment that goes, and the policy that takes it."""

    segment: SegmentFacts
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of retention.

    Attributes:
        deleted: what goes, in the order it goes.
        log: what is left; where all went, with the empty segment that was rolled for it.
        rolled: whether a new active segment was needed.
    """

    deleted: tuple[Deletion, ...]
    log: LogFacts
    rolled: bool


@dataclass(frozen=True, slots=True)
class LatestRecord:
    """The record that has the largest timestamp of a segment.

    Attributes:
        offset: of the record.
        timestamp: of the record, milliseconds.
        position: of its batch in the `.log`.
    """

    offset: int
    timestamp: int
    position: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of one segment, and why.

    Attributes:
        segment: which one.
        upper_bound: where it ends: the next base offset, or the log end.
        is_active: whether a broker appends to it.
        is_deleted: whether it goes now.
        reason: the policy that takes it, or why it stays.
        deletable_at: since when it may go, or when time alone lets it go, the segments before it
            included; None if time alone never does.
        blocked_by: what is in the way of a policy that would take it.
        blocking_segment: base offset of the earlier segment that time takes later than this one,
            and so keeps it.
        bytes_to_append: bytes to append until `retention.bytes` takes it; None if it never does,
            or the segment grows itself.
        latest_record: the record with the largest timestamp, for a segment that lies in the future
            or is in the way of others.
        detail: all of this in words.
    """

    segment: SegmentFacts
    upper_bound: int
    is_active: bool
    is_deleted: bool
    reason: Reason
    deletable_at: int | None
    blocked_by: Blocker | None = None
    blocking_segment: int | None = None
    bytes_to_append: int | None = None
    latest_record: LatestRecord | None = None
    detail: str = ""
