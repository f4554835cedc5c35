"""What commands that change a log share: consent, locks, refusals, resuming, undo."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
import typer

from kafkalog.io.storage import Changes
from kafkalog_cli import maintenance
from tests.checkout import ROOT
from tests.kafkalog.change.compaction.oracle import segment_files
from tests.kafkalog.change.journal.test_undo import everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

COMPACTED = ("--all", "--config", "cleanup.policy=compact", "--now", "2024-01-01T01:00:00Z")
COMMANDS = {
    "retention": ("--config", "retention.ms=240000", "--now", "2024-01-01T00:12:30Z"),
    "compact": COMPACTED,
    "rebuild-index": ("--config", "index.interval.bytes=100"),
    "recover": ("--scan", "start"),
}
IN_PLACE = ("--apply", "--yes")
every_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The examples' log directory with a second copy of the orders, cleanly shut down."""
    target = tmp_path / "log-dir"
    shutil.copytree(ROOT / "examples" / "log-dir", target)
    shutil.copytree(target / "orders-0", target / "orders-1")
    for checkpoint in target.glob("*-offset-checkpoint"):
        if not checkpoint.stat().st_size:
            continue
        _, count, *lines = checkpoint.read_text().splitlines()
        more = [line.replace("orders 0", "orders 1") for line in lines if "orders 0" in line]
        text = "\n".join(["0", str(int(count) + len(more)), *lines, *more])
        checkpoint.write_text(f"{text}\n")
    return target


def state(log_dir: Path) -> dict[str, Any]:
    """Return all files but the lock, without the order of entries in checkpoints."""
    found = everything(log_dir)
    found.pop(".lock", None)
    for name, (*facts, data) in found.items():
        if name.endswith("-offset-checkpoint"):
            data = sorted(line for line in data.splitlines() if b" " in line)
        elif data is not None:
            data = sha256(data).hexdigest()
        found[name] = (*facts, data)
    return found


@every_command
def test_undo_brings_everything_back(
    command: str, log_dir: Path, tmp_path: Path, kafkalog: Run
) -> None:
    """Bytes, owners, permissions and times of every file, and the entries in checkpoints."""
    before = state(log_dir)
    backup = tmp_path / "backup"
    words = (command, log_dir, *COMMANDS[command], *IN_PLACE, "--backup", backup)
    assert kafkalog(*words).status == (8 if command == "recover" else 0)
    after = state(log_dir)
    if command != "recover":
        assert after != before
    again = kafkalog(*words)
    assert (
        "an earlier run with this backup finished it" in " ".join(again.stderr.split())
        or command == "recover"
    )
    assert state(log_dir) == after
    assert kafkalog("undo", backup, *IN_PLACE).status == 0
    assert state(log_dir) == before


def test_a_killed_compaction_is_gone_on_with(
    log_dir: Path, tmp_path: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the second partition: the first is kept, the second starts over."""
    before = state(log_dir)
    whole = shutil.copytree(log_dir, tmp_path / "whole")
    options = (*COMPACTED, *IN_PLACE, "--format", "ndjson")
    kafkalog("compact", whole, *options)
    words = ("compact", log_dir, *options, "--backup", tmp_path / "backup")
    rename = Changes.rename

    def kill_in_the_second(self: Changes, name: str, new_name: str) -> None:
        rename(self, name, new_name)
        if self.directory.endswith("orders-1") and new_name.endswith(".deleted"):
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        monkeypatch.setattr(Changes, "rename", kill_in_the_second)
        kafkalog(*words)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert list(log_dir.glob("orders-1/*.deleted"))
    resumed = kafkalog(*words)
    told = " ".join(resumed.stderr.split())
    assert "orders-1 was restored" in told
    assert "orders-0 is skipped: an earlier run" in told
    done = [json.loads(line) for line in resumed.stdout.splitlines()]
    assert [row["partition"] for row in done if row.get("topic") == "orders"] == [1]
    for partition in ("orders-0", "orders-1"):
        assert segment_files(log_dir / partition) == segment_files(whole / partition)
    assert kafkalog("undo", tmp_path / "backup", *IN_PLACE).status == 0
    assert state(log_dir) == before


@pytest.mark.parametrize("command", ["retention", "compact"])
def test_what_a_broker_left_goes_and_comes_back(
    command: str, log_dir: Path, tmp_path: Path, kafkalog: Run
) -> None:
    """Old `.deleted` files do not get in the way, whatever their segment; the plan lists them."""
    left = [log_dir / "orders-0" / f"{n:020}.log.deleted" for n in (0, 77)]
    for path in left:
        path.write_bytes(b"dead")
    before = state(log_dir)
    words = (command, log_dir / "orders-0", *COMMANDS[command])
    plan = kafkalog(*words)
    assert (plan.status, plan.stderr) == (0, "")
    assert b"2 .deleted files left by earlier deletions would be removed" in plan.stdout
    row = json.loads(kafkalog(*words, "-o", "ndjson").stdout.splitlines()[-2])
    assert row["left_overs"] == [path.name for path in left]
    assert state(log_dir) == before
    backup = tmp_path / "backup"
    assert kafkalog(*words, *IN_PLACE, "--backup", backup).status == 0
    assert not list((log_dir / "orders-0").glob("*.deleted"))
    assert kafkalog("undo", backup, *IN_PLACE).status == 0
    assert state(log_dir) == before


def test_a_backup_is_no_log_directory(log_dir: Path, tmp_path: Path, kafkalog: Run) -> None:
    """It looks like a log directory, but only `undo` may use it."""
    backup = tmp_path / "backup"
    assert kafkalog("compact", log_dir, *COMPACTED, *IN_PLACE, "--backup", backup).status == 0
    before = everything(backup)
    for command, words in COMMANDS.items():
        for path in (backup, backup / "orders-0"):
            result = kafkalog(command, path, *words, *IN_PLACE)
            assert (result.status, "kafkalog undo" in result.stderr) == (4, True), command
    assert everything(backup) == before


@every_command
def test_a_read_only_directory_is_refused_and_can_be_planned(
    command: str, log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place it is refused with status 4. The file system's answer is mocked, because of root."""
    open_file = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if str(path).startswith(str(log_dir)) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return open_file(path, flags, *rest, **more)

    before = state(log_dir)
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)
    for path in (log_dir, log_dir / "orders-0"):
        result = kafkalog(command, path, *COMMANDS[command], *IN_PLACE)
        assert (result.status, "path-unwritable" in result.stderr) == (4, True), result.stderr
        assert kafkalog(command, path, *COMMANDS[command]).status == 0
    assert state(log_dir) == before


@every_command
def test_a_copied_partition_that_is_read_only_is_refused(
    command: str, log_dir: Path, tmp_path: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single partition has no lock whose opening could fail."""
    alone = shutil.copytree(log_dir / "orders-0", tmp_path / "alone" / "orders-0")
    (alone / f"{0:020}.index").unlink()  # so that `recover` has something to do
    if command == "compact":
        shutil.copy2(log_dir / "orders-0" / f"{0:020}.index", alone)
    monkeypatch.setattr(os, "access", lambda *_: False)
    more = ("--high-watermark", "end") if command in ("compact", "retention") else ()
    result = kafkalog(command, alone, *COMMANDS[command], *more, *IN_PLACE)
    wanted = "refused" if command == "retention" else "path-unwritable"
    assert (result.status, wanted in result.stderr) == (4, True), result.stderr


@every_command
def test_a_backup_and_a_yes_are_about_a_change(command: str, log_dir: Path, kafkalog: Run) -> None:
    """A plan needs neither, and --check is one."""
    for words in (("--backup", "b"), ("--yes",), ("--check", "--apply")):
        result = kafkalog(command, log_dir, *COMMANDS[command], *words)
        assert (result.status, "error: usage" in result.stderr) == (2, True)


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize(
    ("words", "has_terminal", "asked"),
    [((), True, 1), (("-y",), True, 0), ((), False, 0), (("--dry-run",), True, 0)],
)
@every_command
def test_somebody_is_asked_once_on_a_terminal(
    command: str, words: tuple[str, ...], has_terminal: bool, asked: int, log_dir: Path,
    kafkalog: Run, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Without one the plan is carried out, since nobody could answer."""
    (log_dir / "orders-0" / f"{0:020}.index").unlink()
    if command == "compact":
        shutil.rmtree(log_dir / "orders-0")
    questions = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: has_terminal, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda text, **_: questions.append(text) or False)
    before = state(log_dir)
    kafkalog(command, log_dir, *COMMANDS[command], "--apply", *words)
    assert len(questions) == asked
    assert (state(log_dir) == before) == (asked == 1 or "--dry-run" in words)


@pytest.mark.parametrize("answer", [True, False])
def test_a_compaction_is_shown_before_it_is_agreed_to(
    answer: bool, log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal: the plan, the question, then the result."""
    monkeypatch.setattr(maintenance, "asks", lambda _: True)
    asked = []

    def confirm(question: str, **_: bool) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    before = state(log_dir)
    result = kafkalog("compact", log_dir / "orders-0", *COMPACTED, "--apply")
    assert result.stdout.count(b"would be compacted") == 1
    assert result.stdout.count(b"1 of 1 partition compacted") == int(answer)
    where = log_dir / "orders-0"
    assert asked == [f"Change 1 partition in {where}? Without --backup there is no undo."]
    assert (state(log_dir) == before) is not answer
