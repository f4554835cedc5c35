"""Compiled decompression of many batches in one call, by the C functions of `codecs.native`.

It takes what producers write: one frame of lz4 with independent blocks, one frame of zstd, one
member of gzip. Everything else stops it, be it damaged, too large or only odd, and is left to
`kafkalog.io.codecs`, which decides. So what it accepts must be right, and nothing is refused here.
"""

from __future__ import annotations

import numpy as np

from formats import constants as c
from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import (
    address,
    byte,
    call_c,
    copy_bytes,
    eight_bytes,
    int32,
    put_eight_bytes,
)
from kafkalog.log.columns.kernels import ATTRIBUTES, MAGIC

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"

# Places in `codecs.native.FUNCTIONS`.
(_LZ4_DECOMPRESS, _XXH32, _ZSTD_CREATE, _ZSTD_FREE, _ZSTD_DECOMPRESS, _INFLATE_INIT, _INFLATE,
 CRC32_GZIP) = range(8)  # fmt: skip

SCRATCH_SIZE = 1 << 18
"""Bytes for ISA-L's `inflate_state`, which has some 90,000. Its first fields are where the output
goes (64 bits) and its room and size (32 each), where the input is (64), bits read ahead (64), bytes
of input (32) and the number of bits read ahead (32).
"""
_NEXT_OUT, _AVAIL_OUT, _NEXT_IN, _AVAIL_IN = 0, 8, 16, 32

_CODEC = c.COMPRESSION_MASK
_GZIP, _LZ4, _ZSTD = c.GZIP, c.LZ4, c.ZSTD
_SNAPPY = c.SNAPPY
_LOW = 0xFFFFFFFF
_XERIAL_HEADER_SIZE = 16
# The densest element of a block of snappy, a copy, makes 64 bytes out of 3.
_SNAPPY_RATIO_MAX = 22

# Fields of a table of snappy blocks.
(BLOCK_BATCH, BLOCK_START, BLOCK_END, BLOCK_TO, BLOCK_TO_END, BLOCK_FIELDS) = range(6)


@inlined
def little_endian(data, at):
    """Return an unsigned number of 32 bits, little-endian."""
    return (
        byte(data, at) | byte(data, at + 1) << 8 | byte(data, at + 2) << 16
        | byte(data, at + 3) << 24
    )  # fmt: skip


@inlined
def signed(value):
    """Return the C `int` in the low half of a result."""
    return ((value & _LOW) ^ 0x80000000) - 0x80000000


@inlined
def _lz4(data, at, end, out, room, checks_header, functions):
    """Decompress a frame of independent blocks without checksums; return its size or -1."""
    if end - at < 11 or little_endian(data, at) != 0x184D2204:
        return np.int64(-1)
    flags = byte(data, at + 4)
    largest = byte(data, at + 5)
    # Version 1, independent blocks, no checksum of blocks: what Kafka's writers set.
    if flags & 0xF3 != 0x60 or largest & 0x8F or largest < 0x40:
        return np.int64(-1)
    size = 2 + (flags & 8)
    if end - at < size + 5:
        return np.int64(-1)
    # Not for magic 0: old clients computed it over the wrong bytes, and Kafka does not look.
    if checks_header:
        hashed = call_c(functions[_XXH32], (address(data, at + 4), size, np.int64(0)))
        if byte(data, at + 4 + size) != hashed >> 8 & 0xFF:
            return np.int64(-1)
    block_max = np.int64(1) << (2 * (largest >> 4) + 8)
    at += 5 + size
    done = np.int64(0)
    while True:
        if end - at < 4:
            return np.int64(-1)
        word = little_endian(data, at)
        at += 4
        size = word & 0x7FFFFFFF
        if size == 0:
            break
        if size > block_max or size > end - at:
            return np.int64(-1)
        # Bit 31: the block is stored as it is.
        if word > 0x7FFFFFFF:
            if size > room - done:
                return np.int64(-1)
            copy_bytes(data, out + done, data, at, size)
        else:
            made = signed(
                call_c(
                    functions[_LZ4_DECOMPRESS],
                    (address(data, at), address(data, out + done), size,
                     min(block_max, room - done)),
                )
            )  # fmt: skip
            if made < 0:
                return np.int64(-1)
            done += made
            at += size
            continue
        done += size
        at += size
    # Kafka wants the content's checksum where it is announced, but ignores it.
    return np.int64(-1) if flags & 4 and end - at < 4 else done


@inlined
def _is_one_frame(data, at, end, room):
    """Return whether a zstd frame fills these bytes, in whose limits Kafka's reader stays.

    It must have no dictionary and a window of at most 64 MiB, or state a size that fits.
    """
    if end - at < 9 or little_endian(data, at) != 0xFD2FB528:
        return False
    flags = byte(data, at + 4)
    single = flags >> 5 & 1
    kind = flags >> 6
    if flags & 3 or (not single and byte(data, at + 5) >> 3 > 16):
        return False
    at += 6 - single
    if end - at < 11:  # the size has up to 8 bytes, a block 3
        return False
    stated = np.int64(0)
    if kind == 0:
        stated = byte(data, at) * single
        at += single
    elif kind == 1:
        stated = (byte(data, at) | byte(data, at + 1) << 8) + 256
        at += 2
    else:
        stated = little_endian(data, at)
        at += 4
        if kind == 3:
            if little_endian(data, at):
                return False
            at += 4
    if stated > room:
        return False
    block = np.int64(0)
    while not block & 1:
        if end - at < 3:
            return False
        block = byte(data, at) | byte(data, at + 1) << 8 | byte(data, at + 2) << 16
        at += 3
        # A block of type 1 is one byte, repeated.
        at += 1 if block >> 1 & 3 == 1 else block >> 3
    return at + (flags & 4) == end


@inlined
def _gzip(data, at, end, out, room, scratch, functions):
    """Decompress a member with a plain header and nothing after it; return its size or -1."""
    if (
        end - at < 18
        or little_endian(data, at) != 0x00088B1F
        or little_endian(data, end - 4) > room
    ):
        return np.int64(-1)
    state = address(scratch, 0)
    call_c(functions[_INFLATE_INIT], (state,))
    put_eight_bytes(scratch, _NEXT_OUT, np.uint64(address(data, out)))
    put_eight_bytes(scratch, _AVAIL_OUT, np.uint64(room))
    put_eight_bytes(scratch, _NEXT_IN, np.uint64(address(data, at + 10)))
    put_eight_bytes(scratch, _AVAIL_IN, np.uint64(end - at - 10))
    # 8 bytes are left: checksum and size. More would be another member, or junk that Kafka ignores.
    if signed(call_c(functions[_INFLATE], (state,))) != 0 or little_endian(scratch, _AVAIL_IN) != 8:
        return np.int64(-1)
    size = room - little_endian(scratch, _AVAIL_OUT)
    checksum = call_c(functions[CRC32_GZIP], (np.int64(0), address(data, out), size)) & _LOW
    if checksum != little_endian(data, end - 8) or size != little_endian(data, end - 4):
        return np.int64(-1)
    return size


@kernel("bytes table ints ints flags int int int ints bytes", results=2)
def unpack_batches(data, headers, starts, ends, packed, first, fill, full, functions, scratch):
    """Decompress the packed batches from `first` on, one after another, from `data[fill]` on.

    Args:
        data: holds the payloads, and gets what they become.
        headers: the batches' header table.
        starts, ends: where the payload of each batch is; updated to where its records are.
        packed: which batches to decompress.
        first: the batch to begin with.
        fill: where the room begins.
        full: stop after the batch that fills `data` up to here.
        functions: the addresses in `codecs.native`.
        scratch: `SCRATCH_SIZE` bytes.

    Returns:
        The batch it stopped at, which is not decompressed, or the number of batches; and where the
        room begins then.
    """
    context = np.int64(0)
    batch = first
    while batch < len(packed) and fill < full:
        if not packed[batch]:
            batch += 1
            continue
        at = starts[batch]
        end = ends[batch]
        codec = headers[ATTRIBUTES, batch] & _CODEC
        room = min(np.int64(len(data)) - fill, np.int64(0x7FFFFFFF))
        made = np.int64(-1)
        if at < 0:
            break
        if codec == _LZ4 and functions[_LZ4_DECOMPRESS] and functions[_XXH32]:
            made = _lz4(data, at, end, fill, room, headers[MAGIC, batch] != 0, functions)
        elif codec == _ZSTD and functions[_ZSTD_DECOMPRESS] and headers[MAGIC, batch] == 2:
            if context == 0 and functions[_ZSTD_CREATE] and functions[_ZSTD_FREE]:
                context = call_c(functions[_ZSTD_CREATE], (np.int64(0),))
            if context != 0 and _is_one_frame(data, at, end, room):
                made = call_c(
                    functions[_ZSTD_DECOMPRESS],
                    (context, address(data, fill), room, address(data, at), end - at),
                )
        elif (
            codec == _GZIP
            and functions[_INFLATE_INIT]
            and functions[_INFLATE]
            and functions[CRC32_GZIP]
        ):
            made = _gzip(data, at, end, fill, room, scratch, functions)
        if made < 0 or made > room:
            break
        starts[batch] = fill
        fill += made
        ends[batch] = fill
        batch += 1
    if context != 0:
        call_c(functions[_ZSTD_FREE], (context,))
    return batch, fill


@inlined
def _snappy_size(data, at, end, room):
    """Return the size that a block of snappy states, or -1 if it cannot have it here."""
    stop = min(end, at + 5)
    size = np.int64(0)
    shift = np.int64(0)
    start = at
    while at < stop:
        one = byte(data, at)
        at += 1
        size |= (one & 0x7F) << shift
        if one < 0x80:
            return size if size <= min(room, _SNAPPY_RATIO_MAX * (end - start)) else np.int64(-1)
        shift += 7
    return np.int64(-1)


@inlined
def _snappy_blocks(data, at, end, fill, batch, blocks, count):
    """List the blocks of a payload; return their new number, and where the room begins then.

    The number is -1 if it is not one block, or one header and whole blocks.
    """
    # Producers in Java write xerial's frames, librdkafka a single raw block: Kafka reads both.
    chunked = end - at >= _XERIAL_HEADER_SIZE and (
        eight_bytes(data, at) == np.uint64(0x00595050414E5382)
    )
    if chunked:
        at += _XERIAL_HEADER_SIZE
    if at == end:
        return np.int64(-1), fill
    while at < end:
        stop = end
        if chunked:
            if end - at < 4:
                return np.int64(-1), fill
            # A repeated header, as a size, is larger than any payload.
            size = int32(data, at)
            at += 4
            stop = at + size
            if size < 0 or stop > end:
                return np.int64(-1), fill
        size = _snappy_size(data, at, stop, np.int64(len(data)) - fill)
        if size < 0 or count == blocks.shape[1]:
            return np.int64(-1), fill
        blocks[BLOCK_BATCH, count] = batch
        blocks[BLOCK_START, count] = at
        blocks[BLOCK_END, count] = stop
        blocks[BLOCK_TO, count] = fill
        fill += size
        blocks[BLOCK_TO_END, count] = fill
        count += 1
        at = stop
    return np.int64(count), fill


@kernel("bytes table ints ints flags int int int table", results=3)
def list_snappy(data, headers, starts, ends, packed, first, fill, full, blocks):
    """List the blocks of the snappy batches from `first` on, with the room for what they become.

    Args:
        data, headers, starts, ends, packed, first, fill, full: as for `unpack_batches`, but nothing
            is changed.
        blocks: filled with BLOCK_FIELDS numbers for each block.

    Returns:
        The batch it stopped at, or the number of batches; the number of blocks; and where the room
        begins after them.
    """
    count = np.int64(0)
    batch = first
    while batch < len(packed) and fill < full:
        if packed[batch]:
            if starts[batch] < 0 or headers[ATTRIBUTES, batch] & _CODEC != _SNAPPY:
                break
            listed, after = _snappy_blocks(
                data, starts[batch], ends[batch], fill, batch, blocks, count
            )
            if listed < 0:
                break
            count = listed
            fill = after
        batch += 1
    return batch, count, fill
