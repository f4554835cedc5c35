"""Batches or records of several logs in one sequence, by time."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog.errors import KafkaLogError, LimitExceededError, contained, raised
from kafkalog.model import Batch, Defect, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


T = TypeVar("T", Batch, Record)
U = TypeVar("U")

LOGS_MAX: Final = 500
"""How many logs are read at the same time: each has a file open and a batch in memory."""


def in_time_order(
    logs: Sequence[tuple[str, Iterator[T | Defect]]],
    failed: Callable[[KafkaLogError], None] = raised,
) -> Iterator[tuple[int, T | Defect]]:
    """Yield the content of several logs, each with the index of its log.

    The next one is that with the lowest timestamp (of a batch, the largest in it) among the next of
    each log; of equal ones, that of the first log. A log is never reordered: a record that is older
    than one before it comes where it lies. Defects come before what follows them.

    Args:
        logs: path and content of each log.
        failed: called with what stops the reading of one log; without it the error is raised.

    Raises:
        LimitExceededError: more than `LOGS_MAX` logs have anything to yield.

    Cost:
        An open file and the current batch per log.
    """
    heads: list[tuple[int, int, T]] = []
    readers = [iterator for _, iterator in logs]

    def advance(index: int) -> Iterator[tuple[int, T | Defect]]:
        with contained(logs[index][0], failed):
            for found in readers[index]:
                if isinstance(found, Defect):
                    yield index, found
                    continue
                heapq.heappush(heads, (_time_of(found), index, found))
                return

    for index in range(len(logs)):
        yield from advance(index)
        if len(heads) > LOGS_MAX:
            raise LimitExceededError(
                f"More than {LOGS_MAX} logs have something to show: that many are merged by time.",
                hint="Select topics or a narrower time, or use path order.",
            )
    while heads:
        _, index, found = heads[0]
        yield index, found
        heapq.heappop(heads)
        yield from advance(index)


def _time_of(found: Batch | Record) -> int:
    return found.max_timestamp if isinstance(found, Batch) else found.timestamp


def one_by_one(
    logs: Sequence[tuple[str, Iterator[T | Defect]]],
    failed: Callable[[KafkaLogError], None] = raised,
) -> Iterator[tuple[int, T | Defect]]:
    """Yield the content of one log after another; the arguments are those of `in_time_order`."""
    for index, (path, content) in enumerate(logs):
        with contained(path, failed):
            for found in content:
                yield index, found


def latest(timed: Iterable[tuple[int | None, U]], number: int) -> Iterator[U]:
    """Yield what has no time as it comes, then the values with the latest times, oldest first."""
    kept: list[tuple[int, int, U]] = []
    numbers = count()  # breaks ties in the heap: values have no order
    for time, one in timed:
        if time is None:
            yield one
        elif len(kept) < number:
            heapq.heappush(kept, (time, next(numbers), one))
        else:
            heapq.heappushpop(kept, (time, next(numbers), one))
    for _, _, one in sorted(kept, key=lambda item: item[:2]):
        yield one
