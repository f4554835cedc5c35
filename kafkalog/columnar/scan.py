"""Whole logs as Arrow record batches, by way of the kernels where that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.columnar import rule
from kafkalog.columnar.rule import default_threads, require_arrow
from kafkalog.errors import UsageError
from kafkalog.reader import EVERYTHING, plan_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.log_dir import FileEntry, PartitionDir
    from kafkalog.model import Defect
    from kafkalog.reader import Selection


def scan(
    path: str | Path | PartitionDir | FileEntry,
    *,
    columns: list[str] | tuple[str, ...] | None = None,
    selection: Selection = EVERYTHING,
    batch_rows: int = 65536,
    threads: int | None = None,
    defects: Callable[[Defect], object] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Any]:
    """The records of a partition directory or a log file as `pyarrow.RecordBatch`es.

    The same records as `read_records` gives, in the same order, with the damage told to `defects`.

    Args:
        path: what to read.
        columns: names of the columns to build, of `kafkalog.scan_schema()`; all where None.
        selection: which records; offsets, times, producers and epochs are looked up in the indexes
            and the batch headers first.
        batch_rows: how many rows a record batch has at most.
        threads: how many decode; as many as there are processors, up to 8, where None.
        defects: is called with each defect, in order.
        progress: is called with numbers of bytes as they are read.

    Raises:
        UnsupportedError: pyarrow is missing.
        UsageError: there is no such column.
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.

    Cost:
        Some 20 MB a thread and what is decompressed at a time, however large the log is.
    """
    require_arrow()
    from kafkalog.columnar.arrow import schema_of
    from kafkalog.columnar.pipeline import Request, by_kernels, by_reference, limited

    if batch_rows < 1 or (threads is not None and threads < 1):
        raise UsageError("Neither threads nor rows of a record batch can be fewer than 1.")
    request = Request(
        plan_reading(path, selection),
        selection,
        schema_of(columns),
        batch_rows,
        defects or (lambda _: None),
        progress or (lambda _: None),
    )
    if not rule.is_worth_it(sum(segment.log.size_bytes for segment in request.plan.segments)):
        return limited(by_reference(path, request), request)
    return limited(by_kernels(request, threads or default_threads()), request)


def to_table(path: str | Path | PartitionDir | FileEntry, **options: Any) -> Any:
    """All that `scan` gives, with the same options, as one `pyarrow.Table` in memory."""
    require_arrow()
    import pyarrow as pa

    from kafkalog.columnar.arrow import schema_of

    batches = list(scan(path, **options))
    return pa.Table.from_batches(batches, schema_of(options.get("columns")))


def scan_schema() -> Any:
    """The `pyarrow.Schema` of all columns that `scan` knows."""
    require_arrow()
    from kafkalog.columnar.arrow import schema_of

    return schema_of(None)
