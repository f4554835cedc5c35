"""Readers and checks beside a broker that appends, rolls, cleans and deletes under them.

Every row once and as it was appended, none missing that was there all the time, and no finding.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kafkalog import Verification
from kafkalog.model import Level, Severity
from tests.underneath import Broker

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(30)


@pytest.mark.parametrize("seed", SEEDS)
def test_verify_finds_nothing_wrong_beside_a_living_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What several moments contradict each other in is no damage."""
    rng = Random(seed)
    broker = Broker(tmp_path / "log-dir", rng)
    for level in Level:
        run = Verification(level)
        with broker.at_every_call(monkeypatch, rng.choice((0.02, 0.1, 0.3))):
            found = [*run.verify(tmp_path / "log-dir"), *run.end()]
        assert [one for one in found if one.severity != Severity.NOTE] == []
    broker.settle()
    run = Verification(Level.DEEP)
    assert [*run.verify(tmp_path / "log-dir"), *run.end()] == []
