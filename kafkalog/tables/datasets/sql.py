"""SQL over the tables of log directories by DuckDB, in this process.

A statement sees the tables and what earlier statements created in memory, nothing else: no file, no
network, no variable of this program.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import tempfile
import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import KafkaLogError, OutOfMemoryError, UnsupportedError, UsageError
from kafkalog.io.jit import fast_path
from kafkalog.tables.datasets.json_text import MACROS, with_text
from kafkalog.tables.datasets.model import StateTable, Tables
from kafkalog.tables.model import Answer, TableName, columns_for, is_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


MEMORY_SIZE: Final = 1 << 30
"""What DuckDB may hold before it uses files."""
ADDRESS_SPACE_MIN: Final = 1600 << 20
"""Below 1.5 GiB, DuckDB and Arrow ended in SIGSEGV, SIGABRT, or while they were imported."""

TABLES: Final = (*TableName, *StateTable)
_ROWS: Final = 8192
_WAITING: Final = 2
_KEYWORD: Final = b"offset"
_GROUP: Final = re.compile(r"\bgroup\b(?!\s+by\b)", re.IGNORECASE)


def require_duckdb() -> None:
    """Raise `UnsupportedError` if DuckDB is missing, `OutOfMemoryError` if it has no room."""
    if importlib.util.find_spec("duckdb") is None:
        raise UnsupportedError("SQL needs DuckDB.", hint="pip install 'kafkalog[data]'")
    hint = "Raise that limit; --memory-limit says how much memory a query may use."
    fast_path.require_address_space("SQL", ADDRESS_SPACE_MIN, hint)
    fast_path.require_arrow()


class Statement(NamedTuple):
    """One statement, as DuckDB parses it."""

    text: str


class Database:
    """The tables of some logs, and what statements create in memory; use it as a context manager.

    Args:
        tables: the logs, and how they are read.
        memory_size: what DuckDB may hold in memory, in bytes.
        shown: columns of records to the SQL that computes them from others; without it keys and
            values are text.

    Attributes:
        tables: the logs.

    Raises:
        UnsupportedError: DuckDB or pyarrow is missing.
        OutOfMemoryError: the address space of this process is too small for them.

    Cost:
        `memory_size`, and what `kafkalog.dataset` needs. What does not fit goes to files in the
        system's directory for temporary ones, which are gone at the end.
    """

    def __init__(
        self,
        tables: Tables,
        *,
        memory_size: int = MEMORY_SIZE,
        shown: Mapping[str, str] | None = None,
    ) -> None:
        require_duckdb()
        import duckdb

        self.tables = replace(tables, before_each=self._go_on, text=True)
        self._shown = shown or {}
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self._result: _Result | None = None
        place = os.path.join(tempfile.gettempdir(), f"kafkalog-sql-{uuid.uuid4().hex}")
        self._connection = duckdb.connect(
            ":memory:",
            config={
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "enable_external_access": "false",
                "memory_limit": f"{max(memory_size >> 10, 1)}KiB",
                "temp_directory": place,
                "threads": str(fast_path.default_threads()),
            },
        )
        for setting in (
            "TimeZone = 'UTC'",
            "python_enable_replacements = false",
            "lock_configuration = true",  # the last one: nothing can be set after it
        ):
            self._connection.execute(f"SET {setting}")
        for macro in MACROS:
            self._connection.execute(macro)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_result()
        self._connection.close()

    def _close_result(self) -> None:
        if self._result is not None:
            self._result.close()
            self._result = None

    def _go_on(self) -> None:
        """Raise if the statement was stopped: DuckDB waits for the tables that it reads."""
        if self._stop.is_set():
            raise _StoppedError

    def statements(self, text: str) -> list[Statement]:
        """Split text into statements.

        The word `offset`, a keyword of SQL and a column here, need not be quoted where the text is
        no SQL otherwise.

        Raises:
            UsageError: a statement cannot be parsed.
        """
        import duckdb

        try:
            return _parsed(text)
        except duckdb.ParserException as error:
            for quoted in _with_quoted_offsets(text):
                with suppress(duckdb.ParserException):
                    return _parsed(quoted)
            told = _usage_error(error)
            if _GROUP.search(text):
                told.hint = "group is a keyword; the column is group_id."
            raise told from error

    def keywords(self) -> list[str]:
        found = self._connection.execute("SELECT keyword_name FROM duckdb_keywords()")
        return [str(name) for (name,) in found.fetchall()]

    def run(self, statement: Statement) -> Answer:
        """Run a statement; its rows are fetched on demand, before the next one is run.

        Raises:
            UsageError: DuckDB rejects it, or a part of it fails.
            OutOfMemoryError: it needs more memory, and cannot use files instead.
            KafkaLogError: the logs cannot be read, as `kafkalog.dataset`.
        """
        self._close_result()
        self._failures.clear()
        self._make_views(statement.text)
        text = with_text(self._connection, statement.text, has_bytes=_names_bytes(statement.text))
        found = _Result(self._connection.cursor(), text, self._failures, self._stop)
        self._result = found  # before it starts: an interrupt may come at any time
        schema = found.schema()
        if schema is None:
            return Answer((), (), iter(()))
        import pyarrow.types as kinds

        numeric = (
            kinds.is_integer(one.type) or kinds.is_floating(one.type) or kinds.is_decimal(one.type)
            for one in schema
        )
        names = tuple(schema.names)
        if text != statement.text:
            with self._connection.cursor() as cursor:
                names = tuple(cursor.sql(statement.text).columns)
        return Answer(names, tuple(numeric), found.rows())

    def _make_views(self, text: str) -> None:
        """Make each table a view: with its usual columns, and the others that the text names."""
        from kafkalog.tables.datasets.arrow_dataset import WatchedDataset

        for table in TABLES:
            data = WatchedDataset(self.tables, table, self._failures)
            usual, every = usual_columns(table)
            shown: Mapping[str, str] = {}
            if table == TableName.RECORDS:
                shown = self._shown
                every = [*every, *(name for one in self.tables.typed for name in one.id_columns)]
            names = columns_for(text, usual, every)
            relation = self._connection.from_arrow(data)
            columns = ", ".join(f'{shown.get(name, _quoted(name))} AS "{name}"' for name in names)
            relation.project(columns).create_view(table.value, replace=True)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _names_bytes(query: str) -> bool:
    return is_named(query, "key_bytes") or is_named(query, "value_bytes")


def usual_columns(table: TableName | StateTable) -> tuple[list[str], list[str]]:
    """Return the columns that `*` stands for, and all columns, in the order of the table."""
    from kafkalog.tables.datasets.schemas import STATE_SCHEMAS
    from kafkalog.tables.schemas import SCHEMAS, table_schema

    if isinstance(table, StateTable):
        names = list(STATE_SCHEMAS[table].names)
        return names, names
    return list(table_schema(table).names), list(SCHEMAS[table].names)


class _StoppedError(Exception):
    """A statement was stopped while a table was being read for it."""


class _Result:
    """The result of a statement, fetched by a thread: this one stays free for an interrupt."""

    def __init__(
        self, cursor: Any, text: str, failures: list[BaseException], stop: threading.Event
    ) -> None:
        self._stop = stop
        self._cursor = cursor
        self._text = text
        self._failures = failures
        self._is_closed = False
        self._found: queue.Queue[Any] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._fetch, name="kafkalog-sql", daemon=True)

    def schema(self) -> Any:
        """Start the statement, and wait for its columns; None if it has no result."""
        self._thread.start()
        return self._next()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows; closing stops the statement."""
        try:
            while (batch := self._next()) is not None:
                yield from zip(*map(_values, batch.columns), strict=True)
        finally:
            self.close()

    def close(self) -> None:
        """Stop the statement, and wait for its thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop.set()
        self._cursor.interrupt()
        # It may wait for room in the queue.
        while self._thread.is_alive():
            with suppress(queue.Empty):
                self._found.get(timeout=0.05)
        self._stop.clear()
        with suppress(Exception):
            self._cursor.close()

    def _next(self) -> Any:
        found = self._found.get()
        if isinstance(found, BaseException):
            raise self._error(found) from found
        return found

    def _fetch(self) -> None:
        try:
            relation = self._cursor.sql(self._text)
            if relation is not None:
                reader = relation.to_arrow_reader(_ROWS)
                self._found.put(reader.schema)
                for batch in reader:
                    self._found.put(batch)
            self._found.put(None)
        except BaseException as raised:  # noqa: BLE001 # it is raised in the other thread
            self._found.put(raised)

    def _error(self, raised: BaseException) -> BaseException:
        """Return what to raise: the failure of a table, or what DuckDB says."""
        import duckdb

        if self._failures:
            return self._failures[0]
        if isinstance(raised, duckdb.OutOfMemoryException):
            return OutOfMemoryError(
                f"The query needs more memory: {_words(raised)[0]}.",
                hint="--memory-limit 4GiB gives it more.",
            )
        return _usage_error(raised) if isinstance(raised, duckdb.Error) else raised


def _parsed(text: str) -> list[Statement]:
    import duckdb

    return [Statement(one.query) for one in duckdb.extract_statements(text)]


def _with_quoted_offsets(text: str) -> Iterator[str]:
    """Yield the text with `offset` in quotes: everywhere, or everywhere but at the end."""
    import duckdb

    data = text.encode()
    places = [
        at
        for at, kind in duckdb.tokenize(text)
        if kind == duckdb.token_type.keyword and data[at : at + 6].lower() == _KEYWORD
    ]
    for chosen in (places, places[:-1]):
        if chosen:
            ends = [*chosen[1:], len(data)]
            parts = (b'"offset"' + data[at + 6 : end] for at, end in zip(chosen, ends, strict=True))
            yield b"".join(chain([data[: chosen[0]]], parts)).decode()


def _usage_error(raised: BaseException) -> KafkaLogError:
    import duckdb

    message, hint = _words(raised)
    if isinstance(raised, duckdb.PermissionException):
        hint = "A query reads PATH only: no other files, no network."
    elif isinstance(raised, duckdb.CatalogException) and "Table with name" in message:
        hint = f"There are {', '.join(TABLES)}."
    elif "Malformed JSON" in message:
        hint = "--value-format json makes what is no JSON NULL, and so does TRY_CAST(… AS JSON)."
    return UsageError(f"{message}.", hint=hint)


def _words(raised: BaseException) -> tuple[str, str | None]:
    """Return what an error of DuckDB says, and the line with its suggestion."""
    lines = [line.strip() for line in str(raised).split("\n")]
    told = [line for line in lines[1:] if line.startswith(("Did you mean", "Candidate bindings"))]
    return lines[0].rstrip(".! ") or type(raised).__name__, told[0] if told else None


def _values(column: Any) -> list[Any]:
    """Return the values of an Arrow column: whole numbers as such, maps as dicts."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_decimal(column.type) and column.type.scale == 0:
        return [None if one is None else int(one) for one in column.to_pylist()]
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # a time that Python does not have
        values = column.cast(pa.string()).to_pylist()
    return values
