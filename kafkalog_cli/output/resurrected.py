"""The output of `resurrect`: the rows of its manifest, or its topics as a table."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from kafkalog.change.resurrection.model import (
    LeftOutDirectory,
    ResurrectedPartition,
    ResurrectedTopic,
    manifest_object,
)
from kafkalog.io.wording import counted, printable
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output.objects import (
    ARRAY,
    BOOL,
    INT,
    OBJECT,
    TEXT,
    Column,
    Field,
    ObjectType,
    Row,
    View,
)
from kafkalog_cli.output.text import size_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from kafkalog.change.resurrection.model import ResurrectSummary
    from kafkalog.change.resurrection.model import Row as ManifestRow

_NEW: Final[Field[Any]] = Field("topic", TEXT, "its name now")
_ID: Final[Field[Any]] = Field("topic_id", TEXT, "")

RESURRECTED_PARTITION: Final = ObjectType[Row](
    "resurrected_partition",
    "`resurrect`",
    "A partition of the new log directory.",
    Field("path", TEXT | None, "in the source"),
    Field("to", TEXT | None, "relative to DIR or LOG_DIR"),
    _NEW,
    Field("partition", INT, ""),
    _ID,
    Field("how", TEXT,
          "`reflink` (shared blocks), `copied` or `salvaged`; `there` (by an earlier run); "
          "`empty` or `offline` (no directory)"),
    Field("log_start_offset", INT, "of the new log"),
    Field("log_end_offset", INT, "offset of the next record"),
    Field("records", INT, "by batch headers, control records included"),
    Field("size", INT, "of its logs"),
    Field("leader_epoch", INT, "in the metadata"),
    Field("bytes_cut", INT, "of an incomplete batch at the end"),
    Field("first_unstable_offset", INT | None, "first of an open transaction"),
    Field("losers", ARRAY,
          "other copies: `path`, `leader_epoch`, `log_end_offset`, `differs_from` (where a "
          "follower would cut it; null if the same), `why`"),
    Field("remote_from", INT | None,
          "start of the old log, if offsets were left in remote storage"),
)  # fmt: skip
RESURRECTED_TOPIC: Final = ObjectType[Row](
    "resurrected_topic",
    "`resurrect`",
    "A topic, after its partitions.",
    _NEW,
    _ID,
    Field("old_name", TEXT, "in the source"),
    Field("partitions", INT, ""),
    Field("missing", ARRAY, "numbers of those without a directory"),
    Field("records", INT, ""),
    Field("size", INT, "their logs"),
    Field("log_start_offset", INT, "the lowest"),
    Field("log_end_offset", INT, "the highest"),
    Field("sources", ARRAY, "log directories of its partitions"),
    Field("configs", OBJECT, "its own"),
    Field("replaced", OBJECT, "of the source, but not of the new topic"),
    Field("notes", ARRAY, "what an operator should know"),
)
LEFT_OUT_DIRECTORY: Final = ObjectType[Row](
    "left_out_directory",
    "`resurrect`",
    "A directory that was not taken.",
    Field("path", TEXT, "in the source"),
    Field("why", TEXT, ""),
)
METADATA_RECORD: Final = ObjectType[Row](
    "metadata_record",
    "`resurrect`",
    "A record of the new `bootstrap.checkpoint`.",
    Field("record", TEXT, "Kafka's name"),
    Field("version", INT, ""),
    Field("data", OBJECT, "secrets of credentials are null"),
    Field("evidence", TEXT, "where it comes from"),
)
RESURRECT_SUMMARY: Final = ObjectType[Row](
    "resurrect_summary",
    "`resurrect`",
    "The last object: totals.",
    Field("destination", TEXT, "as given"),
    Field("dry_run", BOOL, ""),
    Field("log_dir", TEXT, ""),
    Field("cluster_id", TEXT, ""),
    Field("directory_id", TEXT, ""),
    Field("node_id", INT, ""),
    Field("metadata_version", INT, "feature level"),
    Field("metadata_from", ARRAY, "log directories"),
    Field("topics", INT, ""),
    Field("partitions", INT, "missing ones included"),
    Field("records", INT, ""),
    Field("size", INT, ""),
    Field("missing", INT, "without a directory"),
    Field("reflinked", INT, "partitions"),
    Field("salvaged", INT, "partitions"),
    Field("shortened", INT, "partitions with offsets left in remote storage"),
    Field("losers", INT, "copies not taken"),
    Field("left_out", INT, "directories not taken"),
    Field("next_producer_id", INT | None, ""),
    Field("metadata_records", INT, "in `bootstrap.checkpoint`"),
    Field("start_command", TEXT, "empty with `--into`"),
    Field("notes", ARRAY, "what an operator should know"),
    Field("left_over_removed", BOOL, "the leftover of a killed run was removed"),
)  # fmt: skip


class ResurrectWriter:
    """Takes rows as the library reports them, and writes them when all has gone well.

    All rows are objects; tables and CSV have the topics.
    """

    def __init__(self, form: Format) -> None:
        self._form = form
        self._rows: list[ManifestRow] = []

    def take(self, row: ManifestRow) -> None:
        self._rows.append(row)

    def write(self, summary: ResurrectSummary) -> None:
        """Write the rows, then what they add up to; the command that starts Kafka comes last."""
        with Writer(_topic_view(), self._form) as writer:
            for row in self._rows:
                if self._form in (Format.NDJSON, Format.JSON):
                    writer.write_row(manifest_object(row))
                elif isinstance(row, ResurrectedTopic):
                    writer.write(row)
        if self._form != Format.TABLE:
            return
        self._print_others()
        _print_totals(summary)

    def _print_others(self) -> None:
        for row in self._rows:
            if isinstance(row, ResurrectedPartition):
                for loser in row.losers:
                    offset = loser.differs_from
                    at = "" if offset is None else f", differs from offset {offset} on"
                    _print(f"not taken: {loser.path}: {loser.why}{at}")
            elif isinstance(row, LeftOutDirectory):
                _print(f"left out: {row.path}: {row.why}")


def _topic_view() -> View[ResurrectedTopic]:
    return View(
        (
            Column("TOPIC", lambda one: one.topic),
            Column("PARTITIONS", lambda one: one.partitions, right=True),
            Column("RECORDS", lambda one: one.records, right=True),
            Column("SIZE", lambda one: size_cell(one.size_bytes, exact=False), right=True),
            Column("START", lambda one: one.log_start_offset, right=True),
            Column("END", lambda one: one.log_end_offset, right=True),
            Column("FROM", lambda one: ", ".join(one.sources) or "-", fold=True, below=True),
            Column("CONFIGS", _configs, fold=True, below=True),
            Column("NOTES", _notes, fold=True, below=True),
        ),
        manifest_object,
    )


def _configs(one: ResurrectedTopic) -> str:
    return " ".join(f"{name}={value}" for name, value in one.configs.items()) or "-"


def _notes(one: ResurrectedTopic) -> str:
    was = [f"{name} was {value}" for name, value in one.replaced.items()]
    renamed = [] if one.old_name == one.topic else [f"was called {one.old_name}"]
    return "; ".join([*renamed, *one.notes, *was]) or "-"


def _print_totals(summary: ResurrectSummary) -> None:
    is_in_place = bool(summary.log_dir) and summary.log_dir == os.path.realpath(summary.destination)
    verb = "would be written" if summary.dry_run else "written"
    what = f"{counted(summary.topics, 'topic')}, {counted(summary.partitions, 'partition')}"
    size = size_cell(summary.size_bytes, exact=False)
    records = counted(summary.records, "record")
    is_new = bool(summary.start_command)
    if is_new and is_in_place:
        _print(f"{what}: {records}, {size}; metadata {verb} in {summary.destination}")
    else:
        where = os.path.join(summary.destination, "log") if is_new else summary.destination
        _print(f"{what}: {records}, {size}, {verb} to {where}")
    if summary.missing:
        _print(f"without a directory: {counted(summary.missing, 'partition')}")
    if summary.dry_run:
        how = "afterwards" if is_in_place else "without --dry-run"
        follows = f"; {how}, this starts Kafka on it:" if is_new else ""
        _print(f"nothing was written{follows}")
    if is_new:
        _print(summary.start_command)


def _print(line: str) -> None:
    sys.stdout.buffer.write(f"{printable(line)}\n".encode())
    sys.stdout.buffer.flush()


def show_notes(summary: ResurrectSummary) -> None:
    if summary.left_over_removed:
        show_note("leftovers of a killed run next to the new directory were removed")
    for note in summary.notes:
        show_note(note)
