"""A reject names the field that is wrong, and says in plain words what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.columns import one_value, typed_column
from kafkalog.log.typed.reasons import array_of
from tests.builders import varint


def reason(form: TypedForm, texts: list[str], data: bytes, message: str | None = None) -> str:
    """Return why a value of the first schema is no value of the last: in a table, and alone."""
    writers = tuple((number, (text,)) for number, text in enumerate(texts, 1))
    schema = texts[-1].encode() if form == TypedForm.AVRO else b""
    versions = () if schema else tuple(range(len(texts), 0, -1))
    column = TypedColumn("value", form, schema, message, Framing.CONFLUENT, None, writers, versions)
    decoder = column.decoder()
    framed = b"\0\0\0\0\1" + data
    array, [failure], losses = typed_column(column, decoder, pa.array([framed], pa.binary()))
    assert not array[0].is_valid
    assert not losses
    assert one_value(column, decoder, framed)[1] == failure.reason
    return failure.reason


def record(kind: Any) -> str:
    """Return a schema of Avro with a type in lists in a record in a map."""
    inner = {"type": "record", "name": "I", "fields": [
        {"name": "l", "type": {"type": "array", "items": {"type": "array", "items": kind}}},
    ]}  # fmt: skip
    fields = [{"name": "n", "type": "int"}, {"name": "m", "type": {"type": "map", "values": inner}}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def value(data: bytes) -> bytes:
    return varint(0) + b"\2\2k" + b"\2\2" + data + b"\0\0" + b"\0"


@pytest.mark.parametrize(("kind", "data", "words"), [
    ("string", b"\2\xff", "text that is not UTF-8"),
    ("boolean", b"\2", "2 is no boolean"),
    ({"type": "int", "logicalType": "time-millis"}, varint(-1), "-1000000 ns are no time of a day"),
    ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, b"\6now",
     "'now' is no time"),
])  # fmt: skip
def test_avro_names_the_field(kind: Any, data: bytes, words: str) -> None:
    schema = record(kind)
    assert reason(TypedForm.AVRO, [schema], value(data)) == f"m{{}}.l[][]: {words}"


def test_avro_names_the_field_that_does_not_fit() -> None:
    old = record("string")
    found = reason(TypedForm.AVRO, [old, record("long")], value(b"\2a"))
    assert found == "m{}.l[][]: string is not long, which the column has"


@pytest.mark.parametrize(("data", "words"), [
    (r'{"a":[{"s":"\ud800"}]}', "a[].s: text with half of a surrogate pair"),
    ('{"a":[{"s":1}]}', "a[].s: 1 is no string"),
    ('{"a":[{"b":"x"}]}', "a[].b: text that is not base64"),
    ('{"a":[{"b":"-x=="}]}', "a[].b: text that is not base64"),
    ('{"a":[{"d":"2024-02-30"}]}', "a[].d: '2024-02-30' is no date"),
    ('{"a":1}', "a[]: 1 is no array"),
    ('{"a":[{"n":9007199254740993}]}', "a[].n: 9007199254740993 has more digits than a double"),
])  # fmt: skip
def test_json_names_the_field(data: str, words: str) -> None:
    """Also where only Arrow finds that a number is not exact."""
    kinds = {"s": {"type": "string"}, "n": {"type": "integer"}, "b": {
        "type": "string", "contentEncoding": "base64"}, "d": {"type": "string", "format": "date"}
    }  # fmt: skip
    texts = []
    for number in ("integer", "number"):
        item = {"type": "object", "properties": {**kinds, "n": {"type": number}}}
        tree = {"type": "object", "properties": {"a": {"type": "array", "items": item}}}
        texts.append(json.dumps(tree))
    assert reason(TypedForm.JSON, texts, data.encode()) == words


DECIMAL = """syntax = "proto3"; package p; import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message M { string s = 1; repeated N n = 2; }
message N { confluent.type.Decimal d = 1 [(confluent.field_meta) = { params: [
    { key: "precision", value: "10" }, { key: "scale", value: "SCALE" }] }]; string s = 2; }
"""


@pytest.mark.parametrize(("data", "words"), [
    # 1.2345 as the bytes of 12345 and the scale 4.
    ("1208 0a06 0a02 3039 1804", "n[].d: 1.2345 is no decimal(10, 2)"),
    ("120e 0a0c 0a08 0fffffffffffffff 1802",
     "n[].d: a decimal that is no decimal(10, 4)"),
])  # fmt: skip
def test_protobuf_names_the_field(data: str, words: str) -> None:
    """Also where only Arrow finds that a decimal has too many decimals."""
    texts = [DECIMAL.replace("SCALE", scale) for scale in "42"]
    found = reason(TypedForm.PROTOBUF, texts, b"\0" + bytes.fromhex(data), "p.M")
    assert found == words


def test_one_of_many_items() -> None:
    """It is found among them."""
    kind = pa.struct([("m", pa.map_(pa.string(), pa.struct([("l", pa.list_(pa.string()))])))])
    items = [str(number) for number in range(1000)]
    found = {"m": [("a", {"l": items}), ("b", {"l": None}), ("c", {"l": [*items, "\ud800", "x"]})]}
    array, words = array_of(found, kind)
    assert (array.to_pylist(), words) == ([None], "m{}.l[]: text with half of a surrogate pair")
    assert array_of({"m": [("\udc00", None)]}, kind)[1] == "m{}: text with half of a surrogate pair"
