"""Chunks of one log processed by a pool of threads, and returned in order.

One thread reads chunks and looks at batch headers; others process them. The amount of
work in progress, and so the memory, is bounded whatever the chunks grow into.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalog.columns.budget import IN_FLIGHT_MAX
from kafkalog.columns.chunks import Chunk, ChunkReader, Turn, Workspace
from kafkalog.errors import KafkaLogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from kafkalog.columns.budget import Turnstile
    from kafkalog.crew import Crew


_OUTPUT_AT_ONCE: Final = 1 << 24
# A chunk that becomes more than this is followed by smaller ones: all threads stay busy.
_OUTPUT_OF_CHUNK: Final = 1 << 24


@dataclass(slots=True)
class Result:
    """Some steps of a chunk's work, and whether they are the last: all done, or one failed.

    A chunk that `waits` has a large batch, which is put off until it is the first in line.
    """

    steps: list[Any]
    size_bytes: int
    is_last: bool
    waits: bool = False
    error: KafkaLogError | None = None


@dataclass(slots=True)
class Task:
    """A chunk that is being worked on."""

    chunk: Chunk
    steps: Iterator[Any]
    future: Future[Result]


@dataclass(slots=True)
class Lanes:
    """A pool, its limit of chunks in progress, and its free workspaces."""

    pool: Crew
    depth: int
    rows_max: int
    spaces: list[Workspace]
    turnstile: Turnstile | None = None

    def space(self) -> Workspace:
        """Return a workspace."""
        return self.spaces.pop() if self.spaces else Workspace(self.rows_max)


class Conveyor:
    """The chunks that `reader` gives.

    Args:
        reader: where they come from.
        lanes: where they are worked on.
        steps: the work on a chunk; its steps are lists or have a `size_bytes`.
        cut: how many batches of a chunk are wanted; nothing is read after the last one.
    """

    def __init__(
        self,
        reader: ChunkReader,
        lanes: Lanes,
        steps: Callable[[Chunk], Iterator[Any]],
        cut: Callable[[Chunk], int] | None = None,
    ) -> None:
        self.reader = reader
        self._lanes = lanes
        self._steps = steps
        self._cut = cut
        self._tasks: deque[Task] = deque()
        self._is_blocked = False
        self._error: KafkaLogError | None = None

    def take(self) -> Task | None:
        """Return the next chunk; None at the end, or if the reference scanner has to continue.

        Raises:
            KafkaLogError: reading failed, after all chunks that were taken.
        """
        self._fill()
        if self._tasks:
            return self._tasks.popleft()
        if self._error is not None:
            raise self._error
        return None

    def results(self, task: Task) -> Iterator[Any]:
        """Yield the steps of a task that was taken.

        Raises:
            KafkaLogError: raised by one of the steps.
        """
        with ExitStack() as stack:
            yield from self._results(task, stack)
        self.free(task)

    def _results(self, task: Task, stack: ExitStack) -> Iterator[Any]:
        result = task.future.result()
        produced = 0
        while True:
            produced += result.size_bytes
            if result.waits:
                task.chunk.waits = False
                if self._lanes.turnstile is not None:
                    stack.enter_context(self._lanes.turnstile.passed())
            # The next steps are done while these are used.
            following = None if result.is_last else self._lanes.pool.submit(_advance, task.steps)
            try:
                yield from result.steps
            finally:
                if following is not None:
                    self._lanes.pool.wait_for(following)
            if following is None:
                break
            result = following.result()
        if result.error is not None:
            raise result.error
        if produced > _OUTPUT_OF_CHUNK:
            self.reader.shrink()

    def free(self, task: Task) -> None:
        """Free the workspace of a finished task."""
        task.chunk.workspace.release()
        self._lanes.spaces.append(task.chunk.workspace)

    def resume(self, position: int) -> None:
        """Continue at another position; nothing must be in progress."""
        self.reader.resume(position)
        self._is_blocked = False
        self._error = None

    def stop(self) -> None:
        """Wait for what is in progress, and drop it."""
        self._lanes.pool.forget(task.future for task in self._tasks)
        for task in self._tasks:
            self.free(task)
        self._tasks.clear()

    def _fill(self) -> None:
        reader, lanes = self.reader, self._lanes
        while (
            len(self._tasks) < lanes.depth
            and not self._is_blocked
            and reader.position < reader.end
            and sum(task.chunk.size_bytes for task in self._tasks) < IN_FLIGHT_MAX
        ):
            space = lanes.space()
            try:
                chunk = reader.read(space)
            except KafkaLogError as error:
                self._error = error
                chunk = None
            if chunk is not None and self._cut is not None:
                wanted = self._cut(chunk)
                if wanted < chunk.count:
                    chunk.cut(wanted)
                    reader.resume(chunk.position + chunk.size_bytes)
                    self._is_blocked = True
            if chunk is None or not chunk.count:
                lanes.spaces.append(space)
                self._is_blocked = True
                return
            chunk.waits = True
            steps = self._steps(chunk)
            self._tasks.append(Task(chunk, steps, lanes.pool.submit(_advance, steps)))


def _advance(steps: Iterator[Any]) -> Result:
    """Return some steps, until their output is large enough."""
    result = Result([], 0, is_last=False)
    try:
        for step in steps:
            if step is Turn.WAIT:
                result.waits = True
                return result
            result.steps.append(step)
            result.size_bytes += getattr(step, "size_bytes", 0)
            if result.size_bytes >= _OUTPUT_AT_ONCE:
                return result
    except KafkaLogError as error:
        result.error = error
    result.is_last = True
    return result
