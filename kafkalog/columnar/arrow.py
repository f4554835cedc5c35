"""The Arrow schemas of scans, and record batches out of values of the reference decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from formats import constants as c
from kafkalog.errors import UsageError
from kafkalog.model import Batch, TimestampType

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


PATH: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        _field("path", PATH),
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
"""The columns of a scan: `path` is the segment's file, `batch_position` a position in it;
`timestamp` in milliseconds since 1970 UTC, -1 where there is none; producer columns and sequence -1
where there is none; a compressed message of magic 0 or 1 has its last offset as
`batch_base_offset`."""


BATCH_SCHEMA: Final = pa.schema(
    [
        _field("path", PATH),
        _field("position", pa.int64()),
        _field("size", pa.int32()),
        _field("base_offset", pa.int64()),
        _field("last_offset", pa.int64()),
        _field("count", pa.int32()),
        _field("magic", pa.int8()),
        _field("compression", _NAME),
        _field("timestamp_type", _NAME),
        _field("base_timestamp", pa.int64()),
        _field("max_timestamp", pa.int64()),
        _field("delete_horizon_ms", pa.int64(), nullable=True),
        _field("producer_id", pa.int64()),
        _field("producer_epoch", pa.int16()),
        _field("base_sequence", pa.int32()),
        _field("last_sequence", pa.int64()),  # of a damaged header it can be anything
        _field("partition_leader_epoch", pa.int32()),
        _field("is_transactional", pa.bool_()),
        _field("is_control", pa.bool_()),
        _field("crc", pa.int64()),
        _field("crc_valid", pa.bool_()),
    ]
)
"""The columns of a scan of batches, as in `dump-segment --batches`."""


def schema_of(columns: Iterable[str] | None, schema: Any = SCHEMA) -> Any:
    """The schema of the columns asked for, in the order asked for; all where None.

    Raises:
        UsageError: there is no such column.
    """
    if columns is None:
        return schema
    names = list(columns)
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise UsageError(
            f"There is no column {unknown[0]!r}.", hint=f"There are {', '.join(schema.names)}."
        )
    return pa.schema([schema.field(name) for name in names])


_OF_BATCH: Final[dict[str, Callable[[Batch], object]]] = {
    "producer_id": lambda batch: batch.producer_id,
    "producer_epoch": lambda batch: batch.producer_epoch,
    "partition_leader_epoch": lambda batch: batch.partition_leader_epoch,
    "is_transactional": lambda batch: batch.is_transactional,
    "is_control": lambda batch: batch.is_control,
    "compression": lambda batch: COMPRESSIONS[batch.compression],
    "magic": lambda batch: batch.magic,
    "timestamp_type": lambda batch: str(batch.timestamp_type),
    "batch_base_offset": lambda batch: batch.base_offset,
    "batch_position": lambda batch: batch.position,
    "position": lambda batch: batch.position,
    "size": lambda batch: batch.size_bytes,
    "base_offset": lambda batch: batch.base_offset,
    "last_offset": lambda batch: batch.last_offset,
    "count": lambda batch: batch.count,
    "base_timestamp": lambda batch: batch.base_timestamp,
    "max_timestamp": lambda batch: batch.max_timestamp,
    "delete_horizon_ms": lambda batch: batch.delete_horizon_ms,
    "base_sequence": lambda batch: batch.base_sequence,
    "last_sequence": lambda batch: batch.last_sequence,
    "crc": lambda batch: batch.crc,
    "crc_valid": lambda batch: bool(batch.crc_valid),
}
_OF_RECORD: Final[dict[str, Callable[[Record], object]]] = {
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp,
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": lambda record: [
        {"key": header.key, "value": header.value} for header in record.headers
    ],
    "sequence": lambda record: record.sequence,
}
_DICTIONARIES: Final = {"timestamp_type": TIMESTAMP_TYPES, "compression": COMPRESSIONS}


def table_of(values: Sequence[Any], schema: Any, paths: Paths) -> Any:
    """A record batch of records of the reference decoder, or of batches of its scanner."""
    if not values or isinstance(values[0], Batch):
        return _table(values, {}, schema, paths)
    columns = {
        name: [value(record) for record in values]
        for name, value in _OF_RECORD.items()
        if name in schema.names
    }
    return _table([record.batch for record in values], columns, schema, paths)


def _table(
    batches: Sequence[Batch], columns: dict[str, list[object]], schema: Any, paths: Paths
) -> Any:
    """A record batch of columns and of what the batch of each row says."""
    arrays = []
    for field in schema:
        if field.name == "path":
            arrays.append(paths.column_of([batch.path for batch in batches]))
            continue
        values = columns.get(field.name)
        if values is None:
            values = [_OF_BATCH[field.name](batch) for batch in batches]
        names = _DICTIONARIES.get(field.name)
        if names is None:
            arrays.append(pa.array(values, field.type))
        else:
            codes = pa.array([names.index(str(value)) for value in values], pa.int8())
            arrays.append(pa.DictionaryArray.from_arrays(codes, names))
    return table_of_arrays(arrays, len(batches), schema)


def table_of_arrays(arrays: list[Any], count: int, schema: Any) -> Any:
    """A record batch of so many rows, of no columns, too."""
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Paths:
    """The files that a scan reads: all its record batches have one dictionary of them.

    It grows where a file is found under another name while it is read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._know(paths)

    def _know(self, paths: Sequence[str]) -> None:
        # File names need not be text; Arrow's strings have to be.
        names = pa.array([path.encode("utf-8", "replace") for path in paths], pa.binary())
        self._names, self._codes = names.cast(pa.string()), {p: i for i, p in enumerate(paths)}

    def column(self, path: str, count: int) -> Any:
        """So many rows of one file."""
        if path not in self._codes:
            self._know([*self._codes, path])
        codes = pa.array(np.full(count, self._codes[path], np.int32))
        return pa.DictionaryArray.from_arrays(codes, self._names)

    def column_of(self, paths: Sequence[str]) -> Any:
        """A row for each path."""
        if missing := [path for path in dict.fromkeys(paths) if path not in self._codes]:
            self._know([*self._codes, *missing])
        codes = pa.array([self._codes[path] for path in paths], pa.int32())
        return pa.DictionaryArray.from_arrays(codes, self._names)
