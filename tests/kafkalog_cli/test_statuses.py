"""One situation has one exit status, whatever the command."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kafkalog_cli.app import ALIASES, all_commands
from tests.builders import flip
from tests.checkout import ROOT
from tests.command_lines import ran

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
"""Commands that refuse to run while a broker holds the lock, with their options."""


LOG = "orders-0/00000000000000000250.log"


class Statuses(NamedTuple):
    """How a command ends, None where that cannot happen.

    Attributes:
        clean, damaged: a log directory that is sound, or with a wrong bit in one batch.
        unreadable: one whose `LOG` cannot be read.
        running: one that a broker has locked.
        again: the same command given a second time, when there is nothing left to do.
        nothing: words after which nothing is found, and the status.
    """

    clean: int
    damaged: int | None
    unreadable: int | None
    running: int | None
    again: int | None = None
    nothing: tuple[str, int] | None = None


TABLE: dict[str, Statuses] = {
    "ls {dir}": Statuses(0, 0, 8, 0, None, ("-t none", 1)),
    "dump-segment {dir}": Statuses(0, 8, 8, 0, None, ("-k none", 0)),
    f"anatomy {{dir}}/{LOG}@1862": Statuses(0, 8, 3, 0),
    "du {dir}": Statuses(0, 0, 0, 0),
    "lookup-offset {dir}/orders-0": Statuses(0, 0, 3, 0, None, ("5000", 1)),
    "find {dir} -k user-48": Statuses(0, 8, 8, 0, None, ("--header none", 1)),
    "verify {dir}": Statuses(0, 1, 8, 0, None, ("-t none", 1)),
    "diff {dir} {copy}": Statuses(0, 8, 8, 0, None, ("-t none", 1)),
    "quorum {dir}": Statuses(0, 0, 0, 0),
    "explain torn-tail": Statuses(0, None, None, None),
    "groups {dir}": Statuses(0, 0, 8, 0, None, ("--group none", 1)),
    "transactions {dir}": Statuses(0, 0, 8, 0, None, ("--transactional-id none", 1)),
    "metadata {dir}": Statuses(0, 0, 0, 0, None, ("-t none", 1)),
    "profile {dir}": Statuses(0, 8, 8, 0, None, ("-t none", 1)),
    "sql {dir} -c SELECT": Statuses(0, 8, 8, 0),
    "report {dir} --to {to}.html": Statuses(0, 0, 8, 0, 4),
    "simulate-roll {dir}/orders-0": Statuses(0, 0, 3, 0),
    "recover {dir}": Statuses(0, 0, 8, 4),
    "recover {dir} --check": Statuses(1, 1, 8, 4),
    "recover {dir} --apply": Statuses(0, 0, 3, 4, 0),
    "salvage {dir}": Statuses(0, 0, 8, 0),
    "salvage {dir} --to {to}": Statuses(0, 8, 8, 4, 4),
    "resurrect {dir}": Statuses(0, 6, 8, 4),
    "resurrect {dir} --to {to}": Statuses(0, 6, 8, 4, 4),
    "undo {backup} --apply": Statuses(0, None, None, 4, 0),
    "compact {dir} --all --config cleanup.policy=compact": Statuses(0, 8, 8, 4),
    "compact {dir} --all --config cleanup.policy=compact --apply": Statuses(0, 6, 4, 4, 0),
    "retention {dir}": Statuses(0, 0, 8, 0),
    "retention {dir} --apply": Statuses(0, 0, 4, 4, 0),
    "rebuild-index {dir}": Statuses(0, 8, 8, 4),
    "rebuild-index {dir} --apply": Statuses(0, 6, 4, 4, 0),
    "export {dir}": Statuses(0, 0, 8, 0, None, ("-t none", 1)),
    "export {dir} --to {to}": Statuses(0, 8, 8, 0, 0),
    "replay {dir}": Statuses(0, 8, 8, 0, None, ("-t none", 1)),
    "serve {dir} --listen 127.0.0.1:0": Statuses(0, 8, 8, 0, None, ("-t none", 1)),
    f"kafka-dump-log --files {{dir}}/{LOG}": Statuses(0, 8, 3, 0),
}
"""Statuses of the contract, for each command, and for each habit of those that write."""


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


class Bench:
    """A log directory, and the other places that command lines of `TABLE` name."""

    def __init__(self, place: Path, kafkalog: Run) -> None:
        self.kafkalog, self.place = kafkalog, place
        self.broker = place / "log-dir"

    def set_up(self, line: str) -> Path:
        """Make everything new; return the log to be spoiled."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(ROOT / "examples" / "log-dir", self.broker)
        if line.startswith("undo"):
            words = ("--config", "retention.bytes=30000", "--apply", "--yes", "--backup")
            self.kafkalog("retention", self.broker, *words, self.place / "backup")
        return self.broker / LOG

    def status(self, line: str, more: str = "") -> int:
        query = "select count(*) from records"
        names = {
            "dir": self.broker, "copy": ROOT / "examples" / "log-dir", "to": self.place / "to",
            "backup": self.place / "backup",
        }  # fmt: skip
        words = [word.format(**names) for word in f"{line} {more}".split()]
        words += ["--yes"] if "--apply" in line else []
        words += ["260"] if line.startswith("lookup") and not more else []
        done = ran(self.kafkalog, [query if word == "SELECT" else word for word in words])
        assert "Traceback" not in done.stderr, done
        return done.status


def test_the_table_has_every_command() -> None:
    assert {line.split()[0] for line in TABLE} == {*all_commands()} - {*ALIASES}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("line", TABLE)
def test_a_situation_has_one_status(line: str, tmp_path: Path, kafkalog: Run) -> None:
    wanted, bench = TABLE[line], Bench(tmp_path / "bench", kafkalog)
    bench.set_up(line)
    found = {"clean": bench.status(line)}
    if wanted.again is not None:
        found["again"] = bench.status(line)
    if wanted.damaged is not None:
        log = bench.set_up(line)
        log.write_bytes(flip(log.read_bytes(), 8 * 2000))
        found["damaged"] = bench.status(line)
    if wanted.unreadable is not None:
        log = bench.set_up(line)
        log.unlink()
        log.mkdir()
        found["unreadable"] = bench.status(line)
    if wanted.running is not None:
        bench.set_up(line)
        with held(bench.broker, tmp_path / "broker"):
            found["running"] = bench.status(line)
    if wanted.nothing is not None:
        bench.set_up(line)
        more, status = wanted.nothing
        assert bench.status(line, more) == status, more
    assert found == {name: getattr(wanted, name) for name in found}


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
    ("export", "--set", "row-group-rows=²", "--to", "none"),
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


@contextmanager
def held(log_dir: Path, script: Path) -> Iterator[int]:
    """Hold the lock of the log directory by a script of some name; yield its process id."""
    script.write_text(HOLD)
    (log_dir / ".lock").touch()
    with subprocess.Popen(
        [sys.executable, script, log_dir / ".lock"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.fixture
def holder(log_dir: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    """Start a named script that holds the lock of the log directory; yield its process id."""
    with held(log_dir, tmp_path / request.param) as process_id:
        yield process_id


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
