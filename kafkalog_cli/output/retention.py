"""The output of `retention`: the verdict on each segment, and what is deleted when."""

from __future__ import annotations

import os
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from formats.late_classes import dataclass
from kafkalog.files.offsets import OffsetSource
from kafkalog.io.paths import file_system
from kafkalog.io.wording import counted
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
from kafkalog_cli.output.text import (
    Tone,
    duration_text,
    size_text,
    time_column,
    with_durations,
    zone_name,
    zoned_time,
)
from kafkalog_cli.output.writer import Format, Writer, write_all
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.change.retention import (
        Deletion,
        ForecastDay,
        PartitionRetention,
        RemoteRetention,
        Verdict,
    )
    from kafkalog.change.retention.apply import TrimPlan
    from kafkalog.change.retention.simulation import Check, Schedule
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.configs import ConfigValue
    from kafkalog_cli.output.objects import Style, View


class Judged(NamedTuple):
    """A segment and its partition."""

    found: PartitionRetention
    verdict: Verdict
    storage: str = "local"


@dataclass
class RetentionSummary:
    """The totals of all partitions.

    Attributes:
        to_change: partitions of which `--apply` deletes something.
        changed: partitions of which something was deleted.
        status: exit status of the command.
    """

    now_ms: int
    until_ms: int
    partitions: int = 0
    segments: int = 0
    deleted_segments: int = 0
    bytes_total: int = 0
    freed_bytes: int = 0
    freed_side_bytes: int = 0
    remote_segments: int = 0
    deleted_remote_segments: int = 0
    freed_remote_bytes: int = 0
    to_change: int = 0
    changed: int = 0
    status: int = 0
    days: dict[int, ForecastDay] = field(default_factory=dict)

    def add(self, found: PartitionRetention) -> None:
        from kafkalog.change.retention import ForecastDay, forecast

        self.partitions += 1
        self.segments += len(found.verdicts)
        self.deleted_segments += len(found.outcome.deleted)
        self.bytes_total += found.log.size_bytes
        self.freed_bytes += found.freed_bytes
        self.freed_side_bytes += found.freed_side_bytes
        if found.remote is not None:
            self.remote_segments += len(found.remote.verdicts)
            self.deleted_remote_segments += found.remote.deleted_segments
            self.freed_remote_bytes += found.remote.freed_bytes
        for day in forecast(found.verdicts, self.now_ms, self.until_ms):
            old = self.days.get(day.from_ms, ForecastDay(day.from_ms, day.to_ms, 0, 0))
            self.days[day.from_ms] = ForecastDay(
                day.from_ms,
                day.to_ms,
                old.segments + day.segments,
                old.freed_bytes + day.freed_bytes,
            )


def _forecast(summary: RetentionSummary) -> object:
    return [
        {
            "from_timestamp": day.from_ms,
            "to_timestamp": day.to_ms,
            "segments": day.segments,
            "freed_bytes": day.freed_bytes,
        }
        for _, day in sorted(summary.days.items())
    ]


def _remote(found: PartitionRetention) -> object:
    remote = found.remote
    if remote is None:
        return None
    return {
        "segments": len(remote.verdicts),
        "size_bytes": remote.size_bytes,
        "local_size_bytes": remote.local_bytes,
        "deleted_segments": remote.deleted_segments,
        "freed_bytes": remote.freed_bytes,
        "runs": remote.runs,
    }


RETENTION_PARTITION: Final[ObjectType[PartitionRetention]] = ObjectType(
    "retention_partition",
    "`retention`",
    "A partition, before its segments.",
    Field("path", k.TEXT, "", "partition.path"),
    *topic_and_partition("partition."),
    Field("state", k.TEXT, "`live`, `delete`, `future`, `stray` or `remote`", "partition.state"),
    Field("configs", CONFIGS, MEANING_OF_CONFIGS),
    Field("marks", MARKS,
          "log start offset and high watermark: `name`, `value`, `source` (a checkpoint, the "
          "log, or the option)"),
    Field("log_end_offset", k.INT, "offset of the next record", "log.log_end_offset"),
    Field("size_bytes", k.SIZE, "of batches in all segments", "log.size_bytes"),
    Field("deleted_segments", k.INT, "now", lambda found: len(found.outcome.deleted)),
    Field("freed_bytes", k.SIZE, "their `.log` files"),
    Field("freed_side_bytes", k.SIZE, "their indexes and producer snapshots"),
    Field("log_start_offset_after", k.INT, ""),
    Field("rolled", k.BOOL, "all are deleted, so a new active segment is needed", "outcome.rolled"),
    Field("remote", k.OBJECT | None,
          "in remote storage: `segments`, `size_bytes`, `local_size_bytes` (local segments not "
          "uploaded, which count for `retention.bytes` too), `deleted_segments`, `freed_bytes`, "
          "`runs` (of the broker's task)", _remote),
)  # fmt: skip
RETENTION: Final = ObjectType[Judged](
    "retention",
    "`retention`",
    "A segment and its fate.",
    *topic_and_partition("found.partition."),
    Field("storage", k.TEXT, "`local` or `remote`"),
    Field("segment", k.TEXT, "its `.log`", "verdict.segment.path"),
    Field("base_offset", k.INT, "in the file's name", "verdict.segment.base_offset"),
    Field("next_base_offset", k.INT, "base offset of the next segment, log end offset for the last",
          "verdict.upper_bound"),
    Field("size_bytes", k.SIZE, "of its batches", "verdict.segment.size_bytes"),
    Field("is_active", k.BOOL, "a broker would append to it", "verdict.is_active"),
    Field("max_timestamp", k.RECORD_TIME, "as a broker determines it",
          "verdict.segment.max_timestamp"),
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
    Field("deletable_timestamp", k.TIME | None,
          "first time at which time alone may delete it and the segments before it",
          "verdict.deletable_timestamp"),
    Field("blocked_by", k.TEXT | None,
          "`high-watermark`, `segment` (an earlier one stays), `active-empty`, "
          "`remote-storage` (not uploaded)",
          "verdict.blocked_by"),
    Field("blocking_segment", k.INT | None,
          "base offset of the earlier segment that expires later",
          "verdict.blocking_segment"),
    Field("remaining_bytes", k.INT | None,
          "until `retention.bytes` deletes it; null for the active segment",
          "verdict.remaining_bytes"),
    Field("latest_record", k.OBJECT | None,
          "record with the largest timestamp, if that lies in the future or delays others: "
          "`offset`, `timestamp`, `position` of its batch",
          "verdict.latest_record"),
    Field("detail", k.TEXT, "", "verdict.detail"),
)  # fmt: skip
RETENTION_SUMMARY: Final = ObjectType[RetentionSummary](
    "retention_summary",
    "`retention`",
    "The last object: what is freed now, and later by time alone.",
    Field("now_timestamp", k.INT, "clock used", "now_ms"),
    Field("until_timestamp", k.INT, "end of the forecast", "until_ms"),
    Field("partitions", k.INT, "with a log"),
    Field("segments", k.INT, ""),
    Field("deleted_segments", k.INT, "now"),
    Field("size_bytes", k.INT, "of batches in all segments", "bytes_total"),
    Field("freed_bytes", k.INT, "`.log` files deleted now"),
    Field("freed_side_bytes", k.INT, "indexes and snapshots deleted with them"),
    Field("remote_segments", k.INT, ""),
    Field("deleted_remote_segments", k.INT, "now"),
    Field("freed_remote_bytes", k.INT, "their logs"),
    Field("forecast", k.ARRAY,
          "local segments by 24 hours: `from_timestamp` (exclusive), `to_timestamp` (inclusive), "
          "`segments`, `freed_bytes`",
          _forecast),
    Field("partitions_to_change", k.INT, "of which `--apply` deletes something", "to_change"),
    *WORK_DONE,
)  # fmt: skip


class Checked(NamedTuple):
    """A segment that a check of a broker deletes, and its partition."""

    found: PartitionRetention
    schedule: Schedule
    check: Check
    deletion: Deletion


CHECK: Final = ObjectType[Checked](
    "retention_check",
    "`retention --checks`",
    "A segment, and the check at which a broker that starts now deletes it.",
    *topic_and_partition("found.partition."),
    Field("check", k.INT, "since the start, from 1", "check.number"),
    Field("timestamp", k.TIME, "", "check.at_ms"),
    Field("runner", k.TEXT, "`retention` (every `log.retention.check.interval.ms`), or `cleaner` "
                          "for compacted topics (every `log.cleaner.backoff.ms`)",
                          "schedule.runner"),
    Field("segment", k.TEXT, "its `.log`, which becomes `.deleted`", "deletion.segment.path"),
    Field("base_offset", k.INT, "in the file's name", "deletion.segment.base_offset"),
    Field("size_bytes", k.SIZE, "of its batches", "deletion.segment.size_bytes"),
    Field("reason", k.TEXT, "as in `retention`", "deletion.reason"),
    Field("late_ms", k.INT, "since time alone would have allowed it; else 0",
          lambda one: one.check.late_by_ms(one.deletion, one.found.policy)),
    Field("removal_timestamp", k.TIME, "`file.delete.delay.ms` later", "check.removal_timestamp"),
)  # fmt: skip


class RetentionWriter(Writer[Judged]):
    """Writes partitions and the verdicts on their segments; use it as a context manager.

    Args:
        summary: counts what is written.
        names_paths: whether partitions are of several log directories.
        checks: whether to write at which checks of a broker the segments go, too.
    """

    def __init__(
        self,
        summary: RetentionSummary,
        form: Format,
        style: Style,
        *,
        names_paths: bool = False,
        checks: bool = False,
        limit: int | None = None,
    ) -> None:
        super().__init__(verdict_view(style), form)
        self._names_paths = names_paths
        self._summary = summary
        self._style = style
        self._checks = checks
        self._left = limit

    def write_partition(self, found: PartitionRetention) -> None:
        self._summary.add(found)
        self.write_lines(heading(found, self.name(found.partition), self._style))
        self.write_object(RETENTION_PARTITION.row(found))
        for verdict in found.verdicts:
            self._judge(Judged(found, verdict))
        if found.remote is not None:
            self.write_lines([remote_heading(found.remote, self._style)])
            for verdict in found.remote.verdicts:
                self._judge(Judged(found, verdict, "remote"))
        if self._checks and self.form != Format.CSV:
            self._write_checks(found)

    def name(self, partition: PartitionDir) -> str:
        """Return what words call a partition."""
        path = partition.path
        return path if self._names_paths else os.path.basename(file_system.absolute(path))

    def _judge(self, one: Judged) -> None:
        if self._left is None or self._left > 0:
            self._left = None if self._left is None else self._left - 1
            self.write(one)

    def _write_checks(self, found: PartitionRetention) -> None:
        from kafkalog.change.retention.simulation import checks_of

        schedule, checks = checks_of(found, self._summary.until_ms)
        rows = [
            Checked(found, schedule, check, deletion)
            for check in checks
            for deletion in check.deleted
        ]
        start = zoned_time(schedule.first_ms // 1000 * 1000, self._style)
        who = "retention task" if schedule.runner == "retention" else schedule.runner
        what = f"checks of the {who} from {start} on: {configs_text(schedule.configs)}"
        self.write_lines([what if rows else f"{what}; none deletes anything"])
        for row in rows:
            self.write_object(CHECK.row(row))
        if rows and self.form == Format.TABLE:
            self.flush()
            write_all(rows, check_view(self._style), Format.TABLE)

    def end(self, status: int) -> None:
        self._summary.status = status
        self.write_object(RETENTION_SUMMARY.row(self._summary))


def verdict_view(style: Style) -> View[Judged]:
    return RETENTION.view(
        style,
        Column("SEGMENT", "base_offset", weight=9),
        Column("SIZE", "size_bytes", weight=9),
        Column("LAST RECORD", "max_timestamp", weight=9),
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
        Column("AT", "timestamp"),
        Column("SEGMENT", "base_offset"),
        Column("SIZE", "size_bytes"),
        Column("REASON", "reason"),
        Column("LATE MS" if style.exact else "LATE", partial(_late, style=style), right=True),
        Column("FILES REMOVED", "removal_timestamp", weight=4),
    )


def _when(one: Judged, style: Style) -> str | None:
    if one.verdict.is_deleted:
        return "now"
    at = one.verdict.deletable_timestamp
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
    gone = f"{counted(remote.deleted_segments, 'segment')} of {len(remote.verdicts)} deleted"
    runs = f" in {counted(remote.runs, 'run')} of the broker's task" if remote.runs else ""
    whole = f"in remote storage: {size}, and {local} not uploaded yet"
    return f"{whole}; {gone}{runs}, the log then starts at {remote.log_start_offset}"


def heading(found: PartitionRetention, name: str, style: Style) -> list[str]:
    """Return the policies of a partition in one line; with -v also each config and offset."""
    marks = [
        f"{mark.name} {'-' if mark.value is None else mark.value}{_source(mark.source)}"
        for mark in found.marks
        if mark.value or mark.name != "log start offset"
    ]
    lines = [f"{name}: {', '.join(_policies(found, style))}; {', '.join(marks)}"]
    if session().is_verbose:
        lines += [f"  {marks_text(found.marks)}", f"  {configs_text(found.configs)}"]
    return lines


def _source(source: str) -> str:
    return "" if source == OffsetSource.CHECKPOINT else f" ({source})"


def _policies(found: PartitionRetention, style: Style) -> Iterator[str]:
    """Say what is deleted or compacted, by the configs in force."""
    by_name = {config.name: config for config in found.configs}

    def in_force(name: str) -> ConfigValue:
        local = by_name.get(f"local.{name}")
        return by_name[name] if local is None or local.value == -2 else local

    cleanup = by_name["cleanup.policy"]
    is_compacted = "compact" in found.topic_configs.words("cleanup.policy")
    if is_compacted:
        yield f"compact ({cleanup.source})"
    cleaner = by_name.get("log.cleaner.enable")
    if cleaner is not None and not cleaner.value:
        yield f"log.cleaner.enable is false ({cleaner.source})"
    if not found.policy.deletes:
        if not is_compacted:
            yield f"no cleanup policy ({cleanup.source})"
        return
    time, size = in_force("retention.ms"), in_force("retention.bytes")
    age, length = found.policy.retention_ms, found.policy.retention_bytes
    limit = f"{age} ms" if style.exact else duration_text(age)
    yield f"delete{f' after {limit}' if age >= 0 else ', no limit of age'} ({time.source})"
    if length >= 0:
        yield f"above {size_text(length, style)} ({size.source})"
    else:
        yield "no limit of size"


def retention_lines(
    summary: RetentionSummary, trims: Sequence[TrimPlan] | None, style: Style
) -> list[str]:
    """Return what goes later and elsewhere, and the total of a plan.

    Args:
        trims: what `--apply` deletes; None for a simulation, which has no `--apply`.
    """
    size = partial(size_text, style=style)
    time = partial(zoned_time, style=style)
    lines = [
        f"by {time(min(day.to_ms, summary.until_ms) // 1000 * 1000)}: "
        f"{counted(day.segments, 'segment')} more, {size(day.freed_bytes)}"
        for _, day in sorted(summary.days.items())
    ]
    if not summary.days:
        lines.append(f"by {time(summary.until_ms // 1000 * 1000)}: nothing more")
    if summary.remote_segments:
        there = f"{summary.deleted_remote_segments} of {summary.remote_segments} segments"
        lines.append(f"in remote storage: {there}, {size(summary.freed_remote_bytes)}")
    gone = summary.deleted_segments
    total = f"{counted(gone, 'segment')}, {size(summary.freed_bytes)} would be deleted now"
    if not gone:
        kept = f"{counted(summary.segments, 'segment')}, {size(summary.bytes_total)}"
        total = f"{kept}, of which none would be deleted now"
    wanted = [one for one in trims or () if not one.is_empty]
    deleted = sum(len(one.segments) for one in wanted)
    if gone and deleted == gone:
        total = with_next_step(total, is_plan=True)
    elif deleted:
        freed = size(sum(one.freed_bytes for one in wanted))
        total += f". Plan only: --apply deletes {deleted} of them, {freed}"
    elif wanted:
        total += f". Plan only: --apply changes {counted(len(wanted), 'partition')}"
    elif gone and trims is not None:
        total += ", but none by --apply"
    return [*lines, total]
