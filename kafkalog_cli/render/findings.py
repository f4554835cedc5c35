"""How the findings of `verify` are shown, and its summary."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kafkalog_cli.render.rows import Row, defect_row
from kafkalog_cli.render.text import file_cell, size_cell
from kafkalog_cli.render.writer import Column, View

if TYPE_CHECKING:
    from kafkalog.check.verify import Summary
    from kafkalog.model import Defect


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
