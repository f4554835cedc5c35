"""Which partitions a broker is to have: the directory of any other becomes a stray at its start.

Follows `LogManager.loadLog` and `LogManager.isStrayKraftReplica` of Kafka 4.3.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from formats import file_names
from kafkalog import places
from kafkalog.cluster_image import read_cluster_image
from kafkalog.errors import KafkaLogError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC
from kafkalog.metadata_files import read_meta_properties, read_topic_id
from kafkalog.names import DirectoryState

if TYPE_CHECKING:
    from kafkalog.cluster_image import ClusterImage
    from kafkalog.log_dir import LogDir, PartitionDir

_LOADED: Final = (DirectoryState.LIVE, DirectoryState.FUTURE)


@dataclass(frozen=True, slots=True)
class Hosting:
    """The assignments of a cluster, as one of its brokers sees them.

    Attributes:
        node_id: the broker.
        image: what the cluster's metadata says.
    """

    node_id: int
    image: ClusterImage

    def stray_reason(self, partition: PartitionDir) -> str | None:
        """Why the start makes a stray of the directory; None if it does not.

        As for Kafka, the topic id counts and not the name. Also None where the metadata could not
        be read to the end: what is missing in it proves nothing.
        """
        is_judged = partition.state in _LOADED and partition.topic != CLUSTER_METADATA_TOPIC
        if not is_judged or not self.image.is_whole:
            return None
        path = os.path.join(partition.path, file_names.PARTITION_METADATA)
        if not places.exists(path):
            return f"it has no {file_names.PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(path)
        except KafkaLogError:
            return None  # the log cannot be loaded at all
        if topic_id in self.image.removed:
            return f"the topic with id {topic_id} was deleted"
        if topic_id not in self.image.topics.values():
            return f"the cluster's metadata has no topic with id {topic_id}"
        replicas = self.image.replicas.get((topic_id, partition.partition or 0))
        if replicas is None:
            return f"the topic has no partition {partition.partition} in the cluster's metadata"
        if self.node_id not in replicas:
            nodes = ", ".join(map(str, replicas)) or "no node"
            return f"its replicas are on {nodes}, not on node {self.node_id}"
        return None


def read_hosting(log_dir: LogDir, metadata_dir: LogDir | None = None) -> Hosting | None:
    """What `meta.properties` of a log directory and the cluster's metadata say.

    Args:
        log_dir: the directory.
        metadata_dir: the log directory that holds `__cluster_metadata-0`; None: the same.

    Returns:
        None where one of them is missing or does not say enough, as in a directory of ZooKeeper's
        times.

    Cost:
        That of `read_cluster_image`.
    """
    entry = log_dir.file(file_names.META_PROPERTIES)
    if entry is None or entry.error is not None:
        return None
    try:
        node_id = read_meta_properties(entry.path).node_id
    except KafkaLogError:
        return None
    image = None if node_id is None else read_cluster_image(metadata_dir or log_dir)
    return None if node_id is None or image is None else Hosting(node_id, image)
