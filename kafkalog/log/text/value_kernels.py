"""Compiled formatting of values: numbers, and byte strings as texts of JSON or fields of CSV.

Escapes as Python's `json` and `csv` modules do, and writes characters on which a terminal could act
as a backslash, `u` and four digits. The caller provides room: GROWTH_MAX for each byte,
HEADER_SIZE_MAX for each string and each header.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kafkalog.io.jit.native import inlined
from kafkalog.log.columns.byte_kernels import (
    byte,
    copy_bytes,
    eight_bytes,
    lead_byte,
    put_eight_bytes,
    trailing_zeros,
    varint,
)

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,unreachable"


AUTO, UTF8, HEX, BASE64 = range(4)
# Including the scratch bytes after them.
NUMBER_SIZE_MAX: Final = 28
# The largest form of a byte (`\u0000`), and the text around a header, with quotes doubled for CSV.
GROWTH_MAX: Final = 6
HEADER_SIZE_MAX: Final = 80

_HIGH = np.uint64(0x8080808080808080)
_EACH = np.uint64(0x0101010101010101)
_QUOTES, _SLASHES = np.uint64(0x22) * _EACH, np.uint64(0x5C) * _EACH
_EIGHT = np.uint64(10**8)
_TWO_LANES = np.uint64(0x0000007F0000007F)
_FOUR_LANES = np.uint64(0x000F000F000F000F)
_ZEROS = np.uint64(0x3030303030303030)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8).copy()
_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
).copy()
_BASE64_OPEN = np.frombuffer(b'{"base64":"', np.uint8).copy()
_HEADER_WORDS = np.frombuffer(b'{"key":,"value":null', np.uint8).copy()
# The letter after the backslash for control characters that have one, 0 for the others.
_LETTERS = np.zeros(32, np.uint8)
for _code, _letter in ((8, "b"), (9, "t"), (10, "n"), (12, "f"), (13, "r")):
    _LETTERS[_code] = ord(_letter)


@inlined
def _eight_digits(value):
    """Return the digits of a number below 10 ** 8, a byte each, the first one lowest."""
    # Multiplications divide all lanes of a word at once: 10486 / 2^20 is 1 / 100, closely enough
    # below 10,000, and 103 / 2^10 is 1 / 10 below 100.
    high = value // np.uint64(10000)
    word = high | (value - high * np.uint64(10000)) << np.uint64(32)
    hundreds = word * np.uint64(10486) >> np.uint64(20) & _TWO_LANES
    word = hundreds | (word - hundreds * np.uint64(100)) << np.uint64(16)
    tens = word * np.uint64(103) >> np.uint64(10) & _FOUR_LANES
    return tens | (word - tens * np.uint64(10)) << np.uint64(8)


@inlined
def _few_digits(out, at, value):
    """Write a number below 10 ** 8; return the position after it."""
    word = _eight_digits(value)
    skipped = trailing_zeros(word | np.uint64(1) << np.uint64(56)) >> 3  # a digit is left of 0, too
    put_eight_bytes(out, at, (word | _ZEROS) >> np.uint64(8 * skipped))
    return at + 8 - skipped


@inlined
def put_number(out, at, value):
    """Write a number; like all functions below, return the position after it."""
    rest = np.uint64(value)
    if value < 0:
        out[at] = 45  # `-`
        at += 1
        rest = np.uint64(-(value + 1)) + np.uint64(1)  # the least int64 has no positive twin
    if rest < _EIGHT:
        return _few_digits(out, at, rest)
    high = rest // _EIGHT
    if high < _EIGHT:
        at = _few_digits(out, at, high)
    else:
        top = high // _EIGHT
        at = _few_digits(out, at, top)
        put_eight_bytes(out, at, _eight_digits(high - top * _EIGHT) | _ZEROS)
        at += 8
    put_eight_bytes(out, at, _eight_digits(rest - high * _EIGHT) | _ZEROS)
    return at + 8


@inlined
def _escape(out, at, unit):
    """Write a backslash, `u` and four hexadecimal digits."""
    out[at] = 92  # a backslash, then `u`
    out[at + 1] = 117
    for i in range(4):
        out[at + 2 + i] = _HEX[unit >> (12 - 4 * i) & 15]
    return at + 6


@inlined
def _is_unsafe(point):
    """Return whether a terminal could act on a character above ASCII: `wording.UNSAFE`."""
    if point < 0xA0 or point == 0xAD or point == 0x61C or point == 0xFEFF:
        return True
    if 0x200B <= point <= 0x206F:
        return point <= 0x200F or 0x2028 <= point <= 0x202E or point >= 0x2060
    return 0xFFF9 <= point <= 0xFFFB or 0xE0000 <= point <= 0xE007F


@inlined
def _character(out, at, data, place, end):
    """Write one multibyte character; return the positions in `out` and `data` after it, or -1."""
    lead = byte(data, place)
    more, low, up = lead_byte(lead)
    if more == 0 or more >= end - place or not low <= byte(data, place + 1) <= up:
        return np.int64(-1), np.int64(-1)
    point = lead & (0x3F >> more)
    for i in range(1, more + 1):
        one = byte(data, place + i)
        if one & 0xC0 != 0x80:
            return np.int64(-1), np.int64(-1)
        point = point << 6 | (one & 0x3F)
    if not _is_unsafe(point):
        for i in range(more + 1):
            out[at + i] = data[place + i]
        return at + more + 1, place + more + 1
    if point >= 0x10000:
        at = _escape(out, at, 0xD7C0 + (point >> 10))  # a pair of surrogates, as JSON has them
        point = 0xDC00 | (point & 0x3FF)
    return _escape(out, at, point), place + more + 1


@inlined
def put_text(out, at, data, place, size, csv):
    """Write text without quotes; return -1 if it is not UTF-8. Scratches up to 8 bytes after."""
    end = place + size
    last = np.int64(len(data)) - 8
    while place < end:
        left = end - place
        if place <= last:
            word = eight_bytes(data, place)
            put_eight_bytes(out, at, word)
            low = word & ~_HIGH
            # Marks the high bit of each byte that is below 0x20, 0x7F or no ASCII; for JSON also of
            # quotes and backslashes.
            stop = ~(low + np.uint64(0x60) * _EACH) | (low + _EACH) | word
            if not csv:
                stop |= ~((low ^ _QUOTES) + ~_HIGH) | ~((low ^ _SLASHES) + ~_HIGH)
            stop &= _HIGH
            if left < 8:  # bytes after the text do not count
                stop |= np.uint64(0x80) << np.uint64(8 * left)
            if stop == 0:
                place += 8
                at += 8
                continue
            plain = trailing_zeros(stop) >> 3
            place += plain
            at += plain
            if plain == left:
                break
        one = byte(data, place)
        if one >= 0x80:
            at, place = _character(out, at, data, place, end)
            if at < 0:
                return np.int64(-1)
            continue
        if one < 0x20:
            if csv and (one == 9 or one == 10):
                out[at] = np.uint8(one)
                at += 1
            elif not csv and _LETTERS[one] != 0:
                out[at] = 92
                out[at + 1] = _LETTERS[one]
                at += 2
            else:
                at = _escape(out, at, one)
        elif one == 0x7F:
            at = _escape(out, at, one)
        else:
            if not csv and (one == 34 or one == 92):
                out[at] = 92
                at += 1
            out[at] = np.uint8(one)
            at += 1
        place += 1
    return at


@inlined
def _base64(out, at, data, place, size):
    end = place + size
    while end - place >= 3:
        bits = byte(data, place) << 16 | byte(data, place + 1) << 8 | byte(data, place + 2)
        for i in range(4):
            out[at + i] = _BASE64[bits >> (18 - 6 * i) & 63]
        at += 4
        place += 3
    left = end - place
    if left:
        bits = byte(data, place) << 16
        if left == 2:
            bits |= byte(data, place + 1) << 8
        for i in range(4):
            # Filled up with `=`.
            out[at + i] = _BASE64[bits >> (18 - 6 * i) & 63] if i <= left else np.uint8(61)
        at += 4
    return at


@inlined
def put_bytes(out, at, data, place, size, form, csv):
    """Write a byte string, in quotes unless for CSV; return -1 if the reference must do it."""
    if not csv:
        out[at] = 34
        at += 1
    if form == HEX:
        for i in range(place, place + size):
            out[at] = _HEX[data[i] >> 4]
            out[at + 1] = _HEX[data[i] & 15]
            at += 2
    elif form == BASE64:
        at = _base64(out, at, data, place, size)
    else:
        begin = at
        at = put_text(out, at, data, place, size, csv)
        if at < 0:
            if form == UTF8:
                return np.int64(-1)
            at = begin if csv else begin - 1
            copy_bytes(out, at, _BASE64_OPEN, 0, 11)
            at = _base64(out, at + 11, data, place, size)
            out[at] = 34
            out[at + 1] = 125
            return at + 2
    if not csv:
        out[at] = 34
        at += 1
    return at


@inlined
def put_headers(out, at, data, place, count, form):
    """Write a record's headers as a list; return -1 if the reference must do it."""
    out[at] = 91
    at += 1
    end = np.int64(len(data))
    for i in range(count):
        if i:
            out[at] = 44
            at += 1
        copy_bytes(out, at, _HEADER_WORDS, 0, 7)
        at += 7
        size, place = varint(data, place, end)
        at = put_bytes(out, at, data, place, size, UTF8, False)
        if at < 0:
            return np.int64(-1)
        place += size
        size, place = varint(data, place, end)
        copy_bytes(out, at, _HEADER_WORDS, 7, 13)
        at += 9
        if size < 0:
            at += 4
        else:
            at = put_bytes(out, at, data, place, size, form, False)
            if at < 0:
                return np.int64(-1)
            place += size
        out[at] = 125
        at += 1
    out[at] = 93
    return at + 1


@inlined
def quote_field(out, start, end):
    """Quote a CSV field if it needs quotes; return the position after it."""
    quotes = 0
    special = False
    for i in range(start, end):
        quotes += out[i] == 34
        special |= out[i] == 44 or out[i] == 10
    if quotes == 0 and not special:
        return end
    place = end + quotes + 1
    out[place] = 34
    for i in range(end - 1, start - 1, -1):
        place -= 1
        out[place] = out[i]
        if out[i] == 34:
            place -= 1
            out[place] = 34
    out[start] = 34
    return end + quotes + 2
