"""The tables of log directories as datasets, and SQL over them in this process.

`dataset` gives an object shaped like `pyarrow.dataset.Dataset`, so that DuckDB, Polars, DataFusion
and pandas choose columns and rows before anything is read. pyarrow is loaded on first use.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.io.jit import fast_path
from kafkalog.log.events import Reporter
from kafkalog.model import Isolation, LogView, Replicas, named_member
from kafkalog.tables.datasets.model import StateTable, Tables, TypedListener
from kafkalog.tables.model import TableName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import StrEnum

    from kafkalog.errors import Listener, OnEvent
    from kafkalog.log.typed import TypedColumn
    from kafkalog.tables.datasets.arrow_dataset import Dataset


def dataset(
    *paths: str | os.PathLike[str],
    table: TableName | StateTable | str = TableName.RECORDS,
    topics: Sequence[str] | None = None,
    isolation: Isolation | str = Isolation.READ_UNCOMMITTED,
    replicas: Replicas | str | None = None,
    internal: bool = False,
    view: LogView | str = LogView.RECOVERED,
    text: bool = False,
    registry: str | os.PathLike[str] | None = None,
    connect: Sequence[str] = (),
    disorder_ms: int | None = None,
    threads: int | None = None,
    on_event: OnEvent | None = None,
) -> Dataset:
    """Return a table of some logs, for DuckDB, Polars, DataFusion, pandas or pyarrow.

    Nothing is read before rows are asked for, and then only the columns and the stretches of logs
    that are: filters on topic, partition, offset and timestamp skip directories, segments and parts
    of them. Files are listed again for each read.

    Args:
        paths: log directories, partition directories or segments' `.log` files.
        table: `records`, `batches`, `offset_index`, `time_index`, `transactions`, `segments`,
            `producers`, `defects`, `groups`, `commits`, `topics` or `configs`.
        topics: these topics only, internal ones included.
        isolation: for records: `read_uncommitted`, `read_committed`, or `log` for all of the log.
        replicas: if several paths hold a partition: `all` copies, or the `best`, which is the
            default for records.
        internal: whether to include internal topics, such as `__consumer_offsets`.
        view: `recovered`, `as-is` or `all`.
        text: whether keys and values are text: 0x and hexadecimal digits if they are no UTF-8; the
            columns key_bytes and value_bytes have them as they are.
        registry: where the schemas of the topic are: the URL of a registry, a log directory with
            the topic `_schemas`, or a directory of files. Keys and values with a subject there, or
            with ids of schemas there, get the columns key_decoded and value_decoded, with ids of
            schemas and names of types. Without the subject of the topic its records are read once
            for their ids; several types are fields of a struct. A value that does not decode is
            null there, and an error unless there is `on_event`.
        connect: `key`, `value` or both: what Kafka Connect or Debezium wrote as JSON with a schema
            in each message. They get the columns key_decoded and value_decoded, with the fields of
            all their schemas, for which all records are read once.
        disorder_ms: no record is older than the newest before it by more than this. Then reading
            ends soon after a time range; otherwise it goes on, as any later record can be older.
        threads: number of decoding threads; None for one per processor, up to 8.
        on_event: is passed each event, in any thread; without it the first error or grave defect is
            raised.

    Raises:
        UsageError: an argument has an invalid value.
        UnsupportedError: pyarrow is missing, or what decodes by a schema.
    """
    fast_path.require_arrow()
    from kafkalog.tables.datasets.arrow_dataset import Dataset

    if not paths:
        raise UsageError("No path is given.")
    name = str(table)
    kind: type[StrEnum] = StateTable if name in tuple(StateTable) else TableName
    tables = Tables(
        tuple(os.fspath(path) for path in paths),
        None if topics is None else frozenset(topics),
        named_member(Isolation, isolation),
        None if replicas is None else named_member(Replicas, replicas),
        internal,
        named_member(LogView, view),
        text,
        disorder_ms,
        threads,
        None if on_event is None else Reporter(on_event),
    )
    if registry is not None or connect:
        tables = _typed(tables, registry, connect)
    return Dataset(tables, _table(kind, name))


class _Undecoded(TypedListener):
    """Makes an error of each value that does not decode."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def undecoded(self, column: TypedColumn, reason: str) -> None:
        self._listener.hear(CorruptDataError(f"A {column.source} does not decode: {reason}."))


def _typed(
    tables: Tables, registry: str | os.PathLike[str] | None, connect: Sequence[str]
) -> Tables:
    """Return the tables with typed columns that data decides."""
    from kafkalog.tables.datasets.typed import with_data
    from kafkalog.tables.topic_types import columns_by_data

    typed = with_data(tables, (), columns_by_data(registry, tables.topics or (), connect))
    return replace(tables, typed=typed, typed_listener=_Undecoded(tables.reader))


def _table(kind: type[StrEnum], name: str) -> TableName | StateTable:
    try:
        return kind(name)  # type: ignore[return-value] # one of the two
    except ValueError:
        known = ", ".join([*TableName, *StateTable])
        raise UsageError(f"There is no table {name!r}.", hint=f"There are {known}.") from None
