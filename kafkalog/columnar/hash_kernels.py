"""A compiled keyed hash of record keys: SipHash-2-4 with a result of 128 bits.

Follows J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF". With a secret seed
nobody can make keys that collide; of a thousand million keys two do with a chance of 2^-69.
"""

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from kafkalog.columnar.byte_kernels import byte, eight_bytes
from kafkalog.columnar.native import inlined, kernel

_INITIAL = tuple(
    np.uint64(int.from_bytes(word, "big")) for word in (b"somepseu", b"dorandom", b"lygenera",
                                                        b"tedbytes")
)  # fmt: skip
_WIDE = np.uint64(0xEE)  # makes the result one of 128 bits
_SECOND = np.uint64(0xDD)


@inlined
def _rotate(value, bits):
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


@inlined
def _round(a, b, c, d):
    a += b
    b = _rotate(b, 13) ^ a
    a = _rotate(a, 32)
    c += d
    d = _rotate(d, 16) ^ c
    a += d
    d = _rotate(d, 21) ^ a
    c += b
    b = _rotate(b, 17) ^ c
    c = _rotate(c, 32)
    return a, b, c, d


@kernel("bytes ints ints int int ints ints")
def hash_keys(data, positions, sizes, seed_low, seed_high, low, high):
    """The hash of each key `data[position:position + size]`.

    Args:
        data: the bytes; all keys are in bounds.
        positions: where each key is.
        sizes: in bytes; below 0: null, whose hash is set to 0 and means nothing.
        seed_low, seed_high: the seed, 64 bits each.
        low, high: int64, become the bits of the hash.
    """
    seeds = (np.uint64(seed_low), np.uint64(seed_high))
    for i in range(len(sizes)):
        size = sizes[i]
        if size < 0:
            low[i] = 0
            high[i] = 0
            continue
        a, b = _INITIAL[0] ^ seeds[0], _INITIAL[1] ^ seeds[1] ^ _WIDE
        c, d = _INITIAL[2] ^ seeds[0], _INITIAL[3] ^ seeds[1]
        at = positions[i]
        end = at + size
        while end - at >= 8:
            word = eight_bytes(data, at)
            d ^= word
            a, b, c, d = _round(a, b, c, d)
            a, b, c, d = _round(a, b, c, d)
            a ^= word
            at += 8
        word = np.uint64(size) << np.uint64(56)
        shift = np.uint64(0)
        while at < end:
            word |= np.uint64(byte(data, at)) << shift
            shift += np.uint64(8)
            at += 1
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
        c ^= _WIDE
        for _ in range(4):
            a, b, c, d = _round(a, b, c, d)
        low[i] = np.int64(a ^ b ^ c ^ d)
        b ^= _SECOND
        for _ in range(4):
            a, b, c, d = _round(a, b, c, d)
        high[i] = np.int64(a ^ b ^ c ^ d)
