"""The schemas of the three index files and of the producer snapshot, against known bytes."""

from __future__ import annotations

import pytest
from construct import Construct, ConstructError
from hypothesis import given
from hypothesis import strategies as st

from formats.side_files import (
    AbortedTransaction,
    OffsetIndex,
    OffsetIndexEntry,
    ProducerSnapshot,
    ProducerSnapshotEntry,
    RemoteLogSnapshot,
    TimeIndex,
    TimeIndexEntry,
    TransactionIndex,
)

# kafka-formats §8.4: the two vectors, and the example of an index built by a broker of 3.9.
TXN_INDEX = bytes.fromhex("00000000000000000fa1000000000000000a000000000000002a000000000000002b")
SNAPSHOT = bytes.fromhex(
    "00018d2fa8a7000000020000000000000fa10003000000090000000000000029000000010000018bcfe56be80000"
    "000c00000000000000280000000000000fa20000ffffffffffffffffffffffff000000000000018bcfe56fd0ffff"
    "ffffffffffffffffffff"
)
OFFSET_INDEX = [(1, 5070), (5, 10310), (6, 16520)]
TIME_INDEX = [(5000, 0), (6000, 2), (7000, 6)]


def test_entries_have_the_sizes_of_kafka():
    """A file's length divided by them is its count of entries."""
    assert OffsetIndexEntry.sizeof() == 8
    assert TimeIndexEntry.sizeof() == 12
    assert AbortedTransaction.sizeof() == 34
    assert ProducerSnapshotEntry.sizeof() == 46


def test_an_offset_index_is_pairs_of_32_bits():
    """Relative offset first, both big-endian."""
    data = b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in OFFSET_INDEX)
    entries = OffsetIndex.parse(data).entries
    assert [(entry.relative_offset, entry.position) for entry in entries] == OFFSET_INDEX


def test_a_time_index_is_64_and_32_bits():
    """Timestamp first, both big-endian."""
    data = b"".join(t.to_bytes(8, "big") + o.to_bytes(4, "big") for t, o in TIME_INDEX)
    entries = TimeIndex.parse(data).entries
    assert [(entry.timestamp, entry.relative_offset) for entry in entries] == TIME_INDEX


def test_an_aborted_transaction_has_its_documented_values():
    """Producer, first and last offset, last stable offset."""
    (entry,) = TransactionIndex.parse(TXN_INDEX).entries
    assert (entry.version, entry.producer_id) == (0, 4001)
    assert (entry.first_offset, entry.last_offset, entry.last_stable_offset) == (10, 42, 43)


def test_a_producer_snapshot_has_its_documented_values():
    """One producer with a batch and an open transaction, one with a marker only."""
    snapshot = ProducerSnapshot.parse(SNAPSHOT)
    assert (snapshot.version, snapshot.crc, snapshot.rest) == (1, 0x8D2FA8A7, b"")
    with_batch, marker_only = snapshot.entries
    assert dict(with_batch, _io=None) == {
        "_io": None,
        "producer_id": 4001,
        "producer_epoch": 3,
        "last_sequence": 9,
        "last_offset": 41,
        "offset_delta": 1,
        "timestamp": 1700000001000,
        "coordinator_epoch": 12,
        "current_txn_first_offset": 40,
    }
    assert (marker_only.producer_id, marker_only.last_sequence, marker_only.last_offset) == (
        4002,
        -1,
        -1,
    )
    assert (marker_only.offset_delta, marker_only.current_txn_first_offset) == (0, -1)


def test_a_producer_snapshot_keeps_trailing_bytes():
    """Its checksum covers them, so they belong to the file."""
    snapshot = ProducerSnapshot.parse(SNAPSHOT + b"xyz")
    assert snapshot.rest == b"xyz"
    assert ProducerSnapshot.build(snapshot) == SNAPSHOT + b"xyz"


def test_a_remote_log_snapshot_is_a_header_and_sized_entries():
    """The layout of kafka-formats §6.11, written out by hand."""
    data = bytes.fromhex("0000 00000007 000000000000002a 00000002 00000003 000301 00000000")
    snapshot = RemoteLogSnapshot.parse(data)
    assert (snapshot.version, snapshot.metadata_partition) == (0, 7)
    assert snapshot.metadata_partition_offset == 42
    assert list(snapshot.entries) == [b"\x00\x03\x01", b""]
    assert RemoteLogSnapshot.build(snapshot) == data


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (ProducerSnapshot, SNAPSHOT),
        (
            RemoteLogSnapshot,
            bytes.fromhex("0000 00000007 000000000000002a 00000001 00000003 000301"),
        ),
    ],
    ids=["producer", "remote"],
)
def test_a_cut_snapshot_is_a_construct_error(schema: Construct, data: bytes):
    """The count says how many entries must follow."""
    for size in range(len(data)):
        with pytest.raises(ConstructError):
            schema.parse(data[:size])


@pytest.mark.parametrize("count", [-1, -(2**31), 3, 2**31 - 1])
def test_a_false_count_of_producers_is_a_construct_error(count: int):
    """A hostile count must stop at the end of the data."""
    with pytest.raises(ConstructError):
        ProducerSnapshot.parse(SNAPSHOT[:6] + count.to_bytes(4, "big", signed=True) + SNAPSHOT[10:])


@given(st.sampled_from([OffsetIndex, TimeIndex, TransactionIndex]), st.binary(max_size=150))
def test_any_bytes_are_an_index_that_comes_back(schema: Construct, data: bytes):
    """Zero padding, torn last entries and damage included: the schema does not judge."""
    index = schema.parse(data)
    size = (len(data) - len(index.rest)) // max(1, len(index.entries))
    assert len(index.rest) < {OffsetIndex: 8, TimeIndex: 12, TransactionIndex: 34}[schema]
    assert not index.entries or size in (8, 12, 34)
    assert schema.build(index) == data


@given(st.sampled_from([ProducerSnapshot, RemoteLogSnapshot]), st.binary(max_size=150))
def test_any_bytes_are_a_snapshot_that_comes_back_or_a_construct_error(
    schema: Construct, data: bytes
):
    """Nothing else may be raised."""
    try:
        snapshot = schema.parse(data)
    except ConstructError:
        return
    assert schema.build(snapshot) == data


@given(st.integers(0, len(SNAPSHOT) - 1), st.integers(0, 7))
def test_a_flipped_bit_of_a_snapshot_is_a_snapshot_or_a_construct_error(position: int, bit: int):
    """Only the count can make it unreadable."""
    damaged = bytearray(SNAPSHOT)
    damaged[position] ^= 1 << bit
    try:
        snapshot = ProducerSnapshot.parse(bytes(damaged))
    except ConstructError:
        assert 6 <= position < 10
        return
    assert ProducerSnapshot.build(snapshot) == damaged
