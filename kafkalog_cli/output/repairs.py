"""The output of `recover` and `rebuild-index`: predicted starts, and indexes."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.change.repair import Fate, FileChange, IndexComparison, RecoveryPlan
from kafkalog.io.wording import counted
from kafkalog.node.recovery import NextStart, PredictedStart, Verdict
from kafkalog.node.recovery.model import refusal_line, start_line
from kafkalog_cli.maintenance import CONFIGS, PLAN_ONLY, WORK_DONE, with_next_step
from kafkalog_cli.outcome import show_note
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.findings import (
    MEANING_OF_HIDDEN,
    MEANING_OF_LOST,
    MEANING_OF_MODE,
    MEANING_OF_VERDICT,
)
from kafkalog_cli.output.objects import (
    MEANING_OF_CONFIGS,
    Column,
    Field,
    ObjectType,
    View,
    topic_and_partition,
)
from kafkalog_cli.output.text import Tone, duration_text, file_cell, size_text
from kafkalog_cli.output.writer import Format, write_all
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.change.repair.rebuild import IndexedPartition
    from kafkalog.change.repair.run import RecoveredPartition
    from kafkalog.node.recovery import NodeStart
    from kafkalog_cli.output.objects import Style


@dataclass(frozen=True, slots=True)
class RecoverySummary:
    """The totals of all partitions.

    Attributes:
        nodes: the starts of the nodes of which whole log directories are recovered.
        changed: partitions with changes that were made.
        scan_rate: assumed bytes per second.
        is_plan: whether nothing was to be changed.
        status: exit status of the command.
    """

    plans: tuple[RecoveryPlan, ...]
    nodes: tuple[NodeStart, ...]
    refused: int
    changed: int
    scan_rate: int
    is_plan: bool
    status: int = 0

    @property
    def to_change(self) -> int:
        """Number of partitions with a file that a recovery changes."""
        return sum(bool(plan.changes) for plan in self.plans)

    @property
    def unloadable(self) -> int:
        """Number of partitions on which the next start would fail, as they are."""
        return sum(plan.refusal is not None for plan in self.plans)

    @property
    def node_refusals(self) -> tuple[str, ...]:
        """Why nodes do not start on their log directories."""
        return tuple(refusal_line(one.refusal) for node in self.nodes for one in node.refusals)

    @property
    def absent(self) -> int:
        """Number of partitions that a start creates empty, in place of those that are gone."""
        return sum(len(node.absent) for node in self.nodes)

    @property
    def untouched(self) -> int:
        """Number of partitions that are left to the broker."""
        return sum(plan.untouched is not None for plan in self.plans)

    @property
    def removed(self) -> tuple[FileChange, ...]:
        return tuple(one for plan in self.plans for one in plan.going if one.fate == Fate.REMOVED)

    @property
    def lost_records(self) -> int:
        """Number of records that are cut off, by the headers of their batches."""
        return sum(plan.predicted.lost_records for plan in self.plans)

    @property
    def hidden_records(self) -> int:
        """Number of records behind a log end that is too early."""
        return sum(plan.predicted.hidden_records for plan in self.plans)

    @property
    def strays(self) -> int:
        """Number of partitions that a start takes away from the broker."""
        starts = [plan if self.is_plan else plan.predicted for plan in self.plans]
        return sum(start.verdict == Verdict.STRAY for start in starts)

    @property
    def scan_bytes(self) -> int:
        return sum(plan.scan_bytes for plan in self.plans)

    @property
    def scan_ms(self) -> int:
        return self.scan_bytes * 1000 // self.scan_rate


RECOVERY: Final = ObjectType["RecoveredPartition"](
    "recovery",
    "`recover`",
    "A partition, and what a start does to it.",
    Field("path", k.TEXT, "", "plan.partition.path"),
    *topic_and_partition("plan.partition."),
    Field("mode", k.TEXT, MEANING_OF_MODE, "plan.predicted.mode"),
    Field("recovery_point", k.INT, "offset where scanning starts", "plan.predicted.recovery_point"),
    Field("log_start_checkpoint", k.INT, "0 without an entry",
          "plan.predicted.log_start_checkpoint"),
    Field("high_watermark", k.INT | None, "in `replication-offset-checkpoint`",
          "plan.high_watermark"),
    Field("configs", CONFIGS, MEANING_OF_CONFIGS),
    Field("verdict", k.TEXT, MEANING_OF_VERDICT, "plan.verdict"),
    Field("detail", k.TEXT, "", "plan.detail"),
    Field("log_end_offset", k.INT | None, "afterwards; null if refused"),
    Field("lost_from", k.INT | None, "first offset that may be lost", "plan.lost_from"),
    Field("committed_lost", k.ARRAY | None,
          "first and last that may be lost below the high watermark",
          "plan.committed_lost"),
    Field("lost_records", k.INT, MEANING_OF_LOST, "plan.predicted.lost_records"),
    Field("hidden_records", k.INT, MEANING_OF_HIDDEN, "plan.predicted.hidden_records"),
    Field("lost_bytes", k.INT, "of logs", "plan.predicted.lost_bytes"),
    Field("rebuilt_segments", k.ARRAY, "base offsets of segments whose indexes change",
          lambda one: sorted(set(one.plan.predicted.rebuilt))),
    Field("scan_bytes", k.SIZE, "", "plan.scan_bytes"),
    Field("file_changes", k.ARRAY,
          "changes: `name`, `fate` (`removed`, `cut`, `renamed`, `written`), the new "
          "`size_bytes`; if removed or cut, `removed_bytes`, `removed_records`, `reason`",
          "plan.changes"),
    Field("drops_mark", k.BOOL, "the clean shutdown mark is removed", "plan.drops_mark"),
    Field("while_marked", k.TEXT | None,
          "what a start does instead without recovery, while marked as cleanly shut down; null "
          "if the same",
          lambda one: one.plan.while_marked and _marked_line(one.plan.while_marked)),
    Field("untouched", k.TEXT | None, "why it is left to the broker",
          lambda one: one.plan.untouched and one.plan.untouched.reason),
    Field("refusal", k.TEXT | None, "why it must not be recovered",
          lambda one: one.refused and one.refused.message),
    Field("assumptions", k.ARRAY, "what could not be read", "plan.predicted.assumptions"),
    Field("notes", k.ARRAY, "what an operator should know", "plan.predicted.notes"),
    Field("performed", k.BOOL, "", lambda one: one.done is not None),
    Field("verdict_after", k.TEXT | None,
          "of the next start afterwards",
          lambda one: one.done and one.done.after.verdict),
)  # fmt: skip
RECOVERY_SUMMARY: Final = ObjectType[RecoverySummary](
    "recovery_summary",
    "`recover`",
    "The last object: totals.",
    Field("partitions", k.INT, "", lambda one: len(one.plans)),
    Field("partitions_to_change", k.INT, "", "to_change"),
    Field("untouched_partitions", k.INT, "left to the broker", "untouched"),
    Field("unloadable_partitions", k.INT, "the next start would fail", "unloadable"),
    Field("node_refusals", k.ARRAY, "why the node would not start on its log directories"),
    Field("absent_partitions", k.INT, "a start creates them empty", "absent"),
    Field("stray_partitions", k.INT, "a start takes them away", "strays"),
    Field("refused_partitions", k.INT, "then none is recovered", "refused"),
    Field("removed_files", k.INT, "", lambda one: len(one.removed)),
    Field("removed_records", k.INT, "by batch headers",
          lambda one: sum(file.removed_records for file in one.removed)),
    Field("lost_records", k.INT, MEANING_OF_LOST),
    Field("hidden_records", k.INT, MEANING_OF_HIDDEN),
    Field("lost_bytes", k.INT, "of logs",
          lambda one: sum(plan.predicted.lost_bytes for plan in one.plans)),
    Field("scan_bytes", k.INT, ""),
    Field("scan_bytes_per_second", k.INT, "`--scan-rate`, bytes per second", "scan_rate"),
    Field("scan_ms", k.INT, "how long that takes"),
    *WORK_DONE,
)  # fmt: skip


def recovery_view(style: Style) -> View[RecoveredPartition]:
    return RECOVERY.view(
        style,
        Column(
            "PARTITION",
            lambda one: os.path.basename(one.plan.partition.path),
            least=20,
            keeps_end=True,
        ),
        Column("START", "mode", weight=9),
        Column("END", "log_end_offset", weight=9),
        Column(
            "LOST",
            lambda one: one.plan.predicted.lost_records or None,
            right=True,
            weight=8,
            tone=lambda _: Tone.BAD,
        ),
        Column("SCAN", "scan_bytes", weight=7),
        Column("FILES", lambda one: len(one.plan.changes) or None, right=True, weight=7),
        Column("AT THE NEXT START", "detail", below=True, tone=_tone_of_start),
    )


def _tone_of_start(one: RecoveredPartition) -> Tone | None:
    if one.plan.refusal is not None or one.plan.verdict in ("stray", "refuse"):
        return Tone.BAD
    return Tone.DOUBTFUL if one.plan.verdict in ("hide", "truncate") else None


def print_going(plans: Sequence[RecoveryPlan], style: Style) -> None:
    going = [_Going(plan, change) for plan in plans for change in plan.going]
    view = View[_Going](
        (
            Column("GOES", lambda one: one.name, least=12, keeps_end=True),
            Column("FATE", lambda one: one.change.fate, tone=lambda _: Tone.DOUBTFUL),
            Column("SIZE", lambda one: size_text(one.change.removed_bytes, style), right=True),
            Column("RECORDS", lambda one: one.change.removed_records or "-", right=True),
            Column("WHY", lambda one: one.change.reason, below=True),
        ),
        lambda one: asdict(one.change),
    )
    if going:
        write_all(going, view, Format.TABLE)


def note_recovery(nodes: Sequence[NodeStart], plans: list[RecoveryPlan]) -> None:
    """Report what nodes as a whole do, and each note once, however many partitions it concerns."""
    for node in nodes:
        for start in (*NextStart.of_node(node), *NextStart.of_promoted(node)):
            show_note(f"{start.path}: the next start would {start.detail}")
    places: dict[str, list[str]] = {}
    for plan in plans:
        marked = plan.while_marked
        said = () if marked is None else (_marked_line(marked),)
        assumed = plan.predicted.assumptions if session().is_verbose else ()
        for words in (*plan.predicted.notes, *assumed, *said):
            places.setdefault(words, []).append(plan.partition.path)
    for words, paths in places.items():
        others = f" and {counted(len(paths) - 1, 'more partition')}" if len(paths) > 1 else ""
        show_note(f"{paths[0]}{others}: {words}")
    if any(plan.drops_mark for plan in plans):
        show_note("the mark of a clean shutdown is removed: the next start of a broker scans again")


def _marked_line(marked: PredictedStart) -> str:
    """Describe the next start on a directory that is marked as closed cleanly."""
    does = "changes nothing" if marked.verdict == Verdict.NOTHING else f"would {start_line(marked)}"
    return "; ".join([f"as it is, marked as closed cleanly, the next start {does}", *marked.notes])


@dataclass(frozen=True, slots=True)
class _Going:
    """A file that is removed or cut."""

    plan: RecoveryPlan
    change: FileChange

    @property
    def name(self) -> str:
        return os.path.join(os.path.basename(self.plan.partition.path), self.change.name)


def recovery_lines(summary: RecoverySummary, style: Style) -> list[str]:
    """Return what goes, how long a broker scans if that is long, and the total."""
    lines = []
    if summary.removed:
        size = size_text(sum(one.removed_bytes for one in summary.removed), style)
        records = counted(sum(one.removed_records for one in summary.removed), "record")
        lines.append(f"files to remove: {len(summary.removed)}, {size}, with {records}")
    seconds = summary.scan_ms // 1000
    if seconds or session().is_verbose:
        is_marked = any(plan.while_marked is not None for plan in summary.plans)
        when = "at an unclean start" if is_marked else "when it starts"
        time = duration_text(seconds * 1000) if seconds else "less than a second"
        scan, rate = (size_text(one, style) for one in (summary.scan_bytes, summary.scan_rate))
        lines.append(f"a broker scans {scan} {when}: {time} at an assumed {rate} per second")
    total = f"{counted(len(summary.plans), 'partition')}: {', '.join(_what_changes(summary))}"
    if summary.is_plan and summary.to_change:
        total += f". {'Plan only: --apply would refuse it' if summary.refused else PLAN_ONLY}"
    return [*lines, total]


def _what_changes(summary: RecoverySummary) -> Iterator[str]:
    rest = summary.to_change - summary.changed
    yield f"{rest} would change" if summary.is_plan else f"{summary.changed} recovered"
    if rest and not summary.is_plan:
        yield f"{rest} not"
    if summary.untouched:
        yield f"{summary.untouched} left to the broker"
    if summary.refused:
        yield f"{summary.refused} must not be recovered"
    if summary.unloadable:
        yield f"a start fails on {summary.unloadable}"
    if summary.lost_records:
        yield f"{counted(summary.lost_records, 'record')} lost"
    if summary.hidden_records:
        yield f"{counted(summary.hidden_records, 'record')} hidden (new ones get their offsets)"
    short = sum(plan.missing is not None and plan.lost_from is None for plan in summary.plans)
    if short:
        yield f"{short} {'ends' if short == 1 else 'end'} below the high watermark"
    committed = any(plan.committed_lost is not None for plan in summary.plans)
    gone = summary.lost_records + summary.hidden_records + committed + short
    if not (gone or summary.unloadable or summary.strays or summary.refused or summary.absent):
        yield "no record is lost"
    if summary.strays:
        yield f"a start turns {summary.strays} into strays"
    if summary.absent:
        yield f"a start creates {summary.absent} empty"
    if any(node.is_refused for node in summary.nodes):
        yield "the node does not start"


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """The totals of all indexes: how many, how many are to be written, how many were.

    Attributes:
        changed: partitions with an index that was written.
        status: exit status of the command.
    """

    indexes: int
    to_write: int
    written: int
    changed: int
    status: int = 0


def index_summary(partitions: Sequence[IndexedPartition]) -> IndexSummary:
    indexes = [(index, one.is_done) for one in partitions for index in one.indexes]
    stale = [is_done for index, is_done in indexes if index.is_changed]
    done = sum(one.is_done and one.is_changed for one in partitions)
    return IndexSummary(len(indexes), len(stale), sum(stale), done)


INDEX_COMPARISON: Final[ObjectType[IndexComparison]] = ObjectType(
    "index_comparison",
    "`rebuild-index`",
    "An index, compared with the one that the log gives.",
    Field("path", k.TEXT, ""),
    Field("base_offset", k.INT, "in the file's name"),
    Field("result", k.TEXT, "`same`, `padded` (with zeros), `different` or `missing`"),
    Field("size_bytes", k.SIZE | None, "as it was"),
    Field("new_size_bytes", k.SIZE, "rebuilt"),
)  # fmt: skip
INDEX_SUMMARY: Final = ObjectType[IndexSummary](
    "index_summary",
    "`rebuild-index`",
    "The last object: totals.",
    Field("indexes", k.INT, ""),
    Field("stale_indexes", k.INT, "not `same`", "to_write"),
    Field("written_indexes", k.INT, "", "written"),
    *WORK_DONE,
)


def index_view(style: Style) -> View[IndexComparison]:
    return INDEX_COMPARISON.view(
        style,
        Column("INDEX", lambda index: file_cell(index.path), least=12, keeps_end=True),
        Column("SIZE", "size_bytes"),
        Column("FROM THE LOG", "new_size_bytes"),
        Column("RESULT", "result"),
    )


def index_total(summary: IndexSummary, *, is_plan: bool) -> str:
    line = f"{counted(summary.indexes, 'index')}, {summary.to_write} missing or different"
    if not is_plan:
        line += f", {summary.written} written"
    return with_next_step(line, is_plan=is_plan and summary.to_write > 0)
