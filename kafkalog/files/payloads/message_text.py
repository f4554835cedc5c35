"""Messages as Kafka's tools print them: as JSON by `*JsonConverter`, or by Java's `toString`.

In JSON, members are in the order of the definition; untagged fields always, tagged ones only if
they differ from their default; bytes in base64; NaN and infinities as strings; malformed UTF-8 as
U+FFFD, the way Java decodes it.

`toString` follows `RemoteLogSegmentMetadata`, `RemoteLogSegmentMetadataUpdate`,
`RemotePartitionDeleteMetadata` and `RemoteLogSegmentMetadataSnapshot` of Kafka.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, Final

from formats.constructs import ConstructError
from formats.internal_topics import CoordinatorValue
from formats.message_schema import UNKNOWN_TAGS, message, schema_with_rest
from kafkalog.files.payloads.java_text import java_double, java_text

if TYPE_CHECKING:
    from formats.message_table import Field, Message, Struct


JsonObject = dict[str, Any]


def message_json(found: Message, version: int, values: dict[str, Any]) -> JsonObject:
    """Return a message's fields as JSON; `values` may be parsed by any version's schema."""
    fields = _struct_json(found.struct, version, values)
    # The only protocol whose bytes `DumpLogSegments` knows.
    if found.name == "GroupMetadataValue" and fields["protocolType"] == "consumer":
        for parsed, shown in zip(values["members"], fields["members"], strict=True):
            for name in ("subscription", "assignment"):
                decoded = _consumer_protocol_json(name, parsed[name])
                if decoded is not None:
                    shown[name] = decoded
    return fields


def has_struct(values: dict[str, Any]) -> bool:
    """Return whether a parsed message holds a struct, in a field or as an element of an array."""
    for value in values.values():
        if isinstance(value, dict):
            return True
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return True
    return False


def _consumer_protocol_json(part: str, data: bytes) -> JsonObject | None:
    """Return a member's subscription or assignment, None if it stays opaque bytes.

    Follows `DumpLogSegments.OffsetsMessageParser.replaceField`, which reads any stored version: one
    below 0 has the fields of version 0, one above 3 those of version 3 as long as no nested struct
    has to be read.
    """
    name = f"ConsumerProtocol{part.capitalize()}"
    found = message(name)
    newest = found.versions[-1]
    try:
        frame = CoordinatorValue.parse(data)
        version = min(max(frame.version, 0), newest)
        values = schema_with_rest(name, version).parse(frame.message).fields
    except ConstructError:
        return None
    if frame.version > newest and has_struct(values):
        return None
    return _struct_json(found.struct, version, values)


def _struct_json(struct: Struct, version: int, values: dict[str, Any]) -> JsonObject:
    shown = {}
    for field in struct.fields_of(version):
        value = values.get(field.name, field.default)
        if field.tag is None or not _is_default(field, value):
            shown[field.name] = _field_json(field, version, value)
    return shown


def _field_json(field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.array:
        return [_single_json(field, version, element) for element in value]
    return _single_json(field, version, value)


def _single_json(field: Field, version: int, value: Any) -> Any:
    if field.struct is not None:
        # Bytes that are not Unicode came in as surrogates: they go back to bytes, and out as Java
        # decodes them.
        return _struct_json(field.struct, version, value)
    if field.type == "str":
        return java_text(value.encode("utf-8", "surrogateescape"))
    if field.type == "bytes":
        return base64.b64encode(value).decode("ascii")
    if field.type == "bool":
        return bool(value)
    if field.type == "f64" and not math.isfinite(value):
        return java_double(value)
    return value


def _is_default(field: Field, value: Any) -> bool:
    if field.struct is None or field.array or value is None or field.default is None:
        return bool(value == field.default)
    return UNKNOWN_TAGS not in value and all(
        _is_default(part, value[part.name]) for part in field.struct.fields if part.name in value
    )


TRANSACTION_STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)  # fmt: skip
SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
DELETE_STATES: Final = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def remote_log_text(api_key: int, fields: dict[str, Any]) -> str:
    """Return the toString of the object that Kafka builds from a record.

    Args:
        api_key: 0 segment, 1 segment update, 2 partition delete, 3 segment snapshot.
        fields: the record's fields as JSON values; absent tagged fields have their default.

    Raises:
        ValueError: Kafka refuses to build the object; the text is that of its exception.
    """
    return _TEXTS[api_key](fields)


def _segment_text(fields: dict[str, Any]) -> str:
    start, end = fields["startOffset"], fields["endOffset"]
    if start < 0:
        raise ValueError(
            f"Unexpected start offset = {start}. "
            "StartOffset for a remote segment cannot be negative"
        )
    if end < start:
        raise ValueError(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than "
            f"startOffset = {start}"
        )
    epochs = _leader_epochs(fields)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(fields)}, "
        f"startOffset={start}, endOffset={end}, brokerId={fields['brokerId']}, "
        f"maxTimestampMs={fields['maxTimestampMs']}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, segmentLeaderEpochs={epochs}, "
        f"segmentSizeInBytes={fields['segmentSizeInBytes']}, "
        f"customMetadata={_custom_metadata(fields)}, state={_segment_state(fields)}, "
        f"txnIdxEmpty={_txn_index_empty(fields)}}}"
    )


def _update_text(fields: dict[str, Any]) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(fields)}, "
        f"customMetadata={_custom_metadata(fields)}, state={_segment_state(fields)}, "
        f"eventTimestampMs={fields['eventTimestampMs']}, brokerId={fields['brokerId']}}}"
    )


def _delete_text(fields: dict[str, Any]) -> str:
    state = fields["remotePartitionDeleteState"]
    if not 0 <= state < len(DELETE_STATES):
        raise ValueError("null")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(fields['topicIdPartition'])}, "
        f"state={DELETE_STATES[state]}, eventTimestampMs={fields['eventTimestampMs']}, "
        f"brokerId={fields['brokerId']}}}"
    )


def _snapshot_text(fields: dict[str, Any]) -> str:
    state, epochs = _segment_state(fields), _leader_epochs(fields)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={fields['segmentId']}, "
        f"startOffset={fields['startOffset']}, endOffset={fields['endOffset']}, "
        f"maxTimestampMs={fields['maxTimestampMs']}, segmentLeaderEpochs={epochs}, "
        f"segmentSizeInBytes={fields['segmentSizeInBytes']}, "
        f"customMetadata={_custom_metadata(fields)}, state={state}, "
        f"txnIdxEmpty={_txn_index_empty(fields)}}}"
    )


def _segment_id(fields: dict[str, Any]) -> str:
    segment_id = fields["remoteLogSegmentId"]
    partition = _partition(segment_id["topicIdPartition"])
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={segment_id['id']}}}"


def _partition(fields: dict[str, Any]) -> str:
    return f"{fields['id']}:{fields['name']}-{fields['partition']}"


def _leader_epochs(fields: dict[str, Any]) -> str:
    # A `TreeMap` in Kafka: sorted, and the last of one epoch wins.
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in fields["segmentLeaderEpochs"]}
    if not epochs:
        raise ValueError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _segment_state(fields: dict[str, Any]) -> str:
    state = fields["remoteLogSegmentState"]
    if not 0 <= state < len(SEGMENT_STATES):
        # Kafka finds no state by this number: its constructors refuse null.
        raise ValueError("state can not be null")
    return SEGMENT_STATES[state]


def _custom_metadata(fields: dict[str, Any]) -> str:
    encoded = fields["customMetadata"]
    if encoded is None:
        return "Optional.empty"
    # Of the Base64 text, three bytes for four letters.
    size_bytes = len(encoded) // 4 * 3 - encoded.count("=")
    return f"Optional[CustomMetadata{{{size_bytes} bytes}}]"


def _txn_index_empty(fields: dict[str, Any]) -> str:
    return "true" if fields.get("txnIndexEmpty", False) else "false"


_TEXTS: Final = {0: _segment_text, 1: _update_text, 2: _delete_text, 3: _snapshot_text}
