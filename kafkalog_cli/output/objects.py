"""Objects of NDJSON, JSON and CSV: each type is declared once, field by field.

A declaration gives the objects, the cells of tables, and the sections of `docs/output.md`.
"""

from __future__ import annotations

from dataclasses import field, replace
from datetime import UTC, tzinfo
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from formats.late_classes import dataclass
from kafkalog.io.wording import printable
from kafkalog.model import Defect
from kafkalog_cli.output.kinds import INT, TEXT
from kafkalog_cli.output.layout import Layout, choose
from kafkalog_cli.output.text import BytesFormat, Tone, Toned, zone_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.files.payloads.kinds import PayloadKind
    from kafkalog_cli.output.decoded import Decoded
    from kafkalog_cli.output.kinds import Kind

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
        key_form: form of keys.
        value_form: form of values and header values.
        decoded: keys or values that a schema decodes, by `key` and `value`.
        states: whether batches and records state where their log lives.
        decoder: how records of an internal topic are decoded.
        layout: how rows are laid out.
    """

    exact: bool = False
    zone: tzinfo = UTC
    key_form: BytesFormat = BytesFormat.AUTO
    value_form: BytesFormat = BytesFormat.AUTO
    decoded: Mapping[str, Decoded] = field(default_factory=dict)
    states: bool = False
    decoder: PayloadKind | None = None
    layout: Layout = Layout()


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


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table: its title, and a field of the objects or a function that returns a cell.

    None is always `-`.

    Attributes:
        least: the width to which a terminal may cut the data of a column; 0: never, as for numbers
            and our own words.
        keeps_end: whether data are cut in the middle: names that often begin alike.
        weight: columns of less weight are left out first where a terminal has no room for all; of
            the same weight, the last one.
        below: words that go below their row where they do not fit; only the last columns have it.
        tone: the colour that a cell has on a terminal.
        kind: the type of what a function returns, if it is not a cell.
        zone: time zone of the cells, which the title names.
        stays: whether somebody asked for the column by name: then it is shown even if it is empty.
    """

    title: str
    cell: str | Callable[[T], object]
    right: bool = False
    least: int = 0
    keeps_end: bool = False
    weight: int = 5
    below: bool = False
    tone: Callable[[T], Tone | None] | None = None
    kind: Kind | None = None
    zone: str = ""
    stays: bool = False

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.zone})" if self.zone else self.title

    @property
    def name(self) -> str:
        """The name by which `--columns` leaves it out: of its field, or its title."""
        return self.cell if isinstance(self.cell, str) else self.title.lower().replace(" ", "_")

    def text(self, value: T) -> str:
        """Return the cell of a value, which need not be printable."""
        assert callable(self.cell), "`ObjectType.view` has replaced the name of a field"
        found = self.cell(value)
        return "-" if found is None else str(found)

    def toned(self, value: T, most: int | None = None) -> str:
        """Return the printable cell of a value in its colour.

        Args:
            most: no more characters are needed of data, which may have gigabytes.
        """
        text = self.text(value)
        if most is not None and self.least and not self.keeps_end and len(text) > most:
            text = f"{text[:most]}…"
        text = printable(text)
        tone = None if self.tone is None else self.tone(value)
        if text == "-":
            tone = Tone.FAINT
        return text if tone is None else Toned(text, tone)


@dataclass(frozen=True)
class View(Generic[T]):
    """Shows values of one type, as rows of a table and as JSON objects.

    Attributes:
        names: the fields of the objects, if they are always the fields of one declared type: then
            kernels can write them, too.
        fields: the fields of the objects by name; empty if no type declares them.
        block: the heading of a value in `line`, and its lines by name, if the type declares them.
    """

    columns: tuple[Column[T], ...]
    row: Callable[[T], Row]
    names: tuple[str, ...] = ()
    style: Style = PLAIN
    type_name: str = "row"
    fields: Mapping[str, Field[T]] = field(default_factory=dict)
    block: Callable[[T], Block] | None = None

    def preceded(self, column: Column[T]) -> View[T]:
        """Return the view with a column before the others, unless somebody named all of them."""
        if self.style.layout.names_columns:
            return self
        return replace(self, columns=(column, *self.columns))


Block = tuple[str, "Sequence[tuple[str, str | Sequence[str]]]"]
"""A heading, and names with their text or lines."""


class ObjectType(Generic[T]):
    """A type of object: its name, which commands print it, its meaning, and its fields in order.

    Args:
        block: returns a value as a block of `-x` in a style; by default it is all fields.
    """

    def __init__(
        self,
        name: str,
        printed_by: str,
        meaning: str,
        *fields: Field[T],
        block: Callable[[T, Style], Block] | None = None,
    ) -> None:
        self.name = name
        self.printed_by = printed_by
        self.meaning = meaning
        self.fields = {one.name: one for one in fields}
        self._block = block
        self._plain_row = self._rows(self._fields(PLAIN), PLAIN)

    def row(self, value: T, style: Style = PLAIN) -> Row:
        # Nearly all calls, so its getters are made once.
        if style is PLAIN:
            return self._plain_row(value)
        return self._rows(self._fields(style), style)(value)

    def view(self, style: Style, *columns: Column[T]) -> View[T]:
        """Return a view with these columns; cells of fields have the form of their types.

        Raises:
            UsageError: `--columns` names something else than fields.
        """
        declared = fields = self._fields(style)
        block = None if self._block is None else _in_style(self._block, style)
        if style.layout.columns:
            columns, fields = _choose_columns(style.layout, columns, declared)
            block = None
        is_fixed = not any(one.only_if is not None for one in fields.values())
        return View(
            tuple(_resolved(column, declared, style) for column in columns),
            self._rows(fields, style),
            tuple(fields) if is_fixed else (),
            style,
            self.name,
            fields,
            block,
        )

    def _fields(self, style: Style) -> dict[str, Field[T]]:
        named: dict[str, Field[T]] = {"type": Field("type", TEXT, "", lambda _: self.name)}
        return named | {
            name: one
            for name, one in self.fields.items()
            if one.only_if is None or one.only_if(style)
        }

    def _rows(self, fields: Mapping[str, Field[T]], style: Style) -> Callable[[T], Row]:
        getters = [(one.name, one.getter(), one.kind.to_json) for one in fields.values()]
        has_optional = any(one.only_if is not None for one in fields.values())

        def row_of(value: T) -> Row:
            row: Row = {}
            for name, get, to_json in getters:
                found = get(value)
                row[name] = found if to_json is None else to_json(found, style)
            if has_optional:
                return {name: found for name, found in row.items() if found is not ABSENT}
            return row

        return row_of


def _in_style(block: Callable[[T, Style], Block], style: Style) -> Callable[[T], Block]:
    return lambda value: block(value, style)


def _choose_columns(
    layout: Layout, columns: Sequence[Column[T]], fields: Mapping[str, Field[T]]
) -> tuple[tuple[Column[T], ...], dict[str, Field[T]]]:
    """Return the columns and fields that `--columns` asks for."""
    shown = {column.name: column for column in columns}
    known = [*fields, *shown]
    words, keeps = layout.columns, not layout.names_columns
    found: list[Column[T]] = []
    for name in choose(words, [*shown], known, [*fields]):
        column = shown.get(name)
        if column is None or not (keeps or column.cell == name):
            kind, title = fields[name].kind, name.upper().replace("_", " ")
            column = Column(title, name, least=_LEAST if kind.is_data else 0)
        if not (name in shown and keeps):
            column = replace(column, weight=_ASKED_FOR, stays="all" not in words)
        found.append(column)
    return tuple(found), {name: fields[name] for name in choose(words, [*fields], known, [*fields])}


def _resolved(column: Column[T], fields: Mapping[str, Field[T]], style: Style) -> Column[T]:
    """Return a column whose cells are made by its type."""
    get: Callable[[T], Any]
    if not callable(column.cell):
        shown = fields[column.cell]
        get, kind = shown.getter(), shown.kind
    elif column.kind is None:
        return column
    else:
        get, kind = column.cell, column.kind
    to_cell = kind.cell_of

    def cell(value: T) -> object:
        found = get(value)
        return None if found is None or found is ABSENT else to_cell(found, style)

    zone = zone_name(style.zone) if kind.is_time and not style.exact else ""
    return replace(column, cell=cell, right=column.right or kind.right, kind=kind, zone=zone)


_LEAST: Final = 12
_ASKED_FOR: Final = 9


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
