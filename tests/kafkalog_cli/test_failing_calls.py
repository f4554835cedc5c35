"""Each kind of call about each path fails, once and for good, in each command.

The result is the same answer (where the call was not needed), a finding, or an error; never a
traceback, an internal error, or status 0 with less than there is. Trouble that says nothing about
the data is no finding: if it passes, the answer is the same; if it lasts, the status says so, and
no line is printed that the whole answer lacks. A command that changes a log directory is run again
after that, and leaves what it would have left at first.

A command makes up to a thousand calls, most of them repeated: a stat of the same file, a read of
the same log. So for each distinct call (its kind and its path) these fail: the first, for good; the
first, the last and one between, once; one that is not the first, for good.
In `make test-all` this is done for every distinct call, otherwise for a few of them.
Not covered: calls of Spark's workers, which are other processes.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import PARTLY_DONE, OutOfMemoryError
from kafkalog.io.paths import retry
from tests.command_lines import LINES, OF_THE_RUN, WRITERS, repeatable
from tests.sampling import new_seed, tries_everything
from tests.sweeps import small_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Result

    Run = Callable[..., Result]

BY_PATH = ("stat", "lstat", "listdir", "scandir", "open", "readlink")
BY_DESCRIPTOR = ("fstat", "pread", "preadv", "lseek")
OF_FILES = (errno.EIO, errno.EACCES)
TEMPORARY = (errno.ESTALE, errno.EMFILE)
ERRORS = (*OF_FILES, *TEMPORARY, errno.ENOMEM)
BUDGET_S = 0.06
"""For waiting in each run: one or two attempts."""
FAULTS = 6
"""Faults of each command where not everything is tried."""

EXAMPLE = Path(__file__).parents[2] / "examples" / "log-dir"
BY_PARTITION = ("ls", "verify", "simulate-retention", "recover", "rebuild-index", "apply-retention",
                "compact")  # fmt: skip
"""Of these each partition's rows depend on its own files, and on those at the top."""
WITHOUT_FILES = ("explain",)
"""Of these it is shown that they make no such call."""
WORDS = ("cannot be read", "cannot be opened", "not give", "-unreadable", "not be listed",
         "Permission denied", "Stale file handle", "Input/output error")  # fmt: skip
TEMPORARY_WORDS = "error: temporary"


Call = tuple[str, str]
"""Its kind, and the path it is about."""


@dataclass(frozen=True)
class Fault:
    """Which call fails: the number of equal calls before it; for good: those after it fail, too."""

    call: Call
    before: int
    code: int
    for_good: bool


class Faults:
    """Makes calls about paths below a directory fail.

    Attributes:
        calls: how often each was made.
        has_failed: whether one failed.
    """

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, fault: Fault | None) -> None:
        self.calls: Counter[Call] = Counter()
        self.has_failed = False
        self._root, self._fault = str(root), fault
        for name in (*BY_PATH, *BY_DESCRIPTOR):
            patch.setattr(os, name, self._wrapped(name, getattr(os, name), os.readlink))

    def _wrapped(
        self, name: str, call: Callable[..., Any], readlink: Callable[[str], str]
    ) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            about = args[0] if args else "."
            if isinstance(about, int):
                try:
                    about = readlink(f"/proc/self/fd/{about}")
                except OSError:
                    return call(*args, **options)
            path = os.fspath(about)
            if isinstance(path, str) and path.startswith(self._root):
                self._meet((name, path))
            return call(*args, **options)

        return wrapped

    def _meet(self, call: Call) -> None:
        before, fault = self.calls[call], self._fault
        self.calls[call] += 1
        if fault is None or call != fault.call:
            return
        if before == fault.before or (fault.for_good and before > fault.before):
            self.has_failed = True
            raise OSError(fault.code, os.strerror(fault.code), call[1])


def faults_of(calls: Counter[Call], rng: random.Random) -> list[Fault]:
    """Return the faults to try for each call, each with one of the errors."""
    found = []
    for call, count in sorted(calls.items()):
        once = {0, count - 1, rng.randrange(count)}
        for_good = {0, rng.randrange(count)}
        found += [Fault(call, before, rng.choice(ERRORS), False) for before in sorted(once)]
        found += [Fault(call, before, rng.choice(ERRORS), True) for before in sorted(for_good)]
    return found


@pytest.fixture
def log_dir(corpus_dir: Path, tmp_path: Path) -> Path:
    """Two partitions with files of all kinds."""
    root = tmp_path / "place" / "log-dir"
    partition = small_log(corpus_dir, root)
    shutil.copytree(partition, root / "orders-1")
    properties = corpus_dir / "kafka-4.3" / "txn-v0" / "meta.properties"
    shutil.copy(properties, root / "meta.properties")
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    for path in root.glob("*-offset-checkpoint"):
        _, _, *lines = path.read_text().splitlines()
        [line] = [line for line in lines if line.startswith("orders 0 ")]
        path.write_text(f"0\n2\n{line}\n{line.replace('orders 0', 'orders 1')}\n")
    return root


def is_told(done: Result, to: Path) -> bool:
    """Return whether the output reports that something could not be read."""
    said = (done.stdout + made_at(to)).decode(errors="replace") + done.stderr
    is_counted = f"kafkalog_verify_exit_status {done.status}\n" in said
    return is_counted or any(word in said for word in WORDS)


def is_right(done: Result, fault: Fault, to: Path, *, is_writer: bool) -> bool:
    """Return whether a run that gives another answer says why.

    A writer waits for nothing in the middle of a change: it says that it must be run again.
    """
    if fault.code == errno.ENOMEM:
        return done.status in (OutOfMemoryError.exit_code, PARTLY_DONE)
    if fault.code in TEMPORARY:
        is_partly = done.status == PARTLY_DONE
        said = is_partly or (done.status == 3 and TEMPORARY_WORDS in done.stderr)
        return (fault.for_good and said) or (is_writer and is_partly)
    return done.status != 0 and is_told(done, to)


def made_at(to: Path) -> bytes:
    """Return the file that a run made."""
    return to.read_bytes() if to.is_file() else b""


def rows_lost(whole: Result, done: Result, path: str) -> set[bytes]:
    """Return missing rows of the partition that the failing path is not in.

    If the path is in neither partition, nothing is expected to be complete.
    """
    directories = {b"/orders-0", b"/orders-1"}
    [*others] = [name for name in directories if name + b"/" not in path.encode() + b"/"]
    if len(others) != 1:
        return set()
    wanted = {line for line in whole.stdout.splitlines() if others[0] + b'"' in line}
    return wanted - set(done.stdout.splitlines())


@dataclass(frozen=True)
class Given:
    """The directories that a command line names.

    Attributes:
        root: what is in it is put back before each run.
        words: the line.
        to: where it writes.
    """

    root: Path
    words: list[str]
    to: Path

    def answer(self, done: Result) -> tuple[Any, ...]:
        """Return all that a run says, except its times, and the files that it leaves."""
        out, error = (OF_THE_RUN.sub(b"", one) for one in (done.stdout, done.stderr.encode()))
        return done.status, out, error, tree(self.to), tree(self.root / "log-dir")


def tree(root: Path) -> dict[str, bytes]:
    """Return the files in a directory by name, or the one file; without times of the run."""
    found = {}
    for path in [root] if root.is_file() else sorted(root.rglob("*")):
        if path.is_file():
            content = OF_THE_RUN.sub(b"", path.read_bytes())
            if path.name.endswith("-checkpoint"):  # the order of the entries means nothing
                content = b"\n".join(sorted(content.splitlines()))
            found[re.sub(r"[0-9a-f]{16,32}", "ID", str(path.relative_to(root)))] = content
    return found


def given(name: str, log_dir: Path, tmp_path: Path, kafkalog: Run) -> Given:
    """Make what a command line names."""
    to = tmp_path / "to"
    words = {**LINES, **WRITERS}[name]
    if any("{broker}" in word for word in words):
        shutil.copytree(EXAMPLE, log_dir / "broker")
    if name in ("recover-in-place", "rebuild-in-place"):
        first, *_ = sorted((log_dir / "orders-1").glob("*.index"))
        first.unlink()
    if name == "recover-in-place":
        *_, last = sorted((log_dir / "orders-0").glob("*.log"))
        last.write_bytes(last.read_bytes()[:-5])
    backup = log_dir.parent / "backup"
    if any("{backup}" in word for word in words):
        line = "compact", *WRITERS["compact-in-place"][1:], "--backup", backup
        assert kafkalog(*(str(word).format(dir=log_dir) for word in line)).status == 0
    places = {"dir": log_dir, "to": to, "broker": log_dir / "broker", "backup": backup}
    return Given(log_dir.parent, [word.format(**places) for word in words], to)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*LINES, *WRITERS])
def test_a_call_that_fails_is_told(
    name: str, log_dir: Path, tmp_path: Path, kafkalog: Run, tell: Callable[[str], None]
):
    """The answer is the same, or it says what could not be read.

    Other partitions keep their rows.
    """
    try_faults(name, given(name, log_dir, tmp_path, kafkalog), kafkalog, tell)


def test_each_command_is_tried(kafkalog: Run) -> None:
    """A new command has a line in `tests.command_lines`."""
    shown = kafkalog("--help").stdout.decode().partition("Commands:")[2]
    commands = set(re.findall(r"^  ([a-z][a-z-]+)  ", shown, re.MULTILINE))
    assert commands == {line[0] for line in (*LINES.values(), *WRITERS.values())} | {"serve"}


BROKER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["ls", "dump-ndjson", "verify-quick"])
def test_an_error_about_the_lock_of_a_broker_is_told(
    name: str, log_dir: Path, tmp_path: Path, kafkalog: Run, tell: Callable[[str], None]
):
    """A running broker decides the view: files are shown as they are next to one."""
    (log_dir / ".kafka_cleanshutdown").unlink()
    lock = log_dir / ".lock"
    line = [sys.executable, "-c", BROKER, lock]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"locked\n"
        made = given(name, log_dir, tmp_path, kafkalog)
        try_faults(name, made, kafkalog, tell, about=str(lock))
        broker.stdin.close()


def try_faults(
    name: str, made: Given, kafkalog: Run, tell: Callable[[str], None], *, about: str = ""
) -> None:
    """Try the faults of one command line.

    Args:
        name: the name of the line.
        made: the line, and what it names.
        kafkalog: runs it.
        tell: receives how much was tried.
        about: make only calls about this path fail, each of them.
    """
    seed = new_seed()
    rng = random.Random(seed)
    disk = os.statvfs(made.root)
    kept = shutil.copytree(made.root, made.to.with_name("kept")) if name in WRITERS else None

    def run(fault: Fault | None, *, again: bool = False) -> tuple[Result, Faults]:
        if not again:
            clear(made.to)
            if kept is not None:
                clear(made.root)
                shutil.copytree(kept, made.root)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retry, "BUDGET_S", BUDGET_S)
            patch.setattr(os, "statvfs", lambda _path: disk)  # others write to it meanwhile
            repeatable(patch)
            faults = Faults(patch, made.root, fault)
            return kafkalog(*made.words), faults

    whole, faults = run(None)
    assert whole.status in (0, 1, 9), whole
    wanted = made.answer(whole)
    every = faults_of(faults.calls, rng)
    every = [fault for fault in every if about in fault.call[1]]
    tried = every if tries_everything() or about else rng.sample(every, min(FAULTS, len(every)))
    wrong = []
    failed: Counter[str] = Counter()
    for fault in tried:
        done, faults = run(fault)
        if not faults.has_failed:
            continue  # not each run makes the same calls
        found = made.answer(done)
        failed[f"{errno.errorcode[fault.code]} {'same' if found == wanted else done.status}"] += 1
        words = trouble(name, fault, made, whole, done) if found != wanted else ""
        if words:
            files = {name for one in (3, 4) for name, _ in found[one].items() ^ wanted[one].items()}
            words += f"; {sorted(files)} differ"
        if kept is not None and found[-1] != wanted[-1]:
            again, _ = run(None, again=True)
            both = tree(made.root / "log-dir").items() ^ wanted[-1].items()
            # One that stopped lower is lower: the next start scans more, and finds the same.
            if differing := {name for name, _ in both} - {"recovery-point-offset-checkpoint"}:
                words += f"; {sorted(differing)} differ after a second run: {again}"
        if words:
            wrong.append(((fault, errno.errorcode[fault.code]), words))
    tell(
        f"{name}: {failed.total()} of {len(every)} faults in {len(faults_seen(every))} calls, "
        f"seed {seed}: {dict(sorted(failed.items()))}"
    )
    shown = "\n".join(f"{what}\n  {words}" for what, words in wrong[:4])
    assert not wrong, f"seed {seed}: {len(wrong)} wrong, such as\n{shown}"
    assert bool(failed) != (name in WITHOUT_FILES)


def clear(path: Path) -> None:
    """Remove a file or a directory."""
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)


def trouble(name: str, fault: Fault, made: Given, whole: Result, done: Result) -> str:
    """Return what is wrong with an answer that differs; nothing if it says why."""
    if done.status == 70 or "Traceback" in done.stderr:
        return done.stderr
    if not is_right(done, fault, made.to, is_writer=name in WRITERS):
        return f"{done.status}: {difference(whole, done)} {done.stderr}"
    if fault.code in OF_FILES:
        lost = rows_lost(whole, done, fault.call[1]) if name in BY_PARTITION else ()
        return ", ".join(f"without {row!r}" for row in lost)
    if name in WRITERS and done.status == PARTLY_DONE:
        return ""  # what it prints is what it did
    more = set(done.stdout.splitlines()) - set(whole.stdout.splitlines())
    return f"{done.status}: more lines, such as {min(more)!r}" if more else ""


def faults_seen(faults: list[Fault]) -> set[Call]:
    """Return the calls that the faults are for."""
    return {fault.call for fault in faults}


def difference(whole: Result, done: Result) -> str:
    """Return the first line that differs."""
    for before, after in zip_longest(whole.stdout.splitlines(), done.stdout.splitlines()):
        if OF_THE_RUN.sub(b"", before or b"") != OF_THE_RUN.sub(b"", after or b""):
            return f"{(after or b'')[:500]!r} instead of {(before or b'')[:500]!r}"
    return "the same output"
