"""JSON by columns: kernels find the members of thousands of objects at once, and read their values.

To make a Python object of each part takes many times as long as all the rest of an export. Texts
that are odd in any way are left to the decoder of single values, so that it alone says what does
not decode; and so are, in all texts, the parts that no kernel reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.columns.arrow import binary
from kafkalog.log.typed import json_kernels, json_scalar_kernels
from kafkalog.log.typed.cells import cells_of_items
from kafkalog.log.typed.column_steps import (
    PARTS_MAX,
    UnsupportedSchemaError,
    ValueColumns,
    offsets_of,
    repeated_keys,
    require_few,
    where_present,
)
from kafkalog.log.typed.json_text import parsed
from kafkalog.log.typed.lake_types import JSON, TIMESTAMP
from kafkalog.log.typed.remarks import LOCAL_AS_UTC, UNKNOWN_FIELDS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from kafkalog.log.typed.column_steps import Ints, Step, Values

    Scalars = Callable[[Values, Ints, Ints, Ints, NDArray[np.uint8]], Any]

_POWERS: Final = 10.0 ** np.arange(23)


class Column(NamedTuple):
    """The column of a part of a schema.

    Attributes:
        type: the `pyarrow.DataType`.
        convert: checks and converts a value, None for a null.
        form: what values are: `integer`, `number`, `boolean`, `string`, `date`, `date-time`,
            `array`, `map`, `object`; empty if only `convert` can say.
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
    found = _numbers(values, rows, starts, sizes, states).cast(pa.float32())
    is_large = pc.fill_null(pc.is_inf(found), False)
    states[is_large.to_numpy(zero_copy_only=False)] = json_scalar_kernels.LEFT
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


_SCALARS: Final[dict[str, Scalars]] = {
    "boolean": _booleans,
    "integer": _integers,
    "number": _numbers,
    "float32": _floats,
    "date": _dates,
    "date-time": _times,
    "string": _texts,
}
