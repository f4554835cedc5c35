"""How `recover` is shown: what a start does with each partition, and how long it may take."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kafkalog.recovery import Verdict
from kafkalog.repair import Fate
from kafkalog_cli.output.configs import config_rows, print_heading
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import counted, size_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.configs import ConfigValue
    from kafkalog.errors import KafkaLogError
    from kafkalog.model import Defect
    from kafkalog.repair import FileChange, RecoveryDone, RecoveryPlan
    from kafkalog_cli.output.objects import Row


def recovery_view(*, exact: bool) -> View[RecoveryPlan]:
    """One row a partition."""
    return View(
        (
            Column("PARTITION", lambda plan: os.path.basename(plan.partition.path), fold=True),
            Column("START", lambda plan: plan.predicted.mode),
            Column("LOG END", _log_end, right=True),
            Column("FILES", lambda plan: len(plan.changes), right=True),
            Column("TO SCAN", lambda plan: size_cell(plan.bytes_to_scan, exact=exact), right=True),
            Column("A START WOULD", lambda plan: plan.detail, fold=True),
        ),
        lambda plan: recovery_row(plan, (), None, None),
    )


def print_going(
    plans: Sequence[RecoveryPlan], on_defect: Callable[[Defect], None], *, exact: bool
) -> None:
    """Print a table of the files that are removed or cut, if there are any."""
    going = [_Going(plan, change) for plan in plans for change in plan.going]
    view = View[_Going](
        (
            Column("GOES", lambda one: one.name, fold=True),
            Column("FATE", lambda one: one.change.fate),
            Column("SIZE", lambda one: size_cell(one.change.bytes_gone, exact=exact), right=True),
            Column("RECORDS", lambda one: one.change.records_gone or "-", right=True),
            Column("WHY", lambda one: one.change.why, fold=True, below=True),
        ),
        lambda one: asdict(one.change),
    )
    if going:
        with Writer(view, Format.TABLE, on_defect) as out:
            for one in going:
                out.write(one)


@dataclass(frozen=True, slots=True)
class _Going:
    """A file of which something goes."""

    plan: RecoveryPlan
    change: FileChange

    @property
    def name(self) -> str:
        return os.path.join(os.path.basename(self.plan.partition.path), self.change.name)


def recovery_row(
    plan: RecoveryPlan,
    configs: Sequence[ConfigValue],
    refused: KafkaLogError | None,
    done: RecoveryDone | None,
) -> Row:
    """Return the object for a partition."""
    predicted, lost = plan.predicted, plan.committed_lost
    return {
        "type": "recovery",
        "path": plan.partition.path,
        "topic": plan.partition.topic,
        "partition": plan.partition.partition,
        "mode": predicted.mode,
        "recovery_point": predicted.recovery_point,
        "log_start_checkpoint": predicted.log_start_checkpoint,
        "high_watermark": plan.high_watermark,
        "configs": config_rows(configs),
        "verdict": plan.verdict,
        "detail": plan.detail,
        "log_end_offset": predicted.loaded.log_end_offset if predicted.loaded else None,
        "lost_from": plan.lost_from,
        "committed_lost": list(lost) if lost is not None else None,
        "records_lost": predicted.records_lost,
        "bytes_lost": predicted.bytes_lost,
        "rebuilt_segments": sorted(set(predicted.rebuilt)),
        "bytes_to_scan": plan.bytes_to_scan,
        "files": [asdict(change) for change in plan.changes],
        "drops_mark": plan.drops_mark,
        "untouched": plan.untouched.reason if plan.untouched else None,
        "refused": refused.message if refused else None,
        "assumptions": list(predicted.assumptions),
        "notes": list(predicted.notes),
        "performed": done is not None,
        "verdict_after": done.after.verdict if done is not None else None,
    }


@dataclass(frozen=True, slots=True)
class RecoverySummary:
    """What all partitions come to.

    Attributes:
        plans: one for each.
        refused: those that must not be recovered.
        performed: those with changes that were made.
        scan_rate: bytes a second, an assumption.
        in_place: whether it was to be done.
    """

    plans: tuple[RecoveryPlan, ...]
    refused: int
    performed: int
    scan_rate: int
    in_place: bool

    @property
    def changed(self) -> int:
        """Partitions with a file that is changed."""
        return sum(bool(plan.changes) for plan in self.plans)

    @property
    def unloadable(self) -> int:
        """Partitions on which a start would fail, as they are."""
        return sum(plan.refusal is not None for plan in self.plans)

    @property
    def untouched(self) -> int:
        """Partitions that are left to the broker."""
        return sum(plan.untouched is not None for plan in self.plans)

    @property
    def removed(self) -> tuple[FileChange, ...]:
        """The files that go."""
        return tuple(one for plan in self.plans for one in plan.going if one.fate == Fate.REMOVED)

    @property
    def records_lost(self) -> int:
        """Records that go, by the headers of their batches."""
        return sum(plan.predicted.records_lost for plan in self.plans)

    @property
    def strays(self) -> int:
        """Partitions that a start takes away from the broker."""
        return sum(plan.predicted.verdict == Verdict.STRAY for plan in self.plans)

    @property
    def bytes_to_scan(self) -> int:
        """Bytes that a broker scans."""
        return sum(plan.bytes_to_scan for plan in self.plans)

    @property
    def scan_ms(self) -> int:
        """How long that takes."""
        return self.bytes_to_scan * 1000 // self.scan_rate


def recovery_summary_row(summary: RecoverySummary) -> Row:
    """The last object of a run."""
    return {
        "type": "recovery_summary",
        "in_place": summary.in_place,
        "partitions": len(summary.plans),
        "partitions_changed": summary.changed,
        "partitions_performed": summary.performed,
        "partitions_untouched": summary.untouched,
        "partitions_unloadable": summary.unloadable,
        "partitions_stray": summary.strays,
        "partitions_refused": summary.refused,
        "files_removed": len(summary.removed),
        "records_removed": sum(one.records_gone for one in summary.removed),
        "records_lost": summary.records_lost,
        "bytes_lost": sum(plan.predicted.bytes_lost for plan in summary.plans),
        "bytes_to_scan": summary.bytes_to_scan,
        "scan_rate": summary.scan_rate,
        "scan_ms": summary.scan_ms,
    }


def print_recovery_summary(summary: RecoverySummary, *, exact: bool) -> None:
    """The lines below the table."""
    scan = size_cell(summary.bytes_to_scan, exact=exact)
    rate = size_cell(summary.scan_rate, exact=exact)
    total = f"{counted(len(summary.plans), 'partition')}, {summary.changed} to change"
    if summary.untouched:
        total += f", {summary.untouched} left to the broker"
    if summary.refused:
        total += f", {summary.refused} must not be recovered"
    if summary.unloadable:
        total += f"; a start fails on {summary.unloadable}"
    if summary.records_lost:
        total += f"; {counted(summary.records_lost, 'record')} lost"
    elif not summary.unloadable and not summary.strays:
        total += "; no record is lost"
    if summary.strays:
        total += f"; a start turns {summary.strays} into strays"
    time = _duration(summary.scan_ms / 1000)
    lines = [total]
    if summary.removed:
        size = size_cell(sum(one.bytes_gone for one in summary.removed), exact=exact)
        records = counted(sum(one.records_gone for one in summary.removed), "record")
        lines.append(f"{counted(len(summary.removed), 'file')} go, {size}, with {records} in them")
    lines.append(f"a broker scans {scan} when it starts: {time} at an assumed {rate} per second")
    if summary.in_place and summary.performed == summary.changed:
        lines.append(f"{summary.performed} recovered")
    elif summary.in_place:
        rest = summary.changed - summary.performed
        lines.append(f"{summary.performed} recovered, {rest} not")
    elif summary.changed:
        lines.append("nothing was changed; --in-place applies the plan")
    print_heading(lines)


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "less than a second"
    if seconds < 90:
        return f"some {seconds:.0f} s"
    return f"some {seconds / 60:.0f} min" if seconds < 5400 else f"some {seconds / 3600:.1f} h"


def _log_end(plan: RecoveryPlan) -> object:
    loaded = plan.predicted.loaded
    return "-" if loaded is None else loaded.log_end_offset
