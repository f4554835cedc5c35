"""The checks of a broker: when it looks at a log again, and what it deletes then.

Follows `LogManager.startupWithConfigOverrides` and `LogCleaner.CleanerThread` of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.retention.model import Deletion, Reason
from kafkalog.retention.verdicts import expires_at, run_policies

if TYPE_CHECKING:
    from kafkalog.configs import ConfigValue
    from kafkalog.retention.model import Policy
    from kafkalog.retention.simulate import PartitionRetention


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
        removed_ms: when the files are removed that it renames to `.deleted`.
        deleted: the segments, in order.
    """

    number: int
    at_ms: int
    removed_ms: int
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
        at = schedule.at_or_after(max(due, at + 1))
    return schedule, checks
