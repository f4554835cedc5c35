"""The kernels decode messages of magic 0 and 1 like the reference decoder."""

from __future__ import annotations

import random
import struct
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.io.codecs import compress
from kafkalog.log.batches.selection import Selection
from kafkalog.log.columns import chunks
from kafkalog.model import Isolation
from tests.builders import BASE_TIME, batch, flip, frames, message, record, write_log
from tests.kafkalog.log.columns.twins import assert_twins, by_kernels
from tests.kafkalog.test_records import WRAPPERS
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

TWINS = settings(max_examples=examples(200))
FIELD = st.none() | st.binary(max_size=12)
SMALL = st.integers(0, 9)
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSET = SMALL | SMALL | st.sampled_from((-1, 2**63 - 1, -(2**63))) | INT64
TIME = st.just(BASE_TIME) | st.integers(BASE_TIME, BASE_TIME + 9) | INT64


def sealed(data: bytes) -> bytes:
    """Put the right checksum into a message."""
    return data[:12] + struct.pack(">I", zlib.crc32(data[16:])) + data[16:]


@st.composite
def messages(draw: st.DrawFn, magics: tuple[int, ...], attributes: tuple[int, ...]) -> bytes:
    """Draw a message, perhaps with sizes that do not fit or bytes after its value."""
    made = message(
        draw(OFFSET), draw(FIELD), draw(FIELD), magic=draw(st.sampled_from(magics)),
        attributes=draw(st.sampled_from(attributes)), time=draw(TIME),
    )  # fmt: skip
    if draw(st.integers(0, 9)) == 0:
        made += draw(st.binary(max_size=6))
        made = made[:8] + struct.pack(">i", len(made) - 12) + made[12:]
    if draw(st.integers(0, 11)) == 0:
        made = flip(made, draw(st.integers(8 * 16, 8 * len(made) - 1)))
    return sealed(made)


@st.composite
def wrappers(draw: st.DrawFn) -> bytes:
    """Draw a compressed message with any content."""
    magic = draw(st.sampled_from((0, 1, 1)))
    inner = messages((magic,) * 6 + (0, 1, 5, -1), (0,) * 8 + (8, 16, 1))
    body = b"".join(draw(st.lists(inner, max_size=5)))
    damage = draw(st.integers(0, 9))
    if damage == 0:
        body = body[: draw(st.integers(0, len(body)))]
    elif damage == 1 and body:
        body = flip(body, draw(st.integers(0, 8 * len(body) - 1)))
    elif damage == 2:
        body += struct.pack(">qi", 0, draw(st.integers(-1, 14))) + draw(st.binary(max_size=20))
    codec = draw(st.sampled_from((1, 1, 2, 3, 3, 4, 5)))
    value: bytes | None = compress(body, codec, magic=magic) if codec < 4 else body
    if draw(st.integers(0, 9)) == 0:
        value = draw(st.none() | st.just((value or b"")[:-1]) | st.binary(max_size=8))
    flags = draw(st.sampled_from((0, 0, 8, 16, 0x78, -128)))
    return message(draw(OFFSET), draw(FIELD), value, magic=magic, attributes=codec | flags,
                   time=draw(TIME))  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Draw messages, bare and wrapped, with some batches of magic 2 and damage."""
    modern = st.builds(lambda key: batch(3, [record(0, key), record(1, key)]), FIELD)
    bare = messages((0, 1), (0, 0, 8, 16, 0x70, -8))
    data = b"".join(draw(st.lists(bare | wrappers() | wrappers() | modern, max_size=7)))
    for _ in range(draw(st.sampled_from((0, 0, 1, 2)))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        size = draw(st.integers(1, 40))
        kind = draw(st.sampled_from(("flip", "cut", "double", "swap")))
        if kind == "flip":
            data = flip(data, 8 * at + size % 8)
        elif kind == "cut":
            data = data[:at] + data[at + size :]
        elif kind == "double":
            data = data[: at + size] + data[at:]
        else:
            data = data[at:] + data[:at]
    return data


@TWINS
@given(data=logs(), batch_rows=st.sampled_from((1, 2, 1000)))
def test_generated_and_damaged_logs(tmp_path: Path, data: bytes, batch_rows: int):
    """The same rows, the same defects, in the same order."""
    assert_twins(write_log(tmp_path, data), batch_rows=batch_rows)


def test_inner_offsets_that_go_back(tmp_path: Path):
    """Rows come one by one: the second is not taken for where the message begins."""
    inner = b"".join(message(offset) for offset in (0, -1, 0))
    wrapper = message(1, value=compress(inner, 1, magic=1), attributes=1)
    assert_twins(write_log(tmp_path, message(0), wrapper), batch_rows=1)


BOUND = st.none() | st.integers(-1, 10)
SELECTION = st.builds(
    Selection, from_offset=BOUND, to_offset=BOUND,
    from_time=st.none() | st.integers(BASE_TIME - 1, BASE_TIME + 9),
    limit=st.none() | SMALL, key=st.none() | st.just(b""), header=st.none() | st.just((b"", None)),
    control=st.booleans(),
    isolation=st.sampled_from([Isolation.LOG, Isolation.READ_COMMITTED]),
)  # fmt: skip


@TWINS
@given(data=logs(), selection=SELECTION)
def test_selections(tmp_path: Path, data: bytes, selection: Selection):
    """Wrappers start with their last offset, and no message has headers."""
    assert_twins(write_log(tmp_path, data), selection, batch_rows=3)


@pytest.fixture
def _no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "decode_records", None)


@pytest.mark.usefixtures("_no_reference")
@pytest.mark.parametrize("name", WRAPPERS)
def test_bytes_of_kafka_itself_need_no_reference_decoder(tmp_path: Path, name: str):
    """kafka-formats §4: absolute inner offsets in magic 0, relative ones in magic 1."""
    rows, defects = by_kernels(write_log(tmp_path, bytes.fromhex(WRAPPERS[name])))
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (7, b"a", b"b"), (8, b"a", b"c"),
    ]  # fmt: skip
    times = [-1, -1] if name[:2] == "v0" else [1_500_000_000_000, 1_500_000_000_001]
    assert [row["timestamp"] for row in rows] == times
    kind = "NoTimestampType" if name[:2] == "v0" else "CreateTime"
    assert {row["timestamp_type"] for row in rows} == {kind}
    assert {row["batch_base_offset"] for row in rows} == {8}
    assert not defects


@pytest.mark.usefixtures("_no_reference")
def test_flags_of_magic_2_mean_nothing_in_a_message(tmp_path: Path):
    """The bits of transactions and control batches are unused there."""
    path = write_log(tmp_path, message(1, attributes=0x30), message(2, magic=0, attributes=0x38))
    rows, _ = by_kernels(path)
    assert not any(row["is_transactional"] or row["is_control"] for row in rows)
    assert [row["timestamp_type"] for row in rows] == ["CreateTime", "NoTimestampType"]


def wrapped(offset: int, *inner: bytes, attributes: int = 1, magic: int = 1) -> bytes:
    return message(offset, None, compress(b"".join(inner), 1), attributes=attributes, magic=magic)


def test_one_bad_message_spoils_the_whole_set(tmp_path: Path):
    """Kafka reads a whole compressed set before it returns any of it."""
    bad = message(1)[:-1]
    bad = bad[:8] + struct.pack(">i", len(bad) - 12) + bad[12:]
    path = write_log(tmp_path, wrapped(2, message(0), bad, message(2)), message(3))
    rows, [defect] = assert_twins(path)
    assert [row["offset"] for row in rows] == [3]
    assert defect.reference == "record-malformed"


@pytest.mark.parametrize("batch_rows", [1, 7, 4096])
def test_sets_go_on_in_the_next_record_batch(tmp_path: Path, batch_rows: int):
    """Each set keeps the base offset that it began with."""
    sets = [wrapped(100 * i + 99, *(message(n, b"%d" % n) for n in range(100))) for i in range(5)]
    path = write_log(tmp_path, *sets[:3], batch(300, [record(n) for n in range(100)]), sets[4])
    rows, defects = assert_twins(path, batch_rows=batch_rows)
    assert [row["offset"] for row in rows] == [*range(400), *range(400, 500)]
    assert not defects


def test_a_wrapper_at_offset_zero_counts_from_zero(tmp_path: Path):
    """kafka-formats §4: the inner offsets are not changed."""
    rows, [] = assert_twins(write_log(tmp_path, wrapped(0, message(0), message(1))))
    assert [row["offset"] for row in rows] == [0, 1]


def test_small_messages_have_their_checksums_from_the_kernel(tmp_path: Path):
    """Each length modulo 8, right and wrong, between batches with the other checksum."""
    sound = [message(i, None, bytes(range(i)), magic=i % 2) for i in range(1, 40)]
    sound[::7] = [batch(i, [record()]) for i in range(1, 40, 7)]
    assert not assert_twins(write_log(tmp_path, *sound))[1]
    hurt = [flip(data, 8 * 14 if data[16] < 2 else 8 * 18) for data in sound]
    assert len(assert_twins(write_log(tmp_path, *hurt))[1]) == 39


def test_offsets_wrap_as_in_java(tmp_path: Path):
    """Differences of 64-bit offsets need not fit into 64 bits."""
    inner = [message(2**63 - 1), message(-(2**63))]
    rows, [] = assert_twins(write_log(tmp_path, wrapped(5, *inner)))
    assert [row["offset"] for row in rows] == [4, 5]


def test_every_cut_of_a_set_and_of_a_wrapper(tmp_path: Path):
    """Cuts are inside the compression and outside of it."""
    inner = b"".join(message(n, b"key", b"value", magic=n % 2) for n in range(2))
    for size in range(len(inner)):
        assert_twins(write_log(tmp_path, wrapped(1, inner[:size]), message(9)))
    whole = wrapped(1, inner)
    for size in range(26, len(whole)):
        cut = sealed(whole[:8] + struct.pack(">i", size - 12) + whole[12:size])
        assert_twins(write_log(tmp_path, cut, message(9)))


@pytest.mark.sampled(8)
def test_damaged_logs_of_old_brokers(any_state: State, tmp_path: Path):
    """The corpus in old formats with bits flipped, pieces cut out, messages swapped."""
    rng = random.Random(any_state.name)
    for path in sorted(any_state.root.rglob("*.log")):
        data = path.read_bytes()[:100_000]
        if len(data) < 100 or data[16] > 1:
            continue
        places = [(at, at + size) for at, size in frames(data) if at + size <= len(data)]
        for number in range(6):
            changed = flip(data, rng.randrange(8 * len(data)))
            if number % 3 == 1:
                at = rng.randrange(len(data))
                changed = data[:at] + data[at + rng.randrange(1, 50) :]
            elif number % 3 == 2 and len(places) > 1:
                (first, second), (third, fourth) = sorted(rng.sample(places, 2))
                changed = data[:first] + data[third:fourth] + data[second:third]
                changed += data[first:second] + data[fourth:]
            assert_twins(write_log(tmp_path / path.parent.name / str(number), changed))
