"""The time index, `<offset>.timeindex`: from timestamps to relative offsets.

Follows `TimeIndex` of Kafka 4.3. The zero padding of an open file is parsed as entries, as Kafka
does.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, GreedyRange, Struct

from formats.layouts import TIME_INDEX_ENTRY
from formats.primitives import fixed

TimeIndexEntry: Final = Struct(*fixed(TIME_INDEX_ENTRY))

# `rest` holds trailing bytes that do not fill an entry.
TimeIndex: Final = Struct(
    "entries" / GreedyRange(TimeIndexEntry),
    "rest" / GreedyBytes,
)
