"""Compiled loops over tables of keys: hashes of 128 bits and what was met last with each.

A table is flat, three numbers a slot (LOW, HIGH, NUMBER), and its number of slots is a power of 2;
a slot with the hash 0 is free. Collisions go to the next slot. The number is that of a record,
counted from 0 in the order in which they are met; of a record that another with its key followed, a
bit is set.
"""

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from kafkalog.columnar.native import inlined, kernel

LOW, HIGH, NUMBER, SLOT_FIELDS = range(4)


_AHEAD = 16  # so many keys before a slot is needed it is asked for


@inlined
def prefetch(data, at):
    """Say that an element is needed soon: nothing here, compiled as a hint to the processor."""


@inlined
def _slot(slots, mask, low, high):
    """Where the key is and 1, or the free slot where it belongs and 0."""
    at = high & mask
    while True:
        found = slots[SLOT_FIELDS * at]
        if found == low and slots[SLOT_FIELDS * at + HIGH] == high:
            return SLOT_FIELDS * at, 1
        if found == 0 and slots[SLOT_FIELDS * at + HIGH] == 0:
            return SLOT_FIELDS * at, 0
        at = (at + 1) & mask


@kernel("ints ints ints ints")
def sort_into_parts(low, high, order, ends):
    """Keys by the part of the map they belong to, which is told by the lowest bits of LOW.

    Args:
        low, high: the hashes; a key whose hash is 0 is left out.
        order: becomes the indexes of the keys, part after part, in each by rising numbers.
        ends: where in `order` each part ends; their number is a power of 2.
    """
    mask = np.int64(len(ends) - 1)
    for part in range(len(ends)):
        ends[part] = 0
    for i in range(len(low)):
        if low[i] != 0 or high[i] != 0:
            ends[low[i] & mask] += 1
    before = np.int64(0)
    for part in range(len(ends)):
        count = ends[part]
        ends[part] = before
        before += count
    for i in range(len(low)):
        if low[i] != 0 or high[i] != 0:
            part = low[i] & mask
            order[ends[part]] = i
            ends[part] += 1


@kernel("ints ints ints int int int ints bytes", results=1)
def put_numbers(order, low, high, first, last, start, slots, superseded):
    """Keys are met: those of them that were met before are superseded.

    Args:
        order: which keys, as indexes into the other columns.
        low, high: the hashes.
        first, last: the part of `order` that is meant.
        start: number of the record with the index 0.
        slots: the table; there must be room for all keys.
        superseded: a bit for each number, the lowest of a byte first.

    Returns:
        How many of the keys are new.
    """
    mask = np.int64(len(slots) // SLOT_FIELDS - 1)
    count = 0
    for i in range(first, last):
        if i + _AHEAD < last:
            prefetch(slots, SLOT_FIELDS * (high[order[i + _AHEAD]] & mask))
        key = order[i]
        at, is_known = _slot(slots, mask, low[key], high[key])
        if is_known:
            number = slots[at + NUMBER]
            superseded[number >> 3] |= np.uint8(1 << (number & 7))
        else:
            slots[at] = low[key]
            slots[at + HIGH] = high[key]
            count += 1
        slots[at + NUMBER] = start + key
    return count


@kernel("ints ints ints int int ints ints")
def find_keys(order, low, high, first, last, slots, found):
    """The numbers of some keys that are in a table, into `found`; other arguments as above."""
    mask = np.int64(len(slots) // SLOT_FIELDS - 1)
    for i in range(first, last):
        if i + _AHEAD < last:
            prefetch(slots, SLOT_FIELDS * (high[order[i + _AHEAD]] & mask))
        key = order[i]
        at, is_known = _slot(slots, mask, low[key], high[key])
        if is_known:
            found[key] = slots[at + NUMBER]


@kernel("bytes int flags")
def expand_bits(bits, start, flags):
    """The bits from the number `start` on as flags."""
    for i in range(len(flags)):
        number = start + i
        flags[i] = bits[number >> 3] >> (number & 7) & 1 != 0


@kernel("ints ints")
def move_slots(old, new):
    """Put all keys of a table into a larger one that is empty."""
    mask = np.int64(len(new) // SLOT_FIELDS - 1)
    for i in range(0, len(old), SLOT_FIELDS):
        low, high = old[i], old[i + HIGH]
        if low == 0 and high == 0:
            continue
        at, _ = _slot(new, mask, low, high)
        new[at] = low
        new[at + HIGH] = high
        new[at + NUMBER] = old[i + NUMBER]
