"""What fails for now is waited for, and is then an error: never damage, never another view."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from formats.constants import ZSTD
from kafkalog.errors import (
    CorruptDataError,
    OutOfMemoryError,
    TemporaryError,
    UnreadableError,
    contained,
)
from kafkalog.io.codecs import compress, decompress, lz4, zstd
from kafkalog.io.codecs.output import refused
from kafkalog.io.paths import bucket_options, object_store
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.retry import Retry, is_busy, retrying, tried
from kafkalog.io.paths.source import Source
from tests.builders import batch, record, write_log
from tests.checkout import ROOT
from tests.command_lines import LINES, OF_THE_RUN, lines_of, ran, repeatable
from tests.counted_store import counted_store
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

LOG_DIR = ROOT / "examples" / "log-dir"
SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Slow down.</Message></Error>"
)
OF_DISKS = (
    "retention", "compact", "explain", "rebuild-index", "recover", "salvage",
)  # fmt: skip
"""Commands that read no stores, or nothing."""
OF_STORES = {
    name: words
    for name, words in LINES.items()
    if words[0] not in OF_DISKS
    and not any(one in word for word in words for one in ("{backup}", "{copies}", "orders-1"))
}
"""The command lines that a store can be read with."""


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s

    def retry(self, budget_s: float, jitter: float = 1.0) -> Retry:
        return Retry(budget_s, lambda: self.now_s, self.sleep, lambda: jitter)


class Failing:
    """Fails some times before it works."""

    def __init__(self, times: int, *codes: int) -> None:
        self.left = times
        self.codes = codes

    def __call__(self) -> str:
        if self.left:
            self.left -= 1
            code = self.codes[self.left % len(self.codes)]
            raise OSError(code, os.strerror(code))
        return "it works"


@pytest.mark.parametrize(
    "code", [errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ETIMEDOUT]
)
def test_what_passes_is_not_noticed(code: int) -> None:
    """The pauses grow up to a bound."""
    clock = Clock()
    with retrying(clock.retry(60)):
        assert tried("x", Failing(9, code)) == "it works"
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_the_budget_is_that_of_the_run() -> None:
    """What is spent on one file is not there for the next one."""
    clock = Clock()
    with retrying(clock.retry(60)):
        for _ in range(2):
            with pytest.raises(TemporaryError, match="Stale file handle") as raised:
                tried("x", Failing(1000, errno.ESTALE))
            assert raised.value.path == "x"
            assert raised.value.exit_code == 3
    assert sum(clock.pauses) == pytest.approx(60)
    clock.now_s += 3600
    with retrying(clock.retry(0)), pytest.raises(TemporaryError):
        tried("x", Failing(1, errno.EMFILE))


def test_attempts_that_take_long_end_it() -> None:
    """A store that says nothing at all is not asked again for longer than the budget."""
    clock, attempts = Clock(), []

    def silent() -> None:
        attempts.append(clock.now_s)
        clock.now_s += 20
        raise OSError(errno.ETIMEDOUT, "it says nothing")

    with retrying(clock.retry(60)), pytest.raises(TemporaryError):
        tried("x", silent)
    assert len(attempts) == 3


def test_a_server_gets_its_budget_back() -> None:
    """After a quiet time; else it would not wait any more after a minute of trouble in months."""
    clock = Clock()
    with retrying(clock.retry(1)):
        with pytest.raises(TemporaryError):
            tried("x", Failing(1000, errno.ESTALE))
        clock.now_s += 601
        assert tried("x", Failing(2, errno.ESTALE)) == "it works"


def test_pauses_at_the_same_time_count_once() -> None:
    """Sixty-four requests that are refused at once do not spend sixty-four times the budget."""
    clock = Clock()
    retry = Retry(10, lambda: clock.now_s, lambda _: None, lambda: 1.0)
    assert all(retry.wait(6) for _ in range(64))
    clock.now_s += 3.2
    assert retry.wait(6)
    clock.now_s += 3.2
    assert retry.wait(6)
    clock.now_s += 3.2
    assert retry.wait(6)
    clock.now_s += 3.2
    assert not retry.wait(6)


def test_pauses_differ() -> None:
    """So that readers that were refused together do not come back together."""
    clock = Clock()
    with retrying(clock.retry(60, jitter=0.0)):
        tried("x", Failing(2, errno.EAGAIN))
    assert clock.pauses == [0.025, 0.05]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOENT, errno.EACCES, errno.ENOMEM])
def test_what_lasts_is_not_waited_for(code: int) -> None:
    """A bad sector, and what is missing, is about the file; a lack of memory is about the run."""
    clock = Clock()
    kind = OutOfMemoryError if code == errno.ENOMEM else OSError
    with retrying(clock.retry(60)), pytest.raises(kind):
        tried("x", Failing(1, code))
    assert not clock.pauses


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EMFILE, errno.ENOMEM])
def test_no_error_of_a_file_is_made_of_it(code: int) -> None:
    """Wherever a system call fails that was not tried again."""
    with pytest.raises((TemporaryError, OutOfMemoryError)):
        reading_error(OSError(code, os.strerror(code)), "x")


@pytest.mark.parametrize("error", [TemporaryError("busy"), OutOfMemoryError(), MemoryError()])
def test_it_is_not_the_trouble_of_one_item(error: Exception) -> None:
    """The next item would meet it as well."""
    with pytest.raises(type(error)), contained("x", pytest.fail):
        raise error


def test_what_codecs_say_of_memory() -> None:
    """Only the lack of it is; that a frame wants too much of it is about the frame."""
    assert isinstance(refused(4, "Allocation error : not enough memory"), OutOfMemoryError)
    assert isinstance(refused(4, "Unable to create ZSTD_DCtx instance."), OutOfMemoryError)
    assert isinstance(refused(3, "failed with code: ERROR_allocation_failed"), OutOfMemoryError)
    for words in ("Frame requires too much memory for decoding", "Corrupted block detected"):
        assert isinstance(refused(4, words), CorruptDataError)


def test_a_codec_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """libzstd and liblz4 report it as they report damage."""
    package: Any = zstd._package()
    whole = {
        codec: module.compress(b"x" * 1000, None, 2) for codec, module in ((4, zstd), (3, lz4))
    }

    def no_room(*_: object, **__: object) -> bytes:
        raise package.ZstdError("Unable to decompress Zstandard data: Allocation error : not "
                                "enough memory")  # fmt: skip

    monkeypatch.setattr(zstd, "_decompress_frame", no_room)
    with pytest.raises(OutOfMemoryError, match="zstd") as raised:
        decompress(whole[4], 4, magic=2)
    assert raised.value.exit_code == 7

    def no_context(_: bytes) -> bytes:
        raise RuntimeError("LZ4F_decompress failed with code: ERROR_allocation_failed")

    monkeypatch.setattr("lz4.frame.decompress", no_context)
    monkeypatch.setattr(lz4, "_put", lambda *_: False)
    with pytest.raises(OutOfMemoryError, match="lz4"):
        decompress(whole[3], 3, magic=2)


@pytest.mark.parametrize(
    "words",
    [
        "AWS Error SLOW_DOWN during HeadObject operation: Please reduce your request rate.",
        "AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.",
        "AWS Error UNKNOWN (HTTP status 429) during GetObject operation",
        "AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout",
        "google::cloud::Status(UNAVAILABLE: Retry policy exhausted)",
        "503 Server is busy. ServerBusy",
    ],
)
def test_what_stores_say_when_they_are_busy(words: str) -> None:
    """The words of pyarrow's clients."""
    assert is_busy(words)


@pytest.mark.parametrize(
    "words",
    [
        "AWS Error ACCESS_DENIED during HeadObject operation: No response body.",
        "AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation",
        "AWS Error UNKNOWN (HTTP status 501) during GetObject operation",
        "Could not read 5030 bytes of x/00000000000000000503.log",
    ],
)
def test_what_stores_say_for_good(words: str) -> None:
    """It is about the object."""
    assert not is_busy(words)


class Busy:
    """Makes a store refuse one request with 503, a number of times.

    Attributes:
        asked: how often each request was made.
        refuses: the request to refuse.
        times: how often it is refused.
        status: with what; 0 ends the connection.
    """

    def __init__(self, store: Any) -> None:
        self._answer = store.answer
        self.asked: Counter[tuple[str, str, str]] = Counter()
        self.refuses: tuple[str, str, str] | None = None
        self.times = 0
        self.status = 503
        store.answer = self.answer

    def answer(
        self, method: str, target: str, headers: Mapping[str, str]
    ) -> tuple[int, str, bytes]:
        request = method, target, headers.get("range", "")
        self.asked[request] += 1
        if request == self.refuses and self.times:
            self.times -= 1
            return self.status, "Content-Type: application/xml\r\n", SLOW_DOWN
        return self._answer(method, target, headers)  # type: ignore[no-any-return]


def answer(done: Result) -> bytes:
    """Return what is printed, without the times of the run."""
    return OF_THE_RUN.sub(b"", done.stdout)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OF_STORES)
def test_a_busy_store_changes_no_answer(
    name: str, kafkalog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is refused once, and for good: the same answer, or status 3 that says why.

    Nothing is printed that the whole answer lacks.
    """
    to = tmp_path / "to"
    # The client's own waiting takes a second.
    monkeypatch.setitem(bucket_options.RETRIES, "max_retries", 0)
    objects = {
        f"d/{path.relative_to(LOG_DIR)}": path.read_bytes()
        for path in LOG_DIR.rglob("*")
        if path.is_file()
    }
    with counted_store(objects) as store:
        busy = Busy(store)
        uri = object_store.normalize(store.uri("d"))
        line = [word.format(dir=uri, broker=uri, to=to) for word in OF_STORES[name]]

        def run() -> Result:
            object_store.forget()
            shutil.rmtree(to, ignore_errors=True)
            for path in (to, to.with_suffix(".parquet")):
                path.unlink(missing_ok=True)
            with monkeypatch.context() as patch:
                repeatable(patch)
                return ran(kafkalog, line)

        whole = run()
        assert whole.status in (0, 1, 8), whole
        requests = sorted(busy.asked)
        assert requests
        for request in sampled(requests, 24):
            busy.refuses = request
            for times, busy.status in ((1, 503), (1 << 30, 503), (1, 0)):
                busy.times = times
                done = run()
                same = (done.status, answer(done)) == (whole.status, answer(whole))
                assert same or (
                    times > 1 and done.status == 3 and "error: temporary" in done.stderr
                ), (request, times, done)
                more = lines_of(done) - lines_of(whole)
                assert same or not more, (request, done)


def test_an_object_that_is_replaced(kafkalog: Run) -> None:
    """Between its listing and the reading of it: an error, or all of the new one."""
    data = (LOG_DIR / "orders-0" / "00000000000000000000.log").read_bytes()
    name = "d/orders-0/00000000000000000000.log"
    with counted_store({name: data}) as store:
        object_store.normalize(store.uri("d"))
        path = f"s3://logs/{name}"
        with Source(path) as source:
            assert not source.has_changed()
        object_store.forget()
        listed = store.answer

        def replaced(
            method: str, target: str, headers: Mapping[str, str]
        ) -> tuple[int, str, bytes]:
            if method != "LIST" and target.partition("?")[0].endswith(".log"):
                store.objects[name] = data[: len(data) // 3]
                store.changed()
            return listed(method, target, headers)

        store.answer = replaced  # type: ignore[method-assign]
        for words in (("dump-segment", "--format", "ndjson"), ("verify",), ("find", "--key", "x")):
            store.objects[name] = data
            store.changed()
            object_store.forget()
            done = kafkalog(words[0], store.uri("d/orders-0"), *words[1:])
            assert done.status != 70, done
            assert "Traceback" not in done.stderr


def test_a_store_that_is_not_there(kafkalog: Run) -> None:
    """It is no wrong usage; and as nothing has ever answered, nobody waits for it."""
    with counted_store({}) as store:
        port = store.port
    uri = f"s3://k:s@gone/x?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=eu-central-1"
    with retrying(Retry(60, sleep=pytest.fail)), pytest.raises(UnreadableError):
        Source(uri)
    assert kafkalog("ls", uri).status == 3


LITTLE_MEMORY = """
import re, resource, sys
from kafkalog_cli.main import run
from tests.checkout import ROOT

line = ["export", "--file-format", "ndjson", "--to"]
assert run([*line, sys.argv[1] + "-small", sys.argv[2]]) == 0  # loads all that it needs
used = int(re.search(r"VmSize:\\s*(\\d+)", open("/proc/self/status").read())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20),) * 2)
sys.exit(run([*line, *sys.argv[1::2]]))
"""


def test_an_export_without_memory_is_not_complete(tmp_path: Path) -> None:
    """Else a later run would find it complete, without the records that did not fit."""
    small, large = (
        write_log(
            tmp_path / name / "orders-0",
            batch(payload=compress(record(value=bytes(size)), ZSTD), attributes=ZSTD, count=1),
        )
        for name, size in (("small", 1), ("large", 200 << 20))
    )
    to = tmp_path / "to"
    line = [sys.executable, "-c", LITTLE_MEMORY, to, small.parent, large.parent]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == OutOfMemoryError.exit_code, done.stderr
    assert "Memory ran out" in done.stderr
    assert "damage" not in done.stdout
    assert not (to / "_SUCCESS").exists()
