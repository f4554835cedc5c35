"""Schemas and values that claim too much give an error or null, in little memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafkalog.errors import UsageError
from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.avro import AvroDecoder
from kafkalog.log.typed.columns import VALUE_SIZE_MAX, typed_column
from kafkalog.log.typed.json_schema import JsonDecoder
from kafkalog.log.typed.protobuf import ProtobufDecoder
from kafkalog.log.typed.remarks import Remark
from tests.builders import batch, record, varint, write_log
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def nested_json(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b'{"type":"string"}' + b"}" * depth


def nested_avro(depth: int) -> bytes:
    return b'{"type":"array","items":' * depth + b'"int"' + b"}" * depth


def doubled_avro(levels: int) -> Any:
    """Return a schema in which each record holds the previous one twice: 2^levels columns."""
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


def messages(levels: int, copies: int) -> bytes:
    """Return a descriptor set in which each message holds `copies` fields of the next one."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    for level in range(levels):
        one = file.message_type.add(name=f"M{level}")
        for number in range(1, copies + 1):
            field = one.field.add(name=f"f{number}", number=number, label=1)
            field.type = 5 if level == levels - 1 else 11
            if field.type == 11:
                field.type_name = f".M{level + 1}"
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def fixed(size: int) -> bytes:
    return json.dumps({"type": "fixed", "name": "F", "size": size}).encode()


HOSTILE: dict[str, tuple[TypedForm, bytes]] = {
    "avro, 100 levels": (TypedForm.AVRO, nested_avro(100)),
    "avro, 100,000 levels": (TypedForm.AVRO, nested_avro(100_000)),
    "avro, fixed of 2^62 bytes": (TypedForm.AVRO, fixed(1 << 62)),
    "avro, fixed of -1 bytes": (TypedForm.AVRO, fixed(-1)),
    "avro, fixed of text": (TypedForm.AVRO, b'{"type":"fixed","name":"F","size":"x"}'),
    "avro, 2^40 columns": (TypedForm.AVRO, json.dumps(doubled_avro(40)).encode()),
    "avro, no fields": (TypedForm.AVRO, b'{"type":"record","name":"R","fields":7}'),
    "protobuf, 100,000 levels": (TypedForm.PROTOBUF, messages(100_000, 1)),
    "protobuf, no descriptor": (TypedForm.PROTOBUF, b"\xff" * 100),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_beyond_all_bounds_is_refused(name: str) -> None:
    """A one-line usage error, whatever the libraries raise for the schema."""
    form, schema = HOSTILE[name]
    with pytest.raises(UsageError) as caught:
        TypedColumn("value", form, schema, "M0").decoder()
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 1000


def defined(count: int, one: Callable[[str], Any]) -> dict[str, Any]:
    """Return a schema that is the first of a number of definitions, each made with the next."""
    more = {f"a{n}": one(f"#/$defs/a{n + 1}") for n in range(count)}
    return {"$ref": "#/$defs/a0", "$defs": {**more, f"a{count}": {"type": "string"}}}


def wide(place: str) -> Any:
    return {"type": "object", "properties": {name: {"$ref": place} for name in "xy"}}


def all_of(count: int) -> Any:
    """Return an object with a property of each of a number of definitions."""
    return {"type": "object", "properties": {n: {"$ref": f"#/$defs/{n}"} for n in range(count)}}


# Schemas of JSON, each with the type of its column, and the reason for JSON text in it.
LARGE: dict[str, tuple[Any, str, str]] = {
    "100,000 levels": (nested_json(100_000), "string", "nested too deeply"),
    "2^30 properties": (defined(30, wide), "string", "more than 10000 fields"),
    "2^30 alternatives": (
        defined(30, lambda place: {"anyOf": [{"$ref": place}] * 2}), "string", "more than 10000"
    ),
    "2^30 conditions": (defined(30, lambda place: {"allOf": [{"$ref": place}] * 2}), "string", ""),
    "9,000 references": (defined(9000, lambda place: {"$ref": place}), "string", "256 parts"),
    "4,900 alternatives": (
        {"oneOf": [{"type": "object", "properties": {"p": {"type": "string"}}}] * 4900},
        "struct<p: string>", "",
    ),
    "10,000 alternatives": (
        {"oneOf": [{"type": "object", "properties": {f"p{n}": {}}} for n in range(10_000)]},
        "string", "more than 10000 fields",
    ),
    "2,000 changes of 1,000 properties": (
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1000)},
         "oneOf": [{"properties": {f"p{n % 1000}": {"const": "x"}}} for n in range(2000)]},
        "string", "more than 10000 fields",
    ),
    "30 objects with each other": (
        {"$ref": "#/$defs/0", "$defs": {str(n): all_of(30) for n in range(30)}},
        "string", "more than 10000 fields",
    ),
    "a pointer of 100,000 names": ({"$ref": "#" + "/x" * 100_000, "x": {}}, "string", "cannot be"),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LARGE)
def test_a_large_schema_of_json_is_text(name: str) -> None:
    """Within the bounds it has a type. It takes a second, and little memory."""
    schema, kind, reason = LARGE[name]
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    start, before = time.process_time(), peak()
    decoder = JsonDecoder(text)
    assert time.process_time() - start < HANG_S / 4
    assert peak() - before < 200 << 20
    assert str(decoder.type) == kind
    assert [reason in one.reason for one in decoder.remarks] == [True] * bool(reason)


def peak() -> int:
    """Return how many bytes of memory this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.parametrize(
    ("levels", "copies"), [(100, 1), (30, 2), (2, 5_000)], ids=["deep", "doubled", "wide"]
)
def test_messages_beyond_the_bounds_are_json(levels: int, copies: int) -> None:
    """The parts within the bounds are columns; no value is lost."""
    schema = messages(levels, copies)
    column = TypedColumn("value", TypedForm.PROTOBUF, schema, "M0")
    decoder = column.decoder()
    assert isinstance(decoder, ProtobufDecoder)
    assert {one.type for one in decoder.remarks} == {"json"}
    assert len(decoder.remarks) <= 10_000
    value = b"\x08\x07"
    for _ in range(levels - 1):
        value = b"\x0a" + bytes([len(value) & 0x7F | 0x80, len(value) >> 7]) + value
    array, failures, _ = typed_column(column, decoder, pa.array([value], pa.binary()))
    assert not failures
    [found] = array.to_pylist()
    depth = 0
    while found != 7:
        if isinstance(found, str):
            found = json.loads(found)
        found, depth = found["f1"], depth + 1
    assert depth == levels


def test_a_deep_schema_within_the_bounds_decodes() -> None:
    """60 levels become ordinary columns."""
    column = TypedColumn("value", TypedForm.JSON, nested_json(60))
    value = b"[" * 60 + b'"x"' + b"]" * 60
    array, failures, _ = typed_column(column, column.decoder(), pa.array([value], pa.binary()))
    assert not failures
    found = array.to_pylist()
    for _ in range(61):
        [found] = found
    assert found == "x"


def test_a_schema_beyond_the_depth_is_text_there() -> None:
    """Of 100 levels, 64 are lists."""
    decoder = JsonDecoder(nested_json(100))
    [remark] = decoder.remarks
    assert remark == Remark("[]" * 64, "json", "it is nested more than 64 levels deep")
    found = decoder.decode(b"[" * 100 + b"]" * 100)
    for _ in range(63):
        [found] = found
    assert found == ["[" * 36 + "]" * 36]


def test_a_large_fixed_takes_no_room_for_its_nulls() -> None:
    """A fixed-width array would take a gigabyte for one null."""
    column = TypedColumn("value", TypedForm.AVRO, fixed((1 << 31) - 1))
    array, failures, _ = typed_column(column, column.decoder(), pa.array([b"x", None], pa.binary()))
    assert array.to_pylist() == [None, None]
    assert [one.row for one in failures] == [0]
    assert array.nbytes < 1000


def test_a_value_too_large_is_counted_and_not_decoded() -> None:
    """Each byte of it could become a Python object."""
    column = TypedColumn("value", TypedForm.AVRO, b'{"type":"array","items":["null","int"]}')
    some = varint(2) + b"\0\0\0"
    large = varint(VALUE_SIZE_MAX) + bytes(VALUE_SIZE_MAX + 1)
    values = pa.array([some, large, some], pa.binary())
    array, failures, _ = typed_column(column, column.decoder(), values)
    assert array.to_pylist() == [[None, None], None, [None, None]]
    assert [one.row for one in failures] == [1]


BARE = {"type": "record", "name": "E", "fields": []}


@pytest.mark.parametrize("items", ["null", BARE, {"type": "fixed", "name": "F", "size": 0}])
def test_items_without_bytes_have_an_end(items: Any) -> None:
    """A few bytes can claim any number of them."""
    schema = json.dumps({"type": "array", "items": items}).encode()
    column = TypedColumn("value", TypedForm.AVRO, schema)
    values = [varint(count) + b"\0" for count in (3, 10_000, 1 << 40)]
    values.append((varint(9000) * 2) + b"\0")
    array, failures, _ = typed_column(column, column.decoder(), pa.array(values, pa.binary()))
    assert [one.row for one in failures] == [2, 3]
    sizes = [len(json.loads(one) if isinstance(one, str) else one) for one in array.to_pylist()[:2]]
    assert sizes == [3, 10_000]


def test_defaults_without_an_end_are_rejects() -> None:
    """A record within its own default, and one with a default of 2^40 records."""
    fields = [{"name": "r", "type": "R", "default": {}}]
    endless = {"type": "record", "name": "R", "fields": fields}
    schema: Any = {"type": "record", "name": "R0", "fields": []}
    for level in range(1, 40):
        fields = [{"name": "a", "type": schema, "default": {}},
                  {"name": "b", "type": f"R{level - 1}", "default": {}}]  # fmt: skip
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    for one in (endless, schema):
        # Within JSON the types have no bounds.
        outer = {"type": "record", "name": "O", "fields": [
            {"name": "o", "type": ["null", "O"]}, {"name": "n", "type": "int"},
        ]}  # fmt: skip
        newer = {**outer, "fields": [*outer["fields"], {"name": "d", "type": one, "default": {}}]}
        try:
            decoder = AvroDecoder(json.dumps(newer).encode(), {1: [json.dumps(outer)]})
        except UsageError:
            continue
        with pytest.raises(ValueError, match="default"):
            decoder.decode(varint(1) + varint(0) + varint(7) + varint(7), 1)


@pytest.mark.parametrize("kind", ["/dev/zero", "fifo", "directory", "large"])
def test_only_a_small_regular_file_is_a_schema(tmp_path: Path, kind: str) -> None:
    """`/dev/zero` has no end, a FIFO may have no writer: a usage error, in little memory."""
    log = write_log(tmp_path / "t-0", batch(0, [record()]))
    schema = tmp_path / "schema"
    if kind == "/dev/zero":
        schema.symlink_to(kind)
    elif kind == "fifo":
        os.mkfifo(schema)
    elif kind == "directory":
        schema.mkdir()
    else:
        with schema.open("wb") as file:
            file.truncate(1 << 40)
    line: list[str | Path] = [
        "export", log.parent, "--to", tmp_path / "to", "--value-format", "avro",
        "--value-schema", schema,
    ]  # fmt: skip

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))

    done = subprocess.run(
        [sys.executable, "-m", "kafkalog_cli", *line], capture_output=True, preexec_fn=confine,
        timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done
    assert done.stderr.startswith(b"error: usage")
    assert not (tmp_path / "to").exists()
