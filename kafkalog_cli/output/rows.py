"""The objects of NDJSON and JSON: one function a type, fields as `docs/output.md` lists them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from formats.constants import COMPRESSION_NAMES
from kafkalog.model import (
    AbortedTransaction,
    Batch,
    CheckpointEntry,
    Defect,
    EpochEntry,
    OffsetIndexEntry,
    ProducerState,
    Record,
    TimeIndexEntry,
    TimestampType,
)
from kafkalog_cli.output.text import BytesFormat, bytes_value

if TYPE_CHECKING:
    from kafkalog.lookup import Lookup

Row = dict[str, object]

_TYPE_NAMES: dict[type, str] = {
    OffsetIndexEntry: "offset_index_entry",
    TimeIndexEntry: "time_index_entry",
    AbortedTransaction: "aborted_transaction",
    CheckpointEntry: "checkpoint_entry",
    EpochEntry: "leader_epoch",
}
Entry = OffsetIndexEntry | TimeIndexEntry | AbortedTransaction | CheckpointEntry | EpochEntry


def entry_row(entry: Entry, path: str) -> Row:
    """The object for one entry of an index or a checkpoint: its type, its file, its fields."""
    return {"type": _TYPE_NAMES[type(entry)], "path": path, **asdict(entry)}


def batch_row(batch: Batch) -> Row:
    """The object for a batch."""
    return {
        "type": "batch",
        "path": batch.path,
        "position": batch.position,
        "size": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "magic": batch.magic,
        "compression": compression_name(batch),
        "timestamp_type": batch.timestamp_type,
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "crc": batch.crc,
        "crc_valid": batch.crc_valid,
    }


def record_row(record: Record, form: BytesFormat) -> Row:
    """The object for a record; `form` says how keys, values and header values are shown."""
    batch = record.batch
    return {
        "type": "record",
        "path": batch.path,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": bytes_value(record.key, form),
        "value": bytes_value(record.value, form),
        "key_size": None if record.key is None else len(record.key),
        "value_size": None if record.value is None else len(record.value),
        "headers": [
            {
                "key": header.key.decode("utf-8", "replace"),
                "value": bytes_value(header.value, form),
            }
            for header in record.headers
        ],
        "sequence": record.sequence,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "control_type": control_type(record),
        "compression": compression_name(batch),
        "magic": batch.magic,
        "batch_base_offset": batch.base_offset,
        "batch_position": batch.position,
    }


def probe(path: str = "") -> Record:
    """A record with nothing in it, to ask the functions above for their fields."""
    batch = Batch(
        path=path, position=0, size_bytes=0, base_offset=0, last_offset=0, magic=2, attributes=0,
        crc=0, partition_leader_epoch=0, base_timestamp=0, max_timestamp=0, producer_id=0,
        producer_epoch=0, base_sequence=0, count=0,
    )  # fmt: skip
    return Record(batch, 0, 0, TimestampType.CREATE_TIME, None, None)


def producer_row(state: ProducerState, path: str) -> Row:
    """The object for one producer of a snapshot; what is not there is null."""
    return {
        "type": "producer_state",
        "path": path,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "coordinator_epoch": state.coordinator_epoch,
        "first_sequence": state.first_sequence if state.last_offset >= 0 else None,
        "last_sequence": state.last_sequence if state.last_offset >= 0 else None,
        "last_offset": state.last_offset if state.last_offset >= 0 else None,
        "offset_delta": state.offset_delta,
        "last_timestamp": state.last_timestamp,
        "current_txn_first_offset": state.current_txn_first_offset,
    }


def defect_row(defect: Defect) -> Row:
    """The object for a defect."""
    return {
        "type": "defect",
        "reference": defect.reference,
        "severity": defect.severity,
        "path": defect.path,
        "position": defect.position,
        "offset": defect.offset,
        "size": defect.size_bytes,
        "detail": defect.detail,
        "hint": defect.hint,
    }


def lookup_row(found: Lookup) -> Row:
    """The object for the answer of `lookup-offset`."""
    query = "offset"
    if found.by_timestamp:
        query = "timestamp" if isinstance(found.query, int) else "special"
    batch = found.batch
    return {
        "type": "lookup",
        "query": {query: found.query},
        "found": found.found,
        "segment": found.segment,
        "position": batch.position if batch else None,
        "size": batch.size_bytes if batch else None,
        "batch_base_offset": batch.base_offset if batch else None,
        "batch_last_offset": batch.last_offset if batch else None,
        "offset": found.offset,
        "timestamp": found.timestamp,
        "leader_epoch": found.leader_epoch,
        "bytes_read": found.bytes_read,
        "reason": found.reason,
    }


def compression_name(batch: Batch) -> str:
    """Name of the codec, `unknown(5)` for an id that Kafka does not know."""
    codec = batch.compression
    return COMPRESSION_NAMES[codec] if codec < len(COMPRESSION_NAMES) else f"unknown({codec})"


def control_type(record: Record) -> str | None:
    """What a control record says: `ABORT`, `COMMIT` …, `UNKNOWN(n)`; None for data."""
    if not record.batch.is_control:
        return None
    from kafkalog.control_records import control_record
    from kafkalog.errors import CorruptDataError

    try:
        control = control_record(record)
    except CorruptDataError:
        return "MALFORMED"
    return control.type_name or f"UNKNOWN({control.type_id})"


def facts_row(kind: str, path: str, name: str, value: object) -> Row:
    """The object for one name and value of a small file."""
    return {"type": "property", "path": path, "file": kind, "name": name, "value": value}


BATCH_FIELDS = tuple(batch_row(probe().batch))
RECORD_FIELDS = tuple(record_row(probe(), BytesFormat.AUTO))
