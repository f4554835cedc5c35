"""The inputs and the results of retention, without any I/O.

Follows `UnifiedLog.deleteOldSegments` of Kafka.
"""

from __future__ import annotations

from enum import StrEnum

from formats.late_classes import dataclass


class TimestampSource(StrEnum):
    """Where a broker takes a segment's largest timestamp from."""

    TIME_INDEX = "time-index"
    """The last entry of the `.timeindex`."""
    BATCHES = "batches"
    """The batches: the segment is active, or recovered at the next start."""
    MTIME = "mtime"
    """The modification time of the `.log`, because there is no timestamp."""
    METADATA = "metadata"
    """What `__remote_log_metadata` says of a segment in remote storage."""


class Reason(StrEnum):
    """Why a segment is deleted, or stays."""

    LOG_START_OFFSET = "log-start-offset"
    RETENTION_BYTES = "retention.bytes"
    RETENTION_MS = "retention.ms"
    DELETE_STARTED = "delete-segment-started"
    """Remote: an earlier deletion was begun, and is done again."""
    EPOCHS_TRUNCATED = "leader-epoch-cache-truncation"
    """Remote: all of its leader epochs are before the first one of the log."""
    BLOCKED = "blocked"
    """A policy would delete it, but something blocks that."""
    WITHIN_RETENTION = "within-retention"
    """No policy deletes it yet."""
    UNLIMITED = "unlimited"
    """Neither time nor size is limited."""
    COMPACT_ONLY = "compact-only"
    """The topic's `cleanup.policy` has no `delete`."""
    CLEANER_DISABLED = "cleaner-disabled"
    """A compacted topic with `log.cleaner.enable=false`: nothing is ever deleted."""
    METADATA_LOG = "metadata-log"
    """The KRaft metadata log has a retention of its own, by snapshots."""
    NOT_LIVE = "not-live"
    """The directory is being deleted, or stray."""
    OTHER_LINEAGE = "other-leader-epochs"
    """Remote: its leader epochs are not those of the log, so no policy looks at it."""


class Blocker(StrEnum):
    """What blocks a deletion."""

    HIGH_WATERMARK = "high-watermark"
    """Not all of the segment is replicated."""
    SEGMENT = "segment"
    """An earlier segment stays, and segments are deleted from the front only."""
    ACTIVE_EMPTY = "active-empty"
    """It is the active segment, and empty."""
    REMOTE_STORAGE = "remote-storage"
    """Tiered: only uploaded segments are deleted, and no tier among the paths has it."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as retention sees it.

    Attributes:
        base_offset: the offset in its name.
        size_bytes: size of its batches.
        max_timestamp: milliseconds, as a broker determines it.
        timestamp_source: where it comes from.
        side_bytes: size of the files that are deleted with it: indexes, producer snapshot.
        path: its `.log`.
    """

    base_offset: int
    size_bytes: int
    max_timestamp: int
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
        return sum(segment.size_bytes for segment in self.segments)

    def upper_bound(self, number: int) -> int:
        """Return the end of a segment: the next one's base offset, or the log end offset."""
        following = number + 1
        # The next base, not the last offset: after a cleaning they differ, and Kafka uses this one.
        if following < len(self.segments):
            return self.segments[following].base_offset
        return self.log_end_offset


@dataclass(frozen=True, slots=True)
class Policy:
    """The retention policies.

    Attributes:
        deletes: whether `cleanup.policy` has `delete`; otherwise only the log start offset counts.
        retention_ms: negative for unlimited.
        retention_bytes: negative for unlimited.
        is_tiered: whether only uploaded segments are deleted.
        remote_end: where the log in remote storage ends; None if that is not known.
        inert: why no policy is run at all, None if they are.
        highest_remote_is_local: as in `Release`.
    """

    deletes: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    is_tiered: bool = False
    remote_end: int | None = None
    inert: Reason | None = None
    highest_remote_is_local: bool = False


@dataclass(frozen=True, slots=True)
class Deletion:
    """A segment that is deleted, and the policy that deletes it."""

    segment: SegmentFacts
    reason: Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of retention.

    Attributes:
        deleted: the deletions, in order.
        log: what is left; if every segment was deleted, the empty one that was rolled.
        rolled: whether a new active segment was needed.
    """

    deleted: tuple[Deletion, ...]
    log: LogFacts
    rolled: bool


@dataclass(frozen=True, slots=True)
class LatestRecord:
    """The record that has the largest timestamp of a segment.

    Attributes:
        offset: offset of the record.
        timestamp: timestamp of the record, milliseconds.
        position: position of its batch in the `.log`.
    """

    offset: int
    timestamp: int
    position: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of one segment, and why.

    Attributes:
        upper_bound: its end: the next base offset, or the log end offset.
        is_active: whether a broker appends to it.
        is_deleted: whether it is deleted now.
        reason: the policy that deletes it, or why it stays.
        deletable_timestamp: since when it may be deleted, or when time alone makes it deletable,
            together with the segments before it; None if time alone never does.
        blocked_by: what blocks a policy that would delete it.
        blocking_segment: base offset of an earlier segment that expires later than this one, and so
            keeps it.
        remaining_bytes: bytes to append until `retention.bytes` deletes it; None if it never does,
            or the segment grows itself.
        latest_record: the record with the largest timestamp, if the segment lies in the future or
            blocks others.
        detail: a description of all this.
    """

    segment: SegmentFacts
    upper_bound: int
    is_active: bool
    is_deleted: bool
    reason: Reason
    deletable_timestamp: int | None
    blocked_by: Blocker | None = None
    blocking_segment: int | None = None
    remaining_bytes: int | None = None
    latest_record: LatestRecord | None = None
    detail: str = ""
