"""The partitions that a run over log directories means, and the best of several replicas."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkaLogError, UsageError
from kafkalog.living import about_a_log
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir
from kafkalog.names import DirectoryState, is_staging, parse_directory_name
from kafkalog.paths import file_system
from kafkalog.payloads.internal_topics import payload_kind
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from kafkalog.targets import Target

_NAMED_MAX: Final = 20  # topics in a hint


def live_partitions(targets: Sequence[Target]) -> Iterator[PartitionDir]:
    """Yield the partition directories that a broker would serve."""
    for target in targets:
        for partition in _partitions(target):
            if partition.name is not None and partition.state == DirectoryState.LIVE:
                yield partition


def _partitions(target: Target) -> Sequence[PartitionDir]:
    if isinstance(target, LogDirListing):
        return target.partitions
    return (target,) if isinstance(target, PartitionDir) else ()


def meant_partitions(
    targets: Sequence[Target],
    topics: Collection[str] | None = None,
    *,
    internal: bool = False,
    dead: bool = False,
) -> tuple[list[PartitionDir], list[PartitionDir]]:
    """Return the partitions that are meant, and those that are left out as internal.

    A partition directory is meant whatever it is called; of a log directory, what a broker would
    serve, without internal topics. Files are passed over.

    Args:
        targets: log directories and partition directories.
        topics: only these topics, which may be internal.
        internal: whether internal topics are meant, too.
        dead: whether directories are meant, too, that await their deletion, are stray or moving.
    """
    meant: list[PartitionDir] = []
    left_out: list[PartitionDir] = []
    for target in targets:
        is_named = isinstance(target, PartitionDir)
        for one in _partitions(target) if is_named or dead else live_partitions([target]):
            if not is_named and is_staging(os.path.basename(one.path)):
                continue  # left by a killed run of ours
            if topics is not None and one.topic not in topics:
                continue
            is_internal = payload_kind(one.topic) is not None
            is_meant = is_named or internal or topics is not None or not is_internal
            (meant if is_meant else left_out).append(one)
    return meant, left_out


def topics_of(targets: Iterable[Target]) -> set[str]:
    """Return the topics of targets, also of directories that could not be listed."""
    found: set[str] = set()
    for target in targets:
        found |= {partition.topic for partition in _partitions(target)}
        names: Iterable[str] = ()
        if isinstance(target, FileEntry):
            names = [os.path.dirname(file_system.absolute(target.path))]
        elif isinstance(target, LogDirListing):
            names = target.errors
        found |= {
            name.topic for one in names if (name := parse_directory_name(os.path.basename(one)))
        }
    return found


def require_topics(wanted: Collection[str] | None, present: Iterable[str]) -> None:
    """Raise `UsageError` if a wanted topic is not present: an empty answer would hide a typo."""
    topics = set(present)
    if missing := sorted({*(wanted or ())} - topics):
        known = sorted(topic for topic in topics if payload_kind(topic) is None)
        named = f"Topics are {', '.join(known[:_NAMED_MAX])}"
        raise UsageError(
            f"No partition of the topic {', '.join(missing)} is here.",
            hint=f"{named}{', …' if len(known) > _NAMED_MAX else ''}." if known else None,
        )


def best_replica(replicas: Sequence[PartitionDir]) -> PartitionDir:
    """Return the replica with the latest leader epoch, of those the one with the longest log.

    One that cannot be read is taken only if there is no other.
    """

    def rank(partition: PartitionDir) -> tuple[int, int]:
        try:
            return completeness(UnifiedLog(partition))
        except KafkaLogError:
            return (-2, -1)

    return replicas[0] if len(replicas) == 1 else max(replicas, key=rank)


def best_replicas(partitions: Sequence[PartitionDir]) -> list[PartitionDir]:
    """Return the best replica of each partition, in the order of their first replicas."""
    found: dict[tuple[str, int | None], list[PartitionDir]] = {}
    for one in partitions:
        found.setdefault((one.topic, one.partition), []).append(one)
    return [best_replica(replicas) for replicas in found.values()]


@about_a_log
def completeness(log: UnifiedLog) -> tuple[int, int]:
    """Return how complete a replica is: its latest leader epoch, and its log end offset."""
    return log.leader_epochs[-1].epoch if log.leader_epochs else -1, log.log_end_offset
