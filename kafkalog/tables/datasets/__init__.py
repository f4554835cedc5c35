"""The tables of log directories as datasets, and SQL over them in this process.

`dataset` gives an object shaped like `pyarrow.dataset.Dataset`, so that DuckDB, Polars, DataFusion
and pandas choose columns and rows before anything is read. pyarrow is loaded on first use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.errors import UsageError
from kafkalog.io.jit import fast_path
from kafkalog.log.events import Reporter
from kafkalog.model import Isolation, LogView, Replicas, named_member
from kafkalog.tables.datasets.model import StateTable, Tables
from kafkalog.tables.model import TableName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import StrEnum

    from kafkalog.errors import OnEvent
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
        disorder_ms: no record is older than the newest before it by more than this. Then reading
            ends soon after a time range; otherwise it goes on, as any later record can be older.
        threads: number of decoding threads; None for one per processor, up to 8.
        on_event: is passed each event, in any thread; without it the first error or grave defect is
            raised.

    Raises:
        UsageError: an argument has an invalid value.
        UnsupportedError: pyarrow is missing.
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
    return Dataset(tables, _table(kind, name))


def _table(kind: type[StrEnum], name: str) -> TableName | StateTable:
    try:
        return kind(name)  # type: ignore[return-value] # one of the two
    except ValueError:
        known = ", ".join([*TableName, *StateTable])
        raise UsageError(f"There is no table {name!r}.", hint=f"There are {known}.") from None
