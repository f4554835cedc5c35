"""What lies ahead of some partitions: growth, retention, compaction, and the end of the disk."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.compaction.candidates import find_candidate
from kafkalog.compaction.model import CompactionRequest
from kafkalog.disk_usage.full import Change, changes_of, full_at
from kafkalog.disk_usage.growth import growth_of
from kafkalog.disk_usage.model import HOURS, Disk, OverLimit, Usage
from kafkalog.errors import contained
from kafkalog.inventory import partitions_of
from kafkalog.names import DirectoryState
from kafkalog.paths.uris import is_object
from kafkalog.retention import forecast
from kafkalog.retention.model import Reason
from kafkalog.retention.simulation import simulate_retention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.configs import ConfigSources
    from kafkalog.listener import Listener
    from kafkalog.retention import PartitionRetention
    from kafkalog.targets import Target


@dataclass(frozen=True, slots=True)
class Outlook:
    """What lies ahead of one partition.

    Attributes:
        path, log_dir, topic, partition: its directory.
        usage: growth, and what is freed or dirty; no blocks.
        changes: how its size will change.
    """

    path: str
    log_dir: str
    topic: str
    partition: int | None
    usage: Usage
    changes: tuple[Change, ...]


@dataclass
class Ahead:
    """What lies ahead of all partitions.

    Attributes:
        now_ms: the clock.
        outlooks: one per partition with a log.
        over: those above their limits.
    """

    now_ms: int
    outlooks: list[Outlook] = field(default_factory=list)
    over: list[OverLimit] = field(default_factory=list)

    def disks(self, used: Mapping[str, int], disk_bytes: int | None) -> list[Disk]:
        """Return the disks of some log directories, and when they are full.

        Args:
            used: log directory to the bytes that it occupies.
            disk_bytes: size of the disk of each log directory; None for that of its file system,
                which several may share.
        """
        groups: dict[object, list[str]] = {}
        for log_dir in used:
            is_own = disk_bytes is not None or is_object(log_dir)
            groups.setdefault(log_dir if is_own else os.stat(log_dir).st_dev, []).append(log_dir)
        return [self._disk(log_dirs, used, disk_bytes) for log_dirs in groups.values()]

    def _disk(self, log_dirs: list[str], used: Mapping[str, int], disk_bytes: int | None) -> Disk:
        occupied = sum(used[one] for one in log_dirs)
        free = None
        if disk_bytes is not None:
            free = disk_bytes - occupied
        elif not is_object(log_dirs[0]):
            status = os.statvfs(log_dirs[0])
            free = status.f_bavail * status.f_frsize
        here = [one for one in self.outlooks if one.log_dir in log_dirs]
        changes = [change for one in here for change in one.changes]
        return Disk(
            tuple(log_dirs),
            occupied,
            free,
            sum(one.usage.growth_per_hour or 0 for one in here),
            None if free is None else full_at(free, changes, self.now_ms),
        )


def look_ahead(
    targets: Sequence[Target],
    *,
    now_ms: int,
    until_ms: int,
    configs: Mapping[str, str] | ConfigSources | None,
    listener: Listener,
    progress: Callable[[int, int], object] = lambda *_: None,
) -> Ahead:
    """Return what lies ahead of the partitions of targets.

    Args:
        targets: log directories and partitions.
        now_ms: the clock.
        until_ms: the end of what is counted as freed later.
        configs: as for `simulate_retention`.
        listener: receives the failure of a partition, which is left out.
        progress: called with the number of partitions done, and of all.

    Cost:
        That of `simulate_retention`, of `growth_of`, and of `find_candidate` for compacted topics.
    """
    ahead = Ahead(now_ms)
    judged = simulate_retention(*targets, configs=configs, now_ms=now_ms, listener=listener)
    total = sum(1 for _ in partitions_of(targets))
    for number, found in enumerate(judged, 1):
        progress(number, total)
        with contained(found.partition.path, listener.failed):
            ahead.outlooks.append(_outlook(found, until_ms))
            if (over := over_limit(found)) is not None:
                ahead.over.append(over)
    return ahead


def _outlook(found: PartitionRetention, until_ms: int) -> Outlook:
    partition = found.partition
    growth: tuple[int, ...] = (0,) * HOURS
    if partition.state == DirectoryState.LIVE:
        growth = growth_of(partition, found.now_ms)
    days = forecast(found.verdicts, found.now_ms, until_ms)
    usage = Usage(
        growth=growth,
        freed_now=found.bytes_freed + found.side_bytes_freed,
        freed_later=sum(day.bytes_freed for day in days),
        dirty_bytes=_dirty_bytes(found),
    )
    changes = tuple(changes_of(found, growth))
    return Outlook(
        partition.path, partition.log_dir, partition.topic, partition.partition, usage, changes
    )


def _dirty_bytes(found: PartitionRetention) -> int:
    if "compact" not in found.topic_configs.words("cleanup.policy"):
        return 0
    request = CompactionRequest(found.now_ms)
    candidate = find_candidate(found.partition, found.topic_configs, request)
    return 0 if candidate.cleanable is None else candidate.cleanable.cleanable_bytes


def over_limit(found: PartitionRetention) -> OverLimit | None:
    """Return by how much a partition is above its retention once that has run, and why."""
    kept = [one for one in found.verdicts if not one.is_deleted]
    blocked = [one for one in kept if one.reason == Reason.BLOCKED]
    over = sum(one.segment.size_bytes for one in blocked)
    why = blocked[0].detail if blocked else ""
    policy = found.policy
    if policy.inert is None and policy.deletes and policy.retention_bytes >= 0 and kept:
        above = found.outcome.log.size_bytes - policy.retention_bytes
        if above > over:
            over, why = above, why or kept[0].detail
    if over <= 0:
        return None
    partition = found.partition
    return OverLimit(partition.path, partition.topic, partition.partition, over, why)
