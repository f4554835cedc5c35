"""Keys and values whose content Kafka defines: control records and internal topics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from formats.constants import ABORT, COMMIT, CONTROL_TYPE_NAMES
from formats.constructs import Construct, FormatField
from formats.internal_topics import (
    ControlRecordKey,
    CoordinatorKey,
    CoordinatorValue,
    EndTxnMarker,
    MetadataFrame,
    kraft_value,
)
from formats.message_schema import by_key, message, schema_with_rest
from formats.releases import newest
from formats.trace import TracedField, Tracer
from kafkalog.answers.anatomy.meanings import Said, time_of
from kafkalog.answers.anatomy.model import Bytes, Stream
from kafkalog.files.payloads.internal_topics import METADATA_KINDS
from kafkalog.io.paths.reading_errors import reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from formats.message_table import Message
    from kafkalog.files.payloads.kinds import PayloadKind
    from kafkalog.model import Batch

ELEMENTS_MAX = 100
"""Maximum number of elements of an array that are shown."""
_KINDS = {"b": "i8", "h": "i16", "H": "u16", "l": "i32", "L": "u32", "q": "i64", "d": "f64"}


class Payload:
    """The fields of a key or a value.

    Attributes:
        fields: tile its bytes.
        error: why they are not all decoded, None if they are.
        titles: what the numbers of the frame stand for, by name.
    """

    def __init__(self) -> None:
        self.fields: list[TracedField] = []
        self.error: str | None = None
        self.depth = 0  # of the fields of the frame
        self.titles: dict[str, str] = {}

    def read(
        self,
        space: Bytes,
        part: TracedField,
        frame: Construct,
        inner: Callable[[Any], Construct | None] = lambda _: None,
    ) -> Any:
        """Read a frame, and with the schema that it names the message in it."""
        trace = Tracer(frame, ELEMENTS_MAX).trace(Stream(space.source, part.position, part.end))
        self.depth = len(part.path) + 1
        self._add(part, trace.fields)
        if trace.error is None and "message" in (trace.value or ()):
            start = part.end - len(trace.value.message)
            schema = inner(trace.value)
            if schema is not None:
                if start < part.end:
                    self.fields.pop()  # the message as bytes
                stream = Stream(space.source, start, part.end)
                trace = replace(Tracer(schema, ELEMENTS_MAX).trace(stream), value=trace.value)
                self._add(part, trace.fields)
            else:
                self.error = _unknown("type or version")
        if trace.error is not None:
            self.error = f"not decoded: {reason(trace.error)}"
        end = self.fields[-1].end if self.fields else part.position
        if end < part.end:
            path = (*part.path, "left_out" if trace.is_cut else "undecoded")
            rest = replace(part, path=path, position=end, length=part.end - end, value=None)
            self.fields.append(rest)
        return trace.value

    def open_members(self, space: Bytes) -> None:
        """Open the subscriptions and assignments of a classic group of consumers."""
        protocols = [one.value for one in self.fields if one.path[-1] == "protocolType"]
        if protocols != ["consumer"]:
            return
        fields, self.fields = self.fields, []
        for one in fields:
            inner = Payload()
            if one.path[-1] in ("subscription", "assignment"):
                found = message(f"ConsumerProtocol{str(one.path[-1]).capitalize()}")
                inner.read(space, one, CoordinatorValue, partial(_schema_of_frame, found))
            self.fields += [one] if inner.error or not inner.fields else inner.fields

    def _add(self, part: TracedField, fields: tuple[TracedField, ...]) -> None:
        for one in fields:
            path = one.path[1:] if one.path[:1] == ("fields",) else one.path
            self.fields.append(replace(one, path=(*part.path, *path)))

    def describe(self, field: TracedField) -> Said:
        name = str(field.path[-1])
        if name == "undecoded":
            return Said(self.error or "", "record-malformed")
        if name == "left_out":
            return Said(f"more than {ELEMENTS_MAX} elements of an array")
        if name in self.titles and len(field.path) == self.depth:
            return Said(self.titles[name])
        if name == "rest":
            return Said("bytes after the last field, which Kafka ignores")
        if name == "message" and self.error:
            return Said(self.error)
        if name in ("length", "count"):
            return Said("null" if field.value < 0 else "")
        if name == "present":
            return Said("null" if field.value < 0 else "not null")
        if name in ("tags", "tag", "size"):
            return Said({"tags": "number of tagged fields", "tag": "number of the tagged field",
                         "size": "its bytes"}[name])  # fmt: skip
        if "timestamp" in name.lower() and isinstance(field.value, int):
            return Said(time_of(field.value))
        if isinstance(field.codec, FormatField):
            return Said(_KINDS.get(field.codec.fmtstr[-1], ""))
        return Said()


def payload_of(
    space: Bytes, part: TracedField, key: bytes | None, batch: Batch, kind: PayloadKind | None
) -> Payload | None:
    """Return the fields of a key or value, None if it is the user's own.

    Args:
        kind: how records of its topic are read.
    """
    found = Payload()
    if batch.is_control:
        _read_control(found, space, part, key)
    elif kind is None:
        return None
    elif kind in METADATA_KINDS:
        if part.path[-1] == "key":
            return None
        _read_metadata(found, space, part, kind)
    else:
        _read_coordinator(found, space, part, key, kind)
    return found


def _unknown(what: str) -> str:
    return f"not decoded: Kafka {newest().name} does not know this {what}"


def _read_control(found: Payload, space: Bytes, part: TracedField, key: bytes | None) -> None:
    if part.path[-1] == "key":
        value = found.read(space, part, ControlRecordKey)
        if value is not None and 0 <= value.type < len(CONTROL_TYPE_NAMES):
            found.titles["type"] = CONTROL_TYPE_NAMES[value.type]
        return
    type_id = int.from_bytes((key or b"")[2:4], "big", signed=True)
    schema = EndTxnMarker if type_id in (ABORT, COMMIT) else kraft_value(type_id)
    if schema is not None:
        found.read(space, part, schema)
    else:
        found.error = _unknown("type")
        found.fields.append(replace(part, path=(*part.path, "message")))


def _read_metadata(found: Payload, space: Bytes, part: TracedField, kind: PayloadKind) -> None:
    def inner(frame: Any) -> Construct | None:
        return _schema(by_key(kind, frame.api_key), frame.version)

    frame = found.read(space, part, MetadataFrame, inner)
    named = None if frame is None else by_key(kind, frame.api_key)
    if named is not None:
        found.titles["api_key"] = named.enum_name
    found.titles["version"] = "version of the message"
    found.titles["frame_version"] = "version of the frame"


def _read_coordinator(
    found: Payload, space: Bytes, part: TracedField, key: bytes | None, kind: PayloadKind
) -> None:
    type_id = int.from_bytes((key or b"")[:2], "big", signed=True)
    if part.path[-1] == "key":
        named = by_key(kind, type_id, "key")
        found.read(space, part, CoordinatorKey, lambda _: _schema(named, 0))
        found.titles["type"] = "unknown" if named is None else named.name
        return
    value = by_key(kind, type_id, "value")
    found.read(space, part, CoordinatorValue, partial(_schema_of_frame, value))
    found.titles["version"] = "version of " + ("the value" if value is None else value.name)
    if value is not None and value.name == "GroupMetadataValue":
        found.open_members(space)


def _schema_of_frame(found: Message | None, frame: Any) -> Construct | None:
    return _schema(found, frame.version)


def _schema(found: Message | None, version: int) -> Construct | None:
    if found is None or version not in found.versions:
        return None
    return schema_with_rest(found.name, version)
