"""The output of `transactions`: transactional ids, and what is open in the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog_cli.output.objects import ARRAY, BOOL, INT, TEXT, TIME, Column, Field, ObjectType
from kafkalog_cli.output.tones import Tone

if TYPE_CHECKING:
    from kafkalog.state.transactions import OpenData, TransactionalId
    from kafkalog_cli.output.objects import Style, View


def _partitions(one: TransactionalId) -> list[str]:
    return [f"{topic}-{partition}" for topic, partition in one.partitions]


def _notes(one: TransactionalId) -> str:
    notes = []
    if not one.is_exact:
        notes.append("older states may be gone")
    if not one.is_complete:
        notes.append("coordinator's log is damaged")
    return "; ".join(notes)


TRANSACTIONAL_ID: Final = ObjectType[Any](
    "transactional_id",
    "`transactions`",
    "A transactional id as its coordinator has it.",
    Field("transactional_id", TEXT, "transactional id", "name"),
    Field("producer_id", INT, "its producer"),
    Field("producer_epoch", INT, "the producer's epoch"),
    Field("state", TEXT, "`Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, "
          "`CompleteAbort`, `Dead`, `PrepareEpochFence`, `Unknown(N)`, or `Unknown` if compaction "
          "may have removed all that was known then"),
    Field("timeout_ms", INT, "`transaction.timeout.ms` of the producer"),
    Field("started_at", TIME, "when its transaction began, −1 without one", "started_ms"),
    Field("updated_at", TIME, "when the state changed last", "updated_ms"),
    Field("partitions", ARRAY, "partitions that its transaction wrote to", _partitions),
    Field("coordinator", INT, "its partition of `__transaction_state`"),
    Field("record_offset", INT, "offset of its record there"),
    Field("exact", BOOL, "false if compaction may have removed the state that counted then",
          "is_exact"),
    Field("complete", BOOL, "false if the coordinator's log could not be read completely",
          "is_complete"),
)  # fmt: skip
OPEN_TRANSACTION: Final = ObjectType[Any](
    "open_transaction",
    "`transactions`",
    "A transaction that is open in a partition: read_committed consumers stop at it.",
    Field("topic", TEXT, "topic"),
    Field("partition", INT, "partition number"),
    Field("path", TEXT, "directory"),
    Field("first_offset", INT, "its first record", "open.first_offset"),
    Field("producer_id", INT, "its producer", "open.producer_id"),
    Field("producer_epoch", INT, "the producer's epoch", "open.producer_epoch"),
    Field("coordinator_epoch", INT, "of the coordinator that wrote the producer's last marker, −1 "
          "without one", "open.coordinator_epoch"),
    Field("last_timestamp", TIME, "of the producer's last batch", "open.last_timestamp"),
    Field("transactional_id", TEXT | None, "whose producer it is; null if no coordinator in PATH "
          "knows it", lambda one: None if one.owner is None else one.owner.name),
    Field("state", TEXT | None, "its coordinator's state",
          lambda one: None if one.owner is None else one.owner.state),
    Field("hanging", TEXT | None, "why its coordinator will not end it; null if it will"),
)  # fmt: skip


def id_view(style: Style) -> View[TransactionalId]:
    """Return the view with a row per transactional id."""
    return TRANSACTIONAL_ID.view(
        style,
        Column("TRANSACTIONAL ID", "transactional_id", fold=True),
        Column("STATE", "state"),
        Column("PRODUCER", "producer_id"),
        Column("EPOCH", "producer_epoch"),
        Column("UPDATED", "updated_at"),
        Column("PARTITION", "coordinator"),
        Column("WROTE TO", lambda one: ", ".join(_partitions(one)), fold=True),
        Column("NOTES", _notes, fold=True),
    )


def open_view(style: Style) -> View[OpenData]:
    """Return the view with a row per open transaction and partition."""
    return OPEN_TRANSACTION.view(
        style,
        Column("OPEN IN", lambda one: f"{one.topic}-{one.partition}", fold=True),
        Column("FROM", "first_offset"),
        Column("PRODUCER", "producer_id"),
        Column("EPOCH", "producer_epoch"),
        Column("LAST WRITE", "last_timestamp"),
        Column("TRANSACTIONAL ID", lambda one: one.owner.name if one.owner else "-", fold=True),
        Column(
            "HANGS",
            lambda one: one.hanging or "no",
            fold=True,
            tone=lambda one: Tone.BAD if one.hanging else None,
        ),
    )
