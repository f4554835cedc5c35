"""The offset index, `<offset>.index`: from relative offsets to positions in the log.

Follows `OffsetIndex` of Kafka 4.3. The zeros that fill an open file are entries here, as for Kafka.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, GreedyRange, Int32sb, Struct

OffsetIndexEntry: Final = Struct(
    "relative_offset" / Int32sb,
    "position" / Int32sb,
)

# `rest` are trailing bytes that do not fill an entry.
OffsetIndex: Final = Struct(
    "entries" / GreedyRange(OffsetIndexEntry),
    "rest" / GreedyBytes,
)
