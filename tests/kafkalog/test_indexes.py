"""Index entries and their lookup; padding is distinguished from entries (§6.4 to §6.6)."""

from __future__ import annotations

import bisect
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import KafkaLogError
from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.model import AbortedTransaction, OffsetIndexEntry, TimeIndexEntry
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

BASE = 1000
NAME = f"{BASE:020d}"
ENTRIES = [(1, 5070), (3, 10310), (5, 14450)]
TIMES = [(5000, 0), (6000, 2), (7000, 6)]
INT31 = st.integers(0, 2**31 - 1)
PATIENT = settings(max_examples=examples(60))


def offset_index(directory: Path, entries: list[tuple[int, int]], padding: int = 0) -> OffsetIndex:
    path = directory / f"{NAME}.index"
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(padding))
    return OffsetIndex(str(path))


def time_index(directory: Path, entries: list[tuple[int, int]], padding: int = 0) -> TimeIndex:
    path = directory / f"{NAME}.timeindex"
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries) + bytes(padding))
    return TimeIndex(str(path))


@pytest.mark.parametrize("padding", [0, 8, 976, 10 << 20])
def test_an_offset_index_is_offsets_and_positions(tmp_path: Path, padding: int):
    """Offsets count from the base in the name; trailing zeros are no entries."""
    with offset_index(tmp_path, ENTRIES, padding) as index:
        wanted = [OffsetIndexEntry(i, BASE + o, p) for i, (o, p) in enumerate(ENTRIES)]
        assert list(index.entries()) == wanted
        assert [index.entry(i) for i in range(3)] == wanted
        assert (index.entry_count, index.slot_count) == (3, 3 + padding // 8)
        assert index.base_offset == BASE
        if padding <= 976:
            padded = list(index.entries(padding=True))
            assert padded[:3] == wanted
            assert all((e.offset, e.position) == (BASE, 0) for e in padded[3:])


@pytest.mark.parametrize("padding", [0, 12, 960])
def test_a_time_index_is_timestamps_and_offsets(tmp_path: Path, padding: int):
    """The last entry is the last before the zeros."""
    with time_index(tmp_path, TIMES, padding) as index:
        wanted = [TimeIndexEntry(i, t, BASE + o) for i, (t, o) in enumerate(TIMES)]
        assert list(index.entries()) == wanted
        assert index.last() == wanted[-1]
        assert (index.entry_count, index.slot_count) == (3, 3 + padding // 12)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 11, 12, 10_485_756])
def test_an_index_of_zeros_has_no_entries(tmp_path: Path, size: int):
    """Preallocated but unused, or shorter than one entry."""
    with offset_index(tmp_path, [], size) as index:
        assert index.entry_count == 0
        assert list(index.entries()) == []
        assert index.lookup(2**62) is None
    with time_index(tmp_path, [], size) as index:
        assert index.entry_count == 0
        assert index.last() is None
        assert index.lookup(2**62) is None


def test_a_part_of_an_entry_is_left_out(tmp_path: Path):
    """§6.4: Kafka takes length / 8."""
    with offset_index(tmp_path, ENTRIES, 5) as index:
        assert index.entry_count == 3
    with time_index(tmp_path, TIMES, 5) as index:
        assert index.entry_count == 3


@PATIENT
@given(st.lists(st.tuples(INT31, INT31), max_size=60), st.integers(0, 40), st.data())
def test_lookup_is_the_floor(
    tmp_path: Path, pairs: list[tuple[int, int]], padding: int, data: st.DataObject
):
    """kafka-algorithms §3.1: a plain bisect over sorted entries."""
    offsets = sorted({offset for offset, _ in pairs if offset})
    entries = [(offset, 100 * i + 1) for i, offset in enumerate(offsets)]
    target = data.draw(st.sampled_from([*offsets, 0]) | INT31) + data.draw(st.integers(-1, 1))
    at = bisect.bisect_right(offsets, target) - 1
    probes: list[object] = []
    with offset_index(tmp_path, entries, 8 * padding) as index:
        found = index.lookup(BASE + target, probes)  # type: ignore[arg-type] # any list will do
        assert index.entry_count == len(entries)
    wanted = OffsetIndexEntry(at, BASE + offsets[at], entries[at][1]) if at >= 0 else None
    assert found == wanted
    assert len(probes) <= 7
    times = [(1 + offset, i) for i, offset in enumerate(offsets)]
    with time_index(tmp_path, times, 12 * padding) as index:
        hit = index.lookup(1 + target)
    assert (hit and hit.entry) == (at if at >= 0 else None)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("kind", "size"), [("index", 8), ("timeindex", 12)])
def test_corpus_entries_are_those_of_the_bytes(any_state: State, kind: str, size: int):
    """Every index of every broker, padded or not, compared with struct and the rule of §6.4/5."""
    layout, opened = (">ii", OffsetIndex) if kind == "index" else (">qi", TimeIndex)
    for path in sorted(any_state.root.rglob(f"*.{kind}")):
        data = path.read_bytes()
        slots = list(struct.iter_unpack(layout, data[: len(data) // size * size]))
        while slots and slots[-1] == (0, 0):
            slots.pop()
        base = int(path.name.partition(".")[0])
        with opened(str(path)) as index:
            got = [
                (e.offset - base, e.position)
                if isinstance(e, OffsetIndexEntry)
                else (e.timestamp, e.offset - base)
                for e in index.entries()
            ]
        assert got == slots, path


def test_aborted_transactions_are_read(tmp_path: Path):
    """§8.4, followed by an incomplete entry."""
    entry = bytes.fromhex("00000000000000000fa1000000000000000a000000000000002a000000000000002b")
    path = tmp_path / f"{NAME}.txnindex"
    for rest in range(34):
        path.write_bytes(entry * 2 + entry[:rest])
        assert (
            list(read_aborted_transactions(str(path)))
            == [AbortedTransaction(0, 4001, 10, 42, 43)] * 2
        )


def test_missing_indexes_are_our_error(tmp_path: Path):
    """The error names the missing index."""
    for opened in (OffsetIndex, TimeIndex, lambda path: list(read_aborted_transactions(path))):
        with pytest.raises(KafkaLogError) as caught:
            opened(str(tmp_path / f"{NAME}.index"))
        assert caught.value.path == str(tmp_path / f"{NAME}.index")
