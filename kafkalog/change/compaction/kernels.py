"""Compiled loops of the cleaner: hash tables of keys, and batches written with fewer records.

A table is flat, 3 numbers per slot (LOW, HIGH, NUMBER), and its number of slots is a power of 2; a
slot with the hash 0 is free. Collisions go to the next slot. The number is that of a record,
counted from 0 in the order of insertion; if another record with its key follows, its bit is set.

Follows `MemoryRecords.filterTo`, `DefaultRecord.writeTo` and `DefaultRecordBatch.writeHeader` of
Kafka. Record bytes after the offset delta are copied as they are.
"""

from __future__ import annotations

import numpy as np

from formats import constants as c
from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.byte_kernels import copy_bytes, varint, varlong

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
    # The part of the map was chosen by LOW, so HIGH is still random within a part.
    at = high & mask
    while True:
        # The table is never full (`_FULL`), so the loop meets a free slot.
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
            # A bit per record in place of its offset: an eighth of a byte each, and no key is
            # looked up again.
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
(ACTION, RAW_START, BODY_START, BODY_END, EARLIEST, NEW_START, NEW_SIZE, PLAN_FIELDS) = range(8)
# What is known about each kept record of a batch.
TIME, OFFSET_DELTA, TAIL, TAIL_END, KEPT_FIELDS = range(5)

# The counts kept when batches are judged.
SUPERSEDED, NO_KEY, TOMBSTONE, KEPT, COUNTERS = range(5)

_OVERHEAD = c.RECORD_BATCH_OVERHEAD
_HORIZON_BIT = c.DELETE_HORIZON_MASK
_APPEND_TIME = c.TIMESTAMP_TYPE_MASK
_CODEC = c.COMPRESSION_MASK
_CONTROL = c.CONTROL_MASK


@inlined
def put_number(out, at, value, size):
    """Write a number of `size` bytes, most significant first."""
    for i in range(size):
        out[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@inlined
def _put_varlong(out, at, value):
    """Write a zigzag varint of up to 64 bits; return the position after it."""
    # Zigzag of 64 bits also for 32-bit fields: for their values both give the same bytes.
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
def _header(data, raw, out, at, size, attributes, base_time, max_time, count):
    """Write a header like that at `raw`, except the checksum and what depends on the records."""
    copy_bytes(out, at, data, raw, _OVERHEAD)
    put_number(out, at + c.LENGTH_POSITION, size - c.LOG_OVERHEAD, 4)
    put_number(out, at + c.ATTRIBUTES_POSITION, attributes, 2)
    put_number(out, at + c.BASE_TIMESTAMP_POSITION, base_time, 8)
    put_number(out, at + c.MAX_TIMESTAMP_POSITION, max_time, 8)
    put_number(out, at + c.RECORDS_COUNT_POSITION, count, 4)


@inlined
def _fields(data, at, body_end):
    """Read the record at a position, without its headers.

    Returns:
        Its timestamp and offset deltas, where the bytes after them begin, sizes of key and value,
        and its end, which is -1 if it is malformed.
    """
    none = np.int64(0)
    bad = np.int64(-1)
    # Bounded here and below by what is left: a damaged length must not lead out of the buffer.
    length, at = varint(data, at, body_end)
    if at < 0 or length < 1 or length > body_end - at:
        return none, none, none, none, none, bad
    end = at + length
    timestamp_delta, at = varlong(data, at + 1, end)
    if at < 0:
        return none, none, none, none, none, bad
    offset_delta, at = varint(data, at, end)
    tail = at
    if at < 0:
        return none, none, none, none, none, bad
    key_size, at = varint(data, at, end)
    if at < 0 or key_size > end - at:
        return none, none, none, none, none, bad
    # Any negative size is null, not only -1: DefaultRecord reads it so.
    value_size, at = varint(data, at + max(key_size, none), end)
    if at < 0 or value_size > end - at:
        return none, none, none, none, none, bad
    return timestamp_delta, offset_delta, tail, key_size, value_size, end


@inlined
def _choose(data, headers, batch, at, end, latest, superseded, drops_all, is_over, row, keep, kept,
            counters):  # fmt: skip
    """Decide which records of a batch are kept, and note what is written of them in `kept`.

    Returns:
        Their number, -1 if the batch is malformed, and whether there is a tombstone among them.
    """
    attributes = headers[k.ATTRIBUTES, batch]
    is_control = attributes & _CONTROL != 0
    has_append_time = attributes & _APPEND_TIME != 0
    count = np.int64(0)
    has_tombstone = False
    for i in range(headers[k.COUNT, batch]):
        timestamp, offset_delta, tail, key_size, value_size, at = _fields(data, at, end)
        if at < 0:
            return np.int64(-1), has_tombstone
        stay = not drops_all
        # Markers are kept or dropped by the batch; beyond the map nothing is known.
        if stay and not is_control and headers[k.BASE_OFFSET, batch] + offset_delta <= latest:
            if key_size < 0:
                counters[NO_KEY] += 1
                stay = False
            elif superseded[row + i]:
                counters[SUPERSEDED] += 1
                stay = False
            elif value_size < 0 and is_over:
                counters[TOMBSTONE] += 1
                stay = False
        keep[row + i] = stay
        if stay:
            if has_append_time:
                kept[TIME, count] = headers[k.MAX_TIMESTAMP, batch]
            else:
                kept[TIME, count] = headers[k.BASE_TIMESTAMP, batch] + timestamp
            kept[OFFSET_DELTA, count] = offset_delta
            kept[TAIL, count] = tail
            kept[TAIL_END, count] = at
            count += 1
            has_tombstone = has_tombstone or value_size < 0
    # DefaultRecordBatch: "records still remaining" is damage as well.
    if at != end:
        return np.int64(-1), has_tombstone
    return count, has_tombstone


@inlined
def _rebuild(data, raw, kept, count, attributes, horizon, out, to):
    """Write a batch of the kept records of the one at `raw`.

    Returns:
        Its end in `out`, and its lowest timestamp.
    """
    # A negative one is lost with the first change, as in MemoryRecordsBuilder.hasDeleteHorizonMs.
    base = kept[TIME, 0] if horizon < 0 else np.int64(horizon)
    earliest = newest = kept[TIME, 0]
    at = to + _OVERHEAD
    for i in range(count):
        earliest = min(earliest, kept[TIME, i])
        newest = max(newest, kept[TIME, i])
        delta = kept[TIME, i] - base
        offset_delta = kept[OFFSET_DELTA, i]
        tail = kept[TAIL_END, i] - kept[TAIL, i]
        size = 1 + _varlong_size(delta) + _varlong_size(offset_delta) + tail
        at = _put_varlong(out, at, size)
        # Record attributes are unused, and written as 0 by DefaultRecord.writeTo.
        out[at] = 0
        at = _put_varlong(out, at + 1, delta)
        at = _put_varlong(out, at, offset_delta)
        # Key, value and headers stay as they are, also varints longer than necessary.
        copy_bytes(out, at, data, kept[TAIL, i], tail)
        at += tail
    attributes &= ~np.int64(_HORIZON_BIT)
    if horizon >= 0:
        attributes |= _HORIZON_BIT
    _header(data, raw, out, to, at - to, attributes, base, newest, count)
    return at, earliest


@kernel("bytes table int flags flags flags flags int int table flags table bytes ints", results=2)
def clean_batches(data, headers, latest, superseded, drop_all, stays, discardable, now,
                  new_horizon, plan, keep, kept, out, counters):  # fmt: skip
    """Decide the fate of batches and of their records, and write what is left of them.

    Args:
        data: the bytes that RAW_START, BODY_START and BODY_END of the plan point into.
        headers: the batches' header table.
        latest: records after this offset are kept.
        superseded: which records a later one with their key supersedes.
        drop_all: which batches lose all records.
        stays: which batches are kept even without records.
        discardable: which batches were aborted, or are markers without data.
        now: the clock, in milliseconds.
        new_horizon: the delete horizon of a batch that needs one and has none.
        plan: PLAN_FIELDS rows. BODY_START is -1 for a batch whose records are not read; other
            batches have as many records as their headers say, or are malformed. EARLIEST is filled
            with the lowest timestamp of a rebuilt batch, NEW_SIZE with 0 for a batch that is
            dropped. Checksums are left for later.
        keep: filled with which records are kept.
        kept: scratch space: KEPT_FIELDS rows, a column per record of the largest batch.
        out: destination, large enough. No batch in it is compressed, unless it is copied.
        counters: COUNTERS numbers, which are incremented.

    Returns:
        The end of the batches in `out`; the ordinal of a malformed batch, before which everything
        ends, or -1.
    """
    to = np.int64(0)
    row = np.int64(0)
    for batch in range(headers.shape[1]):
        attributes = headers[k.ATTRIBUTES, batch]
        is_control = attributes & _CONTROL != 0
        has_horizon = attributes & _HORIZON_BIT != 0
        horizon = headers[k.BASE_TIMESTAMP, batch] if has_horizon else np.int64(-1)
        is_over = has_horizon and horizon <= now
        count = records = np.int64(0)
        has_tombstone = False
        # An empty batch has no records to choose from: the reader does not look at its bytes
        # either.
        if plan[BODY_START, batch] >= 0 and headers[k.COUNT, batch] != 0:
            records = headers[k.COUNT, batch]
            count, has_tombstone = _choose(
                data, headers, batch, plan[BODY_START, batch], plan[BODY_END, batch], latest,
                superseded, drop_all[batch], is_over, row, keep, kept, counters,
            )  # fmt: skip
            if count < 0:
                return to, np.int64(batch)
            row += records
        counters[KEPT] += count
        needs = not has_horizon and (has_tombstone or (discardable[batch] and is_control))
        if needs:
            horizon = np.int64(new_horizon)
        raw = plan[RAW_START, batch]
        start = to
        action = REBUILD
        if count == 0:
            action = EMPTY if stays[batch] else DROP
        # Verbatim, checksum included: it was verified when the log was judged.
        elif count == records and not needs:
            action = COPY
        if action == COPY:
            copy_bytes(out, to, data, raw, headers[k.SIZE, batch])
            to += headers[k.SIZE, batch]
        elif action == EMPTY:
            _header(data, raw, out, to, _OVERHEAD, attributes & ~np.int64(_HORIZON_BIT | _CODEC),
                    np.int64(-1), headers[k.MAX_TIMESTAMP, batch], np.int64(0))  # fmt: skip
            to += _OVERHEAD
        elif action == REBUILD:
            to, plan[EARLIEST, batch] = _rebuild(
                data, raw, kept, count, attributes, horizon, out, to
            )
        plan[ACTION, batch] = action
        plan[NEW_START, batch] = start
        plan[NEW_SIZE, batch] = to - start
    return to, np.int64(-1)
