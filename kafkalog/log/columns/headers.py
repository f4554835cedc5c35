"""Yields all batches of a log as columns, with the damage between them, in file order.

Small logs come from the reference scanner, without the kernels. For large logs, one thread reads
chunks and others verify checksums; where a chunk ends in something that is not a sound batch, the
reference scanner judges it, so that both give the same batches and the same defects.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.errors import DataError, KafkaLogError
from kafkalog.io.engine import Crew
from kafkalog.io.jit import fast_path
from kafkalog.log.batches.framing import Frames, is_dense, scan_batches
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns import record_facts
from kafkalog.log.columns.budget import size_to_decode
from kafkalog.model import Batch, Defect, Level, computed_once

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.io.paths.source import Source
    from kafkalog.log.batches.order import Order
    from kafkalog.log.batches.segment import OpenSegment
    from kafkalog.log.columns.chunks import Chunk, Rows, Turn
    from kafkalog.log.columns.walk import Task, Walk

    Look = Callable[[Chunk, Rows], Any]


_BATCHES_AT_ONCE: Final = 4096
_GATHERED_MIN: Final = 1024
_GATHERED_RECORDS_MIN: Final = 1 << 18
_ROWS_AT_ONCE: Final = 32768


@dataclass(frozen=True, slots=True)
class PlainRun:
    """Consecutive batches as brokers usually append them: nothing in their headers is unusual.

    They are of magic 2 and have right checksums; each follows the one before it in the file and in
    its offsets, and has a record for each offset; none is a control batch or was cleaned.

    Attributes:
        position, end_position: where the first one begins and the last one ends.
        first_offset, next_offset: the first one's base offset, and the offset after the last one.
        last_position, last_base_offset: of the last batch.
        count: number of batches.
        epoch: the leader epoch of all of them; None if they have several, or none.
        has_producers: whether one has a producer id.
        has_broker_times: whether a broker's clock set the timestamps of one.
    """

    position: int
    end_position: int
    first_offset: int
    next_offset: int
    last_position: int
    last_base_offset: int
    count: int
    epoch: int | None
    has_producers: bool
    has_broker_times: bool


_PLAIN_ATTRIBUTES: Final = c.COMPRESSION_MASK | c.TIMESTAMP_TYPE_MASK | c.TRANSACTIONAL_MASK


@dataclass(frozen=True)
class BatchColumns:
    """Consecutive batches, at least one; valid until the next ones are requested.

    Attributes:
        headers: int64, one row per field of `header_table`, one column per batch.
        crc_valid: bool, whether each checksum matches; true if it was not computed.
        markers: int64, the contents of control batches: one row per field of `record_facts`
            (MARKER_TYPE, COORDINATOR_EPOCH).
        facts: int64, facts about the records: one row per field of `record_facts` (FOUND, ...);
            None if no record was decoded.
        refusals: ordinals of the batches that could not be decoded, and why.
        seen: the results of `look` for its records, table by table, each preceded by the ordinal of
            its first batch; None if `look` was not called.
    """

    headers: NDArray[np.int64]
    crc_valid: NDArray[np.bool_]
    markers: NDArray[np.int64]
    facts: NDArray[np.int64] | None = None
    refusals: tuple[tuple[int, KafkaLogError], ...] = ()
    seen: tuple[tuple[int, Any], ...] | None = None

    @property
    def count(self) -> int:
        return int(self.headers.shape[1])

    @property
    def size_bytes(self) -> int:
        """Bytes from the first batch to the end of the last."""
        first, last = self.headers[:, 0], self.headers[:, -1]
        return int(last[h.POSITION] + last[h.SIZE] - first[h.POSITION])

    @computed_once
    def plain(self) -> PlainRun | None:
        """The batches as a plain run; None if something about them is unusual."""
        headers, attributes = self.headers, self.headers[h.ATTRIBUTES]
        base, last, count = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET], headers[h.COUNT]
        is_plain = self.crc_valid & (headers[h.MAGIC] == 2) & (count > 0)
        is_plain &= (last >= base) & (last - base + 1 == count)
        is_plain &= attributes & ~_PLAIN_ATTRIBUTES == 0
        is_plain &= attributes & c.COMPRESSION_MASK <= c.CODEC_MAX
        is_plain &= self.markers[h.MARKER_TYPE] == h.NO_MARKER
        ends = headers[h.POSITION] + headers[h.SIZE]
        is_plain[1:] &= (base[1:] == last[:-1] + 1) & (headers[h.POSITION, 1:] == ends[:-1])
        has_producer = headers[h.PRODUCER_ID] != -1
        has_producers = bool((has_producer | (attributes & c.TRANSACTIONAL_MASK != 0)).any())
        if has_producers:
            sequenced = (headers[h.PRODUCER_EPOCH] >= 0) & (headers[h.BASE_SEQUENCE] >= 0)
            is_plain &= (headers[h.PRODUCER_ID] >= 0) & sequenced
        if not is_plain.all():
            return None
        first, final = headers[:, 0].tolist(), headers[:, -1].tolist()
        if first[h.BASE_OFFSET] < 0 or final[h.LAST_OFFSET] == c.INT64_MAX:
            return None
        has_epoch = first[h.EPOCH] >= 0 and bool((headers[h.EPOCH] == first[h.EPOCH]).all())
        return PlainRun(
            first[h.POSITION],
            final[h.POSITION] + final[h.SIZE],
            first[h.BASE_OFFSET],
            final[h.LAST_OFFSET] + 1,
            final[h.POSITION],
            final[h.BASE_OFFSET],
            self.count,
            first[h.EPOCH] if has_epoch else None,
            has_producers,
            bool((attributes & c.TIMESTAMP_TYPE_MASK).any()),
        )

    def part(self, start: int, end: int) -> BatchColumns:
        """Return its batches from ordinal `start` up to `end`, renumbered from 0."""
        return BatchColumns(
            self.headers[:, start:end],
            self.crc_valid[start:end],
            self.markers[:, start:end],
            None if self.facts is None else self.facts[:, start:end],
            tuple((i - start, why) for i, why in self.refusals if start <= i < end),
        )


def joined(parts: Sequence[BatchColumns]) -> BatchColumns:
    """Join the columns of consecutive batches, read at one level."""
    if len(parts) == 1:
        return parts[0]
    facts = [part.facts for part in parts if part.facts is not None]
    refusals: list[tuple[int, KafkaLogError]] = []
    seen: list[tuple[int, Any]] = []
    before = 0
    for part in parts:
        refusals += [(before + ordinal, why) for ordinal, why in part.refusals]
        seen += [(before + ordinal, what) for ordinal, what in part.seen or ()]
        before += part.count
    return BatchColumns(
        np.concatenate([part.headers for part in parts], axis=1),
        np.concatenate([part.crc_valid for part in parts]),
        np.concatenate([part.markers for part in parts], axis=1),
        np.concatenate(facts, axis=1) if facts else None,
        tuple(refusals),
        None if any(part.seen is None for part in parts) else tuple(seen),
    )


Row = tuple[int, int, int, int, int, int, int, bool, int, int, int]


def producer_rows(columns: BatchColumns, which: NDArray[np.bool_]) -> Iterator[Row]:
    """Yield the wanted batches in order, without those that leave no trace in producers' states.

    In a run of data batches of one producer that are all transactional, or all not, only the first
    and the last matter.

    Yields:
        Ordinal, producer id and epoch, sequence, base and last offset, largest
        timestamp, whether it is transactional; for a marker its type (NO_MARKER for data), the
        coordinator's epoch and its timestamp.
    """
    headers, markers = columns.headers, columns.markers
    wanted = np.flatnonzero(which)
    if not len(wanted):
        return iter(())
    attributes = headers[h.ATTRIBUTES]
    order = wanted[np.argsort(headers[h.PRODUCER_ID, wanted], kind="stable")]
    producer_ids = headers[h.PRODUCER_ID, order]
    is_data = markers[h.MARKER_TYPE, order] == h.NO_MARKER
    in_transaction = attributes[order] & c.TRANSACTIONAL_MASK
    is_like_next = (
        (producer_ids[1:] == producer_ids[:-1])
        & (in_transaction[1:] == in_transaction[:-1])
        & is_data[1:]
        & is_data[:-1]
    )
    matters = np.ones(len(order), np.bool_)
    # A state keeps the first offset of a transaction and the last batch: those in between leave
    # nothing.
    matters[1:-1] = ~(is_like_next[1:] & is_like_next[:-1])
    kept = np.sort(order[matters])
    fields = (h.PRODUCER_ID, h.PRODUCER_EPOCH, h.BASE_SEQUENCE, h.BASE_OFFSET, h.LAST_OFFSET,
              h.MAX_TIMESTAMP)  # fmt: skip
    return zip(
        kept.tolist(),
        *(headers[field, kept].tolist() for field in fields),
        (attributes[kept] & c.TRANSACTIONAL_MASK != 0).tolist(),
        *(
            markers[field, kept].tolist()
            for field in (h.MARKER_TYPE, h.COORDINATOR_EPOCH, h.MARKER_TIMESTAMP)
        ),
        strict=True,
    )


def batch_columns(
    source: Source,
    level: Level,
    threads: int | None = None,
    *,
    position: int = 0,
    end: int | None = None,
    look: Look | None = None,
) -> Iterator[BatchColumns | Defect]:
    """Yield every batch and every defect of a log; together they cover every byte.

    Args:
        source: the log.
        level: quick reads headers and control records, standard verifies checksums, deep decodes
            every record of every batch whose checksum is right.
        threads: number of checking threads; None for one per processor, up to 8.
        position: position of the first batch.
        end: where the log ends; None for the end of the file.
        look: called, in any thread, with the records that the kernels decode; its results come
            with their columns.

    Raises:
        UnreadableError: the log cannot be read any further; everything before has been yielded.

    Cost:
        About 8 MB per thread, however large the log is; deep also the decompressed batch, and
        the results of `look` for a quarter of a million records.
    """
    end = source.size_bytes if end is None else min(end, source.size_bytes)
    size = min(source.stored_bytes, end - position)
    is_worth_it = fast_path.is_worth_it(
        size_to_decode(source, position, end) if level == Level.DEEP else size
    )
    # With large batches it is faster to read headers only than every byte between them.
    if is_worth_it and (level != Level.QUICK or is_dense(source, position, end)):
        threads = threads or fast_path.default_threads()
        return _by_chunks(source, level, threads, position, end, look)
    return _by_reference(source, level, position, end)


def regular_columns(
    source: Source, level: Level, position: int, end: int
) -> Generator[BatchColumns, None, None]:
    """Yield the batches from a position on, up to the first irregularity.

    The walk ends before the first frame that is not a batch of magic 0 to 2, the first wrong
    checksum (unless the level is quick), the first unreadable byte, or at `end`. It does not search
    for later batches. The kernels do the work; the cost is that of `batch_columns`.

    Args:
        source: the log.
        level: as in `batch_columns`.
        position: position of a batch.
        end: where the log ends.
    """
    with _walk(source, level, fast_path.default_threads(), position, end) as walk:
        for found in _up_to_failure(walk):
            assert not isinstance(found, Batch | Defect), "nobody judges"
            yield from walk.results(found)


def _by_reference(
    source: Source, level: Level, position: int, end: int
) -> Iterator[BatchColumns | Defect]:
    batches: list[Batch] = []
    try:
        for found in scan_batches(source, position, end, check_crc=level != Level.QUICK):
            if isinstance(found, Batch):
                batches.append(found)
            if batches and (isinstance(found, Defect) or len(batches) == _BATCHES_AT_ONCE):
                yield columns_of(source, batches, level)
                batches = []
            if isinstance(found, Defect):
                yield found
    # What was read before the failure comes first.
    except KafkaLogError:
        if batches:
            yield columns_of(source, batches, level)
        raise
    if batches:
        yield columns_of(source, batches, level)


def columns_of(source: Source, batches: Sequence[Batch], level: Level) -> BatchColumns:
    """Return batches of a log as columns."""
    valid = np.array([batch.crc_valid is not False for batch in batches], np.bool_)
    markers = record_facts.markers_of(source, batches)
    found = BatchColumns(h.table_of(batches), valid, markers)
    if level == Level.DEEP:
        facts, refusals = record_facts.facts_of(source, batches)
        found = replace(found, facts=facts, refusals=tuple(refusals))
    return found


def _by_chunks(
    source: Source, level: Level, threads: int, position: int, end: int, look: Look | None
) -> Iterator[BatchColumns | Defect]:
    frames = Frames(source, end, check_crc=level != Level.QUICK)
    with _walk(source, level, threads, position, frames.end, frames.at, look) as walk:
        yield from _gathered(_judged(source, level, walk))


def _judged(source: Source, level: Level, walk: Walk) -> Iterator[BatchColumns | Defect]:
    for found in _up_to_failure(walk):
        if isinstance(found, Defect):
            yield found
        elif isinstance(found, Batch):
            yield columns_of(source, [found], level)
        else:
            yield from walk.results(found)
    if walk.reader.position < walk.reader.end:
        # The reference scanner reads in smaller steps, which locates the failure.
        yield from _by_reference(source, level, walk.reader.position, walk.reader.end)


def sound_columns(opened: OpenSegment, start: int) -> Iterator[BatchColumns | Batch]:
    """Yield what `OpenSegment.batches` yields, most of it as columns."""
    order, source = opened.order(check_crc=False), opened.source
    with _walk(source, Level.QUICK, 1, start, order.frames.end, order.at, order=order) as walk:
        for found in walk.found():
            if isinstance(found, Batch | Defect):
                yield from opened.sound_batches((found,))
            else:
                yield from walk.results(found)


def _up_to_failure(walk: Walk) -> Iterator[Task | Batch | Defect]:
    with suppress(DataError):
        yield from walk.found()


@contextmanager
def _walk(
    source: Source,
    level: Level,
    threads: int,
    position: int,
    end: int,
    judge: Callable[[int], Batch | Defect] | None = None,
    look: Look | None = None,
    order: Order | None = None,
) -> Iterator[Walk]:
    from kafkalog.log.columns.chunks import ChunkReader
    from kafkalog.log.columns.scan_steps import in_order
    from kafkalog.log.columns.walk import Lanes, Walk

    rows = _ROWS_AT_ONCE if level == Level.DEEP else 0
    with Crew(threads, "kafkalog-headers") as pool:
        walk = Walk(
            ChunkReader(source, position, end, doubled=True),
            # One chunk more than threads: the next is ready when a thread gets free.
            Lanes(pool, threads + 1, rows, []),
            lambda chunk: _steps(chunk, level, look),
            judge,
            check_crc=level != Level.QUICK,
            cut=None if order is None else lambda chunk: in_order(order, chunk, chunk.count),
            order=order,
        )
        try:
            yield walk
        finally:
            walk.stop()


def _steps(chunk: Chunk, level: Level, look: Look | None) -> Iterator[BatchColumns | Turn]:
    """Yield the batches of a chunk; large batches wait for their turn."""
    valid = np.ones(chunk.count, np.bool_) if level == Level.QUICK else chunk.crc_valid
    # The chunk's own headers make room for those of the next.
    found = BatchColumns(chunk.headers.copy(), valid, record_facts.markers_of_chunk(chunk))
    if level == Level.DEEP:
        seen: list[Any] = []
        facts, refusals = yield from record_facts.facts_of_chunk(
            chunk, look and (lambda chunk, rows: seen.append(look(chunk, rows)))
        )
        found = replace(
            found,
            facts=facts,
            refusals=tuple(sorted(refusals, key=itemgetter(0))),
            seen=tuple((0, what) for what in seen) if look else None,
        )
    yield found


def _gathered(found: Iterator[BatchColumns | Defect]) -> Iterator[BatchColumns | Defect]:
    """Yield the same batches, more at once, since each yield has a fixed cost for its consumer."""
    held: list[BatchColumns] = []
    batches = records = 0
    try:
        for one in found:
            if isinstance(one, BatchColumns):
                held.append(one)
                batches += one.count
                records += 0 if one.facts is None else int(one.facts[h.FOUND].sum())
                if batches < _GATHERED_MIN and records < _GATHERED_RECORDS_MIN:
                    continue
            if held:
                yield joined(held)
                held, batches, records = [], 0, 0
            if isinstance(one, Defect):
                yield one
    except KafkaLogError:
        if held:
            yield joined(held)
        raise
    if held:
        yield joined(held)
