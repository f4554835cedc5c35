"""Hashes of keys equal those of the reference publication, for any seed and size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.log.columns.byte_kernels import hash_keys

# The published vectors of SipHash-2-4 with 128 bits: the hash of the bytes 0, 1, ... of each length
# from 0 on, the seed being the bytes 0 to 15.
PUBLISHED = """
a3817f04ba25a8e66df67214c7550293 da87c1d86b99af44347659119b22fc45
8177228da4a45dc7fca38bdef60affe4 9c70b60c5267a94e5f33b6b02985ed51
f88164c12d9c8faf7d0f6e7c7bcd5579 1368875980776f8854527a07690e9627
14eeca338b208613485ea0308fd7a15e a1f1ebbed8dbc153c0b84aa61ff08239
3b62a9ba6258f5610f83e264f31497b4 264499060ad9baabc47f8b02bb6d71ed
00110dc378146956c95447d3f3d0fbba 0151c568386b6677a2b4dc6f81e5dc18
d626b266905ef35882634df68532c125 9869e247e9c08b10d029934fc4b952f7
31fcefac66d7de9c7ec7485fe4494902 5493e99933b0a8117e08ec0f97cfc3d9
6ee2a4ca67b054bbfd3315bf85230577 473d06e8738db89854c066c47ae47740
"""
VECTORS = PUBLISHED.split()
SEED = bytes(range(16))


def hashed(keys: list[bytes | None], seed: bytes) -> list[bytes]:
    """Hash with the kernel, and format as the publication does."""
    data = b"".join(key or b"" for key in keys)
    sizes = np.array([-1 if key is None else len(key) for key in keys], np.int64)
    positions = np.cumsum([0, *np.maximum(sizes, 0)])[:-1]
    low, high = np.full((2, len(keys)), 7, np.int64)
    seeds = np.frombuffer(seed, "<i8").tolist()
    hash_keys(np.frombuffer(bytearray(data), np.uint8), positions, sizes, *seeds, low, high)
    return [row.tobytes() for row in np.stack((low, high), 1)]


def reference(key: bytes, seed: bytes) -> bytes:
    """Compute the publication's pseudocode with Python's integers."""
    mask = 2**64 - 1
    k0, k1 = (int.from_bytes(seed[at : at + 8], "little") for at in (0, 8))
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261,
         k1 ^ 0x7465646279746573]  # fmt: skip
    v[1] ^= 0xEE

    def rounds(count: int) -> int:
        for _ in range(count):
            for x, y, first, second in (
                (0, 1, 13, 32),
                (2, 3, 16, 0),
                (0, 3, 21, 0),
                (2, 1, 17, 32),
            ):
                v[x] = (v[x] + v[y]) & mask
                v[y] = (v[y] << first | v[y] >> (64 - first)) & mask ^ v[x]
                v[x] = (v[x] << second | v[x] >> (64 - second)) & mask
        return v[0] ^ v[1] ^ v[2] ^ v[3]

    padded = key + bytes(7 - len(key) % 8) + bytes([len(key) & 255])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    low = rounds(4)
    v[1] ^= 0xDD
    return low.to_bytes(8, "little") + rounds(4).to_bytes(8, "little")


def test_the_published_vectors():
    """Each length, all in one call."""
    keys: list[bytes | None] = [bytes(range(size)) for size in range(len(VECTORS))]
    assert [found.hex() for found in hashed(keys, SEED)] == VECTORS


@given(
    keys=st.lists(st.none() | st.binary(max_size=40) | st.builds(bytes, st.integers(0, 600))),
    seed=st.binary(min_size=16, max_size=16),
)
def test_any_keys_and_seeds(keys: list[bytes | None], seed: bytes):
    """Lengths above 255, and seeds with the highest bit; null has the hash 0."""
    wanted = [bytes(16) if key is None else reference(key, seed) for key in keys]
    assert hashed(keys, seed) == wanted


def test_empty_is_not_null():
    """A compactor must never take one for the other."""
    assert hashed([b"", None], SEED) == [bytes.fromhex(VECTORS[0]), bytes(16)]
