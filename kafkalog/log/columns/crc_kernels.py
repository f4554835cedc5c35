"""Compiled checksums of ranges of log bytes: CRC-32C, and CRC-32 of legacy messages."""

from __future__ import annotations

import numpy as np

from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import byte, eight_bytes

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"


def _crc_table(polynomial):
    """Compute the eight tables of a checksum for slicing-by-8."""
    table = np.zeros((8, 256), np.uint32)
    for i in range(256):
        value = i
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table[0, i] = value
    for row in range(1, 8):
        before = table[row - 1]
        table[row] = before >> np.uint32(8) ^ table[0][before & np.uint32(0xFF)]
    return table


# CRC-32C (Castagnoli) of magic 2, CRC-32 of magic 0 and 1, both reflected.
_TABLE = np.concatenate((_crc_table(0x82F63B78), _crc_table(0xEDB88320)))
_BYTE = np.uint64(0xFF)


@inlined
def _crc_word(crc, word, first):
    """Update a CRC with eight more bytes, by the eight tables from `first` on."""
    word ^= np.uint64(crc)
    return (
        _TABLE[first + 7, word & _BYTE]
        ^ _TABLE[first + 6, word >> np.uint64(8) & _BYTE]
        ^ _TABLE[first + 5, word >> np.uint64(16) & _BYTE]
        ^ _TABLE[first + 4, word >> np.uint64(24) & _BYTE]
        ^ _TABLE[first + 3, word >> np.uint64(32) & _BYTE]
        ^ _TABLE[first + 2, word >> np.uint64(40) & _BYTE]
        ^ _TABLE[first + 1, word >> np.uint64(48) & _BYTE]
        ^ _TABLE[first, word >> np.uint64(56)]
    )


@inlined
def crc32c_word(crc, word):
    """Update a CRC-32C with eight more bytes; compiled as an instruction of the processor."""
    return _crc_word(crc, word, 0)


@inlined
def _crc_of_rest(data, at, end, legacy, crc):
    """Return the CRC of a range, given that of its bytes before `at`."""
    first = 8 if legacy else 0
    while end - at >= 8:
        word = eight_bytes(data, at)
        crc = _crc_word(crc, word, first) if legacy else crc32c_word(crc, word)
        at += 8
    while at < end:
        low = (np.uint64(crc) ^ np.uint64(byte(data, at))) & _BYTE
        crc = _TABLE[first, low] ^ (crc >> np.uint32(8))
        at += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@kernel("bytes ints ints flags ints")
def crc_ranges(data, starts, ends, legacy, sums):
    """Compute CRC-32C, or CRC-32 for legacy ranges, of `data[starts[i]:ends[i]]` into `sums`.

    The ranges must be in bounds. Three neighbours run side by side as far as the shortest reaches:
    each instruction waits for the one before it in its own range, and the processor has three at
    work at once.
    """
    count = len(starts)
    i = 0
    while i < count:
        done = np.int64(0)
        one = two = three = np.uint32(0xFFFFFFFF)
        together = 1
        if i + 3 <= count and not (legacy[i] or legacy[i + 1] or legacy[i + 2]):
            together = 3
            first, second, third = starts[i], starts[i + 1], starts[i + 2]
            shortest = min(ends[i] - first, ends[i + 1] - second, ends[i + 2] - third)
            while shortest - done >= 8:
                one = crc32c_word(one, eight_bytes(data, first + done))
                two = crc32c_word(two, eight_bytes(data, second + done))
                three = crc32c_word(three, eight_bytes(data, third + done))
                done += 8
        sums[i] = _crc_of_rest(data, starts[i] + done, ends[i], legacy[i], one)
        if together == 3:
            sums[i + 1] = _crc_of_rest(data, starts[i + 1] + done, ends[i + 1], False, two)
            sums[i + 2] = _crc_of_rest(data, starts[i + 2] + done, ends[i + 2], False, three)
        i += together
