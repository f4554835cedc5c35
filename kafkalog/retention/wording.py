"""Verdicts of retention in words: why a segment goes or stays, and what would change it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafkalog.retention.model import Blocker, Reason, TimestampSource

if TYPE_CHECKING:
    from kafkalog.retention.model import LogFacts, Policy, Verdict

_SOURCES = {
    TimestampSource.TIME_INDEX: "largest timestamp",
    TimestampSource.BATCHES: "largest timestamp",
    TimestampSource.MTIME: "no timestamp; modification time",
}
_KEPT = {
    Reason.UNLIMITED: "neither retention.ms nor retention.bytes is limited",
    Reason.COMPACT_ONLY: "cleanup.policy has no delete: only segments below the log start offset "
    "are deleted",
    Reason.CLEANER_DISABLED: "log.cleaner.enable=false: nothing deletes from compacted topics",
    Reason.METADATA_LOG: "the metadata log is truncated after snapshots, not by retention",
    Reason.NOT_LIVE: "the directory is not a live partition",
}


def detail_of(verdict: Verdict, policy: Policy, log: LogFacts, now_ms: int) -> str:
    """One or two sentences without a full stop at the end."""
    if verdict.is_deleted:
        return _why_deleted(verdict, policy, log)
    if verdict.reason in _KEPT:
        return _KEPT[verdict.reason]
    if verdict.reason == Reason.BLOCKED:
        return _why_blocked(verdict, log)
    parts = []
    if policy.retention_ms >= 0:
        parts.append(_time_left(verdict, policy, log, now_ms))
    if verdict.bytes_to_append is not None:
        parts.append(f"retention.bytes deletes it {verdict.bytes_to_append} bytes from now")
    return "; ".join(parts) or "only retention.bytes could delete it, once it is rolled"


def _why_deleted(verdict: Verdict, policy: Policy, log: LogFacts) -> str:
    segment = verdict.segment
    if verdict.reason == Reason.LOG_START_OFFSET:
        return f"the log starts at {log.log_start_offset}, it ends before {verdict.upper_bound}"
    if verdict.reason == Reason.RETENTION_BYTES:
        return f"without it the log still holds retention.bytes {policy.retention_bytes}"
    stamp = f"{_SOURCES[segment.timestamp_source]} {_time(segment.largest_timestamp)}"
    rolled = ", the log is rolled for it" if verdict.is_active else ""
    return f"{stamp} is more than {policy.retention_ms} ms old{rolled}"


def _why_blocked(verdict: Verdict, log: LogFacts) -> str:
    if verdict.blocked_by == Blocker.HIGH_WATERMARK:
        return (
            f"it ends before {verdict.upper_bound}, the high watermark is {log.high_watermark}: "
            f"deletable once all of it is replicated"
        )
    if verdict.blocked_by == Blocker.REMOTE_STORAGE:
        return "deletable once it is uploaded to remote storage, which is not known here"
    return _behind(verdict)


def _behind(verdict: Verdict) -> str:
    until = _time(verdict.deletable_at)
    return (
        f"segment {verdict.blocking_segment} before it stays until {until}, and segments are "
        f"deleted from the front only"
    )


def _time_left(verdict: Verdict, policy: Policy, log: LogFacts, now_ms: int) -> str:
    segment = verdict.segment
    if verdict.is_active and segment.size_bytes == 0:
        return "an empty active segment stays"
    if segment.largest_timestamp > now_ms:
        words = f"{_SOURCES[segment.timestamp_source]} {_time(segment.largest_timestamp)} lies in "
        words += "the future"
    else:
        words = f"{_SOURCES[segment.timestamp_source]} {_time(segment.largest_timestamp)}"
    if (record := verdict.latest_record) is not None:
        words += f" (record at offset {record.offset}, position {record.position})"
    if verdict.blocking_segment is not None:
        return f"{words}; {_behind(verdict)}"
    if verdict.deletable_at is not None:
        return f"{words}: goes at {_time(verdict.deletable_at)}"
    if log.high_watermark < verdict.upper_bound:
        return f"{words}; not all of it is replicated"
    return f"{words}, and retention.ms is {policy.retention_ms}"


def _time(timestamp_ms: int | None) -> str:
    """ISO 8601 in UTC; the number where no calendar holds it."""
    if timestamp_ms is None:
        return "an unknown time"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    text = moment.replace(microsecond=timestamp_ms % 1000 * 1000).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
