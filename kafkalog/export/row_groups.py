"""Record batches as tables of bounded size, cut at the same rows however the batches were cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


def row_groups(batches: Iterable[Any], rows_max: int, size_max: int) -> Iterator[Any]:
    """Tables of one chunk a column, of `pyarrow.RecordBatch`es of one schema.

    A table ends with the row that brings it to so many rows or bytes. It is copied: where batches
    end makes no difference to what is written of it.

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
    """One table of the batches, which nobody holds any more."""
    table = pa.Table.from_batches(waiting).combine_chunks()
    waiting.clear()
    return table


def _row_sizes(column: Any) -> NDArray[np.int64]:
    """Bytes of each row: of fixed width its width, of texts their bytes, of lists their items'."""
    kind = column.type
    if pa.types.is_struct(kind):
        parts = [_row_sizes(part) for part in column.flatten()]
        return np.sum(parts, axis=0, dtype=np.int64) if parts else np.zeros(len(column), np.int64)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        items = column.values if pa.types.is_list(kind) else pa.StructArray.from_arrays(
            [column.keys, column.items], ["key", "value"]
        )  # fmt: skip
        ends = np.concatenate(([0], np.cumsum(_row_sizes(items))))
        offsets = column.offsets.to_numpy()
        result: NDArray[np.int64] = ends[offsets[1:]] - ends[offsets[:-1]]
        return result
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, np.int64)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    return np.full(len(column), max(kind.bit_width // 8, 1), np.int64)
