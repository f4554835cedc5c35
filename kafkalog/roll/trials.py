"""A run of `simulate-roll`: replays a partition under its present and under proposed configs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.configs import ConfigSources
from kafkalog.log_dir import open_partition
from kafkalog.paths import file_system
from kafkalog.roll.simulate import replay_partition, roll_settings
from kafkalog.targets import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.configs import ConfigValue, TopicConfigs
    from kafkalog.log_dir import PartitionDir
    from kafkalog.roll.replay import RollReplay


@dataclass(frozen=True)
class Trial:
    """One replay and its result.

    Attributes:
        name: `present` or `proposed`, for the configs used.
        partition: the directory.
        configs: the configs that affect the result.
        replay: the resulting segments.
        topic_configs: all configs of the topic.
    """

    name: str
    partition: PartitionDir
    configs: tuple[ConfigValue, ...]
    replay: RollReplay
    topic_configs: TopicConfigs


def simulate_roll(
    path: str | os.PathLike[str],
    *,
    configs: Mapping[str, str] | ConfigSources | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
    listener: Listener | None = None,
) -> list[Trial]:
    """Replay a partition's batches to find where segments would end, and why.

    Args:
        path: the partition.
        configs: proposed configs of its topic by name, or their sources.
        seed: seed of the jitter, which a broker draws at random for each segment.
        progress: called with the number of bytes read since the last call.
        listener: receives the configs.

    Returns:
        A trial under the present configs, and one under the proposed ones, if any.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError, UsageError: it is not a partition.

    Cost:
        That of `replay_partition`.
    """
    given = ConfigSources.of(configs)
    partition = open_partition(os.fspath(path))
    around = os.path.dirname(file_system.absolute(partition.path))
    sources = {"present": given.without_given()}
    if given.has_given:
        sources["proposed"] = given
    found = {name: one.in_log_dir(around) for name, one in sources.items()}
    (listener or Listener()).configured(found["present"])
    topics = {name: one.of_topic(partition.topic) for name, one in found.items()}
    settings = {name: roll_settings(one) for name, one in topics.items()}
    replays = replay_partition(
        partition, [one for one, _ in settings.values()], seed=seed, progress=progress
    )
    return [
        Trial(name, partition, used, replay, topics[name])
        for (name, (_, used)), replay in zip(settings.items(), replays, strict=True)
    ]
