"""Recoveries in place, compared with what Kafka 4.3's loader left of the same 117 directories."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.journal.run import Run
from kafkalog.change.repair import perform_recovery, plan_recovery
from kafkalog.files.log_dir import open_partition
from kafkalog.node.recovery import StartMode, Verdict
from tests.kafkalog.test_recovery import CONFIG, Scenario, scenarios
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["scenarios"]

# What differs from the directory that Kafka left, and why.
ZEROS = "Kafka takes an index of zeros for the one that a swap lacks; here it is built"
EXCLUDED = {
    ("swap_h_index_swap_missing", "00000000000000000000.index"): ZEROS,
    ("swap_h_timeindex_swap_missing", "00000000000000000000.timeindex"): ZEROS,
}
# Kafka does not start on these; repaired, they are what it left where nothing was wrong.
REPAIRED = {"epoch_count_wrong": "intact", "epoch_garbage": "intact"}
# Where a second start of Kafka does something again, and what.
RESTLESS = {
    "epoch_above_leo": "epochs that the entry beyond the log kept out are found in the log now",
    "logstart_above_leo": "the snapshot at the start of an empty log goes and comes",
    "segment_missing_head": "without the head, older producer states are seen once only",
}


def recovered(scenario: Scenario, mode: StartMode, target: Path) -> Path | None:
    """Recover a copy in place; return the partition, None if a broker could not load it."""
    partition = scenario.copy_of_4_3(target)
    plan = plan_recovery(open_partition(str(partition)), mode, CONFIG)
    if not plan.is_loadable:
        return None
    with Run(str(partition.parent)) as run:
        perform_recovery(plan, run, forced=True)
    return partition


def files(partition: Path) -> dict[str, list[Any]]:
    return {
        path.name: [path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()]
        for path in sorted(partition.iterdir())
        if path.is_file()
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", StartMode)
def test_a_recovered_directory_is_kafkas(
    scenarios: list[Scenario], mode: StartMode, tmp_path: Path
) -> None:
    """Every name and every byte is the same."""
    wrong: dict[str, Any] = {}
    by_name = {scenario.name: scenario.facts["modes"][mode] for scenario in scenarios}
    for scenario in sampled(scenarios, 3):
        wanted = by_name[REPAIRED.get(scenario.name, scenario.name)]
        partition = recovered(scenario, mode, tmp_path)
        if "error" in wanted or partition is None:
            if ("error" in wanted) != (partition is None):
                wrong[scenario.name] = "refusal"
            continue
        got, kafkas = files(partition), wanted["files"]
        differing = {
            name: (got.get(name), kafkas.get(name))
            for name in {*got, *kafkas}
            if got.get(name) != kafkas.get(name) and (scenario.name, name) not in EXCLUDED
        }
        if differing:
            wrong[scenario.name] = differing
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", StartMode)
def test_the_plan_of_what_is_repaired_says_how_kafka_fails(
    scenarios: list[Scenario], mode: StartMode, tmp_path: Path
) -> None:
    """Without a recovery, a start on the directory would fail."""
    for scenario in scenarios:
        plan = plan_recovery(open_partition(str(scenario.copy_of_4_3(tmp_path))), mode, CONFIG)
        error = scenario.facts["modes"][mode].get("error")
        got = plan.refusal and plan.refusal.error
        assert got == (error and error.rpartition(".")[2]), scenario.name
        assert (plan.verdict == Verdict.REFUSE) == bool(error)
        assert plan.is_loadable == (not error or scenario.name in REPAIRED)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", StartMode)
def test_a_second_recovery_finds_nothing(
    scenarios: list[Scenario], mode: StartMode, tmp_path: Path
) -> None:
    """It does not change a byte either; what a start leaves and hides, it hides again."""
    wrong = {}
    for scenario in sampled(scenarios, 3):
        copy = scenario.copy_of_4_3(tmp_path / "before")
        first = plan_recovery(open_partition(str(copy)), mode, CONFIG).predicted.verdict
        partition = recovered(scenario, mode, tmp_path)
        if partition is None:
            continue
        plan = plan_recovery(open_partition(str(partition)), mode, CONFIG)
        if scenario.name in RESTLESS:
            continue
        rest = first if first == Verdict.HIDE else Verdict.NOTHING
        if plan.changes or plan.predicted.verdict != rest:
            wrong[scenario.name] = [plan.predicted.verdict, *map(str, plan.changes)]
    assert not wrong, json.dumps(wrong, indent=1)
