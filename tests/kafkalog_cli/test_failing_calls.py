"""Each kind of call about each path fails, once and for good, in each command.

The result is the same answer (where the call was not needed), a finding, or an error; never a
traceback, an internal error, or status 0 with less than there is. Trouble that says nothing about
the data is no finding: if it passes, the answer is the same; if it lasts, the status says so, and
no line is printed that the whole answer lacks. A command that writes is run again after that, and
leaves what it would have left at first; if it has changed a part of a log directory, its status is
that of work partly done.

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
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import INCOMPLETE, OutOfMemoryError, RefusedError
from kafkalog.io.paths import retry
from kafkalog_cli.panels import COMMANDS
from tests.checkout import ROOT
from tests.command_lines import (
    IN_PLACE,
    LINES,
    OF_THE_RUN,
    WRITERS,
    lines_of,
    ran,
    repeatable,
)
from tests.sampling import new_seed, tries_everything
from tests.sweeps import small_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

BY_PATH = ("stat", "lstat", "listdir", "scandir", "open", "readlink")
BY_DESCRIPTOR = ("fstat", "pread", "preadv", "lseek", "read")
OF_FILES = (errno.EIO, errno.EACCES)
TEMPORARY = (errno.ESTALE, errno.EMFILE, errno.ETIMEDOUT)
ERRORS = (*OF_FILES, *TEMPORARY, errno.ENOMEM)
BUDGET_S = 0.06
"""Enough for a second attempt in each run, and for a third one of what fails for good."""
FAULTS = 6
"""Faults of each command where not everything is tried."""

EXAMPLE = ROOT / "examples" / "log-dir"
BY_PARTITION = ("ls", "verify", "retention", "recover", "rebuild-index", "retention",
                "compact")  # fmt: skip
"""Of these each partition's rows depend on its own files, and on those at the top."""
WITHOUT_FILES = ("explain",)
"""Of these it is shown that they make no such call."""
WORDS = ("cannot be read", "cannot be opened", "not give", "-unreadable", "not be listed",
         "Permission denied", "Stale file handle", "Input/output error")  # fmt: skip
TEMPORARY_WORDS = "error: temporary"


IDS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{16,32}"
                 r"|(?<=commit\d{8}-)[0-9a-f]{8}")  # fmt: skip
MADE_OF_IDS = re.compile(r"journal\.ndjson$|_delta_log/|/metadata/|catalog\.db|_kafkalog/")
"""Files of which only the names are compared."""
# A recovery point that stayed lower makes the next start scan more, and find the same. A second
# attempt keeps what it finds in a directory of its own. The last is empty.
MAY_DIFFER = re.compile(
    r"log-dir/recovery-point-offset-checkpoint|to/orders-\d(\.2)?\b|to/_kafkalog/building$"
)

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
            around = about if isinstance(about, int) else options.get("dir_fd")
            try:
                path = "" if around is None else readlink(f"/proc/self/fd/{around}")
            except OSError:
                return call(*args, **options)
            if not isinstance(about, int):
                path = os.path.join(path, os.fspath(about))
            if path.startswith(self._root):
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

    A writer does not wait for all that passes: it says that it must be run again.
    """
    is_partly = done.status == INCOMPLETE
    if fault.code == errno.ENOMEM:
        return done.status in (OutOfMemoryError.exit_code, INCOMPLETE)
    if fault.code in TEMPORARY:
        is_uncertain = "It is unknown whether the catalog made the commit" in done.stderr
        is_temporary = done.status == 3 and TEMPORARY_WORDS in done.stderr
        said = is_partly or is_temporary or is_uncertain
        return (fault.for_good or is_writer) and said
    return is_partly or (done.status != 0 and is_told(done, to))


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
        root: all that the line reads and writes is in it.
        words: the line.
        to: where it writes.
        kept: a copy of the root, if it is to be put back before each run.
    """

    root: Path
    words: list[str]
    to: Path
    kept: Path | None

    def answer(self, done: Result) -> tuple[Any, ...]:
        """Return all that a run says, except its times, and the files that it leaves."""
        out, error = (OF_THE_RUN.sub(b"", one) for one in (done.stdout, done.stderr.encode()))
        return done.status, out, error, tree(self.root)

    def restore(self) -> None:
        """Put back what a run has changed."""
        if self.kept is not None:
            shutil.rmtree(self.root)
            shutil.copytree(self.kept, self.root)


def tree(root: Path) -> dict[str, bytes]:
    """Return files and directories by name; without times and random ids of the run."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = IDS.sub("ID", str(path.relative_to(root)))
        is_plain = path.is_file() and not MADE_OF_IDS.search(name)
        content = OF_THE_RUN.sub(b"", path.read_bytes()) if is_plain else b""
        if path.name.endswith("-checkpoint"):  # the order of the entries means nothing
            lines = [one for one in content.splitlines() if not is_idle(path, one.decode())]
            content = b"\n".join(sorted(lines[2:]))
        found[name] = content
    return found


def is_idle(checkpoint: Path, line: str) -> bool:
    """Return whether a log start is where the first segment begins, as without the entry."""
    if checkpoint.name != "log-start-offset-checkpoint" or line.count(" ") != 2:
        return False
    topic, partition, offset = line.split()
    logs = (checkpoint.parent / f"{topic}-{partition}").glob("*.log")
    return int(offset) <= min((int(one.stem) for one in logs), default=-1)


def given(name: str, log_dir: Path, kafkalog: Run) -> Given:
    """Make what a command line names."""
    root = log_dir.parent
    words = {**LINES, **WRITERS}[name]
    places = {place: root / place for place in ("to", "backup", "copies")}
    places |= {"dir": log_dir, "broker": log_dir / "broker"}
    line = [word.format(**places) for word in words]
    if any("{broker}" in word for word in words):
        shutil.copytree(EXAMPLE, log_dir / "broker")
    if any("{copies}" in word for word in words):
        for place, segment in (
            ("1", "00000000000000000016.log"),
            ("2", "00000000000000000000.log"),
        ):
            shutil.copytree(log_dir, root / "copies" / place)
            change_byte(root / "copies" / place / "orders-0" / segment, 100)
    if name in ("recover-in-place", "rebuild-in-place"):
        first, *_ = sorted((log_dir / "orders-1").glob("*.index"))
        first.unlink()
    if name == "recover-in-place":
        *_, last = sorted((log_dir / "orders-0").glob("*.log"))
        last.write_bytes(last.read_bytes()[:-5])
    if any("{backup}" in word for word in words):
        run = "resurrect-in-place" if name == "undo-resurrect" else "compact-with-backup"
        before = (word.format(dir=log_dir, to=places["backup"]) for word in WRITERS[run])
        assert kafkalog(*before).status == 0
    if name == "export-append-more":
        (log_dir / "orders-1").rename(root / "later")
        assert kafkalog(*line).status == 0
        (root / "later").rename(log_dir / "orders-1")
    kept = root.with_name("kept")
    if name in WRITERS or any("{to}" in word for word in words):
        shutil.copytree(root, kept)
    return Given(root, line, places["to"], kept if kept.exists() else None)


def change_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*LINES, *WRITERS])
def test_a_call_that_fails_is_told(
    name: str, log_dir: Path, kafkalog: Run, tell: Callable[[str], None]
):
    """The answer is the same, or it says what could not be read.

    Other partitions keep their rows.
    """
    try_faults(name, given(name, log_dir, kafkalog), kafkalog, tell)


def test_each_command_is_tried() -> None:
    """A new command has a line in `tests.command_lines`."""
    assert {*COMMANDS} == {line[0] for line in (*LINES.values(), *WRITERS.values())}


BROKER = """
import fcntl, sys
from tests.checkout import ROOT
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["ls", "dump-ndjson", "verify-quick"])
def test_an_error_about_the_lock_of_a_broker_is_told(
    name: str, log_dir: Path, kafkalog: Run, tell: Callable[[str], None]
):
    """A running broker decides the view: files are shown as they are next to one."""
    (log_dir / ".kafka_cleanshutdown").unlink()
    lock = log_dir / ".lock"
    line = [sys.executable, "-c", BROKER, lock]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"locked\n"
        made = given(name, log_dir, kafkalog)
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
    trials = Trials(name, made, kafkalog)
    every = faults_of(trials.calls, random.Random(seed))
    every = [fault for fault in every if about in fault.call[1]]
    tried = every
    if not (tries_everything() or about):
        tried = random.Random(seed).sample(every, min(FAULTS, len(every)))
    wrong = []
    failed: Counter[str] = Counter()
    for fault in tried:
        outcome, words = trials.outcome(fault)
        if outcome is not None:
            failed[f"{errno.errorcode[fault.code]} {outcome}"] += 1
        if words:
            wrong.append(((fault, errno.errorcode[fault.code]), words))
    tell(
        f"{name}: {failed.total()} of {len(every)} faults in {len(faults_seen(every))} calls, "
        f"seed {seed}: {dict(sorted(failed.items()))}"
    )
    shown = "\n".join(f"{what}\n  {words}" for what, words in wrong[:4])
    assert not wrong, f"seed {seed}: {len(wrong)} wrong, such as\n{shown}"
    assert bool(failed) != (name in WITHOUT_FILES)


class Trials:
    """Runs one command line with faults, and compares it with the run without.

    Attributes:
        calls: those that the run without faults made.
    """

    def __init__(self, name: str, made: Given, kafkalog: Run) -> None:
        self._name, self._made, self._kafkalog = name, made, kafkalog
        self._disk, self._before = os.statvfs(made.root), tree(made.root)
        self._whole, faults = self._run(None)
        assert self._whole.status in (0, 1, 9), self._whole
        self._wanted = made.answer(self._whole)
        self.calls = faults.calls

    def _run(self, fault: Fault | None, *, again: bool = False) -> tuple[Result, Faults]:
        if not again:
            self._made.restore()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retry, "BUDGET_S", BUDGET_S)
            patch.setattr(retry, "Retry", partial(retry.Retry, sleep=lambda _: None))
            patch.setattr(os, "statvfs", lambda _path: self._disk)  # others write meanwhile
            repeatable(patch)
            faults = Faults(patch, self._made.root, fault)
            return ran(self._kafkalog, self._made.words), faults

    def outcome(self, fault: Fault) -> tuple[str | int | None, str]:
        """Return `same`, or the status, and what is wrong; None if the call was not made."""
        done, faults = self._run(fault)
        if not faults.has_failed:
            return None, ""  # not each run makes the same calls
        found = self._made.answer(done)
        if found == self._wanted:
            return "same", ""
        words = trouble(self._name, fault, self._made, self._whole, done)
        if done.status != INCOMPLETE and (half := self._half_done(found[-1])):
            words += f"; {done.status}, although {half} differ"
        if differing := self._after_a_second_run(fault, found[-1]):
            words += f"; {differing} differ after a second run"
        return done.status, words

    def _half_done(self, found: dict[str, bytes]) -> list[str]:
        """Return the files of the log directory that are changed, if there are others to change."""
        left = {name for name, _ in found.items() ^ self._wanted[-1].items()}
        if self._name not in WRITERS or all(map(MAY_DIFFER.match, left)):
            return []
        changed = {name for name, _ in found.items() ^ self._before.items()}
        # Neither is part of a log; what cannot be removed now is removed by the next run.
        idle = re.compile(r"log-dir/(\.lock|.*/kafkalog-\d+\.tmp)$")
        return sorted(one for one in changed if one.startswith("log-dir/") and not idle.match(one))

    def _after_a_second_run(self, fault: Fault, found: dict[str, bytes]) -> list[str]:
        """Return the files that differ when the command was repeated without a fault.

        What cannot be read is left out for good by a command that makes something new.
        """
        makes_new = self._name not in WRITERS or self._made.words[0] == "export"
        if found == self._wanted[-1] or (makes_new and fault.code in OF_FILES):
            return []
        again, _ = self._run(None, again=True)
        if again.status == RefusedError.exit_code and "`kafkalog recover" in again.stderr:
            self._kafkalog("recover", self._made.root / "log-dir", *IN_PLACE)
            self._run(None, again=True)
        both = tree(self._made.root).items() ^ self._wanted[-1].items()
        return sorted(name for name, _ in both if not MAY_DIFFER.match(name))


def trouble(name: str, fault: Fault, made: Given, whole: Result, done: Result) -> str:
    """Return what is wrong with an answer that differs; nothing if it says why."""
    if done.status == 70 or "Traceback" in done.stderr:
        return done.stderr
    if not is_right(done, fault, made.to, is_writer=made.kept is not None):
        return f"{done.status}: {difference(whole, done)} {done.stderr}"
    if fault.code in OF_FILES:
        lost = rows_lost(whole, done, fault.call[1]) if name in BY_PARTITION else ()
        return ", ".join(f"without {row!r}" for row in lost)
    if made.kept is not None and done.status == INCOMPLETE:
        return ""  # what it prints is what it did
    more = lines_of(done) - lines_of(whole)
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
