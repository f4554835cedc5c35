"""The data source as a stream: logs are followed as they grow, and nothing is read twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from kafkalog.spark.partitions import grouped, read_partition
from kafkalog.tables.tailing import Offsets, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from kafkalog.spark.options import SourceOptions


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs; see `kafkalog.tables.tailing` for its offsets."""

    def __init__(self, asked: SourceOptions, schema: Any) -> None:
        self._asked = asked
        self._schema = schema
        self._tail = Tail(asked.paths, asked.request, fails_on_loss=asked.fails_on_loss)
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 # Spark's names
        """Where the logs begin, or where they end now."""
        return self._tail.end(is_first=True) if self._asked.from_latest else self._tail.beginning()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What `maxBytesPerTrigger` says."""
        size = self._asked.bytes_per_trigger
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all there is."""
        self._target = self._tail.end()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """How far the next batch goes."""
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return self._tail.advance(start, self._target, size)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The tasks of a batch; small segments together, as each task costs more than they do."""
        return grouped(self._tail.splits(start, end), self._asked.request.split_bytes)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task."""
        return read_partition(partition, self._asked, self._schema)
