"""Records are decoded as kafka-formats §2 and §4 specify; what Kafka refuses is refused."""

from __future__ import annotations

import gzip
import json
import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import CorruptDataError, KafkaLogError, LimitExceededError
from kafkalog.io.codecs import compress
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records, resolve_batch
from kafkalog.model import Batch, Header, Record, TimestampType
from tests.builders import BASE_TIME, batch, message, record, varint, write_log
from tests.kafkalog.test_framing import COMMIT, COMPACTED, EMPTY, TWO_RECORDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

# kafka-formats §8.4, made by Kafka's writers.
BLOBS_V2 = {
    "gzip": (
        "000000000000000000000053ffffffff02241440990001000000000000018bcfe568000000018bcf"
        "e56800ffffffffffffffffffffffffffff000000011f8b08000000000000ff9362606060c936e4ca"
        "48cdc9c96700000354d9380e000000"
    ),
    "snappy": (
        "000000000000000000000055ffffffff021aff65380002000000000000018bcfe568000000018bcf"
        "e56800ffffffffffffffffffffffffffff0000000182534e41505059000000000100000001000000"
        "100e341a000000046b310a68656c6c6f00"
    ),
    "lz4": (
        "00000000000000000000004effffffff028f0891800003000000000000018bcfe568000000018bcf"
        "e56800ffffffffffffffffffffffffffff0000000104224d186040820e0000801a000000046b310a"
        "68656c6c6f0000000000"
    ),
    "zstd": (
        "00000000000000000000004bffffffff02dd1d24910004000000000000018bcfe568000000018bcf"
        "e56800ffffffffffffffffffffffffffff0000000128b52ffd00587000001a000000046b310a6865"
        "6c6c6f00010000"
    ),
}
WRAPPERS = {
    "v0 lz4": (
        "00000000000000080000004d228138ae0003ffffffff0000003f04224d1860401a30000000120001"
        "00910700000010a4ad20110f0071016100000001620c00300000081c0040d3aa10870d0080000161"
        "000000016300000000"
    ),
    "v0 snappy": (
        "000000000000000800000055c5de93ac0002ffffffff0000004782534e4150505900000000010000"
        "0001000000333800000901240700000010a4ad20110001011c016100000001620009015008000000"
        "10d3aa1087000000000001610000000163"
    ),
    "v1 lz4": (
        "00000000000000080000005d8354a26f01030000015d3ef79801ffffffff0000004704224d186040"
        "823800000016000100e0180446fb0701000000015d3ef79818002001610e0010620b000009008500"
        "000018b2cf14512400b0010000000161000000016300000000"
    ),
    "v1 gzip": (
        "000000000000000800000050e299660a01010000015d3ef79801ffffffff0000003a1f8b08000000"
        "000000ff636080030916b7dfec8c400663acddf7192011c644109104950749496c3a2f120857c308"
        "57930c00ddbcb16448000000"
    ),
}


def decode(tmp_path: Path, data: bytes, **options: int) -> list[Record]:
    """Decode the records of the only batch in `data`."""
    with Source(str(write_log(tmp_path, data))) as source:
        [found] = scan_batches(source)
        assert isinstance(found, Batch)
        return list(decode_records(source, found, **options))


def refusal(tmp_path: Path, data: bytes) -> str:
    with pytest.raises(CorruptDataError) as caught:
        decode(tmp_path, data)
    assert caught.value.path
    assert caught.value.position == 0
    return caught.value.reference


def test_the_worked_example(tmp_path: Path):
    """§8.1: a header, a tombstone."""
    first, second = decode(tmp_path, TWO_RECORDS)
    assert (first.offset, first.key, first.value) == (1000, b"k1", b"hello")
    assert first.headers == (Header(b"h", b"x"),)
    assert (first.timestamp, first.sequence) == (BASE_TIME, -1)
    assert first.timestamp_type == TimestampType.CREATE_TIME
    assert (second.offset, second.key, second.value) == (1001, b"k2", None)
    assert (second.timestamp, second.headers) == (BASE_TIME + 150, ())


def test_a_delete_horizon_keeps_the_timestamps(tmp_path: Path):
    """§8.2: the base is in the future, the deltas are negative; the sequence follows the offset."""
    [found] = decode(tmp_path, COMPACTED)
    assert (found.offset, found.timestamp, found.sequence) == (101, 1700000000010, 8)
    assert (found.key, found.value) == (b"b", None)


def test_an_empty_batch_has_no_records(tmp_path: Path):
    """§1.4: the payload is ignored, whatever it contains."""
    assert decode(tmp_path, EMPTY) == []
    assert decode(tmp_path, batch(0, [], payload=b"anything", count=0)) == []


def test_a_marker_has_a_key_and_a_value(tmp_path: Path):
    """§8.3."""
    [found] = decode(tmp_path, COMMIT)
    assert (found.offset, found.key) == (42, bytes.fromhex("00000001"))
    assert found.value == bytes.fromhex("00000000000c")


@pytest.mark.parametrize("codec", BLOBS_V2)
def test_each_codec_is_decompressed(tmp_path: Path, codec: str):
    """§8.4."""
    [found] = decode(tmp_path, bytes.fromhex(BLOBS_V2[codec]))
    assert (found.offset, found.key, found.value) == (0, b"k1", b"hello")


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_compressed_message_holds_messages(tmp_path: Path, name: str):
    """§4: absolute inner offsets in magic 0, relative ones in magic 1."""
    first, second = decode(tmp_path, bytes.fromhex(WRAPPERS[name]))
    assert [(r.offset, r.key, r.value) for r in (first, second)] == [
        (7, b"a", b"b"), (8, b"a", b"c"),
    ]  # fmt: skip
    assert first.crc_valid
    assert first.crc == (0xA4AD2011 if name[:2] == "v0" else 0x0446FB07)
    times = [-1, -1] if name[:2] == "v0" else [1_500_000_000_000, 1_500_000_000_001]
    assert [first.timestamp, second.timestamp] == times
    path = write_log(tmp_path, bytes.fromhex(WRAPPERS[name]))
    with Source(str(path)) as source:
        [found] = scan_batches(source)
        assert isinstance(found, Batch)
        assert (found.base_offset, found.last_offset) == (8, 8)
        resolved = resolve_batch(source, found)
    assert (resolved.base_offset, resolved.last_offset, resolved.records) == (7, 8, 2)


def wrapper(offset: int, inner: bytes, *, attributes: int = 1, magic: int = 1) -> bytes:
    return message(offset, None, gzip.compress(inner, mtime=0), attributes=attributes, magic=magic)


def test_a_wrapper_at_offset_zero_counts_from_zero(tmp_path: Path):
    """§4: early librdkafka wrote such sets; the inner offsets are used as they are."""
    inner = message(0, b"a") + message(1, b"b")
    assert [found.offset for found in decode(tmp_path, wrapper(0, inner))] == [0, 1]


def test_compacted_inner_offsets_keep_their_distance(tmp_path: Path):
    """§4: gaps, and a first offset of 0 that is not the first of the set."""
    inner = message(0, b"a") + message(3, b"b")
    assert [found.offset for found in decode(tmp_path, wrapper(103, inner))] == [100, 103]


def test_append_time_is_the_batch_time(tmp_path: Path):
    """§1.1 and §4: in magic 2 and in a wrapper of magic 1 alike."""
    records = [record(0, time_delta=5), record(1, time_delta=9)]
    data = batch(0, records, attributes=8, max_time=BASE_TIME + 1000)
    for found in decode(tmp_path, data):
        assert found.timestamp == BASE_TIME + 1000
        assert found.timestamp_type == TimestampType.LOG_APPEND_TIME
    inner = message(0, time=5) + message(1, time=6)
    for found in decode(tmp_path, wrapper(1, inner, attributes=9)):
        assert (found.timestamp, found.timestamp_type) == (BASE_TIME, "LogAppendTime")


def test_an_incomplete_last_inner_message_is_dropped(tmp_path: Path):
    """§4, as by Kafka."""
    inner = message(0, b"a") + message(1, b"b")
    assert len(decode(tmp_path, wrapper(1, inner[:-1]))) == 1


@pytest.mark.parametrize(
    ("offset", "inner"),
    [
        (5, b""),
        (5, message(0)[:20]),
        (1, message(0) + message(2)),  # the last inner offset is above the wrapper's
        (5, struct.pack(">qi", 0, 13) + bytes(13)),
        (5, struct.pack(">qi", 0, -1) + bytes(13)),
        (5, message(0, None, gzip.compress(message(0), mtime=0), attributes=1)),
    ],
)
def test_message_sets_that_kafka_refuses(tmp_path: Path, offset: int, inner: bytes):
    """§4: empty, cut, negative, nested."""
    refusal(tmp_path, wrapper(offset, inner))


def test_old_messages_have_no_zstd_and_need_a_value(tmp_path: Path):
    """§4."""
    value = compress(message(0), 4)
    assert refusal(tmp_path, message(0, None, value, attributes=4)) == "unknown-codec"
    assert refusal(tmp_path, message(0, None, None, attributes=1)) == "message-set-invalid"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(tmp_path: Path, codec: int):
    """§1.2: a hard error in Kafka."""
    assert refusal(tmp_path, batch(0, [record()], attributes=codec)) == "unknown-codec"
    assert refusal(tmp_path, message(0, attributes=codec)) == "unknown-codec"


def body(*fields: bytes) -> bytes:
    joined = b"".join(fields)
    return varint(len(joined)) + joined


NULLS = body(b"\0\0\0", varint(-1), varint(-1), varint(0))
BAD_RECORDS = {
    "longer than its content": varint(7) + NULLS[1:] + b"\0",
    "shorter than its content": varint(5) + NULLS[1:],
    "negative length": varint(-1),
    "length of 2^31-1": varint(2**31 - 1) + NULLS[1:],
    "key of 2^31-1": body(b"\0\0\0", varint(2**31 - 1), b"k", varint(-1), varint(0)),
    "value of 2^31-1": body(b"\0\0\0", varint(-1), varint(2**31 - 1), b"v", varint(0)),
    "key past the end": body(b"\0\0\0", varint(30), b"k", varint(-1), varint(0)),
    "negative count of headers": body(b"\0\0\0", varint(-1), varint(-1), varint(-1)),
    "2^31-1 headers": body(b"\0\0\0", varint(-1), varint(-1), varint(2**31 - 1)),
    "header without a key": body(
        b"\0\0\0", varint(-1), varint(-1), varint(1), varint(-1), varint(0)
    ),
    "varint of 6 bytes": b"\xff\xff\xff\xff\xff\x01" + NULLS[1:],
    "varlong of 11 bytes": body(b"\0", b"\xff" * 10 + b"\1", b"\0", NULLS[4:]),
    "cut": NULLS[:-1],
    "empty": b"",
}


def test_the_smallest_record_is_seven_bytes(tmp_path: Path):
    """§2.2: both null, no headers."""
    assert bytes.fromhex("0c000000010100") == NULLS
    [found] = decode(tmp_path, batch(3, [NULLS]))
    assert (found.offset, found.key, found.value, found.headers) == (3, None, None, ())


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_records_that_kafka_refuses(tmp_path: Path, name: str):
    """§2.3; the records before the damage are returned."""
    data = batch(0, payload=record(0, b"first") + BAD_RECORDS[name], count=2)
    with Source(str(write_log(tmp_path, data))) as source:
        [found] = scan_batches(source)
        assert isinstance(found, Batch)
        records = decode_records(source, found)
        assert next(records).key == b"first"
        with pytest.raises(CorruptDataError):
            next(records)


def test_odd_records_that_kafka_accepts(tmp_path: Path):
    """§2.3: null by any negative length, equal and empty header names, wild offsets."""
    nulls = body(b"\x7f\0\0", varint(-2), varint(-7), varint(0))
    [found] = decode(tmp_path, batch(0, [nulls]))
    assert (found.key, found.value) == (None, None)
    headers = [(b"", b""), (b"a", None), (b"a", b"\xff"), (b"\xff\xfe", b"")]
    [found] = decode(tmp_path, batch(0, [record(0, b"", b"", headers=headers)]))
    assert [(header.key, header.value) for header in found.headers] == headers
    assert (found.key, found.value) == (b"", b"")
    wild = batch(100, [record(5), record(3), record(900)], last_delta=2)
    assert [found.offset for found in decode(tmp_path, wild)] == [105, 103, 1000]


def test_counts_must_be_right(tmp_path: Path):
    """§2.3: fewer, more, negative, absurd."""
    data = batch(0, [record(0)], count=2)
    assert refusal(tmp_path, data) == "records-count-invalid"
    assert refusal(tmp_path, batch(0, [record(0)] * 2, count=1)) == "records-left-over"
    for count in (-1, -(2**31)):
        data = batch(0, [record(0)], count=count)
        assert refusal(tmp_path, data) == "records-count-invalid"
    tracemalloc.start()
    assert refusal(tmp_path, batch(0, [record(0)], count=2**31 - 1)) == "records-count-invalid"
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_timestamps_wrap_as_in_java(tmp_path: Path):
    """§1.1: a 64-bit addition."""
    data = batch(0, [record(0, time_delta=1)], base_time=2**63 - 1)
    assert decode(tmp_path, data)[0].timestamp == -(2**63)


def test_magic_three_is_not_decoded(tmp_path: Path):
    """It is framed as 2, but its content is unknown."""
    assert refusal(tmp_path, batch(0, [record()], magic=3)) == "magic-unknown"


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_stops_at_the_limit(tmp_path: Path, codec: int):
    """A megabyte of zeros in a few kilobytes; memory stays within the limit."""
    payload = compress(bytes(64 << 20), codec)
    data = batch(0, payload=payload, count=1, attributes=codec)
    tracemalloc.start()
    with pytest.raises(LimitExceededError):
        decode(tmp_path, data, size_max=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (8 << 20) + 2 * len(data)


@pytest.mark.sampled(3)
def test_corpus_records_are_what_a_consumer_read(any_state: State):
    """Offsets, times, keys and values of every partition, batch by batch, without the CLI."""
    for partition in any_state.partitions():
        expected = any_state.expected / "records" / f"{partition.name}.ndjson"
        if not expected.exists():
            continue
        wanted = {}
        for line in expected.read_text().splitlines():
            row = json.loads(line)
            wanted[row["offset"]] = row
        seen = set()
        for path in sorted(partition.glob("*.log")):
            with Source(str(path)) as source:
                for found in scan_batches(source, check_crc=True):
                    if not isinstance(found, Batch) or found.is_control or not found.crc_valid:
                        continue
                    for item in decode_records(source, found):
                        row = wanted.get(item.offset)
                        if row is None:
                            continue  # below the log start
                        seen.add(item.offset)
                        assert item.timestamp == row["timestamp"], (path, item.offset)
                        for name in ("key", "value"):
                            data, text = getattr(item, name), row[name]
                            if not isinstance(text, dict):
                                assert (None if data is None else data.hex()) == text
        assert seen == wanted.keys(), partition


def test_truncated_payloads_raise_only_ours(tmp_path: Path):
    """Every length of each codec's payload, with a correct checksum."""
    raw = record(0, b"key", b"value" * 20) + record(1, b"key", None)
    for codec in range(8):
        payload = compress(raw, codec) if codec <= 4 else raw
        for size in range(len(payload)):
            data = batch(0, payload=payload[:size], count=2, attributes=codec)
            with pytest.raises(KafkaLogError):
                decode(tmp_path, data)
