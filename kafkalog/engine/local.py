"""The engine without Spark: threads of this process. The kernels and codecs release the GIL."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkalog.crew import Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from kafkalog.engine.model import Gathering, PieceWork, Task, Work

_WORKERS_MAX = 8


class LocalEngine:
    """Runs tasks in threads.

    Args:
        workers: number of tasks at a time; None for one per processor, up to 8.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or min(len(os.sched_getaffinity(0)), _WORKERS_MAX)

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Do what `Engine.run` does; after a failure, start no further tasks."""
        numbers = iter(range(len(tasks)))
        running: dict[Future[Mapping[str, Any]], int] = {}
        with Crew(self.workers, "kafkalog") as pool:
            while True:
                for number in numbers:
                    running[pool.submit(work, tasks[number])] = number
                    if len(running) > self.workers:
                        break
                if not running:
                    return
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for one in ended:
                    result = one.result()
                    if done is not None:
                        done(1)
                    yield running.pop(one), result

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        """Do what `Engine.stream` does; a task runs its pieces itself, as it consumes their output.

        Cost:
            Holds the output of as many tasks as there are workers.
        """

        def give(task: Task) -> list[bytes]:
            with closing(_made(task, piece_work)) as made:
                return list(work(task, made))

        numbers = iter(range(len(tasks)))
        running: deque[Future[list[bytes]]] = deque()
        with Crew(self.workers, "kafkalog") as pool:
            try:
                while True:
                    for number in islice(numbers, self.workers + 1 - len(running)):
                        running.append(pool.submit(give, tasks[number]))
                    if not running:
                        return
                    given = running.popleft().result()
                    if done is not None:
                        done(1)
                    yield from given
            finally:
                for future in running:
                    future.cancel()


def _made(task: Task, piece_work: PieceWork) -> Generator[bytes, None, None]:
    for piece in task.get("pieces", ()):
        yield from piece_work(piece)
