"""The checks report the same whether the headers of a log come from the scanner or the kernels,
and whether batches that are as usual are judged as a run or one by one."""

from __future__ import annotations

import errno
import itertools
import os
import random
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.constants import RECORD_BATCH_OVERHEAD
from kafkalog.check.verify import Verification
from kafkalog.io.codecs import crc32c
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.columns import chunks, headers, side_files
from kafkalog.log.columns.header_table import batch_at
from kafkalog.log.columns.headers import batch_columns
from kafkalog.model import Batch, Defect, Level
from tests.builders import BASE_TIME, batch, copy_tree, flip, message, record, write_log
from tests.kafkalog.log.columns.test_twins import logs
from tests.kafkalog_cli.test_index_dumps import hurt, rising_logs, write_indexes
from tests.sampling import drawn_for, examples, tries_everything

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.conftest import State

GENERATED = settings(max_examples=examples(100))
NEVER, ALWAYS = 1 << 40, 0


@contextmanager
def sized(size_min: int, *, small: bool = False) -> Iterator[None]:
    """Use the kernels for logs of at least this size; `small` splits the work into tiny pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
        if small:
            patch.setattr(chunks, "CHUNK_SIZE_MIN", 200)
            patch.setattr(chunks, "_BATCHES_MAX", 2)
            patch.setattr(headers, "_BATCHES_AT_ONCE", 3)
            patch.setattr(side_files, "_ENTRIES_AT_ONCE", 2)
        yield


@contextmanager
def one_by_one() -> Iterator[None]:
    """Judge each batch as if none were as usual."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(headers.BatchColumns, "plain", None)
        yield


def verdict(path: Path, level: Level) -> tuple[list[Defect], dict[str, Any]]:
    run = Verification(level)
    found = list(run.verify(path))
    return found, vars(run.summary)


def assert_twins(
    path: Path, *, small: bool = False, levels: Iterable[Level] = Level
) -> list[Defect]:
    for level in levels:
        with sized(NEVER), one_by_one():
            wanted = verdict(path, level)
        with sized(ALWAYS, small=small):
            assert verdict(path, level) == wanted
        with sized(NEVER, small=small):
            assert verdict(path, level) == wanted
    return wanted[0]


@pytest.fixture
def levels(request: pytest.FixtureRequest) -> Iterator[tuple[Level, ...]]:
    """Yield the levels for each log: all, or one in turn, starting with one that is drawn."""
    every = tuple(Level)
    first = drawn_for(request.node.name).randrange(len(every))
    print("first", every[first])
    return (
        every if tries_everything() else (every[n % len(every)],) for n in itertools.count(first)
    )


@pytest.mark.sampled(43)
def test_the_corpus(any_state: State, levels: Iterator[tuple[Level, ...]]):
    """A sample has each partition at one level, and uses all levels."""
    for partition in any_state.partitions():
        assert_twins(partition, small=partition.name.endswith("-0"), levels=next(levels))


@pytest.mark.sampled(43)
def test_the_damaged_corpus(any_state: State, tmp_path: Path, levels: Iterator[tuple[Level, ...]]):
    """The log and each of its three indexes is damaged while the others are sound.

    A sample has all damaged logs, each at one level, and uses all levels.
    """
    rng = random.Random(any_state.name)
    paths = [
        path
        for partition in any_state.partitions()
        for path in sorted(partition.iterdir())
        if path.suffix in ENTRY_SIZES and 0 < path.stat().st_size < 1 << 18
    ]
    found = []
    for i, path in enumerate(rng.sample(paths, min(3, len(paths)))):
        (tmp_path / f"{i}").mkdir()
        copy = copy_tree(path.parent, tmp_path / f"{i}" / path.parent.name) / path.name
        for changed in hurt(path.read_bytes(), ENTRY_SIZES[path.suffix], rng).values():
            copy.write_bytes(changed)
            found += assert_twins(copy.parent, small=True, levels=next(levels))
    assert found


ENTRY_SIZES = {".log": 61, ".index": 8, ".timeindex": 12, ".txnindex": 34}


@GENERATED
@given(
    data=st.one_of(rising_logs(), logs()),
    more=st.data(),
    small=st.booleans(),
    level=st.sampled_from(Level),
)
def test_generated_logs_and_indexes(
    tmp_path: Path, data: bytes, more: st.DataObject, small: bool, level: Level
):
    """Logs and indexes may contradict each other; a sample checks each at one level."""
    path = write_log(tmp_path / "t-0", data)
    write_indexes(more.draw, path, data)
    entries = more.draw(st.lists(st.lists(st.integers(-1, 30), min_size=3, max_size=3), max_size=5))
    write_transactions(path, entries)
    assert_twins(path.parent, small=small, levels=Level if tries_everything() else [level])


def test_epochs_beside_batches_that_overlap(tmp_path: Path):
    """However the batches are divided, an entry is compared with one and the same batch."""
    deltas = {16: 9, 18: 19, 19: 3, 23: 0, 24: 1}
    batches = [
        batch(offset, [record(0, b"k", b"v")], last_delta=delta, epoch=int(offset >= 23))
        for offset, delta in deltas.items()
    ]
    path = write_log(tmp_path / "t-0", *batches)
    for start in (17, 20, 23, 25):
        (path.parent / "leader-epoch-checkpoint").write_text(f"0\n2\n0 0\n1 {start}\n")
        assert_twins(path.parent, small=True)


def test_what_a_snapshot_alone_knows_of_a_producer(tmp_path: Path):
    """However the batches after it are divided, the snapshot is reported."""
    directory = tmp_path / "t-0"
    for state in ({"current_txn_first_offset": 2}, {"coordinator_epoch": 9}):
        entry = {
            "producer_id": 9, "producer_epoch": 0, "last_sequence": 4, "last_offset": 9,
            "offset_delta": 0, "timestamp": BASE_TIME, "coordinator_epoch": 0,
            "current_txn_first_offset": -1, **state,
        }  # fmt: skip
        transactional, plain = [
            [
                batch(n, [record(0, b"k", b"v")], attributes=attributes, producer=(9, 0, n - 5))
                for n in offsets
            ]
            for attributes, offsets in ((16, range(10, 14)), (0, range(14, 16)))
        ]
        write_log(directory, *transactional, *plain, name=f"{10:020}")
        write_snapshot(directory / f"{10:020}.snapshot", entry)
        found = assert_twins(directory, small=True)
        if "current_txn_first_offset" in state:
            assert {one.reference for one in found} >= {"producer-snapshot-wrong"}


def test_the_newest_clock_is_that_of_the_log(tmp_path: Path):
    """This holds even if it was read before any batch of a producer."""
    times = [BASE_TIME + 90_000, *[BASE_TIME + n for n in range(6)]]
    batches = [
        batch(n, [record(0, b"k", b"v" * 60)], attributes=8, max_time=time)
        for n, time in enumerate(times)
    ]
    last = batch(7, [record(0)], attributes=8 | 16, producer=(9, 0, 0), max_time=BASE_TIME + 9)
    path = write_log(tmp_path / "t-0", *batches, last)
    [found] = [one for one in assert_twins(path.parent, small=True) if one.offset == 7]
    assert "at least 89 seconds before the newest" in found.detail


def write_snapshot(path: Path, entry: dict[str, int]) -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", *entry.values())
    path.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)


def write_transactions(path: Path, entries: list[list[int]]) -> None:
    data = b"".join(
        version.to_bytes(2, "big", signed=True) + bytes(8)
        + b"".join(number.to_bytes(8, "big", signed=True) for number in (first, last, last))
        for version, first, last in entries
    )  # fmt: skip
    path.with_suffix(".txnindex").write_bytes(data)


def batches_of(source: Source, *, check_crc: bool) -> Iterator[Batch | Defect]:
    """Yield the batches of the columns and the defects, one by one."""
    for found in batch_columns(source, Level.STANDARD if check_crc else Level.QUICK):
        if isinstance(found, Defect):
            yield found
            continue
        sizes = found.headers[1].tolist()
        assert found.size_bytes == sum(sizes)
        assert found.count == len(sizes) == len(found.crc_valid) > 0
        for i, valid in enumerate(found.crc_valid.tolist()):
            yield batch_at(found.headers, i, source.path, valid if check_crc else None)


@GENERATED
@given(data=logs(), check_crc=st.booleans(), small=st.booleans())
def test_columns_hold_the_batches_of_the_scanner(
    tmp_path: Path, data: bytes, check_crc: bool, small: bool
):
    """Each field, and each defect at its place."""
    path = write_log(tmp_path, data)
    with Source(str(path)) as source:
        wanted = list(scan_batches(source, check_crc=check_crc))
        for size_min in (NEVER, ALWAYS):
            with sized(size_min, small=small):
                assert list(batches_of(source, check_crc=check_crc)) == wanted


def write_segment(directory: Path, *batches: bytes) -> Path:
    """Write a log with empty indexes, as a small active segment has them."""
    path = write_log(directory, *batches)
    path.with_suffix(".index").touch()
    path.with_suffix(".timeindex").touch()
    return path


def test_last_offsets_out_of_range_wrap(tmp_path: Path):
    """Base offset plus delta may overflow; Java wraps it to the same value."""
    path = write_segment(
        tmp_path / "t-0", batch((1 << 63) - 2, [record()] * 9), batch(3, [record()])
    )
    inside, defect = assert_twins(path.parent)
    assert inside.reference == "record-offset-invalid"
    assert defect.reference == "batch-offset-not-increasing"
    assert f"offsets {(1 << 63) - 2} to {8 - (1 << 63) - 2}, after -1." in defect.detail


def test_defects_come_in_the_order_of_the_file(tmp_path: Path):
    """It does not matter which check finds them; within a batch, the order of checks decides."""
    sound = [batch(i, [record()]) for i in range(12)]
    log = [flip(sound[i], 8 * 50) if i in (2, 5) else sound[i] for i in (0, 1, 2, 4, 3, 5, 6)]
    path = write_segment(tmp_path / "t-0", *log)
    size = len(sound[0])
    entries = [(0, 3), (2, 2 * size), (4, 5 * size), (7, 6 * size)]
    path.with_suffix(".index").write_bytes(
        b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries)
    )
    found = [(one.reference, one.offset) for one in assert_twins(path.parent, small=True)]
    quick = [
        ("index-entry-misses-batch", 0),
        ("batch-header-contradictory", 2),
        ("batch-offset-not-increasing", 3),
        ("batch-header-contradictory", 5),
        ("index-entry-offset-wrong", 4),
        ("index-entry-beyond-log", 7),
    ]
    # At the higher levels the two batches are evidence of nothing but themselves.
    crc = "batch-crc-mismatch"
    assert found == [quick[0], (crc, 2), quick[2], (crc, 5), quick[5]]
    with sized(ALWAYS):
        defects, _ = verdict(path.parent, Level.QUICK)
    assert [(one.reference, one.offset) for one in defects] == quick


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("is_short", [True, False], ids=["short", "whole"])
@pytest.mark.parametrize("place", [0, 100, 150_000, 290_000])
def test_a_disk_that_fails_is_told_at_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, is_short: bool
):
    """Everything before that place has been checked, and the summary says how much that is.

    A read that begins before the bad sector returns the bytes before it, as on Linux, or none.
    """
    data = [batch(i, [record(0, None, bytes(300))]) for i in range(800)]
    data[40] = flip(data[40], 8 * 100)
    path, size = write_segment(tmp_path / "t-0", *data), len(data[0])
    pread, preadv = os.pread, os.preadv

    def failing(fd: int, wanted: int, position: int) -> bytes:
        if position >= place or (position + wanted > place and not is_short):
            raise OSError(errno.EIO, "I/O")
        return pread(fd, min(wanted, place - position), position)

    def failing_into(fd: int, buffers: list[memoryview], position: int) -> int:
        if position >= place or (position + len(buffers[0]) > place and not is_short):
            raise OSError(errno.EIO, "I/O")
        return preadv(fd, [buffers[0][: place - position]], position)

    monkeypatch.setattr(os, "pread", failing)
    monkeypatch.setattr(os, "preadv", failing_into)
    for level in Level:
        found = []
        for size_min in (NEVER, ALWAYS):
            with sized(size_min, small=True):
                found.append(verdict(path.parent, level))
        slow, fast = found
        assert fast == slow
        references = [defect.reference for defect in fast[0]]
        assert references[-2:] == ["bytes-unreadable", "bytes-not-checked"]
        [unread] = [one for one in fast[0] if one.reference == "bytes-unreadable"]
        # Of a batch that ends after the place only the header is read at the quick level.
        needed = RECORD_BATCH_OVERHEAD if level == Level.QUICK else size
        good = place if is_short else place - place % 4096
        first = next(i for i in range(800) if i * size + needed > good)
        assert unread.position == first * size
        assert unread.size_bytes == (800 - first) * size
        assert fast[1]["checked_bytes"] == first * size
        assert fast[1]["bytes_unreadable"] == unread.size_bytes


def test_a_walk_that_is_given_up_leaves_no_thread(tmp_path: Path):
    """The consumer stopped after the first defect."""
    path = write_log(tmp_path, *[batch(i, [record(0, None, bytes(500))]) for i in range(2000)])
    before = threading.active_count()
    with Source(str(path)) as source, sized(ALWAYS, small=True):
        found = batch_columns(source, Level.STANDARD, threads=3)
        next(found)
        found.close()  # type: ignore[attr-defined] # it is a generator
    assert threading.active_count() == before


def test_large_batches_are_passed_over_at_the_quick_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Reading their records would be slower than the reference scanner."""
    path = write_log(tmp_path, *[batch(i, [record(0, None, bytes(100_000))]) for i in range(20)])
    read = 0
    pread = os.pread

    def counting(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        read += size
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", counting)
    monkeypatch.delattr(os, "preadv")
    with Source(str(path)) as source, sized(ALWAYS):
        found = list(batches_of(source, check_crc=False))
    assert len(found) == 20
    assert read < 20 * 9000


def test_small_logs_load_no_kernels(corpus_dir: Path):
    """Their headers come from the reference scanner."""
    code = (
        "import sys, kafkalog\n"
        "found = list(kafkalog.verify(sys.argv[1]))\n"
        "assert 'numba' not in sys.modules and 'kafkalog.log.columns.kernels' not in sys.modules"
    )
    path = corpus_dir / "kafka-4.3" / "txn" / "txn-0"
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_messages_of_old_formats_are_checked_by_their_only_offset(tmp_path: Path):
    """Magic 0 has no timestamp to compare, but magic 1 does."""
    path = write_segment(
        tmp_path / "t-0", message(0, magic=0), message(1, time=50), message(2, time=60)
    )
    times = [(7, 0), (40, 1), (60, 2)]
    path.with_suffix(".timeindex").write_bytes(
        b"".join(t.to_bytes(8, "big") + o.to_bytes(4, "big") for t, o in times)
    )
    [defect] = assert_twins(path.parent)
    assert defect.detail == "Entry 1 says 40 up to offset 1, the log says 50 up to 1."


@pytest.mark.parametrize(
    ("producer", "is_plain"),
    [((7, 0, 0), True), ((7, 1, 100), True), ((7, -1, 0), False), ((7, 0, -1), False)],
)
def test_batches_of_a_new_producer_are_judged_as_a_run(
    tmp_path: Path, producer: tuple[int, int, int], *, is_plain: bool
) -> None:
    """A producer begins with epoch 0 and sequence 0; one without either is judged by itself."""
    path = write_log(tmp_path / "orders-0", batch(5, [record()], producer=producer))
    with sized(ALWAYS), Source(str(path)) as source:
        [columns] = batch_columns(source, Level.STANDARD, 1)
    assert isinstance(columns, headers.BatchColumns)
    assert (columns.plain is not None) == is_plain
