"""What is announced is fetched ahead of its reader: few requests, side by side, whatever fails."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from kafkalog.io.paths import announced, file_system, object_store
from kafkalog.io.paths.object_cache import CONTENT_SIZE_MAX
from kafkalog.io.paths.requests import requests_counted
from kafkalog.io.paths.source import Source
from tests.builders import BASE_TIME, batch, record
from tests.counted_store import CountedStore, Faults, counted_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., Any]

PARTITIONS, SEGMENTS, RECORDS = 80, 5, 4
ALL = PARTITIONS * SEGMENTS
ROWS = [
    (f"orders-{number // 10}", number % 10, offset, f"{number}/{offset}".encode())
    for number in range(PARTITIONS)
    for offset in range(SEGMENTS * RECORDS)
]
"""What a consumer gets: topic, partition, offset, value."""
TROUBLE = {"busy": 0.05, "cut": 0.01, "dropped": 0.005}


def log_dir() -> dict[str, bytes]:
    """Return the objects of a log directory that was closed cleanly, of many small segments."""
    names = [f"orders-{number // 10} {number % 10}" for number in range(PARTITIONS)]
    ends = "".join(f"{name} {SEGMENTS * RECORDS}\n" for name in names)
    noted = f"0\n{PARTITIONS}\n{ends}".encode()
    found = {
        "logs/.kafka_cleanshutdown": b'{"version":0,"brokerEpoch":1}',
        "logs/meta.properties": b"version=1\ncluster.id=c\nnode.id=1\n",
        "logs/recovery-point-offset-checkpoint": noted,
        "logs/replication-offset-checkpoint": noted,
        "logs/log-start-offset-checkpoint": b"0\n0\n",
        "logs/cleaner-offset-checkpoint": b"0\n0\n",
    }
    for number in range(PARTITIONS):
        directory = f"logs/orders-{number // 10}-{number % 10}"
        found[f"{directory}/leader-epoch-checkpoint"] = b"0\n1\n0 0\n"
        for base in range(0, SEGMENTS * RECORDS, RECORDS):
            found[f"{directory}/{base:020d}.log"] = batch(
                base,
                [record(i, b"key", f"{number}/{base + i}".encode()) for i in range(RECORDS)],
                base_time=BASE_TIME,
            )
            found |= {f"{directory}/{base:020d}.{kind}": b"" for kind in ("index", "timeindex")}
    return found


@pytest.fixture(scope="module")
def running() -> Iterator[CountedStore]:
    with counted_store(log_dir(), 0.002) as store:
        yield store


@pytest.fixture
def store(running: CountedStore) -> Iterator[CountedStore]:
    """The log directory in a store of which nothing is known."""
    object_store.forget()
    running.forget()
    running.faults = Faults()
    yield running
    running.faults = Faults()
    running.release()


COMMANDS = {
    "ls": ["ls", "{}", "--format", "ndjson"],
    "verify": ["verify", "--level", "quick", "{}", "--format", "ndjson"],
    "sql": ["sql", "-c", "SELECT count(*) AS n FROM records", "{}", "--format", "ndjson"],
    "find": ["find", "{}", "--key", "key", "--format", "ndjson"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_requests_are_few_and_side_by_side(name: str, store: CountedStore, kafkalog: Run) -> None:
    """One for each object that is read, and one for a thousand names; some wait for each other."""
    store.gather(8, r"orders-5-\d/.*\.log$")
    done = kafkalog(*(word.format(store.uri("logs")) for word in COMMANDS[name]))
    assert done.status in (0, 1), done.stderr
    assert store.at_once_max >= 8
    read = [key for kind, key in store.asked if kind == "GET"]
    logs = [key for key in read if key.endswith(".log")]
    assert len(logs) == len(set(logs)) == (PARTITIONS if name == "ls" else ALL)
    assert store.counts["HEAD"] == 1
    assert store.counts["LIST"] <= 1 + 2 * -(-len(store.objects) // 1000)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if name == "sql":
        assert lines == [{"n": len(ROWS)}]
    if name == "find":
        assert sum("offset" in one for one in lines) == len(ROWS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_trouble_changes_no_answer(name: str, store: CountedStore, kafkalog: Run) -> None:
    """A store that is busy, cuts answers and drops connections gives the same rows."""
    words = [word.format(store.uri("logs")) for word in COMMANDS[name]]
    whole = kafkalog(*words)
    object_store.forget()
    store.forget()
    store.faults = Faults(**TROUBLE)
    done = kafkalog(*words)
    assert (done.status, done.stdout) == (whole.status, whole.stdout)
    assert len(store.asked) > len({key for _, key in store.asked}), "nothing was asked again"


def exported(to: Path) -> list[tuple[Any, ...]]:
    columns = ["topic", "partition", "offset", "value"]
    table = ds.dataset(to, partitioning="hive", exclude_invalid_files=True).to_table(columns)
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_an_export_meets_trouble_and_a_denied_object(
    store: CountedStore, tmp_path: Path, kafkalog: Run
) -> None:
    """The object is named, with status 3; the next run completes the files."""
    denied = f"orders-3-4/{2 * RECORDS:020d}.log"
    store.faults = Faults(**TROUBLE, denied=denied)
    line = ["export", store.uri("logs"), "--to", tmp_path / "lake", "-q"]
    done = kafkalog(*line)
    assert done.status == 3, done.stderr
    assert f"s3://logs/logs/{denied}" in done.stderr
    assert "403" in done.stderr
    store.faults = Faults(**TROUBLE)
    store.forget()
    done = kafkalog(*line)
    assert done.status == 0, done.stderr
    assert exported(tmp_path / "lake") == ROWS
    logs = {key for kind, key in store.asked if kind == "GET" and key.endswith(".log")}
    # Only the part that failed is read again; its last segment by the plan.
    assert logs >= {f"logs/{denied}"}
    assert len(logs) <= PARTITIONS + SEGMENTS - 1


@pytest.fixture
def objects() -> Iterator[CountedStore]:
    small = {f"x/{number:03d}": b"%03d" % number for number in range(400)}
    with counted_store({**small, "x/large": bytes(range(256)) * 1024}) as store:
        object_store.prefetch_listing(store.uri("x"))
        store.forget()
        yield store
    object_store.forget()


def read(path: str) -> bytes:
    with Source(path) as source:
        return source.read(0, source.size_bytes)


def test_no_more_is_fetched_than_a_window(objects: CountedStore) -> None:
    """It moves on with the reader; what nobody reads is not fetched for ever."""
    paths = [f"s3://logs/x/{number:03d}" for number in range(400)]
    with file_system.announced((path, 0) for path in paths):
        assert read(paths[0]) == b"000"
        assert len(objects.asked) <= announced.AHEAD_MAX
        for number in (1, 2, 7, 100, 90):
            assert read(paths[number]) == b"%03d" % number
        assert len(objects.asked) <= announced.AHEAD_MAX + 100
        assert read(paths[399]) == b"399"
        assert read(paths[3]) == b"003"
    asked = len(objects.asked)
    assert len(set(objects.asked)) == asked
    assert not announced._active
    assert read(paths[3]) == b"003"
    assert len(objects.asked) == asked


def test_pieces_of_larger_objects(objects: CountedStore) -> None:
    """The first piece is fetched ahead, or the last; the rest when it is wanted."""
    data = objects.objects["x/large"]
    for position in (0, 1 << 17, -1):
        objects.forget()
        object_store._contents.clear()
        with file_system.announced([("s3://logs/x/large", position)]):
            with Source("s3://logs/x/large") as source:
                at = position if position >= 0 else len(data) - 100
                assert source.read(at, 100) == data[at : at + 100]
                assert objects.counts == {"GET": 1}
                assert source.read(0, len(data)) == data
            assert objects.counts["GET"] <= 3
    assert len(data) == 2 * CONTENT_SIZE_MAX


def test_what_is_not_listed_needs_one_request(objects: CountedStore) -> None:
    """As in a task of Spark: the answer says what the object is."""
    object_store.forget()
    paths = [f"s3://logs/x/{number:03d}" for number in range(20)]
    with file_system.announced((path, 0) for path in [*paths, "s3://logs/x/none"]):
        assert [read(path) for path in paths] == [b"%03d" % number for number in range(20)]
        objects.objects["x/000"] = b"new"
        object_store._contents.clear()
        with pytest.raises(FileNotFoundError):
            file_system.stat("s3://logs/x/none")
    assert all(kind == "GET" or key == "x/none" for kind, key in objects.asked if kind != "LIST")


def test_a_bound_of_requests_holds_for_announcements(objects: CountedStore) -> None:
    """They are refused without a word: the reader asks, or not."""
    paths = [f"s3://logs/x/{number:03d}" for number in range(50)]
    with requests_counted() as requests:
        requests.allowed = 10
        with file_system.announced((path, 0) for path in paths):
            assert [read(path) for path in paths[:10]]
        assert not requests.is_exceeded
        assert requests.count == len(objects.asked) == 10


def test_a_replaced_object_is_not_taken(objects: CountedStore) -> None:
    """What is uploaded after the listing is another object, even of the same size."""
    objects.objects["x/001"] = b"new"
    paths = ["s3://logs/x/000", "s3://logs/x/001"]
    with file_system.announced((path, 0) for path in paths), closing(Source(paths[1])) as source:
        assert read(paths[0]) == b"000"
        with pytest.raises(Exception, match="was replaced after it was listed"):
            source.read(0, 3)
