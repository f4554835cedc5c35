"""Avro by columns: each step reads one field of thousands of values at once.

To make a Python object of each field takes several times as long as all the rest of an export. This
reads by kernels, and leaves to `avro_resolution` values that are odd in any way, so that it alone
says what does not decode; and, in all values, parts that no kernel reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from formats.constants import INT32_MAX, INT64_MAX
from kafkalog.log.columns.arrow import binary
from kafkalog.log.typed import avro_kernels
from kafkalog.log.typed.avro_types import DAYS, MICROS, is_struct, unit
from kafkalog.log.typed.avro_values import SIZES, Cursor, read_null
from kafkalog.log.typed.cells import COUNTER, cells_of_items, cells_of_text
from kafkalog.log.typed.column_steps import (
    PARTS_MAX,
    CountedValues,
    UnsupportedSchemaError,
    repeated_keys,
)
from kafkalog.log.typed.remarks import LOST_DIGITS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kafkalog.log.typed.avro_resolution import Resolution
    from kafkalog.log.typed.avro_schema import Node
    from kafkalog.log.typed.avro_types import Shape
    from kafkalog.log.typed.avro_values import Reader

    Rows = NDArray[np.int64]
    Step = Callable[["_Values", Rows], Any]

_BOUNDS: Final = {"int": (-INT32_MAX - 1, INT32_MAX), "long": (-INT64_MAX - 1, INT64_MAX)}
_DAY_NS: Final = 86_400_000_000_000
# Items are read in rounds, one of each array; rounds of few arrays are slower than Python.
_ROUNDS_MIN: Final = 8
_ARRAYS_MIN: Final = 64
_DEFAULT_SIZE_MAX: Final = 1024
_DECIMAL_SIZE_MAX: Final = 16


class AvroColumns:
    """Decodes many values of one schema.

    Args:
        resolution: reads values that kernels leave over, and maps the types of the writer.
        writer: the schema of the values.
        losses: counts values that lose digits; another one than that of the resolution, which
            notes those of one value.

    Raises:
        UnsupportedSchemaError: the schema is too large.
        ValueError: it does not fit the column's.
    """

    def __init__(self, resolution: Resolution, writer: Node, losses: Counter[str]) -> None:
        reader, shape = resolution.root
        self.type = shape.type
        self._losses = losses
        self._read = _Steps(resolution).of(writer, reader, shape)

    def decode(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.bool_]]:
        """Return a `pyarrow.Array`, and which of its values are right; others are to be decoded.

        Args:
            data: the bytes, not empty.
            starts, ends: where the values begin and end, in ascending order.

        Raises:
            TooManyError: several values have too many cells together.
        """
        values = _Values(data, starts, ends)
        try:
            found = self._read(values, np.arange(len(starts)))
        except pa.ArrowInvalid:  # text that is not Unicode, somewhere
            return pa.nulls(len(starts), self.type), np.zeros(len(starts), bool)
        is_right = ~values.odd & (values.at == ends)
        if number := int((values.lost & is_right).sum()):
            self._losses[LOST_DIGITS] += number
        return found, is_right


class _Values(CountedValues):
    """Reads values field by field; marks a value that it cannot read as odd, and reads zeros.

    Attributes:
        lost: which values lost digits.
    """

    def __init__(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        super().__init__(len(starts))
        self.data = data
        self.at = starts.astype(np.int64)
        self.ends = ends
        self.lost = np.zeros(len(starts), bool)

    def numbers(self, rows: Rows, least: int, most: int) -> NDArray[np.int64]:
        """Read a zigzag varint of each value."""
        found = np.empty(len(rows), np.int64)
        avro_kernels.read_numbers(self.data, self.at, self.ends, self.odd, rows, least, most, found)
        return found

    def fixed(self, rows: Rows, size: int) -> NDArray[np.uint8]:
        """Read the given number of bytes of each value."""
        found = np.zeros(len(rows) * size, np.uint8)
        avro_kernels.read_fixed(self.data, self.at, self.ends, self.odd, rows, size, found)
        return found

    def spans(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Read bytes with their size before them; return where they start, and their sizes."""
        starts, sizes = np.empty((2, len(rows)), np.int64)
        avro_kernels.read_sized(self.data, self.at, self.ends, self.odd, rows, starts, sizes)
        return starts, sizes

    def skip(self, rows: Rows, size: int) -> Rows:
        """Pass over the given number of bytes of each value; return where they start."""
        starts = self.at[rows]
        is_odd = self.ends[rows] - starts < size
        self.at[rows] += size
        self.refuse(rows[is_odd])
        return starts

    def refuse(self, rows: Rows | int) -> None:
        self.odd[rows] = True
        self.at[rows] = self.ends[rows]


class _Steps:
    """Makes what reads a part of the schema of values, as a `pyarrow.Array` of the shape's type."""

    def __init__(self, resolution: Resolution) -> None:
        self._resolution = resolution
        self._count = 0

    def of(self, writer: Node, reader: Node, shape: Shape) -> Step:
        self._count += 1
        if self._count > PARTS_MAX:
            raise UnsupportedSchemaError
        resolution = self._resolution
        if shape.is_json or shape.main is not None:
            return self._by_rows(writer, reader, shape)
        if writer.kind == "union":
            return self._union(writer, reader, shape)
        if reader.kind == "union":
            place = resolution.branch(writer, reader)
            if place is not None:
                return self._as_branch(writer, reader, place, shape)
        elif resolution.fits_at(writer, reader):
            if writer.kind == "record" and not reader.logical:
                return self._record(writer, reader, shape)
            if writer.kind == "array":
                return self._array(writer, reader, shape)
            if writer.kind == "map":
                return self._map(writer, reader, shape)
            found = _scalar(writer, reader, shape)
            if found is not None:
                return found
        return self._by_rows(writer, reader, shape)

    def _by_rows(self, writer: Node, reader: Node, shape: Shape) -> Step:
        return _by_rows(
            self._resolution.read(writer, reader, shape), shape.type, self._resolution.losses
        )

    def _dropped(self, read: Reader) -> Step:
        return _by_rows(read, pa.null(), self._resolution.losses)

    def _record(self, writer: Node, reader: Node, shape: Shape) -> Step:
        places = {one.name: i for i, one in enumerate(reader.fields)}
        written = self._resolution.names.fields(writer)
        steps: list[tuple[int | None, Step]] = []
        for name, node in written:
            place = places.pop(name, None)
            if place is None:
                steps.append((None, self._skip(node)))
                continue
            kind, part = reader.fields[place].type, shape.parts[place]
            if part is None:  # a field that can only be null
                steps.append((None, self._dropped(self._resolution.nothing(node, kind))))
            else:
                steps.append((place, self.of(node, kind, part)))
        for place in places.values():
            part = shape.parts[place]
            if part is not None:
                steps.append((place, _constant(self._resolution, reader.fields[place], part)))
        fields = list(shape.type)
        order = [i for i, name in enumerate(shape.names) if name]

        def record(values: _Values, rows: Rows) -> Any:
            found = {place: read(values, rows) for place, read in steps}
            arrays = [found[place] for place in order] or [pa.array(np.ones(len(rows), bool))]
            return pa.StructArray.from_arrays(arrays, fields=fields)

        return record

    def _union(self, writer: Node, reader: Node, shape: Shape) -> Step:
        is_same = reader.kind == "union" and self._resolution.is_same(writer, reader)
        branches = [
            self._as_branch(one, reader, i, shape) if is_same else self.of(one, reader, shape)
            for i, one in enumerate(writer.parts)
        ]

        def union(values: _Values, rows: Rows) -> Any:
            numbers = values.numbers(rows, 0, len(branches) - 1)
            places = np.zeros(len(rows), np.int64)
            found, size = [], 0
            for i, read in enumerate(branches):
                there = (numbers == i).nonzero()[0]
                if not len(there):
                    continue
                found.append(read(values, rows[there]))
                if len(there) == len(rows):
                    return found[0]
                places[there] = size + np.arange(len(there))
                size += len(there)
            if not found:
                return pa.nulls(len(rows), shape.type)
            return pa.concat_arrays(found).take(pa.array(places))

        return union

    def _as_branch(self, writer: Node, reader: Node, place: int, shape: Shape) -> Step:
        part = shape.parts[place]
        if part is None:
            return lambda _, rows: pa.nulls(len(rows), shape.type)
        read = self.of(writer, reader.parts[place], part)
        if not is_struct(reader):
            return read
        fields = list(shape.type)
        name = shape.names[place]

        def branch(values: _Values, rows: Rows) -> Any:
            arrays = [
                read(values, rows) if one.name == name else pa.nulls(len(rows), one.type)
                for one in fields
            ]
            return pa.StructArray.from_arrays(arrays, fields=fields)

        return branch

    def _array(self, writer: Node, reader: Node, shape: Shape) -> Step:
        [part] = shape.parts
        assert part is not None  # an array of nulls is JSON
        read = self.of(writer.parts[0], reader.parts[0], part)
        width = cells_of_items(shape.type)

        def array(values: _Values, rows: Rows) -> Any:
            offsets, (items,) = _items(
                values, rows, width, lambda some: (read(values, some),), (part,)
            )
            return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=shape.type)

        return array

    def _map(self, writer: Node, reader: Node, shape: Shape) -> Step:
        [part] = shape.parts
        assert part is not None  # a map of nulls is JSON
        read = self.of(writer.parts[0], reader.parts[0], part)
        width = cells_of_items(shape.type)

        def entries(values: _Values, rows: Rows) -> Any:
            def entry(some: Rows) -> tuple[Any, Any]:
                return binary(values.data, *values.spans(some)).cast(pa.string()), read(
                    values, some
                )

            offsets, (keys, items) = _items(values, rows, width, entry, (_KEY, part))
            values.odd[rows[repeated_keys(offsets, keys)]] = True
            return pa.MapArray.from_arrays(
                pa.array(offsets, pa.int32()), keys, items, type=shape.type
            )

        return entries

    def _skip(self, node: Node) -> Step:
        """Return what passes over a part; its result has no meaning."""
        self._count += 1
        if self._count > PARTS_MAX:
            raise UnsupportedSchemaError
        kind = node.kind
        if kind in _BOUNDS or kind == "enum":
            return lambda values, rows: values.numbers(rows, *_BOUNDS.get(kind, _BOUNDS["int"]))
        if kind in ("bytes", "string"):
            return lambda values, rows: values.spans(rows)
        if kind == "fixed" or kind in SIZES:
            size = SIZES.get(kind, node.size)
            return lambda values, rows: values.skip(rows, size)
        return self._dropped(self._resolution.skips.of(node))


_KEY: Final = None


def _by_rows(read: Reader, kind: Any, losses: Counter[str]) -> Step:
    """Read a part of each value by Python."""
    if read is read_null:
        return lambda _, rows: pa.nulls(len(rows), kind)

    def part(values: _Values, rows: Rows) -> Any:
        found: list[Any] = []
        for row in values.counted(rows):
            cursor = Cursor(values.data[values.at[row] : values.ends[row]].tobytes())
            value = None
            losses.clear()
            try:
                value = read(cursor)
                values.at[row] += cursor.at
            except (ValueError, RecursionError):
                values.refuse(row)
            found.append(value)
            values.lost[row] |= losses[LOST_DIGITS] > 0
        return pa.nulls(len(found)) if kind == pa.null() else pa.array(found, kind)

    return part


def _constant(resolution: Resolution, field: Any, shape: Shape) -> Step:
    read = resolution.default(field, shape)
    COUNTER.cells = 0
    try:
        value = pa.array([read(Cursor(b""))], shape.type)
    except (ValueError, RecursionError):
        return _by_rows(read, shape.type, resolution.losses)
    if value.nbytes > _DEFAULT_SIZE_MAX:
        raise UnsupportedSchemaError
    cells = COUNTER.cells

    def constant(values: _Values, rows: Rows) -> Any:
        if cells:
            values.spend(rows, np.full(len(rows), cells))
        return value.take(pa.array(np.zeros(len(rows), np.int64)))

    return constant


def _items(
    values: _Values,
    rows: Rows,
    width: int,
    read: Callable[[Rows], tuple[Any, ...]],
    parts: tuple[Any, ...],
) -> tuple[NDArray[np.int64], list[Any]]:
    """Read the items of arrays or maps of one block.

    Args:
        width: the cells of an item.
        read: reads an item of each of some values.
        parts: the shapes of what it reads.

    Returns:
        where the items of each row begin and the last ones end, and the columns of the items.
    """
    counts = values.numbers(rows, 0, INT32_MAX)
    left = values.ends[rows] - values.at[rows]
    many = counts > left  # items without bytes, or damage
    # Rounds go on while enough arrays have items.
    is_few = len(counts) < _ARRAYS_MIN
    longest = 0 if is_few else max(int(np.sort(counts)[-_ARRAYS_MIN]), _ROUNDS_MIN)
    many |= counts > longest
    values.spend(rows, np.where(many, 0, counts * width))
    many |= values.odd[rows]
    values.refuse(rows[many])
    counts[many] = 0
    offsets = np.concatenate(([0], counts.cumsum()))
    order = np.empty(offsets[-1], np.int64)
    found: list[tuple[Any, ...]] = []
    size = 0
    for number in range(int(counts.max(initial=0))):
        there = (counts > number).nonzero()[0]
        found.append(read(rows[there]))
        order[offsets[there] + number] = size + np.arange(len(there))
        size += len(there)
    values.numbers(rows[counts > 0], 0, 0)  # the end of the blocks
    if not found:
        return offsets, [pa.array([], pa.string() if one is _KEY else one.type) for one in parts]
    columns = [pa.concat_arrays(list(one)) for one in zip(*found, strict=True)]
    return offsets, [one.take(pa.array(order)) for one in columns] if len(found) > 1 else columns


# Scalars -----------------------------------------------------------------------------------------


def _scalar(writer: Node, reader: Node, shape: Shape) -> Step | None:
    """Return what reads values that have no parts; None if no kernel does."""
    kind = shape.type
    if writer.kind == "enum":
        return _enum(writer, reader)
    if reader.logical == "decimal" and pa.types.is_decimal(kind):
        return _decimal(writer, reader, kind)
    if reader.logical == "uuid" and writer.kind == "fixed":
        return _uuid
    if reader.logical in (
        "big-decimal",
        "connect-decimal",
        "decimal",
        "zoned-timestamp",
        "duration",
    ):
        return None
    if writer.kind in _BOUNDS:
        return _integer(writer, reader, kind)
    if writer.kind == "boolean":
        return _boolean
    if writer.kind in ("float", "double"):
        code = "<f4" if writer.kind == "float" else "<f8"
        size = SIZES[writer.kind]
        return lambda values, rows: pa.array(values.fixed(rows, size).view(code)).cast(kind)
    if writer.kind in ("bytes", "string"):
        return lambda values, rows: binary(values.data, *values.spans(rows)).cast(kind)
    if writer.kind == "fixed":
        return _fixed(writer.size)
    return None


def _enum(writer: Node, reader: Node) -> Step:
    texts = pa.array(
        [one if one in reader.symbols else reader.default for one in writer.symbols], pa.string()
    )
    unknown = np.array([one is None for one in texts.to_pylist()], bool)
    cells = np.array([cells_of_text(len(one or "")) for one in texts.to_pylist()], np.int64)
    if not len(texts):
        return _refused

    def enum(values: _Values, rows: Rows) -> Any:
        numbers = values.numbers(rows, 0, len(texts) - 1)
        if unknown.any():
            values.refuse(rows[unknown[numbers]])
        if cells.any():
            values.spend(rows, cells[numbers])
        return texts.take(pa.array(numbers))

    return enum


def _refused(values: _Values, rows: Rows) -> Any:
    values.refuse(rows)
    return pa.nulls(len(rows), pa.string())


def _integer(writer: Node, reader: Node, kind: Any) -> Step:
    least, most = _BOUNDS[writer.kind]
    if pa.types.is_floating(kind):
        width: Any = np.float32 if kind == pa.float32() else np.float64

        def nearest(values: _Values, rows: Rows) -> Any:
            numbers = values.numbers(rows, least, most)
            found = numbers.astype(width)
            whole = np.where(found < 1 << 63, found, 0).astype(np.int64)  # others are not exact
            values.lost[rows[whole != numbers]] = True
            return pa.array(found)

        return nearest
    if reader.logical == "date":
        return lambda values, rows: pa.array(values.numbers(rows, *DAYS).astype(np.int32)).view(
            kind
        )
    family = reader.logical.rpartition("-")[0]
    if not family:
        return lambda values, rows: pa.array(values.numbers(rows, least, most))
    size = unit(writer, reader)
    if family == "time":
        bounds = (0, min(_DAY_NS // size - 1, most))
        return lambda values, rows: _times(values.numbers(rows, *bounds) * size, reader)
    first, last = MICROS[0] * 1000 // size, (MICROS[1] * 1000 + 999) // size
    bounds = (max(least, first), min(most, last))

    def moments(values: _Values, rows: Rows) -> Any:
        numbers = values.numbers(rows, *bounds)
        if size >= 1000:
            return pa.array(numbers * (size // 1000)).view(kind)
        micros = numbers // 1000
        values.lost[rows[micros * 1000 != numbers]] = True
        return pa.array(micros).view(kind)

    return moments


def _times(numbers: NDArray[np.int64], reader: Node) -> Any:
    """Return texts of times of day, given in nanoseconds."""
    is_nanos = reader.logical.endswith("nanos")
    counts = numbers if is_nanos else numbers // 1000
    texts = pa.array(counts).view(pa.time64("ns" if is_nanos else "us")).cast(pa.string())
    is_whole = pa.array(numbers % 1_000_000_000 == 0)
    return pc.if_else(is_whole, pc.utf8_slice_codeunits(texts, 0, 8), texts)


def _decimal(writer: Node, reader: Node, kind: Any) -> Step | None:
    is_other = writer.logical == "decimal" and writer.scale != reader.scale
    if is_other or writer.size > _DECIMAL_SIZE_MAX:
        return None
    high, low = divmod(10**kind.precision, 1 << 64)

    def decimals(values: _Values, rows: Rows) -> Any:
        if writer.kind == "fixed":
            starts = values.skip(rows, writer.size)
            sizes = np.where(values.odd[rows], 0, writer.size)
        else:
            starts, sizes = values.spans(rows)
        words = np.zeros((len(rows), 2), np.int64)
        avro_kernels.decimals(values.data, starts, sizes, words.reshape(-1))
        is_odd = (sizes == 0) | (sizes > _DECIMAL_SIZE_MAX) | _beyond(words, high, low)
        values.refuse(rows[is_odd])
        words[is_odd] = 0
        buffers = [None, pa.py_buffer(words)]
        return pa.Array.from_buffers(kind, len(rows), buffers)

    return decimals


def _beyond(words: NDArray[np.int64], high: int, low: int) -> NDArray[np.bool_]:
    """Return which integers of 128 bits, low words first, are not between -bound and bound."""
    lows, highs = words[:, 0].view(np.uint64), words[:, 1]
    over = (highs > high) | ((highs == high) & (lows >= np.uint64(low)))
    # -bound, in two's complement.
    least_low = (-low) % (1 << 64)
    least_high = -high - (1 if low else 0)
    under = (highs < least_high) | ((highs == least_high) & (lows <= np.uint64(least_low)))
    found: NDArray[np.bool_] = over | under
    return found


def _fixed(size: int) -> Step:
    def fixed(values: _Values, rows: Rows) -> Any:
        starts = values.skip(rows, size)
        return binary(values.data, starts, np.where(values.odd[rows], 0, size))

    return fixed


_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES: Final = (8, 13, 18, 23)


def _uuid(values: _Values, rows: Rows) -> Any:
    raw = values.fixed(rows, 16)
    digits = np.stack((_HEX[raw >> 4], _HEX[raw & 15]), 1).reshape(len(rows), 32)
    texts = np.full((len(rows), 36), ord("-"), np.uint8)
    texts[:, [i for i in range(36) if i not in _DASHES]] = digits
    return pa.array(texts.reshape(-1).view("S36").astype(object), pa.binary()).cast(pa.string())


def _boolean(values: _Values, rows: Rows) -> Any:
    found = values.fixed(rows, 1)
    values.odd[rows[found > 1]] = True
    return pa.array(found != 0)
