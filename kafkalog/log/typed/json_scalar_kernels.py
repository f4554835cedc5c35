"""Compiled steps of `typed.json_columns`: each reads the same part of many JSON texts.

Where the parts are is known from `json_kernels`, and that they are values of JSON. What is rare is
left to Python.
"""

from __future__ import annotations

import numpy as np

from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import byte, eight_bytes
from kafkalog.log.typed.json_kernels import after_digits

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

_QUOTE, _BACKSLASH, _COLON, _MINUS, _PLUS, _POINT = 0x22, 0x5C, 0x3A, 0x2D, 0x2B, 0x2E
_EQUALS = 0x3D
_ZERO, _NINE = 0x30, 0x39
_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)

# What a step has done with a part: read it; found none; left it to Python, a number because it has
# many digits; or read a time without a zone.
READ, NOTHING, LEFT, LONG, LOCAL = 0, 1, 2, 3, 4
_INT_DIGITS_MAX = 19
_INT_MAX = np.uint64((1 << 63) - 1)
# Up to here each number of digits is the shortest text of the float64 that is nearest to it.
_DIGITS_EXACT = 15
_PLACES_MAX = 22  # powers of ten that a float64 has
_DAY_MICROS = 86_400_000_000
_NO_DAY = -(1 << 40)
_EPOCH_DAY = 719_468  # from March 1 of the year 0


@kernel("bytes ints ints bytes")
def find_texts(data, starts, sizes, states):
    """Move values within their quotes if they are texts without escapes.

    Args:
        data: the bytes.
        starts, sizes: where each value begins, and its size; updated.
        states: filled with what became of each.
    """
    for i in range(len(starts)):
        states[i] = READ if sizes[i] >= 0 else NOTHING
        if sizes[i] < 0:
            continue
        if byte(data, starts[i]) != _QUOTE:
            states[i] = LEFT
            continue
        end = starts[i] + sizes[i]
        at = starts[i]
        while at < end:
            if end - at >= 8:
                found = eight_bytes(data, at) ^ _BACKSLASHES
                if (found - _ONES) & ~found & _HIGH_BITS == 0:
                    at += 8
                    continue
            if byte(data, at) == _BACKSLASH:
                states[i] = LEFT
                break
            at += 1
        if states[i] == READ:
            starts[i] += 1
            sizes[i] -= 2


@kernel("bytes ints ints ints bytes")
def read_integers(data, starts, sizes, numbers, states):
    """Read integers of 64 bits.

    Args:
        data: the bytes.
        starts, sizes: where each value begins, and its size.
        numbers: filled with the number of each.
        states: filled with what became of each.
    """
    for i in range(len(starts)):
        numbers[i] = 0
        if sizes[i] < 0:
            states[i] = NOTHING
            continue
        at = starts[i]
        end = at + sizes[i]
        is_negative = byte(data, at) == _MINUS
        if is_negative:
            at += 1
        states[i] = LEFT
        if at < end and end - at <= _INT_DIGITS_MAX and after_digits(data, at, end) == end:
            number = np.uint64(0)
            while at < end:
                number = number * np.uint64(10) + np.uint64(byte(data, at) - _ZERO)
                at += 1
            if number <= _INT_MAX:
                numbers[i] = -np.int64(number) if is_negative else np.int64(number)
                states[i] = READ


@kernel("bytes ints ints ints ints bytes")
def read_decimals(data, starts, sizes, numbers, places, states):
    """Read numbers of few digits.

    Args:
        data, starts, sizes, states: as for `read_integers`.
        numbers: filled with the digits of each, without the point.
        places: filled with the power of ten that these are to be multiplied with.
    """
    for i in range(len(starts)):
        numbers[i] = 0
        places[i] = 0
        if sizes[i] < 0:
            states[i] = NOTHING
            continue
        at = starts[i]
        end = at + sizes[i]
        one = byte(data, at)
        is_negative = one == _MINUS
        if not (is_negative or _ZERO <= one <= _NINE):
            states[i] = LEFT
            continue
        at += is_negative
        number = np.int64(0)
        digits = np.int64(0)
        power = np.int64(0)
        has_point = False
        while at < end:
            one = byte(data, at)
            if one == _POINT:
                has_point = True
            elif _ZERO <= one <= _NINE:
                if number != 0 or one != _ZERO:
                    digits += 1
                if digits <= _DIGITS_EXACT:
                    number = number * 10 + (one - _ZERO)
                power -= has_point
            else:
                break
            at += 1
        states[i] = READ
        if at < end:  # an exponent
            at += 1
            sign = byte(data, at)
            at += sign in (_MINUS, _PLUS)
            exponent = np.int64(0)
            while at < end and exponent < 1000:
                exponent = exponent * 10 + (byte(data, at) - _ZERO)
                at += 1
            power += -exponent if sign == _MINUS else exponent
        if digits > _DIGITS_EXACT or power > _PLACES_MAX or power < -_PLACES_MAX:
            states[i] = LONG
        elif number == 0 and is_negative:
            states[i] = LEFT  # a negative zero, or none: as Python has it
        else:
            numbers[i] = -number if is_negative else number
            places[i] = power


@inlined
def _digits(data, at, count):
    """Return the number that digits stand for; a negative one if they are none."""
    number = np.int64(0)
    for i in range(count):
        digit = byte(data, at + i) - _ZERO
        if digit < 0 or digit > 9:
            return np.int64(-1)
        number = number * 10 + digit
    return number


@inlined
def _days(data, at):
    """Return the days from 1970-01-01 to a date of ten characters; `_NO_DAY` if it is none."""
    year = _digits(data, at, 4)
    month = _digits(data, at + 5, 2)
    day = _digits(data, at + 8, 2)
    if byte(data, at + 4) != _MINUS or byte(data, at + 7) != _MINUS:
        return np.int64(_NO_DAY)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return np.int64(_NO_DAY)
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    last = 31 - (month == 4 or month == 6 or month == 9 or month == 11)
    if month == 2:
        last = 29 if is_leap else 28
    if day > last:
        return np.int64(_NO_DAY)
    # Years begin in March: so the day that some have is the last one.
    year -= month <= 2
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - _EPOCH_DAY


@kernel("bytes ints ints ints bytes")
def read_dates(data, starts, sizes, days, states):
    """Read dates, as `read_integers` does: the days since 1970-01-01."""
    for i in range(len(starts)):
        days[i] = 0
        states[i] = NOTHING if sizes[i] < 0 else LEFT
        if sizes[i] == 12 and byte(data, starts[i]) == _QUOTE:
            found = _days(data, starts[i] + 1)
            if found != _NO_DAY:
                days[i] = found
                states[i] = READ


@inlined
def _time(data, at):
    """Return the seconds to a time of a day of eight characters, or -1."""
    hours = _digits(data, at, 2)
    minutes = _digits(data, at + 3, 2)
    seconds = _digits(data, at + 6, 2)
    if byte(data, at + 2) != _COLON or byte(data, at + 5) != _COLON:
        return np.int64(-1)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59:
        return np.int64(-1)
    return hours * 3600 + minutes * 60 + seconds


@kernel("bytes ints ints ints bytes")
def read_times(data, starts, sizes, micros, states):
    """Read dates with times, as `read_integers` does: the microseconds since 1970 in UTC."""
    for i in range(len(starts)):
        micros[i] = 0
        states[i] = NOTHING if sizes[i] < 0 else LEFT
        at = starts[i] + 1
        end = starts[i] + sizes[i] - 1
        if end - at < 19 or byte(data, at - 1) != _QUOTE:
            continue
        days = _days(data, at)
        seconds = _time(data, at + 11)
        separator = byte(data, at + 10)
        if days == _NO_DAY or seconds < 0 or (separator != 0x54 and separator != 0x20):
            continue
        at += 19
        fraction = np.int64(0)
        if at < end and byte(data, at) == _POINT:
            first = at + 1
            at = after_digits(data, first, end)
            if at - first != 3 and at - first != 6:
                continue
            fraction = _digits(data, first, at - first)
            if at - first == 3:
                fraction *= 1000
        state = LEFT
        offset = np.int64(0)
        if at == end:
            state = LOCAL
        elif byte(data, at) == 0x5A:  # Z
            state = READ if at + 1 == end else LEFT
        elif end - at == 6 and byte(data, at + 3) == _COLON:
            sign = byte(data, at)
            hours = _digits(data, at + 1, 2)
            minutes = _digits(data, at + 4, 2)
            is_one = sign in (_MINUS, _PLUS) and 0 <= hours < 24 and 0 <= minutes < 60
            # Near the ends of the calendar the year may be none.
            if is_one and -700_000 < days < 2_900_000:
                offset = (hours * 60 + minutes) * (-60 if sign == _MINUS else 60)
                state = READ
        if state != LEFT:
            micros[i] = days * _DAY_MICROS + (seconds - offset) * 1_000_000 + fraction
            states[i] = state


@inlined
def _sextet(one):
    """Return the six bits that a character of base64 stands for; -1 if it is none."""
    if 0x41 <= one <= 0x5A:  # A to Z
        return one - 0x41
    if 0x61 <= one <= 0x7A:  # a to z
        return one - 0x47
    if _ZERO <= one <= _NINE:
        return one + 4
    if one == _PLUS:
        return np.int64(62)
    return np.int64(63) if one == 0x2F else np.int64(-1)


@kernel("bytes ints ints ints bytes ints bytes")
def read_base64(data, starts, sizes, places, out, found, states):
    """Read bytes from texts of base64, as `read_integers` reads numbers.

    Args:
        data, starts, sizes, states: as for `read_integers`.
        places: where the bytes of each begin in `out`: three for each four characters.
        out: filled with the bytes.
        found: filled with how many each has; -1 if none were read.
    """
    for i in range(len(starts)):
        found[i] = -1
        states[i] = NOTHING if sizes[i] < 0 else LEFT
        size = sizes[i] - 2
        if size < 0 or size % 4 != 0 or byte(data, starts[i]) != _QUOTE:
            continue
        at = starts[i] + 1
        end = at + size
        if size > 0:
            end -= byte(data, end - 1) == _EQUALS
            end -= end < at + size and byte(data, end - 1) == _EQUALS
        place = places[i]
        bits = np.int64(0)
        count = np.int64(0)
        while at < end:
            six = _sextet(byte(data, at))
            if six < 0:
                break
            bits = (bits << 6 | six) & 0xFFFFFF
            count += 6
            if count >= 8:
                count -= 8
                out[place] = bits >> count & 0xFF
                place += 1
            at += 1
        # Bits behind the last byte, where there are any, are zero.
        if at == end and bits & ((1 << count) - 1) == 0:
            found[i] = place - places[i]
            states[i] = READ
