"""`audit-compaction`: rows, words and statuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from docs import output_page
from kafkalog.unified_log import UnifiedLog
from tests.conftest import Result

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]


def test_a_proof(corpus_dir: Path, kafkalog: Run) -> None:
    """Status 0, one object, and a word on what was judged."""
    root = corpus_dir / "compaction" / "binary_keys"
    words = ("audit-compaction", root / "after" / "orders-0",
             "--original", root / "before" / "orders-0")  # fmt: skip
    result = kafkalog(*words, "--format", "ndjson")
    assert (result.status, result.stderr) == (0, "")
    [row] = map(json.loads, result.stdout.splitlines())
    assert output_page.mistakes(row) == []
    assert (row["type"], row["proved"], row["findings"]) == ("audit", True, 0)
    table = kafkalog(*words)
    assert table.status == 0
    assert b"correctly compacted" in table.stdout


def test_counter_examples(corpus_dir: Path, kafkalog: Run) -> None:
    """The first alone, or as many as are asked for; keys never reach a terminal as they are."""
    before = corpus_dir / "compaction" / "binary_keys" / "before" / "orders-0"
    end = UnifiedLog(str(before)).log_end_offset
    words = ("audit-compaction", before, "--cleaner-offset", end)
    result = kafkalog(*words, "--limit", "1000", "--format", "ndjson")
    assert result.status == 1
    *found, last = map(json.loads, result.stdout.splitlines())
    for row in found:
        assert output_page.mistakes(row) == []
        assert row["reason"] == "stale-key"
        assert row["offset"] < row["other_offset"] < end
    assert len(found) == last["findings"] > 2
    first = kafkalog(*words, "--format", "ndjson")
    assert json.loads(first.stdout.splitlines()[0]) == found[0]
    assert len(first.stdout.splitlines()) == 2
    table = kafkalog(*words, "--limit", "1000").stdout
    assert not [byte for byte in table if byte < 32 and byte != 10]


def test_bad_targets(corpus_dir: Path, kafkalog: Run) -> None:
    """A log directory is no partition; without a checkpoint nothing says what was compacted."""
    root = corpus_dir / "compaction" / "binary_keys"
    assert kafkalog("audit-compaction", root / "after").status == 3
    result = kafkalog("audit-compaction", root / "before" / "orders-0")
    assert result.status == 2
    assert "--cleaner-offset" in result.stderr
    given = ("--cleaner-offset", "1000000")
    assert kafkalog("audit-compaction", root / "after" / "orders-0", *given).status == 2
