"""A real broker on salvaged logs: consumers read exactly the records that are not lost."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.rescue import salvage
from kafkalog.files.log_dir import open_path
from tests.builders import flip
from tests.kafka import broker_data
from tests.kafkalog.change.rescue.hurt_logs import Damage, frames_while_sane
from tests.sampling import new_seed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Brokers
    from tests.kafka.broker_data import BrokerData

pytestmark = pytest.mark.kafka

# What always makes a batch unsound; one flipped bit of an offset at the log's end may not.
KINDS = ("body", "body", "noise", "zeros", "cut", "duplicate")


class HurtBodies(Damage):
    """Damage that leaves no doubt: bits after the header's first fields, and longer ranges."""

    def body(self, data: bytes) -> bytes:
        start, size = self.rng.choice(frames_while_sane(data))
        return flip(data, 8 * start + self.rng.randrange(8 * 21, 8 * size))

    def range(self, data: bytes) -> tuple[int, int]:
        start = self.rng.randrange(len(data))
        return start, min(len(data), start + self.rng.choice((300, 5000)))


def hurt(broker: BrokerData, target: Path, rng: random.Random) -> dict[str, Damage]:
    """Copy the broker's log directory, and damage each partition with user data."""
    shutil.copytree(broker.log_dir("clean"), target)
    damages = {}
    for name in broker.partitions():
        size = sum(log.stat().st_size for log in (target / name).glob("*.log"))
        if name.startswith("__") or not size:
            continue
        shutil.rmtree(target / name)
        damages[name] = HurtBodies(broker.log_dir("clean") / name, target / name, rng)
        for _ in range(rng.choice((1, 2, 3))):
            damages[name].hurt(rng.choice(KINDS))
    return damages


def check_served(
    broker: BrokerData, new: BrokerData, name: str, damage: Damage, row: dict[str, Any]
) -> int:
    """Require that consumers read the undamaged records unchanged; return their number."""
    there = set()
    for batches in damage.survivors.values():
        for batch in batches:
            there |= set(range(batch.first_offset, batch.last_offset + 1))
    before = list(broker.records(name))
    wanted = [record for record in before if record["offset"] in there]
    assert list(new.records(name)) == wanted, damage.words
    answers = new.lookups[name]
    first = before[0]["offset"] if before else None
    if wanted and wanted[0]["offset"] == first:
        assert answers["earliest"]["offset"] == broker.lookups[name]["earliest"]["offset"]
    last = max(there, default=None)
    if row["first_unstable_offset"] is None:
        assert answers["latest"]["offset"] == row["log_end_offset"]
        assert last is None or answers["latest"]["offset"] == last + 1
        if not name.startswith("compacted"):  # Kafka finds too little there, undamaged, too
            offsets = {record["offset"] for record in before}
            check_times(answers["timestamps"], wanted, offsets, there)
    return len(wanted)


def check_times(
    answers: list[dict[str, Any]], wanted: list[dict[str, Any]], data: set[int], there: set[int]
) -> None:
    """Require that ListOffsets finds the first record at or after a time, ignoring markers.

    Kafka may return a later one of several records with exactly that time.
    """
    if there - data:
        return
    times = {record["offset"]: record["timestamp"] for record in wanted}
    for answer in answers:
        target, found = answer["target"], answer["offset"]
        if found == -1:
            assert all(time < target for time in times.values())
            continue
        assert times[found] >= target
        assert all(time <= target for offset, time in times.items() if offset < found)


def test_a_broker_serves_a_salvaged_log_directory(
    brokers: Brokers, broker: BrokerData, tmp_path: Path
) -> None:
    """The directory has no mark of a clean shutdown, so that the broker scans all of it."""
    seed = new_seed()
    print("seed", seed)
    damages = hurt(broker, tmp_path / "hurt", random.Random(seed))
    out = tmp_path / "salvaged"
    summary = salvage(open_path(str(tmp_path / "hurt")), str(out))
    assert summary.lost_ranges >= len(damages) // 2
    before = broker_data.fingerprint(out / "log")
    new = brokers.serve(out / "log", tmp_path / "served")
    rows = {row["to"].removeprefix("log/"): row for row in partitions_of(out)}
    counts = [
        check_served(broker, new, name, damage, rows[name]) for name, damage in damages.items()
    ]
    assert sum(counts) > 500
    after = broker_data.fingerprint(out / "log")
    for name, damage in damages.items():
        if rows[name]["first_unstable_offset"] is None:
            check_untouched(name, before, after, damage)


def test_a_broker_takes_salvaged_partitions_as_its_own(
    brokers: Brokers, broker: BrokerData, tmp_path: Path
) -> None:
    """Moved into the log directory of a broker that was shut down cleanly, they are not scanned."""
    seed = new_seed()
    print("seed", seed)
    damages = hurt(broker, tmp_path / "hurt", random.Random(seed))
    log_dir = tmp_path / "log-dir"
    shutil.copytree(broker.log_dir("clean"), log_dir)
    rows = {}
    for name in damages:
        out = tmp_path / f"salvaged-{name}"
        salvage(open_path(str(tmp_path / "hurt" / name)), str(out))
        shutil.rmtree(log_dir / name)
        shutil.move(out / "log" / name, log_dir / name)
        [rows[name]] = partitions_of(out)
    new = brokers.serve(log_dir, tmp_path / "served")
    for name, damage in damages.items():
        check_served(broker, new, name, damage, rows[name])


def partitions_of(out: Path) -> list[dict[str, Any]]:
    lines = (out / "manifest.ndjson").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["type"] == "salvaged_partition"]


def check_untouched(
    name: str, before: dict[str, Any], after: dict[str, Any], damage: Damage
) -> None:
    """Require that the broker's scan cut nothing; topics have custom index intervals."""
    for path, (size, _, digest) in before.items():
        if path.startswith(f"{name}/") and path.endswith((".log", ".txnindex")):
            assert (after[path][0], after[path][2]) == (size, digest), (path, damage.words)
