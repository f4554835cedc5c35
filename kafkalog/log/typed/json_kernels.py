"""Compiled steps of `typed.json_columns`: each finds the parts of many JSON texts.

A text becomes odd if it is not JSON, or has what is rare: names with escapes, halves of surrogate
pairs, parts nested deeply, numbers of many digits. Nothing more is read of it.
"""

from __future__ import annotations

import numpy as np

from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import after_character, byte, eight_bytes, trailing_zeros

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

_DEPTH_MAX = 60
_NUMBER_SIZE_MAX = 1000
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _PLUS, _POINT = 0x22, 0x5C, 0x2C, 0x3A, 0x2D, 0x2B, 0x2E
_OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = 0x7B, 0x7D, 0x5B, 0x5D
_ZERO, _NINE, _E = 0x30, 0x39, 0x65
_TRUE, _FALSE, _NULL, _U = 0x74, 0x66, 0x6E, 0x75
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_BLANKS = np.uint64(0x2020202020202020)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)


@inlined
def _after_blanks(data, at, end):
    while at < end:
        one = byte(data, at)
        if one != 0x20 and one != 0x0A and one != 0x0D and one != 0x09:
            break
        at += 1
    return at


@inlined
def _hex(one):
    """Return what a hexadecimal digit stands for; -1 if it is none."""
    if _ZERO <= one <= _NINE:
        return one - _ZERO
    small = one | 0x20
    return small - 0x57 if 0x61 <= small <= 0x66 else np.int64(-1)


@inlined
def _after_escape(data, at, end):
    """Return the position after an escape, given that of its second byte; -1 if it is odd."""
    if at >= end:
        return np.int64(-1)
    one = byte(data, at)
    if one != _U:
        is_known = one in (_QUOTE, _BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, _TRUE)  # /bfnrt
        return at + 1 if is_known else np.int64(-1)
    if end - at < 5:
        return np.int64(-1)
    point = np.int64(0)
    for i in range(1, 5):
        digit = _hex(byte(data, at + i))
        if digit < 0:
            return np.int64(-1)
        point = point << 4 | digit
    # Also a whole pair of surrogates.
    return np.int64(-1) if 0xD800 <= point <= 0xDFFF else at + 5


@inlined
def _after_text(data, at, end):
    """Pass over a text, given the position of its quote; return that after it, or -1.

    Also return whether it has escapes.
    """
    has_escapes = False
    at += 1
    while at < end:
        if end - at >= 8:
            # The highest bit of each byte that is below a blank, a quote, a backslash, or no ASCII;
            # the first one is right, those after it need not be.
            word = eight_bytes(data, at)
            quotes = word ^ _QUOTES
            backslashes = word ^ _BACKSLASHES
            found = (
                (word - _BLANKS) & ~word | (quotes - _ONES) & ~quotes
                | (backslashes - _ONES) & ~backslashes | word
            ) & _HIGH_BITS  # fmt: skip
            if found == 0:
                at += 8
                continue
            at += trailing_zeros(found) >> 3
        one = byte(data, at)
        if one == _QUOTE:
            return at + 1, has_escapes
        if one == _BACKSLASH:
            has_escapes = True
            at = _after_escape(data, at + 1, end)
        elif one >= 0x80:
            at = after_character(data, at, end)
        elif one < 0x20:
            at = np.int64(-1)
        else:
            at += 1
        if at < 0:
            return at, has_escapes
    return np.int64(-1), has_escapes


@inlined
def after_digits(data, at, end):
    """Pass over digits; return the position after them."""
    while at < end and _ZERO <= byte(data, at) <= _NINE:
        at += 1
    return at


@inlined
def _after_number(data, at, end):
    start = at
    if byte(data, at) == _MINUS:
        at += 1
    first = at
    at = after_digits(data, at, end)
    if at == first or (at - first > 1 and byte(data, first) == _ZERO):
        return np.int64(-1)
    if at < end and byte(data, at) == _POINT:
        first = at + 1
        at = after_digits(data, first, end)
        if at == first:
            return np.int64(-1)
    if at < end and byte(data, at) | 0x20 == _E:
        at += 1
        if at < end and (byte(data, at) == _MINUS or byte(data, at) == _PLUS):
            at += 1
        first = at
        at = after_digits(data, first, end)
        if at == first:
            return np.int64(-1)
    return np.int64(-1) if at - start > _NUMBER_SIZE_MAX else at


@inlined
def _after_word(data, at, end):
    """Pass over `true`, `false` or `null`."""
    one = byte(data, at)
    size = 5 if one == _FALSE else 4
    if end - at < size:
        return np.int64(-1)
    if one == _TRUE:
        fits = byte(data, at + 1) == 0x72 and byte(data, at + 2) == _U
        fits = fits and byte(data, at + 3) == _E
    elif one == _NULL:
        fits = byte(data, at + 1) == _U and byte(data, at + 2) == 0x6C
        fits = fits and byte(data, at + 3) == 0x6C
    elif one == _FALSE:
        fits = byte(data, at + 1) == 0x61 and byte(data, at + 2) == 0x6C
        fits = fits and byte(data, at + 3) == 0x73 and byte(data, at + 4) == _E
    else:
        fits = False
    return at + size if fits else np.int64(-1)


@inlined
def _after_scalar(data, at, end):
    """Pass over what is no object or array."""
    one = byte(data, at)
    if one == _QUOTE:
        after, _ = _after_text(data, at, end)
        return after
    if one == _MINUS or _ZERO <= one <= _NINE:
        return _after_number(data, at, end)
    return _after_word(data, at, end)


@inlined
def _after_name(data, at, end):
    """Pass over a name in an object, and the colon; return where a value can begin, or -1."""
    at = _after_blanks(data, at, end)
    if at >= end or byte(data, at) != _QUOTE:
        return np.int64(-1)
    at, has_escapes = _after_text(data, at, end)
    if at < 0 or has_escapes:
        return np.int64(-1)
    at = _after_blanks(data, at, end)
    if at >= end or byte(data, at) != _COLON:
        return np.int64(-1)
    return at + 1


@inlined
def _name(data, at, end):
    """Return where the name of a member is, its size, and the position after its colon.

    That is -1 if the name is odd.
    """
    start = _after_blanks(data, at, end) + 1
    after = _after_name(data, at, end)
    size = np.int64(0)
    if after >= 0:
        # It ends at the last quote before the value.
        size = after - 1 - start
        while byte(data, start + size) != _QUOTE:
            size -= 1
    return start, size, after


@inlined
def _after_value(data, at, end):
    """Pass over a value; return the position after it, or -1 if it is odd."""
    depth = np.int64(0)
    objects = np.uint64(0)  # whether each that it is in is one, the innermost last
    while True:
        at = _after_blanks(data, at, end)
        if at >= end or depth > _DEPTH_MAX:
            return np.int64(-1)
        one = byte(data, at)
        if one | 0x20 == _OBJECT:  # or an array
            at = _after_blanks(data, at + 1, end)
            if at >= end:
                return np.int64(-1)
            if byte(data, at) == one + 2:  # its end: it is empty
                at += 1
            else:
                depth += 1
                objects <<= np.uint64(1)
                if one == _OBJECT:
                    objects |= np.uint64(1)
                    at = _after_name(data, at, end)
                    if at < 0:
                        return at
                continue
        else:
            at = _after_scalar(data, at, end)
            if at < 0:
                return at
        while True:
            if depth == 0:
                return at
            at = _after_blanks(data, at, end)
            if at >= end:
                return np.int64(-1)
            one = byte(data, at)
            is_object = objects & np.uint64(1) != 0
            at += 1
            if one == _COMMA:
                if is_object:
                    at = _after_name(data, at, end)
                    if at < 0:
                        return at
                break
            if one != (_OBJECT_END if is_object else _ARRAY_END):
                return np.int64(-1)
            depth -= 1
            objects >>= np.uint64(1)


@inlined
def _first_part(data, at, end, opening, closing):
    """Return where the first part of an object or array is; `end` without any, -1 if it is odd."""
    if end - at < 2 or byte(data, at) != opening:
        return np.int64(-1)
    at = _after_blanks(data, at + 1, end)
    if at >= end:
        return np.int64(-1)
    return end if byte(data, at) == closing else at


@inlined
def _next_part(data, at, end, closing):
    """Return where the part after the value before `at` is, as `_first_part` does."""
    at = _after_blanks(data, at, end)
    if at >= end:
        return np.int64(-1)
    if byte(data, at) == closing:
        return end
    at += 1
    return at if byte(data, at - 1) == _COMMA and at < end else np.int64(-1)


@inlined
def _compared(data, at, size, names, start, end):
    """Return a number below, above or equal to zero, as bytes are to those of a name."""
    for i in range(min(size, end - start)):
        difference = byte(data, at + i) - byte(names, start + i)
        if difference != 0:
            return difference
    return size - (end - start)


@inlined
def _slot(data, at, size, names, bounds, order, last):
    """Return the place of a name among those of the fields; -1 if it has none.

    Mostly it is the one after the last.
    """
    count = len(order)
    if last < count and _compared(data, at, size, names, bounds[last], bounds[last + 1]) == 0:
        return last
    low = np.int64(0)
    high = np.int64(count)
    while low < high:
        middle = (low + high) >> 1
        slot = order[middle]
        difference = _compared(data, at, size, names, bounds[slot], bounds[slot + 1])
        if difference == 0:
            return slot
        if difference > 0:
            low = middle + 1
        else:
            high = middle
    return np.int64(-1)


@inlined
def _size(data, at, end):
    """Return the size of a value; -1 if it is `null`."""
    return np.int64(-1) if byte(data, at) == _NULL else end - at


@kernel("bytes ints ints flags")
def check_values(data, starts, sizes, odd):
    """Mark the texts as odd that are not one value of JSON.

    Args:
        data: the bytes.
        starts, sizes: where each text begins, and its size; updated to those of its value, whose
            size is -1 if it is odd or `null`.
        odd: which are odd; updated.
    """
    for i in range(len(starts)):
        end = starts[i] + sizes[i]
        at = _after_blanks(data, starts[i], end)
        after = _after_value(data, at, end)
        if after < 0 or _after_blanks(data, after, end) != end:
            odd[i] = True
            sizes[i] = -1
        else:
            starts[i] = at
            sizes[i] = _size(data, at, after)


@kernel("bytes ints ints ints flags flags bytes ints ints table table")
def read_members(data, starts, sizes, rows, odd, unknown, names, bounds, order, places, there):
    """Find the members of objects.

    Args:
        data: the bytes.
        starts, sizes: where each object begins, and its size; negative for one that is not there.
        rows: the value that each is part of.
        odd: which values are odd; updated.
        unknown: which values have other members; updated.
        names: those of the fields, one after the other.
        bounds: where each name begins, and the last ends.
        order: the fields sorted by their names.
        places: filled with where each field's value begins, for each object.
        there: -1 before; filled with the sizes of these, -1 for `null`.
    """
    for i in range(len(starts)):
        row = rows[i]
        if odd[row] or sizes[i] < 0:
            continue
        end = starts[i] + sizes[i]
        at = _first_part(data, starts[i], end, _OBJECT, _OBJECT_END)
        slot = np.int64(-1)
        while 0 <= at < end:
            name, size, at = _name(data, at, end)
            if at < 0:
                break
            value = _after_blanks(data, at, end)
            at = _after_value(data, value, end)
            if at < 0:
                break
            found = _slot(data, name, size, names, bounds, order, slot + 1)
            if found >= 0:
                slot = found
                places[slot, i] = value
                there[slot, i] = _size(data, value, at)
            else:
                unknown[row] = True
            at = _next_part(data, at, end, _OBJECT_END)
        odd[row] |= at < 0


@kernel("bytes ints ints ints flags int int ints table")
def read_items(data, starts, sizes, rows, odd, is_object, has_places, counts, items):
    """Find the items of arrays, or the members of objects, in two passes.

    Args:
        data, starts, sizes, rows, odd: as for `read_members`.
        is_object: whether these are objects.
        has_places: whether this is the second pass.
        counts: zeros before; in the first pass filled with the number of items of each. In the
            second the place of the next item of each.
        items: in the second pass filled with where items begin and their sizes, -1 for `null`;
            of objects, also with the same of their names.
    """
    opening, closing = (_OBJECT, _OBJECT_END) if is_object else (_ARRAY, _ARRAY_END)
    for i in range(len(starts)):
        row = rows[i]
        if odd[row] or sizes[i] < 0:
            continue
        end = starts[i] + sizes[i]
        at = _first_part(data, starts[i], end, opening, closing)
        while 0 <= at < end:
            name = np.int64(0)
            size = np.int64(0)
            if is_object:
                name, size, at = _name(data, at, end)
                if at < 0:
                    break
            value = _after_blanks(data, at, end)
            at = _after_value(data, value, end)
            if at < 0:
                break
            place = counts[i]
            if has_places:
                items[0, place] = value
                items[1, place] = _size(data, value, at)
                if is_object:
                    items[2, place] = name
                    items[3, place] = size
            counts[i] = place + 1
            at = _next_part(data, at, end, closing)
        odd[row] |= at < 0
