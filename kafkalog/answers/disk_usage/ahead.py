"""What lies ahead of some partitions: growth, retention, compaction, and the end of the disk.

Growth: the indexes lead to the batches around each hour; only those are read. Bytes that compaction
or retention has removed since do not count, nor do batches dated after the clock.

The end of the disk: existing segments are deleted when `retention` says so. What is
appended from now on stays for `retention.ms`, or until `retention.bytes` balances it. Compaction is
not counted on.
"""

from __future__ import annotations

import os
from dataclasses import field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from formats.constants import INT64_MAX
from formats.file_names import DirectoryState
from formats.late_classes import dataclass
from kafkalog.answers.disk_usage.model import HOUR_MS, HOURS, Disk, OverLimit, Usage
from kafkalog.change.compaction.candidates import find_candidate
from kafkalog.change.compaction.model import CompactionRequest
from kafkalog.change.retention import PartitionRetention, forecast
from kafkalog.change.retention.model import Reason
from kafkalog.change.retention.simulation import judged_partitions
from kafkalog.errors import contained
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.living import about_a_partition
from kafkalog.model import Batch
from kafkalog.node.targets import partitions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.errors import Listener
    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.node.configs import ConfigSources
    from kafkalog.node.targets import Target


@about_a_partition
def growth_of(partition: PartitionDir, now_ms: int) -> tuple[int, ...]:
    """Return the bytes appended in each of the last hours before a time, oldest first.

    A batch counts in the hour of the largest timestamp up to it in its segment, as in the index.
    A segment without any timestamp counts when its file was modified.

    Raises:
        UnreadableError: a log cannot be read.

    Cost:
        Per segment the last entry of its time index; per hour that it touches a search of both
        indexes and about `index.interval.bytes` of the log.
    """
    hours = [0] * HOURS
    start = now_ms - HOURS * HOUR_MS
    for segment in partition.segments:
        with OpenSegment(segment) as opened:
            largest, _ = opened.largest_timestamp(recovered=segment.is_active)
            # `LogSegment.largestTimestamp` takes the time of the file, too, if no batch has a
            # timestamp.
            if largest < 0:
                _add_undated(hours, segment, start)
            elif largest > start:
                _add(hours, opened, start, largest)
    return tuple(hours)


def _add(hours: list[int], opened: OpenSegment, start: int, largest: int) -> None:
    before = _bytes_up_to(opened, start)
    for hour in range(HOURS):
        end = start + (hour + 1) * HOUR_MS
        after = _bytes_up_to(opened, end) if end < largest else _end_of(opened)
        hours[hour] += max(0, after - before)
        before = max(before, after)  # timestamps may go back, bytes do not
        if end >= largest:
            return


def _end_of(opened: OpenSegment) -> int:
    entry = opened.index_entry(INT64_MAX)
    position = entry.position if entry is not None else 0
    for found in scan_batches(opened.source, position):
        if isinstance(found, Batch):
            position = found.end_position
    return position


def _add_undated(hours: list[int], segment: Segment, start: int) -> None:
    hour = (segment.log.modified_timestamp - start - 1) // HOUR_MS
    if 0 <= hour < HOURS:
        hours[hour] += segment.log.size_bytes


def _bytes_up_to(opened: OpenSegment, timestamp: int) -> int:
    position = 0
    times = opened.time_index
    entry = None if times is None or not times.entry_count else times.lookup(timestamp)
    if entry is not None and (indexed := opened.index_entry(entry.offset)) is not None:
        position = indexed.position
    for found in scan_batches(opened.source, position):
        if not isinstance(found, Batch):
            continue
        if found.max_timestamp > timestamp:
            return found.position
        position = found.end_position
    return position


_HORIZON_MS: Final = 10 * 365 * 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Change:
    """A change of what a log occupies, or of how fast it grows.

    Attributes:
        at_ms: when.
        size_bytes: how much is added at once; negative if it is deleted.
        rate: how much faster it grows from then on, bytes per millisecond.
    """

    at_ms: int
    size_bytes: int = 0
    rate: float = 0.0


def changes_of(found: PartitionRetention, growth: tuple[int, ...]) -> Iterator[Change]:
    """Yield how the size of a log changes, if it grows on as it did."""
    now, policy = found.now_ms, found.policy
    rate = sum(growth) / (HOURS * HOUR_MS)
    yield Change(now, -found.freed_bytes - found.freed_side_bytes, rate)
    is_limited = policy.inert is None and policy.deletes
    # The log stops growing once retention deletes as much as is appended: at retention.bytes, or
    # when what is appended now is older than retention.ms.
    balanced_at = None
    kept = [one for one in found.verdicts if not one.is_deleted]
    if rate and is_limited and kept and kept[0].remaining_bytes is not None:
        balanced_at = now + round(kept[0].remaining_bytes / rate)
    ends = [balanced_at]
    if is_limited and policy.retention_ms >= 0:
        ends.append(now + policy.retention_ms)
    end = min((one for one in ends if one is not None), default=None)
    if end is not None:
        yield Change(end, 0, -rate)
    for verdict in kept:
        at = verdict.deletable_timestamp
        # From the balance on, what is deleted is what is appended: the old segments are already in
        # it.
        if at is not None and at > now and (balanced_at is None or at <= balanced_at):
            yield Change(at, -verdict.segment.size_bytes - verdict.segment.side_bytes)


def _time(change: Change) -> int:
    return change.at_ms


def full_at(free_bytes: int, changes: Iterable[Change], now_ms: int) -> int | None:
    """Return when nothing is free any more, milliseconds; None if not within ten years."""
    free, rate, at = float(free_bytes), 0.0, now_ms
    for time, together in groupby(sorted(changes, key=_time), key=_time):
        needed = rate * (time - at)
        if free <= needed and time > at:
            break
        free, at = free - needed, time
        for change in together:
            free, rate = free - change.size_bytes, rate + change.rate
        if free <= 0:
            return at
    if free <= 0:
        return at
    if rate <= 0 or free / rate > _HORIZON_MS:
        return None
    return at + round(free / rate)


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
            disk: object = log_dir if is_own else file_system.status(log_dir).st_dev
            groups.setdefault(disk, []).append(log_dir)
        return [self._disk(log_dirs, used, disk_bytes) for log_dirs in groups.values()]

    def _disk(self, log_dirs: list[str], used: Mapping[str, int], disk_bytes: int | None) -> Disk:
        occupied = sum(used[one] for one in log_dirs)
        free = None
        if disk_bytes is not None:
            free = disk_bytes - occupied
        elif not is_object(log_dirs[0]):
            status = os.statvfs(log_dirs[0])
            # f_bavail, not f_bfree: a broker has no use of the blocks that are reserved for root.
            free = status.f_bavail * status.f_frsize
        here = [one for one in self.outlooks if one.log_dir in log_dirs]
        changes = [change for one in here for change in one.changes]
        return Disk(
            tuple(log_dirs),
            occupied,
            free,
            sum(one.usage.hourly_growth_bytes or 0 for one in here),
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
        until_ms: the end of what is counted as freed later.
        configs: as for `simulate_retention`.
        listener: receives the failure of a partition, which is left out.
        progress: called with the number of partitions done, and of all.

    Cost:
        That of `simulate_retention`, of `growth_of`, and of `find_candidate` for compacted topics.
    """
    ahead = Ahead(now_ms)
    judged = judged_partitions(*targets, configs=configs, now_ms=now_ms, hear=listener.hear)
    total = sum(1 for _ in partitions_of(targets))
    for number, found in enumerate(judged, 1):
        progress(number, total)
        with contained(found.partition.path, listener.hear):
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
        growth_bytes=growth,
        freed_now_bytes=found.freed_bytes + found.freed_side_bytes,
        freed_later_bytes=sum(day.freed_bytes for day in days),
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
