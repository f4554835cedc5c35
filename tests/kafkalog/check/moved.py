"""Partitions that, by the metadata of the cluster, do not belong to the broker."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING

from tests.builders import batch, copy_tree, frames, record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOREIGN = "hPk5UTdUQhK8GdCZGLpcnA"


def foreign(name: str) -> Callable[[Path], None]:
    """Return an edit that adds a partition with the topic id of another cluster."""

    def edit(root: Path) -> None:
        copy_tree(root / "txn-0", root / name)
        (root / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {FOREIGN}")

    return edit


def move_replica(root: Path, partition: str, node: int) -> None:
    """Append a `PartitionChangeRecord` to the log of the cluster's metadata."""
    topic_id = (root / partition / "partition.metadata").read_text().partition("topic_id: ")[2]
    identity = base64.urlsafe_b64decode(f"{topic_id.strip()}==")
    value = bytes((1, 5, 0)) + struct.pack(">i", int(partition.rpartition("-")[2])) + identity
    replicas = bytes((2,)) + struct.pack(">i", node)
    tags = ((0, replicas), (1, struct.pack(">i", node)), (2, replicas))  # in sync, leader, all
    value += bytes((len(tags),))
    for tag, data in tags:
        value += bytes((tag, len(data))) + data
    log = max((root / "__cluster_metadata-0").glob("*.log"))
    data = log.read_bytes()
    position, _ = frames(data)[-1]
    base, epoch = struct.unpack_from(">q", data, position)[0], data[position + 12 : position + 16]
    offset = base + struct.unpack_from(">i", data, position + 23)[0] + 1
    leader_epoch = int.from_bytes(epoch, "big")
    log.write_bytes(data + batch(offset, [record(value=value)], epoch=leader_epoch))
