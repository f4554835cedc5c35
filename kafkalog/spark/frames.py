"""The tables as data frames without the API of data sources: `mapInArrow`, from Spark 3.5 on."""

from __future__ import annotations

import json
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # public ways need a JVM

from kafkalog.spark.engine import spread
from kafkalog.spark.options import parse_options
from kafkalog.spark.reading import batch_tasks, columns_of, read_task
from kafkalog.tables import Split

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kafkalog.spark.options import SourceOptions


def read_frame(session: SparkSession, *paths: str, **options: str) -> DataFrame:
    """Return a table as a data frame, which is planned now.

    Spark cannot tell what of it a query needs: name the columns that you need, and the rows by the
    options.

    Args:
        session: the Spark session.
        paths: log directories, partition directories or logs, if the option `paths` is not given.
        options: those of the data source for batches.

    Raises:
        UsageError: an option is wrong; else as `plan_splits`.
    """
    if paths:
        options["paths"] = json.dumps(list(paths))
    asked = parse_options(options)
    schema = from_arrow_schema(columns_of(asked))
    tasks = [json.dumps([split.as_json() for split in task]) for task in batch_tasks(asked)]
    rows = [(number, 0, task) for number, task in enumerate(tasks)]
    return spread(session, rows).mapInArrow(_Reading(asked, schema), schema)


class _Reading:
    """Reads the splits of tasks."""

    def __init__(self, asked: SourceOptions, schema: StructType) -> None:
        self._asked = asked
        self._schema = schema

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        schema = _arrow_of(self._schema)
        for batch in batches:
            for row in batch.to_pylist():
                splits = [Split.from_json(one) for one in json.loads(row["task"])]
                for found in read_task(splits, self._asked, schema):
                    yield pa.RecordBatch.from_arrays(found.columns, schema=schema)


def _arrow_of(schema: StructType) -> Any:
    """Return the schema that Spark expects for one of its own."""
    # Older Sparks do not have this parameter.
    zone: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    )
    return to_arrow_schema(schema, **zone)
