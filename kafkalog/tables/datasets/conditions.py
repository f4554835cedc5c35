"""What a filter on rows allows: which places it rules out, and which it accepts as a whole.

Arrow itself decides: it simplifies an expression under a guarantee, as it does for the partitions
of its own datasets. So any expression is a filter here, and an unusual one rules out less.
"""

from __future__ import annotations

from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from kafkalog.errors import UsageError
from kafkalog.tables.model import Bounds, TableName
from kafkalog.tables.schemas import MILLISECONDS_MAX, TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OFFSET_MAX: Final = (1 << 63) - 1
_WAYS: Final = 16  # numbers that one question to Arrow is about
_NO_FILES: Final = LocalFileSystem()
_NO_FORMAT: Final = ds.IpcFileFormat()  # fragments need one, and are never opened


class Condition:
    """A filter on the rows of a table.

    Args:
        expression: a `pyarrow.compute.Expression`; rows for which it is null do not match.
        schema: all columns of the table.

    Raises:
        UsageError: it does not fit the columns.
    """

    def __init__(self, expression: Any, schema: Any) -> None:
        self.expression = expression
        self._schema = schema
        if not _fits(expression, schema):
            _evaluate(expression, schema)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return used_columns(self.expression, self._schema)

    def can_match(self, guarantees: Sequence[Any]) -> list[bool]:
        """Return whether a row can match of which a guarantee is true, for each of them."""
        return _satisfiable(self.expression, guarantees, self._schema)

    def always_matches(self, guarantees: Sequence[Any]) -> list[bool]:
        """Return whether each row matches of which a guarantee is true, for each of them."""
        fails = ~self.expression | pc.is_null(self.expression)
        return [not one for one in _satisfiable(fails, guarantees, self._schema)]

    def bounds(self, table: TableName, bounds: Bounds) -> Bounds:
        """Return bounds narrowed to what can match, by offset and time."""
        columns = _BOUNDS.get(table)
        if columns is None:
            return bounds
        narrowed: dict[str, int | None] = {}
        for side, (names, below, least, most) in columns.items():
            if not set(names) & set(self.columns):
                continue
            find = _lower if below else _upper
            found = find(self._rules_out(names, below=below), least, most)
            given = getattr(bounds, side)
            if given is not None:
                found = given if found is None else (max if below else min)(given, found)
            narrowed[side] = found
        return Bounds(**{**{name: getattr(bounds, name) for name in bounds.__slots__}, **narrowed})

    def _rules_out(
        self, names: Sequence[str], *, below: bool
    ) -> Callable[[Sequence[int]], list[bool]]:
        """Return a function: whether no row below, or from, each of some numbers can match."""

        def rules_out(numbers: Sequence[int]) -> list[bool]:
            return [not one for one in self.can_match([side_of(names, n, below=below)
                                                       for n in numbers])]  # fmt: skip

        return rules_out


def side_of(names: Sequence[str], number: int, *, below: bool) -> Any:
    """Return the guarantee that some columns are below a number, or not below it."""
    conditions = []
    for name in names:
        column = ds.field(name)
        value: Any = pa.scalar(number, pa.int64())
        if name == "timestamp":  # null where microseconds would overflow
            value = pa.scalar(number * 1000, TIME)
            is_there = column < value if below else column >= value
            conditions.append(is_there | column.is_null())
        else:
            conditions.append(column < value if below else column >= value)
    return all_of(conditions)


def all_of(conditions: Sequence[Any]) -> Any:
    """Return the conjunction of some conditions."""
    return reduce(and_, conditions, pc.scalar(True))


_TIMES: Final = ("timestamp", "timestamp_ms")
# Side of the bounds: columns, whether it is a lower one, least and largest number.
_BOUNDS: Final[dict[TableName, dict[str, tuple[tuple[str, ...], bool, int, int]]]] = {
    TableName.RECORDS: {
        "from_offset": (("offset",), True, 0, _OFFSET_MAX),
        "to_offset": (("offset",), False, 0, _OFFSET_MAX),
        "from_time": (_TIMES, True, -MILLISECONDS_MAX, MILLISECONDS_MAX),
        "to_time": (_TIMES, False, -MILLISECONDS_MAX, MILLISECONDS_MAX),
    },
    TableName.BATCHES: {
        "from_offset": (("base_offset", "last_offset"), True, 0, _OFFSET_MAX),
        "to_offset": (("base_offset", "last_offset"), False, 0, _OFFSET_MAX),
        "from_time": (("max_timestamp",), True, -MILLISECONDS_MAX, MILLISECONDS_MAX),
    },
}


def _lower(rules_out: Callable[[Sequence[int]], list[bool]], least: int, most: int) -> int | None:
    """Return the largest number below which nothing can match; None if that is below `least`."""
    if not rules_out([least])[0]:
        return None
    while least < most:
        tried = _between(least, most)
        out = rules_out(tried)
        count = out.index(False) if False in out else len(out)
        least, most = (
            tried[count - 1] if count else least,
            tried[count] - 1 if count < len(tried) else most,
        )
    return least


def _upper(rules_out: Callable[[Sequence[int]], list[bool]], least: int, most: int) -> int | None:
    """Return the smallest number from which on nothing can match; None if it is above `most`."""
    if not rules_out([most])[0]:
        return None
    while least < most:
        tried = _between(least - 1, most - 1)
        out = rules_out(tried)
        count = out.index(True) if True in out else len(out)
        least, most = (
            tried[count - 1] + 1 if count else least,
            tried[count] if count < len(tried) else most,
        )
    return most


def _between(low: int, high: int) -> list[int]:
    """Return some numbers above `low` up to `high`, evenly spread and ascending."""
    steps = min(_WAYS, high - low)
    return [low + (high - low) * (i + 1) // steps for i in range(steps)]


def _satisfiable(expression: Any, guarantees: Sequence[Any], schema: Any) -> list[bool]:
    names = [str(i) for i in range(len(guarantees))]
    places = ds.FileSystemDataset.from_paths(
        names, schema, _NO_FORMAT, _NO_FILES, partitions=list(guarantees)
    )
    left = {fragment.path for fragment in places.get_fragments(expression)}
    return [name in left for name in names]


def used_columns(expression: Any, schema: Any) -> tuple[str, ...]:
    """Return the columns that an expression looks at; all of them if it names one by number."""
    if "FieldPath(" in str(expression):
        return tuple(schema.names)
    return tuple(
        name
        for number, name in enumerate(schema.names)
        if not _fits(expression, schema.remove(number))
    )


def _fits(expression: Any, schema: Any) -> bool:
    try:
        _evaluate(expression, schema)
    except UsageError:  # Arrow does not list the columns of an expression: it fails without one
        return False
    return True


def _evaluate(expression: Any, schema: Any) -> None:
    """Raise `UsageError` if an expression cannot be a filter on these columns."""
    try:
        ds.InMemoryDataset(schema.empty_table()).scanner(filter=expression)
    # An unknown column, types that no function takes, something that is no expression.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as error:
        words = str(error).partition("\n")[0].rstrip(".")
        raise UsageError(f"This is no filter on these columns: {words}.") from error


def matching(batch: Any, expression: Any) -> Any:
    """Return the rows of a record batch that match, in their order."""
    options = acero.FilterNodeOptions(expression)
    return _result(batch, acero.Declaration("filter", options))


def projected(batch: Any, expressions: Sequence[Any], names: Sequence[str]) -> Any:
    """Return a record batch of computed columns."""
    options = acero.ProjectNodeOptions(list(expressions), list(names))
    return _result(batch, acero.Declaration("project", options))


def _result(batch: Any, node: Any) -> Any:
    source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    steps = acero.Declaration.from_sequence([acero.Declaration("table_source", source), node])
    table = steps.to_table(use_threads=False).combine_chunks()
    found = table.to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], table.schema)
