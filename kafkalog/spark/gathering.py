"""Tasks that give much, and tasks in pieces, on Spark: what they make is shuffled, not collected.

Pieces are the first stage. What they make goes, by the numbers of the tasks, to the second stage,
which is that of the tasks. What these give lies where they ran until the driver takes it, in order.
"""

from __future__ import annotations

import itertools
import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.engine.errors import of_task, told, told_error
from kafkalog.spark.errors import errors_as_ours
from kafkalog.spark.job import run_job
from kafkalog.spark.worker import Called

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from kafkalog.engine.model import Gathering, PieceWork, Task

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


def gather(
    session: SparkSession,
    work: Gathering,
    tasks: Sequence[Task],
    piece_work: PieceWork,
    done: Callable[[int], None] | None = None,
) -> Generator[bytes, None, None]:
    """As `Engine.stream`.

    Cost:
        The driver takes what 16 tasks give at once and holds twice that, which
        `spark.driver.maxResultSize` bounds. A worker holds what its task holds, and an Arrow batch
        of what pieces made; Spark sorts that on the disks of its workers where it does not fit.
    """
    numbered = list(enumerate(tasks))
    frames = []
    if whole := [(n, task) for n, task in numbered if not task.get("pieces")]:
        rows = [(n, 0, json.dumps(task)) for n, task in whole]
        frames.append(_spread(session, rows).mapInArrow(_Whole(Called.of(work)), _ROWS))
    if cut := [(n, task) for n, task in numbered if task.get("pieces")]:
        rows = [(n, i, json.dumps(p)) for n, task in cut for i, p in enumerate(task["pieces"])]
        bare = {n: json.dumps({**task, "pieces": []}) for n, task in cut}
        made = _spread(session, rows).mapInArrow(_Piece(Called.of(piece_work)), _ROWS)
        ordered = made.repartitionById(len(cut), made.number.cast("int")).sortWithinPartitions(
            *_ORDER
        )
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
    """The rows of so many tasks in order, some tasks at once; with the first all are done."""
    so_far = 0

    def tell(tasks_done: int) -> None:
        nonlocal so_far
        if done is not None and so_far < min(tasks_done, count):
            done(min(tasks_done, count) - so_far)
            so_far = min(tasks_done, count)

    if count <= _TASKS_AT_ONCE:
        collected = run_job(session, frame.collect, tell)
        tell(count)
        yield from sorted(collected, key=itemgetter(*_ORDER))
        return
    portion = (frame.number / _TASKS_AT_ONCE).cast("int")
    frame = frame.repartitionById(-(-count // _TASKS_AT_ONCE), portion)
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


def _spread(session: SparkSession, rows: Sequence[tuple[int, int, str]]) -> DataFrame:
    """One row a partition, so that Spark schedules each by itself."""
    numbered = [(i, *row) for i, row in enumerate(rows)]
    frame = session.createDataFrame(numbered, "id int, number long, piece long, task string")
    return frame.repartitionById(len(rows), frame.id)


def _row(number: int, piece: int, row: int, data: bytes | None, error: str | None) -> Any:
    columns = {"number": number, "piece": piece, "row": row, "data": data, "error": error}
    return pa.RecordBatch.from_pydict({n: [v] for n, v in columns.items()}, schema=_SCHEMA)


def _rows_of(number: int, piece: int, made: Iterable[bytes]) -> Iterator[Any]:
    """A row for each; errors come as rows, for Spark would run the task again."""
    count = -1
    try:
        for count, data in enumerate(made):
            yield _row(number, piece, count, data, None)
    except Exception as error:  # noqa: BLE001 # any
        yield _row(number, piece, count + 1, None, json.dumps(told(of_task(error))))


class _Whole:
    """Runs tasks that have no pieces."""

    def __init__(self, called: Called) -> None:
        self._called = called

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        work = self._called.load()
        for row in itertools.chain.from_iterable(batch.to_pylist() for batch in batches):
            yield from _rows_of(row["number"], 0, work(json.loads(row["task"]), iter(())))


class _Piece:
    """Runs pieces; one that makes nothing gives a row, too, so that its task is done."""

    def __init__(self, called: Called) -> None:
        self._called = called

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        work = self._called.load()
        for row in itertools.chain.from_iterable(batch.to_pylist() for batch in batches):
            number, piece = row["number"], row["piece"]
            yield _row(number, piece, -1, None, None)
            yield from _rows_of(number, piece, work(json.loads(row["task"])))


class _Gathered:
    """Runs tasks whose pieces have been made."""

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
        for i in range(batch.num_rows):
            yield from batch.slice(i, 1).to_pylist()


def _data(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for row in rows:
        if row["error"] is not None:
            raise told_error(json.loads(row["error"]))
        if row["data"] is not None:
            yield row["data"]
