"""Tasks of the data source: splits, small ones together."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from kafkalog.spark.options import Mode
from kafkalog.spark.worker import settle
from kafkalog.tables import read_split
from kafkalog.tables.reading import ROWS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.model import Defect
    from kafkalog.spark.options import SourceOptions
    from kafkalog.tables import Split

_BATCH_SIZE: Final = 4 << 20


class SplitPartition(InputPartition):
    """One task: some splits."""

    def __init__(self, splits: tuple[Split, ...]) -> None:
        super().__init__(splits)
        self.splits = splits


def grouped(splits: Sequence[Split], size: int) -> list[SplitPartition]:
    """Splits as tasks: neighbours together as long as they are not larger than one may be."""
    tasks: list[list[Split]] = []
    room = 0
    for split in splits:
        cost = max(split.size_bytes, size // 64)  # to open a file is not for nothing
        if not tasks or cost > room:
            tasks.append([])
            room = size
        tasks[-1].append(split)
        room -= cost
    return [SplitPartition(tuple(task)) for task in tasks]


def read_partition(partition: InputPartition, asked: SourceOptions, schema: Any) -> Iterator[Any]:
    """The rows of one task, as record batches."""
    assert isinstance(partition, SplitPartition), "one of ours"
    settle(asked.paths)  # what is in a URI beside the path is not in the splits
    defects = _pass_over if asked.mode == Mode.PERMISSIVE else None
    losses = None if asked.fails_on_loss else _warn
    batches = (
        batch
        for split in partition.splits
        for batch in read_split(split, schema, defects=defects, losses=losses)
    )
    return _gathered(batches)


def _gathered(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows in fewer record batches, each of which costs Spark about a millisecond."""
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
    """As Spark's own Kafka source does with failOnDataLoss=false: the worker's log has it."""
    warnings.warn(f"{loss.detail} [{loss.path}]", stacklevel=2)


def _pass_over(_: Defect) -> None:
    """The table of defects tells it."""
