"""The engine on Spark: a data frame with a row a task, and `mapInArrow`.

One task of Spark's for each of ours, so that Spark schedules and retries them one by one. The same
code runs on local[*], on a cluster and over Spark Connect.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.engine.errors import of_task, told, told_error
from kafkalog.spark.gathering import gather
from kafkalog.spark.job import is_remote, run_job
from kafkalog.spark.worker import Called

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kafkalog.engine.model import Gathering, PieceWork, Task, Work

_RESULT = "number long, result string, error string"


class SparkEngine:
    """Runs tasks with a session of Spark.

    Args:
        session: stays open; whoever made it ends it.
        workers: how many tasks run at the same time.
    """

    def __init__(self, session: SparkSession, workers: int) -> None:
        self.session = session
        self.workers = workers

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """As `Engine.run`; all results are there at once, in the order of the tasks.

        Raises:
            KafkaLogError: what `work` raised for the first of the tasks for which it raised.
            EngineError: Spark could not do the work.

        Cost:
            The driver holds all results, which `spark.driver.maxResultSize` bounds.
        """
        if not tasks:
            return
        called = Called.of(work)
        rows = [(number, json.dumps(task)) for number, task in enumerate(tasks)]
        so_far = 0

        def tell(count: int) -> None:
            nonlocal so_far
            if done is not None:
                done(count - so_far)
                so_far = count

        def collect() -> list[Any]:
            frame = self.session.createDataFrame(rows, "number long, task string")
            frame = frame.repartitionById(len(rows), frame.number.cast("int"))
            return frame.mapInArrow(_Runner(called), _RESULT).collect()

        ended = sorted(run_job(self.session, collect, tell), key=lambda row: row.number)
        tell(len(ended))
        for row in ended:
            if row.error is not None:
                raise told_error(json.loads(row.error))
        for row in ended:
            yield row.number, json.loads(row.result)

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        """As `Engine.stream`; see `kafkalog.spark.gathering.gather`."""
        return gather(self.session, work, tasks, piece_work, done)


def parallelism_of(session: SparkSession) -> int:
    """How many tasks the session runs at the same time, as far as it knows."""
    if not is_remote(session):
        return session.sparkContext.defaultParallelism
    # A range has a partition for each task that can run.
    partition = session.range(1 << 16).selectExpr("spark_partition_id() AS number")
    [last] = run_job(session, partition.agg({"number": "max"}).collect)
    return 1 + int(last[0])


class _Runner:
    """Runs tasks in a worker of Spark's; errors of ours come back as rows: they are not retried."""

    def __init__(self, called: Called) -> None:
        self._called = called

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        work = self._called.load()
        for batch in batches:
            for row in batch.to_pylist():
                result = error = None
                try:
                    result = json.dumps(work(json.loads(row["task"])))
                except Exception as raised:  # noqa: BLE001 # Spark would run the task again
                    error = json.dumps(told(of_task(raised)))
                yield pa.RecordBatch.from_pydict(
                    {"number": [row["number"]], "result": [result], "error": [error]},
                    schema=pa.schema(
                        [("number", pa.int64()), ("result", pa.string()), ("error", pa.string())]
                    ),
                )
