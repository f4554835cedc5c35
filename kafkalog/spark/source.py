"""The data source `kafkalog`: the tables of log directories as data frames, batch and stream.

Rows are Arrow record batches straight from the kernels; Spark plans, schedules and retries.
"""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkalog.errors import OffsetsMissingError, UsageError
from kafkalog.model import Severity
from kafkalog.paths import file_system
from kafkalog.spark.job import settle
from kafkalog.spark.offsets import bounds_of, key_of, planned, require_batch
from kafkalog.spark.options import Mode, parse_options, require_stream
from kafkalog.tables import read_split
from kafkalog.tables.moved import LOSS_HINT
from kafkalog.tables.reading import ROWS_AT_ONCE
from kafkalog.tables.schemas import table_schema
from kafkalog.tables.tailing import LossWarnings, Tail, refuse_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from kafkalog.model import Defect
    from kafkalog.spark.options import SourceOptions
    from kafkalog.tables import Split
    from kafkalog.tables.model import Offsets
    from kafkalog.tables.planning import Target
    from kafkalog.unified_log import UnifiedLog


_BATCH_SIZE: Final = 4 << 20
_SHARED_SIZE: Final = 1 << 20
"""Up to this size a split is read by several tasks, where these are to be many."""


class SplitPartition(InputPartition):
    """One task: some splits."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


def grouped(splits: Sequence[Split], size: int) -> list[SplitPartition]:
    """Group consecutive splits into tasks of limited size."""
    tasks: list[list[Split]] = []
    room = 0
    for split in splits:
        cost = max(split.size_bytes, size // 64)  # opening a file has a cost
        if not tasks or cost > room:
            tasks.append([])
            room = size
        tasks[-1].append(split)
        room -= cost
    return [SplitPartition(tuple(task)) for task in tasks]


def tasks_of(asked: SourceOptions, plan: Callable[[int], list[Split]]) -> list[SplitPartition]:
    """Group what is planned, by the size of splits, into tasks: at least as many as are wanted.

    Splits are cut where an index has an entry. What is small and yet too much for a task is cut
    between any two offsets: several tasks then read the same bytes.
    """
    size, wanted = asked.request.split_bytes, asked.tasks_min or 0
    splits = plan(size)
    tasks = grouped(splits, size)
    if splits and len(tasks) < wanted:
        size = max(sum(one.size_bytes for one in splits) // wanted, 1)
        splits = plan(size)
        tasks = grouped(splits, size)
    if splits and len(tasks) < wanted:
        tasks = [SplitPartition((one,)) for one in _cut(splits, wanted)]
    return tasks


def _cut(splits: Sequence[Split], wanted: int) -> Iterator[Split]:
    """Yield the same rows in so many splits, if there are as many offsets."""
    known = [_offsets_in(one) for one in splits]
    total = sum(len(one) for one in known)
    left = wanted
    for split, offsets in zip(splits, known, strict=True):
        count = min(len(offsets), max(round(left * len(offsets) / max(total, 1)), 1))
        total, left = total - len(offsets), left - max(count, 1)
        edges = [offsets.start + len(offsets) * n // count for n in range(1, count)]
        if split.size_bytes > _SHARED_SIZE or not edges:
            yield split
            continue
        for first, end in pairwise([split.from_offset, *edges, split.to_offset]):
            is_last = end == split.to_offset
            looks = split.looks_for_gap and is_last
            yield replace(split, from_offset=first, to_offset=end, looks_for_gap=looks)


def _offsets_in(split: Split) -> range:
    """Return the offsets that a split can have; none if that is unknown."""
    first, end = split.first_offset, split.next_offset
    if first is None or end is None:
        return range(0)
    low = first if split.from_offset is None else max(first, split.from_offset)
    return range(low, end if split.to_offset is None else min(end, split.to_offset))


def read_partition(partition: InputPartition, asked: SourceOptions, schema: Any) -> Iterator[Any]:
    """Yield the rows of one task, as record batches."""
    assert isinstance(partition, SplitPartition), "one of ours"
    settle(asked.paths)  # the splits carry only the paths of URIs
    batches = (
        batch
        for split in partition.splits
        for batch in read_split(split, schema, **hearers_of(asked, split))
    )
    gathered = _gathered(batches)
    at = schema.get_field_index("headers")
    if not asked.is_as_kafkas or at < 0:
        return gathered
    return map(partial(_without_empty, at), gathered)


def _without_empty(column: int, batch: Any) -> Any:
    """Return rows with null for no headers, as Spark's own Kafka source has them."""
    found = batch.column(column)
    if len(found.flatten()):
        found = pc.if_else(pc.equal(pc.list_value_length(found), 0), None, found)
    else:
        found = pa.nulls(len(found), found.type)
    return batch.set_column(column, batch.schema.field(column).with_nullable(True), found)


def hearers_of(asked: SourceOptions, split: Split) -> dict[str, Any]:
    """Return who hears of defects, losses, notes and gaps in a task."""

    def after(offset: int) -> None:
        from kafkalog.check.segments import missing_from

        found = missing_from(os.path.dirname(split.path), split.view, offset)
        _tell_missing(found, asked)

    return {
        "defects": _pass_over if asked.mode == Mode.PERMISSIVE else None,
        "losses": None if asked.fails_on_loss else _warn,
        "notes": _warn,
        "gaps": after,
    }


def _tell_missing(found: Iterable[Defect], asked: SourceOptions) -> None:
    """Judge what is missing between the segments of a log, as what was deleted unread."""
    for defect in found:
        if defect.severity == Severity.NOTE:
            continue
        if asked.fails_on_loss:
            raise OffsetsMissingError(
                defect.detail, path=defect.path, position=defect.position, hint=LOSS_HINT
            )
        _warn(defect)


def _gathered(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the same rows in fewer batches, because each batch costs Spark about a millisecond."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > ROWS_AT_ONCE or size + batch.nbytes > _BATCH_SIZE):
            yield pa.concat_batches(waiting)
            waiting.clear()
            rows = size = 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def _warn(loss: Defect) -> None:
    """Log what is lost, or taken from another copy, in the worker's log.

    Spark's Kafka source does so with failOnDataLoss=false.
    """
    warnings.warn(f"{loss.detail} [{loss.path}]", stacklevel=2)


def _pass_over(_: Defect) -> None:
    """Skip a defect: the table of defects reports it."""


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs; see `kafkalog.tables.tailing` for its offsets."""

    def __init__(self, asked: SourceOptions, schema: Any) -> None:
        self._asked = asked
        self._schema = schema
        losses = refuse_loss if asked.fails_on_loss else LossWarnings()
        self._tail = Tail(asked.paths, asked.request, losses=losses)
        self._target: Offsets | None = None
        self._waits_until = 0.0

    def initialOffset(self) -> Offsets:  # noqa: N802 # Spark's names
        """Return where the logs begin, or where the options say."""
        edges, isolation = self._asked.edges, self._asked.request.isolation
        if edges.start is None:
            return self._tail.beginning()
        edge, keys = edges.start, set()

        def offset_in(log: UnifiedLog) -> int:
            keys.add(key_of(log.partition))
            return edges.offset_in(edge, log, isolation)

        found = self._tail.beginning(offset_in)
        edge.require_known(keys)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit from `max…PerTrigger`, else the one from `minOffsetsPerTrigger`."""
        if self._asked.rows_per_trigger is not None:
            return ReadMaxRows(self._asked.rows_per_trigger)
        if self._asked.bytes_per_trigger is not None:
            return ReadMaxBytes(self._asked.bytes_per_trigger)
        least = self._asked.rows_min
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the stream at the present end of the logs."""
        self._target = self._tail.end()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return how far the next batch goes: nowhere while it waits for more."""
        if self._waits(start, limit):
            return start
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._tail.advance(start, self._target, size, count)

    def _waits(self, start: Offsets, limit: ReadLimit) -> bool:
        """Return whether there are too few new offsets, and `maxTriggerDelay` is not over.

        What ends at present does not wait; neither does the first batch.
        """
        least, now = self._asked.rows_min, time.monotonic()
        if least is None or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        if now < self._waits_until:
            end = self._tail.advance(start, None)
            if sum(end[key][0] - start.get(key, [0])[0] for key in end) < least:
                return True
        self._waits_until = now + self._asked.delay_s
        return False

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """Return where the logs ended at the last look, for the progress of the query."""
        return self._tail.seen_end

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return a batch's tasks; small segments share one, as a task costs more."""
        return tasks_of(self._asked, lambda size: self._tail.splits(start, end, size))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a task."""
        return read_partition(partition, self._asked, self._schema)


class KafkaLogDataSource(DataSource):
    """`spark.read.format("kafkalog")` and `spark.readStream.format("kafkalog")`.

    `docs/spark.md` has all options; those of Spark's own Kafka source have its names.
    A schema of the user's own chooses columns as well. Paths can be URIs of objects, `s3://…`, with
    options and credentials, which Spark shows as it shows all options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "kafkalog"

    def schema(self) -> StructType:
        """Return the columns of the table."""
        asked = parse_options(self.options)
        columns = table_schema(asked.request.table, asked.columns, text=asked.as_text)
        at = columns.get_field_index("headers") if asked.is_as_kafkas else -1
        if at >= 0:
            columns = columns.set(at, columns.field(at).with_nullable(True))
        return from_arrow_schema(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        asked = parse_options(self.options)
        require_batch(asked.edges)
        kind = FilteringReader if asked.pushes_filters else TableReader
        return kind(asked, _chosen(asked, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 # Spark's
        """Return the reader that follows the logs."""

        asked = parse_options(self.options)
        require_stream(asked)
        return TailReader(asked, _chosen(asked, schema))


class TableReader(DataSourceReader):
    """Reads a table, some splits per task."""

    def __init__(self, asked: SourceOptions, schema: Any) -> None:
        self._asked = asked
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks, at least one: given none, Spark would make an empty one."""
        asked = self._asked
        request = replace(asked.request, gaps_when_read=True)

        def plan(size: int) -> list[Split]:
            sized = replace(request, split_bytes=size)
            return planned(asked.paths, sized, asked.edges, self._missing)

        with file_system.listings_held(asked.paths):
            return tasks_of(asked, plan) or [SplitPartition(())]

    def _missing(self, target: Target) -> None:
        from kafkalog.check.segments import missing_offsets

        _tell_missing(missing_offsets(target.partition, target.segments), self._asked)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task."""
        return read_partition(partition, self._asked, self._schema)


class FilteringReader(TableReader):
    """A `TableReader` for sessions with `spark.sql.python.filterPushdown.enabled`.

    Without that setting Spark refuses readers that examine filters.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 # Spark's name
        """Narrow what is read; Spark applies all filters again."""
        request = self._asked.request
        bounds = bounds_of(filters, request.bounds)
        self._asked = replace(self._asked, request=replace(request, bounds=bounds))
        return filters


def _chosen(asked: SourceOptions, schema: StructType) -> Any:
    """Return the Arrow schema of the columns in the user's own schema; types must not change."""
    names = [field.name for field in schema.fields]
    own = from_arrow_schema(table_schema(asked.request.table, names, text=asked.as_text))
    for field, wanted in zip(schema.fields, own.fields, strict=True):
        kind, own_kind = field.dataType.simpleString(), wanted.dataType.simpleString()
        if kind != own_kind:
            raise UsageError(
                f"The column {wanted.name} is of type {own_kind}, not {kind}.",
                hint="The schema chooses columns; it cannot change their types.",
            )
    return to_arrow_schema(schema, timezone="UTC")
