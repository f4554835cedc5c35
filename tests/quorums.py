"""Copies of a cluster's metadata on nodes, written batch by batch, with what may befall them."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from formats.constants import CONTROL_MASK
from formats.message_schema import schema
from kafkalog.node.cluster_image.snapshot import snapshot_batches
from tests.builders import BASE_TIME, batch, record, write_log
from tests.metadata_logs import value_of
from tests.nodes import CLUSTER, METADATA, uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

NOBODY = "A" * 22
Epochs = "Sequence[tuple[int, int]]"
"""The epochs of a log, each with the offset at which it ends."""


def listed(voters: Iterable[int]) -> list[dict[str, Any]]:
    return [
        {
            "voterId": one, "voterDirectoryId": uuid(one),
            "endpoints": [{"name": "CONTROLLER", "host": f"node{one}", "port": 9093}],
            "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
        }
        for one in voters
    ]  # fmt: skip


def control(delta: int, kind: int, name: str, fields: dict[str, Any]) -> bytes:
    value = schema(name, 0).build({"version": 0, **fields})
    return record(delta, struct.pack(">hh", 0, kind), value)


def elected(offset: int, epoch: int, leader: int, voters: Iterable[int], *, static: bool) -> bytes:
    """Build the batch with which an epoch begins: its leader, and the first time the voters."""
    voters = [*voters]
    ids = [{"voterId": one} for one in voters]
    change = {"leaderId": leader, "voters": ids, "grantingVoters": [{"voterId": leader}]}
    records = [control(0, 2, "LeaderChangeMessage", change)]
    if not static:
        records.append(control(1, 5, "KRaftVersionRecord", {"kRaftVersion": 1}))
        records.append(control(2, 6, "VotersRecord", {"voters": listed(voters)}))
    time = BASE_TIME + epoch
    return batch(
        offset, records, attributes=CONTROL_MASK, epoch=epoch, base_time=time, max_time=time
    )


def epoch_batches(
    epochs: Epochs,
    voters: Iterable[int] = (1, 2, 3),
    *,
    static: bool = False,
    mark: str = "",
) -> list[bytes]:
    """Build a log: each epoch begins with its leader, then has a topic in each batch.

    Args:
        epochs: the epochs, each with its end.
        voters: of the quorum; the leader of an epoch is one of them.
        static: whether the voters are known by their ids alone.
        mark: what topics of the last epoch are called, to tell two logs of one epoch apart.
    """
    voters, batches, offset = [*voters], [], 0
    for epoch, end in epochs:
        leader = voters[epoch % len(voters)]
        batches.append(elected(offset, epoch, leader, voters, static=static))
        offset += 1 if static else 3
        while offset < end:
            name = f"t{offset}{mark if epoch == epochs[-1][0] else ''}"
            topic = value_of("TopicRecord", name=name, topicId=uuid(offset % 99 + 100))
            time = BASE_TIME + 1000 * epoch + offset
            records = [record(0, None, topic)]
            batches.append(batch(offset, records, epoch=epoch, base_time=time, max_time=time))
            offset += 1
    return batches


def snapshot(voters: Iterable[int] | None = (1, 2, 3)) -> bytes:
    """Build a snapshot, with voters that are not static."""
    level = value_of("FeatureLevelRecord", name="metadata.version", featureLevel=30)
    batches = [*snapshot_batches([level], BASE_TIME)]
    if voters is not None:
        records = [
            control(0, 5, "KRaftVersionRecord", {"kRaftVersion": 1}),
            control(1, 6, "VotersRecord", {"voters": listed(voters)}),
        ]
        batches.insert(1, batch(0, records, attributes=CONTROL_MASK))
    data, offset = b"", 0
    for one in batches:
        data += offset.to_bytes(8, "big") + one[8:]
        offset += int.from_bytes(one[23:27], "big") + 1
    return data


def write_copy(
    root: Path,
    node: int,
    batches: Sequence[bytes],
    snapshots: Iterable[tuple[int, int]] = (),
    *,
    epoch: int | None,
    directory: int | None = None,
    voters: Iterable[int] | None = (1, 2, 3),
    cluster: str = CLUSTER,
    start: int = 0,
) -> Path:
    """Write the log directory of a node; return it.

    Args:
        root: the directory that it is written below.
        node: its id.
        batches: of its log.
        snapshots: end and epoch of each.
        epoch: the one in `quorum-state`; None for none.
        directory: number of the directory id; that of the node by default.
        voters: those in snapshots; None if they are static.
        cluster: id of the cluster.
        start: the first offset of the log.
    """
    log_dir = root / f"n{node}"
    directory_id = uuid(node if directory is None else directory)
    write_log(log_dir / METADATA, *batches, name=f"{start:020}")
    lines = [
        "version=1",
        f"cluster.id={cluster}",
        f"node.id={node}",
        f"directory.id={directory_id}",
    ]
    (log_dir / "meta.properties").write_text("\n".join([*lines, ""]))
    for end, of_epoch in snapshots:
        name = f"{end:020}-{of_epoch:010}.checkpoint"
        (log_dir / METADATA / name).write_bytes(snapshot(voters))
    if epoch is not None:
        write_state(log_dir, epoch)
    return log_dir


def write_state(log_dir: Path, epoch: int) -> None:
    fields = {"leaderId": -1, "leaderEpoch": epoch, "votedId": -1, "votedDirectoryId": NOBODY,
              "data_version": 1}  # fmt: skip
    text = json.dumps(fields, separators=(",", ":"))
    (log_dir / METADATA / "quorum-state").write_text(text)
