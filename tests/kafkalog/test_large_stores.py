"""Counts requests to a store: planning a log directory of many segments takes few.

Requests are counted, not timed: the layout determines how many are needed.
"""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.stores import BATCHES, PREFIX, log_dir
from kafkalog.errors import FileChangedError, Listener
from kafkalog.files.log_dir import LogDirListing, list_partition, open_partition, open_path
from kafkalog.io.engine import in_order
from kafkalog.io.paths import file_system, object_store
from kafkalog.io.paths.object_cache import CONTENT_SIZE_MAX
from kafkalog.io.paths.source import Source, read_file
from kafkalog.log.batches.segment import offset_at_end
from kafkalog.model import Isolation, LogView, computed_once
from kafkalog.tables import Bounds, Request, plan_splits
from kafkalog.tables.model import TableName
from tests.builders import BASE_TIME, batch, record
from tests.counted_store import CountedStore, counted_store
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARTITIONS, SEGMENTS = 6, 10
FILES = 4 * SEGMENTS + 2
TOP = ("cleaner-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")


@pytest.fixture(scope="module")
def running() -> Iterator[CountedStore]:
    with counted_store({}) as store:
        yield store


@pytest.fixture
def store(running: CountedStore) -> CountedStore:
    """A log directory in the store, closed cleanly, of which nothing is cached."""
    fill(running, log_dir(PARTITIONS, SEGMENTS))
    return running


def fill(store: CountedStore, objects: dict[str, bytes]) -> None:
    store.objects = objects
    store.changed()
    store.forget()
    object_store.forget()


def on_disk(store: CountedStore, to: Path) -> Path:
    for name, data in store.objects.items():
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return to / PREFIX


def asked_of_files(store: CountedStore) -> dict[str, list[str]]:
    """Return the kinds of requests for each object, by name."""
    found: dict[str, list[str]] = {}
    for kind, name in store.asked:
        if kind != "LIST":
            found.setdefault(name.removeprefix(f"{PREFIX}/"), []).append(kind)
    return found


def test_a_plan_looks_at_the_ends_of_logs_only(store: CountedStore) -> None:
    """Two files per partition and three checkpoints; one listing per thousand names."""
    splits = plan_splits([store.uri(PREFIX)], Request(gaps_when_read=True), Listener())
    assert len(splits) == PARTITIONS * SEGMENTS
    last = f"{(SEGMENTS - 1) * BATCHES:020d}"
    asked = asked_of_files(store)
    looked_at = {
        f"topic-0-{number}/{last}.{kind}"
        for number in range(PARTITIONS)
        for kind in ("log", "index")
    }
    del asked[PREFIX]  # what is at the path
    assert looked_at <= set(asked) <= looked_at | set(TOP)
    assert all(kinds == ["GET"] for kinds in asked.values())
    # The top, the first partition, and all names with what is beside them.
    assert store.counts["LIST"] <= 3 + -(-PARTITIONS * FILES // 1000)
    assert len(store.asked) <= 0.6 * len(splits)


@pytest.mark.parametrize(
    "words",
    [
        ["find", "{}", "--key", "key-00", "--limit", "1"],
        ["sql", "-c", 'SELECT max("offset") FROM records WHERE "offset" < 0', "{}"],
    ],
    ids=lambda words: words[0],
)
def test_commands_ask_little_before_they_begin(
    words: list[str], store: CountedStore, kafkalog: Callable[..., Any]
) -> None:
    """At most 1.2 requests of all kinds per segment."""
    done = kafkalog(*(word.replace("{}", store.uri(PREFIX)) for word in words))
    assert done.status == 0, done.stderr
    before = len(store.asked)
    if words[0] == "find":
        data = [name for kind, name in store.asked if f"/{0:020d}.log" in name]
        before = store.asked.index(("GET", data[0]))
    assert 0 < before <= 1.2 * PARTITIONS * SEGMENTS


def test_an_export_reads_each_object_once(
    store: CountedStore, tmp_path: Path, kafkalog: Callable[..., Any]
) -> None:
    """The plan needs few requests; then each log is read in disjoint pieces."""
    done = kafkalog("export", store.uri(PREFIX), "--to", tmp_path / "lake", "-q")
    assert done.status == 0, done.stderr
    logs = {name: kinds for name, kinds in asked_of_files(store).items() if name.endswith(".log")}
    assert len(logs) == PARTITIONS * SEGMENTS
    assert not any(kinds.count("HEAD") for kinds in logs.values())
    size = len(store.objects[f"{PREFIX}/topic-0-0/{0:020d}.log"])
    pieces = -(-size // CONTENT_SIZE_MAX)
    assert all(kinds.count("GET") <= pieces + 2 for kinds in logs.values())


def test_times_are_looked_up_in_time_indexes(store: CountedStore) -> None:
    """They are read only if times are asked for."""
    bounds = Bounds(from_time=BASE_TIME + 2 * BATCHES + 7)
    splits = plan_splits([store.uri(PREFIX)], Request(bounds=bounds))
    asked = {name.rpartition(".")[2] for name in asked_of_files(store)}
    assert "timeindex" in asked
    assert sum(split.size_bytes for split in splits) < sum(
        split.size_bytes for split in plan_splits([store.uri(PREFIX)], Request())
    )


REQUESTS = {
    "all": Request(),
    "to the end": Request(isolation=Isolation.LOG),
    "committed": Request(isolation=Isolation.READ_COMMITTED),
    "small splits": Request(split_bytes=20_000),
    "batches": Request(TableName.BATCHES, split_bytes=60_000),
    "offsets": Request(bounds=Bounds(from_offset=BATCHES + 7, to_offset=3 * BATCHES - 1)),
    "an offset at an edge": Request(bounds=Bounds(from_offset=BATCHES, to_offset=2 * BATCHES)),
    "offsets behind the end": Request(bounds=Bounds(to_offset=SEGMENTS * BATCHES + 1)),
    "times": Request(bounds=Bounds(from_time=BASE_TIME + 60, to_time=BASE_TIME + 99)),
    "times in order": Request(bounds=Bounds(to_time=BASE_TIME + 99, disorder_ms=0)),
    "files": Request(view=LogView.AS_IS),
}


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("wanted", REQUESTS.values(), ids=list(REQUESTS))
@pytest.mark.parametrize("has_empty_end", [False, True], ids=["usual", "empty end"])
def test_splits_in_a_store_are_those_on_a_disk(
    wanted: Request, has_empty_end: bool, running: CountedStore, tmp_path: Path
) -> None:
    """Names and sizes in a listing say what an open file says."""
    objects = log_dir(2, 4)
    if has_empty_end:
        for kind in ("log", "index", "timeindex"):
            objects[f"{PREFIX}/topic-0-1/{4 * BATCHES:020d}.{kind}"] = b""
    fill(running, objects)
    found = []
    for top in (str(on_disk(running, tmp_path)), running.uri(PREFIX)):
        splits = plan_splits([top], wanted)
        bare = file_system.normalize(top)
        places = {"path": "", "log_dir": ""}
        found.append([
            {**one.as_json(), "seen": None, **places, "name": one.path.removeprefix(bare)}
            for one in splits
        ])  # fmt: skip
    assert found[0] == found[1]
    assert found[0]


@pytest.fixture(scope="module")
def lost(running: CountedStore, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same logs on disk and in the store: one lacks a segment, others are only shorter."""
    objects = log_dir(3, 4)
    for number, segment in ((0, 0), (1, 2), (2, 3)):
        for kind in ("log", "index"):
            del objects[f"{PREFIX}/topic-0-{number}/{segment * BATCHES:020d}.{kind}"]
    fill(running, objects)
    return str(on_disk(running, tmp_path_factory.mktemp("lost"))), running.uri(PREFIX)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [
        ["export", "{}", "--to", "{to}", "--format", "json"],
        ["sql", "-c", "SELECT count(*), max(value) FROM records", "{}", "--format", "csv"],
        ["sql", "-c", "SELECT count(*) FROM records", "{}", "--format", "csv"],
        ["find", "{}", "--key", "key-07", "--format", "ndjson"],
    ],
    ids=["export", "sql", "counts", "find"],
)
def test_a_lost_segment_is_told_as_on_a_disk(
    words: list[str], lost: tuple[str, str], tmp_path: Path, kafkalog: Callable[..., Any]
) -> None:
    """The reader of the segment before it reports it. Finding and status are the same."""
    found = []
    for number, path in enumerate(lost):
        to = str(tmp_path / str(number))
        done = kafkalog(*(word.replace("{}", path).replace("{to}", to) for word in words))
        text = done.stdout.decode() + done.stderr
        told = re.findall(r"topic-0-1\S*0192.log|Offsets 96 to 143 are missing", text)
        rows = done.stdout if words[0] == "sql" else len(done.stdout.splitlines())
        found.append((done.status, set(told), rows))
    assert found[0][:2] == found[1][:2]
    assert "Offsets 96 to 143 are missing" in found[0][1]
    if words[0] != "export":  # which tells it with the part
        assert found[0] == found[1]


def test_gaps_that_the_cleaner_left_are_none(
    store: CountedStore, tmp_path: Path, kafkalog: Callable[..., Any]
) -> None:
    """The log itself shows that it is compacted, wherever its segments end."""
    first = [batch(0, [record(0, b"a"), record(1, b"b")], last_delta=4, count=2)]
    second = [batch(10, [record(0, b"c")])]
    fill(
        store,
        {f"{PREFIX}/c-0/{base:020d}.log": b"".join(data)
         for base, data in ((0, first), (10, second))},
    )  # fmt: skip
    done = kafkalog(
        "export", store.uri(PREFIX), "--to", tmp_path / "lake",
        "--format", "json",
    )  # fmt: skip
    assert "offsets-missing" not in done.stdout.decode() + done.stderr
    assert sum(one.get("rows", 0) for one in json.loads(done.stdout) if "file" in one) == 3


def test_the_end_of_what_was_read_needs_no_request(store: CountedStore) -> None:
    """For a log that was not read, one request after opening it is enough."""
    place = store.uri(f"{PREFIX}/topic-0-2/{BATCHES:020d}.log")
    with Source(place) as source:
        assert source.size_bytes > CONTENT_SIZE_MAX
        assert offset_at_end(source) == 2 * BATCHES
    assert store.counts == {"HEAD": 1, "GET": 1}
    with Source(place) as source:
        assert offset_at_end(source) == 2 * BATCHES
        assert source.read(source.size_bytes - 10, 10) == store.objects[_name(source)][-10:]
    assert store.counts == {"HEAD": 1, "GET": 1}


def _name(source: Source) -> str:
    return source.path.removeprefix("s3://logs/")


def test_nothing_is_listed_twice_while_listings_are_held(store: CountedStore) -> None:
    """Afterwards, the next open lists again: each run plans on one listing."""
    uri = store.uri(PREFIX)
    with file_system.listings_held([uri]):
        first = open_path(uri)
        asked = store.counts["LIST"]
        assert open_path(uri) == first
        assert store.counts["LIST"] == asked
    assert isinstance(first, LogDirListing)
    gone = first.partitions[0].files[0].path
    objects = dict(store.objects)
    del objects[gone.removeprefix("s3://logs/")]
    store.objects = objects
    store.changed()
    again = open_path(uri)
    assert isinstance(again, LogDirListing)
    assert len(again.partitions[0].files) == len(first.partitions[0].files) - 1


def test_all_is_listed_at_once(running: CountedStore) -> None:
    """With names as odd as an upload can make them; a thousand names are a request."""
    odd = ["a b", "a+b", "a%2Fb", "ä", "日本", "a&b=c", "a'b", "a;b", "a~b", "-", "a:b", "<a>"]
    names = [*odd, *(f"wide-{number}" for number in range(100))]
    objects = {f"{PREFIX}/{name}/{number:020d}.log": b"" for name in names for number in range(9)}
    objects |= {f"{PREFIX}/long-0/{number:020d}.log": b"x" for number in range(2001)}
    objects |= {f"{PREFIX}/deep-0/{inner}/b": b"xy" for inner in ("in", "in/in", "%")}
    fill(running, {**objects, f"{PREFIX}/meta.properties": b"version=1\n"})
    uri = running.uri(PREFIX)
    object_store.prefetch_listing(uri)
    assert running.counts == {"LIST": -(-len(running.objects) // 1000)}
    found = {}
    waiting = [uri]
    while waiting:
        place = waiting.pop()
        for name, status in file_system.contents(place).items():
            path = f"{file_system.normalize(place)}/{name}"
            if stat.S_ISDIR(status.st_mode):
                waiting.append(path)
            else:
                found[path.removeprefix("s3://logs/")] = status.st_size
    assert found == {name: len(data) for name, data in running.objects.items()}
    assert running.counts["LIST"] == -(-len(running.objects) // 1000)


def test_directories_that_objects_mark(running: CountedStore) -> None:
    """Such an object has a name with a slash at its end, which listings leave out."""
    marks = ("", "orders-0/", "empty-0/", "empty-0/inner-0/", "other/")
    fill(
        running,
        {f"{PREFIX}/{name}": b"" for name in (*marks, "none-0")}
        | {f"{PREFIX}/orders-0/{0:020d}.log": b"x"},
    )
    for prefetched in (False, True):
        object_store.forget()
        if prefetched:
            object_store.prefetch_listing(running.uri(PREFIX))
        names = {
            name
            for name, status in file_system.contents(running.uri(PREFIX)).items()
            if stat.S_ISDIR(status.st_mode)
        }
        assert names >= {"orders-0", "empty-0"}
        assert "none-0" not in names
        assert list(file_system.contents(running.uri(f"{PREFIX}/empty-0"))) == ["inner-0"]
        assert not file_system.contents(running.uri(f"{PREFIX}/empty-0/inner-0"))
        assert list(file_system.contents(running.uri(f"{PREFIX}/orders-0"))) == [f"{0:020d}.log"]


def test_an_object_that_was_replaced_after_its_listing(store: CountedStore) -> None:
    """A reader of part of a replaced log gets an error; small files are read again."""
    partition = open_partition(store.uri(f"{PREFIX}/topic-0-3"))
    log = partition.segments[0].log.path
    epochs = partition.place_of("leader-epoch-checkpoint")
    for path in (log, epochs):
        name = path.removeprefix("s3://logs/")
        store.objects[name] = store.objects[name] * 2
    with Source(log) as source, pytest.raises(FileChangedError) as raised:
        source.read(100, 10)
    assert raised.value.path == log
    list_partition(partition.path)
    assert read_file(epochs) == b"0\n1\n0 0\n" * 2
    with Source(log) as source:  # the directory was listed again
        assert source.size_bytes == 2 * partition.segments[0].log.size_bytes


def test_results_come_in_order_and_several_are_in_progress() -> None:
    """The first task runs alone; each of the others waits until three more are running."""
    together = threading.Barrier(4)

    def work(number: int) -> int:
        if number:
            together.wait(HANG_S)
        return number * number

    assert list(in_order(work, range(9), 4)) == [n * n for n in range(9)]
    assert list(in_order(work, [0, 0], 1)) == [0, 0]


def test_an_error_comes_in_its_place() -> None:
    """Earlier results are returned first, and no task is left running."""

    def work(number: int) -> int:
        if number == 5:
            raise ValueError(number)
        return number

    results = in_order(work, range(100), 8)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="5"):
        next(results)


def test_properties_of_two_objects_are_computed_at_the_same_time() -> None:
    """Each computation waits for the other; Python 3.11 would run one after the other."""
    both = threading.Barrier(2)

    class One:
        @computed_once
        def value(self) -> int:
            both.wait(HANG_S)
            return id(self)

    ones = [One(), One()]
    threads = [threading.Thread(target=lambda one=one: one.value) for one in ones]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert [one.__dict__["value"] for one in ones] == [id(one) for one in ones]
    assert isinstance(One.value, computed_once)


def test_the_benchmark_runs() -> None:
    """It has little to measure here."""
    command = [sys.executable, "-m", "benchmarks.stores", "--partitions", "1", "--segments", "2",
               "--delay", "0", "--only", "^find$"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    *_, row = done.stdout.splitlines()
    assert row.startswith("| `find` |")
