"""The configs of topics: their definitions, and the source of each value.

Follows `LogConfig` and the broker configs that it defaults to, of Kafka.
"""

from __future__ import annotations

from kafkalog.node.configs.sources import (
    ConfigsAround,
    ConfigSources,
    ConfigValue,
    LogDirConfigs,
    TopicConfigs,
)

__all__ = [
    "ConfigSources",
    "ConfigValue",
    "ConfigsAround",
    "LogDirConfigs",
    "TopicConfigs",
]
