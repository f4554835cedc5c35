"""lz4: one frame of independent blocks; anything after it is ignored.

Follows `Lz4BlockInputStream` and `Lz4BlockOutputStream` of Kafka.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from formats.constants import LZ4
from kafkalog.io.codecs.output import Output, damage, refused

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAGIC: Final = b"\x04\x22\x4d\x18"
_STORED: Final = 0x80000000  # of the size of a block that is not compressed
_BLOCK_CHECKSUM: Final = 0x10  # of FLG, the flags of a frame
_END_MARK: Final = bytes(4)
_XXH32_PRIMES: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def decompress(view: memoryview, output: Output, magic: int) -> None:
    """Write the content of the blocks. Raises as `kafkalog.io.codecs.decompress`."""
    # Magic, FLG, BD and checksum; with a content size eight bytes more.
    if len(view) < 7:
        raise damage(LZ4, "no lz4 frame")
    size = 15 if view[4] & 0x08 else 7
    if size > len(view):
        raise damage(LZ4, "it ends too early")
    header = _plain_header(bytes(view[:size]), check_header=magic != 0)
    try:
        for block in _blocks(view, size):
            # One frame per block bounds the output. LZ4FrameDecompressor cannot do that: it
            # withholds what did not fit into its first buffer.
            if not _put(block, header, output):
                import lz4.frame  # rarely needed

                output.write(lz4.frame.decompress(b"".join((header, block, _END_MARK))))
    except RuntimeError as error:
        raise refused(LZ4, str(error)) from error


def _put(block: memoryview, header: bytes, output: Output) -> bool:
    """Decompress a block into the output's room; return False if that is impossible.

    The frame decompressor reports damage.
    """
    size_max = _block_size_max(header[5])
    # cramjam does not know checksums of blocks; the frame decompressor verifies them.
    room = None if header[4] & _BLOCK_CHECKSUM else output.room(size_max)
    if room is None:
        return False
    if block[3] & 0x80:
        output.write(block[4:])
        return True
    import cramjam

    try:
        size = cramjam.lz4.decompress_block_into(block[4:], room, output_len=size_max)
    except cramjam.DecompressionError:
        return False
    output.filled(size)
    return True


def _block_size_max(block_descriptor: int) -> int:
    size: int = 1 << (2 * (block_descriptor >> 4) + 8)
    return size


@lru_cache(maxsize=64)  # nearly all frames have one of a few headers
def _plain_header(stored: bytes, *, check_header: bool) -> bytes:
    """Return the header without content size and checksums, which Kafka does not verify.

    So the lz4 package does not verify them either. Raises for a header that Kafka refuses.
    """
    flags, block_descriptor = stored[4], stored[5]
    if stored[:4] != _MAGIC:
        raise damage(LZ4, "no lz4 frame")
    # Version 1, no dictionary, nothing reserved, and block sizes 4 to 7 (64 KiB to 4 MiB).
    if flags & 0xC0 != 0x40 or flags & 0x03 or block_descriptor & 0x8F or block_descriptor < 0x40:
        raise damage(LZ4, f"unknown frame descriptor {stored[4:6].hex()}")
    # Kafka's reader refuses linked blocks, so no broker has accepted any.
    if not flags & 0x20:
        raise damage(LZ4, "linked blocks")
    if check_header and stored[-1] != _header_checksum(stored[4:-1]):
        raise damage(LZ4, "the header's checksum does not match")
    descriptor = bytes((flags & ~0x0C, block_descriptor))
    return _MAGIC + descriptor + bytes((_header_checksum(descriptor),))


def _blocks(view: memoryview, position: int) -> Iterator[memoryview]:
    """Yield each block up to the end mark: size word, bytes and checksum (if flagged)."""
    flags = view[4]
    size_max = _block_size_max(view[5])
    while True:
        if position + 4 > len(view):
            raise damage(LZ4, "the end mark is missing")
        size = int.from_bytes(view[position : position + 4], "little") & ~_STORED
        if not size:
            break
        if size > size_max:
            raise damage(LZ4, f"block of {size} bytes, {size_max} allowed")
        end = position + 4 + size + (4 if flags & _BLOCK_CHECKSUM else 0)
        if end > len(view):
            raise damage(LZ4, "it ends too early")
        yield view[position:end]
        position = end
    # Kafka reads it, but does not compare it.
    if flags & 0x04 and position + 8 > len(view):
        raise damage(LZ4, "the content checksum is missing")


@lru_cache(maxsize=64)
def _header_checksum(descriptor: bytes) -> int:
    """Return the second byte of the xxh32 of a frame descriptor of less than 16 bytes."""
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


def compress(data: bytes | memoryview, level: int | None, magic: int) -> bytes:
    """Return one frame of blocks of 64 KiB."""
    import lz4.frame

    # Without store_size and content checksum there are 7 bytes of header, 0x60 0x40 in it.
    stream = lz4.frame.compress(
        data,
        compression_level=level or 0,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    # Magic 0 also hashes the frame's magic: the bug because of which Kafka ignores the checksum
    # there.
    descriptor = stream[:6] if magic == 0 else stream[4:6]
    return bytes(stream[:6] + bytes((_header_checksum(descriptor),)) + stream[7:])
