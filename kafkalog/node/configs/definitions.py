"""The topic configs that affect logs: names, kinds, defaults, bounds, parsing.

Follows `LogConfig`, `ServerTopicConfigSynonyms`, `ServerLogConfigs`, `ConfigDef.parseType`,
`ConfigDef.Range`, `ConfigDef.ValidList` and `ConfigDef.ValidString` of Kafka 4.3.
"""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from typing import Final

from formats.constants import COMPRESSION_NAMES, INT32_MAX, INT64_MAX
from formats.late_classes import dataclass
from kafkalog.log.producers import EXPIRATION_MS

Value = int | float | bool | str | tuple[str, ...]
"""A config's value; lists are tuples."""

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


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
        high: largest value, None without a bound.
        choices: allowed words, empty if any word is allowed.
        replaced_by: a name that takes precedence if both are set.
        is_of_broker: whether it is a config of brokers only, not of topics.
        is_later: whether Kafka 4.4 has brought it.
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
    is_later: bool = False


def _plain(*names: str) -> tuple[Synonym, ...]:
    return tuple(Synonym(name) for name in names)


def _hours(name: str) -> Synonym:
    return Synonym(name, _HOUR_MS, Kind.INT)


_RETENTION_MS: Final = (
    Synonym("log.retention.ms", negative_means_unlimited=True),
    Synonym("log.retention.minutes", _MINUTE_MS, Kind.INT, negative_means_unlimited=True),
    Synonym("log.retention.hours", _HOUR_MS, Kind.INT, negative_means_unlimited=True),
)
_WEEK_MS: Final = 168 * _HOUR_MS  # `log.retention.hours` and `log.roll.hours` by default
_CODECS: Final = ("uncompressed", *COMPRESSION_NAMES[:0:-1], "producer")
_INT, _LONG, _BOOLEAN = Kind.INT, Kind.LONG, Kind.BOOLEAN

_ALL: Final = (
    Definition("cleanup.policy", Kind.LIST, ("delete",), _plain("log.cleanup.policy"),
               choices=("compact", "delete")),
    Definition("compression.gzip.level", _INT, -1, _plain("compression.gzip.level"), -1, 9),
    Definition("compression.lz4.level", _INT, 9, _plain("compression.lz4.level"), 1, 17),
    Definition("compression.type", Kind.STRING, "producer", _plain("compression.type"),
               choices=_CODECS),
    Definition("compression.zstd.level", _INT, 3, _plain("compression.zstd.level"), -131072, 22),
    Definition("delete.retention.ms", _LONG, 86_400_000,
               _plain("log.cleaner.delete.retention.ms"), 0),
    Definition("file.delete.delay.ms", _LONG, 60_000, _plain("log.segment.delete.delay.ms"), 0),
    Definition("flush.messages", _LONG, INT64_MAX, _plain("log.flush.interval.messages"), 1),
    Definition("flush.ms", _LONG, INT64_MAX,
               _plain("log.flush.interval.ms", "log.flush.scheduler.interval.ms"), 0),
    Definition("follower.replication.throttled.replicas", Kind.LIST, ()),
    Definition("index.interval.bytes", _INT, 4096, _plain("log.index.interval.bytes"), 0),
    Definition("leader.replication.throttled.replicas", Kind.LIST, ()),
    Definition("local.retention.bytes", _LONG, -2, _plain("log.local.retention.bytes"), -2),
    Definition("local.retention.ms", _LONG, -2, _plain("log.local.retention.ms"), -2),
    Definition("max.compaction.lag.ms", _LONG, INT64_MAX,
               _plain("log.cleaner.max.compaction.lag.ms"), 1),
    Definition("max.decompressed.message.bytes", _INT, INT32_MAX - 8,
               _plain("max.decompressed.message.bytes"), 1, is_later=True),
    Definition("max.message.bytes", _INT, 1_048_588, _plain("message.max.bytes"), 0),
    Definition("message.timestamp.after.max.ms", _LONG, _HOUR_MS,
               _plain("log.message.timestamp.after.max.ms"), 0),
    Definition("message.timestamp.before.max.ms", _LONG, INT64_MAX,
               _plain("log.message.timestamp.before.max.ms"), 0),
    Definition("message.timestamp.type", Kind.STRING, "CreateTime",
               _plain("log.message.timestamp.type"), choices=("CreateTime", "LogAppendTime")),
    Definition("min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5,
               _plain("log.cleaner.min.cleanable.ratio"), 0, 1),
    Definition("min.compaction.lag.ms", _LONG, 0, _plain("log.cleaner.min.compaction.lag.ms"), 0),
    Definition("min.insync.replicas", _INT, 1, _plain("min.insync.replicas"), 1),
    Definition("preallocate", _BOOLEAN, False, _plain("log.preallocate")),
    Definition("remote.copy.lag.bytes", _LONG, -1, _plain("log.remote.copy.lag.bytes"), -1,
               is_later=True),
    Definition("remote.copy.lag.ms", _LONG, 0, _plain("log.remote.copy.lag.ms"), -1, is_later=True),
    Definition("remote.log.copy.disable", _BOOLEAN, False),
    Definition("remote.log.delete.on.disable", _BOOLEAN, False),
    Definition("remote.storage.enable", _BOOLEAN, False),
    Definition("retention.bytes", _LONG, -1, _plain("log.retention.bytes")),
    Definition("retention.ms", _LONG, _WEEK_MS, _RETENTION_MS, -1),
    # Brokers before 4.1 accepted 14 and more, and such topics live on; 4.1 requires 1 MiB.
    Definition("segment.bytes", _INT, 1 << 30, _plain("log.segment.bytes"), 14,
               replaced_by="internal.segment.bytes"),
    Definition("segment.index.bytes", _INT, 10 << 20, _plain("log.index.size.max.bytes"), 4),
    Definition("segment.jitter.ms", _LONG, 0,
               (Synonym("log.roll.jitter.ms"), _hours("log.roll.jitter.hours")), 0),
    Definition("segment.ms", _LONG, _WEEK_MS,
               (Synonym("log.roll.ms"), _hours("log.roll.hours")), 1),
    Definition("unclean.leader.election.enable", _BOOLEAN, False,
               _plain("unclean.leader.election.enable")),
    Definition("log.cleaner.backoff.ms", _LONG, 15_000, low=0, is_of_broker=True),
    Definition("log.cleaner.dedupe.buffer.size", _LONG, 128 << 20, is_of_broker=True),
    Definition("log.cleaner.enable", _BOOLEAN, True, is_of_broker=True),
    Definition("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max,
               is_of_broker=True),
    Definition("log.cleaner.threads", _INT, 1, low=0, is_of_broker=True),
    Definition("log.initial.task.delay.ms", _LONG, 30_000, low=0, is_of_broker=True),
    Definition("log.retention.check.interval.ms", _LONG, 5 * _MINUTE_MS, low=1,
               is_of_broker=True),
    Definition("producer.id.expiration.ms", _INT, EXPIRATION_MS, low=1, is_of_broker=True),
    Definition("remote.log.storage.system.enable", _BOOLEAN, False, is_of_broker=True),
)  # fmt: skip

DEFINITIONS: Final = {definition.name: definition for definition in _ALL}
"""Name to definition of every topic config, and of the broker's own configs that matter here."""


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


KNOWN_NAMES: Final = frozenset(
    name.name for definition in _ALL for name in names_of(definition)
)  # fmt: skip
"""Every name that sets a topic config."""


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[dDfF]?")
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
            raise ValueError(f"it is not a {kind}")
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
