"""The output of `salvage`: the rows of its manifest, or what is lost as a table."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from kafkalog.change.rescue import MANIFEST, Fate, SalvageSummary, manifest_object
from kafkalog.io.wording import counted
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import file_cell, size_cell
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.change.rescue.model import Row as ManifestRow


SUMMARY: Final = "salvage_summary"


def summary_row(summary: SalvageSummary, status: int) -> dict[str, Any]:
    changed = 0 if summary.dry_run else summary.partitions
    return {**manifest_object(summary), "status": status, "changed": changed}


def read_manifest(destination: str) -> Iterator[dict[str, Any]]:
    with open(os.path.join(destination, MANIFEST), encoding="ascii") as lines:
        yield from map(json.loads, lines)


def _lost_view() -> View[dict[str, Any]]:
    return View(
        (
            Column("LOST FROM", lambda row: file_cell(row["path"]), least=12, keeps_end=True),
            Column("POSITION", lambda row: row.get("position"), right=True),
            Column("BYTES", lambda row: row.get("size_bytes"), right=True),
            Column("OFFSETS", _offsets),
            Column("REASON", lambda row: row.get("reason") or row.get("detail")),
            Column(
                "KEPT AS", lambda row: row.get("file") or row.get("to"), least=12, keeps_end=True
            ),
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
        if row["type"] == SUMMARY:  # the command adds to it
            return
        is_range = row["type"] == "lost_range" and not row["in_copies"]
        if row["type"] == "salvaged_partition" and row["first_unstable_offset"] is not None:
            self.unfinished.append(row)
        if self.form.has_objects:
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


def salvage_lines(summary: SalvageSummary) -> list[str]:
    """Return what is lost, corrected and left out, and the total."""
    if not summary.partitions:
        return ["nothing to do: no log found"]
    lines = []
    if summary.lost_ranges:
        lines.append(
            f"{counted(summary.lost_ranges, 'range')} of bytes lost, with "
            f"{counted(summary.lost_offsets, 'offset')}"
        )
    elif not summary.has_losses:
        lines.append("no record is lost")
    if corrected := summary.corrected_batches:
        what = counted(corrected, "batch")
        lines.append(f"headers corrected, as checksums or the batches around prove: {what}")
    if failed := summary.failed_partitions:
        lines.append(f"not copied because the work failed: {counted(failed, 'partition')}")
    if skipped := summary.files[Fate.SKIPPED]:
        records = counted(summary.skipped_records, "record")
        what = "file or directory" if skipped == 1 else "files or directories"
        lines.append(f"left out: {skipped} {what}, with {records}")
    size = size_cell(summary.copied_bytes + summary.from_copies_bytes, exact=session().exact)
    what = f"{counted(summary.records, 'record')} in {counted(summary.batches, 'batch')}, {size}"
    where = f"{counted(summary.partitions, 'partition')}, {counted(summary.segments, 'segment')}"
    if summary.dry_run:
        return [*lines, f"{where}: {what}, would be copied. Plan only: --to NEW does it"]
    place = "" if summary.destination is None else f" to {os.path.join(summary.destination, 'log')}"
    return [*lines, f"{where}: {what}, copied{place}"]


def _offsets(row: dict[str, Any]) -> str | None:
    first, last = row.get("first_offset"), row.get("last_offset")
    if first is None:
        return None
    if last is None:
        return f"{first} and on"
    return str(first) if first == last else f"{first}-{last}"
