"""Runs many tasks at once: in a pool of threads, or on Spark. Both run the same functions."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from contextvars import copy_context
from itertools import islice
from typing import Any, Protocol, TypeVar

from kafkalog import errors
from kafkalog.errors import (
    CorruptDataError,
    InternalError,
    KafkaLogError,
    NotAKafkaFileError,
    UnreadableError,
    as_internal_error,
    contained,
)

__all__ = ["Engine", "LocalEngine"]


def of_task(raised: Exception) -> KafkaLogError:
    """Return the error for an exception that a task raised.

    Raises:
        MemoryError: passed on, because another attempt may have more memory.
    """
    if isinstance(raised, KafkaLogError):
        return raised
    if isinstance(raised, MemoryError):
        raise raised
    return as_internal_error(raised)


@contextmanager
def failures_kept(path: str, failures: list[dict[str, Any]]) -> Iterator[None]:
    """Confine to one item of a task that it cannot be read, and an unexpected failure.

    Args:
        path: the path that the block works on.
        failures: gets the failure as returned by `told`; other errors are passed on.
    """

    def failed(error: KafkaLogError) -> None:
        if not isinstance(error, InternalError | UnreadableError | NotAKafkaFileError):
            raise error
        failures.append(told(error))

    with contained(path, failed):
        yield


def told(error: KafkaLogError) -> dict[str, Any]:
    """Serialize an error for a task's result."""
    return {
        "class": type(error).__name__,
        "message": error.message,
        "reference": error.reference,
        "path": error.path,
        "position": error.position,
        "note": error.note,
        "hint": error.hint,
    }


def told_error(fields: Mapping[str, Any]) -> KafkaLogError:
    """Rebuild the error from the result of `told`."""
    kind = getattr(errors, fields["class"], KafkaLogError)
    more = {name: fields[name] for name in ("path", "position", "note", "hint")}
    if issubclass(kind, CorruptDataError):
        more["reference"] = fields["reference"]
    error: KafkaLogError = kind(fields["message"], **more)
    return error


Task = Mapping[str, Any]
"""A piece of work, limited to JSON values so that it is the same wherever it runs."""

Work = Callable[[Task], Mapping[str, Any]]
"""A function in one of our modules, which remote workers look up by name. It also returns JSON
values. It can run twice for one task (if a worker is lost), even at the same time.
"""


Gathering = Callable[[Task, Iterator[bytes]], Iterator[bytes]]
"""Like `Work`, for a task that can have pieces: gets what these made, in order."""

PieceWork = Callable[[Task], Iterator[bytes]]
"""Like `Work`, for a piece of a task; its output goes to the task."""


class Engine(Protocol):
    """Runs tasks."""

    @property
    def workers(self) -> int:
        """Number of tasks that run at the same time."""

    @property
    def is_here(self) -> bool:
        """Whether tasks run in this process."""

    def run(
        self, work: Work, tasks: Sequence[Task], *, done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield (task index, result) as tasks complete.

        Args:
            work: the function to run for each task.
            tasks: the tasks, in the order in which they are started.
            done: called in this thread with the number of tasks done since the last call.

        Raises:
            KafkaLogError: raised by `work` for one of them; the others are stopped or allowed to
                end.
                An interrupt also stops them.
        """

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        """Yield the output of tasks, in their order; closing it stops what is in progress.

        Args:
            work: the function to run for each task. It need not consume all output of the pieces.
            tasks: the tasks. A task with `pieces`, a list of tasks, runs after these.
            piece_work: the function to run for each piece, wherever there is room.
            done: as for `run`.

        Raises:
            KafkaLogError: raised by a task or a piece, in place of its output.
        """


class Crew(ThreadPoolExecutor):
    """A thread pool for generators, which may be closed from any thread, even one of its own.

    A generator that is kept alive only by a reference cycle, such as the frames of a stored
    exception, is closed wherever the garbage collector happens to run. That can be a thread of its
    own pool, which must not wait for itself.

    Args:
        count: number of threads.
        name: prefix of the threads' names.
    """

    def __init__(self, count: int, name: str) -> None:
        members: set[int] = set()
        super().__init__(count, name, initializer=lambda: members.add(threading.get_ident()))
        self._members = members

    @property
    def _is_here(self) -> bool:
        return threading.get_ident() in self._members

    def wait_for(self, future: Future[Any]) -> None:
        """Wait until a future is done, and ignore its result."""
        if not self._is_here:
            future.exception()

    def forget(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel the futures that have not started, and wait for the others."""
        for future in futures:
            if not future.cancel():
                self.wait_for(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut the pool down, and wait for its threads unless called by one of them."""
        super().shutdown(wait and not self._is_here, cancel_futures=cancel_futures)


Item = TypeVar("Item")
Made = TypeVar("Made")


def in_order(
    work: Callable[[Item], Made], items: Iterable[Item], threads: int
) -> Generator[Made, None, None]:
    """Yield the results of a function for some items, in their order, several at a time.

    The first item is done alone: what all need is then known, and what is wrong with all is met
    once. With one thread nothing is done before it is asked for.

    Args:
        work: waits for answers most of the time; its error is raised in place of its result.
        items: taken as they are needed, at most twice as many as there are threads before the
            one whose result is next.
        threads: how many items are in progress at the same time.
    """
    left = iter(items)
    if threads < 2:
        yield from map(work, left)
        return
    for one in left:
        yield work(one)
        break
    waiting: deque[Future[Made]] = deque()
    pool = Crew(threads, "in-order")
    try:
        while True:
            for one in islice(left, 2 * threads - len(waiting)):
                waiting.append(pool.submit(copy_context().run, work, one))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        # After Ctrl-C nobody waits for answers that may take long.
        is_interrupted = isinstance(sys.exception(), KeyboardInterrupt)
        pool.shutdown(not is_interrupted, cancel_futures=True)


_WORKERS_MAX = 8  # each takes memory (docs/memory.md)


class LocalEngine:
    """Runs tasks in threads.

    Args:
        workers: number of tasks at a time; None for one per processor, up to 8.
    """

    is_here = True

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or min(len(os.sched_getaffinity(0)), _WORKERS_MAX)

    def run(
        self, work: Work, tasks: Sequence[Task], *, done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Do what `Engine.run` does; after a failure, start no further tasks."""
        numbers = iter(range(len(tasks)))
        running: dict[Future[Mapping[str, Any]], int] = {}
        with Crew(self.workers, "kafkalog") as pool:
            while True:
                for number in numbers:
                    running[pool.submit(work, tasks[number])] = number
                    # One waits, so that no thread idles while this one yields.
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
                    # One more than there are workers, so that no thread idles while this one
                    # yields.
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
