"""Random appends under tight limits, and the points at which Kafka rolls."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.kafka.differential.outcome import Outcome
from tests.kafka.differential.retentions import ANY_TIME, PARTITION, START_MS, written
from tests.kafkalog.operations import replay_operations, settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle


def run(seed: int, oracle: Oracle, place: Path) -> Outcome:
    """Run the case of a seed."""
    outcome = Outcome()
    spec = rolled_log(random.Random(seed))
    said = written(oracle, place / "log", spec)
    replay, rolls = replay_operations(
        place / "log" / PARTITION, spec, said["appends"], settings_of(spec["config"])
    )
    segments = replay.segments()
    outcome.compare("rolls", rolls, [(one["opIndex"], one["newBase"]) for one in said["rolls"]])
    outcome.compare(
        "segments",
        [(one.base_offset, one.size_bytes, one.index_entries, one.timeindex_entries)
         for one in segments],
        [(one["base"], one["size"], one["indexEntries"], one["timeIndexEntries"])
         for one in said["log"]["segments"]],
    )  # fmt: skip
    outcome.seen.update(str(one.rolled_by) for one in segments if one.rolled_by)
    return outcome


def rolled_log(rng: random.Random) -> dict[str, Any]:
    """Draw appends of leader and follower, restarts, a moving clock, and tight limits."""
    config = ANY_TIME | {
        "segment.bytes": str(rng.choice((400, 700, 5000))),
        "segment.ms": str(rng.choice((500, 3000, 10**9))),
        "segment.index.bytes": str(rng.choice((24, 36, 50, 75, 10_000))),
        "index.interval.bytes": str(rng.choice((0, 100, 250, 4096))),
        "cleanup.policy": rng.choice(("delete", "compact")),
        "max.compaction.lag.ms": str(rng.choice((1500, 10**9))),
    }
    if rng.random() < 0.2:
        config["message.timestamp.type"] = "LogAppendTime"
    operations: list[dict[str, Any]] = []
    now, end = START_MS, 0
    for _ in range(rng.randrange(5, 40)):
        now += rng.choice((0, rng.randrange(700)))
        kind = rng.random()
        if kind < 0.08:
            operations.append({"op": "reopen" if kind < 0.05 else "roll", "now": now})
            continue
        stamps = [
            rng.choice((now, now, now - rng.randrange(2000), now + rng.randrange(900), -1))
            for _ in range(rng.randrange(1, 3))
        ]
        records = [{"k": "k", "v": "x" * rng.randrange(40), "ts": stamp} for stamp in stamps]
        append = {"op": "append", "records": records, "now": now}
        if kind >= 0.6:
            end += rng.choice((0, 0, 0, 3, 2**31 - 4 if rng.random() < 0.1 else 0))
            append |= {"mode": "follower", "baseOffset": end}
        end += len(stamps)
        operations.append(append)
    return {"config": config, "now": START_MS, "ops": operations}
