"""Reads and writes JSON without the loss of a digit."""

from __future__ import annotations

import json
import re
from typing import Any, Final

# Doubles keep this many digits of any number that is not near the ends of their range.
_DIGITS_SAFE: Final = 15
_LEAST: Final = 1e-290
_LARGEST: Final = 1e290
_ZEROS: Final = ("0.0", "-0.0", "0.00", "0e0", "0E0")
_BOM: Final = "\ufeff"


class Digits:
    """A number that Python has no number for without a loss, or only at a cost: its text."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _number_of(text: str) -> float | Digits:
    value = float(text)
    # One more for the point.
    if len(text) <= _DIGITS_SAFE + 1 and (_LEAST < abs(value) < _LARGEST or text in _ZEROS):
        return value
    return Digits(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_READ: Final = json.JSONDecoder(parse_float=_number_of, parse_constant=_refuse).decode
# Python's integers have no negative zero; to be asked about each of them takes long.
_NEGATIVE_ZERO: Final = re.compile(r"-0(?![\d.eE])")
_READ_ZERO: Final = json.JSONDecoder(
    parse_float=_number_of,
    parse_int=lambda text: Digits(text) if text == "-0" else int(text),
    parse_constant=_refuse,
).decode
# Python refuses integers of some thousand digits, lest they take long: these stay text.
_READ_LARGE: Final = json.JSONDecoder(
    parse_float=_number_of, parse_int=Digits, parse_constant=_refuse
).decode
_WRITE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def parsed(data: bytes) -> Any:
    """Return what JSON has in UTF-8, with numbers as `Digits` where a float has not all digits.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    text = data.decode("utf-8").removeprefix(_BOM)
    try:
        return _READ_ZERO(text) if _NEGATIVE_ZERO.search(text) else _READ(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return _READ_LARGE(text)


def exact_text(value: Any) -> str | None:
    """Return a value as JSON text with all digits of its numbers."""
    if value is None:
        return None
    try:
        text = _WRITE(value)
    except TypeError:  # the encoder knows no `Digits`
        text = _exact(value)
    return unicode(text)


def _exact(value: Any) -> str:
    if isinstance(value, Digits):
        return value.text
    if isinstance(value, dict):
        return f"{{{','.join(f'{_WRITE(key)}:{_exact(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_exact, value))}]"
    return _WRITE(value)


def unicode(text: str) -> str:
    """Return the text; raise for lone surrogates, which JSON can hold but no text."""
    if not text.isascii():
        text.encode()
    return text
