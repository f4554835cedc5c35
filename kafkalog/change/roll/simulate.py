"""Replays a partition's batches under given configs: where a broker would start new segments.

Each batch counts as a separate append, as on a leader; a follower may have fetched several at
once. Nothing is written.
"""

from __future__ import annotations

import os
import random
from itertools import cycle
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.change.roll.replay import Replay, RollReplay, RollSettings
from kafkalog.files.log_dir import PartitionDir, open_partition
from kafkalog.io.paths import file_system
from kafkalog.io.rows import Rows
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.events import reporting
from kafkalog.model import Batch, Defect
from kafkalog.node.configs import ConfigSources, ConfigValue, TopicConfigs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import AnyPath


_JITTERS: Final = 4096  # number of draws, which segments use in turn

ROLL_CONFIGS: Final = (
    "segment.bytes",
    "segment.ms",
    "segment.jitter.ms",
    "segment.index.bytes",
    "index.interval.bytes",
    "preallocate",
)
"""The configs that affect the result, in display order."""


def roll_settings(configs: TopicConfigs) -> tuple[RollSettings, tuple[ConfigValue, ...]]:
    """Return a topic's roll settings, and the configs that were looked up.

    A compacted topic's `max.compaction.lag.ms` limits `segment.ms`, as `LogConfig.maxSegmentMs`.
    """
    names = list(ROLL_CONFIGS)
    segment_ms = configs.number("segment.ms")
    if "compact" in configs.words("cleanup.policy"):
        names += ["cleanup.policy", "max.compaction.lag.ms"]
        segment_ms = min(segment_ms, configs.number("max.compaction.lag.ms"))
    settings = RollSettings(
        segment_bytes=configs.number("segment.bytes"),
        segment_ms=segment_ms,
        # LogConfig.randomSegmentJitter limits it so.
        segment_jitter_ms=min(configs.number("segment.jitter.ms"), configs.number("segment.ms")),
        segment_index_bytes=configs.number("segment.index.bytes"),
        index_interval_bytes=configs.number("index.interval.bytes"),
        preallocate=bool(configs["preallocate"].value),
    )
    return settings, tuple(configs[name] for name in names)


def replay_partition(
    partition: PartitionDir,
    settings: Sequence[RollSettings],
    *,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[RollReplay]:
    """Return the segments that a broker would have made of a partition's batches, per settings.

    Args:
        settings: the settings to try, all in one pass over the log.
        seed: seed of the jitter, which a broker draws at random for each segment.
        progress: called with the number of bytes read since the last call.

    Raises:
        UnreadableError: a log cannot be read.

    Cost:
        One pass over the batch headers; memory for the resulting segments.
    """
    base_offset = partition.segments[0].base_offset if partition.segments else 0
    told = progress or (lambda _: None)
    replays = [Replay(one, base_offset, _jitters(one, seed)) for one in settings]
    defects: list[Defect] = []
    for segment in partition.segments:
        with OpenSegment(segment) as opened:
            for found in opened.order(check_crc=False).scan(0):
                told(found.size_bytes or 0)
                if not isinstance(found, Batch):
                    defects.append(found)
                    continue
                if found.header_defect is not None:
                    defects.append(found.header_defect)
                for replay in replays:
                    replay.append((found,))
    return [
        RollReplay(one.settings, one.segments(), one.refused, one.untimed, defects)
        for one in replays
    ]


def _jitters(settings: RollSettings, seed: int) -> Iterator[int] | None:
    """Return a draw per segment, as `LogConfig.randomSegmentJitter`; None without jitter."""
    if not settings.segment_jitter_ms:
        return None
    draw = random.Random(seed)  # noqa: S311 # nothing secret
    return cycle([draw.randrange(settings.segment_jitter_ms) for _ in range(_JITTERS)])


@dataclass(frozen=True)
class Trial:
    """One replay and its result.

    Attributes:
        name: `present` or `proposed`, for the configs used.
        configs: the configs that affect the result.
        replay: the resulting segments.
    """

    _row = ("configs=name", "replay.refused", "replay.untimed")

    name: str
    partition: PartitionDir
    configs: tuple[ConfigValue, ...]
    replay: RollReplay


def simulate_roll(
    path: AnyPath,
    *,
    configs: Mapping[str, str] | ConfigSources | None = None,
    seed: int = 0,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Rows[Trial]:
    """Replay a partition's batches to find where segments would end, and why.

    Args:
        path: the partition.
        configs: proposed configs of its topic by name, or their sources.
        seed: seed of the jitter, which a broker draws at random for each segment.
        on_event: is passed notes on the configs, and what was read.
        progress: whether to draw a bar.

    Returns:
        A trial under the present configs, and one under the proposed ones, if any.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError, UsageError: it is not a partition.

    Cost:
        That of `replay_partition`.
    """
    given = ConfigSources.of(configs)
    partition = open_partition(path)
    around = os.path.dirname(file_system.absolute(partition.path))
    sources = {"present": given.without_given()}
    if given.has_given:
        sources["proposed"] = given
    found = {name: one.in_log_dir(around) for name, one in sources.items()}
    settings = {name: roll_settings(one.of_topic(partition.topic)) for name, one in found.items()}
    with reporting(on_event, progress=progress, targets=[partition]) as report:
        for event in found["present"].events():
            report.hear(event)
        wanted = [one for one, _ in settings.values()]
        replays = replay_partition(partition, wanted, seed=seed, progress=report.advance)
    trials = (
        Trial(name, partition, used, replay)
        for (name, (_, used)), replay in zip(settings.items(), replays, strict=True)
    )
    return Rows(trials, Trial)
