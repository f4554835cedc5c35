"""Replays every log that Kafka's storage classes rolled for the corpus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import scenario_names
from tests.kafkalog.operations import replay_operations, settings_of

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.roll.replay import Replay


def replayed(root: Path, facts: dict[str, Any]) -> tuple[Replay, list[tuple[int, int]]]:
    settings = settings_of(facts["config"])
    return replay_operations(root / "orders-0", facts, facts["result"]["appends"], settings)


def test_no_scenario_is_missing() -> None:
    """The corpus holds every log that was generated."""
    assert len(scenario_names("roll")) == 28


@pytest.mark.parametrize("name", scenario_names("roll"))
def test_rolls_are_kafkas(name: str, corpus_dir: Path) -> None:
    """The same appends roll at the same base offsets, and the indexes have as many entries."""
    root = corpus_dir / "roll" / name
    facts = json.loads((root / "facts.json").read_text())
    replay, rolls = replayed(root, facts)
    assert rolls == [(roll["opIndex"], roll["newBase"]) for roll in facts["result"]["rolls"]]
    segments = replay.segments()
    wanted = facts["result"]["log"]["segments"]
    assert [
        (one.base_offset, one.size_bytes, one.last_offset + 1, one.index_entries)
        for one in segments
    ] == [(one["base"], one["size"], one["nextOffset"], one["indexEntries"]) for one in wanted]
    assert [one.timeindex_entries for one in segments] == [
        one["timeIndexEntries"] for one in wanted
    ]
    for one, fact in zip(segments, wanted, strict=True):
        assert one.max_timestamp == fact["maxTimestampSoFar"]
        first = fact["firstBatchTimestamp"]
        assert one.first_timestamp == (-1 if first is None else first)


@pytest.mark.parametrize("name", scenario_names("roll"))
def test_conditions_explain_the_rolls(name: str, corpus_dir: Path) -> None:
    """A closed segment has a condition, unless an operation of its own rolled the log."""
    root = corpus_dir / "roll" / name
    facts = json.loads((root / "facts.json").read_text())
    *ended, active = replayed(root, facts)[0].segments()
    assert active.is_active
    assert active.rolled_by is None
    told = [roll["op"] == "roll" for roll in facts["result"]["rolls"]]
    assert [one.rolled_by is None for one in ended] == told
    words = {str(one.rolled_by) for one in ended if one.rolled_by}
    expected = {
        "segment_bytes": "segment.bytes",
        "segment_ms": "segment.ms",
        "index_full": "segment.index.bytes",
        "offset_overflow": "offset-range",
        "max_compaction_lag": "segment.ms",
        "preallocate": "segment.bytes",
        "offset_gap": "segment.bytes",
        "too_large": "segment.bytes",
    }
    [wanted] = [word for start, word in expected.items() if name.startswith(start)] or [None]
    assert words <= {wanted}
