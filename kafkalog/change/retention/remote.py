"""What a broker's retention would delete from remote storage, and why.

Follows `RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments` of Kafka, which the
leader of a partition runs every `remote.log.manager.task.interval.ms`. It deletes nothing else
because of a deletion: whatever becomes deletable by it is deleted by the next run.

This is a leader that has just started. One that has found all segments valid remembers it
(`isAllSegmentsValid`), and goes on counting those that `DeleteRecords` has cut off until they are
deleted: by size it can delete more.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from formats.constants import INT64_MAX
from formats.file_names import FileKind, remote_file_name
from formats.late_classes import dataclass
from kafkalog.change.retention.model import Blocker, Reason, SegmentFacts, TimestampSource, Verdict
from kafkalog.files.remote_metadata import (
    COPY_FINISHED,
    DELETE_FINISHED,
    DELETE_STARTED,
    cut_from_start,
    is_within,
    with_records,
)
from kafkalog.io.wording import counted, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalog.change.retention.model import LogFacts, Policy
    from kafkalog.files.remote_metadata import Epochs, RemoteSegment, RemoteSegments
    from kafkalog.files.tiers import Tier

_NONE: Final = frozenset[str]()


@dataclass(frozen=True, slots=True)
class RemoteLog:
    """A log as remote retention sees it.

    Attributes:
        log_start_offset, log_end_offset, high_watermark: its offsets.
        local_bytes: size of the local segments that are not uploaded.
        gone: the ids of the segments that are deleted.
    """

    segments: RemoteSegments
    lineage: Epochs
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    local_bytes: int
    gone: frozenset[str] = _NONE

    def of_epoch(self, epoch: int) -> list[str]:
        """Return the ids of the segments of a leader epoch that are not deleted, in order."""
        return [one for one in self.segments.of_epoch(epoch) if one not in self.gone]

    def is_valid(self, segment: RemoteSegment) -> bool:
        """Return whether a segment is part of this log."""
        return is_within(segment, self.lineage) and segment.end_offset < self.log_end_offset

    def valid_bytes(self) -> int:
        """Return the size of the uploaded segments that are part of this log."""
        ids = {one for epoch, _ in with_records(self.lineage) for one in self.of_epoch(epoch)}
        found = (self.segments[one] for one in ids)
        return sum(
            one.size_bytes for one in found if one.state == COPY_FINISHED and self.is_valid(one)
        )

    def starting_at(self, offset: int) -> RemoteLog:
        """Return it with a later log start offset."""
        if offset <= self.log_start_offset:
            return self
        lineage = cut_from_start(self.lineage, offset)
        return replace(self, log_start_offset=offset, lineage=lineage)


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """What one run of remote retention does.

    Attributes:
        deleted: the reason for each segment that it deletes, in order.
        log: what is left.
        stopped_at: the segment that stays, so that later ones are not looked at.
        is_above_watermark: whether it deletes nothing, because the log would start above the high
            watermark.
    """

    deleted: Mapping[str, Reason]
    log: RemoteLog
    stopped_at: str | None = None
    is_above_watermark: bool = False


@dataclass(frozen=True, slots=True)
class RemoteRetention:
    """What remote retention does with a partition until nothing more is to be deleted.

    Attributes:
        verdicts: one per segment, by start offset.
        size_bytes: size of all remote segments.
        local_bytes: size of the local segments that are not uploaded.
        runs: how many runs it takes.
        started_at, log_start_offset: the first readable offset, before and afterwards.
    """

    verdicts: tuple[Verdict, ...]
    size_bytes: int
    local_bytes: int
    runs: int
    started_at: int
    log_start_offset: int

    @property
    def deleted_segments(self) -> int:
        return sum(verdict.is_deleted for verdict in self.verdicts)

    @property
    def freed_bytes(self) -> int:
        """Size of their logs."""
        return sum(one.segment.size_bytes for one in self.verdicts if one.is_deleted)


def run_once(log: RemoteLog, policy: Policy, now_ms: int) -> RemoteRun:
    """Compute what one run would delete. Pure: nothing is read or changed.

    Cost:
        For each leader epoch a walk over its segments, up to the first that stays.
    """
    deleted: dict[str, Reason] = {}
    surplus = log.local_bytes + log.valid_bytes() - policy.retention_bytes
    surplus = max(surplus, 0) if policy.retention_bytes >= 0 else 0
    since = now_ms - policy.retention_ms
    # A retention longer than the time since 1970 limits nothing: Kafka tests for that.
    is_timed = policy.retention_ms >= 0 and since >= 0
    start, stopped_at = log.log_start_offset, None
    for segment_id in _walk(log):
        segment = log.segments[segment_id]
        # Not counted, and no reason to stop: an earlier run had decided about it.
        if segment.state == DELETE_STARTED:
            deleted.setdefault(segment_id, Reason.DELETE_STARTED)
        if segment_id in deleted:
            continue
        reason = None
        if _is_before_start(log, segment):
            reason = Reason.LOG_START_OFFSET
        # Skipped, not kept as a stop: segments of other lineages lie between those of the log.
        elif not log.is_valid(segment):
            continue
        elif is_timed and segment.max_timestamp < since:
            reason = Reason.RETENTION_MS
            surplus = max(0, surplus - segment.size_bytes)
        if reason is None and 0 < surplus >= segment.size_bytes:
            reason = Reason.RETENTION_BYTES
            surplus -= segment.size_bytes
        if reason is None:
            stopped_at = segment_id
            break
        if reason != Reason.LOG_START_OFFSET:
            start = max(start, segment.end_offset + 1)
        deleted[segment_id] = reason
    # UnifiedLog.maybeIncrementLogStartOffset throws then, and the task ends before it deletes.
    if start > log.log_start_offset and start > log.high_watermark:
        return RemoteRun({}, log, stopped_at, is_above_watermark=True)
    left = replace(log.starting_at(start), gone=log.gone | deleted.keys())
    for segment_id in _before_lineage(log, left):
        deleted[segment_id] = Reason.EPOCHS_TRUNCATED
    return RemoteRun(deleted, replace(left, gone=log.gone | deleted.keys()), stopped_at)


def _walk(log: RemoteLog) -> Iterator[str]:
    """Yield the segments of each leader epoch of the log; one in several epochs comes again."""
    for epoch, _ in with_records(log.lineage):
        yield from log.of_epoch(epoch)


def _is_before_start(log: RemoteLog, segment: RemoteSegment) -> bool:
    """Source: `isSegmentBreachByLogStartOffset`."""
    first, _ = next(with_records(log.lineage))
    epochs = all(epoch <= first for epoch, _ in segment.epochs)
    return epochs and segment.end_offset < log.log_start_offset


def _before_lineage(log: RemoteLog, left: RemoteLog) -> list[str]:
    """Return the segments all of whose leader epochs are before the first one that is left.

    Source: `deleteLogSegmentsDueToLeaderEpochCacheTruncation`.
    """
    if not left.lineage:
        return []
    first, _ = left.lineage[0]
    there = (one for one in log.segments if one not in log.gone)
    epochs = {epoch for one in there for epoch, _ in log.segments[one].epochs}
    found: dict[str, None] = {}
    for epoch in sorted(one for one in epochs if one < first):
        for one in left.of_epoch(epoch):
            if all(own < first for own, _ in left.segments[one].epochs):
                found[one] = None
    return list(found)


def judge_remote(tier: Tier, lineage: Epochs, log: LogFacts, policy: Policy, now_ms: int, *,
                 raised_to: int | None = None) -> RemoteRetention:  # fmt: skip
    """Predict what is deleted from remote storage, run after run, until nothing more is.

    Args:
        tier: the part of the log in remote storage.
        lineage: the leader epochs of the log.
        log: its local segments and its offsets; its start is that of the whole log.
        policy: with the total retention.
        raised_to: the log start offset after local retention, if that raises it.
    """
    lineage = cut_from_start(lineage, log.log_start_offset)
    highest = tier.segments.highest_offset(lineage, log.log_end_offset)
    first_local = highest if policy.highest_remote_is_local else highest + 1
    before = RemoteLog(
        segments=tier.segments,
        lineage=lineage,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        local_bytes=sum(one.size_bytes for one in log.segments if one.base_offset >= first_local),
        gone=frozenset(i for i, one in tier.segments.items() if one.state == DELETE_FINISHED),
    )
    remote = before = before.starting_at(_first_listed(before, log))
    reasons: dict[str, tuple[Reason, int]] = {}
    for number in count(1):
        run = run_once(remote, policy, now_ms)
        reasons |= {one: (reason, number) for one, reason in run.deleted.items()}
        # A local deletion raises the log start of the whole log where nothing is copied any more.
        remote = run.log.starting_at(raised_to or 0)
        if not run.deleted and remote is run.log:
            break
    verdicts = [
        _verdict(tier, before, policy, segment_id, reasons)
        for segment_id in _by_offset(before)
        if segment_id in reasons
    ] + list(_kept(tier, run, policy, now_ms))
    return RemoteRetention(
        verdicts=tuple(sorted(verdicts, key=lambda one: one.segment.base_offset)),
        size_bytes=sum(before.segments[one].size_bytes for one in _by_offset(before)),
        local_bytes=before.local_bytes,
        runs=max((number for _, number in reasons.values()), default=0),
        started_at=before.log_start_offset,
        log_start_offset=remote.log_start_offset,
    )


def _first_listed(log: RemoteLog, local: LogFacts) -> int:
    """Return where the remote log starts, as a broker finds it when it becomes the leader.

    Source: `RemoteLogManager.findLogStartOffset`.
    """
    for epoch, _ in log.lineage:
        if found := log.of_epoch(epoch):
            return log.segments[found[0]].start_offset
    return local.segments[0].base_offset if local.segments else 0


def _by_offset(log: RemoteLog) -> list[str]:
    there = (one for one in log.segments if one not in log.gone)
    return sorted(there, key=lambda one: (log.segments[one].start_offset, one))


def _facts(tier: Tier, segment_id: str) -> SegmentFacts:
    segment = tier.segments[segment_id]
    name = remote_file_name(segment.start_offset, segment_id, FileKind.LOG)
    told = TimestampSource.METADATA if segment.changed_ms >= 0 else TimestampSource.TIME_INDEX
    return SegmentFacts(
        base_offset=segment.start_offset,
        size_bytes=segment.size_bytes,
        max_timestamp=segment.max_timestamp,
        timestamp_source=told,
        path=tier.logs.get(segment_id) or os.path.join(tier.path, name),
    )


def _verdict(
    tier: Tier,
    log: RemoteLog,
    policy: Policy,
    segment_id: str,
    reasons: Mapping[str, tuple[Reason, int]],
) -> Verdict:
    segment = log.segments[segment_id]
    reason, number = reasons[segment_id]
    detail = _why(log, policy, segment, reason)
    return Verdict(
        segment=_facts(tier, segment_id),
        upper_bound=segment.end_offset + 1,
        is_active=False,
        is_deleted=True,
        reason=reason,
        deletable_timestamp=_expires_at(segment, policy) if reason == Reason.RETENTION_MS else None,
        detail=detail if number == 1 else f"{detail}; run {number}",
    )


def _why(log: RemoteLog, policy: Policy, segment: RemoteSegment, reason: Reason) -> str:
    if reason == Reason.LOG_START_OFFSET:
        return f"it ends before the log start offset, which is {log.log_start_offset} or later"
    if reason == Reason.RETENTION_BYTES:
        return f"without it the whole log still holds retention.bytes {policy.retention_bytes}"
    if reason == Reason.RETENTION_MS:
        when = utc_text(segment.max_timestamp)
        return f"largest timestamp {when} is more than {policy.retention_ms} ms old"
    if reason == Reason.DELETE_STARTED:
        return f"its deletion was begun at {utc_text(segment.changed_ms)} and did not end"
    epochs = ", ".join(str(epoch) for epoch, _ in segment.epochs)
    return f"its leader epochs ({epochs}) are before the first one of the log"


def _expires_at(segment: RemoteSegment, policy: Policy) -> int:
    return segment.max_timestamp + policy.retention_ms + 1


def _kept(tier: Tier, run: RemoteRun, policy: Policy, now_ms: int) -> Iterator[Verdict]:
    """Yield the verdicts on the segments that stay, each judged with those before it."""
    log = run.log
    order = [one for one in dict.fromkeys(_walk(log)) if log.is_valid(log.segments[one])]
    total = log.local_bytes + log.valid_bytes()
    keeper: str | None = None
    ripe_at, size = 0, 0
    for segment_id in order:
        segment = log.segments[segment_id]
        own = _expires_at(segment, policy)
        size += segment.size_bytes
        blocker: Blocker | None = None
        blocking: int | None = None
        is_wanted = policy.retention_ms >= 0 and own <= now_ms
        if run.is_above_watermark and is_wanted:
            blocker = Blocker.HIGH_WATERMARK
        elif keeper is not None and ripe_at > own:
            blocking = log.segments[keeper].start_offset
            blocker = Blocker.SEGMENT if is_wanted else None
        if keeper is None or own > ripe_at:
            ripe_at, keeper = max(own, ripe_at), segment_id
        is_timed = policy.retention_ms >= 0 and ripe_at <= INT64_MAX
        is_sized = policy.retention_bytes >= 0
        left = max(policy.retention_bytes + size - total, 0) if is_sized else None
        unlimited = policy.retention_ms < 0 and policy.retention_bytes < 0
        why = Reason.UNLIMITED if unlimited else Reason.WITHIN_RETENTION
        yield Verdict(
            segment=_facts(tier, segment_id),
            upper_bound=segment.end_offset + 1,
            is_active=False,
            is_deleted=False,
            reason=Reason.BLOCKED if blocker else why,
            deletable_timestamp=ripe_at if is_timed else None,
            blocked_by=blocker,
            blocking_segment=blocking,
            remaining_bytes=left,
            detail=_why_not(log, segment, blocker, ripe_at if is_timed else None, left),
        )
    for segment_id in _by_offset(log):
        if segment_id not in order:
            yield _off_lineage(tier, log, segment_id)


def _why_not(
    log: RemoteLog,
    segment: RemoteSegment,
    blocker: Blocker | None,
    ripe_at: int | None,
    left: int | None,
) -> str:
    words = [f"largest timestamp {utc_text(segment.max_timestamp)}"]
    if blocker == Blocker.HIGH_WATERMARK:
        words.append(f"the log cannot start above its high watermark {log.high_watermark}")
    elif blocker == Blocker.SEGMENT:
        words.append("a segment before it stays")
    if ripe_at is not None:
        words.append(f"goes by time at {utc_text(ripe_at)}")
    if left is not None:
        words.append(f"by size after {counted(left, 'byte')} more")
    return "; ".join(words)


def _off_lineage(tier: Tier, log: RemoteLog, segment_id: str) -> Verdict:
    segment = log.segments[segment_id]
    epochs = ", ".join(f"{epoch} from {start}" for epoch, start in segment.epochs)
    return Verdict(
        segment=_facts(tier, segment_id),
        upper_bound=segment.end_offset + 1,
        is_active=False,
        is_deleted=False,
        reason=Reason.OTHER_LINEAGE,
        deletable_timestamp=None,
        detail=f"its leader epochs ({epochs}) are not those of the log: no policy looks at it",
    )
