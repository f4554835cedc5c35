"""Compiled loops over tables of keys: hashes of 128 bits and what was met last with each.

A table has one row per slot (LOW, HIGH, NUMBER), and its number of slots is a power of 2; a slot
with the hash 0 is free. Collisions go to the next slot. The number is that of a record, counted
from 0 in the order in which they are met; of a record that another with its key followed, a bit is
set.
"""

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from kafkalog.columnar.native import inlined, kernel

LOW, HIGH, NUMBER, SLOT_FIELDS = range(4)


_AHEAD = 16  # so many keys before a slot is needed it is asked for


@inlined
def prefetch_row(table, row):  # compiled as a hint to the processor
    """Say that a row of a table is needed soon."""


@inlined
def _slot(slots, mask, low, high):
    """Where the key is, or the free slot where it belongs."""
    at = high & mask
    while (slots[at, LOW] != low or slots[at, HIGH] != high) and (
        slots[at, LOW] != 0 or slots[at, HIGH] != 0
    ):
        at = (at + 1) & mask
    return at


@kernel("ints ints ints ints ints")
def sort_into_parts(sizes, low, high, order, ends):
    """Keys by the part of the map they belong to, which is told by the lowest bits of LOW.

    Args:
        sizes: of the keys, below 0: none.
        low, high: the hashes; 0, which marks a free slot, becomes 1, and that of no key 0.
        order: becomes the indexes of the keys, part after part, in each by rising numbers.
        ends: where in `order` each part ends; their number is a power of 2.
    """
    mask = np.int64(len(ends) - 1)
    for part in range(len(ends)):
        ends[part] = 0
    for i in range(len(sizes)):
        if sizes[i] < 0:
            low[i] = 0
            high[i] = 0
            continue
        if low[i] == 0 and high[i] == 0:
            low[i] = 1
        ends[low[i] & mask] += 1
    before = np.int64(0)
    for part in range(len(ends)):
        count = ends[part]
        ends[part] = before
        before += count
    for i in range(len(sizes)):
        if sizes[i] >= 0:
            part = low[i] & mask
            order[ends[part]] = i
            ends[part] += 1


@kernel("ints ints ints int int int table bytes", results=1)
def put_numbers(order, low, high, first, last, start, slots, superseded):
    """Keys are met: those of them that were met before are superseded.

    Args:
        order: which keys, as indexes into the other columns.
        low, high: the hashes; a key whose hash is 0 is left out.
        first, last: the part of `order` that is meant.
        start: number of the record with the index 0.
        slots: the table; there must be room for all keys.
        superseded: a bit for each number, the lowest of a byte first.

    Returns:
        How many of the keys are new.
    """
    mask = np.int64(slots.shape[0] - 1)
    count = 0
    for i in range(first, last):
        if i + _AHEAD < last:
            prefetch_row(slots, high[order[i + _AHEAD]] & mask)
        key = order[i]
        if low[key] == 0 and high[key] == 0:
            continue
        at = _slot(slots, mask, low[key], high[key])
        if slots[at, LOW] == 0 and slots[at, HIGH] == 0:
            slots[at, LOW] = low[key]
            slots[at, HIGH] = high[key]
            count += 1
        else:
            number = slots[at, NUMBER]
            superseded[number >> 3] |= np.uint8(1 << (number & 7))
        slots[at, NUMBER] = start + key
    return count


@kernel("ints ints ints int int table flags")
def find_keys(order, low, high, first, last, slots, found):
    """Which of some keys are in a table, into `found`; other arguments as above."""
    mask = np.int64(slots.shape[0] - 1)
    for i in range(first, last):
        if i + _AHEAD < last:
            prefetch_row(slots, high[order[i + _AHEAD]] & mask)
        key = order[i]
        at = _slot(slots, mask, low[key], high[key])
        found[key] = slots[at, LOW] != 0 or slots[at, HIGH] != 0


@kernel("bytes int flags")
def expand_bits(bits, start, flags):
    """The bits from the number `start` on as flags."""
    for i in range(len(flags)):
        number = start + i
        flags[i] = bits[number >> 3] >> (number & 7) & 1 != 0


@kernel("table table")
def move_slots(old, new):
    """Put all keys of a table into a larger one that is empty."""
    mask = np.int64(new.shape[0] - 1)
    for i in range(old.shape[0]):
        low, high = old[i, LOW], old[i, HIGH]
        if low == 0 and high == 0:
            continue
        at = _slot(new, mask, low, high)
        new[at, LOW] = low
        new[at, HIGH] = high
        new[at, NUMBER] = old[i, NUMBER]
