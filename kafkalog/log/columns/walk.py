"""Walks over a log by columns: chunks by the kernels, irregular parts by the reference scanner.

One thread reads chunks and scans batch headers; others process them, and they come back in order.
The work in progress, and so the memory, is bounded whatever the chunks decompress into.
"""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.errors import KafkaLogError
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.budget import IN_FLIGHT_MAX, Turnstile
from kafkalog.log.columns.chunks import Chunk, ChunkReader, Turn, Workspace
from kafkalog.model import Batch, Defect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from kafkalog.io.engine import Crew
    from kafkalog.log.batches.order import Order


# What a thread makes before the consumer must take it: bounds the memory per thread.
_OUTPUT_AT_ONCE: Final = 1 << 23
# A chunk that becomes larger than this is followed by smaller ones, so that all threads stay busy.
_OUTPUT_OF_CHUNK: Final = 1 << 24


@dataclass(slots=True)
class Result:
    """Some steps of a chunk's work, and whether they are the last: all done, or one failed.

    A chunk that `waits` has a large batch, which is deferred until it is the first in line.
    """

    steps: list[Any]
    size_bytes: int
    is_last: bool
    waits: bool = False
    error: KafkaLogError | None = None


@dataclass(slots=True)
class Task:
    """A chunk that is being processed; no offset in it is below `low`."""

    chunk: Chunk
    steps: Iterator[Any]
    future: Future[Result]
    low: int


@dataclass(slots=True)
class Lanes:
    """A pool, its limit of chunks in progress, and its free workspaces."""

    pool: Crew
    depth: int
    rows_max: int
    spaces: list[Workspace]
    turnstile: Turnstile | None = None

    def space(self) -> Workspace:
        return self.spaces.pop() if self.spaces else Workspace(self.rows_max)


class Walk:
    """The batches of one log, in order.

    Args:
        reader: reads the chunks.
        lanes: where they are processed.
        steps: the work on a chunk, called in chunk order; its steps run in any thread and return
            lists or objects with a `size_bytes`.
        judge: returns what is at a position where the kernels cannot continue, or where a checksum
            is wrong; the walk continues after it. If None, the walk ends there.
        check_crc: whether a wrong checksum is irregular.
        cut: returns how many batches of a chunk are wanted; the rest is left to `judge`.
        order: judges the offsets of batches, with `judge` and `cut`.
    """

    def __init__(
        self,
        reader: ChunkReader,
        lanes: Lanes,
        steps: Callable[[Chunk], Iterator[Any]],
        judge: Callable[[int], Batch | Defect] | None = None,
        *,
        check_crc: bool = False,
        cut: Callable[[Chunk], int] | None = None,
        order: Order | None = None,
    ) -> None:
        self.reader = reader
        self._lanes = lanes
        self._steps = steps
        self._judge = judge
        self._check_crc = check_crc
        self._cut = cut
        self._order = order
        self._tasks: deque[Task] = deque()
        self._is_blocked = False
        self._error: KafkaLogError | None = None

    def found(self) -> Iterator[Task | Batch | Defect]:
        """Yield the chunks, whose `results` must be used, and what `judge` found between them.

        Raises:
            KafkaLogError: reading failed; everything before has been yielded, and the reader is at
                the
                position after it.
        """
        while True:
            self._fill()
            if self._tasks:
                task = self._tasks.popleft()
                after = self._after_false(task) if self._check_crc else None
                if task.chunk.count:
                    yield task
                else:
                    self._free(task)
                if isinstance(after, KafkaLogError):
                    raise after
                if after is not None:
                    yield after
            elif self._error is not None:
                raise self._error
            elif self._judge is None or self.reader.position >= self._end():
                return
            else:
                found = self._judge(self.reader.position)
                self._resume_after(found)
                yield found

    def results(self, task: Task) -> Iterator[Any]:
        """Yield the steps of a chunk.

        Raises:
            KafkaLogError: raised by one of the steps.
        """
        # Holds the turnstile until the last step was used: a large batch is in memory that long.
        with ExitStack() as stack:
            yield from self._results(task, stack)
        self._free(task)

    def stop(self) -> None:
        """Wait for work in progress, and drop its results."""
        # Waited for: buffers that are still written must not go back to the pool.
        self._lanes.pool.forget(task.future for task in self._tasks)
        for task in self._tasks:
            self._free(task)
        self._tasks.clear()

    def _results(self, task: Task, stack: ExitStack) -> Iterator[Any]:
        result = task.future.result()
        produced = 0
        while True:
            produced += result.size_bytes
            if result.waits:
                task.chunk.waits = False
                if self._lanes.turnstile is not None:
                    stack.enter_context(self._lanes.turnstile.passed())
            # The next steps run while these are used.
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
        if produced > max(_OUTPUT_OF_CHUNK, task.chunk.size_bytes):
            self.reader.shrink(task.chunk.size_bytes)

    def _free(self, task: Task) -> None:
        task.chunk.workspace.release()
        self._lanes.spaces.append(task.chunk.workspace)

    def _after_false(self, task: Task) -> Batch | Defect | KafkaLogError | None:
        """Cut a chunk before a wrong checksum that its header explains; return what is there."""
        chunk = task.chunk
        task.future.result()  # the first of its steps compares the checksums
        for ordinal in np.flatnonzero(~chunk.crc_valid).tolist():
            position = int(chunk.headers[k.POSITION, ordinal])
            found: Batch | Defect | KafkaLogError | None = None
            judge = self._judge if self._order is None else self._order.framed
            try:
                found = judge(position) if judge is not None else None
            except KafkaLogError as error:
                found = error
            if isinstance(found, Batch) and found.header_defect is None:
                continue
            # Chunks behind were framed by a length that is wrong: read again from where the judge
            # says.
            self.stop()
            self.reader.resume(position)
            self._is_blocked = self._judge is None
            self._error = None
            if self._order is not None:
                before = chunk.headers[k.LAST_OFFSET, ordinal - 1] + 1 if ordinal else task.low
                self._order.next_offset, self._order.epoch = int(before), c.NO_EPOCH
                if isinstance(found, Batch) and found.has_place:
                    self._order.next_offset = found.next_offset
            if isinstance(found, Batch | Defect):
                self._resume_after(found)
            chunk.cut(ordinal)
            chunk.waits, chunk.shown = False, -1
            if ordinal:
                task.steps = self._steps(chunk)
                task.future = self._lanes.pool.submit(_advance, task.steps)
            return found
        return None

    def _end(self) -> int:
        """Return where the log ends, once what is before the position has been read."""
        reader = self.reader
        if self._order is not None:
            reader.end = min(reader.end, self._order.end_at(reader.position))
        return reader.end

    def _resume_after(self, found: Batch | Defect) -> None:
        self.reader.resume((found.position or 0) + (found.size_bytes or 0))
        self._is_blocked = False

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
            low = 0 if self._order is None else self._order.next_offset
            if chunk is not None:
                self._cut_off(chunk)
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
            self._tasks.append(Task(chunk, steps, lanes.pool.submit(_advance, steps), low))

    def _cut_off(self, chunk: Chunk) -> None:
        """Cut off the batches of a chunk that a start does not accept."""
        reader = self.reader
        end = reader.end if self._order is None else self._order.end_at(reader.position)
        if end < reader.end:
            reader.end = end
            ends = chunk.headers[k.POSITION] + chunk.headers[k.SIZE]
            chunk.cut(int(np.count_nonzero(ends <= end)))
            reader.resume(chunk.position + chunk.size_bytes)


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
