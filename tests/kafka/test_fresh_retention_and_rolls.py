"""Retention and rolls of logs that nobody has seen before, beside Kafka 4.3's storage classes."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.configs import ConfigSources
from kafkalog.log_dir import open_partition
from kafkalog.retention import Reason, simulate_retention
from tests.kafka import broker_data
from tests.kafka.conftest import SEED_VARIABLE
from tests.kafkalog.operations import replay_operations, settings_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

LOGS, RUNS_PER_LOG = 25, 12
ROLLED_LOGS = 150
START_MS = 1_700_000_000_000
STEP_MS = 1000
PARTITION = "orders-0"
ANY_TIME = {"message.timestamp.after.max.ms": str(1 << 62)}
REASONS = {
    "log-start": Reason.LOG_START_OFFSET,
    "size": Reason.RETENTION_BYTES,
    "time": Reason.RETENTION_MS,
}


@pytest.fixture
def rng() -> random.Random:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 31))
    print("seed", seed)
    return random.Random(seed)


def oracle_batch(commands: list[list[str]], cwd: Path) -> list[dict[str, Any]]:
    """One answer for each command of KafkaOracle, all in one JVM."""
    lines = "".join(json.dumps(command) + "\n" for command in commands)
    answers = broker_data.java(broker_data.ORACLE, "batch", "-", cwd=cwd, stdin=lines)
    return [json.loads(line) for line in answers.splitlines()][: len(commands)]


def records(rng: random.Random, stamps: list[int]) -> list[dict[str, Any]]:
    return [{"k": "k", "v": "x" * rng.randrange(40), "ts": stamp} for stamp in stamps]


def small_log(rng: random.Random) -> dict[str, Any]:
    """A few segments: times mostly rising, some far away, some without."""
    operations, now = [], START_MS
    for _ in range(rng.randrange(3, 25)):
        now += rng.randrange(STEP_MS)
        stamp = rng.choice((now, now, now, now, now, now - 20 * STEP_MS, now + 30 * STEP_MS, -1))
        operations.append({"op": "append", "records": records(rng, [stamp] * rng.randrange(1, 4))})
        if rng.random() < 0.1:
            operations.append({"op": "roll"})
    config = ANY_TIME | {"segment.bytes": str(rng.choice((300, 400, 700))),
                         "index.interval.bytes": str(rng.choice((0, 150, 4096)))}  # fmt: skip
    return {"config": config, "now": START_MS, "ops": operations, "crash": rng.random() < 0.3}


def made_logs(root: Path, specs: list[dict[str, Any]], *words: str) -> list[dict[str, Any]]:
    """Logs that Kafka writes below `root`, numbered; what it says of each."""
    commands = []
    for number, spec in enumerate(specs):
        (root / str(number) / PARTITION).mkdir(parents=True)
        path = root / f"{number}.json"
        path.write_text(json.dumps(spec))
        commands.append(["append", str(root / str(number) / PARTITION), str(path), *words])
    answers = oracle_batch(commands, root)
    assert not [answer for answer in answers if "error" in answer]
    return answers


def spoil_times(partition: Path, rng: random.Random) -> None:
    """Times of modification of their own, and now and then a time index that says nothing."""
    for path in partition.glob("*.log"):
        stamp = START_MS + rng.randrange(-20, 40) * STEP_MS
        os.utime(path, ns=(stamp * 10**6, stamp * 10**6))
    for path in partition.glob("*.timeindex"):
        change = rng.random()
        if change < 0.1:
            path.unlink()
        elif change < 0.2:
            path.write_bytes(b"")
        elif change < 0.25:
            path.write_bytes(path.read_bytes() + bytes(12))


def a_config(rng: random.Random, size: int) -> dict[str, str]:
    return {
        "cleanup.policy": rng.choice(
            ("delete", "delete", "delete", "compact", "", "compact,delete")
        ),
        "retention.ms": str(rng.choice((-1, 0, rng.randrange(40 * STEP_MS)))),
        "retention.bytes": str(rng.choice((-1, 0, size, rng.randrange(size + 2)))),
    }


def start_of(rng: random.Random, end: int) -> int | None:
    return rng.choice((None, None, rng.randrange(end + 1)))


@pytest.mark.usefixtures("harness")
def test_retention_of_fresh_logs_is_kafkas(tmp_path: Path, rng: random.Random) -> None:
    """Random logs, clocks, configs and marks: the same segments go, for the same reasons."""
    specs = [small_log(rng) | {"crash": False} for _ in range(LOGS)]
    made = made_logs(tmp_path, specs)
    cases, commands = [], []
    for number, said in enumerate(made):
        spoil_times(tmp_path / str(number) / PARTITION, rng)
        end = said["log"]["logEndOffset"]
        for run in range(RUNS_PER_LOG):
            root = tmp_path / f"{number}-{run}"
            shutil.copytree(tmp_path / str(number), root)
            config = a_config(rng, said["log"]["size"])
            now = START_MS + rng.randrange(60 * STEP_MS)
            start = start_of(rng, end)
            watermark = rng.choice((end, end, rng.randrange(end + 1)))
            watermark = max(watermark, start or 0)
            ours = tmp_path / f"{number}-{run}-ours"
            shutil.copytree(root, ours)
            cases.append((ours, config, now, watermark, start))
            words = ["--now", str(now), "--hw", str(watermark), "--no-checkpoints"]
            words += [] if start is None else ["--delete-records-to", str(start)]
            words += [word for name in config for word in ("--config", f"{name}={config[name]}")]
            commands.append(["retention", str(root / PARTITION), *words])
    wrong, reasons = [], Counter[str]()
    for (ours, config, now, watermark, start), said in zip(
        cases, oracle_batch(commands, tmp_path), strict=True
    ):
        found = simulate_retention(
            open_partition(str(ours / PARTITION)),
            ConfigSources(config).in_log_dir(str(ours)).of_topic("orders"),
            now,
            high_watermark=watermark,
            log_start_offset=start,
        )
        got = (
            [(one.largest_timestamp, one.size_bytes) for one in found.log.segments],
            [(one.segment.base_offset, one.reason) for one in found.outcome.deleted],
            [(one.base_offset, one.size_bytes) for one in found.outcome.log.segments],
            found.outcome.log.log_start_offset,
        )
        wanted = (
            [(one["largestTimestamp"], one["size"]) for one in said["logBefore"]["segments"]],
            [(one["base"], REASONS[one["reason"]]) for one in said["deleted"]],
            [(one["base"], one["size"]) for one in said["log"]["segments"]],
            said["log"]["logStartOffset"],
        )
        reasons.update(reason for _, reason in got[1])
        if got != wanted:
            wrong.append(f"{ours} {config} {now} {watermark} {start}\n  {got}\n  {wanted}")
    assert not wrong, f"{len(wrong)} of {len(cases)} differ\n" + "\n".join(wrong)
    assert set(reasons) == set(REASONS.values())


@pytest.mark.usefixtures("harness")
def test_largest_timestamps_after_a_crash_are_kafkas(tmp_path: Path, rng: random.Random) -> None:
    """A broker that was killed left preallocated indexes: the next start knows what we say."""
    specs = [small_log(rng) | {"crash": True} for _ in range(LOGS)]
    commands, cases = [], []
    for number, said in enumerate(made_logs(tmp_path, specs)):
        root = tmp_path / str(number)
        for path in (root / PARTITION).glob("*.log"):
            stamp = START_MS + rng.randrange(20) * STEP_MS
            os.utime(path, ns=(stamp * 10**6, stamp * 10**6))
        kafkas = tmp_path / f"{number}-kafka"
        shutil.copytree(root, kafkas)
        point = said["log"]["recoveryPoint"]
        cases.append(root)
        commands.append(["load", str(kafkas / PARTITION), "--recovery-point", str(point)])
    for root, said in zip(cases, oracle_batch(commands, tmp_path), strict=True):
        configs = ConfigSources().in_log_dir(str(root)).of_topic("orders")
        log = simulate_retention(open_partition(str(root / PARTITION)), configs, START_MS).log
        wanted = said["log"]
        assert log.log_end_offset == wanted["logEndOffset"], root
        assert [(one.largest_timestamp, one.size_bytes) for one in log.segments] == [
            (one["largestTimestamp"], one["size"]) for one in wanted["segments"]
        ], root


def rolled_log(rng: random.Random) -> dict[str, Any]:
    """Appends of a leader and of a follower, restarts, a moving clock; limits that are soon met."""
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
        if kind < 0.05:
            operations.append({"op": "reopen", "now": now})
            continue
        if kind < 0.08:
            operations.append({"op": "roll", "now": now})
            continue
        stamps = [
            rng.choice((now, now, now - rng.randrange(2000), now + rng.randrange(900), -1))
            for _ in range(rng.randrange(1, 3))
        ]
        append = {"op": "append", "records": records(rng, stamps), "now": now}
        if kind < 0.6:
            end += len(stamps)
        else:
            end += rng.choice((0, 0, 0, 3, 2**31 - 4 if rng.random() < 0.1 else 0))
            append |= {"mode": "follower", "baseOffset": end}
            end += len(stamps)
        operations.append(append)
    return {"config": config, "now": START_MS, "ops": operations}


@pytest.mark.usefixtures("harness")
def test_rolls_of_fresh_logs_are_kafkas(tmp_path: Path, rng: random.Random) -> None:
    """Random appends under tight limits: the same rolls, the same numbers of index entries."""
    specs = [rolled_log(rng) for _ in range(ROLLED_LOGS)]
    wrong, conditions = [], Counter[str]()
    for number, said in enumerate(made_logs(tmp_path, specs)):
        spec = specs[number]
        replay, rolls = replay_operations(
            tmp_path / str(number) / PARTITION, spec, said["appends"], settings_of(spec["config"])
        )
        segments = replay.segments()
        got = (
            rolls,
            [
                (one.base_offset, one.size_bytes, one.index_entries, one.timeindex_entries)
                for one in segments
            ],
        )
        wanted = (
            [(one["opIndex"], one["newBase"]) for one in said["rolls"]],
            [
                (one["base"], one["size"], one["indexEntries"], one["timeIndexEntries"])
                for one in said["log"]["segments"]
            ],
        )
        conditions.update(str(one.rolled_by) for one in segments if one.rolled_by)
        if got != wanted:
            wrong.append(f"{number} {spec['config']}\n  {got}\n  {wanted}")
    assert not wrong, f"{len(wrong)} of {len(specs)} differ\n" + "\n".join(wrong)
    assert len(conditions) == 4, conditions
