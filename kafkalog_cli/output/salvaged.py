"""The output of `salvage`: the rows of its manifest, or what is lost as a table.

The library writes the objects into the manifest; this module states what their fields mean.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from kafkalog.change.rescue import MANIFEST, Fate, SalvageSummary, manifest_object
from kafkalog.io.wording import counted
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output.objects import (
    BOOL,
    INT,
    OBJECT,
    TEXT,
    Column,
    Field,
    ObjectType,
    Row,
    View,
    topic_and_partition,
)
from kafkalog_cli.output.text import file_cell, size_cell
from kafkalog_cli.output.writer import Format, Writer, print_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.change.rescue.model import Row as ManifestRow

_LOG: Final[Field[Any]] = Field("path", TEXT, "in the source")

COPIED_RANGE: Final = ObjectType[Row](
    "copied_range",
    "`salvage`",
    "Consecutive batches that were copied byte for byte, or one whose header was corrected.",
    _LOG,
    Field("position", INT, "in that log"),
    Field("size", INT, ""),
    Field("to_position", INT, "in the new log"),
    Field("base_offset", INT, "of the first batch"),
    Field("last_offset", INT, "of the last batch"),
    Field("batches", INT, ""),
    Field("records", INT, "each was decoded"),
    Field("corrected", TEXT | None, "what was wrong in its header"),
)
LOST_RANGE: Final = ObjectType[Row](
    "lost_range",
    "`salvage`",
    "Bytes between copied batches, or before or after them. Copied and lost ranges cover a log "
    "without a gap.",
    _LOG,
    Field("position", INT, "in that log"),
    Field("size", INT, ""),
    Field("file", TEXT | None, "relative to the new directory; null if all bytes are zero"),
    Field("reason", TEXT, "kind of the first defect"),
    Field("detail", TEXT, ""),
    Field("defects", INT, "batches, and ranges without one"),
    Field("first_offset", INT | None, "first that may be lost"),
    Field("last_offset", INT | None,
          "last that may be lost; null at the end of a log if no checkpoint notes where it ended"),
    Field("lent", BOOL, "whether other copies have all of it"),
)  # fmt: skip
SALVAGE: Final = ObjectType[Row](
    "salvage",
    "`salvage`",
    "A log, after its ranges: `size_copied` and `size_lost` together are `size`.",
    _LOG,
    Field("to", TEXT | None, "relative to the new directory"),
    *topic_and_partition(),
    Field("base_offset", INT, "in the file's name"),
    Field("size", INT, "of the source's log"),
    Field("size_copied", INT, ""),
    Field("size_lost", INT, ""),
    Field("batches", INT, "copied"),
    Field("records", INT, "copied"),
    Field("crc32c", INT | None, "of the source's log; null unless it was read whole"),
    Field("crc32c_copied", INT | None, "of the new log"),
)
SALVAGED_FILE: Final = ObjectType[Row](
    "salvaged_file",
    "`salvage`",
    "A file or directory other than a salvaged log. Indexes and producer snapshots of the "
    "source are not listed: they are rebuilt.",
    Field("path", TEXT | None, "in the source; null if rebuilt"),
    Field("to", TEXT | None, "relative to the new directory"),
    Field("fate", TEXT, "`copied`, `rebuilt`, `lost` (to `lost+found`) or `skipped`"),
    Field("detail", TEXT, ""),
    Field("records", INT, "in a skipped log, by batch headers"),
)
SALVAGED_PARTITION: Final = ObjectType[Row](
    "salvaged_partition",
    "`salvage`",
    "A partition, after its logs and files.",
    Field("path", TEXT, "in the source"),
    Field("to", TEXT, "relative to the new directory"),
    *topic_and_partition(),
    Field("log_start_offset", INT, "of the new log"),
    Field("log_end_offset", INT, "offset of the next record"),
    Field("first_unstable_offset", INT | None, "first of an open transaction; null in a dry run"),
)  # fmt: skip
FAILED_PARTITION: Final = ObjectType[Row](
    "failed_partition",
    "`salvage`",
    "A partition that was not copied because the work on it failed.",
    Field("path", TEXT, "in the source"),
    Field("reference", TEXT, "kind of the error, as on stderr"),
    Field("detail", TEXT, ""),
)
SALVAGE_SUMMARY: Final = ObjectType[Row](
    "salvage_summary",
    "`salvage`",
    "The last object: totals.",
    Field("destination", TEXT, "as given"),
    Field("dry_run", BOOL, ""),
    Field("partitions", INT, ""),
    Field("segments", INT, "logs"),
    Field("size", INT, "of the source's logs"),
    Field("size_copied", INT, ""),
    Field("size_lost", INT, ""),
    Field("batches", INT, "copied"),
    Field("records", INT, "copied"),
    Field("lost_ranges", INT, "without preallocated zeros, and what copies have"),
    Field("offsets_lost", INT, "in ranges with known ends"),
    Field("batches_corrected", INT, "with a corrected header"),
    Field("records_skipped", INT, "in skipped logs"),
    Field("files", OBJECT, "by fate"),
    Field("findings", INT, "of `verify` about the result, except notes"),
    Field("partitions_failed", INT, "not copied because the work failed"),
    Field("left_over_removed", BOOL, "the leftover of a killed run was removed"),
)


def read_manifest(destination: str) -> Iterator[dict[str, Any]]:
    with open(os.path.join(destination, MANIFEST), encoding="ascii") as lines:
        yield from map(json.loads, lines)


def _lost_view() -> View[dict[str, Any]]:
    return View(
        (
            Column("LOST FROM", lambda row: file_cell(row["path"]), fold=True),
            Column("POSITION", lambda row: _dash(row.get("position")), right=True),
            Column("BYTES", lambda row: _dash(row.get("size")), right=True),
            Column("OFFSETS", _offsets),
            Column("REASON", lambda row: row.get("reason") or row.get("detail"), fold=True),
            Column("KEPT AS", lambda row: _dash(row.get("file") or row.get("to")), fold=True),
        ),
        lambda row: row,
    )


class SalvageWriter(Writer[dict[str, Any]]):
    """Writes rows of a manifest: all as objects, the lost ranges as CSV, what is lost as a table.

    Attributes:
        unfinished: the partitions with a transaction that nothing ends.
    """

    def __init__(self, form: Format) -> None:
        super().__init__(_lost_view(), form)
        self.unfinished: list[dict[str, Any]] = []

    def take(self, row: ManifestRow) -> None:
        self.write(manifest_object(row))

    def write(self, row: dict[str, Any]) -> None:
        is_range = row["type"] == "lost_range" and not row["lent"]
        if row["type"] == "salvaged_partition" and row["first_unstable_offset"] is not None:
            self.unfinished.append(row)
        if self.form != Format.TABLE:
            if is_range or self.form != Format.CSV:
                self.write_row(row)
        elif is_range or row.get("fate") == Fate.LOST:
            super().write(row)
        elif row["type"] == "defect":
            self.write_lines([f"! {row['reference']}: {row['path']}: {row['detail']}"])


def note_unfinished(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        show_note(
            f"{row['to']}: no marker ends the transaction that starts at offset "
            f"{row['first_unstable_offset']}; read_committed consumers stop there"
        )


def print_totals(summary: SalvageSummary) -> None:
    verb = "would be copied" if summary.dry_run else "copied"
    size = size_cell(summary.size_copied, exact=False)
    what = f"{counted(summary.records, 'record')} in {counted(summary.batches, 'batch')}, {size}"
    where = f"{counted(summary.partitions, 'partition')}, {counted(summary.segments, 'segment')}"
    lines = [f"{where}: {what}, {verb} to {os.path.join(summary.destination, 'log')}"]
    if not summary.partitions:
        lines = ["nothing to do: no log found"]
    if summary.lost_ranges:
        lines.append(
            f"{counted(summary.lost_ranges, 'range')} of bytes lost, with "
            f"{counted(summary.offsets_lost, 'offset')}"
        )
    elif summary.partitions and not summary.partitions_failed:
        lines.append("no record is lost")
    if corrected := summary.batches_corrected:
        what = counted(corrected, "batch")
        lines.append(f"headers corrected, as checksums or the batches around prove: {what}")
    if failed := summary.partitions_failed:
        lines.append(f"not copied because the work failed: {counted(failed, 'partition')}")
    if skipped := summary.files[Fate.SKIPPED]:
        records = counted(summary.records_skipped, "record")
        what = "file or directory" if skipped == 1 else "files or directories"
        lines.append(f"left out: {skipped} {what}, with {records}")
    print_lines(lines)


def _offsets(row: dict[str, Any]) -> str:
    first, last = row.get("first_offset"), row.get("last_offset")
    if first is None:
        return "-"
    if last is None:
        return f"{first} and on"
    return str(first) if first == last else f"{first}-{last}"


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
