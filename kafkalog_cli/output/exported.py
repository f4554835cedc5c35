"""The output of `export`: a row per partition in tables, otherwise an object per file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.files.offsets import name_of
from kafkalog.io.wording import counted, some_of
from kafkalog.tables.model import LossReason
from kafkalog_cli.maintenance import STATUS
from kafkalog_cli.outcome import END_HINT
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, View
from kafkalog_cli.output.remarks import loss_lines, remark_lines
from kafkalog_cli.output.text import size_text
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.change.lake import ExportedPart, ExportSummary
    from kafkalog.change.lake.model import Gap
    from kafkalog.change.lake.plan import Part, Plan
    from kafkalog.log.typed.remarks import Remark
    from kafkalog_cli.output.objects import Style


def _files(summary: ExportSummary) -> int:
    return sum(part.file is not None for part in summary.parts)


EXPORT_PART: Final[ObjectType[ExportedPart]] = ObjectType(
    "export_part",
    "`export`",
    "A file, or a part of the plan without rows. The manifest has the same objects, with "
    "defects and rejects.",
    Field("file", k.TEXT | None, "relative to the destination"),
    Field("topic", k.TEXT, ""),
    Field("partition", k.INT, "−1 if the directory's name has none"),
    Field("log_dir", k.TEXT, ""),
    Field("rows", k.INT, ""),
    Field("size_bytes", k.INT, ""),
    Field("crc32c", k.INT | None, "of the file"),
    Field("first_offset", k.INT | None, "of its rows, if records or batches"),
    Field("last_offset", k.INT | None, "of its rows, if records or batches"),
    Field("undecoded_keys", k.INT, "that `--key-format` cannot decode"),
    Field("undecoded_values", k.INT, "that `--value-format` cannot decode"),
    Field("rejects", k.INT, "records with such a key or value",
          lambda one: 0 if one.rejects is None else one.rejects.rows),
    Field("rejects_file", k.TEXT | None,
          "relative to the destination",
          lambda one: None if one.rejects is None else one.rejects.file),
    Field("without_answer", k.INT, "records that `--where` has no answer for: not decoded"),
    Field("losses", k.OBJECT, "numbers of values that lost something, by typed column and what"),
    Field("defects", k.INT, "skipped damage and deletions: `defect` objects follow",
          "defect_count"),
)  # fmt: skip
EXPORT_PLAN: Final[ObjectType[Part]] = ObjectType(
    "export_plan",
    "`export` without `--to`",
    "A file that would be written.",
    Field("file", k.TEXT, "relative to the destination"),
    Field("topic", k.TEXT, "", lambda one: one.splits[0].topic),
    Field("partition", k.INT, "−1 if the directory's name has none",
          lambda one: one.splits[0].partition),
    Field("log_dir", k.TEXT, "", lambda one: one.splits[0].log_dir),
    Field("from_offset", k.INT | None, "first offset that is wanted",
          lambda one: one.splits[0].from_offset),
    Field("to_offset", k.INT | None, "offset to stop before",
          lambda one: one.splits[-1].to_offset),
    Field("size", k.SIZE, "to read, in bytes", "size_bytes"),
)  # fmt: skip
EXPORT_GAP: Final[ObjectType[Gap]] = ObjectType(
    "export_gap",
    "`export --append --accept gaps` or `damage`",
    "Offsets that the table never gets, or has although the log was cut before them.",
    Field("topic", k.TEXT, ""),
    Field("partition", k.INT, "−1 if the directory's name has none"),
    Field("topic_id", k.TEXT | None, ""),
    Field("first_offset", k.INT, ""),
    Field("last_offset", k.INT | None, "null if unknown"),
    Field("reason", k.TEXT,
          "`deleted` before they were exported; `cut` off after that; topic or partition `gone`; "
          "segment `missing`; batch `damaged`"),
    Field("detail", k.TEXT, ""),
)  # fmt: skip


def _remarks(of: Callable[[Any], Sequence[Remark]]) -> Field[Any]:
    return Field(
        "remarks", k.ARRAY,
        "of typed columns what is JSON, omitted, a conflict column, an old name or renamed: "
        "`path`, `type`, `reason`",
        lambda one: [asdict(remark) for remark in of(one)],
    )  # fmt: skip


class Reported(NamedTuple):
    """What an export did, and the exit status of the command so far."""

    done: ExportSummary
    status: int


class Planned(NamedTuple):
    """What an export would do, and the exit status of the command."""

    plan: Plan
    status: int


EXPORT_SUMMARY: Final[ObjectType[Reported]] = ObjectType(
    "export_summary",
    "`export`",
    "The last object: totals.",
    Field("destination", k.TEXT, "without credentials", "done.destination"),
    Field("files", k.INT, "", lambda one: _files(one.done)),
    Field("written_files", k.INT, "by this run", "done.written_files"),
    Field("rows", k.INT, "", "done.rows"),
    Field("tables", k.OBJECT, "with `--split-by-type` the rows of each table", "done.tables"),
    Field("size_bytes", k.INT, "", "done.size_bytes"),
    Field("undecoded_keys", k.INT, "that `--key-format` cannot decode", "done.undecoded_keys"),
    Field("undecoded_values", k.INT, "that `--value-format` cannot decode",
          "done.undecoded_values"),
    Field("rejects", k.INT, "in the table of rejects, not in `rows`", "done.rejects"),
    Field("without_answer", k.INT, "records that `--where` has no answer for: not decoded",
          "done.without_answer"),
    Field("losses", k.OBJECT, "numbers of values that lost something, by typed column and what",
          "done.losses"),
    _remarks(lambda one: one.done.remarks),
    Field("defects", k.INT, "skipped damage and deletions", "done.defect_count"),
    Field("without_watermark", k.ARRAY,
          "partitions read to the log end: no high watermark is known",
          "done.left_out.without_watermark"),
    Field("above_watermark", k.OBJECT,
          "partitions with such records, which are left out, and the offset",
          "done.left_out.above_watermark"),
    Field("above_last_stable", k.OBJECT,
          "partitions with such records, which are left out, and the offset",
          "done.left_out.above_last_stable"),
    Field("below_log_start", k.OBJECT,
          "partitions with such records, which are left out, and the offset",
          "done.left_out.below_log_start"),
    Field("below_watermark", k.OBJECT,
          "partitions whose log ends below the high watermark in the checkpoint, and that offset",
          "done.left_out.below_watermark"),
    Field("commit", k.INT | None, "of `--append`, from 0",
          lambda one: None if one.done.increment is None else one.done.increment.number),
    Field("gaps", k.INT, "`export_gap` objects precede", lambda one: len(one.done.gaps)),
    Field("added_columns", k.ARRAY,
          "new, or new fields as `value_decoded.total`: null in older rows",
          "done.columns.added"),
    Field("widened_columns", k.ARRAY, "get a wider type", "done.columns.widened"),
    Field("absent_columns", k.ARRAY, "missing in this run: null in its rows",
          "done.columns.absent"),
    Field("was_complete", k.BOOL, "an earlier run had done everything", "done.was_complete"),
    Field("removed_left_overs", k.INT, "files of killed runs", "done.swept"),
    STATUS,
    Field("changed", k.INT, "files that were written", "done.written_files"),
)  # fmt: skip
EXPORT_PLAN_SUMMARY: Final[ObjectType[Planned]] = ObjectType(
    "export_plan_summary",
    "`export` without `--to`",
    "The last object: totals.",
    Field("files", k.INT, "that would be written", lambda one: len(one.plan.parts)),
    Field("size_bytes", k.SIZE, "to read", "plan.size_bytes"),
    _remarks(lambda one: one.plan.remarks),
    STATUS,
    Field("changed", k.INT, "0: a plan changes nothing", lambda _: 0),
)


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
        self.files += part.file is not None
        self.rows += part.rows
        self.size_bytes += part.size_bytes
        self.defects += part.defect_count
        # Parts of an Iceberg table come by its partitions, whatever offsets they hold.
        firsts, lasts = (self.first_offset, part.first_offset), (self.last_offset, part.last_offset)
        self.first_offset = min((one for one in firsts if one is not None), default=None)
        self.last_offset = max((one for one in lasts if one is not None), default=None)


def partition_totals(parts: tuple[ExportedPart, ...]) -> list[PartitionTotal]:
    """Return a total for each partition directory, in the order of the plan."""
    found: dict[tuple[str, int, str], PartitionTotal] = {}
    for part in parts:
        name = (part.topic, part.partition, part.log_dir)
        found.setdefault(name, PartitionTotal(*name)).add(part)
    return list(found.values())


def _view(totals: list[PartitionTotal], style: Style) -> View[PartitionTotal]:
    several = len({(one.topic, one.partition) for one in totals}) < len(totals)
    columns: list[Column[PartitionTotal]] = [
        Column("PARTITION", _partition, least=20, keeps_end=True),
        Column("FILES", lambda one: one.files, right=True),
        Column("ROWS", lambda one: one.rows, right=True),
        Column("SIZE", lambda one: size_text(one.size_bytes, style), right=True),
        Column("OFFSETS", _offsets),
        Column("DEFECTS", lambda one: one.defects or "-", right=True),
    ]
    if several:
        columns.append(Column("LOG DIRECTORY", lambda one: one.log_dir, below=True))
    return View(tuple(columns), lambda _: {})


def plan_view(style: Style) -> View[Part]:
    return EXPORT_PLAN.view(
        style,
        Column("FILE", "file", least=20, keeps_end=True),
        Column("FROM", "from_offset"),
        Column("TO", "to_offset"),
        Column("TO READ", "size"),
    )


def plan_lines(plan: Plan, style: Style) -> list[str]:
    size = size_text(plan.size_bytes, style)
    what = f"{counted(len(plan.parts), 'file')}, {size} to read"
    notes = [*remark_lines(plan.remarks), *plan.left_out.lines(END_HINT)]
    return [f"{what}. Plan only: --to NEW writes it", *notes]


class ExportWriter(Writer[PartitionTotal]):
    """Writes the result of an export; use it as a context manager.

    A table has a row per partition, then the defects; NDJSON, JSON and CSV have an object per file,
    the first two also its defects and the summary.
    """

    def __init__(self, form: Format, style: Style) -> None:
        super().__init__(_view([], style), form)
        self._style = style

    def write_summary(self, summary: ExportSummary, status: int) -> None:
        if self.form.is_screen:
            totals = partition_totals(summary.parts)
            self.view = _view(totals, self._style)
            for total in totals:
                self.write(total)
        for part in summary.parts:
            if self.form.has_objects:
                self.write_row(EXPORT_PART.row(part))
            for defect in part.defects:
                self.defect(defect)
        for gap in summary.gaps:
            self.write_object(EXPORT_GAP.row(gap))
        self.write_object(EXPORT_SUMMARY.row(Reported(summary, status)))
        self.write_lines(_lines(summary, self._style))


def _lines(summary: ExportSummary, style: Style) -> list[str]:
    files = _files(summary)
    size = size_text(summary.size_bytes, style)
    what = f"{counted(summary.rows, 'row')} in {counted(files, 'file')}, {size}"
    of_values = [*remark_lines(summary.remarks), *loss_lines(summary.losses)]
    notes = [*of_values, *_rejects_lines(summary), *summary.left_out.lines(END_HINT)]
    if summary.left_out.without_watermark:
        names = some_of(list(summary.left_out.without_watermark))
        notes.append(f"no high watermark is known, so records end at the log end: {names}")
    notes += map(_gap_line, summary.gaps)
    notes += [f"{name}: {counted(rows, 'row')}" for name, rows in summary.tables.items()]
    if summary.was_complete:
        found = "nothing is new" if summary.increment else f"{what}: already complete"
        return [f"{summary.destination}: {found}; nothing was done", *notes]
    changes = (
        ("new columns, null in the rows before", summary.columns.added),
        ("columns with wider types", summary.columns.widened),
        ("columns that are null in these rows", summary.columns.absent),
    )
    notes += [f"{what}: {some_of(list(names))}" for what, names in changes if names]
    commit = f"commit {summary.increment.number}: " if summary.increment else ""
    lines = [f"{summary.destination}: {commit}{what}", *notes]
    there = len(summary.parts) - summary.written_files
    if there:
        lines.append(f"{there} of {len(summary.parts)} parts were complete from an earlier run")
    if summary.swept:
        lines.append(f"removed leftovers of a killed run: {counted(summary.swept, 'file')}")
    if summary.defect_count:
        found = counted(summary.defect_count, "defect")
        lines.append(f"{found}: batches that are damaged or were deleted meanwhile are left out")
    return lines


def _gap_line(gap: Gap) -> str:
    last = "" if gap.last_offset is None else f" to {gap.last_offset}"
    line = f"gap: {name_of(gap.topic, gap.partition)} from {gap.first_offset}{last}: {gap.detail}"
    return f"{line} No later run adds them." if gap.reason == LossReason.DAMAGED else line


def _rejects_lines(summary: ExportSummary) -> list[str]:
    if not summary.rejects:
        return []
    return [f"{counted(summary.rejects, 'record')} not decoded: in {summary.rejects_at}"]


def _partition(total: PartitionTotal) -> str:
    return total.topic if total.partition < 0 else f"{total.topic}-{total.partition}"


def _offsets(total: PartitionTotal) -> str | None:
    return None if total.first_offset is None else f"{total.first_offset}-{total.last_offset}"
