"""Protobuf by columns, compared with Google's library value by value: the same rows and reasons."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kafkalog.log.typed import Framing, TypedColumn, TypedForm, protobuf
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.remarks import LOST_DIGITS, UNKNOWN_FIELDS
from tests.kafkalog.log.typed.both_ways import both
from tests.kafkalog.log.typed.protos import (
    BASE,
    class_of,
    compiled,
    filled,
    other_writer,
    random_schema,
)
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

SCHEMAS = 1500 if tries_everything() else 20
VALUES = 60


def damaged(data: bytes, rng: Random) -> bytes:
    """Return the message with bytes that are changed, added, lost, or at its end."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(found) + 1)
        some = rng.choice((rng.randbytes(rng.randrange(3)), b"\x80\0", b"\xff" * 9 + b"\1"))
        found[place : place + rng.randrange(2)] = some
    return bytes(found[: rng.randint(0, len(found))] if rng.random() < 0.2 else found)


def messages(files: FileDescriptorSet, rng: Random) -> list[bytes | None]:
    """Return messages of two writers; some are joined, some damaged, some have odd parts."""
    reader = class_of(files, "p.M0")
    writers = [reader, reader, class_of(other_writer(files), "p.M0")]
    found: list[bytes | None] = []
    for _ in range(VALUES):
        parts = [
            BASE.SerializePartialToString(filled(rng.choice(writers)(), rng))
            for _ in range(rng.choice([1, 1, 1, 2]))
        ]
        data = b"".join(parts)
        found.append(damaged(data, rng) if rng.random() < 0.2 else data)
    return [*found, b"", None]


def test_both_ways_say_the_same() -> None:
    """Values, rejects with their reasons and losses, for drawn schemas and messages."""
    seed = new_seed()
    by_columns = 0
    counts = dict.fromkeys(("rejects", UNKNOWN_FIELDS, LOST_DIGITS), 0)
    for number in range(SCHEMAS):
        rng = Random(f"{seed} {number}")
        text = random_schema(rng)
        files = compiled(text)
        column = TypedColumn("value", TypedForm.PROTOBUF, files.SerializeToString(), "p.M0")
        array = pa.array([b"before", *messages(files, rng)], pa.binary())[1:]
        found, wanted, rows = both(column, array)
        assert found == wanted, f"seed {seed} {number}\n{text}"
        by_columns += rows
        counts["rejects"] += len(found.failures)
        for name, one in found.losses.items():
            counts[name] += one
    print(by_columns, counts)
    assert by_columns > SCHEMAS * VALUES // 8
    assert all(one > SCHEMAS // 8 for one in counts.values()), counts


SCHEMA = """
syntax = "proto2"; package p; import "google/protobuf/struct.proto";
message M {
  oneof one { int32 a = 1; string b = 2; } repeated int32 c = 3; map<string, M> d = 4;
  optional E e = 5; optional group G = 6 { optional int32 x = 1; } required int32 f = 7;
  optional google.protobuf.Struct s = 8; optional M h = 9; optional N i = 10;
  repeated group K = 13 { optional int32 x = 1; } map<int32, string> l = 12;
}
message N { optional int32 a = 1; }
enum E { ZERO = 0; ONE = 1; }
message Other { message Inner { required int32 n = 1; } }
"""


@pytest.mark.parametrize(
    ("data", "is_by_columns"),
    [
        ("3801", True),
        ("3801 0801", True),
        ("3801 0801 0801", False),  # a field twice: the last counts
        ("3801 0801 120161", False),  # two members of a oneof: the last counts
        ("3801 1801 1a020203 1804", True),  # not packed, packed, not packed
        ("3801 1a020280", False),  # half a number
        ("3801 1d01000000", False),  # another wire type: an unknown field
        ("3801 5801", True),  # an unknown field
        ("3801 5b5801 5c", False),  # an unknown group
        ("3801 33 0801 34", False),  # a group
        ("3801 6b 0801 6c", False),  # one of several
        ("3801 6207 0801120178 4807", False),  # an unknown field in an entry: it is dropped
        ("3801 6207 0801120178 4807 900307", False),  # and another one in the message
        ("3801 2a00", False),  # of another wire type
        ("3801 2802", False),  # a symbol that a closed enum lacks
        ("0801", False),  # without what is required
        ("3801 5202 0801", True),
        ("3801 5202 0801 5202 0801", False),  # a message twice: both are merged
        ("3801 2205 0a01 61 1200", False),  # in a map, without what is required
        ("3801 2207 0a0161 12023801", True),
        ("3801 2207 0a0161 12023801 2207 0a0161 12023802", False),  # a key twice: the last counts
        ("3801 2209 0a0161 12023801 3801", False),  # an unknown field in an entry
        ("3801 120161", True),
        ("3801 1201ff", False),  # no UTF-8
        ("b80001", False),  # a tag with a byte that adds nothing
        ("388100", True),  # a number with one, as Google's library reads it
        ("38ffffffffffffffffff01", True),
        ("38ffffffffffffffffff02", False),  # more than 64 bits
        ("3801 4a023802", True),  # JSON: it contains itself
        ("3801 4a020801", False),
        ("3801 00", False),
        ("3801 07", False),
    ],
)
def test_what_is_left_to_googles_library(data: str, *, is_by_columns: bool) -> None:
    """It says what becomes of what is rare; it is asked, and what it says is taken."""
    column = TypedColumn("value", TypedForm.PROTOBUF, compiled(SCHEMA).SerializeToString(), "p.M")
    found, wanted, rows = both(column, pa.array([bytes.fromhex(data)], pa.binary()))
    assert found == wanted
    assert rows == is_by_columns


def test_parts_that_are_nested_too_deeply() -> None:
    """Google's library refuses what is nested beyond 100 messages, counted from the outermost."""
    column = TypedColumn("value", TypedForm.PROTOBUF, compiled(SCHEMA).SerializeToString(), "p.M")
    values = [b"\x38\1"]
    for _ in range(120):
        inner = values[-1]
        size = (
            bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7])
            if len(inner) > 127
            else bytes([len(inner)])
        )
        values.append(b"\x38\1\x4a" + size + inner)
    found, wanted, rows = both(column, pa.array(values, pa.binary()))
    assert found == wanted
    assert 0 < len(found.failures) < 30
    assert rows > 30


@pytest.mark.parametrize("name", ["p.M", "p.N", "p.Other.Inner"])
def test_messages_of_several_types(name: str) -> None:
    """Those of the wanted one are read by columns; of others the reason is said."""
    files = compiled(SCHEMA)
    prefixes = (b"\0", b"\2\2", b"\4\4\0", b"\2\4", b"\6", b"\4\4\2", b"")
    values = [
        b"\0\0\0\0\1" + prefix + data
        for prefix in prefixes
        for data in (b"\x38\1", b"\x08\1", b"", b"\xff")
    ]
    column = TypedColumn(
        "value", TypedForm.PROTOBUF, files.SerializeToString(), name, framing=Framing.CONFLUENT
    )
    found, wanted, _ = both(column, pa.array(values, pa.binary()))
    assert found == wanted
    assert len(found.failures) >= len(values) - 4


def test_most_values_are_read_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read without an object of Google's library of any, by any framing."""
    files = compiled(SCHEMA)
    monkeypatch.setattr(protobuf.ProtobufDecoder, "decode", lambda *_: 1 // 0)
    column = TypedColumn(
        "value", TypedForm.PROTOBUF, files.SerializeToString(), "p.N", framing=Framing.CONFLUENT
    )
    values = [b"\0\0\0\0\1\2\2\x08" + bytes([number]) for number in range(100)]
    array, failures, _ = typed_column(column, column.decoder(), pa.array(values, pa.binary()))
    assert not failures
    assert array.to_pylist() == [{"a": number} for number in range(100)]
