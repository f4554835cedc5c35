"""The output of `compact` and `verify --compaction`: what becomes of partitions, and findings."""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog.change.compaction import Candidate, Dropped, Skip, Tally
from kafkalog.io.paths import file_system
from kafkalog.io.storage import final_path
from kafkalog.io.wording import counted, some_of
from kafkalog_cli.maintenance import (
    CONFIGS,
    MARKS,
    WORK_DONE,
    configs_text,
    marks_text,
    with_next_step,
)
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import (
    MEANING_OF_CONFIGS,
    Column,
    Field,
    ObjectType,
    topic_and_partition,
)
from kafkalog_cli.output.text import duration_text, file_cell, left_overs_text, size_text
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.change.audit import Audit, Finding
    from kafkalog.change.compaction import Compaction
    from kafkalog.change.compaction.run import CompactedPartition
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog_cli.output.objects import Style, View


@dataclass
class CompactionSummary:
    """The totals of all partitions.

    Attributes:
        is_done: whether anything may have been written.
        status: exit status of the command.
        judged: partitions that no error stopped.
        changed: partitions that were compacted.
        given_up: the partitions on which a broker's cleaner fails, and why.
        resets: the partitions whose cleaning begins at the log start, and why.
        repeated: the partitions over which a broker needs several passes.
        broker_ms: how long a broker needs at least; None if its cleaner has no limit.
    """

    now_ms: int
    is_done: bool
    status: int = 0
    partitions: int = 0
    judged: int = 0
    changed: int = 0
    compacted: int = 0
    clean_enough: int = 0
    left_overs: int = 0
    before_bytes: int = 0
    after_bytes: int = 0
    tally: Tally = field(default_factory=Tally)
    given_up: list[str] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    broker_ms: int | None = None

    def add(self, shown: CompactedPartition) -> None:
        self.partitions += 1
        found = shown.compaction
        self.judged += shown.error is None
        self.changed += found is not None and found.is_done
        self.clean_enough += found is not None and found.candidate.skip == Skip.CLEAN_ENOUGH
        if shown.skipped is None and found is not None:
            self.compacted += 1
            self.left_overs += len(shown.left_overs)
            self.before_bytes += found.before_bytes
            self.after_bytes += found.after_bytes
            self.tally.add(found.tally)
            self._compare(found, _name(shown.partition))
            if found.tally.cleaner_gives_up is not None:
                self.given_up.append(f"{_name(shown.partition)}: {found.tally.cleaner_gives_up}")

    def _compare(self, found: Compaction, name: str) -> None:
        """Note what a broker's cleaner has to do."""
        if (why := found.candidate.why_reset) is not None:
            self.resets.append(f"{name}: {why}")
        if (passes := found.broker_passes or 0) > 1:
            self.repeated.append(f"{passes} passes over {name}")
        if (duration := found.broker_ms) is not None:
            self.broker_ms = (self.broker_ms or 0) + duration


def _of_compaction(attribute: str, without: object = None) -> Callable[[CompactedPartition], Any]:
    return lambda shown: getattr(shown.compaction, attribute) if shown.compaction else without


def _of_candidate(attribute: str) -> Callable[[CompactedPartition], Any]:
    return lambda shown: getattr(shown.candidate, attribute) if shown.candidate else ()


def _of_dirty_part(attribute: str) -> Callable[[CompactedPartition], Any]:
    return lambda shown: shown.cleanable and getattr(shown.cleanable, attribute)


def _limits(shown: CompactedPartition) -> Any:
    return shown.candidate and shown.candidate.limits


COMPACTION: Final = ObjectType["CompactedPartition"](
    "compaction",
    "`compact`",
    "A partition and the result of its compaction, actual or predicted.",
    Field("path", k.TEXT, "with `--to`, of the copy while it was made",
          lambda shown: final_path(shown.partition.path)),
    *topic_and_partition("partition."),
    Field("performed", k.BOOL, "false in a plan, or if skipped",
          _of_compaction("is_done", without=False)),
    Field("first_dirty_offset", k.INT | None,
          "null if not examined",
          _of_dirty_part("first_dirty_offset")),
    Field("first_uncleanable_offset", k.INT | None,
          "of the first segment that is not cleaned",
          _of_dirty_part("first_uncleanable_offset")),
    Field("next_dirty_offset", k.INT | None,
          "where the next cleaning begins, as noted in the checkpoint",
          _of_compaction("next_dirty_offset")),
    Field("is_complete", k.BOOL,
          "nothing cleanable is left; a plan covers one pass, a small map may need more",
          _of_compaction("is_complete", without=False)),
    Field("clean_bytes", k.SIZE | None, "before the dirty part", _of_dirty_part("clean_bytes")),
    Field("cleanable_bytes", k.SIZE | None,
          "of the dirty part; their share of clean and cleanable bytes is the dirty ratio",
          _of_dirty_part("cleanable_bytes")),
    Field("passes", k.INT, "", _of_compaction("passes", without=0)),
    Field("keys", k.INT, "in the maps of all passes", _of_compaction("keys", without=0)),
    Field("read_records", k.INT, "in all passes, markers included", "tally.read_records"),
    Field("kept_records", k.INT, "", "tally.kept_records"),
    Field("dropped_records", k.OBJECT,
          "records by reason: `superseded` (by a later record), `tombstone` (past its delete "
          "horizon), `aborted`, `no_key`, `marker`",
          lambda shown: {why.value: shown.tally.dropped[why] for why in Dropped}),
    Field("before_bytes", k.SIZE | None, "all logs", _of_compaction("before_bytes")),
    Field("after_bytes", k.SIZE | None, "", _of_compaction("after_bytes")),
    Field("segment_groups", k.ARRAY,
          "new segments, by pass: `base_offset`, `sources` (base offsets of the old ones), "
          "`before_bytes`, `after_bytes`",
          _of_compaction("groups", without=())),
    Field("reset_reason", k.TEXT | None,
          "why the first dirty offset is the log start, and not the cleaner offset",
          lambda shown: shown.candidate and shown.candidate.why_reset),
    Field("broker_map_keys", k.INT | None,
          "keys that a cleaner thread maps in a pass, by `log.cleaner.threads`, "
          "`log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.load.factor`",
          lambda shown: _limits(shown) and _limits(shown).map_keys),
    Field("broker_passes", k.INT | None,
          "what a broker needs at least; keys that repeat may take more",
          _of_compaction("broker_passes")),
    Field("broker_ms", k.INT | None,
          "how long it needs at least with `log.cleaner.io.max.bytes.per.second`; null without",
          _of_compaction("broker_ms")),
    Field("configs", CONFIGS, MEANING_OF_CONFIGS, _of_candidate("configs")),
    Field("marks", MARKS,
          "log start offset, high watermark, last stable offset, cleaner offset: `name`, "
          "`value`, `source`", _of_candidate("marks")),
    Field("left_overs", k.ARRAY, "`.deleted` files of a broker, which are removed too"),
    Field("cleaner_gives_up", k.TEXT | None,
          "why a broker's cleaner fails where `compact` does not",
          "tally.cleaner_gives_up"),
    Field("skipped", k.TEXT | None, "why it is skipped"),
)  # fmt: skip
COMPACTION_SUMMARY: Final = ObjectType[CompactionSummary](
    "compaction_summary",
    "`compact`",
    "The last object: totals.",
    Field("now_timestamp", k.INT, "clock used", "now_ms"),
    Field("partitions", k.INT, "examined"),
    Field(
        "compacted_partitions", k.INT, "not skipped; the other numbers are about these", "compacted"
    ),
    Field("read_records", k.INT, "as in `compaction`", "tally.read_records"),
    Field("kept_records", k.INT, "as in `compaction`", "tally.kept_records"),
    Field("before_bytes", k.INT, "as in `compaction`"),
    Field("after_bytes", k.INT, "as in `compaction`"),
    *WORK_DONE,
)


def compaction_view(style: Style) -> View[CompactedPartition]:
    """Return the view with a row per partition; a skipped one shows only what was examined."""

    def compacted(title: str, name: str) -> Column[CompactedPartition]:
        get = COMPACTION.fields[name].getter()
        to_cell = COMPACTION.fields[name].kind.cell_of

        def cell(shown: CompactedPartition) -> object:
            is_known = shown.cleanable is not None and not shown.skipped
            return to_cell(get(shown), style) if is_known else "-"

        return Column(title, cell, right=True)

    def ratio(shown: CompactedPartition) -> str:
        return "-" if shown.cleanable is None else f"{100 * shown.cleanable.ratio:.0f}%"

    return COMPACTION.view(
        style,
        Column("PARTITION", lambda shown: _name(shown.partition), least=20, keeps_end=True),
        Column("DIRTY", "first_dirty_offset"),
        compacted("CLEAN TO", "next_dirty_offset"),
        Column("RATIO", ratio, right=True),
        compacted("READ", "read_records"),
        compacted("KEPT", "kept_records"),
        compacted("BEFORE", "before_bytes"),
        compacted("AFTER", "after_bytes"),
        Column("SKIPPED", "skipped", below=True),
    )


def candidate_lines(candidate: Candidate) -> list[str]:
    """Return the offsets and the configs of a partition that counted; with -v also defaults."""
    is_full = session().is_verbose
    configs = [one for one in candidate.configs if is_full or one.set_as is not None]
    marks = f"{final_path(candidate.partition.path)}: {marks_text(candidate.marks)}"
    return [marks, configs_text(configs)] if configs else [marks]


def compaction_lines(summary: CompactionSummary, style: Style, *, is_plan: bool) -> list[str]:
    """Return what is dropped and how a broker does otherwise, and the total."""
    before = size_text(summary.before_bytes, style)
    after = size_text(summary.after_bytes, style)
    verb = "compacted" if summary.is_done else "would be compacted"
    line = f"{summary.compacted} of {counted(summary.partitions, 'partition')} {verb}"
    if summary.compacted:
        line += f", from {before} to {after}"
    dropped = [
        f"{count} {why.value.replace('_', ' ')}"
        for why in Dropped
        if (count := summary.tally.dropped[why])
    ]
    lines = [f"dropped: {', '.join(dropped)}"] if dropped else []
    if summary.left_overs:
        lines.append(left_overs_text(summary.left_overs, is_done=summary.is_done))
    lines += [f"a broker's cleaner fails on this partition: {one}" for one in summary.given_up]
    lines += [f"cleaning begins at the log start of {one}" for one in summary.resets]
    if summary.repeated:
        lines.append(f"a broker's offset map is small: at least {some_of(summary.repeated)}")
    if summary.broker_ms is not None:
        duration = duration_text(summary.broker_ms)
        lines.append(f"log.cleaner.io.max.bytes.per.second slows a broker to at least {duration}")
    if summary.clean_enough:
        lines.append(f"--all adds {summary.clean_enough} more that a broker would skip")
    return [*lines, with_next_step(line, is_plan=is_plan and summary.compacted > 0)]


def _name(partition: PartitionDir) -> str:
    return os.path.basename(file_system.absolute(partition.path))


AUDIT_FINDING: Final[ObjectType[Finding]] = ObjectType(
    "audit_finding",
    "`verify --compaction`",
    "A counterexample: the log is not correctly compacted.",
    Field("reason", k.TEXT,
          "`stale-key`, `no-key`, `live-key-lost`, `tombstone-dropped-too-early`, "
          "`marker-dropped-too-early`, `record-lost`, `record-changed`, `record-added`, "
          "`batch-changed`, `delete-horizon-changed`, `producer-state-lost`, `log-start-changed`, "
          "`log-end-changed`, `leader-epochs-changed`, `last-stable-offset-changed`"),
    Field("path", k.TEXT, "the `.log` (the original's if a record is gone), or the directory"),
    Field("position", k.INT | None, "of the batch"),
    Field("offset", k.INT | None, "of the record, or base offset of the batch"),
    Field("key", k.KEY, ""),
    Field("other_offset", k.INT | None, "later record with that key"),
    Field("detail", k.TEXT, ""),
)  # fmt: skip
AUDIT: Final[ObjectType[Audit]] = ObjectType(
    "audit",
    "`verify --compaction`",
    "The last object: what was judged.",
    Field("path", k.TEXT, "", "partition.path"),
    *topic_and_partition("partition."),
    Field("original", k.TEXT | None, "its directory",
          lambda one: one.original and one.original.path),
    Field("first_dirty_offset", k.INT, "where the cleanings began", "bounds.first_dirty_offset"),
    Field("cleaner_offset", k.INT, "end of the compacted part", "bounds.cleaner_offset"),
    Field("cleaner_offset_source", k.TEXT, "", "source"),
    Field("now_timestamp", k.INT, "clock used", "bounds.now_ms"),
    Field("keys", k.INT, "distinct, below the cleaner offset"),
    Field("findings", k.INT, "at most `--limit`", lambda one: len(one.findings)),
    Field("proved", k.BOOL, "no counterexamples", lambda one: not one.findings),
)  # fmt: skip


def finding_view(style: Style) -> View[Finding]:
    return AUDIT_FINDING.view(
        style,
        Column("OFFSET", "offset"),
        Column("KEY", "key", least=12),
        Column("REASON", "reason"),
        Column("IN", lambda one: file_cell(one.path), below=True),
        Column("WHY", "detail", below=True),
    )


def audit_view(style: Style) -> View[Audit]:
    return AUDIT.view(
        style,
        Column(
            "PARTITION", lambda one: os.path.basename(one.partition.path), least=12, keeps_end=True
        ),
        Column("JUDGED TO", "cleaner_offset"),
        Column("KEYS", lambda one: "-" if one.findings else one.keys, right=True),
        Column("RESULT", _result, below=True),
    )


def _result(audit: Audit) -> str:
    if audit.findings:
        return str(audit.findings[0].reason)
    return "nothing compacted" if _is_void(audit) else "correctly compacted"


def _is_void(audit: Audit) -> bool:
    return audit.bounds.cleaner_offset <= audit.bounds.first_dirty_offset


def audit_total(audits: Sequence[Audit]) -> str:
    """Return the verdict on logs, with its reasons if it is about one."""
    if len(audits) > 1:
        wrong = sum(bool(audit.findings) for audit in audits)
        line = f"{counted(len(audits), 'partition')} judged, "
        line += f"{wrong} not correctly compacted" if wrong else "each is correctly compacted"
        if not wrong and any(audit.original is None for audit in audits):
            line += "; only --original shows whether a record is missing"
        return line
    [audit] = audits
    bounds, name = audit.bounds, audit.partition.path
    judged = f"{name}: judged up to offset {bounds.cleaner_offset} ({audit.source})"
    if audit.original is not None:
        judged += f", compared with {audit.original.path}"
    keys = counted(audit.keys, "distinct key")
    verdict = f"correctly compacted, {keys}"
    if audit.findings:
        verdict = "not correctly compacted"
    elif _is_void(audit):
        verdict = "not judged: no part of it counts as compacted"
    elif audit.original is None:
        verdict += "; only --original shows whether a record is missing"
    return f"{judged}: {verdict}"
