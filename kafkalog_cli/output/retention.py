"""The output of `simulate-retention` and `apply-retention`: verdicts, and what is deleted when."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kafkalog.wording import counted
from kafkalog_cli.maintenance import (
    CONFIGS,
    MARKS,
    configs_text,
    marks_text,
    note_shadowed,
    print_heading,
)
from kafkalog_cli.output.objects import (
    ARRAY,
    BOOL,
    INT,
    OBJECT,
    SIZE,
    TEXT,
    TIME,
    Column,
    Field,
    ObjectType,
    size_text,
    time_text,
    topic_and_partition,
)
from kafkalog_cli.output.text import Tone, left_overs_text
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.retention import Deletion, ForecastDay, PartitionRetention, Verdict
    from kafkalog.retention.run import TrimmedPartition
    from kafkalog.retention.simulation import Check, Schedule
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import Row, Style, View


class Judged(NamedTuple):
    """A segment and its partition."""

    found: PartitionRetention
    verdict: Verdict


@dataclass
class RetentionSummary:
    """The totals of all partitions.

    Attributes:
        now_ms: the clock that was used.
        until_ms: end of the forecast.
    """

    now_ms: int
    until_ms: int
    partitions: int = 0
    segments: int = 0
    segments_deleted: int = 0
    bytes_total: int = 0
    bytes_freed: int = 0
    side_bytes_freed: int = 0
    days: dict[int, ForecastDay] = field(default_factory=dict)

    def add(self, found: PartitionRetention) -> None:
        """Add a partition."""
        from kafkalog.retention import ForecastDay, forecast

        self.partitions += 1
        self.segments += len(found.verdicts)
        self.segments_deleted += len(found.outcome.deleted)
        self.bytes_total += found.log.size_bytes
        self.bytes_freed += found.bytes_freed
        self.side_bytes_freed += found.side_bytes_freed
        for day in forecast(found.verdicts, self.now_ms, self.until_ms):
            old = self.days.get(day.from_ms, ForecastDay(day.from_ms, day.to_ms, 0, 0))
            self.days[day.from_ms] = ForecastDay(
                day.from_ms,
                day.to_ms,
                old.segments + day.segments,
                old.bytes_freed + day.bytes_freed,
            )


def _forecast(summary: RetentionSummary) -> object:
    return [
        {"from": day.from_ms, "to": day.to_ms, "segments": day.segments, "bytes": day.bytes_freed}
        for _, day in sorted(summary.days.items())
    ]


RETENTION_PARTITION: Final[ObjectType[PartitionRetention]] = ObjectType(
    "retention_partition",
    "`simulate-retention`, `apply-retention`",
    "A partition, before the rows of its segments: configs, offsets and totals.",
    Field("path", TEXT, "the directory", "partition.path"),
    *topic_and_partition("partition."),
    Field("state", TEXT, "`live`, `delete`, `future` or `stray`", "partition.state"),
    Field("configs", CONFIGS,
          "every config that has an effect: `name`, `value` (lists are joined by commas), "
          "`source` (`--config`, `FILE:LINE`, `__cluster_metadata-0 ...`, `default`), `set_as` "
          "(its name in the source, null for a default)"),
    Field("marks", MARKS,
          "log start offset and high watermark, each with `name`, `value`, `source` (a "
          "checkpoint, the log, or the option)"),
    Field("log_end_offset", INT, "offset that the next record would get", "log.log_end_offset"),
    Field("size", SIZE, "bytes of batches in all segments", "log.size_bytes"),
    Field("segments_deleted", INT, "number of segments that are deleted now",
          lambda found: len(found.outcome.deleted)),
    Field("bytes_freed", SIZE, "bytes of their `.log` files"),
    Field("side_bytes_freed", SIZE, "bytes of their indexes and producer snapshots"),
    Field("log_start_offset_after", INT, "first readable offset afterwards",
          "outcome.log.log_start_offset"),
    Field("rolled", BOOL, "whether all are deleted, so that a new active segment is needed",
          "outcome.rolled"),
)  # fmt: skip
RETENTION: Final = ObjectType[Judged](
    "retention",
    "`simulate-retention`, `apply-retention`",
    "A segment and its fate.",
    *topic_and_partition("found.partition."),
    Field("segment", TEXT, "its `.log`", "verdict.segment.path"),
    Field("base_offset", INT, "offset in the file's name", "verdict.segment.base_offset"),
    Field("end_offset", INT, "base offset of the next segment, log end offset for the last",
          "verdict.upper_bound"),
    Field("size", SIZE, "bytes of its batches", "verdict.segment.size_bytes"),
    Field("is_active", BOOL, "whether a broker would append to it", "verdict.is_active"),
    Field("largest_timestamp", TIME, "largest timestamp as a broker determines it, milliseconds",
          "verdict.segment.largest_timestamp"),
    Field("timestamp_source", TEXT,
          "`time-index` (its last entry), `batches` (the segment is recovered at the next start), "
          "`mtime` (the segment has no timestamp)",
          "verdict.segment.timestamp_source"),
    Field("verdict", TEXT, "`delete` or `keep`, now",
          lambda one: "delete" if one.verdict.is_deleted else "keep"),
    Field("reason", TEXT,
          "the policy that deletes it: `log-start-offset`, `retention.bytes`, `retention.ms`; or "
          "why none does: `blocked` (a policy would, see `blocked_by`), `within-retention`, "
          "`unlimited`, `compact-only`, `cleaner-disabled`, `metadata-log`, `not-live`",
          "verdict.reason"),
    Field("deletable_at", TIME | None,
          "first millisecond at which it may be deleted by time alone, together with the segments "
          "before it; null if never",
          "verdict.deletable_at"),
    Field("blocked_by", TEXT | None,
          "`high-watermark`, `segment` (an earlier one is kept), `active-empty`, `remote-storage` "
          "(only uploaded segments are deleted)",
          "verdict.blocked_by"),
    Field("blocking_segment", INT | None,
          "base offset of the earlier segment that expires later than this one; null if none does",
          "verdict.blocking_segment"),
    Field("bytes_to_append", INT | None,
          "number of bytes to append until `retention.bytes` deletes it; null if it never does, "
          "and for the active segment", "verdict.bytes_to_append"),
    Field("latest_record", OBJECT | None,
          "record with the largest timestamp: `offset`, `timestamp`, `position` of its batch; "
          "only for a segment whose timestamp lies in the future or delays the expiry of others",
          "verdict.latest_record"),
    Field("detail", TEXT, "description, not for programs", "verdict.detail"),
)  # fmt: skip
RETENTION_SUMMARY: Final = ObjectType[RetentionSummary](
    "retention_summary",
    "`simulate-retention`, `apply-retention`",
    "The last object of a run: what is freed now, and what time alone frees later.",
    Field("now", INT, "the clock that was used, milliseconds", "now_ms"),
    Field("until", INT, "end of the forecast, milliseconds", "until_ms"),
    Field("partitions", INT, "partitions with a log"),
    Field("segments", INT, "their segments"),
    Field("segments_deleted", INT, "segments that are deleted now"),
    Field("size", INT, "bytes of batches in all segments", "bytes_total"),
    Field("bytes_freed", INT, "bytes of the `.log` files that are deleted now"),
    Field("side_bytes_freed", INT, "bytes of the indexes and snapshots that are deleted with them"),
    Field("forecast", ARRAY,
          "each period of 24 hours from now in which something is deleted: `from` (exclusive), "
          "`to` (inclusive), `segments`, `bytes`", _forecast),
)  # fmt: skip
RETENTION_APPLIED: Final = ObjectType["TrimmedPartition"](
    "retention_applied",
    "`apply-retention`",
    "What is deleted from a partition, after the rows of all its segments. The active segment "
    "stays, whatever its `retention` row says.",
    Field("path", TEXT, "the directory", "plan.partition.path"),
    *topic_and_partition("plan.partition."),
    Field("performed", BOOL, "whether it was performed; false in a plan", "is_done"),
    Field("segments_deleted", INT, "number of segments that are deleted",
          lambda one: len(one.plan.segments)),
    Field("bytes_freed", INT, "bytes of their `.log` files", "plan.bytes_freed"),
    Field("side_bytes_freed", INT, "bytes of their indexes and producer snapshots",
          "plan.side_bytes_freed"),
    Field("files", ARRAY, "names of all these files, in deletion order",
          lambda one: [name for group in one.plan.files for name in group]),
    Field("keep_deleted", BOOL, "whether they stay under `.deleted` names", "plan.keeps_deleted"),
    Field("left_overs", ARRAY,
          "names of the files left by interrupted deletions, which are deleted, too",
          "plan.left_overs"),
    Field("active_stays", BOOL, "whether a broker would roll the log and delete all of it",
          "plan.active_stays"),
    Field("log_start_offset", INT, "first readable offset afterwards", "plan.log_start_offset"),
    Field("log_start_checkpoint", INT | None,
          "entry in `log-start-offset-checkpoint` afterwards; null if there is none because the "
          "log starts with a segment", "plan.log_start_checkpoint"),
    Field("log_end_offset", INT, "offset that the next record gets, before and after",
          "plan.found.log.log_end_offset"),
    Field("leader_epochs", ARRAY, "`leader-epoch-checkpoint` afterwards: epoch, first offset",
          lambda one: [[entry.epoch, entry.start_offset] for entry in one.plan.leader_epochs]),
)  # fmt: skip


class Checked(NamedTuple):
    """A segment that a check of a broker deletes, and its partition."""

    found: PartitionRetention
    schedule: Schedule
    check: Check
    deletion: Deletion


CHECK: Final = ObjectType[Checked](
    "retention_check",
    "`simulate-retention --checks`",
    "A segment, and the check at which a broker that starts now deletes it.",
    *topic_and_partition("found.partition."),
    Field("check", INT, "ordinal of the check since the start, from 1", "check.number"),
    Field("at", TIME, "when it is, milliseconds", "check.at_ms"),
    Field("runner", TEXT, "`retention` (a task every `log.retention.check.interval.ms`), or "
          "`cleaner` for compacted topics (every `log.cleaner.backoff.ms`)", "schedule.runner"),
    Field("segment", TEXT, "its `.log`, which becomes `.deleted`", "deletion.segment.path"),
    Field("base_offset", INT, "offset in the file's name", "deletion.segment.base_offset"),
    Field("size", SIZE, "bytes of its batches", "deletion.segment.size_bytes"),
    Field("reason", TEXT, "the policy that deletes it, as in `retention`", "deletion.reason"),
    Field("late_by", INT, "milliseconds since time alone would have allowed it; 0 for other "
          "policies", lambda one: one.check.late_by_ms(one.deletion, one.found.policy)),
    Field("files_removed_at", TIME, "when its files are removed: `file.delete.delay.ms` later",
          "check.removed_ms"),
)  # fmt: skip


class RetentionWriter:
    """Writes partitions and the verdicts on their segments; use it as a context manager.

    Args:
        summary: counts what is written.
        form: format of the listing.
        outcome: takes defects.
        style: style of the tables.
        checks: whether to write at which checks of a broker the segments go, too.
    """

    def __init__(
        self,
        summary: RetentionSummary,
        form: Format,
        outcome: Outcome,
        style: Style,
        *,
        checks: bool = False,
    ) -> None:
        self._summary = summary
        self._form = form
        self._style = style
        self._outcome = outcome
        self._checks = checks
        self._told: set[str] = set()
        self._writer = Writer(verdict_view(style), form, outcome.defect)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writer.__exit__(*raised)

    def write(self, found: PartitionRetention) -> None:
        """Write a partition, then its segments."""
        self._summary.add(found)
        note_shadowed(found.partition.topic, found.configs, found.topic_configs, self._told)
        if self._form == Format.TABLE:
            self._writer.flush()
            print_heading(partition_heading(found))
        elif self._form != Format.CSV:
            self._writer.write_row(RETENTION_PARTITION.row(found))
        for verdict in found.verdicts:
            self._writer.write(Judged(found, verdict))
        if self._checks and self._form != Format.CSV:
            self._write_checks(found)

    def _write_checks(self, found: PartitionRetention) -> None:
        """Write the checks of a broker that delete something."""
        from kafkalog.retention.simulation import checks_of

        schedule, checks = checks_of(found, self._summary.until_ms)
        rows = [
            Checked(found, schedule, check, deletion)
            for check in checks
            for deletion in check.deleted
        ]
        if self._form != Format.TABLE:
            for row in rows:
                self._writer.write_row(CHECK.row(row))
            return
        self._writer.flush()
        start = time_text(schedule.first_ms, self._style)
        who = "retention task" if schedule.runner == "retention" else schedule.runner
        what = f"checks of the {who} from {start} on: {configs_text(schedule.configs)}"
        print_heading([what if rows else f"{what}; none deletes anything"])
        if rows:
            with Writer(check_view(self._style), Format.TABLE, self._outcome.defect) as writer:
                for row in rows:
                    writer.write(row)

    def row(self, row: Row) -> None:
        """Write another object, in NDJSON and JSON."""
        if self._form in (Format.NDJSON, Format.JSON):
            self._writer.write_row(row)

    def flush(self) -> None:
        """Write buffered table rows."""
        if self._form == Format.TABLE:
            self._writer.flush()

    def end(self) -> None:
        """Write the summary, after the last partition."""
        self.row(RETENTION_SUMMARY.row(self._summary))


def verdict_view(style: Style) -> View[Judged]:
    """Return the view with a row per segment."""
    return RETENTION.view(
        style,
        Column("SEGMENT", "base_offset"),
        Column("SIZE", "size"),
        Column("LARGEST TIME", "largest_timestamp"),
        Column("FROM", "timestamp_source"),
        Column(
            "VERDICT", "verdict", tone=lambda one: Tone.REMOVED if one.verdict.is_deleted else None
        ),
        Column("REASON", "reason"),
        Column("DELETABLE", "deletable_at", below=True),
        Column("WHY", "detail", fold=True, below=True),
    )


def check_view(style: Style) -> View[Checked]:
    """Return the view with a row per segment that a check deletes."""
    return CHECK.view(
        style,
        Column("CHECK", "check"),
        Column("AT", "at"),
        Column("SEGMENT", "base_offset"),
        Column("SIZE", "size"),
        Column("REASON", "reason"),
        Column("LATE MS", "late_by"),
        Column("FILES REMOVED", "files_removed_at", below=True),
    )


def partition_heading(found: PartitionRetention) -> list[str]:
    """Return the lines above a partition's table."""
    return [
        f"{found.partition.path}: {marks_text(found.marks)}",
        configs_text(found.configs),
    ]


def print_retention_summary(summary: RetentionSummary, style: Style) -> None:
    """Print the lines below the tables: what is freed now, and day by day."""
    size = partial(size_text, style=style)
    time = partial(time_text, style=style)
    total = f"{counted(summary.partitions, 'partition')}, {counted(summary.segments, 'segment')}"
    freed = f"{size(summary.bytes_freed)} and {size(summary.side_bytes_freed)} of indexes"
    gone = counted(summary.segments_deleted, "segment")
    going = f"at {time(summary.now_ms)} retention deletes {gone}, {freed}"
    lines = [f"{total}, {size(summary.bytes_total)}; {going}"]
    lines += [
        f"by {time(min(day.to_ms, summary.until_ms))}: {day.segments} more, {size(day.bytes_freed)}"
        for _, day in sorted(summary.days.items())
    ]
    if not summary.days:
        lines.append(f"by {time(summary.until_ms)}: nothing more")
    print_heading(lines)


def print_trims(trimmed: Sequence[TrimmedPartition], style: Style, *, in_place: bool) -> None:
    """Print the lines below the tables."""
    lines = [] if trimmed else ["nothing to do: retention applies to no segment"]
    for one in trimmed:
        plan, name = one.plan, one.plan.partition.path
        if plan.active_stays:
            lines.append(
                f"{name}: everything but the active segment would be deleted; a broker "
                f"rolls that first"
            )
        if plan.is_empty:
            lines.append(f"{name}: nothing to do, the log starts at {plan.log_start_offset}")
            continue
        verb = "removed" if one.is_done else "would be removed"
        files = sum(map(len, plan.files))
        freed = size_text(plan.bytes_freed + plan.side_bytes_freed, style)
        what = f"{counted(len(plan.segments), 'segment')} in {counted(files, 'file')}, {freed}"
        lines.append(f"{name}: {what}, {verb}; the log starts at {plan.log_start_offset}")
        if plan.left_overs:
            lines.append(f"{name}: {left_overs_text(len(plan.left_overs), is_done=one.is_done)}")
    if not in_place and any(not one.plan.is_empty for one in trimmed):
        lines.append("nothing was changed; --in-place applies the plan")
    elif trimmed and not any(one.is_done for one in trimmed):
        lines.append("nothing was changed")
    print_heading(lines)
