"""The files of an export: Parquet, Arrow IPC, NDJSON or CSV."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from kafkalog.change.lake.model import BytesForm, Codec, FileFormat
from kafkalog.io.codecs import crc32c
from kafkalog.log.columns.json_values import json_values
from kafkalog.tables.arrow_files import parquet_writer, unique_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    from kafkalog.change.lake.model import Writing


def row_groups(batches: Iterable[Any], rows_max: int, size_max: int) -> Iterator[Any]:
    """Yield tables of one chunk per column, from `pyarrow.RecordBatch`es of one schema.

    A table ends with the row that reaches either limit. It is copied, so that the boundaries of the
    batches do not influence what is written.

    Cost:
        Twice the bytes of a table: `size_max`, and one row more.
    """
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        sizes = np.cumsum(_row_sizes(pa.StructArray.from_arrays(batch.columns, batch.schema.names)))
        start = taken = 0
        while start < batch.num_rows:
            end = int(np.searchsorted(sizes, size_max - size + taken)) + 1
            end = min(end, start + rows_max - rows, batch.num_rows)
            waiting.append(batch.slice(start, end - start))
            rows += end - start
            size += int(sizes[end - 1]) - taken
            start, taken = end, int(sizes[end - 1])
            if rows >= rows_max or size >= size_max:
                yield _taken(waiting)
                rows = size = 0
    if waiting:
        yield _taken(waiting)


def _taken(waiting: list[Any]) -> Any:
    table = pa.Table.from_batches(waiting).combine_chunks()
    waiting.clear()
    return table


_OF_BYTES: Final = (
    pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string,
)  # fmt: skip


# Of a text or a list, where it ends: nulls of many of these take room, too.
_OFFSET_SIZE: Final = 4


def _row_sizes(column: Any) -> NDArray[np.int64]:
    """Return the bytes of each row: fixed widths, bytes and places of texts, items of lists."""
    sizes = np.zeros(len(column), np.int64)
    width = _add_sizes(sizes, column)
    sizes += width
    return sizes


def _add_sizes(sizes: NDArray[np.int64], column: Any) -> int:
    """Add to the bytes of each row those that differ; return those that all rows have."""
    kind = column.type
    if pa.types.is_struct(kind):
        return sum(_add_sizes(sizes, part) for part in column.flatten())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        items = column.values if not pa.types.is_map(kind) else pa.StructArray.from_arrays(
            [column.keys, column.items], ["key", "value"]
        )  # fmt: skip
        ends = np.concatenate(([0], np.cumsum(_row_sizes(items))))
        offsets = column.offsets.to_numpy()
        sizes += ends[offsets[1:]] - ends[offsets[:-1]]
        return _OFFSET_SIZE
    if any(is_kind(kind) for is_kind in _OF_BYTES):
        lengths = pc.binary_length(column).fill_null(0)
        sizes += lengths.to_numpy(zero_copy_only=False)
        return _OFFSET_SIZE
    return 0 if pa.types.is_null(kind) else max(kind.bit_width // 8, 1)  # booleans have one bit


class CountedFile:
    """Passes bytes on to a file, and keeps their number and their CRC-32C."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size_bytes = 0
        self.crc32c = 0
        self.closed = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.crc32c = crc32c(view, self.crc32c)
        self.size_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self.size_bytes

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: the file belongs to the caller."""


@contextmanager
def table_writer(
    file: CountedFile, schema: Any, writing: Writing, first: Any = None
) -> Iterator[Callable[[Any], object]]:
    """Provide a function that writes a `pyarrow.Table`; the file ends with the block.

    Args:
        file: where to write.
        schema: the schema of the tables.
        writing: how they are written.
        first: the first of them, if it is known: columns whose values hardly repeat in it get no
            dictionary in Parquet.

    Cost:
        For Parquet and Arrow, the encoded bytes of one table; for text, its values as Python
        objects.
    """
    if writing.form == FileFormat.PARQUET:
        assert writing.codec is not None, "chosen when it was made"
        unique = () if first is None else tuple(unique_leaves(first))
        # It would keep the memory of a row group until the file ends.
        del first
        with parquet_writer(cast("BinaryIO", file), schema, writing.codec, unique=unique) as writer:
            yield lambda table: writer.write_table(table, row_group_size=writing.row_group_rows)
    elif writing.form == FileFormat.ARROW:
        compression = None if writing.codec == Codec.NONE else str(writing.codec)
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(file, schema, options=options) as writer:
            # New buffers, because unused bits and bytes are written, too.
            yield lambda table: writer.write_table(table.take(np.arange(len(table))))
    else:
        with _compressed(file, writing.codec) as sink:
            if writing.form == FileFormat.NDJSON:
                yield lambda table: sink.write(_ndjson(table, writing))
            else:
                # The types of the header are those after conversion to text.
                empty = _as_csv(schema.empty_table(), writing)
                with pa.csv.CSVWriter(sink, empty.schema) as writer:
                    yield lambda table: writer.write_table(_as_csv(table, writing))


@contextmanager
def _compressed(file: CountedFile, codec: Codec | None) -> Iterator[Any]:
    if codec in (None, Codec.NONE):
        yield file
        return
    with pa.CompressedOutputStream(pa.PythonFile(file, "w"), str(codec)) as stream:
        yield stream


def _ndjson(table: Any, writing: Writing) -> bytes:
    names = table.column_names
    columns = [
        json_values(table.column(name).combine_chunks(), _form_of(name, writing)) for name in names
    ]
    rows = zip(*columns, strict=True)
    lines = [json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows]
    return "".join(f"{line}\n" for line in lines).encode()


def _form_of(name: str, writing: Writing) -> BytesForm:
    return writing.key_form if name == "key" else writing.value_form


def _as_csv(table: Any, writing: Writing) -> Any:
    """Convert bytes and times to text, and nested values to JSON."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind, form = column.type, _form_of(name, writing)
        if pa.types.is_nested(kind):
            values = json_values(column.combine_chunks(), form)
            texts = [None if value is None else json.dumps(value, ensure_ascii=False)
                     for value in values]  # fmt: skip
            columns.append(pa.array(texts, pa.string()))
        elif pa.types.is_binary(kind) or pa.types.is_timestamp(kind):
            columns.append(pa.array(json_values(column.combine_chunks(), form), pa.string()))
        else:
            columns.append(column)
    return pa.table(columns, names=table.column_names)


def as_text(name: str) -> str:
    """Return a name as readers of the directory see it, with invalid UTF-8 replaced."""
    return os.fsencode(name).decode("utf-8", "replace")
