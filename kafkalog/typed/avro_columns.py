"""Avro by columns: each step reads one field of thousands of values at once.

fastavro makes a Python object of each field, which takes several times as long as all the rest of
an export. This reads what is frequent, records of plain fields, and leaves to fastavro all values
that are odd in any way, so that it alone says what does not decode.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from formats.constants import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_VARINT_SIZE_MAX: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS: Final = tuple(
    int((one - _EPOCH).total_seconds()) * 1_000_000
    for one in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
)
_DAYS: Final = tuple(one.toordinal() - date(1970, 1, 1).toordinal() for one in (date.min, date.max))
_DAY_MS: Final = 86_400_000
# What Python's dates and times can hold; fastavro judges the rest.
_BOUNDS: Final[dict[tuple[str, str], tuple[int, ...] | None]] = {
    ("int", ""): (-INT32_MAX - 1, INT32_MAX),
    ("int", "date"): _DAYS,
    ("int", "time-millis"): (0, _DAY_MS - 1),
    ("long", ""): None,
    ("long", "time-micros"): (0, _DAY_MS * 1000 - 1),
    ("long", "timestamp-millis"): (_MICROS[0] // 1000, _MICROS[1] // 1000),
    ("long", "timestamp-micros"): _MICROS,
}


class UnsupportedSchemaError(Exception):
    """The schema has what is not read by columns."""


class AvroColumns:
    """Decodes many values of one schema.

    Args:
        tree: the schema, with the definition of each name that it uses.
        kind: the type of the column.

    Raises:
        UnsupportedSchemaError: the schema has more than records, unions with null, enums, fixed
            and primitive types.
    """

    def __init__(self, tree: Any, kind: Any) -> None:
        self.type = kind
        self._read = _reader(tree, kind)

    def decode(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[Any, NDArray[np.bool_]]:
        """Return a `pyarrow.Array`, and which of its values are right; others are to be decoded.

        Args:
            data: the bytes, not empty.
            starts, ends: where the values begin and end, in ascending order.
        """
        values = _Values(data, starts, ends)
        try:
            found = self._read(values, np.arange(len(starts)))
        except pa.ArrowInvalid:  # text that is not Unicode, somewhere
            return pa.nulls(len(starts), self.type), np.zeros(len(starts), bool)
        return found, ~values.odd & (values.at == ends)


class _Values:
    """Values, and how far they are read; what is odd is noted, and reading goes on somewhere."""

    def __init__(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self.data = data
        self.at = starts.astype(np.int64)
        self.ends = ends
        self.odd = np.zeros(len(starts), bool)
        self._last = len(data) - 1

    def byte(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Read a byte of each value."""
        found = self.data[np.minimum(self.at[rows], self._last)]
        self.at[rows] += 1
        return found

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Read a zigzag varint of each value."""
        byte = self.byte(rows)
        found = (byte & 0x7F).astype(np.uint64)
        longer = (byte >= 0x80).nonzero()[0]
        for i in range(1, _VARINT_SIZE_MAX):
            if not len(longer):
                break
            byte = self.byte(rows[longer])
            found[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * i)
            if i == _VARINT_SIZE_MAX - 1:  # the last byte has one bit
                self.odd[rows[longer[byte > 1]]] = True
                break
            longer = longer[byte >= 0x80]
        signs = -(found & np.uint64(1)).astype(np.int64)
        result: NDArray[np.int64] = (found >> np.uint64(1)).astype(np.int64) ^ signs
        return result

    def fixed(self, rows: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """Read the given number of bytes of each value."""
        places = self.at[rows, None] + np.arange(size)
        found: NDArray[np.uint8] = self.data[np.minimum(places, self._last)]
        self.at[rows] += size
        return found

    def sized(self, rows: NDArray[np.int64], kind: Any) -> Any:
        """Read bytes with their size before them, as a `pyarrow.Array` of a type."""
        sizes = self.numbers(rows)
        ends = self.ends[rows]
        starts = np.minimum(self.at[rows], ends)
        is_odd = (self.at[rows] > ends) | (sizes < 0) | (sizes > ends - starts)
        self.odd[rows[is_odd]] = True
        sizes[is_odd] = 0
        self.at[rows] = starts + sizes
        # Every other of these is what lies between two values.
        offsets = np.empty(2 * len(rows), np.int32)
        offsets[::2] = starts
        offsets[1::2] = starts + sizes
        everything = pa.Array.from_buffers(
            pa.binary(),
            max(len(offsets) - 1, 0),
            [None, pa.py_buffer(offsets), pa.py_buffer(self.data)],
        )
        return everything.take(pa.array(np.arange(0, len(offsets), 2))).cast(kind)


def _reader(node: Any, kind: Any) -> Callable[[_Values, NDArray[np.int64]], Any]:
    """Return what reads one part of the schema of values, as a `pyarrow.Array` of the type."""
    if isinstance(node, list):
        return _union(node, kind)
    if isinstance(node, str):
        node = {"type": node}
    name = node["type"]
    if not isinstance(name, str):
        return _reader(name, kind)
    if name in ("record", "error"):
        return _record(node, kind)
    if name == "enum" and node["symbols"]:
        return _enum(node["symbols"])
    logical = node.get("logicalType", "")
    if logical in ("decimal", "uuid"):
        raise UnsupportedSchemaError
    if name in ("int", "long"):
        return _integer(_BOUNDS.get((name, logical), _BOUNDS[name, ""]), kind)
    if name == "boolean":
        return _boolean
    if name in ("float", "double"):
        code = "<f4" if name == "float" else "<f8"
        size = int(code[-1])
        return lambda values, rows: pa.array(values.fixed(rows, size).view(code)[:, 0])
    if name in ("bytes", "string"):
        return lambda values, rows: values.sized(rows, kind)
    raise UnsupportedSchemaError


def _record(node: Any, kind: Any) -> Callable[[_Values, NDArray[np.int64]], Any]:
    readers = [
        _reader(one["type"], field.type) for one, field in zip(node["fields"], kind, strict=True)
    ]
    return lambda values, rows: pa.StructArray.from_arrays(
        [read(values, rows) for read in readers], fields=list(kind)
    )


def _union(node: list[Any], kind: Any) -> Callable[[_Values, NDArray[np.int64]], Any]:
    """Read a union of null and one type, or of one type."""
    wanted = [i for i, one in enumerate(node) if one not in ("null", {"type": "null"})]
    [place] = wanted
    read = _reader(node[place], kind)

    def union(values: _Values, rows: NDArray[np.int64]) -> Any:
        branches = values.numbers(rows)
        values.odd[rows[(branches < 0) | (branches >= len(node))]] = True
        is_there = branches == place
        there = rows[is_there]
        found = read(values, there)
        if len(there) == len(rows):
            return found
        places = np.zeros(len(rows), np.int64)
        places[is_there] = np.arange(len(there))
        return found.take(pa.array(places, mask=~is_there))

    return union


def _enum(symbols: list[str]) -> Callable[[_Values, NDArray[np.int64]], Any]:
    texts = pa.array(symbols, pa.string())

    def enum(values: _Values, rows: NDArray[np.int64]) -> Any:
        places = values.numbers(rows)
        is_odd = (places < 0) | (places >= len(symbols))
        values.odd[rows[is_odd]] = True
        places[is_odd] = 0
        return texts.take(pa.array(places))

    return enum


def _integer(
    bounds: tuple[int, ...] | None, kind: Any
) -> Callable[[_Values, NDArray[np.int64]], Any]:
    width = np.int32 if kind.bit_width == 32 else np.int64

    def integer(values: _Values, rows: NDArray[np.int64]) -> Any:
        found = values.numbers(rows)
        if bounds is not None:
            is_odd = (found < bounds[0]) | (found > bounds[1])
            values.odd[rows[is_odd]] = True
            found[is_odd] = 0
        return pa.array(found.astype(width)).view(kind)

    return integer


def _boolean(values: _Values, rows: NDArray[np.int64]) -> Any:
    found = values.byte(rows)
    values.odd[rows[found > 1]] = True
    return pa.array(found != 0)
