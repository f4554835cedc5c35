"""Converts columns of bytes to typed columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.typed.framing import VALUE_SIZE_MAX
from kafkalog.typed.schema_size import brief

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.typed.model import Decoder, TypedColumn

# How many rows, and how many bytes of them, are Python objects at a time.
_ROWS_AT_ONCE: Final = 4096
_SIZE_AT_ONCE: Final = 4 << 20
_TOO_LARGE: Final = f"larger than {VALUE_SIZE_MAX} bytes"
# A value that Arrow cannot hold: a number that is too large, or text that is not Unicode.
_UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A value that does not decode, and is null in the typed column.

    Attributes:
        row: its row in the column.
        reason: why.
    """

    row: int
    reason: str


def typed_column(column: TypedColumn, decoder: Decoder, data: Any) -> tuple[Any, list[Undecoded]]:
    """Return the typed column, and the values that are null there because they do not decode.

    Values of more than `VALUE_SIZE_MAX` bytes are not decoded.

    Args:
        column: describes the column.
        decoder: the result of `column.decoder`.
        data: a `pyarrow.BinaryArray`.
    """
    parts = []
    failures: list[Undecoded] = []
    decode, unframed = decoder.decode, column.unframed
    sizes = pc.fill_null(pc.binary_length(data), 0).cast(pa.int64())
    sizes = sizes.to_numpy(zero_copy_only=False)
    for start, end in _slices(sizes):
        values: list[Any] = []
        if sizes[start] > VALUE_SIZE_MAX:
            failures.append(Undecoded(start, _TOO_LARGE))
            parts.append(pa.nulls(1, decoder.type))
            continue
        for row, one in enumerate(data.slice(start, end - start).to_pylist(), start):
            value = None
            if one is not None:
                try:
                    value = decode(*unframed(one))
                except ValueError as error:
                    failures.append(Undecoded(row, brief(error)))
            values.append(value)
        try:
            parts.append(pa.array(values, decoder.type))
        except _UNFIT:
            array, unfit = _one_by_one(values, decoder.type, start)
            parts.append(array)
            failures += unfit
    if not parts:
        return pa.array([], decoder.type), []
    return pa.concat_arrays(parts), failures


def failure(column: TypedColumn, decoder: Decoder, data: bytes | None) -> str | None:
    """Return why bytes do not decode, as `typed_column` judges it; None if they do, or are null."""
    if data is None:
        return None
    if len(data) > VALUE_SIZE_MAX:
        return _TOO_LARGE
    try:
        pa.array([decoder.decode(*column.unframed(data))], decoder.type)
    except _UNFIT as error:
        return brief(error)
    return None


def _slices(sizes: Any) -> Iterator[tuple[int, int]]:
    """Cut a column into ranges of rows, by count and by bytes; values too large are alone."""
    ends = sizes.cumsum()
    large = (sizes > VALUE_SIZE_MAX).nonzero()[0]
    start = before = 0
    while start < len(sizes):
        end = int(ends.searchsorted(before + _SIZE_AT_ONCE)) + 1
        end = min(end, start + _ROWS_AT_ONCE, len(sizes))
        following = int(large.searchsorted(start))
        if following < len(large):
            end = min(end, max(int(large[following]), start + 1))
        yield start, end
        start, before = end, int(ends[end - 1])


def _one_by_one(values: list[Any], kind: Any, start: int) -> tuple[Any, list[Undecoded]]:
    parts = []
    failures: list[Undecoded] = []
    for row, value in enumerate(values, start):
        try:
            parts.append(pa.array([value], kind))
        except _UNFIT as error:
            parts.append(pa.nulls(1, kind))
            failures.append(Undecoded(row, brief(error)))
    return pa.concat_arrays(parts), failures
