"""What becomes of brokers' partitions when a quorum goes on from the log that counts.

Follows `LogManager.isStrayKraftReplica`, `PartitionChangeBuilder` and `DirectoryId` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import UsageError
from kafkalog.files.log_dir import LogDirListing
from kafkalog.files.text_files import properties_of
from kafkalog.node.recovery.node_start import Hosting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.files.log_dir import Target
    from kafkalog.node.cluster_image import ClusterImage
    from kafkalog.node.cluster_image.model import Partition
    from kafkalog.node.quorum.quorum import Quorum

_ANYWHERE: Final = ("A" * 22, "A" * 21 + "Q")
"""`DirectoryId.MIGRATING` and `UNASSIGNED`: whatever log directory the broker has."""


class StrayPartition(NamedTuple):
    """A partition directory that its broker gives up once it has the cluster's metadata.

    Attributes:
        node_id: the broker.
        topic, partition: by the name of the directory.
        path: where it is.
        size_bytes: of its files.
        reason: what the metadata say.
    """

    node_id: int
    topic: str
    partition: int
    path: str
    size_bytes: int
    reason: str


class OfflinePartition(NamedTuple):
    """A partition that has no leader, as no replica in sync is here: but by an unclean election.

    Attributes:
        topic, partition: its name.
        in_sync: node ids of the replicas in sync and of the eligible ones, none of them here.
        here: node ids of the replicas that are here, and may lack records.
    """

    topic: str
    partition: int
    in_sync: tuple[int, ...]
    here: tuple[int, ...]


class Consequences(NamedTuple):
    """What becomes of the partitions of brokers whose log directories are here.

    Attributes:
        strays: by broker and directory.
        offline: by name.
    """

    strays: tuple[StrayPartition, ...]
    offline: tuple[OfflinePartition, ...]

    @property
    def stray_bytes(self) -> int:
        """The size of all strays."""
        return sum(one.size_bytes for one in self.strays)


def consequences(quorum: Quorum, targets: Sequence[Target]) -> Consequences | None:
    """Return what becomes of partitions; None if no log directory of a broker is here.

    Args:
        quorum: what is left of it.
        targets: the log directories, with all of their partitions.

    Raises:
        UsageError: one is of another cluster.

    Cost:
        Reads the metadata from the newest snapshot on, and the topic id of each partition.
    """
    if quorum.metadata is None:
        return None
    image = quorum.metadata.image
    log_dirs: dict[int, list[LogDirListing]] = {}
    directory_ids: dict[int, set[str | None]] = {}
    for one in targets:
        node = properties_of(one.path) if isinstance(one, LogDirListing) else None
        if not isinstance(one, LogDirListing) or node is None or node.node_id not in image.brokers:
            continue
        if node.cluster_id != quorum.cluster_id:
            words = f"It is of cluster {node.cluster_id}; the metadata are of {quorum.cluster_id}."
            raise UsageError(words, path=one.path)
        log_dirs.setdefault(node.node_id, []).append(one)
        directory_ids.setdefault(node.node_id, set()).add(node.directory_id)
    if not log_dirs:
        return None
    strays = [
        stray
        for node_id in sorted(log_dirs)
        for stray in _strays(Hosting(node_id, image), log_dirs[node_id])
    ]
    return Consequences(tuple(strays), tuple(sorted(_offline(image, directory_ids))))


def _strays(hosting: Hosting, log_dirs: Iterable[LogDirListing]) -> Iterator[StrayPartition]:
    for partition in (one for log_dir in log_dirs for one in log_dir.partitions):
        if (reason := hosting.stray_reason(partition)) is not None:
            number, size = partition.partition or 0, partition.size_bytes
            yield StrayPartition(
                hosting.node_id, partition.topic, number, partition.path, size, reason
            )


def _offline(
    image: ClusterImage, directory_ids: Mapping[int, set[str | None]]
) -> Iterator[OfflinePartition]:
    for topic_id, partitions in image.partitions.items():
        for number, one in partitions.items():
            here = tuple(node for node in one.replicas if _is_here(one, node, directory_ids))
            in_sync = tuple(dict.fromkeys((*one.isr, *one.elr)))
            if not {*here} & {*in_sync}:
                yield OfflinePartition(image.names[topic_id], number, in_sync, here)


def _is_here(
    partition: Partition, node_id: int, directory_ids: Mapping[int, set[str | None]]
) -> bool:
    """Return whether the log directory that has a replica is here."""
    assigned = partition.directories[partition.replicas.index(node_id)]
    known = directory_ids.get(node_id, ())
    return bool(known) and (assigned in _ANYWHERE or assigned in known or None in known)
