"""The tables of what the logs hold: codecs, records and keys, groups and transactions."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from kafkalog.answers.overview.charts import codecs_of
from kafkalog.answers.overview.html import (
    Cell,
    Table,
    badge,
    escaped,
    id_cell,
    number_cell,
    share_cell,
    size_cell,
    size_text,
    table_of,
    text_cell,
    time_cell,
    topics_by_size,
)
from kafkalog.io.wording import bytes_text
from kafkalog.node.state.transactions import abort_commands

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.answers.overview.gathering import Report
    from kafkalog.answers.overview.model import GroupFacts, PartitionFacts
    from kafkalog.tables.profiles.model import Profile


def codec_table(report: Report) -> Table:
    by_topic: defaultdict[str, list[PartitionFacts]] = defaultdict(list)
    for one in report.partitions:
        by_topic[one.listed.topic].append(one)
    rows = []
    for topic in topics_by_size(report):
        parts = [part for one in by_topic[topic] for part in one.contents]
        batches = sum(part.batches for part in parts)
        if not batches:
            continue
        size = sum(part.size_bytes for part in parts)
        records = sum(part.records for part in parts)
        codecs = Counter(
            {name: used for name, (_, used) in codecs_of(by_topic[topic]).items()}
        ).most_common()
        rows.append((
            text_cell(topic, "k"),
            text_cell(", ".join(f"{name} {used / size * 100:.0f} %" for name, used in codecs)),
            number_cell(batches),
            number_cell(records),
            Cell(f"{records / batches:.1f}", round(records / batches, 3), "n"),
            Cell(escaped(size_text(size / batches)), round(size / batches, 3), "n"),
            size_cell(max(part.max_batch_bytes for part in parts)),
            number_cell(sum(part.control_batches for part in parts)),
        ))  # fmt: skip
    columns = (
        ("Topic", "Topic"), ("Codecs", "Share of the bytes"), ("Batches", "Batches with data"),
        ("Records", "By the headers of their batches"),
        ("Records per batch", "Few of them cost space and requests"),
        ("Bytes per batch", "On disk, compressed"), ("Largest batch", "On disk, compressed"),
        ("Control batches", "Transaction markers and the like"),
    )  # fmt: skip
    return Table("codec-table", "Batches by topic", columns, rows, (2, "desc"))


def _by_topic(report: Report) -> Iterator[Profile]:
    """Yield a profile per topic: that of its only partition if it has no other."""
    whole = {one.topic for one in report.profiles if one.partition is None}
    for one in report.profiles:
        if one.partition is None or one.topic not in whole:
            yield one


def profile_table(report: Report) -> Table:
    return table_of(
        "profile-table", "Records by topic", _by_topic(report),
        ("Topic", "Topic", lambda one: text_cell(one.topic, "k")),
        ("Records", "That a consumer gets", lambda one: number_cell(one.records)),
        ("Tombstones", "Records with a key and no value", lambda one: number_cell(one.tombstones)),
        ("Share", "Share of the records",
         lambda one: share_cell(one.tombstones / one.records if one.records else 0)),
        ("Null keys", "Records without a key", lambda one: number_cell(one.null_keys)),
        ("Keys", "Distinct keys, an estimate", lambda one: number_cell(one.keys)),
        ("Data", "Keys, values and headers, uncompressed", lambda one: size_cell(one.data_bytes)),
        ("Skipped", "Defects that were passed over", lambda one: number_cell(one.defects)),
        order=(1, "desc"),
    )  # fmt: skip


def hot_key_table(report: Report) -> Table:
    rows = [
        (
            text_cell(one.topic, "k"),
            Cell(f"<code>{escaped(bytes_text(key.key))}</code>", None, "w"),
            number_cell(key.at_least),
            number_cell(key.at_most),
            share_cell(key.at_least / one.records),
        )
        for one in _by_topic(report)
        for key in one.hot_keys
    ]
    columns = (
        ("Topic", "Topic"), ("Key", "Text if it is printable"), ("At least", "Records with it"),
        ("At most", "Records with it"), ("Share", "Share of the topic's records"),
    )  # fmt: skip
    return Table("hot-key-table", "Most frequent keys", columns, rows, (2, "desc"))


_SERVER: Final = "HOST:PORT"
_OFFSETS_MAX: Final = 2000
"""At most this many committed offsets are listed, those with the largest lag."""


def group_table(report: Report) -> Table:
    def last_commit(one: GroupFacts) -> Cell:
        return time_cell(max((each.commit.commit_timestamp for each in one.offsets), default=None))

    return table_of(
        "group-table", "All groups", report.groups,
        ("Group", "Group id", lambda one: text_cell(one.group.name, "k")),
        ("Type", "classic, consumer, share or streams", lambda one: text_cell(one.group.kind)),
        ("State", "As an admin client sees it", lambda one: text_cell(one.group.state)),
        ("Members", "Members", lambda one: number_cell(len(one.group.members))),
        ("Offsets", "Committed offsets",
         lambda one: number_cell(sum(not each.commit.is_pending for each in one.offsets))),
        ("Lag", "Records up to the high watermarks", lambda one: number_cell(one.lag)),
        ("Last commit", "When it committed last", last_commit),
        order=(5, "desc"),
    )  # fmt: skip


def lag_table(report: Report) -> Table:
    offsets = sorted(
        (offset for one in report.groups for offset in one.offsets),
        key=lambda one: -(-1 if one.lag is None else one.lag),  # unknown lags last
    )
    caption = "Committed offsets"
    if len(offsets) > _OFFSETS_MAX:
        caption += f": {_OFFSETS_MAX} of {len(offsets)}, those with the largest lag"
    return table_of(
        "lag-table", caption, offsets[:_OFFSETS_MAX],
        ("Group", "Group id", lambda one: text_cell(one.commit.group, "k")),
        ("Topic", "Topic", lambda one: text_cell(one.commit.topic, "k")),
        ("Partition", "Partition", lambda one: id_cell(one.commit.partition)),
        ("Offset", "The next offset to read", lambda one: id_cell(one.commit.offset)),
        ("End", "High watermark of the partition", lambda one: id_cell(one.log_end_offset)),
        ("Lag", "Records from offset to end", lambda one: number_cell(one.lag)),
        ("Committed", "By the coordinator's clock",
         lambda one: time_cell(one.commit.commit_timestamp)),
        ("Notes", "Whether it counts yet",
         lambda one: text_cell("open transaction" if one.commit.is_pending else "")),
        order=(5, "desc"),
    )  # fmt: skip


def open_table(report: Report) -> Table:
    rows = []
    for one in report.open_transactions:
        abort = ""
        if one.hanging is not None:
            # The form since Kafka 2.8.
            abort = f"<code>{escaped(abort_commands(one, _SERVER)[0])}</code>"
        rows.append((
            badge("hanging" if one.hanging else "open"),
            text_cell(f"{one.topic}-{one.partition}", "k"),
            id_cell(one.open.first_offset),
            id_cell(one.open.producer_id),
            id_cell(one.open.producer_epoch),
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
    return table_of(
        "transactional-id-table", "Transactional ids", report.transactional_ids,
        ("Transactional id", "transactional.id", lambda one: text_cell(one.name, "k")),
        ("State", "At its coordinator", lambda one: text_cell(one.state)),
        ("Producer", "Producer id", lambda one: id_cell(one.producer_id)),
        ("Epoch", "Producer epoch", lambda one: id_cell(one.producer_epoch)),
        ("Last change", "When its state changed", lambda one: time_cell(one.last_update_timestamp)),
        ("Partitions", "That its transaction wrote to",
         lambda one: number_cell(len(one.partitions))),
        order=(4, "desc"),
    )  # fmt: skip
