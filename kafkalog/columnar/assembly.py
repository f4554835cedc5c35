"""Arrow record batches out of decoded rows; only the columns asked for are built.

Byte strings are copied once, out of the log's bytes into Arrow's memory, so that a record batch
outlives the buffers it was decoded in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.columnar.arrow import COMPRESSIONS, HEADER, SCHEMA, TIMESTAMP_TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Rows

    Headers = NDArray[np.int64]

_BATCH_NUMBERS: Final = {
    "producer_id": k.PRODUCER_ID,
    "producer_epoch": k.PRODUCER_EPOCH,
    "partition_leader_epoch": k.EPOCH,
    "magic": k.MAGIC,
    "batch_base_offset": k.BASE_OFFSET,
    "batch_position": k.POSITION,
}
_BATCH_FLAGS: Final = {"is_transactional": c.TRANSACTIONAL_MASK, "is_control": c.CONTROL_MASK}


def table_of(rows: Rows, headers: Headers, schema: Any) -> Any:
    """A record batch of decoded rows; `headers` are those of their batches."""
    count = rows.table.shape[1]
    arrays = [_column(name, rows, headers) for name in schema.names]
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(name: str, rows: Rows, headers: Headers) -> Any:
    table = rows.table
    ordinal = table[k.ORDINAL]
    if name in ("offset", "timestamp"):
        return pa.array(table[k.OFFSET if name == "offset" else k.TIMESTAMP].copy())
    if name in ("key", "value"):
        field = k.KEY_POSITION if name == "key" else k.VALUE_POSITION
        return binary(rows.arena, table[field], table[field + 1])
    if name == "headers":
        return _headers(rows)
    if name in _BATCH_NUMBERS:
        kind = SCHEMA.field(name).type.to_pandas_dtype()
        return pa.array(headers[_BATCH_NUMBERS[name]].astype(kind)[ordinal])
    attributes = headers[k.ATTRIBUTES]
    if name in _BATCH_FLAGS:
        return pa.array((attributes & _BATCH_FLAGS[name] != 0)[ordinal])
    if name == "timestamp_type":
        late = (attributes & c.TIMESTAMP_TYPE_MASK != 0).astype(np.int8)
        return pa.DictionaryArray.from_arrays(late[ordinal], TIMESTAMP_TYPES)
    if name == "compression":
        codec = (attributes & c.COMPRESSION_MASK).astype(np.int8)
        return pa.DictionaryArray.from_arrays(codec[ordinal], COMPRESSIONS)
    assert name == "sequence", name
    base = headers[k.BASE_SEQUENCE][ordinal]
    sequence = base + (table[k.OFFSET] - headers[k.BASE_OFFSET][ordinal])
    sequence[sequence > c.INT32_MAX] -= 1 << 31
    sequence[base < 0] = -1
    return pa.array(sequence.astype(np.int32))


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
