"""Predicts what a broker's retention would do to a partition, from its directory.

Follows `LogSegment.largestTimestamp`, `LogSegment.lastModified`, `LogLoader.recoverLog`,
`LogManager.cleanupLogs`, `LogCleaner.deleteExpiredSegments` and `UnifiedLog` of Kafka. Logs are
read only where a broker would know more than the indexes do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from formats import file_names
from formats.file_names import DirectoryState, FileKind
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA, INTERNAL_TOPICS
from kafkalog.change.retention.model import (
    LatestRecord,
    LogFacts,
    Outcome,
    Policy,
    Reason,
    SegmentFacts,
    TimestampSource,
    Verdict,
)
from kafkalog.change.retention.remote import RemoteRetention, judge_remote
from kafkalog.change.retention.verdicts import detail_of, judge_segments, run_policies
from kafkalog.errors import DataError, FileChangedError
from kafkalog.files.offsets import LogOffset, OffsetSource
from kafkalog.io.paths import file_system
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.living import CHANGES, about_a_partition
from kafkalog.model import Batch, Defect
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.indexes import OffsetIndex, TimeIndex
    from kafkalog.files.log_dir import FileEntry, PartitionDir, Segment
    from kafkalog.node.configs import ConfigValue, TopicConfigs


@dataclass(frozen=True, slots=True)
class _Tail:
    """What the batches of a recovered segment show."""

    end_offset: int
    end_position: int
    max_timestamp: int


def read_segments(log: UnifiedLog) -> tuple[list[SegmentFacts], int]:
    """Return the facts about every live segment, and the log end offset.

    After a clean shutdown a broker believes the last slot of each time index, zeros included.
    Otherwise it recovers the segments from the recovery point on and uses the timestamps of their
    batches, as it does for a segment without `.index`.

    Raises:
        UnreadableError: a log cannot be read.

    Cost:
        Two index lookups per segment; of recovered segments, and of the active one, the batches
        after the last entry of the offset index.
    """
    segments = log.segments
    first_recovered = _first_recovered(log)
    snapshots = {
        entry.name.offset: entry.size_bytes
        for entry in log.partition.live(FileKind.PRODUCER_SNAPSHOT)
    }
    found, end_offset = [], log.log_start_offset
    for number, segment in enumerate(segments):
        with OpenSegment(segment) as opened:
            # A missing `.index` makes a start scan the segment, even after a clean shutdown.
            if number >= first_recovered or segment.offset_index is None:
                tail = _read_tail(opened)
                found.append(_facts(segment, snapshots, tail.max_timestamp, tail))
                end_offset = tail.end_offset
            else:
                times = opened.time_index
                if times is None and not file_system.is_there(segment.log.path):
                    raise FileChangedError("The partition has moved.", path=segment.log.path)
                # A missing `.timeindex` becomes an empty one, and the file's time counts.
                timestamp = -1 if times is None else times.last_slot_timestamp()
                found.append(_facts(segment, snapshots, timestamp))
                if segment.is_active:
                    end_offset = opened.next_offset()
    return found, end_offset


def _first_recovered(log: UnifiedLog) -> int:
    """Return the ordinal of the first segment that the next start recovers, or their number."""
    if log.was_closed:
        return len(log.segments)
    recovery_point = log.checkpoint(file_names.RECOVERY_POINTS) or 0
    return log.floor_segment(recovery_point) or 0


def _facts(
    segment: Segment, snapshots: dict[int | None, int], timestamp: int, tail: _Tail | None = None
) -> SegmentFacts:
    source = TimestampSource.TIME_INDEX if tail is None else TimestampSource.BATCHES
    # LogSegment.largestTimestamp: also for empty segments and magic 0.
    if timestamp < 0:
        timestamp, source = segment.log.modified_timestamp, TimestampSource.MTIME
    indexes: tuple[FileEntry | None, ...] = (
        segment.offset_index,
        segment.time_index,
        segment.transaction_index,
    )
    return SegmentFacts(
        base_offset=segment.base_offset,
        size_bytes=segment.log.size_bytes if tail is None else tail.end_position,
        max_timestamp=timestamp,
        timestamp_source=source,
        side_bytes=sum(entry.size_bytes for entry in indexes if entry is not None)
        + snapshots.get(segment.base_offset, 0),
        path=segment.log.path,
    )


def _read_tail(opened: OpenSegment) -> _Tail:
    """Return what recovery finds, up to the first byte that is not a batch.

    The time index is updated with each entry of the offset index, so if both exist, the batches
    before the last entry need not be read.
    """
    offsets, times = opened.offset_index, opened.time_index
    largest, position = -1, 0
    if offsets is not None and offsets.entry_count and times is not None and times.entry_count:
        last = offsets.entry(offsets.entry_count - 1)
        # Kafka's search must find it, too: in a damaged index it may end elsewhere.
        if opened.index_entry(last.offset) == last:
            largest, position = _covered(times, offsets), last.position
    end_offset = opened.segment.base_offset
    for found in scan_batches(opened.source, position):
        if isinstance(found, Defect):
            # Recovery cuts there: what follows is not part of the log.
            break
        largest = max(largest, found.max_timestamp)
        end_offset = found.next_offset
        position = found.position + found.size_bytes
    return _Tail(end_offset, position, largest)


def _covered(times: TimeIndex, offsets: OffsetIndex) -> int:
    """Return the largest timestamp in the time index up to the last entry of the offset index."""
    last_offset = offsets.entry(offsets.entry_count - 1).offset
    for number in range(times.entry_count - 1, -1, -1):
        entry = times.entry(number)
        if entry.offset <= last_offset:
            return entry.timestamp
    return -1


def find_latest_record(segment: Segment, facts: SegmentFacts) -> LatestRecord | None:
    """Find the record of a segment's largest timestamp; None if missing or unreadable.

    Cost:
        Reads the batches around the last entry of the time index, or the whole segment without one.
    """
    if facts.timestamp_source == TimestampSource.MTIME:
        return None
    try:
        with OpenSegment(segment) as opened:
            for batch in _batches_with(opened, facts.max_timestamp):
                for record in decode_records(opened.source, batch):
                    if record.timestamp == facts.max_timestamp:
                        return LatestRecord(record.offset, record.timestamp, batch.position)
    except CHANGES:
        raise  # a new listing knows more
    except DataError:
        pass
    return None


def _batches_with(opened: OpenSegment, timestamp: int) -> Iterator[Batch]:
    """Yield batches whose largest timestamp is this one, from where the indexes point."""
    start = 0
    if opened.time_index is not None:
        entry = opened.time_index.lookup(timestamp)
        if entry is not None and entry.timestamp == timestamp:
            before = opened.index_entry(entry.offset - 1)
            start = before.position if before is not None else 0
    for found in scan_batches(opened.source, start):
        if isinstance(found, Batch) and found.max_timestamp == timestamp:
            yield found


@dataclass(frozen=True, slots=True)
class PartitionRetention:
    """The result of retention in one partition.

    Attributes:
        configs: every config that had an effect, with its source.
        marks: log start offset and high watermark, with their sources.
        policy: the policies that the configs set.
        outcome: what is deleted now, and what is left.
        verdicts: one per segment, by base offset.
        now_ms: the clock that was used.
        topic_configs: all configs of the topic.
        remote: what is deleted from remote storage; None without a tier.
    """

    _row = (
        "partition.path", "partition.topic", "partition.partition", "partition.state",
        "log.log_end_offset", "log.size_bytes", "freed_bytes", "freed_side_bytes",
        "log_start_offset_after", "outcome.rolled",
    )  # fmt: skip

    partition: PartitionDir
    configs: tuple[ConfigValue, ...]
    marks: tuple[LogOffset, ...]
    log: LogFacts
    policy: Policy
    outcome: Outcome
    verdicts: tuple[Verdict, ...]
    now_ms: int
    topic_configs: TopicConfigs
    remote: RemoteRetention | None = None

    @property
    def log_start_offset_after(self) -> int:
        """The first readable offset afterwards."""
        log = self.outcome.log
        return log.log_start_offset if self.remote is None else self.remote.log_start_offset

    @property
    def freed_bytes(self) -> int:
        """Size of the `.log` files that are deleted now."""
        return sum(deletion.segment.size_bytes for deletion in self.outcome.deleted)

    @property
    def freed_side_bytes(self) -> int:
        """Size of the indexes and producer snapshots that are deleted with them."""
        return sum(deletion.segment.side_bytes for deletion in self.outcome.deleted)


@about_a_partition
def judge_partition(
    partition: PartitionDir,
    configs: TopicConfigs,
    now_ms: int,
    *,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
) -> PartitionRetention:
    """Predict what a broker would delete at `now_ms`, when and why, or what prevents it.

    Args:
        configs: the configs of its topic, from `ConfigSources`.
        high_watermark: overrides the checkpoint's: an offset, or `end`.
        log_start_offset: overrides the checkpoint's.

    Raises:
        UnreadableError: a log cannot be read.
        CorruptDataError: a config is not valid.

    Cost:
        A few index lookups per segment, and the tail of the active one; no log is scanned.
    """
    segments, end_offset = read_segments(UnifiedLog(partition))
    marks = UnifiedLog(
        partition,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
    ).offsets
    log = LogFacts(
        segments=tuple(segments),
        log_start_offset=marks.log_start_offset.known,
        high_watermark=marks.high_watermark.known,
        log_end_offset=end_offset,
    )
    policy, used = policy_of(partition, configs)
    outcome = run_policies(log, policy, now_ms)
    verdicts = judge_segments(log, policy, outcome, now_ms)
    remote, start = None, marks.log_start_offset
    if partition.tier is not None and _has_remote_storage(partition, configs):
        noted = marks.log.checkpoint(file_names.LOG_STARTS) or 0
        noted = noted if log_start_offset is None else log_start_offset
        whole = replace(log, log_start_offset=noted)
        total = Policy(
            retention_ms=configs.number("retention.ms"),
            retention_bytes=configs.number("retention.bytes"),
            highest_remote_is_local=configs.release.highest_remote_is_local,
        )
        remote = judge_remote(
            partition.tier,
            tuple((one.leader_epoch, one.start_offset) for one in marks.log.leader_epochs),
            whole,
            total,
            now_ms,
            raised_to=None if policy.is_tiered else outcome.log.log_start_offset,
        )
        if remote.started_at != noted:
            start = replace(start, value=remote.started_at, source=OffsetSource.REMOTE)
        elif log_start_offset is None:
            start = replace(start, value=noted, source=OffsetSource.CHECKPOINT)
    return PartitionRetention(
        partition=partition,
        configs=used,
        marks=(start, marks.high_watermark),
        log=log,
        policy=policy,
        outcome=outcome,
        verdicts=tuple(_explained(partition.segments, verdicts, policy, log, now_ms)),
        now_ms=now_ms,
        topic_configs=configs,
        remote=remote,
    )


def policy_of(
    partition: PartitionDir, configs: TopicConfigs
) -> tuple[Policy, tuple[ConfigValue, ...]]:
    """Return a partition's policies by its configs, and the configs that were looked up."""
    names = ["cleanup.policy", "retention.ms", "retention.bytes"]
    cleanup = configs.words("cleanup.policy")
    is_compacted = "compact" in cleanup
    deletes = "delete" in cleanup
    inert = None
    if is_compacted:
        names.append("log.cleaner.enable")
        # Compacted topics get their retention from the cleaner's threads alone (LogCleaner).
        if not configs["log.cleaner.enable"].value:
            inert = Reason.CLEANER_DISABLED
    if partition.topic == CLUSTER_METADATA:
        inert = Reason.METADATA_LOG
    elif partition.state not in (DirectoryState.LIVE, DirectoryState.FUTURE):
        inert = Reason.NOT_LIVE
    time, size = "retention.ms", "retention.bytes"
    is_tiered = False
    if _has_remote_storage(partition, configs):
        names += ["remote.storage.enable", "remote.log.copy.disable"]
        if not configs["remote.log.copy.disable"].value:
            is_tiered = True
            # UnifiedLog.deleteOldSegments: with remote copies an empty policy deletes by local
            # retention.
            deletes = deletes or not cleanup
            time, size = _local(configs, time, names), _local(configs, size, names)
    policy = Policy(
        deletes=deletes,
        retention_ms=configs.number(time),
        retention_bytes=configs.number(size),
        is_tiered=is_tiered,
        remote_end=None if partition.tier is None else partition.tier.end_offset,
        inert=inert,
    )
    return policy, tuple(configs[name] for name in names)


def _has_remote_storage(partition: PartitionDir, configs: TopicConfigs) -> bool:
    """Return whether the topic is tiered; the config counts only on brokers with remote storage."""
    system = "remote.log.storage.system.enable"
    return (
        bool(configs["remote.storage.enable"].value)
        and (bool(configs[system].value) or not configs.is_set(system))
        and "compact" not in configs.words("cleanup.policy")
        and partition.topic not in INTERNAL_TOPICS
    )


def _local(configs: TopicConfigs, name: str, names: list[str]) -> str:
    """Return the name of the config that limits the local part of the log."""
    local = f"local.{name}"
    names.append(local)
    # -2: as the whole log.
    return name if configs.number(local) == -2 else local


def _explained(
    segments: Sequence[Segment], verdicts: list[Verdict], policy: Policy, log: LogFacts, now_ms: int
) -> list[Verdict]:
    """Return the verdicts with descriptions, and with the record that keeps a segment, if any."""
    in_the_way = {verdict.blocking_segment for verdict in verdicts}
    found = []
    for segment, verdict in zip(segments, verdicts, strict=True):
        facts = verdict.segment
        is_timed = policy.inert is None and policy.deletes and policy.retention_ms >= 0
        is_odd = facts.max_timestamp > now_ms or facts.base_offset in in_the_way
        if is_timed and is_odd and not verdict.is_deleted and facts.size_bytes:
            record = find_latest_record(segment, facts)
            verdict = replace(verdict, latest_record=record)
        found.append(replace(verdict, detail=detail_of(verdict, policy, log, now_ms)))
    return found
