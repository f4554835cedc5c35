"""The producer snapshot, `<offset>.snapshot`: the state of each producer up to an offset.

Follows `ProducerStateManager` and `ProducerSnapshot.json` (version 1) of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from construct import (
    GreedyBytes,
    Int16sb,
    Int32sb,
    Int32ub,
    Int64sb,
    PrefixedArray,
    Struct,
)

ProducerSnapshotEntry: Final = Struct(
    "producer_id" / Int64sb,
    "producer_epoch" / Int16sb,
    "last_sequence" / Int32sb,
    "last_offset" / Int64sb,
    "offset_delta" / Int32sb,
    "timestamp" / Int64sb,
    "coordinator_epoch" / Int32sb,
    "current_txn_first_offset" / Int64sb,
)

# `crc` covers everything after it, `rest` (the bytes after the last entry) included.
ProducerSnapshot: Final = Struct(
    "version" / Int16sb,
    "crc" / Int32ub,
    "entries" / PrefixedArray(Int32sb, ProducerSnapshotEntry),
    "rest" / GreedyBytes,
)
