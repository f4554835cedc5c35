"""Buckets: errors, odd names, cut answers, forks, interrupts, and what AWS's tools look at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from hashlib import md5
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from kafkalog.errors import (
    DataError,
    FileChangedError,
    TemporaryError,
    UnreadableError,
    UnsupportedError,
    UsageError,
)
from kafkalog.io.engine import in_order
from kafkalog.io.paths import bucket_options, buckets, file_system, object_store
from kafkalog.io.paths.retry import Retry, retrying
from kafkalog.io.paths.source import Source, read_file
from tests.counted_store import KEY, MODIFIED, SECRET, CountedStore, Faults, counted_store
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

DATA = bytes(range(256)) * 4096
LATE_S = 60.0
"""How late an answer is that nobody waits for."""


@pytest.fixture(scope="module")
def running() -> Iterator[CountedStore]:
    with counted_store({}) as store:
        yield store


@pytest.fixture
def store(running: CountedStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedStore]:
    """A store with one object, `d/log`, of 1 MiB; AWS's variables and files say nothing."""
    running.objects = {"d/log": DATA}
    running.changed()
    running.forget()
    running.faults = Faults()
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    object_store.forget()
    object_store.normalize(running.uri("d"))
    yield running
    object_store.forget()
    buckets._uris.clear()
    buckets._buckets.clear()


def refused(status: int, code: str, text: str) -> Callable[..., tuple[int, str, bytes]]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"

    def answer(method: str, _target: str, _headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        kind = "Content-Type: application/xml\r\n"
        return status, kind, b"" if method == "HEAD" else body.encode()

    return answer


@pytest.mark.parametrize(
    ("status", "code", "kind", "has_hint"),
    [
        (403, "AccessDenied", UnreadableError, True),
        (401, "Unauthorized", UnreadableError, True),
        (400, "ExpiredToken", UnreadableError, True),
        (301, "PermanentRedirect", UnreadableError, True),
        (400, "AuthorizationHeaderMalformed", UnreadableError, True),
        (409, "Conflict", UnreadableError, False),
        (503, "SlowDown", TemporaryError, True),
        (500, "InternalError", TemporaryError, True),
        (429, "TooManyRequests", TemporaryError, True),
        (408, "RequestTimeout", TemporaryError, True),
    ],
)
def test_errors_of_a_store(
    status: int,
    code: str,
    kind: type[DataError],
    has_hint: bool,
    store: CountedStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line with status and code; whether it lasts, or is to be waited for, is in its class."""
    monkeypatch.setitem(bucket_options.RETRIES, "max_retries", 1)
    object_store.prefetch_listing("s3://logs/d")
    monkeypatch.setattr(store, "answer", refused(status, code, "It is so."))
    with retrying(Retry(0)), Source("s3://logs/d/log") as source, pytest.raises(kind) as raised:
        source.read(0, 10)
    error = raised.value
    assert type(error) is kind
    assert error.path == "s3://logs/d/log"
    if status != 301:  # without Location nothing else is looked at
        assert f"HTTP status {status}" in error.message
        assert f"{code}: It is so" in error.message
    assert "\n" not in error.message
    assert "127.0.0.1" not in error.message
    assert (error.hint is not None) == has_hint


def test_what_a_store_is_busy_with_passes(store: CountedStore) -> None:
    """It is asked again, with pauses that differ; the run waits no other way."""
    answer, left = store.answer, [3]

    def busy(method: str, target: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        if left[0]:
            left[0] -= 1
            return refused(503, "SlowDown", "Slow down.")(method, target, headers)
        return answer(method, target, headers)

    store.answer = busy  # type: ignore[method-assign]
    try:
        with retrying(Retry(0)):
            assert read_file("s3://logs/d/log") == DATA
    finally:
        store.answer = answer  # type: ignore[method-assign]


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_answers_that_are_cut(share: float, store: CountedStore) -> None:
    """Neither a listing nor an object lacks anything, however often an answer ends too early."""
    store.objects |= {f"d/{number:05d}/x": b"%d" % number for number in range(3500)}
    store.changed()
    store.faults = Faults(cut=share)
    with retrying(Retry(60, sleep=lambda _: None)):
        object_store.prefetch_listing("s3://logs/d")
        asked = [query for kind, query in store.asked if kind == "LIST"]
        assert len(asked) > 4
        assert any("start-after" in query for query in asked), "it begins from the beginning"
        assert len(file_system.names("s3://logs/d")) == 3501
        assert read_file("s3://logs/d/log") == DATA
        assert read_file("s3://logs/d/03499/x") == b"3499"


def test_a_store_that_knows_no_conditions(
    store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it answers says whether it is the object that was listed."""
    object_store.prefetch_listing("s3://logs/d")
    store.objects["d/log"] = bytes(len(DATA))
    answer = store.answer
    monkeypatch.setattr(store, "answer", lambda method, target, _: answer(method, target, {}))
    with Source("s3://logs/d/log") as source, pytest.raises(FileChangedError):
        source.read_exactly(0, len(DATA))


@pytest.mark.parametrize("name", ["a/./log", "a//log", "a/../log"])
def test_names_that_are_no_paths(name: str, store: CountedStore, kafkalog: Any) -> None:
    """They hide nothing but what is in their own directory; there, the error names them."""
    store.objects |= {f"d/{name}": b"1", "d/b/log": b"2"}
    store.changed()
    object_store.prefetch_listing("s3://logs/d")
    assert file_system.names("s3://logs/d") == ["a", "b", "log"]
    assert read_file("s3://logs/d/b/log") == b"2"
    with pytest.raises(UnreadableError, match="a name that cannot be read") as raised:
        file_system.names("s3://logs/d/a")
    assert "d/a/" in raised.value.message
    found = kafkalog("ls", store.uri("d/a"))
    assert found.status == 3
    assert "Traceback" not in found.stderr


def test_other_odd_names(store: CountedStore) -> None:
    """Nothing is encoded or decoded twice."""
    names = ["a b", "a+b", "a%2Fb", "a%20b", "ä#", "日本", "a&b=c", "~", "-", "a:b", "<a>", "..."]
    store.objects = {f"d/{name}/x": name.encode() for name in names}
    store.changed()
    object_store.prefetch_listing("s3://logs/d")
    for name in names:
        place = f"d/{name}/x"
        assert read_file(f"s3://logs/{place}") == name.encode()


IN_A_CHILD = """
import os, sys
from kafkalog.errors import UnsupportedError
from kafkalog.io.paths.source import read_file

uri = sys.argv[1]
if sys.argv[2] == "before":
    read_file(uri)
child = os.fork()
if not child:
    status = 1
    try:
        status = 0 if len(read_file(uri)) == 1 << 20 else 1
    except UnsupportedError as error:
        print(error.message, error.hint, flush=True)
        status = 5
    os._exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("when", "status"), [("after", "0"), ("before", "5")])
def test_a_process_that_was_forked(when: str, status: str, store: CountedStore) -> None:
    """As PySpark's daemon forks, before it reads anything. Later, it is an error and no hang."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CHILD, store.uri("d/log"), when],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    *words, last = done.stdout.splitlines()
    assert last == status
    assert bool(words) == (when == "before")
    if words:
        assert "was forked from one that had read an object store" in words[0]


def test_an_interrupt_ends_a_request(store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is not heard only when the store answers, nor when all threads have an answer."""
    store.objects |= {f"d/{number}": b"x" for number in range(5)}
    store.changed()
    object_store.prefetch_listing("s3://logs/d")
    monkeypatch.setattr(store, "delay_s", LATE_S)

    def several() -> None:
        store.delay_s = 0.0  # the first is done alone
        paths = ["s3://logs/d/log", *(f"s3://logs/d/{number}" for number in range(5))]
        for _ in in_order(read_file, paths, 4):
            store.delay_s = LATE_S

    def interrupt(late: set[str]) -> None:
        until(lambda: not late.isdisjoint(key for _, key in [*store.asked]))
        os.kill(os.getpid(), signal.SIGINT)

    for call, late in (
        (lambda: read_file("s3://logs/d/log"), {"d/log"}),
        (several, {f"d/{number}" for number in range(5)}),
    ):
        store.forget()
        waiting = threading.Thread(target=interrupt, args=(late,))
        began = time.monotonic()
        waiting.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        assert time.monotonic() - began < LATE_S / 2, "it waited for the answer"
        waiting.join()


def test_what_the_environment_says(store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """`AWS_ENDPOINT_URL_S3` comes before `AWS_ENDPOINT_URL`; a URI before both."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    buckets._uris.clear()
    buckets._buckets.clear()
    here, nowhere = f"http://127.0.0.1:{store.port}", "http://127.0.0.1:9"
    for more in (
        {"AWS_ENDPOINT_URL": here},
        {"AWS_ENDPOINT_URL_S3": here, "AWS_ENDPOINT_URL": nowhere},
    ):
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            monkeypatch.delenv(name, raising=False)
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        buckets._buckets.clear()
        object_store.forget()
        assert read_file("s3://logs/d/log") == DATA
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", nowhere)
    object_store.normalize(f"s3://logs/d?scheme=http&endpoint_override=127.0.0.1:{store.port}")
    assert read_file("s3://logs/d/log") == DATA


@pytest.fixture
def signed(store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Get the access keys, `-` for none, that requests are signed with."""
    found: list[str] = []
    answer = store.answer

    def noted(method: str, target: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        said = headers.get("authorization", "")
        found.append(said.partition("Credential=")[2].partition("/")[0] or "-")
        found.append(said.partition("/")[2].split("/")[1] if said else "-")
        return answer(method, target, headers)

    monkeypatch.setattr(store, "answer", noted)
    buckets._uris.clear()
    buckets._buckets.clear()
    return found


def test_profiles_of_aws(
    store: CountedStore, signed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, region and endpoint of the profile that is named, else of the default one."""
    here = f"http://127.0.0.1:{store.port}"
    (tmp_path / "config").write_text(
        f"[default]\nregion = eu-west-1\nendpoint_url = {here}\n"
        "[profile other]\nregion = eu-north-1\nservices = mine\n"
        f"[services mine]\ns3 =\n  endpoint_url = {here}\n"
    )
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = AKDEFAULT\naws_secret_access_key = s\n"
        "[other]\naws_access_key_id = AKOTHER\naws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert read_file("s3://logs/d/log") == DATA
    assert signed[-2:] == ["AKDEFAULT", "eu-west-1"]
    monkeypatch.setenv("AWS_PROFILE", "other")
    buckets._buckets.clear()
    object_store.forget()
    assert read_file("s3://logs/d/log") == DATA
    assert signed[-2:] == ["AKOTHER", "eu-north-1"]
    monkeypatch.setenv("AWS_PROFILE", "none")
    buckets._buckets.clear()
    object_store.forget()
    with pytest.raises(UsageError, match="none"):
        read_file("s3://logs/d/log")


def test_a_profile_without_botocore(store: CountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, since other keys than those that were meant would be used."""
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    monkeypatch.setenv("AWS_PROFILE", "mine")
    buckets._buckets.clear()
    with pytest.raises(UnsupportedError, match="profile mine"):
        read_file("s3://logs/d/log")
    assert not store.asked


def test_without_credentials(
    store: CountedStore, signed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are not signed, for buckets that everybody may read."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}")
    assert read_file("s3://logs/d/log") == DATA
    assert set(signed) == {"-"}


@pytest.mark.parametrize(
    ("uri", "container", "found"),
    [
        ("abfs://logs@acc.dfs.core.windows.net", "", {"account_name": "acc",
                                                      "container_name": "logs"}),
        ("abfss://logs:a2V5@acc.dfs.core.windows.net", "",
         {"account_name": "acc", "container_name": "logs", "account_key": "a2V5"}),
        ("abfs://:a2V5@acc.blob.core.windows.net", "logs",
         {"account_name": "acc", "container_name": "logs", "account_key": "a2V5"}),
        ("abfs://acc:a2V5@127.0.0.1:10000?enable_tls=false", "logs",
         {"account_name": "acc", "container_name": "logs", "account_key": "a2V5",
          "endpoint": "http://127.0.0.1:10000/acc"}),
        ("abfs://acc@logs?credential_kind=anonymous", "",
         {"account_name": "acc", "container_name": "logs", "skip_signature": True}),
    ],
)  # fmt: skip
def test_places_in_azure(uri: str, container: str, found: dict[str, Any]) -> None:
    """The forms of URIs that pyarrow has."""
    parts = urlsplit(uri)
    options = dict(one.split("=") for one in parts.query.split("&") if one)
    assert bucket_options.has_container_in_path(uri) == bool(container)
    assert bucket_options.of_azure(parts, options, container) == found


def in_azure(store: CountedStore) -> Callable[..., tuple[int, str, bytes]]:
    """Return what answers as Azure does; the etags of its listings have no quotes."""
    answer = store.answer

    def of_azure(method: str, target: str, headers: Mapping[str, str]) -> tuple[int, str, bytes]:
        path, _, query = target.removeprefix("/acc").partition("?")
        asked = dict(parse_qsl(query))
        if asked.get("comp") != "list":
            return answer(method, path, headers)
        store.asked.append(("LIST", query))
        prefix, delimiter = asked["prefix"], asked.get("delimiter", "\0")
        lines = {}
        for name, data in store.objects.items():
            inner, found, _ = name.removeprefix(prefix).partition(delimiter)
            if found and name.startswith(prefix):
                lines[inner] = f"<BlobPrefix><Name>{prefix}{inner}/</Name></BlobPrefix>"
            elif name.startswith(prefix):
                tag = md5(data, usedforsecurity=False).hexdigest()
                lines[name] = (
                    f"<Blob><Name>{name}</Name><Properties><Content-Length>{len(data)}"
                    f"</Content-Length><Last-Modified>{formatdate(MODIFIED, usegmt=True)}"
                    f"</Last-Modified><Etag>{tag}</Etag><Content-Type>x</Content-Type></Properties></Blob>"
                )
        blobs = f"<Blobs>{''.join(lines.values())}</Blobs><NextMarker/>"
        text = f"<EnumerationResults><Prefix>{prefix}</Prefix>{blobs}</EnumerationResults>"
        return 200, "Content-Type: application/xml\r\n", text.encode()

    return of_azure


@pytest.mark.parametrize(
    ("uri", "is_azure"),
    [
        ("gs://anonymous@logs/d?endpoint_override=127.0.0.1:{}&scheme=http", False),
        ("abfs://acc:a2V5@127.0.0.1:{}/logs/d?enable_tls=false", True),
    ],
    ids=["gs", "abfs"],
)
def test_other_kinds_of_stores(
    uri: str, is_azure: bool, store: CountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are listed and read as S3 is, and an object that is replaced is noticed."""
    store.objects |= {"d/a/one": b"1", "d/a/b/two": b"2", "da/no": b"3"}
    store.changed()
    if is_azure:
        monkeypatch.setattr(store, "answer", in_azure(store))
    top = object_store.normalize(uri.format(store.port))
    assert read_file(f"{top}/log") == DATA
    assert file_system.names(top) == ["a", "log"]
    object_store.prefetch_listing(top)
    store.forget()
    with file_system.announced([(f"{top}/a/b/two", 0)]):
        assert file_system.names(f"{top}/a") == ["b", "one"]
        assert read_file(f"{top}/a/b/two") == b"2"
    store.objects["d/a/one"] = b"4"
    with Source(f"{top}/a/one") as source, pytest.raises(FileChangedError):
        source.read(0, 1)
    assert store.counts == {"GET": 2}
