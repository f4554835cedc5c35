"""Markers and facts of records are the same from the kernels and from the reference decoder."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import KafkaLogError
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.log.columns import header_table
from kafkalog.log.columns.headers import batch_columns
from kafkalog.model import Batch, Defect, Level
from kafkalog.node.recovery import StartConfig, indexes
from kafkalog.node.recovery.indexes import IndexBuild
from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.check.test_check_twins import ALWAYS, NEVER, sized
from tests.kafkalog.log.columns.test_twins import logs
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

GENERATED = settings(max_examples=examples(150))


def columns(path: Path, size_min: int, *, small: bool) -> list[Any]:
    """Return per batch position, markers, facts and why it did not decode; and the defects."""
    found: list[Any] = []
    with sized(size_min, small=small), Source(str(path)) as source:
        for columns in batch_columns(source, Level.DEEP):
            if isinstance(columns, Defect):
                found.append(columns)
                continue
            assert columns.facts is not None
            refused = {i: (error.reference, error.message) for i, error in columns.refusals}
            found += [
                (int(columns.headers[0, i]), columns.markers[:, i].tolist(),
                 columns.facts[:, i].tolist(), refused.get(i))
                for i in range(columns.count)
            ]  # fmt: skip
    return found


def independent(path: Path) -> list[tuple[int, list[int]]]:
    """Derive the facts from the records themselves, for batches with a correct checksum."""
    found = []
    with Source(str(path)) as source:
        for one in scan_batches(source, check_crc=True):
            if not isinstance(one, Batch):
                continue
            records: list[tuple[int, int]] = []
            tombstones: list[int] = []
            with suppress(KafkaLogError):
                if one.crc_valid:
                    for r in decode_records(source, one):
                        records.append((r.offset, r.timestamp))
                        tombstones += [r.offset] if r.value is None and r.offset >= 0 else []
            facts = [-1] * header_table.FACT_FIELDS
            if one.crc_valid:
                facts[header_table.FOUND] = len(records)
            if records:
                offsets, times = zip(*records, strict=True)
                highest = np.maximum.accumulate(offsets)
                falls = [i for i in range(1, len(offsets)) if offsets[i] <= highest[i - 1]]
                newest = max(times)
                facts[header_table.FIRST], facts[header_table.LAST] = min(offsets), max(offsets)
                facts[header_table.DISORDER] = falls[0] if falls else -1
                facts[header_table.TIME_MAX], facts[header_table.OFFSET_OF_MAX] = (
                    newest,
                    offsets[times.index(newest)],
                )
                early = [offset for offset, time in records if time < -1 and offset >= 0]
                facts[header_table.INVALID_TIME] = early[0] if early else -1
                facts[header_table.TOMBSTONE] = tombstones[0] if tombstones else -1
            found.append((one.position, facts))
    return found


def assert_twins(path: Path, *, small: bool = False) -> list[Any]:
    wanted = columns(path, NEVER, small=False)
    assert columns(path, ALWAYS, small=small) == wanted
    assert [(row[0], row[2]) for row in wanted if isinstance(row, tuple)] == independent(path)
    return wanted


@pytest.mark.sampled(15)
def test_the_corpus(any_state: State):
    """Every log that a broker left, markers included."""
    markers: set[int] = set()
    for path in sorted(any_state.root.glob("**/*-[0-9]*/*.log")):
        for row in assert_twins(path):
            if isinstance(row, tuple):
                _, marker, facts, refused = row
                markers.add(marker[header_table.MARKER_TYPE])
                assert refused is None
                assert facts[header_table.FOUND] >= 0 or "crash" in any_state.name
    assert markers <= {header_table.NO_MARKER, header_table.EMPTIED, 0, 1, 2, 3, 4, 5, 6}


@GENERATED
@given(data=logs(), small=st.booleans())
def test_generated_and_damaged_logs(tmp_path: Path, data: bytes, small: bool):
    """The facts agree on any bytes."""
    assert_twins(write_log(tmp_path, data), small=small)


MARKERS = {
    "abort": (struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 7), (0, 7)),
    "commit": (struct.pack(">hh", 0, 1), struct.pack(">hi", 0, -1), (1, -1)),
    "a later version of the key": (struct.pack(">hhx", 1, 1), struct.pack(">hi", 0, 3), (1, 3)),
    "a later version of the marker": (struct.pack(">hh", 0, 1), struct.pack(">hix", 1, 3), (1, 3)),
    "a short key": (b"\0", struct.pack(">hi", 0, 3), (header_table.UNREADABLE, -1)),
    "no key": (None, struct.pack(">hi", 0, 3), (header_table.UNREADABLE, -1)),
    "a short marker": (struct.pack(">hh", 0, 1), b"\0\0\0", (header_table.UNREADABLE, -1)),
    "a negative type": (
        struct.pack(">hh", 0, -4),
        struct.pack(">hi", 0, 3),
        (header_table.UNREADABLE, -1),
    ),
    "an unknown type": (struct.pack(">hh", 0, 99), b"", (99, -1)),
}


def test_what_control_batches_say(tmp_path: Path):
    """Types, coordinator epochs and times, valid or not; other batches have no marker."""
    log = [
        batch(i, [record(key=key, value=value, time_delta=-i)], attributes=0x30 | append_time << 3)
        for append_time in (False, True)
        for i, (key, value, _) in enumerate(MARKERS.values())
    ]
    emptied = batch(len(log), [], attributes=0x30, producer=(5, 0, -1))
    data = batch(len(log) + 1, [record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\7")])
    path = write_log(tmp_path, *log, emptied, data)
    wanted = [
        [*said, time if said[0] in (0, 1) else -1]
        for times in ([BASE_TIME - i for i in range(len(MARKERS))], [BASE_TIME] * len(MARKERS))
        for (_, _, said), time in zip(MARKERS.values(), times, strict=True)
    ]
    wanted += [[header_table.EMPTIED, -1, -1], [header_table.NO_MARKER, -1, -1]]
    assert [row[1] for row in assert_twins(path)] == wanted


@pytest.mark.parametrize("interval", [0, 1, 100, 4096])
def test_index_entries_are_due_as_the_reference_says(
    interval: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch, by columns without the kernels, and with them."""
    rng = random.Random(f"due {interval}")
    positions = np.cumsum([0, *(rng.randrange(1, 2000) for _ in range(500))])
    offsets = np.arange(len(positions)) * 3
    times = np.array([rng.randrange(1000) for _ in positions])
    builds = [IndexBuild(0, StartConfig(interval, 1 << 20)) for _ in range(3)]
    for columns in zip(times.tolist(), offsets.tolist(), positions.tolist(), strict=True):
        builds[0].batch(*columns)
    for build, works in zip(builds[1:], (False, True), strict=True):
        monkeypatch.setattr(indexes, "kernels_work", lambda works=works: works)
        for first in range(0, len(positions), 90):
            some = slice(first, first + 90)
            assert build.columns(times[some], offsets[some], positions[some])
    entries = {(build.offsets.data(), build.times.data()) for build in builds}
    assert len(entries) == 1
    assert entries != {(b"", b"")}
