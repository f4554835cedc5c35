"""`verify` finds nothing in what a real broker has just written, in each of its lives.

All codecs, transactions, idempotent producers, compaction rounds, retention by time and size,
deleted records, preallocated files; closed, running, killed, recovered, and used again.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.model import Level, Severity
from tests.kafka import broker_data

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Brokers

pytestmark = pytest.mark.kafka


def serious(log_dir: Path, level: Level) -> list[str]:
    """Return the findings above a note."""
    run = Verification(level)
    found = list(run.verify(log_dir))
    assert run.summary.checked_bytes == run.summary.expected_bytes > 0
    return [
        f"{defect.reference} {defect.path} at {defect.position}: {defect.detail}"
        for defect in found
        if defect.severity != Severity.NOTE
    ]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("state", ["clean", "live"])
def test_a_broker_at_rest(broker: broker_data.BrokerData, state: str, level: Level) -> None:
    """After its shutdown, and copied while it was running."""
    print("seed", broker.facts["seed"])
    assert serious(broker.log_dir(state), level) == []


@pytest.mark.thorough("tests/kafka/test_verify_fresh_logs.py::test_a_broker_at_rest")
def test_several_lives(
    brokers: Brokers,
    first_life: broker_data.PastLife,
    killed_life: broker_data.PastLife,
    tmp_path: Path,
) -> None:
    """The log directory at the end of each life, and after the next life has started on it."""
    print("seed", first_life.seed)
    recovered = tmp_path / "recovered"
    shutil.copytree(killed_life.log_dir, recovered)
    brokers.ask("live", recovered, killed_life.seed, 3)
    again = tmp_path / "killed-again" / "log"
    shutil.copytree(recovered, again)
    broker_data.run_broker_life(again, killed_life.seed, 4, "killed")
    for log_dir in (first_life.log_dir, killed_life.log_dir, recovered, again):
        bases = sorted(path.name for path in (log_dir / "by-size-0").glob("*.log"))
        assert bases[0] != f"{0:020}.log", "retention has deleted the first segments"
        for level in Level:
            assert serious(log_dir, level) == [], log_dir
