"""How far two logs have the same bytes, batch by batch, whatever segments these are in.

Comparing the bytes costs less than computing checksums, and sees what equal checksums in the
headers hide: a byte that was damaged in one copy.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from formats.late_classes import dataclass
from kafkalog.check.comparison.model import FieldDifference, FirstDifference
from kafkalog.errors import DataError
from kafkalog.io.engine import Crew
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.log.batches.framing import Frames, crc_valid
from kafkalog.log.batches.records import decode_records
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.batches.selection import Selection, start_position
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.chunks import BATCH_SIZE_MAX, Chunk, ChunkReader, Workspace
from kafkalog.log.columns.header_table import table_of
from kafkalog.model import Batch, Defect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from kafkalog.files.log_dir import Segment
    from kafkalog.io.paths.source import Source
    from kafkalog.model import Record

_HEADER = (
    "base_offset", "last_offset", "records", "magic", "leader_epoch", "attributes",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "crc",
    "size_bytes",
)  # fmt: skip
_RECORD = ("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Prefix:
    """What two logs have in common at their beginning.

    Attributes:
        end_offset: the offset after the last common batch.
        first: the first difference; None if both end there.
        is_odd: whether a log has something else than a sound batch there, so that only a reader
            that goes on after damage can compare the rest.
    """

    end_offset: int
    first: FirstDifference | None
    is_odd: bool


class _Log:
    """The batches of a log from an offset on, chunk by chunk; the next one is read ahead."""

    def __init__(self, segments: Sequence[Segment], start: int, pool: Crew) -> None:
        self.chunk: Chunk | None = None
        self.ordinal = 0
        self.odd_at: tuple[str, int] | None = None
        self._pool = pool
        self._chunks = self._read(segments, start)
        self._next: Future[Chunk | None] = pool.submit(next, self._chunks, None)

    @property
    def left(self) -> int:
        return 0 if self.chunk is None else self.chunk.count - self.ordinal

    def fill(self) -> bool:
        """Take the next chunk if nothing is left of this one; return whether there is a batch."""
        if not self.left:
            self.chunk, self.ordinal = self._next.result(), 0
            if self.chunk is not None:
                self._next = self._pool.submit(next, self._chunks, None)
        return self.left > 0

    def close(self) -> None:
        """Wait for what is read ahead, and close the files."""
        self._pool.wait_for(self._next)
        self._chunks.close()  # type: ignore[attr-defined]

    def positions(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return where the batches that are left begin in the arena, and where they end."""
        assert self.chunk is not None, "there is a batch"
        headers = self.chunk.headers[:, self.ordinal :]
        starts = headers[k.POSITION] - self.chunk.position
        return np.append(starts, starts[-1] + headers[k.SIZE, -1])

    def batch(self) -> Batch | None:
        return None if not self.left or self.chunk is None else self.chunk.batch(self.ordinal)

    def _read(self, segments: Sequence[Segment], start: int) -> Iterator[Chunk]:
        spaces = [Workspace(1), Workspace(1), Workspace(1)]
        has_begun = False
        for segment in segments:
            if segment.next_base_offset is not None and segment.next_base_offset <= start:
                continue
            with OpenSegment(segment) as opened:
                source = opened.source
                position = start_position(opened, Selection(from_offset=start))
                reader = ChunkReader(source, position, source.size_bytes)
                frames = Frames(source)
                while reader.position < reader.end:
                    spaces.append(spaces.pop(0))
                    if kernels_work():
                        chunk = reader.read(spaces[0])
                    else:
                        chunk = _one_batch(source, frames, reader, spaces[0])
                    if chunk is None:
                        found = frames.at(reader.position)
                        if isinstance(found, Batch) or not _is_end(found.reference, segment):
                            self.odd_at = source.path, reader.position
                            return
                        break
                    # Only up to the first that reaches the start: lower ones later are displaced.
                    is_wanted = chunk.headers[k.LAST_OFFSET] >= start
                    if has_begun or is_wanted.any():
                        skipped = 0 if has_begun else int(is_wanted.argmax())
                        has_begun = True
                        yield chunk if not skipped else _without(chunk, skipped)


def _one_batch(
    source: Source, frames: Frames, reader: ChunkReader, space: Workspace
) -> Chunk | None:
    """Do what `ChunkReader.read` does, for one batch and without kernels."""
    batch = frames.at(reader.position)
    if isinstance(batch, Defect) or batch.magic > 2 or batch.size_bytes > BATCH_SIZE_MAX:
        return None
    size = batch.size_bytes
    space.reserve(size)
    source.read_into(batch.position, space.arena.data[:size])
    space.headers[:, :1] = table_of([batch])
    reader.resume(batch.end_position)
    valid = np.array([crc_valid(source, batch)])
    return Chunk(source.path, batch.position, size, 1, space, _crc_valid=valid)


def _is_end(reference: str, segment: Segment) -> bool:
    return reference == "zero-tail" or (reference == "torn-tail" and segment.is_active)


def _without(chunk: Chunk, count: int) -> Chunk:
    """Return a chunk without its first batches, whose bytes stay in the arena."""
    headers = chunk.workspace.headers
    headers[:, : chunk.count - count] = headers[:, count : chunk.count].copy()
    chunk.count -= count
    return chunk


def common_prefix(
    left: Sequence[Segment],
    right: Sequence[Segment],
    start: int,
    progress: Callable[[int], None] | None = None,
) -> Prefix:
    """Compare two logs from an offset on, up to the first difference.

    Args:
        start: batches below are not compared.
        progress: called with numbers of bytes, those of both logs.

    Raises:
        KafkaLogError: a file cannot be read.
    """
    end = start
    with ExitStack() as stack:
        pool = stack.enter_context(Crew(2, "kafkalog"))
        one, other = _Log(left, start, pool), _Log(right, start, pool)
        stack.callback(one.close)
        stack.callback(other.close)
        while one.fill() & other.fill():  # no `and`: both take their next chunk
            batches, size, is_same = _compare(one, other)
            if batches:
                assert one.chunk is not None, "it has batches"
                end = one.chunk.batch(one.ordinal + batches - 1).next_offset
                one.ordinal += batches
                other.ordinal += batches
            if progress is not None:
                progress(2 * size)
            if not is_same:
                return Prefix(end, _difference(one, other), is_odd=False)
        is_odd = one.odd_at is not None or other.odd_at is not None
        if is_odd or one.left or other.left:
            return Prefix(end, _difference(one, other), is_odd)
        return Prefix(end, None, is_odd=False)


def _compare(one: _Log, other: _Log) -> tuple[int, int, bool]:
    """Return how many batches are the same, their bytes, and whether no difference follows."""
    assert one.chunk is not None, "it was filled"
    assert other.chunk is not None, "it was filled"
    mine, theirs = one.positions(), other.positions()
    size = int(min(mine[-1] - mine[0], theirs[-1] - theirs[0]))
    left, right = one.chunk.workspace.arena, other.chunk.workspace.arena
    first, second = int(mine[0]), int(theirs[0])
    if kernels_work():
        same = k.first_difference(left, first, right, second, size)
    else:
        differs = left[first : first + size] != right[second : second + size]
        same = int(differs.argmax()) if differs.any() else size
    batches = int(np.searchsorted(mine, mine[0] + same, "right")) - 1
    batches = min(batches, int(np.searchsorted(theirs, theirs[0] + same, "right")) - 1)
    return batches, int(mine[batches] - mine[0]), same == size


def _difference(one: _Log, other: _Log) -> FirstDifference:
    left, right = one.batch(), other.batch()
    places: list[tuple[str | None, int | None]] = [
        (batch.path, batch.position) if batch is not None else log.odd_at or (None, None)
        for batch, log in ((left, one), (right, other))
    ]
    fields: list[FieldDifference] = []
    if left is not None and right is not None:
        fields = [
            FieldDifference("batch", name, getattr(left, name), getattr(right, name))
            for name in _HEADER
            if getattr(left, name) != getattr(right, name)
        ]
        sound = [bool(log.chunk and log.chunk.crc_valid[log.ordinal]) for log in (one, other)]
        if sound[0] != sound[1]:
            fields.append(FieldDifference("batch", "crc_valid", *sound))
        fields += _in_records(one, other, left, right)
    offsets = [batch.base_offset for batch in (left, right) if batch is not None]
    (left_path, left_at), (right_path, right_at) = places
    return FirstDifference(
        min(offsets, default=0), left_path, left_at, right_path, right_at, tuple(fields)
    )


def _in_records(one: _Log, other: _Log, left: Batch, right: Batch) -> list[FieldDifference]:
    """Return the differences of the first record that differs, or is on one side only."""
    mine, theirs = _records(one, left), _records(other, right)
    while True:
        pair = next(mine, None), next(theirs, None)
        if pair == (None, None):
            return []
        values = [
            [None if record is None else _value(record, name) for name in _RECORD]
            for record in pair
        ]
        if values[0] != values[1]:
            return [
                FieldDifference("record", name, *both)
                for name, *both in zip(_RECORD, *values, strict=True)
                if both[0] != both[1]
            ]


def _value(record: Record, name: str) -> object:
    if name == "headers":
        return tuple((header.key, header.value) for header in record.headers)
    return getattr(record, name)


def _records(log: _Log, batch: Batch) -> Iterator[Record]:
    assert log.chunk is not None, "it has the batch"
    try:
        yield from decode_records(log.chunk, batch)
    except DataError:
        return
