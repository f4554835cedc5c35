"""Readers and checks while a broker appends, rolls, cleans and deletes.

Each row comes once and as appended, none is missing that was there throughout, and no finding.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kafkalog.answers.search.scanning import records_of
from kafkalog.check import moments
from kafkalog.check.verify import Verification
from kafkalog.errors import ChangedSinceError, Event, NotFoundError, ReplacedError
from kafkalog.files.indexes import OffsetIndex, TimeIndex
from kafkalog.files.log_dir import PartitionDir, list_partition, open_partition
from kafkalog.io.jit import fast_path
from kafkalog.log import living
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.batches.selection import Selection
from kafkalog.log.defects import DELETED
from kafkalog.log.living import TRIES_MAX, LivingWalk
from kafkalog.model import Defect, Isolation, Level, Record, Severity, Special
from kafkalog.node.lookup import lookup_special
from kafkalog.node.reader import plan_reading, read_records
from kafkalog.node.scan import Scan
from kafkalog.node.targets import open_targets, partitions_of
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.tables import Request, TableName, plan_splits, read_split
from kafkalog.tables.listeners import Strict
from kafkalog.tables.schemas import table_schema
from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.sampling import sampled
from tests.underneath import Broker, Row, encoded, time_index

SEEDS = range(50)
ID = "A" * 21 + "g"


def by_records(partition: Path) -> list[Row]:
    found = list(read_records(partition))
    assert [one for one in found if isinstance(one, Defect)] == []
    return [(r.offset, r.key or b"", r.value or b"") for r in found if isinstance(r, Record)]


def by_scan(partition: Path) -> list[Row]:
    defects: list[Defect] = []
    columns = ["offset", "key", "value", "path"]
    table = Scan(partition, columns=columns, on_event=defects.append).to_table()
    assert defects == []
    return [(row["offset"], row["key"], row["value"]) for row in table.to_pylist()]


class Losses(Strict):
    """Passes over what is deleted meanwhile."""

    def hear(self, event: Event) -> None:
        if not (isinstance(event, Defect) and event.reference == DELETED):
            super().hear(event)


def by_splits(partition: Path) -> list[Row]:
    """Plan, then read, as a task of an engine does later and elsewhere."""
    schema = table_schema(TableName.RECORDS, ["offset", "key", "value"])
    splits = plan_splits([str(partition)], Request(isolation=Isolation.LOG, split_bytes=600))
    found = [batch.to_pylist() for split in splits for batch in read_split(split, schema, Losses())]
    return [(row["offset"], row["key"], row["value"]) for rows in found for row in rows]


READERS = {"records": by_records, "scan": by_scan, "splits": by_splits}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_readers_give_each_row_once_beside_a_living_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, kernels: bool
) -> None:
    """No row comes twice, none that was there throughout is missing, and no damage is reported."""
    monkeypatch.setattr(fast_path, "is_worth_it", lambda _: kernels)
    for seed in sampled(SEEDS, 3):
        print("seed", seed)
        rng = Random(seed)
        broker = Broker(tmp_path / str(seed), rng)
        for chance in (0.02, 0.1, 0.3):
            before = set(broker.live)
            with broker.at_every_call(monkeypatch, chance):
                rows = READERS[reader](broker.partition)
            broker.require_read(rows, before)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", SEEDS)
def test_verify_finds_nothing_wrong_beside_a_living_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Differences between several moments are no damage."""
    rng = Random(seed)
    broker = Broker(tmp_path / "log-dir", rng)
    for level in Level:
        run = Verification(level)
        with broker.at_every_call(monkeypatch, rng.choice((0.02, 0.1, 0.3))):
            found = list(run.verify(tmp_path / "log-dir"))
        assert [one for one in found if one.severity != Severity.NOTE] == []
        assert run.summary.is_complete


def test_verify_finds_real_damage_beside_a_living_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding that a second reading confirms counts, though files change all the time."""
    broker = Broker(tmp_path / "log-dir", Random(1))
    active = max(broker.partition.glob("*.log"))
    first = min(broker.partition.glob("*.log"))
    first.write_bytes(flip(first.read_bytes(), 8 * 70))
    monkeypatch.setattr(
        "kafkalog.check.moments.look_at_partition", grows(active, moments.look_at_partition)
    )
    run = Verification(Level.DEEP)
    found = list(run.verify(broker.partition))
    assert [one.reference for one in found if one.path == str(first)] == ["batch-crc-mismatch"]


def test_a_partition_that_never_rests_gets_a_note_instead_of_a_false_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading meets a torn append elsewhere: none is damage, and a note says so."""
    broker = Broker(tmp_path / "log-dir", Random(1))
    active = max(broker.partition.glob("*.log"))
    monkeypatch.setattr(moments, "sleep", lambda _: None)
    monkeypatch.setattr(
        moments, "look_at_partition", torn_again(active, broker, moments.look_at_partition)
    )
    run = Verification()
    found = list(run.verify(broker.partition))
    assert [one.reference for one in found if one.severity != Severity.NOTE] == []
    [note] = [one for one in found if one.reference == "changed-while-reading"]
    assert (note.severity, note.path) == (Severity.NOTE, str(broker.partition))


def segments_of(partition: Path, count: int) -> dict[int, Row]:
    """Write one row per segment, with the row's offset as base offset."""
    rows = {offset: (offset, b"k%d" % offset, b"v") for offset in range(count)}
    for offset, row in rows.items():
        write_log(partition, encoded([row]), name=f"{offset:020}")
    return rows


def test_a_reading_goes_on_as_often_as_files_go_away(tmp_path: Path) -> None:
    """More often than the number of tries without progress."""
    rows = segments_of(tmp_path / "t-0", 4 * TRIES_MAX)
    found = []
    for one in read_records(tmp_path / "t-0"):
        assert isinstance(one, Record)
        found.append(one.offset)
        following = tmp_path / "t-0" / f"{one.offset + 1:020}.log"
        following.unlink(missing_ok=True)
    assert found == [offset for offset in rows if offset % 2 == 0]


def test_a_plan_that_was_made_again_can_be_made_again(tmp_path: Path) -> None:
    """A caller that reads a walk's plan itself is told each time that files went away."""
    rows = segments_of(tmp_path / "t-0", 4)
    walk = LivingWalk(plan_reading(tmp_path / "t-0", Selection()))
    for offset in list(rows)[:3]:
        (tmp_path / "t-0" / f"{offset:020}.log").unlink()
        walk.check(offset + 1)
        walk.go_on(NotFoundError("gone"))
        assert walk.plan.again is not None
    left = walk.take()
    assert left is not None
    assert (left.base_offset, walk.take()) == (3, None)


def test_a_listing_that_is_outdated_at_once_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listed file is gone before it is opened: the reader lists again instead of giving up."""
    partition = tmp_path / "t-0"
    rows = segments_of(partition, 4)
    (partition / f"{2:020}.txnindex").touch()
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    outdated = list_partition(str(partition))
    reading = read_records(partition, Selection(isolation=Isolation.READ_COMMITTED))
    found = [next(reading)]
    monkeypatch.setattr(living, "list_partition", once(outdated, list_partition))
    (partition / f"{1:020}.log").unlink()
    (partition / f"{2:020}.txnindex").unlink()
    found += reading
    assert [one.offset for one in found] == [offset for offset in rows if offset != 1]


def test_a_partition_that_is_gone_ends_its_reading(tmp_path: Path) -> None:
    """The error says up to which offset it was read."""
    segments_of(tmp_path / "t-0", 3)
    reading = read_records(tmp_path / "t-0")
    next(reading)
    (tmp_path / "t-0").rename(tmp_path / "t-0-gone")
    with pytest.raises(NotFoundError) as raised:
        list(reading)
    assert raised.value.note == "Offsets up to 0 were read before."


def moving(tmp_path: Path) -> tuple[PartitionDir, Path]:
    """Return a partition with a segment per row in one of two log directories, and a place."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    segments_of(tmp_path / "one" / "t-0", 4)
    (tmp_path / "one" / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {ID}")
    [partition] = partitions_of(open_targets([tmp_path / "one", tmp_path / "other"]))
    return partition, tmp_path / "other" / "t-0"


@pytest.mark.parametrize("kernels", [False, True])
def test_a_reading_goes_on_where_the_partition_has_moved(tmp_path: Path, kernels: bool) -> None:
    """At the next offset, as often as it moves."""
    partition, place = moving(tmp_path)
    plan = plan_reading(partition, Selection())
    found: list[int] = []
    places = itertools.cycle([(Path(partition.path), place), (place, Path(partition.path))])
    reading = records_of(plan, None, bulk=kernels)
    for one in reading:
        assert isinstance(one, Record)
        found.append(one.offset)
        if not kernels or len(found) == 1:
            old, new = next(places)
            old.rename(new)
    assert found == [0, 1, 2, 3]


def test_another_topic_in_its_place_ends_a_reading(tmp_path: Path) -> None:
    partition, place = moving(tmp_path)
    reading = read_records(partition)
    next(reading)
    Path(partition.path).rename(tmp_path / "gone")
    segments_of(place, 4)
    (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {'B' * 21}A")
    with pytest.raises(ReplacedError) as raised:
        list(reading)
    assert raised.value.note == "Offsets up to 0 were read before."


def test_records_of_another_leader_end_a_reading(tmp_path: Path) -> None:
    """The log was cut below what was read, and filled again: these are no records of one log."""
    partition = tmp_path / "t-0"
    old = [batch(n, [record(value=b"old")], epoch=1) for n in range(3)]
    write_log(partition, *old[:2])
    write_log(partition, old[2], name=f"{2:020}")
    reading = read_records(partition)
    found = [next(reading)]
    (partition / f"{2:020}.log").unlink()
    write_log(tmp_path / "new", *[batch(n, [record(value=b"new")], epoch=2) for n in range(4)])
    (tmp_path / "new" / f"{0:020}.log").rename(partition / f"{0:020}.log")
    with pytest.raises(ChangedSinceError, match="other records there now"):
        found += reading
    assert {one.value for one in found if isinstance(one, Record)} == {b"old"}


@pytest.mark.parametrize("is_indexed", [False, True])
def test_the_largest_timestamp_is_that_of_the_log_up_to_the_end_that_was_taken(
    tmp_path: Path, *, is_indexed: bool
) -> None:
    """Records appended meanwhile belong to a later moment, and must not leave the answer empty."""
    broker = Broker(tmp_path / "log-dir", Random(1))
    log = UnifiedLog(str(broker.partition))
    end = log.log_end_offset
    active = max(broker.partition.glob("*.log"))
    offsets = (end, end + 1)
    active.write_bytes(
        active.read_bytes() + b"".join(encoded([(one, b"k", b"v")]) for one in offsets)
    )
    if is_indexed:
        entries = [[(one, b"", b"")] for one in offsets]
        active.with_suffix(".timeindex").write_bytes(
            b"".join(time_index(int(active.stem), [entry]) for entry in entries)
        )
    before = lookup_special(log, Special.MAX_TIMESTAMP, Isolation.LOG)
    after = lookup_special(log.listed_again(), Special.MAX_TIMESTAMP, Isolation.LOG)
    assert (before.offset, before.timestamp) == (end - 1, BASE_TIME + end - 1)
    assert (after.offset, after.timestamp) == (end + 1, BASE_TIME + end + 1)


@pytest.mark.parametrize("has_entries", [(True, True), (True, False), (False, False)])
def test_indexes_that_are_opened_one_after_the_other_hide_no_timestamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_entries: tuple[bool, bool]
) -> None:
    """A broker appends between the two openings.

    It writes the offset index before the time index.
    """
    rows = [[(offset, b"k", b"v")] for offset in range(8)]
    data = [encoded(one) for one in rows]
    log = write_log(tmp_path / "t-0", *data[:6])

    def note(entries: list[int], suffix: str) -> None:
        pack = {
            ".index": lambda n: struct.pack(">ii", n, sum(map(len, data[:n]))),
            ".timeindex": lambda n: struct.pack(">qi", BASE_TIME + n, n),
        }[suffix]
        log.with_suffix(suffix).write_bytes(b"".join(map(pack, entries)))

    note([2, 4], ".index")
    note([2, 4], ".timeindex")
    segment = open_partition(str(tmp_path / "t-0")).segments[0]

    def opened(kind: type[OffsetIndex | TimeIndex]) -> Callable[[str, int], object]:
        def open_it(path: str, base_offset: int) -> object:
            index = kind(path, base_offset)
            log.write_bytes(b"".join(data))
            if has_entries[0]:
                note([2, 4, 7], ".index")
            if has_entries[1]:
                note([2, 4, 7], ".timeindex")
            return index

        return open_it

    for name, kind in (("OffsetIndex", OffsetIndex), ("TimeIndex", TimeIndex)):
        monkeypatch.setattr(f"kafkalog.log.batches.segment.{name}", opened(kind))
    for end, largest in ((6, 5), (8, 7), (None, 7)):
        with OpenSegment(segment) as one:
            assert one.largest_timestamp(recovered=True, end=end) == (BASE_TIME + largest, largest)


Listing = Callable[[str], PartitionDir]


def once(first: PartitionDir, following: Listing) -> Listing:
    """Return a listing that is outdated the first time."""
    answers = iter([first])
    return lambda path: next(answers, None) or following(path)


Look = Callable[[PartitionDir], object]


def grows(log: Path, look: Look) -> Look:
    """Wrap a look at a directory: after each call, append a batch to a log."""
    offsets = itertools.count(10_000)

    def grown(directory: PartitionDir) -> object:
        seen = look(directory)
        with log.open("ab") as file:
            file.write(encoded([(next(offsets), b"k", b"v")]))
        return seen

    return grown


def torn_again(log: Path, broker: Broker, look: Look) -> Look:
    """Wrap a look at a directory: before each call, finish one append and half-write the next."""
    whole = log.read_bytes()
    offsets = itertools.count(broker.end)

    def torn(directory: PartitionDir) -> object:
        nonlocal whole
        following = encoded([(next(offsets), b"k", b"v")])
        log.write_bytes(whole + following[:40])
        whole += following
        return look(directory)

    return torn
