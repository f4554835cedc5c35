"""A plan of `retention` over several paths, and the checks of a broker one after another.

Follows `LogManager.startupWithConfigOverrides` and `LogCleaner.CleanerThread` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from formats.late_classes import dataclass
from kafkalog.change.retention.model import Deletion, Policy, Reason
from kafkalog.change.retention.partition import PartitionRetention, judge_partition
from kafkalog.change.retention.verdicts import expires_at, run_policies
from kafkalog.errors import UsageError, contained, raised
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir
from kafkalog.io.rows import Rows
from kafkalog.io.times import clock_ms
from kafkalog.node.configs import ConfigsAround, ConfigSources, ConfigValue, LogDirConfigs
from kafkalog.node.remote_logs import joined
from kafkalog.node.targets import open_targets, unlisted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalog.errors import Event, OnEvent
    from kafkalog.files.log_dir import AnyPath
    from kafkalog.io.times import Time
    from kafkalog.node.targets import Target


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a broker looks at a log.

    Attributes:
        runner: `retention`, or `cleaner` for a compacted topic.
        first_ms: the first check.
        interval_ms: from one check to the next; a cleaner's are later while it cleans.
        configs: the configs that say so, with their sources.
    """

    runner: str
    first_ms: int
    interval_ms: int
    configs: tuple[ConfigValue, ...]

    def at_or_after(self, moment_ms: int) -> int:
        """Return the first check at or after a moment."""
        missed = max(0, moment_ms - self.first_ms)
        return self.first_ms + -(-missed // self.interval_ms) * self.interval_ms


@dataclass(frozen=True, slots=True)
class Check:
    """A check that deletes something.

    Attributes:
        number: its ordinal, from 1.
        at_ms: when it is.
        removal_timestamp: when the files are removed that it renames to `.deleted`.
        deleted: the segments, in order.
    """

    number: int
    at_ms: int
    removal_timestamp: int
    deleted: tuple[Deletion, ...]

    def late_by_ms(self, deletion: Deletion, policy: Policy) -> int:
        """Return for how long `retention.ms` had allowed a deletion; 0 for other policies."""
        if deletion.reason != Reason.RETENTION_MS:
            return 0
        return self.at_ms - expires_at(deletion.segment, policy)


def schedule_of(found: PartitionRetention) -> Schedule:
    """Return when a broker that starts at the time of the prediction looks at a partition."""
    configs = found.topic_configs
    if "compact" in configs.words("cleanup.policy"):
        backoff = configs["log.cleaner.backoff.ms"]
        # The cleaner's thread deletes in each of its loops; 0 would be a loop without a pause.
        interval = max(configs.number("log.cleaner.backoff.ms"), 1)
        return Schedule("cleaner", found.now_ms, interval, (backoff,))
    names = ("log.initial.task.delay.ms", "log.retention.check.interval.ms")
    delay, interval = map(configs.number, names)
    used = tuple(configs[name] for name in names)
    return Schedule("retention", found.now_ms + delay, interval, used)


def checks_of(found: PartitionRetention, until_ms: int) -> tuple[Schedule, list[Check]]:
    """Return the checks up to a moment that delete something, if nothing is appended.

    Cost:
        A run of the policies per check that deletes something, however many there are in between.
    """
    schedule, policy, log = schedule_of(found), found.policy, found.log
    delay = found.topic_configs.number("file.delete.delay.ms")
    checks: list[Check] = []
    at = schedule.first_ms
    while at <= until_ms:
        outcome = run_policies(log, policy, at)
        if outcome.deleted:
            number = (at - schedule.first_ms) // schedule.interval_ms + 1
            checks.append(Check(number, at, at + delay, outcome.deleted))
        log = outcome.log
        if not policy.deletes or policy.retention_ms < 0 or not log.segments or outcome.rolled:
            break  # nothing else changes with time
        due = expires_at(log.segments[0], policy)
        if due <= at and not outcome.deleted:
            break  # something other than time keeps it
        # Checks in between delete nothing, so they are not run.
        at = schedule.at_or_after(max(due, at + 1))
    return schedule, checks


def simulate_retention(
    *targets: AnyPath,
    configs: Mapping[str, str] | ConfigSources | None = None,
    now: Time | None = None,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
    on_event: OnEvent | None = None,
) -> Rows[PartitionRetention]:
    """Predict what a broker's retention would delete, when and why, or what prevents it.

    Args:
        targets: log directories and partitions; of tiers among them, what was uploaded.
        configs: configs of topics by name, or their sources.
        now: the broker's clock; None for the current time.
        high_watermark: overrides the checkpoint's: an offset, or `end`.
        log_start_offset: overrides the checkpoint's.
        on_event: is passed everything reported besides the results; without it the first failure is
            raised.

    Returns:
        The result for each partition that has a log.

    Raises:
        UsageError: a target is a file.
        KafkaLogError: see `judge_partition`.
    """
    found = judged_partitions(
        *targets,
        configs=configs,
        now_ms=clock_ms(now),
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        hear=on_event or raised,
    )
    return Rows(found, PartitionRetention)


def judged_partitions(
    *targets: AnyPath,
    configs: Mapping[str, str] | ConfigSources | None,
    now_ms: int,
    hear: Callable[[Event], object],
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
) -> Iterator[PartitionRetention]:
    """Yield what `simulate_retention` returns, one partition after another."""
    opened = joined(open_targets(targets, hear=hear))
    around = ConfigsAround(ConfigSources.of(configs), (one.path for one in opened))
    heard: set[LogDirConfigs] = set()
    for target in opened:
        for partition in _partitions(target, hear):
            found = None
            with contained(partition.path, hear):
                inner = around.of_log_dir_of(partition.path)
                if inner not in heard:
                    heard.add(inner)
                    for event in inner.events():
                        hear(event)
                found = judge_partition(
                    partition,
                    inner.of_topic(partition.topic),
                    now_ms,
                    high_watermark=high_watermark,
                    log_start_offset=log_start_offset,
                )
            if found is not None:
                yield found


def _partitions(target: Target, hear: Callable[[Event], object]) -> Iterator[PartitionDir]:
    if isinstance(target, FileEntry):
        error = UsageError(
            "This is a file, not a partition or log directory.",
            path=target.path,
            hint="Retention judges all segments of a partition together.",
        )
        hear(error)
        return
    for _, why in unlisted_of([target]):
        hear(why)
    for partition in target.partitions if isinstance(target, LogDirListing) else (target,):
        if partition.segments:
            yield partition
