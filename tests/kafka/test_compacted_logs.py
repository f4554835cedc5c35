"""A real broker on what was compacted: clients read what survives, and the broker goes on with it.

The dirty part and the policy are given by hand, so that logs of every kind are rewritten.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.check.verify import Verification
from kafkalog.checkpoints import read_offset_checkpoint
from kafkalog.compaction import CompactionRequest, compact_partition, find_candidate
from kafkalog.configs import ConfigSources
from kafkalog.log_dir import LogDir, open_path
from kafkalog.model import Level, Severity
from kafkalog.runs import Run, undo
from tests.kafka import broker_data
from tests.kafka.conftest import SEED_VARIABLE
from tests.kafka.test_salvaged_logs import served

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.compaction import Compaction
    from tests.kafka.broker_data import BrokerData

pytestmark = pytest.mark.kafka

CLEANED = "cleaner-offset-checkpoint"
NOW_MS = 1_900_000_000_000  # every delete horizon that a broker stamped is over


def compact_all(log_dir: Path, backup: Path | None = None) -> dict[str, Compaction]:
    """Compact each partition of users in place, from its beginning on."""
    target = open_path(str(log_dir))
    assert isinstance(target, LogDir)
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
    """The records of a partition, and the offsets of those that a read_committed consumer reads."""
    return list(broker.records(name)), set(broker.committed_offsets(name))


def latest(records: list[dict[str, Any]], committed: set[int]) -> dict[str, dict[str, Any]]:
    """The last committed record of each key."""
    return {
        json.dumps(record["key"]): record
        for record in records
        if record["key"] is not None and record["offset"] in committed
    }


def check_partition(before: BrokerData, after: BrokerData, name: str, upper: int) -> int:
    """Nothing is lost that should be there, nothing is there that should not; how many went."""
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


def check_undo(closed: Path, before: BrokerData, root: Path) -> None:
    """Every file of a copy that is compacted is back, and consumers read every record there was."""
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
    after = served(log_dir, root / "after")
    for name in compacted:
        assert data_of(after, name) == data_of(before, name), name
        assert after.lookups[name] == before.lookups[name], name


@pytest.mark.usefixtures("harness")
def test_a_broker_lives_on_with_a_compacted_directory(tmp_path: Path) -> None:
    """It serves what survives in both isolation levels, takes new records, and cleans again.

    What was compacted elsewhere and taken back, it serves as it was.
    """
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 31))
    print("seed", seed)
    states = broker_data.run_broker_lives(tmp_path, seed, ["closed"])
    [closed] = states.values()
    log_dir = tmp_path / "log"
    shutil.copytree(closed, tmp_path / "served")
    before = served(tmp_path / "served", tmp_path / "before")
    check_undo(closed, before, tmp_path / "undone")
    done = compact_all(log_dir)
    upper = {
        name: one.next_dirty_offset
        for name, one in done.items()
        if one.candidate.skip is None and one.next_dirty_offset is not None
    }
    assert len(upper) >= 4, done
    shutil.copytree(log_dir, tmp_path / "compacted")
    after = served(tmp_path / "compacted", tmp_path / "after")
    gone = {name: check_partition(before, after, name, end) for name, end in upper.items()}
    assert sum(gone.values()) > 100, gone
    noted = cleaner_offsets(log_dir)
    assert {name: noted[name] for name in upper} == upper
    place = tmp_path / "cwd-2"
    place.mkdir()
    broker_data.java(
        "kafkalog.harness.BrokerLife", str(log_dir), str(seed), "2", "closed", cwd=place
    )
    assert cleaner_offsets(log_dir)["compacted-twice-0"] > noted["compacted-twice-0"]
    found = [
        defect
        for defect in Verification(Level.DEEP).verify(str(log_dir))
        if defect.severity in (Severity.DAMAGE, Severity.INDEX)
    ]
    assert found == []
