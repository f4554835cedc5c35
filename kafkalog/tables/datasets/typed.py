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
    from collections.abc import Sequence

    from kafkalog.log.typed import TypedColumn
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

    def added(self, batch: Any, schema: Any) -> Any:
        """Return the columns of a schema, from those that `bytes_for` names."""
        arrays = [
            batch.column(name) if self._column(name) is None else self._made(name, batch)
            for name in schema.names
        ]
        return table_of_arrays(arrays, batch.num_rows, schema)

    def _column(self, name: str) -> TypedColumn | None:
        """Return the typed column that a column is, or whose ids it has."""
        return self._columns[name][0] if name in self._columns else self._ids.get(name)

    def _made(self, name: str, batch: Any) -> Any:
        from kafkalog.log.typed.columns import typed_column
        from kafkalog.log.typed.prefixes import schema_ids, type_names

        column = self._ids[name] if name in self._ids else self._columns[name][0]
        headers = batch.column("headers") if column.id_headers() else None
        data = batch.column(f"{column.source}_bytes")
        if name in self._ids:
            make = schema_ids if name == column.id_columns[0] else type_names
            return make(column, data, headers)
        decoder = self._columns[name][1]
        with self._lock:
            found = typed_column(column, decoder, data, headers)
            self._listener.decoded(column, decoder.remarks, found.losses)
            for one in found.failures[:1]:
                self._listener.undecoded(column, one.reason)
        return found.array
