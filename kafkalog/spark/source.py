"""The data source `kafkalog`: the tables of log directories as data frames, batch and stream.

Rows come as Arrow record batches straight from the kernels: Spark plans, schedules and retries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from kafkalog.errors import UsageError
from kafkalog.spark.filters import bounds_of
from kafkalog.spark.options import parse_options, require_batch, require_stream
from kafkalog.spark.partitions import SplitPartition, grouped, read_partition
from kafkalog.tables import plan_splits
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from kafkalog.spark.options import SourceOptions


class KafkaLogDataSource(DataSource):
    """`spark.read.format("kafkalog")` and `spark.readStream.format("kafkalog")`.

    Options: `table`, `columns`, `subscribe`, `isolation`, `view`, `decode`, `mode`, `replicas`,
    `internal`, `splitBytes`, `filterPushdown`, `maxTimestampDisorderMs`, `startingTimestamp`,
    `endingTimestamp`, `failOnDataLoss`, and of streams `maxBytesPerTrigger` and `startingOffsets`.
    A schema of the user's own chooses columns as well. Paths can be URIs of objects, `s3://…`, with
    options and credentials, which Spark shows as it shows all options.
    """

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kafkalog"

    def schema(self) -> StructType:
        """The columns of the table."""
        asked = parse_options(self.options)
        columns = table_schema(asked.request.table, asked.columns, text=asked.as_text)
        return from_arrow_schema(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What reads a batch."""
        asked = parse_options(self.options)
        require_batch(asked)
        kind = FilteringReader if asked.pushes_filters else TableReader
        return kind(asked, _chosen(asked, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 # Spark's
        """What follows the logs."""
        from kafkalog.spark.stream import TailReader

        asked = parse_options(self.options)
        require_stream(asked)
        return TailReader(asked, _chosen(asked, schema))


class TableReader(DataSourceReader):
    """Reads a table, some splits a task."""

    def __init__(self, asked: SourceOptions, schema: Any) -> None:
        self._asked = asked
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks. Of no task at all Spark would make one with nothing in it."""
        request = self._asked.request
        splits = plan_splits(self._asked.paths, request)
        return grouped(splits, request.split_bytes) or [SplitPartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task."""
        return read_partition(partition, self._asked, self._schema)


class FilteringReader(TableReader):
    """The same for sessions with `spark.sql.python.filterPushdown.enabled`.

    Without that setting Spark refuses readers that look at filters.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 # Spark's name
        """Narrow what is read; Spark applies all filters again."""
        request = self._asked.request
        bounds = bounds_of(filters, request.bounds)
        self._asked = replace(self._asked, request=replace(request, bounds=bounds))
        return filters


def _chosen(asked: SourceOptions, schema: StructType) -> Any:
    """The Arrow schema of the columns that the user's own schema has; their types stay."""
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
