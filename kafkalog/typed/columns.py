"""Columns of bytes as typed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from kafkalog.typed.model import Decoder, TypedColumn

# So many rows are Python's objects at a time.
_ROWS_AT_ONCE: Final = 4096
# A value that Arrow cannot hold: a number that is too large, a text that is no Unicode.
_UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


def typed_column(column: TypedColumn, decoder: Decoder, data: Any) -> tuple[Any, int]:
    """The typed column, and how many values of it are null because they do not decode.

    Args:
        column: what it is.
        decoder: what `column.decoder` gave.
        data: a `pyarrow.BinaryArray`.
    """
    parts, failures = [], 0
    for start in range(0, len(data), _ROWS_AT_ONCE):
        values: list[Any] = []
        for one in data.slice(start, _ROWS_AT_ONCE).to_pylist():
            value = None
            if one is not None:
                try:
                    value = decoder.decode(column.unframed(one))
                except ValueError:
                    failures += 1
            values.append(value)
        try:
            parts.append(pa.array(values, decoder.type))
        except _UNFIT:
            array, unfit = _one_by_one(values, decoder.type)
            parts.append(array)
            failures += unfit
    if not parts:
        return pa.array([], decoder.type), 0
    return pa.concat_arrays(parts), failures


def _one_by_one(values: list[Any], kind: Any) -> tuple[Any, int]:
    parts, failures = [], 0
    for value in values:
        try:
            parts.append(pa.array([value], kind))
        except _UNFIT:
            parts.append(pa.nulls(1, kind))
            failures += 1
    return pa.concat_arrays(parts), failures
