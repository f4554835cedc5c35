"""The data of a broker with remote storage, for the tests about tiers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import kafkalog as library
from kafkalog.files.payloads.internal_topics import PayloadKind, decode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

PARTITIONS = ("plain-0", "transactions-0")


@dataclass(frozen=True)
class Tiered:
    """The data of a broker with remote storage: its log directory, its tier, and its answers."""

    root: Path

    @property
    def log_dir(self) -> Path:
        return self.root / "log"

    @property
    def tier(self) -> Path:
        return self.root / "tier" / "kafka-tiered-storage"

    @cached_property
    def told(self) -> dict[str, dict[str, Any]]:
        return json.loads((self.root / "expected" / "told.json").read_text())

    def retained(self, step: str) -> Tiered:
        """Return the data after a step of retention in a third life."""
        return Tiered(self.root / "retained" / step)

    @cached_property
    def told_of_retention(self) -> dict[str, dict[str, Any]]:
        """What was changed for each step, and what came of it."""
        return json.loads((self.root / "retained" / "told.json").read_text())

    def remote(self, partition: str) -> Path:
        [found] = self.tier.glob(f"{partition}-*")
        return found

    def all_records(self, partition: str) -> list[dict[str, Any]]:
        """Return the records that a consumer got."""
        lines = (self.root / "expected" / "records" / f"{partition}.ndjson").read_text()
        return [json.loads(line) for line in lines.splitlines()]

    def records(self, partition: str) -> list[dict[str, Any]]:
        """Return the records that a consumer got, up to the last one that is in the tier."""
        end = self.told[partition]["specials"]["latest-tiered"]
        return [row for row in self.all_records(partition) if row["offset"] <= end]


def rows(kafkalog: Run, *argv: object, status: int = 0) -> list[dict[str, Any]]:
    result = kafkalog(*argv, "--format", "ndjson")
    assert result.status == status, (argv, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


def as_told(record: Any) -> dict[str, Any]:
    """Return one of our records as the harness writes it."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "leaderEpoch": record.batch.leader_epoch,
    }


def findings(kafkalog: Run, *argv: object, status: int = 0) -> list[dict[str, Any]]:
    found = rows(kafkalog, "verify", *argv, status=status)
    assert found[-1]["type"] == "verify_summary"
    return [row for row in found if row["type"] == "defect"]


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("offset", "timestamp", "key", "value", "leaderEpoch")}


def segment_changes(log_dir: Path, segment_id: str) -> list[int]:
    """Return when `__remote_log_metadata` says that the states of a remote segment began."""
    records = library.Log(log_dir / "__remote_log_metadata-0").records(data=True)
    decoded = (decode(PayloadKind.REMOTE_LOG_METADATA, one.key, one.value).value for one in records)
    told = [one["data"] for one in decoded if one is not None]
    return [
        one["eventTimestampMs"] for one in told if one["remoteLogSegmentId"]["id"] == segment_id
    ]


def segments_told(log_dir: Path, partition: str) -> dict[str, int]:
    """Return the last state of each remote segment that `__remote_log_metadata` knows."""
    topic, _, number = partition.rpartition("-")
    states: dict[str, int] = {}
    for record in library.Log(log_dir / "__remote_log_metadata-0").records(data=True):
        found = decode(PayloadKind.REMOTE_LOG_METADATA, record.key, record.value)
        assert found.value is not None
        segment = found.value["data"]["remoteLogSegmentId"]
        of = segment["topicIdPartition"]
        if (of["name"], of["partition"]) == (topic, int(number)):
            states[segment["id"]] = found.value["data"]["remoteLogSegmentState"]
    return states
