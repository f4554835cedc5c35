"""Whose directories they are: ids of topic, node and cluster, the release of the node's Kafka,
and a cluster's newest metadata.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import FileKind
from formats.releases import METADATA_VERSION, newest, release_of
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.files.log_dir import open_partition
from kafkalog.files.text_files import properties_of, read_topic_id
from kafkalog.io.paths import file_system

if TYPE_CHECKING:
    from collections.abc import Iterable

    from formats.releases import Release
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.cluster_image import ClusterImage
    from kafkalog.node.cluster_image.model import Node


def topic_id_of(partition: PartitionDir) -> str | None:
    """Return the id in `partition.metadata` or in the name of a tier's directory; None if none."""
    with suppress(DataError):  # `verify` reports it
        return stated_topic_id(partition)
    return None


def stated_topic_id(partition: PartitionDir) -> str:
    """Return what `topic_id_of` returns, or raise what keeps it from being known."""
    if partition.topic_id is not None:
        return partition.topic_id
    if partition.is_served and partition.name is not None and partition.name.uid:
        return partition.name.uid
    return read_topic_id(os.path.join(partition.path, file_names.PARTITION_METADATA))


def cluster_id_of(log_dir: str) -> str | None:
    """Return the id of the cluster in `meta.properties`; None without one."""
    found = properties_of(log_dir)
    return None if found is None else found.cluster_id


def release_of_node(image: ClusterImage | None, node_id: int | None) -> Release:
    """Return the release of Kafka that wrote a node's files, and starts on them.

    What the node supports, by its last registration, counts before the level that its cluster has
    finalized: that may stay low for long after an upgrade.

    Args:
        image: the metadata of its cluster; without any it is the newest release.
        node_id: its id, None if it is not known.
    """
    if image is None:
        return newest()
    nodes: list[Node | None] = []
    if node_id is not None:
        nodes = [image.brokers.get(node_id), image.controllers.get(node_id)]
    levels = [
        one.features[METADATA_VERSION][1]
        for one in nodes
        if one is not None and METADATA_VERSION in one.features
    ]
    level = max(levels, default=image.metadata_version)
    return newest() if level is None else release_of(level)


def release_around(partition: PartitionDir) -> Release:
    """Return the release of a partition's node, by the metadata log in one of its directories."""
    metadata, log_dir = partition, os.path.dirname(file_system.absolute(partition.path))
    if partition.topic != CLUSTER_METADATA:
        home = home_of(log_dir, partition.log_dirs)
        try:
            metadata = open_partition(os.path.join(home, f"{CLUSTER_METADATA}-0"))
        except DataError:  # none is there, or `verify` reports it
            return newest()
    node = properties_of(log_dir)
    return release_of_node(image_of(metadata), None if node is None else node.node_id)


def home_of(log_dir: str, log_dirs: Iterable[str]) -> str:
    """Return which of some log directories has the metadata log of a directory's node.

    It is the directory itself if it has one, or if none of the others has it.
    """
    others = [one for one in map(file_system.absolute, log_dirs) if one != log_dir]
    if not others or _has_metadata(log_dir) or (node := _node_of(log_dir)) is None:
        return log_dir
    homes = (one for one in others if _has_metadata(one) and _node_of(one) == node)
    return next(homes, log_dir)


def _has_metadata(log_dir: str) -> bool:
    return file_system.exists(os.path.join(log_dir, f"{CLUSTER_METADATA}-0"))


def _node_of(log_dir: str) -> tuple[str, int] | None:
    """Return the cluster and the node that a log directory names; None if it does not."""
    found = properties_of(log_dir)
    if found is None or found.cluster_id is None or found.node_id is None:
        return None
    return found.cluster_id, found.node_id


def is_formatted_only(partition: PartitionDir) -> bool:
    """Return whether it is a metadata log on which no node has started.

    Formatting writes a snapshot that ends before the log: voters, since 4.4 also levels of
    features and SCRAM users.
    """
    snapshots = [one for one in partition.files if one.name.kind == FileKind.KRAFT_SNAPSHOT]
    is_alone = bool(snapshots) and len(snapshots) == len(partition.files)
    is_before = not any(one.name.offset for one in snapshots)
    return partition.topic == CLUSTER_METADATA and is_alone and is_before


def newest_metadata(metadata: Iterable[PartitionDir]) -> PartitionDir | None:
    """Return the newest of a cluster's metadata logs: an older one may name what is deleted."""
    found = list(metadata)
    return max(found, key=_reached) if len(found) > 1 else next(iter(found), None)


@lru_cache(2)  # a plan and what follows it ask about the same files
def image_of(metadata: PartitionDir) -> ClusterImage | None:
    from kafkalog.node.cluster_image.reader import read_image

    return read_image(metadata)


@lru_cache(8)
def _reached(metadata: PartitionDir) -> tuple[int, int]:
    from kafkalog.node.cluster_image.reader import last_batch

    with suppress(DataError):
        found = last_batch(metadata)
        # A later leader epoch counts before a larger offset, as in KRaft's elections.
        return found.epoch, found.offset
    return -1, -1
