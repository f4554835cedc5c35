"""The names that Kafka Connect and Debezium give types, whatever format has them."""

from __future__ import annotations

import re
from typing import Any, Final

_LOGICAL: Final = {
    ("int", "io.debezium.time.Date"): "date",
    ("int", "io.debezium.time.Time"): "time-millis",
    ("long", "io.debezium.time.MicroTime"): "time-micros",
    ("long", "io.debezium.time.NanoTime"): "time-nanos",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
    ("long", "io.debezium.time.NanoTimestamp"): "local-timestamp-nanos",
    ("string", "io.debezium.time.ZonedTimestamp"): "zoned-timestamp",
    ("record", "io.debezium.data.VariableScaleDecimal"): "scaled-decimal",
    ("int", "org.apache.kafka.connect.data.Date"): "date",
    ("int", "org.apache.kafka.connect.data.Time"): "time-millis",
    ("long", "org.apache.kafka.connect.data.Timestamp"): "timestamp-millis",
    ("bytes", "org.apache.kafka.connect.data.Decimal"): "connect-decimal",
}
_KINDS: Final = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "struct": "record",
}
"""Types of Connect that Avro calls otherwise."""


def logical_of(kind: str, name: object) -> str:
    """Return what values of a type are that has a name; empty if they are nothing else.

    Args:
        kind: the type, as Connect or Avro calls it.
        name: its name: of Avro `connect.name`, of JSON Schema the title.

    Returns:
        A logical type of Avro, or one of `connect-decimal`, `scaled-decimal`, `time-nanos` and
        `zoned-timestamp`, which Avro lacks.
    """
    if not isinstance(name, str):
        return ""
    return _LOGICAL.get((_KINDS.get(kind, kind), name), "")


def whole_number(given: Any) -> int | None:
    """Return a parameter of a type, which is a text mostly; None if it is no number."""
    text = str(given)
    return int(text) if re.fullmatch(r"-?\d{1,9}", text, re.ASCII) else None
