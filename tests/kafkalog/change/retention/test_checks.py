"""Retention checks: those that delete something match a broker that checks every segment."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from docgen import output
from kafkalog.change.retention.simulation import checks_of, simulate_retention
from kafkalog.change.retention.verdicts import run_policies

if TYPE_CHECKING:
    from kafkalog.change.retention.partition import PartitionRetention

ORDERS = "examples/log-dir/orders-0"
START = 1704067200000  # of its first record
HOUR_MS = 3_600_000


def one_by_one(
    found: PartitionRetention, first_ms: int, interval_ms: int, until_ms: int
) -> list[tuple[int, int, list[int]]]:
    """Run the policies at every check, even if nothing was found."""
    log, seen = found.log, []
    for number, at in enumerate(range(first_ms, until_ms + 1, interval_ms), 1):
        outcome = run_policies(log, found.policy, at)
        log = outcome.log
        if outcome.deleted:
            seen.append((number, at, [one.segment.base_offset for one in outcome.deleted]))
        if outcome.rolled:
            break
    return seen


@pytest.mark.parametrize("seed", range(12))
def test_no_check_is_missed(seed: int) -> None:
    """By size and by time, with and without a blocking watermark: as if every check were run."""
    rng = random.Random(seed)
    configs = {
        "retention.ms": str(rng.choice((-1, 1000, 240_000, 900_000))),
        "retention.bytes": str(rng.choice((-1, 0, 20_000, 30_000))),
        "log.retention.check.interval.ms": str(rng.choice((1000, 7001, 300_000))),
        "log.initial.task.delay.ms": str(rng.choice((0, 30_000))),
        "cleanup.policy": rng.choice(("delete", "compact", "compact,delete")),
    }
    now = START + rng.randrange(-HOUR_MS, HOUR_MS)
    watermark = rng.choice((None, 600, "end"))
    [found] = simulate_retention(
        ORDERS, configs=configs, now=now, high_watermark=watermark  # type: ignore[arg-type]
    )  # fmt: skip
    until = now + 2 * HOUR_MS
    schedule, checks = checks_of(found, until)
    assert [
        (one.number, one.at_ms, [two.segment.base_offset for two in one.deleted]) for one in checks
    ] == one_by_one(found, schedule.first_ms, schedule.interval_ms, until)
    is_compacted = "compact" in configs["cleanup.policy"]
    assert schedule.runner == ("cleaner" if is_compacted else "retention")
    delay = 0 if is_compacted else int(configs["log.initial.task.delay.ms"])
    assert schedule.first_ms == now + delay
    for check in checks:
        assert check.removal_timestamp == check.at_ms + 60_000
        for deletion in check.deleted:
            assert check.late_by_ms(deletion, found.policy) >= 0


def test_a_check_far_ahead_costs_nothing() -> None:
    """Simulates a year with a check every millisecond."""
    configs = {"retention.ms": str(300 * 86_400_000), "log.retention.check.interval.ms": "1"}
    [found] = simulate_retention(ORDERS, configs=configs, now=START)
    _, checks = checks_of(found, START + 366 * 86_400_000)
    assert [len(one.deleted) for one in checks] == [1, 1, 1, 1]
    assert [one.late_by_ms(one.deleted[0], found.policy) for one in checks] == [0] * 4


def test_the_command_shows_them(kafkalog: Any) -> None:
    """Kafka's defaults: 30 s after the start, then every five minutes."""
    words = ("retention", ORDERS, "--config", "retention.ms=240000", "--checks")
    words += ("--now", "2024-01-01T00:05:00Z", "--until", "+1h")
    result = kafkalog(*words, "--format", "ndjson")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [output.mistakes(row) for row in rows] == [[]] * len(rows)
    checks = [row for row in rows if row["type"] == "retention_check"]
    assert [(row["check"], row["base_offset"]) for row in checks] == [
        (2, 0), (3, 250), (4, 500), (5, 750),
    ]  # fmt: skip
    assert checks[0]["timestamp"] - 330_000 == START + 300_000
    text = kafkalog(*words).stdout.decode()
    assert "checks of the retention task from 2024-01-01 00:05:30 UTC on" in text
    assert "log.retention.check.interval.ms=300000 (5 minutes, default)" in text
    assert "  2 minutes and 20 seconds  " in text
    assert "  140999  " in kafkalog(*words, "--exact").stdout.decode()
