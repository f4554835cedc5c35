"""The binary files next to a log, one schema each: its indexes and its snapshots.

Follows Kafka: `OffsetIndex` and `TimeIndex`, where the zero padding of an open file is parsed
as entries, as Kafka does; `TransactionIndex` and `AbortedTxn`; `ProducerStateManager` and
`ProducerSnapshot.json` (version 1). Kafka 3.7: `RemoteLogMetadataSnapshotFile`, each entry of
which holds a record of `__remote_log_metadata`.
"""

from __future__ import annotations

from typing import Final

from formats.constants import (
    ABORTED_TRANSACTION,
    OFFSET_INDEX_ENTRY,
    PRODUCER_SNAPSHOT_ENTRY,
    PRODUCER_SNAPSHOT_HEADER,
    TIME_INDEX_ENTRY,
)
from formats.constructs import (
    GreedyBytes,
    GreedyRange,
    Int16sb,
    Int32sb,
    Int64sb,
    Prefixed,
    PrefixedArray,
    Struct,
)
from formats.primitives import fixed

OffsetIndexEntry: Final = Struct(*fixed(OFFSET_INDEX_ENTRY))

# `rest` holds trailing bytes that do not fill an entry.
OffsetIndex: Final = Struct(
    "entries" / GreedyRange(OffsetIndexEntry),
    "rest" / GreedyBytes,
)


TimeIndexEntry: Final = Struct(*fixed(TIME_INDEX_ENTRY))

# `rest` holds trailing bytes that do not fill an entry.
TimeIndex: Final = Struct(
    "entries" / GreedyRange(TimeIndexEntry),
    "rest" / GreedyBytes,
)


AbortedTransaction: Final = Struct(*fixed(ABORTED_TRANSACTION))

# `rest` holds trailing bytes that do not fill an entry.
TransactionIndex: Final = Struct(
    "entries" / GreedyRange(AbortedTransaction),
    "rest" / GreedyBytes,
)


ProducerSnapshotEntry: Final = Struct(*fixed(PRODUCER_SNAPSHOT_ENTRY))

# `crc` covers everything after it, including `rest`, the bytes after the last entry.
ProducerSnapshot: Final = Struct(
    *fixed(PRODUCER_SNAPSHOT_HEADER),
    "entries" / PrefixedArray(Int32sb, ProducerSnapshotEntry),
    "rest" / GreedyBytes,
)


# `rest` holds the bytes after the last entry.
RemoteLogSnapshot: Final = Struct(
    "version" / Int16sb,
    "metadata_partition" / Int32sb,
    "metadata_partition_offset" / Int64sb,
    "entries" / PrefixedArray(Int32sb, Prefixed(Int32sb, GreedyBytes)),
    "rest" / GreedyBytes,
)
