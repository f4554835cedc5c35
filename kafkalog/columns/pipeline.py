"""The pipeline of a scan: the segments of a log, chunk by chunk, as parts in order.

Where a chunk ends in something that is not a sound batch, the reference scanner judges it, so
that damage has the same names and reading resumes at the same place as in the reference reader.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkalog.batches.framing import Frames
from kafkalog.batches.segment import OpenSegment
from kafkalog.batches.selection import start_position
from kafkalog.columns.chunks import ChunkReader
from kafkalog.columns.ordered_executor import Conveyor, Lanes
from kafkalog.columns.scan_steps import BatchWork, Event, Part, RecordWork, first_behind
from kafkalog.crew import Crew
from kafkalog.jit.fast_path import default_threads
from kafkalog.living import CHANGES, LivingWalk
from kafkalog.model import Defect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.batches.selection import ReadPlan
    from kafkalog.columns.budget import Turnstile
    from kafkalog.columns.ordered_executor import Task
    from kafkalog.columns.scan_steps import Format, Work


def read_contents(
    plan: ReadPlan,
    form: Any,
    progress: Callable[[int], None] | None,
    *,
    batches: bool,
) -> Iterator[Any]:
    """What a format makes of the records or the batches of a log, and defects, in order.

    `form` is a `RecordFormat`, or a `BatchFormat` for batches; what it makes is valid until
    the next piece is requested. Raises as `read_records`.
    """
    work = BatchWork(plan, form) if batches else RecordWork(plan, form)
    yield from contents(scan_parts(plan, work, progress or (lambda _: None)), form)


def scan_parts(
    plan: ReadPlan,
    work: Work,
    progress: Callable[[int], None],
    threads: int | None = None,
    turnstile: Turnstile | None = None,
) -> Iterator[Part]:
    """Yield the parts of a plan in order, up to its limit; each is valid until the next.

    `progress` is called with numbers of bytes as they are read. Scans that share a turnstile hold
    large batches one after the other.
    """
    found = _all_parts(plan, work, progress, threads or default_threads(), turnstile)
    return limited(found, plan, work)


def contents(parts: Iterator[Part], form: Format) -> Iterator[Any]:
    """What the parts hold, with each defect at its place between the rows."""
    for part in parts:
        done = 0
        for event in part.events:
            if event.row > done:
                yield form.cut(part.content, done, event.row)
                done = event.row
            yield event.defect
        if not done and part.content is not None:
            yield part.content
        elif done < part.rows:
            yield form.cut(part.content, done, part.rows)


def limited(parts: Iterator[Part], plan: ReadPlan, work: Work) -> Iterator[Part]:
    """Yield the parts up to the limit, with the defects that come before it."""
    left = plan.selection.limit
    if left is None:
        yield from parts
        return
    for part in parts:
        last = left
        told = tuple(
            event
            for event in part.events
            if event.row < last or (event.trails and event.row == last)
        )
        if part.rows > left:
            content = work.format.cut(part.content, 0, left)
            yield replace(part, content=content, rows=left, events=told)
        else:
            yield replace(part, events=told)
        left -= part.rows
        if left <= 0:
            return


def _all_parts(
    plan: ReadPlan,
    work: Work,
    progress: Callable[[int], None],
    threads: int,
    turnstile: Turnstile | None,
) -> Iterator[Part]:
    walk = LivingWalk(plan)
    with Crew(threads, "kafkalog") as pool:
        lanes = Lanes(pool, threads + 1, work.format.rows_max, [], turnstile)
        while (segment := walk.take()) is not None:
            try:
                with OpenSegment(segment) as opened:
                    one = _SegmentScan(opened, walk, work.of_plan(walk.plan), progress, lanes)
                    try:
                        yield from one.parts()
                    finally:
                        one.stop()
            except CHANGES as error:
                walk.go_on(error)


class _SegmentScan:
    """One segment."""

    def __init__(
        self,
        opened: OpenSegment,
        walk: LivingWalk,
        work: Work,
        progress: Callable[[int], None],
        lanes: Lanes,
    ) -> None:
        plan = walk.plan
        self._is_done = False
        self._walk = walk
        self._plan = plan
        self._work = work
        self._progress = progress
        self._source = opened.source
        walk.require_unchanged(opened.source)
        start = start_position(opened, plan.selection)
        self._frames = Frames(opened.source, plan.selection.max_bytes, check_crc=True)
        self._reader = ChunkReader(opened.source, start, self._frames.end)
        self._conveyor = Conveyor(
            self._reader, lanes, work.steps, lambda chunk: first_behind(chunk.headers, plan)
        )

    def stop(self) -> None:
        """Wait for what is in progress."""
        self._conveyor.stop()

    def parts(self) -> Iterator[Part]:
        """Yield all parts, in order."""
        release = self._work.format.release
        for part in self._parts():
            yield part
            release(part.content)

    def _parts(self) -> Iterator[Part]:
        while not self._is_done:
            task = self._conveyor.take()
            if task is not None:
                yield from self._finish(task)
            elif self._reader.position < self._reader.end:
                yield from self._odd()
            else:
                return

    def _finish(self, task: Task) -> Iterator[Part]:
        """What a chunk held, up to the first false batch."""
        chunk = task.chunk
        for ordinal in task.future.result().steps[0]:
            wrong = self._frames.at(chunk.batch(ordinal).position)
            if isinstance(wrong, Defect):
                self._conveyor.stop()
                chunk.cut(ordinal)
                self._conveyor.resume(wrong.position or 0)
                if chunk.count:
                    chunk.waits = False
                    yield from islice(self._work.steps(chunk), 1, None)
                    self._walk.check(chunk.batch(chunk.count - 1).next_offset)
                self._progress(chunk.size_bytes)
                self._conveyor.free(task)
                yield from self._resume_after(wrong)
                return
        yield from islice(self._conveyor.results(task), 1, None)
        self._walk.check(chunk.batch(chunk.count - 1).next_offset)
        self._progress(chunk.size_bytes)

    def _odd(self) -> Iterator[Part]:
        """Yield one step by the reference scanner."""
        found = self._frames.at(self._reader.position)
        if isinstance(found, Defect):
            yield from self._resume_after(found)
            return
        if self._plan.is_behind(found):
            self._is_done = True
            self._walk.stop()
            return
        self._progress(found.size_bytes)
        self._conveyor.resume(found.end_position)
        if self._plan.wants(found):
            yield from self._work.of_batch(self._source, found)
        self._walk.check(found.next_offset)

    def _resume_after(self, defect: Defect) -> Iterator[Part]:
        size = defect.size_bytes or 0
        self._progress(size)
        self._conveyor.resume((defect.position or 0) + size)
        if self._plan.counts(defect, self._source):
            yield Part(None, 0, 0, (Event(0, defect),))
