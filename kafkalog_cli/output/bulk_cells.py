"""Records of large logs as cells of a table, without an object for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from formats import constants as c
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.pipeline import Restored
from kafkalog.log.columns.scan_steps import Part
from kafkalog_cli.output.records import plain_cells
from kafkalog_cli.output.text import BytesFormat, bytes_cell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kafkalog.log.columns.chunks import Chunk, Rows
    from kafkalog_cli.output.objects import Style

_QUOTED: Final = frozenset(("null", '""', '"null"'))  # `bytes_cell` shows them otherwise
_TEXT_SIZE_MAX: Final = 1 << 22
_CELLS_SIZE: Final = 500  # memory of a row, besides the bytes of its key and value


class Cells(NamedTuple):
    """Rows of a table, each with the cells under `PLAIN_TITLES`."""

    rows: list[tuple[str, ...]]


class PlainCells(Restored):
    """A format for records: `Cells`, or lists of `Record`s where some are not plain data."""

    def __init__(self, style: Style) -> None:
        self._style = style

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        table = rows.table
        is_control = chunk.headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0
        if table[k.HEADERS_COUNT].any() or is_control[table[k.ORDINAL]].any():
            yield from super().of_rows(rows, chunk)
            return
        cells = plain_cells(
            self._style,
            table[k.OFFSET].tolist(),
            table[k.TIMESTAMP].tolist(),
            self._contents(rows, k.KEY_POSITION, k.KEY_SIZE),
            self._contents(rows, k.VALUE_POSITION, k.VALUE_SIZE),
        )
        size = int(table[[k.KEY_SIZE, k.VALUE_SIZE]].clip(0).sum()) + _CELLS_SIZE * len(cells)
        yield Part(Cells(cells), len(cells), size)

    def _contents(self, rows: Rows, position: int, size: int) -> list[str]:
        """Return the cells of keys or values: slices of one text if they all are plain."""
        form, arena = self._style.value_form, rows.arena
        starts, sizes = rows.table[position], rows.table[size]
        places = list(zip(starts.tolist(), (starts + sizes).tolist(), strict=True))
        low, high = int(starts.min(initial=0)), int((starts + sizes).max(initial=0))
        if form == BytesFormat.AUTO and sizes.min(initial=1) > 0 and high - low <= _TEXT_SIZE_MAX:
            # latin-1 gives each byte one character, so byte positions cut the text; ASCII means the
            # same in UTF-8.
            text = str(arena[low:high].data, "latin-1")
            found = [text[at - low : end - low] for at, end in places]
            joined = "".join(found)
            if joined.isascii() and joined.isprintable() and _QUOTED.isdisjoint(found):
                return found
        contents = (
            None if one < 0 else bytes(arena.data[at:end])
            for (at, end), one in zip(places, sizes.tolist(), strict=True)
        )
        return [bytes_cell(one, form) for one in contents]

    def cut(self, content: Any, first: int, last: int) -> Any:
        """See `scan_steps.Format`."""
        if isinstance(content, Cells):
            return Cells(content.rows[first:last])
        return super().cut(content, first, last)
