"""Logs as the text of `kafka-dump-log.sh`, in blocks that are written unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.errors import KafkaLogError
from kafkalog.io.engine import Crew
from kafkalog.log.batches.framing import read_batch
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.chunks import Chunk, ChunkReader, Rows, Turn
from kafkalog.log.columns.restored import record_of
from kafkalog.log.columns.scan_steps import OFFSET_LIMIT, Part, defects_of
from kafkalog.log.columns.walk import Lanes, Task, Walk
from kafkalog.log.text import kafka_kernels as t
from kafkalog.log.text.blocks import Text, TextFormat, size_of_bytes, whole
from kafkalog.model import Batch, Defect, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from kafkalog.io.paths.source import Source

    Mask = NDArray[np.bool_]


_LINE_END: Final = ord("\n")
_ROW_SIZE: Final = 160  # of a record's line without key, value and headers, about
_BATCH_SIZE: Final = 384
_NO_ROWS: Final = np.empty((k.ROW_FIELDS, 0), np.int64)
_NO_TEXT: Final = Text(np.empty(0, np.uint8), 0, 0, np.empty(0, np.int64))


class KafkaText(TextFormat):
    """A format for records and for batches: the lines of batches, and of their records.

    Args:
        content: whether keys and values are printed.
        metadata: whether offset, sizes and so on are printed.
        line_of: returns the line of a record that no kernel can format.
        batch_line_of: returns the line of such a batch.
    """

    rows_max = 32768

    def __init__(
        self,
        *,
        content: bool,
        metadata: bool,
        line_of: Callable[[Record], bytes],
        batch_line_of: Callable[[Batch], str],
    ) -> None:
        super().__init__()
        self._shown = (int(content), int(metadata))
        self._line_of = line_of
        self._batch_line_of = batch_line_of

    def left_over(self, headers: NDArray[np.int64]) -> Mask:
        """See `scan_steps.RecordFormat`."""
        return _left_over(headers)

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`; a batch's line precedes that of its first record."""
        ordinals = rows.table[k.ORDINAL]
        if not len(ordinals):
            return
        chosen = np.zeros(chunk.count, np.bool_)
        chosen[ordinals] = True
        if chunk.shown >= 0:
            chosen[chunk.shown] = False
        chunk.shown = int(ordinals[-1])
        yield from self.lines(rows, chunk, chosen, int(ordinals[0]), chunk.shown + 1)

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        head = _encoded(self._batch_line_of(records[0].batch)) if begins else b""
        lines = []
        try:
            for record in records:
                lines.append(head + self._line_of(record) + b"\n")
                head = b""
        except KafkaLogError:
            # The batch's line is already written when its first record turns out to have none.
            yield self._lines(lines or [head])
            raise
        yield self._lines(lines)

    def of_batches(self, chunk: Chunk, first: int, last: int, chosen: Mask) -> Iterator[Part]:
        """See `scan_steps.BatchFormat`."""
        odd = _left_over(chunk.headers)
        for i in (*(np.flatnonzero(odd[first:last]) + first).tolist(), last):
            if first < i:
                rows = Rows(_NO_ROWS, chunk.workspace.arena, range(first, i), ())
                for part in self.lines(rows, chunk, chosen, first, i):
                    text = part.content
                    ends = np.flatnonzero(text.buffer[: text.end] == _LINE_END) + 1
                    yield Part(replace(text, ends=ends), len(ends), part.size_bytes)
            if i < last and chosen[i]:
                yield self.of_batch(chunk.batch(i))
            first = i + 1

    def of_batch(self, batch: Batch) -> Part:
        """See `scan_steps.BatchFormat`."""
        return self._lines([_encoded(self._batch_line_of(batch))])

    def lines(
        self, rows: Rows, chunk: Chunk, chosen: Mask, first: int, last: int
    ) -> Iterator[Part]:
        """Yield lines of the rows, and of the chosen batches from `first` up to `last`."""
        table, headers = whole(rows.table), whole(chunk.headers)
        count = rows.table.shape[1]

        def kernel(
            state: NDArray[np.int64], ends: NDArray[np.int64], out: NDArray[np.uint8]
        ) -> int:
            why: int = t.format_lines(
                rows.arena, table, count, headers, chosen, chunk.crc_valid, last, *self._shown,
                state, ends, out,
            )  # fmt: skip
            return why

        def line(row: int) -> bytes:
            return self._line_of(record_of(rows, chunk, row)) + b"\n"

        size = _ROW_SIZE * count + _BATCH_SIZE * (last - first)
        if self._shown[0]:
            size += size_of_bytes(rows.table)
        yield from self._fill(0, count, kernel, line, size, (first,))


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "surrogateescape") + b"\n"


def _left_over(headers: NDArray[np.int64]) -> Mask:
    """Return which batches the kernel cannot format."""
    attributes = headers[k.ATTRIBUTES]
    odd: Mask = (
        (headers[k.MAGIC] < 2)
        | (attributes & c.CONTROL_MASK != 0)
        | (attributes & c.COMPRESSION_MASK >= len(c.COMPRESSION_NAMES))
        | (np.abs(headers[k.BASE_OFFSET]) > OFFSET_LIMIT)
    )
    return odd


@dataclass(frozen=True, slots=True)
class Lines:
    """A block of text.

    Attributes:
        block: whole lines, valid until the next ones are requested.
        ends: offsets of the first and the last record, None without records.
        gaps: pairs of consecutive offsets with a gap between them.
        defects: the defects of the batches in it.
    """

    block: Text
    ends: tuple[int, int] | None
    gaps: list[tuple[int, int]]
    defects: tuple[Defect, ...]
    size_bytes: int

    @property
    def text(self) -> memoryview:
        return self.block.view


@dataclass(frozen=True, slots=True)
class _Undone:
    """A batch that is left to the reference decoder."""

    batch: Batch
    size_bytes: int = 0


def dump_lines(
    source: Source,
    end: int,
    *,
    deep: bool,
    content: bool,
    metadata: bool,
    line_of: Callable[[Record], bytes],
    threads: int,
) -> Iterator[Lines | Batch | Defect]:
    """Yield the log's text up to `end`, until something cannot be framed, whose defect comes last.

    A batch in place of its lines is left to the reference decoder, which judges its checksum.
    `line_of` returns the line of a record whose text is not UTF-8.
    """
    form = KafkaText(content=content, metadata=metadata, line_of=line_of, batch_line_of=str)
    with Crew(threads, "kafkalog") as pool:
        lanes = Lanes(pool, threads + 1, form.rows_max, [])
        walk = Walk(
            ChunkReader(source, 0, end),
            lanes,
            lambda chunk: _steps(chunk, form, deep=deep),
            lambda position: read_batch(source, position, end),
        )
        try:
            for found in walk.found():
                if not isinstance(found, Task):
                    yield found
                    if isinstance(found, Defect):
                        return
                    continue
                for step in walk.results(found):
                    if isinstance(step, _Undone):
                        yield step.batch
                        continue
                    yield step
                    form.release(step.block)
        finally:
            walk.stop()


def _steps(chunk: Chunk, form: KafkaText, *, deep: bool) -> Iterator[Lines | _Undone | Turn]:
    bad = ~chunk.crc_valid
    left_over = _left_over(chunk.headers)
    everything = np.ones(chunk.count, np.bool_)
    rows_of = chunk.decode(everything, left_over) if deep else _bare(chunk, left_over)
    for rows in rows_of:
        if isinstance(rows, Turn):
            yield rows
            continue
        if isinstance(rows, int):
            yield _Undone(chunk.batch(rows))
            continue
        told = tuple(event.defect for event in defects_of(rows, chunk, bad))
        ends, gaps = _course(rows.table[k.OFFSET])
        started = rows.started
        for part in form.lines(rows, chunk, ~left_over, started.start, started.stop):
            yield Lines(part.content, ends, gaps, told, part.size_bytes)
            ends, gaps, told = None, [], ()
        if told:  # of a batch that ended without another line
            yield Lines(_NO_TEXT, ends, gaps, told, 0)


def _bare(chunk: Chunk, left_over: Mask) -> Iterator[Rows | int]:
    """Yield batches without their records."""
    done = 0
    for i in (*np.flatnonzero(left_over).tolist(), chunk.count):
        if done < i:
            yield Rows(_NO_ROWS, chunk.workspace.arena, range(done, i), ())
        if i < chunk.count:
            yield i
        done = i + 1


def _course(offsets: NDArray[np.int64]) -> tuple[tuple[int, int] | None, list[tuple[int, int]]]:
    """Return first and last offset, and the gaps between."""
    if not len(offsets):
        return None, []
    gaps = np.flatnonzero(offsets[1:] != offsets[:-1] + 1)
    pairs = list(zip(offsets[gaps].tolist(), offsets[gaps + 1].tolist(), strict=True))
    return (int(offsets[0]), int(offsets[-1])), pairs
