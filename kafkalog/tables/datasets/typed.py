"""Typed columns of records, decoded where they are read."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.errors import Deaf
from kafkalog.io.paths import file_system
from kafkalog.log.columns.arrow import table_of_arrays
from kafkalog.tables.model import TableName
from kafkalog.tables.planning import plan_splits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.log.typed import TypedColumn
    from kafkalog.log.typed.columns import TypedArray
    from kafkalog.tables.datasets.model import Tables, TypedListener
    from kafkalog.tables.topic_types import ByData


def with_data(
    tables: Tables, given: Sequence[TypedColumn], by_data: Sequence[ByData]
) -> tuple[TypedColumn, ...]:
    """Return the typed columns of tables: those that are given, and those that data decides.

    Raises:
        UsageError: nothing decides what they are.
        as `ByData.decided` and `plan_splits`.
    """
    if not by_data:
        return tuple(given)
    request = replace(tables.request(TableName.RECORDS), gaps_when_read=True)
    with file_system.listings_held(tables.paths):
        # What is wrong with the logs is said when they are read for a query.
        splits = plan_splits(tables.paths, request, Deaf())
    found = (one.decided(splits, of_each=False) for one in by_data)
    columns = (*given, *(one for one in found if one is not None))
    if not columns:
        raise by_data[-1].nothing()
    return columns


class TypedColumns:
    """Adds typed columns to rows of bytes.

    Args:
        columns: the typed columns.
        listener: hears what becomes of the values.

    Attributes:
        fields: the columns, as fields of Arrow.

    Raises:
        UsageError, UnsupportedError: as `TypedColumn.decoder`.
    """

    def __init__(self, columns: Sequence[TypedColumn], listener: TypedListener) -> None:
        self._columns = {one.name: (one, one.decoder()) for one in columns}
        self._listener = listener
        self._lock = threading.Lock()  # the parts of a dataset may be read by several threads
        self._ids = {name: one for one in columns for name in one.id_columns}
        self.fields = [
            *(pa.field(name, one.type) for name, (_, one) in self._columns.items()),
            *(pa.field(name, pa.string()) for name in self._ids),
        ]

    def bytes_for(self, names: Sequence[str]) -> list[str]:
        """Return the columns to read for some columns."""
        given: list[str] = []
        for name in names:
            column = self._column(name)
            given.append(name if column is None else f"{column.source}_bytes")
            if column is not None and column.id_headers():
                given.append("headers")
        return list(dict.fromkeys(given))

    def added(self, batch: Any, schema: Any) -> Iterator[Any]:
        """Yield the columns of a schema, of some rows each, from those that `bytes_for` names."""
        from kafkalog.log.typed.columns import aligned

        names = [name for name in schema.names if name in self._columns]
        if not names:
            yield self._piece(batch, schema, {})
            return
        start = 0
        for pieces in aligned([self._decoded(name, batch) for name in names]):
            count = len(pieces[0].array)
            decoded = {name: one.array for name, one in zip(names, pieces, strict=True)}
            yield self._piece(batch.slice(start, count), schema, decoded)
            start += count

    def _piece(self, batch: Any, schema: Any, decoded: Mapping[str, Any]) -> Any:
        arrays = [
            decoded[name]
            if name in decoded
            else self._ids_of(name, batch)
            if name in self._ids
            else batch.column(name)
            for name in schema.names
        ]
        return table_of_arrays(arrays, batch.num_rows, schema)

    def _column(self, name: str) -> TypedColumn | None:
        """Return the typed column that a column is, or whose ids it has."""
        return self._columns[name][0] if name in self._columns else self._ids.get(name)

    def _ids_of(self, name: str, batch: Any) -> Any:
        from kafkalog.log.typed.prefixes import schema_ids, type_names

        column = self._ids[name]
        make = schema_ids if name == column.id_columns[0] else type_names
        return make(column, *_bytes_of(column, batch))

    def _decoded(self, name: str, batch: Any) -> Iterator[TypedArray]:
        """Yield what `typed_pieces` does for a column, and tell the listener."""
        from kafkalog.log.typed.columns import typed_pieces

        column, decoder = self._columns[name]
        pieces = typed_pieces(column, decoder, *_bytes_of(column, batch))
        while True:
            with self._lock:
                found = next(pieces, None)
                if found is None:
                    return
                self._listener.decoded(column, decoder.remarks, found.losses)
                for one in found.failures[:1]:
                    self._listener.undecoded(column, one.reason)
            yield found


def _bytes_of(column: TypedColumn, batch: Any) -> tuple[Any, Any]:
    """Return the bytes of a column, and the headers if they are needed."""
    headers = batch.column("headers") if column.id_headers() else None
    return batch.column(f"{column.source}_bytes"), headers
