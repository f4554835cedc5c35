"""Arrow record batches: the schemas of scans, and batches built from decoded rows.

Byte strings are copied once, from the log's bytes into Arrow's memory, so that a record batch
outlives the buffers it was decoded in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from formats import constants as c
from kafkalog.errors import UsageError
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.chunks import Chunk, Rows, ranges_of
from kafkalog.log.columns.scan_steps import Part
from kafkalog.model import Batch, Record, TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Headers = NDArray[np.int64]


# A handful of names: a byte per row.
_NAME: Final = pa.dictionary(pa.int8(), pa.string())
TIMESTAMP_TYPES: Final = [str(member) for member in TimestampType]
# Unknown codecs are shown as their numbers.
COMPRESSIONS: Final = [*c.COMPRESSION_NAMES, "5", "6", "7"]
HEADER: Final = pa.struct(
    [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())]
)


def _field(name: str, kind: Any, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable)


PATH: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        _field("path", PATH),
        _field("offset", pa.int64()),
        _field("timestamp", pa.int64()),
        _field("timestamp_type", _NAME),
        _field("key", pa.binary(), nullable=True),
        _field("value", pa.binary(), nullable=True),
        _field("headers", pa.list_(_field("item", HEADER))),
        _field("sequence", pa.int32()),
        _field("producer_id", pa.int64()),
        _field("producer_epoch", pa.int16()),
        _field("leader_epoch", pa.int32()),
        _field("is_transactional", pa.bool_()),
        _field("is_control", pa.bool_()),
        _field("compression", _NAME),
        _field("magic", pa.int8()),
        _field("batch_base_offset", pa.int64()),
        _field("batch_position", pa.int64()),
    ]
)
"""The columns of a scan: `path` is the segment's file, `batch_position` a position in it;
`timestamp` in milliseconds since 1970 UTC, -1 if missing; producer columns and sequence -1
if missing; a compressed message of magic 0 or 1 has its last offset as
`batch_base_offset`."""


BATCH_SCHEMA: Final = pa.schema(
    [
        _field("path", PATH),
        _field("position", pa.int64()),
        _field("size_bytes", pa.int32()),
        _field("base_offset", pa.int64()),
        _field("last_offset", pa.int64()),
        _field("records", pa.int32()),
        _field("magic", pa.int8()),
        _field("compression", _NAME),
        _field("timestamp_type", _NAME),
        _field("base_timestamp", pa.int64()),
        _field("max_timestamp", pa.int64()),
        _field("delete_horizon_timestamp", pa.int64(), nullable=True),
        _field("producer_id", pa.int64()),
        _field("producer_epoch", pa.int16()),
        _field("base_sequence", pa.int32()),
        _field("last_sequence", pa.int64()),  # anything, in a damaged header
        _field("leader_epoch", pa.int32()),
        _field("is_transactional", pa.bool_()),
        _field("is_control", pa.bool_()),
        _field("crc", pa.int64()),
        _field("crc_valid", pa.bool_()),
    ]
)
"""The columns of a scan of batches, as in `dump-segment --batches`."""


def schema_of(columns: Iterable[str] | None, schema: Any = SCHEMA) -> Any:
    """Return the schema of the requested columns, in the requested order; None for all of them.

    Raises:
        UsageError: a column is unknown.
    """
    if columns is None:
        return schema
    names = list(columns)
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise UsageError(
            f"There is no column {unknown[0]!r}.", hint=f"There are {', '.join(schema.names)}."
        )
    return pa.schema([schema.field(name) for name in names])


_OF_BATCH: Final[dict[str, Callable[[Batch], object]]] = {
    "producer_id": lambda batch: batch.producer_id,
    "producer_epoch": lambda batch: batch.producer_epoch,
    "leader_epoch": lambda batch: batch.leader_epoch,
    "is_transactional": lambda batch: batch.is_transactional,
    "is_control": lambda batch: batch.is_control,
    "compression": lambda batch: COMPRESSIONS[batch.compression],
    "magic": lambda batch: batch.magic,
    "timestamp_type": lambda batch: str(batch.timestamp_type),
    "batch_base_offset": lambda batch: batch.base_offset,
    "batch_position": lambda batch: batch.position,
    "position": lambda batch: batch.position,
    "size_bytes": lambda batch: batch.size_bytes,
    "base_offset": lambda batch: batch.base_offset,
    "last_offset": lambda batch: batch.last_offset,
    "records": lambda batch: batch.records,
    "base_timestamp": lambda batch: batch.base_timestamp,
    "max_timestamp": lambda batch: batch.max_timestamp,
    "delete_horizon_timestamp": lambda batch: batch.delete_horizon_timestamp,
    "base_sequence": lambda batch: batch.base_sequence,
    "last_sequence": lambda batch: batch.last_sequence,
    "crc": lambda batch: batch.crc,
    "crc_valid": lambda batch: bool(batch.crc_valid),
}
_OF_RECORD: Final[dict[str, Callable[[Record], object]]] = {
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp,
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": lambda record: [
        {"key": header.key, "value": header.value} for header in record.headers
    ],
    "sequence": lambda record: record.sequence,
}
_DICTIONARIES: Final = {"timestamp_type": TIMESTAMP_TYPES, "compression": COMPRESSIONS}


def table_of(values: Sequence[Any], schema: Any, paths: Paths) -> Any:
    """Return a record batch of the reference decoder's records, or its scanner's batches."""
    if not values or isinstance(values[0], Batch):
        return _table(values, {}, schema, paths)
    columns = {
        name: [value(record) for record in values]
        for name, value in _OF_RECORD.items()
        if name in schema.names
    }
    return _table([record.batch for record in values], columns, schema, paths)


def _table(
    batches: Sequence[Batch], columns: dict[str, list[object]], schema: Any, paths: Paths
) -> Any:
    """Return a record batch from columns and from the header of each row's batch."""
    arrays = []
    for field in schema:
        if field.name == "path":
            arrays.append(paths.column_of([batch.path for batch in batches]))
            continue
        values = columns.get(field.name)
        if values is None:
            values = [_OF_BATCH[field.name](batch) for batch in batches]
        names = _DICTIONARIES.get(field.name)
        if names is None:
            arrays.append(pa.array(values, field.type))
        else:
            codes = pa.array([names.index(str(value)) for value in values], pa.int8())
            arrays.append(pa.DictionaryArray.from_arrays(codes, names))
    return table_of_arrays(arrays, len(batches), schema)


def table_of_arrays(arrays: list[Any], count: int, schema: Any) -> Any:
    """Return a record batch of `count` rows, even if it has no columns."""
    # Arrow takes the number of rows from the first column.
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def text_of(name: str) -> str:
    """Return a name as Arrow's strings can hold it: those of files need not be valid UTF-8."""
    return name.encode("utf-8", "replace").decode()


class Paths:
    """The files that a scan reads: all its record batches share one dictionary of them.

    It grows if a file turns up under another name while it is read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._know(paths)

    def _know(self, paths: Sequence[str]) -> None:
        self._names = pa.array([text_of(path) for path in paths], pa.string())
        self._codes = {path: code for code, path in enumerate(paths)}

    def column(self, path: str, count: int) -> Any:
        """Return the path column for `count` rows of one file."""
        if path not in self._codes:
            self._know([*self._codes, path])
        codes = pa.array(np.full(count, self._codes[path], np.int32))
        return pa.DictionaryArray.from_arrays(codes, self._names)

    def column_of(self, paths: Sequence[str]) -> Any:
        """Return the path column with a row for each path."""
        if missing := [path for path in dict.fromkeys(paths) if path not in self._codes]:
            self._know([*self._codes, *missing])
        codes = pa.array([self._codes[path] for path in paths], pa.int32())
        return pa.DictionaryArray.from_arrays(codes, self._names)


_BATCH_NUMBERS: Final = {
    "producer_id": k.PRODUCER_ID,
    "producer_epoch": k.PRODUCER_EPOCH,
    "leader_epoch": k.EPOCH,
    "magic": k.MAGIC,
    "batch_base_offset": k.BASE_OFFSET,
    "batch_position": k.POSITION,
    "position": k.POSITION,
    "size_bytes": k.SIZE,
    "base_offset": k.BASE_OFFSET,
    "last_offset": k.LAST_OFFSET,
    "records": k.COUNT,
    "base_timestamp": k.BASE_TIMESTAMP,
    "max_timestamp": k.MAX_TIMESTAMP,
    "base_sequence": k.BASE_SEQUENCE,
    "crc": k.CRC,
}
_BATCH_FLAGS: Final = {"is_transactional": c.TRANSACTIONAL_MASK, "is_control": c.CONTROL_MASK}
_RECORD_NUMBERS: Final = {"offset": k.OFFSET, "timestamp": k.TIMESTAMP}


class Columns:
    """A format for records and for batches: Arrow record batches with the columns of a schema."""

    def __init__(self, schema: Any, batch_rows: int, paths: Sequence[str]) -> None:
        self.rows_max = batch_rows
        self._schema = schema
        self._paths = Paths(paths)

    def left_over(self, _headers: Headers) -> None:
        """See `scan_steps.RecordFormat`."""
        return

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        for first, last in ranges_of(rows):
            yield self._part(replace(rows, table=rows.table[:, first:last]), chunk)

    def _part(self, rows: Rows, chunk: Chunk) -> Part:
        headers = chunk.headers
        count = rows.table.shape[1]
        arrays = [
            self._paths.column(chunk.path, count)
            if name == "path"
            else _column(name, rows, headers)
            for name in self._schema.names
        ]
        return _part(table_of_arrays(arrays, count, self._schema))

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:  # noqa: ARG002
        """See `scan_steps.RecordFormat`."""
        yield _part(table_of(records, self._schema, self._paths))

    def of_batches(
        self, chunk: Chunk, first: int, last: int, chosen: NDArray[np.bool_]
    ) -> Iterator[Part]:
        """See `scan_steps.BatchFormat`."""
        ordinals = np.flatnonzero(chosen[first:last]) + first
        for start in range(0, len(ordinals), self.rows_max):
            some = ordinals[start : start + self.rows_max]
            headers = chunk.headers[:, some]
            arrays = []
            for name in self._schema.names:
                if name == "path":
                    arrays.append(self._paths.column(chunk.path, len(some)))
                elif name == "crc_valid":
                    arrays.append(pa.array(chunk.crc_valid[some]))
                else:
                    arrays.append(_batch_column(name, headers, slice(None)))
            yield _part(table_of_arrays(arrays, len(some), self._schema))

    def of_batch(self, batch: Batch) -> Part:
        """See `scan_steps.BatchFormat`."""
        return _part(table_of([batch], self._schema, self._paths))

    def cut(self, content: Any, first: int, last: int) -> Any:
        """See `scan_steps.Format`."""
        return content.slice(first, last - first)

    def release(self, content: Any) -> None:
        """See `scan_steps.Format`."""


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
        # DefaultRecordBatch.incrementSequence: 0 follows 2^31 - 1.
        sequence[sequence > c.INT32_MAX] -= 1 << 31
        sequence[base < 0] = -1
        return pa.array(sequence.astype(np.int32))
    return _batch_column(name, headers, ordinal)


def _batch_column(name: str, headers: Headers, rows: slice | NDArray[np.int64]) -> Any:
    """Return a header field per row; legacy messages have no flags and no delete horizon."""
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
    if name == "delete_horizon_timestamp":
        without = ~(modern & (attributes & c.DELETE_HORIZON_MASK != 0))
        return pa.array(headers[k.BASE_TIMESTAMP][rows], mask=without[rows])
    assert name == "last_sequence", name
    base = headers[k.BASE_SEQUENCE]
    last = base + (headers[k.LAST_OFFSET] - headers[k.BASE_OFFSET])
    last[last > c.INT32_MAX] -= 1 << 31
    last[base == -1] = -1
    return pa.array(last[rows])


def binary(arena: NDArray[np.uint8], positions: NDArray[np.int64], sizes: NDArray[np.int64]) -> Any:
    """Return byte strings of the arena as an Arrow array; a negative size is null."""
    count = len(sizes)
    # Filled in place by the kernels: a numpy array would be copied into Arrow's memory.
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
