"""The pipeline of a scan: the segments of a log, chunk by chunk, as parts in order.

Where a chunk ends in something that is not a sound batch, the reference scanner judges it, so
that damage has the same names and reading resumes at the same place as in the reference reader.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalog.io.engine import Crew
from kafkalog.io.jit.fast_path import default_threads
from kafkalog.log.batches.order import batch_defects
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.batches.selection import ReadPlan, start_position
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.chunks import Chunk, ChunkReader, Rows
from kafkalog.log.columns.restored import records_of
from kafkalog.log.columns.scan_steps import (
    BatchWork,
    Event,
    Part,
    RecordWork,
    first_behind,
    in_order,
)
from kafkalog.log.columns.walk import Lanes, Task, Walk
from kafkalog.log.living import CHANGES, LivingWalk
from kafkalog.model import Batch, Defect, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from kafkalog.log.columns.budget import Turnstile
    from kafkalog.log.columns.scan_steps import Format, Work


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
        # One chunk more than threads: the next is ready when a thread gets free.
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
        order = plan.order(opened)
        self._walk = Walk(
            ChunkReader(opened.source, start, order.frames.end),
            lanes,
            work.steps,
            order.at,
            check_crc=True,
            cut=lambda chunk: in_order(order, chunk, first_behind(chunk.headers, plan)),
            order=order,
        )

    def stop(self) -> None:
        """Wait for work in progress."""
        self._walk.stop()

    def parts(self) -> Iterator[Part]:
        release = self._work.format.release
        for part in self._parts():
            yield part
            release(part.content)

    def _parts(self) -> Iterator[Part]:
        for found in self._walk.found():
            if isinstance(found, Task):
                chunk = found.chunk
                # Asked now: after its results the chunk's buffers belong to another one.
                last = chunk.batch(chunk.count - 1)
                yield from self._walk.results(found)
                self._living.check(last.next_offset, last.leader_epoch)
                self._progress(chunk.size_bytes)
                continue
            if isinstance(found, Batch) and self._plan.is_behind(found):
                if found.header_defect is not None:
                    yield Part(None, 0, 0, (Event(0, found.header_defect),))
                self._living.stop()
                return
            self._progress(found.size_bytes or 0)
            if isinstance(found, Defect):
                if self._plan.counts(found, self._source):
                    yield Part(None, 0, 0, (Event(0, found),))
                continue
            if self._plan.wants(found):
                yield from self._work.of_batch(self._source, found)
            elif not found.has_place:  # its records may be wanted ones
                yield Part(None, 0, 0, tuple(Event(0, one) for one in batch_defects(found)))
            next_offset = found.next_offset if found.has_place else None
            self._living.check(next_offset, found.leader_epoch)


# Approximate size of a record or a batch as a Python object.
_OBJECT_SIZE: Final = 600


class Restored:
    """A format for records and for batches: lists of `Record`s and of `Batch`es."""

    rows_max = 4096

    def left_over(self, headers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See `scan_steps.RecordFormat`; rows lack the checksums of messages."""
        mask: NDArray[np.bool_] = headers[k.MAGIC] < 2
        return mask

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        yield _part(records_of(rows, chunk))

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:  # noqa: ARG002
        """See `scan_steps.RecordFormat`."""
        yield _part(records)

    def of_batches(
        self, chunk: Chunk, first: int, last: int, chosen: NDArray[np.bool_]
    ) -> Iterator[Part]:
        """See `scan_steps.BatchFormat`."""
        yield _part([chunk.batch(i) for i in range(first, last) if chosen[i]])

    def of_batch(self, batch: Batch) -> Part:
        """See `scan_steps.BatchFormat`."""
        return _part([batch])

    def cut(self, content: list[Any], first: int, last: int) -> list[Any]:
        """See `scan_steps.Format`."""
        return content[first:last]

    def release(self, content: list[Any] | None) -> None:
        """See `scan_steps.Format`."""


def _part(values: list[Any]) -> Part:
    return Part(values, len(values), _OBJECT_SIZE * len(values))
