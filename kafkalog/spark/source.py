"""The data source `kafkalog`: the tables of log directories as data frames, batch and stream.

Rows are Arrow record batches straight from the kernels; Spark plans, schedules and retries.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # public ways need a JVM
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kafkalog.errors import UsageError
from kafkalog.spark.offsets import bounds_of, key_of, require_batch, warn_of_left_out
from kafkalog.spark.options import parse_options, require_stream
from kafkalog.spark.plans import PLANS, note_request, tasks_in
from kafkalog.spark.reading import columns_of, read_task, tasks_of
from kafkalog.tables.schemas import table_schema
from kafkalog.tables.tailing import LossWarnings, Tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from kafkalog.node.unified_log import UnifiedLog
    from kafkalog.spark.options import SourceOptions
    from kafkalog.tables import Split
    from kafkalog.tables.model import Offsets


class SplitPartition(InputPartition):
    """One task: some splits."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs; see `kafkalog.tables.tailing` for its offsets."""

    def __init__(self, asked: SourceOptions, schema: Any) -> None:
        self._asked = asked
        self._schema = schema
        listener = None if asked.fails_on_loss else LossWarnings()
        self._tail = Tail(asked.paths, asked.request, listener)
        self._target: Offsets | None = None
        self._is_new = True
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
        if self._is_new:
            self._is_new = False
            warn_of_left_out(self._tail.ends())
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
            # A partition that is new counts from its beginning.
            if sum(end[key][0] - start.get(key, [0])[0] for key in end) < least:
                return True
        self._waits_until = now + self._asked.delay_s
        return False

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """Return where the logs ended at the last look, for the progress of the query."""
        return self._tail.seen_end

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return a batch's tasks; small segments share one, as a task costs more."""
        tasks = tasks_of(self._asked, lambda size: self._tail.splits(start, end, size))
        return [SplitPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a task."""
        assert isinstance(partition, SplitPartition), "one of ours"
        return read_task(partition.splits, self._asked, self._schema)


class KafkaLogDataSource(DataSource):
    """`spark.read.format("kafkalog")` and `spark.readStream.format("kafkalog")`.

    `docs/spark.md` has all options; those of Spark's own Kafka source have its names.
    A schema of the user's own chooses columns as well. Paths can be URIs of objects, `s3://…`, with
    options and credentials, which Spark shows as it shows all options.
    """

    plans: str | None = None
    """A directory in which plans may be found."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog"

    def schema(self) -> StructType:
        """Return the columns of the table."""
        return from_arrow_schema(columns_of(parse_options(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        asked = parse_options(self.options)
        require_batch(asked.edges)
        kind = FilteringReader if asked.pushes_filters else TableReader
        return kind(asked, _chosen(asked, schema), self.plans)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 # Spark's
        """Return the reader that follows the logs."""

        asked = parse_options(self.options, follows=True)
        require_stream(asked)
        return TailReader(asked, _chosen(asked, schema))


class PlannedDataSource(KafkaLogDataSource):
    """The tables for a query whose program has planned them; see `kafkalog.spark.plans`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({name: options[name] for name in options if name.lower() != PLANS})
        self.plans = options.get(PLANS)

    @classmethod
    def name(cls) -> str:
        return "kafkalog_planned"


class UnplannedDataSource(PlannedDataSource):
    """The tables without rows: from these Spark tells what a query uses of a table.

    Spark's optimizer plans a read as soon as a query has a filter.
    """

    @classmethod
    def name(cls) -> str:
        return "kafkalog_unplanned"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of nothing."""
        asked = parse_options(self.options)
        kind = _FilteringNoRows if asked.pushes_filters and self.plans is not None else _NoRows
        return kind(asked, schema, self.plans)


class TableReader(DataSourceReader):
    """Reads a table, some splits per task."""

    def __init__(self, asked: SourceOptions, schema: Any, plans: str | None = None) -> None:
        self._asked = asked
        self._schema = schema
        self._plans = plans

    def partitions(self) -> Sequence[InputPartition]:
        return [SplitPartition(task) for task in tasks_in(self._plans, self._asked)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of one task."""
        assert isinstance(partition, SplitPartition), "one of ours"
        return read_task(partition.splits, self._asked, self._schema)


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


class _NoRows(TableReader):
    def partitions(self) -> Sequence[InputPartition]:
        return []


class _FilteringNoRows(_NoRows, FilteringReader):
    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 # Spark's name
        assert self._plans is not None, "it is made only with them"
        left = super().pushFilters(filters)
        note_request(self._plans, self._asked.request)
        return left


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
