"""A table of log directories, shaped like `pyarrow.dataset.Dataset`.

DuckDB, Polars, DataFusion and pandas ask a `pyarrow.dataset.Dataset` for columns and for rows that
match an expression. This one has nothing of Arrow's own datasets underneath: every method of theirs
is defined here, or refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafkalog.errors import UsageError
from kafkalog.tables.datasets.scanner import Scanner, guarantee_of
from kafkalog.tables.datasets.schemas import dataset_schema
from kafkalog.tables.datasets.typed import TypedColumns
from kafkalog.tables.model import Split, TableName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.tables.datasets.model import StateTable, Tables


class Dataset(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """A table of some logs.

    Attributes:
        table: which table.
        tables: which logs, and how they are read.
        schema: the `pyarrow.Schema` of all columns.
        typed: what adds the typed ones.
    """

    def __init__(
        self, tables: Tables, table: TableName | StateTable, condition: Any = None
    ) -> None:
        self.tables = tables
        self.table = table
        self._condition = condition
        self.typed = TypedColumns(
            tables.typed if table == TableName.RECORDS else (), tables.typed_listener
        )
        plain = dataset_schema(table, text=tables.text)
        self._schema = pa.schema([*plain, *self.typed.fields])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tables, self.table, self._condition)

    def __repr__(self) -> str:
        paths = ", ".join(map(repr, self.tables.paths))
        return f"kafkalog.dataset({paths}, table={str(self.table)!r})"

    @property
    def schema(self) -> Any:
        """The schema of all columns."""
        return self._schema

    @property
    def partition_expression(self) -> Any:
        """What is true of all rows: nothing is known."""
        return pc.scalar(True)

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: Any = None,  # noqa: A002 # as in pyarrow
        batch_size: int | None = None,
        **_tuning: Any,
    ) -> Scanner:
        """Return a read of some columns of the rows that match an expression.

        Args:
            columns: names of columns, or names and expressions; None for all.
            filter: a `pyarrow.compute.Expression`; None for all rows.
            batch_size: maximum number of rows per record batch.
            _tuning: pyarrow's other arguments, which change no result.

        Raises:
            UsageError: a column is unknown, or the filter does not fit the columns.
        """
        return Scanner(self, columns, self._and(filter), batch_size)

    def to_batches(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Yield the rows as record batches; arguments are those of `scanner`."""
        return self.scanner(*args, **options).to_batches()

    def to_table(self, *args: Any, **options: Any) -> Any:
        """Return the rows as a `pyarrow.Table` in memory; arguments are those of `scanner`."""
        return self.scanner(*args, **options).to_table()

    def head(self, num_rows: int, *args: Any, **options: Any) -> Any:
        """Return the first rows as a `pyarrow.Table`; other arguments are those of `scanner`."""
        return self.scanner(*args, **options).head(num_rows)

    def take(self, indices: Any, *args: Any, **options: Any) -> Any:
        """Return the rows of these ordinals; other arguments are those of `scanner`."""
        return self.scanner(*args, **options).take(indices)

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # noqa: A002 # as in pyarrow
        """Return the number of rows that match."""
        return self.scanner(filter=filter, **options).count_rows()

    def filter(self, expression: Any) -> Dataset:
        """Return the dataset of the rows that match."""
        return Dataset(self.tables, self.table, self._and(expression))

    def get_fragments(self, filter: Any = None) -> Iterator[Fragment]:  # noqa: A002 # as in pyarrow
        """Yield the parts that can hold rows that match; each can be read on its own."""
        if not isinstance(self.table, TableName):
            yield Fragment(self, None)
            return
        for split in Scanner(self, condition=self._and(filter)).planned_splits():
            yield Fragment(self, split)

    def replace_schema(self, schema: Any) -> NoReturn:
        """Refuse, since the columns are those of the table."""
        _refuse("replace_schema", schema)

    def join(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse: tables are joined, or an engine does it."""
        _refuse("join", args, options)

    def join_asof(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse: tables are joined, or an engine does it."""
        _refuse("join_asof", args, options)

    def sort_by(self, *args: Any, **options: Any) -> NoReturn:
        """Refuse: tables are sorted, or an engine does it."""
        _refuse("sort_by", args, options)

    # Private to pyarrow: the methods of its own class would call these.
    def _get_fragments(self, filter: Any) -> Iterator[Fragment]:  # noqa: A002 # as in pyarrow
        return self.get_fragments(filter)

    def _scanner_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return options

    def _scan_options(self) -> dict[str, Any]:
        return {}

    def _and(self, expression: Any) -> Any:
        if self._condition is None or expression is None:
            return self._condition if expression is None else expression
        return self._condition & expression

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)


class Fragment(ds.Fragment):  # type: ignore[misc] # pyarrow ships no types
    """A part of a dataset: a stretch of one log, an index, or the small files of a partition."""

    def __init__(self, whole: Dataset, split: Split | None) -> None:
        self._whole = whole
        self._split = split

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._whole, self._split)

    def __repr__(self) -> str:
        return f"<kafkalog part of {self._whole!r}: {self._split and self._split.path!r}>"

    @property
    def physical_schema(self) -> Any:
        """The schema of all columns."""
        return self._whole.schema

    @property
    def partition_expression(self) -> Any:
        """What is true of all rows of the part."""
        return pc.scalar(True) if self._split is None else guarantee_of(self._split)

    def scanner(
        self,
        schema: Any = None,  # noqa: ARG002 # it is that of the dataset
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        filter: Any = None,  # noqa: A002 # as in pyarrow
        batch_size: int | None = None,
        **_tuning: Any,
    ) -> Scanner:
        """Return a read of the part, as `Dataset.scanner`."""
        splits = None if self._split is None else [self._split]
        condition = self._whole._and(filter)  # noqa: SLF001 # of the same module
        return Scanner(self._whole, columns, condition, batch_size, splits)

    def to_batches(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Yield the rows as record batches; arguments are those of `scanner`."""
        return self.scanner(*args, **options).to_batches()

    def to_table(self, *args: Any, **options: Any) -> Any:
        """Return the rows as a `pyarrow.Table`; arguments are those of `scanner`."""
        return self.scanner(*args, **options).to_table()

    def head(self, num_rows: int, **options: Any) -> Any:
        """Return the first rows as a `pyarrow.Table`."""
        return self.scanner(**options).head(num_rows)

    def take(self, indices: Any, **options: Any) -> Any:
        """Return the rows of these ordinals."""
        return self.scanner(**options).take(indices)

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # noqa: A002 # as in pyarrow
        """Return the number of rows that match."""
        return self.scanner(filter=filter, **options).count_rows()


def _refuse(method: str, *_arguments: Any) -> NoReturn:
    raise UsageError(
        f"{method} is not a method of logs on disk.",
        hint="to_table() loads the rows; DuckDB, Polars and DataFusion join and sort them.",
    )


class WatchedDataset(Dataset):
    """A dataset.

    Args:
        tables, table: as for `Dataset`.
        failures: gets each exception that ends a read.
    """

    def __init__(
        self, tables: Tables, table: TableName | StateTable, failures: list[BaseException]
    ) -> None:
        super().__init__(tables, table)
        self._failures = failures

    def scanner(self, *args: Any, **options: Any) -> Any:
        """Return a read whose failure is kept."""
        return _WatchedScanner(super().scanner(*args, **options), self._failures)


class _WatchedScanner:
    def __init__(self, scanner: Scanner, failures: list[BaseException]) -> None:
        self._scanner = scanner
        self._failures = failures

    def to_reader(self) -> Any:
        """Return the rows as a `pyarrow.RecordBatchReader`."""
        return pa.RecordBatchReader.from_batches(self._scanner.projected_schema, self._batches())

    def _batches(self) -> Iterator[Any]:
        try:
            yield from self._scanner.to_batches()
        except Exception as raised:  # raised again: DuckDB passes on only its words
            self._failures.append(raised)
            raise
