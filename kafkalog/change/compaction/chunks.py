"""Chunks of a log for the cleaner's two passes: records with keys, then rewritten batches.

Follows `Cleaner.buildOffsetMapForSegment` and `cleanInto` of Kafka for batches of magic 2.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from formats import constants as c
from kafkalog.change.compaction import kernels as r
from kafkalog.change.compaction import pack_kernels as p
from kafkalog.change.compaction.model import read_otherwise
from kafkalog.check.checkpoints import why_not_rewritten
from kafkalog.io.codecs import compress, native
from kafkalog.log.batches.records import require_few_records
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.chunks import Chunk, Rows, Turn
from kafkalog.log.columns.crc_kernels import crc_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Table = NDArray[np.int64]
    Mask = NDArray[np.bool_]


# A single huge batch must not hold on to its buffer until the end of the pass.
_BUFFER_KEPT_MAX: Final = 1 << 23
_PACKING_MAX: Final = 256  # bytes by which a small batch can grow when it is compressed
_GROWTH_MAX: Final = 18  # bytes by which a record can grow: its length and its timestamp delta


@dataclass(frozen=True, slots=True)
class Opened:
    """Consecutive batches of a chunk with all their records.

    Attributes:
        first, last: the range of batches in it.
        bodies: int64 (2, batches): start and end of each batch's uncompressed records; -1 if they
            are not wanted.
    """

    chunk: Chunk
    first: int
    last: int
    bodies: Table

    @property
    def headers(self) -> Table:
        """Header fields, one column per batch."""
        return self.chunk.headers[:, self.first : self.last]

    @property
    def counts(self) -> Table:
        """The number of records of each batch, 0 if they are not wanted."""
        counts: Table = np.where(self.bodies[0] >= 0, self.headers[k.COUNT], 0)
        return counts

    def rows(self) -> Rows:
        """Decode the wanted records.

        Raises:
            CorruptDataError: a batch cannot be decoded.
        """
        chunk, first, last = self.chunk, self.first, self.last
        starts, ends = np.full((2, chunk.count), -1, np.int64)
        starts[first:last], ends[first:last] = self.bodies
        rows = chunk.workspace.table(int(self.counts.sum()) + 1)
        codes = np.zeros(chunk.count, np.int64)
        state = np.array((first, -1, 0), np.int64)
        arena = chunk.workspace.arena
        count = k.decode_records(
            arena, chunk.workspace.headers, starts, ends, last, state, codes, rows
        )
        bad = np.flatnonzero(codes[first:last])
        if len(bad):
            raise chunk.refusal(first + int(bad[0]))
        return Rows(rows[:, :count], arena, range(first, last), ())


class Fate(NamedTuple):
    """Flags of batches, known before their records are examined.

    Attributes:
        discardable: the batch was aborted, or is a marker of a transaction without data.
        drop_all: the batch loses all its records.
        stays: the batch stays even without records.
    """

    discardable: Mask
    drop_all: Mask
    stays: Mask

    def part(self, first: int, last: int) -> Fate:
        """Return the flags of a range of batches."""
        some = slice(first, last)
        return Fate(self.discardable[some], self.drop_all[some], self.stays[some])


class Buffers:
    """A pool of buffers for new batches, shared by threads."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return a buffer of at least this size."""
        # Another thread may take the last one between a test and the pop.
        with suppress(IndexError):
            # One that is too small is dropped: the pool adapts to the sizes that are asked for.
            buffer = self._free.pop()
            if len(buffer) >= size:
                return buffer
        return np.empty(size + size // 8, np.uint8)

    def give(self, buffer: NDArray[np.uint8]) -> None:
        """Return a buffer, or the first bytes of one, to the pool."""
        # A slice of a buffer comes back as the whole that it is part of.
        whole = buffer.base if isinstance(buffer.base, np.ndarray) else buffer
        if len(whole) <= _BUFFER_KEPT_MAX:
            self._free.append(whole)


class Rewritten(NamedTuple):
    """Rewritten batches.

    Attributes:
        refusal: why a broker's cleaner would fail to write one, the first such reason, or None.
    """

    data: NDArray[np.uint8]
    refusal: str | None


class Rule(NamedTuple):
    """Settings for all batches of a pass.

    Attributes:
        latest_offset: the last offset of the map; records after it are kept.
        new_horizon_ms: the delete horizon of a batch that needs one and has none.
    """

    now_ms: int
    latest_offset: int
    new_horizon_ms: int


def opened(chunk: Chunk, wanted: Mask) -> Iterator[Opened | Turn]:
    """Yield the batches of a chunk in pieces of bounded size; unwanted batches have no records.

    Raises:
        CorruptDataError, LimitExceededError: a wanted batch cannot be decoded.
    """
    headers = chunk.headers
    codecs = headers[k.ATTRIBUTES] & c.COMPRESSION_MASK
    starts = headers[k.POSITION] - chunk.position + c.RECORD_BATCH_OVERHEAD
    ends = starts + headers[k.SIZE] - c.RECORD_BATCH_OVERHEAD
    # Batches of which no record is needed are not even decompressed: their fate is known.
    starts[~wanted] = -1
    for step in chunk.ranges(wanted & (codecs > 0) & (headers[k.COUNT] > 0), starts, ends):
        if isinstance(step, Turn):
            yield step
            continue
        assert isinstance(step, range), "no batch is left over"
        some = slice(step.start, step.stop)
        part = Opened(chunk, step.start, step.stop, np.stack((starts[some], ends[some])))
        counts = part.counts
        require_few_records(int(counts.max(initial=0)))
        # A record takes 7 bytes at least: a larger count is damage, and must not size any table.
        bad = np.flatnonzero((counts < 0) | (counts > part.bodies[1] - part.bodies[0]))
        if len(bad):
            raise chunk.refusal(step.start + int(bad[0]))
        yield part


def rewrite(
    part: Opened, superseded: Mask, fate: Fate, rule: Rule, counters: Table, buffers: Buffers
) -> Rewritten:
    """Rewrite batches with the records that are kept.

    Args:
        part: the old batches.
        superseded: which records a later one with their key supersedes.
        fate: the flags of the part's batches.
        rule: the settings for all batches.
        counters: COUNTERS numbers of `rewrite_kernels`, which are incremented.
        buffers: the pool for the new batches; their user returns them to it.
    """
    headers, counts = np.ascontiguousarray(part.headers), part.counts
    # Another count than when it was judged: the file has changed under our hands.
    if len(superseded) != counts.sum():
        raise read_otherwise(part.chunk.path)
    plan = np.zeros((r.PLAN_FIELDS, len(counts)), np.int64)
    plan[r.RAW_START] = headers[k.POSITION] - part.chunk.position
    plan[r.BODY_START], plan[r.BODY_END] = part.bodies
    keep = np.empty(len(superseded), np.bool_)
    kept = np.empty((r.KEPT_FIELDS, int(counts.max(initial=0))), np.int64)
    bodies = part.bodies[1] - part.bodies[0]
    sizes = np.maximum(headers[k.SIZE], bodies + c.RECORD_BATCH_OVERHEAD) + _GROWTH_MAX * counts
    out = buffers.take(int(sizes[part.bodies[0] >= 0].sum()))
    end, bad = r.clean_batches(
        part.chunk.workspace.arena, headers, rule.latest_offset, superseded, fate.drop_all,
        fate.stays, fate.discardable, rule.now_ms, rule.new_horizon_ms, plan, keep, kept, out,
        counters,
    )  # fmt: skip
    if bad >= 0:
        raise part.chunk.refusal(part.first + bad)
    actions = plan[r.ACTION]
    packed = (actions == r.REBUILD) & (headers[k.ATTRIBUTES] & c.COMPRESSION_MASK > 0)
    if packed.any():
        made, end = _packed(out, plan, headers, packed, buffers)
        # Compressed into another buffer: one in place could overtake what is still to be read.
        buffers.give(out)
        out = made
    _put_checksums(out, plan, actions)
    return Rewritten(out[:end], _refusal(part, plan, keep))


def _refusal(part: Opened, plan: Table, keep: Mask) -> str | None:
    """Return why a broker's cleaner would fail on one of these batches, or None."""
    headers = part.headers
    is_data = headers[k.ATTRIBUTES] & c.CONTROL_MASK == 0
    # MemoryRecordsBuilder refuses these, although a broker may have stored them: its cleaner gives
    # up on the partition, which is worth telling.
    odd = (headers[k.PRODUCER_EPOCH] < 0) | (is_data & (headers[k.BASE_SEQUENCE] < 0))
    odd &= headers[k.PRODUCER_ID] != -1
    odd |= plan[r.EARLIEST] < c.NO_TIMESTAMP
    for i in np.flatnonzero(odd & (plan[r.ACTION] == r.REBUILD)).tolist():
        rows = part.rows().table
        mine = keep & (rows[k.ORDINAL] == part.first + i)
        records = rows[:, mine][[k.OFFSET, k.TIMESTAMP]].T.tolist()
        if why := why_not_rewritten(part.chunk.batch(part.first + i), records):
            return why
    return None


def _packed(
    out: NDArray[np.uint8], plan: Table, headers: Table, packed: Mask, buffers: Buffers
) -> tuple[NDArray[np.uint8], int]:
    """Return the batches with these compressed, and their end in the buffer returned."""
    codecs = np.where(packed, headers[k.ATTRIBUTES] & c.COMPRESSION_MASK, c.NONE)
    size, count = int(plan[r.NEW_SIZE].sum()), len(codecs)
    made = buffers.take(size + (size >> 7) + _PACKING_MAX * count)
    functions, scratch = np.array(native.addresses(), np.int64), np.zeros(p.SCRATCH_SIZE, np.uint8)
    # Where what is left is: the kernel changes only what it compresses.
    starts, sizes, kinds = plan[r.NEW_START].tolist(), plan[r.NEW_SIZE].tolist(), codecs.tolist()
    done = end = 0
    while done < count:
        # The xerial framing of snappy has no kernel; its batches go one by one.
        if kinds[done] not in (c.NONE, c.SNAPPY):
            done, end = p.pack_batches(out, plan, codecs, done, made, end, functions, scratch)
        if done < count:
            batch = out.data[starts[done] : starts[done] + sizes[done]]
            made, after = _packed_one(batch, kinds[done], made, end)
            plan[r.NEW_START, done], plan[r.NEW_SIZE, done] = end, after - end
            done, end = done + 1, after
    return made, end


def _packed_one(
    batch: memoryview, codec: int, made: NDArray[np.uint8], at: int
) -> tuple[NDArray[np.uint8], int]:
    """Append one batch with the codec's module; return the buffer, and its new end."""
    head, body = batch[: c.RECORD_BATCH_OVERHEAD], batch[c.RECORD_BATCH_OVERHEAD :]
    if codec != c.NONE:
        body = memoryview(compress(body, codec))
    start = at + len(head)
    end = start + len(body)
    # Incompressible data grows: rare, so the buffer is not made for the worst case.
    if end > len(made):
        made = np.concatenate((made, np.empty(end, np.uint8)))
    new = made.data
    new[at:start] = head
    new[start:end] = body
    if codec != c.NONE:
        size = end - at - c.LOG_OVERHEAD
        new[at + c.LENGTH_POSITION : at + c.LOG_OVERHEAD] = size.to_bytes(4, "big")
    return made, end


def _put_checksums(out: NDArray[np.uint8], plan: Table, actions: Table) -> None:
    made = (actions == r.REBUILD) | (actions == r.EMPTY)
    starts = plan[r.NEW_START, made]
    ends = starts + plan[r.NEW_SIZE, made]
    sums = np.zeros(len(starts), np.int64)
    legacy = np.zeros(len(starts), np.bool_)
    crc_ranges(out, starts + c.ATTRIBUTES_POSITION, ends, legacy, sums)
    places = (starts + c.CRC_POSITION)[:, None] + np.arange(4)
    out[places] = sums.astype(">u4").view(np.uint8).reshape(-1, 4)
