"""What the next start makes of old and odd directories, compared with Kafka's own loader."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.node.recovery import StartMode, Verdict
from tests.kafka.differential.outcome import Outcome
from tests.kafka.differential.starts import Start
from tests.odd_log_dirs import ODD_LOG_DIRS, make
from tests.sampling import new_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

ROUNDS = 3


def test_odd_log_dirs_start_as_kafkas(
    oracle: Oracle, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Each partition that Kafka can load, in each mode, with several seeds."""
    first = new_seed()
    outcome = Outcome()
    for kind in ODD_LOG_DIRS:
        for seed in range(first, first + ROUNDS):
            root = make(kind, tmp_path / f"{kind.name}-{seed}", seed)
            for partition in sorted(root.glob("*-[0-9]")):
                for mode in StartMode:
                    home = root / "copies" / f"{partition.name}-{mode}"
                    ours, kafkas = home / "ours" / "t-0", home / "kafka" / "t-0"
                    for copy in (ours, kafkas):
                        shutil.copytree(partition, copy)
                    start = Start(ours, kafkas, mode, 0)
                    start.compare(oracle, outcome, f"{kind.name}, seed {seed}")
    tell(f"odd directories from seed {first}: {dict(outcome.seen)}")
    assert not outcome.differences, "\n".join(outcome.differences)
    assert {Verdict.NOTHING, Verdict.TIDY, Verdict.REBUILD} <= set(outcome.seen)
