"""The types that typed columns have: the same twelve in Parquet, Delta, Iceberg, Arrow and SQL.

boolean, int64, float32, float64, decimal, string, binary, date, timestamp with and without UTC,
list, map, struct; and JSON as a string, for what has none of these. Others are refused by some
table format, or make files unreadable to some engine: unsigned integers, times of day, nanoseconds,
UUIDs, decimals of more than 38 digits, structs without fields.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

INTEGER: Final = pa.int64()
"""Every integer: `int` to `long` is the commonest change of a schema, and no file survives it."""
UNSIGNED: Final = pa.decimal128(20, 0)
"""Integers of 64 bits without a sign, also as keys of maps."""
TIMESTAMP: Final = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP: Final = pa.timestamp("us")
TEXT: Final = pa.string()
"""Also UUIDs, enums, and times of day as `HH:MM:SS[.ffffff[fff]]`."""
JSON: Final = pa.string()
"""What has no type, as `json_text` writes it."""
PRESENT: Final = "_present"
"""The one field of a record without fields, always true: Parquet has no empty struct."""
NAME_KEY: Final = b"kafkalog:name"
"""In the metadata of a field: the name that its schema gives it, if the column's is another."""
JSON_KEY: Final = b"kafkalog:json"
"""In the metadata of a field: its text, or that at the bottom of its lists and maps, is JSON."""
ALIASES_KEY: Final = b"kafkalog:aliases"
"""In the metadata of a field: other names that schemas gave it before, as a list in JSON."""
_DECIMAL_DIGITS_MAX: Final = 38


def decimal_type(precision: int, scale: int) -> Any:
    """Return the type of a decimal: a string if it has more digits than all engines read."""
    fits = 0 < precision <= _DECIMAL_DIGITS_MAX and 0 <= scale <= precision
    return pa.decimal128(precision, scale) if fits else TEXT


def column_names(names: Iterable[str]) -> list[str]:
    """Return the names of a struct's fields: different ones, also where case does not count."""
    given = list(names)
    taken = set()
    free = {name.casefold() for name in given}
    found = []
    for name in given:
        one, number = name, 1
        while one.casefold() in taken or (number > 1 and one.casefold() in free):
            number += 1
            one = f"{name}_{number}"
        taken.add(one.casefold())
        found.append(one)
    return found


def struct_type(fields: Sequence[tuple[str, Any]]) -> Any:
    """Return the struct of fields, given by the names in their schema and their types.

    Its fields are in the same order, with the names that `column_names` gives. Without fields it
    has `PRESENT` alone.
    """
    if not fields:
        return pa.struct([pa.field(PRESENT, pa.bool_())])
    names = column_names(name for name, _ in fields)
    return pa.struct(
        pa.field(name, kind, metadata=None if name == given else {NAME_KEY: given.encode()})
        for name, (given, kind) in zip(names, fields, strict=True)
    )


def given_name(field: Any) -> str:
    """Return the name that a schema gives a field, whatever the column calls it."""
    name: bytes = (field.metadata or {}).get(NAME_KEY, field.name.encode())
    return name.decode()


def is_json_text(field: Any) -> bool:
    """Return whether the text of a field, or that in its lists and maps, is JSON."""
    return JSON_KEY in (field.metadata or {})


def as_json_text(field: Any) -> Any:
    """Return a field whose text is JSON."""
    return field.with_metadata({**(field.metadata or {}), JSON_KEY: b"true"})


def aliases_of(field: Any) -> list[str]:
    """Return other names that schemas gave a field before."""
    found: list[str] = json.loads((field.metadata or {}).get(ALIASES_KEY, b"[]"))
    return found


def with_aliases(field: Any, names: Sequence[str]) -> Any:
    """Return a field that knows other names that schemas gave it before."""
    if not names:
        return field
    return field.with_metadata({**(field.metadata or {}), ALIASES_KEY: json.dumps(names).encode()})


def with_json_marked(field: Any, paths: Collection[str], at: Sequence[str] = ("",)) -> Any:
    """Return a field whose metadata, and that of fields within it, say what is JSON as text.

    Args:
        paths: of what is JSON, as in `Remark`.
        at: the path of the field, by the names that columns have, or that schemas give.
    """
    kind, levels = field.type, []
    while pa.types.is_nested(kind) and not pa.types.is_struct(kind):
        is_map = pa.types.is_map(kind)
        levels.append(kind)
        at = [f"{one}{'{}' if is_map else '[]'}" for one in at]
        kind = kind.item_type if is_map else kind.value_type
    is_marked = pa.types.is_string(kind) and any(one in paths for one in at)
    if pa.types.is_struct(kind):
        taken = {one.name for one in kind}
        kind = pa.struct(
            with_json_marked(one, paths, [
                f"{before}.{name}".lstrip(".")
                for before in at
                for name in {one.name, *({given_name(one)} - taken)}
            ])
            for one in kind
        )  # fmt: skip
    for level in reversed(levels):
        if pa.types.is_map(level):
            kind = pa.map_(level.key_field, level.item_field.with_type(kind))
        else:
            kind = pa.list_(level.value_field.with_type(kind))
    return as_json_text(field.with_type(kind)) if is_marked else field.with_type(kind)


def time_text(nanoseconds: int, digits: int = 9) -> str:
    """Return a time of day as text.

    Args:
        nanoseconds: since midnight.
        digits: how many decimals it can have: 0, 3, 6 or 9; without any if all are zero.

    Raises:
        ValueError: it is no time of a day.
    """
    if not 0 <= nanoseconds < 86_400_000_000_000:
        raise ValueError(f"{nanoseconds} ns are no time of a day")
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:09}"[: len(text) + 1 + digits] if rest and digits else text


def json_text(value: Any) -> str:
    """Return a value as compact JSON.

    Integers and decimals keep all their digits, bytes are base64, dates and times ISO 8601; NaN and
    infinities are strings, which JSON has no numbers for.
    """
    return "".join(_json_parts(value))


def _json_parts(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        inner = (f"{json.dumps(str(key), ensure_ascii=False)}:{json_text(one)}"
                 for key, one in value.items())  # fmt: skip
        return ("{", ",".join(inner), "}")
    if isinstance(value, (list, tuple)):
        return ("[", ",".join(map(json_text, value)), "]")
    if isinstance(value, (bytes, bytearray)):
        return (f'"{b64encode(value).decode()}"',)
    if isinstance(value, Decimal):
        return (f"{value:f}" if value.is_finite() else f'"{value}"',)
    if isinstance(value, float) and not math.isfinite(value):
        return ('"NaN"' if math.isnan(value) else f'"{"-" if value < 0 else ""}Infinity"',)
    if isinstance(value, datetime):
        text = value.isoformat()
        return (f'"{text.removesuffix("+00:00") + "Z" if value.tzinfo else text}"',)
    if isinstance(value, date):
        return (f'"{value.isoformat()}"',)
    return (json.dumps(value, ensure_ascii=False),)
