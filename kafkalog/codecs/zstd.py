"""zstd: consecutive frames and skippable frames; anything else is damage.

Follows `ZstdCompression` of Kafka 4.3 and zstd-jni's `ZstdInputStreamNoFinalizer`.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from formats.constants import ZSTD
from kafkalog.codecs.output import Output, damage

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_HEADER_SIZE_MAX: Final = 18
# How much zstd-jni reads at a time: ZSTD_DStreamInSize.
_FEED_SIZE: Final = 131075
_KEPT_MAX: Final = 16 * 1024 * 1024  # a decompressor with a larger window is not reused
_DEFAULT_LEVEL: Final = 3
_kept = threading.local()


def decompress(view: memoryview, output: Output, magic: int) -> None:
    """Write the content of the frames. Raises as `kafkalog.codecs.decompress`."""
    del magic  # the same for all that know this codec
    import zstandard

    decompressor = _decompressor()
    try:
        _decompress_frames(decompressor, view, output)
    except zstandard.ZstdError:
        # A decompressor with buffers from other frames words its errors differently. A fresh one
        # gives the message, so that the same damage always has the same message.
        output.clear()
        try:
            _decompress_frames(zstandard.ZstdDecompressor(), view, output)
        except zstandard.ZstdError as error:
            raise damage(ZSTD, str(error)) from error
    finally:
        if decompressor.memory_size() > _KEPT_MAX:
            _kept.zstd = None


def _decompress_frames(decompressor: Any, view: memoryview, output: Output) -> None:
    last_feed = (len(view) - 1) // _FEED_SIZE * _FEED_SIZE
    position = 0
    while position < len(view):
        # The package ends silently if a frame is cut off. So does zstd-jni if it read the last of
        # its input together with the end of the previous frame; otherwise it raises an error.
        end = _end_of_frame(view, position)
        if end is None and position <= last_feed:
            raise damage(ZSTD, f"the frame at position {position} is cut off")
        for piece in decompressor.read_to_iter(view[position:end]):
            output.write(piece)
        position = len(view) if end is None else end


def _decompressor() -> Any:
    """Return the thread's decompressor, because creating one costs as much as a small batch."""
    import zstandard

    if getattr(_kept, "zstd", None) is None:
        _kept.zstd = zstandard.ZstdDecompressor()
    return _kept.zstd


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
        end += flags & 4
    else:
        return None
    return end if end <= len(view) else None


def compress(data: bytes | memoryview, level: int | None, magic: int) -> bytes:
    """Return one frame, without content size, as streamed by zstd-jni."""
    del magic
    level = _DEFAULT_LEVEL if level is None else level
    kept = getattr(_kept, "compressor", None)
    if kept is None or kept[0] != level:
        import zstandard

        kept = level, zstandard.ZstdCompressor(level=level, write_content_size=False)
        # Compressors of high levels take too much memory to be kept per thread.
        _kept.compressor = kept if level == _DEFAULT_LEVEL else None
    compressed: bytes = kept[1].compress(data)
    return compressed
