"""The output of `groups` and `transactions`: what coordinators have in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType
from kafkalog_cli.output.text import Tone, tone_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.node.state.coordinators import Coordinator
    from kafkalog.node.state.model import Group, Member, OffsetChange, OffsetLag
    from kafkalog.node.state.transactions import OpenData, TransactionalId
    from kafkalog_cli.output.objects import Style, View


@dataclass(frozen=True)
class ShownGroup:
    """A group, with the lag of all its offsets; None if an end offset is not known."""

    group: Group
    lag: int | None


@dataclass(frozen=True)
class ShownMember:
    """A member and the name of its group."""

    group: str
    member: Member


GROUP: Final = ObjectType[ShownGroup](
    "group",
    "`groups`",
    "A group as its coordinator has it.",
    Field("group_id", k.TEXT, "", "group.name"),
    Field("group_type", k.TEXT, "`classic`, `consumer`, `share` or `streams`", "group.kind"),
    Field("state", k.TEXT, "`Empty`, `Stable`, `Assigning`, `Reconciling`, `NotReady`; a classic "
                         "group's rebalance is not on disk", "group.state"),
    Field("group_epoch", k.INT, "or generation of a classic group; −1 with offsets only",
          "group.group_epoch"),
    Field("protocol", k.TEXT | None, "assignor of a classic group", "group.protocol"),
    Field("members", k.INT, "", lambda one: len(one.group.members)),
    Field("offsets", k.INT, "committed, without open transactions",
          "group.offsets.committed_count"),
    Field("lag", k.INT | None, "sum; null if an end offset is unknown"),
    Field("coordinator", k.INT, "its partition of `__consumer_offsets`", "group.coordinator"),
    Field("undecoded_records", k.INT, "records that do not decode", "group.undecoded_records"),
)  # fmt: skip
MEMBER: Final = ObjectType[ShownMember](
    "group_member",
    "`groups --group`",
    "A member of a group.",
    Field("group_id", k.TEXT, "", "group"),
    Field("member_id", k.TEXT, "", "member.member_id"),
    Field("instance_id", k.TEXT | None, "of a static member", "member.instance_id"),
    Field("client_id", k.TEXT, "", "member.client_id"),
    Field("host", k.TEXT, "", "member.host"),
    Field("member_epoch", k.INT | None, "null in a classic group", "member.member_epoch"),
    Field("assigned", k.ARRAY, "partitions such as `orders-0`, with the topic id if the name is "
                             "unknown; active tasks of a streams group, such as `0_2`",
          lambda one: list(one.member.assigned)),
)  # fmt: skip
OFFSET: Final[ObjectType[OffsetLag]] = ObjectType(
    "group_offset",
    "`groups`",
    "A committed offset of a group.",
    Field("group_id", k.TEXT, "", "commit.group"),
    Field("topic", k.TEXT, "", "commit.topic"),
    Field("partition", k.INT, "", "commit.partition"),
    Field("offset", k.INT | None, "null if compaction may have removed the commit that counted; a "
                                "share group's start",
          "commit.offset"),
    Field("log_end_offset", k.INT | None, "high watermark, with `--at TIME` the first offset with "
                                        "a later timestamp; null if the partition is not in PATH"),
    Field("lag", k.INT | None, "offsets from `offset` to `log_end_offset`, with markers and gaps, "
                             "less those that a share group is done with"),
    Field("outside", k.TEXT | None, "of its log, how"),
    Field("leader_epoch", k.INT, "of the last record consumed, −1 if unknown",
          "commit.leader_epoch"),
    Field("metadata", k.TEXT, "what the client added", "commit.metadata"),
    Field("commit_timestamp", k.TIME, "by the coordinator's clock", "commit.commit_timestamp"),
    Field("expire_timestamp", k.TIME | None, "if the client said so", "commit.expire_timestamp"),
    Field("pending", k.BOOL, "belongs to an open transaction, so does not count yet",
          "commit.is_pending"),
    Field("producer_id", k.INT | None, "of that transaction", "commit.producer_id"),
    Field("coordinator", k.INT, "its partition of `__consumer_offsets`", "commit.coordinator"),
    Field("record_offset", k.INT, "of its record there", "commit.record_offset"),
    Field("exact", k.BOOL, "false if compaction may have removed the commit that counted then",
          "commit.is_exact"),
    Field("complete", k.BOOL, "false if the coordinator's log could not be read completely",
          "commit.is_complete"),
)  # fmt: skip
CHANGE: Final = ObjectType[Any](
    "group_offset_change",
    "`groups --since`",
    "A committed offset that differs between two moments.",
    Field("change", k.TEXT, "`added`, `removed` or `changed`"),
    Field("group_id", k.TEXT, "", "group"),
    Field("topic", k.TEXT, ""),
    Field("partition", k.INT, ""),
    Field("before", k.INT | None, "at `--since`"),
    Field("after", k.INT | None, "now, or at `--at`"),
    Field("commit_timestamp", k.TIME | None, "of the later one"),
)
COORDINATOR: Final = ObjectType[Any](
    "coordinator",
    "`groups --group`, `transactions --transactional-id`",
    "The partition that coordinates a group, a transactional id or a share partition.",
    Field("of", k.TEXT, "`group`, `transactional-id` or `share-group`"),
    Field("key", k.TEXT, "what is hashed"),
    Field("topic", k.TEXT, ""),
    Field("partition", k.INT, ""),
    Field("partitions", k.INT, "of the topic"),
    Field("partitions_source", k.TEXT, "`metadata`, or `directories`: the largest number + 1",
          "counted"),
    Field("paths", k.ARRAY, "its replicas in PATH"),
)  # fmt: skip


def group_view(style: Style) -> View[ShownGroup]:
    return GROUP.view(
        style,
        Column("GROUP", "group_id", least=12, tone=lambda _: Tone.NAME),
        Column("STATE", "state", weight=9),
        Column("MEMBERS", "members", weight=9),
        Column("OFFSETS", "offsets", weight=9),
        Column("LAG", "lag", weight=9),
        Column("TYPE", "group_type", weight=8),
        Column("EPOCH", lambda one: max(one.group.group_epoch, 0) or None, right=True, weight=6),
        Column("COORDINATOR", lambda one: f"__consumer_offsets-{one.group.coordinator}", weight=7),
    )


def member_view(style: Style) -> View[ShownMember]:
    return MEMBER.view(
        style,
        Column("GROUP", "group_id", least=12),
        Column("MEMBER", "member_id", least=12),
        Column("INSTANCE", "instance_id", least=12),
        Column("CLIENT", "client_id", least=12),
        Column("HOST", "host"),
        Column("EPOCH", "member_epoch"),
        Column("ASSIGNED", lambda one: ", ".join(one.member.assigned) or None, least=12),
    )


def offset_view(style: Style) -> View[OffsetLag]:
    return OFFSET.view(
        style,
        Column("GROUP", "group_id", least=12),
        Column("TOPIC", "topic", least=12),
        Column("PARTITION", "partition"),
        Column("OFFSET", "offset"),
        Column("END", "log_end_offset"),
        Column("LAG", "lag"),
        Column("COMMITTED", "commit_timestamp"),
        Column("METADATA", "metadata", least=12),
        Column("NOTES", _notes, below=True, tone=lambda _: Tone.DOUBTFUL),
    )


def change_view(style: Style) -> View[OffsetChange]:
    return CHANGE.view(
        style,
        Column("CHANGE", "change", tone=lambda one: tone_of(one.change)),
        Column("GROUP", "group_id", least=12),
        Column("TOPIC", "topic", least=12),
        Column("PARTITION", "partition"),
        Column("BEFORE", "before"),
        Column("AFTER", "after"),
        Column("COMMITTED", "commit_timestamp"),
    )


def coordinator_view(style: Style) -> View[Coordinator]:
    return COORDINATOR.view(
        style,
        Column("OF", "of"),
        Column("KEY", "key", least=12),
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition"),
        Column("PARTITIONS", "partitions"),
        Column("PATHS", lambda one: ", ".join(one.paths) or None, least=12),
    )


def _notes(one: OffsetLag) -> str:
    notes = [] if one.outside is None else [one.outside]
    if one.commit.is_pending:
        notes.append(f"open transaction of producer {one.commit.producer_id}")
    if not one.commit.is_exact:
        notes.append("older commits may be gone")
    if not one.commit.is_complete:
        notes.append("coordinator's log is damaged or missing")
    return "; ".join(notes)


def _names(partitions: Sequence[tuple[str, int]]) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in partitions]


def _transaction_notes(one: TransactionalId) -> str:
    notes = []
    if not one.is_exact:
        notes.append("older states may be gone")
    if not one.is_complete:
        notes.append("coordinator's log is damaged or missing")
    if one.marked:
        where = ", ".join(_names(one.marked))
        notes.append(f"marker is already in {where}: brokers before 4.2 may refuse it again, and "
                      "the id stays in this state (KAFKA-19999)")  # fmt: skip
    return "; ".join(notes)


TRANSACTIONAL_ID: Final = ObjectType[Any](
    "transactional_id",
    "`transactions`",
    "A transactional id as its coordinator has it.",
    Field("transactional_id", k.TEXT, "", "name"),
    Field("producer_id", k.INT, ""),
    Field("producer_epoch", k.INT, ""),
    Field("state", k.TEXT, "`Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, "
          "`CompleteAbort`, `Dead`, `PrepareEpochFence`, `Unknown(N)`, or `Unknown` if compaction "
          "may have removed all that was known then"),
    Field("timeout_ms", k.INT, "of the producer"),
    Field("start_timestamp", k.TIME, "of its transaction, −1 without one"),
    Field("last_update_timestamp", k.TIME, "last change of state"),
    Field("topic_partitions", k.ARRAY, "of its transaction", lambda one: _names(one.partitions)),
    Field("marked_topic_partitions", k.ARRAY, "those that have its marker already",
          lambda one: _names(one.marked)),
    Field("coordinator", k.INT, "its partition of `__transaction_state`"),
    Field("record_offset", k.INT, "of its record there"),
    Field("exact", k.BOOL, "false if compaction may have removed the state that counted then",
          "is_exact"),
    Field("complete", k.BOOL, "false if the coordinator's log could not be read completely",
          "is_complete"),
)  # fmt: skip


def _started(one: OpenData) -> int | None:
    """When it began, if its coordinator's transaction is this one."""
    owner = one.owner
    if owner is None or (one.topic, one.partition) not in owner.partitions:
        return None
    return owner.start_timestamp if owner.start_timestamp >= 0 else None


OPEN_TRANSACTION: Final = ObjectType[Any](
    "open_transaction",
    "`transactions`",
    "A transaction that is open in a partition: read_committed consumers stop at it.",
    Field("topic", k.TEXT, ""),
    Field("partition", k.INT, ""),
    Field("path", k.TEXT, ""),
    Field("first_offset", k.INT, "", "open.first_offset"),
    Field("producer_id", k.INT, "", "open.producer_id"),
    Field("producer_epoch", k.INT, "", "open.producer_epoch"),
    Field("coordinator_epoch", k.INT, "of the producer's last marker, −1 without one",
          "open.coordinator_epoch"),
    Field("last_timestamp", k.RECORD_TIME, "of the producer's last batch", "open.last_timestamp"),
    Field("transactional_id", k.TEXT | None, "null if no coordinator in PATH knows it",
          lambda one: None if one.owner is None else one.owner.name),
    Field("state", k.TEXT | None, "its coordinator's state",
          lambda one: None if one.owner is None else one.owner.state),
    Field("start_timestamp", k.TIME | None, "by its coordinator's clock", _started),
    Field("hanging", k.TEXT | None, "why its coordinator will not end it"),
)  # fmt: skip


def id_view(style: Style) -> View[TransactionalId]:
    return TRANSACTIONAL_ID.view(
        style,
        Column("TRANSACTIONAL ID", "transactional_id", least=12),
        Column("STATE", "state"),
        Column("PRODUCER", "producer_id"),
        Column("EPOCH", "producer_epoch"),
        Column("UPDATED", "last_update_timestamp"),
        Column("PARTITION", "coordinator"),
        Column("WROTE TO", lambda one: ", ".join(_names(one.partitions)), least=12),
        Column("NOTES", _transaction_notes, below=True),
    )


def open_view(style: Style) -> View[OpenData]:
    return OPEN_TRANSACTION.view(
        style,
        Column("OPEN IN", lambda one: f"{one.topic}-{one.partition}", least=12, keeps_end=True),
        Column("FROM", "first_offset"),
        Column("PRODUCER", "producer_id"),
        Column("EPOCH", "producer_epoch"),
        Column("SINCE", "start_timestamp"),
        Column("LAST WRITE", "last_timestamp"),
        Column("TRANSACTIONAL ID", "transactional_id", least=12),
        Column(
            "HANGS",
            lambda one: one.hanging or "no",
            least=12,
            tone=lambda one: Tone.BAD if one.hanging else None,
        ),
    )
