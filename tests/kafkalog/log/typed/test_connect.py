"""Messages of Kafka Connect with schemas: as Kafka's own JsonConverter reads them, and others."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from kafkalog.errors import UsageError
from kafkalog.log.typed import TypedColumn, TypedForm, connect
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.connect import EachConnectDecoder, Schemas
from kafkalog.log.typed.remarks import LOST_DIGITS, UNKNOWN_FIELDS
from tests.checkout import ROOT
from tests.kafkalog.log.typed.both_ways import both
from tests.kafkalog.log.typed.connect_messages import WRITTEN, column_of, compare, messages
from tests.sampling import drawn_for, examples

INT = '{"type":"int32","optional":false}'
FIELD = '{"type":"int8","field":"a"}'
MAP = '{"type":"map","keys":{"type":"%s"},"values":{"type":"int8"}}'


def message(schema: str, payload: str) -> bytes:
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


def struct(**kinds: str) -> str:
    fields = [{"type": kind, "optional": True, "field": name} for name, kind in kinds.items()]
    return json.dumps({"type": "struct", "fields": fields, "optional": False})


def named(kind: str, name: str, **parameters: str) -> str:
    return json.dumps({"type": kind, "name": name, "parameters": parameters})


def decoded(schemas: list[str], *data: bytes | None) -> tuple[list[Any], dict[int, str]]:
    """Return the values of a column, and why some did not decode, by their rows."""
    column = column_of(*schemas)
    found = typed_column(column, column.decoder(), pa.array(data, pa.binary()))
    reasons = {one.row: one.reason for one in found.failures}
    return found.array.to_pylist(maps_as_pydicts="strict"), reasons


def test_values_are_what_kafka_reads() -> None:
    compare(messages(WRITTEN.read_text(encoding="utf-8").splitlines()))


def test_a_column_has_the_fields_of_all_schemas() -> None:
    old, new = struct(a="int32", b="string"), struct(a="int64", b="double", c="boolean")
    data = [
        message(old, '{"a":1,"b":"x"}'), message(new, '{"a":2,"b":0.5,"c":true}'), None,
        message(old, '{"a":3,"b":null}'), message(new, "null"),
    ]  # fmt: skip
    values, reasons = decoded([old, new], *data)
    empty = dict.fromkeys(("a", "b", "c", "b__string"))
    assert values == [
        {**empty, "a": 1, "b__string": "x"}, {**empty, "a": 2, "b": 0.5, "c": True}, None,
        {**empty, "a": 3}, None,
    ]  # fmt: skip
    assert not reasons


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{}", "it is not `schema` and `payload`"),
        ("7", "it is not `schema` and `payload`"),
        ("", "it is not `schema` and `payload`"),
        ('{"a":1}', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT}}}', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT},"payload":1,"more":2}}', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT},"schema":{INT}}}', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT},"payload":1}} 2', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT},"payload":1}}}}', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT},"payload":1', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT},"payload":1]', "it is not `schema` and `payload`"),
        (f'{{"schema":{INT},"payload":}}', "Expecting value"),
        (f'{{"schema":{INT},"payload":NaN}}', "NaN is not JSON"),
        (f'{{"schema":{INT},"payload":"1"}}', "'1' is no integer"),
        (f'{{"schema":{INT},"payload":1.5}}', "1.5 is no integer"),
        (f'{{"schema":{INT},"payload":9223372036854775808}}', "out of range"),
        ('{"schema":{"type":"int32"},"payload":1}', "its schema is not among the 100"),
        ('{"schema":{"type":"int31"},"payload":1}', "'int31' is no type of Kafka Connect"),
        ('{"schema":[],"payload":1}', "its schema is none: the schema has no type"),
        ('{"schema":{"type":["int32"]},"payload":1}', "the schema has no type"),
        ('{"schema":{"type":"array"},"payload":[]}', "[] has no type"),
        ('{"schema":{"type":"struct"},"payload":{}}', "has no list of fields"),
        ('{"schema":{"type":"struct","fields":[{"type":"int8"}]},"payload":{}}', "has no name"),
        (
            f'{{"schema":{{"type":"struct","fields":[{FIELD},{FIELD}]}},"payload":{{}}}}',
            "two fields are called 'a'",
        ),
        (
            f'{{"schema":{named("bytes", "org.apache.kafka.connect.data.Decimal")},"payload":1}}',
            "has no whole number as scale",
        ),
        (f'{{"schema":{"[" * 100_000}', "too deep"),
    ],
)
def test_what_is_no_message_is_a_reject(text: str, reason: str) -> None:
    data = [message(INT, "5"), text.encode(), message(INT, "6")]
    values, reasons = decoded([INT], *data)
    assert values == [5, None, 6]
    assert [*reasons] == [1]
    assert reason in reasons[1]
    each, why = EachConnectDecoder().decode(text.encode())
    if reason.startswith("its schema is not among"):
        assert each.to_pylist() == [1]
    else:
        assert reason in str(why)


def test_a_value_ends_where_it_ends() -> None:
    """What follows in memory is of another value, also if both together are a message."""
    whole = message(INT, "5")
    cut = whole.index(b"}") + 1
    values, reasons = decoded([INT], whole, whole[:cut], whole[cut:], whole)
    assert values == [5, None, None, 5]
    assert [*reasons] == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        f'{{"payload":7,"schema":{INT}}}',
        f' {{ "schema" :\t{INT}\n, "payload"\r: 7 }} \n',
        f'\ufeff{{"schema":{INT},"payload":7}}',
    ],
    ids=["payload first", "blanks", "byte order mark"],
)
def test_other_ways_to_write_the_same(text: str) -> None:
    assert decoded([INT], text.encode(), text.encode()) == ([7, 7], {})


@pytest.mark.parametrize(
    ("schema", "payload", "value"),
    [
        (named("int32", "org.apache.kafka.connect.data.Date"), "2932897", "beyond the years"),
        (named("int32", "org.apache.kafka.connect.data.Time"), "86400000", "no time of a day"),
        (named("int64", "io.debezium.time.Timestamp"), "253402300800000", "beyond the years"),
        (named("string", "io.debezium.time.ZonedTimestamp"), '"soon"', "is no date-time"),
        (named("bytes", "org.apache.kafka.connect.data.Decimal", scale="1"), '""', "without bytes"),
        (named("bytes", "org.apache.kafka.connect.data.Decimal", scale="1"), "1e38", "of range"),
        (
            json.dumps({
                "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": {"scale": "1", "connect.decimal.precision": "3"},
            }),
            '"A+g="',  # 1000 tenths
            "out of range",
        ),
        ('{"type":"bytes"}', '"?"', "base64"),
        (MAP % "int32", '[[1,2],[null,3]]', "a key of a map is null"),
        (MAP % "int32", '[[1]]', "is no pair"),
        (MAP % "int32", '[{"key":1,"value":2}]', "is no pair"),
        (MAP % "string", "[]", "is no object"),
        ('{"type":"array","items":{"type":"int8"}}', "{}", "is no array"),
    ],
)  # fmt: skip
def test_values_that_types_do_not_have(schema: str, payload: str, value: str) -> None:
    [found], reasons = decoded([schema], message(schema, payload))
    assert found is None
    assert value in reasons[0]


def test_decimals_beyond_38_digits_are_exact_texts() -> None:
    schema = named("bytes", "org.apache.kafka.connect.data.Decimal", scale="40")
    numbers = ["0." + "0" * 39 + "1", "-" + "9" * 30 + "." + "1" * 40]
    assert decoded([schema], *(message(schema, one) for one in numbers)) == (numbers, {})


def test_a_map_keeps_the_last_of_equal_keys() -> None:
    schema = MAP % "int8"
    assert decoded([schema], message(schema, "[[1,2],[1,3]]")) == ([{1: 3}], {})


def test_what_has_no_type_is_json() -> None:
    nested = (
        '{"type":"map","keys":{"type":"array","items":{"type":"int8"}},"values":{"type":"int8"}}'
    )
    schema = json.dumps({"type": "struct", "fields": [{**json.loads(nested), "field": "m"}]})
    data = [message(schema, '{"m":[[[1, 2],3]]}'), message("null", '{"a": 12345678901234567890}')]
    assert decoded([schema], data[0]) == ([{"m": "[[[1,2],3]]"}], {})
    assert decoded(["null"], data[1]) == (['{"a":12345678901234567890}'], {})
    [remark] = column_of(schema).decoder().remarks
    assert (remark.path, remark.type) == ("m", "json")


def test_what_is_lost_is_counted() -> None:
    schema = json.dumps({"type": "struct", "fields": [
        {"type": "int64", "name": "io.debezium.time.NanoTimestamp", "field": "at"},
    ]})  # fmt: skip
    column = column_of(schema)
    data = [message(schema, one) for one in ('{"at":1500}', '{"at":2000}', '{"at":1,"b":2}')]
    found = typed_column(column, column.decoder(), pa.array(data))
    assert found.losses == Counter({LOST_DIGITS: 2, UNKNOWN_FIELDS: 1})


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [("0.1", False), ("16777216", False), ("16777217", True), ("0.12345678", False),
     ("0.123456789", True), ("1e-50", True), ("3.4028235e38", False), ('"NaN"', False)],
)  # fmt: skip
def test_digits_that_a_float_has_not_are_counted(text: str, is_lost: bool) -> None:
    """It has 24 bits: any eight digits at most."""
    column = column_of(struct(f="float"))
    data = pa.array([message(struct(f="float"), f'{{"f":{text}}}')] * 2)
    found, wanted, _ = both(column, data)
    assert found == wanted
    assert found.losses == (Counter({LOST_DIGITS: 2}) if is_lost else Counter())


def test_numbers_beyond_floats_are_rejects() -> None:
    data = [message(struct(f="float"), f'{{"f":{text}}}') for text in ("1e39", "-1e39", "3.5e38")]
    values, reasons = decoded([struct(f="float")], *data)
    assert values == [None] * 3
    assert set(reasons.values()) == {"f: out of range"}


def test_columns_say_what_single_values_say() -> None:
    """Payloads of all kinds that mostly fit no type, and many schemas, in a drawn order."""
    rng = drawn_for("payloads of Kafka Connect")
    kinds = [
        INT, '{"type":"double"}', '{"type":"float"}', '{"type":"bytes"}', '{"type":"boolean"}',
        '{"type":"string"}', MAP % "string", MAP % "int16",
        named("int32", "io.debezium.time.Date"), named("int64", "io.debezium.time.MicroTimestamp"),
        named("int64", "io.debezium.time.NanoTimestamp"),
        named("int64", "org.apache.kafka.connect.data.Timestamp"),
        named("bytes", "org.apache.kafka.connect.data.Decimal", scale="2"),
        json.dumps({
            "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "3", "connect.decimal.precision": "3"},
        }),
    ]  # fmt: skip
    payloads = [
        "null", "0", "-0", "1", "-719163", "2932896", "2932897", "-62135596800000", "0.5", "-0.999",
        "1.000", "-1.25", "1e2", "9223372036854775807", "-9223372036854775808", "1" * 38, "1" * 39,
        "9" * 36 + ".99", "9" * 37 + ".9", '""', '"AA=="', '"AB=="', '"AAE="', '"gA=="', '"fw=="',
        '"////"', '"////////////////////"', '"f////////////////////w=="', '"A==="', '"AA"',
        '"A A="', '"gAAAAAAAAAAAAAAAAAAAAA=="',
        '"+/8="', '"-_8="', '"NaN"', '"-Infinity"', '"x"', "true", "[]", "{}", '{"a":1}',
        "[[1,2]]",
        "00", "1}", "nul", "",
    ]  # fmt: skip
    for schema in kinds:
        column = column_of(schema)
        data = [message(schema, one) for one in payloads]
        data += [rng.choice(data) for _ in range(examples(200))]
        data += [message(rng.choice(kinds), rng.choice(payloads)) for _ in range(examples(200))]
        data += [bytes(rng.choices(one, k=len(one))) for one in data[:40]]
        rng.shuffle(data)
        found, wanted, count = both(column, pa.array(data, pa.binary()))
        assert found == wanted, schema
        assert count > 1, schema


def test_schemas_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "SCHEMAS_MAX", 2)
    schemas = Schemas()
    given = [struct(**{f"f{number}": "int8"}) for number in range(3)]
    assert [schemas.add(one) for one in (*given, given[0], "{}")] == [
        True, True, False, True, False
    ]  # fmt: skip
    assert schemas.is_full


def test_schemas_describe_a_bounded_number_of_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_WORK_MAX", 500)
    schemas = Schemas()
    many = [struct(**{f"f{i}_{j}": "int8" for j in range(99)}) for i in range(3)]
    assert [schemas.add(one) for one in many] == [True, True, False]
    assert schemas.is_full


def test_each_message_may_have_another_schema() -> None:
    """Any number of them: what is kept is bounded."""
    each = EachConnectDecoder()
    for number in range(3 * connect.SCHEMAS_MAX):
        schema = struct(**{f"f{number}": "int8"})
        array, reason = each.decode(message(schema, f'{{"f{number}":1,"other":2}}'))
        assert (array.to_pylist(), reason) == ([{f"f{number}": 1}], None)
    assert each.losses == Counter({UNKNOWN_FIELDS: 3 * connect.SCHEMAS_MAX})
    assert len(each._schemas.decoders) <= connect.SCHEMAS_MAX


@pytest.mark.parametrize("inner", ['{"type":"array","items":%s}', '{"items":%s,"type":"array"}'])
def test_deep_schemas_are_refused(inner: str) -> None:
    schema = INT
    for _ in range(70):
        schema = inner % schema
    data = message(schema, "[]")
    assert "more than 64 levels deep" in str(EachConnectDecoder().decode(data)[1])
    assert "more than 64 levels deep" in decoded([INT], message(INT, "1"), data)[1][1]


def test_no_package_for_other_schemas_is_needed() -> None:
    """The schemas in messages refer to nothing."""
    script = """
import sys
sys.modules["referencing"] = sys.modules["grpc_tools"] = None
from kafkalog.log.typed.connect import EachConnectDecoder
print(EachConnectDecoder().decode(sys.argv[1].encode())[0].to_pylist())
"""
    words = [sys.executable, "-c", script, message(struct(a="int8"), '{"a":7}').decode()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[{'a': 7}]\n", "")


def test_a_column_without_schemas_is_refused() -> None:
    with pytest.raises(UsageError):
        TypedColumn("value", TypedForm.CONNECT, b"").decoder()
