"""Starts are predicted the same from columns, from single batches, and from batches fed to them."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.files.log_dir import open_partition
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.columns import chunks, headers
from kafkalog.log.columns.headers import batch_columns
from kafkalog.model import Defect, Level
from kafkalog.node.recovery import StartConfig, StartInProgress, StartMode, predict_start, walk
from kafkalog.node.recovery.segment_state import SegmentState
from tests.builders import batch, record, write_log
from tests.kafka.damaged_logs import Damage
from tests.kafkalog.log.columns.test_twins import logs
from tests.kafkalog.test_recovery import CONFIG, PARTITION, Scenario, scenarios
from tests.sampling import sampled, tries_everything

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.node.recovery import PredictedStart
    from tests.conftest import State

__all__ = ["scenarios"]

GENERATED = settings(max_examples=2000 if tries_everything() else 15)
Told = list[tuple[str, bytes]]


@contextmanager
def in_columns(*, small: bool) -> Iterator[None]:
    """Use columns from the first batch on, with small chunks if wanted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "FAST_SIZE_MIN", 0)
        patch.setattr(walk, "_ONE_BY_ONE", 1)
        if small:
            patch.setattr(chunks, "CHUNK_SIZE_MIN", 300)
            patch.setattr(chunks, "_BATCHES_MAX", 3)
            patch.setattr(headers, "_BATCHES_AT_ONCE", 2)
        yield


def predicted(partition: Path, mode: StartMode, **options: Any) -> tuple[PredictedStart, Told]:
    told: Told = []
    start = predict_start(str(partition), mode, tell=lambda *file: told.append(file), **options)
    return start, told


def fed(partition: Path, mode: StartMode, **options: Any) -> tuple[PredictedStart, Told]:
    """Predict as `verify` does, from the batches of its own walk over the segments."""
    told: Told = []
    directory = open_partition(str(partition))
    start = StartInProgress(directory, mode, tell=lambda *file: told.append(file), **options)
    for segment in directory.segments:
        start.begin(segment.log.path, segment.base_offset)
        with Source(segment.log.path) as source:
            for found in batch_columns(source, Level.STANDARD):
                if not isinstance(found, Defect):
                    start.feed(found)
    return start.end(), told


def assert_twins(partition: Path, mode: StartMode, **options: Any) -> PredictedStart:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "FAST_SIZE_MIN", 1 << 40)
        # The log end is searched for through the index, as in a broker, also after a scan.
        patch.setattr(SegmentState, "set_end", lambda *_, **__: None)
        wanted = predicted(partition, mode, **options)
    for small in (True, False):
        with in_columns(small=small):
            assert predicted(partition, mode, **options) == wanted
            assert fed(partition, mode, **options) == wanted
    assert fed(partition, mode, **options) == wanted
    return wanted[0]


@pytest.mark.parametrize("mode", StartMode)
def test_the_golden_scenarios(scenarios: list[Scenario], mode: StartMode) -> None:
    """The scenarios that were compared with Kafka's own loader."""
    for scenario in sampled(scenarios, 9):
        assert_twins(scenario.path / PARTITION, mode, config=CONFIG)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(60))
def test_damaged_scenarios(scenarios: list[Scenario], seed: int, tmp_path: Path) -> None:
    """Flipped bits, cuts, swapped and renamed files."""
    rng = random.Random(seed)
    partition = rng.choice(scenarios).copy(tmp_path)
    for directory in [path for path in partition.iterdir() if path.is_dir()]:
        directory.rmdir()
    Damage(partition, rng)
    for mode in StartMode:
        assert_twins(partition, mode, config=CONFIG, recovery_point=rng.randrange(60))


@pytest.mark.sampled(15)
def test_partitions_that_a_broker_left(any_state: State) -> None:
    """They contain transactions, old formats and compacted logs."""
    for partition in any_state.partitions():
        if partition.name != "lost+found":
            assert_twins(partition, StartMode.FULL, config=CONFIG)


MARKS = {"ABORT": b"\0\0\0\0", "COMMIT": b"\0\0\0\1", "LEADER_CHANGE": b"\0\0\0\2", "short": b"\0"}


@st.composite
def transactions(draw: st.DrawFn) -> bytes:
    """Draw batches of few producers with markers, epochs and gaps, in a possibly wrong order."""
    log, offset = [], 0
    for _ in range(draw(st.integers(0, 40))):
        producer = draw(st.sampled_from([-1, 5, 6]))
        epoch = draw(st.sampled_from([0, 0, 0, 1]))
        kind = draw(st.sampled_from(["data", "data", "txn", "txn", "empty", *MARKS]))
        leader = draw(st.sampled_from([-1, 0, 0, 0, 1, 2]))
        time = draw(st.integers(0, 9))
        options: dict[str, Any] = {"epoch": leader, "base_time": time, "max_time": time}
        attributes, records = 0, [record(0, b"k"), record(1, b"l")]
        if kind == "txn":
            attributes = 0x10
        elif kind == "empty":
            attributes, records = 0x30, []
        elif kind in MARKS:
            attributes = 0x30
            value = b"\0\0\0\0\0\3"
            records = [record(0, MARKS[kind], value, time_delta=draw(st.integers(-1, 1)))]
        sequence = -1 if attributes & 0x20 else draw(st.sampled_from([0, 7, 2**31 - 1]))
        options |= {"attributes": attributes, "producer": (producer, epoch, sequence)}
        log.append(batch(offset, records, **options))
        offset += draw(st.sampled_from([2, 2, 2, 2, 2, 2, 3, 1, 0, -3]))
        offset = max(offset, 0)
    return b"".join(log)


@GENERATED
@given(
    data=st.one_of(transactions(), logs()),
    interval=st.sampled_from([0, 100, 300, 4096]),
    size=st.sampled_from([24, 65536]),
    mode=st.sampled_from([StartMode.FULL, StartMode.CLEAN]),
)
def test_generated_logs(
    tmp_path: Path, data: bytes, interval: int, size: int, mode: StartMode
) -> None:
    """Batches of any content, and sizes at which the indexes are full."""
    path = write_log(tmp_path / "t-0", data)
    config = StartConfig(
        index_interval_bytes=interval, segment_index_bytes=size, now_ms=1_700_000_000_000
    )
    assert_twins(path.parent, mode, config=config)


def test_short_timestamps_do_not_stop_the_scan(tmp_path: Path) -> None:
    """Batches without timestamps leave the time index empty."""
    log = [batch(i, [record()], base_time=-1, max_time=-1) for i in range(300)]
    path = write_log(tmp_path / "t-0", *log)
    start = assert_twins(path.parent, StartMode.FULL, config=CONFIG)
    assert start.loaded is not None
    assert start.loaded.segments[0].time_index_entries == 0


def test_an_index_may_lead_past_a_last_batch_whose_offset_went_back(tmp_path: Path) -> None:
    """The last entry is above it, and no batch is there: the broker ends the log at its base."""
    log = [batch(offset, [record(), record(1)]) for offset in (0, 2, 4, 6, 8)]
    path = write_log(tmp_path / "t-0", *log, batch(8, [record()]))
    config = StartConfig(index_interval_bytes=300, now_ms=1_700_000_000_000)
    start = assert_twins(path.parent, StartMode.CLEAN, config=config)
    assert start.loaded is not None
    assert start.loaded.log_end_offset == 0
