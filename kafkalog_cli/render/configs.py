"""How configs and marks are shown: value and source."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.configs import ConfigValue
    from kafkalog.configs.definitions import Value
    from kafkalog.marks import Mark
    from kafkalog_cli.render.rows import Row


def configs_text(configs: Iterable[ConfigValue]) -> str:
    """`retention.ms=1000 (--config), ...`"""
    return ", ".join(
        f"{config.name}={_text(config.value)} ({_source(config)})" for config in configs
    )


def marks_text(marks: Iterable[Mark]) -> str:
    """`high watermark 1000 (replication-offset-checkpoint), ...`"""
    return ", ".join(
        f"{mark.name} {'-' if mark.value is None else mark.value} ({mark.source})" for mark in marks
    )


def config_rows(configs: Iterable[ConfigValue]) -> list[Row]:
    """Objects for configs; a list is joined by commas, as Kafka writes it."""
    return [
        {
            "name": config.name,
            "value": ",".join(config.value) if isinstance(config.value, tuple) else config.value,
            "source": config.source,
            "set_as": config.set_as,
        }
        for config in configs
    ]


def mark_rows(marks: Iterable[Mark]) -> list[Row]:
    """Objects for marks."""
    return [{"name": mark.name, "value": mark.value, "source": mark.source} for mark in marks]


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _source(config: ConfigValue) -> str:
    if config.set_as is None or config.set_as == config.name:
        return config.source
    return f"{config.source}, {config.set_as}"
