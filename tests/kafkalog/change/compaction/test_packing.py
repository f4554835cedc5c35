"""Many batches are compressed in one call of C functions, to the bytes of the codecs' modules."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from formats import constants as c
from kafkalog.change.compaction import chunks
from kafkalog.change.compaction import kernels as r
from kafkalog.change.compaction import pack_kernels as p
from kafkalog.io.codecs import compress, native
from kafkalog.log.columns import kernels as k
from tests.soak.guard import guarded

if TYPE_CHECKING:
    from numpy.typing import NDArray

CODECS = {"gzip": c.GZIP, "snappy": c.SNAPPY, "lz4": c.LZ4, "zstd": c.ZSTD}
TEXT = b"".join(b'{"id":%d}' % (i * 7919 % 10_007) for i in range(30_000))
NOISE = random.Random("packing").randbytes(140_000)
BODIES = [
    *(TEXT[: 7 * i**3 + 1] for i in range(1, 36, 2)),
    *(NOISE[:size] for size in (1, 12, 13, 100, 5_000, 65_536, 65_537, 140_000)),
    bytes(200_000),
    *(TEXT[:size] for size in (65_535, 65_536, 65_537, 131_071, 131_072, 131_073)),
]


def before(bodies: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64], list[bytes]]:
    """Return batches with these records one after another, their plan, and their headers.

    A batch without records was dropped.
    """
    rng = random.Random("headers")
    headers = [rng.randbytes(c.RECORD_BATCH_OVERHEAD) if body else b"" for body in bodies]
    plan = np.zeros((r.PLAN_FIELDS, len(bodies)), np.int64)
    plan[r.NEW_SIZE] = [len(one) + len(body) for one, body in zip(headers, bodies, strict=True)]
    plan[r.NEW_START] = np.cumsum(plan[r.NEW_SIZE]) - plan[r.NEW_SIZE]
    whole = b"".join(map(b"".join, zip(headers, bodies, strict=True)))
    return np.frombuffer(whole, np.uint8).copy(), plan, headers


def after(header: bytes, body: bytes, codec: int) -> bytes:
    """Return a batch as the codec's module makes it."""
    packed = compress(body, codec)
    length = (c.RECORD_BATCH_OVERHEAD + len(packed) - c.LOG_OVERHEAD).to_bytes(4, "big")
    return header[: c.LENGTH_POSITION] + length + header[c.LOG_OVERHEAD :] + packed


def packed(bodies: list[bytes], codecs: list[int]) -> list[bytes]:
    """Return the batches after compression; codec 0 is a batch that is copied."""
    out, plan, _ = before(bodies)
    headers = np.zeros((k.HEADER_FIELDS, len(bodies)), np.int64)
    headers[k.ATTRIBUTES] = codecs
    made, end = chunks._packed(out, plan, headers, np.array(codecs) > 0, chunks.Buffers())
    ends = plan[r.NEW_START] + plan[r.NEW_SIZE]
    assert (plan[r.NEW_START, 1:] == ends[:-1]).all()
    assert end == ends[-1]
    return [made[a:b].tobytes() for a, b in zip(plan[r.NEW_START], ends, strict=True)]


def by_kernel(call: Any, bodies: list[bytes], codec: int, room: int) -> tuple[int, bytes]:
    """Return how many batches the kernel takes into the room, and what it makes of them."""
    out, plan, _ = before(bodies)
    made = guarded(room, np.uint8)
    functions = np.array(native.addresses(), np.int64)
    scratch = np.zeros(p.SCRATCH_SIZE, np.uint8)
    codecs = np.full(len(bodies), codec)
    done, end = call(out, plan, codecs, 0, made, 0, functions, scratch)
    return done, made[:end].tobytes()


@pytest.mark.parametrize("name", CODECS)
def test_the_bytes_are_those_of_the_codecs_module(name: str) -> None:
    """Small and large, one block and several, text and noise."""
    codec = CODECS[name]
    _, _, headers = before(BODIES)
    expected = [after(one, body, codec) for one, body in zip(headers, BODIES, strict=True)]
    assert packed(BODIES, [codec] * len(BODIES)) == expected


def test_batches_of_several_codecs_stay_in_order() -> None:
    """Among them some that are copied, and some that were dropped."""
    codecs = [0, c.LZ4, c.SNAPPY, 0, 0, 0, c.GZIP, c.ZSTD, 0, c.GZIP, c.SNAPPY, 0, c.LZ4, 0]
    bodies = BODIES[: len(codecs)]
    bodies[4] = bodies[8] = bodies[11] = b""
    _, _, headers = before(bodies)
    expected = [
        after(one, body, codec) if codec else one + body
        for one, body, codec in zip(headers, bodies, codecs, strict=True)
    ]
    assert packed(bodies, codecs) == expected


@pytest.mark.parametrize("name", CODECS)
def test_the_kernel_takes_all_but_snappy(name: str) -> None:
    """What it leaves is for the codec's module."""
    codec, bodies = CODECS[name], [*BODIES, bytes(131_072)]
    count, _ = by_kernel(p.pack_batches, bodies, codec, 4_000_000)
    assert count == (0 if name == "snappy" else len(bodies))


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd"])
def test_the_kernel_stops_where_its_room_ends(name: str) -> None:
    """It is its Python source, and touches no memory behind the room."""
    codec, bodies = CODECS[name], [TEXT[:300], NOISE[:400], TEXT[:50]]
    _, _, headers = before(bodies)
    whole = [after(one, body, codec) for one, body in zip(headers, bodies, strict=True)]
    rooms = range(0, sum(map(len, whole)) + 130, 7)
    for room in rooms:
        count, made = by_kernel(p.pack_batches, bodies, codec, room)
        assert made == b"".join(whole[:count])
        if not room % 5:
            assert by_kernel(p.pack_batches.function, bodies, codec, room) == (count, made)
    assert by_kernel(p.pack_batches, bodies, codec, rooms[-1])[0] == len(bodies)


@pytest.mark.parametrize("name", CODECS)
def test_batches_are_compressed_without_the_functions(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another build of a package may hide them."""
    bodies = BODIES[:9]
    found = packed(bodies, [CODECS[name]] * len(bodies))
    monkeypatch.setattr(native, "addresses", lambda: (0,) * len(native.FUNCTIONS))
    assert packed(bodies, [CODECS[name]] * len(bodies)) == found
