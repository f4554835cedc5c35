"""The types of columns for each construct of Avro, and values encoded by hand, as specified."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafkalog.errors import UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.avro import AvroDecoder
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.remarks import LOST_DIGITS, Remark
from tests.builders import varint

DEBEZIUM = "io.debezium.time"
CONNECT = "org.apache.kafka.connect.data"
UTC_TIME, LOCAL_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
MICROS = 1_700_000_000_123_456


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def logical(kind: str, what: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": what, **more}


def connect(kind: str, what: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": what, **more}


SCALED = {"type": "record", "name": "V", "connect.name": "io.debezium.data.VariableScaleDecimal",
          "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
          }  # fmt: skip
TEN = b"\x04\xd2"  # 1234
DURATION = pa.struct([(name, pa.int64()) for name in ("months", "days", "millis")])
EVERY: dict[str, tuple[Any, Any, bytes, Any]] = {
    "int": ("int", pa.int64(), varint(-3), -3),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab", b"ab"),
    "fixed of no bytes": ({"type": "fixed", "name": "F", "size": 0}, pa.binary(), b"", b""),
    "decimal": (logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2),
                sized(TEN), Decimal("12.34")),
    "decimal of a fixed": (logical("fixed", "decimal", name="F", size=2, precision=4, scale=1),
                           pa.decimal128(4, 1), TEN, Decimal("123.4")),
    "decimal of 50 digits": (logical("bytes", "decimal", precision=50, scale=2), pa.string(),
                             sized((-(10**45)).to_bytes(20, "big", signed=True)),
                             "-1" + "0" * 43 + ".00"),
    "decimal, scale above precision": (logical("bytes", "decimal", precision=2, scale=5),
                                       pa.binary(), sized(TEN), TEN),
    "decimal, fixed too small": (logical("fixed", "decimal", name="F", size=2, precision=5),
                                 pa.binary(), TEN, TEN),
    "big-decimal": (logical("bytes", "big-decimal"), pa.string(), sized(sized(TEN) + varint(3)),
                    "1.234"),
    "uuid": (logical("string", "uuid"), pa.string(), sized(b"x" * 36), "x" * 36),
    "uuid of a fixed": (logical("fixed", "uuid", name="U", size=16), pa.string(), bytes(range(16)),
                        "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    "uuid, fixed too small": (logical("fixed", "uuid", name="U", size=2), pa.binary(), TEN, TEN),
    "date": (logical("int", "date"), pa.date32(), varint(-1), date(1969, 12, 31)),
    "time-millis": (logical("int", "time-millis"), pa.string(), varint(3_600_005),
                    "01:00:00.005000"),
    "time-micros": (logical("long", "time-micros"), pa.string(), varint(60_000_000), "00:01:00"),
    "timestamp-millis": (logical("long", "timestamp-millis"), UTC_TIME, varint(MICROS // 1000),
                         MOMENT.replace(microsecond=123_000)),
    "timestamp-micros": (logical("long", "timestamp-micros"), UTC_TIME, varint(MICROS), MOMENT),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), UTC_TIME, varint(MICROS * 1000 + 999),
                        MOMENT),
    "local-timestamp-millis": (logical("long", "local-timestamp-millis"), LOCAL_TIME,
                               varint(MICROS // 1000),
                               MOMENT.replace(microsecond=123_000, tzinfo=None)),
    "local-timestamp-micros": (logical("long", "local-timestamp-micros"), LOCAL_TIME,
                               varint(MICROS), MOMENT.replace(tzinfo=None)),
    "local-timestamp-nanos": (logical("long", "local-timestamp-nanos"), LOCAL_TIME,
                              varint(-1), datetime(1969, 12, 31, 23, 59, 59, 999_999)),
    "duration": (logical("fixed", "duration", name="D", size=12), DURATION,
                 struct.pack("<III", 1, 2, (1 << 32) - 1),
                 {"months": 1, "days": 2, "millis": (1 << 32) - 1}),
    "an unknown logical type": (logical("int", "nothing"), pa.int64(), varint(5), 5),
    "nullable": (["null", "int"], pa.int64(), varint(1) + varint(5), 5),
    "a union of one": (["string"], pa.string(), varint(0) + sized(b"a"), "a"),
    "int or long": (["null", "int", "long"], pa.int64(), varint(2) + varint(1 << 40), 1 << 40),
    "float or double": (["float", "double"], pa.float64(), varint(0) + struct.pack("<f", 0.5), 0.5),
    "a union": (["null", "int", {"type": "fixed", "name": "a.F", "size": 1}],
                pa.struct([("int", pa.int64()), ("F", pa.binary())]), varint(2) + b"x",
                {"int": None, "F": b"x"}),
    "null in a union": (["null", "int", "string"],
                        pa.struct([("int", pa.int64()), ("string", pa.string())]), varint(0), None),
    "a union of equal names": (
        [{"type": "fixed", "name": f"{space}.F", "size": 1} for space in "ab"],
        pa.struct([("a_F", pa.binary()), ("b_F", pa.binary())]), varint(1) + b"x",
        {"a_F": None, "b_F": b"x"}),
    "no fields": ({"type": "record", "name": "E", "fields": []},
                  pa.struct([("_present", pa.bool_())]),
                  b"", {"_present": True}),
    "names that differ in case": (
        {"type": "record", "name": "E", "fields": [{"name": "a", "type": "int"},
                                                   {"name": "A", "type": "int"}]},
        pa.struct([("a", pa.int64()), ("A_2", pa.int64())]), varint(1) + varint(2),
        {"a": 1, "A_2": 2}),
    "equal keys": ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int64()),
                   varint(2) + (sized(b"k") + varint(1) + sized(b"k") + varint(2)) + b"\0",
                   [("k", 2)]),
    "Debezium's Date": (connect("int", f"{DEBEZIUM}.Date"), pa.date32(), varint(0),
                        date(1970, 1, 1)),
    "Debezium's Timestamp": (connect("long", f"{DEBEZIUM}.Timestamp"), LOCAL_TIME, varint(1000),
                             datetime(1970, 1, 1, 0, 0, 1)),
    "Debezium's MicroTimestamp": (connect("long", f"{DEBEZIUM}.MicroTimestamp"), LOCAL_TIME,
                                  varint(1), datetime(1970, 1, 1, 0, 0, 0, 1)),
    "Debezium's NanoTime": (connect("long", f"{DEBEZIUM}.NanoTime"), pa.string(), varint(1),
                            "00:00:00.000000001"),
    "Debezium's ZonedTimestamp": (connect("string", f"{DEBEZIUM}.ZonedTimestamp"), UTC_TIME,
                                  sized(b"2023-11-14T23:13:20.123456+01:00"), MOMENT),
    "Debezium's VariableScaleDecimal": (SCALED, pa.string(), varint(2) + sized(TEN), "12.34"),
    "Connect's Timestamp": (connect("long", f"{CONNECT}.Timestamp"), UTC_TIME, varint(0),
                            datetime(1970, 1, 1, tzinfo=UTC)),
    "Connect's Time": (connect("int", f"{CONNECT}.Time"), pa.string(), varint(1000), "00:00:01"),
    "Connect's Decimal": (
        connect("bytes", f"{CONNECT}.Decimal", **{"connect.parameters": {"scale": "2"}}),
        pa.string(), sized(TEN), "12.34"),
    "Connect's Decimal of 64 digits": (
        {**logical("bytes", "decimal", precision=64, scale=2),
         "connect.name": f"{CONNECT}.Decimal"},
        pa.string(), sized(TEN), "12.34"),
    "a type before its definition": (
        {"type": "record", "name": "n.R", "fields": [
            {"name": "a", "type": "F"},
            {"name": "b", "type": {"type": "fixed", "name": "F", "size": 1}},
        ]}, pa.struct([("a", pa.binary()), ("b", pa.binary())]), b"xy", {"a": b"x", "b": b"y"}),
}  # fmt: skip


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("place", ["top", "field"])
def test_type_and_value(name: str, place: str) -> None:
    """At the top, where values are read by columns, and one by one."""
    schema, kind, data, value = EVERY[name]
    if place == "field":
        fields = [{"name": "before", "type": "string"}, {"name": "f", "type": schema}]
        schema = {"type": "record", "name": "Top", "fields": fields}
        kind, data = pa.struct([("before", pa.string()), ("f", kind)]), sized(b"b") + data
        value = {"before": "b", "f": value}
    column = TypedColumn("value", TypedForm.AVRO, json.dumps(schema).encode())
    decoder = column.decoder()
    assert decoder.type.equals(kind)
    array, failures, _ = typed_column(column, decoder, pa.array([data, None, data], pa.binary()))
    array.validate(full=True)
    assert not failures
    assert array.to_pylist() == [value, None, value]
    assert pa.array([decoder.decode(data)], kind).to_pylist() == [value]


NODE = {"type": "record", "name": "Node", "fields": [
    {"name": "n", "type": logical("long", "timestamp-nanos")}, {"name": "b", "type": "bytes"},
    {"name": "next", "type": ["null", "Node"]},
]}  # fmt: skip


def test_a_record_within_itself_is_json() -> None:
    """The JSON has all of the rest, with all digits."""
    decoder = AvroDecoder(json.dumps(NODE).encode())
    assert decoder.type.field("next").type == pa.string()
    assert decoder.remarks == [Remark("next", "json", "the record Node within itself")]
    link = varint(1_000_000_001) + sized(b"\xff")
    found = decoder.decode(link + varint(1) + link + varint(1) + link + varint(0))
    text = '{"n":"1970-01-01T00:00:01.000000001Z","b":"/w==","next":%s}'
    assert found == {"n": 1_000_000, "b": b"\xff", "next": text % (text % "null")}
    assert decoder.losses == {LOST_DIGITS: 1}
    deep = (link + varint(1)) * 100_000 + link + varint(0)
    with pytest.raises(ValueError, match="too deeply"):
        decoder.decode(deep)


def test_what_can_only_be_null() -> None:
    """A field is omitted; at the top, and in a list or a map, it is JSON."""
    schema: Any = {"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int"}, {"name": "n", "type": "null"},
        {"name": "l", "type": {"type": "array", "items": "null"}},
        {"name": "m", "type": {"type": "map", "values": ["null"]}},
    ]}  # fmt: skip
    decoder = AvroDecoder(json.dumps(schema).encode())
    assert decoder.type.equals(
        pa.struct([("a", pa.int64()), ("l", pa.string()), ("m", pa.string())])
    )
    assert {(one.path, one.type) for one in decoder.remarks} == {
        ("n", "omitted"), ("l", "json"), ("m", "json"),
    }  # fmt: skip
    data = varint(7) + varint(2) + b"\0" + varint(1) + sized(b"k") + varint(0) + b"\0"
    assert decoder.decode(data) == {"a": 7, "l": "[null,null]", "m": '{"k":null}'}
    top = AvroDecoder(b'"null"')
    assert (top.type, top.decode(b"")) == (pa.string(), "null")


def test_lost_digits_are_counted_once_a_value() -> None:
    """By columns and one by one, and for rejects not at all."""
    nanos = logical("long", "timestamp-nanos")
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "n", "type": nanos}, {"name": "l", "type": {"type": "array", "items": nanos}},
        {"name": "s", "type": "string"},
    ]}  # fmt: skip
    column = TypedColumn("value", TypedForm.AVRO, json.dumps(schema).encode())
    decoder = column.decoder()
    values = [
        varint(number) + varint(2) + varint(number) * 2 + varint(0) + sized(b"x")
        for number in (1, 1000, -1, 2001, 5)
    ]
    array, failures, losses = typed_column(
        column, decoder, pa.array([*values, values[0][:-1]], pa.binary())
    )
    assert [one.row for one in failures] == [5]
    seconds = [one["n"] and one["n"].microsecond for one in array.to_pylist()[:5]]
    assert seconds == [0, 1, 999_999, 2, 0]
    assert dict(losses) == {LOST_DIGITS: 4}
    for one in values:
        decoder.decode(one)
    with pytest.raises(ValueError, match="ends early"):
        decoder.decode(values[0][:-1])
    assert dict(decoder.losses) == {LOST_DIGITS: 8}


def around(kind: str, place: str) -> Any:
    """Return a schema with a type at the top, as a branch, or in a column and in JSON."""
    fields = [{"name": "n", "type": kind}, {"name": "next", "type": ["null", "N"]}]
    record = {"type": "record", "name": "N", "fields": fields}
    return {"top": kind, "branch": ["null", kind], "json": record}[place]


BITS = {"float": 24, "double": 53}
"""How many binary digits floating-point numbers have."""


@pytest.mark.parametrize(("writer", "reader"), [
    ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"),
])  # fmt: skip
def test_digits_that_promotions_lose_are_counted(writer: str, reader: str) -> None:
    """By columns, one by one, and within what only Python reads."""
    ends = (24, 25, 31) if writer == "int" else (24, 25, 31, 32, 53, 54, 62, 63)
    near = {(1 << end) + more for end in ends for more in (-3, -2, -1, 0, 1, 2, 3, 6)}
    wide = 31 if writer == "int" else 63
    numbers = [one * sign for one in (0, 7, *sorted(near)) for sign in (1, -1)]
    numbers = [one for one in numbers if -(1 << wide) <= one < 1 << wide]
    significant = [len(f"{abs(one):b}".rstrip("0")) for one in numbers]
    lost = sum(one > BITS[reader] for one in significant)
    assert (lost > 0) == ((writer, reader) != ("int", "double"))
    for place in ("top", "branch", "json"):
        old, new = (json.dumps(around(kind, place)) for kind in (writer, reader))
        column = TypedColumn(
            "value", TypedForm.AVRO, new.encode(), framing=Framing.CONFLUENT,
            writers=((1, (old,)), (2, (new,))),
        )  # fmt: skip
        # Within JSON, an N with an N.
        values = [
            {"top": n, "branch": varint(1) + n, "json": n + varint(1) + n + varint(0)}[place]
            for n in map(varint, numbers)
        ]
        decoder = column.decoder()
        framed = [b"\0\0\0\0\1" + one for one in values]
        _, failures, losses = typed_column(column, decoder, pa.array(framed, pa.binary()))
        assert (failures, dict(losses)) == ([], {LOST_DIGITS: lost} if lost else {})
        for one in values:
            decoder.decode(one, 1)
        assert decoder.losses[LOST_DIGITS] == 2 * lost


@pytest.mark.parametrize(("before", "now", "data", "value"), [
    (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), varint(5), 5000),
    (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), varint(5), 5),
    (logical("bytes", "decimal", precision=4, scale=1),
     logical("bytes", "decimal", precision=9, scale=3),
     sized(TEN), Decimal("123.400")),
    (logical("bytes", "decimal", precision=4, scale=1),
     logical("bytes", "decimal", precision=4, scale=0),
     sized(b"\x0a"), Decimal(1)),
])  # fmt: skip
def test_the_unit_of_the_writer_counts(before: Any, now: Any, data: bytes, value: Any) -> None:
    """Java takes the number as it is, and with it a time or an amount that nobody wrote."""
    decoder = AvroDecoder(json.dumps(now).encode(), {1: [json.dumps(before)]})
    assert decoder.decode(data, 1) == value


@pytest.mark.parametrize(("schema", "data"), [
    (logical("long", "timestamp-millis"), varint((1 << 63) - 1)),
    (logical("int", "time-millis"), varint(86_400_000)),
    (logical("bytes", "decimal", precision=3), sized(TEN)),
    (logical("bytes", "decimal", precision=3), sized(b"")),
    (connect("string", f"{DEBEZIUM}.ZonedTimestamp"), sized(b"yesterday")),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(1)),
    ("string", sized(b"\xff")), ("boolean", b"\2"), ("int", varint(1 << 31)),
])  # fmt: skip
def test_rejects(schema: Any, data: bytes) -> None:
    """None of these has a value in the column; the value after it has."""
    column = TypedColumn("value", TypedForm.AVRO, json.dumps(schema).encode())
    array, failures, _ = typed_column(column, column.decoder(), pa.array([data, None], pa.binary()))
    assert (array.null_count, [one.row for one in failures]) == (2, [0])


@pytest.mark.parametrize("text", [
    b"", b"{", b"7", b"{}", b'"nothing"', b'{"type":"array"}', b'{"type":"record","name":"R"}',
    b'[["int"]]', b'["int","int"]', b'{"type":"enum","name":"E","symbols":["A","A"]}',
    b'{"type":"fixed","name":"F","size":-1}', b'{"type":"fixed","size":1}',
    b'{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
    b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
    b'{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"fixed","name":"R","size":1}}]}',
])  # fmt: skip
def test_what_is_no_schema(text: bytes) -> None:
    """Avro's classes in Java refuse these, too."""
    with pytest.raises(UsageError, match="not an Avro schema"):
        AvroDecoder(text)
