"""Batches, segments and indexes compared with each other: small logs built field by field."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.log.defects.table import REFERENCES
from kafkalog.model import Level, Severity
from tests.builders import BASE_TIME, batch, flip, message, record
from tests.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.model import Defect

Segments = dict[int, list[bytes]]


def records(base_offset: int, count: int = 3, **fields: object) -> bytes:
    """Build a batch of some records."""
    inner = [record(delta, b"key", time_delta=delta) for delta in range(count)]
    fields = {"max_time": BASE_TIME + count - 1, **fields}  # all batches have the same times
    return batch(base_offset, inner, **fields)  # type: ignore[arg-type] # given by name


def marker(offset: int, kind: int = 1, **fields: object) -> bytes:
    """Build a control batch with one record."""
    inner = record(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    fields = {"attributes": 0x30, "producer": (7, 0, -1), **fields}
    return batch(offset, [inner], **fields)  # type: ignore[arg-type] # given by name


def largest_time(data: bytes) -> int:
    return int.from_bytes(data[35:43] if data[16] == 2 else data[18:26], "big", signed=True)


def last_offset(data: bytes) -> int:
    delta = int.from_bytes(data[23:27], "big") if data[16] == 2 else 0
    return int.from_bytes(data[:8], "big") + delta


def write(root: Path, segments: Segments, indexed: Segments | None = None) -> Path:
    """Write a partition with indexes of closed segments: empty, but for one last entry.

    `indexed` gives the batches that the indexes are made of.
    """
    directory = root / "t-0"
    directory.mkdir(parents=True)
    for base, batches in segments.items():
        path = directory / f"{base:020d}.log"
        path.write_bytes(b"".join(batches))
        path.with_suffix(".index").touch()
        known = (indexed or segments).get(base, [])
        time, first = max(((largest_time(b), -last_offset(b)) for b in known), default=(-1, 0))
        entry = struct.pack(">qi", time, -first - base) if time >= 0 else b""
        path.with_suffix(".timeindex").write_bytes(entry)
    return directory


def plain() -> Segments:
    return {0: [records(i) for i in range(0, 12, 3)], 12: [records(i) for i in range(12, 24, 3)]}


def findings(directory: Path, level: Level = Level.DEEP) -> list[Defect]:
    run = Verification(level)
    return list(run.verify(directory))


def segments_of(change: Callable[[Segments], object]) -> Callable[[Path], Path]:
    """Return a maker of the plain partition with changed batches and matching indexes."""

    def make(root: Path) -> Path:
        segments = plain()
        change(segments)
        return write(root, segments)

    return make


def moved(base: int, number: int, new: bytes) -> Callable[[Path], Path]:
    """Return a maker of the plain partition with a replaced batch that its indexes do not know."""

    def make(root: Path) -> Path:
        segments = plain()
        segments[base][number] = new
        return write(root, segments, plain())

    return make


def files_of(change: Callable[[Path], object]) -> Callable[[Path], Path]:
    """Return a maker of the plain partition with changed files."""

    def make(root: Path) -> Path:
        directory = write(root, plain())
        change(directory)
        return directory

    return make


def first_log(*batches: bytes) -> Callable[[Path], Path]:
    """Return a maker of one segment with these batches."""
    return lambda root: write(root, {0: list(batches)})


def put(base: int, number: int, new: bytes) -> Callable[[Segments], object]:
    return lambda segments: segments[base].__setitem__(number, new)


def entries(suffix: str, form: str, *rows: tuple[int, int]) -> Callable[[Path], object]:
    """Return a change that writes these rows as an index of the first segment."""
    data = b"".join(struct.pack(form, *row) for row in rows)
    return lambda directory: (directory / f"{0:020d}.{suffix}").write_bytes(data)


LEADER_CHANGE = record(0, struct.pack(">hh", 0, 2), struct.pack(">hi", 0, 1) + b"\1\1\0")
SIZE = len(records(0))
LAST_TIME = BASE_TIME + 2
FIRST_FILE = f"{0:020d}"

# Reference, and the only thing that is wrong.
DISAGREEMENTS: dict[str, list[Callable[[Path], Path]]] = {
    "batch-offset-displaced": [
        moved(0, 1, records(3 + 64)),
        moved(0, 2, records(6 - 4)),
        moved(0, 0, records(1)),
        moved(0, 3, records(9 + 16)),
        moved(12, 0, records(8)),
    ],
    "segments-overlap": [segments_of(lambda s: s[0].append(records(12)))],
    "offsets-missing": [
        segments_of(lambda s: s[0].pop(2)),
        segments_of(lambda s: s[0].pop()),
        segments_of(lambda s: s[0].pop(0)),
        segments_of(lambda s: s.update({24: [records(24)], 30: [records(30)]})),
        segments_of(put(12, -1, records(21 + 8))),
    ],
    "offsets-with-gaps": [segments_of(lambda s: (s[0].pop(1), s[12].pop(1)))],
    "segment-offset-overflow": [first_log(records(0), records(2**31 - 2, last_delta=5))],
    "segment-too-large": [
        files_of(lambda path: os.truncate(path / f"{12:020d}.log", 2**31)),
    ],
    "batch-leader-epoch-wrong": [
        segments_of(put(0, 1, records(3, epoch=4))),
        segments_of(put(0, 0, records(0, epoch=4))),
        segments_of(put(12, -1, records(21, epoch=-7))),
        segments_of(put(0, -1, records(9, epoch=2))),
    ],
    "batch-header-contradictory": [
        first_log(records(0, producer=(-2, -1, -1))),
        first_log(records(0, producer=(5, -1, 0))),
        first_log(records(0, producer=(5, 0, -1))),
        first_log(records(0, attributes=0x10)),
        first_log(marker(0, attributes=0x20)),
        first_log(batch(0, [LEADER_CHANGE], attributes=0x30, producer=(7, 0, -1))),
        first_log(batch(0, last_delta=2, attributes=0x40)),
    ],
    "attributes-unknown": [first_log(records(0, attributes=0x80))],
    "record-offset-invalid": [
        first_log(batch(0, [record(1), record(0)])),
        first_log(batch(0, [record(0), record(7)])),
        first_log(batch(0, [record(0), record(0)])),
    ],
    "max-timestamp-wrong": [
        first_log(records(0, max_time=BASE_TIME + 7)),
        first_log(records(0, max_time=BASE_TIME)),
    ],
    "index-entry-offset-wrong": [
        files_of(entries("index", ">ii", (4, SIZE), (8, 2 * SIZE))),
        files_of(entries("index", ">ii", (3, SIZE), (8, 2 * SIZE), (11, 3 * SIZE))),
        files_of(entries("index", ">ii", (8, SIZE), (11, 2 * SIZE))),
    ],
    "time-index-incomplete": [
        files_of(entries("timeindex", ">qi")),
    ],
    "index-padding-not-zero": [
        files_of(lambda path: (path / f"{12:020d}.index").write_bytes(
            struct.pack(">ii", 5, SIZE) + bytes(8 * 300) + b"\1" + bytes(8 * 1000 - 1))),
    ],
    "index-not-trimmed": [
        files_of(entries("index", ">ii", (5, SIZE), (0, 0))),
        files_of(entries("timeindex", ">qi", (LAST_TIME, 2), (0, 0))),
    ],
    "index-missing": [
        files_of(lambda path: (path / f"{FIRST_FILE}.index").unlink()),
        files_of(lambda path: (path / f"{FIRST_FILE}.timeindex").unlink()),
    ],
    "index-without-log": [
        files_of(lambda path: (path / f"{3:020d}.index").touch()),
        files_of(lambda path: (path / f"{3:020d}.timeindex").touch()),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reference", "number"),
    [(name, i) for name, ways in DISAGREEMENTS.items() for i in range(len(ways))],
)
def test_one_thing_that_is_wrong_gives_one_finding(tmp_path: Path, reference: str, number: int):
    """Only the cause is reported, once, and no consequences."""
    directory = DISAGREEMENTS[reference][number](tmp_path)
    found = [d for d in findings(directory) if d.reference != "zero-tail"]
    assert [defect.reference for defect in found] == [reference], found
    assert found[0].severity == REFERENCES[reference].severity


@pytest.mark.parametrize("level", Level)
def test_a_plain_log_gives_no_finding(tmp_path: Path, level: Level):
    """All the others are made from this log."""
    assert findings(write(tmp_path, plain()), level) == []


def test_the_batch_with_the_wrong_offset_is_the_one_that_is_told(tmp_path: Path):
    """Only one base offset fits between the neighbors."""
    for i, moved in enumerate((records(3 + 64), records(3 - 1))):
        directory = segments_of(put(0, 1, moved))(tmp_path / str(i))
        found = [d for d in findings(directory) if d.severity == Severity.DAMAGE]
        assert [(d.reference, d.position) for d in found] == [("batch-offset-displaced", SIZE)]
        assert found[0].detail.endswith("between its neighbours 3 is right.")


def test_the_batch_with_an_epoch_of_its_own_is_the_one_that_is_told(tmp_path: Path):
    """The batch after it is not blamed: its epoch is that of all others."""
    for i, (number, epoch) in enumerate(((0, 8), (1, 8), (2, -9))):
        directory = segments_of(put(0, number, records(3 * number, epoch=epoch)))(tmp_path / str(i))
        [found] = findings(directory)
        assert found.position == number * SIZE


SIGNS_OF_COMPACTION: dict[str, Callable[[Segments], object]] = {
    "a batch that lost records": put(12, 0, records(12, 2, last_delta=2)),
    "a batch that lost all": put(12, 0, batch(12, last_delta=2)),
    "a delete horizon": put(12, 0, records(12, attributes=0x40)),
}


@pytest.mark.parametrize("sign", SIGNS_OF_COMPACTION)
def test_a_compacted_log_may_have_gaps(tmp_path: Path, sign: str):
    """There is one gap anywhere, and one sign that the cleaner has run."""
    segments = plain()
    segments[0].pop(1)
    SIGNS_OF_COMPACTION[sign](segments)
    assert findings(write(tmp_path, segments)) == []


def test_a_segment_that_lost_everything_is_a_sign(tmp_path: Path):
    """Cleaning leaves an empty segment with empty indexes; an index entry proves a loss instead."""
    segments = plain()
    segments[0].clear()
    assert findings(write(tmp_path / "cleaned", segments)) == []
    found = findings(write(tmp_path / "lost", segments, plain()))
    assert {d.reference for d in found} == {"index-entry-beyond-log", "offsets-missing"}


def test_damage_is_no_gap(tmp_path: Path):
    """A torn end has its own finding; a segment whose tail was lost to zeros has a gap."""
    directory = write(tmp_path / "torn", plain())
    log = directory / f"{FIRST_FILE}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-9])
    assert "offsets-missing" not in {defect.reference for defect in findings(directory)}
    log.write_bytes(whole[:-SIZE] + bytes(SIZE))
    assert "offsets-missing" in {defect.reference for defect in findings(directory)}


def test_the_checkpoint_of_the_cleaner_is_a_sign(tmp_path: Path):
    """Only the entry of this partition counts."""
    segments = plain()
    segments[0].pop(1)
    directory = write(tmp_path, segments)
    for topic, wanted in (("u", ["offsets-missing"]), ("t", [])):
        (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\n{topic} 0 12\n")
        assert [defect.reference for defect in findings(directory)] == wanted


def test_the_topics_policy_is_a_sign(tmp_path: Path):
    """In the metadata log of the examples, customers are compacted and orders are not."""
    segments = plain()
    segments[0].pop(1)
    directory = write(tmp_path, segments)
    shutil.copytree(ROOT / "examples/log-dir/__cluster_metadata-0",
                    tmp_path / "__cluster_metadata-0")  # fmt: skip
    for topic, wanted in (("orders", ["offsets-missing"]), ("customers", [])):
        directory = directory.rename(tmp_path / f"{topic}-0")
        assert [defect.reference for defect in findings(directory)] == wanted


def test_what_clients_may_send_is_not_judged(tmp_path: Path):
    """Epoch and sequence without a producer id: 0 by kafkajs and by Kafka's coordinators."""
    made = first_log(
        records(0, producer=(-1, 0, 0)), records(3, producer=(-1, -1, 0)), marker(6), marker(7, 0),
        records(8, producer=(5, 0, 0)),
    )  # fmt: skip
    assert findings(made(tmp_path)) == []


def test_entries_of_older_brokers_are_legal(tmp_path: Path):
    """One entry for a whole append, the first offset of an append, the offset of a record."""
    rows = {
        "append": entries("index", ">ii", (8, SIZE), (11, 3 * SIZE)),
        "first": entries("index", ">ii", (3, SIZE), (6, 2 * SIZE)),
        "record": entries("timeindex", ">qi", (LAST_TIME, 2)),
    }
    for name, change in rows.items():
        assert findings(files_of(change)(tmp_path / name)) == [], name


def test_an_entry_holds_the_first_batch_with_its_timestamp(tmp_path: Path):
    """A later batch with the same timestamp is no reason for an entry."""
    change = entries("timeindex", ">qi", (LAST_TIME, 5))
    [found] = findings(files_of(change)(tmp_path))
    assert found.reference == "time-index-entry-wrong"


def test_an_active_index_may_be_behind(tmp_path: Path):
    """Until the segment is rolled or the broker is shut down."""
    directory = write(tmp_path, plain())
    (directory / f"{12:020d}.timeindex").write_bytes(bytes(12 * 100))
    (directory / f"{12:020d}.index").write_bytes(bytes(8 * 100))
    assert findings(directory) == []
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert [defect.reference for defect in findings(directory)] == ["time-index-incomplete"]


def test_of_a_wrong_index_few_entries_are_told(tmp_path: Path):
    """The remaining ones are only counted."""
    rows = [(3 * i + 1, i * SIZE) for i in range(1, 50)]
    directory = write(tmp_path, {0: [records(3 * i) for i in range(60)]})
    entries("index", ">ii", *rows)(directory)
    found = findings(directory)
    assert {defect.reference for defect in found} == {"index-entry-offset-wrong"}
    assert len(found) == 9
    assert found[-1].detail == "41 more wrong entries."


def test_one_wrong_batch_does_not_make_indexes_wrong(tmp_path: Path):
    """A wrong batch is no evidence against the indexes."""
    batches = [records(3 * i) for i in range(60)]
    rows = [(3 * i + 2, i * SIZE) for i in range(1, 60)]
    for i, wrong in enumerate((records(3 + 2**30), flip(records(3), 8 * 70))):
        directory = write(tmp_path / str(i), {0: [batches[0], wrong, *batches[2:]]})
        entries("index", ">ii", *rows)(directory)
        found = findings(directory)
        assert {defect.severity for defect in found} == {Severity.DAMAGE}, found


def test_messages_of_old_formats_are_in_order_too(tmp_path: Path):
    """Each has one offset; a gap between them is a gap of the log."""
    times = [message(i, time=BASE_TIME + i) for i in range(6)]
    assert findings(write(tmp_path / "sound", {0: times})) == []
    found = findings(write(tmp_path / "gap", {0: [*times[:3], *times[4:]]}))
    assert [defect.reference for defect in found] == ["offsets-missing"]
    moved = [*times[:3], message(3 + 64, time=BASE_TIME + 3), *times[4:]]
    found = findings(write(tmp_path / "moved", {0: moved}))
    assert [defect.reference for defect in found] == ["batch-offset-displaced"]


def test_a_gap_names_the_copy_that_would_fill_it(tmp_path: Path) -> None:
    """A killed rsync leaves `.NAME.XXXXXX`; outside of the gap it explains nothing."""
    directory = write(tmp_path, {0: [records(0)], 3: [records(3)], 6: [records(6)]})
    log = directory / f"{3:020}.log"
    for index in directory.glob(f"{3:020}.*index"):
        index.unlink()
    copy = log.rename(log.with_name(f".{log.name}.aB3dE9"))
    found = {one.reference: one for one in findings(directory) if one.severity != Severity.NOTE}
    assert found.keys() == {"offsets-missing", "copy-unfinished"}
    assert copy.name in found["offsets-missing"].detail
    assert found["copy-unfinished"].path == str(copy)
    assert found["copy-unfinished"].detail == f"rsync stopped: {log.name} is missing."
    copy = copy.rename(copy.with_name(f".{6:020}.log.aB3dE9"))
    found = {one.reference: one for one in findings(directory)}
    assert "rsync" not in found["offsets-missing"].detail
    assert "may be older" in found["copy-unfinished"].detail
    for name in (".notes.txt.aB3dE9", f".{3:020}.log.swp", f"{3:020}.log.aB3dE9"):
        copy = copy.rename(copy.with_name(name))
        assert "copy-unfinished" not in {one.reference for one in findings(directory)}


@pytest.mark.parametrize(
    ("time", "unit"),
    [
        (BASE_TIME // 1000, "seconds"),
        (BASE_TIME * 1000, "microseconds"),
        (BASE_TIME * 10**6, "nanoseconds"),
        (BASE_TIME, None),
        (0, None),
        (-1, None),
        (BASE_TIME * 10, None),
        (BASE_TIME // 1000, None),  # by the clock of a broker
    ],
)
@pytest.mark.parametrize("level", Level)
def test_times_in_another_unit_are_suspected(
    tmp_path: Path, level: Level, time: int, unit: str | None
) -> None:
    """Once for a partition, as a note: Kafka has no idea of the unit."""
    is_brokers = unit is None and time == BASE_TIME // 1000
    fields = {"base_time": time, "max_time": time, "attributes": 8 if is_brokers else 0}
    odd = [batch(i, [record()], **fields) for i in (1, 2)]  # type: ignore[arg-type] # by name
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join([batch(0, [record()]), *odd]))
    found = [
        one
        for one in Verification(level).verify(str(directory))
        if one.reference == "timestamp-unit-suspected"
    ]
    assert [one.offset for one in found] == ([] if unit is None else [1])
    for one in found:
        assert one.severity == Severity.NOTE
        assert f"in {unit} it would be 2023-11-14T22:13:20.000Z." in one.detail
