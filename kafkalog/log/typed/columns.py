"""Converts columns of bytes to typed columns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import CorruptDataError
from kafkalog.log.typed.cells import CELLS_AT_ONCE, COUNTER, cells_of
from kafkalog.log.typed.column_steps import UNFIT, TooManyError
from kafkalog.log.typed.framing import VALUE_SIZE_MAX, Framing, prefix_size
from kafkalog.log.typed.prefixes import typed_rows, with_prefixes
from kafkalog.log.typed.reasons import array_of, reason_of
from kafkalog.log.typed.several_types import NULL, SeveralTypes
from kafkalog.log.typed.type_names import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.log.typed.model import Decoder, TypedColumn
    from kafkalog.model import Header

# How many rows are decoded at a time, how many bytes of them, and how many as Python objects: calls
# for few rows take longer than their work, and each is a chance to wait for the GIL.
_ROWS_AT_ONCE: Final = 1 << 15
_SIZE_AT_ONCE: Final = 4 << 20
_OBJECTS_AT_ONCE: Final = 4096
# Of what several values become: what Arrow has for cells without much text.
_ROOM_AT_ONCE: Final = 16 * CELLS_AT_ONCE
# With how many schemas of a range decoding by columns is tried: each is a pass over the range.
_SCHEMAS_MAX: Final = 16
_TOO_LARGE: Final = f"larger than {VALUE_SIZE_MAX} bytes"


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A value that does not decode, and is null in the typed column.

    Attributes:
        row: its row in the column.
    """

    row: int
    reason: str


class TypedArray(NamedTuple):
    """A typed column of some rows.

    Attributes:
        array: the column.
        failures: the values that are null there because they do not decode.
        losses: how many values lost something, by what.
    """

    array: Any
    failures: list[Undecoded]
    losses: Counter[str]

    def cut(self, count: int) -> tuple[TypedArray, TypedArray]:
        """Return the first rows and the others; what values lost counts with the first ones."""
        return (
            TypedArray(
                self.array[:count], [one for one in self.failures if one.row < count], self.losses
            ),
            TypedArray(
                self.array[count:],
                [replace(one, row=one.row - count) for one in self.failures if one.row >= count],
                Counter(),
            ),
        )


def typed_pieces(
    column: TypedColumn, decoder: Decoder, data: Any, headers: Any = None
) -> Iterator[TypedArray]:
    """Yield the typed column of some bytes: each time that of the next rows, as many as have room.

    At least one piece, if without rows. Arguments are those of `typed_column`.
    """
    rows_max = max(min(_ROWS_AT_ONCE, CELLS_AT_ONCE // cells_of(decoder.type)), 1)
    sizes = pc.fill_null(pc.binary_length(data), 0).cast(pa.int64())
    for whole in _slices(sizes.to_numpy(zero_copy_only=False), rows_max):
        waiting = [whole]
        while waiting:
            start, end = waiting.pop()
            some = None if headers is None else headers[start:end]
            try:
                found = typed_column(column, decoder, data[start:end], some)
            except TooManyError:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
                continue
            yield found
    if not len(data):
        yield TypedArray(pa.array([], decoder.type), [], Counter())


def aligned(columns: Sequence[Iterator[TypedArray]]) -> Iterator[list[TypedArray]]:
    """Yield the pieces of several typed columns cut alike.

    Args:
        columns: what `typed_pieces` yields for each, all of them of the same rows.
    """
    following: list[TypedArray | None] = [next(one) for one in columns]
    while pieces := [one for one in following if one is not None]:
        count = min(len(one.array) for one in pieces)
        cut = [one.cut(count) for one in pieces]
        yield [first for first, _ in cut]
        following = [
            rest if len(rest.array) else next(column, None)
            for (_, rest), column in zip(cut, columns, strict=True)
        ]


def typed_column(
    column: TypedColumn, decoder: Decoder, data: Any, headers: Any = None
) -> TypedArray:
    """Return the typed column of some bytes.

    Values of more than `VALUE_SIZE_MAX` bytes are not decoded, nor values whose items have more
    than `CELLS_MAX` cells. A decoder counts what values lose, so one thread at a time may use it.

    Args:
        column: describes the column.
        decoder: the result of `column.decoder`.
        data: a `pyarrow.BinaryArray`.
        headers: those of the records, a `pyarrow.ListArray` of structs of `key` and `value`; needed
            if `column.id_headers` names some.

    Raises:
        TooManyError: several values have too many cells together.
    """
    before = Counter(decoder.losses)
    is_large = pc.fill_null(pc.greater(pc.binary_length(data), VALUE_SIZE_MAX), False)
    [large] = is_large.to_numpy(zero_copy_only=False).nonzero()
    if len(large):
        data = pc.if_else(is_large, pa.scalar(None, data.type), data)
    whole = data if headers is None else with_prefixes(column, data, headers)
    if isinstance(decoder, SeveralTypes):
        array, failures = _by_types(column, decoder, whole)
    else:
        array, failures = _by_one_type(column, decoder, whole)
    failures += [Undecoded(int(row), _TOO_LARGE) for row in large]
    _require_room([array], len(data))
    return TypedArray(array, failures, decoder.losses - before)


def _require_room(arrays: Iterable[Any], count: int) -> None:
    """Raise `TooManyError` if the arrays of several values are too large."""
    if count > 1 and sum(one.nbytes for one in arrays) > _ROOM_AT_ONCE:
        raise TooManyError


def _by_one_type(column: TypedColumn, decoder: Decoder, data: Any) -> tuple[Any, list[Undecoded]]:
    """Return the typed column of values with their prefixes, and the values that are null there."""
    found, rows = _by_columns(column, decoder, data)
    if rows is None:
        return found, []
    array, odd = _by_values(column, decoder, data.take(pa.array(rows)))
    failures = [replace(one, row=int(rows[one.row])) for one in odd]
    if len(rows) == len(data):
        return array, failures
    places = np.arange(len(data))
    places[rows] = len(data) + np.arange(len(rows))
    return pa.concat_arrays([found, array]).take(pa.array(places)), failures


def _by_types(
    column: TypedColumn, decoder: SeveralTypes, whole: Any
) -> tuple[Any, list[Undecoded]]:
    """Return the same of values of several types.

    The values of each type are decoded together, by columns where its decoder can.
    """
    names, rows, *_ = typed_rows(column, names_of(column), whole)
    count = len(whole)
    is_left = whole.is_valid().to_numpy(zero_copy_only=False)
    is_set = np.zeros(count, bool)
    arrays: list[Any] = [pa.nulls(count, field.type) for field in decoder.type]
    failures: list[Undecoded] = []
    for number, name in enumerate(names):
        chosen = (rows == number).nonzero()[0]
        place = decoder.place(name)
        if place is None:
            is_left[chosen] &= name != NULL
            continue
        is_left[chosen] = False
        of_type, its_decoder = decoder.parts[place]
        some = decoder.of_types(of_type, whole.take(pa.array(chosen)))
        array, odd, _ = typed_column(of_type, its_decoder, some)
        failures += [replace(one, row=int(chosen[one.row])) for one in odd]
        is_set[chosen] = array.is_valid().to_numpy(zero_copy_only=False)
        taken = np.zeros(count, np.int64)
        taken[chosen] = np.arange(len(chosen))
        absent = np.ones(count, bool)
        absent[chosen] = False
        arrays[place] = array.take(pa.array(taken, mask=absent))
        _require_room(arrays, count)
    for row in is_left.nonzero()[0]:
        failures.append(Undecoded(int(row), _reason(column, decoder, whole[int(row)].as_py())))
    found = pa.StructArray.from_arrays(arrays, fields=list(decoder.type), mask=pa.array(~is_set))
    failures.sort(key=lambda one: one.row)
    return found, failures


def _reason(column: TypedColumn, decoder: Decoder, whole: bytes) -> str:
    """Return why bytes of no type of the column do not decode."""
    try:
        decoder.decode(*column.unframed(whole))
    except ValueError as error:
        return reason_of(error)
    raise AssertionError("its type is known")


def _by_columns(
    column: TypedColumn, decoder: Decoder, data: Any
) -> tuple[Any, NDArray[np.int64] | None]:
    """Return what can be decoded by columns, and the rows that remain; None if none does.

    Each schema that allows it takes all its values at once.
    """
    everything = np.arange(len(data))
    _, offsets, raw = data.buffers()
    is_packed = column.framing == Framing.GLUE  # each value may be compressed
    if is_packed or not hasattr(decoder, "by_columns") or raw is None or not raw.size:
        return None, everything
    places = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1]
    there = data.is_valid().to_numpy(zero_copy_only=False)
    rows = there.nonzero()[0]
    starts, ends = places[:-1][rows].astype(np.int64), places[1:][rows].astype(np.int64)
    content = np.frombuffer(raw, np.uint8)
    least = prefix_size(column.framing)
    is_left = ends - starts >= least
    # Arrow arrays cannot be written to: the decoded values are spread over all rows by `take`.
    parts: list[Any] = []
    taken = np.full(len(data), -1)
    size_of_parts = 0
    for _ in range(_SCHEMAS_MAX):
        if not is_left.any():
            break
        one = int(is_left.argmax())
        schema_id, size = column.split(content[starts[one] : ends[one]].tobytes())
        size = size or least  # of what has no id, all that begins alike is left out at once
        has_it = is_left & (ends - starts >= size)
        for i in range(size):
            # Clip: a value shorter than the prefix may be the last, and is not counted.
            has_it &= content.take(starts + i, mode="clip") == content[starts[one] + i]
        is_left &= ~has_it
        is_wanted = column.schema_id in (None, schema_id) and (schema_id is not None or not least)
        columns = decoder.by_columns(schema_id) if is_wanted else None
        if columns is None:
            continue
        found, is_right = columns.decode(content, starts[has_it] + size, ends[has_it])
        own = rows[has_it]
        taken[own] = size_of_parts + np.arange(len(own))
        there[own[is_right]] = False
        parts.append(found)
        _require_room(parts, len(data))
        size_of_parts += len(found)
    if not parts:
        return None, everything
    found = parts[0]
    if len(parts) > 1 or len(found) < len(data):
        found = pa.concat_arrays(parts).take(pa.array(taken, mask=taken < 0))
    rest = there.nonzero()[0]
    return found, rest if len(rest) else None


def _by_values(column: TypedColumn, decoder: Decoder, data: Any) -> tuple[Any, list[Undecoded]]:
    parts: list[Any] = [pa.array([], decoder.type)]
    failures: list[Undecoded] = []
    for start in range(0, len(data), _OBJECTS_AT_ONCE):
        array, odd = _some_values(column, decoder, data.slice(start, _OBJECTS_AT_ONCE))
        parts.append(array)
        _require_room(parts, len(data))
        failures += [replace(one, row=start + one.row) for one in odd]
    return pa.concat_arrays(parts), failures


def _some_values(column: TypedColumn, decoder: Decoder, data: Any) -> tuple[Any, list[Undecoded]]:
    values: list[Any] = []
    failures: list[Undecoded] = []
    decode, unframed = decoder.decode, column.unframed
    cells = 0
    for row, one in enumerate(data.to_pylist()):
        value = None
        if one is not None:
            COUNTER.cells = 0
            try:
                value = decode(*unframed(one))
                cells += COUNTER.cells
            except ValueError as error:
                failures.append(Undecoded(row, reason_of(error)))
            if cells > CELLS_AT_ONCE and len(data) > 1:
                raise TooManyError
        values.append(value)
    try:
        return pa.array(values, decoder.type), failures
    except UNFIT:
        array, unfit = _one_by_one(values, decoder.type)
        return array, failures + unfit


def one_value(
    column: TypedColumn,
    decoder: Decoder,
    data: bytes | None,
    headers: Iterable[Header] = (),
) -> tuple[Any, str | None]:
    """Return an array of one value, and why bytes do not decode, as `typed_column` judges it.

    Without a reason the value is null only if the bytes are.
    """
    if data is None:
        return pa.nulls(1, decoder.type), None
    if len(data) > VALUE_SIZE_MAX:
        return pa.nulls(1, decoder.type), _TOO_LARGE
    COUNTER.cells = 0
    try:
        whole = column.with_prefix(data, headers)
        value = decoder.decode(*column.unframed(whole))
    except ValueError as error:
        return pa.nulls(1, decoder.type), reason_of(error)
    return array_of(value, decoder.type)


def python_value(array: Any, reason: str | None) -> Any:
    """Return what `one_value` says in types of Python that conditions have.

    Raises:
        CorruptDataError: the bytes do not decode.
    """
    if reason is None:
        try:
            [value] = array.to_pylist(maps_as_pydicts="lossy")
        except UNFIT as error:  # a time beyond the calendar of Python
            reason = reason_of(error)
        else:
            return _with_dates_as_text(value)
    raise CorruptDataError(reason)


def _with_dates_as_text(value: Any) -> Any:
    """Return a value with ISO 8601 for dates and local times, which conditions do not have."""
    if isinstance(value, dict):
        return {name: _with_dates_as_text(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_dates_as_text(one) for one in value]
    if isinstance(value, date) and not (isinstance(value, datetime) and value.tzinfo):
        return value.isoformat()
    return value


def _slices(sizes: Any, rows_max: int) -> Iterator[tuple[int, int]]:
    """Cut a column into ranges of rows, by count and by bytes; values too large are alone."""
    ends = sizes.cumsum()
    large = (sizes > VALUE_SIZE_MAX).nonzero()[0]
    start = before = 0
    while start < len(sizes):
        # At least one value, however large.
        end = int(ends.searchsorted(before + _SIZE_AT_ONCE)) + 1
        end = min(end, start + rows_max, len(sizes))
        following = int(large.searchsorted(start))
        if following < len(large):
            end = min(end, max(int(large[following]), start + 1))
        yield start, end
        start, before = end, int(ends[end - 1])


def _one_by_one(values: list[Any], kind: Any) -> tuple[Any, list[Undecoded]]:
    parts = []
    failures: list[Undecoded] = []
    for row, value in enumerate(values):
        array, reason = array_of(value, kind)
        parts.append(array)
        if reason is not None:
            failures.append(Undecoded(row, reason))
    return pa.concat_arrays(parts), failures
