"""The output of `dump-segment` for logs: batches and records."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from formats.constants import COMPRESSION_NAMES
from kafkalog.errors import CorruptDataError, DataError
from kafkalog.io.wording import printable
from kafkalog.model import Batch, Record, TimestampType
from kafkalog.node.targets import partition_around
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import ABSENT, Column, Field, ObjectType
from kafkalog_cli.output.text import (
    Tone,
    bytes_cell,
    bytes_value,
    compression_name,
    dumps,
    full_time,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog_cli.output.objects import Block, Style, View


def control_type(record: Record) -> str | None:
    """Return a control record's type: `ABORT`, `COMMIT` …, `UNKNOWN(n)`; None for data."""
    if not record.batch.is_control:
        return None
    from kafkalog.files.payloads.control_records import control_record

    try:
        control = control_record(record)
    except CorruptDataError:
        return "MALFORMED"
    return control.type_name or f"UNKNOWN({control.type_id})"


def _headers(record: Record, style: Style) -> object:
    return [
        {
            "key": header.key.decode("utf-8", "replace"),
            "value": bytes_value(header.value, style.value_form),
        }
        for header in record.headers
    ]


def headers_cell(record: Record, style: Style) -> str:
    return ", ".join(header_lines(record, style))


def header_lines(record: Record, style: Style) -> list[str]:
    return [
        f"{header.key.decode('utf-8', 'replace')}={bytes_cell(header.value, style.value_form)}"
        for header in record.headers
    ]


def _decoded(record: Record, style: Style) -> object:
    """Return the decoded key and value of an internal topic's record; null if undecodable."""
    if style.decoder is None or record.batch.is_control:
        return ABSENT
    from kafkalog.files.payloads.internal_topics import decode

    result = decode(style.decoder, record.key, record.value)
    return {"key": result.key, "value": result.value, "error": result.error}


def payload_cell(source: str, record: Record, style: Style) -> str:
    """Return the cell of a key or a value, as it is decoded, if it is."""
    data: bytes | None = getattr(record, source)
    form = style.key_form if source == "key" else style.value_form
    if (decoded := style.decoded.get(source)) is not None:
        return decoded.cell(data, record.headers, form)
    return bytes_cell(data, form)


def _by_schema(source: str) -> Field[Any]:
    """Return the field with what a schema makes of a key or a value."""

    def decoded(record: Record, style: Style) -> object:
        data = getattr(record, source)
        return (
            None if record.batch.is_control else style.decoded[source].value(data, record.headers)
        )

    return Field(
        f"{source}_decoded",
        k.Kind("any", to_json=decoded),
        f"with `--registry`, or `--{source}-format json`, `avro`, `protobuf` or `connect`: null "
        "where it does not decode",
        lambda record: record,
        lambda style: source in style.decoded,
    )


def _of_schema(source: str) -> list[Field[Any]]:
    """Return the fields about the schema that a key or a value was written with."""

    def field(name: str, method: str, words: str) -> Field[Any]:
        def found(record: Record, style: Style) -> object:
            of_bytes = getattr(style.decoded[source], method)
            return of_bytes(getattr(record, source), record.headers)

        return Field(
            f"{source}_{name}",
            k.Kind("string or null", to_json=found),
            f"with `--registry`: {words}",
            lambda record: record,
            lambda style: source in style.decoded and style.decoded[source].has_ids,
        )

    return [
        field("schema_id", "schema_id", "in a header or before the data; null without one"),
        field("type", "type_name", "full name of the record or message, or title; null without a "
              "known schema"),
    ]  # fmt: skip


def _decoded_cell(record: Record, style: Style) -> str | None:
    decoded = _decoded(record, style)
    return None if decoded is ABSENT else dumps(decoded)


def _state(path: str) -> str:
    from kafkalog.node.view import state_of

    return state_of(path)


def _of_batch(prefix: str) -> dict[str, Field[Any]]:
    """Return the fields that batches and records share; `prefix` leads to the batch."""
    path_of = attrgetter(f"{prefix}path")
    fields: tuple[Field[Any], ...] = (
        Field("path", k.TEXT, "as given or found", f"{prefix}path"),
        Field("topic", k.TEXT, "the directory's whole name if not a partition's",
              lambda one: partition_around(path_of(one)).topic),
        Field("partition", k.INT | None, "null if the directory's name has none",
              lambda one: partition_around(path_of(one)).partition),
        Field("magic", k.INT, "0, 1 or 2", f"{prefix}magic"),
        Field("producer_id", k.INT, "−1 if none", f"{prefix}producer_id"),
        Field("producer_epoch", k.INT, "−1 if none", f"{prefix}producer_epoch"),
        Field("leader_epoch", k.INT, "−1 if none", f"{prefix}leader_epoch"),
        Field("is_transactional", k.BOOL, "", f"{prefix}is_transactional"),
        Field("is_control", k.BOOL, "control records (markers, KRaft)", f"{prefix}is_control"),
    )  # fmt: skip
    return {one.name: one for one in fields}


_STATE_MEANING: Final = "with `--view all`: as in `segment`"
_TIMESTAMP_TYPE: Final[Field[Any]] = Field(
    "timestamp_type", k.TEXT, "`CreateTime`, `LogAppendTime` or `NoTimestampType` (magic 0)"
)
_CODEC_MEANING: Final = f"{', '.join(f'`{name}`' for name in COMPRESSION_NAMES)}, or `unknown(N)`"
_HEADERS: Final = k.Kind("array", headers_cell, to_json=_headers, is_data=True)
_HEAD, _BATCH = _of_batch(""), _of_batch("batch.")


def record_block(record: Record, style: Style) -> Block:
    """Return a record as a block: what a person asks first, and where it lies."""
    batch = record.batch
    place = partition_around(batch.path)
    rows: list[tuple[str, str | Sequence[str]]] = [("time", _time_text(record, style))]
    if batch.is_control:
        rows.append(("control", str(control_type(record))))
    elif style.decoder is not None:
        decoded = _decoded(record, style)
        assert isinstance(decoded, dict), "data records are decoded"
        rows += [(name, dumps(one)) for name, one in decoded.items() if one is not None]
    else:
        rows.append(("key", payload_cell("key", record, style)))
        rows.append(("value", payload_cell("value", record, style)))
    if record.headers:
        rows.append(("headers", [printable(line) for line in header_lines(record, style)]))
    if batch.producer_id >= 0:
        what = f"{batch.producer_id}, epoch {batch.producer_epoch}, sequence {record.sequence}"
        rows.append(("producer", f"{what}, transactional" if batch.is_transactional else what))
    where = f"at {batch.position}, {compression_name(batch)}"
    epoch = batch.leader_epoch
    rows.append(("batch", where if epoch < 0 else f"{where}, leader epoch {epoch}"))
    if style.states:
        rows.append(("state", _state(batch.path)))
    name = place.topic if place.partition is None else f"{place.topic}-{place.partition}"
    return f"{name}, offset {record.offset}", rows


def _time_text(record: Record, style: Style) -> str:
    """Return the time with the name of its clock: `… UTC, CreateTime (2 years ago)`."""
    text = full_time(record.timestamp, style)
    time, bracket, age = text.partition(" (")
    return f"{time}, {record.timestamp_type}{bracket}{age}"


BATCH: Final = ObjectType[Batch](
    "batch",
    "`dump-segment --batches`",
    "A record batch; for magic 0 and 1 a top-level message.",
    Field("state", k.TEXT, _STATE_MEANING, lambda batch: _state(batch.path),
          lambda style: style.states),
    _HEAD["path"],
    _HEAD["topic"],
    _HEAD["partition"],
    Field("position", k.INT, "in the file"),
    Field("size_bytes", k.SIZE, "header included"),
    Field("base_offset", k.INT, "kept when compaction removes the record"),
    Field("last_offset", k.INT, "kept when compaction removes the record"),
    Field("records", k.INT, ""),
    _HEAD["magic"],
    Field("compression", k.TEXT, _CODEC_MEANING, compression_name),
    _TIMESTAMP_TYPE,
    Field("base_timestamp", k.RECORD_TIME, "base of the records' timestamp deltas"),
    Field("max_timestamp", k.RECORD_TIME, ""),
    Field("delete_horizon_timestamp", k.TIME | None,
          "when compaction may drop tombstones and markers"),
    _HEAD["producer_id"],
    _HEAD["producer_epoch"],
    Field("base_sequence", k.INT, "−1 if none"),
    Field("last_sequence", k.INT, "−1 if none"),
    _HEAD["leader_epoch"],
    _HEAD["is_transactional"],
    _HEAD["is_control"],
    Field("crc", k.INT, "stored, unsigned"),
    Field("crc_valid", k.BOOL | None, "the bytes match it"),
)  # fmt: skip
RECORD: Final = ObjectType[Record](
    "record",
    "`dump-segment`, `dump-segment --records`, `lookup-offset --show`",
    "A record, with attributes of its batch.",
    Field("state", k.TEXT, _STATE_MEANING, lambda record: _state(record.batch.path),
          lambda style: style.states),
    _BATCH["path"],
    _BATCH["topic"],
    _BATCH["partition"],
    Field("offset", k.INT, ""),
    Field("timestamp", k.RECORD_TIME, "−1 if none"),
    _TIMESTAMP_TYPE,
    Field("key", k.KEY, ""),
    Field("value", k.VALUE, "null is a tombstone"),
    Field("key_size_bytes", k.INT | None, "",
          lambda record: None if record.key is None else len(record.key)),
    Field("value_size_bytes", k.INT | None, "",
          lambda record: None if record.value is None else len(record.value)),
    Field("headers", _HEADERS,
          "objects with `key` and `value`, in order", lambda record: record),
    Field("sequence", k.INT, "−1 if none"),
    _BATCH["producer_id"],
    _BATCH["producer_epoch"],
    _BATCH["leader_epoch"],
    _BATCH["is_transactional"],
    _BATCH["is_control"],
    Field("control_type", k.TEXT | None, "`ABORT`, `COMMIT`, `LEADER_CHANGE` …; `UNKNOWN(N)`, "
          "`MALFORMED`; null for data", control_type),
    Field("compression", k.TEXT, _CODEC_MEANING, lambda record: compression_name(record.batch)),
    _BATCH["magic"],
    Field("batch_base_offset", k.INT, "", "batch.base_offset"),
    Field("batch_position", k.INT, "", "batch.position"),
    _by_schema("key"),
    *_of_schema("key"),
    _by_schema("value"),
    *_of_schema("value"),
    Field("decoded", k.Kind("object", _decoded_cell, to_json=_decoded, is_data=True),
          "of internal topics, with `--value-format auto`: `key` and `value`, objects or null, and "
          "`error`, why one does not decode, or null",
          lambda record: record, lambda style: style.decoder is not None),
    block=record_block,
)  # fmt: skip


def batch_view(style: Style) -> View[Batch]:

    def notes(batch: Batch) -> str:
        words = ["transactional"] if batch.is_transactional else []
        words += ["control"] if batch.is_control else []
        words += ["bad crc"] if batch.crc_valid is False else []
        if batch.delete_horizon_timestamp is not None:
            words.append(f"delete horizon {time_text(batch.delete_horizon_timestamp, style)}")
        return ", ".join(words)

    def producer(batch: Batch) -> str:
        if batch.producer_id < 0:
            return "-"
        return f"{batch.producer_id}/{batch.producer_epoch}"

    def sequence(batch: Batch) -> str:
        return "-" if batch.base_sequence < 0 else f"{batch.base_sequence}-{batch.last_sequence}"

    return BATCH.view(
        style,
        *((Column("STATE", "state"),) if style.states else ()),
        Column("OFFSETS", lambda batch: f"{batch.base_offset}-{batch.last_offset}", weight=9),
        Column("RECORDS", "records", weight=9),
        Column("POSITION", "position", weight=9),
        Column("SIZE", "size_bytes", weight=9),
        Column("CODEC", "compression", weight=8),
        Column("LAST TIME", "max_timestamp", weight=9),
        Column("PRODUCER", producer, weight=7),
        Column("EPOCH", "leader_epoch", weight=6),
        Column("SEQUENCE", sequence),
        Column("NOTES", notes, below=True),
    )


def record_view(style: Style) -> View[Record]:

    def key(record: Record) -> str:
        if record.batch.is_control:
            return str(control_type(record))
        return payload_cell("key", record, style)

    def value(record: Record) -> str:
        if record.batch.is_control:
            return bytes_cell(record.value, style.value_form)
        return payload_cell("value", record, style)

    def content(record: Record) -> str:
        if record.batch.is_control:
            return key(record)
        from kafkalog.files.payloads.internal_topics import kafka_text

        assert style.decoder is not None, "it is shown by a decoder"
        try:
            return kafka_text(style.decoder, record).strip()
        except DataError as error:
            return error.message

    columns: tuple[Column[Record], ...] = (
        Column(
            "KEY",
            key,
            least=8,
            weight=8,
            tone=lambda one: Tone.FAINT if one.key is None else None,
        ),
        Column(
            "VALUE",
            value,
            least=24,
            weight=9,
            tone=lambda one: Tone.FAINT if one.value is None else None,
        ),
        Column("HEADERS", lambda record: headers_cell(record, style), least=10, weight=6),
    )
    if style.decoder is not None:
        columns = (Column("CONTENT", content, least=24, weight=9),)
    return RECORD.view(
        style,
        *((Column("STATE", "state"),) if style.states else ()),
        Column("OFFSET", "offset", weight=9),
        Column("TIME", "timestamp", weight=7),
        *columns,
    )


PLAIN_TITLES: Final = ("OFFSET", "TIME", "KEY", "VALUE", "HEADERS")
"""The titles of `record_view` if records are neither decoded nor have states."""


def probe(path: str = "") -> Record:
    """Return an empty record, to ask `RECORD` and `BATCH` for their fields."""
    batch = Batch(
        path=path, position=0, size_bytes=0, base_offset=0, last_offset=0, magic=2, attributes=0,
        crc=0, leader_epoch=0, base_timestamp=0, max_timestamp=0, producer_id=0,
        producer_epoch=0, base_sequence=0, records=0,
    )  # fmt: skip
    return Record(batch, 0, 0, TimestampType.CREATE_TIME, None, None)
