"""Writes record batches to a file of Parquet or Arrow IPC as they come, in one encoding."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import numpy as np
import pyarrow as pa

from kafkalog.log.columns.arrow import BATCH_SCHEMA, PATH, SCHEMA, text_of
from kafkalog.node.targets import partition_around

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


# For 100-byte texts, a third larger than zstd in two thirds of the time.
CODEC: Final = "snappy"
# Columns whose values hardly repeat, so that a dictionary would not pay off.
_UNIQUE: Final = ("key", "value", "headers.list.element.value", "crc")
# Numbers that mostly rise, so that their differences are small.
_RISING: Final = ("offset", "timestamp", "timestamp_ms")
# Statistics of keys and values would be large, and nobody skips row groups by them.
_STATISTICS: Final = (
    "path", "offset", "timestamp", "timestamp_ms", "base_offset", "last_offset", "position",
    "batch_position", "base_timestamp", "max_timestamp", "producer_id", "leader_epoch",
    "first_offset", "segment_base_offset",
)  # fmt: skip


# Parquet writes no dictionary for a column if more than this part of the sampled values differ.
_SAMPLE_ROWS: Final = 1 << 15
_UNIQUE_PART: Final = 0.8
_UNIQUE_BITS: Final = 32


def parquet_writer(
    file: BinaryIO,
    schema: Any,
    codec: str = CODEC,
    unique: Collection[str] = (),
) -> Any:
    """Return a `pyarrow.parquet.ParquetWriter` for record batches of scans or tables.

    Args:
        file: where to write.
        schema: schema of the record batches.
        codec: `none`, `snappy`, `zstd`, `lz4` or `gzip`.
        unique: more columns whose values hardly repeat, by the names that Parquet gives them.
    """
    import pyarrow.parquet as pq

    rising = [name for name in _RISING if name in schema.names]
    return pq.ParquetWriter(
        file,
        schema,
        compression=codec,
        use_dictionary=[
            name for name in _leaves(schema) if name not in {*_UNIQUE, *rising, *unique}
        ],
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in _STATISTICS if name in schema.names],
    )


def unique_leaves(table: Any) -> Iterator[str]:
    """Yield columns of a table, by the names that Parquet gives them, whose values hardly repeat.

    What is in lists and maps, and types of a few bytes, are not looked at.
    """
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name not in _UNIQUE and column.num_chunks:
            yield from _unique_leaves_of(name, column.chunk(0)[:_SAMPLE_ROWS])


def _unique_leaves_of(name: str, column: Any) -> Iterator[str]:
    kind = column.type
    if pa.types.is_struct(kind):
        for field, one in zip(kind, column.flatten(), strict=True):
            yield from _unique_leaves_of(f"{name}.{field.name}", one)
        return
    is_wide = pa.types.is_primitive(kind) and kind.bit_width >= _UNIQUE_BITS
    if not (is_wide or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return
    import pyarrow.compute as pc  # takes long to load, and plain exports do without

    if pc.count_distinct(column, "only_valid").as_py() > _UNIQUE_PART * len(column):
        yield name


def _leaves(schema: Any) -> Iterator[str]:
    """Yield the names that Parquet gives the columns."""
    for field in schema:
        yield from _leaves_of(field.name, field.type)


def _leaves_of(name: str, kind: Any) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves_of(f"{name}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves_of(f"{name}.key_value.key", kind.key_type)
        yield from _leaves_of(f"{name}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves_of(f"{name}.list.element", kind.value_type)
    else:
        yield name


# Limits per row group: rows, and bytes in memory.
_GROUP_ROWS: Final = 1 << 16
_GROUP_SIZE: Final = 3 << 22
_GROUPS_KEPT: Final = 4
_ENTRIES_AT_ONCE: Final = 1 << 16


def _entry_schema(*names: str) -> Any:
    fields = [pa.field("path", PATH, nullable=False)]
    return pa.schema([*fields, *(pa.field(name, pa.int64(), nullable=False) for name in names)])


def _with_partition(schema: Any) -> Any:
    """Return the columns of a scan with topic and partition after the path."""
    path, *others = schema
    fields = pa.field("topic", pa.string(), nullable=False), pa.field("partition", pa.int32())
    return pa.schema([path, *fields, *others])


SCHEMAS: Final = {
    "records": _with_partition(SCHEMA),
    "batches": _with_partition(BATCH_SCHEMA),
    "index": _entry_schema("entry", "offset", "position"),
    "timeindex": _entry_schema("entry", "timestamp", "offset"),
    "txnindex": _entry_schema(
        "version", "producer_id", "first_offset", "last_offset", "last_stable_offset"
    ),
}
"""The columns of each kind of rows that can be exported."""


class Exporter:
    """Writes record batches of one schema; a context manager, whose end completes the file.

    Args:
        file: where to write.
        form: `parquet` or `arrow`.
        kind: what the rows are, one of `SCHEMAS`.
        facts: metadata about the rows to store in the file, besides the schema.

    Cost:
        Two Parquet row groups of about 12 MB each, plus the compressed bytes of one.
    """

    def __init__(
        self, file: BinaryIO, form: str, kind: str, facts: dict[str, Any] | None = None
    ) -> None:
        self._schema = SCHEMAS[kind].with_metadata({"kafkalog": json.dumps(facts or {})})
        self._paths: list[str] = []
        self._waiting: list[Any] = []
        self._rows = self._size = self._groups = 0
        # One row group is encoded while the next is read.
        self._encoder = ThreadPoolExecutor(1, "kafkalog-export")
        self._encoding: Future[None] | None = None
        self._is_parquet = form == "parquet"
        if self._is_parquet:
            self._writer = parquet_writer(file, self._schema)
        else:
            options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
            self._writer = pa.ipc.new_file(file, self._schema, options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._flush()
                self._wait()
        finally:
            self._encoder.shutdown()
            self._writer.close()

    def write(self, batch: Any) -> None:
        """Write a record batch of the schema; of records and batches, without the partition."""
        batch = self._with_known_paths(batch)
        if not self._is_parquet:
            self._writer.write_batch(batch)
            return
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._size += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._size >= _GROUP_SIZE:
            self._flush()

    def write_entries(self, entries: Iterable[Any], path: str) -> int:
        """Write the entries of an index; return how many there were."""
        from itertools import islice

        names = self._schema.names[1:]
        rest, written = iter(entries), 0
        while some := list(islice(rest, _ENTRIES_AT_ONCE)):
            codes = pa.array(np.zeros(len(some), np.int32))
            paths = pa.DictionaryArray.from_arrays(codes, [text_of(path)])
            columns = (pa.array([getattr(entry, name) for entry in some], pa.int64())
                       for name in names)  # fmt: skip
            self.write(pa.RecordBatch.from_arrays([paths, *columns], schema=self._schema))
            written += len(some)
        return written

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._waiting, self._rows, self._size = [], 0, 0
            self._wait()
            self._encoding = self._encoder.submit(
                self._writer.write_table, table, row_group_size=2 * _GROUP_ROWS
            )

    def _wait(self) -> None:
        """Wait until the previous row group is written, and give its memory back at times.

        Each thread has free memory of its own, which grows with the number of row groups otherwise.
        """
        if self._encoding is not None:
            self._encoding.result()
            self._encoding = None
            self._groups += 1
            if self._groups % _GROUPS_KEPT == 0:
                pa.default_memory_pool().release_unused()

    def _with_known_paths(self, batch: Any) -> Any:
        """Return the batch with one growing path dictionary: an IPC file has only one."""
        column = batch.column(0)
        names = column.dictionary.to_pylist()
        # A scan's dictionary grows, and keeps its order: then the codes are right as they are.
        if names != self._paths[: len(names)]:
            self._paths += [name for name in names if name not in self._paths]
            codes = np.array([self._paths.index(name) for name in names], np.int32)
            indices = pa.array(codes[column.indices.to_numpy(zero_copy_only=False)])
        else:
            indices = column.indices
        column = pa.DictionaryArray.from_arrays(indices, pa.array(self._paths, pa.string()))
        columns = [column, *batch.columns[1:]]
        if "topic" in self._schema.names:
            columns[1:1] = _partition_columns(self._paths, indices)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _partition_columns(paths: Sequence[str], indices: Any) -> tuple[Any, Any]:
    codes = indices.to_numpy()
    # Nearly always: a record batch is of one log.
    if len(codes) and (codes == codes[0]).all():
        only = partition_around(paths[codes[0]])
        number = pa.scalar(only.partition, pa.int32())
        return pa.repeat(text_of(only.topic), len(codes)), pa.repeat(number, len(codes))
    found = [partition_around(path) for path in paths]
    topics = pa.array([text_of(one.topic) for one in found], pa.string())
    numbers = pa.array([one.partition for one in found], pa.int32())
    return topics.take(indices), numbers.take(indices)
