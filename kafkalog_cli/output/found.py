"""The output of `find`: records with their partitions, and the life of a key."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, topic_and_partition
from kafkalog_cli.output.records import (
    RECORD,
    control_type,
    headers_cell,
    payload_cell,
    record_block,
)
from kafkalog_cli.output.text import Tone, bytes_cell

if TYPE_CHECKING:
    from kafkalog.answers.search.scanning import Found, Occurrence
    from kafkalog.model import Record
    from kafkalog_cli.output.objects import Block, Style, View


def _of_record(one: Field[Any]) -> Field[Any]:
    """Return a field of a record as a field of what holds one."""
    get = one.getter()

    def get_from(found: Found) -> object:
        return get(found.record)

    return replace(one, get=get_from)


def _block(found: Found, style: Style) -> Block:
    heading, rows = record_block(found.record, style)
    more = {"transactional id": found.transactional_id, "reason": found.reason}
    return heading, [*rows, *((name, text) for name, text in more.items() if text is not None)]


FOUND: Final = ObjectType[Any](
    "found",
    "`find`",
    "A record that was found, and who wrote it.",
    *(_of_record(one) for one in RECORD.fields.values() if one.name != "decoded"),
    Field("transactional_id", k.TEXT | None, "of its producer; null outside transactions, or if "
                                           "no `__transaction_state` in PATH names it"),
    Field("reason", k.TEXT | None, "why its value does not decode"),
    block=_block,
)  # fmt: skip
OCCURRENCE: Final = ObjectType[Any](
    "occurrence",
    "`find --history`",
    "A record in the life of a key.",
    *topic_and_partition("found."),
    Field("offset", k.INT, "", "found.record.offset"),
    Field("timestamp", k.RECORD_TIME, "−1 if none", "found.record.timestamp"),
    Field("key", k.KEY, "", "found.record.key"),
    Field("before", k.VALUE, "value before; null is a tombstone, or no earlier record",
          lambda one: None if one.before is None else one.before.value),
    Field("value", k.VALUE, "value from here on; null is a tombstone", "found.record.value"),
    Field("previous_offset", k.INT | None, "of the value before",
          lambda one: None if one.before is None else one.before.offset),
    Field("superseded_by", k.INT | None,
          "next record that counts; null if this one does not count"),
    Field("live", k.BOOL, "false if a broker does not serve it: in leftovers, in an end that the "
                        "next start cuts off, or below the log start offset", "is_live"),
    Field("transaction", k.TEXT | None, "`committed` (the only one that counts), `aborted` or "
                                      "`open`"),
    Field("path", k.TEXT, "as given or found", "found.record.batch.path"),
    Field("producer_id", k.INT, "−1 if none", "found.record.batch.producer_id"),
    Field("producer_epoch", k.INT, "−1 if none", "found.record.batch.producer_epoch"),
    Field("transactional_id", k.TEXT | None, "as in `found`", "found.transactional_id"),
)  # fmt: skip


def partition_name(found: Found) -> str:
    """Return `topic-partition`."""
    return found.topic if found.partition is None else f"{found.topic}-{found.partition}"


def _producer(found: Found) -> str:
    batch = found.record.batch
    if batch.producer_id < 0:
        return "-"
    who = f"{batch.producer_id}/{batch.producer_epoch}"
    return who if found.transactional_id is None else f"{who} {found.transactional_id}"


def _directory(found: Found) -> str:
    return os.path.dirname(os.path.dirname(found.record.batch.path)) or "."


def found_view(style: Style, *, directories: bool, reasons: bool = False) -> View[Found]:
    def key(found: Found) -> str:
        if found.record.batch.is_control:
            return str(control_type(found.record))
        return payload_cell("key", found.record, style)

    def value(found: Found) -> str:
        if found.record.batch.is_control:
            return bytes_cell(found.record.value, style.value_form)
        return payload_cell("value", found.record, style)

    return FOUND.view(
        style,
        *(
            (Column("DIRECTORY", _directory, least=12, keeps_end=True, weight=5),)
            if directories
            else ()
        ),
        Column("PARTITION", partition_name, least=12, keeps_end=True, weight=9),
        *((Column("STATE", "state"),) if style.states else ()),
        Column("OFFSET", "offset", weight=9),
        Column("TIME", "timestamp", weight=7),
        Column("KEY", key, least=8, weight=8),
        Column(
            "VALUE",
            value,
            least=24,
            weight=9,
            tone=lambda one: Tone.FAINT if one.record.value is None else None,
        ),
        Column("HEADERS", lambda one: headers_cell(one.record, style), least=10, weight=4),
        Column("PRODUCER", _producer, least=12, weight=3),
        *((Column("REASON", "reason", below=True),) if reasons else ()),
    )


def occurrence_view(style: Style, *, directories: bool) -> View[Occurrence]:
    def value(record: Record | None) -> str:
        if record is None:
            return "-"
        return "tombstone" if record.value is None else _text(record.value, style)

    def notes(one: Occurrence) -> str:
        words = [] if one.transaction in (None, "committed") else [f"{one.transaction} transaction"]
        if not one.is_live:
            words.append(f"only in {os.path.basename(one.found.record.batch.path)}")
        return ", ".join(words)

    return OCCURRENCE.view(
        style,
        *((Column("DIRECTORY", lambda one: _directory(one.found), least=12, keeps_end=True),)
          if directories else ()),
        Column("PARTITION", lambda one: partition_name(one.found), least=12, keeps_end=True),
        Column("OFFSET", "offset", weight=9),
        Column("TIME", "timestamp", weight=7),
        Column("BEFORE", lambda one: value(one.before), least=16, weight=8),
        Column("VALUE", lambda one: value(one.found.record), least=16, weight=9),
        Column("SUPERSEDED BY", "superseded_by", weight=4),
        Column("PRODUCER", lambda one: _producer(one.found), least=12, weight=3),
        Column("NOTES", notes, below=True),
    )  # fmt: skip


def _text(value: bytes, style: Style) -> str:
    """Return the cell of a value that is not null; the text `tombstone` is quoted."""
    return '"tombstone"' if value == b"tombstone" else bytes_cell(value, style.value_form)
