"""Batches are framed as by Kafka, and reading continues after damage."""

from __future__ import annotations

import random
import struct
from functools import cache
from typing import TYPE_CHECKING

import pytest

from kafkalog.io.paths.source import Source
from kafkalog.log.batches import framing
from kafkalog.log.batches.framing import crc_valid, find_batch, read_batch, scan_batches
from kafkalog.model import Batch, Defect, Severity, TimestampType
from tests.builders import BASE_TIME, batch, flip, frames, message, record, write_log
from tests.counted_work import counted_work
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import State

# kafka-formats §8.1, §8.2, §8.3 and §8.4, built without kafkalog.
TWO_RECORDS = bytes.fromhex(
    "00000000000003e80000004d000000050247a5b4bb0000000000010000018bcfe568000000018bcfe56896ffffff"
    "ffffffffffffffffffffff0000000222000000046b310a68656c6c6f02026802781200ac0202046b320100"
)
COMPACTED = bytes.fromhex(
    "00000000000000640000003c0000000502b162e85b0040000000020000018bd50d4aa00000018bcfe5680a000000"
    "0000000fa1000300000007000000011400ab8abf520202620100"
)
EMPTY = bytes.fromhex(
    "0000000000000064000000310000000502eca89157000000000002ffffffffffffffff0000018bcfe56814000000"
    "0000000fa100030000000700000000"
)
COMMIT = bytes.fromhex(
    "000000000000002a00000042000000070245baaa620030000000000000018bcfe56be80000018bcfe56be8000000"
    "0000000fa10003ffffffff000000012000000008000000010c00000000000c00"
)
MESSAGE_V0 = bytes.fromhex("000000000000000700000010a4ad2011000000000001610000000162")
MESSAGE_V1 = bytes.fromhex(
    "0000000000000007000000180446fb0701000000015d3ef7980000000001610000000162"
)


def scan(path: Path, *, check_crc: bool = True) -> list[Batch | Defect]:
    with Source(str(path)) as source:
        return list(scan_batches(source, check_crc=check_crc))


def covered(found: list[Batch | Defect], size: int) -> bool:
    """Return whether batches and defects cover every byte exactly once, in order."""
    position = 0
    for item in found:
        if item.position != position or not item.size_bytes:
            return False
        position += item.size_bytes
    return position == size


def one(tmp_path: Path, data: bytes) -> Batch:
    [found] = scan(write_log(tmp_path, data))
    assert isinstance(found, Batch)
    return found


def test_the_builder_makes_the_bytes_of_the_reference():
    """The other tests rely on the builder: its bytes are identical to those of Kafka's classes."""
    first = record(0, b"k1", b"hello", headers=[(b"h", b"x")])
    assert (
        batch(
            1000, [first, record(1, b"k2", None, time_delta=150)], epoch=5, max_time=BASE_TIME + 150
        )
        == TWO_RECORDS
    )
    assert message(7, b"a", b"b", magic=0) == MESSAGE_V0
    assert message(7, b"a", b"b", time=1_500_000_000_000) == MESSAGE_V1


def test_a_header_is_taken_apart(tmp_path: Path):
    """§8.1."""
    found = one(tmp_path, TWO_RECORDS)
    assert (found.base_offset, found.last_offset, found.next_offset) == (1000, 1001, 1002)
    assert (found.position, found.size_bytes, found.end_position) == (0, 89, 89)
    assert (found.magic, found.records, found.crc, found.crc_valid) == (2, 2, 0x47A5B4BB, True)
    assert (found.base_timestamp, found.max_timestamp) == (BASE_TIME, BASE_TIME + 150)
    assert found.timestamp_type == TimestampType.CREATE_TIME
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (-1, -1, -1)
    assert (found.last_sequence, found.leader_epoch) == (-1, 5)
    assert not found.is_control
    assert not found.is_transactional
    assert found.delete_horizon_timestamp is None


def test_a_compacted_batch_keeps_its_last_offset(tmp_path: Path):
    """§8.2: with a delete horizon, and with nothing left."""
    found = one(tmp_path, COMPACTED)
    assert (found.base_offset, found.last_offset, found.records) == (100, 102, 1)
    assert found.delete_horizon_timestamp == 1700086500000
    assert (found.base_sequence, found.last_sequence) == (7, 9)
    found = one(tmp_path, EMPTY)
    assert (found.last_offset, found.records, found.size_bytes) == (102, 0, 61)
    assert (found.base_timestamp, found.delete_horizon_timestamp) == (-1, None)


def test_a_marker_is_a_control_batch(tmp_path: Path):
    """§8.3."""
    found = one(tmp_path, COMMIT)
    assert found.is_control
    assert found.is_transactional
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (4001, 3, -1)


def test_old_messages_are_batches_of_one(tmp_path: Path):
    """§4: values that the format lacks are -1 or false."""
    found = one(tmp_path, MESSAGE_V0)
    assert (found.magic, found.base_offset, found.last_offset, found.records) == (0, 7, 7, 1)
    assert (found.max_timestamp, found.timestamp_type) == (-1, TimestampType.NO_TIMESTAMP_TYPE)
    assert found.crc_valid
    found = one(tmp_path, MESSAGE_V1)
    assert (found.magic, found.max_timestamp) == (1, 1_500_000_000_000)
    assert (found.producer_id, found.leader_epoch) == (-1, -1)
    assert found.crc_valid


def test_batches_of_different_magic_follow_each_other(tmp_path: Path):
    """A log that was upgraded in place holds several versions."""
    data = MESSAGE_V0 + MESSAGE_V1 + TWO_RECORDS + COMMIT
    found = scan(write_log(tmp_path, data))
    assert [item.magic for item in found if isinstance(item, Batch)] == [0, 1, 2, 2]
    assert covered(found, len(data))


def test_sequences_wrap(tmp_path: Path):
    """§1.1: after 2147483647 comes 0."""
    found = one(tmp_path, batch(0, [record(0)] * 6, producer=(1, 0, 2**31 - 2)))
    assert found.last_sequence == 3


@pytest.mark.sampled(3)
def test_corpus_batches_are_where_the_lengths_say(any_state: State):
    """Every live and closed segment of every broker; the checksums match as well."""
    for path in sorted(any_state.root.rglob("*.log*")):
        data = path.read_bytes().rstrip(b"\0")
        if any_state.name == "crash-1-torn" or not data:
            continue
        found = scan(path)
        batches = [item for item in found if isinstance(item, Batch)]
        # Trailing zeros of a preallocated file: the last batch may end in some itself.
        wanted = list(frames(data))
        assert [(item.position, item.size_bytes) for item in batches] == wanted, path
        assert all(item.crc_valid for item in batches), path
        assert covered(found, path.stat().st_size), path
        rest = [item for item in found if isinstance(item, Defect)]
        assert all(item.reference == "zero-tail" for item in rest), path


@pytest.mark.parametrize("zeros", [1, 17, 18, 4096])
def test_a_tail_of_zeros_is_no_damage_when_it_could_be_preallocated(tmp_path: Path, zeros: int):
    """§1.7: Kafka's scanner cannot see up to 17 zero bytes; they count as a begun offset."""
    found = scan(write_log(tmp_path, TWO_RECORDS, bytes(zeros)))
    [_, tail] = found
    assert isinstance(tail, Defect)
    assert tail.reference == ("zero-tail" if zeros > 17 else "torn-tail")
    assert (tail.severity == Severity.NOTE) == (zeros > 17)
    assert (tail.position, tail.size_bytes) == (89, zeros)


def test_a_hole_of_a_gibibyte_is_seen_at_once(tmp_path: Path):
    """A preallocated segment is sparse: its hole is not read."""
    path = write_log(tmp_path, TWO_RECORDS)
    with path.open("r+b") as out:
        out.truncate(1 << 30)
    with counted_work() as work:
        [found, tail] = scan(path)
    assert work.read_bytes < 1 << 16
    assert isinstance(found, Batch)
    assert isinstance(tail, Defect)
    assert (tail.reference, tail.size_bytes) == ("zero-tail", (1 << 30) - 89)


def test_a_cut_batch_is_a_torn_tail(tmp_path: Path):
    """Every possible length of the incomplete batch."""
    for left in range(1, len(TWO_RECORDS)):
        found = scan(write_log(tmp_path, COMMIT, TWO_RECORDS[:left]))
        assert len(found) == 2
        tail = found[1]
        assert isinstance(tail, Defect), left
        assert (tail.position, tail.size_bytes) == (len(COMMIT), left)
        assert tail.reference == "torn-tail", left
        assert tail.severity == Severity.DAMAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48, 0x7FFFFFFF, 100_000])
def test_reading_resumes_behind_a_wrong_length(tmp_path: Path, length: int):
    """§1.7: Kafka cannot tell a large length from a torn tail; the bytes after it decide here."""
    damaged = TWO_RECORDS[:8] + struct.pack(">i", length) + TWO_RECORDS[12:]
    data = COMMIT + damaged + COMMIT + TWO_RECORDS
    found = scan(write_log(tmp_path, data))
    assert covered(found, len(data))
    defects = [item for item in found if isinstance(item, Defect)]
    assert [item.reference for item in defects] == ["batch-length-invalid"]
    assert (defects[0].position, defects[0].size_bytes) == (len(COMMIT), len(TWO_RECORDS))
    assert sum(isinstance(item, Batch) and bool(item.crc_valid) for item in found) == 3


@pytest.mark.parametrize("size", [61, 88, 90, 100, 89 + 78])
def test_a_length_that_swallows_or_cuts_is_found_by_its_checksum(tmp_path: Path, size: int):
    """The frame fits into the file, yet the batches after it must not be lost."""
    damaged = TWO_RECORDS[:8] + struct.pack(">i", size - 12) + TWO_RECORDS[12:]
    data = COMMIT + damaged + COMMIT + TWO_RECORDS
    found = scan(write_log(tmp_path, data))
    assert covered(found, len(data))
    sound = [item for item in found if isinstance(item, Batch) and item.crc_valid]
    wanted = {0, 78 + 89 + 78, *([78 + 89] if size != 89 + 78 else [])}
    assert wanted <= {item.position for item in sound}
    assert len(found) > len(sound)


def test_a_wrong_checksum_keeps_the_batch(tmp_path: Path):
    """Its frame is correct: the batch is returned and marked, and the next one follows as usual."""
    data = COMMIT + flip(TWO_RECORDS, 8 * 80) + COMMIT
    found = scan(write_log(tmp_path, data))
    assert [item.crc_valid for item in found if isinstance(item, Batch)] == [True, False, True]
    walked = scan(write_log(tmp_path, data), check_crc=False)
    assert [item.crc_valid for item in walked if isinstance(item, Batch)] == [None] * 3


def test_negative_magic_is_damage(tmp_path: Path):
    """Kafka's parser of old messages would accept it, but nothing ever wrote it."""
    data = COMMIT + TWO_RECORDS[:16] + b"\xff" + TWO_RECORDS[17:] + COMMIT
    found = scan(write_log(tmp_path, data))
    assert [item.reference for item in found if isinstance(item, Defect)] == ["magic-unknown"]
    assert covered(found, len(data))


def test_magic_above_two_is_framed_as_two(tmp_path: Path):
    """Kafka's file scanner does the same: the checksum does not cover the magic."""
    found = one(tmp_path, batch(5, [record()], magic=3))
    assert (found.magic, found.base_offset, found.crc_valid) == (3, 5, True)


@pytest.mark.parametrize("garbage", [1, 17, 100, 5000])
def test_garbage_between_batches_is_one_defect(tmp_path: Path, garbage: int):
    """From the first bad byte to the next sound batch."""
    data = COMMIT + b"\xfe" * garbage + TWO_RECORDS + MESSAGE_V1 + MESSAGE_V0
    found = scan(write_log(tmp_path, data))
    assert covered(found, len(data))
    [defect] = [item for item in found if isinstance(item, Defect)]
    assert (defect.position, defect.size_bytes) == (len(COMMIT), garbage)


def test_a_zeroed_page_inside_a_log_is_skipped(tmp_path: Path):
    """Zeros in the middle of a log are damage: a write was lost."""
    data = COMMIT + bytes(4096) + TWO_RECORDS
    found = scan(write_log(tmp_path, data))
    assert covered(found, len(data))
    [defect] = [item for item in found if isinstance(item, Defect)]
    assert (defect.severity, defect.size_bytes) == (Severity.DAMAGE, 4096)


def test_every_flip_leaves_the_other_batches(tmp_path: Path):
    """One flipped bit anywhere in the middle batch: the neighbours are read, no byte is lost."""
    for bit in range(8 * len(TWO_RECORDS)):
        data = COMMIT + flip(TWO_RECORDS, bit) + COMPACTED
        found = scan(write_log(tmp_path, data))
        assert covered(found, len(data)), bit
        sound = {item.position for item in found if isinstance(item, Batch) and item.crc_valid}
        assert {0, len(COMMIT) + len(TWO_RECORDS)} <= sound, bit


def test_a_scan_may_start_and_end_anywhere(tmp_path: Path):
    """From any start position, the next whole batches are found."""
    data = COMMIT + TWO_RECORDS + COMPACTED + MESSAGE_V1
    starts = [position for position, _ in frames(data)]
    with Source(str(write_log(tmp_path, data))) as source:
        for start in range(len(data) + 2):
            found = list(scan_batches(source, start, check_crc=True))
            sound = [item.position for item in found if isinstance(item, Batch) and item.crc_valid]
            assert sound == [position for position in starts if position >= start], start
            assert sum(item.size_bytes or 0 for item in found) == max(len(data) - start, 0)
        for end in range(len(data) + 2):
            found = list(scan_batches(source, 0, end, check_crc=True))
            assert covered(found, min(end, len(data))), end


def test_the_next_batch_is_found_across_chunks(tmp_path: Path):
    """The search reads a mebibyte at a time; a header may cross the border."""
    for shift in range(-70, 10, 7):
        garbage = b"\xfe" * ((1 << 20) + shift)
        with Source(str(write_log(tmp_path, garbage, TWO_RECORDS))) as source:
            assert find_batch(source, 1, source.size_bytes) == len(garbage), shift


def test_the_next_batch_is_found_behind_random_bytes(tmp_path: Path):
    """Headers that look plausible by chance must not use up the search."""
    noise = random.Random(43).randbytes(1 << 20)
    sparse = write_log(tmp_path, COMMIT, b"\xff", noise, TWO_RECORDS)
    with sparse.open("r+b") as out:
        out.truncate(1 << 29)
    with Source(str(sparse)) as source:
        wanted = len(COMMIT) + 1 + len(noise)
        assert find_batch(source, len(COMMIT), source.size_bytes) == wanted


@cache
def hostile_files() -> dict[str, bytes]:
    """Return inputs that make a naive search quadratic."""
    less = 1 if tries_everything() else 4
    bad = bytearray(batch(0, [record()]))
    bad[17] ^= 1
    senseless = bytearray(batch(0, [record()], last_delta=-5))
    senseless[17] ^= 1
    # No candidate uses up the budget of the search; only what it remembers bounds it.
    implausible = struct.pack(">qiib", -1, 49, -1, 3) + b"\xff" * 44
    large = struct.pack(">qii", 0, 400_000, 0) + b"\x02" + bytes(44)
    legacy = struct.pack(">qiI", 0, 200_000, 1) + b"\1\0" + bytes(8)
    return {
        "batches with bad checksums": bytes(bad) * (14_000 // less),
        "every other batch makes no sense": (bytes(bad) + bytes(senseless)) * (7_000 // less),
        "no batch makes sense": bytes(senseless) * (14_000 // less),
        "nothing is plausible": implausible * (1_600 // less),
        "large batches everywhere": large * (16_000 // less),
        "large messages everywhere": legacy * (30_000 // less),
        "one byte between sound messages": (b"\xff" + message(0, None, b"")) * (25_000 // less),
        "one byte between sound batches": (b"\xff" + batch(0, [record()])) * (14_000 // less),
        "a bad batch and a byte between": (bytes(bad) + b"\xff" + message(0)) * (9_000 // less),
        "plausible at every byte": b"\0" * 11 + b"\x0e" * (900_000 // less),
        "zeros and ones": b"\0\0\0\x01" * (250_000 // less),
    }


@pytest.mark.parametrize("name", hostile_files())
def test_hostile_bytes_are_searched_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """A quadratic search does hundreds of times as much."""
    data = hostile_files()[name]
    path = write_log(tmp_path, data)
    checked: list[int] = []
    for checksum in ("crc32", "crc32c"):
        monkeypatch.setattr(framing, checksum, noting(getattr(framing, checksum), checked))
    with counted_work() as work:
        found = scan(path)
    assert work.calls < 8 * len(data)
    assert work.read_bytes < 80 * len(data)
    assert sum(checked) < 6 * len(data) + (1 << 20)
    assert covered(found, len(data))


def noting(checksum: Callable[[bytes, int], int], sizes: list[int]) -> Callable[[bytes, int], int]:
    def noted(data: bytes, start: int) -> int:
        sizes.append(len(data))
        return checksum(data, start)

    return noted


def test_checksums_are_computed_piece_by_piece(tmp_path: Path):
    """A header that claims a huge batch of a sparse file must not make the reader hold it."""
    import tracemalloc

    size = 1 << 26
    header = struct.pack(">qiib", 0, size - 12, 0, 2) + bytes(44)
    path = write_log(tmp_path, header)
    with path.open("r+b") as out:
        out.truncate(size)
    with Source(str(path)) as source:
        found = read_batch(source, 0, size)
        assert isinstance(found, Batch)
        tracemalloc.start()
        assert not crc_valid(source, found)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 16 << 20
