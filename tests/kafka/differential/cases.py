"""Runs cases of the differential tests: a seed makes a case, one JVM judges many."""

from __future__ import annotations

import shutil
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.kafka.broker_data import HarnessError
from tests.kafka.differential import compactions, retentions, rolls, starts
from tests.kafka.differential.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.kafka.oracle import Oracle

    Case = Callable[[int, Oracle, Path], Outcome]

SUBJECTS: Final[dict[str, Case]] = {
    "compactions": compactions.run,
    "retentions": retentions.run,
    "rolls": rolls.run,
    "starts": starts.run,
}


@dataclass
class Report:
    """The result of some cases.

    Attributes:
        cases: how many ran.
        seen: events, with their counts.
        differences: seed to a description of what differs; the files of the case are kept.
    """

    cases: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    differences: dict[int, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(
            f"seed {seed}:\n  " + "\n  ".join(found) for seed, found in self.differences.items()
        )


def run_cases(subject: str, seeds: Iterable[int], place: Path, oracle: Oracle) -> Report:
    """Run the cases of some seeds below `place`, one after the other."""
    report = Report()
    for seed in seeds:
        here = place / f"{subject}-{seed}"
        here.mkdir(parents=True)
        outcome = _run(subject, seed, oracle, here)
        report.cases += 1
        report.seen += outcome.seen
        if outcome.differences:
            report.differences[seed] = outcome.differences
        else:
            shutil.rmtree(here)
    return report


def _run(subject: str, seed: int, oracle: Oracle, place: Path) -> Outcome:
    """Run one case; an exception of ours counts as a difference."""
    try:
        return SUBJECTS[subject](seed, oracle, place)
    except HarnessError:
        raise
    except Exception:  # noqa: BLE001 # whatever it is: the other cases run, and it is told
        return Outcome([traceback.format_exc()])
