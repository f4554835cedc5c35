"""Compression and decompression of record batches, accepting exactly what Kafka's reader accepts.

Follows `GzipCompression`, `SnappyCompression`, `Lz4BlockInputStream` and `ZstdCompression` of Kafka
4.3 and the classes below them: `GZIPInputStream`, snappy-java's `SnappyInputStream`, zstd-jni's
`ZstdInputStreamNoFinalizer`. Every output is bounded while it is made.
"""

from __future__ import annotations

import struct
import threading
import zlib
from functools import lru_cache, partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from formats.constants import COMPRESSION_NAMES
from kafkalog.errors import CorruptDataError, KafkaLogError, LimitExceededError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A producer's batch has 1 MiB by default, and no chunk of snappy-java can be larger than 512 MiB. A
# legitimate batch is far below this, and a process with 1 GiB of memory survives it.
DECOMPRESSED_SIZE_MAX: Final = 512 * 1024 * 1024

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_FEED_SIZE_MIN: Final = 4 * 1024
_FEED_SIZE_MAX: Final = 64 * 1024
_PIECE_SIZE: Final = 1024 * 1024

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_TRAILER: Final = struct.Struct("<II")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_MAGIC_HEAD: Final = 0x82534E41
_XERIAL_HEADER_SIZE: Final = 16
_XERIAL_CHUNK_SIZE_MAX: Final = 512 * 1024 * 1024
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
# The densest element of a raw snappy block, a copy, makes 64 bytes out of 3.
_SNAPPY_RATIO_MAX: Final = 22

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_STORED: Final = 0x80000000
_LZ4_END_MARK: Final = bytes(4)
_XXH32_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
# How much zstd-jni reads at a time, ZSTD_DStreamInSize.
_ZSTD_FEED_SIZE: Final = 131075
_ZSTD_KEPT_MAX: Final = 16 * 1024 * 1024  # a decompressor with a larger window is not used again
_kept = threading.local()

_LARGE_SIZE: Final = 64 * 1024 * 1024
_large = threading.Lock()
"""Held while more than that is made: a log full of bombs takes the memory of one, not of one a
thread."""


class _Output:
    """The decompressed bytes so far, at most `limit` of them."""

    def __init__(self, codec: int, limit: int) -> None:
        self.codec = codec
        self.limit = limit
        self.size = 0
        self.buffer = BytesIO()
        self._is_large = False

    def write(self, piece: bytes | bytearray | memoryview) -> None:
        self.reserve(len(piece))
        self.size += len(piece)
        self.buffer.write(piece)

    def clear(self) -> None:
        """Begin again."""
        self.size = 0
        self.buffer = BytesIO()

    def reserve(self, size: int) -> None:
        """Raise when `size` more bytes would be too many."""
        if self.size + size > self.limit:
            name = COMPRESSION_NAMES[self.codec]
            raise LimitExceededError(
                f"The decompressed data ({name}) is larger than the limit of {self.limit} bytes."
            )
        if self.size + size > _LARGE_SIZE and not self._is_large:
            _large.acquire()
            self._is_large = True

    def end(self) -> None:
        """Nothing more will be written."""
        if self._is_large:
            _large.release()
            self._is_large = False


def decompress(
    data: bytes | memoryview, codec: int, *, magic: int, limit: int = DECOMPRESSED_SIZE_MAX
) -> bytes:
    """Decompress the payload of a batch, or the value of a compressed message.

    Args:
        data: the payload as stored.
        codec: codec id of the attributes, 0 to 7.
        magic: magic of the batch or message: magic 0 has a broken lz4 header, zstd needs magic 2.
        limit: the most bytes the result may have.

    Raises:
        CorruptDataError: Kafka would refuse the data ("decompression-failed") or does not know the
            codec ("unknown-codec").
        LimitExceededError: the result would be larger than `limit`.

    Cost:
        Memory for the result and a few MiB; zstd up to 128 MiB more, if the frame asks for it.
        Of several threads one at a time makes a result of more than 64 MiB.
    """
    if not _is_known(codec, magic):
        raise CorruptDataError(
            f"Kafka has no compression codec {codec} for magic {magic}.", reference="unknown-codec"
        )
    output = _Output(codec, limit)
    if codec == NONE:
        output.reserve(len(data))
        return bytes(data)
    steps: dict[int, Callable[[memoryview, _Output], None]] = {
        GZIP: _decompress_gzip,
        SNAPPY: _decompress_snappy,
        LZ4: partial(_decompress_lz4, check_header=magic != 0),
        ZSTD: _decompress_zstd,
    }
    try:
        steps[codec](memoryview(data), output)
    except KafkaLogError as error:
        import traceback

        # An error may be kept as long as a log is read: not with the output in its frames.
        traceback.clear_frames(error.__traceback__)
        output.clear()
        raise
    finally:
        output.end()
    return output.buffer.getvalue()


def compress(data: bytes, codec: int, *, level: int | None = None, magic: int = 2) -> bytes:
    """Compress the payload of a batch in the framing that Kafka itself writes.

    Args:
        data: the records, or the inner messages of magic 0 and 1.
        codec: codec id, 0 to 4.
        level: gzip 0 to 9, lz4 0 to 16, zstd -131072 to 22; the codec's default where None.
        magic: magic of the batch or message that the result is for.

    Raises:
        UnsupportedError: Kafka has no such codec for this magic.
    """
    if not _is_known(codec, magic):
        raise UnsupportedError(f"Kafka has no compression codec {codec} for magic {magic}.")
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return compressor.compress(data) + compressor.flush()
    if codec == SNAPPY:
        return _compress_snappy(data)
    if codec == LZ4:
        return _compress_lz4(data, level, magic)
    import zstandard

    # Without content size, as streamed by zstd-jni.
    zstd = zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=False)
    return zstd.compress(data)


def _is_known(codec: int, magic: int) -> bool:
    return 0 <= codec <= (LZ4 if magic < 2 else ZSTD)


def _damage(codec: int, detail: str) -> CorruptDataError:
    return CorruptDataError(
        f"The {COMPRESSION_NAMES[codec]} data cannot be decompressed: {detail}.",
        reference="decompression-failed",
    )


# gzip: members one after the other; what follows the last and is no header is ignored.
def _decompress_gzip(view: memoryview, output: _Output) -> None:
    position = _end_of_gzip_header(view, 0)
    if position is None:
        raise _damage(GZIP, "no valid header")
    while position is not None:
        position = _inflate_member(view, position, output)
        # GZIPInputStream does not look for a member in 18 bytes or less: no member is that short.
        rest = len(view) - position
        position = _end_of_gzip_header(view, position) if rest > 18 else None


def _end_of_gzip_header(view: memoryview, start: int) -> int | None:
    """Position after the header at `start`, None where Java would not accept it."""
    position = start + 10
    if position > len(view) or bytes(view[start : start + 3]) != _GZIP_MAGIC:
        return None
    flags = view[start + 3]
    if flags & 4:
        position += 2 + int.from_bytes(view[position : position + 2], "little")
    for flag in (8, 16):  # name, comment
        if flags & flag:
            while (zero := bytes(view[position : position + 4096]).find(0)) < 0:
                position += 4096
                if position >= len(view):
                    return None
            position += zero + 1
    if flags & 2:
        stored = int.from_bytes(view[position : position + 2], "little")
        if zlib.crc32(view[start:position]) & 0xFFFF != stored:
            return None
        position += 2
    return position if position <= len(view) else None


def _inflate_member(view: memoryview, start: int, output: _Output) -> int:
    """Decompress the member whose header ends at `start`; returns the position after its trailer.

    The input goes in by small pieces: whatever is left after the end comes back as a copy, and
    a thousand tiny members must not copy the whole input a thousand times.
    """
    from isal import isal_zlib

    inflater = isal_zlib.decompressobj(-15)
    position, feed_size, crc, size = start, _FEED_SIZE_MIN, 0, 0
    pending: bytes | memoryview = b""
    try:
        while not inflater.eof:
            if not pending:
                pending = view[position : position + feed_size]
                position += len(pending)
                feed_size = min(2 * feed_size, _FEED_SIZE_MAX)
            at_end = not pending
            piece = inflater.decompress(pending, _PIECE_SIZE)
            if at_end and not piece and not inflater.eof:
                raise _damage(GZIP, "it ends too early")
            output.write(piece)
            crc = isal_zlib.crc32(piece, crc)
            size += len(piece)
            pending = inflater.unconsumed_tail
    except isal_zlib.error as error:  # type: ignore[misc] # the stub has no class
        raise _damage(GZIP, str(error)) from error
    position -= len(inflater.unused_data)
    end = position + _GZIP_TRAILER.size
    if end > len(view):
        raise _damage(GZIP, "its trailer is missing")
    if _GZIP_TRAILER.unpack(view[position:end]) != (crc, size & 0xFFFFFFFF):
        raise _damage(GZIP, "its checksum or size does not match")
    return end


# snappy: a xerial stream of chunks, or one raw block where the stream's magic is missing.
def _decompress_snappy(view: memoryview, output: _Output) -> None:
    if not len(view):
        raise _damage(SNAPPY, "it is empty")
    if len(view) < _XERIAL_HEADER_SIZE or bytes(view[:8]) != _XERIAL_MAGIC:
        _decompress_snappy_block(view, output)
        return
    position = _XERIAL_HEADER_SIZE
    while position + 4 <= len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        if size == _XERIAL_MAGIC_HEAD:
            header = bytes(view[position : position + _XERIAL_HEADER_SIZE])
            # snappy-java checks the version here, though not in the first header.
            if len(header) < _XERIAL_HEADER_SIZE or (
                header[:8] == _XERIAL_MAGIC and int.from_bytes(header[8:12], "big", signed=True) < 1
            ):
                raise _damage(SNAPPY, "a repeated header is cut off or of an old version")
            position += _XERIAL_HEADER_SIZE
            continue
        position += 4
        if size > min(_XERIAL_CHUNK_SIZE_MAX, len(view) - position):
            raise _damage(SNAPPY, f"chunk of {size} bytes, {len(view) - position} left")
        _decompress_snappy_block(view[position : position + size], output)
        position += size


def _decompress_snappy_block(block: memoryview, output: _Output) -> None:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(bytes(block[:5]))
        # A false size must not make us allocate it.
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise _damage(SNAPPY, f"{len(block)} bytes cannot hold {size}")
        output.reserve(size)
        piece = bytearray(size)
        if cramjam.snappy.decompress_raw_into(bytes(block), piece) != size:
            raise _damage(SNAPPY, "a block has another size than it says")
    except cramjam.DecompressionError as error:
        raise _damage(SNAPPY, str(error)) from error
    output.write(piece)


def _compress_snappy(data: bytes) -> bytes:
    import cramjam

    stream = bytearray(_XERIAL_MAGIC + struct.pack(">ii", 1, 1))
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        stream += struct.pack(">i", len(block)) + block
    return bytes(stream)


# lz4: one frame of independent blocks; what follows it is ignored.
def _decompress_lz4(view: memoryview, output: _Output, *, check_header: bool) -> None:
    import lz4.frame

    if bytes(view[:4]) != _LZ4_MAGIC or len(view) < 7:
        raise _damage(LZ4, "no lz4 frame")
    flags, block_descriptor = view[4], view[5]
    if flags & 0xC0 != 0x40 or flags & 0x03 or block_descriptor & 0x8F or block_descriptor < 0x40:
        raise _damage(LZ4, f"unknown frame descriptor {view[4:6].hex()}")
    if not flags & 0x20:
        raise _damage(LZ4, "linked blocks")
    end = 14 if flags & 0x08 else 6
    if end >= len(view):
        raise _damage(LZ4, "it ends too early")
    if check_header and view[end] != _lz4_header_checksum(bytes(view[4:end])):
        raise _damage(LZ4, "the header's checksum does not match")
    # Kafka verifies neither the content's size nor its checksum: the wheel gets a header without.
    descriptor = bytes((flags & ~0x0C, block_descriptor))
    header = _LZ4_MAGIC + descriptor + bytes((_lz4_header_checksum(descriptor),))
    try:
        for block in _lz4_blocks(view, end + 1):
            # One frame a block bounds the output. LZ4FrameDecompressor is no way to do it: it
            # keeps back what did not fit into its first buffer.
            output.write(lz4.frame.decompress(header + bytes(block) + _LZ4_END_MARK))
    except RuntimeError as error:
        raise _damage(LZ4, str(error)) from error


def _lz4_blocks(view: memoryview, position: int) -> Iterator[memoryview]:
    """Each block up to the end mark: size word, bytes and checksum (where flagged)."""
    flags = view[4]
    size_max = 1 << (2 * (view[5] >> 4) + 8)
    while True:
        if position + 4 > len(view):
            raise _damage(LZ4, "the end mark is missing")
        size = int.from_bytes(view[position : position + 4], "little") & ~_LZ4_STORED
        if not size:
            break
        if size > size_max:
            raise _damage(LZ4, f"block of {size} bytes, {size_max} allowed")
        end = position + 4 + size + (4 if flags & 0x10 else 0)
        if end > len(view):
            raise _damage(LZ4, "it ends too early")
        yield view[position:end]
        position = end
    if flags & 0x04 and position + 8 > len(view):
        raise _damage(LZ4, "the content checksum is missing")


@lru_cache(maxsize=64)  # nearly all frames have one of a few descriptors
def _lz4_header_checksum(descriptor: bytes) -> int:
    """Second byte of the xxh32 of a frame descriptor, which has less than 16 bytes."""
    mask = 0xFFFFFFFF
    value = _XXH32_PRIMES[4] + len(descriptor)
    words = len(descriptor) // 4 * 4
    for (word,) in struct.iter_unpack("<I", descriptor[:words]):
        value = (value + word * _XXH32_PRIMES[2]) & mask
        value = (value << 17 | value >> 15) * _XXH32_PRIMES[3] & mask
    for byte in descriptor[words:]:
        value = (value + byte * _XXH32_PRIMES[4]) & mask
        value = (value << 11 | value >> 21) * _XXH32_PRIMES[0] & mask
    value = (value ^ value >> 15) * _XXH32_PRIMES[1] & mask
    value = (value ^ value >> 13) * _XXH32_PRIMES[2] & mask
    return (value ^ value >> 16) >> 8 & 0xFF


def _compress_lz4(data: bytes, level: int | None, magic: int) -> bytes:
    import lz4.frame

    # Without store_size and content checksum there are 7 bytes of header, 0x60 0x40 in it.
    stream = lz4.frame.compress(
        data,
        compression_level=level or 0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    # Magic 0 hashes the frame's magic, too: the mistake that made the checksum be ignored there.
    descriptor = stream[:6] if magic == 0 else stream[4:6]
    return bytes(stream[:6] + bytes((_lz4_header_checksum(descriptor),)) + stream[7:])


# zstd: frames and skippable frames one after the other; anything else is damage.
def _decompress_zstd(view: memoryview, output: _Output) -> None:
    import zstandard

    decompressor = _zstd_decompressor()
    try:
        _decompress_zstd_frames(decompressor, view, output)
    except zstandard.ZstdError:
        # What is wrong with a frame is put in other words by a decompressor with buffers of other
        # frames: a fresh one says it, so that damage has one name whoever meets it, and when.
        output.clear()
        try:
            _decompress_zstd_frames(zstandard.ZstdDecompressor(), view, output)
        except zstandard.ZstdError as error:
            raise _damage(ZSTD, str(error)) from error
    finally:
        if decompressor.memory_size() > _ZSTD_KEPT_MAX:
            _kept.zstd = None


def _decompress_zstd_frames(decompressor: Any, view: memoryview, output: _Output) -> None:
    last_feed = (len(view) - 1) // _ZSTD_FEED_SIZE * _ZSTD_FEED_SIZE
    position = 0
    while position < len(view):
        # The wheel ends silently where a frame is cut off. So does zstd-jni when it has read the
        # last of its input together with the end of the frame before; else it is an error.
        end = _end_of_zstd_frame(view, position)
        if end is None and position <= last_feed:
            raise _damage(ZSTD, f"the frame at position {position} is cut off")
        for piece in decompressor.read_to_iter(view[position:end]):
            output.write(piece)
        position = len(view) if end is None else end


def _zstd_decompressor() -> Any:
    """One for each thread: to make one costs as much as to decompress a small batch."""
    import zstandard

    if getattr(_kept, "zstd", None) is None:
        _kept.zstd = zstandard.ZstdDecompressor()
    return _kept.zstd


def _end_of_zstd_frame(view: memoryview, start: int) -> int | None:
    """Position after the frame at `start`, None where it is cut off or no frame at all."""

    def little(position: int, size: int) -> int:
        return int.from_bytes(view[position : position + size], "little")

    magic = little(start, 4)
    if magic & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
        end = start + 8 + little(start + 4, 4)
    elif magic == _ZSTD_MAGIC:
        flags = little(start + 4, 1)
        single_segment = flags >> 5 & 1
        end = start + 6 - single_segment
        end += (0, 1, 2, 4)[flags & 3] + (single_segment, 2, 4, 8)[flags >> 6]
        block = 0
        while not block & 1:  # the last one has this bit
            if end + 3 > len(view):
                return None
            block = little(end, 3)
            # A block of kind 1 is one byte, repeated.
            end += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        end += flags & 4
    else:
        return None
    return end if end <= len(view) else None
