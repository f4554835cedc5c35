"""The output of `lookup-offset`: answers, how they were found, and offsets to reset a group to."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from kafkalog.answers.search.lookups import PartitionLookup
from kafkalog.io.wording import counted
from kafkalog.log.defects import make_defect
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, topic_and_partition
from kafkalog_cli.output.records import RECORD
from kafkalog_cli.output.text import bytes_cell, csv_line, time_cell, time_text
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.model import Record
    from kafkalog.node.lookup import Lookup, Step
    from kafkalog_cli.output.objects import Style, View


def write_reset_offsets(rows: Iterable[Sequence[str | int | None]]) -> None:
    """Write rows of topic, partition and offset; of several groups, after the group.

    Kafka's tool reads a file without groups if it is called with one `--group`, else one with them.
    """
    for row in rows:
        sys.stdout.buffer.write(csv_line(row).encode())


def _query(one: PartitionLookup) -> object:
    found = one.lookup
    name = "offset"
    if found.by_timestamp:
        name = "timestamp" if isinstance(found.query, int) else "special"
    return {name: found.query}


def _of_batch(attribute: str) -> Callable[[PartitionLookup], object]:
    return lambda one: one.lookup.batch and getattr(one.lookup.batch, attribute)


LOOKUP: Final[ObjectType[PartitionLookup]] = ObjectType(
    "lookup",
    "`lookup-offset`",
    "A partition's answer to one query.",
    Field("log_dir", k.TEXT, "its log directory", "partition.log_dir"),
    *topic_and_partition("partition."),
    Field("query", k.OBJECT, '`{"offset": N}`, `{"timestamp": MS}` or `{"special": NAME}`', _query),
    Field("found", k.BOOL, "", "lookup.found"),
    Field("segment", k.TEXT | None, "its `.log`", "lookup.segment"),
    Field("position", k.INT | None, "of the batch", _of_batch("position")),
    Field("size_bytes", k.INT | None, "of the batch", _of_batch("size_bytes")),
    Field("batch_base_offset", k.INT | None, "", _of_batch("base_offset")),
    Field("batch_last_offset", k.INT | None, "", _of_batch("last_offset")),
    Field("offset", k.INT | None, "first record that answers", "lookup.offset"),
    Field("timestamp", k.RECORD_TIME | None, "−1 for `earliest` and `latest`", "lookup.timestamp"),
    Field("leader_epoch", k.INT | None,
          "of the batch; of the log for `earliest` and `latest`",
          "lookup.leader_epoch"),
    Field("read_bytes", k.INT, "headers, batches and index entries", "lookup.read_bytes"),
    Field("reason", k.TEXT | None, "why nothing was found", "lookup.reason"),
    Field("reset_to", k.INT, "where a group reset to the query continues: `offset`, else the end "
                           "of what `--isolation` lets it read, or the nearest offset in range"),
)  # fmt: skip
STEP: Final[ObjectType[tuple[int, Step]]] = ObjectType(
    "step",
    "`lookup-offset --steps`",
    "A step of the preceding lookup.",
    Field("step", k.INT, "from 0", lambda one: one[0]),
    Field("action", k.TEXT, "`segment`, `time-index`, `offset-index`, `scan` …",
          lambda one: one[1].action),
    Field("path", k.TEXT | None, "file examined", lambda one: one[1].path),
    Field("detail", k.TEXT, "", lambda one: one[1].detail),
    Field("probes", k.ARRAY,
          "binary search: `low` (inclusive), `high` (exclusive), and the entry between them",
          lambda one: [
              {"low": probe.low, "high": probe.high, **asdict(probe.entry)}
              for probe in one[1].probes
          ]),
)  # fmt: skip


def lookup_view(style: Style, *, names: bool, directories: bool) -> View[PartitionLookup]:
    """Return the view with a row per partition and query."""

    def query(one: PartitionLookup) -> str:
        found = one.lookup
        if found.by_timestamp and isinstance(found.query, int):
            return time_text(found.query, style)
        return str(found.query)

    def answer(one: PartitionLookup) -> str:
        found = one.lookup
        if found.found and found.offset is not None:
            return str(found.offset)
        return "none above" if found.found else "not found"

    def segment(one: PartitionLookup) -> str:
        found = one.lookup.segment
        name = "" if found is None else found.rpartition("/")[2].partition(".")[0]
        return name.lstrip("0") or "0" if name.isdigit() else name or "-"

    def batch(one: PartitionLookup) -> str:
        found = one.lookup.batch
        return "-" if found is None else f"{found.base_offset}-{found.last_offset}"

    def reason(one: PartitionLookup) -> str | None:
        return one.lookup.reason if one.lookup.segment is None else None

    columns: tuple[Column[PartitionLookup], ...] = (
        Column("DIRECTORY", "log_dir", least=12, keeps_end=True, weight=5),
        Column("PARTITION", _name, least=12, keeps_end=True, weight=9),
    )
    return LOOKUP.view(
        style,
        *columns[0 if directories else 1 : 2 if names else 1],
        Column("QUERY", query, weight=9),
        Column("OFFSET", answer, right=True, weight=9),
        Column("TIME", "timestamp", weight=9),
        Column("SEGMENT", segment, right=True, weight=9),
        Column("POSITION", "position", weight=9),
        Column("BATCH", batch, weight=8),
        Column("EPOCH", "leader_epoch", weight=7),
        Column("WHY", reason, below=True),
    )


class LookupWriter(Writer[PartitionLookup]):
    """Writes answers, with their steps and records; use it as a context manager.

    Args:
        outcome: fails where a scan found something else.
        explains: whether the steps of each lookup follow its row.
        shows_records: whether the record that was found follows its row.
        limit: how many answers are shown; None for all.
    """

    def __init__(
        self,
        form: Format,
        style: Style,
        outcome: Outcome,
        *,
        resets: bool,
        names: bool,
        directories: bool,
        explains: bool,
        shows_records: bool,
        limit: int | None,
    ) -> None:
        self._is_reset = resets
        super().__init__(lookup_view(style, names=names, directories=directories), form)
        self._style = style
        self._outcome = outcome
        self._explains = explains
        self._shows_records = shows_records
        self._left = limit
        self._asked: set[int | str] = set()
        self._answered: set[int | str] = set()
        self._unnamed = self._unmet = 0

    @property
    def is_complete(self) -> bool:
        """Whether some partition has answered each query."""
        return self._asked == self._answered

    def write(self, one: PartitionLookup) -> None:
        """Write an answer; a scan that found something else is a defect."""
        found = one.lookup
        self._asked.add(found.query)
        if found.found:
            self._answered.add(found.query)
        if self._left == 0:
            return
        self._left = None if self._left is None else self._left - 1
        if self._is_reset:
            self._write_reset(one)
        else:
            self._write_answer(one)
        if not one.agrees:
            assert one.control is not None, "there is something to disagree with"
            defect = make_defect(
                "lookup-index-mismatch",
                one.partition.path,
                f"With indexes {found.query} is at offset {found.offset}, by scanning at "
                f"offset {one.control.offset}.",
            )
            self._outcome.count(defect)
            self.defect(defect)

    def _write_answer(self, one: PartitionLookup) -> None:
        found = one.lookup
        super().write(one)
        if self._explains:
            self.write_lines(step_lines(found))
            for step in enumerate(found.steps):
                self.write_object(STEP.row(step))
        if self._shows_records and found.record is not None:
            self.write_lines(record_lines(found.record, self._style))
            self.write_object(RECORD.row(found.record, self._style))

    def _write_reset(self, one: PartitionLookup) -> None:
        """Write where a group goes on, for Kafka's tool."""
        partition = one.partition
        if partition.partition is None:
            self._unnamed += 1
            return
        self._unmet += not one.lookup.found
        write_reset_offsets([(partition.topic, partition.partition, one.reset_to)])

    def note_resets(self) -> None:
        """Note what has no offset, and which offsets are no answer."""
        if self._unnamed:
            what = counted(self._unnamed, "directory")
            show_note(f"{what} left out: without a partition's name")
        if self._unmet:
            show_note(
                f"{counted(self._unmet, 'partition')} without such a record: the nearest offset, "
                "such as the end, is written"
            )


def _name(one: PartitionLookup) -> str:
    partition = one.partition
    return (
        partition.topic
        if partition.partition is None
        else (f"{partition.topic}-{partition.partition}")
    )


def step_lines(found: Lookup) -> list[str]:
    lines = []
    for step in found.steps:
        where = f" {step.path.rpartition('/')[2]}" if step.path else ""
        lines.append(f"  {step.action}{where}: {step.detail}")
        for probe in step.probes:
            values = ", ".join(f"{name} {value}" for name, value in asdict(probe.entry).items())
            lines.append(f"    [{probe.low}, {probe.high}): {values}")
    lines.append(f"  {counted(found.read_bytes, 'byte')} read")
    return lines


def record_lines(record: Record, style: Style) -> list[str]:
    form, time = style.value_form, time_cell(record.timestamp, style.zone)
    lines = [
        f"  offset {record.offset}, {time} {record.timestamp_type}",
        f"  key    {bytes_cell(record.key, form)}",
        f"  value  {bytes_cell(record.value, form)}",
    ]
    for header in record.headers:
        name = header.key.decode("utf-8", "replace")
        lines.append(f"  header {name} = {bytes_cell(header.value, form)}")
    return lines
