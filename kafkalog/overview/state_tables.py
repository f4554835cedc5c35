"""The tables of groups and transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.overview.html import Cell, Table, badge, escaped, number_cell, text_cell, time_cell
from kafkalog.state.transactions import abort_commands

if TYPE_CHECKING:
    from kafkalog.overview.facts import Report

_SERVER: Final = "HOST:PORT"
_OFFSETS_MAX: Final = 2000
"""At most this many committed offsets are listed, those with the largest lag."""


def group_table(report: Report) -> Table:
    """Return the groups by lag."""
    rows = [
        (
            text_cell(one.group.name, "k"),
            text_cell(one.group.kind),
            text_cell(one.group.state),
            number_cell(len(one.group.members)),
            number_cell(sum(not offset.commit.is_pending for offset in one.offsets)),
            number_cell(one.lag),
            time_cell(max((offset.commit.committed_ms for offset in one.offsets), default=None)),
        )
        for one in report.groups
    ]
    columns = (
        ("Group", "Group id"), ("Type", "classic, consumer, share or streams"),
        ("State", "As an admin client sees it"), ("Members", "Members"),
        ("Offsets", "Committed offsets"), ("Lag", "Records up to the high watermarks"),
        ("Last commit", "When it committed last"),
    )  # fmt: skip
    return Table("group-table", "Groups", columns, rows, (5, "desc"))


def lag_table(report: Report) -> Table:
    """Return the committed offsets by lag."""
    offsets = sorted(
        (offset for one in report.groups for offset in one.offsets),
        key=lambda one: -(-1 if one.lag is None else one.lag),
    )
    rows = [
        (
            text_cell(one.commit.group, "k"),
            text_cell(one.commit.topic, "k"),
            number_cell(one.commit.partition),
            number_cell(one.commit.offset),
            number_cell(one.end_offset),
            number_cell(one.lag),
            time_cell(one.commit.committed_ms),
            text_cell("open transaction" if one.commit.is_pending else ""),
        )
        for one in offsets[:_OFFSETS_MAX]
    ]
    columns = (
        ("Group", "Group id"), ("Topic", "Topic"), ("Partition", "Partition"),
        ("Offset", "The next offset to read"), ("End", "High watermark of the partition"),
        ("Lag", "Records from offset to end"), ("Committed", "By the coordinator's clock"),
        ("Notes", "Whether it counts yet"),
    )  # fmt: skip
    caption = "Committed offsets"
    if len(offsets) > _OFFSETS_MAX:
        caption += f": {_OFFSETS_MAX} of {len(offsets)}, those with the largest lag"
    return Table("lag-table", caption, columns, rows, (5, "desc"))


def open_table(report: Report) -> Table:
    """Return the open transactions, hanging ones first."""
    rows = []
    for one in report.open_transactions:
        abort = ""
        if one.hanging is not None:
            abort = f"<code>{escaped(abort_commands(one, _SERVER)[0])}</code>"
        rows.append((
            badge("hanging" if one.hanging else "open"),
            text_cell(f"{one.topic}-{one.partition}", "k"),
            number_cell(one.open.first_offset),
            number_cell(one.open.producer_id),
            number_cell(one.open.producer_epoch),
            text_cell("–" if one.owner is None else one.owner.name, "k"),
            time_cell(one.open.last_timestamp),
            Cell(escaped(one.hanging or "") + abort, None, "w"),
        ))  # fmt: skip
    rows.sort(key=lambda row: "hanging" not in row[0].shown)
    columns = (
        ("State", "Whether its coordinator will end it"), ("Partition", "Topic and partition"),
        ("First offset", "Read_committed consumers stop here"), ("Producer", "Producer id"),
        ("Epoch", "Producer epoch"), ("Transactional id", "Of the producer, if known"),
        ("Last batch", "Of this producer"), ("Why, and what ends it", "With Kafka's own tool"),
    )  # fmt: skip
    return Table("open-table", "Open transactions", columns, rows)


def transactional_id_table(report: Report) -> Table:
    """Return the transactional ids."""
    rows = [
        (
            text_cell(one.name, "k"),
            text_cell(one.state),
            number_cell(one.producer_id),
            number_cell(one.producer_epoch),
            time_cell(one.updated_ms),
            number_cell(len(one.partitions)),
        )
        for one in report.transactional_ids
    ]
    columns = (
        ("Transactional id", "transactional.id"), ("State", "At its coordinator"),
        ("Producer", "Producer id"), ("Epoch", "Producer epoch"),
        ("Last change", "When its state changed"), ("Partitions", "That its transaction wrote to"),
    )  # fmt: skip
    return Table("transactional-id-table", "Transactional ids", columns, rows, (4, "desc"))
