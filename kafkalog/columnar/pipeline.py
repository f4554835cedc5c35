"""The pipeline of a scan: chunks of a log decoded by threads and given in order.

One thread reads chunks and looks at batch headers, others check checksums, decompress and decode.
Where a chunk ends in something that is no sound batch, the reference scanner says what it is, so
that damage has the same names and reading resumes at the same place as in `kafkalog.reader`.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkalog.columnar.arrow import table_of_records
from kafkalog.columnar.stages import advance, defects_of
from kafkalog.errors import KafkaLogError
from kafkalog.framing import Frames
from kafkalog.model import Batch, Defect
from kafkalog.reader import (
    crc_defects,
    defect_of,
    read_records,
    record_matches,
    start_position,
)
from kafkalog.records import decode_records
from kafkalog.segment import OpenSegment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.columnar.chunks import Chunk, Workspace
    from kafkalog.log_dir import FileEntry, PartitionDir
    from kafkalog.model import Record
    from kafkalog.reader import ReadPlan, Selection
    from kafkalog.source import Readable


# Record batches, each with its defects and the number of its rows that come before each of them.
Found = tuple[Any, tuple[tuple[int, Defect], ...]]


@dataclass(frozen=True, slots=True)
class Request:
    """What a scan is asked for; `selection` is the caller's, without a last stable offset."""

    plan: ReadPlan
    selection: Selection
    schema: Any
    batch_rows: int
    defects: Callable[[Defect], object]
    progress: Callable[[int], None]


def limited(found: Iterator[Found], request: Request) -> Iterator[Any]:
    """The record batches up to the limit, with the defects that come before it."""
    left = request.selection.limit
    for table, events in found:
        rows = table.num_rows
        for row, defect in events:
            if left is None or row < left:
                request.defects(defect)
        if left is not None and rows >= left:
            if left:
                yield table.slice(0, left)
            return
        if left is not None:
            left -= rows
        if rows:
            yield table


def by_reference(path: str | Path | PartitionDir | FileEntry, request: Request) -> Iterator[Found]:
    """All rows through the reference decoder: numba is not loaded for a small log."""
    rows: list[Record] = []
    events: list[tuple[int, Defect]] = []
    for found in read_records(path, request.selection, request.progress):
        if isinstance(found, Defect):
            events.append((len(rows), found))
        else:
            rows.append(found)
            if len(rows) == request.batch_rows:
                yield table_of_records(rows, request.schema), tuple(events)
                rows, events = [], []
    yield table_of_records(rows, request.schema), tuple(events)


def by_kernels(request: Request, threads: int) -> Iterator[Found]:
    """All rows through the kernels, in so many threads."""
    with ThreadPoolExecutor(threads, "kafkalog-scan") as pool:
        spaces: list[Workspace] = []
        for segment in request.plan.segments:
            with OpenSegment(segment) as opened:
                one = _SegmentScan(opened, request, pool, threads + 1, spaces)
                try:
                    yield from one.tables()
                finally:
                    one.stop()
                if one.is_done:
                    return


@dataclass(slots=True)
class _Task:
    """A chunk that is being decoded."""

    chunk: Chunk
    steps: Iterator[Any]
    future: Future[tuple[list[Any], bool]]


class _SegmentScan:
    """One segment: chunks on their way through the pool, in order."""

    def __init__(
        self,
        opened: OpenSegment,
        request: Request,
        pool: ThreadPoolExecutor,
        depth: int,
        spaces: list[Workspace],
    ) -> None:
        from kafkalog.columnar.chunks import ChunkReader

        self.is_done = False
        self._request = request
        self._pool = pool
        self._depth = depth
        self._source = opened.source
        self._spaces = spaces
        start = start_position(opened, request.plan.selection)
        self._frames = Frames(opened.source, start, request.selection.max_bytes, check_crc=True)
        self._reader = ChunkReader(opened.source, start, self._frames.end)
        self._tasks: deque[_Task] = deque()
        self._is_odd = False  # what is at the reader's position is for the reference scanner

    def tables(self) -> Iterator[Found]:
        """Record batches with their defects."""
        while not self.is_done:
            self._fill()
            if self._tasks:
                yield from self._finish(self._tasks.popleft())
            elif self._is_odd:
                self._is_odd = False
                yield from self._odd()
            else:
                return

    def stop(self) -> None:
        """Wait for what is under way and forget it."""
        for task in self._tasks:
            if not task.future.cancel():
                task.future.exception()
            self._spaces.append(task.chunk.workspace)
        self._tasks.clear()

    def _fill(self) -> None:
        from kafkalog.columnar.chunks import Workspace
        from kafkalog.columnar.selecting import first_behind

        reader = self._reader
        while len(self._tasks) < self._depth and not self._is_odd and reader.position < reader.end:
            space = self._spaces.pop() if self._spaces else Workspace(self._request.batch_rows)
            chunk = reader.read(space)
            if chunk is not None:
                behind = first_behind(chunk.headers, self._request.plan)
                if behind < chunk.count:
                    chunk.cut(behind)
                    reader.resume(chunk.position + chunk.size_bytes)
                    self._is_odd = True
            if chunk is None or not chunk.count:
                self._spaces.append(space)
                self._is_odd = True
                return
            steps = _steps(chunk, self._request)
            self._tasks.append(_Task(chunk, steps, self._pool.submit(advance, steps)))

    def _finish(self, task: _Task) -> Iterator[Found]:
        """What a chunk held, up to the first batch that is none after all."""
        chunk = task.chunk
        [bad, *found], is_all = task.future.result()
        for ordinal in bad:
            wrong = self._frames.at(chunk.batch(ordinal).position)
            if isinstance(wrong, Defect):
                self.stop()
                chunk.cut(ordinal)
                self._reader.resume(wrong.position or 0)
                self._is_odd = False
                if chunk.count:
                    yield from islice(_steps(chunk, self._request), 1, None)
                self._request.progress(chunk.size_bytes)
                self._spaces.append(chunk.workspace)
                yield from self._resume_after(wrong)
                return
        while True:
            yield from found
            if is_all:
                break
            found, is_all = self._pool.submit(advance, task.steps).result()
        self._request.progress(chunk.size_bytes)
        self._spaces.append(chunk.workspace)

    def _odd(self) -> Iterator[Found]:
        """One step by the reference scanner and decoder."""
        found = self._frames.at(self._reader.position)
        if isinstance(found, Defect):
            yield from self._resume_after(found)
            return
        if self._request.plan.is_behind(found):
            self.is_done = True
            return
        self._request.progress(found.size_bytes)
        self._reader.resume(found.end_position)
        if self._request.plan.wants(found):
            yield from _by_records(self._source, found, self._request)

    def _resume_after(self, defect: Defect) -> Iterator[Found]:
        size = defect.size_bytes or 0
        self._request.progress(size)
        self._reader.resume((defect.position or 0) + size)
        if self._request.plan.counts(defect, self._source):
            yield table_of_records([], self._request.schema), ((0, defect),)


def _steps(chunk: Chunk, request: Request) -> Iterator[Any]:
    """First the ordinals of batches with wrong checksums, then the record batches."""
    from kafkalog.columnar.assembly import table_of
    from kafkalog.columnar.selecting import wanted_batches, wanted_rows

    bad = chunk.bad_checksums()
    yield bad
    wanted = wanted_batches(chunk.headers, request.plan)
    reported = [i for i in bad if wanted[i]]
    for rows in chunk.decode(wanted):
        if isinstance(rows, int):
            batch = chunk.batch(rows, rows not in reported)
            yield from _by_records(chunk, batch, request)
            continue
        chosen = wanted_rows(rows, request.selection)
        events = tuple(defects_of(chosen, chunk, reported))
        yield table_of(chosen, chunk.headers, request.schema), events


def _by_records(source: Readable, batch: Batch, request: Request) -> Iterator[Found]:
    """One batch through the reference decoder."""
    rows = []
    events = [(0, defect) for defect in crc_defects(batch)]
    try:
        for record in decode_records(source, batch):
            if record_matches(record, request.selection):
                rows.append(record)
                if len(rows) == request.batch_rows:
                    yield table_of_records(rows, request.schema), tuple(events)
                    rows, events = [], []
    except KafkaLogError as error:
        events.append((len(rows), defect_of(error, batch)))
    yield table_of_records(rows, request.schema), tuple(events)
