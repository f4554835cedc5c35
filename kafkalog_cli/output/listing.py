"""The output of `ls`: log directories, partitions, segments and files."""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.io.paths import file_system
from kafkalog.io.wording import counted
from kafkalog.node.inventory import FileRow, LogDirRow, PartitionRow, SegmentRow
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, topic_and_partition
from kafkalog_cli.output.text import Tone, file_cell, size_text
from kafkalog_cli.output.writer import limited

if TYPE_CHECKING:
    from kafkalog_cli.output.objects import Style, View

_ALL_FILES: Final = "all files; indexes without preallocated space"
_MODIFIED: Final = "when the file was last modified"

LOG_DIR: Final[ObjectType[LogDirRow]] = ObjectType(
    "log_dir",
    "`ls`",
    "A log directory; precedes its contents.",
    Field("log_dir", k.TEXT, "as given", "path"),
    Field("node_id", k.INT | None, "`node.id` or `broker.id` of `meta.properties`",
          lambda row: row.meta and row.meta.node_id),
    Field("cluster_id", k.TEXT | None, "of `meta.properties`",
          lambda row: row.meta and row.meta.cluster_id),
    Field("directory_id", k.TEXT | None, "of `meta.properties`",
          lambda row: row.meta and row.meta.directory_id),
    Field("clean_shutdown", k.BOOL, "`.kafka_cleanshutdown` exists"),
    Field("partitions", k.INT, "in any state"),
    Field("size_bytes", k.SIZE, _ALL_FILES),
    Field("checkpoints", k.OBJECT, "entries of each offset checkpoint by name; null if malformed"),
    Field("other_directories", k.ARRAY, "directories that are not partitions"),
    Field("next_new_partition", k.BOOL | None,
          "a new partition would go here unless `cordoned.log.dirs` forbids it: no listed "
          "directory of its node has fewer logs (a tie goes to the first in `log.dirs`); null if "
          "no other is listed"),
)  # fmt: skip
PARTITION: Final[ObjectType[PartitionRow]] = ObjectType(
    "partition",
    "`ls`",
    "A partition directory.",
    Field("path", k.TEXT, ""),
    Field("log_dir", k.TEXT, "its log directory"),
    *topic_and_partition(),
    Field("state", k.TEXT, "`live`, `delete`, `future`, `stray` or `remote`"),
    Field("topic_id", k.TEXT | None, "id in `partition.metadata`"),
    Field("segments", k.INT, "in the view"),
    Field("size_bytes", k.SIZE, _ALL_FILES),
    Field("modified_timestamp", k.TIME, "of its newest file"),
    Field("log_start_offset", k.INT | None,
          "base offset of the first segment, or `log-start-offset-checkpoint` if larger"),
    Field("log_end_offset", k.INT | None,
          "offset of the next record; a lower bound with `unscanned_bytes`"),
    Field("high_watermark", k.INT | None, "in `replication-offset-checkpoint`"),
    Field("cleaner_offset", k.INT | None, "in `cleaner-offset-checkpoint`"),
    Field("odd_files", k.OBJECT, "files by state, except live ones"),
    Field("disk_bytes", k.SIZE, "blocks on disk; in an object store, size"),
    Field("dirty_bytes", k.SIZE | None, "segments that the cleaner may compact; null unless it "
                                      "noted an offset, or brokers create the topic compacted"),
    Field("dirty_ratio", k.RATIO | None, "their share of dirty and clean bytes"),
    Field("cleaner_stuck", k.TEXT | None, "why the cleaner seems stuck"),
    Field("cleaner_state", k.TEXT | None,
          "by `.cleaned` and `.swap` files: `in_progress`; `interrupted`, as its broker ended; "
          "`uncleanable`, as it failed an hour or more before the broker's last checkpoint"),
    Field("unscanned_bytes", k.SIZE, "what a start would scan, and may cut"),
    Field("recovery_point", k.INT | None,
          "in `recovery-point-offset-checkpoint`: what is below was flushed"),
    Field("unflushed_records", k.INT | None,
          "from there to the end, by offsets; null with `unscanned_bytes`"),
    Field("unflushed_bytes", k.SIZE | None, "of their batches: what a power failure may cost"),
)  # fmt: skip
SEGMENT: Final[ObjectType[SegmentRow]] = ObjectType(
    "segment",
    "`ls --segments`",
    "A segment of the view.",
    Field("path", k.TEXT, "its `.log`"),
    Field("log_dir", k.TEXT, "its log directory"),
    Field("state", k.TEXT,
          "of its `.log`: `live`, `swap`, `cleaned`, `deleted`; or of its directory: `delete`, "
          "`future`, `stray`"),
    *topic_and_partition(),
    Field("base_offset", k.INT, "in the file's name"),
    Field("next_base_offset", k.INT | None, "null for the active segment"),
    Field("size_bytes", k.SIZE, "of the `.log`"),
    Field("modified_timestamp", k.TIME, _MODIFIED),
    Field("max_timestamp", k.RECORD_TIME | None, "from the time index, else from the records"),
    Field("index_bytes", k.SIZE | None, ""),
    Field("timeindex_bytes", k.SIZE | None, ""),
    Field("txnindex_bytes", k.SIZE | None, ""),
    Field("is_active", k.BOOL, "a broker would append to it"),
)  # fmt: skip
FILE: Final[ObjectType[FileRow]] = ObjectType(
    "file",
    "`ls --files`",
    "A file.",
    Field("path", k.TEXT, "as given or found"),
    Field("kind", k.TEXT, "as in [formats.md](formats.md)"),
    Field("state", k.TEXT, "`live`, `cleaned`, `swap`, `deleted`, `part` or `temporary`"),
    Field("offset", k.INT | None, "in the name"),
    Field("size_bytes", k.SIZE, ""),
    Field("modified_timestamp", k.TIME, _MODIFIED),
    Field("error", k.TEXT | None, "why nothing else is known"),
)


def log_dir_heading(log_dir: LogDirRow, *, is_full: bool) -> list[str]:
    """Return a line about a log directory; if it is full, also ids and entries of checkpoints."""
    meta = log_dir.meta
    facts = [log_dir.last_stop]
    if meta is not None:
        # Version 0 of the file has `broker.id`.
        facts.insert(0, f"{'node' if meta.version else 'broker'} {_dash(meta.node_id)}")
        facts.append(f"cluster {_dash(meta.cluster_id)}")
        if meta.directory_id and is_full:
            facts.append(f"directory {meta.directory_id}")
    if log_dir.next_new_partition:
        facts.append("next for a new partition")
    checkpoints = [
        f"{name.removesuffix('-checkpoint')} {'unreadable' if count is None else count}"
        for name, count in log_dir.checkpoints.items()
        if is_full or count is None
    ]
    lines = [f"{log_dir.path}: {', '.join(facts)}"]
    if checkpoints:
        lines.append(f"checkpoint entries: {', '.join(checkpoints)}")
    if log_dir.other_directories:
        lines.append(f"other directories: {', '.join(log_dir.other_directories)}")
    return lines


def partition_view(style: Style) -> View[PartitionRow]:

    def state(row: PartitionRow) -> str:
        words = [] if row.state == "live" else [row.state]
        words += [f"{count} {state}" for state, count in row.odd_files.items()]
        if row.cleaner_state is not None:
            words.append(f"cleaning {row.cleaner_state.replace('_', ' ')}")
        return ", ".join(words)

    def dirt(row: PartitionRow) -> str:
        if not row.dirty_bytes or row.dirty_ratio is None:
            return "-"
        return f"{size_text(row.dirty_bytes, style)} {100 * row.dirty_ratio:.0f}%"

    def unflushed(row: PartitionRow) -> str:
        return size_text(row.unflushed_bytes, style) if row.unflushed_bytes else "-"

    def end(row: PartitionRow) -> str:
        is_least = "≥ " if row.unscanned_bytes else ""
        return "-" if row.log_end_offset is None else f"{is_least}{row.log_end_offset}"

    return PARTITION.view(
        style,
        Column("PARTITION", _name, least=20, keeps_end=True, tone=lambda _: Tone.NAME),
        Column("SIZE", "size_bytes", weight=9),
        Column("SEGMENTS", "segments", weight=8),
        Column("START", "log_start_offset", weight=9),
        Column("END", end, right=True, weight=9),
        Column("HW", "high_watermark", weight=8),
        Column("CLEANED", "cleaner_offset", weight=5),
        Column("DIRTY", dirt, right=True, weight=7),
        Column("UNFLUSHED", unflushed, right=True, weight=6),
        Column("ON DISK", "disk_bytes", weight=6),
        Column("STATE", state, below=True, tone=lambda _: Tone.DOUBTFUL),
    )


@dataclass
class Tally:
    """What the rows of a listing come to.

    Attributes:
        unflushed: partitions with what a power failure may cost.
    """

    topics: set[str | None] = field(default_factory=set)
    partitions: int = 0
    segments: int = 0
    files: int = 0
    size_bytes: int = 0
    unflushed: list[PartitionRow] = field(default_factory=list)

    def add(self, row: PartitionRow | SegmentRow | FileRow) -> None:
        self.size_bytes += row.size_bytes
        match row:
            case PartitionRow():
                self.partitions += 1
                self.topics.add(row.topic)
                self.segments += row.segments
                if row.unflushed_bytes:
                    self.unflushed.append(row)
            case SegmentRow():
                self.segments += 1
            case FileRow():
                self.files += 1

    @property
    def rows(self) -> int:
        """The number of rows, which are of one kind."""
        return self.partitions or self.segments or self.files

    def lines(self, kind: str, limit: int | None, style: Style) -> list[str]:
        """Return what a power failure may cost, and the total of rows of a kind."""
        size = size_text(self.size_bytes, style)
        if kind != "partition":
            return [limited(f"{counted(self.rows, kind)}, {size}", self.rows, limit)]
        what = f"{counted(self.partitions, kind)} of {counted(len(self.topics), 'topic')}"
        total = f"{what}, {size} in {counted(self.segments, 'segment')}"
        total = limited(total, self.partitions, limit)
        if not self.unflushed:
            return [total]
        is_least = any(row.unflushed_records is None for row in self.unflushed)
        records = counted(sum(row.unflushed_records or 0 for row in self.unflushed), "record")
        lost = size_text(sum(row.unflushed_bytes or 0 for row in self.unflushed), style)
        cost = f"a power failure may cost {'at least ' * is_least}{records} ({lost})"
        where = f"above the recovery points of {counted(len(self.unflushed), 'partition')}"
        return [f"{cost} {where}", total]


def segment_view(style: Style, *, states: bool = False) -> View[SegmentRow]:

    def state(row: SegmentRow) -> str:
        if row.state == "live" and not states:
            return "active" if row.is_active else "-"
        return f"{row.state}, active" if row.is_active else row.state

    return SEGMENT.view(
        style,
        Column("PARTITION", _name, least=14, keeps_end=True, weight=7, tone=lambda _: Tone.NAME),
        Column("BASE", "base_offset", weight=9),
        Column("NEXT", "next_base_offset", weight=9),
        Column("SIZE", "size_bytes", weight=9),
        Column("INDEX", "index_bytes", weight=8),
        Column("TIMEINDEX", "timeindex_bytes", weight=7),
        Column("TXNINDEX", "txnindex_bytes", weight=6),
        Column("LAST RECORD", "max_timestamp", weight=9),
        Column("STATE", state, weight=8),
    )


def file_view(style: Style) -> View[FileRow]:
    return FILE.view(
        style,
        Column("FILE", lambda row: file_cell(row.path), least=24, keeps_end=True),
        Column("KIND", "kind"),
        Column("SIZE", "size_bytes", weight=9),
        Column("MODIFIED", "modified_timestamp"),
        Column("STATE", lambda row: row.error or row.state, below=True),
    )


def _name(row: PartitionRow | SegmentRow) -> str:
    """Return the name of the directory: odd ones are not named like others."""
    path = row.path if isinstance(row, PartitionRow) else os.path.dirname(row.path)
    return os.path.basename(file_system.absolute(path))


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
