"""A real broker on directories that were damaged after it was killed, and then recovered."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.journal import Run
from kafkalog.change.repair import perform_recovery, plan_recovery
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.node.recovery import StartMode, Verdict
from kafkalog.node.unified_log import UnifiedLog
from tests.conftest import state
from tests.kafka import broker_data
from tests.sampling import new_seed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Brokers
    from tests.kafka.broker_data import BrokerData, PastLife

pytestmark = pytest.mark.kafka

EPOCHS = "leader-epoch-checkpoint"


def damage(partition: Path, rng: random.Random) -> str:
    """What a crash of a machine may leave: a torn end, lost indexes, leftovers."""
    log = max(partition.glob("*.log"))
    kind = rng.choice(("torn", "garbage", "index", "leftovers", "snapshots"))
    if kind == "torn" and log.stat().st_size:
        os.truncate(log, max(0, log.stat().st_size - rng.randrange(1, 40)))
    elif kind == "garbage":
        with log.open("ab") as file:
            file.write(rng.randbytes(rng.randrange(1, 300)))
    elif kind == "index":
        for path in partition.glob("*.index"):
            path.unlink()
    elif kind == "leftovers":
        for suffix in (".cleaned", ".deleted"):
            shutil.copy(log, f"{log}{suffix}")
    else:
        for path in partition.glob("*.snapshot"):
            path.unlink()
    return kind


def recovered(log_dir: Path, mode: StartMode) -> dict[str, int]:
    """Recover everything but KRaft's own log; return log end offsets by partition."""
    found = open_path(str(log_dir))
    assert isinstance(found, LogDirListing)
    ends = {}
    with Run(str(log_dir)) as run:
        for partition in found.partitions:
            plan = plan_recovery(partition, mode)
            if partition.topic.startswith("__cluster"):
                continue
            done = perform_recovery(plan, run, forced=True)
            assert done.after.verdict in (Verdict.NOTHING, Verdict.REBUILD), partition.path
            assert done.is_settled or mode == StartMode.FULL, partition.path
            ends[os.path.basename(partition.path)] = done.log_end_offset
    return ends


def test_a_broker_starts_on_what_was_recovered(
    brokers: Brokers, broker: BrokerData, tmp_path: Path
) -> None:
    """It serves each record below the new end, cuts nothing more, and takes new records.

    The broker's own topics grow while it runs.
    """
    seed = new_seed()
    print("seed", seed)
    rng = random.Random(seed)
    log_dir = tmp_path / "log"
    shutil.copytree(broker.log_dir("live"), log_dir)
    kinds = {
        name: damage(log_dir / name, rng)
        for name in broker.partitions()
        if not name.startswith("__") and list((log_dir / name).glob("*.log"))
    }
    ends = recovered(log_dir, StartMode.FULL)
    before = broker_data.fingerprint(log_dir)
    new = brokers.serve(log_dir, tmp_path / "served")
    count = 0
    for name, kind in kinds.items():
        wanted = [row for row in broker.records(name) if row["offset"] < ends[name]]
        assert list(new.records(name)) == wanted, (name, kind)
        count += len(wanted)
        for path, (size, _, digest) in before.items():
            if path.startswith(f"{name}/") and path.endswith((".log", ".txnindex")):
                with (log_dir / path).open("rb") as file:  # an abort marker may have followed
                    assert hashlib.blake2b(file.read(size)).hexdigest() == digest, (path, kind)
    assert count > 500
    assert len(set(kinds.values())) > 2


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_a_closed_log_without_snapshots_forgets_its_transactions(
    brokers: Brokers, corpus_dir: Path, tmp_path: Path, *, has_snapshots: bool
) -> None:
    """An open transaction holds back read_committed only if a snapshot has it."""
    log_dir = tmp_path / "log"
    [source] = state(corpus_dir, f"kafka-{broker_data.RELEASE}", "txn").log_dirs
    shutil.copytree(source, log_dir)
    for path in () if has_snapshots else (log_dir / "txn-1").glob("*.snapshot"):
        path.unlink()
    log = UnifiedLog(str(log_dir / "txn-1"))
    predicted = log.last_stable_offset, log.log_end_offset
    told = brokers.serve(log_dir, tmp_path / "served").lookups["txn-1"]
    assert predicted == (told["lastStableOffset"]["offset"], told["latest"]["offset"])
    assert (predicted[0] < predicted[1]) == has_snapshots


@pytest.mark.thorough(
    "tests/kafka/test_recovered_logs.py::test_a_broker_starts_on_what_was_recovered"
)
def test_a_killed_broker_goes_on_after_a_recovery(
    brokers: Brokers, killed_life: PastLife, tmp_path: Path
) -> None:
    """Its next life appends to the recovered log, and the one after that closes it cleanly."""
    print("seed", killed_life.seed)
    log_dir = tmp_path / "log"
    shutil.copytree(killed_life.log_dir, log_dir)
    ends = recovered(log_dir, StartMode.UNCLEAN)
    assert ends
    brokers.ask("live", log_dir, killed_life.seed, 3)
    found = open_path(str(log_dir))
    assert isinstance(found, LogDirListing)
    grown = 0
    for partition in found.partitions:
        if partition.topic.startswith("__cluster"):
            continue  # the broker scans it whole, whatever is assumed
        plan = plan_recovery(partition, StartMode.CLEAN)
        assert plan.predicted.verdict == Verdict.NOTHING
        assert plan.predicted.loaded is not None
        end = plan.predicted.loaded.log_end_offset
        name = os.path.basename(partition.path)
        assert end >= ends.get(name, 0)
        grown += end > ends.get(name, end)
    assert grown
