"""Many batches are decompressed in one call of C functions; whatever is not plain is left alone."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from typing import TYPE_CHECKING, Any

import cramjam
import lz4.frame
import numpy as np
import pytest
import zstandard

from kafkalog.errors import KafkaLogError
from kafkalog.io.codecs import decompress, native
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns import unpack_kernels as u
from kafkalog.log.columns import unpacking
from tests.kafkalog.log.columns.twins import assert_twins
from tests.soak.guard import guarded

if TYPE_CHECKING:
    from pathlib import Path

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TEXT = b"".join(b'{"id":%d}' % (i * 7919 % 10_007) for i in range(9_000))
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def snappy_stream(data: bytes) -> bytes:
    blocks = [bytes(cramjam.snappy.compress_raw(data[i : i + 32768]))
              for i in range(0, len(data), 32768)]  # fmt: skip
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lz4_frame(data: bytes, **options: Any) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=False, **options))


def zstd_frame(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


PLAIN = {
    "gzip": (GZIP, lambda data: gzip.compress(data, mtime=0)),
    "gzip 1": (GZIP, lambda data: zlib.compress(data, 1, wbits=31)),
    "snappy": (SNAPPY, snappy_stream),
    "snappy, one block": (SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (LZ4, lambda data: lz4_frame(data, store_size=False)),
    "lz4, sizes": (LZ4, lambda data: lz4_frame(data, content_checksum=True, block_size=7)),
    "zstd": (ZSTD, lambda data: zstd_frame(data, write_content_size=False)),
    "zstd, sizes": (ZSTD, lambda data: zstd_frame(data, write_checksum=True)),
    "zstd 19": (ZSTD, lambda data: zstd_frame(data, level=19)),
}  # fmt: skip


def unpacked(
    payloads: list[bytes], codec: int, room: int, call: Any = unpacking.unpack_plain
) -> list[bytes]:
    """Return what batches with these payloads become, up to the first that is left alone.

    Memory ends where the room for them ends.
    """
    used = sum(map(len, payloads))
    arena = guarded(used + room, np.uint8)
    arena[:used] = np.frombuffer(b"".join(payloads), np.uint8)
    ends = np.cumsum([len(one) for one in payloads])
    starts = ends - [len(one) for one in payloads]
    headers = np.zeros((k.HEADER_FIELDS, len(payloads)), np.int64)
    headers[k.MAGIC] = 2
    headers[k.ATTRIBUTES] = codec
    packed = np.ones(len(payloads), np.bool_)
    count, fill = call(arena, headers, starts, ends, packed, 0, used, used + room)
    assert fill == (ends[count - 1] if count else used)
    assert arena[:used].tobytes() == b"".join(payloads)
    return [arena[a:b].tobytes() for a, b in zip(starts[:count], ends[:count], strict=True)]


def by_source(*arguments: Any) -> Any:
    """Call the Python source of the kernel."""
    scratch = np.zeros(u.SCRATCH_SIZE, np.uint8)
    functions = np.array(native.addresses(), np.int64)
    return u.unpack_batches.function(*arguments, functions, scratch)


def test_every_function_is_there():
    """The packages of these versions export them, so all other tests use them."""
    assert all(native.addresses())


def test_a_module_built_into_python_has_its_functions_too():
    """As zlib is in Debian's Python."""
    assert native._address("sys", "Py_IncRef")
    assert not native._address("sys", "nowhere")


@pytest.mark.parametrize("name", PLAIN)
def test_plain_batches_are_decompressed_in_one_call(name: str):
    """Other packages' frames of many sizes, the last of which ends where memory ends."""
    codec, packed = PLAIN[name]
    contents = [TEXT[: 7 * i**3 + 10] for i in range(22)] + [bytes(200_000)]
    payloads = [packed(one) for one in contents]
    assert unpacked(payloads, codec, sum(map(len, contents))) == contents


@pytest.mark.parametrize("name", PLAIN)
def test_a_batch_without_room_is_left_alone(name: str):
    """A byte less than it needs."""
    codec, packed = PLAIN[name]
    payload = packed(TEXT)
    assert unpacked([payload, payload], codec, 2 * len(TEXT) - 1) == [TEXT]


@pytest.mark.parametrize("name", [name for name in PLAIN if "snappy" not in name])
def test_the_kernel_is_its_python_source(name: str):
    """Also for what is left alone."""
    codec, packed = PLAIN[name]
    payloads = [packed(TEXT[:500]), packed(TEXT), packed(TEXT[:50])[:-1]]
    found = unpacked(payloads, codec, 100_000, by_source)
    assert found == unpacked(payloads, codec, 100_000) == [TEXT[:500], TEXT]


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)),
        (GZIP, gzip.compress(TEXT) + b"junk"),
        (GZIP, gzip.compress(TEXT)[:-8] + bytes(4) + gzip.compress(TEXT)[-4:]),
        (SNAPPY, snappy_stream(TEXT) + XERIAL + snappy_stream(TEXT)),
        (SNAPPY, snappy_stream(TEXT) + b"abc"),
        (SNAPPY, XERIAL),
        (LZ4, lz4_frame(TEXT, block_checksum=True)),
        (LZ4, lz4_frame(TEXT, store_size=False)[:6] + b"\0" + lz4_frame(TEXT)[7:]),
        (LZ4, bytes(lz4.frame.compress(TEXT * 2, block_linked=True))),
        (ZSTD, zstd_frame(TEXT) + zstd_frame(TEXT)),
        (ZSTD, struct.pack("<II", 0x184D2A5B, 5) + b"hello" + zstd_frame(TEXT)),
        (ZSTD, zstd_frame(TEXT)[:-1]),
        (ZSTD, b"\x28\xb5\x2f\xfd\x00\xb0\x01\x00\x00"),  # a window of 4 GiB
        (0, TEXT),
        (7, TEXT),
    ],
)
def test_the_odd_and_the_damaged_are_left_alone(codec: int, payload: bytes):
    """`kafkalog.io.codecs` judges them."""
    assert unpacked([payload], codec, 1 << 20) == []


@pytest.mark.parametrize("name", PLAIN)
def test_damage_is_never_read_otherwise(name: str):
    """Bits flipped, bytes cut and doubled: what is decompressed is what the codec's module says."""
    codec, packed = PLAIN[name]
    whole, rng = packed(TEXT[:6000]), random.Random(f"damage {name}")
    for _ in range(300):
        payload = bytearray(whole)
        at = rng.randrange(rng.choice((20, len(payload))))
        kind = rng.randrange(4)
        if kind == 0:
            del payload[at : at + rng.randrange(1, 9)]
        elif kind == 1:
            payload[at:at] = payload[at : at + rng.randrange(1, 9)]
        else:
            payload[at] ^= 1 << rng.randrange(8) if kind == 2 else rng.randrange(1, 256)
        room = rng.choice((6000, 6007, 50_000))
        for found in unpacked([bytes(payload)], codec, room):
            assert found == decompress(payload, codec, magic=2)


@pytest.mark.parametrize("name", PLAIN)
def test_noise_stays_within_its_room(name: str):
    """A header, then random bytes: memory after the room is never touched."""
    codec, packed = PLAIN[name]
    whole, rng = packed(TEXT[:6000]), random.Random(f"noise {name}")
    for _ in range(200):
        payload = whole[: rng.randrange(6, 40)] + rng.randbytes(rng.randrange(400))
        for found in unpacked([payload], codec, rng.randrange(1, 9000)):
            try:
                assert found == decompress(payload, codec, magic=2)
            except KafkaLogError:
                pytest.fail(f"{payload.hex()} was decompressed")


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_a_log_is_read_without_the_functions(
    codec: str, corpus_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another build of a package may hide them."""
    log = corpus_dir / "kafka-4.3" / "codecs" / f"codec-{codec}-0" / "00000000000000000000.log"
    found = assert_twins(log)
    monkeypatch.setattr(native, "FUNCTIONS", (("lz4.frame._frame", "gone"), ("nowhere.at_all", "x"),
                                              ("json", "x"), *native.FUNCTIONS[3:]))  # fmt: skip
    native.addresses.cache_clear()
    assert native.addresses()[:3] == (0, 0, 0)
    for functions in (native.addresses(), (0,) * len(native.FUNCTIONS)):
        monkeypatch.setattr(
            unpacking, "_functions", lambda functions=functions: np.array(functions, np.int64)
        )
        assert assert_twins(log) == found
    native.addresses.cache_clear()
