"""zstd: consecutive frames and skippable frames; anything else is damage.

Follows `ZstdCompression` of Kafka and zstd-jni's `ZstdInputStreamNoFinalizer`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, Final

from formats.constants import ZSTD
from kafkalog.errors import OutOfMemoryError
from kafkalog.io.codecs.native import decompress_whole
from kafkalog.io.codecs.output import Output, damage, refused

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_HEADER_SIZE_MAX: Final = 18  # `ZSTD_FRAMEHEADERSIZE_MAX`
# How much zstd-jni reads at a time: ZSTD_DStreamInSize.
_FEED_SIZE: Final = 131075
_PIECE_SIZE: Final = 1024 * 1024
_DEFAULT_LEVEL: Final = 3  # `compression.zstd.level` by default
_kept = threading.local()


def decompress(view: memoryview, output: Output, magic: int) -> None:
    """Write the content of the frames. Raises as `kafkalog.io.codecs.decompress`."""
    del magic  # the same for all that know this codec
    package = _package()
    last_feed = (len(view) - 1) // _FEED_SIZE * _FEED_SIZE
    position = 0
    try:
        while position < len(view):
            # zstd-jni ends silently at a frame that is cut off if it read the last of its input
            # together with the end of the previous frame; otherwise it raises an error.
            end = _end_of_frame(view, position)
            if end is None and position <= last_feed:
                raise damage(ZSTD, f"the frame at position {position} is cut off")
            _decompress_frame(package.ZstdDecompressor(), view[position:end], output)
            position = len(view) if end is None else end
    except package.ZstdError as error:
        raise refused(ZSTD, str(error).rpartition(": ")[2]) from error


def decompress_known(data: bytes, size_max: int) -> bytes | bytearray:
    """Decompress a frame that states its size, in one call where libzstd can be called.

    Raises:
        ValueError: it is something else, or larger.

    Cost:
        Memory for what it states, which is not more than `size_max`.
    """
    package = _package()
    try:
        size = package.get_frame_info(data).decompressed_size
        if size is None or size > size_max:
            raise ValueError(f"it would have {size} bytes, where {size_max} are most")
        if (made := _in_one_call(data, size)) is not None:
            return made
        decompressor = package.ZstdDecompressor()  # says what is wrong
        content: bytes = decompressor.decompress(data, size + 1)
    except package.ZstdError as error:
        found = refused(ZSTD, str(error))
        raise (found if isinstance(found, OutOfMemoryError) else ValueError(str(error))) from None
    if len(content) != size or not decompressor.eof:
        raise ValueError(f"it has other than the {size} bytes it states")
    return content


def _in_one_call(data: bytes, size: int) -> bytearray | None:
    """Decompress frames of this total size; return None if libzstd cannot do it in one call."""
    whole = decompress_whole()
    if whole is None or not size:
        return None
    made = bytearray(size)
    place = (ctypes.c_char * size).from_buffer(made)
    return made if whole(ctypes.addressof(place), size, data, len(data)) == size else None


def _package() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def _decompress_frame(decompressor: Any, view: memoryview, output: Output) -> None:
    data: bytes | memoryview = view
    while not decompressor.eof:
        output.write(decompressor.decompress(data, _PIECE_SIZE))
        if decompressor.needs_input:
            return
        data = b""


def _end_of_frame(view: memoryview, start: int) -> int | None:
    """Return the position after the frame at `start`, None if it is cut off or not a frame."""

    head = bytes(view[start : start + _HEADER_SIZE_MAX])
    magic = int.from_bytes(head[:4], "little")
    if magic & ~0xF == _SKIPPABLE_MAGIC:
        end = start + 8 + int.from_bytes(head[4:8], "little")
    elif magic == _MAGIC:
        flags = head[4] if len(head) > 4 else 0
        single_segment = flags >> 5 & 1
        end = start + 6 - single_segment
        end += (0, 1, 2, 4)[flags & 3] + (single_segment, 2, 4, 8)[flags >> 6]
        block = 0
        while not block & 1:  # the last block has this bit
            if end + 3 > len(view):
                return None
            block = int.from_bytes(view[end : end + 3], "little")
            # A block of kind 1 is one byte, repeated.
            end += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
        end += flags & 4  # the checksum, if flagged
    else:
        return None
    return end if end <= len(view) else None


def compress(data: bytes | memoryview, level: int | None, magic: int) -> bytes:
    """Return the frame of Kafka's stream: its size is not known ahead, and `flush` ends a block."""
    del magic
    level = _DEFAULT_LEVEL if level is None else level
    kept = getattr(_kept, "compressor", None)
    if kept is None or kept[0] != level:
        package = _package()
        known = package.CompressionParameter
        options = {known.compression_level: level, known.content_size_flag: 0}
        kept = level, package.ZstdCompressor(options=options)
        # Compressors of high levels take too much memory to be kept per thread.
        _kept.compressor = kept if level == _DEFAULT_LEVEL else None
    compressor = kept[1]
    head: bytes = compressor.compress(data, compressor.CONTINUE)
    body: bytes = compressor.flush(compressor.FLUSH_BLOCK)
    end: bytes = compressor.flush(compressor.FLUSH_FRAME)
    return head + body + end
