"""Rows of a chunk as the reference decoder's records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.log.columns import kernels as k
from kafkalog.model import Batch, Header, Record, increment_sequence, wrap_int64

if TYPE_CHECKING:
    from kafkalog.log.columns.chunks import Chunk, Rows
    from kafkalog.model import TimestampType


def records_of(rows: Rows, chunk: Chunk) -> list[Record]:
    """Return rows as the reference decoder's records."""
    table, arena = rows.table, rows.arena
    counts = table[k.HEADERS_COUNT]
    pairs = np.empty((4, int(counts.sum())), np.int64)
    k.expand_headers(arena, table[k.HEADERS_POSITION], counts, pairs)
    headers = iter(pairs.T.tolist())
    data = arena.data
    batches: dict[int, tuple[Batch, TimestampType]] = {}
    found = []
    for ordinal, offset, timestamp, key, key_size, value, value_size, _, count in table.T.tolist():
        if ordinal not in batches:
            one = chunk.batch(ordinal)
            batches[ordinal] = one, one.timestamp_type
        batch, timestamp_type = batches[ordinal]
        sequence = -1
        if batch.base_sequence >= 0:
            delta = wrap_int64(offset - batch.base_offset)  # the offset itself may have wrapped
            sequence = increment_sequence(batch.base_sequence, delta)
        found.append(
            Record(
                batch=batch,
                offset=offset,
                timestamp=timestamp,
                timestamp_type=timestamp_type,
                key=None if key_size < 0 else bytes(data[key : key + key_size]),
                value=None if value_size < 0 else bytes(data[value : value + value_size]),
                headers=tuple(_header(data, *next(headers)) for _ in range(count)) if count else (),
                sequence=sequence,
            )
        )
    return found


def record_of(rows: Rows, chunk: Chunk, row: int) -> Record:
    """Return one row as the reference decoder's record."""
    [record] = records_of(replace(rows, table=rows.table[:, row : row + 1]), chunk)
    return record


def _header(data: memoryview, key: int, key_size: int, value: int, value_size: int) -> Header:
    return Header(
        bytes(data[key : key + key_size]),
        None if value_size < 0 else bytes(data[value : value + value_size]),
    )
