"""Simulates every retention run that Kafka's storage classes performed for the corpus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.retention import PartitionRetention, Reason, judge_partition, run_policies
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources
from tests.conftest import scenario_names

if TYPE_CHECKING:
    from pathlib import Path

REASONS = {
    "log-start": Reason.LOG_START_OFFSET,
    "size": Reason.RETENTION_BYTES,
    "time": Reason.RETENTION_MS,
}


def simulated(root: Path, facts: dict[str, Any]) -> PartitionRetention:
    partition = open_partition(str(root / "orders-0"))
    configs = ConfigSources(facts["config"]).in_log_dir(str(root)).of_topic("orders")
    given = facts["highWatermark"]
    return judge_partition(
        partition,
        configs,
        facts["now"],
        high_watermark=given if isinstance(given, int) else "end",
        log_start_offset=facts["deleteRecordsTo"],
    )


def test_no_scenario_is_missing() -> None:
    """The corpus holds every pair that was generated."""
    assert len(scenario_names("retention")) == 33


@pytest.mark.parametrize("name", scenario_names("retention"))
def test_retention_is_kafkas(name: str, corpus_dir: Path) -> None:
    """The same segments are deleted, for the same reasons, and the same log remains."""
    root = corpus_dir / "retention" / name
    facts = json.loads((root / "facts.json").read_text())
    before, after = facts["result"]["logBefore"], facts["result"]["log"]
    found = simulated(root, facts)
    for segment, wanted in zip(found.log.segments, before["segments"], strict=True):
        assert segment.base_offset == wanted["base"]
        assert segment.size_bytes == wanted["size"]
        assert segment.max_timestamp == wanted["largestTimestamp"]
    assert found.log.high_watermark == before["highWatermark"]
    assert found.log.log_start_offset == before["logStartOffset"]
    assert found.log.log_end_offset == before["logEndOffset"]
    gone = [(deletion.segment.base_offset, deletion.reason) for deletion in found.outcome.deleted]
    assert gone == [(one["base"], REASONS[one["reason"]]) for one in facts["result"]["deleted"]]
    left = found.outcome.log
    assert left.log_start_offset == after["logStartOffset"]
    assert [(one.base_offset, one.size_bytes) for one in left.segments] == [
        (one["base"], one["size"]) for one in after["segments"]
    ]
    again = run_policies(left, found.policy, facts["now"])
    assert len(again.deleted) == facts["result"]["secondRunDeletes"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", scenario_names("retention"))
def test_verdicts_say_what_the_run_does(name: str, corpus_dir: Path) -> None:
    """There is one verdict per segment. None is kept for time that time alone would delete now."""
    root = corpus_dir / "retention" / name
    facts = json.loads((root / "facts.json").read_text())
    found = simulated(root, facts)
    assert [verdict.segment for verdict in found.verdicts] == list(found.log.segments)
    deleted = [verdict for verdict in found.verdicts if verdict.is_deleted]
    assert [verdict.segment.base_offset for verdict in deleted] == [
        one["base"] for one in facts["result"]["deleted"]
    ]
    for verdict in found.verdicts:
        assert verdict.detail
        if verdict.is_deleted:
            assert verdict.deletable_timestamp is not None
            assert verdict.deletable_timestamp <= facts["now"]
        elif verdict.deletable_timestamp is not None:
            assert verdict.deletable_timestamp > facts["now"]


def test_the_record_that_keeps_a_log_alive_is_named(corpus_dir: Path) -> None:
    """A future timestamp blocks all later segments: offset, timestamp and position are reported."""
    root = corpus_dir / "retention" / "time_future_blocks"
    facts = json.loads((root / "facts.json").read_text())
    _, blocking, *behind = simulated(root, facts).verdicts
    wanted = facts["result"]["logBefore"]["segments"][1]
    assert blocking.latest_record is not None
    assert blocking.latest_record.timestamp == wanted["largestTimestamp"]
    assert wanted["base"] <= blocking.latest_record.offset < wanted["nextOffset"]
    assert {verdict.blocking_segment for verdict in behind} == {wanted["base"]}
    assert {verdict.deletable_timestamp for verdict in behind} == {
        wanted["largestTimestamp"] + 1001
    }
