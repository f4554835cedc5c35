"""Readers report what they leave out or lack: lost segments, a torn end, a log start offset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog import find
from kafkalog.errors import CorruptDataError
from tests.builders import copy_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

COUNT = "select count(*) as n from records where topic = 'orders'"
# Segments of orders-0 begin at 0, 250, 500 and 750, and each order names its offset.
READERS: dict[str, list[str]] = {
    "find": ["find", "--topic", "orders", "--value-regex", "order"],
    "history": ["find", "--topic", "orders", "--key", "user-8", "--history"],
    "sql": ["sql", "-c", COUNT],
    "batches": ["sql", "-c", "select count(*) as n from batches"],
    "profile": ["profile", "--topic", "orders"],
    "dump": ["dump-segment", "--topic", "orders"],
    "dump of batches": ["dump-segment", "--topic", "orders", "--batches"],
    "dump as Kafka's": ["dump-segment", "--topic", "orders", "--format", "kafka"],
    "dump by time": ["dump-segment", "--topic", "orders", "--sort", "time"],
}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return copy_tree(tmp_path.cwd() / "examples/log-dir", tmp_path / "logs")


def lose_the_second_segment(log_dir: Path) -> None:
    for path in (log_dir / "orders-0").glob(f"{250:020d}.*"):
        path.unlink()


@pytest.mark.parametrize("reader", READERS)
def test_a_lost_segment_is_told(log_dir: Path, kafkalog: Run, reader: str) -> None:
    assert kafkalog(*READERS[reader], log_dir).status == 0
    lose_the_second_segment(log_dir)
    result = kafkalog(*READERS[reader], log_dir)
    assert result.status == 8
    assert "Offsets 250 to 499 are missing." in result.stdout.decode() + result.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reader", READERS)
def test_what_compaction_explains_is_not(log_dir: Path, kafkalog: Run, reader: str) -> None:
    """The gap is below the cleaner's checkpoint: the cleaner may have removed a whole segment."""
    lose_the_second_segment(log_dir)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 750\n")
    result = kafkalog(*READERS[reader], log_dir)
    assert (result.status, "missing" in result.stderr) == (0, False)


def test_an_export_lists_no_lost_segment_as_complete(
    log_dir: Path, kafkalog: Run, tmp_path: Path
) -> None:
    lose_the_second_segment(log_dir)
    result = kafkalog("export", log_dir, "--topic", "orders", "--to", tmp_path / "lake")
    assert result.status == 8
    assert "Offsets 250 to 499 are missing." in result.stderr


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_file_of_rows_lists_no_lost_segment_as_complete(
    log_dir: Path, kafkalog: Run, tmp_path: Path, form: str
) -> None:
    lose_the_second_segment(log_dir)
    for limit, status in ((250, 0), (251, 8)):
        place = tmp_path / f"{limit}.{form}"
        result = kafkalog("dump-segment", log_dir / "orders-0", "--limit", limit, "--to", place)
        assert result.status == status
        assert ("Offsets 250 to 499 are missing." in result.stderr) == bool(status)


def test_only_what_is_asked_for_is_missing(log_dir: Path, kafkalog: Run) -> None:
    """The orders from 500 on are complete, and so are other topics."""
    lose_the_second_segment(log_dir)
    for query, count in (
        (f"{COUNT} and offset >= 500", 500),
        ("select count(*) as n from records where topic = 'customers'", 60),
    ):
        result = kafkalog("sql", "--format", "ndjson", "-c", query, log_dir)
        assert (result.status, result.stderr) == (0, "")
        assert json.loads(result.stdout)["n"] == count


def test_the_library_raises_it(log_dir: Path) -> None:
    lose_the_second_segment(log_dir)
    found = find(log_dir, topics=["orders"], value_regex="order")
    with pytest.raises(CorruptDataError, match="250 to 499"):
        list(found)


@pytest.mark.parametrize("question", [["--special", "latest"], ["--special", "max-timestamp"],
                                      ["995"], ["--special", "latest", "--no-index"]])  # fmt: skip
def test_a_lookup_tells_of_the_torn_end_that_it_met(
    log_dir: Path, kafkalog: Run, question: list[str]
) -> None:
    """The log was closed cleanly, so a start would cut nothing off, and its index is valid."""
    tear_the_end(log_dir)
    index = log_dir / "orders-0" / f"{750:020d}.index"
    index.write_bytes(index.read_bytes()[:-8])
    result = kafkalog("lookup-offset", log_dir / "orders-0", *question)
    assert result.status == 8
    assert "torn-tail" in result.stderr
    assert result.stderr.count("torn-tail") == 1


def tear_the_end(log_dir: Path) -> None:
    log = log_dir / "orders-0" / f"{750:020d}.log"
    log.write_bytes(log.read_bytes()[:-40])


def test_a_log_ends_where_the_start_of_a_broker_ends_it(log_dir: Path, kafkalog: Run) -> None:
    """Closed cleanly, then torn: `LogSegment.readNextOffset` finds no batch at the last entry."""
    tear_the_end(log_dir)
    told = "the next start would end the log at offset 750 and hide 240 records"
    listed = kafkalog("ls", log_dir / "orders-0", "--format", "ndjson")
    assert json.loads(listed.stdout)["log_end_offset"] == 750
    assert told in listed.stderr
    counted = kafkalog("sql", "--format", "ndjson", "-c", COUNT, log_dir)
    assert (json.loads(counted.stdout)["n"], counted.status) == (750, 8)
    assert told in counted.stderr
    counted = kafkalog("sql", "--format", "ndjson", "-c", COUNT, log_dir, "--view", "as-is")
    assert json.loads(counted.stdout)["n"] == 990
    planned = kafkalog("recover", log_dir, "--check", "--format", "ndjson")
    found = [json.loads(line) for line in planned.stdout.splitlines()]
    [plan] = [one for one in found if one.get("verdict") == "hide"]
    assert (plan["log_end_offset"], plan["hidden_records"], planned.status) == (750, 240, 1)
    assert plan["lost_records"] == 0
    summary = kafkalog("recover", log_dir, "--check").stdout.decode()
    assert "240 records hidden (new ones get their offsets)" in " ".join(summary.split())
    assert "lost" not in summary
    assert plan["detail"] in listed.stderr
    assert plan["lost_from"] == 750


def test_a_lookup_tells_of_damage_before_its_answer(log_dir: Path, kafkalog: Run) -> None:
    """The wanted batch has lost its length; its checksum says what it was."""
    log = log_dir / "orders-0" / f"{250:020d}.log"
    data = bytearray(log.read_bytes())
    data[8:12] = b"\x7f\xff\xff\xff"
    log.write_bytes(data)
    for path in (log_dir / "orders-0").glob(f"{250:020d}.*index"):
        path.unlink()
    result = kafkalog("lookup-offset", log_dir / "orders-0", 250, "--view", "as-is",
                      "--format", "ndjson")  # fmt: skip
    assert result.status == 8
    answer = json.loads(result.stdout.splitlines()[-1])
    assert (answer["position"], answer["offset"]) == (0, 250)
    assert "batch-length-invalid" in result.stderr


def offsets(result: Result) -> list[int]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    return [row["offset"] for row in rows]


def test_records_below_the_log_start_are_left_out_or_marked(log_dir: Path, kafkalog: Run) -> None:
    """As after DeleteRecords: the log starts within the second segment."""
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 300\n")
    told = "note: records below the log start offset left out: orders-0 up to 300\n"
    search = ["find", log_dir, "--topic", "orders", "--value-regex", "order", "--format", "ndjson"]
    found = kafkalog(*search)
    assert (found.status, found.stderr) == (0, told)
    assert offsets(found) == list(range(300, 1000))
    counted = kafkalog("sql", "--format", "ndjson", "-c", COUNT, log_dir)
    assert (json.loads(counted.stdout)["n"], counted.stderr) == (700, told)
    assert offsets(kafkalog(*search, "--view", "as-is")) == offsets(found)
    assert offsets(kafkalog(*search, "--view", "all"))[0] == 0
    life = kafkalog("find", log_dir, "--topic", "orders", "--key", "user-8", "--history",
                    "--format", "ndjson")  # fmt: skip
    lives = [json.loads(line) for line in life.stdout.splitlines()]
    assert lives
    assert all(one["live"] == (one["offset"] >= 300) for one in lives)
    marked = ("note: no consumer gets records below the log start offset: "
              "orders-0 has them up to 300\n")  # fmt: skip
    log = log_dir / "orders-0"
    for target, options, wanted in (
        (log, [], (marked, 0)),
        (log / f"{250:020d}.log", [], (marked, 250)),
        (log, ["--from-offset", "300"], ("", 300)),
        (log, ["--isolation", "read_committed"], ("", 300)),
    ):
        dumped = kafkalog("dump-segment", target, "--limit", 1, "--format", "ndjson", *options)
        assert (dumped.stderr, *offsets(dumped)) == wanted
