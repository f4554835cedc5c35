"""What messages that Kafka's JsonConverter wrote are in a column, computed without kafkalog."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.columns import one_value, typed_column
from kafkalog.log.typed.connect import EachConnectDecoder
from tests.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

WRITTEN = ROOT / "tests" / "corpus" / "connect_messages.ndjson"
"""What `tests/kafka/ConnectMessages.java` prints for `1 60`."""
_CONNECT = "org.apache.kafka.connect.data."
_TIMES = "io.debezium.time."
_LOCAL = {"Timestamp": 1000, "MicroTimestamp": 1, "NanoTimestamp": 0.001}
_OF_A_DAY = {"Time": 1_000_000, "MicroTime": 1000, "NanoTime": 1}


@dataclass(frozen=True)
class Message:
    """A message, and what Kafka reads from it."""

    data: bytes
    value: Any

    @property
    def text(self) -> str:
        """The text of its schema."""
        text = self.data.decode()
        _, end = json.JSONDecoder().raw_decode(text, len('{"schema":'))
        return text[len('{"schema":') : end]

    @property
    def expected(self) -> Any:
        """What a column has."""
        return plain(expected(json.loads(self.text), self.value))


def messages(lines: Iterable[str]) -> list[Message]:
    """Return messages as `ConnectMessages.java` prints them."""
    found = map(json.loads, lines)
    return [Message(b64decode(one["message"]), one["value"]) for one in found]


def column_of(*texts: str) -> TypedColumn:
    """Return the column of some schemas, the newest last."""
    writers = tuple((number, (text,)) for number, text in enumerate(texts, 1))
    versions = tuple(number for number, _ in reversed(writers))
    return TypedColumn("value", TypedForm.CONNECT, b"", writers=writers, versions=versions)


def compare(some: list[Message]) -> None:
    """Compare what is decoded, by columns and one by one, with what Kafka reads."""
    for text, group in groupby(some, key=lambda one: one.text):
        alike = list(group)
        column = column_of(text)
        data = pa.array([one.data for one in alike], pa.binary())
        found = typed_column(column, column.decoder(), data)
        wanted = [one.expected for one in alike]
        assert not found.failures, text
        assert rows(found.array) == wanted, text
        each = EachConnectDecoder()
        for one, value in zip(alike, wanted, strict=True):
            array, reason = one_value(column, column.decoder(), one.data)
            assert (rows(array), reason) == ([value], None), text
            array, reason = each.decode(one.data)
            assert (rows(array), reason) == ([value], None), text


def rows(array: Any) -> list[Any]:
    """Return the values of an Arrow array, to be compared with `plain` ones."""
    return [plain(one) for one in array.to_pylist(maps_as_pydicts="strict")]


def plain(value: Any) -> Any:
    """Return a value in a form in which equal ones have equal digits, signs and types."""
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(UTC)
    return repr(value)


def expected(schema: Any, value: Any) -> Any:
    """Return a value of a schema as a column has it."""
    if value is None:
        return None
    kind, name = schema["type"], schema.get("name") or ""
    if isinstance(value, dict) and "decimal" in value:
        return Decimal(value["decimal"])
    if isinstance(value, dict) and "millis" in value:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value["millis"])
        kinds = {
            "Date": moment.date(), "Time": _time(value["millis"] * 1_000_000), "Timestamp": moment,
        }  # fmt: skip
        return kinds[name.removeprefix(_CONNECT)]
    short = name.removeprefix(_TIMES) if name.startswith(_TIMES) else ""
    if short == "Date":
        return date(1970, 1, 1) + timedelta(days=value)
    if short in _OF_A_DAY:
        return _time(value * _OF_A_DAY[short], 9 if short == "NanoTime" else 6)
    if short in _LOCAL:
        micros = value // 1000 if short.startswith("Nano") else value * int(_LOCAL[short])
        return datetime(1970, 1, 1) + timedelta(microseconds=micros)
    if short == "ZonedTimestamp":
        return datetime.fromisoformat(value)
    if kind == "struct":
        fields = {one["field"]: one for one in schema["fields"]}
        found = {key: expected(fields[key], one) for key, one in value["struct"].items()}
        if name == "io.debezium.data.VariableScaleDecimal":
            number = Decimal(int.from_bytes(found["value"], signed=True))
            return f"{number.scaleb(-found['scale'], Context(prec=1000)):f}"
        return found
    if kind == "array":
        return [expected(schema["items"], one) for one in value]
    if kind == "map":
        return {
            expected(schema["keys"], key): expected(schema["values"], one)
            for key, one in value["map"]
        }
    if kind in ("float", "double"):
        raw = bytes.fromhex(value[kind])
        return struct.unpack(">f" if kind == "float" else ">d", raw)[0]
    return b64decode(value["bytes"]) if kind == "bytes" else value


def _time(nanoseconds: int, digits: int = 6) -> str:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    text = f"{seconds // 3600:02}:{seconds % 3600 // 60:02}:{seconds % 60:02}"
    return f"{text}.{f'{rest:09}'[:digits]}" if rest else text
