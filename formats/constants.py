"""Field positions, masks and sizes of Kafka's formats, as plain numbers.

Follows `DefaultRecordBatch`, `LegacyRecord` and `Records` of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from formats.layouts import (
    ABORTED_TRANSACTION,
    MESSAGE_HEADER,
    OFFSET_INDEX_ENTRY,
    RECORD_BATCH_HEADER,
    TIME_INDEX_ENTRY,
)

_BATCH: Final = RECORD_BATCH_HEADER.positions
_MESSAGE: Final = MESSAGE_HEADER.positions

# Every batch and message starts with offset (i64) and length (i32): Records.LOG_OVERHEAD.
LENGTH_POSITION: Final = _BATCH["batch_length"]
LOG_OVERHEAD: Final = _BATCH["partition_leader_epoch"]
MAGIC_POSITION: Final = _BATCH["magic"]
HEADER_SIZE_UP_TO_MAGIC: Final = _BATCH["crc"]

# Magic 2, DefaultRecordBatch.
CRC_POSITION: Final = _BATCH["crc"]
ATTRIBUTES_POSITION: Final = _BATCH["attributes"]
LAST_OFFSET_DELTA_POSITION: Final = _BATCH["last_offset_delta"]
BASE_TIMESTAMP_POSITION: Final = _BATCH["base_timestamp"]
MAX_TIMESTAMP_POSITION: Final = _BATCH["max_timestamp"]
RECORDS_COUNT_POSITION: Final = _BATCH["records_count"]
RECORD_BATCH_OVERHEAD: Final = RECORD_BATCH_HEADER.size
BATCH_LENGTH_MIN: Final = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)  # codec ids, in the attributes
COMPRESSION_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODEC_MAX: Final = LZ4  # of magic 0 and 1
CODEC_MAX: Final = ZSTD

# Magic 0 and 1, LegacyRecord.
LEGACY_CRC_POSITION: Final = _MESSAGE["crc"]
LEGACY_ATTRIBUTES_POSITION: Final = _MESSAGE["attributes"]
LEGACY_TIMESTAMP_POSITION: Final = _MESSAGE["timestamp"]
MESSAGE_V0_LENGTH_MIN: Final = 14
MESSAGE_V1_LENGTH_MIN: Final = 22


OFFSET_INDEX_ENTRY_SIZE: Final = OFFSET_INDEX_ENTRY.size
TIME_INDEX_ENTRY_SIZE: Final = TIME_INDEX_ENTRY.size
ABORTED_TXN_SIZE: Final = ABORTED_TRANSACTION.size

NO_TIMESTAMP: Final = -1  # RecordBatch.NO_TIMESTAMP; other negative times are kept as they are

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
