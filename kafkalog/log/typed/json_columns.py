"""JSON by columns: kernels find the members of thousands of objects at once, and read their values.

To make a Python object of each part takes many times as long as all the rest of an export. Texts
that are odd in any way are left to the decoder of single values, so that it alone says what does
not decode; and so are, in all texts, the parts that no kernel reads.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.columns.arrow import binary
from kafkalog.log.typed import json_kernels, json_scalar_kernels
from kafkalog.log.typed.avro_types import DAYS, MICROS, NANOSECONDS
from kafkalog.log.typed.cells import cells_of_items
from kafkalog.log.typed.column_steps import (
    PARTS_MAX,
    UnsupportedSchemaError,
    ValueColumns,
    offsets_of,
    repeated_keys,
    require_few,
    spread,
    where_present,
)
from kafkalog.log.typed.json_text import parsed
from kafkalog.log.typed.lake_types import JSON, LOCAL_TIMESTAMP, TIMESTAMP
from kafkalog.log.typed.remarks import LOCAL_AS_UTC, LOST_DIGITS, UNKNOWN_FIELDS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from kafkalog.log.typed.column_steps import Ints, Step, Values

    Scalars = Callable[[Values, Ints, Ints, Ints, NDArray[np.uint8]], Any]

_POWERS: Final = 10.0 ** np.arange(23)
_DECIMAL_SIZE: Final = 16  # of the numbers that decimals are in memory
_EXACT: Final = Context(prec=38)


class Column(NamedTuple):
    """The column of a part of a schema.

    Attributes:
        type: the `pyarrow.DataType`.
        convert: checks and converts a value, None for a null.
        form: what values are: `integer`, `number`, `boolean`, `string`, `date`, `date-time`,
            `array`, `map`, `object`, `base64`, `decimal`, `packed-decimal` if they may also be
            base64, `days`, or the logical type of a time of Avro; anything else
            if only `convert` can say.
        parts: the columns of the members or items, by name.
    """

    type: Any
    convert: Any
    form: str = ""
    parts: Mapping[str, Column | None] = {}


class JsonColumns(ValueColumns):
    """Decodes many values of one schema.

    Args:
        column: of the schema.
        noted: where `column.convert` adds what a value loses.
        losses: counts values that lose something.

    Raises:
        UnsupportedSchemaError: the schema has too many parts.
    """

    def __init__(self, column: Column, noted: list[str], losses: Counter[str]) -> None:
        read = _Steps(noted).of(column)

        def whole(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            starts, sizes = starts.copy(), sizes.copy()
            json_kernels.check_values(values.data, starts, sizes, values.odd)
            return read(values, rows, starts, sizes)

        super().__init__(whole, column.type, losses)


class AnyJsonColumns(ValueColumns):
    """Takes any JSON as text."""

    def __init__(self, losses: Counter[str]) -> None:
        def whole(values: Values, _rows: Ints, starts: Ints, sizes: Ints) -> Any:
            json_kernels.check_values(values.data, starts.copy(), sizes.copy(), values.odd)
            return binary(values.data, starts, np.where(values.odd, -1, sizes)).view(JSON)

        super().__init__(whole, JSON, losses)


class _Steps:
    """Makes what reads a part of texts."""

    def __init__(self, noted: list[str]) -> None:
        self._noted = noted
        self._count = 0

    def of(self, column: Column) -> Step:
        self._count += 1
        if self._count > PARTS_MAX:
            raise UnsupportedSchemaError
        if column.form == "object":
            return self._object(column)
        if column.form in ("array", "map"):
            return self._items(column)
        scalar = _SCALARS.get(column.form)
        if column.form in ("decimal", "packed-decimal"):
            scalar = _decimals(column.type, is_packed=column.form != "decimal")
        by_python = self._by_python(column.convert, column.type)
        return by_python if scalar is None else _with_rest(scalar, by_python)

    def _object(self, column: Column) -> Step:
        names, steps = [], []
        for name, part in column.parts.items():
            read = None if part is None else self.of(part)
            try:
                names.append(name.encode())
            except UnicodeEncodeError:  # it has an escape, if it is there, and the text is odd
                assert read is None
                continue
            steps.append(read)
        bounds = offsets_of(np.array([len(one) for one in names], np.int64))
        order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        joined = np.frombuffer(b"".join(names), np.uint8)

        def members(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            shape = (len(names), len(rows))
            require_few(*shape)
            places, there = np.zeros(shape, np.int64), np.full(shape, -1)
            json_kernels.read_members(
                values.data, starts, sizes, rows, values.odd, values.lost[UNKNOWN_FIELDS],
                joined, bounds, order, places, there,
            )  # fmt: skip
            arrays = [
                read(values, rows, places[i], there[i])
                for i, read in enumerate(steps)
                if read is not None
            ]
            return pa.StructArray.from_arrays(arrays, fields=list(column.type))

        return where_present(column.type, members)

    def _items(self, column: Column) -> Step:
        part = column.parts[""]
        assert part is not None
        read = self.of(part)
        is_map = column.form == "map"
        width = cells_of_items(column.type)
        places = 4 if is_map else 2

        def items(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            found = np.zeros((places, 0), np.int64)
            counts = np.zeros(len(rows), np.int64)
            offsets = counts
            for has_places in (False, True):
                json_kernels.read_items(
                    values.data, starts, sizes, rows, values.odd, is_map, has_places, counts, found
                )
                if not has_places:
                    values.spend(rows, counts * width)
                    counts[values.odd[rows]] = 0
                    offsets = offsets_of(counts)
                    found = np.zeros((places, int(offsets[-1])), np.int64)
                    counts = offsets[:-1].copy()
            owners = np.repeat(rows, np.diff(offsets))
            array = read(values, owners, found[0], found[1])
            ends = pa.array(offsets, pa.int32())
            if not is_map:
                return pa.ListArray.from_arrays(ends, array, type=column.type)
            keys = binary(values.data, found[2], found[3])
            values.odd[rows[repeated_keys(offsets, keys)]] = True
            return pa.MapArray.from_arrays(ends, keys.view(pa.string()), array, type=column.type)

        return where_present(column.type, items)

    def _by_python(self, convert: Any, kind: Any) -> Step:
        noted = self._noted

        def step(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
            def converted(row: int, data: bytes) -> Any:
                noted.clear()
                found = convert(parsed(data))
                for name in noted:
                    values.lost[name][row] = True
                return found

            return values.by_python(converted, kind, rows, starts, sizes)

        return step


def _with_rest(read: Scalars, by_python: Step) -> Step:
    """Return what reads values by a kernel, and the others by Python."""

    def step(values: Values, rows: Ints, starts: Ints, sizes: Ints) -> Any:
        states = np.zeros(len(rows), np.uint8)
        found = read(values, rows, starts, sizes, states)
        there = (states >= json_scalar_kernels.LEFT).nonzero()[0]
        if not len(there):
            return found
        others = by_python(values, rows[there], starts[there], sizes[there])
        places = np.arange(len(rows))
        places[there] = len(rows) + np.arange(len(there))
        return pa.concat_arrays([found, others]).take(pa.array(places))

    return step


def _mask(states: NDArray[np.uint8]) -> Any:
    is_null = states != json_scalar_kernels.READ
    return is_null if is_null.any() else None


def _booleans(
    values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> Any:
    first = values.data.take(starts, mode="clip")  # what is not there may be behind the end
    is_true = first == ord("t")
    states[:] = np.where(
        is_true | (first == ord("f")), json_scalar_kernels.READ, json_scalar_kernels.LEFT
    )
    states[sizes < 0] = json_scalar_kernels.NOTHING
    return pa.array(is_true, mask=_mask(states))


def _integers(
    values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> Any:
    numbers = np.empty(len(starts), np.int64)
    json_scalar_kernels.read_integers(values.data, starts, sizes, numbers, states)
    return pa.array(numbers, mask=_mask(states))


def _days(values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]) -> Any:
    days = _bounded(values, starts, sizes, states, DAYS)
    return pa.array(days.astype(np.int32), mask=_mask(states)).view(pa.date32())


def _moments(nanoseconds: int, kind: Any) -> Scalars:
    """Return what reads moments since 1970 in units of `nanoseconds`."""
    first, last = MICROS
    if nanoseconds >= 1000:
        first, last = -(-first * 1000 // nanoseconds), last * 1000 // nanoseconds
    else:
        first, last = first * 1000, last * 1000 + 999

    def read(
        values: Values, rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
    ) -> Any:
        numbers = _bounded(values, starts, sizes, states, (first, last))
        if nanoseconds < 1000:
            values.lost[LOST_DIGITS][rows[numbers % 1000 != 0]] = True
            numbers //= 1000
        else:
            numbers *= nanoseconds // 1000
        return pa.array(numbers, mask=_mask(states)).view(kind)

    return read


def _bounded(
    values: Values, starts: Ints, sizes: Ints, states: NDArray[np.uint8], bounds: tuple[int, ...]
) -> Ints:
    """Return integers within some bounds; others are zero."""
    first, last = (min(max(one, -(1 << 63)), (1 << 63) - 1) for one in bounds)
    numbers = np.empty(len(starts), np.int64)
    json_scalar_kernels.read_integers(values.data, starts, sizes, numbers, states)
    is_beyond = (numbers < first) | (numbers > last)
    states[is_beyond] = json_scalar_kernels.LEFT
    numbers[is_beyond] = 0
    return numbers


def _numbers(
    values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> Any:
    numbers, places = np.empty((2, len(starts)), np.int64)
    json_scalar_kernels.read_decimals(values.data, starts, sizes, numbers, places, states)
    # Both sides are exact: so is the nearest number to the result.
    powers = _POWERS[np.abs(places)]
    found = np.where(places < 0, numbers / powers, numbers * powers)
    there = (states == json_scalar_kernels.LONG).nonzero()[0]
    if len(there):
        texts = binary(values.data, starts[there], sizes[there]).view(pa.string())
        nearest = pc.cast(texts, pa.float64())
        # The shortest text of the number is the text that there is: no digit is lost.
        is_exact = pc.equal(pc.cast(nearest, pa.string()), texts).to_numpy(zero_copy_only=False)
        found[there] = nearest.to_numpy()
        states[there[is_exact]] = json_scalar_kernels.READ
    return pa.array(found, mask=_mask(states), from_pandas=False)


def _floats(
    values: Values, rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> Any:
    doubles = _numbers(values, rows, starts, sizes, states)
    found = doubles.cast(pa.float32())
    is_large = pc.fill_null(pc.is_inf(found), False)
    states[is_large.to_numpy(zero_copy_only=False)] = json_scalar_kernels.LEFT
    # As of a double: by the shortest text of the number.
    shown = pc.cast(pc.cast(found, pa.string()), pa.float64())
    is_lost = pc.fill_null(pc.not_equal(shown, doubles), False).to_numpy(zero_copy_only=False)
    values.lost[LOST_DIGITS][rows[is_lost]] = True
    return found


def _dates(
    values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> Any:
    days = np.empty(len(starts), np.int64)
    json_scalar_kernels.read_dates(values.data, starts, sizes, days, states)
    return pa.array(days.astype(np.int32), mask=_mask(states)).view(pa.date32())


def _times(values: Values, rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]) -> Any:
    micros = np.empty(len(starts), np.int64)
    json_scalar_kernels.read_times(values.data, starts, sizes, micros, states)
    is_local = states == json_scalar_kernels.LOCAL
    values.lost[LOCAL_AS_UTC][rows[is_local]] = True
    states[is_local] = json_scalar_kernels.READ
    return pa.array(micros, mask=_mask(states)).view(TIMESTAMP)


def _texts(
    values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> Any:
    starts, sizes = starts.copy(), sizes.copy()
    json_scalar_kernels.find_texts(values.data, starts, sizes, states)
    sizes[states != json_scalar_kernels.READ] = -1
    return binary(values.data, starts, sizes).view(pa.string())


def _bytes(
    values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> Any:
    return binary(*_unpacked(values, starts, sizes, states))


def _unpacked(
    values: Values, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], Ints, Ints]:
    """Return the bytes that texts of base64 have, where each begins, and its size or -1."""
    places = offsets_of(np.maximum(sizes - 2, 0) // 4 * 3)
    out = np.zeros(int(places[-1]), np.uint8)
    found = np.empty(len(starts), np.int64)
    json_scalar_kernels.read_base64(values.data, starts, sizes, places, out, found, states)
    return out, places[:-1], found


def _decimals(kind: Any, *, is_packed: bool) -> Scalars:
    """Return what reads decimals of a type, which are numbers, or their bytes as base64."""
    whole = kind.precision - kind.scale
    plain = rf"^-?(0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "^-?0"
    plain += rf"(\.[0-9]{{1,{kind.scale}}})?$" if kind.scale else "$"
    # More bytes could be more digits than all decimals have.
    wide = pa.decimal128(38, kind.scale)
    bound = pa.scalar(Decimal(10**kind.precision - 1).scaleb(-kind.scale, _EXACT), wide)

    def read(
        values: Values, _rows: Ints, starts: Ints, sizes: Ints, states: NDArray[np.uint8]
    ) -> Any:
        found = pa.nulls(len(starts), kind)
        states[:] = json_scalar_kernels.LEFT
        if is_packed:
            content, places, counts = _unpacked(values, starts, sizes, states)
            states[(counts == 0) | (counts >= _DECIMAL_SIZE)] = json_scalar_kernels.LEFT
            is_read = states == json_scalar_kernels.READ
            if is_read.any():
                numbers = _big_endian(content, places, np.where(is_read, counts, 0), wide)
                fits = pc.less_equal(pc.abs(numbers), bound).to_numpy(zero_copy_only=False)
                states[is_read & ~fits] = json_scalar_kernels.LEFT
                found = pc.if_else(pa.array(is_read & fits), numbers, None).cast(kind)
        states[sizes < 0] = json_scalar_kernels.NOTHING
        left = (states == json_scalar_kernels.LEFT).nonzero()[0]
        if not len(left):
            return found
        texts = binary(values.data, starts[left], sizes[left]).view(pa.string())
        is_plain = pc.match_substring_regex(texts, plain).to_numpy(zero_copy_only=False)
        there = left[is_plain]
        states[there] = json_scalar_kernels.READ
        numbers = texts.filter(pa.array(is_plain)).cast(kind)
        return pc.coalesce(found, numbers.take(spread(there, len(starts))))

    return read


def _big_endian(content: NDArray[np.uint8], places: Ints, counts: Ints, kind: Any) -> Any:
    """Return decimals from the bytes of integers, the highest one first."""
    table = np.empty((len(places), _DECIMAL_SIZE), np.uint8)
    last = places + counts - 1
    high = content.take(places, mode="clip") >= 0x80
    signs = np.where(high & (counts > 0), 0xFF, 0).astype(np.uint8)
    for i in range(_DECIMAL_SIZE):
        table[:, i] = np.where(i < counts, content.take(last - i, mode="clip"), signs)
    buffers = [None, pa.py_buffer(table)]
    return pa.Array.from_buffers(kind, len(places), buffers)


_SCALARS: Final[dict[str, Scalars]] = {
    "boolean": _booleans,
    "integer": _integers,
    "number": _numbers,
    "float32": _floats,
    "date": _dates,
    "date-time": _times,
    "string": _texts,
    "base64": _bytes,
    "days": _days,
    **{
        f"{family}-{unit}": _moments(nanoseconds, kind)
        for family, kind in (("timestamp", TIMESTAMP), ("local-timestamp", LOCAL_TIMESTAMP))
        for unit, nanoseconds in NANOSECONDS.items()
    },
}
