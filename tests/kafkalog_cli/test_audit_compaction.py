"""`verify --compaction`: rows, messages and statuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from docgen import output
from kafkalog.node.unified_log import UnifiedLog
from tests.builders import flip
from tests.conftest import Result

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Result]


def test_a_proof(corpus_dir: Path, kafkalog: Run) -> None:
    """Status 0, one object, and a message on what was judged."""
    root = corpus_dir / "compaction" / "binary_keys"
    words = ("verify", "--compaction", root / "after" / "orders-0",
             "--original", root / "before" / "orders-0")  # fmt: skip
    result = kafkalog(*words, "--format", "ndjson")
    assert (result.status, result.stderr) == (0, "")
    [row] = map(json.loads, result.stdout.splitlines())
    assert output.mistakes(row) == []
    assert (row["type"], row["proved"], row["findings"]) == ("audit", True, 0)
    table = kafkalog(*words)
    assert table.status == 0
    assert b"correctly compacted" in table.stdout


def test_counter_examples(corpus_dir: Path, kafkalog: Run) -> None:
    """By default one, else up to --limit; keys never reach a terminal raw."""
    before = corpus_dir / "compaction" / "binary_keys" / "before" / "orders-0"
    end = UnifiedLog(str(before)).log_end_offset
    words = ("verify", "--compaction", before, "--cleaner-offset", end)
    result = kafkalog(*words, "--limit", "1000", "--format", "ndjson")
    assert result.status == 1
    *found, last = map(json.loads, result.stdout.splitlines())
    for row in found:
        assert output.mistakes(row) == []
        assert row["reason"] == "stale-key"
        assert row["offset"] < row["other_offset"] < end
    assert len(found) == last["findings"] > 2
    first = kafkalog(*words, "--format", "ndjson")
    assert json.loads(first.stdout.splitlines()[0]) == found[0]
    assert len(first.stdout.splitlines()) == 2
    table = kafkalog(*words, "--limit", "1000").stdout
    assert not [byte for byte in table if byte < 32 and byte != 10]


def test_a_log_directory(corpus_dir: Path, tmp_path: Path, kafkalog: Run) -> None:
    """One row per partition with a cleaner offset; a wrong partition among correct ones is found.

    Partitions missing from the original are reported, and the others are checked.
    """
    root = corpus_dir / "compaction" / "binary_keys"
    place, before = tmp_path / "after", tmp_path / "before"
    shutil.copytree(root / "after", place)
    shutil.copytree(root / "before", before)
    shutil.copytree(before / "orders-0", place / "orders-1")
    shutil.copytree(before / "orders-0", before / "orders-1")
    shutil.copytree(before / "orders-0", place / "orders-2")
    checkpoint = place / "cleaner-offset-checkpoint"
    [entry] = [line for line in checkpoint.read_text().splitlines() if line.startswith("orders 0")]
    second = entry.replace("orders 0", "orders 1")
    checkpoint.write_text(f"0\n2\n{entry}\n{second}\n")
    words = ("verify", "--compaction", place, "--original", before, "--format", "ndjson")
    result = kafkalog(*words)
    assert result.status == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(output.mistakes(row) == [] for row in found)
    assert [row["type"] for row in found] == ["audit", "audit_finding", "audit"]
    assert [row["proved"] for row in found if row["type"] == "audit"] == [True, False]
    table = kafkalog(*words[:-2]).stdout.decode()
    assert re.search(r"orders-0 +\d+ +\d+ +correctly compacted\n", table)
    assert re.search(r"orders-1 +\d+ +- +stale-key\n", table)
    assert "2 partitions judged, 1 not correctly compacted" in table
    shutil.rmtree(before / "orders-1")
    result = kafkalog(*words)
    assert (result.status, "path-not-found" in result.stderr) == (8, True)
    assert json.loads(result.stdout)["proved"]


def test_bad_targets(corpus_dir: Path, kafkalog: Run) -> None:
    """Without a checkpoint nothing says what was compacted, or whether anything was."""
    root = corpus_dir / "compaction" / "binary_keys"
    for path in (root / "before" / "orders-0", root / "before"):
        result = kafkalog("verify", "--compaction", path)
        assert result.status == 0
        assert "--cleaner-offset" in result.stderr
    assert kafkalog("verify", "--compaction", root / "after", "--cleaner-offset", "5").status == 2
    given = ("--cleaner-offset", "1000000")
    assert kafkalog("verify", "--compaction", root / "after" / "orders-0", *given).status == 2


def test_a_displaced_batch(corpus_dir: Path, tmp_path: Path, kafkalog: Run) -> None:
    """No checksum covers its base offset, but a reader sees that it is wrong."""
    place = tmp_path / "after"
    shutil.copytree(corpus_dir / "compaction" / "binary_keys" / "after", place)
    [log, *_] = sorted((place / "orders-0").glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 17))
    result = kafkalog("verify", "--compaction", place)
    assert (result.status, "batch-offset-not-increasing" in result.stderr) == (6, True)
    assert b"correctly compacted" not in result.stdout
