"""`verify` finds nothing in what a real broker wrote a moment ago, in each of its lives.

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

pytestmark = pytest.mark.kafka

LATER_LIVES = ("killed", "closed", "killed")


def serious(log_dir: Path, level: Level) -> list[str]:
    """Findings that a person would look at."""
    run = Verification(level)
    found = list(run.verify(log_dir))
    assert run.summary.bytes_checked == run.summary.bytes_expected > 0
    return [
        f"{defect.reference} {defect.path} at {defect.position}: {defect.detail}"
        for defect in found
        if defect.severity != Severity.NOTE
    ]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("state", ["clean", "live"])
def test_a_broker_at_rest(broker: broker_data.BrokerData, state: str, level: Level) -> None:
    """After its shutdown, and copied while it ran."""
    print("seed", broker.facts["seed"])
    assert serious(broker.log_dir(state), level) == []


def test_several_lives(first_life: broker_data.FirstLife, tmp_path: Path) -> None:
    """What is left of each life, and what the next one makes of it."""
    print("seed", first_life.seed)
    shutil.copytree(first_life.log_dir, tmp_path / "log")
    states = {"1-closed": first_life.log_dir}
    states |= broker_data.run_broker_lives(tmp_path, first_life.seed, LATER_LIVES, first=2)
    assert len(states) == 1 + len(LATER_LIVES)
    for name, log_dir in states.items():
        bases = sorted(path.name for path in (log_dir / "by-size-0").glob("*.log"))
        assert bases[0] != f"{0:020}.log", "retention has deleted the first segments"
        for level in Level:
            assert serious(log_dir, level) == [], name
