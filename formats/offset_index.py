"""The offset index, `<offset>.index`: from relative offsets to positions in the log.

Follows `OffsetIndex` of Kafka 4.3. The zero padding of an open file is parsed as entries, as Kafka
does.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, GreedyRange, Struct

from formats.layouts import OFFSET_INDEX_ENTRY
from formats.primitives import fixed

OffsetIndexEntry: Final = Struct(*fixed(OFFSET_INDEX_ENTRY))

# `rest` holds trailing bytes that do not fill an entry.
OffsetIndex: Final = Struct(
    "entries" / GreedyRange(OffsetIndexEntry),
    "rest" / GreedyBytes,
)
