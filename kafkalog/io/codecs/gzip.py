"""gzip: consecutive members; anything after the last that is not a header is ignored.

Follows `GzipCompression` of Kafka and Java's `GZIPInputStream`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from formats.constants import GZIP
from kafkalog.io.codecs.output import Output, damage

_FEED_SIZE_MIN: Final = 4 * 1024
_FEED_SIZE_MAX: Final = 64 * 1024
_PIECE_SIZE: Final = 1024 * 1024
_MAGIC: Final = b"\x1f\x8b\x08"
# No flags and no time; 255 is an unknown system, as `GZIPOutputStream` of Java writes.
_HEADER: Final = _MAGIC + bytes(6) + b"\xff"
_TRAILER: Final = struct.Struct("<II")


def decompress(view: memoryview, output: Output, magic: int) -> None:
    """Write the content of the members. Raises as `kafkalog.io.codecs.decompress`."""
    del magic  # the same for all that know this codec
    position = _end_of_header(view, 0)
    if position is None:
        raise damage(GZIP, "no valid header")
    while position is not None:
        position = _inflate_member(view, position, output)
        # GZIPInputStream does not look for a member in 18 bytes or less: no member is that short.
        rest = len(view) - position
        position = _end_of_header(view, position) if rest > 18 else None


def _end_of_header(view: memoryview, start: int) -> int | None:
    """Return the position after the header at `start`, None if Java would not accept it."""
    position = start + 10
    if position > len(view) or bytes(view[start : start + 3]) != _MAGIC:
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


def _inflate_member(view: memoryview, start: int, output: Output) -> int:
    """Decompress the member whose header ends at `start`; return the position after its trailer.

    The input is fed in small pieces: zlib returns a copy of whatever follows the end, and a
    thousand tiny members must not copy the whole input a thousand times.
    """
    from isal import isal_zlib

    # Raw deflate: header and trailer are judged as Java does, not as zlib would.
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
                raise damage(GZIP, "it ends too early")
            output.write(piece)
            crc = isal_zlib.crc32(piece, crc)
            size += len(piece)  # modulo 2^32 in the trailer
            pending = inflater.unconsumed_tail
    except isal_zlib.error as error:  # type: ignore[misc] # the stub has no class
        raise damage(GZIP, str(error)) from error
    position -= len(inflater.unused_data)
    end = position + _TRAILER.size
    if end > len(view):
        raise damage(GZIP, "its trailer is missing")
    if _TRAILER.unpack(view[position:end]) != (crc, size & 0xFFFFFFFF):
        raise damage(GZIP, "its checksum or size does not match")
    return end


def compress(data: bytes | memoryview, level: int | None, magic: int) -> bytes:
    """Return one member, with the header that Java writes: no time, no flags, unknown system."""
    del magic
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -15)
    body = compressor.compress(data) + compressor.flush()
    return _HEADER + body + _TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)
