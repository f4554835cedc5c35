"""A batch as the cleaner writes it again.

Follows `MemoryRecords.filterTo` and `MemoryRecordsBuilder` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.checksums import crc32c
from kafkalog.codecs import compress
from kafkalog.model import TimestampType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.model import Batch, Record


def rewritten(batch: Batch, records: Sequence[Record], horizon_ms: int | None) -> bytes:
    """The batch with only these of its records, at least one, as magic 2.

    Args:
        batch: what it was; of magic 0 and 1 first and last offset become those of the records.
        records: the kept ones, in order.
        horizon_ms: the delete horizon, None without one; it takes the place of the base timestamp.
    """
    from formats.record import Record as RecordSchema

    is_legacy = batch.magic < 2
    base_offset = records[0].offset if is_legacy else batch.base_offset
    last_offset = records[-1].offset if is_legacy else batch.last_offset
    append_time = batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    timestamps = [batch.max_timestamp if append_time else record.timestamp for record in records]
    base_timestamp = timestamps[0] if horizon_ms is None else horizon_ms
    body = b"".join(
        RecordSchema.build(
            {
                "attributes": 0,
                "timestamp_delta": timestamp - base_timestamp,
                "offset_delta": record.offset - base_offset,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": one.key, "value": one.value} for one in record.headers],
            }
        )
        for record, timestamp in zip(records, timestamps, strict=True)
    )
    attributes = batch.attributes & ~c.DELETE_HORIZON_MASK
    if batch.magic == 0:
        attributes &= c.COMPRESSION_MASK
    if horizon_ms is not None:
        attributes |= c.DELETE_HORIZON_MASK
    return _built(
        batch,
        base_offset,
        last_offset,
        attributes,
        base_timestamp,
        batch.max_timestamp if append_time else max(timestamps),
        len(records),
        compress(body, batch.compression),
    )


def emptied(batch: Batch) -> bytes:
    """The batch without records, that still tells offsets, producer and sequences."""
    attributes = batch.attributes & ~(c.DELETE_HORIZON_MASK | c.COMPRESSION_MASK)
    return _built(
        batch,
        batch.base_offset,
        batch.last_offset,
        attributes,
        c.NO_TIMESTAMP,
        batch.max_timestamp,
        0,
        b"",
    )


def _built(
    batch: Batch,
    base_offset: int,
    last_offset: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    body: bytes,
) -> bytes:
    from formats.record_batch import Attributes, RecordBatch

    is_legacy = batch.magic < 2
    fields = {
        "base_offset": base_offset,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "magic": 2,
        "crc": 0,
        "attributes": Attributes.parse(attributes.to_bytes(2, "big")),
        "last_offset_delta": last_offset - base_offset,
        "base_timestamp": base_timestamp,
        "max_timestamp": max_timestamp,
        "producer_id": -1 if is_legacy else batch.producer_id,
        "producer_epoch": -1 if is_legacy else batch.producer_epoch,
        "base_sequence": -1 if is_legacy else batch.base_sequence,
        "records_count": count,
        "records": body,
    }
    data: bytes = RecordBatch.build(fields)
    checksum = crc32c(data[c.ATTRIBUTES_POSITION :])
    return data[: c.CRC_POSITION] + checksum.to_bytes(4, "big") + data[c.ATTRIBUTES_POSITION :]
