"""The topic configs that affect logs: names, kinds, defaults, bounds, parsing.

Follows `LogConfig`, `ServerTopicConfigSynonyms`, `ServerLogConfigs`, `ConfigDef.parseType`,
`ConfigDef.Range`, `ConfigDef.ValidList` and `ConfigDef.ValidString` of Kafka.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from formats.constants import INT32_MAX, INT64_MAX
from formats.late_classes import dataclass
from formats.late_patterns import pattern
from formats.packaged import packaged_text
from kafkalog.log.producers import EXPIRATION_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

Value = int | float | bool | str | tuple[str, ...]
"""A config's value; lists are tuples."""


class Kind(StrEnum):
    """The type of a value: `ConfigDef.Type`."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another name for a config, in a broker's properties.

    Attributes:
        name: the name.
        factor: multiplier of its value: 60000 for minutes, say.
        kind: type of its value, if that differs.
        negative_means_unlimited: whether any value below 0 stands for -1.
    """

    name: str
    factor: int = 1
    kind: Kind | None = None
    negative_means_unlimited: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """One config.

    Attributes:
        name: Kafka's name for it.
        kind: type of its value.
        default: value if no source sets it.
        synonyms: other names; the first that is set counts.
        low: smallest value, None without a bound.
        start_low: smallest value with which a broker starts, where `low` is that of older brokers.
        high: largest value, None without a bound.
        choices: allowed words, empty if any word is allowed.
        replaced_by: a name that takes precedence if both are set.
        is_of_broker: whether it is a config of brokers only, not of topics.
        since: the release that brought it, None if kafkalog follows no older one.
    """

    name: str
    kind: Kind
    default: Value
    synonyms: tuple[Synonym, ...] = ()
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    replaced_by: str | None = None
    is_of_broker: bool = False
    since: str | None = None
    start_low: float | None = None


_BROKERS: Final = (
    Definition("log.cleaner.backoff.ms", Kind.LONG, 15_000, low=0, is_of_broker=True),
    Definition("log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20, is_of_broker=True),
    Definition("log.cleaner.enable", Kind.BOOLEAN, True, is_of_broker=True),
    Definition("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, is_of_broker=True),
    Definition("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max,
               is_of_broker=True),
    Definition("log.cleaner.threads", Kind.INT, 1, low=0, is_of_broker=True),
    Definition("log.initial.task.delay.ms", Kind.LONG, 30_000, low=0, is_of_broker=True),
    Definition("log.retention.check.interval.ms", Kind.LONG, 5 * 60_000, low=1, is_of_broker=True),
    Definition("producer.id.expiration.ms", Kind.INT, EXPIRATION_MS, low=1, is_of_broker=True),
    Definition("remote.log.storage.system.enable", Kind.BOOLEAN, False, is_of_broker=True),
)  # fmt: skip
_INTERNAL_SIZE: Final = "internal.segment.bytes"
_UNLIMITED: Final = "log.retention."
"""Begins the names of a broker for which any negative number means no limit."""


def _definitions() -> Iterator[Definition]:
    """Yield the definitions of `formats/configs.txt` for topics, and the broker's own."""
    for line in packaged_text("configs.txt").splitlines():
        if not line.startswith("topics |"):
            continue
        _, name, kind_name, default, valid, synonyms, since = line.split(" | ")
        if name == _INTERNAL_SIZE:
            continue
        kind = Kind(kind_name)
        bounds = re.match(r"\[(-?\d+),\.\.\.(?:,(\d+))?\](?: or (-\d+))?", valid)
        low, high, other = map(_number, bounds.groups()) if bounds else (None, None, None)
        words = re.fullmatch(r"\[([A-Za-z0-9_]+(?:, [A-Za-z0-9_]+)+)\]", valid)
        # Brokers before 4.1 accepted 14 and more, and such topics live on; 4.1 requires 1 MiB.
        is_size = name == "segment.bytes"
        yield Definition(
            name,
            kind,
            _typed(kind, default.strip("[]")),
            tuple(map(_synonym, synonyms.split(", "))) if synonyms != "-" else (),
            14 if is_size else low if other is None else other,
            high,
            tuple(words[1].split(", ")) if words else (),
            replaced_by=_INTERNAL_SIZE if is_size else None,
            since=None if since == "-" else since,
            start_low=low if is_size else None,
        )
    yield from _BROKERS


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _synonym(text: str) -> Synonym:
    """Parse a broker's name for a config: its unit follows as `*60000`."""
    name, _, factor = text.partition("*")
    unlimited = name.startswith(_UNLIMITED) and not name.endswith("bytes")
    if not factor:
        return Synonym(name, negative_means_unlimited=unlimited)
    return Synonym(name, int(factor), Kind.INT, negative_means_unlimited=unlimited)


def value_text(value: object) -> str:
    """Return a value as Kafka shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def names_of(definition: Definition) -> tuple[Synonym, ...]:
    """Return every name under which the config can be set; the first that is set counts."""
    names = [Synonym(definition.name), *definition.synonyms]
    if definition.replaced_by is not None:
        names.insert(0, Synonym(definition.replaced_by))
    return tuple(dict.fromkeys(names))


_INTEGER: Final = pattern(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = pattern(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[dDfF]?")
_BOUNDS: Final = {Kind.INT: INT32_MAX, Kind.LONG: INT64_MAX}
_REPLACES: Final = "internal."


def parse_value(definition: Definition, text: str, name: Synonym) -> Value:
    """Return the value of a config that was set under one of its names.

    Raises:
        ValueError: a broker would not accept it; the message says why.
    """
    kind = name.kind or definition.kind
    value = _typed(kind, text.strip())
    if not isinstance(value, int) or isinstance(value, bool):
        return _checked(definition, value)
    if name.negative_means_unlimited:
        # Brokers take no 0 for these, and any negative number for "unlimited".
        if value == 0:
            raise ValueError("it must be -1 or at least 1")
        if value < 0:
            return -1
    value *= name.factor
    if value > INT64_MAX:
        raise ValueError("it is too large")
    # The internal name exists to go below the limit.
    return value if name.name.startswith(_REPLACES) else _checked(definition, value)


def _typed(kind: Kind, text: str) -> Value:
    if kind in _BOUNDS:
        bound = _BOUNDS[kind]
        if not _INTEGER.fullmatch(text) or not -bound - 1 <= int(text) <= bound:
            raise ValueError(f"it is no number of the type {kind}")
        return int(text)
    if kind == Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError("it is neither true nor false")
        return text.lower() == "true"
    if kind == Kind.DOUBLE:
        if not _DECIMAL.fullmatch(text):
            raise ValueError("it is not a number")
        return float(text.rstrip("dDfF"))  # Java's suffixes of a number
    if kind == Kind.LIST:
        return tuple(re.split(r"\s*,\s*", text)) if text else ()
    return text


def _checked(definition: Definition, value: Value) -> Value:
    if isinstance(value, int | float):
        if definition.low is not None and value < definition.low:
            raise ValueError(f"it must be at least {definition.low}")
        if definition.high is not None and value > definition.high:
            raise ValueError(f"it must be at most {definition.high}")
        # 0 is in the range, but not accepted.
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


def start_error(name: str, text: str) -> str | None:
    """Return why a broker does not start with a config of a topic; None if it does."""
    definition = DEFINITIONS.get(name)
    if definition is None or definition.is_of_broker:
        return None
    low = definition.low if definition.start_low is None else definition.start_low
    try:
        parse_value(replace(definition, low=low), text, Synonym(name))
    except ValueError as error:
        return str(error)
    return None


DEFINITIONS: Final = {definition.name: definition for definition in _definitions()}
"""Name to definition of every topic config, and of the broker's own configs that matter here."""

KNOWN_NAMES: Final = frozenset(
    name.name for definition in DEFINITIONS.values() for name in names_of(definition)
)  # fmt: skip
"""Every name that sets a topic config."""
