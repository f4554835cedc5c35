"""The kernels and the reference decoder give the same rows and the same defects, on any bytes."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import crc32c as wheel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.io.codecs import compress
from kafkalog.io.paths.source import Source
from kafkalog.log.batches import records
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.selection import Selection
from kafkalog.log.columns import chunks
from kafkalog.model import Batch, Isolation
from tests.builders import BASE_TIME, batch, flip, frames, message, record, varint, write_log
from tests.kafkalog.log.columns.twins import assert_twins, by_kernels, by_reference
from tests.kafkalog.test_records import BAD_RECORDS, BLOBS_V2, WRAPPERS
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import State

TWINS = settings(max_examples=examples(150))
FIELD = st.none() | st.binary(max_size=12)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
DELTA = st.integers(0, 9) | INT32
RECORD = st.builds(
    record, DELTA, FIELD, FIELD, time_delta=st.integers(0, 9) | INT64,
    headers=st.lists(st.tuples(st.binary(max_size=5), FIELD), max_size=3),
)  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Draw a batch of any magic, codec and header, with a correct checksum."""
    if draw(st.integers(0, 5)) == 0:
        magic = draw(st.sampled_from((0, 1)))
        attributes = 0 if magic == 0 else draw(st.sampled_from((0, 8)))
        return message(draw(st.integers(0, 99)), draw(FIELD), draw(FIELD), magic=magic,
                       attributes=attributes)  # fmt: skip
    records = draw(st.lists(RECORD, max_size=6))
    codec = draw(st.sampled_from((0, 0, 0, 1, 2, 3, 4, 5)))
    body = b"".join(records)
    if draw(st.integers(0, 4)) == 0 and body:
        body = flip(body, draw(st.integers(0, 8 * len(body) - 1)))
    count = len(records)
    if draw(st.integers(0, 5)) == 0:
        count = draw(st.integers(-1, 9) | INT32)
    return batch(
        draw(st.integers(0, 999) | INT64),
        payload=compress(body, codec) if codec < 5 else body,
        count=count,
        last_delta=draw(st.integers(0, 9) | INT32),
        attributes=codec | draw(st.sampled_from((0, 8, 16, 48, 64, 0x80))),
        base_time=draw(st.just(BASE_TIME) | INT64),
        max_time=draw(st.just(BASE_TIME) | INT64),
        producer=draw(st.just((-1, -1, -1)) | st.tuples(st.just(7), st.just(1), INT32)),
        epoch=draw(st.integers(-1, 3)),
        magic=draw(st.sampled_from((2, 2, 2, 2, 2, 3))),
    )


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Draw some batches, perhaps damaged: bits flipped, bytes cut, doubled or inserted."""
    data = b"".join(draw(st.lists(batches(), max_size=8)))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        size = draw(st.integers(1, 40))
        kind = draw(st.sampled_from(("flip", "cut", "double", "zeros", "junk")))
        if kind == "flip":
            data = flip(data, 8 * at + size % 8)
        elif kind == "cut":
            data = data[:at] + data[at + size :]
        elif kind == "double":
            data = data[: at + size] + data[at:]
        else:
            filling = bytes(size) if kind == "zeros" else random.Random(at).randbytes(size)
            data = data[:at] + filling + data[at:]
    return data


@TWINS
@given(data=logs(), batch_rows=st.sampled_from((1, 3, 1000)), threads=st.sampled_from((1, 2)))
def test_generated_and_damaged_logs(tmp_path: Path, data: bytes, batch_rows: int, threads: int):
    """Both decoders agree on any bytes."""
    path = write_log(tmp_path, data)
    assert_twins(path, batch_rows=batch_rows, threads=threads)


@pytest.mark.parametrize(
    ("epochs", "noted", "wrong"),
    [
        ((1, 1, 2, 3, 3), "2\n1 0\n3 3\n", 1),
        ((1, 1, 2, 3, 3), "3\n1 0\n2 2\n3 3\n", 0),
        ((1, 1, 1, 1, 2), "1\n1 0\n", 1),
        ((0, 1, 1, 1, 1), "1\n1 0\n", 1),
    ],
)
def test_an_epoch_that_one_batch_has_alone_is_looked_up(
    tmp_path: Path, epochs: Sequence[int], noted: str, wrong: int
) -> None:
    """Its neighbours do not say whether it is right; `leader-epoch-checkpoint` may."""
    log = [batch(offset, [record()], epoch=epoch) for offset, epoch in enumerate(epochs)]
    path = write_log(tmp_path / "t-0", *log)
    (path.parent / "leader-epoch-checkpoint").write_text(f"0\n{noted}")
    _, defects = assert_twins(path.parent)
    assert [one.reference for one in defects] == ["batch-leader-epoch-wrong"] * wrong


BOUND = st.none() | st.integers(-1, 1010)
TIME = st.none() | st.integers(BASE_TIME - 2, BASE_TIME + 12)
SELECTION = st.builds(
    Selection, from_offset=BOUND, to_offset=BOUND, from_time=TIME, to_time=TIME,
    limit=st.none() | st.integers(0, 9), producer_id=st.none() | st.just(7),
    leader_epoch=st.none() | st.just(1), key=st.none() | st.just(b""),
    header=st.none() | st.just((b"", None)) | st.just((b"", b"")), control=st.booleans(),
    from_position=st.none() | st.integers(0, 300), max_bytes=st.none() | st.integers(0, 300),
)  # fmt: skip


@TWINS
@given(data=logs(), batch_rows=st.integers(1, 4), most=st.integers(0, 2))
def test_records_with_too_many_headers(tmp_path: Path, data: bytes, batch_rows: int, most: int):
    """As if the limit were a few: what precedes such a record is read, and the next batch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "HEADERS_MAX", most)
        patch.setattr(chunks, "HEADERS_MAX", most)
        assert_twins(write_log(tmp_path, data), batch_rows=batch_rows)


@TWINS
@given(data=logs(), selection=SELECTION)
def test_selections(tmp_path: Path, data: bytes, selection: Selection):
    """Both return the same rows, and no defect after the limit."""
    assert_twins(write_log(tmp_path, data), selection, batch_rows=4)


@TWINS
@given(body=st.lists(RECORD, min_size=1, max_size=4), data=st.data())
def test_record_bytes_that_were_changed(tmp_path: Path, body: list[bytes], data: st.DataObject):
    """The checksum is correct, so that each decoder must judge the records themselves."""
    payload = bytearray(b"".join(body))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at] = data.draw(st.integers(0, 255))
    count = len(body) + data.draw(st.integers(-1, 1))
    log = batch(5, payload=bytes(payload), count=count) + batch(99, [record(0, b"after")])
    rows, _ = assert_twins(write_log(tmp_path, log), batch_rows=3)
    assert rows[-1]["key"] == b"after"


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_records_that_kafka_refuses(tmp_path: Path, name: str):
    """Both refuse the same record first."""
    data = batch(0, payload=record(0, b"first") + BAD_RECORDS[name], count=2)
    rows, [defect] = assert_twins(write_log(tmp_path, data))
    assert [row["key"] for row in rows] == [b"first"]
    assert defect.reference in ("record-malformed", "records-count-invalid")


@pytest.mark.parametrize("blob", [*BLOBS_V2.values(), *WRAPPERS.values()])
def test_bytes_of_kafka_itself(tmp_path: Path, blob: str):
    """Each codec, and compressed sets of magic 0 and 1."""
    rows, defects = assert_twins(write_log(tmp_path, bytes.fromhex(blob)))
    assert rows
    assert not defects


@pytest.mark.sampled(43)
def test_the_corpus(any_state: State):
    """Every partition and every single log that a broker wrote; read committed, too."""
    for partition in any_state.partitions():
        assert_twins(partition)
        assert_twins(partition, Selection(isolation=Isolation.READ_COMMITTED))
        for path in partition.glob("*.log"):
            assert_twins(path, batch_rows=100)


@pytest.mark.sampled(18)
def test_the_damaged_corpus(any_state: State, tmp_path: Path):
    """Some logs of each archive, with damage as a disk causes it."""
    rng = random.Random(any_state.name)
    paths = [path for log_dir in any_state.log_dirs for path in sorted(log_dir.glob("*/*.log"))]
    paths = [path for path in paths if 0 < path.stat().st_size < 200_000]
    for path in rng.sample(paths, min(4, len(paths))):
        data = path.read_bytes()
        at = rng.randrange(len(data))
        position, size = rng.choice(frames(data)) if any_state.name != "crash-1-torn" else (0, 50)
        hurt = {
            "flip": flip(data, rng.randrange(8 * len(data))),
            "cut": data[:at],
            "hole": data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :],
            "twice": data[: position + size] + data[position:],
            "length": flip(data, 8 * position + 8 * 8 + rng.randrange(32)),
        }
        for kind, changed in hurt.items():
            copy = write_log(tmp_path / path.parent.name / kind, changed, name=path.stem)
            assert_twins(copy)


def test_record_batches_stay_small_and_in_order(tmp_path: Path):
    """Batches larger than a chunk, records of more than one record batch, several chunks."""
    big = [batch(i * 1000, [record(n, b"k" * 20, bytes(180)) for n in range(1000)])
           for i in range(8)]  # fmt: skip
    big[3] = flip(big[3], 8 * 1000)
    last = batch(8001, [record(n, b"k" * 20, bytes(180)) for n in range(1000)])
    path = write_log(tmp_path, *big, batch(8000, [record(0, None, bytes(3 << 20))]), last)
    assert_twins(path, batch_rows=700, threads=2)
    rows, [defect] = by_kernels(path, columns=["offset"])
    assert rows == [{"offset": row["offset"]} for row in by_reference(path)[0]]
    assert defect.reference == "batch-crc-mismatch"


def test_small_batches_have_their_checksums_from_the_kernel(tmp_path: Path):
    """Each length modulo 8, right and wrong."""
    sound = [batch(i, [record(0, None, bytes(range(i)))]) for i in range(40)]
    assert not assert_twins(write_log(tmp_path, *sound))[1]
    hurt = [flip(data, 8 * 17) for data in sound]
    mixed = [data for pair in zip(sound, hurt, strict=True) for data in pair]
    assert len(assert_twins(write_log(tmp_path, *mixed))[1]) == 40


def test_headers_are_those_of_the_reference_scanner(tmp_path: Path):
    """Every field of a header, extreme values, too."""
    import numpy as np

    from kafkalog.log.columns.chunks import ChunkReader, Workspace

    rest = struct.pack(">hiqqqhii", -1, 2**31 - 1, -(2**63), 2**63 - 1, -(2**63), -(2**15),
                       -(2**31), -(2**31)) + b"x"  # fmt: skip
    extreme = struct.pack(">qiibI", -(2**63), 9 + len(rest), -5, 2, wheel.crc32c(rest)) + rest
    path = write_log(tmp_path, extreme, batch(3, [record()]), message(5), message(6, magic=0))
    with Source(str(path)) as source:
        chunk = ChunkReader(source, 0, source.size_bytes).read(Workspace(10))
        assert chunk is not None
        wanted = [found for found in scan_batches(source) if isinstance(found, Batch)]
    assert [chunk.batch(i) for i in range(chunk.count)] == wanted
    assert chunk.crc_valid.all()
    assert isinstance(chunk.headers, np.ndarray)


def test_varints_are_read_as_kafka_reads_them(tmp_path: Path):
    """Longer forms than needed and bits that do not fit are accepted."""
    longer = b"\x80\x80\x80\x80\x70"  # zero, and bits beyond 32
    body = b"\0" + b"\x80" * 9 + b"\x7e" + longer + b"\x01" + b"\x01" + b"\x80\x00"
    data = batch(3, [varint(len(body)) + body])
    [row], [] = assert_twins(write_log(tmp_path, data))
    assert (row["offset"], row["timestamp"], row["key"]) == (3, BASE_TIME, None)
