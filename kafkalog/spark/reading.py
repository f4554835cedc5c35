"""What tasks of Spark read: which splits are a task, and their rows.

Nothing here needs the API of Python data sources, which came with Spark 4.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import Listener, OffsetsMissingError
from kafkalog.io.paths import file_system
from kafkalog.log.defects import DELETED
from kafkalog.model import Defect, Severity
from kafkalog.spark.job import settle
from kafkalog.spark.offsets import planned, require_batch
from kafkalog.spark.options import Mode
from kafkalog.tables import announced, read_split
from kafkalog.tables.listeners import COPIED, LOSS_HINT, MISSING, Strict
from kafkalog.tables.model import TableName
from kafkalog.tables.planning import find_targets
from kafkalog.tables.reading import ROWS_AT_ONCE, constants_of, count_split
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.errors import Event
    from kafkalog.spark.options import SourceOptions
    from kafkalog.tables import Split
    from kafkalog.tables.model import Request
    from kafkalog.tables.planning import Target

    Find = Callable[[Sequence[str], Request], list[Target]]

_BATCH_SIZE: Final = 4 << 20
_SHARED_SIZE: Final = 1 << 20
"""Up to this size a split is read by several tasks, where these are to be many."""


def grouped(
    splits: Sequence[Split], size: int, records_max: int | None = None
) -> list[tuple[Split, ...]]:
    """Group consecutive splits into tasks of limited size, and with a limited number of offsets."""
    tasks: list[list[Split]] = []
    room = offsets_left = 0
    for split in splits:
        cost = max(split.size_bytes, size // 64)  # opening a file has a cost
        count = 0 if records_max is None else len(_offsets_in(split))
        if not tasks or cost > room or count > offsets_left:
            tasks.append([])
            room, offsets_left = size, records_max or 0
        tasks[-1].append(split)
        room -= cost
        offsets_left -= count
    return [tuple(task) for task in tasks]


def batch_tasks(asked: SourceOptions, find: Find = find_targets) -> list[tuple[Split, ...]]:
    """Return the tasks of a batch, at least one: given none, Spark would make an empty one.

    Args:
        asked: the options.
        find: how logs are found.

    Raises:
        UsageError: an edge is one that a batch cannot have, or that a log has not; else as
            `plan_splits`.
    """
    require_batch(asked.edges)
    request = replace(asked.request, gaps_when_read=True)

    def plan(size: int) -> list[Split]:
        sized = replace(request, split_bytes=size)
        return planned(asked.paths, sized, asked.edges, TaskListener(asked), find)

    with file_system.listings_held(asked.paths):
        return tasks_of(asked, plan) or [()]


def columns_of(asked: SourceOptions) -> Any:
    """Return the Arrow schema of the columns that are wanted."""
    columns = table_schema(asked.request.table, asked.columns, text=asked.as_text)
    at = columns.get_field_index("headers") if asked.is_as_kafkas else -1
    return columns if at < 0 else columns.set(at, columns.field(at).with_nullable(True))


def tasks_of(asked: SourceOptions, plan: Callable[[int], list[Split]]) -> list[tuple[Split, ...]]:
    """Group what is planned, by the size of splits, into tasks: at least as many as are wanted.

    Splits are cut where an index has an entry. What is small and yet too much for a task is cut
    between any two offsets: several tasks then read the same bytes. So is what has too many offsets
    for a task, whatever its size.
    """
    size, wanted, most = asked.request.split_bytes, asked.tasks_min or 0, asked.records_max
    splits = _limited(plan, size, most)
    tasks = grouped(splits, size, most)
    if splits and len(tasks) < wanted:
        size = max(sum(one.size_bytes for one in splits) // wanted, 1)
        splits = _limited(plan, size, most)
        tasks = grouped(splits, size, most)
    if splits and len(tasks) < wanted:
        tasks = [(one,) for one in _cut(splits, wanted)]
    return tasks


def _limited(plan: Callable[[int], list[Split]], size: int, most: int | None) -> list[Split]:
    """Plan splits of about `size` bytes, each with at most `most` offsets."""
    splits = plan(size)
    if most is None:
        return splits
    large = [one for one in splits if len(_offsets_in(one)) > most]
    if large:
        # By half: records differ in size, and indexes do not have each batch.
        halves = (one.size_bytes * most // (2 * len(_offsets_in(one))) for one in large)
        splits = plan(max(min(halves), 1))
    return [part for one in splits for part in _parts(one, -(-len(_offsets_in(one)) // most))]


def _cut(splits: Sequence[Split], wanted: int) -> Iterator[Split]:
    """Cut splits into `wanted` splits with the same rows, or fewer if offsets run out."""
    known = [len(_offsets_in(one)) for one in splits]
    total = sum(known)
    left = wanted
    for split, offsets in zip(splits, known, strict=True):
        count = min(offsets, max(round(left * offsets / max(total, 1)), 1))
        total, left = total - offsets, left - max(count, 1)
        if split.size_bytes > _SHARED_SIZE:
            yield split
        else:
            yield from _parts(split, count)


def _parts(split: Split, count: int) -> Iterator[Split]:
    """Cut a split into `count` parts with about equally many offsets."""
    if count <= 1:
        yield split
        return
    offsets = _offsets_in(split)
    edges = [offsets.start + len(offsets) * n // count for n in range(1, count)]
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


def read_task(splits: Iterable[Split], asked: SourceOptions, schema: Any) -> Iterator[Any]:
    """Yield the rows of one task, as record batches."""
    settle(asked.paths)  # the splits carry only the paths of URIs
    gathered = _gathered(_batches_of(list(splits), asked, schema))
    at = schema.get_field_index("headers")
    if not asked.is_as_kafkas or at < 0:
        return gathered
    return map(partial(_without_empty, at), gathered)


def _batches_of(splits: list[Split], asked: SourceOptions, schema: Any) -> Iterator[Any]:
    with announced(splits):
        for split in splits:
            yield from _rows_of(split, asked, schema)


def _rows_of(split: Split, asked: SourceOptions, schema: Any) -> Iterator[Any]:
    """Yield the rows of a split; no record is decoded where all of them are alike."""
    listener, constants = TaskListener(asked), constants_of(split)
    if split.table != TableName.RECORDS or not constants.keys() >= {*schema.names}:
        yield from read_split(split, schema, listener)
        return
    for count in count_split(split, listener):
        for first in range(0, count, ROWS_AT_ONCE):
            size = min(count - first, ROWS_AT_ONCE)
            columns = [pa.repeat(pa.scalar(constants[one.name], one.type), size) for one in schema]
            yield pa.record_batch(columns, schema)


def _without_empty(column: int, batch: Any) -> Any:
    """Return rows with null for no headers, as Spark's own Kafka source has them."""
    found = batch.column(column)
    if len(found.flatten()):
        found = pc.if_else(pc.equal(pc.list_value_length(found), 0), None, found)
    else:
        found = pa.nulls(len(found), found.type)
    return batch.set_column(column, batch.schema.field(column).with_nullable(True), found)


class TaskListener(Listener):
    """Hears events, in the driver or in a task."""

    def __init__(self, asked: SourceOptions) -> None:
        self._asked = asked

    def hear(self, event: Event) -> None:
        """Raise what stops the query; log what is lost, or taken from another copy.

        What is missing between the segments of a log is judged as what was deleted unread.
        """
        match event:
            case Defect(reference=reference) if reference in MISSING:
                if event.severity == Severity.NOTE:
                    return
                if self._asked.fails_on_loss:
                    raise OffsetsMissingError(
                        event.detail, path=event.path, position=event.position, hint=LOSS_HINT
                    )
                warn_of(event)
            case Defect(reference=reference) if reference == COPIED or (
                reference == DELETED and not self._asked.fails_on_loss
            ):
                warn_of(event)
            case Defect(reference=reference):
                if reference == DELETED or self._asked.mode != Mode.PERMISSIVE:
                    Strict().hear(event)
            case _:
                super().hear(event)


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


def warn_of(loss: Defect) -> None:
    """Log what is lost, or taken from another copy, in the worker's log.

    Spark's Kafka source does so with failOnDataLoss=false.
    """
    warnings.warn(f"{loss.detail} [{loss.path}]", stacklevel=2)
