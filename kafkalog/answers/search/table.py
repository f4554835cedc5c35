"""Records that were found, as columns: those whose value does not decode, and a Parquet file."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa

from kafkalog.log.columns.arrow import SCHEMA, Paths, table_of, text_of
from kafkalog.log.columns.budget import SIZE_AT_ONCE, record_size
from kafkalog.model import Defect
from kafkalog.tables.arrow_files import parquet_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.answers.search.scanning import Found
    from kafkalog.model import Header

    Decode = Callable[[bytes, tuple[Header, ...]], tuple[Any, str | None]]


def undecodable(found: Iterator[Found | Defect], decode: Decode) -> Iterator[Found | Defect]:
    """Yield the records whose value does not decode, with the reason, and all defects.

    A null value decodes: it is a tombstone. `export` with the same schema leaves the same values
    null.

    Args:
        found: the records.
        decode: returns an array of one value, and why it does not decode; None for both if it has
            no schema, which is a reason, too.

    Raises:
        UnsupportedError: a package is missing.
    """
    for one in found:
        if isinstance(one, Defect):
            yield one
        elif one.record.value is not None:
            array, reason = decode(one.record.value, one.record.headers)
            if array is None and reason is None:
                reason = "no schema id"
            if reason is not None:
                yield replace(one, reason=reason)


FOUND_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32()),
        *SCHEMA,
        pa.field("transactional_id", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
"""The columns of a scan, with the partition of a record, who wrote it, why it does not decode."""

_ROWS_AT_ONCE: Final = 1 << 14


def write_columns(file: BinaryIO, form: str, found: Iterator[Found]) -> int:
    """Write records to a file of `parquet` or `arrow`, in bounded memory; return how many."""
    paths, rows = Paths([]), 0
    with _writer(file, form) as writer:
        while some := list(_some(found)):
            writer.write_batch(_table(some, paths))
            rows += len(some)
    return rows


def _writer(file: BinaryIO, form: str) -> Any:
    if form == "parquet":
        return parquet_writer(file, FOUND_SCHEMA)
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    return pa.ipc.new_file(file, FOUND_SCHEMA, options=options)


def _some(found: Iterator[Found]) -> Iterator[Found]:
    size = 0
    for one in islice(found, _ROWS_AT_ONCE):
        yield one
        size += record_size(one.record)
        if size >= SIZE_AT_ONCE:
            return


def _table(found: Sequence[Found], paths: Paths) -> Any:
    records = table_of([one.record for one in found], SCHEMA, paths)
    arrays = [
        pa.array([text_of(one.topic) for one in found], pa.string()),
        pa.array([one.partition for one in found], pa.int32()),
        *records.columns,
        pa.array([one.transactional_id for one in found], pa.string()),
        pa.array([one.reason for one in found], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=FOUND_SCHEMA)
