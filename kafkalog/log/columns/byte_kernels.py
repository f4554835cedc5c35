"""Compiled primitives: bytes, words, numbers and varints of byte arrays, and a keyed hash.

Follows `ByteUtils` of Kafka. The caller checks bounds, except those of varints. Functions for
which `kafkalog.io.jit.compiler` has an instruction are written in Python as well, as its
specification.

Follows J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF". With a secret seed
nobody can construct keys that collide; among a billion keys two collide with probability 2^-69.
"""

from __future__ import annotations

import ctypes

import numpy as np

from kafkalog.io.jit.native import inlined, kernel

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

_HIGH_BITS = np.uint64(0x8080808080808080)


@inlined
def copy_bytes(target, target_at, source, source_at, size):
    """Copy bytes between two arrays; compiled as `memcpy`. The caller has checked both ends."""
    target[target_at : target_at + size] = source[source_at : source_at + size]


@inlined
def byte(data, at):
    """Return the byte at a position >= 0 that the caller has checked; compiled as one load."""
    return np.int64(data[at])


@inlined
def eight_bytes(data, at):
    """Return eight bytes, little-endian and unsigned; compiled as one load."""
    return data[at : at + 8].view(np.uint64)[0]


@inlined
def put_eight_bytes(data, at, word):
    """Write eight bytes, the lowest first; compiled as one store."""
    for i in range(8):
        data[at + i] = word >> np.uint64(8 * i) & np.uint64(0xFF)


@inlined
def address(data, at):
    """Return the address of an element, or of the end of an array."""
    return np.int64(data.ctypes.data + at)


@inlined
def call_c(function, arguments):
    """Call the C function at an address with a tuple of int64; return 64 bits of its result.

    The upper half of a result that is shorter means nothing.
    """
    kinds = [ctypes.c_int64] * (1 + len(arguments))
    return np.int64(ctypes.CFUNCTYPE(*kinds)(int(function))(*map(int, arguments)))


@inlined
def trailing_zeros(word):
    """Count the trailing zero bits of a nonzero word; compiled as one instruction."""
    return int(word & -word).bit_length() - 1


@inlined
def int32(data, at):
    """Read a signed number of 32 bits."""
    value = (
        byte(data, at) << 24 | byte(data, at + 1) << 16
        | byte(data, at + 2) << 8 | byte(data, at + 3)
    )  # fmt: skip
    return value - ((value & 0x80000000) << 1)


@inlined
def int64(data, at):
    """Read a signed number of 64 bits."""
    return int32(data, at) << 32 | (int32(data, at + 4) & 0xFFFFFFFF)


@inlined
def int16(data, at):
    """Read a signed number of 16 bits."""
    value = byte(data, at) << 8 | byte(data, at + 1)
    return value - ((value & 0x8000) << 1)


@inlined
def varint(data, at, end):
    """Read a zigzag varint of 32 bits; return it and the position after it, or -1 if malformed."""
    value = np.int64(0)
    shift = np.int64(0)
    # 5 bytes at most; of the fifth, ByteUtils keeps the bits that fit.
    while shift < 35:
        if at >= end:
            return np.int64(0), np.int64(-1)
        one = byte(data, at)
        at += 1
        value |= (one & 0x7F) << shift
        if one < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return np.int64(0), np.int64(-1)


@inlined
def varlong(data, at, end):
    """Read a zigzag varint of 64 bits; return it and the position after it, or -1 if malformed."""
    value = np.uint64(0)
    shift = np.uint64(0)
    # 10 bytes at most, of the tenth a single bit.
    while shift < np.uint64(70):
        if at >= end:
            return np.int64(0), np.int64(-1)
        one = np.uint64(byte(data, at))
        at += 1
        value |= (one & np.uint64(0x7F)) << shift
        if one < np.uint64(0x80):
            # Shifted unsigned: the highest bit is part of the number, not its sign.
            half = np.int64(value >> np.uint64(1))
            return half ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def lead_byte(lead):
    """Return the number of continuation bytes after a lead byte of UTF-8, 0 if it is none.

    Also return the lowest and the highest value of the next byte: Unicode 15, table 3-7.
    """
    low, up, more = 0x80, 0xBF, 0
    if 0xC2 <= lead <= 0xDF:
        more = 1
    elif 0xE0 <= lead <= 0xEF:
        more = 2
        if lead == 0xE0:
            low = 0xA0
        elif lead == 0xED:
            up = 0x9F
    elif 0xF0 <= lead <= 0xF4:
        more = 3
        if lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            up = 0x8F
    return more, low, up


@inlined
def after_character(data, at, end):
    """Return the position after a character of UTF-8 that has several bytes; -1 if it is none."""
    more, low, up = lead_byte(byte(data, at))
    if more == 0 or at + more >= end:
        return np.int64(-1)
    for i in range(1, more + 1):
        one = byte(data, at + i)
        if one < low or one > up:
            return np.int64(-1)
        low, up = 0x80, 0xBF
    return at + more + 1


@inlined
def is_text(data, at, end):
    """Return whether bytes are UTF-8; the caller has checked both ends."""
    while at < end:
        if end - at >= 8 and eight_bytes(data, at) & _HIGH_BITS == 0:
            at += 8
        elif byte(data, at) < 0x80:
            at += 1
        else:
            at = after_character(data, at, end)
            if at < 0:
                return False
    return True


# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"


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
    """Hash each key `data[position:position + size]`.

    Args:
        data: the bytes; all keys are in bounds.
        positions: position of each key.
        sizes: sizes in bytes; below 0 for null, whose hash is set to 0 and means nothing.
        seed_low, seed_high: the seed, 64 bits each.
        low, high: int64, filled with the bits of the hashes.
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
        # SipHash-2-4 with a result of 128 bits: two rounds for each word, four to end with.
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
