"""Journals that somebody has edited: `undo` only touches the log directory that it has locked."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.journal import undo
from kafkalog.errors import ChangedSinceError, CorruptDataError, KafkaLogError, RefusedError
from tests.crash.commands import CLEANER_OFFSETS, PARTITION, Command, stopped_before, swap, swapped
from tests.kafkalog.change.journal.test_undo import everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Edit = Callable[[list[dict[str, Any]], Path], object]


@pytest.fixture
def root(corpus_dir: Path, tmp_path: Path) -> Path:
    """A log directory after a run, its backup, and files of somebody else."""
    Command("", swap).ready(corpus_dir, tmp_path)
    swapped(tmp_path)
    (tmp_path / "other" / PARTITION).mkdir(parents=True)
    (tmp_path / "other" / "authorized_keys").write_text("key")
    (tmp_path / "other" / PARTITION / f"{0:020}.log").write_text("log")
    return tmp_path


def edit(root: Path, change: Edit) -> None:
    """Change the lines of the journal."""
    path = root / "backup" / "journal.ndjson"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines, root)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def of_state(lines: list[dict[str, Any]], state: str) -> dict[str, Any]:
    [line] = [line for line in lines if line.get("state") == state]
    return line


def of_type(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == kind]


def undoing(beside: str) -> Edit:
    def change(lines: list[dict[str, Any]], root: Path) -> None:
        path = str(root / "log" / PARTITION)
        lines.append({"type": "partition", "partition": PARTITION, "state": "undoing",
                      "path": path, "beside": beside})  # fmt: skip

    return change


def everywhere(field: str, value: Callable[[Path], Any]) -> Edit:
    def change(lines: list[dict[str, Any]], root: Path) -> None:
        for line in lines:
            if field in line:
                line[field] = value(root)

    return change


EDITS: dict[str, Edit] = {
    "beside-leads-out": undoing("../other"),
    "beside-is-absolute": lambda lines, root: undoing(f"{root}/other")(lines, root),
    "beside-is-another-partition": undoing("other-1"),
    "beside-is-the-partition": undoing(PARTITION),
    "beside-is-of-another-partition": undoing(f"orders-1.{'0' * 32}-delete"),
    "path-leads-out": everywhere("path", lambda root: f"{root}/log/../other/{PARTITION}"),
    "path-is-elsewhere": everywhere("path", lambda root: f"{root}/other/{PARTITION}"),
    "path-is-relative": everywhere("path", lambda _: PARTITION),
    "partition-is-a-path": everywhere("partition", lambda _: f"../other/{PARTITION}"),
    "partition-has-lines": everywhere("partition", lambda _: "x\nssh-rsa AAAA\n-0"),
    "kept-in-leads-out": everywhere("kept_in", lambda _: "../other"),
    "kept-in-is-another": everywhere("kept_in", lambda _: "checkpoints"),
    "kept-is-a-path": lambda lines, _: of_state(lines, "in-progress")["kept"].append("../../x"),
    "kept-is-no-file-of-kafka": lambda lines, _: (
        of_state(lines, "in-progress")["kept"].append("authorized_keys"),
        of_state(lines, "in-progress")["before"]["files"].append(
            {**of_state(lines, "in-progress")["before"]["files"][0], "name": "authorized_keys"}
        ),
    ),
    "a-name-is-a-path": lambda lines, _: of_state(lines, "in-progress")["before"]["files"][
        0
    ].update(name="../x"),
    "a-file-is-listed-twice": lambda lines, _: of_state(lines, "in-progress")["before"][
        "files"
    ].append(of_state(lines, "in-progress")["before"]["files"][0]),
    "a-time-is-huge": lambda lines, _: of_state(lines, "in-progress")["before"][
        "directory"
    ].update(mtime_ns=10**30),
    "a-size-is-text": lambda lines, _: of_type(lines, "file")[0].update(size_bytes="1"),
    "a-checkpoint-leads-out": lambda lines, _: of_type(lines, "offset")[0].update(
        checkpoint="../other/authorized_keys"
    ),
    "an-offset-is-text": lambda lines, _: of_type(lines, "offset")[0].update(offset="1\n2"),
    "offsets-of-another-file": lambda lines, _: of_state(lines, "in-progress")["offsets"].update(
        {"../other/authorized_keys": 1}
    ),
    "an-unknown-field": lambda lines, _: lines[0].update(more=1),
    "an-unknown-line": lambda lines, _: lines.append({"type": "shell", "command": "true"}),
    "another-log-directory": lambda lines, root: lines.append(
        {**lines[0], "log_dir": str(root / "other")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_names_that_no_run_writes_are_refused_before_the_first_change(
    root: Path, name: str
) -> None:
    """Wherever they lead, nothing is removed, linked, made or written, inside or outside."""
    edit(root, EDITS[name])
    before = everything(root)
    with pytest.raises(CorruptDataError) as caught:
        undo(str(root / "backup"), in_place=True)
    assert caught.value.path == str(root / "backup" / "journal.ndjson")
    assert everything(root) == before


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"type":' + "9" * 5000 + "}", '{"type":"mark","type":"mark","state":"x"}',
     '{"type":"mark","state":NaN}', '{"type":["mark"]}', '{"type":{"a":1},"state":[]}', "null",
     '"mark"', '{"type":"file","path":"\\ud800"}'],
)  # fmt: skip
def test_json_that_is_none_of_ours_is_one_error(root: Path, text: str) -> None:
    """Deep nesting, a huge number, a repeated field: no other exception is raised."""
    with (root / "backup" / "journal.ndjson").open("a") as file:
        file.write(f"{text}\n")
    with pytest.raises(CorruptDataError):
        undo(str(root / "backup"), in_place=True)


def of_log_dir(place: str) -> Edit:
    """Return an edit that makes the journal name another directory."""

    def change(lines: list[dict[str, Any]], root: Path) -> None:
        old, new = f"{root}/log", f"{root}/{place}"
        for number, line in enumerate(lines):
            text = json.dumps(line).replace(json.dumps(old)[:-1], json.dumps(new)[:-1])
            lines[number] = json.loads(text)

    return change


def test_a_directory_that_is_no_log_directory_is_not_locked(root: Path) -> None:
    """No `.lock` is made in a directory only because a journal names it."""
    edit(root, of_log_dir("other"))
    before = everything(root / "other")
    with pytest.raises(RefusedError):
        undo(str(root / "backup"), in_place=True)
    assert everything(root / "other") == before


def test_a_journal_that_keeps_quiet_about_the_log_directory_is_refused(root: Path) -> None:
    """A partition in a log directory is only changed under its lock."""

    def change(lines: list[dict[str, Any]], _: Path) -> None:
        lines[0]["log_dir"] = None
        lines[:] = [line for line in lines if line["type"] != "mark"]

    edit(root, change)
    with pytest.raises(RefusedError):
        undo(str(root / "backup"), in_place=True)


@pytest.mark.parametrize("link", ["log", f"log/{PARTITION}", f"backup/{PARTITION}",
                                  "backup/checkpoints", f"log/{CLEANER_OFFSETS}"])  # fmt: skip
def test_nothing_is_done_through_a_symbolic_link(root: Path, link: str) -> None:
    """A link has replaced a directory or file since the run."""
    place = root / link
    place.rename(root / "moved")
    place.symlink_to(root / "moved")
    before = {name: everything(root / name) for name in ("log", "moved", "other")}
    with pytest.raises(KafkaLogError):
        undo(str(root / "backup"), in_place=True)
    assert {name: everything(root / name) for name in before} == before
    assert place.is_symlink()


def test_a_file_that_no_run_has_made_is_not_removed(root: Path, corpus_dir: Path) -> None:
    """This holds even if the run was stopped, when other files may exist."""
    stopped = root / "stopped"
    Command("", swap).ready(corpus_dir, stopped)
    stopped_before("final")(stopped)
    note = stopped / "log" / PARTITION / "notes.txt"
    note.write_text("mine")
    before = everything(stopped / "log")
    with pytest.raises(ChangedSinceError) as caught:
        undo(str(stopped / "backup"), in_place=True)
    assert caught.value.path == str(note)
    assert everything(stopped / "log") == before
    note.unlink()
    undo(str(stopped / "backup"), in_place=True)


def test_the_command_says_what_is_wrong_with_status_6(
    root: Path, kafkalog: Callable[..., Result]
) -> None:
    """There is one error, with the line of the journal."""
    edit(root, undoing("../other"))
    found = kafkalog("undo", root / "backup", "--apply", "--yes")
    assert found.status == 6
    assert found.stderr.startswith("error: corrupt-data\n")
    assert "/beside cannot be '../other'" in " ".join(found.stderr.split())
    assert os.listdir(root / "other")
