"""The columns of the tables, as Arrow schemas that Spark accepts unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.tables.model import TableName

if TYPE_CHECKING:
    from collections.abc import Sequence


def _field(name: str, kind: Any, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable)


def _schema(*fields: Any) -> Any:
    return pa.schema([*_OF_PARTITION, *fields])


TIME: Final = pa.timestamp("us", tz="UTC")
MILLISECONDS_MAX: Final = (1 << 63) // 1000 - 1
"""Later times, and earlier ones than its negative, do not fit into `TIME`."""
_OF_PARTITION: Final = (_field("topic", pa.string()), _field("partition", pa.int32()))
_PLACE: Final = (_field("path", pa.string()), _field("log_dir", pa.string()))
_STATE: Final = _field("state", pa.string())
_HEADER: Final = pa.struct(
    [_field("key", pa.string()), _field("value", pa.binary(), nullable=True)]
)

SCHEMAS: Final = {
    TableName.RECORDS: pa.schema(
        [
            _field("key", pa.binary(), nullable=True),
            _field("value", pa.binary(), nullable=True),
            *_OF_PARTITION,
            _field("offset", pa.int64()),
            _field("timestamp", TIME, nullable=True),
            _field("timestampType", pa.int32()),
            _field("headers", pa.list_(_field("element", _HEADER))),
            _field("timestamp_ms", pa.int64()),
            _field("sequence", pa.int32()),
            _field("producer_id", pa.int64()),
            _field("producer_epoch", pa.int16()),
            _field("leader_epoch", pa.int32()),
            _field("is_transactional", pa.bool_()),
            _field("is_control", pa.bool_()),
            _field("compression", pa.string()),
            _field("magic", pa.int8()),
            _field("batch_base_offset", pa.int64()),
            _field("batch_position", pa.int64()),
            _field("key_bytes", pa.binary(), nullable=True),
            _field("value_bytes", pa.binary(), nullable=True),
            _field("decoded", pa.string(), nullable=True),
            *_PLACE,
            _STATE,
        ]
    ),
    TableName.BATCHES: _schema(
        _field("base_offset", pa.int64()),
        _field("last_offset", pa.int64()),
        _field("records", pa.int32()),
        _field("position", pa.int64()),
        _field("size_bytes", pa.int32()),
        _field("magic", pa.int8()),
        _field("compression", pa.string()),
        _field("timestamp_type", pa.string()),
        _field("base_timestamp", pa.int64()),
        _field("max_timestamp", pa.int64()),
        _field("delete_horizon_timestamp", pa.int64(), nullable=True),
        _field("producer_id", pa.int64()),
        _field("producer_epoch", pa.int16()),
        _field("base_sequence", pa.int32()),
        _field("last_sequence", pa.int64()),
        _field("leader_epoch", pa.int32()),
        _field("is_transactional", pa.bool_()),
        _field("is_control", pa.bool_()),
        _field("crc", pa.int64()),
        _field("crc_valid", pa.bool_()),
        *_PLACE,
        _STATE,
    ),
    TableName.OFFSET_INDEX: _schema(
        _field("segment_base_offset", pa.int64()),
        _field("entry", pa.int64()),
        _field("offset", pa.int64()),
        _field("position", pa.int64()),
        *_PLACE,
    ),
    TableName.TIME_INDEX: _schema(
        _field("segment_base_offset", pa.int64()),
        _field("entry", pa.int64()),
        _field("timestamp", pa.int64()),
        _field("offset", pa.int64()),
        *_PLACE,
    ),
    TableName.TRANSACTIONS: _schema(
        _field("segment_base_offset", pa.int64()),
        _field("version", pa.int16()),
        _field("producer_id", pa.int64()),
        _field("first_offset", pa.int64()),
        _field("last_offset", pa.int64()),
        _field("last_stable_offset", pa.int64()),
        *_PLACE,
    ),
    TableName.SEGMENTS: _schema(
        _field("base_offset", pa.int64()),
        _field("next_base_offset", pa.int64(), nullable=True),
        _field("is_active", pa.bool_()),
        _field("size_bytes", pa.int64()),
        _field("index_bytes", pa.int64(), nullable=True),
        _field("timeindex_bytes", pa.int64(), nullable=True),
        _field("txnindex_bytes", pa.int64(), nullable=True),
        _field("modified_timestamp", pa.int64()),
        *_PLACE,
    ),
    TableName.PRODUCERS: _schema(
        _field("snapshot_offset", pa.int64()),
        _field("producer_id", pa.int64()),
        _field("producer_epoch", pa.int16()),
        _field("last_sequence", pa.int32()),
        _field("last_offset", pa.int64()),
        _field("last_timestamp", pa.int64()),
        _field("coordinator_epoch", pa.int32()),
        _field("current_txn_first_offset", pa.int64(), nullable=True),
        *_PLACE,
    ),
    TableName.DEFECTS: _schema(
        _field("reference", pa.string()),
        _field("severity", pa.string()),
        _field("detail", pa.string()),
        _field("position", pa.int64(), nullable=True),
        _field("offset", pa.int64(), nullable=True),
        _field("size_bytes", pa.int64(), nullable=True),
        *_PLACE,
    ),
}
"""All columns of each table. Integer times are milliseconds since 1970 UTC."""

DEFAULT_RECORDS: Final = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip
"""The default columns of records: those of Spark's own Kafka source."""

DATA: Final = ("key", "value")
"""The columns of records that hold what producers sent."""


def table_schema(
    table: TableName, columns: Sequence[str] | None = None, *, text: bool = False
) -> Any:
    """Return the `pyarrow.Schema` of a table.

    Args:
        table: the table.
        columns: the columns, in order; if None, those of Spark's own Kafka source for records,
            and for other tables all except `state`, the state of a log.
        text: whether keys and values of records are text: 0x and digits if they are no UTF-8.

    Raises:
        UsageError: a column is unknown.
    """
    schema = SCHEMAS[table]
    if columns is None:
        others = [name for name in schema.names if name != _STATE.name]
        columns = DEFAULT_RECORDS if table == TableName.RECORDS else others
    for name in columns:
        if name not in schema.names:
            raise UsageError(
                f"The table {table} has no column {name!r}.",
                hint=f"There are {', '.join(schema.names)}.",
            )
    fields = [schema.field(name) for name in columns]
    if text and table == TableName.RECORDS:
        fields = [one.with_type(pa.string()) if one.name in DATA else one for one in fields]
    return pa.schema(fields)
