"""Decodes records of Kafka's internal topics: as values, and as Kafka's dump tool prints them.

Follows `DumpLogSegments` and its message parsers, `CoordinatorRecordSerde` and
`AbstractApiMessageSerde` of Kafka 4.4. Control records (`control_record`, `control_text`) are read
in `kafkalog.files.payloads.control_records`.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from formats.constructs import ConstructError
from formats.internal_topics import FRAME_VERSION, CoordinatorKey, CoordinatorValue
from formats.late_classes import dataclass
from formats.message_schema import AS_KAFKA, MessageError, by_key, schema_with_rest
from formats.primitives import UnsignedVarint
from formats.releases import newest
from kafkalog.errors import CorruptDataError
from kafkalog.files.payloads.control_records import control_record, control_text
from kafkalog.files.payloads.java_text import java_json
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.files.payloads.message_text import (
    TRANSACTION_STATES,
    JsonObject,
    has_struct,
    message_json,
    remote_log_text,
)

if TYPE_CHECKING:
    from formats.message_table import Message
    from formats.releases import Release
    from kafkalog.model import Record

__all__ = ["Decoded", "control_record", "control_text", "decode", "kafka_text"]

_SHORT_MAX: Final = 0x7FFF  # `Short.MAX_VALUE`
# The text of the NullPointerException that a null value causes in the serde of remote log metadata.
_JAVA_NULL_VALUE: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


_Options = dict[str, bool]
METADATA_KINDS: Final = {PayloadKind.CLUSTER_METADATA, PayloadKind.REMOTE_LOG_METADATA}


@dataclass(frozen=True, slots=True)
class Decoded:
    """The content of a record, as values that have a JSON form.

    Attributes:
        key: `{"type": "1", "data": {...}}`, None if the topic has no keys or it is unreadable.
        value: `{"version": "4", "data": {...}}`; for metadata topics `{"type": "TOPIC_RECORD",
            "version": 0, "data": {...}}`. None for a tombstone, or if it is unreadable.
        error: why key or value could not be read, None if both could. Unknown types and versions
            are errors, they are never guessed.
    """

    key: JsonObject | None
    value: JsonObject | None
    error: str | None


class _PayloadError(Exception):
    """Bytes are not a valid payload; the text is Kafka's, without the offset."""


class _UnknownTypeError(_PayloadError):
    """A record type that the release does not know."""


def decode(kind: PayloadKind, key_data: bytes | None, value_data: bytes | None) -> Decoded:
    """Decode the key and value of a record that is not a control record.

    Never raises because of the bytes: `error` says what is wrong.
    """
    key: JsonObject | None = None
    try:
        if kind in METADATA_KINDS:
            found, version, fields = _metadata(kind, value_data, {})
            if version not in found.versions:
                raise _PayloadError(f"Unknown version {version} of {found.enum_name}")
            return Decoded(None, _metadata_json(found, version, fields), None)
        if key_data is None:
            raise _PayloadError("The key is missing")
        record_type, key = _coordinator_key(kind, key_data, {})
        return Decoded(key, _coordinator_value(kind, record_type, value_data, {}), None)
    except _PayloadError as error:
        return Decoded(key, None, str(error))


def kafka_text(kind: PayloadKind, record: Record, release: Release | None = None) -> str:
    """Return what `kafka-dump-log.sh` prints after a record's metadata, decoded as `kind`.

    Args:
        kind: the topic for whose records it is taken.
        record: the record.
        release: of the tool; None for the newest.

    Raises:
        CorruptDataError: a coordinator record has no key, which ends Kafka's tool.
    """
    release = release or newest()
    if kind is PayloadKind.CLUSTER_METADATA:
        return _cluster_metadata_text(record, release)
    if kind is PayloadKind.REMOTE_LOG_METADATA:
        return _remote_log_metadata_text(record)
    if record.key is None:
        raise CorruptDataError(
            f"Failed to decode message at offset {record.offset} using the specified decoder "
            "(message had a missing key)",
            reference="decoder-key-missing",
            path=record.batch.path,
            position=record.batch.position,
        )
    try:
        record_type, key = _coordinator_key(kind, record.key, AS_KAFKA, release.name)
        value = _coordinator_value(kind, record_type, record.value, AS_KAFKA, release.name)
    except _UnknownTypeError as error:
        return f" key: {error} at offset {record.offset}, skipping."
    except _PayloadError as error:
        return f" key: Error at offset {record.offset}, skipping. {error}"
    if value and kind is PayloadKind.TRANSACTION_LOG and release.names_transaction_states:
        value["data"]["transactionStatus"] = _state_name(value["data"]["transactionStatus"])
    payload = "<DELETE>" if value is None else java_json(value)
    # Without quotes: Kafka does not print it as JSON.
    return f" key: {java_json(key)} payload: {payload}"


def _state_name(status: int) -> str:
    known = 0 <= status < len(TRANSACTION_STATES)
    return TRANSACTION_STATES[status] if known else str(status)


def _coordinator_key(
    kind: PayloadKind, data: bytes, options: _Options, release: str | None = None
) -> tuple[int, JsonObject]:
    """Return record type and key, as `CoordinatorRecordSerde.deserialize` reads them."""
    try:
        frame = CoordinatorKey.parse(data)
    except ConstructError as error:
        raise _PayloadError("Could not read version from key's buffer.") from error
    found = by_key(kind, frame.type, "key", release)
    if found is None:
        raise _UnknownTypeError(f"Unknown record type {frame.type}")
    what = f"version {frame.type} from key's"
    fields = _coordinator_fields(found, 0, frame.message, options, what, release)
    return frame.type, {"type": str(frame.type), "data": message_json(found, 0, fields)}


def _coordinator_value(
    kind: PayloadKind,
    record_type: int,
    data: bytes | None,
    options: _Options,
    release: str | None = None,
) -> JsonObject | None:
    """Return the value that belongs to a key of `record_type`, None for a tombstone."""
    found = by_key(kind, record_type, "value", release)
    if data is None or found is None:
        return None
    try:
        frame = CoordinatorValue.parse(data)
    except ConstructError as error:
        raise _PayloadError("Could not read version from value's buffer.") from error
    version = frame.version
    if version not in found.versions:
        raise _PayloadError(f"Found an unknown record version {version} for {record_type} type")
    what = f"version {version} from value's"
    fields = _coordinator_fields(found, version, frame.message, options, what, release)
    return {"version": str(version), "data": message_json(found, version, fields)}


def _coordinator_fields(
    found: Message, version: int, data: bytes, options: _Options, what: str, release: str | None
) -> dict[str, Any]:
    try:
        parsed = schema_with_rest(found.name, version, release).parse(data, **options)
    except ConstructError as error:
        reason = _java_reason(error)
        message = f"Could not read record with {what} buffer due to: {reason}."
        raise _PayloadError(message) from error
    fields: dict[str, Any] = parsed.fields
    return fields


def _java_reason(error: ConstructError) -> str:
    """Return the message of the exception that Kafka throws for `error`."""
    # java.nio.BufferUnderflowException has no message.
    return error.reason if isinstance(error, MessageError) else "null"


def _metadata(
    kind: PayloadKind, data: bytes | None, options: _Options, release: str | None = None
) -> tuple[Message, int, dict[str, Any]]:
    """Return message, stored version and fields of a framed record, as `AbstractApiMessageSerde`.

    Like Kafka, read an unknown version as the nearest known one, as long as no nested struct has to
    be read; the caller compares the version with `Message.versions`.
    """
    stream = io.BytesIO(data or b"")
    frame_version = _read_short(stream, "frame version")
    if frame_version == 0:
        raise _PayloadError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from "
            "the preview release of KRaft in 2.8 to newer versions are not supported."
        )
    if frame_version != FRAME_VERSION:
        raise _PayloadError(
            "Could not deserialize metadata record due to unknown frame version "
            f"{frame_version}(only frame version {FRAME_VERSION} is supported)"
        )
    api_key, version = _read_short(stream, "type"), _read_short(stream, "version")
    found = by_key(kind, api_key, release=release)
    if found is None:
        raise _PayloadError(
            "org.apache.kafka.common.errors.UnsupportedVersionException: "
            f"Unknown metadata id {api_key}"
        )
    last = found.versions[-1]
    codec = schema_with_rest(found.name, min(max(version, 0), last), release)
    try:
        parsed = codec.parse(stream.read(), **options)
    except ConstructError as error:
        raise _PayloadError(f"Failed to deserialize record with type {api_key}") from error
    if version > last and has_struct(parsed.fields):
        raise _PayloadError(f"Failed to deserialize record with type {api_key}")
    if parsed.rest:
        raise _PayloadError(f"Found {len(parsed.rest)} byte(s) of garbage after {api_key}")
    return found, version, parsed.fields


def _read_short(stream: io.BytesIO, what: str) -> int:
    """Read a varint as Java's short; one that is negative as an int loses its upper half."""
    try:
        number: int = UnsignedVarint.parse_stream(stream)
    except ConstructError as error:
        raise _PayloadError(f"Error while reading {what}") from error
    if number >> 31:  # negative as Java's int, which is not above Short.MAX_VALUE
        number &= 0xFFFF
        return number - 0x10000 if number > _SHORT_MAX else number
    if number > _SHORT_MAX:
        raise _PayloadError(f"Value for {what} was too large.")
    return number


def _metadata_json(found: Message, version: int, fields: dict[str, Any]) -> JsonObject:
    shown = message_json(found, min(max(version, 0), found.versions[-1]), fields)
    return {"type": found.enum_name, "version": version, "data": shown}


def _cluster_metadata_text(record: Record, release: Release) -> str:
    try:
        found = _metadata(PayloadKind.CLUSTER_METADATA, record.value, AS_KAFKA, release.name)
        payload = _metadata_json(*found)
    except _PayloadError as error:
        return f" payload: Error at {record.offset}, skipping. {error}"
    return f" payload: {java_json(payload)}"


def _remote_log_metadata_text(record: Record) -> str:
    try:
        if record.value is None:
            raise _PayloadError(_JAVA_NULL_VALUE)
        kind = PayloadKind.REMOTE_LOG_METADATA
        found, version, fields = _metadata(kind, record.value, AS_KAFKA)
        shown = _metadata_json(found, version, fields)["data"]
        return f" payload: {remote_log_text(found.api_key or 0, shown)}"
    except (_PayloadError, ValueError) as error:
        return f" payload: Error at offset {record.offset}, skipping. {error}"
