"""Decompresses many batches in one call that needs no Python, as far as they are plain."""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.io.codecs import native
from kafkalog.log.columns import unpack_kernels as u

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCKS_AT_ONCE: Final = 1 << 10


def unpack_plain(
    arena: NDArray[np.uint8],
    headers: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    packed: NDArray[np.bool_],
    first: int,
    fill: int,
    full: int,
) -> tuple[int, int]:
    """Decompress batches from `first` on; stop where `kafkalog.io.codecs` must take over.

    Args:
        arena: holds the payloads; what they become is written behind `fill`.
        headers: the batches' header table.
        starts, ends: where the payloads are; updated to where the records are.
        packed: which batches are to be decompressed.
        first: the batch to begin with.
        fill: where the room in the arena begins.
        full: stop after the batch that fills the arena up to here.

    Returns:
        The batch it stopped at, or the number of batches; and where the room begins then.
    """
    scratch = np.empty(u.SCRATCH_SIZE, np.uint8)
    before = -1
    # As long as one of the two gets on: a log may mix codecs.
    while before < first < len(packed) and fill < full:
        before = first
        first, fill = u.unpack_batches(
            arena, headers, starts, ends, packed, first, fill, full, _functions(), scratch
        )
        if first < len(packed) and fill < full:
            first, fill = _unpack_snappy(arena, headers, starts, ends, packed, first, fill, full)
    return first, fill


def _unpack_snappy(
    arena: NDArray[np.uint8],
    headers: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    packed: NDArray[np.bool_],
    first: int,
    fill: int,
    full: int,
) -> tuple[int, int]:
    """Do the same for batches of snappy, whose package has to be called for each block."""
    blocks = np.empty((u.BLOCK_FIELDS, _BLOCKS_AT_ONCE), np.int64)
    last, count, end = u.list_snappy(
        arena, headers, starts, ends, packed, first, fill, full, blocks
    )
    if not count:
        return last, fill
    listed = blocks[:, :count]
    done = _decompress_blocks(arena, listed)
    # Only whole batches count: one with a bad block begins again with the codec's module.
    if done < count:
        last, end = (int(listed[field, done]) for field in (u.BLOCK_BATCH, u.BLOCK_TO))
        batches = listed[u.BLOCK_BATCH]
        listed = listed[:, batches < last]
        if listed.shape[1]:
            end = int(listed[u.BLOCK_TO_END, -1])
    # A batch begins with its first block and ends with its last one.
    batches = listed[u.BLOCK_BATCH]
    starts[batches[::-1]] = listed[u.BLOCK_TO, ::-1]
    ends[batches] = listed[u.BLOCK_TO_END]
    return last, end


def _decompress_blocks(arena: NDArray[np.uint8], blocks: NDArray[np.int64]) -> int:
    """Decompress blocks of snappy; return how many were good, up to the first that was not."""
    import cramjam

    decompress, data = cramjam.snappy.decompress_raw_into, arena.data
    done = itertools.count()
    try:
        for start, end, to, to_end in blocks[u.BLOCK_START :].T.tolist():
            if decompress(data[start:end], data[to:to_end]) != to_end - to:
                break
            next(done)
    except cramjam.DecompressionError:
        pass  # `kafkalog.io.codecs` finds it again, and says what it is
    return next(done)


@cache
def _functions() -> NDArray[np.int64]:
    return np.array(native.addresses(), np.int64)
