"""Records of `__remote_log_metadata` as Kafka's dump tool prints them: Java's toString, not JSON.

Follows `RemoteLogSegmentMetadata`, `RemoteLogSegmentMetadataUpdate`,
`RemotePartitionDeleteMetadata` and `RemoteLogSegmentMetadataSnapshot` of Kafka 4.3.
"""

from __future__ import annotations

from typing import Any, Final

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
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in fields["segmentLeaderEpochs"]}
    if not epochs:
        raise ValueError("segmentLeaderEpochs can not be null or empty")
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _segment_state(fields: dict[str, Any]) -> str:
    state = fields["remoteLogSegmentState"]
    if not 0 <= state < len(SEGMENT_STATES):
        raise ValueError("state can not be null")
    return SEGMENT_STATES[state]


def _custom_metadata(fields: dict[str, Any]) -> str:
    encoded = fields["customMetadata"]
    if encoded is None:
        return "Optional.empty"
    size_bytes = len(encoded) // 4 * 3 - encoded.count("=")
    return f"Optional[CustomMetadata{{{size_bytes} bytes}}]"


def _txn_index_empty(fields: dict[str, Any]) -> str:
    return "true" if fields.get("txnIndexEmpty", False) else "false"


_TEXTS: Final = {0: _segment_text, 1: _update_text, 2: _delete_text, 3: _snapshot_text}
