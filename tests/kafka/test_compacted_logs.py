"""A real broker on compacted logs: clients read what survives, and the broker continues with it.

The tests set the dirty part and the policy, so that logs of every kind are rewritten.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from formats.file_names import staging_name
from kafkalog.change.compaction import (
    Compaction,
    CompactionRequest,
    compact_partition,
    compact_partitions,
    find_candidate,
)
from kafkalog.change.journal import Run, undo
from kafkalog.check.verify import Verification
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.files.text_files import read_offset_checkpoint
from kafkalog.io.engine import LocalEngine
from kafkalog.model import Level, Severity
from kafkalog.node.configs import ConfigSources
from tests.kafka import broker_data
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kafkalog.io.engine import Engine, Task, Work
    from tests.kafka.booted import Brokers
    from tests.kafka.broker_data import BrokerData, PastLife

pytestmark = pytest.mark.kafka

CLEANED = "cleaner-offset-checkpoint"
NOW_MS = 1_900_000_000_000  # every delete horizon that a broker stamped is over


def compact_all(log_dir: Path, backup: Path | None = None) -> dict[str, Compaction]:
    """Compact each partition of users in place, from its start."""
    target = open_path(str(log_dir))
    assert isinstance(target, LogDirListing)
    sources = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(log_dir))
    request = CompactionRequest(NOW_MS, first_dirty_offset=0)
    done = {}
    kept_in = None if backup is None else str(backup)
    with Run(str(log_dir), command="compact", backup=kept_in) as run:
        for partition in target.partitions:
            if not partition.topic.startswith("__"):
                candidate = find_candidate(partition, sources.of_topic(partition.topic), request)
                name = f"{partition.topic}-{partition.partition}"
                done[name] = compact_partition(candidate, request, run)
    (log_dir / ".lock").unlink()
    return done


def cleaner_offsets(log_dir: Path) -> dict[str, int]:
    entries = read_offset_checkpoint(str(log_dir / CLEANED))
    return {f"{entry.topic}-{entry.partition}": entry.offset for entry in entries}


def data_of(broker: BrokerData, name: str) -> tuple[list[dict[str, Any]], set[int]]:
    """Return the records of a partition, and the offsets that a read_committed consumer reads."""
    return list(broker.records(name)), set(broker.committed_offsets(name))


def latest(records: list[dict[str, Any]], committed: set[int]) -> dict[str, dict[str, Any]]:
    """Return the last committed record of each key."""
    return {
        json.dumps(record["key"]): record
        for record in records
        if record["key"] is not None and record["offset"] in committed
    }


def check_partition(before: BrokerData, after: BrokerData, name: str, upper: int) -> int:
    """Require that no live record is lost and none is added; return how many were removed."""
    old, old_committed = data_of(before, name)
    new, new_committed = data_of(after, name)
    by_offset = {record["offset"]: record for record in old}
    assert all(by_offset[record["offset"]] == record for record in new)
    assert [one for one in new if one["offset"] >= upper] == [
        one for one in old if one["offset"] >= upper
    ]
    offsets = {record["offset"] for record in new}
    assert new_committed == old_committed & offsets
    assert before.lookups[name]["latest"]["offset"] == after.lookups[name]["latest"]["offset"]
    below = [record for record in old if record["offset"] < upper]
    wanted, found = latest(below, old_committed), latest(
        [record for record in new if record["offset"] < upper], new_committed
    )  # fmt: skip
    for key, record in wanted.items():
        assert found.get(key) == record or (record["value"] is None and key not in found)
    assert found.keys() <= wanted.keys()
    kept = [record["offset"] for record in new if record["offset"] < upper]
    assert sorted(kept) == sorted(record["offset"] for record in found.values())
    return len(old) - len(new)


def check_undo(brokers: Brokers, closed: Path, before: BrokerData, root: Path) -> None:
    """Require that undo restores every file of a compacted copy, and consumers every record.

    A start on equal files shows what it showed before: only `make test-all` makes it.
    """
    log_dir = root / "log"
    shutil.copytree(closed, log_dir)
    was = broker_data.fingerprint(log_dir)
    done = compact_all(log_dir, root / "backup")
    assert broker_data.fingerprint(log_dir) != was
    undone = undo(str(root / "backup"), in_place=True)
    compacted = {name for name, one in done.items() if one.is_done}
    assert {f"{one.topic}-{one.partition}" for one in undone.partitions} == compacted
    (log_dir / ".lock").unlink()
    was.pop(".lock", None)
    assert broker_data.fingerprint(log_dir) == was
    if not tries_everything():
        return
    after = brokers.serve(log_dir, root / "after")
    for name in compacted:
        assert data_of(after, name) == data_of(before, name), name
        assert after.lookups[name] == before.lookups[name], name


class Stopped(BaseException):  # what stands for SIGKILL
    """Ends the driver."""


class StoppedEngine(LocalEngine):
    """Ends the driver after all tasks; the files that they staged are kept elsewhere."""

    def __init__(self, staging: Path, kept: Path) -> None:
        super().__init__(2)
        self._staging = staging
        self._kept = kept

    def run(self, work: Work, tasks: Sequence[Task], **more: Any) -> Any:
        assert all("error" not in answer for _, answer in super().run(work, tasks, **more))
        shutil.copytree(self._staging, self._kept)
        raise Stopped


def compact_by_tasks(log_dir: Path, engine: Engine) -> None:
    """Compact each partition of users by tasks, from its start."""
    target = open_path(str(log_dir))
    assert isinstance(target, LogDirListing)
    sources = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(log_dir))
    request = CompactionRequest(NOW_MS, first_dirty_offset=0)
    candidates = [
        find_candidate(one, sources.of_topic(one.topic), request)
        for one in target.partitions
        if not one.topic.startswith("__")
    ]
    with Run(str(log_dir), command="compact") as run:
        found = [found for _, found in compact_partitions(candidates, request, engine, run)]
    assert sum(isinstance(one, Compaction) and one.is_done for one in found) >= 4


def leave_staged(log_dir: Path, kept: Path) -> None:
    """Leave the files of a driver that is killed before it swaps anything in."""
    staging = log_dir / staging_name()
    with pytest.raises(Stopped):
        compact_by_tasks(log_dir, StoppedEngine(staging, kept))
    (log_dir / ".lock").unlink()
    shutil.move(kept, staging)
    assert len(list(staging.glob("*/result.json"))) >= 4


@pytest.fixture(scope="module")
def before(
    brokers: Brokers, first_life: PastLife, tmp_path_factory: pytest.TempPathFactory
) -> BrokerData:
    """What clients see of the log directory before it is compacted."""
    place = tmp_path_factory.mktemp("before")
    shutil.copytree(first_life.log_dir, place / "served")
    return brokers.serve(place / "served", place / "seen")


@pytest.mark.thorough("tests/crash/test_crashes.py::test_kafkas_own_start_finds_a_whole_log")
def test_a_broker_starts_on_what_a_killed_driver_left(
    brokers: Brokers, first_life: PastLife, before: BrokerData, tmp_path: Path
) -> None:
    """It treats the staging directory as a deleted partition, and serves all others as before."""
    print("seed", first_life.seed)
    left = tmp_path / "left"
    shutil.copytree(first_life.log_dir, left)
    leave_staged(left, tmp_path / "kept")
    after = brokers.serve(left, tmp_path / "after")
    assert after.lookups == before.lookups
    for name in before.partitions():
        if not name.startswith("__"):
            assert data_of(after, name) == data_of(before, name), name
    compact_by_tasks(left, LocalEngine(2))
    assert not list(left.glob("kafkalog-staging*"))


def test_a_broker_lives_on_with_a_compacted_directory(
    brokers: Brokers, first_life: PastLife, before: BrokerData, tmp_path: Path
) -> None:
    """It serves what survives at both isolation levels, takes new records, and cleans again.

    After an undo of another compacted copy, it serves the original records.
    """
    print("seed", first_life.seed)
    log_dir = tmp_path / "log"
    shutil.copytree(first_life.log_dir, log_dir)
    check_undo(brokers, first_life.log_dir, before, tmp_path / "undone")
    done = compact_all(log_dir)
    upper = {
        name: one.next_dirty_offset
        for name, one in done.items()
        if one.candidate.skip is None and one.next_dirty_offset is not None
    }
    assert len(upper) >= 4, done
    shutil.copytree(log_dir, tmp_path / "compacted")
    after = brokers.serve(tmp_path / "compacted", tmp_path / "after")
    gone = {name: check_partition(before, after, name, end) for name, end in upper.items()}
    assert sum(gone.values()) > 100, gone
    noted = cleaner_offsets(log_dir)
    assert {name: noted[name] for name in upper} == upper
    brokers.ask("live", log_dir, first_life.seed, 2)
    assert cleaner_offsets(log_dir)["compacted-twice-0"] > noted["compacted-twice-0"]
    found = [
        defect
        for defect in Verification(Level.DEEP).verify(str(log_dir))
        if defect.severity in (Severity.DAMAGE, Severity.INDEX)
    ]
    assert found == []
