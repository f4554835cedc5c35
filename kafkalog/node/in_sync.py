"""Up to where a leader that starts again would find a partition replicated.

Follows `Partition.maybeIncrementLeaderHW` of Kafka: the high watermark of a leader is the
smallest log end of the copies that the metadata say are in sync, unless they are fewer than
`min.insync.replicas`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from formats.file_names import DirectoryState
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.files.log_dir import PartitionDir, list_partition
from kafkalog.files.text_files import properties_of
from kafkalog.node.identity import image_of, newest_metadata, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.text_files import MetaProperties
    from kafkalog.node.cluster_image import ClusterImage
    from kafkalog.node.cluster_image.model import Partition

_TOPIC: Final = 2
_BROKER: Final = 4
_MIN_IN_SYNC: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class InSync:
    """The smallest log end of the copies that are in sync; None with the reason if unknown."""

    end: int | None = None
    reason: str = ""


def in_sync(partition: PartitionDir, end_of: Callable[[PartitionDir], int]) -> InSync:
    """Return up to where the copies that are in sync have the log of a live partition.

    Args:
        partition: one of them; the others are looked for in the log directories of its run.
        end_of: returns the log end offset of a directory as it was listed.

    Cost:
        Reads the metadata log once, and the end of each copy.
    """
    own = properties_of(partition.log_dir)
    if own is None or own.node_id is None:
        return InSync(reason="no meta.properties says whose copy this is")
    image = _newest_image(partition, own.cluster_id)
    if isinstance(image, str):
        return InSync(reason=image)
    topic_id = topic_id_of(partition) or image.topics.get(partition.topic)
    found = image.partition(topic_id or "", partition.partition or 0)
    if found is None:
        return InSync(reason="the metadata do not know the partition")
    # A leader is elected of the only one that may have all of it.
    nodes = found.isr or (found.elr if len(found.elr) == 1 else ())
    if own.node_id not in nodes:
        return InSync(reason="the metadata do not say that this copy is in sync")
    needed = min(_min_in_sync(image, partition.topic, own.node_id), len(found.replicas))
    if len(nodes) < needed:
        return InSync(reason=f"{len(nodes)} in sync, {_MIN_IN_SYNC} is {needed}")
    ends = []
    for node in nodes:
        copy = partition if node == own.node_id else _copy(partition, found, node, own, topic_id)
        if copy is None:
            return InSync(reason=f"the copy of node {node}, in sync, is not in PATH")
        try:
            ends.append(end_of(copy))
        except DataError:
            return InSync(reason=f"the copy of node {node}, in sync, cannot be read")
    return InSync(min(ends))


def _log_dirs(partition: PartitionDir) -> Iterator[str]:
    yield from dict.fromkeys((partition.log_dir, *partition.log_dirs))


def _newest_image(partition: PartitionDir, cluster_id: str | None) -> ClusterImage | str:
    """Return the image of the cluster's newest metadata log, or why it says nothing."""
    found = []
    for log_dir in _log_dirs(partition):
        node = properties_of(log_dir)
        if node is not None and node.cluster_id == cluster_id:
            with suppress(DataError):
                found.append(list_partition(os.path.join(log_dir, f"{CLUSTER_METADATA}-0")))
    newest = newest_metadata(found)
    if newest is None:
        return "no metadata log in PATH says which copies are in sync"
    image = image_of(newest)
    if image is None or not image.is_whole:
        return f"{newest.path} is damaged or incomplete"
    return image


def _min_in_sync(image: ClusterImage, topic: str, node: int | None) -> int:
    """Return how many copies a leader wants in sync, as far as the metadata say."""
    for resource in ((_TOPIC, topic), (_BROKER, str(node)), (_BROKER, "")):
        value = image.configs.get(resource, {}).get(_MIN_IN_SYNC, "")
        if value.isdecimal():
            return int(value)
    return 1


def _copy(
    partition: PartitionDir, found: Partition, node: int, own: MetaProperties, topic_id: str | None
) -> PartitionDir | None:
    """Return the copy of a node; None if it is not in a log directory of the run."""
    assigned = dict(zip(found.replicas, found.directories, strict=False)).get(node)
    copies = []
    for log_dir in _log_dirs(partition):
        other = properties_of(log_dir)
        if other is None or (other.node_id, other.cluster_id) != (node, own.cluster_id):
            continue
        with suppress(DataError):
            copy = list_partition(os.path.join(log_dir, os.path.basename(partition.path)))
            if copy.state == DirectoryState.LIVE and topic_id_of(copy) in (topic_id, None):
                copies.append((other.directory_id == assigned, copy))
    copies.sort(key=lambda one: one[0])
    return copies[-1][1] if copies else None
