"""The first commands after a crash: they read no more of the log than they need."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.node import frontier
from kafkalog.node.recovery import segment_recovery
from tests.builders import batch, record
from tests.counted_work import counted_work

if TYPE_CHECKING:
    from pathlib import Path

READ_MAX = 256 << 10
SIZE = 200 << 20
PER_BATCH = 20


@pytest.fixture(scope="module")
def unclean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with one log of 200 MiB that nobody closed."""
    log_dir = tmp_path_factory.mktemp("unclean")
    (log_dir / "t-0").mkdir()
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    rest = batch(0, [record(i, b"key", bytes(700)) for i in range(PER_BATCH)])[8:]
    name = log_dir / "t-0" / f"{0:020}"
    with name.with_suffix(".log").open("wb") as log, name.with_suffix(".index").open("wb") as index:
        for at in range(0, SIZE // len(rest) * PER_BATCH, PER_BATCH):
            if at:
                index.write(struct.pack(">ii", at + PER_BATCH - 1, log.tell()))
            log.write(struct.pack(">q", at) + rest)
    name.with_suffix(".timeindex").touch()
    return log_dir


@pytest.mark.parametrize(
    "argv",
    [
        ("ls", "{dir}"),
        ("lookup-offset", "{dir}/t-0", "100"),
        ("lookup-offset", "{dir}", "5", "--topic", "t"),
        ("lookup-offset", "{dir}/t-0", "--timestamp", "1700000000000"),
        ("dump-segment", "{dir}/t-0", "--limit", "1"),
        ("dump-segment", "{dir}", "--limit", "1", "--batches"),
        ("dump-segment", "{dir}", "--limit", "3", "--sort", "time"),
        ("dump-segment", "{dir}/t-0", "--to-offset", "2"),
    ],
    ids=" ".join,
)
def test_a_first_look_reads_little(unclean: Path, kafkalog: Any, argv: tuple[str, ...]) -> None:
    """A killed broker's log has 200 MiB that a start would scan."""
    words = [word.format(dir=unclean) for word in argv]
    with counted_work() as work:
        result = kafkalog(*words, "--format", "ndjson")
    assert result.status == 0, result.stderr
    assert b'"type"' in result.stdout
    assert work.read_bytes <= READ_MAX
    assert "not closed cleanly" in result.stderr
    assert "were not read" in result.stderr


def test_a_listing_has_the_least_end_and_what_was_not_scanned(unclean: Path, kafkalog: Any) -> None:
    """The end is known with the files as they are, and after a scan."""
    lines = kafkalog("ls", unclean, "--format", "ndjson").stdout.splitlines()
    [row] = [one for one in map(json.loads, lines) if one["type"] == "partition"]
    size = (unclean / "t-0" / f"{0:020}.log").stat().st_size
    assert (row["log_end_offset"], row["unscanned_bytes"]) == (0, size)
    assert "≥ 0" in kafkalog("ls", unclean).stdout.decode()
    whole = kafkalog("ls", unclean, "--view", "as-is", "--format", "ndjson")
    [row] = [one for one in map(json.loads, whole.stdout.splitlines()) if "topic" in one]
    size_of_batch = len(batch(0, [record(i, b"key", bytes(700)) for i in range(PER_BATCH)]))
    assert row["log_end_offset"] == size // size_of_batch * PER_BATCH
    assert (row["unscanned_bytes"], whole.stderr) == (0, "")


def killed(directory: Path, *batches: bytes) -> Path:
    path = directory / "t-0"
    path.mkdir()
    (directory / "meta.properties").write_text("version=1\nnode.id=1\n")
    (path / f"{0:020}.log").write_bytes(b"".join(batches))
    (path / f"{0:020}.index").touch()
    return path


def test_a_dump_of_everything_scans_everything(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is known what a start cuts off, which is a failure; a limit may leave it unknown."""
    monkeypatch.setattr(frontier, "_LITTLE", -1)
    monkeypatch.setattr(segment_recovery, "_STEP_MIN", 1)
    torn = batch(2, [record()])[:-1]
    path = killed(tmp_path, batch(0, [record()]), batch(1, [record()]), torn)
    whole = kafkalog("dump-segment", path, "--format", "ndjson")
    assert (whole.status, whole.stdout.count(b"\n")) == (8, 2)
    assert "truncate the log at offset 2 and drop 0 records" in whole.stderr
    first = kafkalog("dump-segment", path, "--format", "ndjson", "--limit", "1")
    assert (first.status, first.stdout.count(b"\n")) == (0, 1)
    assert first.stderr.startswith("note: ")


def test_rows_that_a_start_would_throw_away_are_a_failure(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets go back at a batch for which an index entry is due: nothing of the segment stays."""
    monkeypatch.setattr(frontier, "_LITTLE", -1)
    monkeypatch.setattr(segment_recovery, "_STEP_MIN", 1)
    large = [record(0, None, bytes(5000))]
    path = killed(tmp_path, *(batch(at, large) for at in (0, 1, 2, 3, 1)))
    result = kafkalog("dump-segment", path, "--format", "ndjson")
    assert result.status == 8
    assert result.stdout
    assert f"records of {0:020}.log may have been shown before" in result.stderr
