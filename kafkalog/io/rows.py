"""What a function lists: objects, whose attributes are the columns of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from html import escape
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypeVar, overload

from formats.late_classes import one_line, value_at
from kafkalog.errors import KafkaLogError, UnsupportedError
from kafkalog.io.wording import bytes_text, counted, printable

T = TypeVar("T")

ROW: Final = "_row"
"""Attribute of a class: the paths of its columns, `name` or `name=path.of.attributes`."""
_HTML_ROWS_MAX: Final = 50
_CELL_MAX: Final = 100
_ARROW: Final = {"int": "int64", "str": "string", "bytes": "binary", "bool": "bool_",
                 "float": "float64"}  # fmt: skip


class Rows(Sequence[T]):
    """The objects that a function lists: iterate over them, slice them, or take them as a table.

    Its columns have the names of the command line's rows. What can be large is read on demand, and
    again each time; then `len` raises a `TypeError`.

    Args:
        values: the objects, or a function that reads them.
        kind: their class.
        table: what reads them as Arrow columns, if there is a faster way than by objects.
    """

    def __init__(
        self,
        values: Iterable[T] | Callable[[], Iterator[T]],
        kind: type[T],
        *,
        table: Callable[[], Any] | None = None,
    ) -> None:
        self._read = values if callable(values) else None
        self._values = [] if callable(values) else list(values)
        self._kind = kind
        self._table = table
        self._paths = columns_of(kind)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._paths)

    def __iter__(self) -> Iterator[T]:
        return iter(self._values) if self._read is None else self._read()

    def __len__(self) -> int:
        if self._read is None:
            return len(self._values)
        raise TypeError("These rows are read on demand: `len([*rows])` reads them all.")

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def __eq__(self, other: object) -> bool:
        return [*self] == [*other] if isinstance(other, Rows | list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # as a list

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Rows[T]: ...

    def __getitem__(self, at: int | slice) -> T | Rows[T]:
        if isinstance(at, slice):
            bounds = (at.start, at.stop, at.step)
            if self._read is None or any(one is not None and one < 0 for one in bounds):
                return Rows([*self][at], self._kind)
            return Rows(lambda: islice(self, *bounds), self._kind)
        if self._read is None or at < 0:
            return [*self][at]
        for value in islice(self, at, None):
            return value
        raise IndexError(f"There is no row {at}.")

    def __repr__(self) -> str:
        amount = "read on demand" if self._read else counted(len(self._values), "row")
        return one_line(type(self).__name__, self._kind.__name__, amount, " ".join(self.columns))

    def to_dicts(self) -> list[dict[str, object]]:
        """Return a dictionary for each row."""
        return [self._plain_row(one) for one in self]

    def to_arrow(self) -> Any:
        """Return the rows as a `pyarrow.Table`.

        Raises:
            UnsupportedError: pyarrow is missing, as for pandas and Polars.
        """
        arrow = _required("pyarrow")
        if self._table is not None:
            return self._table().to_table()
        dicts = self.to_dicts()
        table = arrow.Table.from_pylist(dicts or [dict.fromkeys(self.columns)])
        for at, name in enumerate(self.columns):
            # Of a column without a value pyarrow knows no type.
            known = _ARROW.get(_annotation(self._kind, self._paths[name]))
            if known is not None and arrow.types.is_null(table.schema.field(at).type):
                table = table.set_column(at, name, table[at].cast(getattr(arrow, known)()))
        return table.slice(0, len(dicts))

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`."""
        _required("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return the rows as a `polars.DataFrame`."""
        return _required("polars").from_arrow(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Give the rows to whatever speaks Arrow's C stream protocol, such as DuckDB."""
        source = self._table() if self._table else self.to_arrow()
        return source.__arrow_c_stream__(requested_schema)

    def _plain_row(self, one: T) -> dict[str, object]:
        return {name: _plain(value_at(one, path)) for name, path in self._paths.items()}

    def _repr_html_(self) -> str:
        """Return the first rows as a table for a notebook, without columns that say nothing."""
        first = [self._plain_row(one) for one in islice(self, _HTML_ROWS_MAX + 1)]
        shown = first[:_HTML_ROWS_MAX]
        names = [name for name in self.columns if any(row[name] is not None for row in shown)]
        lines = [_html_row("th", names)]
        lines += [_html_row("td", [_cell(row[name]) for name in names]) for row in shown]
        amount = "more" if self._read else len(self._values)
        more = f"<p>the first {_HTML_ROWS_MAX} of {amount}</p>"
        return f"<table>{''.join(lines)}</table>{more if len(first) > len(shown) else ''}"


def columns_of(kind: type) -> dict[str, str]:
    """Return the columns of a class by name, with the paths of their attributes."""
    declared = getattr(kind, ROW, None)
    if declared is None:
        declared = [one.name for one in dataclasses.fields(kind)]
    paths = (entry.rpartition("=") for entry in declared)
    return {name or path.rpartition(".")[2]: path for name, _, path in paths}


def within(field: str, kind: type) -> Iterator[str]:
    """Yield the columns of the class of a field, for the declaration of the class around it."""
    for name, path in columns_of(kind).items():
        yield f"{name}={field}.{path}"


def _annotation(kind: type, path: str) -> str:
    """Return the type of an attribute as it is written, without `| None`; empty if unknown."""
    found = getattr(kind, path, None)
    written = getattr(getattr(found, "fget", None), "__annotations__", {}).get("return", "")
    written = written or kind.__annotations__.get(path, "")
    return str(written).removesuffix(" | None")


def _plain(value: Any) -> Any:
    """Return a value as what JSON and Arrow have; bytes stay bytes."""
    match value:
        case Enum():
            return _plain(value.value)
        case KafkaLogError():
            return f"{value.reference}: {value.message}"
        case dict():
            return {str(_plain(name)): _plain(one) for name, one in value.items()}
        case tuple() | list() | set() | frozenset():
            return [_plain(one) for one in value]
        case _ if dataclasses.is_dataclass(value):
            paths = columns_of(type(value))
            return {name: _plain(value_at(value, path)) for name, path in paths.items()}
        case _:
            return value


def _cell(value: object) -> str:
    text = bytes_text(value) if isinstance(value, bytes) else "" if value is None else str(value)
    return printable(text if len(text) <= _CELL_MAX else f"{text[: _CELL_MAX - 1]}…")


def _html_row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _required(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = "'kafkalog[data]'" if module == "pyarrow" else module
        hint = f"pip install {package}"
        raise UnsupportedError(f"{module} is not installed.", hint=hint) from error
