"""Chunks of a log as the cleaner's two passes want them: records with keys, then batches anew.

Follows `Cleaner.buildOffsetMapForSegment` and `cleanInto` of Kafka 4.3 for batches of magic 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.codecs import compress, decompress
from kafkalog.columnar import kernels as k
from kafkalog.columnar import rewrite_kernels as r
from kafkalog.columnar.chunks import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Chunk

    Table = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_UNPACKED_AT_ONCE: Final = 1 << 22
_GROWTH_MAX: Final = 18  # bytes that a record can grow by: its length and its timestamp delta


@dataclass(frozen=True, slots=True)
class Opened:
    """Neighbouring batches of a chunk with all their records.

    Attributes:
        chunk: where they are.
        first, last: which ones.
        rows: their records.
        bodies: int64 (2, batches): where the uncompressed records of each begin and end.
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

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many records each batch holds."""
        return np.bincount(self.ordinals, minlength=self.last - self.first)

    @property
    def ordinals(self) -> NDArray[np.int64]:
        """Of each record: its batch."""
        ordinals: NDArray[np.int64] = self.rows.table[k.ORDINAL] - self.first
        return ordinals


def opened(chunk: Chunk, wanted: Mask) -> Iterator[Opened]:
    """The batches of a chunk in pieces of bounded size; those not wanted have no records.

    Raises:
        CorruptDataError, LimitExceededError: a wanted batch cannot be decoded.
    """
    headers = chunk.headers
    codecs = headers[k.ATTRIBUTES] & c.COMPRESSION_MASK
    starts = headers[k.POSITION] - chunk.position + c.RECORD_BATCH_OVERHEAD
    ends = starts + headers[k.SIZE] - c.RECORD_BATCH_OVERHEAD
    starts[~wanted] = -1
    first, fill = 0, chunk.size_bytes
    space = chunk.workspace
    for i in np.flatnonzero(wanted & (codecs > 0) & (headers[k.COUNT] > 0)).tolist():
        body = decompress(space.arena.data[starts[i] : ends[i]], int(codecs[i]), magic=2)
        if fill - chunk.size_bytes + len(body) > _UNPACKED_AT_ONCE and i > first:
            yield _rows(chunk, first, i, starts, ends)
            first, fill = i, chunk.size_bytes
        space.reserve(fill + len(body), fill)
        space.arena[fill : fill + len(body)] = np.frombuffer(body, np.uint8)
        starts[i], ends[i] = fill, fill + len(body)
        fill += len(body)
    yield _rows(chunk, first, chunk.count, starts, ends)


def _rows(chunk: Chunk, first: int, last: int, starts: Table, ends: Table) -> Opened:
    headers = chunk.headers
    size = int(headers[k.COUNT, first:last][starts[first:last] >= 0].clip(0).sum())
    rows = np.empty((k.ROW_FIELDS, size + 1), np.int64)
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
    part: Opened, actions: Table, keep: Mask, horizons: Table
) -> tuple[NDArray[np.uint8], Table]:
    """The batches as they are written again.

    Args:
        part: what they were.
        actions: of each batch: DROP, COPY, REBUILD or EMPTY of `rewrite_kernels`.
        keep: which records are kept.
        horizons: of each batch that is rebuilt: its delete horizon, NO_HORIZON without one.

    Returns:
        The bytes, and the sizes of the batches in them that are there.
    """
    headers = np.ascontiguousarray(part.headers)
    count = headers.shape[1]
    plan = np.zeros((r.PLAN_FIELDS, count), np.int64)
    plan[r.ACTION] = actions
    plan[r.RAW_START] = headers[k.POSITION] - part.chunk.position
    plan[r.BODY_START], plan[r.BODY_END] = part.bodies
    plan[r.FIRST_ROW] = np.cumsum(part.counts) - part.counts
    plan[r.NEW_HORIZON] = horizons
    bodies = (part.bodies[1] - part.bodies[0]).clip(0)
    sizes = np.maximum(headers[k.SIZE], bodies + c.RECORD_BATCH_OVERHEAD)
    room = int((sizes + _GROWTH_MAX * part.counts)[actions != r.DROP].sum())
    out = np.empty(room, np.uint8)
    facts = np.empty(r.BODY_FIELDS, np.int64)
    end = r.rewrite_batches(
        part.rows.arena, headers, plan, part.rows.table, keep, 0, count, out, 0, facts
    )
    packed = (actions == r.REBUILD) & (headers[k.ATTRIBUTES] & c.COMPRESSION_MASK > 0)
    if packed.any():
        out, end = _packed(out, plan, headers, packed)
    _put_checksums(out, plan, actions)
    there = plan[r.NEW_SIZE] > 0
    return out[:end], plan[r.NEW_SIZE, there]


def _packed(
    out: NDArray[np.uint8], plan: Table, headers: Table, packed: Mask
) -> tuple[NDArray[np.uint8], int]:
    """The same with these batches compressed."""
    pieces: list[bytes | memoryview] = []
    end = 0
    for i, is_packed in enumerate(packed.tolist()):
        start, size = int(plan[r.NEW_START, i]), int(plan[r.NEW_SIZE, i])
        piece: bytes | memoryview = out.data[start : start + size]
        if is_packed:
            codec = int(headers[k.ATTRIBUTES, i]) & c.COMPRESSION_MASK
            body = compress(bytes(piece[c.RECORD_BATCH_OVERHEAD :]), codec)
            size = c.RECORD_BATCH_OVERHEAD + len(body)
            length = (size - c.LOG_OVERHEAD).to_bytes(4, "big")
            head = piece[: c.LENGTH_POSITION], length, piece[c.LOG_OVERHEAD :
                c.RECORD_BATCH_OVERHEAD]  # fmt: skip
            piece = b"".join((*head, body))
        plan[r.NEW_START, i], plan[r.NEW_SIZE, i] = end, size
        pieces.append(piece)
        end += size
    return np.frombuffer(bytearray().join(pieces), np.uint8), end


def _put_checksums(out: NDArray[np.uint8], plan: Table, actions: Table) -> None:
    made = (actions == r.REBUILD) | (actions == r.EMPTY)
    starts = plan[r.NEW_START, made]
    ends = starts + plan[r.NEW_SIZE, made]
    sums = np.zeros(len(starts), np.int64)
    legacy = np.zeros(len(starts), np.bool_)
    k.crc_ranges(out, starts + c.ATTRIBUTES_POSITION, ends, legacy, sums)
    for i in range(4):
        out[starts + c.CRC_POSITION + i] = (sums >> (8 * (3 - i))) & 0xFF
