"""Compiled formatting: records as aligned rows of a table, where all is plain text.

The caller has the widths of the columns, and sees to it that nothing is cut.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import byte, copy_bytes
from kafkalog.log.text.value_kernels import NUMBER_SIZE_MAX, put_number

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,unreachable"


# Rows of a table of plain records. A size of -1 is null.
OFFSET, TIMESTAMP, KEY_AT, KEY_SIZE, VALUE_AT, VALUE_SIZE, PLAIN_ROWS = range(7)
SECOND_SIZE, TIME_SIZE = 19, 23
"""Sizes of `2026-11-27 18:00:00` and, with milliseconds, `2026-11-27 18:00:00.123`."""
GAP: Final = 2
_NULL, _EMPTY = 4, 2
ROW_SIZE: Final = NUMBER_SIZE_MAX + TIME_SIZE + 3 * GAP + 2 * _NULL + 1
"""Room for a row, besides its widths, key and value."""

_BLANK: Final = 32
_DAY_S: Final = 86_400
# As `bytes_cell` shows null and bytes that are empty; the same bytes as data are shown otherwise.
_WORDS = np.frombuffer(b'null""', np.uint8).copy()


@inlined
def _reads_like_a_word(data, at, size):
    """Return whether bytes read like the cell of null or of empty bytes, quoted or not."""
    if size == _EMPTY:
        return byte(data, at) == 34 and byte(data, at + 1) == 34
    if size == _NULL + 2:
        if byte(data, at) != 34 or byte(data, at + size - 1) != 34:
            return False
        at += 1
    elif size != _NULL:
        return False
    other = np.int64(0)
    for i in range(_NULL):
        other |= byte(data, at + i) ^ byte(_WORDS, i)
    return other == 0


@kernel("bytes ints ints bytes")
def mark_odd_text(arena, positions, sizes, odd):
    """Mark the rows whose bytes are not printable ASCII, or read like a word for no data."""
    for i in range(len(sizes)):
        start, size = positions[i], sizes[i]
        if size <= 0:
            continue
        found = np.int64(_reads_like_a_word(arena, start, size))
        for at in range(start, start + size):
            one = byte(arena, at)
            found |= np.int64(one < 0x20) | np.int64(one > 0x7E)
        if found:
            odd[i] = 1


@inlined
def _blanks(out, at, end):
    for i in range(at, end):
        out[i] = _BLANK


@inlined
def _gap(out, at, end):
    """Fill a cell up to its width, and write the gap after it; return the position after that."""
    after = max(at, end) + GAP
    _blanks(out, at, after)
    return after


@inlined
def _put_two(out, at, value):
    out[at] = 48 + value // 10
    out[at + 1] = 48 + value % 10


@inlined
def _put_time(out, at, second, ms, with_ms):
    """Write a time of the years 1970 to 9999."""
    days = second // _DAY_S
    rest = second - days * _DAY_S
    # The calendar repeats every 146,097 days; a year that begins in March has its odd day last.
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    year += 400 * era
    if month < 10:
        month += 3
    else:
        month -= 9
        year += 1
    _put_two(out, at, year // 100)
    _put_two(out, at + 2, year % 100)
    out[at + 4] = 45
    _put_two(out, at + 5, month)
    out[at + 7] = 45
    _put_two(out, at + 8, day)
    out[at + 10] = _BLANK
    _put_two(out, at + 11, rest // 3600)
    out[at + 13] = 58
    _put_two(out, at + 14, rest // 60 % 60)
    out[at + 16] = 58
    _put_two(out, at + 17, rest % 60)
    if not with_ms:
        return at + SECOND_SIZE
    out[at + SECOND_SIZE] = 46
    out[at + SECOND_SIZE + 1] = 48 + ms // 100
    _put_two(out, at + SECOND_SIZE + 2, ms % 100)
    return at + TIME_SIZE


@inlined
def _put_cell(out, at, data, start, size):
    if size < 0:
        copy_bytes(out, at, _WORDS, 0, _NULL)
        return at + _NULL
    if size == 0:
        copy_bytes(out, at, _WORDS, _NULL, _EMPTY)
        return at + _EMPTY
    copy_bytes(out, at, data, start, size)
    return at + size


@kernel("bytes table ints bytes ints int bytes", results=1)
def format_rows(data, rows, shifts, label, widths, with_ms, out):
    """Write rows of a table, without blanks at their ends; return the size of the text.

    Args:
        data: the bytes of keys and values.
        rows: offsets, timestamps, and the places of keys and values.
        shifts: what clocks of the time zone are ahead of UTC, in seconds, for each row.
        label: the cells before the offset, and the gap after them.
        widths: of offset, time and key.
        with_ms: whether times have milliseconds.
        out: has room for all of it: ROW_SIZE, the label, the widths, the key and the value of each.
    """
    at = np.int64(0)
    for row in range(len(shifts)):
        begin = at
        copy_bytes(out, at, label, 0, len(label))
        at += len(label)
        size = put_number(out, at, rows[OFFSET, row]) - at
        shift = max(widths[0] - size, 0)  # to the right end of its column
        for i in range(size - 1, -1, -1):
            out[at + shift + i] = out[at + i]
        _blanks(out, at, at + shift)
        at = _gap(out, at + shift + size, at)
        time = rows[TIMESTAMP, row]
        second = time // 1000
        end = at + widths[1]
        at = _put_time(out, at, second + shifts[row], time - second * 1000, with_ms)
        at = _gap(out, at, end)
        end = at + widths[2]
        at = _put_cell(out, at, data, rows[KEY_AT, row], rows[KEY_SIZE, row])
        at = _gap(out, at, end)
        at = _put_cell(out, at, data, rows[VALUE_AT, row], rows[VALUE_SIZE, row])
        while at > begin and byte(out, at - 1) == _BLANK:
            at -= 1
        out[at] = 10
        at += 1
    return at
