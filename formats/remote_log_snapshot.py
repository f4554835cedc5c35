"""The file `remote_log_snapshot` that brokers 3.1 to 3.7 with tiered storage left in partitions.

Follows `RemoteLogMetadataSnapshotFile` of Kafka 3.7. Each entry holds a record of
`__remote_log_metadata`.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, Int16sb, Int32sb, Int64sb, Prefixed, PrefixedArray, Struct

# `rest` holds the bytes after the last entry.
RemoteLogSnapshot: Final = Struct(
    "version" / Int16sb,
    "metadata_partition" / Int32sb,
    "metadata_partition_offset" / Int64sb,
    "entries" / PrefixedArray(Int32sb, Prefixed(Int32sb, GreedyBytes)),
    "rest" / GreedyBytes,
)
