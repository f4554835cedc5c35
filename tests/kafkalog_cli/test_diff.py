"""`diff`: what it shows, and its statuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog_cli.output import table
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result

    Run = Callable[..., Result]

LOG_DIR = "examples/log-dir"


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Two brokers: one partition is the same, one is longer, one differs, and each lacks one."""
    one, other = (batch(i, [record(0, b"k", b"%d" % i)]) for i in range(2))
    changed = batch(1, [record(0, b"k", b"null"), record(1, b"\xe6\x9d\xb1" * 30, None)], epoch=1)
    for side, second in (("a", other), ("b", changed)):
        write_log(tmp_path / side / "changed-0", one, second)
        write_log(tmp_path / side / "same-0", one, other)
        write_log(tmp_path / side / "longer-0", one, *([other] if side == "a" else []))
        write_log(tmp_path / side / f"only-{side}-0", one)
        (tmp_path / side / "meta.properties").write_text("version=1\nnode.id=1\n")
    return tmp_path / "a", tmp_path / "b"


def test_what_differs_is_shown_and_the_rest_is_counted(
    sides: tuple[Path, Path], kafkalog: Run
) -> None:
    result = kafkalog("diff", *sides)
    assert result.status == 1
    lines = result.stdout.decode().splitlines()
    assert [line.split()[:2] for line in lines[1:-2]] == [
        ["changed-0", "different"], ["longer-0", "behind"], ["only-a-0", "missing"],
        ["only-b-0", "missing"],
    ]  # fmt: skip
    assert 'record value 1 | "null"' in lines[1]
    assert "1 record only left" in lines[2]
    assert lines[-2:] == [
        "5 partitions: 1 different, 1 behind, 2 missing, 1 identical (--all shows them)",
        f"next  kafkalog diff {sides[0]} {sides[1]} --records",
    ]
    assert result.stderr == ""
    every = kafkalog("diff", *sides, "--all", "--format", "csv").stdout.decode().splitlines()
    assert len(every) == 6


def test_two_topics_are_not_compared(kafkalog: Run) -> None:
    """Their offsets mean different records, however many they have in common."""
    found = kafkalog("diff", f"{LOG_DIR}/orders-0", f"{LOG_DIR}/customers-0")
    line = found.stdout.decode().splitlines()[1]
    assert (found.status, line.split()[1]) == (1, "other-topic")
    ids = [
        (Path(LOG_DIR) / name / "partition.metadata").read_text().split()[-1]
        for name in ("orders-0", "customers-0")
    ]
    said = f"topic id {ids[0]} | {ids[1]}: offsets of different topics are not compared"
    assert said in " ".join(line.split())
    assert "in common" not in line


def test_records_that_differ_follow_their_partition(
    sides: tuple[Path, Path], kafkalog: Run
) -> None:
    result = kafkalog("diff", *sides, "--topic", "changed", "--records", "--format", "ndjson")
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["type"] for row in rows] == ["comparison", "record_difference",
                                             "record_difference"]  # fmt: skip
    assert [(row["offset"], row["left"] and row["left"]["value"], row["right"]["value"])
            for row in rows[1:]] == [(1, "1", "null"), (2, None, None)]  # fmt: skip
    table = kafkalog("diff", *sides, "--topic", "changed", "--records").stdout.decode()
    assert "differs" in table
    assert "right" in table
    words = ("diff", *sides, "--topic", "changed", "--records", "-n", "2")
    assert kafkalog(*words, "-o", "ndjson").stdout.splitlines() == result.stdout.splitlines()[:2]
    assert len(kafkalog(*words).stdout.splitlines()) == len(table.splitlines()) - 1


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_tables_fit_the_terminal(
    columns: int, sides: tuple[Path, Path], kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.cells import cell_len

    monkeypatch.setattr(table, "terminal_width", lambda: columns)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = kafkalog("diff", *sides, "--records").stdout.decode()
    *lines, command = text.splitlines()
    assert max(map(cell_len, lines)) <= columns
    assert command == f"next  kafkalog verify {sides[0]} {sides[1]}"


def test_a_backup_is_the_same_as_its_original(kafkalog: Run, tmp_path: Path) -> None:
    shutil.copytree(LOG_DIR, tmp_path / "backup")
    result = kafkalog("diff", LOG_DIR, tmp_path / "backup")
    said = b"7 partitions: 7 identical (--all shows them)\n"
    assert (result.status, result.stdout, result.stderr) == (0, said, "")
    rows = kafkalog("diff", LOG_DIR, tmp_path / "backup", "-o", "csv")
    assert rows.stderr == "note: 7 partitions of 7 identical (--all shows them)\n"
    (tmp_path / "backup/orders-0" / f"{0:020}.log").unlink()
    later = kafkalog("diff", LOG_DIR, tmp_path / "backup")
    assert (later.status, later.stdout.count(b"\n")) == (0, 3)
    assert b"compared from offset 250 on" in later.stdout


def test_what_cannot_be_opened_or_compared(kafkalog: Run, tmp_path: Path) -> None:
    assert kafkalog("diff", LOG_DIR).status == 2
    assert kafkalog("diff", LOG_DIR, LOG_DIR, "--topic", "unknown").status == 1
    empty = tmp_path / "empty"
    shutil.copytree(LOG_DIR, empty, ignore=shutil.ignore_patterns("*-[0-9]"))
    nothing = kafkalog("diff", empty, empty)
    assert (nothing.status, nothing.stderr) == (1, "warning: no partition to compare\n")
    assert kafkalog("diff", LOG_DIR, tmp_path / "nowhere").status == 2
    assert kafkalog("diff", LOG_DIR, f"{LOG_DIR}/orders-0/{0:020d}.log").status == 2


def test_what_goes_wrong_with_a_partition_ends_only_its_comparison(
    sides: tuple[Path, Path], kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafkalog.check.comparison import run

    def failing(partition: Any, view: Any) -> Any:
        if partition.topic == "longer":
            raise ValueError("a mistake of ours")
        return show(partition, view)

    show = run.show_now
    monkeypatch.setattr(run, "show_now", failing)
    result = kafkalog("diff", *sides, "--format", "ndjson")
    verdicts = {row["topic"]: row["verdict"] for row in map(json.loads, result.stdout.splitlines())}
    assert verdicts["longer"] == "unreadable"
    assert verdicts["changed"] == "different"
    assert result.status == 70
