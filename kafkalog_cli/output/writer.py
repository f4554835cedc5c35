"""One writer for every listing: rows in each format, streaming."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from kafkalog.errors import KafkaLogError
from kafkalog_cli.outcome import show_defect
from kafkalog_cli.output.layout import Format
from kafkalog_cli.output.next_steps import put_command
from kafkalog_cli.output.objects import DEFECT, Row, View
from kafkalog_cli.output.table import Table, print_lines, print_toned, put
from kafkalog_cli.output.text import csv_line, csv_pieces, json_pieces, tone_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.log.text.plain_rows import PlainRows
    from kafkalog.model import Defect

__all__ = ["Block", "Format", "Writer", "limited", "print_lines", "row_pieces", "write_all"]

T = TypeVar("T")


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

    A defect appears where it was met: as an object in NDJSON and JSON, as a line of its own on a
    screen; where rows are of one kind, on stderr.
    """

    def __init__(self, view: View[T], form: Format) -> None:
        self.view = view
        self.form = form
        self._first_table: Table | None = None
        self._rows = 0
        self._text_of: Callable[[T], str] | None = None

    @property
    def _table(self) -> Table:
        """The table of the view at its first row."""
        if self._first_table is None:
            self._first_table = Table(self.view.columns, self.view.style.layout)
        return self._first_table

    def __enter__(self) -> Self:
        if self.form == Format.JSON:
            put("[")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, KafkaLogError):
            return  # an unclosed array is not taken for an answer
        self._table.end()
        if self.form == Format.JSON:
            put("\n]\n" if self._rows else "]\n")

    def write(self, value: T) -> None:
        if self.form == Format.TABLE:
            table = self._table
            if table.is_toned:
                cells = [column.toned(value, table.most) for column in self.view.columns]
            else:  # the table looks at whole columns, which takes less time
                cells = [column.text(value) for column in self.view.columns]
            table.add(cells)
        elif self.form == Format.LINE:
            from kafkalog_cli.output.blocks import put_block

            put_block(self.view, value)
        elif self.form == Format.TEMPLATE:
            put(self._template_text(value))
        else:
            self.write_row(self.view.row(value))

    def _template_text(self, value: T) -> str:
        if self._text_of is None:
            from kafkalog_cli.output.templates import template

            self._text_of = template(self.view)
        return self._text_of(value)

    def write_rows(self, rows: PlainRows, labels: tuple[str, ...]) -> None:
        """Write rows of a table, with the same labels before each."""
        self._table.add_rows(rows, labels)

    def write_row(self, row: Row) -> None:
        """Write one object of any type; in the formats for programs."""
        if not self._rows and self.form == Format.CSV:
            put(csv_line(row))
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
        """Print lines between the rows on a screen; other formats have objects for them."""
        if self.form.is_screen:
            shown = [*lines]
            self._table.add_words(lambda: print_lines(shown, self.view.style.layout.width))

    def total(self, *lines: str) -> None:
        """Print the lines that end a listing on a screen; the last one says what it comes to."""
        if self.form.is_screen:
            self.end_rows()
            print_lines(lines, self.view.style.layout.width)

    def next(self, *words: str) -> None:
        """Print the command that comes next on a screen, below the total."""
        if self.form.is_screen:
            self.end_rows()
            put_command("next", *words)

    def write_text(self, block: Block) -> None:
        text = block.view
        if not self._rows and self.form == Format.JSON:
            text = text[1:]  # no comma before the first
        elif not self._rows and self.form == Format.CSV:
            put(csv_line(self.view.names))
        sys.stdout.buffer.write(text)
        self._rows += block.rows

    def defect(self, defect: Defect) -> None:
        if self.form.is_screen:
            where = "" if defect.position is None else f", position {defect.position}"
            line = f"! {defect.reference}: {defect.path}{where}: {defect.detail}"
            width = self.view.style.layout.width
            tone = tone_of(defect.severity)
            self._table.add_words(lambda: print_toned(line, tone, width, hanging=2))
        elif self.form in (Format.NDJSON, Format.JSON):
            self.write_row(DEFECT.row(defect))
        else:
            show_defect(defect)

    def end_rows(self) -> None:
        """Write what is left of a table, and what it does not show, before other words."""
        if self.form.is_screen:
            self._table.end()

    def flush(self) -> None:
        """Write the rows of a table that wait for the widths of its columns."""
        self._table.flush()


def write_all(values: Iterable[T], view: View[T], form: Format) -> int:
    """Write a listing of values alone; return how many there were."""
    number = 0
    with Writer(view, form) as writer:
        for value in values:
            writer.write(value)
            number += 1
    return number


def limited(total: str, number: int, limit: int | None) -> str:
    """Return the total of a listing, with `(-n 3)` where that may have left out rows."""
    return total if number != limit else f"{total} (-n {limit})"


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
