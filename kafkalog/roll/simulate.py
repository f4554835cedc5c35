"""Replays a partition's batches under given configs: where a broker would start new segments.

Each batch counts as a separate append, as on a leader; a follower may have fetched several at
once. Nothing is written.
"""

from __future__ import annotations

import random
from itertools import cycle
from typing import TYPE_CHECKING, Final

from kafkalog.batches.framing import scan_batches
from kafkalog.batches.reader import size_to_read
from kafkalog.batches.selection import EVERYTHING
from kafkalog.jit import fast_path
from kafkalog.model import Batch, Level
from kafkalog.paths.source import Source
from kafkalog.roll.replay import JITTERS, Replay, RollReplay, RollSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.configs import ConfigValue, TopicConfigs
    from kafkalog.log_dir import PartitionDir
    from kafkalog.model import Defect
    from kafkalog.roll.columns import ColumnReplay

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
        partition: the directory.
        settings: the settings to try, all in one pass over the log.
        seed: seed of the jitter, which a broker draws at random for each segment.
        progress: called with the number of bytes read since the last call.

    Raises:
        UnreadableError: a log cannot be read.

    Cost:
        One pass over the batch headers; memory for the resulting segments, and about 6 MB per
        thread for a large log.
    """
    base_offset = partition.segments[0].base_offset if partition.segments else 0
    told = progress or (lambda _: None)
    if fast_path.is_worth_it(size_to_read(partition, EVERYTHING)):
        return _by_columns(partition, settings, base_offset, seed, told)
    replays = [Replay(one, base_offset, _jitters(one, seed)) for one in settings]
    defects: list[Defect] = []
    for segment in partition.segments:
        with Source(segment.log.path) as source:
            for found in scan_batches(source):
                told(found.size_bytes or 0)
                if not isinstance(found, Batch):
                    defects.append(found)
                    continue
                for replay in replays:
                    replay.append((found,))
    return [_result(replay, defects) for replay in replays]


def _by_columns(
    partition: PartitionDir,
    settings: Sequence[RollSettings],
    base_offset: int,
    seed: int,
    told: Callable[[int], None],
) -> list[RollReplay]:
    from kafkalog.columns.headers import BatchColumns, batch_columns
    from kafkalog.roll.columns import ColumnReplay

    replays = [ColumnReplay(one, base_offset, _jitters(one, seed)) for one in settings]
    defects: list[Defect] = []
    for segment in partition.segments:
        with Source(segment.log.path) as source:
            for found in batch_columns(source, Level.QUICK):
                told(found.size_bytes or 0)
                if not isinstance(found, BatchColumns):
                    defects.append(found)
                    continue
                for replay in replays:
                    replay.append(found.headers)
    return [_result(replay, defects) for replay in replays]


def _jitters(settings: RollSettings, seed: int) -> Iterator[int] | None:
    """Return a draw per segment, as `LogConfig.randomSegmentJitter`; None without jitter."""
    if not settings.segment_jitter_ms:
        return None
    draw = random.Random(seed)  # noqa: S311 # nothing secret
    return cycle([draw.randrange(settings.segment_jitter_ms) for _ in range(JITTERS)])


def _result(replay: Replay | ColumnReplay, defects: list[Defect]) -> RollReplay:
    return RollReplay(
        settings=replay.settings,
        segments=replay.segments(),
        refused=replay.refused,
        untimed=replay.untimed,
        defects=defects,
    )
