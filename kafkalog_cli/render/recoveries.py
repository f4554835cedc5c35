"""How `recover` is shown: what a start does with each partition, and how long it may take."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kafkalog.recovery import Verdict, start_line
from kafkalog_cli.render.configs import config_rows, print_heading
from kafkalog_cli.render.text import counted, size_cell
from kafkalog_cli.render.writer import Column, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.configs import ConfigValue
    from kafkalog.repair import RecoveryDone, RecoveryPlan
    from kafkalog_cli.render.rows import Row


def recovery_view(*, exact: bool) -> View[RecoveryPlan]:
    """One row a partition."""
    return View(
        (
            Column("PARTITION", lambda plan: os.path.basename(plan.partition.path), fold=True),
            Column("START", lambda plan: plan.predicted.mode),
            Column("LOG END", _log_end, right=True),
            Column("FILES", lambda plan: len(plan.changes), right=True),
            Column("TO SCAN", lambda plan: size_cell(plan.bytes_to_scan, exact=exact), right=True),
            Column("A START WOULD", lambda plan: start_line(plan.predicted), fold=True),
        ),
        lambda plan: recovery_row(plan, (), None),
    )


def recovery_row(
    plan: RecoveryPlan, configs: Sequence[ConfigValue], done: RecoveryDone | None
) -> Row:
    """The object for a partition."""
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
        "verdict": predicted.verdict,
        "detail": start_line(predicted),
        "log_end_offset": predicted.loaded.log_end_offset if predicted.loaded else None,
        "lost_from": plan.lost_from,
        "committed_lost": list(lost) if lost is not None else None,
        "records_lost": predicted.records_lost,
        "bytes_lost": predicted.bytes_lost,
        "rebuilt_segments": sorted(set(predicted.rebuilt)),
        "bytes_to_scan": plan.bytes_to_scan,
        "files": [asdict(change) for change in plan.changes],
        "drops_mark": plan.drops_mark,
        "assumptions": list(predicted.assumptions),
        "notes": list(predicted.notes),
        "performed": done is not None,
        "verdict_after": done.after.verdict if done is not None else None,
    }


@dataclass(frozen=True, slots=True)
class RecoverySummary:
    """What all partitions come to; `scan_rate`, in bytes a second, is an assumption."""

    plans: tuple[RecoveryPlan, ...]
    performed: int
    scan_rate: int
    in_place: bool

    @property
    def changed(self) -> int:
        """Partitions with a file that is changed."""
        return sum(bool(plan.changes) for plan in self.plans)

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
        "partitions_stray": summary.strays,
        "partitions_refused": sum(not plan.is_loadable for plan in summary.plans),
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
    time = _duration(summary.scan_ms / 1000)
    lost = "no record is" if not summary.records_lost else f"{summary.records_lost} records are"
    strays = f"; {counted(summary.strays, 'partition')} to be a stray" if summary.strays else ""
    lines = [
        f"{total}; {lost} lost{strays}",
        f"a broker scans {scan} at such a start: {time} at an assumed {rate} a second",
    ]
    if summary.in_place:
        lines.append(f"{summary.performed} recovered")
    elif summary.changed:
        lines.append("nothing was changed: --in-place does it")
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
