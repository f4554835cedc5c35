"""The values of Arrow arrays as JSON values."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def json_values(column: Any, form: str) -> list[Any]:
    """Return the values of an Arrow array as JSON values.

    Args:
        form: how bytes are written: `base64`, `hex` or `text`, with U+FFFD for what is not UTF-8.
    """
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [None if value is None else _TEXTS[form](value) for value in column.to_pylist()]
    if pa.types.is_timestamp(kind):
        return _iso(column)
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        return _listed(column, form)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [json_values(part, form) for part in column.flatten()]
        there = column.is_valid().to_pylist()
        rows = zip(*parts, strict=True) if parts else [()] * len(column)
        return [
            dict(zip(names, row, strict=True)) if is_there else None
            for row, is_there in zip(rows, there, strict=True)
        ]
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        values: list[Any] = column.to_pylist()
        return values
    if pa.types.is_floating(kind):
        # JSON has neither infinities nor NaN.
        return [
            value if value is None or value - value == 0 else str(value)
            for value in column.to_pylist()
        ]
    if pa.types.is_decimal(kind):  # with all its digits, and never an exponent
        return [None if value is None else f"{value:f}" for value in column.to_pylist()]
    return [None if value is None else str(value) for value in column.to_pylist()]


def _listed(column: Any, form: str) -> list[Any]:
    is_map = pa.types.is_map(column.type)
    keys = json_values(column.keys, form) if is_map else []
    items = json_values(column.items if is_map else column.values, form)
    offsets = column.offsets.to_pylist()
    found: list[Any] = []
    for i, is_there in enumerate(column.is_valid().to_pylist()):
        start, end = offsets[i], offsets[i + 1]
        if not is_there:
            found.append(None)
        elif is_map:
            found.append({str(key): item for key, item in
                          zip(keys[start:end], items[start:end], strict=True)})  # fmt: skip
        else:
            found.append(items[start:end])
    return found


def _iso(column: Any) -> list[str | None]:
    """Format as ISO 8601; with `Z` if it has a zone, which is UTC then.

    A time beyond the calendar stays in milliseconds.
    """
    numbers = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    end = "" if column.type.tz is None else "Z"
    return [None if number is None else _iso_of(number, end) for number in numbers]


def _iso_of(microseconds: int, end: str) -> str:
    from datetime import datetime, timedelta

    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=microseconds)  # see `end`
    except OverflowError:
        return str(microseconds // 1000)
    digits = "microseconds" if microseconds % 1000 else "milliseconds"
    return moment.isoformat(timespec=digits) + end


_TEXTS: Final[dict[str, Callable[[bytes], str]]] = {
    "base64": lambda value: base64.b64encode(value).decode(),
    "hex": lambda value: value.hex(),
    "text": lambda value: value.decode("utf-8", "replace"),
}
