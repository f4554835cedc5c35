"""The pipeline of a scan: the segments of a log, chunk by chunk, as parts in order.

Where a chunk ends in something that is not a sound batch, the reference scanner judges it, so
that damage has the same names and reading resumes at the same place as in the reference reader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog.batches.framing import Frames
from kafkalog.batches.segment import OpenSegment
from kafkalog.batches.selection import start_position
from kafkalog.columns.chunks import ChunkReader
from kafkalog.columns.scan_steps import BatchWork, Event, Part, RecordWork, first_behind
from kafkalog.columns.walk import Lanes, Task, Walk
from kafkalog.engine import Crew
from kafkalog.jit.fast_path import default_threads
from kafkalog.living import CHANGES, LivingWalk
from kafkalog.model import Batch, Defect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.batches.selection import ReadPlan
    from kafkalog.columns.budget import Turnstile
    from kafkalog.columns.scan_steps import Format, Work


def read_contents(
    plan: ReadPlan,
    form: Any,
    progress: Callable[[int], None] | None,
    *,
    batches: bool,
) -> Iterator[Any]:
    """Yield what a format makes of the records or the batches of a log, and defects, in order.

    `form` is a `RecordFormat`, or a `BatchFormat` for batches; its output is valid until the next
    piece is requested. Raises as `read_records`.
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

    `progress` is called with the number of bytes read since the last call. Scans that share a
    turnstile hold large batches one after another.
    """
    found = _all_parts(plan, work, progress, threads or default_threads(), turnstile)
    return limited(found, plan, work)


def contents(parts: Iterator[Part], form: Format) -> Iterator[Any]:
    """Yield the content of the parts, with each defect at its place between the rows."""
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
    """Scans one segment."""

    def __init__(
        self,
        opened: OpenSegment,
        walk: LivingWalk,
        work: Work,
        progress: Callable[[int], None],
        lanes: Lanes,
    ) -> None:
        plan = walk.plan
        self._living = walk
        self._plan = plan
        self._work = work
        self._progress = progress
        self._source = opened.source
        walk.require_unchanged(opened.source)
        start = start_position(opened, plan.selection)
        frames = Frames(opened.source, plan.selection.max_bytes, check_crc=True)
        self._walk = Walk(
            ChunkReader(opened.source, start, frames.end),
            lanes,
            work.steps,
            frames.at,
            check_crc=True,
            cut=lambda chunk: first_behind(chunk.headers, plan),
        )

    def stop(self) -> None:
        """Wait for work in progress."""
        self._walk.stop()

    def parts(self) -> Iterator[Part]:
        """Yield all parts, in order."""
        release = self._work.format.release
        for part in self._parts():
            yield part
            release(part.content)

    def _parts(self) -> Iterator[Part]:
        for found in self._walk.found():
            if isinstance(found, Task):
                chunk = found.chunk
                next_offset = chunk.batch(chunk.count - 1).next_offset
                yield from self._walk.results(found)
                self._living.check(next_offset)
                self._progress(chunk.size_bytes)
                continue
            if isinstance(found, Batch) and self._plan.is_behind(found):
                self._living.stop()
                return
            self._progress(found.size_bytes or 0)
            if isinstance(found, Defect):
                if self._plan.counts(found, self._source):
                    yield Part(None, 0, 0, (Event(0, found),))
                continue
            if self._plan.wants(found):
                yield from self._work.of_batch(self._source, found)
            self._living.check(found.next_offset)
