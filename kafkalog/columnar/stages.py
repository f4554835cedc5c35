"""What is done with a chunk of a log, in steps of bounded output: checksums, selection, formatting.

Work comes in two kinds, records and batches; what is made of them is the format's business.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.columnar.budget import SIZE_AT_ONCE, record_size
from kafkalog.columnar.chunks import Turn
from kafkalog.columnar.selecting import wanted_batches, wanted_rows
from kafkalog.errors import FileChangedError, KafkaLogError
from kafkalog.framing import read_batch
from kafkalog.model import Batch, Defect
from kafkalog.reader import crc_defects, defect_of, record_matches
from kafkalog.records import decode_records, resolve_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Chunk, Rows
    from kafkalog.model import Record
    from kafkalog.paths.source import Readable
    from kafkalog.reader import ReadPlan

    Mask = NDArray[np.bool_]

OFFSET_LIMIT: Final = 1 << 62
"""Beyond, sums of offsets could overflow: for the reference decoder."""


class Event(NamedTuple):
    """A defect, and how many rows of its part come before it.

    One that `trails` belongs to the row before it: where that row is wanted, so is the defect.
    """

    row: int
    defect: Defect
    trails: bool = False


@dataclass(slots=True)
class Part:
    """A piece of what a scan gives: so many rows, about so many bytes, and the defects in it."""

    content: Any
    rows: int
    size_bytes: int
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class Judged:
    """A chunk, and which of its batches have a right checksum; `shown` is for the format's use."""

    chunk: Chunk
    valid: Mask
    shown: int = field(default=-1)

    def batch(self, ordinal: int) -> Batch:
        """One batch as the reference reader has it."""
        return self.chunk.batch(ordinal, bool(self.valid[ordinal]))


class Format(Protocol):
    """Makes something of rows; several threads use it at once."""

    rows_max: int
    """How many rows are decoded at a time."""

    def cut(self, content: Any, first: int, last: int) -> Any:
        """Some rows of a part's content."""

    def release(self, content: Any) -> None:
        """The content is not used any more."""


class RecordFormat(Format, Protocol):
    """Makes something of records."""

    def left_over(self, headers: NDArray[np.int64]) -> Mask | None:
        """Which batches it wants from the reference decoder."""

    def of_rows(self, rows: Rows, judged: Judged) -> Iterator[Part]:
        """Parts of decoded rows, without events."""

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:
        """Parts of records of one batch, its first ones or more of them, without events."""


class BatchFormat(Format, Protocol):
    """Makes something of batches."""

    def of_batches(self, judged: Judged, first: int, last: int, chosen: Mask) -> Iterator[Part]:
        """Parts of the chosen ones of the batches from `first` up to `last`, without events."""

    def of_batch(self, batch: Batch) -> Part:
        """A batch that the reference scanner read."""


class Work(Protocol):
    """What is done with chunks, and with what the reference scanner found between them."""

    @property
    def format(self) -> Format:
        """What is made of them."""

    def steps(self, chunk: Chunk) -> Iterator[list[int] | Part | Turn]:
        """First the ordinals of batches with wrong checksums, then the parts of a chunk.

        Large batches wait for their turn, if the chunk does.
        """

    def of_batch(self, source: Readable, batch: Batch) -> Iterator[Part]:
        """The parts of a batch that the reference scanner read and judged."""

    def of_plan(self, plan: ReadPlan) -> Work:
        """The same for another plan of the same reading."""


@dataclass(frozen=True, slots=True)
class RecordWork:
    """The records that are wanted."""

    plan: ReadPlan
    format: RecordFormat

    def of_plan(self, plan: ReadPlan) -> RecordWork:
        """See `Work`."""
        return replace(self, plan=plan)

    def steps(self, chunk: Chunk) -> Iterator[list[int] | Part | Turn]:
        """See `Work`."""
        bad = chunk.bad_checksums()
        yield bad
        judged = judge(chunk, bad)
        wanted = wanted_batches(chunk.headers, self.plan)
        reported = [i for i in bad if wanted[i]]
        if self.plan.selection.sound:
            wanted[bad] = False
        for rows in chunk.decode(wanted, self.format.left_over(chunk.headers)):
            if isinstance(rows, Turn):
                yield rows
                continue
            if isinstance(rows, int):
                if chunk.waits:
                    yield Turn.WAIT  # the reference decoder holds all of a batch
                yield from self.of_batch(chunk, judged.batch(rows))
                continue
            chosen = wanted_rows(rows, self.plan.selection)
            events = defects_of(chosen, chunk, reported)
            yield from _with_events(self.format.of_rows(chosen, judged), events)

    def of_batch(self, source: Readable, batch: Batch) -> Iterator[Part]:
        """See `Work`."""
        for defect in crc_defects(batch):
            yield Part(None, 0, 0, (Event(0, defect),))
        if self.plan.selection.sound and batch.crc_valid is False:
            return
        found = decode_records(source, batch)
        failure: Defect | None = None
        begins, is_over = True, False
        while not is_over:
            records: list[Record] = []
            size = 0
            try:
                for record in found:
                    if record_matches(record, self.plan.selection):
                        records.append(record)
                        size += record_size(record)
                        if len(records) == self.format.rows_max or size >= SIZE_AT_ONCE:
                            break
                else:
                    is_over = True
            except FileChangedError:
                raise  # the reading goes on elsewhere
            except KafkaLogError as error:
                failure, is_over = defect_of(error, batch), True
            if records:  # what the format makes of them may fail, too: that is not the batch's end
                yield from self.format.of_records(records, begins=begins)
                begins = False
        if failure is not None:
            yield Part(None, 0, 0, (Event(0, failure),))


@dataclass(frozen=True, slots=True)
class BatchWork:
    """The batches that are wanted."""

    plan: ReadPlan
    format: BatchFormat

    def of_plan(self, plan: ReadPlan) -> BatchWork:
        """See `Work`."""
        return replace(self, plan=plan)

    def steps(self, chunk: Chunk) -> Iterator[list[int] | Part | Turn]:
        """See `Work`."""
        bad = chunk.bad_checksums()
        yield bad
        judged = judge(chunk, bad)
        headers = chunk.headers
        wanted = wanted_batches(headers, self.plan)
        odd = np.abs(headers[k.BASE_OFFSET]) > OFFSET_LIMIT
        odd |= (headers[k.MAGIC] < 2) & (headers[k.ATTRIBUTES] & c.COMPRESSION_MASK != 0)
        first = 0
        for i in (*np.flatnonzero(odd & wanted).tolist(), chunk.count):
            if first < i:
                yield from self._of_range(judged, first, i, wanted)
            if i < chunk.count:
                found = read_batch(
                    chunk, int(headers[k.POSITION, i]), chunk.position + chunk.size_bytes
                )
                assert isinstance(found, Batch), "the chunk holds whole batches"
                if chunk.waits:
                    yield Turn.WAIT
                yield from self.of_batch(chunk, replace(found, crc_valid=bool(judged.valid[i])))
            first = i + 1

    def _of_range(self, judged: Judged, first: int, last: int, wanted: Mask) -> Iterator[Part]:
        before = np.concatenate(([0], np.cumsum(wanted[first:last]))).tolist()
        bad = np.flatnonzero(wanted[first:last] & ~judged.valid[first:last]).tolist()
        events = [
            Event(before[i + 1], next(crc_defects(judged.batch(first + i))), trails=True)
            for i in bad
        ]
        yield from _with_events(self.format.of_batches(judged, first, last, wanted), events)

    def of_batch(self, source: Readable, batch: Batch) -> Iterator[Part]:
        """See `Work`."""
        if batch.magic < 2 and batch.compression:
            with suppress(KafkaLogError):  # the offset in the header is the best there is
                batch = resolve_batch(source, batch)
        part = self.format.of_batch(batch)
        part.events = tuple(Event(1, defect, trails=True) for defect in crc_defects(batch))
        yield part


def judge(chunk: Chunk, bad: list[int]) -> Judged:
    """The chunk with its checksums judged; `bad` are the ordinals of wrong ones."""
    valid = np.ones(chunk.count, np.bool_)
    valid[bad] = False
    return Judged(chunk, valid)


def defects_of(rows: Rows, chunk: Chunk, bad: list[int]) -> list[Event]:
    """What is wrong with the batches of these rows, in order.

    The checksum of a batch (`bad`: ordinals of wrong ones) is told before its records are judged.
    """
    told = [
        (rows.row_of(i), i, 0, next(crc_defects(chunk.batch(i, crc_valid=False))))
        for i in bad
        if i in rows.started
    ]
    told += [
        (failure.row, failure.ordinal, 1, defect_of(failure.error, chunk.batch(failure.ordinal)))
        for failure in rows.failures
    ]
    told.sort(key=itemgetter(0, 1, 2))
    return [Event(event[0], event[3]) for event in told]


def _with_events(parts: Iterator[Part], events: list[Event]) -> Iterator[Part]:
    """The parts with their share of the events, whose rows count from the first part on."""
    done = 0
    for part in parts:
        last = done + part.rows
        share = [event for event in events if event.row < last or (event.trails and
                 event.row == last)]  # fmt: skip
        if share:
            part.events = tuple(event._replace(row=event.row - done) for event in share)
            events = events[len(share) :]
        yield part
        done = last
    if events:
        yield Part(None, 0, 0, tuple(event._replace(row=event.row - done) for event in events))
