"""Header positions, masks, sizes and file names of Kafka's formats, as plain numbers and strings.

Follows `DefaultRecordBatch`, `LegacyRecord`, `Records` and `LogFileUtils` of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

# Every batch and message starts with offset (i64) and length (i32): Records.LOG_OVERHEAD.
LENGTH_POSITION: Final = 8
LOG_OVERHEAD: Final = 12
MAGIC_POSITION: Final = 16
HEADER_SIZE_UP_TO_MAGIC: Final = 17

# Magic 2, DefaultRecordBatch.
PARTITION_LEADER_EPOCH_POSITION: Final = 12
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORDS_COUNT_POSITION: Final = 57
RECORD_BATCH_OVERHEAD: Final = 61
BATCH_LENGTH_MIN: Final = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)  # ids of codecs, in the attributes
COMPRESSION_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

# Magic 0 and 1, LegacyRecord.
LEGACY_CRC_POSITION: Final = 12
LEGACY_ATTRIBUTES_POSITION: Final = 17
LEGACY_TIMESTAMP_POSITION: Final = 18
MESSAGE_V0_LENGTH_MIN: Final = 14
MESSAGE_V1_LENGTH_MIN: Final = 22

RECORD_SIZE_MIN: Final = 7

OFFSET_INDEX_ENTRY_SIZE: Final = 8
TIME_INDEX_ENTRY_SIZE: Final = 12
ABORTED_TXN_SIZE: Final = 34

NO_TIMESTAMP: Final = -1  # RecordBatch.NO_TIMESTAMP; any other negative time is one

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

ABORT: Final = 0
COMMIT: Final = 1
CONTROL_TYPE_NAMES: Final = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
