"""The two checksums of Kafka's logs: CRC-32C for magic 2 and snapshots, CRC-32 for magic 0 and 1.

Follows `org.apache.kafka.common.utils.Crc32C` and `java.util.zip.CRC32`.
"""

from __future__ import annotations

import zlib


def crc32c(data: bytes | memoryview, before: int = 0) -> int:
    """Compute the CRC-32C (Castagnoli) of `data`, unsigned, continuing from checksum `before`.

    For a batch of magic 2 it covers everything from the attributes to the end, as stored
    (compressed or not); for a producer snapshot, everything after the checksum.
    """
    import crc32c as wheel

    return wheel.crc32c(data, before)


def crc32(data: bytes | memoryview, before: int = 0) -> int:
    """Compute the CRC-32 (zlib) of `data`, unsigned, continuing from checksum `before`.

    For a message of magic 0 or 1 it covers everything from the magic byte to the end.
    """
    return zlib.crc32(data, before)
