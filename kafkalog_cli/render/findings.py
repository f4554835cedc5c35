"""How the findings of `verify` are shown, and its summary."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kafkalog_cli.render.rows import Row, defect_row
from kafkalog_cli.render.text import file_cell, printable, size_cell
from kafkalog_cli.render.writer import Column, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.check.verify import Summary
    from kafkalog.model import Defect
    from kafkalog.recovery import NextStart


def defect_view() -> View[Defect]:
    """One row a defect."""
    return View(
        (
            Column("SEVERITY", lambda defect: defect.severity),
            Column("REFERENCE", lambda defect: defect.reference),
            Column("FILE", lambda defect: file_cell(defect.path), fold=True),
            Column("POSITION", lambda defect: _dash(defect.position), right=True),
            Column("DETAIL", lambda defect: defect.detail, fold=True),
        ),
        defect_row,
    )


def summary_row(summary: Summary, level: str) -> Row:
    """The last object of a run."""
    from kafkalog.model import Severity

    return {
        "type": "summary",
        "files": summary.files,
        "batches": summary.batches,
        "records": summary.records,
        "bytes_expected": summary.bytes_expected,
        "bytes_checked": summary.bytes_checked,
        "defects": {severity.value: summary.defects[severity] for severity in Severity},
        "levels": [level],
    }


def next_start_row(start: NextStart) -> Row:
    """The object for what a broker's next start would do."""
    return {
        "type": "next_start",
        "path": start.path,
        "topic": start.topic,
        "partition": start.partition,
        "mode": start.mode,
        "verdict": start.verdict,
        "truncate_to": start.truncate_to,
        "records_lost": start.records_lost,
        "bytes_lost": start.bytes_lost,
        "rebuilt_segments": list(start.rebuilt_segments),
        "error": start.error,
        "consequence": start.consequence,
        "detail": start.detail,
        "assumptions": list(start.assumptions),
        "notes": list(start.notes),
    }


def print_next_starts(starts: Sequence[NextStart]) -> None:
    """The lines below the table: what a broker's next start would do, where it is not nothing.

    What is assumed, and what the start would not notice, is said once for all of whom it is true.
    """
    from kafkalog.recovery import Verdict

    said: dict[str, list[str]] = {}
    lines = []
    for start in starts:
        name = os.path.basename(os.path.abspath(start.path))
        if start.verdict != Verdict.NOTHING:
            lines.append(f"next start: {name}: {start.detail}")
            for assumption in start.assumptions:
                said.setdefault(f"assumed: {assumption}", []).append(name)
        for note in start.notes:
            said.setdefault(f"note: {note}", []).append(name)
    for words, names in said.items():
        which = names[0] if len(names) == 1 else f"{len(names)} partitions"
        lines.append(f"next start: {which}: {words}")
    for line in lines:
        sys.stdout.buffer.write(f"{printable(line)}\n".encode())


def print_summary(summary: Summary, level: str) -> None:
    """The line below the table: what was checked, and how much was found."""
    found = [f"{count} {severity}" for severity, count in sorted(summary.defects.items())]
    line = (
        f"{summary.files} files, {summary.batches} batches, {summary.records} records, "
        f"{size_cell(summary.bytes_checked, exact=False)} checked at level {level}: "
        f"{', '.join(found) if found else 'nothing wrong'}\n"
    )
    sys.stdout.buffer.write(line.encode())


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
