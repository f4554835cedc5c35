"""Copies of the cluster's metadata: their snapshots and epochs, and copies against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.file_names import DirectoryState
from formats.topic_names import CLUSTER_METADATA
from kafkalog.check.batches import copies_check
from kafkalog.check.identity import clusters_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.model import Defect


@copies_check
def quorums_are_sound(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """Snapshots belong to their logs, copies do not contradict each other, voters can go on."""
    for members in clusters_of(log_dirs):
        partitions = [
            one.directory
            for found in members
            for one in found.partitions
            if one.directory.topic == CLUSTER_METADATA
            and one.directory.state == DirectoryState.LIVE
            and one.is_judged
        ]
        if not partitions:
            continue
        # They load the schemas of control records.
        from kafkalog.node.quorum.findings import findings_of_quorum, torn_snapshots
        from kafkalog.node.quorum.quorum import quorum_of
        from kafkalog.node.quorum.read import read_replicas

        found = quorum_of(*read_replicas(partitions))
        yield from torn_snapshots(found)
        yield from findings_of_quorum(found)
