"""Which partition of an internal topic a name belongs to, and where its replicas lie.

Follows `GroupCoordinatorService.partitionFor`, `TransactionStateManager.partitionFor` and
`SharePartitionKey.asCoordinatorKey` of Kafka.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.node.choice import live_partitions
from kafkalog.node.cluster_image import read_cluster_image
from kafkalog.node.identity import topic_id_of
from kafkalog.node.targets import partitions_of, unlisted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.errors import DataError
    from kafkalog.files.log_dir import Target
    from kafkalog.node.cluster_image import ClusterImage

_INT_MIN: Final = 1 << 31
"""Java's smallest int, as an unsigned number."""


def partition_for(key: str, count: int) -> int:
    """Return the partition, of so many, that coordinates a group, a transactional id or a share.

    The absolute value of the key's `String.hashCode`, by `Utils.abs`, modulo the number of
    partitions.
    """
    number = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFFFFFF
    if number == _INT_MIN:
        return 0  # what `Utils.abs` makes of it
    return min(number, (1 << 32) - number) % count


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The replicas of an internal topic's partitions in some places.

    Attributes:
        name: of the topic.
        count: how many partitions it has.
        counted: by what that is known: `metadata`, or `directories` for the largest number + 1.
        replicas: partition to its directories, in the order of the places.
        topic_names: the ids of all topics that the metadata know, with their names.
        unlisted: partitions whose directories cannot be listed, with the errors.
    """

    name: str
    count: int
    counted: str
    replicas: dict[int, list[PartitionDir]]
    topic_names: dict[str, str]
    unlisted: dict[int, DataError] = field(default_factory=dict)

    @property
    def missing_count(self) -> int:
        """How many partitions have no directory here."""
        return self.count - len(self.replicas) - len(self.unlisted)

    def missing(self) -> Iterator[int]:
        """Yield the partitions without a directory here."""
        here = {*self.replicas, *self.unlisted}
        return (number for number in range(self.count) if number not in here)


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Where a name is coordinated.

    Attributes:
        of: kind of the name: `group`, `transactional-id` or `share-group`.
        key: what is hashed.
        topic: the internal topic.
        partition: of the internal topic.
        partitions: how many the topic has.
        counted: by what that is known, as in `InternalTopic`.
        paths: the replicas' directories.
    """

    of: str
    key: str
    topic: str
    partition: int
    partitions: int
    counted: str
    paths: tuple[str, ...]


def coordinators_of(of: str, keys: Sequence[str], topic: InternalTopic) -> Iterator[Coordinator]:
    """Yield where each key is coordinated, if it is known how many partitions the topic has."""
    for key in keys if topic.count else ():
        number = partition_for(key, topic.count)
        paths = tuple(replica.path for replica in topic.replicas.get(number, ()))
        yield Coordinator(of, key, topic.name, number, topic.count, topic.counted, paths)


def share_keys(
    group: str, is_meant: Callable[[str, int], bool], targets: Sequence[Target]
) -> list[str]:
    """Return the keys of partitions that a share group may read, in order.

    Args:
        is_meant: returns whether a partition of a topic is meant.
        targets: partitions there count, and those that a metadata log there knows.
    """
    found = {
        (one.topic, one.partition): topic_id_of(one)
        for one in partitions_of(targets)
        if one.is_served and one.partition is not None and is_meant(one.topic, one.partition)
    }
    for image in _images(targets):
        found |= {
            (topic, number): topic_id
            for topic, topic_id in image.topics.items()
            for number in image.partitions[topic_id]
            if is_meant(topic, number)
        }
    return [f"{group}:{uid}:{number}" for (_, number), uid in sorted(found.items()) if uid]


def _images(targets: Sequence[Target]) -> list[ClusterImage]:
    read = (read_cluster_image(one) for one in targets if isinstance(one, LogDirListing))
    return [image for image in read if image is not None]


def internal_topic(name: str, targets: Sequence[Target]) -> InternalTopic:
    """Find the replicas of an internal topic's partitions.

    The metadata log, where one of the places has it, says how many partitions there are.
    """
    replicas: dict[int, list[PartitionDir]] = {}
    for partition in live_partitions(targets, name):
        if (partition.partition or 0) >= 0:
            assert partition.partition is not None, "a live directory's name has a number"
            replicas.setdefault(partition.partition, []).append(partition)
    errors = {
        number: error
        for (topic, number), error in unlisted(targets).items()
        if topic == name and number is not None and number not in replicas
    }
    images = _images(targets)
    names = {topic_id: topic for image in images for topic_id, topic in image.names.items()}
    counts = [image.partition_count(name) for image in images]
    count = max((count for count in counts if count), default=None)
    if count is not None:
        # A topic never loses partitions: larger numbers are not its own.
        replicas = {number: found for number, found in replicas.items() if number < count}
        errors = {number: error for number, error in errors.items() if number < count}
        return InternalTopic(name, count, "metadata", replicas, names, errors)
    count = max((*replicas, *errors), default=-1) + 1
    return InternalTopic(name, count, "directories", replicas, names, errors)
