"""Reads the copies of the cluster's metadata that nodes have, and compares them batch by batch."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from formats.file_names import QUORUM_STATE, FileKind
from kafkalog.errors import DataError, NotFoundError
from kafkalog.files.text_files import properties_of, read_quorum_state
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.log.defects import kind_of, make_defect
from kafkalog.node.quorum.lineage import Position
from kafkalog.node.quorum.log import read_log, read_snapshot
from kafkalog.node.quorum.model import QuorumState, Replica, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.quorum.compare import Conflict


def read_replica(
    partition: PartitionDir,
    misdated: Collection[int] = (),
    progress: Callable[[int], None] | None = None,
) -> Replica:
    """Read a node's copy of the cluster's metadata, with all checksums.

    Args:
        partition: its directory.
        misdated: base offsets of batches whose epochs other copies have shown to be wrong.
        progress: called with numbers of bytes as they are read.
    """
    log = read_log(partition, misdated, progress)
    snapshots = []
    for entry in partition.live(FileKind.KRAFT_SNAPSHOT):
        contents = read_snapshot(entry, progress)
        if contents is not None:
            standing = log.lineage.standing(Position.of(entry))
            snapshots.append(Snapshot(entry, contents, standing))
    node, state, defects = properties_of(partition.log_dir), None, []
    path = partition.place_of(QUORUM_STATE)
    try:
        state = QuorumState.of(read_quorum_state(path))
    except NotFoundError:
        pass  # what that leads to, the copy as a whole says
    except DataError as error:
        kind = kind_of(error)
        kind = "file-malformed" if kind == "file-unreadable" and error.exit_code != 3 else kind
        defects.append(make_defect(kind, path, error.message))
    return Replica(
        partition,
        None if node is None else node.cluster_id,
        None if node is None else node.node_id,
        None if node is None else node.directory_id,
        log,
        tuple(snapshots),
        state,
        tuple(defects),
        is_broker_running(partition.log_dir),
    )


def read_replicas(
    partitions: Sequence[PartitionDir], progress: Callable[[int], None] | None = None
) -> tuple[tuple[Replica, ...], tuple[Conflict, ...]]:
    """Read copies, each for itself and then against each other.

    Epochs of batches are in no checksum: where copies of a batch differ only in that, it counts as
    damage in those that are alone with theirs.

    Cost:
        Reads all bytes of the logs once, the headers once more.
    """
    replicas = [read_replica(one, (), progress) for one in partitions]
    if len(replicas) == 1:
        return tuple(replicas), ()
    from kafkalog.node.quorum.compare import compared  # with numpy

    wrong, conflicts = compared(replicas)
    for number, offsets in wrong.items():
        again = read_replica(replicas[number].partition, offsets, None)
        replicas[number] = replace(again, is_running=replicas[number].is_running)
    return tuple(replicas), conflicts


def place_of_state(replica: Replica) -> str:
    """Return where `quorum-state` is, or should be."""
    return os.path.join(replica.path, QUORUM_STATE)
