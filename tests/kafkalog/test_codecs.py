"""Decompression accepts what Kafka's reader accepts, refuses the rest, and stops at its limit.

What Kafka accepts was observed by running `Compression.wrapForInput` of Kafka 4.3.0.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import itertools
import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptDataError, KafkaLogError, LimitExceededError, UnsupportedError
from kafkalog.io.codecs import compress, decompress, native

if TYPE_CHECKING:
    from collections.abc import Iterator

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)

# Kafka's own writers, kafka-formats §8.4: one record k1=hello.
RECORD = bytes.fromhex("1a000000046b310a68656c6c6f00")
BLOBS = {
    GZIP: "1f8b08000000000000ff9362606060c936e4ca48cdc9c96700000354d9380e000000",
    SNAPPY: "82534e41505059000000000100000001000000100e341a000000046b310a68656c6c6f00",
    LZ4: "04224d186040820e0000801a000000046b310a68656c6c6f0000000000",
    ZSTD: "28b52ffd00587000001a000000046b310a68656c6c6f00010000",
}
# The wrappers' values and their inner messages with absolute (magic 0) and relative (1) offsets.
MESSAGES_V0 = bytes.fromhex(
    "000000000000000700000010a4ad2011000000000001610000000162"
    "000000000000000800000010d3aa1087000000000001610000000163"
)
MESSAGES_V1 = bytes.fromhex(
    "0000000000000000000000180446fb0701000000015d3ef7980000000001610000000162"
    "000000000000000100000018b2cf145101000000015d3ef7980100000001610000000163"
)
LZ4_V0 = (
    "04224d1860401a3000000012000100910700000010a4ad20110f0071016100000001620c00300000081c0040d3aa"
    "10870d0080000161000000016300000000"
)
LZ4_V1 = (
    "04224d186040823800000016000100e0180446fb0701000000015d3ef79818002001610e0010620b000009008500"
    "000018b2cf14512400b0010000000161000000016300000000"
)
SNAPPY_V0 = (
    "82534e41505059000000000100000001000000333800000901240700000010a4ad20110001011c01610000000162"
    "000901500800000010d3aa1087000000000001610000000163"
)
GZIP_V1 = (
    "1f8b08000000000000ff636080030916b7dfec8c400663acddf7192011c644109104950749496c3a2f120857c308"
    "57930c00ddbcb16448000000"
)

XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SKIPPABLE = struct.pack("<II", 0x184D2A5B, 5) + b"hello"


def blob(codec: int) -> bytes:
    return bytes.fromhex(BLOBS[codec])


def chunk(data: bytes) -> bytes:
    raw = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(raw)) + raw


def refused(data: bytes, codec: int, magic: int = 2) -> bool:
    try:
        decompress(data, codec, magic=magic, limit=1 << 20)
    except CorruptDataError as error:
        return error.reference == "decompression-failed"
    return False


@contextlib.contextmanager
def memory_below(size: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_wrote_is_decompressed(codec: int):
    """The vectors of all four codecs contain the same record."""
    assert decompress(blob(codec), codec, magic=2) == RECORD
    assert decompress(memoryview(b"x" + blob(codec))[1:], codec, magic=2) == RECORD


@pytest.mark.parametrize(
    ("value", "codec", "magic", "messages"),
    [
        (LZ4_V0, LZ4, 0, MESSAGES_V0),
        (LZ4_V1, LZ4, 1, MESSAGES_V1),
        (SNAPPY_V0, SNAPPY, 0, MESSAGES_V0),
        (GZIP_V1, GZIP, 1, MESSAGES_V1),
    ],
)
def test_wrappers_of_magic_0_and_1_are_decompressed(
    value: str, codec: int, magic: int, messages: bytes
):
    """The inner messages equal those of the documented records."""
    assert decompress(bytes.fromhex(value), codec, magic=magic) == messages


def test_no_codec_means_the_bytes_themselves():
    """Codec 0 has no framing, but the same limit."""
    assert decompress(memoryview(b"abc"), 0, magic=2) == b"abc"
    with pytest.raises(LimitExceededError):
        decompress(b"abc", 0, magic=2, limit=2)


@pytest.mark.parametrize(("codec", "magic"), [(5, 2), (6, 2), (7, 0), (ZSTD, 0), (ZSTD, 1)])
def test_a_codec_that_kafka_has_not_is_damage(codec: int, magic: int):
    """Kafka raises another class of error for it, so it has a reference of its own."""
    with pytest.raises(CorruptDataError) as caught:
        decompress(b"x", codec, magic=magic)
    assert caught.value.reference == "unknown-codec"
    with pytest.raises(UnsupportedError):
        compress(b"x", codec, magic=magic)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=300), times=st.integers(1, 2000))
def test_what_is_compressed_comes_back(codec: int, data: bytes, times: int):
    """The data span several blocks of snappy and lz4, too."""
    for magic in (0, 1, 2) if codec != ZSTD else (2,):
        assert decompress(compress(data * times, codec, magic=magic), codec, magic=magic) == (
            data * times
        )


def test_other_libraries_read_what_is_compressed():
    """A third-party decoder checks each codec."""
    data = bytes(range(256)) * 2000
    assert gzip.decompress(compress(data, GZIP, level=9)) == data
    assert lz4.frame.decompress(compress(data, LZ4, level=9)) == data
    zstd = zstandard.ZstdDecompressor().decompressobj()
    assert zstd.decompress(compress(data, ZSTD, level=19)) == data
    stream, found = compress(data, SNAPPY), b""
    assert stream[:16] == XERIAL_HEADER
    while rest := stream[16 if not found else 0 :]:
        size = int.from_bytes(rest[:4], "big")
        found += bytes(cramjam.snappy.decompress_raw(rest[4 : 4 + size]))
        stream = rest[4 + size :]
    assert found == data


def test_lz4_has_the_header_that_kafka_writes():
    """64 KiB, independent, no checksums; the broken checksum 0x1a for magic 0."""
    assert compress(b"a", LZ4)[:7].hex() == "04224d18604082"
    assert compress(b"a", LZ4, magic=1)[:7].hex() == "04224d18604082"
    assert compress(b"a", LZ4, magic=0)[:7].hex() == "04224d1860401a"


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_blob_is_damage(codec: int):
    """Kafka rejects every truncated blob, except for up to 3 stray bytes at the end of snappy."""
    data = blob(codec)
    for size in range(len(data)):
        if codec == SNAPPY and 16 <= size < 20:
            # A header alone, and a chunk's size that is cut off: Kafka reads an empty stream.
            assert decompress(data[:size], codec, magic=2) == b""
        elif codec == ZSTD and not size:
            # zstd-jni takes the end of input between two frames, here before the first.
            assert decompress(b"", codec, magic=2) == b""
        else:
            assert refused(data[:size], codec), size


@pytest.mark.parametrize("codec", CODECS)
def test_damage_raises_nothing_else(codec: int):
    """Flips every bit of every vector."""
    for position, bit in itertools.product(range(len(blob(codec))), range(8)):
        damaged = bytearray(blob(codec))
        damaged[position] ^= 1 << bit
        refused(bytes(damaged), codec)


@given(st.sampled_from(CODECS), st.binary(max_size=80), st.integers(0, 16))
def test_any_bytes_are_data_or_damage(codec: int, data: bytes, kept: int):
    """Correct magic bytes let random bytes get further into the decoder."""
    try:
        decompress(blob(codec)[:kept] + data, codec, magic=2, limit=1 << 20)
    except (CorruptDataError, LimitExceededError):
        return


def test_gzip_members_are_one_stream_and_trailing_junk_is_ignored():
    """Java continues as long as another header follows."""
    two = gzip.compress(b"ab") + gzip.compress(b"cd")
    for junk in (b"", bytes(40), b"junk" * 20, b"\x1f\x8b\x07" + bytes(30), b"\x1f\x8b\x08"):
        assert decompress(two + junk, GZIP, magic=2) == b"abcd"


def test_gzip_headers_may_have_all_parts():
    """Extra field, name, comment and checksum, as RFC 1952 orders them."""
    header = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x02\x00xy" + b"name\x00" + b"comment\x00"
    checked = header + struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    body = zlib.compress(b"ab", wbits=-15) + struct.pack("<II", zlib.crc32(b"ab"), 2)
    assert decompress(checked + body, GZIP, magic=2) == b"ab"
    assert refused(header + b"\x00\x00" + body, GZIP)
    # After a first member, what is no header is junk.
    junk = gzip.compress(b"x") + header + b"\x00\x00" + body
    assert decompress(junk, GZIP, magic=2) == b"x"


@pytest.mark.parametrize("position", [-8, -1])
def test_gzip_checks_its_trailer(position: int):
    """Java verifies CRC-32 and size."""
    damaged = bytearray(blob(GZIP))
    damaged[position] ^= 1
    assert refused(bytes(damaged), GZIP)


def test_a_thousand_gzip_members_are_read_in_no_time():
    """The rest of the input must not be copied once per member."""
    member = gzip.compress(b"a")
    assert decompress(member * 20_000, GZIP, magic=2) == b"a" * 20_000


def test_snappy_chunks_and_headers_may_repeat():
    """Some writers concatenate streams; the version is checked in repeated headers only."""
    one, two = chunk(b"ab"), chunk(b"cd" * 50)
    assert decompress(XERIAL_HEADER + one + two, SNAPPY, magic=2) == b"ab" + b"cd" * 50
    assert decompress(XERIAL_HEADER + one + XERIAL_HEADER + one, SNAPPY, magic=2) == b"abab"
    strange = b"\x82SNAPPY\x00" + struct.pack("<ii", 1, 1)
    zero = b"\x82SNAPPY\x00" + bytes(8)
    assert decompress(strange + one, SNAPPY, magic=2) == b"ab"
    assert decompress(zero + one, SNAPPY, magic=2) == b"ab"
    assert refused(XERIAL_HEADER + one + zero + one, SNAPPY)
    assert refused(XERIAL_HEADER + one + XERIAL_HEADER[:15], SNAPPY)


def test_snappy_ignores_up_to_three_stray_bytes():
    """Up to three bytes cannot hold a chunk size; four can."""
    for size in (1, 2, 3):
        assert decompress(blob(SNAPPY) + b"\x01" * size, SNAPPY, magic=2) == RECORD
    assert refused(blob(SNAPPY) + b"\x01" * 4, SNAPPY)


def test_snappy_without_header_is_one_raw_block():
    """This is what librdkafka and everything built on it writes."""
    raw = bytes(cramjam.snappy.compress_raw(RECORD * 9))
    assert decompress(raw, SNAPPY, magic=2) == RECORD * 9
    assert refused(b"", SNAPPY)
    assert refused(b"\xff\x06\x00\x00sNaPpY" + raw, SNAPPY)


@pytest.mark.parametrize("size", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_false_size_of_a_snappy_chunk_is_damage(size: int):
    """A size that is zero, too short for its block, beyond the data, or negative."""
    assert refused(XERIAL_HEADER + struct.pack(">I", size) + chunk(b"ab"), SNAPPY)


def frame(data: bytes = b"abc" * 99, **options: object) -> bytes:
    return bytes(lz4.frame.compress(data, **{"block_linked": False, **options}))


def test_lz4_takes_one_frame_and_ignores_the_rest():
    """Kafka ignores a second frame, so kafkalog must ignore it, too."""
    for rest in (b"x", bytes(9), frame(b"second")):
        assert decompress(frame() + rest, LZ4, magic=2) == b"abc" * 99


@pytest.mark.parametrize(
    "options", [{}, {"block_size": 7}, {"store_size": False}, {"block_checksum": True}]
)
@pytest.mark.parametrize("checked", [False, True])
def test_lz4_frames_of_all_shapes_are_read(options: dict[str, object], checked: bool):
    """Sizes, checksums and larger blocks, as other producers write them."""
    data = bytes(range(256)) * 3000
    stream = frame(data, content_checksum=checked, **options)
    assert decompress(stream, LZ4, magic=2) == data
    assert refused(stream[: -5 if checked else -1], LZ4)


def test_lz4_does_not_verify_what_kafka_does_not():
    """Content checksum and content size are ignored, but the checksum must be present."""
    stream = bytearray(frame(content_checksum=True, store_size=False))
    stream[-1] ^= 1
    assert decompress(bytes(stream), LZ4, magic=2) == b"abc" * 99
    assert refused(bytes(stream[:-1]), LZ4)
    sized = bytearray(frame())
    sized[6] ^= 1
    assert decompress(bytes(sized), LZ4, magic=0) == b"abc" * 99


def test_lz4_verifies_block_checksums():
    """Kafka verifies them if the header announces them."""
    stream = bytearray(frame(block_checksum=True, store_size=False))
    stream[-5] ^= 1
    assert refused(bytes(stream), LZ4)


def test_lz4_verifies_its_header_but_for_magic_0():
    """Old clients of magic 0 wrote either form of the checksum, so Kafka does not verify it."""
    broken = bytes.fromhex(LZ4_V0)
    assert refused(broken, LZ4, magic=1)
    assert refused(broken, LZ4, magic=2)
    sound = broken[:6] + b"\x82" + broken[7:]
    assert {decompress(sound, LZ4, magic=magic) for magic in (0, 1, 2)} == {MESSAGES_V0}


def test_lz4_refuses_linked_blocks():
    """Kafka decodes each block without the blocks before it."""
    assert refused(bytes(lz4.frame.compress(bytes(200_000), block_linked=True)), LZ4)


def test_lz4_needs_its_end_mark():
    """A stored block of size 0 ends the frame, too: Kafka masks the bit before the check."""
    header = frame(store_size=False)[:7]
    assert decompress(header + b"\x00\x00\x00\x80", LZ4, magic=2) == b""
    assert refused(header, LZ4)


def test_zstd_frames_and_skippable_frames_are_one_stream():
    """With and without content size and checksum, and with empty frames."""
    frames = [
        zstandard.ZstdCompressor(write_checksum=c, write_content_size=s).compress(data)
        for c, s, data in itertools.product((True, False), (True, False), (b"", b"ab" * 999))
    ]
    stream = SKIPPABLE + SKIPPABLE.join(frames) + SKIPPABLE
    assert decompress(stream, ZSTD, magic=2) == b"ab" * 999 * 4


@pytest.mark.parametrize("rest", [b"\x00", bytes(4), b"junk!", blob(GZIP)])
def test_zstd_refuses_what_is_no_frame(rest: bytes):
    """gzip and lz4 ignore such bytes instead."""
    assert refused(blob(ZSTD) + rest, ZSTD)


def test_zstd_ends_quietly_where_zstd_jni_does():
    """It drops an incomplete later frame that began in the last 131075 bytes read."""
    for size in range(1, len(blob(ZSTD))):
        found = decompress(blob(ZSTD) + blob(ZSTD)[:size], ZSTD, magic=2)
        assert found[: len(RECORD)] == RECORD
        assert len(found) <= 2 * len(RECORD)
    long = zstandard.ZstdCompressor().compress(b"".join(map(str.encode, map(str, range(10**6)))))
    assert len(long) > 262_150
    cut = 131_075 - len(blob(ZSTD))
    assert not refused(blob(ZSTD) + long[:cut], ZSTD)
    assert refused(blob(ZSTD) + long[: cut + 1], ZSTD)


def bomb(codec: int, size: int) -> bytes:
    """Return data that decompress to `size` zeros, by repeating members, chunks or blocks."""
    million = bytes(1 << 20)
    count = size >> 20
    if codec == GZIP:
        return gzip.compress(million) * count
    if codec == ZSTD:
        header = blob(ZSTD)[:4] + b"\x00\x58"  # a window of 2 MiB
        block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
        return header + block * (count * 8) + b"\x01\x00\x00"
    if codec == LZ4:
        stream = compress(million, LZ4)
        return stream[:7] + stream[7:-4] * count + bytes(4)
    return XERIAL_HEADER + chunk(million) * count


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_stops_at_the_limit(codec: int):
    """Gigabytes out of megabytes must take no more memory than the limit and a few buffers."""
    data = bomb(codec, 200 << 20 if codec == SNAPPY else 1 << 30)
    limit = 4 << 20
    with memory_below(5 * limit), pytest.raises(LimitExceededError):
        decompress(data, codec, magic=2, limit=limit)


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_the_last_size_that_passes(codec: int):
    """One byte more fails, one byte less passes."""
    data = compress(bytes(100_000), codec)
    assert len(decompress(data, codec, magic=2, limit=100_000)) == 100_000
    with pytest.raises(LimitExceededError):
        decompress(data, codec, magic=2, limit=99_999)


def test_a_false_size_of_a_snappy_block_allocates_nothing():
    """Five bytes can claim four gigabytes."""
    block = b"\xff\xff\xff\xff\x0fabc"
    with memory_below(1_000_000):
        assert refused(block, SNAPPY)
        assert refused(XERIAL_HEADER + struct.pack(">i", len(block)) + block, SNAPPY)


def test_errors_have_the_exit_status_of_their_kind():
    """Damage ends with 6, an exceeded limit with 7, a codec that cannot be written with 5."""
    statuses = []
    for call in (
        lambda: decompress(b"x", GZIP, magic=2),
        lambda: decompress(b"xx", 0, magic=2, limit=1),
        lambda: compress(b"x", 5),
    ):
        with pytest.raises(KafkaLogError) as caught:
            call()
        statuses.append(caught.value.exit_code)
    assert statuses == [6, 7, 5]


def test_what_is_wrong_with_a_frame_does_not_depend_on_those_before():
    """Several threads decode a log, each in its own order: all report the same error."""
    wide = bytes.fromhex("28b52ffd00686f78c8373704c15c93614d57ebb895b40100d258000505")
    bad = bytes.fromhex(
        "28b52ffd001d23c2a4f9de5ba9414a93ab4cac790c00e9060063fe060002d01292ca485bf98b98151a0602200100"
        "047b7d123f54d99243d072961920ee7d5fd4ce28d1627b9b225e7a86de8c1c000a0210538ca574e252ccc1010050"
        "000a04226b13599d34a2ed0ec1472857daed4e953322aefba85775e3318a77d996fa96b5ab5043001200060604ff"
        "fe020000cc01000a08105a9cde83794763f81091bc0fcad5a81bd30610359b8dfe6fca4b5612ca9f2769b3d3a6b7"
        "110231502d95d6ee1facdbdcfc0ab193dc8fdeb739f82b1cb88209c8609bcb1c6797970b59a57436ea8394b52037"
        "3516928e4c4133f2e8307fd30508fb01"
    )
    said = []
    for before in ((), (wide,)):
        for data in before:
            with pytest.raises(CorruptDataError):
                decompress(data, ZSTD, magic=2)
        with pytest.raises(CorruptDataError) as caught:
            decompress(bad, ZSTD, magic=2)
        said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(("module", "name"), native.FUNCTIONS[:9:3])
def test_functions_of_a_package_that_another_thread_imports(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until that ends, an extension module of one phase is there, but has no spec."""
    found = native._address(module, name)
    assert found
    monkeypatch.setattr(importlib.import_module(module), "__spec__", None)
    assert native._address(module, name) == found
