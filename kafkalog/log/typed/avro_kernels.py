"""Compiled steps of `typed.avro_columns`: each reads one field of many values.

A value whose field is not whole, or is a number out of bounds, becomes odd: zeros stand for it, and
nothing more is read of it.
"""

from __future__ import annotations

import numpy as np

from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import byte, copy_bytes, varlong

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

_VARINT_SIZE_MAX = 10  # of 64 bits, seven in each byte
_INT_SIZE_MAX = 5
_INT_MAX = (1 << 31) - 1


@inlined
def _number(data, at, end):
    """Read a zigzag varint; return it and the position after it, or -1 if it has over 64 bits."""
    value, after = varlong(data, at, end)
    # The tenth byte has only one bit left.
    if after - at == _VARINT_SIZE_MAX and byte(data, after - 1) > 1:
        return np.int64(0), np.int64(-1)
    return value, after


@kernel("bytes ints ints flags ints int int ints")
def read_numbers(data, at, ends, odd, rows, least, most, found):
    """Read a number of each value of `rows`, which must be in bounds.

    Args:
        data: the bytes.
        at: where each value is read on; updated.
        ends: where each value ends, in `data`.
        odd: which values are odd; updated.
        rows: the values to read.
        least, most: the bounds.
        found: filled with a number for each of `rows`.
    """
    for i in range(len(rows)):
        row = rows[i]
        value, after = _number(data, at[row], ends[row])
        # An int has no more bytes, even if they add nothing.
        is_long = most <= _INT_MAX and after - at[row] > _INT_SIZE_MAX
        if after < 0 or is_long or value < least or value > most:
            odd[row] = True
            value = np.int64(0)
            after = ends[row]
        found[i] = value
        at[row] = after


@kernel("bytes ints ints flags ints ints ints")
def read_sized(data, at, ends, odd, rows, starts, sizes):
    """Find the bytes of each value of `rows` that have their size before them.

    Args:
        data, at, ends, odd, rows: as for `read_numbers`.
        starts, sizes: filled with where they are for each of `rows`.
    """
    for i in range(len(rows)):
        row = rows[i]
        size, start = _number(data, at[row], ends[row])
        if start < 0 or size < 0 or size > ends[row] - start:
            odd[row] = True
            size = np.int64(0)
            start = ends[row]
        starts[i] = start
        sizes[i] = size
        at[row] = start + size


@kernel("bytes ints ints flags ints int bytes")
def read_fixed(data, at, ends, odd, rows, size, found):
    """Read a fixed number of bytes of each value of `rows`.

    Args:
        data, at, ends, odd, rows: as for `read_numbers`.
        size: the number of bytes.
        found: gets the bytes of each of `rows`; zeros before.
    """
    for i in range(len(rows)):
        row = rows[i]
        if ends[row] - at[row] < size:
            odd[row] = True
            at[row] = ends[row]
        else:
            copy_bytes(found, i * size, data, at[row], size)
            at[row] += size


@kernel("bytes ints ints ints")
def decimals(data, starts, sizes, words):
    """Read integers in two's complement, the most significant byte first.

    Args:
        data: the bytes.
        starts: where each of them begins.
        sizes: their numbers of bytes; those of none, or of more than 16, are left out.
        words: filled with two words for each, the lower one first; zeros before.
    """
    for i in range(len(sizes)):
        size = sizes[i]
        if size < 1 or size > 16:
            continue
        low = np.int64(-1) if byte(data, starts[i]) > 0x7F else np.int64(0)
        high = low
        for place in range(size):
            high = (high << 8) | ((low >> 56) & 0xFF)
            low = (low << 8) | np.int64(byte(data, starts[i] + place))
        words[2 * i] = low
        words[2 * i + 1] = high
