"""Decoded rows as the reference decoder's values: for tables, JSON, and lines without a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.columns import kernels as k
from kafkalog.columns.scan_steps import Part
from kafkalog.model import Header, Record, increment_sequence, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.columns.chunks import Chunk, Rows
    from kafkalog.model import Batch


# Approximate size of a record or a batch as a Python object.
_OBJECT_SIZE: Final = 600


class Restored:
    """A format for records and for batches: lists of `Record`s and of `Batch`es."""

    rows_max = 4096

    def left_over(self, headers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See `scan_steps.RecordFormat`; rows lack the checksums of messages."""
        mask: NDArray[np.bool_] = headers[k.MAGIC] < 2
        return mask

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        yield _part(records_of(rows, chunk))

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:  # noqa: ARG002
        """See `scan_steps.RecordFormat`."""
        yield _part(records)

    def of_batches(
        self, chunk: Chunk, first: int, last: int, chosen: NDArray[np.bool_]
    ) -> Iterator[Part]:
        """See `scan_steps.BatchFormat`."""
        yield _part([chunk.batch(i) for i in range(first, last) if chosen[i]])

    def of_batch(self, batch: Batch) -> Part:
        """See `scan_steps.BatchFormat`."""
        return _part([batch])

    def cut(self, content: list[Any], first: int, last: int) -> list[Any]:
        """See `scan_steps.Format`."""
        return content[first:last]

    def release(self, content: list[Any] | None) -> None:
        """See `scan_steps.Format`."""


def _part(values: list[Any]) -> Part:
    return Part(values, len(values), _OBJECT_SIZE * len(values))


def records_of(rows: Rows, chunk: Chunk) -> list[Record]:
    """Return rows as the reference decoder's records."""
    table, arena = rows.table, rows.arena
    counts = table[k.HEADERS_COUNT]
    pairs = np.empty((4, int(counts.sum())), np.int64)
    k.expand_headers(arena, table[k.HEADERS_POSITION], counts, pairs)
    headers = iter(pairs.T.tolist())
    batches: dict[int, Batch] = {}
    found = []
    for ordinal, offset, timestamp, key, key_size, value, value_size, _, count in table.T.tolist():
        batch = batches.get(ordinal)
        if batch is None:
            batch = batches[ordinal] = chunk.batch(ordinal)
        sequence = -1
        if batch.base_sequence >= 0:
            delta = wrap_int64(offset - batch.base_offset)  # the offset itself may have wrapped
            sequence = increment_sequence(batch.base_sequence, delta)
        found.append(
            Record(
                batch=batch,
                offset=offset,
                timestamp=timestamp,
                timestamp_type=batch.timestamp_type,
                key=None if key_size < 0 else arena[key : key + key_size].tobytes(),
                value=None if value_size < 0 else arena[value : value + value_size].tobytes(),
                headers=tuple(_header(arena, *next(headers)) for _ in range(count)),
                sequence=sequence,
            )
        )
    return found


def record_of(rows: Rows, chunk: Chunk, row: int) -> Record:
    """Return one row as the reference decoder's record."""
    from dataclasses import replace

    [record] = records_of(replace(rows, table=rows.table[:, row : row + 1]), chunk)
    return record


def _header(
    arena: NDArray[np.uint8], key: int, key_size: int, value: int, value_size: int
) -> Header:
    return Header(
        arena[key : key + key_size].tobytes(),
        None if value_size < 0 else arena[value : value + value_size].tobytes(),
    )
