"""Chunks of a log for the cleaner's two passes: records with keys, then rewritten batches.

Follows `Cleaner.buildOffsetMapForSegment` and `cleanInto` of Kafka 4.3 for batches of magic 2.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from formats import constants as c
from kafkalog.batches.records import require_few_records
from kafkalog.check.checkpoints import why_not_rewritten
from kafkalog.codecs import compress
from kafkalog.columns import kernels as k
from kafkalog.columns.chunks import Chunk, Rows, Turn
from kafkalog.compaction import kernels as r

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Table = NDArray[np.int64]
    Mask = NDArray[np.bool_]


_BUFFER_KEPT_MAX: Final = 1 << 23
_GROWTH_MAX: Final = 18  # bytes by which a record can grow: its length and its timestamp delta


@dataclass(frozen=True, slots=True)
class Opened:
    """Consecutive batches of a chunk with all their records.

    Attributes:
        chunk: the chunk.
        first, last: the range of batches in it.
        rows: their records.
        bodies: int64 (2, batches): start and end of each batch's uncompressed records.
    """

    chunk: Chunk
    first: int
    last: int
    rows: Rows
    bodies: Table

    @property
    def headers(self) -> Table:
        """Header fields, one column per batch."""
        return self.chunk.headers[:, self.first : self.last]


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
        with suppress(IndexError):
            buffer = self._free.pop()
            if len(buffer) >= size:
                return buffer
        return np.empty(size + size // 8, np.uint8)

    def give(self, buffer: NDArray[np.uint8]) -> None:
        """Return a buffer, or the first bytes of one, to the pool."""
        whole = buffer if buffer.base is None else buffer.base
        assert isinstance(whole, np.ndarray), "it was taken here"
        if len(whole) <= _BUFFER_KEPT_MAX:
            self._free.append(whole)


class Rewritten(NamedTuple):
    """Rewritten batches.

    Attributes:
        data: their bytes.
        refusal: why a broker's cleaner would fail to write one, the first such reason, or None.
    """

    data: NDArray[np.uint8]
    refusal: str | None


class Rule(NamedTuple):
    """Settings for all batches of a pass.

    Attributes:
        now_ms: the clock.
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
    starts[~wanted] = -1
    for step in chunk.ranges(wanted & (codecs > 0) & (headers[k.COUNT] > 0), starts, ends):
        if isinstance(step, range):
            yield _rows(chunk, step.start, step.stop, starts, ends)
        else:
            assert isinstance(step, Turn), "no batch is left over"
            yield step


def _rows(chunk: Chunk, first: int, last: int, starts: Table, ends: Table) -> Opened:
    headers = chunk.headers
    counts = headers[k.COUNT, first:last][starts[first:last] >= 0].clip(0)
    require_few_records(int(counts.max(initial=0)))
    size = int(counts.sum())
    rows = chunk.workspace.table(size + 1)
    codes = np.zeros(chunk.count, np.int64)
    state = np.array((first, -1, 0), np.int64)
    arena = chunk.workspace.arena
    count = k.decode_records(arena, chunk.workspace.headers, starts, ends, last, state, codes, rows)
    bad = np.flatnonzero(codes[first:last])
    if len(bad):
        raise chunk.refusal(first + int(bad[0]))
    found = Rows(rows[:, :count], arena, range(first, last), ())
    return Opened(chunk, first, last, found, np.stack((starts[first:last], ends[first:last])))


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
    headers = np.ascontiguousarray(part.headers)
    count = headers.shape[1]
    rows = part.rows.table
    plan = np.zeros((r.PLAN_FIELDS, count), np.int64)
    plan[r.RAW_START] = headers[k.POSITION] - part.chunk.position
    plan[r.BODY_START], plan[r.BODY_END] = part.bodies
    keep = np.empty(rows.shape[1], np.bool_)
    r.judge_batches(
        rows, part.first, headers, rule.latest_offset, superseded, fate.drop_all, fate.stays,
        fate.discardable, rule.now_ms, rule.new_horizon_ms, count, plan, keep, counters,
    )  # fmt: skip
    actions = plan[r.ACTION]
    records = np.diff(plan[r.FIRST_ROW], append=len(keep))
    bodies = (part.bodies[1] - part.bodies[0]).clip(0)
    sizes = np.maximum(headers[k.SIZE], bodies + c.RECORD_BATCH_OVERHEAD)
    room = int((sizes + _GROWTH_MAX * records)[actions != r.DROP].sum())
    out = buffers.take(room)
    facts = np.empty(r.BODY_FIELDS, np.int64)
    end = r.rewrite_batches(part.rows.arena, headers, plan, rows, keep, 0, count, out, 0, facts)
    packed = (actions == r.REBUILD) & (headers[k.ATTRIBUTES] & c.COMPRESSION_MASK > 0)
    if packed.any():
        batches = _packed(out, plan, headers, packed)
        buffers.give(out)
        end = len(batches)
        out = buffers.take(end)
        out.data[:end] = batches
    _put_checksums(out, plan, actions)
    return Rewritten(out[:end], _refusal(part, actions == r.REBUILD, keep))


def _refusal(part: Opened, rebuilt: Mask, keep: Mask) -> str | None:
    """Return why a broker's cleaner would fail on one of these batches, or None."""
    headers, rows = part.headers, part.rows.table
    is_data = headers[k.ATTRIBUTES] & c.CONTROL_MASK == 0
    odd = (headers[k.PRODUCER_EPOCH] < 0) | (is_data & (headers[k.BASE_SEQUENCE] < 0))
    odd &= headers[k.PRODUCER_ID] != -1
    early = keep & (rows[k.TIMESTAMP] < c.NO_TIMESTAMP)
    odd[rows[k.ORDINAL, early] - part.first] = True
    for i in np.flatnonzero(odd & rebuilt).tolist():
        mine = keep & (rows[k.ORDINAL] == part.first + i)
        records = rows[:, mine][[k.OFFSET, k.TIMESTAMP]].T.tolist()
        if why := why_not_rewritten(part.chunk.batch(part.first + i), records):
            return why
    return None


def _packed(out: NDArray[np.uint8], plan: Table, headers: Table, packed: Mask) -> bytes:
    """Return the bytes with these batches compressed."""
    pieces: list[bytes | memoryview] = []
    view = out.data
    starts, sizes = plan[r.NEW_START].tolist(), plan[r.NEW_SIZE].tolist()
    codecs = np.where(packed, headers[k.ATTRIBUTES] & c.COMPRESSION_MASK, c.NONE).tolist()
    for i, (start, size, codec) in enumerate(zip(starts, sizes, codecs, strict=True)):
        if codec == c.NONE:
            pieces.append(view[start : start + size])
            continue
        body = compress(view[start + c.RECORD_BATCH_OVERHEAD : start + size], codec)
        sizes[i] = c.RECORD_BATCH_OVERHEAD + len(body)
        view[start + c.LENGTH_POSITION : start + c.LOG_OVERHEAD] = (
            sizes[i] - c.LOG_OVERHEAD
        ).to_bytes(4, "big")
        pieces += (view[start : start + c.RECORD_BATCH_OVERHEAD], body)
    plan[r.NEW_SIZE] = sizes
    plan[r.NEW_START] = np.cumsum(plan[r.NEW_SIZE]) - plan[r.NEW_SIZE]
    return b"".join(pieces)


def _put_checksums(out: NDArray[np.uint8], plan: Table, actions: Table) -> None:
    made = (actions == r.REBUILD) | (actions == r.EMPTY)
    starts = plan[r.NEW_START, made]
    ends = starts + plan[r.NEW_SIZE, made]
    sums = np.zeros(len(starts), np.int64)
    legacy = np.zeros(len(starts), np.bool_)
    k.crc_ranges(out, starts + c.ATTRIBUTES_POSITION, ends, legacy, sums)
    for i in range(4):
        out[starts + c.CRC_POSITION + i] = (sums >> (8 * (3 - i))) & 0xFF
