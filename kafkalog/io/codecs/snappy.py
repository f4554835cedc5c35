"""snappy: a xerial stream of chunks, or one raw block if the stream's magic is missing.

Follows `SnappyCompression` of Kafka and snappy-java's `SnappyInputStream`.
"""

from __future__ import annotations

import struct
from typing import Final

from formats.constants import SNAPPY
from kafkalog.io.codecs.output import Output, damage

_MAGIC: Final = b"\x82SNAPPY\x00"
_MAGIC_HEAD: Final = 0x82534E41  # in place of a size: another stream follows
_HEADER_SIZE: Final = 16  # magic, version, and the lowest version that can read it
_CHUNK_SIZE_MAX: Final = 512 * 1024 * 1024  # `SnappyInputStream.MAX_CHUNK_SIZE`
_BLOCK_SIZE: Final = 32 * 1024  # that of `SnappyOutputStream` by default
_COPIED_MAX: Final = 1 << 20  # copying this many bytes is cheaper than a buffer around them
# The densest element of a raw block, a copy, makes 64 bytes out of 3.
_RATIO_MAX: Final = 22


def decompress(view: memoryview, output: Output, magic: int) -> None:
    """Write the content of the chunks. Raises as `kafkalog.io.codecs.decompress`."""
    del magic  # the same for all that know this codec
    if not len(view):
        raise damage(SNAPPY, "it is empty")
    # librdkafka, and all clients made of it, write one raw block.
    if len(view) < _HEADER_SIZE or bytes(view[:8]) != _MAGIC:
        _decompress_block(view, output)
        return
    position = _HEADER_SIZE
    # snappy-java ignores one to three bytes at the end.
    while position + 4 <= len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        if size == _MAGIC_HEAD:
            header = bytes(view[position : position + _HEADER_SIZE])
            # snappy-java checks the version here, though not in the first header.
            if len(header) < _HEADER_SIZE or (
                header[:8] == _MAGIC and int.from_bytes(header[8:12], "big", signed=True) < 1
            ):
                raise damage(SNAPPY, "a repeated header is cut off or of an old version")
            position += _HEADER_SIZE
            continue
        position += 4
        if size > min(_CHUNK_SIZE_MAX, len(view) - position):
            raise damage(SNAPPY, f"chunk of {size} bytes, {len(view) - position} left")
        _decompress_block(view[position : position + size], output)
        position += size


def _decompress_block(block: memoryview, output: Output) -> None:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block[:5])
        # A false size must not make us allocate it.
        if size > _RATIO_MAX * len(block):
            raise damage(SNAPPY, f"{len(block)} bytes cannot hold {size}")
        output.reserve(size)
        room = output.room(size)
        piece = bytearray(size) if room is None else room
        if cramjam.snappy.decompress_raw_into(block, piece) != size:
            raise damage(SNAPPY, "a block has another size than it says")
    except cramjam.DecompressionError as error:
        raise damage(SNAPPY, str(error)) from error
    if room is not None:
        output.filled(size)
    else:
        output.write(bytes(piece) if size <= _COPIED_MAX else piece)


def compress(data: bytes | memoryview, level: int | None, magic: int) -> bytes:
    """Return a stream of chunks of 32 KiB."""
    del level, magic  # snappy has no levels
    import cramjam

    pieces = [_MAGIC + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), _BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _BLOCK_SIZE]))
        pieces += (struct.pack(">i", len(block)), block)
    return b"".join(pieces)
