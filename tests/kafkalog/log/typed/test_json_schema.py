"""What becomes of schemas as generators write them, and of values that JSON allows."""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.columns import one_value
from kafkalog.log.typed.json_schema import AnyJsonDecoder, JsonDecoder
from kafkalog.log.typed.remarks import LOCAL_AS_UTC, LOST_DIGITS
from tests.kafkalog.log.typed.both_ways import both

DECIMAL = {
    "type": "number", "title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes",
    "connect.version": 1, "connect.parameters": {"scale": "2"},
}  # fmt: skip
PET = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "bark": {"type": "number"}}}


def properties(**some: Any) -> dict[str, Any]:
    return {"type": "object", "properties": some}


def decoder(schema: Any, **references: Any) -> JsonDecoder:
    texts = {name.replace("_json", ".json"): json.dumps(one) for name, one in references.items()}
    return JsonDecoder(json.dumps(schema).encode(), texts)


def row(made: Any, data: str | bytes) -> Any:
    """Return the value that the column has for JSON, with structs and maps as dicts."""
    value = made.decode(data if isinstance(data, bytes) else data.encode())
    [found] = pa.array([value], made.type).to_pylist(maps_as_pydicts="strict")
    return found


def named(kind: str, connect: str | None, title: str | None = None) -> dict[str, Any]:
    """Return a schema as Kafka Connect's converter for JSON Schema writes it."""
    said = {"type": kind, "connect.type": connect, "title": title}
    return {name: one for name, one in said.items() if one is not None}


def remarks(made: JsonDecoder) -> dict[str, str]:
    return {one.path: f"{one.type}: {one.reason}" for one in made.remarks}


# Generators ---------------------------------------------------------------------------------------


def test_schemas_of_confluent_for_java() -> None:
    """Optional fields, the order of fields, Connect's types, and maps as lists of pairs."""
    missing = {"type": "null", "title": "Not included"}
    made = decoder({
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "Order",
        "type": "object", "additionalProperties": False, "properties": {
            "raw": {"connect.index": 5, "type": "string", "connect.type": "bytes"},
            "note": {"connect.index": 1, "oneOf": [missing, {"type": "string"}]},
            "id": {"connect.index": 0, "type": "integer", "connect.type": "int64"},
            "price": {"connect.index": 2, "oneOf": [missing, DECIMAL]},
            "rate": {"connect.index": 3, "type": "number", "connect.type": "float32"},
            "stock": {"connect.index": 4, "type": "array", "connect.type": "map", "items":
                      properties(key={"type": "integer"}, value={"type": "boolean"})},
            "tags": {"connect.index": 6, "type": "object", "connect.type": "map",
                     "additionalProperties": {"type": "string"}},
            "ship": {"oneOf": [missing, {"$ref": "#/definitions/Ship"}]},
        },
        "definitions": {"Ship": properties(city={"oneOf": [missing, {"type": "string"}]})},
    })  # fmt: skip
    assert made.type == pa.struct([
        ("id", pa.int64()), ("note", pa.string()), ("price", pa.decimal128(38, 2)),
        ("rate", pa.float32()), ("stock", pa.map_(pa.int64(), pa.bool_())), ("raw", pa.binary()),
        ("tags", pa.map_(pa.string(), pa.string())), ("ship", pa.struct([("city", pa.string())])),
    ])  # fmt: skip
    assert not made.remarks
    # -1234, two bytes of two's complement, in base64
    found = row(made, '{"id":1,"price":"+y4=","rate":0.1,"raw":"AP8=","tags":{"a":"b"},"ship":'
                '{"city":"x"},"stock":[{"key":1,"value":true},{"key":2,"value":null},'
                '{"key":1,"value":false}]}')  # fmt: skip
    assert found == {
        "id": 1, "note": None, "price": Decimal("-12.34"), "rate": pytest.approx(0.1), "raw":
        b"\0\xff", "tags": {"a": "b"}, "ship": {"city": "x"}, "stock": {1: False, 2: None},
    }  # fmt: skip
    assert row(made, '{"price":12.3}')["price"] == Decimal("12.30")
    assert not made.losses


def test_schemas_of_njsonschema() -> None:
    """Inheritance, nullable references, decimals, dictionaries and more members than named."""
    made = decoder({
        "$schema": "http://json-schema.org/draft-04/schema#", "title": "Car",
        "definitions": {
            "Base": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "integer", "format": "int32"},
                "made": {"type": "string", "format": "date-time"}}},
            "Engine": properties(power={"type": "number", "format": "double"}),
            "Color": {"type": "integer", "x-enumNames": ["Red", "Blue"], "enum": [0, 1]},
        },
        "allOf": [{"$ref": "#/definitions/Base"}, {
            "type": "object", "additionalProperties": {}, "properties": {
                "name": {"type": ["null", "string"]},
                "engine": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/Engine"}]},
                "price": {"type": "number", "format": "decimal"},
                "color": {"$ref": "#/definitions/Color"},
                "stock": {"type": ["object", "null"],
                          "additionalProperties": {"type": "integer"}}}}],
    })  # fmt: skip
    found = row(made, '{"id":7,"made":"2024-05-06T07:08:09.1234567+02:00","name":null,"engine":'
                '{"power":1},"price":12345678901234567890.123456789,"color":1,"stock":{"a":2},'
                '"other":[1,{"x":1.50000000000000000001}]}')  # fmt: skip
    assert found == {
        "id": 7, "made": datetime(2024, 5, 6, 5, 8, 9, 123456, UTC), "name": None, "engine":
        {"power": 1.0}, "price": Decimal("12345678901234567890.123456789"), "color": 1, "stock":
        {"a": 2}, "_additional": {"other": '[1,{"x":1.50000000000000000001}]'},
    }  # fmt: skip
    assert remarks(made) == {"_additional{}": "json: the schema gives no type"}
    assert made.losses == Counter({LOST_DIGITS: 1})


def test_schemas_of_pydantic() -> None:
    """Optional fields, references, unions by a discriminator, unions of types, recursion."""
    null = {"type": "null"}
    made = decoder({
        "title": "M", "type": "object", "required": ["pet"], "$defs": {
            "Cat": PET, "Dog": DOG, "Tree": properties(
                value={"type": "integer"}, left={"anyOf": [{"$ref": "#/$defs/Tree"}, null]})},
        "properties": {
            "at": {"anyOf": [{"type": "string", "format": "date-time"}, null], "default": None},
            "day": {"type": "string", "format": "date", "title": "Day"},
            "pet": {"discriminator": {"propertyName": "kind", "mapping": {}},
                    "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]},
            "some": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "amount": {"anyOf": [{"type": "integer"}, {"type": "number"}]},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "by": {"type": "object", "patternProperties": {"^k": {"type": "integer"}}},
            "pair": {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems":
                     [{"type": "integer"}, {"type": "string"}]},
            "tree": {"$ref": "#/$defs/Tree", "description": "a tree"},
            "free": {"type": "object", "additionalProperties": True},
            "list": {"type": "array", "items": {}},
            "none": null,
        },
    })  # fmt: skip
    whole = (
        '{"at":"2024-01-02T03:04:05Z","day":"2024-02-29","pet":{"kind":"dog","bark":2},"some":"1",'
        '"amount":1,"counts":{"a":1,"a":2},"by":{"k":3},"pair":[1,"x"],"tree":{"value":1,"left":'
        '{"value":2,"left":null}},"free":{"b":1,"a":[]},"list":[1,"x",null]}'
    )
    assert row(made, whole) == {
        "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC), "day": date(2024, 2, 29),
        "pet": {"kind": "dog", "lives": None, "bark": 2.0}, "some": '"1"', "amount": 1.0,
        "counts": {"a": 2}, "by": {"k": 3}, "pair": ["1", '"x"'],
        "tree": {"value": 1, "left": '{"value":2,"left":null}'}, "free": '{"b":1,"a":[]}',
        "list": ["1", '"x"', None],
    }  # fmt: skip
    assert remarks(made) == {
        "some": "json: it has several types: integer, string",
        "pair[]": "json: each item has a type of its own",
        "tree.left": "json: it contains itself",
        "free": "json: it is an object without properties",
        "list[]": "json: the schema gives no type",
        "none": "omitted: it is always null",
    }


# Rules --------------------------------------------------------------------------------------------

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TYPES: dict[str, tuple[Any, str]] = {
    "a class and one derived": (
        {"properties": {"a": INTEGER, "of": {"$ref": "#/$defs/B"}}, "$defs": {"B": properties(
            b=STRING)}, "allOf": [{"$ref": "#/$defs/B"}]},
        "struct<a: int64, of: struct<b: string>, b: string>",
    ),
    "conditions": (
        {**properties(a=STRING), "if": {"properties": {"a": {"const": "x"}}},
         "then": {"properties": {"b": INTEGER}}, "else": {"properties": {"c": {"enum": [1.5]}}}},
        "struct<a: string, b: int64, c: double>",
    ),
    "a condition without else": (
        {**properties(a=STRING), "if": {}, "then": {"properties": {"b": INTEGER}}},
        "struct<a: string, b: int64>",
    ),
    "dependent schemas": (
        {**properties(a=STRING), "dependentSchemas": {"a": {"properties": {"b": INTEGER}}}},
        "struct<a: string, b: int64>",
    ),
    "what is required does not say a type": (
        {**properties(a=STRING), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "struct<a: string>",
    ),
    "an alternative narrows": ({"type": ["string", "integer"], "anyOf": [STRING]}, "string"),
    "an alternative cannot be": ({**STRING, "oneOf": [INTEGER, {"minLength": 1}]}, "string"),
    "types meet": ({"allOf": [{"type": ["integer", "string"]}, {"type": ["null", "number"]}]},
                   "int64"),
    "enum and const": ({"properties": {"a": {"enum": ["x", None]}, "b": {"const": True},
                                       "c": {"enum": [1, 2.5]}}},
                       "struct<a: string, b: bool, c: double>"),
    "references alone before 2019": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {
            "$ref": "#/definitions/s", "type": "integer"}}, "definitions": {"s": STRING}},
        "struct<a: string>",
    ),
    "references with more since 2019": (
        {"properties": {"a": {"$ref": "#/$defs/s", "properties": {"b": STRING}}},
         "$defs": {"s": properties(c=STRING)}},
        "struct<a: struct<b: string, c: string>>",
    ),
    "lists merge": ({"oneOf": [{"type": "array", "items": INTEGER},
                               {"type": "array", "items": {"type": "number"}}]},
                    "list<item: double>"),
    "a date and a text": ({"oneOf": [{**STRING, "format": "date"}, STRING]}, "string"),
    "a map and an object": ({"oneOf": [properties(a=STRING), {
        "type": "object", "additionalProperties": INTEGER}]}, "string"),
    "names that differ in case": (
        properties(a=STRING, A=INTEGER, _additional=STRING),
        "struct<a: string, A_2: int64, _additional: string>",
    ),
    "more members": (
        {**properties(_additional=STRING), "additionalProperties": INTEGER},
        "struct<_additional: string, _additional_2: map<string, int64>>",
    ),
    "pairs with keys that are no scalars": (
        {"type": "array", "connect.type": "map", "items": properties(
            key=properties(a=STRING), value=STRING)},
        "list<item: struct<key: struct<a: string>, value: string>>",
    ),
    "decimals of too many places": ({**DECIMAL, "connect.parameters": {"scale": "60"}}, "string"),
    "only null": ({"type": "null"}, "string"),
    "a list of null": ({"type": "array", "items": {"type": "null"}}, "list<item: string>"),
    "nothing but null": (properties(a={"type": "null"}), "string"),
    "draft 4 by its id": ({"id": "http://x/y.json", "type": "object", "properties": {
        "a": {"$ref": "#b"}}, "definitions": {"b": {"id": "#b", **INTEGER}}}, "struct<a: int64>"),
    "one names what is one of the others of another": (
        {"oneOf": [{**properties(a=STRING), "additionalProperties": INTEGER},
                   {**properties(b={"type": "boolean"}), "additionalProperties": False}]},
        "struct<a: string, b: string, _additional: map<string, int64>>",
    ),
    "others of one, and anything of another": (
        {"oneOf": [{**properties(a=STRING), "additionalProperties": INTEGER},
                   properties(b=INTEGER)]},
        "struct<a: string, b: int64, _additional: map<string, string>>",
    ),
    "others that have no pattern": (
        {**properties(a=STRING), "patternProperties": {"^b": INTEGER}},
        "struct<a: string, _additional: map<string, string>>",
    ),
    "a type that is said, and one that is implied": (
        {"oneOf": [{"properties": {"a": STRING}}, {"properties": {"b": STRING}}],
         "anyOf": [INTEGER]}, "int64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_type(name: str) -> None:
    """The type of the column."""
    schema, kind = TYPES[name]
    assert str(decoder(schema).type) == kind


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        (named("integer", "int32", "io.debezium.time.Date"), "20000", date(2024, 10, 4)),
        (
            named("integer", "int64", "io.debezium.time.MicroTimestamp"),
            "1500", datetime(1970, 1, 1, 0, 0, 0, 1500),
        ),
        (
            named("integer", "int64", "org.apache.kafka.connect.data.Timestamp"),
            "1500", datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        ),
        (
            named("integer", "int32", "org.apache.kafka.connect.data.Time"),
            "3600001", "01:00:00.001000",
        ),
        (
            named("string", None, "io.debezium.time.ZonedTimestamp"),
            '"2024-10-04T01:02:03+01:00"', "2024-10-04T01:02:03+01:00",
        ),
        (
            named("string", "string", "io.debezium.time.ZonedTimestamp"),
            '"2024-10-04T01:02:03+01:00"', datetime(2024, 10, 4, 0, 2, 3, tzinfo=UTC),
        ),
        (
            {"type": "object", "title": "io.debezium.data.VariableScaleDecimal", "properties": {
                "scale": named("integer", "int32"), "value": named("string", "bytes")}},
            '{"scale":2,"value":"BNI="}', "12.34",
        ),
        (named("integer", "int64", "io.debezium.time.MicroDuration"), "7", 7),
        (named("integer", None, "io.debezium.time.Date"), "7", 7),
        (named("number", "float64"), '"-Infinity"', float("-inf")),
        (
            {**DECIMAL, "connect.parameters": {"scale": "1", "connect.decimal.precision": "4"}},
            "123.4", Decimal("123.4"),
        ),
    ],
)  # fmt: skip
def test_names_of_kafka_connect(schema: Any, data: str, value: Any) -> None:
    """The title is the name of a type; values have that of the column by columns, too."""
    column = TypedColumn("value", TypedForm.JSON, json.dumps(schema).encode())
    found, said, _ = both(column, pa.array([data.encode()]))
    assert found == said
    assert not found.failures
    assert row(decoder(schema), data) == value


def test_decimals_of_more_places_than_columns_have() -> None:
    """All their digits, as text."""
    made = decoder({**DECIMAL, "connect.parameters": {"scale": "60"}})
    # 258, two bytes, in base64
    assert row(made, '"AQI="') == "0." + "0" * 57 + "258"
    assert row(made, "1e30") == "1" + "0" * 30
    assert row(made, "0.10000000000000000000000001") == "0.10000000000000000000000001"
    for data in ("1e999999999", '"A"', "true"):
        with pytest.raises(ValueError, match=r"out of range|base64|is no number|padding"):
            row(made, data)


@pytest.mark.parametrize("tree", [
    None, 5, "x", [], True, False, {"type": [{}]}, {"type": "object", "properties": [1]},
    {"enum": 7}, {"$id": 5}, {"$id": "http://[::1"}, {"$ref": "http://[::1"}, {"$schema": "[x"},
    {"$schema": 5}, {"anyOf": {}, "oneOf": [5, None]}, {"$defs": 5, "$ref": "#/$defs/x"},
    {"$anchor": 5, "$dynamicAnchor": [], "$ref": "#x"}, {"$ref": "#/x/1", "x": "ab"},
    {"$ref": "#/x/y", "x": [1]}, {"properties": {"\ud800": STRING}, "type": "object"},
    {"$schema": "http://json-schema.org/draft-04/schema#", "id": 7, "items": [True, 5],
     "dependencies": {"a": 5, "b": ["c"]}},
    {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#",
     "$recursiveAnchor": True},
])  # fmt: skip
def test_what_says_no_type_is_text(tree: Any) -> None:
    """Also what no draft allows."""
    made = decoder(tree)
    assert row(made, '{"a": [1, "x"]}') == '{"a":[1,"x"]}'
    assert "" in remarks(made)


def test_references_to_other_schemas() -> None:
    """By name, relative to the address of any schema; from one to another; to nothing."""
    made = decoder(
        {"$id": "http://shop/schemas/order.json", "type": "object", "properties": {
            "a": {"$ref": "customer.json"}, "b": {"$ref": "customer.json#/properties/place"},
            "c": {"$ref": "http://elsewhere/none.json"}}},
        customer_json={"$id": "http://people/v1/customer.json", "type": "object", "properties":
                       {"place": {"$ref": "place.json#town"}}},
        place_json={"$defs": {"t": {"$anchor": "town", "type": "string"}}},
    )  # fmt: skip
    assert str(made.type) == "struct<a: struct<place: string>, b: string, c: string>"
    reason = "json: the reference 'http://elsewhere/none.json' cannot be resolved"
    assert remarks(made) == {"c": reason}


# Values -------------------------------------------------------------------------------------------

VALUE = properties(i=INTEGER, n={"type": "number"}, s=STRING, t={**STRING, "format": "date-time"},
                   d={**STRING, "format": "date"}, b={**STRING, "contentEncoding": "base64"},
                   x={}, m={"type": "number", "format": "decimal"})  # fmt: skip
VALUES: dict[str, tuple[str, Any]] = {
    '{"i":1.0}': ("i", 1),
    '{"i":1e3}': ("i", 1000),
    '{"i":9007199254740993.0}': ("i", 9007199254740993),
    '{"i":0e999999999}': ("i", 0),
    '{"i":9223372036854775807}': ("i", 2**63 - 1),
    '{"n":1}': ("n", 1.0),
    '{"n":0.1}': ("n", 0.1),
    '{"n":0.0}': ("n", 0.0),
    '{"n":0.00000}': ("n", 0.0),
    '{"n":1e300}': ("n", 1e300),
    '{"n":0.30000000000000004}': ("n", 0.30000000000000004),
    '{"t":"2024-01-01t10:00:00z"}': ("t", datetime(2024, 1, 1, 10, tzinfo=UTC)),
    '{"t":"2024-01-01T10:00:00.123456000+01:30"}':
        ("t", datetime(2024, 1, 1, 8, 30, 0, 123456, UTC)),
    '{"b":"AAEC"}': ("b", b"\0\1\2"),
    '{"s":"\\ud83d\\ude00"}': ("s", "\U0001f600"),
    '{"x":[0.1000000000000000055,12345678901234567890,1e400,"é"]}':
        ("x", '[0.1000000000000000055,12345678901234567890,1e400,"é"]'),
    '{"x":' + "9" * 5000 + "}": ("x", "9" * 5000),
    '{"x":{"b":1.5,"a":null,"b":2}}': ("x", '{"b":2,"a":null}'),
    '{"i":1,"i":2}': ("i", 2),
    '{"m":1.1}': ("m", Decimal("1.1")),
    '{"m":12345678901234567890.1}': ("m", Decimal("12345678901234567890.1")),
    '\ufeff{"i":1}': ("i", 1),
}  # fmt: skip


@pytest.mark.parametrize("data", VALUES)
def test_value(data: str) -> None:
    """Nothing is lost."""
    made = decoder(VALUE)
    name, value = VALUES[data]
    assert row(made, data)[name] == value
    assert not made.losses


@pytest.mark.parametrize(("data", "value", "loss"), [
    ('{"n":0.1000000000000000055}', 0.1, LOST_DIGITS),
    ('{"n":9007199254740993}', 9007199254740992.0, LOST_DIGITS),
    ('{"n":1e-400}', 0.0, LOST_DIGITS),
    ('{"n":1e-99999999999999999999}', 0.0, LOST_DIGITS),
    ('{"m":0.1234567891}', Decimal("0.123456789"), LOST_DIGITS),
    ('{"t":"2024-01-01T10:00:00.1234567Z"}', datetime(2024, 1, 1, 10, 0, 0, 123456, UTC),
     LOST_DIGITS),
    ('{"t":"2024-01-01T10:00:00"}', datetime(2024, 1, 1, 10, tzinfo=UTC), LOCAL_AS_UTC),
])  # fmt: skip
def test_loss(data: str, value: Any, loss: str) -> None:
    """It is counted, each time, but not for values that do not decode."""
    made = decoder(VALUE)
    [name] = json.loads(data)
    assert row(made, data)[name] == value
    assert made.losses == Counter({loss: 1})
    row(made, data)
    with pytest.raises(ValueError, match="is no string"):
        made.decode(data.replace("}", ',"s":1}').encode())
    row(made, "{}")
    assert made.losses == Counter({loss: 2})


@pytest.mark.parametrize("data", [
    "", "{", "[]", '"x"', '{"i":1} 2', '{"i":NaN}', '{"x":NaN}', '{"x":-Infinity}',
    '{"i":1.5}', '{"i":"1"}', '{"i":true}', '{"i":9223372036854775808}', '{"i":1e99999999}',
    '{"i":1e400}', '{"i":-1e19}', '{"i":9007199254740993.5}', '{"i":' + "9" * 5000 + "}",
    '{"n":1e400}', '{"n":-1e400}', '{"n":"1"}', '{"n":true}', '{"n":1' + "0" * 400 + "}",
    '{"s":1}', '{"s":"\\ud800"}', '{"x":"\\ud800"}', '{"x":{"\\udc00":1}}', b'{"s":"\xff"}',
    '{"i":1}'.encode("utf-16"), '{"t":"2024-01-01"}', '{"t":"now"}', '{"t":1}',
    '{"t":"0001-01-01T00:00:00+01:00"}', '{"t":"2024-02-30T00:00:00Z"}', '{"d":"20240101"}',
    '{"d":"2024-02-30"}', '{"d":5}', '{"b":"A"}', '{"b":"A-=="}', '{"b":1}', '{"m":1e29}',
    '{"m":1e999999999}', '{"m":"AA=="}', '{"x":' + "[" * 100_000 + "]" * 100_000 + "}",
])  # fmt: skip
def test_value_that_does_not_fit(data: str | bytes) -> None:
    """A short reason, never another error; with the name of the field if it is JSON at all."""
    made = decoder(VALUE)
    column = TypedColumn("value", TypedForm.JSON, b"")
    _, reason = one_value(column, made, data if isinstance(data, bytes) else data.encode())
    assert reason is not None
    assert re.fullmatch(r"[^\n]{1,150}", reason)
    assert re.search("codec|Invalid|isoformat", reason) is None
    with suppress(ValueError, RecursionError):
        text = data if isinstance(data, str) else data.decode()
        tree = json.loads(text, parse_constant=int)
        assert not isinstance(tree, dict) or reason.startswith(f"{next(iter(tree))}: ")
    assert not made.losses


def test_any_json() -> None:
    """It is kept as it is."""
    made = AnyJsonDecoder()
    text = '{ "a" : 1.10, "b": ' + "9" * 5000 + "}"
    assert (row(made, text), made.remarks, made.losses) == (text, [], Counter())
    with pytest.raises(ValueError, match="NaN is not JSON"):
        made.decode(b"[NaN]")


def test_anchors_of_old_drafts_without_a_schema_that_says_so() -> None:
    """Until draft 7 an `$id` that is only a fragment is an anchor."""
    address = {"$id": "#address", **properties(street={"type": "string"})}
    made = decoder({"definitions": {"x": address}, **properties(to={"$ref": "#address"})})
    assert row(made, '{"to":{"street":"s"}}') == {"to": {"street": "s"}}
