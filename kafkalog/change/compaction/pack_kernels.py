"""Compiled compression of many batches in one call, by the C functions of `codecs.native`.

It writes what `kafkalog.io.codecs.compress` writes at its default levels, byte for byte: one frame
of lz4 with independent blocks of 64 KiB, one frame of zstd, one member of gzip. It stops at what
has no function, needs more room, or might come out otherwise: the codec's module then takes over.
"""

from __future__ import annotations

import numpy as np

from formats import constants as c
from kafkalog.change.compaction.kernels import NEW_SIZE, NEW_START, put_number
from kafkalog.io.jit.native import inlined, kernel
from kafkalog.log.columns.byte_kernels import address, call_c, copy_bytes, put_eight_bytes
from kafkalog.log.columns.unpack_kernels import CRC32_GZIP, little_endian, signed

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,call-arg"

# Places in `codecs.native.FUNCTIONS`.
(_LZ4_COMPRESS, _ZSTD_CREATE, _ZSTD_FREE, _ZSTD_SET, _ZSTD_RESET, _ZSTD_COMPRESS, _DEFLATE_INIT,
 _DEFLATE, _DEFLATE_RESET, _DEFLATE_END) = range(8, 18)  # fmt: skip

SCRATCH_SIZE = 176
"""Bytes for zlib's `z_stream`, the version of its interface, zstd's two buffers; zeros at first."""
_NEXT_IN, _AVAIL_IN, _NEXT_OUT, _AVAIL_OUT, _TOTAL_OUT, _STREAM_SIZE = 0, 8, 24, 32, 40, 112
_VERSION = 112
_Z_FINISH, _Z_STREAM_END, _Z_DEFLATED, _Z_LEVEL, _Z_BITS, _Z_MEMORY = 4, 1, 8, -1, -15, 8

_LZ4_BLOCK = 1 << 16
_LZ4_HEADER = 0x184D2204, 0x40, 0x60, 0x82  # magic, block descriptor, flags, their checksum
_ZSTD_IN, _ZSTD_OUT = 128, 152  # a buffer is its address, its size, and the position in it
_ZSTD_LEVEL, _ZSTD_CONTENT_SIZE, _ZSTD_DEFAULT, _ZSTD_SESSION = 100, 200, 3, 1

_GZIP, _LZ4, _ZSTD, _NONE = c.GZIP, c.LZ4, c.ZSTD, c.NONE
_OVERHEAD = c.RECORD_BATCH_OVERHEAD


@inlined
def _put_word(out, at, value):
    """Write a number of 32 bits, little-endian."""
    for i in range(4):
        out[at + i] = np.uint8((value >> (8 * i)) & 0xFF)


@inlined
def _lz4(data, at, size, out, to, functions):
    """Compress into a frame; return its size or -1."""
    # header 7, end mark 4, and a size per block; a block that does not shrink is stored
    if len(out) - to < 11 + size + 4 * (size // _LZ4_BLOCK + 1):
        return np.int64(-1)
    start = to
    _put_word(out, to, np.int64(_LZ4_HEADER[0]))
    out[to + 4] = _LZ4_HEADER[2]
    out[to + 5] = _LZ4_HEADER[1]
    out[to + 6] = _LZ4_HEADER[3]
    to += 7
    end = at + size
    while at < end:
        block = min(np.int64(_LZ4_BLOCK), end - at)
        made = signed(
            call_c(
                functions[_LZ4_COMPRESS],
                (address(data, at), address(out, to + 4), block, block - 1, np.int64(1)),
            )
        )
        if made <= 0:
            copy_bytes(out, to + 4, data, at, block)
            made = block
            # Bit 31 of a block's size says that it is stored, not compressed.
            _put_word(out, to, block | np.int64(0x80000000))
        else:
            _put_word(out, to, made)
        to += 4 + made
        at += block
    _put_word(out, to, np.int64(0))
    return to + 4 - start


@inlined
def _zstd_context(functions):
    """Return a context that compresses as `kafkalog.io.codecs.zstd` does, or 0."""
    if not (functions[_ZSTD_CREATE] and functions[_ZSTD_FREE] and functions[_ZSTD_SET]):
        return np.int64(0)
    context = call_c(functions[_ZSTD_CREATE], (np.int64(0),))
    if context != 0:
        level = (context, np.int64(_ZSTD_LEVEL), np.int64(_ZSTD_DEFAULT))
        call_c(functions[_ZSTD_SET], level)
        # Streams of zstd-jni write no content size: with one, a batch would differ from the
        # broker's.
        sized = (context, np.int64(_ZSTD_CONTENT_SIZE), np.int64(0))
        call_c(functions[_ZSTD_SET], sized)
    return context


@inlined
def _zstd(data, at, size, out, to, context, scratch, functions):
    """Compress into a frame as a stream that is flushed, then closed; return its size or -1."""
    put_eight_bytes(scratch, _ZSTD_IN, np.uint64(address(data, at)))
    put_eight_bytes(scratch, _ZSTD_IN + 8, np.uint64(size))
    put_eight_bytes(scratch, _ZSTD_IN + 16, np.uint64(0))
    put_eight_bytes(scratch, _ZSTD_OUT, np.uint64(address(out, to)))
    put_eight_bytes(scratch, _ZSTD_OUT + 8, np.uint64(len(out) - to))
    put_eight_bytes(scratch, _ZSTD_OUT + 16, np.uint64(0))
    buffers = address(scratch, _ZSTD_OUT), address(scratch, _ZSTD_IN)
    for step in range(3):  # ZSTD_e_continue, ZSTD_e_flush, ZSTD_e_end
        left = call_c(functions[_ZSTD_COMPRESS], (context, buffers[0], buffers[1], np.int64(step)))
        # What `continue` leaves is a hint; after the others something left says there is no room.
        if signed(left) < 0 or (step and left != 0):
            call_c(functions[_ZSTD_RESET], (context, np.int64(_ZSTD_SESSION)))
            return np.int64(-1)
    return little_endian(scratch, _ZSTD_OUT + 16)


@inlined
def _begin_stream(scratch, has_stream, functions):
    """Begin a stream of zlib's, or begin it again; return whether there is one."""
    stream = address(scratch, 0)
    if has_stream:
        call_c(functions[_DEFLATE_RESET], (stream,))
        return True
    if not (functions[_DEFLATE_INIT] and functions[_DEFLATE_RESET] and functions[_DEFLATE_END]):
        return False
    scratch[_VERSION] = 0x31
    arguments = (
        stream, np.int64(_Z_LEVEL), np.int64(_Z_DEFLATED), np.int64(_Z_BITS), np.int64(_Z_MEMORY),
        np.int64(0), address(scratch, _VERSION), np.int64(_STREAM_SIZE),
    )  # fmt: skip
    return signed(call_c(functions[_DEFLATE_INIT], arguments)) == 0


@inlined
def _gzip(data, at, size, out, to, scratch, functions):
    """Compress into a member; return its size or -1. The stream in `scratch` is a new one."""
    room = len(out) - to - 18
    if room < 1:
        return np.int64(-1)
    stream = address(scratch, 0)
    put_eight_bytes(scratch, _NEXT_IN, np.uint64(address(data, at)))
    put_eight_bytes(scratch, _AVAIL_IN, np.uint64(size))
    put_eight_bytes(scratch, _NEXT_OUT, np.uint64(address(out, to + 10)))
    # avail_out has 32 bits, and the eight bytes include the padding behind it
    put_eight_bytes(scratch, _AVAIL_OUT, np.uint64(min(room, np.int64(0x7FFFFFFF))))
    if signed(call_c(functions[_DEFLATE], (stream, np.int64(0)))) != 0:
        return np.int64(-1)
    ended = signed(call_c(functions[_DEFLATE], (stream, np.int64(_Z_FINISH))))
    if ended != _Z_STREAM_END or little_endian(scratch, _AVAIL_IN) != 0:
        return np.int64(-1)
    made = little_endian(scratch, _TOTAL_OUT)
    # The header that Java's GZIPOutputStream writes: no flags, no time; OS 0xff since JDK 16.
    _put_word(out, to, np.int64(0x00088B1F))
    _put_word(out, to + 4, np.int64(0))
    out[to + 8] = 0
    out[to + 9] = 0xFF
    crc = call_c(functions[CRC32_GZIP], (np.int64(0), address(data, at), size))
    _put_word(out, to + 10 + made, crc)
    _put_word(out, to + 14 + made, size)
    return made + 18


@kernel("bytes table ints int bytes int ints bytes", results=2)
def pack_batches(data, plan, codecs, first, out, to, functions, scratch):
    """Compress the records of batches from `first` on, one batch after another.

    Args:
        data: the batches, where NEW_START and NEW_SIZE say, which are updated to their new places.
        plan: the table of `kernels.clean_batches`.
        codecs: the codec of each batch; 0 for one that is copied.
        first: the batch to begin with.
        out, to: where they are written. Checksums are left for later.
        functions: the addresses in `codecs.native`.
        scratch: `SCRATCH_SIZE` zeros.

    Returns:
        The batch it stopped at, which is not compressed, or the number of batches; and where the
        next one belongs in `out`.
    """
    context = np.int64(0)
    has_stream = False
    batch = first
    while batch < len(codecs):
        at = plan[NEW_START, batch]
        size = plan[NEW_SIZE, batch]
        codec = codecs[batch]
        made = np.int64(-1)
        if len(out) - to < min(size, np.int64(_OVERHEAD)):
            break
        if codec == _NONE:
            if len(out) - to >= size:
                copy_bytes(out, to, data, at, size)
                plan[NEW_START, batch] = to
                to += size
                batch += 1
                continue
            break
        size -= _OVERHEAD
        if size < 1 or size > 0x7FFFFFFF:
            break
        records = at + _OVERHEAD
        body = to + _OVERHEAD
        if codec == _LZ4 and functions[_LZ4_COMPRESS]:
            made = _lz4(data, records, size, out, body, functions)
        elif codec == _ZSTD and functions[_ZSTD_COMPRESS] and functions[_ZSTD_RESET]:
            if context == 0:
                context = _zstd_context(functions)
            if context != 0:
                made = _zstd(data, records, size, out, body, context, scratch, functions)
        elif codec == _GZIP and functions[_DEFLATE] and functions[CRC32_GZIP]:
            has_stream = _begin_stream(scratch, has_stream, functions)
            if has_stream:
                made = _gzip(data, records, size, out, body, scratch, functions)
        if made < 0 or made > len(out) - body:
            break
        copy_bytes(out, to, data, at, _OVERHEAD)
        put_number(out, to + c.LENGTH_POSITION, _OVERHEAD + made - c.LOG_OVERHEAD, 4)
        plan[NEW_START, batch] = to
        plan[NEW_SIZE, batch] = _OVERHEAD + made
        to += _OVERHEAD + made
        batch += 1
    if context != 0:
        call_c(functions[_ZSTD_FREE], (context,))
    if has_stream:
        call_c(functions[_DEFLATE_END], (address(scratch, 0),))
    return batch, to
