"""The producer snapshot, `<offset>.snapshot`: the state of each producer up to an offset.

Follows `ProducerStateManager` and `ProducerSnapshot.json` (version 1) of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, Int32sb, PrefixedArray, Struct

from formats.layouts import PRODUCER_SNAPSHOT_ENTRY, PRODUCER_SNAPSHOT_HEADER
from formats.primitives import fixed

ProducerSnapshotEntry: Final = Struct(*fixed(PRODUCER_SNAPSHOT_ENTRY))

# `crc` covers everything after it, including `rest`, the bytes after the last entry.
ProducerSnapshot: Final = Struct(
    *fixed(PRODUCER_SNAPSHOT_HEADER),
    "entries" / PrefixedArray(Int32sb, ProducerSnapshotEntry),
    "rest" / GreedyBytes,
)
