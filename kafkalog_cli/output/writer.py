"""One writer for every listing: table, NDJSON, JSON or CSV, streaming."""

from __future__ import annotations

import sys
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from kafkalog.errors import KafkaLogError
from kafkalog.io.wording import is_long, printable
from kafkalog_cli.outcome import show_defect
from kafkalog_cli.output.objects import DEFECT, Row, View
from kafkalog_cli.output.text import (
    Tone,
    Toned,
    csv_line,
    csv_pieces,
    json_pieces,
    painted,
    tone_of,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.model import Defect

T = TypeVar("T")
_TABLE_CHUNK = 500
_TABLE_CHUNK_SIZE = 1 << 20  # characters
_BELOW = " " * 4
_FOLDED_WIDTH = 8  # a folded cell must be this wide to be legible
_WIDE = 64  # a wider cell does not widen the other rows


class Format(StrEnum):
    """The format of a listing."""

    TABLE = "table"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"


class Block(Protocol):
    """Text of some objects, one after another, in the form of `row_pieces`."""

    @property
    def view(self) -> memoryview:
        """The text."""

    @property
    def rows(self) -> int:
        """Number of objects."""


class Writer(Generic[T]):
    """Writes values in the order they come; use it as a context manager, so that JSON is closed.

    A defect appears where it was met: as an object in NDJSON and JSON, as a line of its own in a
    table; in CSV, whose rows are of one kind, on stderr.
    """

    def __init__(self, view: View[T], form: Format) -> None:
        self.view = view
        self.form = form
        self._pending: list[Sequence[str]] = []
        self._pending_size = 0
        self._widths: list[int] = []
        self._rows = 0
        self._is_terminal = terminal_width() is not None

    def __enter__(self) -> Self:
        if self.form == Format.JSON:
            _put("[")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, KafkaLogError):
            return  # an unclosed array is not taken for an answer
        self.flush()
        if self.form == Format.JSON:
            _put("\n]\n" if self._rows else "]\n")

    def write(self, value: T) -> None:
        if self.form == Format.TABLE:
            if self._is_terminal:
                cells = [column.toned(value) for column in self.view.columns]
            else:  # `flush` looks at whole columns, which takes less time
                cells = [column.text(value) for column in self.view.columns]
            self.write_cells(cells)
        else:
            self.write_row(self.view.row(value))

    def write_cells(self, cells: Sequence[str]) -> None:
        self._pending.append(cells)
        self._pending_size += sum(map(len, cells))
        if len(self._pending) >= _TABLE_CHUNK or self._pending_size >= _TABLE_CHUNK_SIZE:
            self.flush()

    def write_row(self, row: Row) -> None:
        """Write one object of any type; not for tables."""
        if not self._rows and self.form == Format.CSV:
            _put(csv_line(row))
        pieces = row_pieces(row, self.form)
        if not self._rows and self.form == Format.JSON:
            pieces = chain([next(pieces)[1:]], pieces)  # no comma before the first
        sys.stdout.buffer.writelines(pieces)
        self._rows += 1

    def write_object(self, row: Row) -> None:
        """Write one object of another type than the rows: NDJSON and JSON have all of them."""
        if self.form in (Format.NDJSON, Format.JSON):
            self.write_row(row)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Print lines between the rows of a table; other formats have objects for what they say."""
        if self.form == Format.TABLE:
            self.flush()
            print_lines(lines)

    def write_text(self, block: Block) -> None:
        text = block.view
        if not self._rows and self.form == Format.JSON:
            text = text[1:]  # no comma before the first
        elif not self._rows and self.form == Format.CSV:
            _put(csv_line(self.view.names))
        sys.stdout.buffer.write(text)
        self._rows += block.rows

    def defect(self, defect: Defect) -> None:
        self.flush()
        if self.form == Format.TABLE:
            where = "" if defect.position is None else f", position {defect.position}"
            line = printable(f"! {defect.reference}: {defect.path}{where}: {defect.detail}")
            _put(painted(line, tone_of(defect.severity), sys.stdout) + "\n")
        elif self.form == Format.CSV:
            show_defect(defect)
        else:
            self.write_row(DEFECT.row(defect))

    def flush(self) -> None:
        """Write the rows of a table that wait for the widths of its columns."""
        if not self._pending:
            return
        first = not self._widths
        titles: Sequence[str] = [Toned(column.title, Tone.TITLE) for column in self.view.columns]
        lines = [titles, *self._pending] if first else self._pending
        columns = [_printable(cells) for cells in zip(*lines, strict=True)]
        widths = [_column_width(cells) for cells in columns]
        # Columns only get wider, so that rows stay below the titles.
        self._widths = [
            max(old, new) for old, new in zip(self._widths or widths, widths, strict=True)
        ]
        terminal = terminal_width() if self._is_terminal else None
        upper = [column.below for column in self.view.columns].count(False)
        if terminal is None:
            for row in self._aligned(columns):
                _put(row.rstrip())
                _put("\n")  # by itself: a row can take gigabytes, and one character would copy it
        elif self._width(len(widths)) <= terminal:
            for line in lines:
                if cell_width(self._padded(line)) <= terminal:
                    row = self._padded(line, show=_coloured)
                else:
                    row = "\n".join(wrapped("  ".join(line), first="", width=terminal, hanging=2))
                _put(f"{row}\n")
        elif upper < len(widths) and self._width(upper) <= terminal:
            for line in lines:
                _put(self._padded(line[:upper], show=_coloured) + "\n")
                _put("".join(f"{words}\n" for words in _words_below(line[upper:], terminal)))
        else:
            self._print_folded(self._pending, terminal, first=first)
        self._pending, self._pending_size = [], 0

    def _width(self, columns: int) -> int:
        return sum(self._widths[:columns]) + 2 * (columns - 1)

    def _aligned(self, columns: Sequence[Sequence[str]]) -> Iterator[str]:
        aligned = []
        for cells, width, column in zip(columns, self._widths, self.view.columns, strict=True):
            align = str.rjust if column.right else str.ljust
            if "".join(cells).isascii():
                aligned.append([align(cell, width) for cell in cells])
            else:
                wide = (width - cell_width(cell) + len(cell) for cell in cells)
                aligned.append([align(cell, room) for cell, room in zip(cells, wide, strict=True)])
        return map("  ".join, zip(*aligned, strict=True))

    def _padded(self, cells: Sequence[str], show: Callable[[str], str] = str) -> str:
        """Return a row of the first columns, each cell as `show` shows it."""
        padded = []
        for cell, width, column in zip(cells, self._widths, self.view.columns, strict=False):
            blanks = " " * (width - cell_width(cell))
            padded.append(blanks + show(cell) if column.right else show(cell) + blanks)
        return "  ".join(padded).rstrip()

    def _print_folded(self, lines: Sequence[Sequence[str]], terminal: int, *, first: bool) -> None:
        """Print a table too wide for the terminal: rich folds its cells.

        If even the columns that should stay whole are too wide, all fold: nothing is cut off.
        """
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        sized = zip(self.view.columns, self._widths, strict=True)
        needed = sum(min(width, _FOLDED_WIDTH) if column.fold else width for column, width in sized)
        fits = needed + len(self._widths) <= terminal
        table = Table(box=None, show_header=first, pad_edge=False, padding=(0, 1, 0, 0))
        for column in self.view.columns:
            justify = "right" if column.right else "left"
            table.add_column(
                column.title,
                justify=justify,  # type: ignore[arg-type] # a literal
                overflow="fold",
                no_wrap=fits and not column.fold,
            )
        for line in lines:
            table.add_row(
                *(Text(cell, cell.tone if isinstance(cell, Toned) else "") for cell in line)
            )
        sys.stdout.flush()
        Console(file=sys.stdout, highlight=False, markup=False).print(table)


def write_all(values: Iterable[T], view: View[T], form: Format) -> None:
    """Write a listing of values alone."""
    with Writer(view, form) as writer:
        for value in values:
            writer.write(value)


def _coloured(cell: str) -> str:
    return painted(cell, cell.tone, sys.stdout) if isinstance(cell, Toned) else cell


def _printable(cells: Sequence[str]) -> Sequence[str]:
    return cells if "".join(cells).isprintable() else [printable(cell) for cell in cells]


def _column_width(cells: Sequence[str]) -> int:
    """Return the width of a column; a far longer cell makes only its own row longer."""
    widths = list(map(len if "".join(cells).isascii() else cell_width, cells))
    return max((width for width in widths if width <= _WIDE), default=min(widths))


def _words_below(cells: Sequence[str], width: int) -> list[str]:
    if all(cell == "-" for cell in cells):
        return []
    return wrapped("  ".join(cells), first=_BELOW, width=width)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines above or below a table, wrapped if the terminal is too narrow."""
    width = terminal_width()
    text = ""
    for line in map(printable, lines):
        blanks = " " * (len(line) - len(line.lstrip(" ")))
        text += "\n".join(wrapped(line.lstrip(" "), first=blanks, width=width, hanging=2)) + "\n"
    _put(text)


def row_pieces(row: Row, form: Format) -> Iterator[bytes]:
    """Yield an object in the form in which it follows others."""
    if form == Format.CSV:
        yield from csv_pieces(row.values())
        return
    if form == Format.JSON:
        yield b",\n"
    yield from json_pieces(row)
    if form == Format.NDJSON:
        yield b"\n"


def _put(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8"))


def cell_width(cell: str) -> int:
    if cell.isascii() or is_long(cell):  # nothing is aligned with such a long cell
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None for a pipe or a file."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns
