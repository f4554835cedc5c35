"""How `simulate-roll` is shown: the segments that result, and what all of them come to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog_cli.output.configs import config_rows, configs_text
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import counted, size_cell, time_cell

if TYPE_CHECKING:
    from datetime import tzinfo

    from kafkalog.configs import ConfigValue
    from kafkalog.log_dir import PartitionDir
    from kafkalog.roll import RollReplay, SimulatedSegment
    from kafkalog_cli.output.objects import Row


@dataclass(frozen=True)
class Trial:
    """One replay: `present` or `proposed` configs, and what it came to."""

    name: str
    partition: PartitionDir
    configs: tuple[ConfigValue, ...]
    replay: RollReplay


def segment_view(zone: tzinfo, *, exact: bool) -> View[tuple[Trial, SimulatedSegment]]:
    """One row a segment that results."""

    def size(size_bytes: int) -> str:
        return size_cell(size_bytes, exact=exact)

    def time(timestamp_ms: int) -> str:
        return str(timestamp_ms) if exact else time_cell(timestamp_ms, zone)

    return View(
        (
            Column("CONFIGS", lambda row: row[0].name),
            Column("BASE", lambda row: row[1].base_offset, right=True),
            Column("BATCHES", lambda row: row[1].batches, right=True),
            Column("SIZE", lambda row: size(row[1].size_bytes), right=True),
            Column("INDEX", lambda row: size(_index_size(*row)), right=True),
            Column("TIMEIDX", lambda row: size(_timeindex_size(*row)), right=True),
            Column("ENDED BY", lambda row: row[1].rolled_by or "(active)"),
            Column("FIRST BATCH", lambda row: time(row[1].first_timestamp), below=True),
            Column("LARGEST TIME", lambda row: time(row[1].largest_timestamp), below=True),
        ),
        lambda row: segment_row(*row),
    )


def _index_size(trial: Trial, segment: SimulatedSegment) -> int:
    return segment.index_size_bytes(trial.replay.settings)


def _timeindex_size(trial: Trial, segment: SimulatedSegment) -> int:
    return segment.timeindex_size_bytes(trial.replay.settings)


def segment_row(trial: Trial, segment: SimulatedSegment) -> Row:
    """The object for a segment that results."""
    return {
        "type": "roll",
        "topic": trial.partition.topic,
        "partition": trial.partition.partition,
        "configs": trial.name,
        "base_offset": segment.base_offset,
        "last_offset": segment.last_offset if segment.batches else None,
        "size": segment.size_bytes,
        "batches": segment.batches,
        "first_timestamp": segment.first_timestamp if segment.batches else None,
        "largest_timestamp": segment.largest_timestamp if segment.batches else None,
        "is_active": segment.is_active,
        "rolled_by": segment.rolled_by,
        "log_size": segment.file_size_bytes(trial.replay.settings),
        "index_entries": segment.index_entries,
        "index_size": _index_size(trial, segment),
        "timeindex_entries": segment.timeindex_entries,
        "timeindex_size": _timeindex_size(trial, segment),
    }


def trial_row(trial: Trial) -> Row:
    """The object for what a replay comes to."""
    segments = trial.replay.segments
    return {
        "type": "roll_summary",
        "topic": trial.partition.topic,
        "partition": trial.partition.partition,
        "configs": trial.name,
        "values": config_rows(trial.configs),
        "segments": len(segments),
        "segments_on_disk": len(trial.partition.segments),
        "rolls": dict(_rolls(trial)),
        "size": sum(one.size_bytes for one in segments),
        "index_size": sum(_index_size(trial, one) for one in segments),
        "timeindex_size": sum(_timeindex_size(trial, one) for one in segments),
        "files": _files(trial),
        "refused": trial.replay.refused,
        "untimed": trial.replay.untimed,
    }


def trial_lines(trial: Trial, *, exact: bool) -> list[str]:
    """The lines below the table for what a replay comes to."""
    segments = trial.replay.segments
    rolls = [f"{count} by {why}" for why, count in _rolls(trial).items()]
    sizes = (sum(_index_size(trial, one) + _timeindex_size(trial, one) for one in segments),
             sum(one.size_bytes for one in segments))  # fmt: skip
    index_size, size = (size_cell(size_bytes, exact=exact) for size_bytes in sizes)
    why = ", ".join(rolls) or "no roll"
    on_disk = f"on disk are {len(trial.partition.segments)}"
    files = f"{counted(_files(trial), 'file')}, {size} of batches, {index_size} of indexes"
    lines = [
        f"{trial.name}: {configs_text(trial.configs)}",
        f"  {counted(len(segments), 'segment')} ({why}; {on_disk}), {files}",
    ]
    if trial.replay.refused:
        lines.append(f"  {trial.replay.refused} batches are larger than segment.bytes: refused")
    if trial.replay.untimed:
        lines.append(
            f"  {trial.replay.untimed} batches follow one without a timestamp; there the "
            f"broker's clock decides, which the log does not record"
        )
    return lines


def _rolls(trial: Trial) -> Counter[str]:
    return Counter(str(one.rolled_by) for one in trial.replay.segments if one.rolled_by)


def _files(trial: Trial) -> int:
    """Log and two indexes a segment, and a producer snapshot for each that follows another."""
    return 4 * len(trial.replay.segments) - 1
