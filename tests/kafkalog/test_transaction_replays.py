"""The last stable offset by columns is the one by single batches, and by a plain model."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import DataError
from kafkalog.files.log_dir import open_partition
from kafkalog.io.jit import fast_path
from kafkalog.log.columns import chunks
from kafkalog.log.producers import snapshot_bytes
from kafkalog.model import ProducerState
from kafkalog.node.unified_log import UnifiedLog
from tests.builders import BASE_TIME, batch, flip, record, write_log
from tests.counted_work import counted_work
from tests.kafkalog.log.columns.test_twins import logs
from tests.kafkalog.test_header_sweep import BITS, LOGS, SEGMENTS
from tests.kafkalog.test_recovery_twins import transactions
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import State

DRAWN = settings(max_examples=300 if tries_everything() else 15)


@contextmanager
def read_by(*, columns: bool, small: bool = False) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "FAST_SIZE_MIN", 0 if columns else 1 << 60)
        if small:
            patch.setattr(chunks, "CHUNK_SIZE_MIN", 300)
            patch.setattr(chunks, "_BATCHES_MAX", 3)
        yield


def replayed(partition: Path, **given: Any) -> Any:
    """Return what a replay gives, and the damage that it passed over."""
    try:
        log = UnifiedLog(open_partition(str(partition)), **given)
        log.high_watermark  # noqa: B018 # what finds it passes over damage, too
        log.damage.clear()
        result: Any = log.open_transactions(), log.hidden_transactions(), log.producer_epochs()
    except DataError as error:
        return type(error), error.reference, error.message
    return (*result, log.last_stable_offset, log.damage)


def assert_twins(partition: Path, **given: Any) -> Any:
    with read_by(columns=False):
        wanted = replayed(partition, **given)
    for small in (True, False):
        with read_by(columns=True, small=small):
            assert replayed(partition, **given) == wanted, given
    return wanted


@pytest.mark.sampled(10)
def test_what_brokers_left(any_state: State) -> None:
    """At each high watermark at or next to the end of a segment, and some others."""
    for partition in any_state.partitions():
        if partition.name == "lost+found":
            continue
        log = UnifiedLog(open_partition(str(partition)))
        try:
            start, end = log.log_start_offset, log.log_end_offset
        except DataError:
            continue
        assert_twins(partition)
        marks = {end, *(one.base_offset for one in log.segments)}
        marks |= {mark + by for mark in marks for by in (-1, 1)}
        rng = drawn_for(partition.name)
        marks |= {rng.randrange(start, end + 1) for _ in range(9)}
        for mark in sorted(marks) if tries_everything() else rng.sample(sorted(marks), 3):
            assert_twins(partition, high_watermark=mark)


@DRAWN
@given(
    data=st.lists(st.one_of(transactions(), transactions(), logs()), min_size=1, max_size=3),
    mark=st.none() | st.integers(0, 90),
    start=st.none() | st.integers(0, 30),
)
def test_logs_of_any_content(
    tmp_path: Path, data: list[bytes], mark: int | None, start: int | None
) -> None:
    """Offsets that go back, markers that cannot be read, flipped bits, bytes cut or inserted."""
    for old in (tmp_path / "t-0").glob("*"):
        old.unlink()
    for number, one in enumerate(data):
        write_log(tmp_path / "t-0", one, name=f"{80 * number:020}")
    assert_twins(tmp_path / "t-0", high_watermark=mark, log_start_offset=start)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOGS)
def test_flipped_bits_of_headers(tmp_path: Path, name: str) -> None:
    """Each bit that no checksum covers, in each batch; both ways pass over the same damage."""
    cases = [(part, bit) for part in LOGS[name] for bit in range(BITS)]
    chosen = cases if tries_everything() else drawn_for(name).sample(cases, 12)
    for broken, bit in chosen:
        for segment in range(SEGMENTS):
            parts = [part for part in LOGS[name] if part.segment == segment]
            data = (flip(part.data, bit) if part == broken else part.data for part in parts)
            write_log(tmp_path / "t-0", *data, name=f"{parts[0].first:020}")
        assert_twins(tmp_path / "t-0")


class Model:
    """Transactions as a log's writer knows them: the first offset of each producer's open one."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []

    def apply(self, one: Written) -> None:
        if one.kind == "plain":
            return
        self.epochs[one.producer] = one.epoch
        if one.kind == "data":
            self.open.setdefault(one.producer, one.offset)
            return
        first = self.open.pop(one.producer, None)
        if first is not None and one.kind == "ABORT":
            self.aborted.append((one.producer, first, one.offset))

    def states(self) -> list[ProducerState]:
        """Return the producers whose transactions are open; others may have expired."""
        return [
            ProducerState(
                producer_id=who,
                producer_epoch=self.epochs[who],
                coordinator_epoch=7,
                last_sequence=0,
                last_offset=first,
                offset_delta=0,
                last_timestamp=BASE_TIME,
                current_txn_first_offset=first,
            )
            for who, first in self.open.items()
        ]


class Written(NamedTuple):
    kind: str
    producer: int
    epoch: int
    offset: int
    next_offset: int
    data: bytes


def written(rng: random.Random, version: int) -> Iterator[Written]:
    """Yield batches of a few producers; since version 2 each marker raises the epoch."""
    epochs: dict[int, int] = {}
    offset = 0
    for _ in range(300):
        producer = rng.randrange(12)
        kind = rng.choice(("plain", "data", "data", "data", "ABORT", "COMMIT"))
        is_marker = kind in ("ABORT", "COMMIT")
        if is_marker and version > 1:
            epochs[producer] = epochs.get(producer, 0) + 1
        epoch, attributes = epochs.get(producer, 0), {"plain": 0, "data": 0x10}.get(kind, 0x30)
        records = [record(number) for number in range(rng.choice((1, 1, 3)))]
        if is_marker:
            records = [record(0, b"\0\0\0" + bytes([kind == "COMMIT"]), b"\0\0\0\0\0\7")]
        sender = producer, epoch, -1 if is_marker else 0
        data = batch(offset, records, attributes=attributes, producer=sender)
        yield Written(kind, producer, epoch, offset, offset + len(records), data)
        offset += len(records)


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_whole_logs_have_the_transactions_that_were_written(
    tmp_path: Path, seed: int, version: int
) -> None:
    """With and without a snapshot on the way."""
    rng = drawn_for(f"transactions {seed} of version {version}")
    log = list(written(rng, version))
    middle = rng.randrange(20, 280)
    base, mark = log[middle].offset, rng.choice(log[middle:]).next_offset
    model = Model()
    for one in log[:middle]:
        model.apply(one)
    states, aborted_before = model.states(), len(model.aborted)
    for one in log[middle:]:
        if one.next_offset <= mark:
            model.apply(one)
    write_log(tmp_path / "t-0", *(one.data for one in log[:middle]))
    write_log(tmp_path / "t-0", *(one.data for one in log[middle:]), name=f"{base:020}")
    for has_snapshot in (False, True):
        if has_snapshot:
            (tmp_path / "t-0" / f"{base:020}.snapshot").write_bytes(snapshot_bytes(states))
        opened, hidden, known, stable, damage = assert_twins(tmp_path / "t-0", high_watermark=mark)
        assert {one.producer_id: one.first_offset for one in opened} == model.open
        assert stable == min([mark, *model.open.values()])
        aborted = [(one.producer_id, one.first_offset, one.last_offset) for one in hidden]
        assert aborted == model.aborted[aborted_before if has_snapshot else 0 :]
        assert known.items() <= model.epochs.items()
        assert has_snapshot or known == model.epochs
        assert not damage


def test_a_large_log_is_replayed_without_a_look_at_each_batch(tmp_path: Path) -> None:
    """Sixteen times the batches take no sixteen times the calls."""
    calls = []
    for times in (1, 16):
        log = [batch(i, [record(0, None, bytes(900))]) for i in range(400 * times)]
        path = write_log(tmp_path / f"t-{times}", *log)
        partition = open_partition(str(path.parent))
        for _ in range(2):  # the first one loads modules
            log_of = UnifiedLog(partition)
            assert log_of.high_watermark == 400 * times
            with counted_work() as work:
                assert log_of.last_stable_offset == 400 * times
        calls.append(work.calls)
    assert calls[1] < 4 * calls[0]
