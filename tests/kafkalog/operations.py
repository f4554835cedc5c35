"""Operations that Kafka's storage classes performed on a log, repeated by a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.change.roll.replay import Replay, RollSettings
from kafkalog.change.roll.simulate import roll_settings
from kafkalog.files.log_dir import open_partition
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch
from kafkalog.node.configs import ConfigSources

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def settings_of(config: dict[str, str]) -> RollSettings:
    """Return the settings that follow from a topic's configs and the defaults."""
    return roll_settings(ConfigSources(config).in_log_dir("/nowhere").of_topic("orders"))[0]


def batches_of(partition: Path) -> Iterator[Batch]:
    for segment in open_partition(str(partition)).segments:
        with Source(segment.log.path) as source:
            for found in scan_batches(source):
                assert isinstance(found, Batch)
                yield found


def replay_operations(
    partition: Path, spec: dict[str, Any], done: list[dict[str, Any]], settings: RollSettings
) -> tuple[Replay, list[tuple[int, int]]]:
    """Replay the operations; return the replay, and new base offsets by number of the operation.

    `done` has Kafka's answer to each operation; the batches are those that it wrote.
    """
    batches = batches_of(partition)
    now = spec["now"]
    replay = Replay(settings, 0, now_ms=now)
    rolls = []
    for number, (operation, said) in enumerate(zip(spec["ops"], done, strict=True)):
        now = operation.get("now", operation.get("ms", now))
        before = replay.segments()[-1].base_offset
        match operation["op"]:
            case "append" | "chunk" if "error" not in said:
                count = len(operation.get("batches", "1"))
                replay.append([next(batches) for _ in range(count)], now)
            case "reopen":
                replay.restart(now)
            case "roll":
                replay.roll(now)
        after = replay.segments()[-1].base_offset
        if after != before:
            rolls.append((number, after))
    assert next(batches, None) is None
    return replay, rolls
