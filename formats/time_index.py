"""The time index, `<offset>.timeindex`: from timestamps to relative offsets.

Follows `TimeIndex` of Kafka 4.3. The zeros that fill an open file are entries here, as for Kafka.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, GreedyRange, Struct

from formats.layouts import TIME_INDEX_ENTRY
from formats.primitives import fixed

TimeIndexEntry: Final = Struct(*fixed(TIME_INDEX_ENTRY))

# `rest` are trailing bytes that do not fill an entry.
TimeIndex: Final = Struct(
    "entries" / GreedyRange(TimeIndexEntry),
    "rest" / GreedyBytes,
)
