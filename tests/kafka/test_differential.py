"""Random logs through Kafka's own Cleaner, UnifiedLog and LogLoader, and through ours."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.compaction.model import Dropped
from kafkalog.change.roll.replay import RollCondition
from kafkalog.node.recovery import Verdict
from tests.kafka.differential.cases import run_cases
from tests.kafka.differential.retentions import REASONS
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

SEEDS = 1 << 31
STEP = 2
"""So many cases are run between two looks at what has occurred."""
EXPECTED: dict[str, set[str]] = {
    "compactions": {*Dropped, "Pass", "ColumnPass", "driver"},
    "retentions": {*REASONS.values()},
    "rolls": {*RollCondition},
    "starts": {Verdict.NOTHING, Verdict.TRUNCATE, Verdict.REBUILD, Verdict.REFUSE},
}
"""What cases have to be about."""


@pytest.mark.parametrize(
    ("subject", "cases"),
    [("compactions", 220), ("retentions", 40), ("rolls", 60), ("starts", 40)],
)
def test_what_becomes_of_a_random_log_is_what_kafka_makes_of_it(
    subject: str, cases: int, oracle: Oracle, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """The files, offsets and statistics are equal, and every expected event occurs.

    `make test` stops as soon as all expected events have occurred.
    KAFKALOG_SEED starts with the seed that a failure names.
    """
    _require_the_same(subject, cases, oracle, tmp_path, tell)


@pytest.mark.parametrize(("subject", "cases"), [("compactions", 80), ("starts", 40)])
def test_what_becomes_of_it_is_what_an_older_kafka_makes_of_it(
    subject: str, cases: int, older_oracle: Oracle, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Every other subject, too: the group `kafka-4.3` of `make test-all`."""
    _require_the_same(subject, cases, older_oracle, tmp_path, tell)


def _require_the_same(
    subject: str, cases: int, oracle: Oracle, place: Path, tell: Callable[[str], None]
) -> None:
    first = new_seed()
    seen: Counter[str] = Counter()
    done = 0
    while done < cases and (tries_everything() or not EXPECTED[subject] <= set(seen)):
        seeds = range(first + done, first + min(done + STEP, cases))
        report = run_cases(subject, seeds, place, oracle)
        assert not report.differences, f"{len(report.differences)} differ\n{report}"
        seen += report.seen
        done += report.cases
    tell(f"{subject}, Kafka {oracle.release.name}: {done} cases: {dict(seen)}")
    assert EXPECTED[subject] <= set(seen), (first, seen)


@pytest.mark.parametrize(
    ("subject", "seed"),
    [
        pytest.param(
            "starts", 828752059, id="the magic of a marker, which no checksum covers, is 18"
        ),
        pytest.param("starts", 1937699407, id="the value of a compressed message is not within it"),
        pytest.param("rolls", 639880530, id="an empty segment is rolled, and replaced"),
    ],
)
def test_logs_that_differed_once(subject: str, seed: int, oracle: Oracle, tmp_path: Path) -> None:
    """Kafka's loader takes the marker for magic 2 and fails on the message.

    The age of a segment that replaced an empty one counts from then.
    """
    assert run_cases(subject, range(seed, seed + 1), tmp_path, oracle).differences == {}
