"""How an export is shown: a row a partition in tables, an object a file else."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from kafkalog_cli.output.configs import print_heading
from kafkalog_cli.output.left_out import left_out_lines, some_of
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import counted, size_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.export import ExportedPart, ExportSummary
    from kafkalog.model import Defect
    from kafkalog_cli.output.objects import Row


@dataclass
class PartitionTotal:
    """The parts of one partition directory."""

    topic: str
    partition: int
    log_dir: str
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    defects: int = 0

    def add(self, part: ExportedPart) -> None:
        """Count one more part."""
        self.files += part.file is not None
        self.rows += part.rows
        self.size_bytes += part.size_bytes
        self.defects += part.defect_count
        if part.first_offset is not None and self.first_offset is None:
            self.first_offset = part.first_offset
        if part.last_offset is not None:
            self.last_offset = part.last_offset


def partition_totals(parts: tuple[ExportedPart, ...]) -> list[PartitionTotal]:
    """One for each partition directory, in the order of the plan."""
    found: dict[tuple[str, int, str], PartitionTotal] = {}
    for part in parts:
        name = (part.topic, part.partition, part.log_dir)
        found.setdefault(name, PartitionTotal(*name)).add(part)
    return list(found.values())


def _view(totals: list[PartitionTotal], *, exact: bool) -> View[PartitionTotal]:
    several = len({(one.topic, one.partition) for one in totals}) < len(totals)
    columns = [
        Column[PartitionTotal]("PARTITION", _partition, fold=True),
        Column("FILES", lambda one: one.files, right=True),
        Column("ROWS", lambda one: one.rows, right=True),
        Column("SIZE", lambda one: size_cell(one.size_bytes, exact=exact), right=True),
        Column("OFFSETS", _offsets),
        Column("DEFECTS", lambda one: str(one.defects) if one.defects else "-", right=True),
    ]
    if several:
        columns.append(Column("LOG DIRECTORY", lambda one: one.log_dir, fold=True, below=True))
    return View(tuple(columns), lambda _: {})


class ExportWriter:
    """Writes what came of an export; use it as a context manager.

    A table has a row a partition, then the defects; NDJSON, JSON and CSV have an object a file;
    the first two the defects behind it, and the summary.
    """

    def __init__(self, form: Format, on_defect: Callable[[Defect], None], *, exact: bool) -> None:
        self._form = form
        self._on_defect = on_defect
        self._exact = exact
        self._writer: Writer[PartitionTotal] = Writer(_view([], exact=exact), form, on_defect)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writer.__exit__(*raised)

    def write(self, summary: ExportSummary) -> None:
        """Write all of it."""
        if self._form == Format.TABLE:
            self._write_table(summary)
            return
        for part in summary.parts:
            self._writer.write_row(part_row(part))
            for defect in part.defects:
                self._writer.defect(defect)
        if self._form != Format.CSV:
            self._writer.write_row(summary_row(summary))

    def _write_table(self, summary: ExportSummary) -> None:
        totals = partition_totals(summary.parts)
        self._writer.view = _view(totals, exact=self._exact)
        for total in totals:
            self._writer.write(total)
        for part in summary.parts:
            for defect in part.defects:
                self._writer.defect(defect)
        self._writer.flush()
        print_heading(_lines(summary, exact=self._exact))


def part_row(part: ExportedPart) -> Row:
    """The object for a file."""
    return {
        "type": "export_part",
        "file": part.file,
        "topic": part.topic,
        "partition": part.partition,
        "log_dir": part.log_dir,
        "rows": part.rows,
        "size": part.size_bytes,
        "crc32c": part.crc32c,
        "first_offset": part.first_offset,
        "last_offset": part.last_offset,
        "undecoded_keys": part.undecoded_keys,
        "undecoded_values": part.undecoded_values,
        "defects": part.defect_count,
    }


def summary_row(summary: ExportSummary) -> Row:
    """The last object of a run."""
    return {
        "type": "export_summary",
        "destination": summary.destination,
        "files": sum(part.file is not None for part in summary.parts),
        "written": summary.written,
        "rows": summary.rows,
        "size": summary.size_bytes,
        "undecoded_keys": summary.undecoded_keys,
        "undecoded_values": summary.undecoded_values,
        "defects": summary.defect_count,
        **asdict(summary.left_out),
        "was_complete": summary.was_complete,
        "left_overs_removed": summary.swept,
    }


def _lines(summary: ExportSummary, *, exact: bool) -> list[str]:
    files = sum(part.file is not None for part in summary.parts)
    size = size_cell(summary.size_bytes, exact=exact)
    what = f"{counted(summary.rows, 'row')} in {counted(files, 'file')}, {size}"
    undecoded = [
        f"{counted(number, what)} not decoded: null in {what}_decoded"
        for what, number in (("key", summary.undecoded_keys), ("value", summary.undecoded_values))
        if number
    ]
    notes = [*undecoded, *left_out_lines(summary.left_out)]
    if summary.left_out.without_watermark:
        names = some_of(list(summary.left_out.without_watermark))
        notes.append(f"no high watermark is known, so records end at the log end: {names}")
    if summary.was_complete:
        return [f"{summary.destination}: {what}: already complete; nothing was done", *notes]
    lines = [f"{summary.destination}: {what}", *notes]
    there = len(summary.parts) - summary.written
    if there:
        lines.append(f"{there} of {len(summary.parts)} parts were complete from an earlier run")
    if summary.swept:
        lines.append(f"removed leftovers of a killed run: {counted(summary.swept, 'file')}")
    if summary.defect_count:
        found = counted(summary.defect_count, "defect")
        lines.append(f"{found}: batches that are damaged or were deleted meanwhile are left out")
    return lines


def _partition(total: PartitionTotal) -> str:
    return total.topic if total.partition < 0 else f"{total.topic}-{total.partition}"


def _offsets(total: PartitionTotal) -> str:
    if total.first_offset is None:
        return "-"
    return f"{total.first_offset}-{total.last_offset}"
