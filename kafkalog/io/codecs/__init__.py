"""Compression and checksums of record batches, accepting exactly what Kafka's reader accepts.

A codec is a module here, named as in `COMPRESSION_NAMES`. Every output is bounded while it is
produced.
"""

from __future__ import annotations

import zlib
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Final, Protocol, cast

from formats.constants import CODEC_MAX, COMPRESSION_NAMES, LEGACY_CODEC_MAX, NONE
from kafkalog.errors import CorruptDataError, KafkaLogError, UnsupportedError
from kafkalog.io.codecs.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable


class _Codec(Protocol):
    def decompress(self, view: memoryview, output: Output, magic: int) -> None: ...

    def compress(self, data: bytes | memoryview, level: int | None, magic: int) -> bytes: ...


@cache  # a log mostly needs one of them, or none
def _codec(number: int) -> _Codec:
    return cast("_Codec", import_module(f"kafkalog.io.codecs.{COMPRESSION_NAMES[number]}"))


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """Compute the CRC-32C (Castagnoli) of `data`, unsigned, continuing from checksum `before`.

    For a batch of magic 2 it covers everything from the attributes to the end, as stored
    (compressed or not); for a producer snapshot, everything after the checksum.
    """
    return _wheels_crc32c()(data, before)


@cache
def _wheels_crc32c() -> Callable[[bytes | memoryview, int], int]:
    """Return the package's function.

    Its module is loaded by itself: the package looks up its own version, which takes 40 ms.
    """
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec("_crc32c", list(places))
    if spec is None or spec.loader is None:  # packed in some other way
        import crc32c as wheel

        return wheel.crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Callable[[bytes | memoryview, int], int]", module.crc32c)


def crc32(data: bytes | memoryview, before: int = 0) -> int:
    """Compute the CRC-32 (zlib) of `data`, unsigned, continuing from checksum `before`.

    For a message of magic 0 or 1 it covers everything from the magic byte to the end.
    """
    return zlib.crc32(data, before)


# A producer's batch has 1 MiB by default, and no chunk of snappy-java can be larger than 512 MiB. A
# legitimate batch is far below this limit, and a process with 1 GiB of memory survives it.
DECOMPRESSED_SIZE_MAX: Final = 512 * 1024 * 1024


def decompress(
    data: bytes | memoryview, codec: int, *, magic: int, limit: int = DECOMPRESSED_SIZE_MAX
) -> bytes:
    """Decompress the payload of a batch, or the value of a compressed message.

    Args:
        data: the payload as stored.
        codec: codec id of the attributes, 0 to 7.
        magic: magic of the batch or message: magic 0 has a broken lz4 header, zstd needs magic 2.
        limit: maximum size of the result, in bytes.

    Raises:
        CorruptDataError: Kafka would refuse the data ("decompression-failed") or does not know the
            codec ("unknown-codec").
        LimitExceededError: the result would be larger than `limit`.

    Cost:
        Memory for the result and a few MiB; up to 128 MiB more if a zstd frame requires it.
        Only one thread at a time produces a result above 64 MiB.
    """
    if codec == NONE:
        Output(codec, limit).reserve(len(data))
        return bytes(data)
    output = Output(codec, limit)
    decompress_to(output, data, magic=magic)
    return output.value()


def decompress_to(output: Output, data: bytes | memoryview, *, magic: int) -> None:
    """Decompress into an output, which names the codec."""
    codec = output.codec
    if not _is_known(codec, magic):
        raise CorruptDataError(
            f"Kafka has no compression codec {codec} for magic {magic}.", reference="unknown-codec"
        )
    try:
        _codec(codec).decompress(memoryview(data), output, magic)
    except KafkaLogError as error:
        import traceback

        # An error may be kept as long as a log is read, so its frames must not keep the output
        # alive.
        traceback.clear_frames(error.__traceback__)
        output.clear()
        raise
    finally:
        output.end()


def compress(
    data: bytes | memoryview, codec: int, *, level: int | None = None, magic: int = 2
) -> bytes:
    """Compress the payload of a batch in the framing that Kafka itself writes.

    Args:
        data: the records, or the inner messages of magic 0 and 1.
        codec: codec id.
        level: gzip 0 to 9, lz4 0 to 16, zstd -131072 to 22; None for the codec's default.
        magic: magic of the batch or message that the result is for.

    Raises:
        UnsupportedError: Kafka has no such codec for this magic.
    """
    if not _is_known(codec, magic):
        raise UnsupportedError(f"Kafka has no compression codec {codec} for magic {magic}.")
    if codec == NONE:
        return bytes(data)
    return _codec(codec).compress(data, level, magic)


def _is_known(codec: int, magic: int) -> bool:
    return 0 <= codec <= (LEGACY_CODEC_MAX if magic < 2 else CODEC_MAX)
