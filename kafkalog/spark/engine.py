"""The engine on Spark: a data frame with a row per task; large results are shuffled.

Pieces are the first stage. Their output goes, by task number, to the second stage, the tasks. The
output of the tasks stays where they ran until the driver fetches it, in order.

Each of our tasks is one Spark task, so that Spark schedules and retries them one by one. The same
code runs on local[*], on a cluster and over Spark Connect.
"""

from __future__ import annotations

import itertools
import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.io.engine import Gathering, PieceWork, Task, Work, of_task, told, told_error
from kafkalog.spark.job import Called, errors_as_ours, is_remote, run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession


_ROWS: Final = "number long, piece long, row long, data binary, error string"
_SCHEMA: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("piece", pa.int64()),
        ("row", pa.int64()),
        ("data", pa.binary()),
        ("error", pa.string()),
    ]
)
_ORDER: Final = ("number", "piece", "row")
_TASKS_AT_ONCE: Final = 16
_BITS: Final = (1 << 32) - 1


def gather(
    session: SparkSession,
    work: Gathering,
    tasks: Sequence[Task],
    piece_work: PieceWork,
    done: Callable[[int], None] | None = None,
) -> Generator[bytes, None, None]:
    """Do what `Engine.stream` does.

    Cost:
        The driver fetches the output of 16 tasks at once and holds twice that, which
        `spark.driver.maxResultSize` bounds. A worker holds what its task holds, and an Arrow batch
        of the pieces' output; Spark sorts that on the workers' disks if it does not fit.
    """
    numbered = list(enumerate(tasks))
    frames = []
    if whole := [(n, task) for n, task in numbered if not task.get("pieces")]:
        rows = [(n, 0, json.dumps(task)) for n, task in whole]
        frames.append(spread(session, rows).mapInArrow(_Whole(Called.of(work)), _ROWS))
    if cut := [(n, task) for n, task in numbered if task.get("pieces")]:
        rows = [(n, i, json.dumps(p)) for n, task in cut for i, p in enumerate(task["pieces"])]
        bare = {n: json.dumps({**task, "pieces": []}) for n, task in cut}
        made = spread(session, rows).mapInArrow(_Piece(Called.of(piece_work)), _ROWS)
        # Each task of ours gets a partition of its own, and its rows in order.
        ordered = by_id(made, len(cut), made.number.cast("int")).sortWithinPartitions(*_ORDER)
        frames.append(ordered.mapInArrow(_Gathered(Called.of(work), bare), _ROWS))
    if not frames:
        return
    frame = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    for row in _taken(session, frame, len(tasks), done):
        if row.error is not None:
            raise told_error(json.loads(row.error))
        if row.data is not None:
            yield bytes(row.data)


def _taken(
    session: SparkSession, frame: DataFrame, count: int, done: Callable[[int], None] | None
) -> Iterator[Any]:
    """Yield the rows of tasks in order, a few tasks at once; the first means that all are done."""
    tell = _counting(count, done)
    if count <= _TASKS_AT_ONCE:
        collected = run_job(session, frame.collect, tell)
        tell(count)
        yield from sorted(collected, key=itemgetter(*_ORDER))
        return
    portion = (frame.number / _TASKS_AT_ONCE).cast("int")
    frame = by_id(frame, -(-count // _TASKS_AT_ONCE), portion)
    frame = frame.sortWithinPartitions(*_ORDER)

    def first() -> tuple[Iterator[Any], Any]:
        rows = frame.toLocalIterator(prefetchPartitions=True)
        return rows, next(rows, None)

    rows, row = run_job(session, first, tell)
    tell(count)
    while row is not None:
        yield row
        with errors_as_ours():
            row = next(rows, None)


def _counting(count: int, done: Callable[[int], None] | None) -> Callable[[int], None]:
    """Turn a callback for increments into one for totals, up to `count`."""
    so_far = 0

    def tell(tasks_done: int) -> None:
        nonlocal so_far
        if done is not None and so_far < min(tasks_done, count):
            done(min(tasks_done, count) - so_far)
            so_far = min(tasks_done, count)

    return tell


def by_id(frame: DataFrame, count: int, number: Column) -> DataFrame:
    """Spread rows over `count` partitions: each goes to its number modulo the count.

    Before Spark 4.1 rows can only be spread by a hash: by that of a number whose hash fits.
    """
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(count, number)
    from pyspark.sql import functions

    fitting = functions.array(*map(functions.lit, fitting_numbers(count)))
    return frame.repartition(count, functions.get(fitting, number % count))


def fitting_numbers(count: int) -> list[int]:
    """Return, for each of `count` partitions, a number that Spark's hash sends there."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        found.setdefault(_hash(number) % count, number)
        number += 1
    return [found[place] for place in range(count)]


def _hash(number: int) -> int:
    """Return Spark's hash of an int from 0 on: Murmur3 of 32 bits with the seed 42."""
    mixed = number * 0xCC9E2D51 & _BITS
    mixed = _turned(mixed, 15) * 0x1B873593 & _BITS
    mixed = (_turned(42 ^ mixed, 13) * 5 + 0xE6546B64) & _BITS
    mixed ^= 4  # its length in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _BITS
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _BITS
    mixed ^= mixed >> 16
    return mixed - ((mixed & 1 << 31) << 1)


def _turned(bits: int, count: int) -> int:
    return (bits << count | bits >> 32 - count) & _BITS


def spread(session: SparkSession, rows: Sequence[tuple[int, int, str]]) -> DataFrame:
    """Return one row per partition, so that Spark schedules each separately."""
    numbered = [(i, *row) for i, row in enumerate(rows)]
    frame = session.createDataFrame(numbered, "id int, number long, piece long, task string")
    return by_id(frame, len(rows), frame.id)


def _row(number: int, piece: int, row: int, data: bytes | None, error: str | None) -> Any:
    columns = {"number": number, "piece": piece, "row": row, "data": data, "error": error}
    return pa.RecordBatch.from_pydict({n: [v] for n, v in columns.items()}, schema=_SCHEMA)


def _rows_of(number: int, piece: int, made: Iterable[bytes]) -> Iterator[Any]:
    """Yield a row per result; errors become rows, because Spark would run the task again."""
    count = -1
    try:
        for count, data in enumerate(made):
            yield _row(number, piece, count, data, None)
    except Exception as error:  # noqa: BLE001 # any
        yield _row(number, piece, count + 1, None, json.dumps(told(of_task(error))))


class _Tasks:
    """Runs tasks in a worker of Spark's."""

    def __init__(self, called: Called) -> None:
        self._called = called

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        work = self._called.load()
        for row in itertools.chain.from_iterable(batch.to_pylist() for batch in batches):
            yield from self._rows(work, row["number"], row["piece"], json.loads(row["task"]))

    def _rows(self, work: Callable[..., Any], number: int, piece: int, task: Task) -> Iterator[Any]:
        """Yield the rows of a task that has one result."""
        results = (json.dumps(work(one)).encode() for one in (task,))
        yield from _rows_of(number, piece, results)


class _Whole(_Tasks):
    """Runs tasks that have no pieces."""

    def _rows(self, work: Callable[..., Any], number: int, piece: int, task: Task) -> Iterator[Any]:
        yield from _rows_of(number, piece, work(task, iter(())))


class _Piece(_Tasks):
    """Runs pieces; one without output also yields a row, so that its task is done."""

    def _rows(self, work: Callable[..., Any], number: int, piece: int, task: Task) -> Iterator[Any]:
        yield _row(number, piece, -1, None, None)
        yield from _rows_of(number, piece, work(task))


class _Gathered:
    """Runs tasks whose pieces are done."""

    def __init__(self, called: Called, tasks: dict[int, str]) -> None:
        self._called = called
        self._tasks = tasks

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        work = self._called.load()
        for number, rows in itertools.groupby(_each(batches), key=itemgetter("number")):
            task = json.loads(self._tasks[number])
            yield from _rows_of(number, 0, work(task, _data(rows)))


def _each(batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        # One at a time: rows are large, and `to_pylist` copies them.
        for i in range(batch.num_rows):
            yield from batch.slice(i, 1).to_pylist()


def _data(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for row in rows:
        if row["error"] is not None:
            raise told_error(json.loads(row["error"]))
        if row["data"] is not None:
            yield row["data"]


class SparkEngine:
    """Runs tasks with a session of Spark.

    Args:
        session: stays open; its creator ends it.
        workers: number of tasks that run at the same time; None for what the session has room for.
    """

    is_here = False

    def __init__(self, session: SparkSession, workers: int | None = None) -> None:
        self.session = session
        self.workers = _parallelism_of(session) if workers is None else workers

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Do what `Engine.run` does; all results arrive at once, in the order of the tasks.

        Raises:
            KafkaLogError: the error of the first task that failed.
            EngineError: Spark could not do the work.

        Cost:
            The driver holds all results, which `spark.driver.maxResultSize` bounds.
        """
        if not tasks:
            return
        called = Called.of(work)
        rows = [(number, 0, json.dumps(task)) for number, task in enumerate(tasks)]
        tell = _counting(len(tasks), done)

        def collect() -> list[Any]:
            return spread(self.session, rows).mapInArrow(_Tasks(called), _ROWS).collect()

        ended = sorted(run_job(self.session, collect, tell), key=itemgetter(*_ORDER))
        tell(len(ended))
        for row in ended:
            if row.error is not None:
                raise told_error(json.loads(row.error))
        for row in ended:
            yield row.number, json.loads(bytes(row.data))

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        """Do what `Engine.stream` does; see `kafkalog.spark.engine.gather`."""
        return gather(self.session, work, tasks, piece_work, done)


def _parallelism_of(session: SparkSession) -> int:
    """Return how many tasks the session runs at the same time, as far as it knows."""
    if not is_remote(session):
        return session.sparkContext.defaultParallelism
    # A range has a partition for each task that can run.
    partition = session.range(1 << 16).selectExpr("spark_partition_id() AS number")
    [last] = run_job(session, partition.agg({"number": "max"}).collect)
    return 1 + int(last[0])
