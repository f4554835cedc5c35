"""Logs in a bucket give what the same files on disk give."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.answers.anatomy.dissect import dissect, place_of
from kafkalog.errors import (
    FileChangedError,
    NotAKafkaFileError,
    NotFoundError,
    TemporaryError,
    UnreadableError,
    UnsupportedError,
    UsageError,
)
from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.io.paths import buckets, file_system, object_cache, object_store, uris
from kafkalog.io.paths.reading import reading
from kafkalog.io.paths.retry import Retry, retrying
from kafkalog.io.paths.source import Source, read_file
from tests.conftest import state
from tests.counted_store import MODIFIED, counted_store
from tests.stores import BUCKET, KEY, SECRET, Store, hanging_up, running_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ASKED = "to object stores, "
STATES = ["codecs", "txn-v0", "crash-1-torn"]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as store:
        yield store


@pytest.fixture(scope="module")
def log_dir(corpus_dir: Path, store: Store) -> Path:
    """A broker's log directory, also stored in the bucket as `codecs`."""
    [path] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    store.upload(path, "codecs")
    return path


def _without_times(text: str) -> str:
    """Remove file times, as an upload gives files a new one."""
    return re.sub(r'"modified_timestamp":\d+', '"modified_timestamp":0', text)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STATES)
def test_a_bucket_says_what_a_disk_says(
    name: str, corpus_dir: Path, tmp_path: Path, store: Store, kafkalog: Callable[..., Any]
) -> None:
    """All rows, findings and statuses are equal, except for paths and modification times."""
    [unpacked] = state(corpus_dir, "kafka-4.3", name).log_dirs
    path = tmp_path / name
    # A store knows no holes, which `ls` leaves out of the size of an index.
    subprocess.run(["cp", "-a", "--sparse=never", unpacked, path], check=True)
    store.upload(path, name)
    for words in (
        ["ls", "--files", "--format", "ndjson"],
        ["ls", "--segments", "--format", "ndjson"],
        ["verify", "--level", "deep", "--format", "ndjson", "-q"],
    ):
        here = kafkalog(*words, path)
        there = kafkalog(*words, store.uri(name))
        expected = here.stdout.decode().replace(str(path), f"s3://{BUCKET}/{name}")
        assert _without_times(there.stdout.decode()) == _without_times(expected)
        assert len(expected) > 200
        assert there.status == here.status
        assert SECRET not in there.stderr
        assert KEY not in there.stderr + there.stdout.decode()


def test_partitions_and_single_logs(
    log_dir: Path, store: Store, kafkalog: Callable[..., Any]
) -> None:
    """Compares the records and their positions."""
    partition = max(
        (path.parent for path in log_dir.glob("*-0/*.log")),
        key=lambda path: sum(file.stat().st_size for file in path.glob("*.log")),
    )
    log = min(partition.glob("*.log"))
    for words, path, options in (
        (["dump-segment", "--format", "ndjson"], partition, []),
        (["dump-segment", "--format", "ndjson", "--batches"], log, []),
        (["dump-segment", "--format", "ndjson"], log.with_suffix(".timeindex"), []),
        (["lookup-offset", "--format", "ndjson", "--show"], partition, ["1", "--timestamp", "0"]),
        (["kafka-dump-log", "--print-data-log", "--files"], log, []),
    ):
        name = path.relative_to(log_dir)
        here = kafkalog(*words, path, *options)
        there = kafkalog(*words, store.uri(f"codecs/{name}"), *options)
        expected = here.stdout.decode().replace(str(log_dir), f"s3://{BUCKET}/codecs")
        assert there.stdout.decode() == expected
        assert len(expected) > 100
        messages = [line for line in there.stderr.splitlines() if ASKED not in line]
        assert (there.status, messages) == (here.status, here.stderr.splitlines())


def test_exports_are_the_same(
    log_dir: Path, store: Store, tmp_path: Path, kafkalog: Callable[..., Any]
) -> None:
    """Byte for byte, except for where the data came from; no secret is in the files."""
    for source, to in ((log_dir, "here"), (store.uri("codecs"), "there")):
        done = kafkalog("export", source, "--to", tmp_path / to, "-q")
        assert done.status == 0, done.stderr
    written = {
        to: {
            str(path.relative_to(tmp_path / to)): path.read_bytes()
            for path in (tmp_path / to).rglob("*")
            if path.is_file()
        }
        for to in ("here", "there")
    }
    assert written["here"].keys() == written["there"].keys()
    tables = [name for name in written["here"] if name.endswith(".parquet")]
    assert len(tables) > 3
    assert all(written["here"][name] == written["there"][name] for name in tables)
    assert not any(SECRET.encode() in data for data in written["there"].values())


def test_no_export_into_its_source(
    log_dir: Path, store: Store, kafkalog: Callable[..., Any]
) -> None:
    """As on disk: a reading command never writes into its source."""
    assert log_dir
    found = kafkalog("export", store.uri("codecs"), "--to", store.uri("codecs/lake"))
    assert found.status == UsageError.exit_code
    assert "lies inside the source" in found.stderr


def test_profiles_are_the_same(log_dir: Path, store: Store, kafkalog: Callable[..., Any]) -> None:
    """Compares all counts."""
    words = ["profile", "--format", "ndjson", "-q"]
    here, there = kafkalog(*words, log_dir), kafkalog(*words, store.uri("codecs"))
    expected = here.stdout.decode().replace(str(log_dir), f"s3://{BUCKET}/codecs")
    assert there.stdout.decode() == expected
    assert len(expected) > 1000


def test_what_is_not_there(log_dir: Path, store: Store, kafkalog: Callable[..., Any]) -> None:
    """One line names the path: for objects, directories and buckets, without delay."""
    partition = next(path.name for path in log_dir.iterdir() if path.is_dir())
    for uri, shown in (
        (store.uri("codecs/none-0"), f"s3://{BUCKET}/codecs/none-0"),
        (store.uri("codecs/none-0/00000000000000000000.log"), "codecs/none-0/0000"),
        (store.uri("codecs", "no-such-bucket"), "s3://no-such-bucket/codecs"),
    ):
        found = kafkalog("ls", uri)
        assert found.status == NotFoundError.exit_code
        assert "error: path-not-found" in found.stderr
        assert shown in found.stderr
        assert "Traceback" not in found.stderr
    with pytest.raises(NotFoundError):
        Source(store.uri("codecs/none"))
    with pytest.raises(NotAKafkaFileError):
        Source(store.uri(f"codecs/{partition}"))


def test_a_server_that_goes_away(log_dir: Path) -> None:
    """It stops in the middle of a file: an error with the position, no hang."""
    data = max((path.read_bytes() for path in log_dir.glob("*/*.log")), key=len) * 50
    with running_store() as store:
        store.put("a-0/00000000000000000000.log", data)
        with Source(store.uri("a-0/00000000000000000000.log")) as source:
            assert source.read(0, 100) == data[:100]
            store.stop()
            port = int(store.endpoint.rpartition(":")[2])
            never = retrying(Retry(0))  # only the client itself asks again
            with hanging_up(port) as tried, never, pytest.raises(TemporaryError) as raised:
                source.read(len(data) - 100, 100)
    assert raised.value.path == f"s3://{BUCKET}/a-0/00000000000000000000.log"
    assert "\n" not in raised.value.message
    assert 0 < len(tried) < 10


def test_a_server_that_is_not_there(kafkalog: Callable[..., Any]) -> None:
    """One line reports it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # without `listen`, it refuses connections
        port = unused.getsockname()[1]
        uri = f"s3://{KEY}:{SECRET}@{BUCKET}/x?endpoint_override=127.0.0.1%3A{port}&scheme=http"
        found = kafkalog("verify", uri)
    assert found.status == UnreadableError.exit_code
    assert f"s3://{BUCKET}/x" in found.stderr
    assert SECRET not in found.stderr
    assert "Traceback" not in found.stderr


def test_reads_are_those_of_a_file(tmp_path: Path, store: Store) -> None:
    """For any sizes in any order; a read past the end returns nothing."""
    data = bytes(range(256)) * 9000 + bytes(70_000)
    (tmp_path / "file").write_bytes(data)
    store.put("plain", data)
    with Source(str(tmp_path / "file")) as here, Source(store.uri("plain")) as there:
        assert there.size_bytes == there.stored_bytes == len(data)
        assert there.path == f"s3://{BUCKET}/plain"
        for position, size in (
            (0, 10), (10, 100_000), (5, 5), (2_000_000, 4096), (1, len(data)), (len(data), 1),
            (len(data) - 3, 10), (700_000, 1 << 20),
        ):  # fmt: skip
            assert there.read(position, size) == here.read(position, size)
        for position in (0, len(data) - 70_000, len(data) - 70_001, len(data)):
            assert there.is_zero_from(position) == here.is_zero_from(position)
        assert there.next_data(17) == 17
        with pytest.raises(UnreadableError):
            there.read_into(len(data) - 1, memoryview(bytearray(2)))
    with reading(rate_limit=1 << 30):
        assert read_file(store.uri("plain")) == data


def test_empty_objects(store: Store) -> None:
    """Empty objects are like empty files."""
    store.put("empty-0/00000000000000000000.txnindex", b"")
    with Source(store.uri("empty-0/00000000000000000000.txnindex")) as source:
        assert source.read(0, 10) == b""
        assert source.is_zero_from(0)


def test_a_log_dir_is_listed_with_few_requests(
    log_dir: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is not one request per partition."""
    asked = []
    for name in ("list_below", "list_children"):
        method = getattr(buckets.Bucket, name)

        def counted(self: buckets.Bucket, path: str, method: Any = method) -> Any:
            asked.append(path)
            return method(self, path)

        monkeypatch.setattr(buckets.Bucket, name, counted)
    object_store._listings.clear()
    found = open_path(store.uri("codecs"))
    assert isinstance(found, LogDirListing)
    here = open_path(str(log_dir))
    assert isinstance(here, LogDirListing)
    assert [one.name for one in found.partitions] == [one.name for one in here.partitions]
    assert len(asked) <= 2 < len(found.partitions)


def test_a_check_opens_each_side_file_once(
    log_dir: Path, store: Store, kafkalog: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several checks use an index or a checkpoint, but each request costs money and time."""
    opened: Counter[str] = Counter()
    read = buckets.Bucket._read

    def counted(self: buckets.Bucket, path: str, *place: Any) -> Any:
        opened[path] += 1
        return read(self, path, *place)

    monkeypatch.setattr(buckets.Bucket, "_read", counted)
    object_store.forget()
    here = kafkalog("verify", "--level", "quick", log_dir)
    there = kafkalog("verify", "--level", "quick", store.uri("codecs"))
    assert there.status == here.status
    small = {
        str(path.relative_to(log_dir))
        for path in log_dir.rglob("*")
        if path.is_file() and path.suffix != ".log"  # which two may open at the same time
    }
    asked = {path.partition(f"{BUCKET}/codecs/")[2]: count for path, count in opened.items()}
    assert len(asked) > 20
    assert {key: count for key, count in asked.items() if key in small and count > 1} == {}


def test_a_small_object_that_is_replaced_is_read_again(store: Store) -> None:
    """A new listing shows another time or size."""
    name = "replaced-0/leader-epoch-checkpoint"
    for content in (b"0\n1\n0 0\n", b"0\n1\n0 17\n", b"0\n1\n1 170\n"):
        store.put(name, content)
        object_store.forget()
        with Source(store.uri(name)) as source:
            assert source.read(0, source.size_bytes) == content


def test_an_object_that_is_replaced_by_one_of_the_same_size() -> None:
    """Each request says which object it is about, also when the replacement is as old."""
    name, size = "same-0/00000000000000000000.log", 1 << 20
    with counted_store({name: b"a" * size}) as store:
        object_store.prefetch_listing(store.uri("same-0"))
        with Source(store.uri(name)) as source:
            assert source.read(0, 10) == b"a" * 10
        assert store.counts == {"LIST": 1, "GET": 1}
        store.objects[name] = b"b" * size
        with (
            pytest.raises(FileChangedError, match="was replaced after it was listed"),
            Source(store.uri(name)) as source,
        ):
            source.read(0, 10)
        opened = object_store.open_object(store.uri(name))
        assert opened.read_at(0, 10) == b"b" * 10
        store.objects[name], store.modified[name] = b"c" * size, MODIFIED + 2
        with pytest.raises(FileChangedError):
            opened.read_at(10, 10)
    object_store.forget()


def test_kept_contents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest contents are dropped first."""
    monkeypatch.setattr(object_cache, "CONTENTS_SIZE_MAX", 100)
    contents = object_cache.Contents()

    def version(number: int, size: int = 10) -> object_cache.Version:
        return f"s3://bucket/{number}", buckets.Listed(size, 1, None)

    for number in range(30):
        contents.keep(version(number), bytes(10))
    kept = [number for number in range(30) if contents.get(version(number))]
    assert kept == list(range(20, 30))
    contents.keep(version(29), bytes(10))
    assert contents.get(version(20)) is not None
    contents.keep(version(30, 1), bytes(1))
    assert contents.get(version(20)) is None, "101 bytes are one too many"
    assert contents.get(version(21)) is not None


@pytest.mark.parametrize(
    "words",
    [
        ["compact", "{}"], ["compact", "{}", "--to", "copy"], ["rebuild-index", "{}"],
        ["recover", "{}", "--apply", "--yes"], ["retention", "{}", "--apply"], ["undo", "{}"],
        ["salvage", "{}", "--to", "rescued"],
    ],
    ids=lambda words: "-".join([words[0], *words[2:3]]),
)  # fmt: skip
def test_what_writes_is_refused(
    words: list[str], log_dir: Path, store: Store, kafkalog: Callable[..., Any]
) -> None:
    """The error says what to do instead, and shows no credentials."""
    assert log_dir
    found = kafkalog(*(word.replace("{}", store.uri("codecs")) for word in words))
    assert found.status == UsageError.exit_code
    assert "hint: Copy the log directory" in found.stderr
    assert SECRET not in found.stderr


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("gs://anonymous@bucket/x?endpoint_override={}&scheme=http&retry_limit_seconds=1",
         "gs://bucket/x"),
        ("abfs://account:c2VjcmV0@{}/container/x?enable_tls=false", "/container/x"),
    ],
    ids=["gs", "abfs"],
)  # fmt: skip
def test_other_stores_that_are_not_there(
    uri: str, shown: str, kafkalog: Callable[..., Any]
) -> None:
    """They are reported as well, at once: a store that never answered is not asked again."""
    found = kafkalog("ls", uri.format("127.0.0.1:9"))
    assert found.status == UnreadableError.exit_code
    assert found.stderr.startswith("error: path-unreadable\n")
    assert shown in found.stderr
    assert "c2VjcmV0" not in found.stderr
    assert "Traceback" not in found.stderr


def test_without_obstore(kafkalog: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is missing and how to install it."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    found = kafkalog("ls", "s3://bucket-5/x?region=x")
    assert found.status == UnsupportedError.exit_code
    assert "pip install 'kafkalog[data]'" in found.stderr
    with pytest.raises(UnsupportedError):
        Source("s3://bucket-5/x?region=x")


def test_file_uris_are_paths(log_dir: Path, kafkalog: Callable[..., Any]) -> None:
    """They are local paths."""
    assert kafkalog("ls", f"file://{log_dir}").stdout == kafkalog("ls", log_dir).stdout
    assert read_file(f"file://{log_dir}/meta.properties")


def test_settled_paths() -> None:
    """Normalized paths have no options or credentials, but keep what identifies the account."""
    assert file_system.normalize("/a/b") == "/a/b"
    assert file_system.normalize("s3://bucket/a/") == "s3://bucket/a"
    assert file_system.normalize("s3://k:s@bucket-2/a?region=x") == "s3://bucket-2/a"
    assert (
        file_system.normalize(file_system.normalize("gs://anonymous@bucket-3/a"))
        == "gs://bucket-3/a"
    )
    abfs = "abfs://logs{}@account.dfs.core.windows.net/a"
    assert file_system.normalize(abfs.format(":secret")) == abfs.format("")
    assert "s3://k:s@bucket-2?region=x" in file_system.registered_uris()
    assert file_system.absolute("s3://bucket/a") == "s3://bucket/a"
    assert uris.without_credentials("s3://key:se/cret@bucket/a") == "s3://bucket/a"


@pytest.mark.parametrize("wrong", ["http://x/y", "hdfs://x/y", "s3://", "gs:///x"])
def test_other_places_are_refused(wrong: str) -> None:
    """The error lists the places that are supported."""
    with pytest.raises(UsageError):
        open_path(wrong)


def test_options_that_are_not_known_are_refused(kafkalog: Callable[..., Any]) -> None:
    """The error names them."""
    found = kafkalog("ls", "s3://key:secret@bucket-4/x?nonsense=1")
    assert found.status == UsageError.exit_code
    assert "nonsense" in found.stderr


def test_the_anatomy_of_an_object_is_that_of_the_file(log_dir: Path, store: Store) -> None:
    """Also for the target of an index entry, and for the batch of an offset."""
    partition = min(path for path in log_dir.iterdir() if path.name.startswith("codec-"))
    names = [path.name for path in partition.iterdir()][:8]
    for what in (*names, "@30", f"{'0' * 20}.log@100"):
        separator = "" if what.startswith("@") else "/"
        here = dissect(*place_of(f"{partition}{separator}{what}"), 2)
        name, at, place = f"{separator}{what}".partition("@")
        there = dissect(*place_of(store.uri(f"codecs/{partition.name}{name}") + at + place), 2)
        assert [replace(one, path="") for one in there] == [replace(one, path="") for one in here]
