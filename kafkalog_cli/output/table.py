"""Tables: aligned, and on a terminal fitted to its width, some hundred rows at a time."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kafkalog.io.wording import printable
from kafkalog_cli.output.layout import GAP, Fit, Layout
from kafkalog_cli.output.text import (
    Tone,
    Toned,
    cell_width,
    cut,
    fold,
    has_colours,
    painted,
    trim_times,
    wrapped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.log.text.plain_rows import PlainRows
    from kafkalog_cli.output.objects import Column

_CHUNK: Final = 500
_CHUNK_SIZE: Final = 1 << 20  # characters
_PATIENCE_S: Final = 1.0  # rows of a slow search do not wait for others any longer
_BELOW: Final = " " * 4
_WIDE: Final = 64  # a wider cell does not widen the other rows
_NOTHING: Final = frozenset(("", "-"))
_BETWEEN: Final = " " * GAP


class Table:
    """Rows of a table, which wait for the widths of its columns.

    On a pipe all columns are shown and nothing is cut. On a terminal the first rows decide which
    columns there are; a value that comes later in a column that was empty is appended to its row.

    Attributes:
        most: no more characters of data are needed for a cell; None for all.
        is_toned: whether cells come in their colours.
    """

    def __init__(self, columns: Sequence[Column[Any]], layout: Layout) -> None:
        self._columns = columns
        self._width = layout.width or terminal_width()
        self._room = None if layout.no_trunc else self._width
        self._wraps = layout.wrap and self._room is not None
        self.most = None if self._wraps else self._room
        self.is_toned = self._width is not None or has_colours(sys.stdout)
        self._pending: list[Sequence[str]] = []
        self._pending_size = 0
        self._since = 0.0
        self._words: list[tuple[int, Callable[[], None]]] = []
        self._bulk: tuple[PlainRows, tuple[str, ...]] | None = None
        self._natural: list[int] = []
        self._fit: Fit | None = None
        self._with_ms: set[int] = set()
        self._has_cut = False

    def add(self, cells: Sequence[str]) -> None:
        self._settle()
        self._pending.append(cells)
        self._pending_size += sum(map(len, cells))
        is_full = len(self._pending) >= _CHUNK or self._pending_size >= _CHUNK_SIZE
        if is_full or (self._width is not None and self._is_late()):
            self.flush()

    def add_words(self, show: Callable[[], None]) -> None:
        """Print words after the rows so far; before the first row at once."""
        self._settle()
        if not self._pending:
            show()
            return
        self._words.append((len(self._pending), show))
        if len(self._words) >= _CHUNK or (self._width is not None and self._is_late()):
            self.flush()

    def add_rows(self, rows: PlainRows, labels: tuple[str, ...]) -> None:
        """Add many rows at once, with the same labels before each.

        Kernels write them, some hundred at a time, unless cells are cut or coloured.
        """
        if self._bulk is not None and self._bulk[1] == labels:
            rows, self._bulk = self._bulk[0].joined(rows), None
        self._settle()
        count = 0
        for cells in rows.cells() if self.is_toned or self._pending else ():
            self.add((*labels, *cells))
            count += 1
            if not (self.is_toned or self._pending):
                break
        size = sum(map(len, labels))
        for some, is_full in rows.cut(count, len(rows)).pieces(_CHUNK, _CHUNK_SIZE, size):
            if is_full:
                self._put_rows(some, labels)
            else:
                self._bulk = some, labels

    def _settle(self) -> None:
        """Make cells of the rows that wait to be written at once: other rows come after them."""
        if self._bulk is not None:
            (rows, labels), self._bulk = self._bulk, None
            for cells in rows.cells():
                self.add((*labels, *cells))

    def _put_rows(self, rows: PlainRows, labels: tuple[str, ...]) -> None:
        time = len(labels) + rows.TIME
        if rows.has_ms:
            self._with_ms.add(time)
        with_ms = time in self._with_ms or not self._columns[time].zone
        shown = [*map(printable, labels)]
        widths = [*map(cell_width, shown), *rows.widths(_WIDE, with_ms=with_ms)]
        if self._natural:
            self._widen(widths)
        else:
            headings = [column.heading for column in self._columns]
            pairs = zip(headings, widths, strict=True)
            self._widen([max(len(one), width if width <= _WIDE else 0) for one, width in pairs])
            put(self._padded(dict(enumerate(headings)), dict(enumerate(self._natural))) + "\n")
        label = "".join(
            cell + " " * (width - cell_width(cell)) + _BETWEEN
            for cell, width in zip(shown, self._natural, strict=False)
        )
        text = rows.text(label.encode(), self._natural[len(labels) :], with_ms=with_ms)
        sys.stdout.buffer.write(text)

    def _put_words(self, at: int) -> None:
        """Print the words that belong after the rows printed so far."""
        while self._words and self._words[0][0] == at:
            self._words.pop(0)[1]()

    def _is_late(self) -> bool:
        now = monotonic()
        if len(self._pending) == 1 and not self._words:
            self._since = now
        return now - self._since > _PATIENCE_S

    def flush(self) -> None:
        """Write the rows that wait."""
        self._settle()
        if not self._pending:
            return
        columns = [_printable(cells) for cells in zip(*self._pending, strict=True)]
        self._pending, self._pending_size = [], 0
        for i, column in enumerate(self._columns):
            if column.zone and i not in self._with_ms:
                trimmed = trim_times(columns[i])
                if trimmed is columns[i] and any(cell not in _NOTHING for cell in trimmed):
                    self._with_ms.add(i)  # from now on, so that rows stay aligned
                columns[i] = trimmed
        if self._width is None:
            self._put_aligned(columns)
        else:
            self._put_fitted(columns)

    def end(self) -> None:
        """Write the rows that wait, and what the terminal had no room for."""
        self.flush()
        fit = self._fit
        hidden = [] if fit is None else [self._columns[i].title.lower() for i in fit.hidden]
        parts = [f"not shown: {', '.join(hidden)}"] if hidden else []
        parts += ["cut: …"] if self._has_cut else []
        if parts:
            hint = "-x shows a row as a block" + ("" if self._wraps else ", -w wraps")
            text = f"({'; '.join([*parts, hint])})"
            print_toned(text, Tone.FAINT, self._width, hanging=1)
            self._fit, self._has_cut = None, False

    def _put_aligned(self, columns: list[Sequence[str]]) -> None:
        is_later = bool(self._natural)
        if not is_later:
            columns = [
                [Toned(column.heading, Tone.TITLE), *cells]
                for column, cells in zip(self._columns, columns, strict=True)
            ]
        self._widen([_column_width(cells) for cells in columns])
        texts: Iterator[str]
        if self.is_toned:
            widths = dict(enumerate(self._natural))
            texts = (
                self._padded(dict(enumerate(row)), widths) for row in zip(*columns, strict=True)
            )
        else:
            texts = map(str.rstrip, self._aligned(columns))
        for at, text in enumerate(texts, int(is_later)):
            put(text)
            put("\n")  # by itself: a row can take gigabytes, and one character would copy it
            if self._words:
                self._put_words(at)

    def _widen(self, widths: Sequence[int]) -> None:
        """Columns only get wider, so that rows stay below the titles."""
        old = self._natural or widths
        self._natural = [max(pair) for pair in zip(old, widths, strict=True)]

    def _aligned(self, columns: Sequence[Sequence[str]]) -> Iterator[str]:
        aligned = []
        for cells, width, column in zip(columns, self._natural, self._columns, strict=True):
            align = str.rjust if column.right else str.ljust
            if "".join(cells).isascii():
                aligned.append([align(cell, width) for cell in cells])
            else:
                wide = (width - cell_width(cell) + len(cell) for cell in cells)
                aligned.append([align(cell, room) for cell, room in zip(cells, wide, strict=True)])
        return map(_BETWEEN.join, zip(*aligned, strict=True))

    def _put_fitted(self, columns: Sequence[Sequence[str]]) -> None:
        width_of = _column_width if self._room is None else _widest
        headings = [Toned(column.heading, Tone.TITLE) for column in self._columns]
        lines = zip(headings, columns, strict=True)
        self._widen([width_of([heading, *cells]) for heading, cells in lines])
        is_first = self._fit is None
        if self._fit is None:
            empty = [
                i
                for i, (column, cells) in enumerate(zip(self._columns, columns, strict=True))
                if not column.stays and _NOTHING.issuperset(cells)
            ]
            self._fit = Fit.of(self._columns, self._natural, empty, self._room, wraps=self._wraps)
        widths = self._fit.widths(self._natural)
        if is_first:
            put(self._padded({i: headings[i] for i in self._fit.inline}, widths) + "\n")
        for at, row in enumerate(zip(*columns, strict=True), 1):
            self._put_row(row, self._fit, widths)
            self._put_words(at)

    def _put_row(self, row: Sequence[str], fit: Fit, widths: Mapping[int, int]) -> None:
        cells = {i: row[i] for i in fit.inline}
        below = [row[i] for i in fit.under if row[i] not in _NOTHING]
        late = [
            f"{self._columns[i].title.lower()}={row[i]}"
            for i in fit.empty
            if row[i] not in _NOTHING
        ]
        if self._wraps:
            self._put_wrapped(cells, widths)
        else:
            for i, cell in cells.items():
                if self._columns[i].below and cell_width(cell) > widths[i]:
                    below.append(cell)
                    cells[i] = ""
                elif self._columns[i].least and self._room is not None:
                    cells[i] = self._cut(cell, widths[i], keeps_end=self._columns[i].keeps_end)
            late = self._put_line(cells, widths, late)
        if below + late:
            self._put_below(below + late)

    def _put_line(
        self, cells: dict[int, str], widths: Mapping[int, int], late: list[str]
    ) -> list[str]:
        """Write a row with late values of other columns; return those that have no room."""
        line = self._padded(cells, widths)
        if self._room is None:
            put(_BETWEEN.join([line, *late]) + "\n")
            return []
        used = cell_width(self._padded(cells, widths, str))
        if used > self._room:  # numbers that have grown since the first rows
            whole = _BETWEEN.join(cells.values())
            line = "\n".join(wrapped(whole, first="", width=self._room, hanging=GAP))
        elif used + sum(GAP + cell_width(one) for one in late) <= self._room:
            line, late = _BETWEEN.join([line, *late]), []
        put(line + "\n")
        return [self._cut(one, self._room - len(_BELOW)) for one in late]

    def _put_below(self, words: Sequence[str]) -> None:
        tone = words[0].tone if len(words) == 1 and isinstance(words[0], Toned) else None
        for line in wrapped(_BETWEEN.join(words), first="", width=self._room and self._room - 4):
            put(f"{_BELOW}{painted(line, tone, sys.stdout)}\n")

    def _put_wrapped(self, cells: Mapping[int, str], widths: Mapping[int, int]) -> None:
        parts = {
            i: [cell] if cell_width(cell) <= widths[i] else fold(cell, widths[i])
            for i, cell in cells.items()
        }
        for at in range(max(map(len, parts.values()))):
            line = {}
            for i, lines in parts.items():
                text, cell = lines[at] if at < len(lines) else "", cells[i]
                line[i] = Toned(text, cell.tone) if isinstance(cell, Toned) else text
            put(self._padded(line, widths) + "\n")

    def _cut(self, cell: str, width: int, *, keeps_end: bool = False) -> str:
        text = cut(cell, width, keeps_end=keeps_end)
        if text is cell:
            return cell
        self._has_cut = True
        return Toned(text, cell.tone) if isinstance(cell, Toned) else text

    def _padded(
        self,
        cells: Mapping[int, str],
        widths: Mapping[int, int],
        show: Callable[[str], str] | None = None,
    ) -> str:
        show = show or _coloured
        padded = []
        for i, cell in cells.items():
            blanks = " " * (widths[i] - cell_width(cell))
            padded.append(blanks + show(cell) if self._columns[i].right else show(cell) + blanks)
        return _BETWEEN.join(padded).rstrip()


def _coloured(cell: str) -> str:
    return painted(cell, cell.tone, sys.stdout) if isinstance(cell, Toned) else cell


def _printable(cells: Sequence[str]) -> Sequence[str]:
    if "".join(cells).isprintable():
        return cells
    return [cell if isinstance(cell, Toned) else printable(cell) for cell in cells]


def _column_width(cells: Sequence[str]) -> int:
    """Return the width of a column; a far longer cell makes only its own row longer."""
    widths = list(map(len if "".join(cells).isascii() else cell_width, cells))
    return max((width for width in widths if width <= _WIDE), default=min(widths))


def _widest(cells: Sequence[str]) -> int:
    return max(map(len if "".join(cells).isascii() else cell_width, cells))


def print_lines(lines: Iterable[str], width: int | None = None) -> None:
    """Print lines above or below a table, wrapped if the terminal is too narrow."""
    width = width or terminal_width()
    text = ""
    for line in map(printable, lines):
        blanks = " " * (len(line) - len(line.lstrip(" ")))
        text += "\n".join(wrapped(line.lstrip(" "), first=blanks, width=width, hanging=2)) + "\n"
    put(text)


def print_toned(text: str, tone: Tone | None, width: int | None, *, hanging: int) -> None:
    """Print words in a colour, wrapped if the terminal is too narrow."""
    width = width or terminal_width()
    for line in wrapped(printable(text), first="", width=width, hanging=hanging):
        put(painted(line, tone, sys.stdout) + "\n")


def put(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8"))


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None for a pipe or a file."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns
