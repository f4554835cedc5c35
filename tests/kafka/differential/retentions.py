"""A random log, and what Kafka deletes from it under several configs, clocks and marks."""

from __future__ import annotations

import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

from kafkalog.change.retention import Reason, judge_partition
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources
from tests.kafka.differential.outcome import Outcome
from tests.kafka.oracle import config_words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle

PARTITION = "orders-0"
RUNS = 4
START_MS = 1_700_000_000_000
STEP_MS = 1000
ANY_TIME = {"message.timestamp.after.max.ms": str(1 << 62)}
REASONS = {
    "log-start": Reason.LOG_START_OFFSET,
    "size": Reason.RETENTION_BYTES,
    "time": Reason.RETENTION_MS,
}


def run(seed: int, oracle: Oracle, place: Path) -> Outcome:
    """Run the case of a seed: one log, and several retentions of copies of it."""
    rng = random.Random(seed)
    outcome = Outcome()
    made = written(oracle, place / "log", small_log(rng) | {"crash": False})
    spoil_times(place / "log" / PARTITION, rng)
    for number in range(RUNS):
        _retention(rng, made["log"], oracle, place, number, outcome)
    return outcome


def written(oracle: Oracle, root: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Let Kafka write a log below `root`, and return its answer."""
    (root / PARTITION).mkdir(parents=True)
    path = root.with_suffix(".json")
    path.write_text(json.dumps(spec))
    said = oracle.ask("append", str(root / PARTITION), str(path))
    assert "error" not in said, said
    return said


def small_log(rng: random.Random) -> dict[str, Any]:
    """Draw a few segments: times mostly rise, some are far away, some are missing."""
    operations: list[dict[str, Any]] = []
    now = START_MS
    for _ in range(rng.randrange(3, 25)):
        now += rng.randrange(STEP_MS)
        stamp = rng.choice((now, now, now, now, now, now - 20 * STEP_MS, now + 30 * STEP_MS, -1, 0))
        records = [
            {"k": "k", "v": "x" * rng.randrange(40), "ts": stamp}
            for _ in range(rng.randrange(1, 4))
        ]
        operations.append({"op": "append", "records": records})
        if rng.random() < 0.1:
            operations.append({"op": "roll"})
    config = ANY_TIME | {"segment.bytes": str(rng.choice((300, 400, 700))),
                         "index.interval.bytes": str(rng.choice((0, 150, 4096)))}  # fmt: skip
    return {"config": config, "now": START_MS, "ops": operations, "crash": rng.random() < 0.3}


def spoil_times(partition: Path, rng: random.Random) -> None:
    """Set random modification times, and sometimes empty, remove or extend a time index."""
    for path in sorted(partition.glob("*.log")):
        stamp = START_MS + rng.randrange(-20, 40) * STEP_MS
        os.utime(path, ns=(stamp * 10**6, stamp * 10**6))
    for path in sorted(partition.glob("*.timeindex")):
        change = rng.random()
        if change < 0.1:
            path.unlink()
        elif change < 0.2:
            path.write_bytes(b"")
        elif change < 0.25:
            path.write_bytes(path.read_bytes() + bytes(12))


def _config(rng: random.Random, size: int) -> dict[str, str]:
    policies = ("delete", "delete", "delete", "compact", "", "compact,delete")
    return {
        "cleanup.policy": rng.choice(policies),
        "retention.ms": str(rng.choice((-1, 0, rng.randrange(40 * STEP_MS)))),
        "retention.bytes": str(rng.choice((-1, 0, size, rng.randrange(size + 2)))),
    }


def _retention(
    rng: random.Random, log: dict[str, Any], oracle: Oracle, place: Path, number: int,
    outcome: Outcome,
) -> None:  # fmt: skip
    end = log["logEndOffset"]
    config = _config(rng, log["size"])
    now = START_MS + rng.randrange(60 * STEP_MS)
    start = rng.choice((None, None, rng.randrange(end + 1)))
    watermark = max(rng.choice((end, end, rng.randrange(end + 1))), start or 0)
    root, ours = place / f"{number}-kafka", place / f"{number}-ours"
    for copy in (root, ours):
        shutil.copytree(place / "log", copy)
    words = ["--now", str(now), "--hw", str(watermark), "--no-checkpoints", *config_words(config)]
    words += [] if start is None else ["--delete-records-to", str(start)]
    said = oracle.ask("retention", str(root / PARTITION), *words)
    found = judge_partition(
        open_partition(str(ours / PARTITION)),
        ConfigSources(config).in_log_dir(str(ours)).of_topic("orders"),
        now,
        high_watermark=watermark,
        log_start_offset=start,
    )
    after = found.outcome.log
    where = f"retention {number}"
    outcome.compare(
        f"{where}: segments before",
        [(one.max_timestamp, one.size_bytes) for one in found.log.segments],
        [(one["largestTimestamp"], one["size"]) for one in said["logBefore"]["segments"]],
    )
    outcome.compare(
        f"{where}: deleted",
        [(one.segment.base_offset, one.reason) for one in found.outcome.deleted],
        [(one["base"], REASONS[one["reason"]]) for one in said["deleted"]],
    )
    outcome.compare(
        f"{where}: segments after",
        [(one.base_offset, one.size_bytes) for one in after.segments],
        [(one["base"], one["size"]) for one in said["log"]["segments"]],
    )
    outcome.compare(f"{where}: log start", after.log_start_offset, said["log"]["logStartOffset"])
    outcome.seen.update(one.reason for one in found.outcome.deleted)
