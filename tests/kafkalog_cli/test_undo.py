"""`kafkalog undo` shows a plan, and reverts a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from docgen import output
from tests.crash.commands import PARTITION, Command, swap, swapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result


@pytest.fixture
def root(corpus_dir: Path, tmp_path: Path) -> Path:
    Command("", swap).ready(corpus_dir, tmp_path)
    return tmp_path


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "log" / PARTITION).iterdir())


def test_a_plan_changes_nothing(kafkalog: Callable[..., Result], root: Path) -> None:
    before = names(root)
    swapped(root)
    result = kafkalog("undo", root / "backup")
    assert result.status == 0
    assert b"orders-0" in result.stdout
    assert b"Plan only: --apply does it" in result.stdout
    assert names(root) != before


def test_in_place_takes_it_back(kafkalog: Callable[..., Result], root: Path) -> None:
    """Eight files of two segments and a snapshot return, four of the new segment go."""
    before = names(root)
    swapped(root)
    result = kafkalog("undo", root / "backup", "--apply", "--yes", "--format", "ndjson")
    row, summary = map(json.loads, result.stdout.splitlines())
    assert output.mistakes(row) + output.mistakes(summary) == []
    assert (summary["status"], summary["changed"]) == (0, 1)
    assert (row["type"], row["performed"], row["partition"]) == ("undo", True, 0)
    assert (row["restored_files"], row["removed_files"]) == (9, 4)
    assert row["offsets"] == [
        {"checkpoint": "cleaner-offset-checkpoint", "offset": 25, "restored_to": 2}
    ]
    assert names(root) == before
    again = kafkalog("undo", root / "backup", "--apply", "--yes")
    assert (again.status, b"nothing to undo" in again.stdout) == (0, True)


def test_what_has_changed_since_is_refused(kafkalog: Callable[..., Result], root: Path) -> None:
    swapped(root)
    with (root / "log" / PARTITION / f"{51:020}.log").open("ab") as file:
        file.write(b"\0")
    result = kafkalog("undo", root / "backup", "--apply", "--yes")
    assert result.status == 4
    assert "changed-since" in result.stderr


def test_a_check_says_whether_there_is_something_to_undo(
    kafkalog: Callable[..., Result], root: Path
) -> None:
    swapped(root)
    assert kafkalog("undo", root / "backup", "--check").status == 1
    assert kafkalog("undo", root / "backup", "--apply").status == 0
    assert kafkalog("undo", root / "backup", "--check").status == 0
    assert kafkalog("undo", root / "nothing").status == 2


def test_runs_are_listed_with_what_can_be_done(
    kafkalog: Callable[..., Result], root: Path, corpus_dir: Path
) -> None:
    """The latest comes first; a run overtaken by a broker's append stays, with the reason."""
    swapped(root)
    other = root / "other"
    Command("", swap).ready(corpus_dir, other)
    swapped(other)
    (other / "backup").rename(root / "backups-of-other")
    listed = kafkalog("undo", "--list", root, "--format", "ndjson")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [output.mistakes(row) for row in rows] == [[], []]
    assert [row["backup"] for row in rows] == [f"{root}/backups-of-other", f"{root}/backup"]
    assert [(row["partitions"], row["finished"], row["undoable"]) for row in rows] == [
        (1, True, True), (1, True, True),
    ]  # fmt: skip
    assert listed.status == 0
    assert kafkalog("undo", "--list", root).stdout.decode().splitlines()[-2:] == [
        "2 runs", f"next  kafkalog undo {root}/backups-of-other"
    ]  # fmt: skip
    with (root / "log" / PARTITION / f"{51:020}.log").open("ab") as file:
        file.write(b"\0")
    assert kafkalog("undo", root / "backups-of-other", "--apply", "--yes").status == 0
    listed = kafkalog("undo", "--list", root)
    assert (listed.status, listed.stderr) == (0, "")
    latest, first = (line for line in listed.stdout.decode().splitlines()[1:3])
    assert "nothing left to undo" in latest
    assert "cannot be undone: The partition has changed" in listed.stdout.decode(), first
    one = kafkalog("undo", "--list", root / "backup", "--format", "ndjson")
    assert [json.loads(line)["undoable"] for line in one.stdout.splitlines()] == [False]


def test_a_list_of_nothing_is_told(kafkalog: Callable[..., Result], tmp_path: Path) -> None:
    result = kafkalog("undo", "--list", tmp_path)
    assert (result.status, "no backup of a run" in result.stderr) == (0, True)
    (tmp_path / "journal.ndjson").write_text("what\n")
    assert kafkalog("undo", "--list", tmp_path).status == 6
    assert kafkalog("undo", "--list", tmp_path, "--apply", "--yes").status == 2
    assert kafkalog("undo", "--list", tmp_path / "none").status == 2
