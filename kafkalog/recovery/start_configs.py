"""Which configs of a topic a start depends on; an index that is larger than they say has room."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kafkalog.recovery.start import usual_config

if TYPE_CHECKING:
    from kafkalog.configs import ConfigValue, TopicConfigs
    from kafkalog.log_dir import PartitionDir
    from kafkalog.recovery.model import StartConfig

_INTERVAL = "index.interval.bytes"
_INDEX_SIZE = "segment.index.bytes"


def start_config(
    partition: PartitionDir, configs: TopicConfigs, now_ms: int | None = None
) -> tuple[StartConfig, tuple[ConfigValue, ...]]:
    """Return the configs a start depends on, and those that were asked.

    Args:
        partition: the directory.
        configs: of its topic.
        now_ms: the broker's clock; None: the clock of this machine.

    Raises:
        CorruptDataError: a source holds a value that no broker would take.
    """
    usual = usual_config(partition)
    index_size = configs.number(_INDEX_SIZE)
    if not configs.is_set(_INDEX_SIZE):
        index_size = max(index_size, usual.segment_index_bytes)
    config = dataclasses.replace(
        usual,
        index_interval_bytes=configs.number(_INTERVAL),
        segment_index_bytes=index_size,
        now_ms=now_ms,
    )
    return config, (configs[_INTERVAL], configs[_INDEX_SIZE])
