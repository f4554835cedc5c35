"""Each kind of call about each path fails, once and for good, in each command that reads.

The result is the same answer (where the call was not needed), a finding, or an error; never a
traceback, an internal error, or status 0 with less than there is. Trouble that says nothing about
the data is no finding: if it passes, the answer is the same; if it lasts, the status says so.

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
from kafkalog.paths import retry
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
LOG = "{dir}/orders-0/00000000000000000000.log"
FILES = f"{LOG},{{dir}}/orders-0/00000000000000000000.index"
COMPACTED = ("--config", "cleanup.policy=compact", "--high-watermark", "end", "--now", "0")
LINES: dict[str, tuple[str, ...]] = {
    "ls": ("ls", "{dir}", "--format", "ndjson"),
    "ls-segments": ("ls", "{dir}", "--segments", "--format", "ndjson"),
    "ls-files": ("ls", "{dir}", "--files"),
    "dump-ndjson": ("dump-segment", "{dir}/orders-0", "--format", "ndjson"),
    "dump-json": ("dump-segment", "{dir}/orders-0", "--format", "json"),
    "dump-csv": ("dump-segment", "{dir}/orders-0", "--format", "csv"),
    "dump-table": ("dump-segment", "{dir}/orders-0"),
    "dump-kafka": ("dump-segment", "{dir}/orders-0", "--format", "kafka"),
    "dump-batches": ("dump-segment", "{dir}/orders-0", "--batches", "--format", "ndjson"),
    "dump-committed": ("dump-segment", "{dir}/orders-0", "--read-committed", "--format", "ndjson"),
    "dump-parquet": ("dump-segment", "{dir}/orders-0", "--format", "parquet", "--to", "{to}"),
    "dump-index": ("dump-segment", FILES.partition(",")[2], "--format", "ndjson"),
    "dump-checkpoint": ("dump-segment", "{dir}/replication-offset-checkpoint"),
    "lookup-offset": ("lookup-offset", "{dir}/orders-0", "17", "--format", "ndjson"),
    "lookup-time": ("lookup-offset", "{dir}/orders-0", "--timestamp", "1700000000000",
                    "--format", "ndjson"),
    "lookup-latest": ("lookup-offset", "{dir}/orders-0", "--special", "latest", "--explain"),
    "verify-quick": ("verify", "{dir}", "--level", "quick", "--format", "ndjson"),
    "verify": ("verify", "{dir}", "--format", "ndjson"),
    "verify-deep": ("verify", "{dir}", "--level", "deep", "--format", "ndjson"),
    "verify-prometheus": ("verify", "{dir}", "--format", "prometheus"),
    "kafka-dump-log": ("kafka-dump-log", "--print-data-log", "--files", FILES),
    "simulate-retention": ("simulate-retention", "{dir}", "--config", "retention.ms=1",
                           "--now", "0", "--format", "ndjson"),
    "simulate-roll": ("simulate-roll", "{dir}/orders-0", "--config", "segment.bytes=1000",
                      "--format", "ndjson"),
    "apply-retention": ("apply-retention", "{dir}", "--config", "retention.ms=1", "--now", "0",
                        "--format", "ndjson"),
    "audit-compaction": ("audit-compaction", "{dir}/orders-0", "--cleaner-offset", "20",
                         "--now", "0", "--format", "ndjson"),
    "compact": ("compact", "{dir}", *COMPACTED, "--format", "ndjson"),
    "recover": ("recover", "{dir}", "--now", "0", "--format", "ndjson"),
    "recover-start": ("recover", "{dir}", "--from", "start", "--now", "0", "--format", "ndjson"),
    "rebuild-index": ("rebuild-index", "{dir}", "--now", "0", "--format", "ndjson"),
    "profile": ("profile", "{dir}", "--engine", "local", "--format", "ndjson"),
    "salvage-plan": ("salvage", "{dir}", "--to", "{to}", "--dry-run", "--format", "ndjson"),
    "salvage": ("salvage", "{dir}", "--to", "{to}", "--format", "ndjson"),
    "compact-to": ("compact", "{dir}", *COMPACTED, "--to", "{to}", "--format", "ndjson"),
    "count": ("sql", "select count(*) n from records", "{dir}", "--format", "ndjson"),
    "du": ("du", "{dir}", "--format", "ndjson"),
    "du-forecast": ("du", "{dir}", "--forecast", "--now", "0", "--disk-size", "1G"),
    "find": ("find", "{dir}", "--value-regex", ".", "--format", "ndjson"),
    "diff": ("diff", "{dir}/orders-0", "{dir}/orders-1", "--all", "--format", "ndjson"),
    "sql": ("sql", "select * from records order by all", "{dir}", "--format", "ndjson"),
    "groups": ("groups", "{broker}", "--format", "ndjson"),
    "transactions": ("transactions", "{broker}", "--now", "0", "--format", "ndjson"),
    "metadata": ("metadata", "{broker}", "--format", "ndjson"),
    "simulate-broker": ("simulate-retention", "{broker}", "--now", "0", "--format", "ndjson"),
    "verify-broker": ("verify", "{broker}", "--format", "ndjson"),
    "report": ("report", "{broker}", "--now", "0", "--to", "{to}"),
    "anatomy": ("anatomy", "{dir}/orders-0", "--format", "ndjson"),
    "explain": ("explain", "bytes-unreadable"),
    "export": ("export", "{dir}", "--to", "{to}", "--file-format", "ndjson", "--engine", "local",
               "--format", "ndjson"),
}  # fmt: skip
BY_PARTITION = ("ls", "verify", "simulate-retention", "recover", "rebuild-index", "apply-retention",
                "compact")  # fmt: skip
"""Of these each partition's rows depend on its own files, and on those at the top."""
OF_THE_RUN = re.compile(
    rb'"(?:start|end)TimeUtc":"[^"]*"|_duration_seconds \S+|_run_timestamp_seconds \S+'
)
"""When a run was, and how long it took."""
WITHOUT_FILES = ("explain",)
"""Of these it is shown that they make no such call."""
WORDS = ("cannot be read", "not give", "-unreadable", "not be listed", "Permission denied",
         "Stale file handle", "Input/output error")  # fmt: skip
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
    root = tmp_path / "log-dir"
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


def is_right(done: Result, fault: Fault, to: Path) -> bool:
    """Return whether a run that gives another answer says why."""
    if fault.code == errno.ENOMEM:
        return done.status in (OutOfMemoryError.exit_code, PARTLY_DONE)
    if fault.code in TEMPORARY:
        is_partly = done.status == PARTLY_DONE
        said = is_partly or (done.status == 3 and TEMPORARY_WORDS in done.stderr)
        return fault.for_good and said
    return done.status not in (0, 9) and is_told(done, to)


def answer(done: Result, to: Path) -> tuple[int, bytes, str, bytes]:
    """Return all that a run says, except its times, and the file that it made."""
    return done.status, OF_THE_RUN.sub(b"", done.stdout), done.stderr, made_at(to)


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LINES)
def test_a_call_that_fails_is_told(
    name: str, log_dir: Path, tmp_path: Path, kafkalog: Run, tell: Callable[[str], None]
):
    """The answer is the same, or it says what could not be read.

    Other partitions keep their rows.
    """
    to = tmp_path / "to"
    broker = shutil.copytree(EXAMPLE, log_dir / "broker") if "{broker}" in LINES[name] else ""
    words = [word.format(dir=log_dir, to=to, broker=broker) for word in LINES[name]]
    try_faults(name, words, log_dir, to, kafkalog, tell)


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
    words = [word.format(dir=log_dir) for word in LINES[name]]
    line = [sys.executable, "-c", BROKER, lock]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"locked\n"
        try_faults(name, words, log_dir, tmp_path / "to", kafkalog, tell, about=str(lock))
        broker.stdin.close()


def try_faults(
    name: str, words: list[str], log_dir: Path, to: Path, kafkalog: Run,
    tell: Callable[[str], None], *, about: str = "",
) -> None:  # fmt: skip
    """Try the faults of one command line.

    Args:
        name: the name of the line.
        words: the line.
        log_dir: what the line reads.
        to: where it writes, if anywhere.
        kafkalog: runs it.
        tell: receives how much was tried.
        about: make only calls about this path fail, each of them.
    """
    seed = new_seed()
    rng = random.Random(seed)

    disk = os.statvfs(log_dir)

    def run(fault: Fault | None) -> tuple[Result, Faults]:
        shutil.rmtree(to, ignore_errors=True)
        to.unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retry, "BUDGET_S", BUDGET_S)
            patch.setattr(os, "statvfs", lambda _path: disk)  # others write to it meanwhile
            faults = Faults(patch, log_dir, fault)
            return kafkalog(*words), faults

    whole, faults = run(None)
    assert whole.status in (0, 1, 9), whole
    wanted = answer(whole, to)
    every = faults_of(faults.calls, rng)
    every = [fault for fault in every if about in fault.call[1]]
    tried = every if tries_everything() or about else rng.sample(every, min(FAULTS, len(every)))
    wrong = []
    failed: Counter[str] = Counter()
    for fault in tried:
        done, faults = run(fault)
        if not faults.has_failed:
            continue  # not each run makes the same calls
        failed[fault.call[0]] += 1
        what = (fault, errno.errorcode[fault.code])
        if done.status == 70 or "Traceback" in done.stderr:
            wrong.append((what, done.stderr))
        elif answer(done, to) != wanted and not is_right(done, fault, to):
            wrong.append((what, f"{done.status}: {difference(whole, done)} {done.stderr}"))
        elif fault.code not in OF_FILES:
            continue  # the run ends, whatever is left
        elif name in BY_PARTITION:
            lost = rows_lost(whole, done, fault.call[1])
            wrong += [(what, f"without {row!r}") for row in lost]
    tell(
        f"{name}: {failed.total()} of {len(every)} faults in {len(faults_seen(every))} calls, "
        f"seed {seed}: {dict(failed)}"
    )
    shown = "\n".join(f"{what}\n  {words}" for what, words in wrong[:4])
    assert not wrong, f"seed {seed}: {len(wrong)} wrong, such as\n{shown}"
    assert bool(failed) != (name in WITHOUT_FILES)


def faults_seen(faults: list[Fault]) -> set[Call]:
    """Return the calls that the faults are for."""
    return {fault.call for fault in faults}


def difference(whole: Result, done: Result) -> str:
    """Return the first line that differs."""
    for before, after in zip_longest(whole.stdout.splitlines(), done.stdout.splitlines()):
        if OF_THE_RUN.sub(b"", before or b"") != OF_THE_RUN.sub(b"", after or b""):
            return f"{(after or b'')[:500]!r} instead of {(before or b'')[:500]!r}"
    return "the same output"
