"""Queries whose aggregates tasks can begin: the query over what they return.

Only what surely means the same is rewritten; every other query is left to Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from kafkalog.spark.aggregates import Aggregation
from kafkalog.tables.model import TableName
from kafkalog.tables.schemas import SCHEMAS, table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.spark.aggregates import Condition

VIEW: Final = "_kafkalog_aggregates"
"""The view of what tasks return."""
_SELECT: Final = re.compile(r"\s*select\b", re.IGNORECASE)
_CLAUSES: Final = {"expressions", "from_", "where", "group", "having", "order", "limit"}
_KINDS: Final[dict[type[exp.Expression], str]] = {
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
}
_COMPARISONS: Final[dict[Any, tuple[str, str]]] = {
    exp.EQ: ("=", "="), exp.NEQ: ("!=", "!="), exp.LT: ("<", ">"), exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"), exp.GTE: (">=", "<="),
}  # fmt: skip
"""What it is called with the column on the left, and on the right."""
_OUTSIDE: Final = (
    exp.Select, exp.From, exp.Table, exp.TableAlias, exp.Identifier, exp.Column, exp.Alias,
    exp.Literal, exp.Neg, exp.Null, exp.Boolean, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div,
    exp.Mod, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.And, exp.Or, exp.Not, exp.Is,
    exp.In, exp.Between, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Coalesce,
    exp.Round, exp.Case, exp.If,
)  # fmt: skip
"""What may stand around aggregates: it means the same of their sums."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?)?")
_MICROSECOND: Final = timedelta(microseconds=1)


class _OtherError(Exception):
    """It is left to Spark."""


@dataclass(frozen=True, slots=True)
class TwoSteps:
    """A query in two steps.

    Attributes:
        table: the table that tasks read.
        first: what they return.
        query: the query over that, as the view `VIEW`.
    """

    table: TableName
    first: Aggregation
    query: str


def two_steps(query: str, *, text: bool, in_utc: bool) -> TwoSteps | None:
    """Return a query that Spark accepts in two steps; None if tasks can do nothing of it.

    Args:
        query: the query.
        text: whether keys and values of records are text.
        in_utc: whether times without a zone are in UTC.
    """
    if not _SELECT.match(query) or "\\" in query:
        return None
    try:
        return _Rewriting(sqlglot.parse_one(query, dialect="spark"), text, in_utc).done()
    except (SqlglotError, _OtherError, RecursionError):
        return None


class _Rewriting:
    def __init__(self, select: Any, text: bool, in_utc: bool) -> None:  # both named
        if not isinstance(select, exp.Select):
            raise _OtherError
        if {name for name, value in select.args.items() if value} - _CLAUSES:
            raise _OtherError
        self._select = select
        self._in_utc = in_utc
        self._table, self._names = _table_of(select)
        self._schema = table_schema(self._table, SCHEMAS[self._table].names, text=text)
        self._measures: list[tuple[str, str | None]] = []

    def done(self) -> TwoSteps:
        where = self._select.args.get("where")
        condition = None if where is None else self._condition(where.this)
        self._select.set("where", None)
        groups = self._groups()
        for node in [*self._aggregates(self._select)]:
            node.replace(self._again(node))
        self._require_known(groups)
        if not groups and not self._measures:
            raise _OtherError
        source = self._select.find(exp.Table)
        assert source is not None, "see _table_of"
        alias = source.alias_or_name
        source.replace(exp.alias_(exp.to_table(VIEW), alias, table=True))
        first = Aggregation(tuple(groups), tuple(self._measures), condition)
        return TwoSteps(self._table, first, self._select.sql(dialect="spark"))

    def _groups(self) -> list[str]:
        group = self._select.args.get("group")
        if group is None:
            return []
        if {name for name, value in group.args.items() if value} - {"expressions"}:
            raise _OtherError
        found = []
        for one in group.expressions:
            if isinstance(one, exp.Literal) and not one.is_string:  # `GROUP BY 1`
                chosen = self._select.expressions[int(one.this) - 1]
                one = chosen.this if isinstance(chosen, exp.Alias) else chosen
            name = self._column(one)
            if pa.types.is_nested(self._schema.field(name).type):
                raise _OtherError
            found.append(name)
        return list(dict.fromkeys(found))

    def _aggregates(self, node: exp.Expression) -> Iterator[exp.Expression]:
        if type(node) in _KINDS:
            yield node
            return
        if not isinstance(node, _OUTSIDE):
            raise _OtherError
        for one in node.iter_expressions():
            yield from self._aggregates(one)

    def _again(self, node: exp.Expression) -> Any:
        """Return what joins the measures of an aggregate."""
        kind, given = _KINDS[type(node)], node.this
        name = None
        is_row = isinstance(given, (exp.Star, exp.Literal))
        if node.expressions or (is_row and kind != "count"):
            raise _OtherError
        if not is_row:
            name = self._column(given)
            of_type = self._schema.field(name).type
            if kind != "count" and not _is_ordered(of_type):
                raise _OtherError
        measure = kind, name
        if measure not in self._measures:
            self._measures.append(measure)
        column = exp.column(f"_{self._measures.index(measure)}", quoted=True)
        if kind != "count":
            return exp.func(kind, column, dialect="spark")
        total = exp.func("sum", column, dialect="spark")
        return exp.func("coalesce", total, exp.Literal.number(0), dialect="spark")

    def _require_known(self, groups: list[str]) -> None:
        """Refuse columns that are neither groups nor, in the last clauses, aliases of the query."""
        aliases = {one.alias.lower() for one in self._select.expressions if one.alias}
        if aliases & {name.lower() for name in self._schema.names if name not in groups}:
            raise _OtherError
        for column in self._select.find_all(exp.Column):
            if column.name in {f"_{number}" for number in range(len(self._measures))}:
                continue
            is_late = column.find_ancestor(exp.Having, exp.Order) is not None
            # These clauses may name results.
            if is_late and not column.table and column.name.lower() in aliases:
                continue
            if self._column(column) not in groups:
                raise _OtherError

    def _column(self, node: Any) -> str:
        """Return the column of the table that is meant."""
        if not isinstance(node, exp.Column) or node.args.get("db"):
            raise _OtherError
        names: dict[str, str] = {name.lower(): name for name in self._schema.names}
        if node.name.lower() not in names or node.table.lower() not in self._names:
            raise _OtherError
        return names[node.name.lower()]

    def _condition(self, node: Any) -> Condition:
        kind = type(node)
        if kind is exp.Paren:
            return self._condition(node.this)
        if kind in (exp.And, exp.Or):
            word = "and" if kind is exp.And else "or"
            return [word, self._condition(node.this), self._condition(node.expression)]
        if kind is exp.Not:
            return ["not", self._condition(node.this)]
        if kind is exp.Is and isinstance(node.expression, exp.Null):
            return ["null", self._column(node.this)]
        if kind in _COMPARISONS:
            usual, reversed_ = _COMPARISONS[kind]
            if isinstance(node.this, exp.Column):
                return self._compared(usual, node.this, node.expression)
            return self._compared(reversed_, node.expression, node.this)
        if kind is exp.Between and not node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            return ["and", self._compared(">=", node.this, low),
                    self._compared("<=", node.this, high)]  # fmt: skip
        if kind is exp.In and node.expressions and not node.args.get("query"):
            name = self._column(node.this)
            return ["in", name, [self._value(name, one) for one in node.expressions]]
        name = self._column(node)
        if not pa.types.is_boolean(self._schema.field(name).type):
            raise _OtherError
        return ["=", name, True]

    def _compared(self, word: str, column: Any, value: Any) -> Condition:
        name = self._column(column)
        return [word, name, self._value(name, value)]

    def _value(self, name: str, node: Any) -> Any:
        """Return a constant of the type of a column."""
        kind = self._schema.field(name).type
        if pa.types.is_boolean(kind) and isinstance(node, exp.Boolean):
            return bool(node.this)
        if pa.types.is_timestamp(kind) and self._in_utc:
            return _microseconds(node)
        if isinstance(node, exp.Literal) and node.is_string and pa.types.is_string(kind):
            return str(node.this)
        sign = -1 if isinstance(node, exp.Neg) else 1
        number = node.this if isinstance(node, exp.Neg) else node
        if not pa.types.is_integer(kind) or not isinstance(number, exp.Literal):
            raise _OtherError
        if number.is_string or not re.fullmatch("[0-9]{1,18}", number.this):
            raise _OtherError
        value = sign * int(number.this)
        if not -(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1):
            raise _OtherError
        return value


def _table_of(select: exp.Select) -> tuple[TableName, set[str]]:
    """Return the only table of a query, and the names that may stand before its columns."""
    source: Any = select.args["from_"].this if select.args.get("from_") else None
    is_plain = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
    if not is_plain or {name for name, value in source.args.items() if value} - {"this", "alias"}:
        raise _OtherError
    alias = source.args.get("alias")
    if source.name.lower() not in list(TableName) or (alias and alias.args.get("columns")):
        raise _OtherError
    return TableName(source.name.lower()), {"", source.alias_or_name.lower()}


def _is_ordered(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_string, pa.types.is_binary)
    return any(test(kind) for test in tests)


def _microseconds(node: Any) -> int:
    """Return a time, given as a text or `TIMESTAMP '…'`, without a zone."""
    if isinstance(node, exp.Cast) and node.to.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ):
        node = node.this
    if not isinstance(node, exp.Literal) or not node.is_string or not _TIME.fullmatch(node.this):
        raise _OtherError
    try:
        moment = datetime.fromisoformat(node.this).replace(tzinfo=UTC)
    except ValueError:
        raise _OtherError from None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND
