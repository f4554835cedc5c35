"""How a salvage is shown: the rows of its manifest, or what is lost as a table."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Self

from kafkalog.salvage import MANIFEST, Fate, manifest_object
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import counted, file_cell, printable, size_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from kafkalog.model import Defect
    from kafkalog.salvage import SalvageSummary
    from kafkalog.salvage.model import Row as ManifestRow

Row = dict[str, Any]


def read_manifest(destination: str) -> Iterator[Row]:
    """The rows of the manifest in a new directory."""
    with open(os.path.join(destination, MANIFEST), encoding="ascii") as lines:
        yield from map(json.loads, lines)


def _lost_view() -> View[Row]:
    """One row a range or a file that is lost."""
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


class SalvageWriter:
    """Writes rows of a manifest: all as objects, the lost ranges as CSV, what is lost as a table.

    Attributes:
        unfinished: the partitions with a transaction that nothing ends.
    """

    def __init__(self, form: Format, on_defect: Callable[[Defect], None]) -> None:
        self._form = form
        self._writer = Writer(_lost_view(), form, on_defect)
        self.unfinished: list[Row] = []

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, traceback)

    def tell(self, row: ManifestRow) -> None:
        """Write a row that comes from the library."""
        self.write(manifest_object(row))

    def write(self, row: Row) -> None:
        """Write a row of a manifest."""
        is_range = row["type"] == "lost_range"
        if row["type"] == "salvaged_partition" and row["first_unstable_offset"] is not None:
            self.unfinished.append(row)
        if self._form in (Format.NDJSON, Format.JSON) or (self._form == Format.CSV and is_range):
            self._writer.write_row(row)
        elif self._form == Format.TABLE and (is_range or row.get("fate") == Fate.LOST):
            self._writer.write(row)
        elif self._form == Format.TABLE and row["type"] == "defect":
            self._writer.flush()
            line = f"! {row['reference']}: {row['path']}: {row['detail']}"
            sys.stdout.buffer.write(f"{printable(line)}\n".encode())


def print_totals(summary: SalvageSummary) -> None:
    """The lines below the table: what was copied, and how much is lost."""
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
    if failed := summary.partitions_failed:
        lines.append(f"not copied, since the work failed: {counted(failed, 'partition')}")
    if skipped := summary.files[Fate.SKIPPED]:
        records = counted(summary.records_skipped, "record")
        lines.append(f"left out: {counted(skipped, 'file')} or directories, with {records}")
    sys.stdout.buffer.write("".join(f"{printable(line)}\n" for line in lines).encode())


def _offsets(row: Row) -> str:
    first, last = row.get("first_offset"), row.get("last_offset")
    if first is None:
        return "-"
    if last is None:
        return f"{first} and on"
    return str(first) if first == last else f"{first}-{last}"


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
