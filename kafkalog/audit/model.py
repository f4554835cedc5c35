"""What an audit of a compacted log finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """In which way a log is not correctly compacted."""

    STALE_KEY = "stale-key"
    """A record below the cleaner offset has a key that a later record there has, too."""
    NO_KEY = "no-key"
    """A record without a key lies below the cleaner offset."""
    LIVE_KEY_LOST = "live-key-lost"
    """The latest committed record of a key is gone, and it was no tombstone."""
    TOMBSTONE_TOO_EARLY = "tombstone-dropped-too-early"
    """The latest record of a key was a tombstone and is gone before its delete horizon."""
    MARKER_TOO_EARLY = "marker-dropped-too-early"
    """A transaction marker is gone before its delete horizon, or while its data were there."""
    RECORD_LOST = "record-lost"
    """A record at or above the cleaner offset is gone."""
    RECORD_CHANGED = "record-changed"
    """A record is not what it was."""
    RECORD_ADDED = "record-added"
    """A record, or a batch, was not there."""
    BATCH_CHANGED = "batch-changed"
    """What a batch says of its offsets, epoch, producer or transaction is not what it said."""
    HORIZON_CHANGED = "delete-horizon-changed"
    """A delete horizon that was set is another one, or none."""
    PRODUCER_LOST = "producer-state-lost"
    """The last batch of an active producer is gone, and its sequence with it."""
    LOG_START_CHANGED = "log-start-changed"
    LOG_END_CHANGED = "log-end-changed"
    EPOCHS_CHANGED = "leader-epochs-changed"
    LAST_STABLE_CHANGED = "last-stable-offset-changed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A counterexample.

    Attributes:
        reason: which rule it breaks.
        detail: that in words, without the key.
        path: the `.log` of the record or batch, the directory for the log as a whole.
        position: of its batch in the file; None for the log as a whole.
        offset: of the record, or the base offset of the batch; None for the log as a whole.
        key: of the record; None without one.
        other_offset: of the record that it is compared with; None without one.
    """

    reason: Reason
    detail: str
    path: str
    position: int | None = None
    offset: int | None = None
    key: bytes | None = None
    other_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The part of a log that is judged.

    Attributes:
        first_dirty_offset: where the cleanings began to look for later records.
        cleaner_offset: where the last of them ended; nothing at or above it was compacted.
        now_ms: latest moment of the last cleaning: horizons up to it may have passed.
        producer_expiration_ms: after how long without a batch a producer is forgotten.
    """

    first_dirty_offset: int
    cleaner_offset: int
    now_ms: int
    producer_expiration_ms: int = 86_400_000
