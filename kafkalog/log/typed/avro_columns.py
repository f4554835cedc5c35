"""Avro by columns: each step reads one field of thousands of values at once.

fastavro makes a Python object of each field, which takes several times as long as all the rest of
an export. This reads what is frequent, records of plain fields, by kernels, and leaves to fastavro
all values that are odd in any way, so that it alone says what does not decode.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from formats.constants import INT32_MAX, INT64_MAX
from kafkalog.log.columns.arrow import binary
from kafkalog.log.typed import avro_kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS: Final = tuple(
    int((one - _EPOCH).total_seconds()) * 1_000_000
    for one in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
)
_DAYS: Final = tuple(one.toordinal() - date(1970, 1, 1).toordinal() for one in (date.min, date.max))
_DAY_MS: Final = 86_400_000
# What Python's dates and times can hold; fastavro judges the rest.
_BOUNDS: Final[dict[tuple[str, str], tuple[int, ...]]] = {
    ("int", ""): (-INT32_MAX - 1, INT32_MAX),
    ("int", "date"): _DAYS,
    ("int", "time-millis"): (0, _DAY_MS - 1),
    ("long", ""): (-INT64_MAX - 1, INT64_MAX),
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
    """Reads values field by field; marks a value that it cannot read as odd, and reads zeros."""

    def __init__(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self.data = data
        self.at = starts.astype(np.int64)
        self.ends = ends
        self.odd = np.zeros(len(starts), bool)

    def numbers(self, rows: NDArray[np.int64], least: int, most: int) -> NDArray[np.int64]:
        """Read a zigzag varint of each value."""
        found = np.empty(len(rows), np.int64)
        avro_kernels.read_numbers(self.data, self.at, self.ends, self.odd, rows, least, most, found)
        return found

    def fixed(self, rows: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """Read the given number of bytes of each value."""
        found = np.zeros(len(rows) * size, np.uint8)
        avro_kernels.read_fixed(self.data, self.at, self.ends, self.odd, rows, size, found)
        return found

    def sized(self, rows: NDArray[np.int64], kind: Any) -> Any:
        """Read bytes with their size before them, as a `pyarrow.Array` of a type."""
        starts, sizes = np.empty((2, len(rows)), np.int64)
        avro_kernels.read_sized(self.data, self.at, self.ends, self.odd, rows, starts, sizes)
        return binary(self.data, starts, sizes).cast(kind)


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
    if logical in ("decimal", "uuid"):  # their bytes become values that no view of a buffer gives
        raise UnsupportedSchemaError
    if name in ("int", "long"):
        return _integer(_BOUNDS.get((name, logical), _BOUNDS[name, ""]), kind)
    if name == "boolean":
        return _boolean
    if name in ("float", "double"):
        code = "<f4" if name == "float" else "<f8"
        size = int(code[-1])
        return lambda values, rows: pa.array(values.fixed(rows, size).view(code))
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
        branches = values.numbers(rows, 0, len(node) - 1)
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

    return lambda values, rows: texts.take(pa.array(values.numbers(rows, 0, len(symbols) - 1)))


def _integer(bounds: tuple[int, ...], kind: Any) -> Callable[[_Values, NDArray[np.int64]], Any]:
    width = np.int32 if kind.bit_width == 32 else np.int64
    return lambda values, rows: pa.array(  # dates and times have the bits of int32 or int64
        values.numbers(rows, *bounds).astype(width, copy=False)
    ).view(kind)


def _boolean(values: _Values, rows: NDArray[np.int64]) -> Any:
    found = values.fixed(rows, 1)
    values.odd[rows[found > 1]] = True
    return pa.array(found != 0)
