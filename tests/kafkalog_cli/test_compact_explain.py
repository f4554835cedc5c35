"""`compact --explain`: its tables, its objects and its status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from docgen import output
from kafkalog_cli import maintenance
from kafkalog_cli.output import writer
from tests.conftest import state

if TYPE_CHECKING:
    from pathlib import Path

COMPACT = ("compact", "examples/log-dir/orders-0", "--config", "cleanup.policy=compact")
NOW = ("--now", "2024-01-01T01:00:00Z")


def test_objects_are_those_documented(kafkalog: Any) -> None:
    """Their sums equal those of the plan."""
    result = kafkalog(*COMPACT, *NOW, "--explain", "--limit", 10**6, "--format", "ndjson")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.status == 0
    assert [output.mistakes(row) for row in rows] == [[]] * len(rows)
    assert {row["type"] for row in rows} == {
        "compaction_candidate", "compaction_map_step", "compaction_map", "compaction_group",
        "compaction_batch", "compaction_step",
    }  # fmt: skip
    plan = json.loads(kafkalog(*COMPACT, *NOW, "--format", "ndjson").stdout.splitlines()[0])
    batches = [row for row in rows if row["type"] == "compaction_batch"]
    assert sum(row["kept"] for row in batches) == plan["records_kept"]
    assert sum(row["records"] for row in batches) == plan["records_read"]
    groups = [row for row in rows if row["type"] == "compaction_group"]
    assert [row["bytes_after"] for row in groups] == [one["bytes_after"] for one in plan["groups"]]
    [found] = [row for row in rows if row["type"] == "compaction_map"]
    assert found["keys"] == plan["keys"]
    renames = [row["new_name"] for row in rows if row.get("action") == "rename"]
    final = [name for name in renames if name.endswith((".log", "index"))]
    assert len(final) == 3 * len(groups)
    table = kafkalog(*COMPACT, *NOW, "--explain", "--format", "csv").stdout.decode()
    assert table.splitlines()[0].startswith("type,path,position,base_offset,")


@pytest.mark.parametrize("columns", [80, 200])
def test_it_fits_the_terminal(columns: int, kafkalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and steps fit; the steps of later segments are not repeated."""
    for module in (maintenance, writer):
        monkeypatch.setattr(module, "terminal_width", lambda: columns)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = kafkalog(*COMPACT, *NOW, "--explain").stdout.decode()
    assert max(map(len, text.splitlines())) <= columns
    assert text.count("rename 00000000000000000000.log.cleaned") == 1
    assert "like the one before" in text


def test_every_candidate_has_its_threshold(corpus_dir: Path, kafkalog: Any) -> None:
    """This log stays dirty from end to end, as its broker had a threshold of 1.0."""
    [log_dir] = state(corpus_dir, "kafka-4.3", "compact-0-before").log_dirs
    result = kafkalog("compact", log_dir, "--explain", "--format", "ndjson", *NOW)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.status == 9
    [live] = [row for row in rows if row["path"].endswith("compact-live-0")]
    assert (live["ratio"], live["threshold"], live["turn"]) == (1.0, 1.0, None)
    assert live["skipped"] == "not above min.cleanable.dirty.ratio 1"


@pytest.mark.parametrize(
    "more", [("--in-place", "--yes"), ("--to", "copy"), ("--engine", "spark")], ids=" ".join
)
def test_it_only_plans(more: tuple[str, ...], kafkalog: Any) -> None:
    """--explain together with a change is refused."""
    assert kafkalog(*COMPACT, "--explain", *more).status == 2
