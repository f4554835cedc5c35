"""Searches in all partitions, compared with Kafka's consumers and with plain searches."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from kafkalog.answers.search.following import follow
from kafkalog.answers.search.run import Search, latest
from kafkalog.answers.search.scanning import records_of
from kafkalog.errors import KafkaLogError, UnreadableError, UsageError
from kafkalog.files.log_dir import open_path
from kafkalog.log.batches.selection import Selection, planned_records
from kafkalog.log.defects import Events
from kafkalog.model import Defect, Record, Severity
from kafkalog.node.reader import plan_reading
from kafkalog.node.targets import open_targets
from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.conftest import state
from tests.kafkalog.test_living_logs import moving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.answers.search.scanning import Found

STATES = ("codecs", "compact-1-first-pass", "internal-topics", "jbod-restarted", "timestamps")


def consumed(expected: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the records that a read_uncommitted consumer received, by partition."""
    for path in sorted((expected / "records").glob("*.ndjson")):
        for line in path.read_text().splitlines():
            yield path.stem, json.loads(line)


def place(found: Found) -> tuple[str, int]:
    return f"{found.topic}-{found.partition}", found.record.offset


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STATES)
def test_a_key_is_found_wherever_consumers_got_it(corpus_dir: Path, name: str) -> None:
    """In all partitions of all log directories: the most frequent keys, and one that is missing."""
    corpus = state(corpus_dir, "kafka-4.3", name)
    rows = list(consumed(corpus.expected))
    keys = [key for key, _ in Counter(row["key"] for _, row in rows).most_common(4)
            if isinstance(key, str)]  # fmt: skip
    for key in (*keys, b"nobody has it".hex()):
        found = library.find(*corpus.log_dirs, key=bytes.fromhex(key), isolation="read_uncommitted")
        wanted = [(where, row["offset"]) for where, row in rows if row["key"] == key]
        assert sorted(map(place, found)) == sorted(wanted), key
    assert keys


def test_values_and_topics(corpus_dir: Path) -> None:
    corpus = state(corpus_dir, "kafka-4.3", "codecs")
    pattern = b"alpha-\\d*7"
    wanted = [
        (where, row["offset"])
        for where, row in consumed(corpus.expected)
        if where.startswith("codec-zstd") and isinstance(row["value"], str)
        and re.search(pattern, bytes.fromhex(row["value"]))
    ]  # fmt: skip
    found = library.find(*corpus.log_dirs, value_regex=pattern, topics=["codec-zstd"], data=True)
    assert [place(one) for one in found if len(one.record.value or b"") <= 1024] == wanted
    assert wanted


def test_the_writer_is_named(corpus_dir: Path) -> None:
    """An admin client reported the transactional id of the producer of each record."""
    corpus = state(corpus_dir, "kafka-4.3", "txn")
    ids = json.loads((corpus.expected / "state.json").read_text())["transactionalIds"]
    for name, fields in ids.items():
        found = list(library.find(*corpus.log_dirs, producer_id=fields["producerId"],
                                  topics=["txn"]))  # fmt: skip
        assert {one.transactional_id for one in found} == {name}
        assert {one.record.batch.producer_id for one in found} == {fields["producerId"]}
    [partition] = [path for path in corpus.partitions() if path.name == "txn-0"]
    alone = library.find(partition, producer_id=ids["txn-tx-a"]["producerId"])
    assert {one.transactional_id for one in alone} == {None}


def broken_batches() -> list[bytes]:
    """Write batches with correct checksums and malformed records between sound ones."""
    good = [record(i, b"k%d" % (i % 3), b"v" * i) for i in range(6)]
    tail = record(5, b"k1", b"v")
    return [
        batch(0, good),
        batch(10, [*good[:3], b"\x7f"], count=4),
        batch(20, [*good, tail[:-1]], count=7),
        batch(30, good, count=9),
        batch(40, good, count=2),
        batch(50, [*good[:4], good[4][:-1] + b"\x02"], count=5),
        batch(60, [record(0, None), record(1, b""), record(2, b"k1", None)]),
        flip(batch(70, good), 8 * 100),
        batch(80, good),
    ]


@pytest.mark.parametrize("key", [b"k1", b"", b"none"])
def test_batches_that_are_skipped_by_their_keys_lose_no_defect(tmp_path: Path, key: bytes) -> None:
    """The kernels report what the reference decoder reports, with or without a match before."""
    log = write_log(tmp_path / "orders-0", *broken_batches())
    plan = plan_reading(str(log), Selection(key=key))

    def seen(found: Iterator[Record | Defect]) -> list[Any]:
        return [
            (one.reference, one.position) if isinstance(one, Defect) else (one.offset, one.value)
            for one in found
        ]

    wanted = seen(planned_records(plan, None))
    assert seen(records_of(plan, None, bulk=True)) == wanted
    assert sum(isinstance(one[0], str) for one in wanted) >= 4


def partition(log_dir: Path, name: str, *batches: bytes) -> Path:
    (log_dir / "meta.properties").parent.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    return write_log(log_dir / name, *batches)


def test_the_latest_are_latest_by_time_over_all_partitions(tmp_path: Path) -> None:
    for number, times in enumerate([(1, 9, 3), (2, 8, 4)]):
        records = [record(i, b"k", b"%d" % t, time_delta=t) for i, t in enumerate(times)]
        partition(tmp_path, f"orders-{number}", batch(0, records, max_time=BASE_TIME + 9))
    search = Search(open_targets([tmp_path]), Selection(key=b"k"))
    found = [one for one in latest(search.found(), 3) if not isinstance(one, Defect)]
    assert [one.record.value for one in found] == [b"4", b"8", b"9"]


def test_of_several_copies_the_most_complete_one_is_searched(tmp_path: Path) -> None:
    one, two = (batch(i, [record(0, b"k", b"%d" % i)]) for i in range(2))
    partition(tmp_path / "1", "orders-0", one)
    partition(tmp_path / "2", "orders-0", one, two)
    paths = tmp_path / "1", tmp_path / "2"
    assert [item.record.offset for item in library.find(*paths, key="k")] == [0, 1]
    assert [item.record.offset for item in library.find(*paths, key="k", replicas="all")] == [
        0, 0, 1,
    ]  # fmt: skip
    with pytest.raises(UsageError, match="is not known"):
        list(library.find(*paths, key="k", replicas="some"))


def test_a_log_that_cannot_be_read_does_not_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a-0", "b-0", "c-0"):
        partition(tmp_path, name, batch(0, [record(0, b"k")]))
    from kafkalog.answers.search import scanning

    def unreadable(target: Any, selection: Selection) -> Any:
        if target.partition.topic == "b":
            raise UnreadableError("Input/output error", path=target.partition.path)
        return plan(target, selection)

    plan = scanning.plan_of
    monkeypatch.setattr(scanning, "plan_of", unreadable)
    events = Events()
    search = Search(open_targets([tmp_path]), Selection(key=b"k"), listener=events)
    assert [one.topic for one in search.found() if not isinstance(one, Defect)] == ["a", "c"]
    assert [error.path for error in events.heard if isinstance(error, UnreadableError)] == [
        str(tmp_path / "b-0")
    ]


@pytest.mark.parametrize("begins", [False, True])
def test_a_topic_created_again_is_searched(tmp_path: Path, begins: bool) -> None:
    """A warning says that the answer mixes two topics, unless nothing of the old one was read."""
    old, place = moving(tmp_path)
    events = Events()
    search = Search(open_targets([tmp_path / "one", tmp_path / "other"]), Selection(),
                    listener=events)  # fmt: skip
    found = search.found() if search.logs else iter(())
    offsets = [one.record.offset for _, one in zip(range(begins), found, strict=False)
               if not isinstance(one, Defect)]  # fmt: skip
    Path(old.path).rename(tmp_path / "gone")
    write_log(place, batch(7, [record(0), record(1)]))
    (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {'B' * 21}A")
    offsets += [one.record.offset for one in found if not isinstance(one, Defect)]
    assert offsets == ([0, 7, 8] if begins else [7, 8])
    told = [(one.reference, one.severity) for one in events.heard if isinstance(one, Defect)]
    assert told == ([("deleted-while-reading", Severity.WARNING)] if begins else [])
    assert not [one for one in events.heard if isinstance(one, KafkaLogError)]


def test_a_topic_created_again_is_searched_where_it_has_copies(tmp_path: Path) -> None:
    """With the one warning of a topic with one copy, not one for each part that is gone."""
    places = [tmp_path / name / "orders-0" for name in ("one", "other")]
    for place in places:
        for base in range(3):
            write_log(place, batch(base, [record()]), name=f"{base:020}")
        (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {'A' * 21}Q")
    events = Events()
    search = Search(open_targets(place.parent for place in places), Selection(), listener=events)
    found = search.found()
    first = next(found)
    for place in places:
        shutil.rmtree(place)
        write_log(place, batch(7, [record(0), record(1)]))
        (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {'B' * 21}A")
    offsets = [one if isinstance(one, Defect) else one.record.offset for one in (first, *found)]
    assert offsets == [0, 7, 8]
    assert [one.reference for one in events.defects] == ["deleted-while-reading"]


def test_new_records_are_found_as_they_come(tmp_path: Path) -> None:
    """Records that are appended, in a new segment or in a new partition: each is found once."""
    first = partition(tmp_path, "orders-0", batch(0, [record(0, b"k", b"old"), record(1, b"x")]))

    def appended() -> Iterator[None]:
        with first.open("ab") as log:
            log.write(batch(2, [record(0, b"x"), record(1, b"k", b"new")]))
        yield
        write_log(first.parent, batch(4, [record(0, b"k", b"rolled")]), name=f"{4:020d}")
        yield
        yield
        partition(tmp_path, "orders-1", batch(0, [record(0, b"k", b"other")]))
        yield

    steps = appended()
    search = Search([open_path(str(tmp_path))], Selection(key=b"k"))
    found = follow(search, wait=lambda: next(steps))
    seen = []
    for one in found:
        assert not isinstance(one, Defect)
        seen.append((*place(one), one.record.value))
        if len(seen) == 4:
            break
    assert seen == [
        ("orders-0", 0, b"old"), ("orders-0", 3, b"new"), ("orders-0", 4, b"rolled"),
        ("orders-1", 0, b"other"),
    ]  # fmt: skip
