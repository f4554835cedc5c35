"""Records of large logs as rows of a table, without an object for each of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.pipeline import Restored
from kafkalog.log.columns.scan_steps import Part
from kafkalog.log.text import table_kernels as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from kafkalog.log.columns.chunks import Chunk, Rows

    Ints: TypeAlias = NDArray[np.int64]

QUARTER_S: Final = 900
"""Clocks of time zones are set at the beginning of a quarter of an hour."""
_ROW_SIZE: Final = 8 * (t.PLAIN_ROWS + 1)
_RUN_MIN: Final = 16
"""Shorter runs of plain records, on average, are not worth their arrays."""
_TENS: Final = 10 ** np.arange(1, 19)
_NULL_SIZE, _EMPTY_SIZE = len("null"), len('""')


@dataclass(frozen=True, slots=True)
class Cells:
    """The form of cells.

    Attributes:
        of: returns the cells of an offset, a timestamp, a key and a value.
        times: the timestamps whose cells are `2026-11-27 18:00:00.123`, by the clocks of a zone.
        ahead: returns what those clocks are ahead of UTC in a quarter of an hour, given its number
            since 1970, in seconds; None if they show its times twice. Without it they show UTC.
    """

    of: Callable[[int, int, bytes | None, bytes | None], tuple[str, ...]]
    times: range
    ahead: Callable[[int], int | None] | None


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Data records as rows of a table: offset, time, key, value, and no headers.

    All of them are printable ASCII.

    Attributes:
        table: int64, a row for each number of `table_kernels`, a column for each record.
        data: the bytes of keys and values.
        shifts: what the clocks are ahead of UTC, in seconds, for each record.
        form: of cells.
    """

    table: Ints
    data: NDArray[np.uint8]
    shifts: Ints
    form: Cells
    TIME: ClassVar = 1
    """Number of the column of times."""

    def __len__(self) -> int:
        return len(self.shifts)

    def cut(self, first: int, last: int) -> PlainRows:
        """Return the rows from `first` up to `last`."""
        return replace(self, table=self.table[:, first:last], shifts=self.shifts[first:last])

    def joined(self, after: PlainRows) -> PlainRows:
        """Return these rows and those after them, of the same form."""
        table = np.concatenate([self.table, after.table], axis=1)
        table[[t.KEY_AT, t.VALUE_AT], len(self) :] += len(self.data)
        data = np.concatenate([self.data, after.data])
        return PlainRows(table, data, np.concatenate([self.shifts, after.shifts]), self.form)

    @property
    def has_ms(self) -> bool:
        """Whether a time is between two seconds."""
        return bool((self.table[t.TIMESTAMP] % 1000).any())

    def _sizes(self, *, with_ms: bool) -> list[Ints]:
        """Return the widths of the cells of each column."""
        count = len(self)
        return [
            np.searchsorted(_TENS, self.table[t.OFFSET], "right") + 1,
            np.full(count, t.TIME_SIZE if with_ms else t.SECOND_SIZE),
            _cell_sizes(self.table[t.KEY_SIZE]),
            _cell_sizes(self.table[t.VALUE_SIZE]),
            np.zeros(count, np.int64),
        ]

    def widths(self, most: int, *, with_ms: bool) -> list[int]:
        """Return the widths of the columns; wider cells than `most` count only if all are wider."""
        return [
            int(sizes[sizes <= most].max(initial=-1)) if sizes.min() <= most else int(sizes.min())
            for sizes in self._sizes(with_ms=with_ms)
        ]

    def pieces(self, rows: int, size: int, label: int) -> Iterator[tuple[PlainRows, bool]]:
        """Split the rows into pieces of `rows` rows, or fewer of more than `size` characters.

        Yields:
            A piece, and whether it is full; only the last one may not be.
        """
        count = len(self)
        ends = np.cumsum(sum(self._sizes(with_ms=True)) + label)
        first = before = 0
        while first < count:
            by_size = int(np.searchsorted(ends, before + size)) + 1
            last = min(first + rows, by_size, count)
            yield self.cut(first, last), last in (first + rows, by_size)
            first, before = last, int(ends[last - 1])

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the cells of each row."""
        data = self.data.data
        for offset, time, key, key_size, value, value_size in self.table.T.tolist():
            contents = _bytes(data, key, key_size), _bytes(data, value, value_size)
            yield self.form.of(offset, time, *contents)

    def text(self, label: bytes, widths: Sequence[int], *, with_ms: bool) -> memoryview:
        """Return the lines of the rows, with a label before each."""
        sizes = self.table[[t.KEY_SIZE, t.VALUE_SIZE]].clip(0)
        row_size = t.ROW_SIZE + len(label) + sum(widths)
        out = np.empty(int(sizes.sum()) + row_size * len(self), np.uint8)
        size = t.format_rows(
            self.data, self.table, self.shifts,
            np.frombuffer(label, np.uint8), np.array(widths, np.int64), with_ms, out,
        )  # fmt: skip
        return out.data[:size]


def _cell_sizes(sizes: Ints) -> Ints:
    return np.where(sizes > 0, sizes, np.where(sizes < 0, _NULL_SIZE, _EMPTY_SIZE))


def _bytes(data: memoryview, at: int, size: int) -> bytes | None:
    return None if size < 0 else bytes(data[at : at + size])


class PlainCells(Restored):
    """A format for records: `PlainRows`, or lists of `Record`s where some are not plain data."""

    rows_max = 32768

    def __init__(self, form: Cells) -> None:
        self._form = form

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        count = rows.table.shape[1]
        shifts = np.zeros(count, np.int64)
        is_odd = self._odd(rows, chunk, shifts)
        edges = (np.flatnonzero(np.diff(is_odd)) + 1).tolist()
        if len(edges) * _RUN_MIN > count:
            is_odd[:], edges = 1, []
        for first, last in pairwise((0, *edges, count)):
            some = replace(rows, table=rows.table[:, first:last])
            if first == last or is_odd[first]:
                yield from super().of_rows(some, chunk)
            else:
                yield self._plain(some, shifts[first:last])

    def _odd(self, rows: Rows, chunk: Chunk, shifts: Ints) -> NDArray[np.uint8]:
        """Return 1 for the rows that are left to `Record`s, and fill the shifts of the others."""
        table, times = rows.table, self._form.times
        is_control = chunk.headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0
        is_odd = is_control[table[k.ORDINAL]] | (table[k.HEADERS_COUNT] > 0)
        is_odd |= (table[k.TIMESTAMP] < times.start) | (table[k.TIMESTAMP] >= times.stop)
        is_odd |= table[k.OFFSET] < 0
        if self._form.ahead is not None:
            known = np.where(is_odd, times.start, table[k.TIMESTAMP])
            quarters, of_rows = np.unique(known // (1000 * QUARTER_S), return_inverse=True)
            ahead = [self._form.ahead(one) for one in quarters.tolist()]
            is_odd |= np.array([one is None for one in ahead])[of_rows]
            shifts[:] = np.array([one or 0 for one in ahead])[of_rows]
        marks: NDArray[np.uint8] = is_odd.astype(np.uint8)
        for at, size in ((k.KEY_POSITION, k.KEY_SIZE), (k.VALUE_POSITION, k.VALUE_SIZE)):
            t.mark_odd_text(rows.arena, table[at], table[size], marks)
        return marks

    def _plain(self, rows: Rows, shifts: Ints) -> Part:
        table = rows.table[
            [k.OFFSET, k.TIMESTAMP, k.KEY_POSITION, k.KEY_SIZE, k.VALUE_POSITION, k.VALUE_SIZE]
        ]
        places, sizes = table[[t.KEY_AT, t.VALUE_AT]], table[[t.KEY_SIZE, t.VALUE_SIZE]]
        low = int(places[sizes > 0].min(initial=len(rows.arena)))
        high = int((places + sizes)[sizes > 0].max(initial=low))
        table[[t.KEY_AT, t.VALUE_AT]] -= low
        plain = PlainRows(table, rows.arena[low:high].copy(), shifts, self._form)
        return Part(plain, len(plain), high - low + _ROW_SIZE * len(plain))

    def cut(self, content: Any, first: int, last: int) -> Any:
        """See `scan_steps.Format`."""
        if isinstance(content, PlainRows):
            return content.cut(first, last)
        return super().cut(content, first, last)
