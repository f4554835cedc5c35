"""The configs of topics: what they are, where each value comes from.

Follows `LogConfig` and the broker configs that it defaults to, of Kafka 4.3.
"""

from __future__ import annotations

from kafkalog.configs.sources import ConfigSources, ConfigValue, LogDirConfigs, TopicConfigs

__all__ = ["ConfigSources", "ConfigValue", "LogDirConfigs", "TopicConfigs"]
