"""Epochs, sequences, markers and open transactions: what is legal in a log, and what is not."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.check import producers
from kafkalog.check.verify import Verification
from kafkalog.model import Defect, Level, Severity
from tests.builders import BASE_TIME, SEGMENT, batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

ABORT, COMMIT = 0, 1
DAY_MS = 86_400_000
LOG_APPEND_TIME = 0x08


def data(
    offset: int,
    sequence: int,
    count: int = 1,
    *,
    producer: int = 7,
    epoch: int = 0,
    transactional: bool = False,
    time: int = BASE_TIME,
    attributes: int = 0,
) -> bytes:
    return batch(
        offset,
        [record(i, b"k") for i in range(count)],
        producer=(producer, epoch, sequence),
        attributes=attributes | (0x10 if transactional else 0),
        base_time=time,
        max_time=time,
    )


def marker(
    offset: int,
    kind: int = COMMIT,
    *,
    producer: int = 7,
    epoch: int = 0,
    coordinator: int = 0,
    time: int = BASE_TIME,
) -> bytes:
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator)
    return batch(
        offset,
        [record(0, key, value)],
        producer=(producer, epoch, -1),
        attributes=0x30,
        base_time=time,
        max_time=time,
    )


def emptied_marker(offset: int, *, producer: int = 7) -> bytes:
    return batch(offset, [], producer=(producer, 0, -1), attributes=0x30)


def txn(offset: int, sequence: int, **fields: int) -> bytes:
    return data(offset, sequence, transactional=True, **fields)


def verify(target: Path, level: Level = Level.STANDARD) -> list[Defect]:
    run = Verification(level)
    return list(run.verify(target))


def grave(defects: list[Defect]) -> list[str]:
    return [defect.reference for defect in about_batches(defects)]


def about_batches(defects: list[Defect]) -> list[Defect]:
    """Drop the findings about indexes: these logs have none."""
    return [d for d in defects if d.severity != Severity.NOTE and d.reference != "index-missing"]


def write_compacted(directory: Path, *batches: bytes, name: str = SEGMENT) -> Path:
    """Write a log of a compacted topic: offsets may be missing."""
    path = write_log(directory, *batches, name=name)
    checkpoint = f"0\n1\n{directory.name.replace('-', ' ')} 0\n"
    (directory.parent / "cleaner-offset-checkpoint").write_text(checkpoint)
    return path


LEGAL = {
    "sequences go on": [data(0, 0, 3), data(3, 3), data(4, 4, 2)],
    "two producers take turns": [
        data(0, 0), data(1, 0, producer=8), data(2, 1), data(3, 1, producer=8),
    ],
    "sequences begin again at 0 behind the largest": [data(0, 2**31 - 2, 2), data(2, 0)],
    "a batch goes over the largest sequence": [data(0, 2**31 - 1, 3), data(3, 2)],
    "a producer that the log does not know goes on": [data(0, 500), data(1, 501)],
    "batches were removed by compaction": [data(0, 0), data(5, 5), data(9, 7)],
    "a new epoch begins at 0": [data(0, 0, 4), data(4, 0, epoch=1), data(5, 1, epoch=1)],
    "a marker carries the next epoch": [
        txn(0, 0), marker(1, epoch=1), txn(2, 0, epoch=1), marker(3, epoch=2),
    ],
    "a marker carries the epoch of its data": [txn(0, 0), marker(1), txn(2, 1), marker(3)],
    "a marker is repeated": [txn(0, 0), marker(1, epoch=1), marker(2, epoch=1)],
    "a marker stands alone": [marker(0), data(1, 0, producer=8)],
    "only an emptied marker is left": [emptied_marker(3), txn(4, 5), marker(5)],
    "a plain batch follows a transaction": [txn(0, 0), marker(1), data(2, 1)],
    "a transaction is open": [txn(0, 0), txn(1, 1)],
    "epochs were removed": [data(0, 0), data(5, 3, epoch=4)],
    "no producer has sequences": [batch(0, [record()], producer=(-1, -1, 0)),
                                  batch(1, [record()], producer=(-1, -1, 0))],
}  # fmt: skip

WRONG: dict[str, list[list[bytes]]] = {
    "producer-sequence-skipped": [
        [data(0, 0), data(1, 2)],
        [data(0, 0), data(1, 0, producer=8), data(2, 9), data(3, 10)],
        [data(0, 0), data(1, 3, epoch=1)],
        [txn(0, 0), marker(1, epoch=1), txn(2, 1, epoch=1)],
        [data(0, 2**31 - 1), data(1, 1)],
    ],
    "producer-sequence-repeated": [
        [data(0, 0, 3), data(3, 0, 3)],
        [data(0, 0), data(1, 1), data(2, 0, producer=8), data(3, 1)],
        [txn(0, 5), marker(1), txn(2, 5)],
    ],
    "producer-epoch-went-back": [
        [data(0, 0, epoch=3), data(1, 0, epoch=2)],
        [data(0, 0, epoch=3), data(9, 0, epoch=2)],
        [txn(0, 0), marker(1, epoch=1), txn(2, 1)],
        [txn(0, 0, epoch=4), marker(1, epoch=3)],
    ],
    "coordinator-epoch-went-back": [
        [txn(0, 0), marker(1, coordinator=5), txn(2, 1), marker(3, coordinator=4)],
        [marker(0, coordinator=5), marker(7, coordinator=4)],
    ],
    "batch-outside-transaction": [
        [txn(0, 0), data(1, 1)],
        [txn(0, 0), data(1, 0, producer=8), txn(2, 1), data(9, 9)],
    ],
    "control-record-malformed": [
        [txn(0, 0), batch(1, [record(0, b"")], producer=(7, 0, -1), attributes=0x30)],
        [txn(0, 0), marker(1, kind=3)],
    ],
    "batch-header-contradictory": [
        [txn(0, 0), marker(1, producer=-1)],
    ],
}


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("name", LEGAL)
@pytest.mark.parametrize("level", Level)
def test_what_brokers_write_gives_no_finding(tmp_path: Path, name: str, level: Level):
    """Everything that a leader accepts, followers copy and compaction leaves."""
    write_compacted(tmp_path / "t-0", *LEGAL[name])
    assert grave(verify(tmp_path / "t-0", level)) == []


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize(
    ("reference", "number"), [(name, i) for name, logs in WRONG.items() for i in range(len(logs))]
)
@pytest.mark.parametrize("level", Level)
def test_each_contradiction_has_its_name(tmp_path: Path, reference: str, number: int, level: Level):
    """It is reported once, at the batch that contradicts, within a segment or across a roll."""
    batches = WRONG[reference][number]
    log = write_compacted(tmp_path / "t-0", *batches)
    found = about_batches(verify(log.parent, level))
    assert [defect.reference for defect in found] == [reference]
    assert found[0].path == str(log)
    position = found[0].position
    assert position is not None
    offset = int.from_bytes(b"".join(batches)[position : position + 8], "big")
    assert found[0].offset == offset
    write_log(log.parent, b"".join(batches)[:position])
    write_log(log.parent, b"".join(batches)[position:], name=f"{offset:020}")
    rolled = about_batches(verify(log.parent, level))
    assert [(d.reference, d.offset) for d in rolled] == [(reference, offset)]


def test_the_group_coordinator_has_no_sequences(tmp_path: Path):
    """Transactional offset commits all have sequence 0."""
    batches = [txn(0, 0), txn(1, 0), marker(2), txn(3, 0)]
    write_log(tmp_path / "__consumer_offsets-3", *batches)
    write_log(tmp_path / "other-3", *batches)
    assert grave(verify(tmp_path / "__consumer_offsets-3")) == []
    assert grave(verify(tmp_path / "other-3")) == ["producer-sequence-repeated"] * 2


def test_what_damage_hides_is_not_held_against_what_follows(tmp_path: Path):
    """Only the batch with the wrong checksum is reported."""
    lost = bytearray(marker(1))
    lost[-1] ^= 1
    write_log(tmp_path / "t-0", txn(0, 0), bytes(lost), data(2, 7), data(3, 8))
    assert grave(verify(tmp_path / "t-0")) == ["batch-crc-mismatch"]


def opened(tmp_path: Path, *batches: bytes) -> Defect:
    write_log(tmp_path / "orders-3", *batches)
    defects = verify(tmp_path / "orders-3")
    [found] = [defect for defect in defects if defect.reference != "index-missing"]
    return found


def test_an_open_transaction_is_noted_with_the_line_that_ends_it(tmp_path: Path):
    """The options are those of `kafka-transactions.sh abort`, for Kafka 4.3 and before 3.0."""
    found = opened(tmp_path, marker(0, coordinator=4), txn(1, 0, epoch=2), txn(2, 1, epoch=2))
    assert (found.reference, found.severity) == ("transaction-open", Severity.NOTE)
    assert found.offset == 1
    line = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic orders --partition 3"
    assert found.hint is not None
    assert f"`{line} --start-offset 1`" in found.hint
    assert f"`{line} --producer-id 7 --producer-epoch 2 --coordinator-epoch 4`" in found.hint


def test_clocks_of_brokers_tell_a_hanging_transaction(tmp_path: Path):
    """Two later markers are more than a day apart."""
    rest = [
        marker(1, producer=8, time=BASE_TIME + 5000),
        marker(2, producer=8, time=BASE_TIME + 5001 + DAY_MS),
    ]
    found = opened(tmp_path, txn(0, 0), *rest)
    assert (found.reference, found.severity) == ("transaction-hanging", Severity.WARNING)
    assert found.hint is not None
    assert "--start-offset 0`" in found.hint
    assert producers.HANGING_MS == DAY_MS
    late = data(1, 0, producer=8, time=BASE_TIME + 2 * DAY_MS, attributes=LOG_APPEND_TIME)
    first = data(0, 0, transactional=True, attributes=LOG_APPEND_TIME)
    assert opened(tmp_path, first, late).reference == "transaction-hanging"


def test_clocks_of_producers_tell_nothing(tmp_path: Path):
    """A broker was killed in a transaction; the data has timestamps of other years."""
    later = data(1, 0, producer=8, time=BASE_TIME + 900 * DAY_MS)
    now = marker(2, producer=9, time=BASE_TIME + 900 * DAY_MS)
    assert opened(tmp_path, txn(0, 0), later, now).reference == "transaction-open"
    before = [marker(0, producer=9, time=BASE_TIME), marker(1, producer=9, time=BASE_TIME + DAY_MS)]
    assert opened(tmp_path, *before, txn(2, 0), later[:0]).reference == "transaction-open"


def test_a_marker_without_a_time_is_no_clock(tmp_path: Path):
    """The next marker is one, whether both are checked together or not."""
    rest = [marker(1, producer=8, time=-1), marker(2, producer=9, time=BASE_TIME)]
    rest.append(marker(3, producer=8, time=BASE_TIME + 7000))
    found = opened(tmp_path, txn(0, 0), *rest)
    assert "at least 7 seconds before the newest" in found.detail
