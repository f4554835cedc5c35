"""Compiled loops over tables of keys: hashes of 128 bits and the offset that goes with each.

A table has one row per slot (LOW, HIGH, OFFSET), and its number of slots is a power of 2; a slot
with the hash 0 is free. Collisions go to the next slot.
"""

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np

from kafkalog.columnar.native import inlined, kernel

LOW, HIGH, OFFSET, SLOT_FIELDS = range(4)


@inlined
def _slot(slots, mask, low, high):
    """Where the key is, or the free slot where it belongs."""
    at = high & mask
    while (slots[at, LOW] != low or slots[at, HIGH] != high) and (
        slots[at, LOW] != 0 or slots[at, HIGH] != 0
    ):
        at = (at + 1) & mask
    return at


@kernel("ints ints ints ints int int table", results=1)
def put_offsets(order, low, high, offsets, first, last, slots):
    """Set the offsets of some keys; there must be room for all of them.

    Args:
        order: which keys, as indexes into the other columns.
        low, high: the hashes.
        offsets: the offsets.
        first, last: the part of `order` that is meant.
        slots: the table.

    Returns:
        How many of the keys are new.
    """
    mask = np.int64(slots.shape[0] - 1)
    count = 0
    for i in range(first, last):
        key = order[i]
        at = _slot(slots, mask, low[key], high[key])
        if slots[at, LOW] == 0 and slots[at, HIGH] == 0:
            slots[at, LOW] = low[key]
            slots[at, HIGH] = high[key]
            count += 1
        slots[at, OFFSET] = offsets[key]
    return count


@kernel("ints ints ints int int table ints")
def get_offsets(order, low, high, first, last, slots, found):
    """The offsets of some keys into `found`, -1 where there is none; arguments as above."""
    mask = np.int64(slots.shape[0] - 1)
    for i in range(first, last):
        key = order[i]
        at = _slot(slots, mask, low[key], high[key])
        is_free = slots[at, LOW] == 0 and slots[at, HIGH] == 0
        found[key] = np.int64(-1) if is_free else slots[at, OFFSET]


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
        new[at, OFFSET] = old[i, OFFSET]
