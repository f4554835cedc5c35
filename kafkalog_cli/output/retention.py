"""The output of `simulate-retention`: the verdict on each segment, and what is deleted when."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from formats.late_classes import dataclass
from kafkalog.io.wording import counted
from kafkalog_cli.maintenance import CONFIGS, MARKS, configs_text, marks_text
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import (
    MEANING_OF_CONFIGS,
    Column,
    Field,
    ObjectType,
    topic_and_partition,
)
from kafkalog_cli.output.text import (
    Tone,
    duration_text,
    size_text,
    time_column,
    time_text,
    with_durations,
    zone_name,
)
from kafkalog_cli.output.writer import Format, Writer, print_lines, write_all

if TYPE_CHECKING:
    from kafkalog.change.retention import (
        Deletion,
        ForecastDay,
        PartitionRetention,
        RemoteRetention,
        Verdict,
    )
    from kafkalog.change.retention.simulation import Check, Schedule
    from kafkalog_cli.output.objects import Style, View


class Judged(NamedTuple):
    """A segment and its partition."""

    found: PartitionRetention
    verdict: Verdict
    storage: str = "local"


@dataclass
class RetentionSummary:
    """The totals of all partitions."""

    now_ms: int
    until_ms: int
    partitions: int = 0
    segments: int = 0
    segments_deleted: int = 0
    bytes_total: int = 0
    bytes_freed: int = 0
    side_bytes_freed: int = 0
    remote_segments: int = 0
    remote_segments_deleted: int = 0
    remote_bytes_freed: int = 0
    days: dict[int, ForecastDay] = field(default_factory=dict)

    def add(self, found: PartitionRetention) -> None:
        from kafkalog.change.retention import ForecastDay, forecast

        self.partitions += 1
        self.segments += len(found.verdicts)
        self.segments_deleted += len(found.outcome.deleted)
        self.bytes_total += found.log.size_bytes
        self.bytes_freed += found.bytes_freed
        self.side_bytes_freed += found.side_bytes_freed
        if found.remote is not None:
            self.remote_segments += len(found.remote.verdicts)
            self.remote_segments_deleted += found.remote.segments_deleted
            self.remote_bytes_freed += found.remote.bytes_freed
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


def _remote(found: PartitionRetention) -> object:
    remote = found.remote
    if remote is None:
        return None
    return {
        "segments": len(remote.verdicts),
        "size": remote.size_bytes,
        "local_size": remote.local_bytes,
        "segments_deleted": remote.segments_deleted,
        "bytes_freed": remote.bytes_freed,
        "runs": remote.runs,
    }


RETENTION_PARTITION: Final[ObjectType[PartitionRetention]] = ObjectType(
    "retention_partition",
    "`simulate-retention`, `apply-retention`",
    "A partition, before its segments.",
    Field("path", k.TEXT, "", "partition.path"),
    *topic_and_partition("partition."),
    Field("state", k.TEXT, "`live`, `delete`, `future` or `stray`", "partition.state"),
    Field("configs", CONFIGS, MEANING_OF_CONFIGS),
    Field("marks", MARKS,
          "log start offset and high watermark: `name`, `value`, `source` (a checkpoint, the "
          "log, or the option)"),
    Field("log_end_offset", k.INT, "offset of the next record", "log.log_end_offset"),
    Field("size", k.SIZE, "of batches in all segments", "log.size_bytes"),
    Field("segments_deleted", k.INT, "now", lambda found: len(found.outcome.deleted)),
    Field("bytes_freed", k.SIZE, "their `.log` files"),
    Field("side_bytes_freed", k.SIZE, "their indexes and producer snapshots"),
    Field("log_start_offset_after", k.INT, ""),
    Field("rolled", k.BOOL, "all are deleted, so a new active segment is needed", "outcome.rolled"),
    Field("remote", k.OBJECT | None,
          "in remote storage: `segments`, `size`, `local_size` (local segments not uploaded, "
          "which count for `retention.bytes` too), `segments_deleted`, `bytes_freed`, `runs` "
          "(of the broker's task)", _remote),
)  # fmt: skip
RETENTION: Final = ObjectType[Judged](
    "retention",
    "`simulate-retention`, `apply-retention`",
    "A segment and its fate.",
    *topic_and_partition("found.partition."),
    Field("storage", k.TEXT, "`local` or `remote`"),
    Field("segment", k.TEXT, "its `.log`", "verdict.segment.path"),
    Field("base_offset", k.INT, "in the file's name", "verdict.segment.base_offset"),
    Field("end_offset", k.INT, "base offset of the next segment, log end offset for the last",
          "verdict.upper_bound"),
    Field("size", k.SIZE, "of its batches", "verdict.segment.size_bytes"),
    Field("is_active", k.BOOL, "a broker would append to it", "verdict.is_active"),
    Field("largest_timestamp", k.TIME, "as a broker determines it",
          "verdict.segment.largest_timestamp"),
    Field("timestamp_source", k.TEXT,
          "`time-index`, `batches` (recovered at the next start), `mtime` (no timestamp), "
          "`metadata` (remote)",
          "verdict.segment.timestamp_source"),
    Field("verdict", k.TEXT, "`delete` or `keep`, now",
          lambda one: "delete" if one.verdict.is_deleted else "keep"),
    Field("reason", k.TEXT,
          "what deletes it: `log-start-offset`, `retention.bytes`, `retention.ms`, of remote "
          "segments `leader-epoch-cache-truncation` (epochs before the log's first), "
          "`delete-segment-started` (an unfinished deletion); or why it stays: `blocked` (see "
          "`blocked_by`), `within-retention`, `unlimited`, `compact-only`, `cleaner-disabled`, "
          "`metadata-log`, `not-live`, `other-leader-epochs` (remote, of another lineage)",
          "verdict.reason"),
    Field("deletable_at", k.TIME | None,
          "first time at which time alone may delete it and the segments before it",
          "verdict.deletable_at"),
    Field("blocked_by", k.TEXT | None,
          "`high-watermark`, `segment` (an earlier one stays), `active-empty`, "
          "`remote-storage` (not uploaded)",
          "verdict.blocked_by"),
    Field("blocking_segment", k.INT | None,
          "base offset of the earlier segment that expires later",
          "verdict.blocking_segment"),
    Field("bytes_to_append", k.INT | None,
          "until `retention.bytes` deletes it; null for the active segment",
          "verdict.bytes_to_append"),
    Field("latest_record", k.OBJECT | None,
          "record with the largest timestamp, if that lies in the future or delays others: "
          "`offset`, `timestamp`, `position` of its batch",
          "verdict.latest_record"),
    Field("detail", k.TEXT, "", "verdict.detail"),
)  # fmt: skip
RETENTION_SUMMARY: Final = ObjectType[RetentionSummary](
    "retention_summary",
    "`simulate-retention`, `apply-retention`",
    "The last object: what is freed now, and later by time alone.",
    Field("now", k.INT, "clock used", "now_ms"),
    Field("until", k.INT, "end of the forecast", "until_ms"),
    Field("partitions", k.INT, "with a log"),
    Field("segments", k.INT, ""),
    Field("segments_deleted", k.INT, "now"),
    Field("size", k.INT, "of batches in all segments", "bytes_total"),
    Field("bytes_freed", k.INT, "`.log` files deleted now"),
    Field("side_bytes_freed", k.INT, "indexes and snapshots deleted with them"),
    Field("remote_segments", k.INT, ""),
    Field("remote_segments_deleted", k.INT, "now"),
    Field("remote_bytes_freed", k.INT, "their logs"),
    Field("forecast", k.ARRAY,
          "local segments by 24 hours: `from` (exclusive), `to` (inclusive), `segments`, `bytes`",
          _forecast),
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
    Field("check", k.INT, "since the start, from 1", "check.number"),
    Field("at", k.TIME, "", "check.at_ms"),
    Field("runner", k.TEXT, "`retention` (every `log.retention.check.interval.ms`), or `cleaner` "
                          "for compacted topics (every `log.cleaner.backoff.ms`)",
                          "schedule.runner"),
    Field("segment", k.TEXT, "its `.log`, which becomes `.deleted`", "deletion.segment.path"),
    Field("base_offset", k.INT, "in the file's name", "deletion.segment.base_offset"),
    Field("size", k.SIZE, "of its batches", "deletion.segment.size_bytes"),
    Field("reason", k.TEXT, "as in `retention`", "deletion.reason"),
    Field("late_by", k.INT, "since time alone would have allowed it; else 0",
          lambda one: one.check.late_by_ms(one.deletion, one.found.policy)),
    Field("files_removed_at", k.TIME, "`file.delete.delay.ms` later", "check.removed_ms"),
)  # fmt: skip


class RetentionWriter(Writer[Judged]):
    """Writes partitions and the verdicts on their segments; use it as a context manager.

    Args:
        summary: counts what is written.
        checks: whether to write at which checks of a broker the segments go, too.
    """

    def __init__(
        self, summary: RetentionSummary, form: Format, style: Style, *, checks: bool = False
    ) -> None:
        super().__init__(verdict_view(style), form)
        self._summary = summary
        self._style = style
        self._checks = checks

    def write_partition(self, found: PartitionRetention) -> None:
        self._summary.add(found)
        marks = f"{found.partition.path}: {marks_text(found.marks)}"
        self.write_lines([marks, configs_text(found.configs)])
        self.write_object(RETENTION_PARTITION.row(found))
        for verdict in found.verdicts:
            self.write(Judged(found, verdict))
        if found.remote is not None:
            self.write_lines([remote_heading(found.remote, self._style)])
            for verdict in found.remote.verdicts:
                self.write(Judged(found, verdict, "remote"))
        if self._checks and self.form != Format.CSV:
            self._write_checks(found)

    def _write_checks(self, found: PartitionRetention) -> None:
        from kafkalog.change.retention.simulation import checks_of

        schedule, checks = checks_of(found, self._summary.until_ms)
        rows = [
            Checked(found, schedule, check, deletion)
            for check in checks
            for deletion in check.deleted
        ]
        start = time_text(schedule.first_ms, self._style)
        who = "retention task" if schedule.runner == "retention" else schedule.runner
        what = f"checks of the {who} from {start} on: {configs_text(schedule.configs)}"
        self.write_lines([what if rows else f"{what}; none deletes anything"])
        for row in rows:
            self.write_object(CHECK.row(row))
        if rows and self.form == Format.TABLE:
            self.flush()
            write_all(rows, check_view(self._style), Format.TABLE)

    def end(self) -> None:
        self.write_object(RETENTION_SUMMARY.row(self._summary))


def verdict_view(style: Style) -> View[Judged]:
    return RETENTION.view(
        style,
        Column("SEGMENT", "base_offset", weight=9),
        Column("SIZE", "size", weight=9),
        Column("LAST RECORD", "largest_timestamp", weight=9),
        Column("FROM", "timestamp_source", weight=4),
        Column(
            "VERDICT",
            "verdict",
            weight=9,
            tone=lambda one: Tone.DOUBTFUL if one.verdict.is_deleted else Tone.SOUND,
        ),
        Column("WHY", "reason", weight=9),
        Column("WHEN", partial(_when, style=style), zone=zone_name(style.zone), weight=8),
        Column("BLOCKED BY", "blocked_by", weight=8),
        Column("DETAIL", partial(_why, style=style), weight=3),
    )


def check_view(style: Style) -> View[Checked]:
    return CHECK.view(
        style,
        Column("CHECK", "check"),
        Column("AT", "at"),
        Column("SEGMENT", "base_offset"),
        Column("SIZE", "size"),
        Column("REASON", "reason"),
        Column("LATE MS" if style.exact else "LATE", partial(_late, style=style), right=True),
        Column("FILES REMOVED", "files_removed_at", weight=4),
    )


def _when(one: Judged, style: Style) -> str | None:
    if one.verdict.is_deleted:
        return "now"
    at = one.verdict.deletable_at
    return None if at is None else time_column(at, style)


def _why(one: Judged, style: Style) -> str:
    detail = one.verdict.detail
    return detail if style.exact else with_durations(detail)


def _late(one: Checked, style: Style) -> str:
    late_ms = one.check.late_by_ms(one.deletion, one.found.policy)
    if style.exact or not late_ms:
        return str(late_ms)
    return duration_text(late_ms // 1000 * 1000)


def remote_heading(remote: RemoteRetention, style: Style) -> str:
    size, local = (size_text(one, style) for one in (remote.size_bytes, remote.local_bytes))
    gone = f"{counted(remote.segments_deleted, 'segment')} of {len(remote.verdicts)} deleted"
    runs = f" in {counted(remote.runs, 'run')} of the broker's task" if remote.runs else ""
    whole = f"in remote storage: {size}, and {local} not uploaded yet"
    return f"{whole}; {gone}{runs}, the log then starts at {remote.log_start_offset}"


def print_retention_summary(summary: RetentionSummary, style: Style) -> None:
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
    if summary.remote_segments:
        there = f"{summary.remote_segments_deleted} of {summary.remote_segments} segments"
        lines.append(f"in remote storage: {there}, {size(summary.remote_bytes_freed)}")
    print_lines(lines)
