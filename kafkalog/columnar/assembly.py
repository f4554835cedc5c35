"""Arrow record batches out of decoded rows; only the columns asked for are built.

Byte strings are copied once, out of the log's bytes into Arrow's memory, so that a record batch
outlives the buffers it was decoded in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.columnar.arrow import (
    BATCH_SCHEMA,
    COMPRESSIONS,
    HEADER,
    SCHEMA,
    TIMESTAMP_TYPES,
    Paths,
    table_of,
    table_of_arrays,
)
from kafkalog.columnar.budget import SIZE_AT_ONCE
from kafkalog.columnar.stages import Part
from kafkalog.model import TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Rows
    from kafkalog.columnar.stages import Judged
    from kafkalog.model import Batch, Record

    Headers = NDArray[np.int64]

_BATCH_NUMBERS: Final = {
    "producer_id": k.PRODUCER_ID,
    "producer_epoch": k.PRODUCER_EPOCH,
    "partition_leader_epoch": k.EPOCH,
    "magic": k.MAGIC,
    "batch_base_offset": k.BASE_OFFSET,
    "batch_position": k.POSITION,
    "position": k.POSITION,
    "size": k.SIZE,
    "base_offset": k.BASE_OFFSET,
    "last_offset": k.LAST_OFFSET,
    "count": k.COUNT,
    "base_timestamp": k.BASE_TIMESTAMP,
    "max_timestamp": k.MAX_TIMESTAMP,
    "base_sequence": k.BASE_SEQUENCE,
    "crc": k.CRC,
}
_BATCH_FLAGS: Final = {"is_transactional": c.TRANSACTIONAL_MASK, "is_control": c.CONTROL_MASK}
_RECORD_NUMBERS: Final = {"offset": k.OFFSET, "timestamp": k.TIMESTAMP}


class Columns:
    """A format for both kinds of work: Arrow record batches of the columns of a schema."""

    def __init__(self, schema: Any, batch_rows: int, paths: Sequence[str]) -> None:
        self.rows_max = batch_rows
        self._schema = schema
        self._paths = Paths(paths)

    def left_over(self, _headers: Headers) -> None:
        """See `stages.RecordFormat`."""
        return

    def of_rows(self, rows: Rows, judged: Judged) -> Iterator[Part]:
        """See `stages.RecordFormat`."""
        for first, last in ranges_of(rows):
            yield self._part(replace(rows, table=rows.table[:, first:last]), judged)

    def _part(self, rows: Rows, judged: Judged) -> Part:
        headers = judged.chunk.headers
        count = rows.table.shape[1]
        arrays = [
            self._paths.column(judged.chunk.path, count)
            if name == "path"
            else _column(name, rows, headers)
            for name in self._schema.names
        ]
        return _part(table_of_arrays(arrays, count, self._schema))

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:  # noqa: ARG002
        """See `stages.RecordFormat`."""
        yield _part(table_of(records, self._schema, self._paths))

    def of_batches(
        self, judged: Judged, first: int, last: int, chosen: NDArray[np.bool_]
    ) -> Iterator[Part]:
        """See `stages.BatchFormat`."""
        ordinals = np.flatnonzero(chosen[first:last]) + first
        for start in range(0, len(ordinals), self.rows_max):
            some = ordinals[start : start + self.rows_max]
            headers = judged.chunk.headers[:, some]
            arrays = []
            for name in self._schema.names:
                if name == "path":
                    arrays.append(self._paths.column(judged.chunk.path, len(some)))
                elif name == "crc_valid":
                    arrays.append(pa.array(judged.valid[some]))
                else:
                    arrays.append(_batch_column(name, headers, slice(None)))
            yield _part(table_of_arrays(arrays, len(some), self._schema))

    def of_batch(self, batch: Batch) -> Part:
        """See `stages.BatchFormat`."""
        return _part(table_of([batch], self._schema, self._paths))

    def cut(self, content: Any, first: int, last: int) -> Any:
        """See `stages.Format`."""
        return content.slice(first, last - first)

    def release(self, content: Any) -> None:
        """See `stages.Format`."""


def ranges_of(rows: Rows) -> Iterator[tuple[int, int]]:
    """Cut rows where their keys and values become many bytes; one range at least."""
    count = rows.table.shape[1]
    sizes = rows.table[k.KEY_SIZE].clip(0) + rows.table[k.VALUE_SIZE].clip(0)
    ends = np.cumsum(sizes)
    first = before = 0
    while True:
        last = min(int(np.searchsorted(ends, before + SIZE_AT_ONCE)) + 1, count)
        yield first, last
        if last == count:
            return
        first, before = last, int(ends[last - 1])


def _part(table: Any) -> Part:
    return Part(table, table.num_rows, table.nbytes)


def _column(name: str, rows: Rows, headers: Headers) -> Any:
    table = rows.table
    ordinal = table[k.ORDINAL]
    if name in _RECORD_NUMBERS:
        return pa.array(table[_RECORD_NUMBERS[name]].copy())
    if name in ("key", "value"):
        field = k.KEY_POSITION if name == "key" else k.VALUE_POSITION
        return binary(rows.arena, table[field], table[field + 1])
    if name == "headers":
        return _headers(rows)
    if name == "sequence":
        base = headers[k.BASE_SEQUENCE][ordinal]
        sequence = base + (table[k.OFFSET] - headers[k.BASE_OFFSET][ordinal])
        sequence[sequence > c.INT32_MAX] -= 1 << 31
        sequence[base < 0] = -1
        return pa.array(sequence.astype(np.int32))
    return _batch_column(name, headers, ordinal)


def _batch_column(name: str, headers: Headers, rows: slice | NDArray[np.int64]) -> Any:
    """What the batch of each row says; legacy messages have no flags and no delete horizon."""
    if name in _BATCH_NUMBERS:
        field = SCHEMA.field(name) if name in SCHEMA.names else BATCH_SCHEMA.field(name)
        kind = field.type.to_pandas_dtype()
        return pa.array(headers[_BATCH_NUMBERS[name]].astype(kind)[rows])
    attributes, magic = headers[k.ATTRIBUTES], headers[k.MAGIC]
    modern = magic >= 2
    if name in _BATCH_FLAGS:
        return pa.array((modern & (attributes & _BATCH_FLAGS[name] != 0))[rows])
    if name == "timestamp_type":
        code = (attributes & c.TIMESTAMP_TYPE_MASK != 0).astype(np.int8)
        code[magic == 0] = TIMESTAMP_TYPES.index(TimestampType.NO_TIMESTAMP_TYPE)
        return pa.DictionaryArray.from_arrays(code[rows], TIMESTAMP_TYPES)
    if name == "compression":
        codec = (attributes & c.COMPRESSION_MASK).astype(np.int8)
        return pa.DictionaryArray.from_arrays(codec[rows], COMPRESSIONS)
    if name == "delete_horizon_ms":
        without = ~(modern & (attributes & c.DELETE_HORIZON_MASK != 0))
        return pa.array(headers[k.BASE_TIMESTAMP][rows], mask=without[rows])
    assert name == "last_sequence", name
    base = headers[k.BASE_SEQUENCE]
    last = base + (headers[k.LAST_OFFSET] - headers[k.BASE_OFFSET])
    last[last > c.INT32_MAX] -= 1 << 31
    last[base == -1] = -1
    return pa.array(last[rows])


def binary(arena: NDArray[np.uint8], positions: NDArray[np.int64], sizes: NDArray[np.int64]) -> Any:
    """Byte strings of the arena as an Arrow array; a negative size is null."""
    count = len(sizes)
    offsets = pa.allocate_buffer(4 * (count + 1))
    starts = np.frombuffer(offsets, np.int32)
    bits = pa.allocate_buffer((count + 7) // 8)
    total, nulls = k.binary_offsets(sizes, starts, np.frombuffer(bits, np.uint8))
    data = pa.allocate_buffer(total)
    k.gather(arena, positions, starts, np.frombuffer(data, np.uint8))
    valid = bits if nulls else None
    return pa.Array.from_buffers(pa.binary(), count, [valid, offsets, data], nulls)


def _headers(rows: Rows) -> Any:
    counts = rows.table[k.HEADERS_COUNT]
    offsets = np.empty(len(counts) + 1, np.int32)
    total = k.list_offsets(counts, offsets)
    fields = np.empty((4, total), np.int64)
    k.expand_headers(rows.arena, rows.table[k.HEADERS_POSITION], counts, fields)
    keys = binary(rows.arena, fields[0], fields[1])
    values = binary(rows.arena, fields[2], fields[3])
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=SCHEMA.field("headers").type)
