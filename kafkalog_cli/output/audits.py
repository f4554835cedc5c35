"""The output of `audit-compaction`: counterexamples, and what was judged."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kafkalog.wording import counted
from kafkalog_cli.output.configs import print_heading
from kafkalog_cli.output.objects import (
    BOOL,
    BYTES,
    INT,
    TEXT,
    Column,
    Field,
    ObjectType,
    topic_and_partition,
)
from kafkalog_cli.output.text import file_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.audit import Audit, Finding
    from kafkalog_cli.output.objects import Style, View

AUDIT_FINDING: Final[ObjectType[Finding]] = ObjectType(
    "audit_finding",
    "`audit-compaction`",
    "A counterexample, which shows that the log is not correctly compacted.",
    Field("reason", TEXT, "`stale-key`, `no-key`, `live-key-lost`, `tombstone-dropped-too-early`, "
          "`marker-dropped-too-early`, `record-lost`, `record-changed`, `record-added`, "
          "`batch-changed`, `delete-horizon-changed`, `producer-state-lost`, `log-start-changed`, "
          "`log-end-changed`, `leader-epochs-changed`, `last-stable-offset-changed`"),
    Field("path", TEXT,
          "path of the `.log` (the original's if a record is gone); the directory if the loss "
          "concerns the whole log"),
    Field("position", INT | None, "byte position of the batch; null for the log as a whole"),
    Field("offset", INT | None,
          "offset of the record, or base offset of the batch; null if the loss concerns the whole "
          "log"),
    Field("key", BYTES, "key of the record; null if none"),
    Field("other_offset", INT | None, "offset of the later record with that key; null if none"),
    Field("detail", TEXT, "description, not for programs"),
)  # fmt: skip
AUDIT: Final[ObjectType[Audit]] = ObjectType(
    "audit",
    "`audit-compaction`",
    "The last object of a run: what was judged.",
    Field("path", TEXT, "the directory", "partition.path"),
    *topic_and_partition("partition."),
    Field("original", TEXT | None, "directory of the original; null if none",
          lambda one: one.original and one.original.path),
    Field("first_dirty_offset", INT, "where the cleanings began", "bounds.first_dirty_offset"),
    Field("cleaner_offset", INT,
          "offset up to which the log was compacted", "bounds.cleaner_offset"),
    Field("cleaner_offset_source", TEXT, "source of the cleaner offset", "source"),
    Field("now", INT, "the clock that was used, milliseconds", "bounds.now_ms"),
    Field("keys", INT, "distinct keys that were read below the cleaner offset"),
    Field("findings", INT, "number of counterexamples, at most `--limit`",
          lambda one: len(one.findings)),
    Field("proved", BOOL, "whether there are no counterexamples", lambda one: not one.findings),
)  # fmt: skip


def finding_view(style: Style) -> View[Finding]:
    """Return the view with a row per counterexample."""
    return AUDIT_FINDING.view(
        style,
        Column("OFFSET", "offset"),
        Column("KEY", "key", fold=True),
        Column("REASON", "reason"),
        Column("IN", lambda one: file_cell(one.path), below=True),
        Column("WHY", "detail", fold=True, below=True),
    )


def audit_view(style: Style) -> View[Audit]:
    """Return the view with a row per partition."""
    return AUDIT.view(
        style,
        Column("PARTITION", lambda one: os.path.basename(one.partition.path), fold=True),
        Column("JUDGED TO", "cleaner_offset"),
        Column("KEYS", lambda one: "-" if one.findings else one.keys, right=True),
        Column("RESULT", _result, fold=True),
    )


def _result(audit: Audit) -> str:
    if audit.findings:
        return str(audit.findings[0].reason)
    return "nothing compacted" if _is_void(audit) else "correctly compacted"


def _is_void(audit: Audit) -> bool:
    return audit.bounds.cleaner_offset <= audit.bounds.first_dirty_offset


def print_audit(audit: Audit) -> None:
    """Print the lines below the table."""
    bounds, name = audit.bounds, audit.partition.path
    judged = f"{name}: judged up to offset {bounds.cleaner_offset} ({audit.source})"
    if audit.original is not None:
        judged += f", compared with {audit.original.path}"
    keys = counted(audit.keys, "distinct key")
    verdict = f"correctly compacted, {keys}"
    if audit.findings:
        verdict = "not correctly compacted"
    elif _is_void(audit):
        verdict = "nothing wrong found, but no part of it counts as compacted"
    elif audit.original is None:
        verdict += "; only --original shows whether a record is missing"
    print_heading([judged, verdict])


def print_audits(audits: Sequence[Audit]) -> None:
    """Print the line below the tables of a log directory."""
    wrong = sum(bool(audit.findings) for audit in audits)
    line = f"{counted(len(audits), 'partition')} judged, "
    line += f"{wrong} not correctly compacted" if wrong else "each is correctly compacted"
    if not wrong and any(audit.original is None for audit in audits):
        line += "; only --original shows whether a record is missing"
    print_heading([line])
