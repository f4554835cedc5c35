"""What decoders by columns share: each step reads one part of thousands of values at once.

Values that are odd in any way are left to the decoder of single values, so that it alone says what
does not decode, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from kafkalog.log.typed.cells import CELLS_AT_ONCE, CELLS_MAX, COUNTER
from kafkalog.log.typed.remarks import LOCAL_AS_UTC, LOST_DIGITS, UNKNOWN_FIELDS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Step = Callable[["Values", Ints, Ints, Ints], Any]
    """Reads a part as a `pyarrow.Array`: of values, given by their rows, where it begins in each,
    and its size in bytes; -1 if it is not there.
    """

UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What a value raises that Arrow cannot hold: too large a number, or text that is not Unicode."""
PARTS_MAX: Final = 2000
"""How many parts a schema can have to be read by columns."""


class UnsupportedSchemaError(Exception):
    """The schema has too many parts to be read by columns."""


class TooManyError(Exception):
    """Several values have too many parts, or cells, to be decoded together."""


def require_few(fields: int, parts: int) -> None:
    """Raise `TooManyError` if a number of fields in each of some parts takes too much memory.

    The places of a field take 16 bytes.
    """
    if fields * parts > CELLS_MAX:
        raise TooManyError


class CountedValues:
    """Values that are read, and the cells of their items.

    Attributes:
        odd: which of them are to be decoded otherwise.
        cells: how many cells the items of each have so far.
    """

    def __init__(self, count: int) -> None:
        self.odd = np.zeros(count, bool)
        self.cells = np.zeros(count, np.int64)

    def spend(self, rows: Ints, cells: Ints) -> None:
        """Count cells before they are made; a value with too many becomes odd.

        Args:
            rows: the values that they are of.
            cells: how many there are for each of `rows`.

        Raises:
            TooManyError: several values have too many together.
        """
        self.cells += np.bincount(rows, cells, len(self.cells)).astype(np.int64)
        self.odd |= self.cells > CELLS_MAX
        if len(self.cells) > 1 and self.cells[~self.odd].sum() > CELLS_AT_ONCE:
            raise TooManyError

    def counted(self, rows: Ints) -> Iterator[int]:
        """Yield rows, each of which Python reads a part of then; count its cells.

        Raises:
            TooManyError: as `spend`.
        """
        cells: list[int] = []
        total = 0
        for row in rows.tolist():
            COUNTER.cells = 0
            yield row
            cells.append(COUNTER.cells)
            total += COUNTER.cells
            if total > CELLS_AT_ONCE and len(self.cells) > 1:
                raise TooManyError
        if total:
            self.spend(rows, np.array(cells, np.int64))


class Values(CountedValues):
    """Values of which each part is read by its place.

    Attributes:
        data: the bytes of all.
        lost: which of them lost something, by what.
    """

    def __init__(self, data: NDArray[np.uint8], count: int) -> None:
        super().__init__(count)
        self.data = data
        self.lost = {
            name: np.zeros(count, bool) for name in (LOST_DIGITS, LOCAL_AS_UTC, UNKNOWN_FIELDS)
        }

    def by_python(
        self, convert: Callable[[int, bytes], Any], kind: Any, rows: Ints, starts: Ints, sizes: Ints
    ) -> Any:
        """Read a part of each value by Python.

        Args:
            convert: returns what the part is, given the row and the bytes; raises `ValueError` or
                `RecursionError` if it is nothing.
            kind, rows, starts, sizes: as for a step.
        """
        found: list[Any] = []
        ends = (starts + sizes).tolist()
        data = self.data.data
        for row, start, end in zip(self.counted(rows), starts.tolist(), ends, strict=True):
            value = None
            if end >= start and not self.odd[row]:
                try:
                    value = convert(row, data[start:end].tobytes())
                except (ValueError, RecursionError):
                    self.odd[row] = True
            found.append(value)
        try:
            return pa.array(found, kind)
        except UNFIT:
            return pa.concat_arrays(
                [self._one(row, one, kind) for row, one in zip(rows.tolist(), found, strict=True)]
            )

    def _one(self, row: int, value: Any, kind: Any) -> Any:
        try:
            return pa.array([value], kind)
        except UNFIT:
            self.odd[row] = True
            return pa.nulls(1, kind)


class ValueColumns:
    """Decodes many values of one schema.

    Args:
        read: reads whole values.
        kind: their type.
        losses: counts values that lose something.
    """

    def __init__(self, read: Step, kind: Any, losses: Counter[str]) -> None:
        self.type = kind
        self._read = read
        self._losses = losses

    def decode(
        self, data: NDArray[np.uint8], starts: Ints, ends: Ints
    ) -> tuple[Any, NDArray[np.bool_]]:
        """Return a `pyarrow.Array`, and which of its values are right; others are to be decoded.

        Args:
            data: the bytes, not empty.
            starts, ends: where the values begin and end, in ascending order.

        Raises:
            TooManyError: several values have too many cells together.
        """
        count = len(starts)
        values = Values(data, count)
        try:
            found = self._read(values, np.arange(count), starts, ends - starts)
        except TooManyError:
            if count > 1:
                raise
            values.odd[:] = True
        is_right = ~values.odd
        if not is_right.any():
            return pa.nulls(count, self.type), is_right
        for name, some in values.lost.items():
            number = int((some & is_right).sum())
            if number:
                self._losses[name] += number
        return found, is_right


def where_present(kind: Any, read: Step) -> Step:
    """Return what reads a part that some values lack; it is null in these.

    Args:
        kind: the type of what `read` reads.
    """

    def step(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
        is_there = sizes >= 0
        if is_there.all():
            return read(values, rows, starts, sizes)
        there = is_there.nonzero()[0]
        if not len(there):
            return pa.nulls(len(rows), kind)
        found = read(values, rows[there], starts[there], sizes[there])
        return found.take(spread(there, len(rows)))

    return step


def spread(there: Ints, count: int) -> Any:
    """Return the places to take from an array, so that its items get to some of `count` places."""
    places = np.full(count, -1)
    places[there] = np.arange(len(there))
    return pa.array(places, mask=places < 0)


def offsets_of(counts: Ints) -> Ints:
    """Return where the items of lists begin, and where the last ones end."""
    return np.concatenate((np.zeros(1, np.int64), counts.cumsum()))


def repeated_keys(offsets: Ints, keys: Any) -> Ints:
    """Return which maps have a key twice."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    pairs = rows * (len(keys) + 1) + codes
    order = pairs.argsort(kind="stable")
    again = order[1:][np.diff(pairs[order]) == 0]
    return np.unique(rows[again])
