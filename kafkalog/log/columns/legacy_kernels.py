"""Compiled loops over messages of magic 0 and 1, bare or wrapped in a compressed message.

Follows `AbstractLegacyRecordBatch` and `LegacyRecord` of Kafka; accepts and rejects the same
bytes as `kafkalog.log.batches.records`. As in `kafkalog.log.columns.kernels`, every read is
checked by hand.
"""

from __future__ import annotations

import numpy as np

from formats import constants as c
from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import byte, int32, int64
from kafkalog.log.columns.kernels import (
    ATTRIBUTES,
    HEADERS_COUNT,
    HEADERS_POSITION,
    KEY_POSITION,
    KEY_SIZE,
    LAST_OFFSET,
    MAGIC,
    MALFORMED,
    MAX_TIMESTAMP,
    OFFSET,
    OK,
    ORDINAL,
    STATE_BATCH,
    STATE_POSITION,
    TIMESTAMP,
    VALUE_POSITION,
    VALUE_SIZE,
)

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"


STATE_BASE = 2  # in the state from which decoding continues: what is added to inner offsets

_LENGTH = c.LENGTH_POSITION
_MAGIC = c.MAGIC_POSITION
_ATTRIBUTES = c.LEGACY_ATTRIBUTES_POSITION
_TIMESTAMP = c.LEGACY_TIMESTAMP_POSITION
_LOG_OVERHEAD = c.LOG_OVERHEAD
_LENGTH_MIN = c.MESSAGE_V0_LENGTH_MIN
_CODEC = c.COMPRESSION_MASK
_APPEND_TIME = c.TIMESTAMP_TYPE_MASK


@inlined
def _fields(data, at, end):
    """Return key position and size, value position and size of the message in `data[at:end]`.

    The message must have at least the minimum length of magic 0. Sizes below 0 stand for null. The
    value's position is -1 if key and value do not fit.
    """
    place = at + _TIMESTAMP
    if byte(data, at + _MAGIC) != 0:
        place += 8
    if end - place < 4:
        return np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
    key_size = int32(data, place)
    key_at = place + 4
    if key_size > end - key_at:
        return np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
    place = key_at + max(key_size, np.int64(0))
    if end - place < 4:
        return np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
    value_size = int32(data, place)
    value_at = place + 4
    if value_size > end - value_at:
        return np.int64(0), np.int64(0), np.int64(-1), np.int64(0)
    return key_at, max(key_size, np.int64(-1)), value_at, max(value_size, np.int64(-1))


@kernel("bytes flags ints ints")
def find_values(data, chosen, starts, ends):
    """Replace the range of each chosen message by that of its value.

    Args:
        data: log bytes.
        chosen: which messages.
        starts, ends: where the messages are; updated. A start of -1: no value, or none that fits.
    """
    for i in range(len(chosen)):
        if chosen[i]:
            _, _, at, size = _fields(data, starts[i], ends[i])
            if at < 0 or size < 0:
                starts[i] = -1
            else:
                starts[i] = at
                ends[i] = at + size


@inlined
def _end_of_message(data, at, end):
    """Return the position after the message at `at`; 0 at the end of the set, -1 for a bad size."""
    if end - at < _LOG_OVERHEAD:
        return np.int64(0)
    size = int32(data, at + _LENGTH)
    if size < _LENGTH_MIN:
        return np.int64(-1)
    # An incomplete last message is dropped in silence, as by Kafka.
    if size > end - at - _LOG_OVERHEAD:
        return np.int64(0)
    return at + _LOG_OVERHEAD + size


@inlined
def _last_of_set(data, start, end):
    """Return the position of a set's last message, -1 if Kafka refuses one or there are none."""
    last = np.int64(-1)
    at = start
    while True:
        after = _end_of_message(data, at, end)
        if after == 0:
            return last
        if after < 0 or byte(data, at + _ATTRIBUTES) & _CODEC:
            return np.int64(-1)
        _, _, value_at, _ = _fields(data, at, after)
        if value_at < 0:
            return np.int64(-1)
        last = at
        at = after


@kernel("bytes table ints ints int ints ints table", results=1)
def decode_messages(data, headers, starts, ends, last, state, codes, rows):
    """Decode messages of magic 0 and 1 into `rows`, as many as fit.

    A compressed set is checked completely before its first row: one bad message spoils all of it.

    Args:
        data: the bytes that `starts` and `ends` point into.
        headers: the messages' header table.
        starts, ends: each message, or the decompressed value of a compressed one; -1 skips it.
        last: number of messages.
        state: where to continue; updated.
        codes: filled, per message of the log, with OK or MALFORMED.
        rows: table of ROW_FIELDS rows.

    Returns:
        Number of rows; `state[STATE_BATCH] == last` when everything is done.
    """
    row = 0
    capacity = rows.shape[1]
    batch = state[STATE_BATCH]
    at = state[STATE_POSITION]
    base = state[STATE_BASE]
    while batch < last:
        code = OK
        start = starts[batch]
        end = ends[batch]
        is_set = headers[ATTRIBUTES, batch] & _CODEC
        own_offset = headers[LAST_OFFSET, batch]
        if start >= 0 and at < 0:
            at = start
            base = np.int64(0)
            last_at = _last_of_set(data, start, end) if is_set else np.int64(0)
            if last_at < 0:
                code = MALFORMED
            # Inner offsets of magic 1 are relative; offset 0 is what an old librdkafka sent.
            elif is_set and headers[MAGIC, batch] == 1 and own_offset != 0:
                base = own_offset - int64(data, last_at)
                if own_offset < int64(data, last_at):
                    code = MALFORMED
        while start >= 0 and code == OK:
            after = _end_of_message(data, at, end)
            if after <= 0:
                break
            if row == capacity:
                state[STATE_BATCH] = batch
                state[STATE_POSITION] = at
                state[STATE_BASE] = base
                return row
            key_at, key_size, value_at, value_size = _fields(data, at, after)
            if value_at < 0:
                code = MALFORMED
                break
            magic = byte(data, at + _MAGIC)
            timestamp = headers[MAX_TIMESTAMP, batch]
            late = headers[ATTRIBUTES, batch] & _APPEND_TIME and magic == 1
            if headers[MAGIC, batch] == 1 and not late:
                timestamp = int64(data, at + _TIMESTAMP) if magic != 0 else np.int64(-1)
            rows[ORDINAL, row] = batch
            rows[OFFSET, row] = base + int64(data, at) if is_set else own_offset
            rows[TIMESTAMP, row] = timestamp
            rows[KEY_POSITION, row] = key_at
            rows[KEY_SIZE, row] = key_size
            rows[VALUE_POSITION, row] = value_at
            rows[VALUE_SIZE, row] = value_size
            rows[HEADERS_POSITION, row] = 0
            rows[HEADERS_COUNT, row] = 0
            row += 1
            at = after
        codes[batch] = code
        batch += 1
        at = np.int64(-1)
    state[STATE_BATCH] = batch
    state[STATE_POSITION] = -1
    state[STATE_BASE] = 0
    return row
