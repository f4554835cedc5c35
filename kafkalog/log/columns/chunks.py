"""Chunks of a log in memory: batch headers as columns, and the rows of their records.

The memory bound of each command, which `docs/design/memory.md` states, rests on these numbers.

A chunk is read by one thread and decoded by another; its buffers are in its workspace, which is
reused for a later chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.errors import BytesUnreadableError, DataError, KafkaLogError, LimitExceededError
from kafkalog.io.codecs import DECOMPRESSED_SIZE_MAX, decompress_to
from kafkalog.io.codecs.output import OutputInPlace
from kafkalog.log.batches.framing import UP_TO_MAGIC, length_min
from kafkalog.log.batches.records import HEADERS_MAX, decode_records, too_many_headers
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns import legacy_kernels as old
from kafkalog.log.columns.budget import LARGE_SIZE, SIZE_AT_ONCE
from kafkalog.log.columns.crc_kernels import crc_ranges
from kafkalog.log.columns.header_table import batch_at
from kafkalog.log.columns.unpacking import unpack_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.io.paths.source import Source
    from kafkalog.model import Batch


CHUNK_SIZE_MIN: Final = 1 << 16
CHUNK_SIZE_MAX: Final = 1 << 21
BATCH_SIZE_MAX: Final = 1 << 26
"""Larger batches are left to the reference decoder."""
# at 128 bytes a batch, all of a chunk of 2 MiB
_BATCHES_MAX: Final = 1 << 14
_DECOMPRESSED_AT_ONCE: Final = 1 << 22
_ARENA_KEPT_MAX: Final = 9 << 20
_ARENA_FULL: Final = 8 << 20
"""So far batches are decompressed before the rows are made; there is room for one more."""
_ROWS_KEPT_MAX: Final = 1 << 17
_HEADER_SIZE: Final = 64  # of memory, besides its bytes: where key and value are, in two forms


class Turn(Enum):
    """What a chunk yields instead of rows."""

    WAIT = auto()
    """A large batch comes next: continue, with `waits` unset, once the chunk is first in line."""


class Workspace:
    """Buffers for one chunk: its bytes and what is decompressed after them, headers, rows."""

    def __init__(self, rows: int) -> None:
        self.arena: NDArray[np.uint8] = np.empty(CHUNK_SIZE_MIN, np.uint8)
        self.headers: NDArray[np.int64] = np.empty((k.HEADER_FIELDS, _BATCHES_MAX), np.int64)
        self.rows: NDArray[np.int64] = np.empty((k.ROW_FIELDS, rows), np.int64)

    def reserve(self, size: int, keep: int = 0) -> None:
        """Reserve `size` bytes, keeping the first `keep`; free the memory of a huge batch."""
        is_huge = not keep and len(self.arena) > max(size, _ARENA_KEPT_MAX)
        if len(self.arena) < size or is_huge:
            # At least doubled, so that all copies together stay linear.
            grown = np.empty(max(size, 2 * keep), np.uint8)
            grown[:keep] = self.arena[:keep]
            self.arena = grown

    def release(self) -> None:
        """Free the memory of a huge batch."""
        if len(self.arena) > _ARENA_KEPT_MAX:
            self.arena = np.empty(CHUNK_SIZE_MIN, np.uint8)

    def table(self, count: int) -> NDArray[np.int64]:
        """Return room for at least `count` rows; it is reused unless it is very large."""
        if self.rows.shape[1] >= count:
            return self.rows
        table = np.empty((k.ROW_FIELDS, count + count // 8), np.int64)
        if count <= _ROWS_KEPT_MAX:
            self.rows = table
        return table

    def unpack(self, start: int, end: int, codec: int, at: int, *, magic: int, limit: int) -> int:
        """Decompress into the arena after its first `at` bytes, which stay; return the end.

        Raises as `decompress`; then the bytes after `at` are meaningless.
        """
        # Into the arena itself: what is decompressed is not copied once more.
        output = OutputInPlace(codec, limit, lambda done, size: self._room(at + done, size))
        decompress_to(output, self.arena.data[start:end], magic=magic)
        if not output.is_in_place:
            self._room(at, output.size)[:] = output.value()
        return at + output.size

    def _room(self, at: int, size: int) -> memoryview:
        if at + size > len(self.arena):
            self.reserve(at + size, at)
        return self.arena.data[at : at + size]


class Failure(NamedTuple):
    """A batch that could not be decoded, and how many rows of this table precede it."""

    row: int
    ordinal: int
    error: KafkaLogError


@dataclass(frozen=True, slots=True)
class Rows:
    """Records as columns: positions and sizes point into the arena until the next request.

    Attributes:
        table: int64, one row per field of `kernels` (ORDINAL, OFFSET, ...), one column per record.
        arena: the bytes.
        started: ordinals of the batches that begin in this table.
        failures: batches that failed to decode in it, in order.
    """

    table: NDArray[np.int64]
    arena: NDArray[np.uint8]
    started: range
    failures: tuple[Failure, ...]

    def row_of(self, ordinal: int) -> int:
        """Return the first row of a batch."""
        return int(np.searchsorted(self.table[k.ORDINAL], ordinal))


def ranges_of(rows: Rows) -> Iterator[tuple[int, int]]:
    """Split rows into ranges of bounded size when they are columns; yield at least one."""
    count = rows.table.shape[1]
    sizes = rows.table[k.KEY_SIZE].clip(0) + rows.table[k.VALUE_SIZE].clip(0)
    sizes += _HEADER_SIZE * rows.table[k.HEADERS_COUNT]
    ends = np.cumsum(sizes)
    first = before = 0
    while True:
        # One row more than fits: a single record may be larger than that.
        last = min(int(np.searchsorted(ends, before + SIZE_AT_ONCE)) + 1, count)
        yield first, last
        if last == count:
            return
        first, before = last, int(ends[last - 1])


def is_wrapper(headers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which batches are compressed messages of magic 0 or 1; see `Batch.is_wrapper`."""
    wrappers: NDArray[np.bool_] = headers[k.ATTRIBUTES] & c.COMPRESSION_MASK != 0
    wrappers &= headers[k.MAGIC] < 2
    return wrappers


@dataclass(slots=True)
class Chunk:
    """`count` whole batches of magic 0 to 2 from `position` on.

    If it `waits`, other chunks are being decoded too, so large batches are deferred. `shown` is for
    text formats: the last batch whose line was written. `following` has base offset and leader
    epoch of the batch after them; None if none follows, or its header is odd. No offset is below
    `low`; None if batches are not compared with each other.
    """

    path: str
    position: int
    size_bytes: int
    count: int
    workspace: Workspace
    waits: bool = False
    shown: int = -1
    following: tuple[int, int] | None = None
    low: int | None = None
    _crc_valid: NDArray[np.bool_] | None = None

    @property
    def headers(self) -> NDArray[np.int64]:
        """Return the batches' header fields."""
        return self.workspace.headers[:, : self.count]

    def cut(self, count: int) -> None:
        """Keep only the first `count` batches."""
        if count < self.count:
            self.size_bytes = int(self.headers[k.POSITION, count]) - self.position
            self.following = self.place_of(count)
            self.count = count
            if self._crc_valid is not None:
                self._crc_valid = self._crc_valid[:count]

    def place_of(self, ordinal: int) -> tuple[int, int]:
        """Return base offset and leader epoch in the header of a batch."""
        return int(self.headers[k.BASE_OFFSET, ordinal]), int(self.headers[k.EPOCH, ordinal])

    def read(self, position: int, size: int) -> bytes:
        """Read bytes of the chunk, as `Source.read` does."""
        at = position - self.position
        return self.workspace.arena[at : min(at + size, self.size_bytes)].tobytes()

    def batch(self, ordinal: int) -> Batch:
        """Return one batch as the reference decoder does, with its checksum if that is known."""
        valid = None if self._crc_valid is None else bool(self._crc_valid[ordinal])
        batch = batch_at(self.headers, ordinal, self.path, valid)
        if self.low is None or not batch.is_wrapper:
            return batch
        before = self.headers[k.LAST_OFFSET, ordinal - 1]
        return replace(batch, low=int(before) + 1 if ordinal else self.low)

    @property
    def crc_valid(self) -> NDArray[np.bool_]:
        """Whether the checksum of each batch matches; computed on first use."""
        if self._crc_valid is None:
            self._crc_valid = self._compare_checksums()
        return self._crc_valid

    def _compare_checksums(self) -> NDArray[np.bool_]:
        headers = self.headers
        legacy = headers[k.MAGIC] < 2
        starts = headers[k.POSITION] - self.position
        ends = starts + headers[k.SIZE]
        starts += np.where(legacy, c.MAGIC_POSITION, c.ATTRIBUTES_POSITION)
        sums = np.zeros(self.count, np.int64)
        crc_ranges(self.workspace.arena, starts, ends, legacy, sums)
        valid: NDArray[np.bool_] = sums == headers[k.CRC]
        return valid

    def unpack(self, start: int, end: int, codec: int, at: int, *, magic: int) -> int | None:
        """Decompress as `Workspace.unpack`; return None if the batch is large and must wait."""
        if not self.waits:
            limit = DECOMPRESSED_SIZE_MAX
            return self.workspace.unpack(start, end, codec, at, magic=magic, limit=limit)
        try:
            return self.workspace.unpack(start, end, codec, at, magic=magic, limit=LARGE_SIZE)
        except LimitExceededError:
            return None

    def decode(
        self,
        wanted: NDArray[np.bool_],
        left_over: NDArray[np.bool_] | None = None,
        key: NDArray[np.uint8] | None = None,
    ) -> Iterator[Rows | int | Turn]:
        """Yield the rows of the wanted batches; for a left-over batch, yield its ordinal.

        With a `key`, rows of batches in which no record has it may be left out.
        """
        headers = self.headers
        legacy = headers[k.MAGIC] < 2
        compressed = (headers[k.ATTRIBUTES] & c.COMPRESSION_MASK > 0) & (headers[k.COUNT] > 0)
        starts = headers[k.POSITION] - self.position
        ends = starts + headers[k.SIZE]
        starts[~legacy] += c.RECORD_BATCH_OVERHEAD
        starts[~wanted] = -1
        special = wanted & compressed
        if left_over is not None:
            starts[left_over] = -1
            special |= wanted & left_over
        wrapped = wanted & compressed & legacy & (starts >= 0)
        if wrapped.any():
            old.find_values(self.workspace.arena, wrapped, starts, ends)
        errors: dict[int, KafkaLogError] = {}
        for step in self.ranges(special, starts, ends, left_over, errors):
            if isinstance(step, range):
                if key is not None:
                    k.skip_without_key(
                        self.workspace.arena, headers, starts, ends, step.start, step.stop, key
                    )
                yield from self._decode_range(step.start, step.stop, starts, ends, errors)
            else:
                yield step

    def ranges(
        self,
        special: NDArray[np.bool_],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        left_over: NDArray[np.bool_] | None = None,
        errors: dict[int, KafkaLogError] | None = None,
    ) -> Iterator[range | int | Turn]:
        """Yield ranges of batches to decode, of bounded size; for a left-over batch, its ordinal.

        Args:
            special: which batches are compressed or left over.
            starts, ends: where the records of each batch are; updated as they are decompressed.
            left_over: which batches are left over.
            errors: gets the errors of batches, by ordinal; if None, the first one is raised.
        """
        headers, space = self.headers, self.workspace
        first, fill = 0, self.size_bytes
        full = max(fill + _DECOMPRESSED_AT_ONCE, _ARENA_FULL)
        i = 0 if special.any() else self.count
        while first < self.count:
            if i < self.count:
                space.reserve(_ARENA_KEPT_MAX, fill)
                arena = space.arena[: max(fill, _ARENA_KEPT_MAX)]
                i, fill = unpack_plain(arena, headers, starts, ends, special, i, fill, full)
            if i == self.count or fill >= full:
                yield range(first, i)
                first, fill = i, self.size_bytes
                continue
            if left_over is not None and left_over[i]:
                if first < i:
                    yield range(first, i)
                yield i
                i += 1
                first, fill = i, self.size_bytes
                continue
            try:
                unpacked = self._unpack_odd(i, int(starts[i]), int(ends[i]), fill)
                if unpacked is None:
                    if first < i:
                        yield range(first, i)
                    first, fill = i, self.size_bytes
                    yield Turn.WAIT
                    unpacked = self._unpack_odd(i, int(starts[i]), int(ends[i]), fill)
                    assert unpacked is not None, "its turn has come"
                starts[i], ends[i] = fill, unpacked
                fill = unpacked
            except DataError as error:
                if errors is None:
                    raise
                errors[i] = error
                starts[i] = -1
            i += 1

    def _unpack_odd(self, ordinal: int, start: int, end: int, at: int) -> int | None:
        """Decompress a batch that is not plain, as `unpack`."""
        magic, attributes = self.headers[[k.MAGIC, k.ATTRIBUTES], ordinal].tolist()
        codec = attributes & c.COMPRESSION_MASK
        if magic < 2 and (start < 0 or codec == c.ZSTD):
            raise self.refusal(ordinal)
        return self.unpack(start, end, codec, at, magic=magic)

    def _decode_range(
        self,
        first: int,
        last: int,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        errors: dict[int, KafkaLogError],
    ) -> Iterator[Rows]:
        """Yield the rows of some batches; messages of magic 0 and 1 have another kernel."""
        space = self.workspace
        legacy = self.headers[k.MAGIC, first:last] < 2
        stops = [*(first + 1 + np.flatnonzero(legacy[1:] != legacy[:-1])).tolist(), last]
        codes = np.zeros(self.count, np.int64)
        state = np.array((first, -1, 0), np.int64)
        while state[k.STATE_BATCH] < last:
            before = int(state[k.STATE_BATCH])
            begins = before + int(state[k.STATE_POSITION] >= 0)
            decode = old.decode_messages if legacy[before - first] else k.decode_records
            stop = stops[bisect_right(stops, before)]
            count = decode(space.arena, space.headers, starts, ends, stop, state, codes, space.rows)
            after = int(state[k.STATE_BATCH])
            table = self._within_limits(space.rows[:, :count], begins, errors)
            bad = [before + int(i) for i in np.flatnonzero(codes[before:after])]
            bad += [i for i in errors if before <= i < after]
            failures = tuple(
                Failure(
                    int(np.searchsorted(table[k.ORDINAL], i, "right")),
                    i,
                    errors.get(i) or self.refusal(i),
                )
                for i in sorted({*bad})
            )
            ended = after + int(state[k.STATE_POSITION] >= 0)
            yield Rows(table, space.arena, range(begins, ended), failures)

    def _within_limits(
        self, table: NDArray[np.int64], begins: int, errors: dict[int, KafkaLogError]
    ) -> NDArray[np.int64]:
        """Leave out records with too many headers, and wrappers out of order; note why.

        The batches from `begins` on begin in the table.
        """
        ordinals, counts = table[k.ORDINAL], table[k.HEADERS_COUNT]
        left_out = np.zeros(len(ordinals), np.bool_)
        # Of magic 0 those inside have their own offsets.
        wrappers = is_wrapper(self.headers) & (self.headers[k.MAGIC] == 1)
        if self.low is not None and wrappers.any():
            lows = np.append(self.low, self.headers[k.LAST_OFFSET, :-1] + 1)
            rows = np.flatnonzero(np.diff(ordinals, prepend=-1))
            rows = rows[ordinals[rows] >= begins]
            numbers = ordinals[rows]
            for i in numbers[wrappers[numbers] & (table[k.OFFSET, rows] < lows[numbers])].tolist():
                errors[i] = self.refusal(i)
                left_out |= ordinals == i
        if len(ordinals) and int(ordinals[0]) in errors:
            left_out = ordinals == ordinals[0]
        for row in np.flatnonzero(counts > HEADERS_MAX).tolist():
            ordinal = int(ordinals[row])
            if ordinal not in errors:
                errors[ordinal] = too_many_headers(int(counts[row]), self.batch(ordinal))
                left_out[row:] |= ordinals[row:] == ordinal
        return np.ascontiguousarray(table[:, ~left_out]) if left_out.any() else table

    def refusal(self, ordinal: int) -> KafkaLogError:
        """Return the error that the reference decoder raises for the batch."""
        try:
            for _ in decode_records(self, self.batch(ordinal)):
                pass
        except DataError as error:
            return error
        # What the kernels refuse the reference decoder must refuse: this is what tests look for.
        raise AssertionError(f"two decoders disagree about {self.path}, batch {ordinal}")


class ChunkReader:
    """Reads chunks of one log from a position on; stops before anything irregular.

    Args:
        source: the log.
        position, end: where in it.
        doubled: whether chunks without compressed batches may be twice as large, for work with a
            high fixed cost per chunk.
    """

    def __init__(self, source: Source, position: int, end: int, *, doubled: bool = False) -> None:
        self.position = position
        self.end = end
        self._source = source
        self._size = CHUNK_SIZE_MIN
        self._size_max = CHUNK_SIZE_MAX
        self._doubled = doubled

    def shrink(self, size: int) -> None:
        """Read smaller chunks from now on: one of this size grew too large when decompressed.

        Others of that size, read before this was known, tell nothing more.
        """
        self._size_max = max(min(size // 2, self._size_max), CHUNK_SIZE_MIN)

    def resume(self, position: int) -> None:
        """Continue at another position, with small steps at first."""
        self.position = position
        self._size = CHUNK_SIZE_MIN

    def chunks(self, workspace: Workspace) -> Iterator[Chunk]:
        """Yield chunks up to anything irregular, each valid until the next."""
        while self.position < self.end and (chunk := self.read(workspace)) is not None:
            yield chunk
            workspace.release()

    def read(self, workspace: Workspace) -> Chunk | None:
        """Return the next chunk; None if the reference scanner must judge `position`."""
        left = self.end - self.position
        size = min(self._size, left)
        is_small = size <= CHUNK_SIZE_MIN
        while True:
            workspace.reserve(size)
            try:
                self._source.read_into(self.position, workspace.arena.data[:size])
            # A smaller chunk may end before the bad block; the last step is left to the scanner.
            except BytesUnreadableError:
                if is_small:
                    return None
                is_small, size = True, CHUNK_SIZE_MIN
                self._size = size
                continue
            count, used, why = k.scan_headers(
                workspace.arena, 0, size, self.position, left, workspace.headers
            )
            if count or why != k.SCAN_NEEDS_MORE:
                break
            needed = c.LOG_OVERHEAD + int.from_bytes(
                workspace.arena[c.LENGTH_POSITION : c.LOG_OVERHEAD].tobytes(), "big"
            )
            if needed > BATCH_SIZE_MAX:
                return None
            size = min(left, needed + c.HEADER_SIZE_UP_TO_MAGIC + 1)
        if not count:
            return None
        chunk = Chunk(self._source.path, self.position, used, count, workspace)
        self.position += used
        chunk.following = self._following(workspace, used, size)
        is_packed = (chunk.headers[k.ATTRIBUTES] & c.COMPRESSION_MASK).any()
        size_max = 2 * self._size_max if self._doubled and not is_packed else self._size_max
        self._size = min(2 * self._size, size_max)
        return chunk

    def _following(self, workspace: Workspace, used: int, size: int) -> tuple[int, int] | None:
        """Return `Chunk.following`: the header at the position may have been read."""
        left = self.end - self.position
        if left <= c.HEADER_SIZE_UP_TO_MAGIC:
            return None
        head = workspace.arena[used : min(used + c.HEADER_SIZE_UP_TO_MAGIC, size)].tobytes()
        if len(head) < c.HEADER_SIZE_UP_TO_MAGIC:
            with suppress(BytesUnreadableError):
                head = self._source.read_apart(self.position, c.HEADER_SIZE_UP_TO_MAGIC)
        if len(head) < c.HEADER_SIZE_UP_TO_MAGIC:
            return None
        base, length, epoch, magic = UP_TO_MAGIC.unpack(head)
        is_framed = 0 <= magic <= 2 and length_min(magic) <= length <= left - c.LOG_OVERHEAD
        return (int(base), int(epoch) if magic == 2 else c.NO_EPOCH) if is_framed else None
