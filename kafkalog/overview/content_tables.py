"""The tables of what the logs hold: codecs, batches, records and keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from kafkalog.overview.chart_style import topics_by_size
from kafkalog.overview.charts import codecs_of
from kafkalog.overview.html import (
    Cell,
    Table,
    escaped,
    number_cell,
    share_cell,
    size_cell,
    size_text,
    text_cell,
)
from kafkalog.wording import bytes_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.overview.facts import Report
    from kafkalog.overview.model import PartitionFacts
    from kafkalog.profiles.model import Profile


def codec_table(report: Report) -> Table:
    """Return codecs and batch fill by topic."""
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
            size_cell(max(part.batch_size_max for part in parts)),
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
    """Return what the records of each topic say."""
    rows = [
        (
            text_cell(one.topic, "k"),
            number_cell(one.records),
            number_cell(one.tombstones),
            share_cell(one.tombstones / one.records if one.records else 0),
            number_cell(one.null_keys),
            number_cell(one.keys),
            size_cell(one.data_bytes),
            number_cell(one.defects),
        )
        for one in _by_topic(report)
    ]
    columns = (
        ("Topic", "Topic"), ("Records", "That a consumer gets"),
        ("Tombstones", "Records with a key and no value"), ("Share", "Share of the records"),
        ("Null keys", "Records without a key"), ("Keys", "Distinct keys, an estimate"),
        ("Data", "Keys, values and headers, uncompressed"),
        ("Skipped", "Defects that were passed over"),
    )  # fmt: skip
    return Table("profile-table", "Records by topic", columns, rows, (1, "desc"))


def hot_key_table(report: Report) -> Table:
    """Return the most frequent keys of each topic."""
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
