"""What a broker's retention would do with a partition, read from its directory; nothing is written.

Follows `LogManager.cleanupLogs`, `LogCleaner.deleteExpiredSegments` and `UnifiedLog` of Kafka 4.3
in which logs are looked after, and by which policies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from kafkalog.log_dir import CLUSTER_METADATA_TOPIC
from kafkalog.marks import Mark, Marks
from kafkalog.names import DirectoryState
from kafkalog.retention.facts import find_latest_record, read_segments
from kafkalog.retention.model import LogFacts, Outcome, Policy, Reason, Verdict
from kafkalog.retention.policies import run_policies
from kafkalog.retention.verdicts import judge_segments
from kafkalog.retention.wording import detail_of
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.configs import ConfigValue, TopicConfigs
    from kafkalog.log_dir import PartitionDir, Segment

_INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True, slots=True)
class PartitionRetention:
    """What retention comes to in one partition.

    Attributes:
        partition: the directory.
        configs: every config that decided, with its source.
        marks: log start offset and high watermark, with their sources.
        log: the log as it is.
        policy: what the configs come to.
        outcome: what goes now, and what is left.
        verdicts: one a segment, by base offset.
        now_ms: the clock that was used.
    """

    partition: PartitionDir
    configs: tuple[ConfigValue, ...]
    marks: tuple[Mark, ...]
    log: LogFacts
    policy: Policy
    outcome: Outcome
    verdicts: tuple[Verdict, ...]
    now_ms: int

    @property
    def bytes_freed(self) -> int:
        """Bytes of the `.log` files that go now."""
        return sum(deletion.segment.size_bytes for deletion in self.outcome.deleted)

    @property
    def side_bytes_freed(self) -> int:
        """Bytes of the indexes and producer snapshots that go with them."""
        return sum(deletion.segment.side_bytes for deletion in self.outcome.deleted)


def simulate_retention(
    partition: PartitionDir,
    configs: TopicConfigs,
    now_ms: int,
    *,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
) -> PartitionRetention:
    """What a broker would delete of a partition at `now_ms`, why, when, and what blocks it.

    Args:
        partition: the directory.
        configs: of its topic, from `ConfigSources`.
        now_ms: the broker's clock, milliseconds.
        high_watermark: instead of the checkpoint's: an offset, or `end`.
        log_start_offset: instead of the checkpoint's.

    Raises:
        UnreadableError: a log cannot be read.
        CorruptDataError: a config is not valid.

    Cost:
        A few index lookups a segment, and the tail of the active one; no log is scanned.
    """
    segments, end_offset = read_segments(UnifiedLog(partition))
    marks = Marks(
        partition,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
    )
    log = LogFacts(
        segments=tuple(segments),
        log_start_offset=marks.log_start_offset.value or 0,
        high_watermark=marks.high_watermark.value or 0,
        log_end_offset=end_offset,
    )
    policy, used = policy_of(partition, configs)
    outcome = run_policies(log, policy, now_ms)
    verdicts = judge_segments(log, policy, outcome, now_ms)
    return PartitionRetention(
        partition=partition,
        configs=used,
        marks=(marks.log_start_offset, marks.high_watermark),
        log=log,
        policy=policy,
        outcome=outcome,
        verdicts=tuple(_explained(partition.segments, verdicts, policy, log, now_ms)),
        now_ms=now_ms,
    )


def policy_of(
    partition: PartitionDir, configs: TopicConfigs
) -> tuple[Policy, tuple[ConfigValue, ...]]:
    """What the configs come to for a partition, and those that were asked."""
    names = ["cleanup.policy", "retention.ms", "retention.bytes"]
    cleanup = configs.words("cleanup.policy")
    is_compacted = "compact" in cleanup
    deletes = "delete" in cleanup
    inert = None
    if is_compacted:
        names.append("log.cleaner.enable")
        if not configs["log.cleaner.enable"].value:
            inert = Reason.CLEANER_DISABLED
    if partition.topic == CLUSTER_METADATA_TOPIC:
        inert = Reason.METADATA_LOG
    elif partition.state not in (DirectoryState.LIVE, DirectoryState.FUTURE):
        inert = Reason.NOT_LIVE
    time, size = "retention.ms", "retention.bytes"
    is_tiered = False
    if _has_remote_storage(partition, configs):
        names += ["remote.storage.enable", "remote.log.copy.disable"]
        if not configs["remote.log.copy.disable"].value:
            is_tiered = True
            deletes = deletes or not cleanup
            time, size = _local(configs, time, names), _local(configs, size, names)
    policy = Policy(
        deletes=deletes,
        retention_ms=configs.number(time),
        retention_bytes=configs.number(size),
        is_tiered=is_tiered,
        inert=inert,
    )
    return policy, tuple(configs[name] for name in names)


def _has_remote_storage(partition: PartitionDir, configs: TopicConfigs) -> bool:
    """Whether the topic is tiered; a broker takes the config only where it has remote storage."""
    system = "remote.log.storage.system.enable"
    return (
        bool(configs["remote.storage.enable"].value)
        and (bool(configs[system].value) or not configs.is_set(system))
        and "compact" not in configs.words("cleanup.policy")
        and partition.topic not in _INTERNAL_TOPICS
    )


def _local(configs: TopicConfigs, name: str, names: list[str]) -> str:
    """The name of the config that limits what stays on this disk."""
    local = f"local.{name}"
    names.append(local)
    return name if configs.number(local) == -2 else local


def _explained(
    segments: Sequence[Segment],
    verdicts: list[Verdict],
    policy: Policy,
    log: LogFacts,
    now_ms: int,
) -> list[Verdict]:
    """The verdicts in words, with the record that keeps a segment where one record does."""
    in_the_way = {verdict.blocking_segment for verdict in verdicts}
    found = []
    for segment, verdict in zip(segments, verdicts, strict=True):
        facts = verdict.segment
        is_timed = policy.inert is None and policy.deletes and policy.retention_ms >= 0
        is_odd = facts.largest_timestamp > now_ms or facts.base_offset in in_the_way
        if is_timed and is_odd and not verdict.is_deleted and facts.size_bytes:
            record = find_latest_record(segment, facts)
            verdict = replace(verdict, latest_record=record)
        found.append(replace(verdict, detail=detail_of(verdict, policy, log, now_ms)))
    return found
