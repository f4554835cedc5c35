"""The data of a broker with remote storage, for the tests about tiers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
        "leaderEpoch": record.batch.partition_leader_epoch,
    }


def findings(kafkalog: Run, *argv: object, status: int = 0) -> list[dict[str, Any]]:
    found = rows(kafkalog, "verify", *argv, status=status)
    assert found[-1]["type"] == "summary"
    return [row for row in found if row["type"] == "defect"]


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("offset", "timestamp", "key", "value", "leaderEpoch")}
