"""A recovery that stops at any step is completed by the next one, with the same result."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.journal.run import Run
from kafkalog.change.repair import perform_recovery, plan_recovery
from kafkalog.files.log_dir import open_partition
from kafkalog.node.recovery import StartMode
from tests.crash.disk import Recorder, crashes, put
from tests.kafkalog.change.repair.test_recover import files
from tests.kafkalog.test_recovery import CONFIG, PARTITION, Scenario, scenarios
from tests.sampling import new_seed, sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["scenarios"]

# Where small files end up otherwise, in which nothing is worse, and why.
EXCLUDED = {
    "epoch_above_leo": "epochs that the entry beyond the log kept out are found by the second scan",
    "logstart_above_leo": "the snapshot at the start of an empty log goes and comes",
    "snapshot_empty_newest": "where a sound one is there, an older corrupt one stays",
    "snapshot_missing_newest": "where the one of the log end is there, the one before is not made",
    "snapshot_corrupt_newest": "where the one of the log end is there, the one before is not made",
    "snapshot_version_2": "where the one of the log end is there, the one before is not made",
    "snapshot_missing_all": "where one of the snapshots is there, the log after it is replayed",
    "snapshot_corrupt_all": "where a sound one is there, the corrupt ones before it stay",
}
SMALL = (".snapshot", "leader-epoch-checkpoint")
STATES_MAX = 2  # of a scenario; all of them take minutes


def perform(partition: Path, mode: StartMode, observe: Recorder | None = None) -> bool:
    plan = plan_recovery(open_partition(str(partition)), mode, CONFIG)
    if plan.is_loadable:
        with Run(str(partition.parent), observe) as run:
            perform_recovery(plan, run, forced=True)
    return plan.is_loadable


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", StartMode)
def test_a_recovery_that_a_crash_ends_is_finished_by_the_next(
    scenarios: list[Scenario], mode: StartMode, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """The files are the same, byte for byte; each run tries other states of each scenario."""
    seed = new_seed()
    wrong, count = [], 0
    chosen = sampled(scenarios, 8)
    for scenario in chosen:
        partition = scenario.copy(tmp_path)
        recorder = Recorder(partition.parent)
        if not perform(partition, mode, recorder):
            continue
        wanted = files(partition)
        rng = random.Random(f"{seed} {scenario.name}")
        states = list(crashes(recorder, rng))
        if not tries_everything():
            states = rng.sample(states, min(STATES_MAX, len(states)))
        for how, tree in states:
            again = put(tree, tmp_path / "state") / PARTITION
            if files(again) != wanted:  # a log that is whole has no need of the snapshots that went
                assert perform(again, mode), how
            got = files(again)
            names = sorted(name for name in {*got, *wanted} if got.get(name) != wanted.get(name))
            if scenario.name in EXCLUDED:
                names = [name for name in names if not name.endswith(SMALL)]
            if names:
                wrong.append(f"{scenario.name}: {how}: {names}")
            shutil.rmtree(tmp_path / "state")
            count += 1
    tell(f"recover again, {mode}, seed {seed}: {count} states")
    assert not wrong, f"seed {seed}: {len(wrong)} of {count}\n" + "\n".join(wrong)
    assert count > len(chosen)
