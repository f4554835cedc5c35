"""Reads whole logs as Arrow record batches, decoded by the kernels if that is faster."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from formats.late_classes import one_line
from kafkalog.errors import UsageError
from kafkalog.io.jit import fast_path
from kafkalog.io.paths import file_system
from kafkalog.log.batches.selection import EVERYTHING, ReadPlan, Selection
from kafkalog.log.columns.budget import SIZE_AT_ONCE, Turnstile, logs_to_decode, record_size
from kafkalog.log.defects import raise_defect
from kafkalog.model import Defect, Record
from kafkalog.node.reader import plan_reading, read_batches, read_records, untold_differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.log.columns.scan_steps import Part
    from kafkalog.node.reader import Readable


def scan(
    path: Readable,
    *,
    columns: Sequence[str] | None = None,
    selection: Selection = EVERYTHING,
    batches: bool = False,
    batch_rows: int = 65536,
    threads: int | None = None,
    defects: Callable[[Defect], object] | None = None,
    progress: Callable[[int], None] | None = None,
    turnstile: Turnstile | None = None,
) -> Iterator[Any]:
    """Yield the records of a partition directory or a log file as `pyarrow.RecordBatch`es.

    The same records as from `read_records`, in the same order; damage is reported to `defects`.

    Args:
        path: what to read; a plan of `plan_reading` already says which records.
        columns: names of the columns to build, in their order; all of them if None.
        selection: which records, in which view; offsets, times, producers and epochs are looked up
            in the indexes and the batch headers first.
        batches: read the batches of the log, as `read_batches` does, rather than its records.
        batch_rows: maximum number of rows per record batch.
        threads: number of decoding threads; None for one per processor, up to 8.
        defects: called with each defect, in order.
        progress: called with the number of bytes read since the last call.
        turnstile: scans that share it hold large batches one after another.

    Raises:
        UnsupportedError: pyarrow is missing.
        UsageError: a column is unknown.
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.

    Cost:
        About 20 MB per thread and what is decompressed at a time, however large the log is.
    """
    fast_path.require_arrow()
    from kafkalog.log.columns.arrow import BATCH_SCHEMA, SCHEMA, schema_of

    if batch_rows < 1 or (threads is not None and threads < 1):
        raise UsageError("Threads and rows of a record batch must be at least 1.")
    schema = schema_of(columns, BATCH_SCHEMA if batches else SCHEMA)
    plan = plan_reading(path, selection)
    told = defects or (lambda _: None)
    done = progress or (lambda _: None)
    for difference in untold_differences(path, plan):
        told(difference)
    if not fast_path.is_worth_it(_plan_size(plan, decoded=not batches)):
        read = read_batches if batches else read_records
        return _by_reference(read(plan, progress=done), plan, schema, batch_rows, told)
    from kafkalog.log.columns.arrow import Columns
    from kafkalog.log.columns.pipeline import scan_parts
    from kafkalog.log.columns.scan_steps import BatchWork, RecordWork

    form = Columns(schema, batch_rows, _paths(plan))
    work = BatchWork(plan, form) if batches else RecordWork(plan, form)
    return _told(scan_parts(plan, work, done, threads, turnstile), told)


def count_records(
    plan: ReadPlan,
    *,
    threads: int | None = None,
    defects: Callable[[Defect], object],
    turnstile: Turnstile | None = None,
) -> Iterator[int]:
    """Yield the number of wanted records, piece by piece; defects are reported as by `scan`.

    A large log is counted by the headers of its batches, whose checksums are compared: records are
    decoded only where a bound of the selection can cut a batch. A batch whose checksum is right
    and whose records cannot be decoded counts as its header says.
    """
    if not fast_path.is_worth_it(_plan_size(plan, decoded=True)):
        for found in read_records(plan):
            if isinstance(found, Defect):
                defects(found)
            else:
                yield 1
        return
    from kafkalog.log.columns.counting import Counts, CountWork
    from kafkalog.log.columns.pipeline import scan_parts

    parts = scan_parts(plan, CountWork(plan, Counts()), lambda _: None, threads, turnstile)
    yield from _told(parts, defects)


def _plan_size(plan: ReadPlan, *, decoded: bool) -> int:
    """Return how much there is to read; for a small log to be decoded, when it is decompressed."""
    size = sum(segment.log.size_bytes for segment in plan.segments)
    if decoded and size < fast_path.FAST_SIZE_MIN:
        return logs_to_decode(segment.log.path for segment in plan.segments)
    return size


def _told(parts: Iterator[Part], defects: Callable[[Defect], object]) -> Iterator[Any]:
    for part in parts:
        for event in part.events:
            defects(event.defect)
        if part.rows:
            yield part.content


def _by_reference(
    found: Iterator[Any],
    plan: ReadPlan,
    schema: Any,
    batch_rows: int,
    defects: Callable[[Defect], object],
) -> Iterator[Any]:
    """Yield all rows by the reference decoder: a small log is not worth loading the kernels."""
    from kafkalog.log.columns.arrow import Paths, table_of

    paths = Paths(_paths(plan))
    rows: list[Any] = []
    size = 0
    for value in found:
        if isinstance(value, Defect):
            defects(value)
            continue
        rows.append(value)
        size += record_size(value) if isinstance(value, Record) else 0
        if len(rows) == batch_rows or size >= SIZE_AT_ONCE:
            yield table_of(rows, schema, paths)
            rows, size = [], 0
    if rows:
        yield table_of(rows, schema, paths)


def _paths(plan: ReadPlan) -> list[str]:
    return [segment.log.path for segment in plan.segments]


class Scan:
    """Rows of one log as Arrow columns: read on demand, and again each time.

    DuckDB, Polars, pandas and anything else that speaks Arrow's C stream protocol reads from it
    directly.

    Args:
        path: what to read.
        columns: names of the columns to build, in their order; None for all of them.
        selection: which rows.
        batches: read the batches of the log rather than its records.
        batch_rows: maximum number of rows per record batch.
        threads: number of decoding threads; None for one per processor, up to 8.
        on_event: called with each defect, in order; by default the first grave one is raised.

    Attributes:
        schema: the `pyarrow.Schema` of the columns.

    Raises:
        UnsupportedError: pyarrow is missing.
        UsageError: a column is unknown.
    """

    def __init__(
        self,
        path: Readable,
        *,
        columns: Sequence[str] | None = None,
        selection: Selection = EVERYTHING,
        batches: bool = False,
        batch_rows: int = 65536,
        threads: int | None = None,
        on_event: Callable[[Defect], object] | None = None,
    ) -> None:
        fast_path.require_arrow()
        from kafkalog.log.columns.arrow import BATCH_SCHEMA, SCHEMA, schema_of

        self.schema: Any = schema_of(columns, BATCH_SCHEMA if batches else SCHEMA)
        self._scan = partial(
            scan,
            path,
            selection=selection,
            batches=batches,
            batch_rows=batch_rows,
            threads=threads,
            defects=on_event or raise_defect,
        )
        self._path = path
        self._offset = "base_offset" if batches else "offset"

    def __repr__(self) -> str:
        path = self._path
        path = path if isinstance(path, str | os.PathLike) else getattr(path, "path", "")
        name = os.path.basename(file_system.absolute(os.fspath(path)))
        rows = "batches" if self._offset == "base_offset" else "records"
        return one_line("Scan", f"{name}, {rows}, {' '.join(self.schema.names)}")

    def to_batches(self) -> Iterator[Any]:
        """Yield the rows as `pyarrow.RecordBatch`es, in bounded memory. Raises as `Log.records`."""
        return self._scan(columns=self.schema.names)

    def to_table(self) -> Any:
        """Return all rows as one `pyarrow.Table` in memory. Raises as `Log.records`."""
        import pyarrow as pa

        return pa.Table.from_batches(self.to_batches(), self.schema)

    def to_reader(self) -> Any:
        """Return the rows as a `pyarrow.RecordBatchReader`, in bounded memory.

        It can be read once. An error during the read reaches the reading program as an error of the
        stream.
        """
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def count_rows(self) -> int:
        """Return the number of rows. Raises as `Log.records`."""
        # A column that is there in any case: without one, Arrow would have no rows to count.
        return sum(batch.num_rows for batch in self._scan(columns=[self._offset]))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)
