"""How `simulate-retention` is shown: verdicts, what decided, what is freed when."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kafkalog_cli.output.configs import (
    config_rows,
    configs_text,
    mark_rows,
    marks_text,
    print_heading,
    tell_shadowed,
)
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import counted, size_cell, time_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from datetime import tzinfo

    from kafkalog.configs import TopicConfigs
    from kafkalog.retention import ForecastDay, PartitionRetention, Verdict
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import Row


@dataclass
class RetentionSummary:
    """What all partitions come to.

    Attributes:
        now_ms: the clock that was used.
        until_ms: how far ahead the forecast goes.
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
        """Count one more partition."""
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


class RetentionWriter:
    """Writes partitions and the verdicts on their segments; use it as a context manager.

    Args:
        summary: counts what is written.
        form: of the listing.
        outcome: is told of defects.
        zone: of the times in tables.
        exact: whether tables have plain numbers.
    """

    def __init__(
        self,
        summary: RetentionSummary,
        form: Format,
        outcome: Outcome,
        zone: tzinfo,
        *,
        exact: bool,
    ) -> None:
        self._summary = summary
        self._form = form
        self._told: set[str] = set()
        self._writer = Writer(verdict_view(zone, exact=exact), form, outcome.defect)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writer.__exit__(*raised)

    def write(self, found: PartitionRetention, configs: TopicConfigs) -> None:
        """A partition, then its segments."""
        self._summary.add(found)
        tell_shadowed(found.partition.topic, found.configs, configs, self._told)
        if self._form == Format.TABLE:
            self._writer.flush()
            print_heading(partition_heading(found))
        elif self._form != Format.CSV:
            self._writer.write_row(retention_partition_row(found))
        for verdict in found.verdicts:
            self._writer.write((found, verdict))

    def row(self, row: Row) -> None:
        """Another object, where objects are written."""
        if self._form in (Format.NDJSON, Format.JSON):
            self._writer.write_row(row)

    def flush(self) -> None:
        """Nothing is held back any more."""
        if self._form == Format.TABLE:
            self._writer.flush()

    def end(self) -> None:
        """No partition follows."""
        self.row(retention_summary_row(self._summary))


def verdict_view(zone: tzinfo, *, exact: bool) -> View[tuple[PartitionRetention, Verdict]]:
    """One row a segment."""

    def time(timestamp_ms: int | None) -> str:
        if timestamp_ms is None:
            return "-"
        return str(timestamp_ms) if exact else time_cell(timestamp_ms, zone)

    return View(
        (
            Column("SEGMENT", lambda row: row[1].segment.base_offset, right=True),
            Column(
                "SIZE", lambda row: size_cell(row[1].segment.size_bytes, exact=exact), right=True
            ),
            Column("LARGEST TIME", lambda row: time(row[1].segment.largest_timestamp)),
            Column("FROM", lambda row: row[1].segment.timestamp_source),
            Column("VERDICT", lambda row: "delete" if row[1].is_deleted else "keep"),
            Column("REASON", lambda row: row[1].reason),
            Column("DELETABLE", lambda row: time(row[1].deletable_at), below=True),
            Column("WHY", lambda row: row[1].detail, fold=True, below=True),
        ),
        lambda row: verdict_row(*row),
    )


def verdict_row(found: PartitionRetention, verdict: Verdict) -> Row:
    """The object for a segment."""
    segment = verdict.segment
    return {
        "type": "retention",
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "segment": segment.path,
        "base_offset": segment.base_offset,
        "end_offset": verdict.upper_bound,
        "size": segment.size_bytes,
        "is_active": verdict.is_active,
        "largest_timestamp": segment.largest_timestamp,
        "timestamp_source": segment.timestamp_source,
        "verdict": "delete" if verdict.is_deleted else "keep",
        "reason": verdict.reason,
        "deletable_at": verdict.deletable_at,
        "blocked_by": verdict.blocked_by,
        "blocking_segment": verdict.blocking_segment,
        "bytes_to_append": verdict.bytes_to_append,
        "latest_record": None if verdict.latest_record is None else asdict(verdict.latest_record),
        "detail": verdict.detail,
    }


def partition_heading(found: PartitionRetention) -> list[str]:
    """The lines above a partition's table."""
    return [
        f"{found.partition.path}: {marks_text(found.marks)}",
        configs_text(found.configs),
    ]


def retention_partition_row(found: PartitionRetention) -> Row:
    """The object for a partition."""
    left = found.outcome.log
    return {
        "type": "retention_partition",
        "path": found.partition.path,
        "topic": found.partition.topic,
        "partition": found.partition.partition,
        "state": found.partition.state,
        "configs": config_rows(found.configs),
        "marks": mark_rows(found.marks),
        "log_end_offset": found.log.log_end_offset,
        "size": found.log.size_bytes,
        "segments_deleted": len(found.outcome.deleted),
        "bytes_freed": found.bytes_freed,
        "side_bytes_freed": found.side_bytes_freed,
        "log_start_offset_after": left.log_start_offset,
        "rolled": found.outcome.rolled,
    }


def retention_summary_row(summary: RetentionSummary) -> Row:
    """The last object of a run."""
    return {
        "type": "retention_summary",
        "now": summary.now_ms,
        "until": summary.until_ms,
        "partitions": summary.partitions,
        "segments": summary.segments,
        "segments_deleted": summary.segments_deleted,
        "size": summary.bytes_total,
        "bytes_freed": summary.bytes_freed,
        "side_bytes_freed": summary.side_bytes_freed,
        "forecast": [
            {
                "from": day.from_ms,
                "to": day.to_ms,
                "segments": day.segments,
                "bytes": day.bytes_freed,
            }
            for _, day in sorted(summary.days.items())
        ],
    }


def print_retention_summary(summary: RetentionSummary, zone: tzinfo, *, exact: bool) -> None:
    """The lines below the tables: what is freed now, and day by day."""

    def size(size_bytes: int) -> str:
        return size_cell(size_bytes, exact=exact)

    def time(timestamp_ms: int) -> str:
        return str(timestamp_ms) if exact else time_cell(timestamp_ms, zone)

    total = f"{counted(summary.partitions, 'partition')}, {counted(summary.segments, 'segment')}"
    freed = f"{size(summary.bytes_freed)} and {size(summary.side_bytes_freed)} of indexes"
    gone = (
        "1 segment is deleted"
        if summary.segments_deleted == 1
        else f"{summary.segments_deleted} segments are deleted"
    )
    going = f"at {time(summary.now_ms)} {gone}, {freed}"
    lines = [f"{total}, {size(summary.bytes_total)}; {going}"]
    lines += [
        f"by {time(min(day.to_ms, summary.until_ms))}: {day.segments} more, {size(day.bytes_freed)}"
        for _, day in sorted(summary.days.items())
    ]
    if not summary.days:
        lines.append(f"by {time(summary.until_ms)}: nothing more")
    print_heading(lines)
