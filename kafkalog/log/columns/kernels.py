"""Compiled loops over log bytes: batch headers, records of magic 2, byte columns.

Follows `DefaultRecordBatch`, `DefaultRecord` and `ByteUtils` of Kafka; accepts and rejects the
same bytes as `kafkalog.log.batches.records`. numba checks no bounds: every read below is first
checked by hand against the end of the batch or of the record. All buffers are contiguous uint8
arrays, all tables int64 arrays with one row per field.
"""

from __future__ import annotations

import numpy as np

from formats import constants as c
from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.byte_kernels import (
    byte,
    copy_bytes,
    eight_bytes,
    int16,
    int32,
    int64,
    trailing_zeros,
    varint,
    varlong,
)

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"


# Fields of a header table, for the kernels and their callers.
POSITION, SIZE, CRC, MAGIC, ATTRIBUTES = h.POSITION, h.SIZE, h.CRC, h.MAGIC, h.ATTRIBUTES
BASE_OFFSET, LAST_OFFSET, COUNT, EPOCH = h.BASE_OFFSET, h.LAST_OFFSET, h.COUNT, h.EPOCH
BASE_TIMESTAMP, MAX_TIMESTAMP, BASE_SEQUENCE = h.BASE_TIMESTAMP, h.MAX_TIMESTAMP, h.BASE_SEQUENCE
PRODUCER_ID, PRODUCER_EPOCH, HEADER_FIELDS = h.PRODUCER_ID, h.PRODUCER_EPOCH, h.HEADER_FIELDS
# Fields of a row table.
(ORDINAL, OFFSET, TIMESTAMP, KEY_POSITION, KEY_SIZE, VALUE_POSITION, VALUE_SIZE, HEADERS_POSITION,
 HEADERS_COUNT, ROW_FIELDS) = range(10)  # fmt: skip
# Why a header scan stopped.
SCAN_END, SCAN_NEEDS_MORE, SCAN_FULL, SCAN_ODD = range(4)
# Outcome of decoding a batch.
OK, COUNT_INVALID, MALFORMED, LEFT_OVER = range(4)
# Fields of the state from which decoding continues.
STATE_BATCH, STATE_POSITION, STATE_ORDINAL = range(3)

_LEGACY_MIN = c.MESSAGE_V0_LENGTH_MIN
_LEGACY_V1_MIN = c.MESSAGE_V1_LENGTH_MIN
_UP_TO_MAGIC = c.HEADER_SIZE_UP_TO_MAGIC
_OVERHEAD = c.RECORD_BATCH_OVERHEAD
_LOG_OVERHEAD = c.LOG_OVERHEAD
_BATCH_MIN = c.BATCH_LENGTH_MIN
_APPEND_TIME = c.TIMESTAMP_TYPE_MASK


@kernel("bytes int int int int table", results=3)
def scan_headers(data, start, size, file_position, left, headers):
    """Scan batch headers of `data[start:size]` into columns, as long as batches are whole.

    Args:
        data: log bytes, `size` of them.
        start: where the first batch begins.
        file_position: position of `data[0]` in the file.
        left: bytes from `data[0]` to the end of the log.
        headers: table that is filled.

    Returns:
        Number of batches, position in `data` after them, and why the scan stopped: end of the log,
        missing bytes, a full table, or something that is not a batch of magic 0 to 2.
    """
    found = 0
    at = start
    capacity = headers.shape[1]
    while True:
        if at == left:
            return found, at, SCAN_END
        if left - at <= _UP_TO_MAGIC:
            return found, at, SCAN_ODD
        if found == capacity:
            return found, at, SCAN_FULL
        if size - at <= _UP_TO_MAGIC:
            return found, at, SCAN_NEEDS_MORE
        length = int32(data, at + 8)
        magic = byte(data, at + 16)
        minimum = _BATCH_MIN
        if magic == 0:
            minimum = _LEGACY_MIN
        elif magic == 1:
            minimum = _LEGACY_V1_MIN
        # A negative magic is above 2 here, as a byte.
        if magic > 2 or length < minimum or _LOG_OVERHEAD + length > left - at:
            return found, at, SCAN_ODD
        end = at + _LOG_OVERHEAD + length
        if end > size:
            return found, at, SCAN_NEEDS_MORE
        base_offset = int64(data, at)
        headers[POSITION, found] = file_position + at
        headers[SIZE, found] = _LOG_OVERHEAD + length
        headers[BASE_OFFSET, found] = base_offset
        headers[MAGIC, found] = magic
        if magic < 2:
            timestamp = int64(data, at + 18) if magic == 1 else np.int64(-1)
            headers[CRC, found] = int32(data, at + 12) & 0xFFFFFFFF
            attributes = byte(data, at + 17)
            headers[ATTRIBUTES, found] = attributes - ((attributes & 0x80) << 1)
            headers[LAST_OFFSET, found] = base_offset
            headers[BASE_TIMESTAMP, found] = timestamp
            headers[MAX_TIMESTAMP, found] = timestamp
            for field in (EPOCH, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE):
                headers[field, found] = -1
            headers[COUNT, found] = 1
        else:
            delta = int32(data, at + 23)
            # Wraps as in Java; unsigned, as the compiler takes signed sums never to do so.
            last = np.int64(np.uint64(base_offset) + np.uint64(delta))
            headers[EPOCH, found] = int32(data, at + 12)
            headers[CRC, found] = int32(data, at + 17) & 0xFFFFFFFF
            headers[ATTRIBUTES, found] = int16(data, at + 21)
            headers[LAST_OFFSET, found] = last
            headers[BASE_TIMESTAMP, found] = int64(data, at + 27)
            headers[MAX_TIMESTAMP, found] = int64(data, at + 35)
            headers[PRODUCER_ID, found] = int64(data, at + 43)
            headers[PRODUCER_EPOCH, found] = int16(data, at + 51)
            headers[BASE_SEQUENCE, found] = int32(data, at + 53)
            headers[COUNT, found] = int32(data, at + 57)
        found += 1
        at = end


@inlined
def _record(data, at, body_end, rows, row):
    """Decode a record into `rows[:, row]`, with deltas; return the position after it or -1."""
    length, at = varint(data, at, body_end)
    if at < 0 or length < 1 or length > body_end - at:
        return np.int64(-1)
    end = at + length
    delta, at = varlong(data, at + 1, end)
    if at < 0:
        return np.int64(-1)
    rows[TIMESTAMP, row] = delta
    delta, at = varint(data, at, end)
    if at < 0:
        return np.int64(-1)
    rows[OFFSET, row] = delta
    for field in (KEY_POSITION, VALUE_POSITION):
        size, at = varint(data, at, end)
        if at < 0 or size > end - at:
            return np.int64(-1)
        rows[field, row] = at
        # Any negative size is null, not only -1.
        rows[field + 1, row] = max(size, np.int64(-1))
        at += max(size, np.int64(0))
    count, at = varint(data, at, end)
    if at < 0 or count < 0:
        return np.int64(-1)
    rows[HEADERS_POSITION, row] = at
    rows[HEADERS_COUNT, row] = count
    for _ in range(count):
        size, at = varint(data, at, end)
        if at < 0 or size < 0 or size > end - at:
            return np.int64(-1)
        at += size
        size, at = varint(data, at, end)
        if at < 0 or size > end - at:
            return np.int64(-1)
        at += max(size, np.int64(0))
    return at if at == end else np.int64(-1)


@kernel("bytes table ints ints int ints ints table", results=1)
def decode_records(data, headers, starts, ends, last, state, codes, rows):
    """Decode records of the batches from `state` up to `last` into `rows`, as many as fit.

    Args:
        data: the bytes that `starts` and `ends` point into.
        headers: the batches' header table.
        starts, ends: where the uncompressed records of each batch are; both -1 to skip the batch.
        last: number of batches.
        state: where to continue (STATE_...); updated.
        codes: filled, per batch, with OK or the reason why it was given up. Rows before the damage
            are good, as in the reference decoder.
        rows: table of ROW_FIELDS rows.

    Returns:
        Number of rows; `state[STATE_BATCH] == last` when everything is done.
    """
    row = 0
    capacity = rows.shape[1]
    batch = state[STATE_BATCH]
    at = state[STATE_POSITION]
    ordinal = state[STATE_ORDINAL]
    while batch < last:
        count = headers[COUNT, batch]
        code = OK
        if starts[batch] >= 0 and count != 0:
            end = ends[batch]
            if at < 0:
                at = starts[batch]
            base_offset = np.uint64(headers[BASE_OFFSET, batch])
            base_time = np.uint64(headers[BASE_TIMESTAMP, batch])
            append_time = headers[ATTRIBUTES, batch] & _APPEND_TIME
            if count < 0:
                code = COUNT_INVALID
            while ordinal < count:
                if at == end:
                    code = COUNT_INVALID
                    break
                # The state says where to go on: the caller uses these rows, and calls again.
                if row == capacity:
                    state[STATE_BATCH] = batch
                    state[STATE_POSITION] = at
                    state[STATE_ORDINAL] = ordinal
                    return row
                after = _record(data, at, end, rows, row)
                if after < 0:
                    code = MALFORMED
                    break
                at = after
                rows[ORDINAL, row] = batch
                # Unsigned, so that they wrap as in Java.
                rows[OFFSET, row] = np.int64(np.uint64(rows[OFFSET, row]) + base_offset)
                if append_time:
                    rows[TIMESTAMP, row] = headers[MAX_TIMESTAMP, batch]
                else:
                    rows[TIMESTAMP, row] = np.int64(np.uint64(rows[TIMESTAMP, row]) + base_time)
                row += 1
                ordinal += 1
            if code == OK and at != end:
                code = LEFT_OVER
        codes[batch] = code
        batch += 1
        at = np.int64(-1)
        ordinal = np.int64(0)
    state[STATE_BATCH] = batch
    state[STATE_POSITION] = -1
    state[STATE_ORDINAL] = 0
    return row


@kernel("ints ints32 bytes", results=2)
def binary_offsets(sizes, offsets, valid):
    """Fill Arrow's offsets and validity bits for byte strings of these sizes (below 0: null).

    Returns:
        Total number of bytes, number of nulls.
    """
    total = np.int64(0)
    nulls = 0
    offsets[0] = 0
    for i in range(len(valid)):
        valid[i] = 0
    for i in range(len(sizes)):
        size = sizes[i]
        if size < 0:
            nulls += 1
        else:
            total += size
            valid[i >> 3] |= np.uint8(1 << (i & 7))
        offsets[i + 1] = total
    return total, nulls


@kernel("bytes ints ints32 bytes")
def gather(data, positions, offsets, out):
    """Copy the byte strings at `positions`, with sizes given by `offsets`, one after another."""
    for i in range(len(positions)):
        size = offsets[i + 1] - offsets[i]
        if size > 0:
            copy_bytes(out, np.int64(offsets[i]), data, positions[i], np.int64(size))


@kernel("ints ints32", results=1)
def list_offsets(counts, offsets):
    """Fill Arrow's offsets of lists of these lengths; return the sum."""
    total = np.int64(0)
    offsets[0] = 0
    for i in range(len(counts)):
        total += counts[i]
        offsets[i + 1] = total
    return total


@kernel("bytes ints ints table")
def expand_headers(data, positions, counts, fields):
    """Find key and value of each record header, in records that `decode_records` accepted.

    `fields` has four rows: key position, key size, value position, value size (below 0: null).
    """
    found = 0
    end = np.int64(len(data))
    for i in range(len(positions)):
        at = positions[i]
        for _ in range(counts[i]):
            for field in (0, 2):
                size, at = varint(data, at, end)
                fields[field, found] = at
                fields[field + 1, found] = size
                at += max(size, np.int64(0))
            found += 1


@kernel("bytes ints ints bytes flags")
def equal_bytes(data, positions, sizes, wanted, equal):
    """Compare the byte strings at these positions with the wanted one."""
    size = np.int64(len(wanted))
    for i in range(len(positions)):
        same = sizes[i] == size
        if same:
            at = positions[i]
            for j in range(size):
                if byte(data, at + j) != byte(wanted, j):
                    same = False
                    break
        equal[i] = same


@inlined
def _keyed_record(data, at, body_end, wanted):
    """Return the position after a record, or -1 if it is malformed, and whether it has the key."""
    length, at = varint(data, at, body_end)
    if at < 0 or length < 1 or length > body_end - at:
        return np.int64(-1), False
    end = at + length
    _, at = varlong(data, at + 1, end)
    if at < 0:
        return np.int64(-1), False
    _, at = varint(data, at, end)
    if at < 0:
        return np.int64(-1), False
    size, at = varint(data, at, end)
    if at < 0 or size > end - at:
        return np.int64(-1), False
    same = size == len(wanted)
    if same:
        for j in range(size):
            if byte(data, at + j) != byte(wanted, j):
                same = False
                break
    size, at = varint(data, at + max(size, np.int64(0)), end)
    if at < 0 or size > end - at:
        return np.int64(-1), False
    count, at = varint(data, at + max(size, np.int64(0)), end)
    if at < 0 or count < 0:
        return np.int64(-1), False
    for i in range(2 * count):
        size, at = varint(data, at, end)
        if at < 0 or size > end - at or (size < 0 and not i & 1):
            return np.int64(-1), False
        at += max(size, np.int64(0))
    return at if at == end else np.int64(-1), same


@kernel("bytes table ints ints int int bytes")
def skip_without_key(data, headers, starts, ends, first, last, wanted):
    """Set `starts` to -1 for the batches from `first` up to `last` without a record of this key.

    Batches that `decode_records` would not accept stay, and so do those of magic 0 and 1.
    """
    for batch in range(first, last):
        if starts[batch] < 0 or headers[MAGIC, batch] < 2:
            continue
        at = starts[batch]
        end = ends[batch]
        stays = False
        for _ in range(headers[COUNT, batch]):
            at, stays = _keyed_record(data, at, end, wanted)
            if at < 0 or stays:
                break
        # Only what is sound to the last byte may be skipped: damage has to be reported.
        if at == end and not stays and headers[COUNT, batch] > 0:
            starts[batch] = -1


@kernel("bytes int bytes int int", results=1)
def first_difference(one, one_at, other, other_at, size):
    """Return how many of `size` bytes are the same from two positions on."""
    at = np.int64(0)
    while size - at >= 8:
        word = eight_bytes(one, one_at + at) ^ eight_bytes(other, other_at + at)
        if word:
            return at + np.int64(trailing_zeros(word) >> 3)
        at += 8
    while at < size and byte(one, one_at + at) == byte(other, other_at + at):
        at += 1
    return at
