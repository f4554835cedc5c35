"""Objects of NDJSON, JSON and CSV: each type is declared once, field by field.

A declaration gives the objects, the cells of tables, and the sections of `docs/output.md`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, tzinfo
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from formats.late_classes import dataclass
from kafkalog.io.wording import printable
from kafkalog.model import Defect
from kafkalog_cli.output.kinds import BOOL, INT, TEXT
from kafkalog_cli.output.text import BytesFormat, Toned

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.files.payloads.kinds import PayloadKind
    from kafkalog_cli.output.kinds import Kind
    from kafkalog_cli.output.text import Tone

T = TypeVar("T")
Row = dict[str, object]
ABSENT: Final = object()
"""Value of an optional field that an object does not have."""

MEANING_OF_CONFIGS: Final = (
    "those with an effect: `name`, `value` (lists joined by commas), `source` (`--config`, "
    "`FILE:LINE`, `__cluster_metadata-0 ...`, `default`), `set_as` (its name there; null for a "
    "default)"
)


@dataclass(frozen=True, slots=True)
class Style:
    """The style of values.

    Attributes:
        exact: whether tables have plain numbers for sizes and times.
        zone: time zone of the times in tables.
        bytes_form: form of keys, values and header values.
        states: whether batches and records state where their log lives.
        decoder: how records of an internal topic are decoded.
    """

    exact: bool = False
    zone: tzinfo = UTC
    bytes_form: BytesFormat = BytesFormat.AUTO
    states: bool = False
    decoder: PayloadKind | None = None


PLAIN: Final = Style()


@dataclass(frozen=True)
class Field(Generic[T]):
    """A field of an object.

    Attributes:
        meaning: its meaning, for the docs.
        get: attribute of the value, `a.b` for an attribute of an attribute, or a function of the
            value; by default the attribute with the name of the field.
        only_if: returns whether objects in a style have it; by default all do.
    """

    name: str
    kind: Kind
    meaning: str
    get: str | Callable[[T], object] = ""
    only_if: Callable[[Style], bool] | None = None

    def getter(self) -> Callable[[T], Any]:
        return self.get if callable(self.get) else attrgetter(self.get or self.name)


def topic_and_partition(prefix: str = "") -> tuple[Field[Any], Field[Any]]:
    """Return the fields that name a partition; `prefix` leads to it from the value: `a.b.`."""
    return (
        Field("topic", TEXT, "from the directory's name", f"{prefix}topic"),
        Field("partition", INT | None, "null if the directory's name has none",
              f"{prefix}partition"),
    )  # fmt: skip


def changed(get: Callable[[Any], bool]) -> Field[Any]:
    """Return the field of a summary that tells a run that changed something from a plan."""
    return Field("changed", BOOL, "something was written or deleted", get)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table: its title, and a field of the objects or a function that returns a cell.

    None is always `-`.
    On a terminal too narrow for the table, cells of columns with `below`, the last ones, go below
    their row; if that does not suffice, cells of columns with `fold` go over several lines. `tone`
    gives the colour that a cell has on a terminal.
    """

    title: str
    cell: str | Callable[[T], object]
    right: bool = False
    fold: bool = False
    below: bool = False
    tone: Callable[[T], Tone | None] | None = None

    def text(self, value: T) -> str:
        """Return the cell of a value, which need not be printable."""
        assert callable(self.cell), "`ObjectType.view` has replaced the name of a field"
        found = self.cell(value)
        return "-" if found is None else str(found)

    def toned(self, value: T) -> str:
        text = printable(self.text(value))
        tone = None if self.tone is None else self.tone(value)
        return text if tone is None else Toned(text, tone)


@dataclass(frozen=True)
class View(Generic[T]):
    """Shows values of one type, as rows of a table and as JSON objects.

    `names` are the fields of the objects, if they are always the fields of one declared type: then
    kernels can write them, too.
    """

    columns: tuple[Column[T], ...]
    row: Callable[[T], Row]
    names: tuple[str, ...] = ()

    def preceded(self, column: Column[T]) -> View[T]:
        return replace(self, columns=(column, *self.columns))


class ObjectType(Generic[T]):
    """A type of object: its name, which commands print it, its meaning, and its fields in order."""

    def __init__(self, name: str, printed_by: str, meaning: str, *fields: Field[T]) -> None:
        self.name = name
        self.printed_by = printed_by
        self.meaning = meaning
        self.fields = {one.name: one for one in fields}
        self._plain_row = self._rows(PLAIN)

    def row(self, value: T, style: Style = PLAIN) -> Row:
        # Nearly all calls, so its getters are made once.
        return self._plain_row(value) if style is PLAIN else self._rows(style)(value)

    def view(self, style: Style, *columns: Column[T]) -> View[T]:
        """Return a view with these columns; cells of fields have the form of their types."""
        return View(
            tuple(self._resolved(column, style) for column in columns),
            self._rows(style),
            () if self._optional(style) else ("type", *self._fields(style)),
        )

    def _optional(self, style: Style) -> list[str]:
        return [name for name, one in self._fields(style).items() if one.only_if is not None]

    def _fields(self, style: Style) -> dict[str, Field[T]]:
        fields = self.fields.items()
        return {name: one for name, one in fields if one.only_if is None or one.only_if(style)}

    def _rows(self, style: Style) -> Callable[[T], Row]:
        getters = [
            (one.name, one.getter(), one.kind.to_json) for one in self._fields(style).values()
        ]
        has_optional = bool(self._optional(style))

        def row_of(value: T) -> Row:
            row: Row = {"type": self.name}
            for name, get, to_json in getters:
                found = get(value)
                row[name] = found if to_json is None else to_json(found, style)
            if has_optional:
                return {name: found for name, found in row.items() if found is not ABSENT}
            return row

        return row_of

    def _resolved(self, column: Column[T], style: Style) -> Column[T]:
        if callable(column.cell):
            return column
        shown = self.fields[column.cell]
        get, to_cell = shown.getter(), shown.kind.cell

        def cell(value: T) -> object:
            found = get(value)
            return None if found is None else to_cell(found, style)

        return replace(column, cell=cell, right=column.right or shown.kind.right)


DEFECT: Final = ObjectType[Defect](
    "defect",
    "every command",
    "A finding; [defects.md](defects.md) explains each kind.",
    Field("reference", TEXT, "kind of defect"),
    Field("severity", TEXT, "`damage`, `index`, `warning` or `note`"),
    Field("path", TEXT, "as given or found"),
    Field("position", INT | None, "null for the whole file"),
    Field("offset", INT | None, ""),
    Field("size_bytes", INT | None, "bytes that the defect covers"),
    Field("detail", TEXT, ""),
    Field("hint", TEXT | None, "what to do"),
)  # fmt: skip
