"""Compiled formatting: batches and records of magic 2 as the lines of `kafka-dump-log.sh`.

Follows `DumpLogSegments` of Kafka. The caller provides room: LINE_SIZE_MAX for a line, plus the
size of its record's keys and values.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from formats import constants as c
from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.byte_kernels import byte, copy_bytes, eight_bytes, lead_byte, varint
from kafkalog.log.text.value_kernels import put_number

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,unreachable"


LINE_SIZE_MAX: Final = 768
DONE, FULL, ODD = range(3)
STATE_NEXT, STATE_SIZE, STATE_BATCH = range(3)

_APPEND_TIME = c.TIMESTAMP_TYPE_MASK
_HORIZON = c.DELETE_HORIZON_MASK
_ORDINAL, _OFFSET, _TIMESTAMP = k.ORDINAL, k.OFFSET, k.TIMESTAMP
_KEY, _KEY_SIZE, _VALUE, _VALUE_SIZE = k.KEY_POSITION, k.KEY_SIZE, k.VALUE_POSITION, k.VALUE_SIZE
_HEADERS, _HEADERS_COUNT = k.HEADERS_POSITION, k.HEADERS_COUNT
_BASE, _LAST, _ATTRIBUTES, _SEQUENCE = k.BASE_OFFSET, k.LAST_OFFSET, k.ATTRIBUTES, k.BASE_SEQUENCE


_WORD_SIZE = 32
"""Words are copied with some bytes after them: one instruction, no call."""


def _words(*texts):
    """Return texts, each filled up to _WORD_SIZE, and their sizes."""
    assert max(map(len, texts)) <= _WORD_SIZE
    data = b"".join(text.encode().ljust(_WORD_SIZE) for text in texts)
    return np.frombuffer(data, np.uint8).copy(), np.array([len(text) for text in texts])


_BATCH_WORDS, _BATCH_SIZES = _words(
    "baseOffset: ", " lastOffset: ", " count: ", " baseSequence: ", " lastSequence: ",
    " producerId: ", " producerEpoch: ", " partitionLeaderEpoch: ",
    " isTransactional: ", " isControl: ", " deleteHorizonMs: ", " position: ",
    " size: ", " magic: ", " compresscodec: ", " crc: ", " isvalid: ", "\n",
)  # fmt: skip
_RECORD_WORDS, _RECORD_SIZES = _words(
    "| offset: ", " keySize: ", " valueSize: ", " sequence: ", " headerKeys: [", "]", " key: ",
    " payload: ", "\n", ",",
)  # fmt: skip
_VALUE_WORDS, _VALUE_SIZES = _words(
    "false", "true", " CreateTime: ", " LogAppendTime: ", "OptionalLong.empty", "OptionalLong[",
    "]", *c.COMPRESSION_NAMES,
)  # fmt: skip
_HIGH_BITS = np.uint64(0x8080808080808080)
_TRUE, _CREATE, _APPEND, _EMPTY, _OPEN, _CLOSE, _CODECS = 1, 2, 3, 4, 5, 6, 7


@inlined
def _word(out, at, words, sizes, i):
    copy_bytes(out, at, words, i * _WORD_SIZE, _WORD_SIZE)
    return at + sizes[i]


@inlined
def sequence_of(base, delta):
    """Return the sequence of the record `delta` offsets after the first, -1 without sequences."""
    if base < 0:
        return np.int64(-1)
    total = base + delta
    return total - (np.int64(1) << 31) if total > 0x7FFFFFFF else total


@inlined
def _is_text(data, at, size):
    """Return whether the bytes are well-formed UTF-8, which Java prints as it is."""
    end = at + size
    while end - at >= 8 and eight_bytes(data, at) & _HIGH_BITS == 0:
        at += 8
    while at < end:
        lead = byte(data, at)
        at += 1
        if lead < 0x80:
            continue
        more, low, up = lead_byte(lead)
        if more == 0 or more > end - at or not low <= byte(data, at) <= up:
            return False
        for i in range(1, more):
            if byte(data, at + i) & 0xC0 != 0x80:
                return False
        at += more
    return True


@inlined
def _batch_line(out, at, headers, batch, crc_valid):
    attributes = headers[_ATTRIBUTES, batch]
    delta = headers[_LAST, batch] - headers[_BASE, batch]
    base_sequence = headers[_SEQUENCE, batch]
    last_sequence = np.int64(-1)
    if base_sequence != -1:
        last_sequence = base_sequence + delta
        if last_sequence > 0x7FFFFFFF:
            last_sequence -= np.int64(1) << 31
    for i, value in enumerate((
        headers[_BASE, batch], headers[_LAST, batch], headers[k.COUNT, batch], base_sequence,
        last_sequence, headers[k.PRODUCER_ID, batch], headers[k.PRODUCER_EPOCH, batch],
        headers[k.EPOCH, batch],
    )):  # fmt: skip
        at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, i)
        at = put_number(out, at, value)
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 8)
    at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, attributes >> 4 & 1)
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 9)
    at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, attributes >> 5 & 1)
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 10)
    if attributes & _HORIZON:
        at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, _OPEN)
        at = put_number(out, at, headers[k.BASE_TIMESTAMP, batch])
        at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, _CLOSE)
    else:
        at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, _EMPTY)
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 11)
    at = put_number(out, at, headers[k.POSITION, batch])
    append = attributes & _APPEND_TIME != 0
    at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, _APPEND if append else _CREATE)
    at = put_number(out, at, headers[k.MAX_TIMESTAMP, batch])
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 12)
    at = put_number(out, at, headers[k.SIZE, batch])
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 13)
    at = put_number(out, at, headers[k.MAGIC, batch])
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 14)
    at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, _CODECS + (attributes & 7))
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 15)
    at = put_number(out, at, headers[k.CRC, batch])
    at = _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 16)
    at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, np.int64(crc_valid))
    return _word(out, at, _BATCH_WORDS, _BATCH_SIZES, 17)


@inlined
def _metadata(out, at, arena, rows, row, headers):
    """Write a record's metadata as Kafka does; return -1 if a header's key is not UTF-8."""
    batch = rows[_ORDINAL, row]
    at = _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 0)
    offset = rows[_OFFSET, row]
    at = put_number(out, at, offset)
    append = headers[_ATTRIBUTES, batch] & _APPEND_TIME != 0
    at = _word(out, at, _VALUE_WORDS, _VALUE_SIZES, _APPEND if append else _CREATE)
    at = put_number(out, at, rows[_TIMESTAMP, row])
    at = _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 1)
    at = put_number(out, at, rows[_KEY_SIZE, row])
    at = _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 2)
    at = put_number(out, at, rows[_VALUE_SIZE, row])
    at = _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 3)
    at = put_number(out, at, sequence_of(headers[_SEQUENCE, batch], offset - headers[_BASE, batch]))
    at = _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 4)
    place = rows[_HEADERS, row]
    for i in range(rows[_HEADERS_COUNT, row]):
        if i:
            at = _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 9)
        size, place = varint(arena, place, len(arena))
        if not _is_text(arena, place, size):
            return np.int64(-1)
        copy_bytes(out, at, arena, place, size)
        at += size
        place += size
        size, place = varint(arena, place, len(arena))
        place += max(size, np.int64(0))
    return _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 5)


@inlined
def _record_line(out, at, arena, rows, row, headers, content, metadata):
    """Write the line of a record; return -1 if its text is not UTF-8."""
    for field in (_KEY, _VALUE):
        size = rows[field + 1, row]
        if content and size > 0 and not _is_text(arena, rows[field, row], size):
            return np.int64(-1)
    if metadata:
        at = _metadata(out, at, arena, rows, row, headers)
        if at < 0:
            return at
    elif content and max(rows[_KEY_SIZE, row], rows[_VALUE_SIZE, row]) >= 0:
        out[at] = 124  # `|`
        at += 1
    if content:
        for i in range(2):
            field = _KEY + 2 * i
            size = rows[field + 1, row]
            if size >= 0:
                at = _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 6 + i)
                copy_bytes(out, at, arena, rows[field, row], size)
                at += size
    return _word(out, at, _RECORD_WORDS, _RECORD_SIZES, 8)


@kernel("bytes table int table flags flags int int int ints ints bytes", results=1)
def format_lines(arena, rows, count, headers, chosen, crc_valid, last_batch, content, metadata,
                 state, ends, out):  # fmt: skip
    """Write lines of batches and their records from `state` on; return DONE, FULL or ODD.

    Args:
        arena, rows, headers: as `decode_records` left them.
        count: number of rows.
        chosen: which batches are printed here.
        crc_valid: whether the checksum of each is right.
        last_batch: the batch up to which (exclusive) lines of batches are due.
        content: whether keys and values are printed.
        metadata: whether offset, sizes and so on are printed.
        state: next row, bytes written so far, next batch; updated. After ODD the next row is one
            whose text is not UTF-8.
        ends: filled with the end of each row's line in `out`.
        out: the text; a line is started only if it fits.
    """
    batch, row, at = state[STATE_BATCH], state[STATE_NEXT], state[STATE_SIZE]
    room = np.int64(len(out)) - LINE_SIZE_MAX
    why = DONE
    while True:
        due = rows[_ORDINAL, row] + 1 if row < count else last_batch
        while batch < due and at <= room:
            if chosen[batch]:
                at = _batch_line(out, at, headers, batch, crc_valid[batch])
            batch += 1
        if batch < due:
            why = FULL
            break
        if row == count:
            break
        # Everything that a line repeats lies between the key and the end of the headers.
        size = rows[_KEY_SIZE, row] + rows[_VALUE_SIZE, row]
        place = rows[_HEADERS, row]
        for _ in range(2 * rows[_HEADERS_COUNT, row]):
            length, place = varint(arena, place, len(arena))
            place += max(length, np.int64(0))
        size += place - rows[_HEADERS, row]
        if at + size > room:
            why = FULL
            break
        after = _record_line(out, at, arena, rows, row, headers, content, metadata)
        if after < 0:
            why = ODD
            break
        at = after
        ends[row] = at
        row += 1
    state[STATE_BATCH], state[STATE_NEXT], state[STATE_SIZE] = batch, row, at
    return why
