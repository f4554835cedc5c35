"""Compiled formatting: batches and records as JSON objects, or as lines of CSV.

The contents and order of a line are data: a program of literal texts and fields (`objects`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from formats import constants as c
from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.byte_kernels import copy_bytes, varint
from kafkalog.log.text.kafka_kernels import DONE, FULL, ODD, STATE_NEXT, STATE_SIZE, sequence_of
from kafkalog.log.text.value_kernels import (
    GROWTH_MAX,
    HEADER_SIZE_MAX,
    NUMBER_SIZE_MAX,
    put_bytes,
    put_headers,
    put_number,
    quote_field,
)

# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg,unreachable"


# Fields of a batch besides those of a header table, fields of a record, no field.
(DELETE_HORIZON, LAST_SEQUENCE, TIMESTAMP_TYPE, COMPRESSION, TRANSACTIONAL, CONTROL, CRC_VALID,
 OFFSET, TIMESTAMP, SEQUENCE, KEY_SIZE, VALUE_SIZE, KEY, VALUE, HEADERS,
 NOTHING) = range(k.HEADER_FIELDS, k.HEADER_FIELDS + 16)  # fmt: skip
# Rows of a program.
FIELD, TEXT_START, TEXT_END, RUN_FIELD, RUN_END, PROGRAM_ROWS = range(6)
# Words of values.
NULL, FALSE, CREATE_TIME, APPEND_TIME, NO_TIME, CODECS = 0, 1, 3, 4, 5, 6
COPY_SIZE: Final = 32

_RECORD_FIELDS = OFFSET
_ORDINAL = k.ORDINAL
_CODEC, _APPEND, _HORIZON = c.COMPRESSION_MASK, c.TIMESTAMP_TYPE_MASK, c.DELETE_HORIZON_MASK
_FLAG_TRANSACTIONAL, _FLAG_CONTROL = c.TRANSACTIONAL_MASK, c.CONTROL_MASK


@inlined
def _word(out, at, words, starts, i):
    size = starts[i + 1] - starts[i]
    copy_bytes(out, at, words, starts[i], size)
    return at + size


@inlined
def _batch_field(out, at, field, headers, batch, crc_valid, words, starts):
    """Write a header field of a batch; legacy messages have no flags and no delete horizon."""
    if field < k.HEADER_FIELDS:
        return put_number(out, at, headers[field, batch])
    attributes = headers[k.ATTRIBUTES, batch]
    magic = headers[k.MAGIC, batch]
    modern = np.int64(magic >= 2)
    if field == DELETE_HORIZON:
        if modern and attributes & _HORIZON:
            return put_number(out, at, headers[k.BASE_TIMESTAMP, batch])
        return _word(out, at, words, starts, NULL)
    if field == LAST_SEQUENCE:
        last = headers[k.BASE_SEQUENCE, batch]
        if last != -1:
            last += headers[k.LAST_OFFSET, batch] - headers[k.BASE_OFFSET, batch]
            if last > 0x7FFFFFFF:
                last -= np.int64(1) << 31
        return put_number(out, at, last)
    word = np.int64(FALSE)
    if field == TIMESTAMP_TYPE:
        word = np.int64(CREATE_TIME)
        if magic == 0:
            word = np.int64(NO_TIME)
        elif attributes & _APPEND:
            word = np.int64(APPEND_TIME)
    elif field == COMPRESSION:
        word = CODECS + (attributes & _CODEC)
    elif field == TRANSACTIONAL:
        word += modern & np.int64(attributes & _FLAG_TRANSACTIONAL != 0)
    elif field == CONTROL:
        word += modern & np.int64(attributes & _FLAG_CONTROL != 0)
    elif field == CRC_VALID:
        word += np.int64(crc_valid)
    return _word(out, at, words, starts, word)


@inlined
def _runs(out, at, program, texts, headers, batch, crc_valid, words, starts):
    """Write literal texts and fields of a batch, as runs up to the fields of records (RUN_END)."""
    run = 0
    for i in range(program.shape[1]):
        start = program[TEXT_START, i]
        size = program[TEXT_END, i] - start
        copy_bytes(out, at, texts, start, size)
        at += size
        field = program[FIELD, i]
        if field < _RECORD_FIELDS:
            at = _batch_field(out, at, field, headers, batch, crc_valid, words, starts)
        else:
            program[RUN_END, run] = at
            run += 1
    return at


@inlined
def _headers_size(arena, place, count):
    """Return the size of a record's headers."""
    begin = place
    end = np.int64(len(arena))
    for _ in range(2 * count):
        size, place = varint(arena, place, end)
        place += max(size, np.int64(0))
    return place - begin


@kernel("bytes table int table table bytes bytes ints int int ints bytes ints bytes", results=1)
def format_records(arena, rows, count, headers, program, texts, words, starts, form, csv, state,
                   scratch, ends, out):  # fmt: skip
    """Write lines of records from `state` on; return DONE, FULL or ODD.

    Args:
        arena, rows, headers: as `decode_records` left them.
        count: number of rows.
        program, texts, words, starts: the contents of a line, as in `objects.Template`.
        form: how bytes are written (AUTO, UTF8, HEX, BASE64).
        csv: whether to write CSV rather than JSON.
        state: next row, bytes written so far; updated. After ODD the reference must format the next
            row.
        scratch: room for all texts and batch fields of one line.
        ends: filled with the end of each row's line in `out`.
        out: the text; a line is started only if it fits.
    """
    row, at = state[STATE_NEXT], state[STATE_SIZE]
    room = np.int64(len(out) - len(scratch) - (NUMBER_SIZE_MAX + COPY_SIZE) * program.shape[1])
    batch = np.int64(-1)
    while row < count:
        headers_count = rows[k.HEADERS_COUNT, row]
        size = max(rows[k.KEY_SIZE, row], np.int64(0)) + max(rows[k.VALUE_SIZE, row], np.int64(0))
        if headers_count:
            size += _headers_size(arena, rows[k.HEADERS_POSITION, row], headers_count)
        if at + GROWTH_MAX * size + HEADER_SIZE_MAX * (headers_count + 3) > room:
            state[STATE_NEXT], state[STATE_SIZE] = row, at
            return FULL
        if rows[_ORDINAL, row] != batch:
            batch = rows[_ORDINAL, row]
            if headers[k.ATTRIBUTES, batch] & _FLAG_CONTROL and headers[k.MAGIC, batch] >= 2:
                state[STATE_NEXT], state[STATE_SIZE] = row, at
                return ODD
            _runs(scratch, 0, program, texts, headers, batch, True, words, starts)
        begin = at
        place = np.int64(0)
        run = 0
        while True:
            stop = program[RUN_END, run]
            end = at + stop - place
            while place < stop:
                # In whole steps, each one instruction: what is copied too much is overwritten.
                copy_bytes(out, at, scratch, place, COPY_SIZE)
                place += COPY_SIZE
                at += COPY_SIZE
            place = stop
            at = end
            field = program[RUN_FIELD, run]
            run += 1
            if field == NOTHING:
                break
            if field < KEY:
                value = rows[k.OFFSET, row]
                if field == TIMESTAMP:
                    value = rows[k.TIMESTAMP, row]
                elif field == SEQUENCE:
                    value = sequence_of(headers[k.BASE_SEQUENCE, batch],
                                      value - headers[k.BASE_OFFSET, batch])  # fmt: skip
                elif field != OFFSET:
                    value = rows[k.KEY_SIZE if field == KEY_SIZE else k.VALUE_SIZE, row]
                    if value < 0:
                        at = _word(out, at, words, starts, NULL)
                        continue
                at = put_number(out, at, value)
                continue
            if field == HEADERS:
                if headers_count:
                    end = put_headers(
                        out, at, arena, rows[k.HEADERS_POSITION, row], headers_count, form
                    )
                else:
                    out[at] = 91  # `[]`
                    out[at + 1] = 93
                    at += 2
                    continue
            else:
                column = k.KEY_POSITION if field == KEY else k.VALUE_POSITION
                size = rows[column + 1, row]
                if size < 0:
                    at = _word(out, at, words, starts, NULL)
                    continue
                end = put_bytes(out, at, arena, rows[column, row], size, form, csv)
            if end < 0:
                state[STATE_NEXT], state[STATE_SIZE] = row, begin
                return ODD
            at = quote_field(out, at, end) if csv else end
        ends[row] = at
        row += 1
    state[STATE_NEXT], state[STATE_SIZE] = row, at
    return DONE


@kernel("table ints flags table bytes bytes ints int ints ints bytes", results=1)
def format_batches(headers, chosen, crc_valid, program, texts, words, starts, size_max, state, ends,
                   out):  # fmt: skip
    """Write lines of the batches with the ordinals `chosen` from `state` on; return DONE or FULL.

    The other arguments are those of `format_records`; a line has at most `size_max` bytes.
    """
    row, at = state[STATE_NEXT], state[STATE_SIZE]
    room = np.int64(len(out)) - size_max
    while row < len(chosen) and at <= room:
        batch = chosen[row]
        at = _runs(out, at, program, texts, headers, batch, crc_valid[batch], words, starts)
        ends[row] = at
        row += 1
    state[STATE_NEXT], state[STATE_SIZE] = row, at
    return DONE if row == len(chosen) else FULL
