"""Batches or records of several logs in one sequence, by time."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog.errors import KafkaLogError, LimitExceededError, contained, raised
from kafkalog.model import Batch, Defect, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


T = TypeVar("T", Batch, Record)

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
