"""The time index, `<offset>.timeindex`: from timestamps to relative offsets.

Follows `TimeIndex` of Kafka 4.3. The zeros that fill an open file are entries here, as for Kafka.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, GreedyRange, Int32sb, Int64sb, Struct

TimeIndexEntry: Final = Struct(
    "timestamp" / Int64sb,
    "relative_offset" / Int32sb,
)

# `rest` are trailing bytes that do not fill an entry.
TimeIndex: Final = Struct(
    "entries" / GreedyRange(TimeIndexEntry),
    "rest" / GreedyBytes,
)
