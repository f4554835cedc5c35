"""The metadata image: the topics, partitions and brokers that `__cluster_metadata-0` describes.

Follows `MetadataImage`, `PartitionRegistration.merge`, `ClusterControlManager` and
`MetadataBatchLoader` of Kafka 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kafkalog.batches.selection import Selection, plan_files, planned_records
from kafkalog.errors import KafkaLogError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC
from kafkalog.model import Defect, Severity
from kafkalog.names import DirectoryState, FileKind
from kafkalog.payloads.internal_topics import PayloadKind, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir

_NO_LEADER_CHANGE: Final = -2
# Frame version 1, then the type: register broker 0, topic 2, partition 3, its change 5, remove
# topic 9, transactions 23 to 25. The many others say nothing that the image holds.
_WANTED: Final = re.compile(rb"\A\x01[\x00\x02\x03\x05\x09\x17\x18\x19]")

T = TypeVar("T")


class MetadataTransactions(Generic[T]):
    """Holds back the records of a metadata transaction until it ends; drops them if it aborts."""

    def __init__(self) -> None:
        self._pending: list[T] | None = None

    def take(self, kind: str, change: T) -> Sequence[T]:
        """Add a record; return the changes that take effect with it."""
        if kind == "BEGIN_TRANSACTION_RECORD":
            self._pending = []
        elif kind in ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"):
            pending, self._pending = self._pending or [], None
            return pending if kind == "END_TRANSACTION_RECORD" else ()
        elif self._pending is not None:
            self._pending.append(change)
        else:
            return (change,)
        return ()


@dataclass
class BrokerRegistration:
    """The latest registration of a broker.

    Attributes:
        epoch: the broker epoch.
        directories: the ids of its log directories; empty if it registered none.
    """

    epoch: int
    directories: frozenset[str]


@dataclass
class ClusterImage:
    """The metadata of a cluster as far as one node had received it.

    Attributes:
        topics: name to topic id of the existing topics.
        removed: ids of the topics that the log deletes.
        leader_epochs: topic id and partition to the leader epoch, which only grows.
        replicas: topic id and partition to the node ids of its replicas.
        brokers: node id to registration.
        is_whole: whether the snapshot and the log could be read completely.
    """

    topics: dict[str, str] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    leader_epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    replicas: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    is_whole: bool = True

    @property
    def known(self) -> set[str]:
        """The ids of all topics that exist or existed."""
        return {*self.topics.values(), *self.removed}

    def partition_count(self, topic: str) -> int | None:
        """Return how many partitions a topic has, None if there is no such topic."""
        topic_id = self.topics.get(topic)
        if topic_id is None:
            return None
        return sum(1 for one, _ in self.leader_epochs if one == topic_id)

    def owners(self, directory_id: str | None) -> set[int]:
        """Return the ids of the nodes that registered a log directory."""
        return {node for node, one in self.brokers.items() if directory_id in one.directories}

    def apply(self, kind: str, data: dict[str, Any]) -> None:
        """Apply one record to the image."""
        if kind == "TOPIC_RECORD":
            self.topics[data["name"]] = data["topicId"]
        elif kind == "REMOVE_TOPIC_RECORD":
            self.removed.add(data["topicId"])
            self.topics = {n: i for n, i in self.topics.items() if i != data["topicId"]}
        elif kind == "PARTITION_RECORD":
            key = data["topicId"], data["partitionId"]
            self.leader_epochs[key] = data["leaderEpoch"]
            self.replicas[key] = data["replicas"]
        elif kind == "PARTITION_CHANGE_RECORD":
            key = data["topicId"], data["partitionId"]
            if data.get("leader", _NO_LEADER_CHANGE) != _NO_LEADER_CHANGE:
                self.leader_epochs[key] = self.leader_epochs.get(key, -1) + 1
            if data.get("replicas") is not None:
                self.replicas[key] = data["replicas"]
        elif kind == "REGISTER_BROKER_RECORD":
            directories = frozenset(data.get("logDirs") or ())
            self.brokers[data["brokerId"]] = BrokerRegistration(data["brokerEpoch"], directories)


def read_cluster_image(log_dir: LogDirListing) -> ClusterImage | None:
    """Read the image from a log directory: the newest snapshot, then the log after it.

    Records that cannot be read are skipped: the checks of batches report them.

    Returns:
        The image, or None if there is no `__cluster_metadata-0`, or if its log starts neither at
        offset 0 nor at a snapshot.

    Cost:
        Decodes the newest snapshot and the log after it: with Kafka's defaults at most an hour or
        20 MB of records.
    """
    directory = next(
        (
            partition
            for partition in log_dir.partitions
            if partition.topic == CLUSTER_METADATA_TOPIC and partition.state == DirectoryState.LIVE
        ),
        None,
    )
    if directory is None or not directory.segments:
        return None
    snapshots = directory.live(FileKind.KRAFT_SNAPSHOT)
    start = (snapshots[-1].name.offset or 0) if snapshots else 0
    if directory.segments[0].base_offset > start:
        return None
    image = ClusterImage()
    for entry in snapshots[-1:]:
        _apply(image, entry, Selection())
    _apply(image, directory, Selection(from_offset=start))
    return image


def _apply(image: ClusterImage, target: PartitionDir | FileEntry, selection: Selection) -> None:
    transactions = MetadataTransactions[tuple[str, dict[str, Any]]]()
    try:
        for record in planned_records(plan_files(target, selection)):
            if isinstance(record, Defect):
                image.is_whole &= record.severity == Severity.NOTE
            elif not record.batch.is_control and _WANTED.match(record.value or b""):
                value = decode(PayloadKind.CLUSTER_METADATA, record.key, record.value).value
                if value is not None:
                    change = value["type"], value["data"]
                    for kind, data in transactions.take(value["type"], change):
                        image.apply(kind, data)
    except KafkaLogError:
        image.is_whole = False
