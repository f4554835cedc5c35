"""`kafkalog.simulate_retention`: one call for partitions and log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from kafkalog.change.retention import judge_partition, simulation
from kafkalog.errors import InternalError, UsageError
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources
from tests.kafkalog.change.repair.test_run import Remembering

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.change.retention import PartitionRetention

LOG_DIR = "examples/log-dir"
NOW_MS = 1_704_067_700_000


def names(found: Iterable[PartitionRetention]) -> list[str]:
    return [one.partition.path.rpartition("/")[2] for one in found]


def test_each_partition_is_judged_with_its_configs() -> None:
    """As `judge_partition` does it, with the metadata log of the log directory."""
    wanted = {"retention.ms": "240000"}
    [found] = kafkalog.simulate_retention(f"{LOG_DIR}/orders-0", configs=wanted, now=NOW_MS)
    topic = ConfigSources(wanted).in_log_dir(LOG_DIR).of_topic("orders")
    same = judge_partition(open_partition(f"{LOG_DIR}/orders-0"), topic, NOW_MS)
    assert found.verdicts == same.verdicts
    assert found.configs == same.configs
    log_dir = kafkalog.LogDir(LOG_DIR)
    assert names(kafkalog.simulate_retention(log_dir, now=NOW_MS)) == [
        name for name in log_dir if log_dir[name].segments
    ]


def test_what_fails_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener receives the error; without a listener it is raised."""
    real = simulation.judge_partition

    def failing(partition: Any, *args: Any, **options: Any) -> Any:
        if partition.path.endswith("orders-0"):
            raise ZeroDivisionError("a bug of ours")
        return real(partition, *args, **options)

    monkeypatch.setattr(simulation, "judge_partition", failing)
    listener = Remembering()
    file = f"{LOG_DIR}/orders-0/00000000000000000250.log"
    found = names(kafkalog.simulate_retention(file, LOG_DIR, now=NOW_MS, on_event=listener.hear))
    assert "orders-0" not in found
    assert "payments-0" in found
    assert [type(error) for error in listener.errors] == [UsageError, InternalError]
    with pytest.raises(InternalError):
        list(kafkalog.simulate_retention(LOG_DIR, now=NOW_MS))


def test_rolls_are_replayed_under_present_and_proposed_configs() -> None:
    """Without a proposal, only the present configs are replayed."""
    log = kafkalog.Log(f"{LOG_DIR}/orders-0")
    [present] = kafkalog.simulate_roll(log)
    assert [segment.base_offset for segment in present.replay.segments] == [0, 250, 500, 750]
    again, proposed = kafkalog.simulate_roll(log, configs={"segment.bytes": "1000000"})
    assert again.replay == present.replay
    assert (proposed.name, len(proposed.replay.segments)) == ("proposed", 1)
