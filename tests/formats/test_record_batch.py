"""The schema of a batch of magic 2, against batches whose bytes are known."""

from __future__ import annotations

import pytest
from construct import ConstructError
from hypothesis import given
from hypothesis import strategies as st

from formats.record_batch import RecordBatch, RecordBatchHeader

# kafka-formats §8.1, §8.2 (compacted, and empty) and §8.3 (COMMIT marker); built independently and
# identical to what Kafka's classes write.
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
ALL = (TWO_RECORDS, COMPACTED, EMPTY, COMMIT)


def test_every_field_of_a_batch_has_its_documented_value():
    """One batch covers all positions, widths and signs: an error would shift what follows."""
    batch = RecordBatch.parse(TWO_RECORDS)
    assert batch.base_offset == 1000
    assert batch.batch_length == 77
    assert batch.partition_leader_epoch == 5
    assert batch.magic == 2
    assert batch.crc == 0x47A5B4BB
    assert batch.last_offset_delta == 1
    assert batch.base_timestamp == 1700000000000
    assert batch.max_timestamp == 1700000000150
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.records_count == 2
    assert batch.records == TWO_RECORDS[61:]
    assert batch.attributes.compression == 0


def test_a_compacted_batch_keeps_its_delete_horizon_as_base_timestamp():
    """Bit 6 is a flag of its own, and the base timestamp stays what is stored."""
    batch = RecordBatch.parse(COMPACTED)
    assert batch.attributes.has_delete_horizon
    assert not batch.attributes.is_control
    assert batch.base_timestamp == 1700086500000
    assert batch.max_timestamp == 1700000000010
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4001, 3, 7)


def test_an_empty_batch_is_a_header_alone():
    """Compaction leaves batches without records; 61 bytes are a whole batch."""
    batch = RecordBatch.parse(EMPTY)
    assert batch.records_count == 0
    assert batch.records == b""
    assert batch.base_timestamp == -1
    assert batch.last_offset_delta == 2


def test_a_marker_is_control_and_transactional():
    """Every transaction marker has attributes 0x30."""
    attributes = RecordBatch.parse(COMMIT).attributes
    assert attributes.is_control
    assert attributes.is_transactional
    assert not attributes.has_delete_horizon
    assert attributes.timestamp_type == 0


@pytest.mark.parametrize("data", ALL)
def test_building_what_was_parsed_gives_the_same_bytes(data: bytes):
    """Nothing of a batch is lost in the schema."""
    assert RecordBatch.build(RecordBatch.parse(data)) == data
    assert RecordBatchHeader.build(RecordBatchHeader.parse(data)) == data[:61]
    assert RecordBatchHeader.sizeof() == 61


@given(st.binary(min_size=61, max_size=61))
def test_any_61_bytes_are_a_header_that_comes_back(data: bytes):
    """Unused attribute bits, unknown magics and codecs are kept: the schema does not judge."""
    assert RecordBatchHeader.build(RecordBatchHeader.parse(data)) == data


@pytest.mark.parametrize("data", ALL)
def test_a_cut_batch_is_a_construct_error(data: bytes):
    """A torn append must never look like a shorter batch."""
    for size in range(len(data)):
        with pytest.raises(ConstructError):
            RecordBatch.parse(data[:size])


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 14, 48, 2**31 - 1])
def test_a_false_length_is_a_construct_error(length: int):
    """A length below the header, negative or beyond the data is no batch."""
    data = TWO_RECORDS[:8] + length.to_bytes(4, "big", signed=True) + TWO_RECORDS[12:]
    with pytest.raises(ConstructError):
        RecordBatch.parse(data)


@given(st.sampled_from(ALL), st.data())
def test_a_flipped_bit_is_another_batch_or_a_construct_error(data: bytes, draw: st.DataObject):
    """Damage may change values, but must not raise anything else."""
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        batch = RecordBatch.parse(bytes(damaged))
    except ConstructError:
        return
    assert RecordBatch.build(batch) == damaged[: batch.batch_length + 12]


def test_building_computes_the_batch_length():
    """The caller does not have to count the bytes."""
    batch = RecordBatch.parse(TWO_RECORDS)
    del batch["batch_length"]
    assert RecordBatch.build(batch) == TWO_RECORDS
