"""Compiled loops of the cleaner: hash tables of keys, and batches written with fewer records.

A table is flat, 3 numbers per slot (LOW, HIGH, NUMBER), and its number of slots is a power of 2; a
slot with the hash 0 is free. Collisions go to the next slot. The number is that of a record,
counted from 0 in the order of insertion; if another record with its key follows, its bit is set.

Follows `MemoryRecords.filterTo`, `DefaultRecord.writeTo` and `DefaultRecordBatch.writeHeader` of
Kafka 4.3. Record bytes after the offset delta are copied as they are.
"""

from __future__ import annotations

import numpy as np

from formats import constants as c
from kafkalog.columns import kernels as k
from kafkalog.columns.byte_kernels import copy_bytes, varint, varlong
from kafkalog.jit.native import inlined, kernel

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"


LOW, HIGH, NUMBER, SLOT_FIELDS = range(4)


_AHEAD = 16  # a slot is prefetched this many keys before it is needed


@inlined
def prefetch(data, at):
    """Hint that an element is needed soon: a no-op here, compiled as a prefetch instruction."""


@inlined
def _slot(slots, mask, low, high):
    """Return the key's slot and 1, or the free slot where it belongs and 0."""
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
    """Sort keys by the part of the map they belong to, given by the lowest bits of LOW.

    Args:
        low, high: the hashes; keys with hash 0 are left out.
        order: filled with the indexes of the keys, part after part, rising within each.
        ends: filled with the end of each part in `order`; its length is a power of 2.
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
    """Insert keys; mark the earlier records with the same keys as superseded.

    Args:
        order: the keys, as indexes into the other columns.
        low, high: the hashes.
        first, last: the range of `order` to insert.
        start: number of the record with index 0.
        slots: the table, with room for all keys.
        superseded: a bit per number, the lowest of a byte first.

    Returns:
        The number of new keys.
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
    """Look up keys, and put their records' numbers into `found`; other arguments as above."""
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
    """Expand the bits from number `start` on into flags."""
    for i in range(len(flags)):
        number = start + i
        flags[i] = bits[number >> 3] >> (number & 7) & 1 != 0


@kernel("ints ints")
def move_slots(old, new):
    """Move all keys of a table into a larger, empty one."""
    mask = np.int64(len(new) // SLOT_FIELDS - 1)
    for i in range(0, len(old), SLOT_FIELDS):
        low, high = old[i], old[i + HIGH]
        if low == 0 and high == 0:
            continue
        at, _ = _slot(new, mask, low, high)
        new[at] = low
        new[at + HIGH] = high
        new[at + NUMBER] = old[i + NUMBER]


# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"


# The fate of a batch.
DROP, COPY, REBUILD, EMPTY = range(4)
# Rows of the table of what is known about each batch besides its header.
(ACTION, RAW_START, BODY_START, BODY_END, FIRST_ROW, NEW_HORIZON, NEW_START, NEW_SIZE,
 PLAN_FIELDS) = range(9)  # fmt: skip
# The result of rebuilding a body.
NEW_COUNT, NEW_BASE_TIME, NEW_MAX_TIME, BODY_FIELDS = range(4)

# The counts kept when batches are judged.
SUPERSEDED, NO_KEY, TOMBSTONE, KEPT, COUNTERS = range(5)

NO_HORIZON = -1
_OVERHEAD = c.RECORD_BATCH_OVERHEAD
_HORIZON_BIT = c.DELETE_HORIZON_MASK
_APPEND_TIME = c.TIMESTAMP_TYPE_MASK
_CODEC = c.COMPRESSION_MASK
_CONTROL = c.CONTROL_MASK


@kernel("table int table int flags flags flags flags int int int table flags ints")
def judge_batches(rows, first, headers, latest, superseded, drop_all, stays, discardable, now,
                  new_horizon, batches, plan, keep, counters):  # fmt: skip
    """Decide the fate of batches, and which of their records are kept.

    Args:
        rows: the records of the batches.
        first: ordinal of the first batch in `rows`.
        headers: the batches' header table.
        latest: records after this offset are kept.
        superseded: which records a later one with their key supersedes.
        drop_all: which batches lose all records.
        stays: which batches are kept even without records.
        discardable: which batches were aborted, or are markers without data.
        now: the clock, in milliseconds.
        new_horizon: the delete horizon of a batch that needs one and has none.
        batches: the number of batches.
        plan: ACTION, FIRST_ROW and NEW_HORIZON are filled in.
        keep: filled in.
        counters: COUNTERS numbers, which are incremented.
    """
    row = np.int64(0)
    end = np.int64(rows.shape[1])
    for batch in range(batches):
        attributes = headers[k.ATTRIBUTES, batch]
        is_control = attributes & _CONTROL != 0
        horizon = headers[k.BASE_TIMESTAMP, batch] if attributes & _HORIZON_BIT else np.int64(-1)
        is_over = horizon >= 0 and horizon <= now
        plan[FIRST_ROW, batch] = row
        start = row
        kept = np.int64(0)
        has_tombstone = False
        while row < end and rows[k.ORDINAL, row] == first + batch:
            is_tombstone = rows[k.VALUE_SIZE, row] < 0
            stay = not drop_all[batch]
            if stay and not is_control and rows[k.OFFSET, row] <= latest:
                if rows[k.KEY_SIZE, row] < 0:
                    counters[NO_KEY] += 1
                    stay = False
                elif superseded[row]:
                    counters[SUPERSEDED] += 1
                    stay = False
                elif is_tombstone and is_over:
                    counters[TOMBSTONE] += 1
                    stay = False
            keep[row] = stay
            if stay:
                kept += 1
                has_tombstone = has_tombstone or is_tombstone
            row += 1
        counters[KEPT] += kept
        needs = horizon < 0 and (has_tombstone or (discardable[batch] and is_control))
        plan[NEW_HORIZON, batch] = new_horizon if needs else horizon
        action = REBUILD
        if kept == 0:
            action = EMPTY if stays[batch] else DROP
        elif kept == row - start and not needs:
            action = COPY
        plan[ACTION, batch] = action


@inlined
def _put(out, at, value, size):
    """Write a number of `size` bytes, most significant first."""
    for i in range(size):
        out[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@inlined
def _put_varlong(out, at, value):
    """Write a zigzag varint of up to 64 bits; return the position after it."""
    word = np.uint64((value << 1) ^ (value >> 63))
    while word >= np.uint64(0x80):
        out[at] = np.uint8((word & np.uint64(0x7F)) | np.uint64(0x80))
        word >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(word)
    return at + 1


@inlined
def _varlong_size(value):
    word = np.uint64((value << 1) ^ (value >> 63))
    size = np.int64(1)
    while word >= np.uint64(0x80):
        word >>= np.uint64(7)
        size += 1
    return size


@inlined
def _body(data, rows, keep, row, at, end, append_time, horizon, out, to, facts):
    """Write the kept records of a batch, from its row on; return their end in `out`."""
    base = np.int64(horizon)
    has_base = horizon != NO_HORIZON
    newest = np.int64(-(1 << 62))
    count = np.int64(0)
    while at < end:
        length, at = varint(data, at, end)
        record_end = at + length
        if keep[row]:
            timestamp = append_time if append_time != NO_HORIZON else rows[k.TIMESTAMP, row]
            if not has_base:
                base = timestamp
                has_base = True
            newest = max(newest, timestamp)
            _, at = varlong(data, at + 1, record_end)
            delta, at = varint(data, at, record_end)
            tail = record_end - at
            size = 1 + _varlong_size(timestamp - base) + _varlong_size(delta) + tail
            to = _put_varlong(out, to, size)
            out[to] = 0
            to = _put_varlong(out, to + 1, timestamp - base)
            to = _put_varlong(out, to, delta)
            copy_bytes(out, to, data, at, tail)
            to += tail
            count += 1
        at = record_end
        row += 1
    facts[NEW_COUNT] = count
    facts[NEW_BASE_TIME] = base
    facts[NEW_MAX_TIME] = newest
    return to


@inlined
def _header(data, raw, out, at, size, attributes, base_time, max_time, count):
    """Write a header like that at `raw`, except the checksum and what depends on the records."""
    copy_bytes(out, at, data, raw, _OVERHEAD)
    _put(out, at + c.LENGTH_POSITION, size - c.LOG_OVERHEAD, 4)
    _put(out, at + c.ATTRIBUTES_POSITION, attributes, 2)
    _put(out, at + c.BASE_TIMESTAMP_POSITION, base_time, 8)
    _put(out, at + c.MAX_TIMESTAMP_POSITION, max_time, 8)
    _put(out, at + c.RECORDS_COUNT_POSITION, count, 4)


@kernel("bytes table table table flags int int bytes int ints", results=1)
def rewrite_batches(data, headers, plan, rows, keep, first, last, out, to, facts):
    """Write batches as the plan says; their checksums are filled in later.

    Args:
        data: the bytes that RAW_START, BODY_START and BODY_END of the plan point into.
        headers: the batches' header table.
        plan: PLAN_FIELDS rows; NEW_START and NEW_SIZE (0: none) are filled in. No batch that is to
            be rebuilt is compressed.
        rows: the records of these batches, from row FIRST_ROW on.
        keep: which records are kept.
        first, last: the range of batches.
        out: destination, large enough.
        to: where in `out` they begin.
        facts: scratch space for BODY_FIELDS numbers.

    Returns:
        Their end in `out`.
    """
    for batch in range(first, last):
        action = plan[ACTION, batch]
        raw = plan[RAW_START, batch]
        plan[NEW_START, batch] = to
        at = to
        if action == COPY:
            copy_bytes(out, to, data, raw, headers[k.SIZE, batch])
            to += headers[k.SIZE, batch]
        elif action == EMPTY:
            attributes = headers[k.ATTRIBUTES, batch] & ~np.int64(_HORIZON_BIT | _CODEC)
            _header(data, raw, out, to, _OVERHEAD, attributes, np.int64(-1),
                    headers[k.MAX_TIMESTAMP, batch], np.int64(0))  # fmt: skip
            to += _OVERHEAD
        elif action == REBUILD:
            to = _rebuild(data, headers, plan, rows, keep, batch, out, to, facts)
        plan[NEW_SIZE, batch] = to - at
    return to


@inlined
def _append_time(headers, batch):
    if headers[k.ATTRIBUTES, batch] & _APPEND_TIME:
        return headers[k.MAX_TIMESTAMP, batch]
    return np.int64(NO_HORIZON)


@inlined
def _rebuild(data, headers, plan, rows, keep, batch, out, to, facts):
    horizon = plan[NEW_HORIZON, batch]
    end = _body(data, rows, keep, plan[FIRST_ROW, batch], plan[BODY_START, batch],
                plan[BODY_END, batch], _append_time(headers, batch), horizon,
                out, to + _OVERHEAD, facts)  # fmt: skip
    attributes = headers[k.ATTRIBUTES, batch] & ~np.int64(_HORIZON_BIT)
    if horizon != NO_HORIZON:
        attributes |= _HORIZON_BIT
    _header(data, plan[RAW_START, batch], out, to, end - to, attributes, facts[NEW_BASE_TIME],
            facts[NEW_MAX_TIME], facts[NEW_COUNT])  # fmt: skip
    return end
