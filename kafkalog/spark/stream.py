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

from kafkalog.spark.partitions import SplitPartition, read_partition
from kafkalog.tables.tailing import Tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from kafkalog.spark.options import SourceOptions


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs; its offsets are the next offset of each partition directory."""

    def __init__(self, asked: SourceOptions, schema: Any) -> None:
        self._asked = asked
        self._schema = schema
        self._tail = Tail(asked.paths, asked.request, fails_on_loss=asked.fails_on_loss)
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 # Spark's names
        """Where the logs begin, or where they end now."""
        return self._tail.end() if self._asked.from_latest else self._tail.beginning()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What `maxBytesPerTrigger` says."""
        size = self._asked.bytes_per_trigger
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all there is."""
        self._target = self._tail.end()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """How far the next batch goes."""
        end = self._tail.end() if self._target is None else self._target
        if isinstance(limit, ReadMaxBytes):
            return self._tail.advance(start, end, limit.max_bytes)
        return {**start, **end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        return [SplitPartition((split,)) for split in self._tail.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task."""
        return read_partition(partition, self._asked, self._schema)
