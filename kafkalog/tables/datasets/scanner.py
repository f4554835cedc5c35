"""A read of some columns and rows of a table, shaped like `pyarrow.dataset.Scanner`."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from kafkalog.errors import UsageError
from kafkalog.io.paths import file_system
from kafkalog.log.columns.arrow import table_of_arrays, text_of
from kafkalog.tables import plan_splits, read_split
from kafkalog.tables.datasets.conditions import (
    Condition,
    all_of,
    matching,
    projected,
    side_of,
    used_columns,
)
from kafkalog.tables.model import Bounds, Request, Split, TableName
from kafkalog.tables.planning import meant_names
from kafkalog.tables.reading import ROWS_AT_ONCE, constants_of, count_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.tables.datasets.arrow_dataset import Dataset

_NAMES: Final = ("topic", "partition")


class Scanner:
    """Some columns of the rows that match a filter, read on demand, and again each time.

    Attributes:
        dataset_schema: all columns of the table.
        projected_schema: those that are returned.
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        condition: Any = None,
        batch_size: int | None = None,
        splits: Sequence[Split] | None = None,
    ) -> None:
        self._dataset = dataset
        self._tables = dataset.tables
        self._batch_size = batch_size or ROWS_AT_ONCE
        self._splits = splits
        self.dataset_schema: Any = dataset.schema
        self._condition = None
        if condition is not None:
            self._condition = Condition(condition, self.dataset_schema)
        self._expressions: dict[str, Any] | None = None
        names = self.dataset_schema.names
        if columns is None:
            self._columns = names
        elif hasattr(columns, "items"):
            self._expressions = dict(columns.items())
            used = {n for one in self._expressions.values() for n in self._used(one)}
            self._columns = [name for name in names if name in used]
        else:
            self._columns = list(columns)
        for name in self._columns:
            if name not in names:
                raise UsageError(
                    f"The table {dataset.table} has no column {name!r}.",
                    hint=f"There are {', '.join(names)}.",
                )
        self._schema = pa.schema([self.dataset_schema.field(name) for name in self._columns])
        self.projected_schema: Any = self._schema
        if self._expressions is not None:
            self.projected_schema = self._projected(_empty(self._schema)).schema

    def to_batches(self) -> Iterator[Any]:
        """Yield the rows as `pyarrow.RecordBatch`es, in bounded memory.

        Raises:
            CorruptDataError, UnreadableError: something is damaged, unless a listener takes it.
            KafkaLogError: as `kafkalog.tables.plan_splits`.
        """
        for batch in self._batches():
            found = batch if self._expressions is None else self._projected(batch)
            for first in range(0, found.num_rows, self._batch_size):
                yield found.slice(first, self._batch_size)

    def to_reader(self) -> Any:
        """Return the rows as a `pyarrow.RecordBatchReader`; it can be read once."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> Any:
        """Return all rows as one `pyarrow.Table` in memory."""
        return _table(self.to_batches(), self.projected_schema)

    def head(self, num_rows: int) -> Any:
        """Return the first rows as a `pyarrow.Table`; no more is read than they need."""
        return _table(_first(self.to_batches(), num_rows), self.projected_schema)

    def take(self, indices: Any) -> Any:
        """Return the rows of these ordinals, in this order, as a `pyarrow.Table`."""
        wanted = pa.array(indices, pa.int64())
        last = max(wanted.to_pylist(), default=-1)
        return self.head(last + 1).take(wanted)

    def count_rows(self) -> int:
        """Return the number of rows; of records it is counted by batch headers where possible."""
        return sum(batch.num_rows for batch in self._batches([]))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _used(self, expression: Any) -> tuple[str, ...]:
        return used_columns(expression.is_valid(), self.dataset_schema)

    def _projected(self, batch: Any) -> Any:
        assert self._expressions is not None, "it is called only with them"
        return projected(batch, list(self._expressions.values()), list(self._expressions))

    def _batches(self, columns: list[str] | None = None) -> Iterator[Any]:
        columns = self._columns if columns is None else columns
        schema = pa.schema([self.dataset_schema.field(name) for name in columns])
        if not isinstance(self._dataset.table, TableName):
            from kafkalog.tables.datasets.state_tables import read_state

            batches = read_state(self._dataset.table, self._tables)
            for batch in batches:
                yield self._chosen(batch, schema, self._condition)
            return
        splits = self.planned_splits()
        for split, is_whole in zip(splits, self._taken_whole(splits), strict=True):
            self._tables.before_each()
            yield from self._read(split, schema, None if is_whole else self._condition)

    def _chosen(self, batch: Any, schema: Any, condition: Condition | None) -> Any:
        found = batch if condition is None else matching(batch, condition.expression)
        arrays = [found.column(name) for name in schema.names]
        return table_of_arrays(arrays, found.num_rows, schema)

    def planned_splits(self) -> Sequence[Split]:
        """Return the splits that can have matching rows."""
        if self._splits is None:
            with file_system.listings_held(self._tables.paths):
                found = plan_splits(
                    self._tables.paths,
                    self._request(),
                    self._tables.listener,
                    before_each=self._tables.before_each,
                )
        else:
            found = list(self._splits)
        if self._condition is None or not found:
            return found
        can = self._condition.can_match([guarantee_of(one) for one in found])
        return [one for one, is_possible in zip(found, can, strict=True) if is_possible]

    def _request(self) -> Request:
        assert isinstance(self._dataset.table, TableName), "else there are no splits"
        request = replace(self._tables.request(self._dataset.table), gaps_when_read=True)
        if self._condition is None:
            return request
        bounds = request.bounds
        if set(_NAMES) & set(self._condition.columns):
            bounds = self._named(bounds, request)
        return replace(request, bounds=self._condition.bounds(request.table, bounds))

    def _named(self, bounds: Bounds, request: Request) -> Bounds:
        """Return the bounds, with the topics and partitions that the filter can match."""
        assert self._condition is not None, "else nothing is narrowed"
        names = sorted(meant_names(self._tables.paths, request), key=str)
        if not names:
            return bounds
        guarantees = [_is_partition(topic, number) for topic, number in names]
        can = self._condition.can_match(guarantees)
        left = [name for name, is_possible in zip(names, can, strict=True) if is_possible]
        numbers = {number for _, number in left if number is not None}
        is_numbered = all(number is not None for _, number in left)
        return replace(
            bounds,
            topics=frozenset(topic for topic, _ in left),
            partitions=frozenset(numbers) if is_numbered else bounds.partitions,
        )

    def _taken_whole(self, splits: Sequence[Split]) -> list[bool]:
        if self._condition is None or not splits:
            return [True] * len(splits)
        return self._condition.always_matches([guarantee_of(one) for one in splits])

    def _read(self, split: Split, schema: Any, condition: Condition | None) -> Iterator[Any]:
        """Yield the matching rows of a split; constants need no reading."""
        names = schema.names
        if condition is not None:
            names = list(dict.fromkeys([*names, *condition.columns]))
            if len(condition.columns) == len(self.dataset_schema):
                names = self.dataset_schema.names  # it may name columns by number
        constants = constants_of(split)
        wanted = pa.schema([self.dataset_schema.field(name) for name in names])
        if (
            condition is None
            and split.table == TableName.RECORDS
            and constants.keys() >= set(names)
        ):
            yield from self._counted(split, wanted, constants)
            return
        typed = self._dataset.typed
        plain = pa.schema([self.dataset_schema.field(name) for name in typed.bytes_for(names)])
        batches = read_split(split, plain, self._tables.reader, threads=self._tables.threads)
        for read in batches:
            for batch in [read] if plain == wanted else typed.added(read, wanted):
                yield batch if condition is None else self._chosen(batch, schema, condition)

    def _counted(self, split: Split, schema: Any, constants: Mapping[str, object]) -> Iterator[Any]:
        """Yield rows of constants: as many as the split has records."""
        counts = count_split(split, self._tables.reader, threads=self._tables.threads)
        whole = None  # to make one takes longer than to count a small log
        left = 0
        for count in counts:
            left += count
            while left >= ROWS_AT_ONCE:
                whole = whole or _repeated(ROWS_AT_ONCE, schema, constants)
                yield whole
                left -= ROWS_AT_ONCE
        yield _repeated(left, schema, constants)


def _repeated(count: int, schema: Any, constants: Mapping[str, object]) -> Any:
    arrays = [pa.repeat(pa.scalar(constants[field.name], field.type), count) for field in schema]
    return table_of_arrays(arrays, count, schema)


def guarantee_of(split: Split) -> Any:
    """Return what is true of each row of a split."""
    conditions = [ds.field(name) == value for name, value in constants_of(split).items()]
    if split.table == TableName.RECORDS:
        for names, lower, upper in (
            (("offset",), split.from_offset, split.to_offset),
            (("timestamp", "timestamp_ms"), split.from_time, split.to_time),
        ):
            if lower is not None:
                conditions.append(side_of(names, lower, below=False))
            if upper is not None:
                conditions.append(side_of(names, upper, below=True))
    return all_of(conditions)


def _is_partition(topic: str, number: int | None) -> Any:
    return (ds.field("topic") == text_of(topic)) & (
        ds.field("partition") == (-1 if number is None else number)
    )


def _empty(schema: Any) -> Any:
    return pa.RecordBatch.from_pylist([], schema)


def _table(batches: Iterator[Any], schema: Any) -> Any:
    if schema.names:
        return pa.Table.from_batches(batches, schema)
    # A table without columns would forget how many rows it has.
    count = sum(batch.num_rows for batch in batches)
    return pa.table({"": pa.nulls(count)}).select([])


def _first(batches: Iterator[Any], count: int) -> Iterator[Any]:
    while count > 0 and (some := next(islice(batches, 1), None)) is not None:
        yield some.slice(0, count)
        count -= some.num_rows
