"""Stdout or stderr cannot be written: one error, its status, and work that is completed."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from kafkalog_cli import main
from tests.checkout import ROOT
from tests.kafkalog_cli.test_maintenance import COMMANDS, IN_PLACE, log_dir, state
from tests.sweeps import command_lines

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["log_dir"]  # a fixture

FULL = "/dev/full"
CLOSED = ""
no_place = pytest.mark.parametrize("place", [FULL, CLOSED], ids=["full", "closed"])


def run(words: list[object], *, out: str | Path | int, err: str | Path) -> int:
    """Run the command line in a child with this stdout and stderr; return its status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    places = [
        place if place == CLOSED or isinstance(place, int)
        else os.open(place, os.O_WRONLY | os.O_CREAT, 0o600)
        for place in (out, err)
    ]  # fmt: skip
    for number, opened in enumerate(places, start=1):
        os.close(number)
        if isinstance(opened, int):
            os.dup2(opened, number)
    try:
        sys.stdout = sys.stderr = None  # as Python has it where they are closed
        sys.argv = ["kafkalog", *map(str, words)]
        main.main()
    finally:
        os._exit(99)


@no_place
def test_each_command_says_that_its_output_is_lost(place: str, log_dir: Path, tmp_path: Path):
    """Status 0 or 1 would stand for an answer that was never received."""
    partition = log_dir / "orders-0"
    lines = command_lines(partition, sorted(partition.glob("*.log"))[:1])
    lines = lines[:: 3 if place == FULL else 8]
    forms = ("table", "prometheus") if place == FULL else ("table",)
    lines += [["verify", log_dir / "orders-0", "--format", form] for form in forms]
    lines += [["explain"], ["explain", "torn-tail"], ["--help"], ["ls", "--help"],
              ["kafka-dump-log", "--help"], ["profile", partition],
              ["recover", log_dir],
              ["rebuild-index", partition], ["compact", log_dir], ["retention", log_dir],
              ["salvage", partition, "--to", tmp_path / "new", "--dry-run"]]  # fmt: skip
    err = tmp_path / "err"
    for line in lines:
        err.unlink(missing_ok=True)
        assert run(line, out=place, err=err) == 4, line
        said = err.read_text()
        assert said.count("error: path-unwritable\n× The output cannot be written: ") == 1, line
        assert "Traceback" not in said, line
        assert "Exception ignored" not in said, line


@no_place
def test_words_that_cannot_be_written_are_no_success(place: str, tmp_path: Path):
    """An error keeps its status; a note that cannot be written gives the status of lost output."""
    out = tmp_path / "out"
    assert run(["ls", tmp_path / "missing"], out=out, err=place) == 4
    assert run(["ls", "--no-such-option"], out=out, err=place) == 4
    assert out.read_bytes() == b""
    sound = ROOT / "examples" / "log-dir"
    assert run(["verify", sound], out=out, err=place) == 0  # nothing was to be said
    assert b"nothing wrong" in out.read_bytes()


@pytest.mark.sampled(2)
@no_place
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_changes_a_log_finishes_its_work(
    command: str, place: str, log_dir: Path, tmp_path: Path
):
    """Only the report is lost: the whole plan is carried out."""
    whole = shutil.copytree(log_dir, tmp_path / "whole" / "log-dir")
    options = [*COMMANDS[command], *IN_PLACE, "--format", "ndjson"]
    err = tmp_path / "err"
    assert run([command, whole, *options], out=tmp_path / "out", err=err) in (0, 8)
    assert run([command, log_dir, *options], out=place, err=err) == 8
    assert "The output cannot be written" in err.read_text()
    assert contents(log_dir) == contents(whole)


def contents(log_dir: Path) -> dict[str, object]:
    """Return the bytes of all files."""
    return {name: data for name, (*_, data) in state(log_dir).items()}


@pytest.mark.sampled(2, each_value=True)
@no_place
@pytest.mark.parametrize("words", [
    ["compact", "{log_dir}", *COMMANDS["compact"], "--to", "{to}"],
    ["salvage", "{log_dir}", "--to", "{to}"],
    ["export", "{log_dir}", "--to", "{to}", "--file-format", "ndjson"],
], ids=lambda words: words[0])  # fmt: skip
def test_a_command_that_writes_a_directory_finishes_it(
    words: list[str], place: str, log_dir: Path, tmp_path: Path
):
    """The directory is complete and has its final name."""
    to = {"whole": tmp_path / "whole", "given": tmp_path / "given"}
    lines = {name: [word.format(log_dir=log_dir, to=path) for word in words]
             for name, path in to.items()}  # fmt: skip
    assert run(lines["whole"], out=tmp_path / "out", err=tmp_path / "err") in (0, 8)
    assert run(lines["given"], out=place, err=tmp_path / "err") == 8
    made = [sorted(p.relative_to(path) for p in path.rglob("*")) for path in to.values()]
    assert made[0] == made[1]
    assert sorted(path.name for path in tmp_path.glob("*.kafkalog-partial*")) == []


def test_a_pipe_that_does_not_block_is_waited_for(log_dir: Path, tmp_path: Path):
    """Some terminals and parent processes leave stdout so: nothing is lost, and it is no error."""
    line: list[object] = ["dump-segment", log_dir / "orders-0", "--format", "json"]
    assert run(line, out=tmp_path / "wanted", err=tmp_path / "err") == 0
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    taken: list[bytes] = []

    def take() -> None:
        with os.fdopen(reader, "rb") as pipe:
            taken.append(pipe.read())

    thread = threading.Thread(target=take)
    thread.start()
    assert run(line, out=writer, err=tmp_path / "err") == 0
    os.close(writer)
    thread.join()
    assert taken[0] == (tmp_path / "wanted").read_bytes()
    assert len(taken[0]) > 1 << 16  # more than a pipe holds


def test_a_closed_stdout_is_no_file_of_ours(log_dir: Path, tmp_path: Path):
    """The next file opened gets the closed descriptor's number: it must not be one of the log."""
    shutil.rmtree(log_dir / "orders-1")  # no partition of the cluster's
    before = state(log_dir)
    for words in (["ls", log_dir], ["verify", log_dir], ["recover", log_dir]):
        run(words, out=CLOSED, err=CLOSED)
    assert state(log_dir) == before
    out = tmp_path / "out"
    to = tmp_path / "to"
    assert run(["salvage", log_dir, "--to", to], out=CLOSED, err=CLOSED) == 8
    assert run(["verify", to / "log"], out=out, err=tmp_path / "err") == 0, out.read_text()
