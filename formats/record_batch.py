"""The record batch of magic 2: its header of 61 bytes and the batch as a whole.

Follows `DefaultRecordBatch` of Kafka 4.3. The records stay payload bytes here, because they may be
compressed: `formats.record` is the schema of one of them.
"""

from __future__ import annotations

from typing import Any, Final

from construct import (
    BitsInteger,
    BitStruct,
    Bytes,
    Flag,
    Int32sb,
    Rebuild,
    Struct,
)

from formats.constants import BATCH_LENGTH_MIN
from formats.layouts import RECORD_BATCH_HEADER
from formats.primitives import fixed

Attributes: Final = BitStruct(
    "unused" / BitsInteger(9),
    "has_delete_horizon" / Flag,
    "is_control" / Flag,
    "is_transactional" / Flag,
    "timestamp_type" / BitsInteger(1),
    "compression" / BitsInteger(3),
)

RecordBatchHeader: Final = Struct(*fixed(RECORD_BATCH_HEADER, attributes=Attributes))


def _batch_length(context: Any) -> int:
    return len(context.records) + BATCH_LENGTH_MIN


def _records_size(context: Any) -> int:
    # Negative if batch_length is below 49, which Bytes refuses as a StreamError.
    return int(context.batch_length) - BATCH_LENGTH_MIN


# Building computes batch_length from the records; the crc is written as given.
RecordBatch: Final = Struct(
    *(
        field if field.name != "batch_length" else "batch_length" / Rebuild(Int32sb, _batch_length)
        for field in RecordBatchHeader.subcons
    ),
    "records" / Bytes(_records_size),
)
