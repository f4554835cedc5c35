"""The Arrow schema of a scan, and record batches out of records of the reference decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from formats import constants as c
from kafkalog.errors import UsageError
from kafkalog.model import TimestampType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.model import Record

_NAME: Final = pa.dictionary(pa.int8(), pa.string())
TIMESTAMP_TYPES: Final = [str(member) for member in TimestampType]
COMPRESSIONS: Final = [*c.COMPRESSION_NAMES, "5", "6", "7"]
HEADER: Final = pa.struct(
    [pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary())]
)


def _field(name: str, kind: Any, *, nullable: bool = False) -> Any:
    return pa.field(name, kind, nullable=nullable)


SCHEMA: Final = pa.schema(
    [
        _field("offset", pa.int64()),
        _field("timestamp", pa.int64()),
        _field("timestamp_type", _NAME),
        _field("key", pa.binary(), nullable=True),
        _field("value", pa.binary(), nullable=True),
        _field("headers", pa.list_(_field("item", HEADER))),
        _field("sequence", pa.int32()),
        _field("producer_id", pa.int64()),
        _field("producer_epoch", pa.int16()),
        _field("partition_leader_epoch", pa.int32()),
        _field("is_transactional", pa.bool_()),
        _field("is_control", pa.bool_()),
        _field("compression", _NAME),
        _field("magic", pa.int8()),
        _field("batch_base_offset", pa.int64()),
        _field("batch_position", pa.int64()),
    ]
)
"""The columns of a scan: `timestamp` in milliseconds since 1970 UTC, -1 where there is none;
producer columns and sequence -1 where there is none; `batch_position` in bytes from the beginning
of the segment's file; a compressed message of magic 0 or 1 has its last offset as
`batch_base_offset`."""


def schema_of(columns: Iterable[str] | None) -> Any:
    """The schema of the columns asked for, in the order asked for; all where None.

    Raises:
        UsageError: there is no such column.
    """
    if columns is None:
        return SCHEMA
    names = list(columns)
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise UsageError(
            f"There is no column {unknown[0]!r}.", hint=f"There are {', '.join(SCHEMA.names)}."
        )
    return pa.schema([SCHEMA.field(name) for name in names])


_OF_RECORD: Final[dict[str, Callable[[Record], object]]] = {
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp,
    "timestamp_type": lambda record: str(record.timestamp_type),
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": lambda record: [
        {"key": header.key, "value": header.value} for header in record.headers
    ],
    "sequence": lambda record: record.sequence,
    "producer_id": lambda record: record.batch.producer_id,
    "producer_epoch": lambda record: record.batch.producer_epoch,
    "partition_leader_epoch": lambda record: record.batch.partition_leader_epoch,
    "is_transactional": lambda record: record.batch.is_transactional,
    "is_control": lambda record: record.batch.is_control,
    "compression": lambda record: COMPRESSIONS[record.batch.compression],
    "magic": lambda record: record.batch.magic,
    "batch_base_offset": lambda record: record.batch.base_offset,
    "batch_position": lambda record: record.batch.position,
}
_DICTIONARIES: Final = {"timestamp_type": TIMESTAMP_TYPES, "compression": COMPRESSIONS}


def table_of_records(records: Sequence[Record], schema: Any) -> Any:
    """A record batch of records of the reference decoder."""
    arrays = []
    for field in schema:
        values = [_OF_RECORD[field.name](record) for record in records]
        names = _DICTIONARIES.get(field.name)
        if names is None:
            arrays.append(pa.array(values, field.type))
        else:
            codes = pa.array([names.index(str(value)) for value in values], pa.int8())
            arrays.append(pa.DictionaryArray.from_arrays(codes, names))
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records), pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
