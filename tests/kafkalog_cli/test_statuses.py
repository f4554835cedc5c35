"""One situation has one exit status, whatever the command."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from docgen.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

MANY = {
    "ls": (),
    "verify": (),
    "recover": (),
    "rebuild-index": (),
    "compact": (),
    "retention": (),
    "simulate-retention": (),
    "verify --compaction": (),
    "profile": (),
    "salvage": ("--to", "{to}"),
    "export": ("--to", "{to}"),
    "dump-segment": (),
    "lookup-offset": ("0",),
}
"""Commands that take a log directory or a partition, with what they need beside it."""
ONE: dict[str, tuple[str, ...]] = {"simulate-roll": ()}
"""Commands that take one partition."""
LOCKING = {
    "recover": (),
    "rebuild-index": (),
    "compact": (),
    "retention": ("--apply",),
    "salvage": ("--to", "{to}"),
}
"""Commands that a broker keeps off, with what they need beside the path."""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log directory that a broker has closed."""
    return shutil.copytree(ROOT / "examples" / "log-dir", tmp_path / "log-dir")


def statuses(
    kafkalog: Run, commands: dict[str, tuple[str, ...]], path: Path, to: Path
) -> dict[str, int]:
    """Return the exit status of each command for a path."""
    found = {}
    for command, options in commands.items():
        words = [word.format(to=to) for word in options]
        done = kafkalog(*command.split(), path, *words)
        assert "Traceback" not in done.stderr
        assert (done.stderr != "") or done.status == 0, (command, done)
        found[command] = done.status
    return found


def all_of(commands: dict[str, tuple[str, ...]], status: int) -> dict[str, int]:
    return dict.fromkeys(commands, status)


def test_what_is_not_there_is_a_usage_error(kafkalog: Run, tmp_path: Path):
    every = MANY | ONE
    assert statuses(kafkalog, every, tmp_path / "none", tmp_path / "to") == all_of(every, 2)


def test_a_directory_of_something_else_is_input_that_cannot_be_read(kafkalog: Run, tmp_path: Path):
    every = MANY | ONE
    (tmp_path / "empty").mkdir()
    assert statuses(kafkalog, every, tmp_path / "empty", tmp_path / "to") == all_of(every, 3)


def test_a_log_directory_in_place_of_a_partition_is_a_usage_error(
    kafkalog: Run, log_dir: Path, tmp_path: Path
):
    """It is a directory of Kafka's and can be read."""
    assert statuses(kafkalog, ONE, log_dir, tmp_path / "to") == all_of(ONE, 2)


def test_an_index_in_place_of_a_directory_is_a_usage_error(
    kafkalog: Run, log_dir: Path, tmp_path: Path
):
    """It is a file of Kafka's and can be read."""
    index = next(log_dir.glob("orders-0/*.index"))
    commands = dict.fromkeys(
        ("simulate-roll", "retention", "verify --compaction", "compact",
         "recover", "rebuild-index"), ()
    )  # fmt: skip
    commands["salvage"] = ("--to", "{to}")
    assert statuses(kafkalog, commands, index, tmp_path / "to") == all_of(commands, 2)


@pytest.mark.parametrize("words", [
    ("dump-segment", "--from-position", "-5"),
    ("dump-segment", "--limit", "-1"),
    ("verify", "--compaction", "--cleaner-offset", "-1"),
    ("retention", "--log-start-offset", "-1"),
    ("compact", "--up-to", "-1"),
    ("export", "--set", "row-group-rows=-1", "--to", "none"),
    ("verify", "--threads", "0"),
], ids=lambda words: " ".join(words[:2]))  # fmt: skip
def test_a_number_out_of_range_is_a_usage_error(
    words: tuple[str, ...], kafkalog: Run, log_dir: Path
):
    command, *options = words
    assert kafkalog(command, log_dir / "orders-0", *options).status == 2


def test_a_sound_directory_needs_nothing(kafkalog: Run, log_dir: Path, tmp_path: Path):
    """Nothing was compacted, nothing has to be, and the indexes match the log."""
    partition = log_dir / "orders-0"
    commands = dict.fromkeys(("verify --compaction", "rebuild-index"), ())
    for path in (partition, log_dir):
        assert statuses(kafkalog, commands, path, tmp_path / "to") == all_of(commands, 0)
    assert statuses(kafkalog, {"compact": ()}, log_dir, tmp_path / "to") == {"compact": 0}


HOLD = """
import fcntl, sys, time
with open(sys.argv[1], "r+b") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(log_dir: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    """Start a named script that holds the lock of the log directory; yield its process id."""
    script = tmp_path / request.param
    script.write_text(HOLD)
    (log_dir / ".lock").touch()
    with subprocess.Popen(
        [sys.executable, script, log_dir / ".lock"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.parametrize("holder", ["broker", "kafkalog"], indirect=True)
def test_a_log_directory_in_use_is_refused_and_says_who_has_it(
    holder: int, kafkalog: Run, log_dir: Path, tmp_path: Path, request: pytest.FixtureRequest
):
    """A plan is refused, too; another kafkalog process is not called a broker."""
    by_us = "kafkalog" in request.node.callspec.id
    for command, words in LOCKING.items():
        options = [word.format(to=tmp_path / "to") for word in words]
        done = kafkalog(command, log_dir, *options)
        assert done.status == 4, (command, done)
        assert done.stderr.startswith("error: log-dir-in-use\n")
        assert ("Another kafkalog is working" in done.stderr) == by_us
        assert ("A broker is running" in done.stderr) != by_us
        assert f"note: Process {holder} " in done.stderr


def test_a_lock_of_this_process_is_no_other(log_dir: Path):
    """POSIX reports only other processes' locks: `struct flock` has the layout of the system."""
    from kafkalog.io.storage.locks import _FLOCK

    (log_dir / ".lock").touch()
    with (log_dir / ".lock").open("r+b") as file:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    assert answer[0] == fcntl.F_UNLCK
