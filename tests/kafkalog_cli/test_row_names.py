"""The columns of the library's rows have the names of the command line's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.answers.search.scanning import Found
from kafkalog.change.audit.run import Audit
from kafkalog.change.compaction.run import CompactedPartition
from kafkalog.change.journal import PartitionUndo
from kafkalog.change.repair.rebuild import IndexComparison
from kafkalog.change.repair.run import RecoveredPartition
from kafkalog.change.retention.partition import PartitionRetention
from kafkalog.change.retention.run import TrimmedPartition
from kafkalog.change.roll.simulate import Trial
from kafkalog.check.comparison.model import Comparison
from kafkalog.files.log_dir import Segment
from kafkalog.io.rows import columns_of
from kafkalog.model import Batch, Defect, Record
from kafkalog.node.inventory import PartitionRow
from kafkalog.node.quorum.quorum import QuorumRecord, QuorumReplica
from kafkalog.node.quorum.rescue import RescueStep
from kafkalog.node.state.model import Group, GroupOffset
from kafkalog.node.state.transactions import TransactionalId
from kafkalog.tables.profiles.model import Profile
from kafkalog.wire.producing.model import Replayed
from kafkalog_cli.output import (
    compactions,
    compared,
    found,
    groups,
    listing,
    objects,
    profiles,
    quorums,
    records,
    repairs,
    replayed,
    retention,
    rolls,
    trims,
    undone,
)

if TYPE_CHECKING:
    from kafkalog_cli.output.objects import ObjectType

LISTED: list[tuple[type, ObjectType]] = [
    (Record, records.RECORD), (Batch, records.BATCH), (Defect, objects.DEFECT),
    (Found, found.FOUND), (Comparison, compared.COMPARISON), (Profile, profiles.PROFILE),
    (PartitionRow, listing.PARTITION), (Segment, listing.SEGMENT), (Group, groups.GROUP),
    (GroupOffset, groups.OFFSET), (TransactionalId, groups.TRANSACTIONAL_ID),
    (PartitionRetention, retention.RETENTION_PARTITION), (Trial, rolls.ROLL_SUMMARY),
    (Audit, compactions.AUDIT), (CompactedPartition, compactions.COMPACTION),
    (RecoveredPartition, repairs.RECOVERY), (IndexComparison, repairs.INDEX_COMPARISON),
    (TrimmedPartition, trims.RETENTION_APPLIED), (PartitionUndo, undone.UNDO),
    (Replayed, replayed.REPLAYED), (QuorumReplica, quorums.REPLICA),
    (QuorumRecord, quorums.RECORD), (RescueStep, quorums.STEP),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "row"), LISTED, ids=[row.name for _, row in LISTED])
def test_columns_are_fields_of_the_row(kind: type, row: ObjectType) -> None:
    """Each of them, so that what is learned here helps there."""
    assert set(columns_of(kind)) <= set(row.fields)
