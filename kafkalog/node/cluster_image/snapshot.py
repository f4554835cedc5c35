"""Builds KRaft snapshots, such as `bootstrap.checkpoint`: metadata records between two marks.

Follows `RecordsSnapshotWriter`, `BatchFileWriter` and `MetadataRecordSerde` of Kafka.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from formats import constants as c
from kafkalog.io.codecs import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_RECORDS_MAX: Final = 500
"""Records of a batch: far below the 8 MB that KRaft reads at once."""


def metadata_record(name: str, version: int, fields: dict[str, Any]) -> bytes:
    """Return the value of a metadata record.

    Args:
        name: the message, such as `TopicRecord`.
        version: its version.
        fields: its fields by Kafka's names; tagged fields may be missing.
    """
    from formats.internal_topics import FRAME_VERSION, MetadataFrame
    from formats.message_schema import message, schema

    frame = {
        "frame_version": FRAME_VERSION,
        "api_key": message(name).api_key,
        "version": version,
        "message": schema(name, version).build(fields),
    }
    value: bytes = MetadataFrame.build(frame)
    return value


def snapshot_batches(values: Iterable[bytes], timestamp_ms: int) -> Iterator[bytes]:
    """Yield the batches of a snapshot: its header, the records, its footer.

    Args:
        values: the values of the records.
        timestamp_ms: the time that the batches and the header state.
    """
    from formats.internal_topics import SNAPSHOT_FOOTER, SNAPSHOT_HEADER

    header = {"lastContainedLogTimestamp": timestamp_ms}
    yield _control(0, SNAPSHOT_HEADER, "SnapshotHeaderRecord", header, timestamp_ms)
    offset, left = 1, iter(values)
    while records := list(islice(left, _RECORDS_MAX)):
        yield _batch(offset, [(None, value) for value in records], timestamp_ms)
        offset += len(records)
    yield _control(offset, SNAPSHOT_FOOTER, "SnapshotFooterRecord", {}, timestamp_ms)


def _control(
    offset: int, type_id: int, name: str, fields: dict[str, Any], timestamp_ms: int
) -> bytes:
    return control_batch(offset, 0, [(type_id, name, fields)], timestamp_ms)


def control_batch(
    base_offset: int,
    epoch: int,
    records: Iterable[tuple[int, str, dict[str, Any]]],
    timestamp_ms: int,
) -> bytes:
    """Return a batch of control records of KRaft.

    Args:
        base_offset: of its first record.
        epoch: the leader epoch.
        records: type of `ControlRecordType`, name of the message, and its fields; Kafka reads
            version 0 of each, whatever the message says.
        timestamp_ms: the time of all of them.
    """
    from formats.internal_topics import ControlRecordKey
    from formats.message_schema import schema

    built = [
        (
            ControlRecordKey.build({"version": 0, "type": type_id, "rest": b""}),
            schema(name, 0).build({"version": 0, **fields}),
        )
        for type_id, name, fields in records
    ]
    return _batch(base_offset, built, timestamp_ms, epoch=epoch, is_control=True)


def _batch(
    base_offset: int,
    records: Sequence[tuple[bytes | None, bytes]],
    timestamp_ms: int,
    *,
    epoch: int = 0,
    is_control: bool = False,
) -> bytes:
    from formats.record_batch import Attributes, Record, RecordBatch

    body = b"".join(
        Record.build(
            {
                "attributes": 0,
                "timestamp_delta": 0,
                "offset_delta": delta,
                "key": key,
                "value": value,
                "headers": [],
            }
        )
        for delta, (key, value) in enumerate(records)
    )
    attributes = c.CONTROL_MASK if is_control else 0
    fields = {
        "base_offset": base_offset,
        "partition_leader_epoch": epoch,
        "magic": 2,
        "crc": 0,
        "attributes": Attributes.parse(attributes.to_bytes(2, "big")),
        "last_offset_delta": len(records) - 1,
        "base_timestamp": timestamp_ms,
        "max_timestamp": timestamp_ms,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": len(records),
        "records": body,
    }
    data: bytes = RecordBatch.build(fields)
    checked = data[c.ATTRIBUTES_POSITION :]
    return data[: c.CRC_POSITION] + crc32c(checked).to_bytes(4, "big") + checked
