"""Every selection equals a filter over everything; damage is reported in place."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import KafkaLogError, NotFoundError
from kafkalog.log.batches.selection import EVERYTHING, Selection
from kafkalog.model import Batch, Defect, Isolation, Record
from kafkalog.node.reader import read_batches, read_records
from tests.builders import BASE_TIME, batch, copy_tree, flip, frames, healthy, record, write_log
from tests.conftest import SCENARIOS, State, state

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Log:
    """A partition and everything in it."""

    path: Path
    records: list[Record]
    batches: list[Batch]


def select(path: Path, selection: Selection = EVERYTHING) -> list[Record]:
    rows = list(read_records(path, selection))
    assert not [row for row in rows if isinstance(row, Defect) and row.severity != "note"], path
    return [row for row in rows if isinstance(row, Record)]


def open_log(path: Path) -> Log:
    batches = [row for row in read_batches(path) if isinstance(row, Batch)]
    return Log(path, select(path), batches)


LOGS = [
    *(f"lookup/{name}" for name in SCENARIOS),
    "kafka-4.3/txn/txn-0",
    "kafka-4.3/compact-1-first-pass/compact-gzip-0",
    "kafka-4.3/crash-0-kill9/prealloc-0",
    "kafka-4.3/internal-topics/__cluster_metadata-0",
    "kafka-2.8/v1/v1-gzip-0",
    "kafka-2.8/v0/v0-snappy-0",
]


@pytest.fixture(scope="session", params=LOGS)
def log(request: pytest.FixtureRequest, corpus_dir: Path) -> Log:
    name: str = request.param
    if name.startswith("lookup/"):
        [path] = (corpus_dir / name).glob("**/orders-0")
        return open_log(path)
    path = corpus_dir / name
    if not path.is_dir():  # every log of 2.8 that is there will do
        release, _, _ = name.rpartition("/")
        path = next(p for p in sorted((corpus_dir / release).rglob("*-0")) if p.is_dir())
    return open_log(path)


def same(log: Log, selection: Selection, wanted: Iterable[Record]) -> None:
    got = select(log.path, selection)
    assert [row.offset for row in got] == [row.offset for row in wanted], (log.path, selection)


def bounds(values: list[int]) -> list[int]:
    """Return a sample of the values that occur, their neighbours, and values far off."""
    occurring = sorted(set(values))
    picked = random.Random(7).sample(occurring, min(3, len(occurring)))
    return sorted({v + d for v in [*picked, *occurring[:1], *occurring[-1:]] for d in (-1, 0, 1)})


def test_there_is_something_to_select_from(log: Log):
    """Without records, the other tests would pass vacuously."""
    assert len(log.records) >= 10
    assert len(log.batches) >= 5
    offsets = [row.offset for row in log.records]
    assert offsets == sorted(offsets)


@pytest.mark.sampled(4)
def test_offsets_are_selected(log: Log) -> None:
    """From is inclusive, to is exclusive; the index is only a shortcut."""
    rows = log.records
    offsets = bounds([row.offset for row in rows])
    for offset in offsets:
        same(log, Selection(from_offset=offset), [r for r in rows if r.offset >= offset])
        same(log, Selection(to_offset=offset), [r for r in rows if r.offset < offset])
    for low, high in zip(offsets, offsets[3:], strict=False):
        within = [r for r in rows if low <= r.offset < high]
        same(log, Selection(from_offset=low, to_offset=high), within)
    same(log, Selection(from_offset=2**62), [])
    same(log, Selection(from_offset=-5, to_offset=2**62), rows)


@pytest.mark.sampled(5)
def test_times_are_selected(log: Log) -> None:
    """The record's own time counts: times need not rise."""
    rows = log.records
    for time in bounds([row.timestamp for row in rows]):
        same(log, Selection(from_time=time), [r for r in rows if r.timestamp >= time])
        same(log, Selection(to_time=time), [r for r in rows if r.timestamp < time])
        within = [r for r in rows if time <= r.timestamp < time + 500 and r.offset >= 3]
        same(log, Selection(from_time=time, to_time=time + 500, from_offset=3), within)


@pytest.mark.sampled(3)
def test_keys_and_values_are_selected(log: Log) -> None:
    """Exact matches and regular expressions; null and empty are different."""
    rows = log.records
    keys = sorted({row.key for row in rows if row.key is not None})
    for key in [*random.Random(7).sample(keys, min(5, len(keys))), b"", b"absent"]:
        same(log, Selection(key=key), [r for r in rows if r.key == key])
    some = re.compile(rb"[3-7]")
    same(log, Selection(key_regex=some), [r for r in rows if r.key and some.search(r.key)])
    same(log, Selection(value_regex=some), [r for r in rows if r.value and some.search(r.value)])


def test_producers_and_epochs_are_selected(log: Log) -> None:
    """They come from the record's batch."""
    rows = log.records
    for producer in {row.batch.producer_id for row in rows} | {77}:
        wanted = [r for r in rows if r.batch.producer_id == producer]
        same(log, Selection(producer_id=producer), wanted)
    for epoch in {row.batch.leader_epoch for row in rows} | {77}:
        wanted = [r for r in rows if r.batch.leader_epoch == epoch]
        same(log, Selection(leader_epoch=epoch), wanted)


def test_control_records_are_selected(log: Log) -> None:
    """Only markers are returned."""
    same(log, Selection(control=True), [r for r in log.records if r.batch.is_control])


@pytest.mark.sampled(3)
def test_a_limit_counts_rows(log: Log):
    """Limits of zero, of some, and of more rows than exist; also with a filter."""
    offsets = [row.offset for row in log.records]
    for limit in (0, 1, 3, len(offsets), len(offsets) + 5):
        assert [r.offset for r in select(log.path, Selection(limit=limit))] == offsets[:limit]
        found = [r for r in read_batches(log.path, Selection(limit=limit)) if isinstance(r, Batch)]
        assert found == log.batches[:limit]
    assert len(select(log.path, Selection(limit=2, from_offset=offsets[4]))) == 2


@pytest.mark.sampled(3)
def test_batches_are_selected_as_a_whole(log: Log):
    """A batch is returned if it can contain a selected record."""
    for offset in bounds([row.offset for row in log.records]):
        selection = Selection(from_offset=offset, to_offset=offset + 1)
        got = [row for row in read_batches(log.path, selection) if isinstance(row, Batch)]
        wanted = [b for b in log.batches if b.base_offset <= offset <= b.last_offset]
        assert [b for b in got if b.base_offset <= offset <= b.last_offset] == wanted


@pytest.mark.sampled(3)
def test_positions_are_where_reading_starts(log: Log):
    """From a batch's position on, the batch and all later ones; from inside it, the later ones."""
    path = min(log.path.glob("*.log"))
    starts = [row.position for row in read_batches(path) if isinstance(row, Batch)]
    everything = select(path)
    for start in starts[:12]:
        got = select(path, Selection(from_position=start))
        assert [r.offset for r in got] == [
            r.offset for r in everything if r.batch.position >= start
        ]
        rows = list(read_records(path, Selection(from_position=start + 1)))
        assert [r.offset for r in rows if isinstance(r, Record)] == [
            r.offset for r in everything if r.batch.position > start
        ]


@pytest.mark.sampled(3)
def test_max_bytes_is_where_reading_ends(log: Log):
    """At most SIZE bytes of each file are read; a batch cut there is not damage."""
    for size in (0, 1, 17, 100, 1000, 5000, 1 << 40):
        wanted = [row for row in log.records if row.batch.end_position <= size]
        assert [r.offset for r in select(log.path, Selection(max_bytes=size))] == [
            r.offset for r in wanted
        ]


def test_headers_are_selected(tmp_path: Path):
    """By name alone, or by name and value; equal names, null values."""
    rows = [
        record(0, headers=[(b"a", b"1"), (b"a", b"2")]),
        record(1, headers=[(b"a", None)]),
        record(2, headers=[(b"b", b"")]),
        record(3),
    ]
    path = write_log(tmp_path, batch(0, rows))
    for header, offsets in (
        ((b"a", None), [0, 1]),
        ((b"a", b"2"), [0]),
        ((b"a", b""), []),
        ((b"b", b""), [2]),
        ((b"", None), []),
    ):
        assert [row.offset for row in select(path, Selection(header=header))] == offsets


@pytest.mark.sampled(3)
def test_read_committed_gives_what_the_consumer_was_given(any_state: State):
    """Recorded with isolation.level=read_committed: from the log start on, data records only."""
    for partition in any_state.partitions():
        recorded = any_state.expected / "records-committed" / f"{partition.name}.offsets.json"
        if not recorded.exists() or not healthy(any_state):
            continue
        rows = select(partition, Selection(isolation=Isolation.READ_COMMITTED))
        got = [r.offset for r in rows if not r.batch.is_control]
        assert got == json.loads(recorded.read_text()), partition


def test_a_kraft_snapshot_is_selected_by_its_records(corpus_dir: Path):
    """The offset in its name is where its records end, not where they begin."""
    root = corpus_dir / "kafka-4.3" / "internal-topics" / "__cluster_metadata-0"
    for path in sorted(root.glob("*.checkpoint")):
        rows = select(path)
        assert len(rows) > 5
        for selection in (Selection(to_offset=4), Selection(from_offset=2, to_offset=5)):
            low, high = selection.from_offset or 0, selection.to_offset or 0
            wanted = [r.offset for r in rows if low <= r.offset < high]
            assert wanted
            assert [r.offset for r in select(path, selection)] == wanted


def test_files_in_any_state_are_read(corpus_dir: Path):
    """`.deleted`, `.swap`, `.cleaned`: the same bytes under any name."""
    found = sorted((corpus_dir / "kafka-4.3").rglob("*.log.*"))
    found = [path for path in found if path.suffix != ".txt"]
    assert {path.suffix for path in found} >= {".deleted", ".swap", ".cleaned"}
    for path in found[:40]:
        assert sum(r.batch.size_bytes > 0 for r in select(path)) > 0 or not path.stat().st_size


def test_the_torn_logs_are_read_up_to_the_cut(corpus_dir: Path):
    """The corpus says in `state.json` where each file was cut or flipped."""
    torn = state(corpus_dir, "kafka-4.3", "crash-1-torn")
    cuts = json.loads((torn.expected / "state.json").read_text())["cuts"]
    for name, cut in cuts.items():
        path = torn.root / name / cut["segment"]
        rows = list(read_records(path))
        defects = [row for row in rows if isinstance(row, Defect) and row.severity == "damage"]
        if cut["cutTo"] == cut["originalSize"]:
            assert defects[0].reference == "batch-crc-mismatch", name
            assert len({defect.position for defect in defects}) == 1, name
            at = cut["lastBatchAt"] if "last batch" in cut["what"] else cut["middleBatchAt"]
            assert defects[0].position == at, name
        elif cut["cutTo"] == 0:
            assert rows == [], name
        else:
            assert [defect.reference for defect in defects] == ["torn-tail"], name
            start = defects[0].position or 0
            assert start + (defects[0].size_bytes or 0) == cut["cutTo"]
            if cut["cutTo"] > cut["lastBatchAt"] > 0:
                assert start == cut["lastBatchAt"], name


def test_a_torn_tail_is_told_even_with_a_large_limit(tmp_path: Path):
    """A `max_bytes` beyond the end of the file cuts nothing."""
    data = batch(0, [record()]) + batch(1, [record()])
    path = write_log(tmp_path, data[:-3])
    for size in (None, len(data) - 3, 1 << 20):
        rows = list(read_records(path, Selection(max_bytes=size)))
        assert [row.reference for row in rows if isinstance(row, Defect)] == ["torn-tail"], size


def test_damage_is_reported_where_it_is(tmp_path: Path):
    """Between the neighbouring records; all that can be decoded of a bad batch is returned."""
    batches = [batch(i, [record(0, b"%d" % i)], base_time=BASE_TIME + i) for i in range(5)]
    batches[1] = flip(batches[1], 8 * len(batches[1]) - 12)  # the value
    batches[3] = b"\xff" * 40
    rows = list(read_records(write_log(tmp_path, *batches)))
    kinds = [row.reference if isinstance(row, Defect) else row.offset for row in rows]
    assert kinds == [0, "batch-crc-mismatch", 1, 2, "batch-length-invalid", 4]


def test_a_batch_that_cannot_be_decoded_is_a_defect(tmp_path: Path):
    """Correct checksum, unknown codec: the records around it are read."""
    path = write_log(
        tmp_path, batch(0, [record()]), batch(1, [record()], attributes=5), batch(2, [record()])
    )
    rows = list(read_records(path))
    kinds = [row.reference if isinstance(row, Defect) else row.offset for row in rows]
    assert kinds == [0, "unknown-codec", 2]


@pytest.mark.parametrize("selection", [Selection(from_offset=30), Selection(from_time=1)])
def test_an_unreadable_index_hides_no_records(
    tmp_path: Path, corpus_dir: Path, selection: Selection
):
    """A directory or a dangling link in its place: an index is a derived file."""
    [origin] = (corpus_dir / "lookup" / "plain").glob("**/orders-0")
    wanted = [row.offset for row in select(origin, selection)]
    copy = copy_tree(origin, tmp_path / "orders-0")
    for path in [*copy.glob("*.index"), *copy.glob("*.timeindex")]:
        path.unlink()
        if path.suffix == ".index":
            path.symlink_to("nowhere")
        else:
            path.mkdir()
    assert [row.offset for row in select(copy, selection)] == wanted


def test_a_log_directory_is_no_log(corpus_dir: Path):
    """A missing path raises NotFoundError."""
    with pytest.raises(KafkaLogError):
        list(read_records(corpus_dir / "kafka-4.3" / "txn"))
    with pytest.raises(NotFoundError):
        list(read_batches(corpus_dir / "nowhere"))


def test_frames_of_the_reader_are_those_of_the_file(log: Log):
    """Positions and sizes follow from the length fields alone."""
    for path in sorted(log.path.glob("*.log")):
        data = path.read_bytes().rstrip(b"\0")
        got = [(b.position, b.size_bytes) for b in log.batches if b.path == str(path)]
        assert got == frames(data)
