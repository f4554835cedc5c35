"""`find`: what it shows, its files, and its statuses."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafkalog_cli.output import table
from tests.builders import batch, flip, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

LOG_DIR = "examples/log-dir"


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_rows_have_the_fields_of_records_their_partition_and_their_writer(kafkalog: Run) -> None:
    result = kafkalog("find", LOG_DIR, "--key", "order-7", "--format", "ndjson")
    [row] = rows(result)
    assert result.status == 0
    [same] = rows(kafkalog("dump-segment", f"{LOG_DIR}/payments-0", "--key", "order-7",
                           "--format", "ndjson"))  # fmt: skip
    assert row == {
        "type": "found", "topic": "payments", "partition": 0,
        **{name: value for name, value in same.items() if name != "type"},
        "transactional_id": "checkout", "reason": None,
    }  # fmt: skip


def test_a_file_has_the_same_records(kafkalog: Run, tmp_path: Path) -> None:
    """Parquet has the columns of a scan, plus partition and writer."""
    wanted = rows(kafkalog("find", LOG_DIR, "--key-regex", "^user-[12]$", "--format", "ndjson"))
    to = tmp_path / "found.parquet"
    result = kafkalog("find", LOG_DIR, "--key-regex", "^user-[12]$", "--to", to)
    assert result.status == 0
    found = pq.read_table(to).to_pylist()
    names = ("topic", "partition", "offset", "timestamp", "producer_id", "transactional_id")
    assert [[row[name] for name in names] for row in found] == [
        [row[name] for name in names] for row in wanted
    ]
    assert [row["value"].decode() for row in found] == [row["value"] for row in wanted]
    nothing = tmp_path / "nothing.parquet"
    assert kafkalog("find", LOG_DIR, "--key", "-", "--to", nothing).status == 1
    assert not nothing.exists()


def test_nothing_found_is_status_1(kafkalog: Run) -> None:
    result = kafkalog("find", LOG_DIR, "--key", "nobody")
    assert (result.status, result.stdout) == (1, b"")
    assert result.stderr == (
        "note: 4 internal partitions left out; --internal includes them\n"
        "note: nothing found in 3 partitions\n"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [((), "Say what to find"), (("--history", "--key-regex", "a"), "one key"),
     (("--key", "a", "--history", "--last", "1"), "one key"),
     (("--key", "a", "--follow", "--last", "1"), "--follow cannot"),
     (("--key", "a", "--follow", "--view", "all"), "what a broker serves"),
     (("--key", "a", "--to", "x"), "names no format"),
     (("--key", "a", "--format", "csv", "--to", "x.json"), "cannot be combined"),
     (("--key", "a", "--history", "--to", "x.parquet"), "not written as parquet"),
     (("--undecodable",), "requires the format that values should have"),
     (("--key-regex", "("), "not a regular expression")],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(
    options: tuple[str, ...], words: str, kafkalog: Run
) -> None:
    result = kafkalog("find", LOG_DIR, *options)
    assert result.status == 2
    assert words in result.stderr


def test_damage_is_shown_in_its_place_and_the_rest_is_found(kafkalog: Run, tmp_path: Path) -> None:
    bad = flip(batch(1, [record(0, b"x", b"bad")]), 8 * 70)
    write_log(tmp_path / "orders-0", batch(0, [record(0, b"k")]), bad, batch(2, [record(0, b"k")]))
    result = kafkalog("find", tmp_path / "orders-0", "--key", "k", "--format", "ndjson")
    assert result.status == 8
    assert [(row["type"], row["offset"]) for row in rows(result)] == [
        ("found", 0), ("defect", 1), ("found", 2),
    ]  # fmt: skip


def test_a_limit_ends_the_search_and_follow_shows_what_is_there(
    kafkalog: Run, tmp_path: Path
) -> None:
    write_log(tmp_path / "orders-0", batch(0, [record(i, b"k") for i in range(5)]))
    for options in (("--limit", "2"), ("--limit", "2", "--follow")):
        result = kafkalog("find", tmp_path / "orders-0", "--key", "k", "--format", "ndjson",
                          *options)  # fmt: skip
        assert result.status == 0
        assert [row["offset"] for row in rows(result)] == [0, 1]


def test_a_tombstone_and_the_text_null_look_different(kafkalog: Run, tmp_path: Path) -> None:
    values = (None, b"null", b"", b'""', b'"null"', b"a")
    write_log(tmp_path / "t-0", batch(0, [record(i, b"k", v) for i, v in enumerate(values)]))
    lines = kafkalog("find", tmp_path / "t-0", "--key", "k").stdout.decode().splitlines()
    cells = [line.split()[5] for line in lines[1:]]
    assert cells[:3] == ["null", '"null"', '""']
    assert len({*cells}) == len(values)
    lines = kafkalog("find", tmp_path / "t-0", "--key", "k", "--history").stdout.decode()
    assert " tombstone " in lines.splitlines()[1]


@pytest.mark.parametrize("options", [(), ("--history",)])
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_wide_and_long_values_fit_the_terminal(
    columns: int, options: tuple[str, ...], kafkalog: Run, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Letters of double width count twice; each record is one line."""
    from rich.cells import cell_len

    values = ("東京" * 40, "x" * 300, "é" * 90)
    data = [record(i, b"k", v.encode()) for i, v in enumerate(values)]
    write_log(tmp_path / "orders-0", batch(0, data))
    monkeypatch.setattr(table, "terminal_width", lambda: columns)
    text = kafkalog("find", tmp_path / "orders-0", "--key", "k", *options).stdout.decode()
    assert max(map(cell_len, text.splitlines())) <= columns
    assert [line for line in text.splitlines() if line.startswith("orders-0")] == [
        line for line in text.splitlines() if re.search("東京|xx|éé", line)
    ]


def test_copies_are_told_apart_by_their_directory(kafkalog: Run, tmp_path: Path) -> None:
    for name in ("1", "2"):
        write_log(tmp_path / name / "orders-0", batch(0, [record(0, b"k")]))
        (tmp_path / name / "meta.properties").write_text("version=1\nnode.id=1\n")
    one = kafkalog("find", tmp_path, "--key", "k").stdout.decode()
    assert len(one.splitlines()) == 2
    both = kafkalog("find", tmp_path, "--key", "k", "--replicas", "all").stdout.decode()
    assert [line.split()[0] for line in both.splitlines()] == [
        "DIRECTORY", str(tmp_path / "1"), str(tmp_path / "2"),
    ]  # fmt: skip


def test_what_does_not_decode_is_found_with_its_reason(kafkalog: Run, tmp_path: Path) -> None:
    """The same values that an export leaves null; a tombstone's null is no failure."""
    values = [
        b'{"n":1}',
        b'{"n":"x"}',
        b'{"n"',
        None,
        b'{"n":NaN}',
        b"\xff",
        b'{"n":36893488147419103232}',
    ]
    schema = tmp_path / "schema.json"
    schema.write_text('{"type":"object","properties":{"n":{"type":"integer"}}}')
    write_log(tmp_path / "t-0", batch(0, [record(n, b"k", v) for n, v in enumerate(values)]))
    line = ["--undecodable", "--value-format", "json", "--value-schema", schema]
    found = kafkalog("find", tmp_path / "t-0", *line, "--format", "ndjson")
    assert [row["offset"] for row in rows(found)] == [1, 2, 4, 5, 6]
    assert all(row["reason"] for row in rows(found))
    lake = tmp_path / "lake"
    kafkalog("export", tmp_path / "t-0", "--to", lake, "--value-format", "json",
             "--value-schema", schema,
             "--accept", "rejects=5")  # fmt: skip
    table = pq.read_table(next((lake / "_rejects").rglob("*.rejects"))).to_pylist()
    assert [(row["offset"], row["reason"]) for row in table] == [
        (row["offset"], row["reason"]) for row in rows(found)
    ]
    table = kafkalog("find", tmp_path / "t-0", *line, "--last", "1").stdout.decode()
    assert "out of range" in table
    malformed = kafkalog("find", tmp_path / "t-0", *line[:3], "--format", "ndjson")
    assert [row["offset"] for row in rows(malformed)] == [2, 4, 5]
    assert kafkalog("find", tmp_path / "t-0", "--undecodable").status == 2
    assert kafkalog("find", tmp_path / "t-0", "--value-schema", schema).status == 2


def test_the_last_of_a_limited_search_would_not_be_the_last(kafkalog: Run) -> None:
    result = kafkalog("find", LOG_DIR, "--key", "user-8", "--last", 2, "--limit", 5)
    assert (result.status, result.stdout) == (2, b"")
