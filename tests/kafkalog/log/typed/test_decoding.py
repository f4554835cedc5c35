"""Keys and values as typed columns, from bytes encoded by hand as the formats specify."""

from __future__ import annotations

import json
import struct
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafkalog.errors import UnsupportedError, UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.columns import typed_column
from tests.builders import varint

if TYPE_CHECKING:
    from collections.abc import Sequence


def typed(column: TypedColumn, values: Sequence[bytes | None]) -> tuple[list[Any], int]:
    array, failures, _ = typed_column(column, column.decoder(), pa.array(values, pa.binary()))
    return array.to_pylist(), len(failures)


def of(form: TypedForm, schema: Any, **more: Any) -> TypedColumn:
    data = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    return TypedColumn("value", form, data, **more)


# JSON --------------------------------------------------------------------------------------------

ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "paid": {"type": "boolean"},
        "kind": {"enum": ["a", "b"]},
        "notes": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["id"],
}


def test_json_becomes_what_the_schema_says() -> None:
    """Missing fields are null; fields that the schema does not name are left out."""
    value = b'{"id":7,"price":2,"tags":["x",""],"paid":true,"kind":"b","notes":{"n":1},"more":[]}'
    found, failures = typed(of(TypedForm.JSON, ORDER), [value, b"{}", None, b"null"])
    assert failures == 0
    assert found[0] == {"id": 7, "price": 2.0, "tags": ["x", ""], "paid": True, "kind": "b",
                        "notes": [("n", 1)]}  # fmt: skip
    assert found[1] == dict.fromkeys(ORDER["properties"])  # type: ignore[call-overload]
    assert found[2:] == [None, None]


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b'{"id":"7"}', b'{"id":1.5}', b'{"id":true}', b'{"id":9223372036854775808}',
     b'{"price":NaN}', b'{"price":"1"}', b'{"tags":"x"}', b'{"tags":[1]}', b"[1]", b"\xff",
     b'{"kind":"\\ud800"}', b'{"paid":1}', b"[" * 100_000, b'{"price":1' + b"0" * 400 + b"}"],
)  # fmt: skip
def test_json_of_another_shape_is_counted(value: bytes) -> None:
    """The value becomes null; its neighbours do not."""
    found, failures = typed(of(TypedForm.JSON, ORDER), [b'{"id":1}', value, b'{"id":2}'])
    assert [one and one["id"] for one in found] == [1, None, 2]
    assert failures == 1


def test_a_schema_that_is_not_json_is_refused() -> None:
    """Whatever is JSON gives a column: `test_json_schema.py`."""
    with pytest.raises(UsageError, match="The schema is not JSON"):
        of(TypedForm.JSON, b"{").decoder()


# Avro --------------------------------------------------------------------------------------------

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"]},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal",
                                   "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "OLD"]}},
        {"name": "parts", "type": {"type": "array", "items": "int"}},
        {"name": "rate", "type": "double"},
        {"name": "labels", "type": {"type": "map", "values": "boolean"}},
    ],
}  # fmt: skip


def text(value: str) -> bytes:
    return varint(len(value.encode())) + value.encode()


PAID = (
    varint(-5)
    + varint(1) + text("änn")
    + varint(2) + (1234).to_bytes(2, "big")
    + varint(1_700_000_000_123)
    + varint(1)
    + varint(2) + varint(3) + varint(-4) + varint(0)
    + struct.pack("<d", 0.5)
    + varint(1) + text("x") + b"\1" + varint(0)
)  # fmt: skip
PAID_ROW = {
    "id": -5, "who": "änn", "cents": Decimal("12.34"),
    "at": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC), "state": "OLD",
    "parts": [3, -4], "rate": 0.5, "labels": [("x", True)],
}  # fmt: skip


def test_avro_becomes_what_the_schema_says() -> None:
    """The bytes are encoded as in the specification."""
    found, failures = typed(of(TypedForm.AVRO, PAYMENT), [PAID, None])
    assert (found, failures) == ([PAID_ROW, None], 0)


def test_every_cut_of_an_avro_value_is_counted() -> None:
    """So is a value with extra bytes."""
    values = [PAID[:size] for size in range(len(PAID))] + [PAID + b"\0"]
    found, failures = typed(of(TypedForm.AVRO, PAYMENT), values)
    assert found == [None] * len(values)
    assert failures == len(values)


def test_framing_is_passed_over() -> None:
    """A zero byte and the id of a schema; values with another id are not decoded."""
    column = of(TypedForm.AVRO, "long", framing=Framing.CONFLUENT)
    values = [b"\0" + struct.pack(">I", 7) + varint(3), varint(3), b"\1\0\0\0\7" + varint(3)]
    assert typed(column, values) == ([3, None, None], 2)
    column = of(TypedForm.AVRO, "long", framing=Framing.CONFLUENT, schema_id=8)
    assert typed(column, values) == ([None, None, None], 3)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error gives the command that installs it."""
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    monkeypatch.delitem(sys.modules, "kafkalog.log.typed.protobuf", raising=False)
    with pytest.raises(UnsupportedError) as raised:
        of(TypedForm.PROTOBUF, descriptor_set(), message="p.Outer").decoder()
    assert raised.value.hint == "pip install 'kafkalog[schemas]'"


# Protobuf ----------------------------------------------------------------------------------------

FIELD = descriptor_pb2.FieldDescriptorProto


def descriptor_set() -> bytes:
    """message Outer { message Inner { int32 n = 1; } int64 id = 1; string name = 2;
    repeated int32 many = 3; Inner inner = 4; Color color = 5; optional bytes raw = 6; }
    """
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
    enum = file.enum_type.add(name="Color")
    enum.value.add(name="RED", number=0)
    enum.value.add(name="BLUE", number=2)
    file.message_type.add(name="First").field.add(
        name="x", number=1, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL
    )
    outer = file.message_type.add(name="Outer")
    outer.nested_type.add(name="Inner").field.add(
        name="n", number=1, type=FIELD.TYPE_INT32, label=FIELD.LABEL_OPTIONAL
    )
    add = outer.field.add
    add(name="id", number=1, type=FIELD.TYPE_INT64, label=FIELD.LABEL_OPTIONAL)
    add(name="name", number=2, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    add(name="many", number=3, type=FIELD.TYPE_INT32, label=FIELD.LABEL_REPEATED)
    add(name="inner", number=4, type=FIELD.TYPE_MESSAGE, type_name=".p.Outer.Inner",
        label=FIELD.LABEL_OPTIONAL)  # fmt: skip
    add(name="color", number=5, type=FIELD.TYPE_ENUM, type_name=".p.Color",
        label=FIELD.LABEL_OPTIONAL)  # fmt: skip
    add(name="raw", number=6, type=FIELD.TYPE_BYTES, label=FIELD.LABEL_OPTIONAL,
        proto3_optional=True, oneof_index=0)  # fmt: skip
    outer.oneof_decl.add(name="_raw")
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


# As the encoding's description has it: tag, then a varint or a length and bytes.
SENT = (
    b"\x08\x96\x01" b"\x12\x02hi" b"\x1a\x03\x01\x02\x03" b"\x22\x02\x08\x05" b"\x28\x02"
    b"\x32\x00"
)  # fmt: skip
SENT_ROW = {"id": 150, "name": "hi", "many": [1, 2, 3], "inner": {"n": 5}, "color": "BLUE",
            "raw": b""}  # fmt: skip
DEFAULTS = {"id": 0, "name": "", "many": [], "inner": None, "color": "RED", "raw": None}


def test_protobuf_becomes_what_the_descriptor_says() -> None:
    """Fields without presence have defaults, others null. Unknown enum numbers are digits."""
    column = of(TypedForm.PROTOBUF, descriptor_set(), message="p.Outer")
    found, failures = typed(column, [SENT, b"", b"\x28\x63", b"\x12\x01\xff", b"\xff", SENT[:-1]])
    assert found == [SENT_ROW, DEFAULTS, {**DEFAULTS, "color": "99"}, None, None, None]
    assert failures == 3


def test_framing_of_protobuf_has_the_indexes_of_the_message() -> None:
    """Values with the indexes of another message are not decoded."""
    column = of(TypedForm.PROTOBUF, descriptor_set(), message="p.Outer", framing=Framing.CONFLUENT)
    head = b"\0\0\0\0\7"
    values = [head + varint(1) + varint(1) + SENT, head + varint(0) + SENT, head + varint(1)]
    assert typed(column, values) == ([SENT_ROW, None, None], 2)
    first = of(TypedForm.PROTOBUF, descriptor_set(), message="p.First", framing=Framing.CONFLUENT)
    assert typed(first, [head + b"\0" + b"\x08\x07"]) == ([{"x": 7}], 0)


@pytest.mark.parametrize(("schema", "message"), [(b"\xff", "p.Outer"), (None, "p.None"),
                                                 (None, None)])  # fmt: skip
def test_descriptor_sets_without_the_message_are_refused(
    schema: bytes | None, message: str | None
) -> None:
    """Descriptor sets that cannot be parsed are refused, too."""
    data = descriptor_set() if schema is None else schema
    with pytest.raises(UsageError):
        of(TypedForm.PROTOBUF, data, message=message).decoder()
