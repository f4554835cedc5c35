"""Whose directories they are: ids of topic, node and cluster, and a cluster's newest metadata."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.errors import DataError
from kafkalog.files.text_files import properties_of, read_topic_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.cluster_image import ClusterImage


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
