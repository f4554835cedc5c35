"""Decodes control records: as values, and as Kafka's dump tool prints them.

Follows `ControlRecordType`, `EndTransactionMarker`, `ControlRecordUtils` and `DumpLogSegments` of
Kafka. The schemas are loaded for the first record: most logs have none.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from formats.constants import ABORT, COMMIT, CONTROL_TYPE_NAMES
from kafkalog.errors import CorruptDataError
from kafkalog.files.payloads.java_text import java_json
from kafkalog.model import ControlRecord, Record

_KRAFT_LABELS: Final = {
    2: "LeaderChange:",  # the only one with a colon
    3: "SnapshotHeader",
    4: "SnapshotFooter",
    5: "KRaftVersion",
    6: "KRaftVoters",
}


def control_record(record: Record) -> ControlRecord:
    """Read a record of a control batch.

    Raises:
        CorruptDataError: key or value is too short or malformed (`control-record-malformed`); the
            versions of key and marker must not be negative.
    """
    from formats.internal_topics import ControlRecordKey, EndTxnMarker

    key = _parse(ControlRecordKey, record, "key")
    if key.version < 0:  # `ControlRecordType.parseTypeId` throws for these
        _fail(record, f"the key has version {key.version}")
    type_id = key.type
    # Kafka's UNKNOWN: a newer broker may have written it.
    if not 0 <= type_id < len(CONTROL_TYPE_NAMES):
        return ControlRecord(type_id, None)
    name = CONTROL_TYPE_NAMES[type_id]
    if type_id in {ABORT, COMMIT}:
        marker = _parse(EndTxnMarker, record, "value")
        if marker.version < 0:  # `EndTransactionMarker.deserializeValue` throws for these
            _fail(record, f"the {name} marker has version {marker.version}")
        return ControlRecord(type_id, name, coordinator_epoch=marker.coordinator_epoch)
    return ControlRecord(type_id, name, fields=_kraft_fields(type_id, record))


def is_abort(record: Record) -> bool:
    """Return whether a record of a control batch is the marker of an aborted transaction."""
    try:
        return control_record(record).type_id == ABORT
    except CorruptDataError:
        return False


def coordinator_epoch(record: Record) -> int:
    """Return the epoch of the coordinator that wrote a marker, -1 if it cannot be read."""
    try:
        found = control_record(record).coordinator_epoch
    except CorruptDataError:
        return -1
    return -1 if found is None else found


def control_text(record: Record) -> str:
    """Return what `kafka-dump-log.sh` 4.3 prints after the metadata of a control record.

    Raises:
        CorruptDataError: as `control_record`, where Kafka's tool ends with an exception.
    """
    found = control_record(record)
    if found.fields is not None:
        return f" {_KRAFT_LABELS[found.type_id]} {java_json(found.fields)}"
    if found.type_name is not None:
        epoch = found.coordinator_epoch
        return f" endTxnMarker: {found.type_name} coordinatorEpoch: {epoch}"
    return f" controlType: UNKNOWN({found.type_id})"


def _kraft_fields(type_id: int, record: Record) -> dict[str, object]:
    """Return the fields as JSON values; a LeaderChange is written in the version that it claims."""
    from formats.internal_topics import LEADER_CHANGE, kraft_value
    from formats.message_schema import by_key
    from kafkalog.files.payloads.message_text import message_json

    codec, found = kraft_value(type_id), by_key("control", type_id)
    if codec is None or found is None:
        _fail(record, f"type {type_id} has no schema")
    values: dict[str, Any] = _parse(codec, record, "value").fields
    version = values["version"] if type_id == LEADER_CHANGE else 0
    return message_json(found, min(max(version, 0), found.versions[-1]), values)


def _parse(codec: Any, record: Record, part: str) -> Any:
    data = record.key if part == "key" else record.value
    if data is None:
        _fail(record, f"the {part} is null")
    from formats.constructs import ConstructError

    try:
        return codec.parse(data)
    except ConstructError as error:
        _fail(record, f"the {part} of {len(data)} bytes cannot be read", cause=error)


def _fail(record: Record, detail: str, *, cause: Exception | None = None) -> NoReturn:
    raise CorruptDataError(
        f"Control record at offset {record.offset} is malformed: {detail}.",
        reference="control-record-malformed",
        path=record.batch.path,
        position=record.batch.position,
    ) from cause
