"""Fixed layouts, each stated once, with field positions, masks and sizes as plain numbers.

The construct schemas, `struct` formats, numpy dtypes and field positions all derive from these.
Numbers are big-endian. Follows `DefaultRecordBatch`, `LegacyRecord`, `Records`, `OffsetIndex`,
`TimeIndex`, `AbortedTxn` and `ProducerSnapshot.json` of Kafka.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from formats import decoder

_WIDTHS: Final = {"b": "i1", "h": "i2", "i": "i4", "I": "u4", "q": "i8"}


class Layout:
    """Fields of fixed size, one after another.

    Attributes:
        schema: module and name of the schema that begins with these fields.
        fields: name to type, as a format character of the module `struct`.
        positions: name to the position of the field's first byte.
        struct: packs and unpacks all fields.
        size: total length of the fields.
    """

    def __init__(self, schema: str, /, **fields: str) -> None:
        self.schema = schema
        self.fields = fields
        self.struct = self.part(*fields)
        self.size = self.struct.size
        self.positions = {}
        position = 0
        for name, kind in fields.items():
            self.positions[name] = position
            position += struct.calcsize(f">{kind}")

    def part(self, *names: str) -> struct.Struct:
        """Return a struct of the named fields only; bytes of fields between them are skipped."""
        chosen = list(self.fields)
        first, last = chosen.index(names[0]), chosen.index(names[-1])
        kinds = (
            kind if name in names else f"{struct.calcsize(f'>{kind}')}x"
            for name, kind in list(self.fields.items())[first : last + 1]
        )
        plain = struct.Struct(">" + "".join(kinds))
        if not decoder.BY_SCHEMA:
            return plain
        parsed = decoder.SchemaStruct(self.schema, chosen[first : last + 1], names, plain)
        return cast("struct.Struct", parsed)

    def dtype(self) -> list[tuple[str, str]]:
        """Return the fields as a `numpy.dtype` description."""
        return [(name, f">{_WIDTHS[kind]}") for name, kind in self.fields.items()]


# The header of a batch of magic 2.
RECORD_BATCH_HEADER: Final = Layout(
    "record_batch.RecordBatchHeader",
    base_offset="q",
    batch_length="i",
    partition_leader_epoch="i",
    magic="b",
    crc="I",
    attributes="h",
    last_offset_delta="i",
    base_timestamp="q",
    max_timestamp="q",
    producer_id="q",
    producer_epoch="h",
    base_sequence="i",
    records_count="i",
)
# The start of a message of magic 1; magic 0 lacks the timestamp.
MESSAGE_HEADER: Final = Layout(
    "record_batch.Message",
    offset="q",
    size="i",
    crc="I",
    magic="b",
    attributes="b",
    timestamp="q",
)
# Before the key and before the value of a message.
MESSAGE_FIELD: Final = Layout("record_batch.MessageField", size="i")
OFFSET_INDEX_ENTRY: Final = Layout("side_files.OffsetIndexEntry", relative_offset="i", position="i")
TIME_INDEX_ENTRY: Final = Layout("side_files.TimeIndexEntry", timestamp="q", relative_offset="i")
ABORTED_TRANSACTION: Final = Layout(
    "side_files.AbortedTransaction",
    version="h",
    producer_id="q",
    first_offset="q",
    last_offset="q",
    last_stable_offset="q",
)
# The start of a producer snapshot; the number of entries (int32) and the entries follow.
PRODUCER_SNAPSHOT_HEADER: Final = Layout("side_files.ProducerSnapshot", version="h", crc="I")
PRODUCER_SNAPSHOT_ENTRY: Final = Layout(
    "side_files.ProducerSnapshotEntry",
    producer_id="q",
    producer_epoch="h",
    last_sequence="i",
    last_offset="q",
    offset_delta="i",
    timestamp="q",
    coordinator_epoch="i",
    current_txn_first_offset="q",
)


_BATCH: Final = RECORD_BATCH_HEADER.positions
_MESSAGE: Final = MESSAGE_HEADER.positions

# Every batch and message starts with offset (i64) and length (i32): Records.LOG_OVERHEAD.
LENGTH_POSITION: Final = _BATCH["batch_length"]
LOG_OVERHEAD: Final = _BATCH["partition_leader_epoch"]
MAGIC_POSITION: Final = _BATCH["magic"]
HEADER_SIZE_UP_TO_MAGIC: Final = _BATCH["crc"]

NO_EPOCH: Final = -1
"""Leader epoch of messages of magic 0 and 1, and in requests that know none."""

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
CODEC_MAX: Final = len(COMPRESSION_NAMES) - 1

# Magic 0 and 1, LegacyRecord.
LEGACY_CRC_POSITION: Final = _MESSAGE["crc"]
LEGACY_ATTRIBUTES_POSITION: Final = _MESSAGE["attributes"]
LEGACY_TIMESTAMP_POSITION: Final = _MESSAGE["timestamp"]
# checksum 4, magic 1, attributes 1, two sizes of 4: neither key nor value; magic 1 adds the
# timestamp
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
