"""An unreadable part of a log does not hide anything that can be judged without it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.verify import Verification
from kafkalog.io.jit import fast_path
from kafkalog.model import Defect, Level
from tests.bad_disk import SECTOR, BadDisk
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = 200
SOUND = batch(0, [record(0, None, bytes(300))])
SIZE = len(SOUND)
MIDDLE, TAIL = [8], [*range(12, BATCHES * SIZE // SECTOR + 1)]
"""Bad sectors."""
UNREAD = {"bytes-unreadable", "bytes-not-checked"}


def is_hit(number: int, bad: list[int]) -> bool:
    start = number * SIZE
    return any(start < (s + 1) * SECTOR and s * SECTOR < start + SIZE for s in bad)


@pytest.fixture(params=[0, 1 << 40], ids=["kernels", "reference"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A closed segment whose indexes have an entry for every tenth batch, and the next one."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", request.param)
    value = record(0, None, bytes(300))
    data = [batch(i, [value], base_time=i, max_time=i) for i in range(BATCHES)]
    path = write_log(tmp_path / "t-0", *data)
    entries(path, {i: (i, i * SIZE) for i in range(10, BATCHES, 10)})
    times(path, {i: (i, i) for i in [*range(10, BATCHES, 10), BATCHES - 1]})
    later = write_log(tmp_path / "t-0", batch(BATCHES, [record()]), name=f"{BATCHES:020}")
    for suffix in (".index", ".timeindex"):
        later.with_suffix(suffix).touch()
    return path


def entries(log: Path, wanted: dict[int, tuple[int, int]]) -> None:
    """Write an offset index from offset and position of each entry."""
    data = b"".join(struct.pack(">ii", *wanted[i]) for i in sorted(wanted))
    log.with_suffix(".index").write_bytes(data)


def times(log: Path, wanted: dict[int, tuple[int, int]]) -> None:
    """Write a time index from timestamp and offset of each entry."""
    data = b"".join(struct.pack(">qi", *wanted[i]) for i in sorted(wanted))
    log.with_suffix(".timeindex").write_bytes(data)


def found(log: Path) -> list[Defect]:
    """Return the findings, which must be the same at every level."""
    told = [
        [one for one in Verification(level).verify(log.parent) if one.severity != "note"]
        for level in (Level.STANDARD, Level.DEEP)
    ]
    assert told[0] == told[1]
    return told[0]


def of_indexes(log: Path) -> set[tuple[str, int | None]]:
    """Return the findings about indexes, each with its entry."""
    sizes = {"index": 8, "timeindex": 12}
    return {
        (one.reference, None if one.position is None else one.position // sizes[suffix])
        for one in found(log)
        if (suffix := one.path.rpartition(".")[2]) in sizes
    }


@pytest.mark.parametrize("bad", [MIDDLE, TAIL], ids=["middle", "tail"])
def test_sound_indexes_are_not_blamed(log: Path, bad: list[int], monkeypatch: pytest.MonkeyPatch):
    """This holds with and without later batches: entries about unread batches cannot be judged."""
    assert not found(log)
    disk = BadDisk(monkeypatch)
    disk.spoil(log, bad)
    assert {one.reference for one in found(log)} == UNREAD


@pytest.mark.parametrize("bad", [MIDDLE, TAIL], ids=["middle", "tail"])
def test_entries_about_what_was_read_are_judged(
    log: Path, bad: list[int], monkeypatch: pytest.MonkeyPatch
):
    """Entries before and after the gap are judged; those that point into the gap are not."""
    offset_index = {i: (i, i * SIZE) for i in range(10, BATCHES, 10)}
    time_index = {i: (i, i) for i in [*range(10, BATCHES, 10), BATCHES - 1]}
    in_gap = next(i for i in offset_index if is_hit(i, bad))
    wanted = set()
    for i in (20, 170):
        offset_index[i] = i, i * SIZE + 5  # no batch starts there
        time_index[i] = i - 1, i
        if not is_hit(i, bad):
            wanted |= {("index-entry-misses-batch", i // 10 - 1),
                       ("time-index-entry-wrong", i // 10 - 1)}  # fmt: skip
    offset_index[in_gap] = in_gap, in_gap * SIZE + 5
    entries(log, offset_index)
    times(log, time_index)
    disk = BadDisk(monkeypatch)
    disk.spoil(log, bad)
    assert of_indexes(log) == wanted
    disk.spoil(log, [])
    assert ("index-entry-misses-batch", in_gap // 10 - 1) in of_indexes(log)


def test_an_entry_beyond_the_file_is_found_after_an_unread_tail(
    log: Path, monkeypatch: pytest.MonkeyPatch
):
    """No batch can be there, whatever the tail holds; nor can one end there after a gap."""
    offset_index = {i: (i, i * SIZE) for i in range(10, BATCHES, 10)}
    offset_index[BATCHES] = BATCHES - 1, BATCHES * SIZE + 7
    entries(log, offset_index)
    disk = BadDisk(monkeypatch)
    disk.spoil(log, TAIL)
    assert of_indexes(log) == {("index-entry-misses-batch", len(offset_index) - 1)}
    offset_index[BATCHES] = BATCHES + 5, BATCHES * SIZE - SIZE
    entries(log, offset_index)
    disk.spoil(log, MIDDLE)
    assert of_indexes(log) == {("index-entry-beyond-log", len(offset_index) - 1)}


def test_a_time_index_without_the_largest_time_that_was_read_is_found(
    log: Path, monkeypatch: pytest.MonkeyPatch
):
    """Unread batches could only have later times."""
    times(log, {i: (i, i) for i in range(10, 20, 10)})
    BadDisk(monkeypatch).spoil(log, TAIL)
    assert of_indexes(log) == {("time-index-incomplete", None)}
