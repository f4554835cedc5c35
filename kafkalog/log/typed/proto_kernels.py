"""Compiled steps of `typed.proto_wire`: each reads the fields of many messages.

A message becomes odd if its bytes are not whole, or have anything that Google's library might take
for something else than this does: nothing more is read of it.
"""

from __future__ import annotations

import numpy as np

from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import byte, eight_bytes, is_text

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

_VARINT_SIZE_MAX = 10  # of 64 bits, seven in each byte
_TAG_MAX = (1 << 32) - 1
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_WIRE_TYPES = 7
_REPEATED = 8


@inlined
def _varint(data, at, end):
    """Read a varint; return its 64 bits and the position after it, or -1 if it has more."""
    value = np.uint64(0)
    shift = np.uint64(0)
    start = at
    while at < end and at - start < _VARINT_SIZE_MAX:
        one = byte(data, at)
        at += 1
        value |= np.uint64(one & 0x7F) << shift
        if one < 0x80:
            # The tenth byte has only one bit left.
            if at - start == _VARINT_SIZE_MAX and one > 1:
                return np.int64(0), np.int64(-1)
            return np.int64(value), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def _prefix(data, at, end):
    """Read a tag or a size, as `_varint` does; -1 also if it has bytes that add nothing."""
    value, after = _varint(data, at, end)
    if after - at > 1 and byte(data, after - 1) == 0:
        return np.int64(0), np.int64(-1)
    return value, after


@inlined
def _fixed32(data, at):
    return (
        byte(data, at) | byte(data, at + 1) << 8
        | byte(data, at + 2) << 16 | byte(data, at + 3) << 24
    )  # fmt: skip


@inlined
def _value(data, at, end, wire):
    """Read a value of a wire type; return it, its size, and the position after it, or -1.

    The value is a number, of 64 bits, or where bytes begin.
    """
    size = np.int64(0)
    if wire == _VARINT:
        value, after = _varint(data, at, end)
    elif wire == _SIZED:
        size, value = _prefix(data, at, end)
        after = value + size
        if value < 0 or size < 0 or size > end - value:
            after = np.int64(-1)
    elif wire == _FIXED64 and end - at >= 8:
        value, after = np.int64(eight_bytes(data, at)), at + 8
    elif wire == _FIXED32 and end - at >= 4:
        value, after = _fixed32(data, at), at + 4
    else:  # also a group
        value, after = np.int64(0), np.int64(-1)
    return value, size, after


@inlined
def _slot(numbers, number, last):
    """Return the place of a field in the sorted numbers; -1 if it has none.

    Mostly it is that of the last field, or the next.
    """
    for slot in range(last, min(last + 2, len(numbers))):
        if numbers[slot] == number:
            return slot
    low = np.int64(0)
    high = np.int64(len(numbers))
    while low < high:
        middle = (low + high) >> 1
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < len(numbers) and numbers[low] == number else np.int64(-1)


@kernel("bytes ints ints ints flags flags ints ints int table table table")
def read_fields(data, starts, ends, rows, odd, unknown, numbers, forms, has_places, values, sizes, items):  # fmt: skip  # noqa: E501
    """Read the fields of messages, in two passes; the second is for those that are repeated.

    Args:
        data: the bytes.
        starts, ends: where each message begins and ends.
        rows: the value that each is part of.
        odd: which values are odd; updated.
        unknown: which values have fields without a number here; updated.
        numbers: those of the fields, ascending.
        forms: the wire type of each field, plus 8 if it is repeated.
        has_places: whether this is the second pass.
        values: in the first pass filled with the value of each field that is not repeated, for
            each message: a number, or where it begins. In the second the places of the next items.
        sizes: -1 before, zero for repeated fields; filled with the sizes in bytes, zero for
            numbers, or the numbers of items.
        items: in the second pass filled with values and sizes of the items.
    """
    for i in range(len(starts)):
        row = rows[i]
        at = starts[i]
        end = ends[i]
        last = np.int64(0)
        while at < end and not odd[row]:
            tag, at = _prefix(data, at, end)
            wire = tag & _WIRE_TYPES
            if at < 0 or tag <= _WIRE_TYPES or tag > _TAG_MAX:
                odd[row] = True
                break
            value, size, at = _value(data, at, end, wire)
            if at < 0:
                odd[row] = True
                break
            slot = _slot(numbers, tag >> 3, last)
            if slot < 0:
                unknown[row] = True
                continue
            last = slot
            form = forms[slot] & _WIRE_TYPES
            if forms[slot] < _REPEATED:
                if wire != form or (not has_places and sizes[slot, i] >= 0):
                    odd[row] = True  # of another type, or twice
                elif not has_places:
                    values[slot, i] = value
                    sizes[slot, i] = size
            elif wire == form:
                if has_places:
                    place = values[slot, i]
                    items[0, place] = value
                    items[1, place] = size
                    values[slot, i] = place + 1
                else:
                    sizes[slot, i] += 1
            elif wire == _SIZED:  # packed
                after = value
                while after < at:
                    number, size, after = _value(data, after, at, form)
                    if after < 0:
                        odd[row] = True
                        break
                    if has_places:
                        place = values[slot, i]
                        items[0, place] = number
                        values[slot, i] = place + 1
                    else:
                        sizes[slot, i] += 1
            else:
                odd[row] = True


@kernel("bytes ints ints ints flags")
def check_texts(data, starts, sizes, rows, odd):
    """Mark the values as odd whose text is not UTF-8.

    Args:
        data: the bytes.
        starts, sizes: where each text begins, and its size; negative for one that is left out.
        rows: the value that each is part of.
        odd: which values are odd; updated.
    """
    for i in range(len(starts)):
        if sizes[i] > 0 and not is_text(data, starts[i], starts[i] + sizes[i]):
            odd[rows[i]] = True
