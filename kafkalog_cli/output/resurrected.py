"""The output of `resurrect`: the rows of its manifest, or its topics as a table."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from kafkalog.resurrection.model import (
    LeftOutDirectory,
    ResurrectedPartition,
    ResurrectedTopic,
    manifest_object,
)
from kafkalog.wording import counted, printable
from kafkalog_cli.outcome import show_defect, show_note
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
    from kafkalog.resurrection.model import ResurrectSummary
    from kafkalog.resurrection.model import Row as ManifestRow

_NEW: Final[Field[Any]] = Field("topic", TEXT, "topic, as it is called now")
_ID: Final[Field[Any]] = Field("topic_id", TEXT, "its id")

RESURRECTED_PARTITION: Final = ObjectType[Row](
    "resurrected_partition",
    "`resurrect`",
    "A partition of the new log directory.",
    Field("path", TEXT | None, "the directory of the source; null if there is none"),
    Field("to", TEXT | None,
          "the new directory, relative to DIR or LOG_DIR; null if there is none"),
    _NEW,
    Field("partition", INT, "partition number"),
    _ID,
    Field("how", TEXT,
          "`reflink` (blocks are shared), `copied` or `salvaged`; `there` if an earlier run had "
          "put it there; `empty` or `offline` if there was no directory"),
    Field("log_start_offset", INT, "first offset of the new log"),
    Field("log_end_offset", INT, "offset that the next record gets"),
    Field("records", INT, "records, by the headers of the batches, control records included"),
    Field("size", INT, "bytes of its logs"),
    Field("leader_epoch", INT, "leader epoch of the partition in the metadata"),
    Field("bytes_cut", INT, "bytes of an incomplete batch at the end, which were cut off"),
    Field("first_unstable_offset", INT | None,
          "first offset of a transaction without an end"),
    Field("losers", ARRAY,
          "the other copies: `path`, `leader_epoch`, `log_end_offset`, `differs_from` (the offset "
          "to which it would be cut as a follower; null if it holds the same) and `why`"),
    Field("remote_from", INT | None,
          "where the old log started, if offsets from there on were left in remote storage"),
)  # fmt: skip
RESURRECTED_TOPIC: Final = ObjectType[Row](
    "resurrected_topic",
    "`resurrect`",
    "A topic, after its partitions.",
    _NEW,
    _ID,
    Field("old_name", TEXT, "its name in the source"),
    Field("partitions", INT, "how many partitions it has"),
    Field("missing", ARRAY, "numbers of those without a directory"),
    Field("records", INT, "records of its partitions"),
    Field("size", INT, "bytes of their logs"),
    Field("log_start_offset", INT, "the lowest of its partitions"),
    Field("log_end_offset", INT, "the highest of its partitions"),
    Field("sources", ARRAY, "the log directories that its partitions come from"),
    Field("configs", OBJECT, "its configs"),
    Field("replaced", OBJECT, "configs of the source that it does not have now"),
    Field("notes", ARRAY, "what someone should know"),
)
LEFT_OUT_DIRECTORY: Final = ObjectType[Row](
    "left_out_directory",
    "`resurrect`",
    "A directory that was not taken.",
    Field("path", TEXT, "the directory of the source"),
    Field("why", TEXT, "reason, not for programs"),
)
METADATA_RECORD: Final = ObjectType[Row](
    "metadata_record",
    "`resurrect`",
    "A record of the new `bootstrap.checkpoint`.",
    Field("record", TEXT, "Kafka's name of the message"),
    Field("version", INT, "its version"),
    Field("data", OBJECT, "its fields; the secrets of credentials are null"),
    Field("evidence", TEXT, "where it comes from, not for programs"),
)
RESURRECT_SUMMARY: Final = ObjectType[Row](
    "resurrect_summary",
    "`resurrect`",
    "The last object: totals.",
    Field("destination", TEXT, "the new directory, as given"),
    Field("dry_run", BOOL, "whether it was a dry run"),
    Field("log_dir", TEXT, "the log directory in it"),
    Field("cluster_id", TEXT, "id of the new cluster"),
    Field("directory_id", TEXT, "id of the new log directory"),
    Field("node_id", INT, "id of the new node"),
    Field("metadata_version", INT, "feature level of `metadata.version`"),
    Field("metadata_from", ARRAY, "the log directories whose metadata logs were read"),
    Field("topics", INT, "topics"),
    Field("partitions", INT, "partitions, missing ones included"),
    Field("records", INT, "records"),
    Field("size", INT, "bytes of logs"),
    Field("missing", INT, "partitions without a directory"),
    Field("reflinked", INT, "partitions that share blocks with the source"),
    Field("salvaged", INT, "partitions that were salvaged"),
    Field("shortened", INT, "partitions of which offsets were left in remote storage"),
    Field("losers", INT, "copies that were not taken"),
    Field("left_out", INT, "directories that were not taken"),
    Field("next_producer_id", INT | None,
          "first id for new producers; null if no producer was seen"),
    Field("metadata_records", INT, "records of `bootstrap.checkpoint`"),
    Field("start_command", TEXT, "the command that starts Kafka; empty with `--into`"),
    Field("notes", ARRAY, "what someone should know"),
    Field("left_over_removed", BOOL, "whether the leftover of a killed run was removed"),
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
        is_lines = self._form in (Format.NDJSON, Format.JSON)
        with Writer(_topic_view(), self._form, show_defect) as writer:
            for row in self._rows:
                if is_lines:
                    writer.write_row(manifest_object(row))
                elif isinstance(row, ResurrectedTopic):
                    writer.write(row)
        if self._form != Format.TABLE:
            return
        self._print_others()
        _print_totals(summary)

    def _print_others(self) -> None:
        """Print a line for each copy and directory that was not taken."""
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
    """Show on stderr what someone should know."""
    if summary.left_over_removed:
        show_note("leftovers of a killed run next to the new directory were removed")
    for note in summary.notes:
        show_note(note)
