"""A config's value from its text, as a broker parses and bounds it.

Follows `ConfigDef.parseType`, `ConfigDef.Range`, `ConfigDef.ValidList` and `ConfigDef.ValidString`
of Kafka 4.3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from formats.constants import INT32_MAX, INT64_MAX
from kafkalog.configs.definitions import Kind

if TYPE_CHECKING:
    from kafkalog.configs.definitions import Definition, Synonym, Value

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[dDfF]?")
_BOUNDS: Final = {Kind.INT: INT32_MAX, Kind.LONG: INT64_MAX}
_REPLACES: Final = "internal."


def parse_value(definition: Definition, text: str, name: Synonym) -> Value:
    """The value of a config, set under one of its names.

    Raises:
        ValueError: a broker would not take it; the message says why.
    """
    kind = name.kind or definition.kind
    value = _typed(kind, text.strip())
    if not isinstance(value, int) or isinstance(value, bool):
        return _checked(definition, value)
    if name.negative_means_unlimited:
        if value == 0:
            raise ValueError("it must be -1 or at least 1")
        if value < 0:
            return -1
    value *= name.factor
    if value > INT64_MAX:
        raise ValueError("it is too large")
    # The internal name is there to go below the limit.
    return value if name.name.startswith(_REPLACES) else _checked(definition, value)


def _typed(kind: Kind, text: str) -> Value:
    if kind in _BOUNDS:
        bound = _BOUNDS[kind]
        if not _INTEGER.fullmatch(text) or not -bound - 1 <= int(text) <= bound:
            raise ValueError(f"it is not a {kind}")
        return int(text)
    if kind == Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError("it is neither true nor false")
        return text.lower() == "true"
    if kind == Kind.DOUBLE:
        if not _DECIMAL.fullmatch(text):
            raise ValueError("it is not a number")
        return float(text.rstrip("dDfF"))
    if kind == Kind.LIST:
        return tuple(re.split(r"\s*,\s*", text)) if text else ()
    return text


def _checked(definition: Definition, value: Value) -> Value:
    if isinstance(value, int | float):
        if definition.low is not None and value < definition.low:
            raise ValueError(f"it must be at least {definition.low}")
        if definition.high is not None and value > definition.high:
            raise ValueError(f"it must be at most {definition.high}")
        if definition.name == "compression.gzip.level" and value == 0:
            raise ValueError("it must be -1 or at least 1")
        return value
    words = value if isinstance(value, tuple) else (value,)
    for word in words:
        if definition.choices and word not in definition.choices:
            raise ValueError(f"{word!r} is not one of {', '.join(definition.choices)}")
    if definition.choices and len(set(words)) < len(words):
        raise ValueError("it repeats a value")
    return value
