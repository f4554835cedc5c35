"""Each stat, listing, open and read of each command that reads fails, once and for good.

What comes of it is the same answer (where the call was not needed), a finding, or an error; never a
traceback, an internal error, or status 0 with less than there is.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.disk import tries_everything
from tests.kafka.conftest import SEED_VARIABLE
from tests.sweeps import small_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

BY_PATH = ("stat", "lstat", "listdir", "scandir", "open", "readlink")
BY_DESCRIPTOR = ("fstat", "pread", "preadv", "lseek")
ERRORS = (errno.EIO, errno.ESTALE, errno.EACCES)
FAULTS = 6
"""Calls of each command that fail where not everything is tried."""

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
    "dump-index": ("dump-segment", FILES.partition(",")[2], "--format", "ndjson"),
    "dump-checkpoint": ("dump-segment", "{dir}/replication-offset-checkpoint"),
    "lookup-offset": ("lookup-offset", "{dir}/orders-0", "17", "--format", "ndjson"),
    "lookup-time": ("lookup-offset", "{dir}/orders-0", "--timestamp", "1700000000000",
                    "--format", "ndjson"),
    "lookup-latest": ("lookup-offset", "{dir}/orders-0", "--special", "latest", "--explain"),
    "verify-quick": ("verify", "{dir}", "--level", "quick", "--format", "ndjson"),
    "verify": ("verify", "{dir}", "--format", "ndjson"),
    "verify-deep": ("verify", "{dir}", "--level", "deep", "--format", "ndjson"),
    "verify-sarif": ("verify", "{dir}", "--format", "sarif"),
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
    "export": ("export", "{dir}", "--to", "{to}", "--file-format", "ndjson", "--engine", "local",
               "--format", "ndjson"),
}  # fmt: skip
BY_PARTITION = ("ls", "verify", "simulate-retention", "recover", "rebuild-index", "apply-retention",
                "compact")  # fmt: skip
"""Of these each partition's rows depend on its own files, and on those at the top."""
WORDS = ("cannot be read", "not give", "-unreadable", "not be listed", "Permission denied",
         "Stale file handle", "Input/output error")  # fmt: skip


class Faults:
    """Lets a call about something below a directory fail: the one of that number.

    Attributes:
        calls: how many there were.
        failed: the call and the path that failed first.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, root: Path, number: int, code: int, *, for_good: bool
    ) -> None:
        self.calls = 0
        self.failed: tuple[str, str] | None = None
        self._root, self._number, self._for_good = str(root), number, for_good
        self._code = code
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
                self.calls += 1
                again = self._for_good and self.failed == (name, path)
                if again or (self.failed is None and self.calls == self._number):
                    self.failed = name, path
                    raise OSError(self._code, os.strerror(self._code), path)
            return call(*args, **options)

        return wrapped


@pytest.fixture
def log_dir(corpus_dir: Path, tmp_path: Path) -> Path:
    """Two partitions with all kinds of files."""
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


def is_told(done: Result) -> bool:
    """Whether the output says that something could not be read."""
    said = done.stdout.decode(errors="replace") + done.stderr
    is_counted = f"kafkalog_verify_exit_status {done.status}\n" in said
    return is_counted or any(word in said for word in WORDS)


def rows_lost(whole: Result, done: Result, path: str) -> set[bytes]:
    """Objects of the partition that the path is not in, if it is in one, and that are not there."""
    directories = {b"/orders-0", b"/orders-1"}
    [*others] = [name for name in directories if name + b"/" not in path.encode() + b"/"]
    if len(others) != 1:
        return set()
    wanted = {line for line in whole.stdout.splitlines() if others[0] + b'"' in line}
    return wanted - set(done.stdout.splitlines())


@pytest.mark.parametrize("name", LINES)
def test_a_call_that_fails_is_told(
    name: str, log_dir: Path, tmp_path: Path, kafkalog: Run, tell: Callable[[str], None]
):
    """The answer is the same, or it says what could not be read; the others' rows are there."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(1 << 31))
    rng = random.Random(seed)
    to = tmp_path / "to"
    words = [word.format(dir=log_dir, to=to) for word in LINES[name]]

    def run(number: int, code: int, *, for_good: bool) -> tuple[Result, Faults]:
        shutil.rmtree(to, ignore_errors=True)
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, log_dir, number, code, for_good=for_good)
            return kafkalog(*words), faults

    whole, faults = run(0, 0, for_good=False)
    assert whole.status in (0, 1, 9), whole
    numbers = range(1, faults.calls + 1)
    wrong = []
    failed: Counter[str] = Counter()
    for number in (
        numbers if tries_everything() else sorted(rng.sample(numbers, min(FAULTS, len(numbers))))
    ):
        code = ERRORS[(seed + number) % len(ERRORS)]
        for for_good in (False, True):
            done, faults = run(number, code, for_good=for_good)
            if faults.failed is None:
                continue  # not each run makes the same calls
            failed[faults.failed[0]] += 1
            what = (number, errno.errorcode[code], for_good, faults.failed)
            if done.status == 70 or "Traceback" in done.stderr:
                wrong.append((what, done.stderr))
            elif done != whole and (done.status in (0, 9) or not is_told(done)):
                wrong.append((what, f"{done.status}: {done.stdout!r} {done.stderr}"))
            elif name in BY_PARTITION:
                lost = rows_lost(whole, done, faults.failed[1])
                wrong += [(what, f"without {row!r}") for row in lost]
    tell(f"{name}: {failed.total()} calls failed, seed {seed}: {dict(failed)}")
    assert not wrong, f"seed {seed}: {len(wrong)} wrong, such as {wrong[0]}"
    assert failed
