"""A large log as the text of `kafka-dump-log.sh`, in blocks that are written as they are."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.columnar import text_kernels as t
from kafkalog.columnar.chunks import Chunk, ChunkReader, Rows, Workspace
from kafkalog.columnar.stages import advance, defects_of
from kafkalog.framing import read_batch
from kafkalog.model import Batch, Defect, Header, Record, increment_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from kafkalog.source import Source

_ROWS: Final = 16384
_TEXT_SIZE: Final = 1 << 20
_OFFSET_LIMIT: Final = 1 << 62  # beyond, sums of offsets could overflow: for the reference decoder


@dataclass(frozen=True, slots=True)
class Lines:
    """A block of text.

    Attributes:
        text: whole lines, to be used before the next block is asked for.
        ends: the first and the last record's offset, None without records.
        gaps: pairs of neighbouring offsets that do not follow each other.
        defects: what is wrong with the batches in it.
    """

    text: memoryview
    ends: tuple[int, int] | None
    gaps: list[tuple[int, int]]
    defects: tuple[Defect, ...]


def dump_lines(
    source: Source,
    end: int,
    *,
    deep: bool,
    content: bool,
    line_of: Callable[[Record], str],
    threads: int,
) -> Iterator[Lines | Batch | Defect]:
    """The log's text up to `end` in order, until something cannot be framed: that defect is last.

    A batch that comes instead of its lines is left to the reference decoder; its checksum is not
    judged. `line_of` makes the line of a record whose text is not UTF-8.
    """
    request = _Request(deep, content, line_of)
    reader = ChunkReader(source, 0, end)
    spaces: list[Workspace] = []
    tasks: deque[tuple[Chunk, Iterator[Any], Future[tuple[list[Any], bool]]]] = deque()
    odd = False
    with ThreadPoolExecutor(threads, "kafkalog-text") as pool:
        while True:
            while len(tasks) <= threads and not odd and reader.position < end:
                space = spaces.pop() if spaces else Workspace(_ROWS)
                chunk = reader.read(space)
                if chunk is None:
                    odd = True
                    spaces.append(space)
                    break
                steps = _steps(chunk, request)
                tasks.append((chunk, steps, pool.submit(advance, steps)))
            if tasks:
                chunk, steps, future = tasks.popleft()
                found, is_all = future.result()
                yield from (step for step, _ in found)
                while not is_all:
                    found, is_all = pool.submit(advance, steps).result()
                    yield from (step for step, _ in found)
                spaces.append(chunk.workspace)
            elif odd:
                odd = False
                strange = read_batch(source, reader.position, end)
                yield strange
                if isinstance(strange, Defect):
                    return
                reader.resume(strange.end_position)
            else:
                return


@dataclass(frozen=True, slots=True)
class _Request:
    deep: bool
    content: bool
    line_of: Callable[[Record], str]


def _steps(chunk: Chunk, request: _Request) -> Iterator[tuple[Lines | Batch, int]]:
    bad = chunk.bad_checksums()
    headers = chunk.headers
    valid = np.ones(chunk.count, np.bool_)
    valid[bad] = False
    attributes = headers[k.ATTRIBUTES]
    left_over = (
        (headers[k.MAGIC] < 2)
        | (attributes & c.CONTROL_MASK != 0)
        | (attributes & c.COMPRESSION_MASK >= len(c.COMPRESSION_NAMES))
        | (np.abs(headers[k.BASE_OFFSET]) > _OFFSET_LIMIT)
    )
    everything = np.ones(chunk.count, np.bool_)
    rows_of = chunk.decode(everything, left_over) if request.deep else _bare(chunk, left_over)
    for rows in rows_of:
        if isinstance(rows, int):
            yield chunk.batch(rows), 0
            continue
        told = [defect for _, defect in defects_of(rows, chunk, bad)]
        ends, gaps = _course(rows.table[k.OFFSET])
        for text in _texts(rows, chunk, ~left_over, valid, request):
            yield Lines(text, ends, gaps, tuple(told)), len(text)
            ends, gaps, told = None, [], []


def _bare(chunk: Chunk, left_over: NDArray[np.bool_]) -> Iterator[Rows | int]:
    """Batches without their records."""
    table = chunk.workspace.rows[:, :0]
    done = 0
    for i in (*np.flatnonzero(left_over).tolist(), chunk.count):
        if done < i:
            yield Rows(table, chunk.workspace.arena, range(done, i), ())
        if i < chunk.count:
            yield i
        done = i + 1


def _course(offsets: NDArray[np.int64]) -> tuple[tuple[int, int] | None, list[tuple[int, int]]]:
    """First and last offset, and the gaps between."""
    if not len(offsets):
        return None, []
    gaps = np.flatnonzero(offsets[1:] != offsets[:-1] + 1)
    pairs = list(zip(offsets[gaps].tolist(), offsets[gaps + 1].tolist(), strict=True))
    return (int(offsets[0]), int(offsets[-1])), pairs


def _texts(
    rows: Rows,
    chunk: Chunk,
    chosen: NDArray[np.bool_],
    valid: NDArray[np.bool_],
    request: _Request,
) -> Iterator[memoryview]:
    """The lines of the batches that begin in these rows, and of the rows."""
    state = np.array((rows.started.start, 0, 0), np.int64)
    size = _TEXT_SIZE
    while True:
        out = np.empty(size, np.uint8)
        before = state[:2].tolist()
        state[t.STATE_SIZE] = 0
        why = t.format_lines(
            rows.arena, rows.table, chunk.headers, chosen, valid, rows.started.stop,
            request.content, state, out,
        )  # fmt: skip
        if state[t.STATE_SIZE] or why == t.DONE:
            yield out.data[: int(state[t.STATE_SIZE])]
        if why == t.DONE:
            return
        if why == t.ODD:
            line = request.line_of(_record(rows, chunk, int(state[t.STATE_ROW]))) + "\n"
            yield memoryview(line.encode("utf-8", "surrogateescape"))
            state[t.STATE_ROW] += 1
        elif before == state[:2].tolist():
            size *= 2  # one record is larger than the block


def _record(rows: Rows, chunk: Chunk, row: int) -> Record:
    """One row as the reference decoder has it."""
    fields = [int(value) for value in rows.table[:, row]]
    batch = chunk.batch(fields[k.ORDINAL])
    pairs = np.empty((4, fields[k.HEADERS_COUNT]), np.int64)
    k.expand_headers(
        rows.arena,
        rows.table[k.HEADERS_POSITION, row : row + 1],
        rows.table[k.HEADERS_COUNT, row : row + 1],
        pairs,
    )

    def field(position: int, size: int) -> bytes | None:
        return None if size < 0 else rows.arena[position : position + size].tobytes()

    sequence = -1
    if batch.base_sequence >= 0:
        sequence = increment_sequence(batch.base_sequence, fields[k.OFFSET] - batch.base_offset)
    return Record(
        batch=batch,
        offset=fields[k.OFFSET],
        timestamp=fields[k.TIMESTAMP],
        timestamp_type=batch.timestamp_type,
        key=field(fields[k.KEY_POSITION], fields[k.KEY_SIZE]),
        value=field(fields[k.VALUE_POSITION], fields[k.VALUE_SIZE]),
        headers=tuple(
            Header(field(pair[0], pair[1]) or b"", field(pair[2], pair[3]))
            for pair in pairs.T.tolist()
        ),
        sequence=sequence,
    )
