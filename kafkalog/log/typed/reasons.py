"""Why values do not decode: in plain words, with the field that is wrong.

What reads the fields of a record adds the name of the one that fails as a note to its error, which
costs nothing until there is one.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.log.typed.column_steps import UNFIT
from kafkalog.log.typed.schema_size import brief

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATH_MAX: Final = 100
_WORDS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (UnicodeDecodeError, "text that is not UTF-8"),
    (UnicodeEncodeError, "text with half of a surrogate pair"),
    (Base64Error, "text that is not base64"),
)
"""Errors of Python, and what they mean here."""


def step(name: str, kind: Any) -> str:
    """Return what a field adds to the path of a part that is in it: as in `Remark`.

    Args:
        kind: its `pyarrow.DataType`; None for what the column lacks, or has as JSON.
    """
    while kind is not None and (pa.types.is_list(kind) or pa.types.is_map(kind)):
        is_map = pa.types.is_map(kind)
        name += "{}" if is_map else "[]"
        kind = kind.item_type if is_map else kind.value_type
    return name


def reason_of(error: Exception) -> str:
    """Return why bytes do not decode, with the path that the notes of the error give."""
    steps = getattr(error, "__notes__", ())
    words = next((words for kind, words in _WORDS if isinstance(error, kind)), None)
    return _said(".".join(filter(None, reversed(steps))), words or brief(error))


def _said(path: str, words: str) -> str:
    shown = path if len(path) <= _PATH_MAX else f"{path[:_PATH_MAX]}…"
    return f"{shown}: {words}" if path else words


def array_of(value: Any, kind: Any) -> tuple[Any, str | None]:
    """Return an array of one value, and why a column cannot have it, which is null then."""
    try:
        return pa.array([value], kind), None
    except UNFIT as error:
        return pa.nulls(1, kind), _unfit([value], kind, "", error)


def _unfit(values: Sequence[Any], kind: Any, path: str, error: Exception) -> str:
    """Return why Arrow cannot hold some values: by the first part that it cannot."""
    while len(values) > 1:
        half = len(values) // 2
        first = _error_of(values[:half], kind)
        error = first or error
        values = values[:half] if first else values[half:]
    [value] = values
    parts: list[tuple[Sequence[Any], Any, str]] = []
    if pa.types.is_struct(kind) and isinstance(value, dict):
        parts = [([value.get(one.name)], one.type, f"{path}.{one.name}") for one in kind]
    elif pa.types.is_list(kind) and isinstance(value, list):
        parts = [(value, kind.value_type, f"{path}[]")]
    elif pa.types.is_map(kind) and isinstance(value, dict | list):
        pairs = list(value.items()) if isinstance(value, dict) else value
        parts = [
            ([one for one, _ in pairs], kind.key_type, f"{path}{{}}"),
            ([one for _, one in pairs], kind.item_type, f"{path}{{}}"),
        ]
    for some, inner, place in parts:
        if (found := _error_of(some, inner)) is not None:
            return _unfit(some, inner, place, found)
    return _said(path.lstrip("."), _unfit_words(value, kind, error))


def _error_of(values: Sequence[Any], kind: Any) -> Exception | None:
    try:
        pa.array(values, kind)
    except UNFIT as error:
        return error
    return None


def _unfit_words(value: Any, kind: Any, error: Exception) -> str:
    """Return why Arrow cannot hold a value without parts."""
    if isinstance(value, Decimal) and pa.types.is_decimal(kind):
        return f"{value:.40} is no decimal({kind.precision}, {kind.scale})"
    if isinstance(value, int) and pa.types.is_floating(kind):
        return f"{value} has more digits than a {'float' if kind == pa.float32() else 'double'}"
    return reason_of(error)
