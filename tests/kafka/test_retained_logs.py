"""A real broker on what `retention` left, and the lock that keeps brokers and us apart."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.journal import Run
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result
    from tests.kafka.booted import Brokers
    from tests.kafka.broker_data import BrokerData

pytestmark = pytest.mark.kafka

# All segments go but the last that holds anything.
RETENTION = ("--config", "cleanup.policy=delete", "--config", "retention.bytes=1",
             "--config", "retention.ms=-1")  # fmt: skip


def user_partitions(broker: BrokerData) -> list[str]:
    return [name for name in broker.partitions() if not name.startswith("__")]


def applied(result: Result) -> dict[str, Any]:
    rows = map(json.loads, result.stdout.splitlines())
    [row] = [row for row in rows if row["type"] == "retention_applied"]
    return row


def retained(
    broker: BrokerData, log_dir: Path, kafkalog: Callable[..., Result]
) -> dict[str, dict[str, Any]]:
    """A copy of the broker's log directory after retention, with the result per partition."""
    shutil.copytree(broker.log_dir("clean"), log_dir)
    rows = {}
    for name in user_partitions(broker):
        result = kafkalog("retention", log_dir / name, *RETENTION, "--apply", "--yes",
                          "--format", "ndjson")  # fmt: skip
        assert result.status == 0, result.stderr
        rows[name] = applied(result)
    return rows


def test_a_broker_serves_what_is_left(
    brokers: Brokers, broker: BrokerData, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """It serves exactly the records from the new start on, at both levels, without a scan."""
    log_dir = tmp_path / "log-dir"
    rows = retained(broker, log_dir, kafkalog)
    assert sum(row["deleted_segments"] for row in rows.values()) >= 10
    new = brokers.serve(log_dir, tmp_path / "served")
    for name, row in rows.items():
        start = row["log_start_offset"]
        wanted = [record for record in broker.records(name) if record["offset"] >= start]
        assert list(new.records(name)) == wanted
        committed = [offset for offset in broker.committed_offsets(name) if offset >= start]
        assert new.committed_offsets(name) == committed
        for answer in ("latest", "earliest"):
            offset = start if answer == "earliest" else broker.lookups[name]["latest"]["offset"]
            assert new.lookups[name][answer]["offset"] == offset, name


def test_a_broker_writes_on_and_keeps_us_off_while_it_runs(
    brokers: Brokers, broker: BrokerData, tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """Appends continue at the log end; a plan is read, the change is refused with status 4."""
    log_dir = tmp_path / "log-dir"
    rows = retained(broker, log_dir, kafkalog)
    with brokers.on(log_dir) as running:
        for name, row in rows.items():
            assert running.append(name) == row["log_end_offset"], name
        before = sorted(path.name for path in log_dir.glob("*/*"))
        assert kafkalog("retention", log_dir, *RETENTION).status == 0
        result = kafkalog("retention", log_dir, *RETENTION, "--apply", "--yes")
        assert result.status == 4
        assert "log-dir-in-use" in result.stderr
        assert result.stdout == b""
        assert sorted(path.name for path in log_dir.glob("*/*")) == before
    assert kafkalog("retention", log_dir, *RETENTION).status == 0


def test_no_broker_starts_while_we_have_the_lock(
    brokers: Brokers, broker: BrokerData, tmp_path: Path
) -> None:
    """It reports that the lock is taken, and starts once we have released it."""
    log_dir = tmp_path / "log-dir"
    shutil.copytree(broker.log_dir("clean"), log_dir)
    before = broker_data.fingerprint(log_dir)
    with (
        Run(str(log_dir)),
        pytest.raises(broker_data.HarnessError, match="Failed to acquire lock"),
        brokers.on(log_dir),
    ):
        pass
    after = broker_data.fingerprint(log_dir)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    # A broker in combined mode opens its metadata log before it takes the lock.
    assert {name.split("/")[0] for name in changed} <= {".lock", "__cluster_metadata-0"}
    with brokers.on(log_dir):
        pass
