"""The output of `simulate-roll`: the resulting segments, and their totals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kafkalog.io.wording import counted
from kafkalog_cli.maintenance import CONFIGS, configs_text
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType, topic_and_partition
from kafkalog_cli.output.text import size_text

if TYPE_CHECKING:
    from kafkalog.change.roll.replay import SimulatedSegment
    from kafkalog.change.roll.simulate import Trial
    from kafkalog_cli.output.objects import Style, View


@dataclass(frozen=True)
class TrialSegment:
    """A segment that results from a replay."""

    trial: Trial
    segment: SimulatedSegment

    @property
    def index_size(self) -> int:
        return self.segment.index_bytes(self.trial.replay.settings)

    @property
    def timeindex_size(self) -> int:
        return self.segment.timeindex_bytes(self.trial.replay.settings)


def trial_segments(trial: Trial) -> list[TrialSegment]:
    return [TrialSegment(trial, segment) for segment in trial.replay.segments]


def _rolls(trial: Trial) -> Counter[str]:
    return Counter(str(one.rolled_by) for one in trial.replay.segments if one.rolled_by)


def _files(trial: Trial) -> int:
    """Return the number of files: a log and two indexes per segment, and a snapshot per roll."""
    return 4 * len(trial.replay.segments) - 1


ROLL: Final = ObjectType[TrialSegment](
    "roll",
    "`simulate-roll`",
    "A segment that a broker would have made of the batches.",
    *topic_and_partition("trial.partition."),
    Field("trial", k.TEXT, "`present` or `proposed`", "trial.name"),
    Field("base_offset", k.INT, "in the file's name", "segment.base_offset"),
    Field("last_offset", k.INT | None, "",
          lambda one: one.segment.last_offset if one.segment.batches else None),
    Field("size_bytes", k.SIZE, "of its batches", "segment.size_bytes"),
    Field("batches", k.INT, "", "segment.batches"),
    Field("first_timestamp", k.RECORD_TIME | None,
          "of its first batch: `segment.ms` counts from it; -1 if the broker's clock decides",
          lambda one: one.segment.first_timestamp if one.segment.batches else None),
    Field("max_timestamp", k.RECORD_TIME | None, "of its batches, -1 if none",
          lambda one: one.segment.max_timestamp if one.segment.batches else None),
    Field("is_active", k.BOOL, "a broker would append to it", "segment.is_active"),
    Field("rolled_by", k.TEXT | None,
          "`segment.bytes`, `segment.ms`, `segment.index.bytes` (an index is full), "
          "`offset-range` (2^31 offsets)", "segment.rolled_by"),
    Field("log_bytes", k.SIZE, "preallocated if the configs say so",
          lambda one: one.segment.file_size_bytes(one.trial.replay.settings)),
    Field("index_entries", k.INT, "", "segment.index_entries"),
    Field("index_bytes", k.SIZE, "preallocated for the active segment", "index_size"),
    Field("timeindex_entries", k.INT, "", "segment.timeindex_entries"),
    Field("timeindex_bytes", k.SIZE, "likewise", "timeindex_size"),
)  # fmt: skip
ROLL_SUMMARY: Final = ObjectType["Trial"](
    "roll_summary",
    "`simulate-roll`",
    "Totals, after the segments.",
    *topic_and_partition("partition."),
    Field("trial", k.TEXT, "`present` or `proposed`", "name"),
    Field("configs", CONFIGS, "configs as in `recovery`"),
    Field("segments", k.INT, "resulting", lambda trial: len(trial.replay.segments)),
    Field("segments_on_disk", k.INT, "", lambda trial: len(trial.partition.segments)),
    Field("rolls", k.OBJECT, "by reason", lambda trial: dict(_rolls(trial))),
    Field("size_bytes", k.INT, "of batches",
          lambda trial: sum(one.size_bytes for one in trial.replay.segments)),
    Field("index_bytes", k.INT, "",
          lambda trial: sum(one.index_size for one in trial_segments(trial))),
    Field("timeindex_bytes", k.INT, "",
          lambda trial: sum(one.timeindex_size for one in trial_segments(trial))),
    Field("files", k.INT, "log and two indexes per segment, a snapshot per roll", _files),
    Field("refused_batches", k.INT, "batches larger than `segment.bytes`", "replay.refused"),
    Field("untimed_batches", k.INT,
          "batches after one without a timestamp: no roll by time is simulated", "replay.untimed"),
)  # fmt: skip


def segment_view(style: Style) -> View[TrialSegment]:
    def time(title: str, name: str) -> Column[TrialSegment]:
        """Return a column that shows the time even of an empty segment."""
        get = attrgetter(name)
        return Column(title, lambda one: get(one.segment), kind=k.RECORD_TIME)

    return ROLL.view(
        style,
        Column("CONFIGS", "trial"),
        Column("BASE", "base_offset"),
        Column("BATCHES", "batches"),
        Column("SIZE", "size_bytes"),
        Column("INDEX", "index_bytes"),
        Column("TIMEIDX", "timeindex_bytes"),
        Column("ENDED BY", lambda one: one.segment.rolled_by or "(active)"),
        time("FIRST BATCH", "first_timestamp"),
        time("LARGEST TIME", "max_timestamp"),
    )


def trial_lines(trial: Trial, style: Style) -> list[str]:
    segments = trial.replay.segments
    rolls = [f"{count} by {why}" for why, count in _rolls(trial).items()]
    sizes = (sum(one.index_size + one.timeindex_size for one in trial_segments(trial)),
             sum(one.size_bytes for one in segments))  # fmt: skip
    index_size, size = (size_text(size_bytes, style) for size_bytes in sizes)
    why = ", ".join(rolls) or "no roll"
    on_disk = f"{len(trial.partition.segments)} on disk"
    files = f"{counted(_files(trial), 'file')}, {size} of batches, {index_size} of indexes"
    lines = [
        f"{trial.name}: {configs_text(trial.configs)}",
        f"  {counted(len(segments), 'segment')} ({why}; {on_disk}), {files}",
    ]
    if trial.replay.refused:
        lines.append(
            f"  refused: {counted(trial.replay.refused, 'batch')} larger than segment.bytes"
        )
    if trial.replay.untimed:
        lines.append(
            f"  {counted(trial.replay.untimed, 'batch')} after one without a timestamp: there the "
            f"broker's clock decides, which the log does not record"
        )
    return lines
