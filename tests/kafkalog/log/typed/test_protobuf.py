"""Columns of Protobuf against what Google's library parses, for schemas and messages at random."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message

from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.lake_types import NAME_KEY
from kafkalog.log.typed.proto_columns import DEFAULT_KEY
from kafkalog.log.typed.proto_files import compiled as compiled_files
from kafkalog.log.typed.protobuf import ProtobufDecoder
from kafkalog.log.typed.remarks import LOST_DIGITS, UNKNOWN_FIELDS
from tests.kafkalog.log.typed.protos import (
    BASE,
    RejectedError,
    Wanted,
    class_of,
    compiled,
    difference,
    filled,
    has_unknown,
    other_writer,
    random_schema,
)
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMAS = 400 if tries_everything() else 60
VALUES = 12


def decoded(
    files: descriptor_pb2.FileDescriptorSet, name: str, values: Sequence[bytes]
) -> tuple[Any, ProtobufDecoder, dict[int, str]]:
    """Return the column, its decoder, and the reasons of rejects by row."""
    column = TypedColumn("value", TypedForm.PROTOBUF, files.SerializeToString(), name)
    decoder = column.decoder()
    assert isinstance(decoder, ProtobufDecoder)
    array, failures, _ = typed_column(column, decoder, pa.array(values, pa.binary()))
    array.validate(full=True)
    return array, decoder, {one.row: one.reason for one in failures}


def damaged(data: bytes, rng: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(found) + 1)
        found[place : place + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
    return bytes(found[: rng.randint(0, len(found))] if rng.random() < 0.2 else found)


def test_columns_have_what_google_parses() -> None:
    """Also of messages joined, of another writer, and damaged; so do verdicts and losses."""
    seed = new_seed()
    print(f"seed {seed}")
    counts = dict.fromkeys(("values", "rejects", "unknown", "lost"), 0)
    for number in range(4 * SCHEMAS):
        # The proof is empty if what it is about does not occur: then more schemas are drawn.
        if number >= SCHEMAS and min(counts.values()) > SCHEMAS // 8:
            break
        rng = Random(f"{seed} {number}")
        text = random_schema(rng)
        files = compiled(text)
        reader = class_of(files, "p.M0")
        writers = [reader, class_of(other_writer(files), "p.M0")]
        values = []
        for _ in range(VALUES):
            writer = rng.choice(writers)
            parts = [
                BASE.SerializePartialToString(filled(writer(), rng))
                for _ in range(rng.choice([1, 1, 2]))
            ]
            data = b"".join(parts)
            values.append(damaged(data, rng) if rng.random() < 0.25 else data)
        array, decoder, rejects = decoded(files, "p.M0", values)
        found = array.to_pylist()
        losses = dict.fromkeys((UNKNOWN_FIELDS, LOST_DIGITS), 0)
        for row, data in enumerate(values):
            where = f"seed {seed} {number}, row {row}: {data.hex()}\n{text}"
            wanted = Wanted(reader.DESCRIPTOR.file.pool)
            try:
                parsed = reader.FromString(data)
                if not BASE.IsInitialized(parsed):
                    raise RejectedError
                value = wanted.value(parsed)
            except (message.DecodeError, RejectedError):
                assert row in rejects, where
                continue
            assert row not in rejects, f"{rejects[row]} {where}"
            assert not (odd := difference(found[row], value)), f"{odd}\n{where}"
            losses[UNKNOWN_FIELDS] += wanted.has_unknown or has_unknown(parsed)
            losses[LOST_DIGITS] += wanted.has_lost_digits
        assert dict(decoder.losses) == {name: one for name, one in losses.items() if one}, text
        counts["values"] += len(values)
        counts["rejects"] += len(rejects)
        counts["unknown"] += losses[UNKNOWN_FIELDS]
        counts["lost"] += losses[LOST_DIGITS]
    print(counts)
    assert all(one > SCHEMAS // 8 for one in counts.values()), counts


@cache
def files_of(text: str) -> descriptor_pb2.FileDescriptorSet:
    """Compile a file as the product does."""
    return descriptor_pb2.FileDescriptorSet.FromString(compiled_files((("a.proto", text),)))


def column_of(text: str, name: str, values: Sequence[bytes] = ()) -> tuple[Any, ProtobufDecoder]:
    """Compile a file, and decode; no value is a reject."""
    array, decoder, rejects = decoded(files_of(text), name, values)
    assert not rejects
    return array, decoder


EVERYTHING = """
edition = "2023";
package p;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "google/type/decimal.proto";
import "google/type/interval.proto";
import "google/type/latlng.proto";
import "google/type/money.proto";
import "google/type/timeofday.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
message M {
  int32 a = 1; uint32 b = 2; sfixed64 c = 3; uint64 d = 4; fixed64 e = 5; float f = 6;
  double g = 7; bool h = 8; string i = 9; bytes j = 10; E k = 11; repeated fixed32 l = 12;
  map<uint64, M> m = 13; map<bool, E> n = 14; oneof one { int64 o = 15; string O = 16; }
  Inner p = 17 [features.message_encoding = DELIMITED]; message Inner { Inner again = 1; }
  Nothing q = 18; google.protobuf.Timestamp r = 19; google.protobuf.Duration s = 20;
  repeated google.protobuf.UInt32Value t = 21; google.protobuf.Struct u = 22;
  google.protobuf.Any v = 23; google.protobuf.FieldMask w = 24; google.protobuf.Empty x = 25;
  google.type.Date y = 26; google.type.TimeOfDay z = 27; google.type.Decimal aa = 28;
  google.type.Money bb = 29; google.type.LatLng cc = 30; google.type.Interval dd = 31;
  confluent.type.Decimal ee = 32;
  confluent.type.Decimal ff = 33 [(confluent.field_meta) = {params: [
    {key: "precision", value: "10"}, {key: "scale", value: "2"}]}];
  confluent.type.Decimal gg = 34 [(confluent.field_meta) = {params: [
    {key: "precision", value: "50"}, {key: "scale", value: "2"}]}];
  uint64 hh = 35 [default = 18446744073709551615];
  extensions 100 to 200;
}
message Nothing {}
enum E { A = 0; B = 1; }
extend M { string q = 100; fixed64 ii = 101; }
"""
TYPES = """
a: int64
b: int64
c: int64
d: decimal128(20, 0)
e: decimal128(20, 0)
f: float
g: double
h: bool
i: string
j: binary
k: string
l: list<item: int64>
m: map<decimal128(20, 0), string>
n: map<bool, string>
o: int64
O_2: string
p: struct<again: string>
q: struct<_present: bool>
r: timestamp[us, tz=UTC]
s: decimal128(21, 9)
t: list<item: int64>
u: string
v: string
w: string
x: struct<_present: bool>
y: date32[day]
z: string
aa: string
bb: struct<currency_code: string, units: int64, nanos: int64>
cc: struct<latitude: double, longitude: double>
dd: struct<start_time: timestamp[us, tz=UTC], end_time: timestamp[us, tz=UTC]>
ee: string
ff: decimal128(10, 2)
gg: string
hh: decimal128(20, 0)
p_q: string
ii: decimal128(20, 0)
"""
REASONS = {
    "m{}": "p.M contains itself", "p.again": "p.M.Inner contains itself",
    "u": "it is an object of any JSON", "v": "it is a message of any type",
}  # fmt: skip


def test_the_types_of_everything() -> None:
    """As the table of the specification has them; what is JSON is said."""
    array, decoder = column_of(EVERYTHING, "p.M")
    assert "".join(f"{one.name}: {one.type}\n" for one in array.type) == TYPES.lstrip()
    assert {one.path: one.reason for one in decoder.remarks} == REASONS
    assert {one.type for one in decoder.remarks} == {"json"}
    told = {one.name: one.metadata for one in decoder.type if one.metadata}
    assert told == {
        "O_2": {NAME_KEY: b"O"},
        "p_q": {NAME_KEY: b"q"},
        "hh": {DEFAULT_KEY: b"18446744073709551615"},
    }


def test_values_of_google_types_and_confluents() -> None:
    """From bytes that are written by hand."""
    values = {
        "y": ("d201 07 08e80f 1002 181d", date(2024, 2, 29)),
        "z": ("da01 06 0817 103b 183c", "23:59:60"),
        "aa": ("e201 04 0a02 2d31", "-1"),
        "ee": ("8202 06 0a02 ff85 1803", "-0.123"),
        "ff": ("8a02 06 0a02 04d2 1802", Decimal("12.34")),
        "gg": ("9202 04 0a02 04d2", "1234"),
        "hh": ("9802 07", Decimal(7)),
        "p_q": ("a206 01 78", "x"),
        "r": ("9a01 0b 08ffffffffffffffffff01", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    }
    for name, (data, wanted) in values.items():
        array, decoder = column_of(EVERYTHING, "p.M", [bytes.fromhex(data)])
        [row] = array.to_pylist()
        assert row[name] == wanted, name
        assert not decoder.losses


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("d201 07 08e70f 1002 181d", "2023-2-29 is no date"),
        ("d201 02 08e7", "Error parsing"),
        ("d201 00", "0-0-0 is no date"),
        ("da01 02 0818", None),
        ("da01 04 0818 1001", "24:01:00.000000000 is no time of a day"),
        ("8a02 06 0a02 04d2 1803", "a decimal that is no decimal(10, 2)"),
        ("8a02 07 0a05 7fffffffff", "a decimal that is no decimal(10, 2)"),
        ("8a02 09 0a01 00 18ffffffff07", None),
        ("9a01 07 08808080808040", "2199023255552 s and 0 ns are no time"),
        ("a201 04 0801 10ff", "Error parsing"),
    ],
)  # fmt: skip
def test_values_that_no_column_has(data: str, reason: str | None) -> None:
    """Times and decimals beyond their types are rejects with a reason."""
    _, _, rejects = decoded(files_of(EVERYTHING), "p.M", [bytes.fromhex(data)])
    assert (reason is None) == (not rejects)
    assert reason is None or reason in rejects[0]


def test_json_of_a_message_that_holds_itself() -> None:
    """Names and their order are those of the file; numbers have all digits."""
    text = """
        syntax = "proto3"; package p; import "google/protobuf/any.proto";
        message M { M inner_one = 9; uint64 big_number = 1; map<bool, bytes> m = 2; float f = 3;
                    optional string unset = 4; repeated E e = 5; google.protobuf.Any any = 6; }
        enum E { A = 0; }"""
    inner = bytes.fromhex(
        "08ffffffffffffffffff01 1205 0801 1201ff 1dcdcccc3d 2a020007 3208 0a03 612f62 1201ff"
    )
    array, _ = column_of(text, "p.M", [b"\x4a" + bytes([len(inner)]) + inner])
    assert array.to_pylist()[0]["inner_one"] == (
        '{"big_number":18446744073709551615,"m":{"true":"/w=="},"f":0.1,"e":["A","7"],'
        '"any":{"@type":"a/b","value":"/w=="}}'
    )


def test_files_that_registries_do_not_keep() -> None:
    """Descriptors that import those of Confluent and Google without having them."""
    alone = descriptor_pb2.FileDescriptorSet(file=[files_of(EVERYTHING).file[-1]])
    array, _, _ = decoded(alone, "p.M", [])
    assert "".join(f"{one.name}: {one.type}\n" for one in array.type) == TYPES.lstrip()


def test_a_message_with_the_name_of_a_known_one() -> None:
    """Other fields than Google's: it is like any other."""
    text = """
        syntax = "proto3"; package google.protobuf;
        message Timestamp { string seconds = 1; } message Any { Timestamp value = 2; }
        message Struct { repeated Value fields = 1; } message Value { Struct struct_value = 5; }
        message ListValue { Value values = 1; }"""
    files = compiled(text)
    for name, kind in [
        ("Timestamp", "struct<seconds: string>"),
        ("Any", "struct<value: struct<seconds: string>>"),
        ("Struct", "struct<fields: list<item: struct<struct_value: string>>>"),
    ]:
        array, _, _ = decoded(files, f"google.protobuf.{name}", [])
        assert str(array.type) == kind


def test_json_that_google_prints_otherwise() -> None:
    """A negative zero keeps its sign; an `Any` whose message lacks what it requires, its bytes."""
    text = """
        syntax = "proto2"; package p; import "google/protobuf/any.proto";
        import "google/protobuf/struct.proto";
        message M { optional google.protobuf.Any any = 1; optional google.protobuf.Value v = 2; }
        message Needs { required int32 n = 1; optional int32 m = 2; }"""
    data = "0a 0f 0a 09 782f 702e4e65656473 12 02 1001  12 09 11 0000000000000080"
    array, _ = column_of(text, "p.M", [bytes.fromhex(data)])
    assert array.to_pylist() == [{"any": '{"@type":"x/p.Needs","value":"EAE="}', "v": "-0.0"}]
