"""Rebuilt indexes equal those of Kafka's own scan, byte for byte."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.journal import Run
from kafkalog.change.repair import Comparison, compare_indexes, rebuild_indexes
from kafkalog.errors import CorruptDataError, RefusedError
from kafkalog.files.log_dir import open_partition
from kafkalog.node.recovery import StartMode
from tests.kafkalog.change.repair.test_recover import files
from tests.kafkalog.test_recovery import CONFIG, Scenario, scenarios
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["scenarios"]

INDEXES = (".index", ".timeindex", ".txnindex")


def rebuild(partition: Path) -> None:
    with Run(str(partition.parent)) as run:
        rebuild_indexes(open_partition(str(partition)), run, CONFIG)


def indexes(found: dict[str, list[object]], logs: set[str]) -> dict[str, list[object]]:
    """Return the indexes of segments, without leftovers of others."""
    stems = {name.removesuffix(".log") for name in logs}
    return {
        name: facts
        for name, facts in found.items()
        if name.endswith(INDEXES) and name.partition(".")[0] in stems
    }


def others(found: dict[str, list[object]], logs: set[str]) -> dict[str, list[object]]:
    return {
        name: facts
        for name, facts in found.items()
        if name not in indexes(found, logs) and not name.endswith((".index", ".timeindex"))
    }


def test_rebuilt_indexes_are_kafkas(scenarios: list[Scenario], tmp_path: Path) -> None:
    """All indexes are deleted and rebuilt; Kafka's full scan of the same log left the same.

    The test compares the logs of which that scan cut nothing and found the same segments.
    """
    compared = 0
    chosen = sampled(scenarios, 3)
    for scenario in chosen:
        facts = scenario.facts["modes"][StartMode.FULL]
        partition = scenario.copy(tmp_path)
        before = files(partition)
        logs = {name for name in before if name.endswith(".log")}
        kafkas = facts.get("files", {})
        if "error" in facts or any(kafkas.get(name) != before[name] for name in logs):
            continue
        if logs != {name for name in kafkas if name.endswith(".log")}:
            continue
        if any(name.endswith((".swap", ".cleaned", ".deleted")) for name in before):
            continue
        for path in partition.iterdir():
            if path.name.endswith((".index", ".timeindex")):
                path.unlink()
        rebuild(partition)
        after = files(partition)
        assert indexes(after, logs) == indexes(kafkas, logs), scenario.name
        assert others(after, logs) == others(before, logs), "nothing but indexes is written"
        found = compare_indexes(open_partition(str(partition)), CONFIG)
        assert {index.result for index in found} == {Comparison.SAME}
        compared += 1
    assert compared > len(chosen) / 3


def copy_of(scenarios: list[Scenario], name: str, target: Path) -> Path:
    return next(found for found in scenarios if found.name == name).copy(target)


def test_each_index_is_told_apart(scenarios: list[Scenario], tmp_path: Path) -> None:
    partition = copy_of(scenarios, "intact", tmp_path)
    names = sorted(path.name for path in partition.glob("*.index"))
    (partition / names[0]).unlink()
    with (partition / names[1]).open("ab") as file:
        file.write(bytes(80))
    time_index = partition / names[0].replace(".index", ".timeindex")
    time_index.write_bytes(time_index.read_bytes()[:-1] + b"\x7f")
    found = compare_indexes(open_partition(str(partition)), CONFIG)
    results = {index.path.rpartition("/")[2]: index.result for index in found}
    assert results[names[0]] == Comparison.MISSING
    assert results[names[1]] == Comparison.PADDED
    assert results[time_index.name] == Comparison.DIFFERENT
    active = {names[-1], names[-1].replace(".index", ".timeindex")}  # of a broker that was killed
    of_others = results.keys() - active - {names[0], names[1], time_index.name}
    assert {results[name] for name in of_others} == {Comparison.SAME}
    assert {results[name] for name in active} == {Comparison.PADDED}


def test_one_segment_alone(scenarios: list[Scenario], tmp_path: Path) -> None:
    partition = copy_of(scenarios, "intact", tmp_path)
    bases = [int(path.stem) for path in sorted(partition.glob("*.log"))]
    before = files(partition)
    for path in partition.glob("*.index"):
        path.unlink()
    with Run(str(partition.parent)) as run:
        rebuild_indexes(open_partition(str(partition)), run, CONFIG, [bases[1]])
    name = f"{bases[1]:020}.index"
    assert files(partition)[name] == before[name]
    assert [path.name for path in partition.glob("*.index")] == [name]


@pytest.mark.parametrize(
    "name", ["crc_old_segment", "torn_keep_16", "duplicated_content", "swap_c_swap_sources_intact"]
)
def test_a_log_that_is_not_sound_is_refused(
    scenarios: list[Scenario], name: str, tmp_path: Path
) -> None:
    """Nothing is changed, and the hint names recover or salvage."""
    partition = copy_of(scenarios, name, tmp_path)
    before = files(partition)
    with pytest.raises(CorruptDataError) as stopped:
        rebuild(partition)
    assert "recover" in (stopped.value.hint or "")
    assert files(partition) == before


def test_links_are_refused(scenarios: list[Scenario], tmp_path: Path) -> None:
    partition = copy_of(scenarios, "intact", tmp_path)
    index = next(iter(partition.glob("*.index")))
    shutil.move(index, tmp_path / "elsewhere")
    index.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError):
        rebuild(partition)
