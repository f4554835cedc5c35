"""How `audit-compaction` is shown: counterexamples, and what was judged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog_cli.output.configs import print_heading
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import bytes_cell, bytes_value, counted, file_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.audit import Audit, Finding
    from kafkalog_cli.output.objects import Row
    from kafkalog_cli.output.text import BytesFormat


def finding_view(form: BytesFormat) -> View[Finding]:
    """One row a counterexample; `form` says how keys are shown."""
    return View(
        (
            Column("OFFSET", lambda one: _dash(one.offset), right=True),
            Column(
                "KEY", lambda one: "-" if one.key is None else bytes_cell(one.key, form), fold=True
            ),
            Column("REASON", lambda one: one.reason),
            Column("IN", lambda one: file_cell(one.path), below=True),
            Column("WHY", lambda one: one.detail, fold=True, below=True),
        ),
        lambda one: finding_row(one, form),
    )


def audit_view() -> View[Audit]:
    """One row a partition."""
    return View(
        (
            Column("PARTITION", lambda one: os.path.basename(one.partition.path), fold=True),
            Column("JUDGED TO", lambda one: one.bounds.cleaner_offset, right=True),
            Column("KEYS", lambda one: "-" if one.findings else one.keys, right=True),
            Column("RESULT", _result, fold=True),
        ),
        audit_row,
    )


def _result(audit: Audit) -> str:
    if audit.findings:
        return str(audit.findings[0].reason)
    return "nothing compacted" if _is_void(audit) else "correctly compacted"


def _is_void(audit: Audit) -> bool:
    return audit.bounds.cleaner_offset <= audit.bounds.first_dirty_offset


def finding_row(finding: Finding, form: BytesFormat) -> Row:
    """The object for a counterexample."""
    return {
        "type": "audit_finding",
        "reason": finding.reason,
        "path": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "key": bytes_value(finding.key, form),
        "other_offset": finding.other_offset,
        "detail": finding.detail,
    }


def audit_row(audit: Audit) -> Row:
    """The last object of a run."""
    return {
        "type": "audit",
        "path": audit.partition.path,
        "topic": audit.partition.topic,
        "partition": audit.partition.partition,
        "original": None if audit.original is None else audit.original.path,
        "first_dirty_offset": audit.bounds.first_dirty_offset,
        "cleaner_offset": audit.bounds.cleaner_offset,
        "cleaner_offset_source": audit.source,
        "now": audit.bounds.now_ms,
        "keys": audit.keys,
        "findings": len(audit.findings),
        "proved": not audit.findings,
    }


def print_audit(audit: Audit) -> None:
    """The lines below the table."""
    bounds, name = audit.bounds, audit.partition.path
    judged = f"{name}: judged up to offset {bounds.cleaner_offset} ({audit.source})"
    if audit.original is not None:
        judged += f", compared with {audit.original.path}"
    keys = f"{audit.keys} distinct key" + ("" if audit.keys == 1 else "s")
    verdict = f"correctly compacted, {keys}"
    if audit.findings:
        verdict = "not correctly compacted"
    elif _is_void(audit):
        verdict = "nothing wrong found, but no part of it counts as compacted"
    elif audit.original is None:
        verdict += "; only --original shows whether a record is missing"
    print_heading([judged, verdict])


def print_audits(audits: Sequence[Audit]) -> None:
    """The line below the tables of a log directory."""
    wrong = sum(bool(audit.findings) for audit in audits)
    line = f"{counted(len(audits), 'partition')} judged, "
    line += f"{wrong} not correctly compacted" if wrong else "each is correctly compacted"
    if not wrong and any(audit.original is None for audit in audits):
        line += "; only --original shows whether a record is missing"
    print_heading([line])


def _dash(value: object) -> str:
    return "-" if value is None else str(value)
