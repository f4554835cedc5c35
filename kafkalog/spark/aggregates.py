"""Tasks that count, and find the least and greatest values, instead of giving all rows to Spark.

A row costs Spark more than reading it. `kafkalog.spark.rewriting` finds the queries that need only
what this source returns: for each group of each split, one row.
"""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema  # public ways need a JVM

from kafkalog.spark.job import settle
from kafkalog.spark.offsets import bounds_of
from kafkalog.spark.options import parse_options
from kafkalog.spark.plans import PLANS, tasks_in
from kafkalog.spark.reading import hearers_of, joined_tasks
from kafkalog.spark.source import SplitPartition, TableReader
from kafkalog.tables.model import TableName
from kafkalog.tables.reading import constants_of, count_split, read_split
from kafkalog.tables.schemas import table_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql.types import StructType

    from kafkalog.spark.options import SourceOptions
    from kafkalog.tables import Split

OPTION: Final = "aggregates"
AT_ONCE: Final = "tasksatonce"
_GROUPS_MAX: Final = 1 << 16
"""So many groups wait for more of their rows."""
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_FILTERS: Final = {
    "=": EqualTo, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan,
    ">=": GreaterThanOrEqual, "in": In,
}  # fmt: skip
_AGAIN: Final = {"count": "sum", "min": "min", "max": "max"}

Condition = list[Any]
"""`[COMPARISON, column, value]`, `["in", column, values]`, `["null", column]`, or other conditions
after "not", "and", "or"; times are microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """What tasks return instead of rows.

    Attributes:
        groups: the columns whose values a row is for.
        measures: "count", "min" or "max", and of which column; None for rows. They become the
            columns `_0`, `_1` and so on.
        condition: which rows count; None for all.
    """

    groups: tuple[str, ...]
    measures: tuple[tuple[str, str | None], ...]
    condition: Condition | None = None

    @property
    def columns(self) -> list[str]:
        """What is read."""
        found = [*self.groups, *(name for _, name in self.measures if name is not None)]
        return list(dict.fromkeys([*found, *_columns_of(self.condition)]))

    def as_json(self) -> str:
        """Return the text of the option."""
        return json.dumps([self.groups, self.measures, self.condition])

    @classmethod
    def of_json(cls, text: str) -> Aggregation:
        """Return what `as_json` gave."""
        groups, measures, condition = json.loads(text)
        return cls(tuple(groups), tuple((kind, name) for kind, name in measures), condition)

    def schema(self, rows: Any) -> Any:
        """Return the Arrow schema of what tasks return, given that of the rows."""
        measured = [
            pa.field(f"_{number}", pa.int64() if kind == "count" else rows.field(name).type)
            for number, (kind, name) in enumerate(self.measures)
        ]
        return pa.schema([*(rows.field(name) for name in self.groups), *measured])

    def chosen(self, rows: Any) -> Any:
        """Return the rows of a table that count."""
        if self.condition is None:
            return rows
        return rows.filter(_expression(self.condition, rows.schema))

    def of_rows(self, rows: Any, schema: Any) -> Any:
        """Aggregate a table of rows that count."""
        wanted = [
            ([] if name is None else name, "count_all" if name is None else kind)
            for kind, name in self.measures
        ]
        made = rows.group_by([*self.groups], use_threads=False).aggregate(wanted)
        found = {name: made[name] for name in self.groups}
        for number, (kind, name) in enumerate(self.measures):
            found[f"_{number}"] = made["count_all" if name is None else f"{name}_{kind}"]
        return pa.table([found[one.name].cast(one.type) for one in schema], schema=schema)

    def joined(self, parts: Any, schema: Any) -> Any:
        """Aggregate what `of_rows` returned."""
        wanted = [(f"_{number}", _AGAIN[kind]) for number, (kind, _) in enumerate(self.measures)]
        made = parts.group_by([*self.groups], use_threads=False).aggregate(wanted)
        found = {name: made[name] for name in self.groups}
        found |= {name: made[f"{name}_{kind}"] for name, kind in wanted}
        return pa.table([found[one.name] for one in schema], schema=schema)


def _columns_of(condition: Condition | None) -> Iterator[str]:
    if condition is None:
        return
    kind, *rest = condition
    if kind in ("and", "or", "not"):
        for one in rest:
            yield from _columns_of(one)
    else:
        yield rest[0]


def _expression(condition: Condition, schema: Any) -> Any:
    """Return a condition for Arrow, which knows the three truth values of SQL."""
    kind, *rest = condition
    if kind == "not":
        return ~_expression(rest[0], schema)
    if kind in ("and", "or"):
        join = operator.and_ if kind == "and" else operator.or_
        return reduce(join, (_expression(one, schema) for one in rest))
    column, field = pc.field(rest[0]), schema.field(rest[0])
    if kind == "null":
        return column.is_null()
    if kind == "in":  # `isin` takes an unknown value for a known one
        each = (column == pa.scalar(value, field.type) for value in rest[1])
        return reduce(operator.or_, each)
    return _COMPARISONS[kind](column, pa.scalar(rest[1], field.type))


def _filters(condition: Condition | None, schema: Any) -> Iterator[Any]:
    """Yield the filters that Spark would push down: they all must hold."""
    kind, *rest = condition or ["and"]
    if kind == "and":
        for one in rest:
            yield from _filters(one, schema)
    elif kind in _FILTERS:
        column, value = rest
        if pa.types.is_timestamp(schema.field(column).type):
            if kind == "in":
                return
            value = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        yield _FILTERS[kind]((column,), tuple(value) if kind == "in" else value)


class AggregatingDataSource(DataSource):
    """The data source for the first of two steps; users have no need of it."""

    @classmethod
    def name(cls) -> str:
        return "kafkalog_aggregates"

    def _asked(self) -> tuple[SourceOptions, Aggregation]:
        own = (OPTION, AT_ONCE, PLANS)
        others = {name: value for name, value in self.options.items() if name.lower() not in own}
        return parse_options(others), Aggregation.of_json(self.options[OPTION])

    def schema(self) -> StructType:
        """Return the groups and the measures."""
        asked, wanted = self._asked()
        rows = table_schema(asked.request.table, wanted.columns, text=asked.as_text)
        return from_arrow_schema(wanted.schema(rows))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the table that the condition narrows."""
        del schema  # a user's own
        at_once = self.options.get(AT_ONCE)
        plans = self.options.get(PLANS)
        return _Reader(*self._asked(), None if at_once is None else int(at_once), plans)


def narrowed(asked: SourceOptions, wanted: Aggregation) -> SourceOptions:
    """Return the options of a read, with what the condition says of the rows."""
    rows = _rows_of(asked, wanted)
    bounds = bounds_of(_filters(wanted.condition, rows), asked.request.bounds)
    return replace(asked, request=replace(asked.request, bounds=bounds))


def _rows_of(asked: SourceOptions, wanted: Aggregation) -> Any:
    return table_schema(asked.request.table, wanted.columns or ["partition"], text=asked.as_text)


class _Reader(TableReader):
    def __init__(
        self, asked: SourceOptions, wanted: Aggregation, at_once: int | None, plans: str | None
    ) -> None:
        self._wanted = wanted
        self._at_once = None if asked.tasks_min or asked.records_max else at_once
        super().__init__(narrowed(asked, wanted), _rows_of(asked, wanted), plans)

    def partitions(self) -> list[InputPartition]:
        """Return the tasks: fewer than for rows, unless the options say how many."""
        tasks = tasks_in(self._plans, self._asked)
        if self._at_once is not None:
            tasks = joined_tasks(tasks, self._at_once)
        return [SplitPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the groups of one task."""
        assert isinstance(partition, SplitPartition), "one of ours"
        settle(self._asked.paths)
        schema = self._wanted.schema(self._schema)
        parts = (part for split in partition.splits for part in self._parts(split, schema))
        for table in _together(parts, lambda part: self._wanted.joined(part, schema)):
            yield from table.to_batches()

    def _parts(self, split: Split, schema: Any) -> Iterator[Any]:
        hearers = hearers_of(self._asked, split)
        constants = constants_of(split)
        if split.table != TableName.RECORDS or not constants.keys() >= {*self._wanted.columns}:
            for batch in read_split(split, self._schema, **hearers):
                rows = self._wanted.chosen(pa.Table.from_batches([batch]))
                if rows.num_rows:
                    yield self._wanted.of_rows(rows, schema)
            return
        one = self._wanted.chosen(pa.Table.from_pylist([constants], self._schema))
        if one.num_rows and (count := sum(count_split(split, **hearers))):
            yield _times(self._wanted.of_rows(one, schema), count, self._wanted)


def _times(part: Any, count: int, wanted: Aggregation) -> Any:
    """Return the aggregates of so many rows that are all alike."""
    for number, (kind, _) in enumerate(wanted.measures):
        if kind == "count":
            name = f"_{number}"
            column = pc.multiply(part[name], count)
            part = part.set_column(
                part.schema.get_field_index(name), part.schema.field(name), column
            )
    return part


def _together(parts: Iterable[Any], join: Callable[[Any], Any]) -> Iterator[Any]:
    """Join parts while they have few groups."""
    waiting = None
    for part in parts:
        waiting = part if waiting is None else join(pa.concat_tables([waiting, part]))
        if waiting.num_rows > _GROUPS_MAX:
            yield waiting
            waiting = None
    if waiting is not None:
        yield waiting
