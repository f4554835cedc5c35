"""Values of a few bytes that stand for any number of fields: rejects, in little memory.

What a value would take is computed here from its schema: items x fields. In a process of its own a
command reads such a topic within the bound of `docs/design/memory.md`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from kafkalog.log.typed import (
    Framing,
    TypedColumn,
    TypedForm,
    cells,
    column_steps,
    columns,
    placing,
    proto_cells,
)
from kafkalog.log.typed.cells import CELLS_AT_ONCE, CELLS_MAX
from kafkalog.log.typed.columns import aligned, one_value, typed_column, typed_pieces
from tests.builders import batch, record, varint, write_log
from tests.kafkalog.test_memory_bounds import MIB, ROW_GROUPS, bound, peak_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIELDS = 100
MANY = 1900
LIMIT = 1 << 15
"""A lower bound, for values that are made in the time that a test has."""
FITS = LIMIT // (FIELDS + 1)
"""How many items of `FIELDS` fields, and a place for each, a value may have then."""
NAMES = [f"f{number}" for number in range(MANY)]


@pytest.fixture
def low(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the bounds."""
    for module in (cells, column_steps, placing, proto_cells):
        monkeypatch.setattr(module, "CELLS_MAX", LIMIT)


def json_schema(fields: int = FIELDS) -> bytes:
    item = {"type": "object", "properties": {name: {"type": "integer"} for name in NAMES[:fields]}}
    properties = {
        "l": {"type": "array", "items": item},
        "m": {"type": "object", "additionalProperties": item},
        "n": {"type": "integer"},
    }
    return json.dumps({"type": "object", "properties": properties}).encode()


def protobuf_schema(fields: int = FIELDS) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    whole, item = file.message_type.add(name="M"), file.message_type.add(name="I")
    whole.field.add(name="l", number=1, label=3, type=11, type_name=".I")
    whole.field.add(name="n", number=3, label=1, type=3)
    entry = whole.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=1, type=9)
    entry.field.add(name="value", number=2, label=1, type=11, type_name=".I")
    whole.field.add(name="m", number=2, label=3, type=11, type_name=".M.MEntry")
    for number, name in enumerate(NAMES[:fields], 1):
        item.field.add(name=name, number=number, label=1, type=3)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def avro_schema(fields: int = FIELDS) -> dict[str, Any]:
    """Return a schema whose items have fields with a default, but for the first one."""
    first = {"name": "f0", "type": "boolean"}
    others = [{"name": name, "type": ["null", "long"], "default": None} for name in NAMES[1:fields]]
    item = {"type": "record", "name": "I", "fields": [first, *others]}
    return {"type": "record", "name": "R", "fields": [
        {"name": "l", "type": {"type": "array", "items": item}},
        {"name": "m", "type": {"type": "map", "values": "I"}},
        {"name": "n", "type": "long"},
    ]}  # fmt: skip


def avro_column() -> TypedColumn:
    """Return a column whose values are of a schema that has the first field alone."""
    writers = tuple(
        (number, (json.dumps(one),)) for number, one in ((1, avro_schema(1)), (2, avro_schema()))
    )
    return TypedColumn(
        "value", TypedForm.AVRO, b"", framing=Framing.CONFLUENT, writers=writers, versions=(2,)
    )


COLUMNS = {
    "json": TypedColumn("value", TypedForm.JSON, json_schema()),
    "protobuf": TypedColumn("value", TypedForm.PROTOBUF, protobuf_schema(), "M"),
    "avro": avro_column(),
}


def value_of(form: str, items: int, entries: int = 0) -> bytes:
    """Return a value with items and entries of a byte or two."""
    if form == "json":
        pairs = ",".join(f'"{number}":{{}}' for number in range(entries))
        return f'{{"l":[{",".join(["{}"] * items)}],"m":{{{pairs}}},"n":7}}'.encode()
    if form == "protobuf":
        pairs = [b"\x0a\x04%04d" % number for number in range(entries)]
        return b"\x0a\0" * items + b"".join(b"\x12\x06" + one for one in pairs) + b"\x18\x07"
    blocks = [varint(items) + b"\1" * items] * bool(items)
    keys = b"".join(varint(4) + b"%04d\1" % number for number in range(entries))
    blocks += [b"\0", *[varint(entries) + keys] * bool(entries), b"\0"]
    return b"\0\0\0\0\1" + b"".join(blocks) + varint(7)


def decoded(column: TypedColumn, value: bytes, *, by_columns: bool) -> tuple[Any, list[str]]:
    decoder = column.decoder()
    if not by_columns:
        decoder.by_columns = lambda *_: None  # type: ignore[attr-defined]
    array, failures, _ = typed_column(column, decoder, pa.array([value], pa.binary()))
    return array, [one.reason for one in failures]


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize("form", COLUMNS)
def test_a_value_with_too_many_fields_is_a_reject(form: str, by_columns: bool) -> None:
    """One item too many, alone or together with entries of a map; the reason has the numbers."""
    column = COLUMNS[form]
    for value in (value_of(form, FITS + 1), value_of(form, 0, FITS + 1),
                  value_of(form, FITS - 99, 100)):  # fmt: skip
        array, reasons = decoded(column, value, by_columns=by_columns)
        assert array.null_count == 1
        assert array.nbytes < MIB
        [reason] = reasons
        assert f"more than {LIMIT} cells" in reason
        assert one_value(column, column.decoder(), value)[1] == reason


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize("form", COLUMNS)
def test_a_value_within_the_bound_decodes(form: str, by_columns: bool) -> None:
    """It has one item less: a list and a map of some items and entries."""
    value = value_of(form, FITS - 100, 99)
    array, reasons = decoded(COLUMNS[form], value, by_columns=by_columns)
    assert not reasons
    [rows, pairs] = (array.field(name)[0] for name in "lm")
    assert (len(rows), len(pairs)) == (FITS - 100, 99)
    assert array.field("n").to_pylist() == [7]


def test_many_small_numbers_decode() -> None:
    """A list without fields has a cell for each item."""
    schema = {"type": "array", "items": {"type": "integer"}}
    column = TypedColumn("value", TypedForm.JSON, json.dumps(schema).encode())
    value = b"[" + b",".join([b"7"] * CELLS_MAX)
    array, reasons = decoded(column, value + b"]", by_columns=True)
    assert not reasons
    assert len(array.values) == CELLS_MAX
    assert decoded(column, value + b",7]", by_columns=True)[1]


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize("form", COLUMNS)
def test_values_are_decoded_in_pieces(
    form: str, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces have all rows, rejects and losses, whatever has room; a piece holds little."""
    column = COLUMNS[form]
    values = [value_of(form, number % 7, number % 3) for number in range(20)]
    values[3], values[11] = b"\0\0\0\0\1\xff", b"{}{}"
    data = pa.array([b"", *values, None], pa.binary())[1:]
    decoder = column.decoder()
    if not by_columns:
        decoder.by_columns = lambda *_: None  # type: ignore[attr-defined]
    whole = typed_column(column, decoder, data)
    for module in (columns, column_steps):
        monkeypatch.setattr(module, "CELLS_AT_ONCE", 9 * FIELDS)
    pieces = list(typed_pieces(column, decoder, data))
    assert 3 < len(pieces) <= 22
    assert max(len(one.array) for one in pieces) > 1
    for one in pieces:
        assert len(one.array) == 1 or cells_in(one.array) <= 9 * (FIELDS + 2)
    assert pa.concat_arrays([one.array for one in pieces]).equals(whole.array)
    assert placed(pieces) == [(one.row, one.reason) for one in whole.failures]
    assert sum((one.losses for one in pieces), whole.losses - whole.losses) == whole.losses


def cells_in(array: Any) -> int:
    """Count the fields of all items."""
    return (len(array.field("l").flatten()) + len(array.field("m").keys)) * FIELDS


def placed(pieces: list[Any]) -> list[tuple[int, str]]:
    found, start = [], 0
    for one in pieces:
        found += [(start + failure.row, failure.reason) for failure in one.failures]
        start += len(one.array)
    return sorted(found)


def test_pieces_of_two_columns_are_cut_alike() -> None:
    """Rows and rejects stay together; each loss counts once."""

    def of(sizes: list[int], bad: int) -> Iterator[columns.TypedArray]:
        start = 0
        for size in sizes:
            rows = range(start, start + size)
            failures = [columns.Undecoded(row - start, "bad") for row in rows if row == bad]
            yield columns.TypedArray(pa.array(rows, pa.int64()), failures, columns.Counter(x=size))
            start += size

    found = list(aligned([of([3, 4, 2], 5), of([1, 8], 0), of([9], 8)]))
    assert [[len(one.array) for one in some] for some in found] == [[1] * 3, [2] * 3, [4] * 3,
                                                                   [2] * 3]  # fmt: skip
    for place, bad in enumerate((5, 0, 8)):
        pieces = [some[place] for some in found]
        assert pa.concat_arrays([one.array for one in pieces]).to_pylist() == list(range(9))
        assert placed(pieces) == [(bad, "bad")]
        assert sum(one.losses["x"] for one in pieces) == 9
    [[empty]] = aligned([typed_pieces(COLUMNS["json"], COLUMNS["json"].decoder(),
                                      pa.array([], pa.binary()))])  # fmt: skip
    assert len(empty.array) == 0


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("by_columns", [True, False])
def test_fields_of_other_versions_count(by_columns: bool) -> None:
    """A version with one field in its items, in a column with those of another version."""
    texts = [(number, (json_schema(fields).decode(),)) for number, fields in ((1, 1), (2, FIELDS))]
    column = TypedColumn(
        "value", TypedForm.JSON, b"", framing=Framing.CONFLUENT, writers=tuple(texts),
        versions=(2, 1),
    )  # fmt: skip
    before = b"\0\0\0\0\1"
    some, reasons = decoded(column, before + value_of("json", 50, 9), by_columns=by_columns)
    assert not reasons
    assert len(some.field("l").flatten()) == 50
    for value in (value_of("json", FITS + 1), value_of("json", 1, FITS + 1)):
        array, reasons = decoded(column, before + value, by_columns=by_columns)
        assert len(reasons) == 1
        assert array.nbytes < MIB


TEXT = "x" * 16_000


def texts() -> dict[str, tuple[TypedColumn, bytes]]:
    """Return columns with text that their schemas have, and a value that has it 10,000 times."""
    symbols = {"type": "enum", "name": "E", "symbols": [TEXT, "y"]}
    inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": "boolean"}]}
    newer = {**inner, "fields": [*inner["fields"],
                                 {"name": "t", "type": "string", "default": TEXT}]}  # fmt: skip
    named = {"type": "record", "name": "R", "fields": [
        {"name": TEXT, "type": ["null", "boolean"]},
        {"name": "l", "type": {"type": "array", "items": "R"}},
    ]}  # fmt: skip
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    enum = file.enum_type.add(name="E")
    enum.value.add(name=TEXT, number=0)
    file.message_type.add(name="M").field.add(name="e", number=1, label=3, type=14, type_name=".E")
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    items = varint(10_000)
    decimals = {"type": "object", "properties": {"d": {"type": "array", "items": {
        "type": "number", "connect.type": "bytes", "title": "org.apache.kafka.connect.data.Decimal",
        "connect.parameters": {"scale": "900"},
    }}}}  # fmt: skip

    def avro(item: Any, older: Any = None) -> TypedColumn:
        text = json.dumps({"type": "array", "items": item})
        if older is None:
            return TypedColumn("value", TypedForm.AVRO, text.encode())
        writers = ((1, (json.dumps({"type": "array", "items": older}),)), (2, (text,)))
        return TypedColumn(
            "value", TypedForm.AVRO, b"", framing=Framing.CONFLUENT, writers=writers, versions=(2,)
        )

    big = {"type": "bytes", "logicalType": "big-decimal"}
    return {
        "symbols of Avro": (avro(symbols), items + bytes(10_000) + b"\0"),
        "defaults of Avro": (avro(newer, inner), b"\0\0\0\0\1" + items + bytes(10_000) + b"\0"),
        "names in JSON": (avro(named), varint(1) + b"\0" + items + bytes(20_000) + b"\0\0"),
        "decimals of Avro": (
            avro(big), varint(20_000) + b"\x08\x02\x01\xc0\x3e" * 20_000 + b"\0"
        ),
        "symbols of Protobuf": (
            TypedColumn("value", TypedForm.PROTOBUF, descriptors, "M"),
            b"\x0a\x90\x4e" + bytes(10_000),
        ),
        "decimals of JSON": (
            TypedColumn("value", TypedForm.JSON, json.dumps(decimals).encode()),
            b'{"d":[' + b",".join([b"1e900"] * 100_000) + b"]}",
        ),
    }  # fmt: skip


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("by_columns", [True, False])
@pytest.mark.parametrize("name", texts())
def test_text_of_schemas_counts(name: str, by_columns: bool) -> None:
    """A byte or two stand for up to 16,000."""
    column, value = texts()[name]
    array, reasons = decoded(column, value, by_columns=by_columns)
    assert len(reasons) == 1, array.nbytes
    assert f"more than {CELLS_MAX} cells" in reasons[0]
    assert array.nbytes < MIB


@pytest.mark.usefixtures("low")
@pytest.mark.parametrize("name", ["itself", "group", "any", "merged"])
def test_messages_are_counted_before_they_are_made(name: str) -> None:
    """The reason is that of the bytes: Google's library has not seen them."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p")
    file.dependency.append("google/protobuf/any.proto")
    whole = file.message_type.add(name="M")
    group = whole.nested_type.add(name="G")
    for one in (whole, group):
        for number in range(10, FIELDS):
            one.field.add(name=f"f{number}", number=number, label=1, type=3)
    whole.field.add(name="itself", number=1, label=3, type=11, type_name=".p.M")
    whole.field.add(name="g", number=2, label=3, type=10, type_name=".p.M.G")
    whole.field.add(name="any", number=3, label=1, type=11, type_name=".google.protobuf.Any")
    whole.field.add(name="merged", number=4, label=1, type=11, type_name=".p.M")
    messages = {"group": b"\x13\x14", "merged": b"\x22\0"}.get(name, b"\x0a\0") * 2500
    if name == "any":
        inside = b"\x0a\x05x/p.M\x12" + b"\x88\x27" + messages
        messages = b"\x1a" + bytes([len(inside) & 127 | 128, len(inside) >> 7]) + inside
    schema = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    column = TypedColumn("value", TypedForm.PROTOBUF, schema, "p.M")
    _, reasons = decoded(column, messages, by_columns=True)
    place = "any: " if name == "any" else ""
    assert reasons == [f"{place}its messages have more than {LIMIT} cells"]
    few = messages[:200] if name != "any" else b""
    assert not decoded(column, few + b"\x50\x07", by_columns=True)[1]


def test_long_symbols_of_many_values_are_not_together() -> None:
    """Each has one; all would take a gigabyte."""
    column, _ = texts()["symbols of Avro"]
    value = varint(1) + b"\0\0"
    data = pa.array([value] * 60_000, pa.binary())
    sizes = [one.array.nbytes for one in typed_pieces(column, column.decoder(), data[:9000])]
    assert sum(sizes) > 9000 * len(TEXT)
    assert max(sizes) < 16 * CELLS_AT_ONCE + MIB


def test_a_negative_zero_keeps_its_sign() -> None:
    """As a float has it, also of a number without a point; an integer has none."""
    schema = {"type": "object", "properties": {
        "n": {"type": "number"}, "i": {"type": "integer"}, "any": {},
    }}  # fmt: skip
    column = TypedColumn("value", TypedForm.JSON, json.dumps(schema).encode())
    value = b'{"n":-0,"i":-0,"any":[-0,-0.0,0]}'
    for by_columns in (True, False):
        [found] = decoded(column, value, by_columns=by_columns)[0].to_pylist()
        assert math.copysign(1, found["n"]) == -1
        assert found == {"n": 0.0, "i": 0, "any": "[-0,-0.0,0]"}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("command", ["`export`", "`dump-segment` as table", "find"])
@pytest.mark.parametrize("form", COLUMNS)
def test_a_command_keeps_its_bound(tmp_path: Path, form: str, command: str) -> None:
    """Two values would take 160 MB each, and 600 MB as objects; those between are decoded."""
    large, small = value_of(form, 10_000), value_of(form, 3)
    bodies = b"".join(record(n, b"k", large if n % 2 else small) for n in range(4))
    log = write_log(tmp_path / "t-0", batch(0, payload=bodies, count=4, last_delta=3))
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    schema = schemas / "2.avsc"  # what a registry as a directory calls it
    options: tuple[object, ...] = ("--value-schema", schema)
    if form == "json":
        schema.write_bytes(json_schema(MANY))
    elif form == "protobuf":
        schema.write_bytes(protobuf_schema(MANY))
        options = ("--value-schema", f"{schema}#M")
    else:
        schema.write_text(json.dumps(avro_schema(MANY)))
        schema.with_stem("1").write_text(json.dumps(avro_schema(1)))
        options = ("--registry", schemas, *options)
    line = {
        "`export`": ("export", log.parent, "--to", tmp_path / "to", "--accept", "rejects=2"),
        "`dump-segment` as table": ("dump-segment", log.parent, "--format", "ndjson"),
        "find": ("find", log.parent, "--where", "value.n == 7", "--format", "ndjson"),
    }[command]
    status, peak = peak_of(*line, "--value-format", form, *options)
    assert status == (8 if command.startswith("`dump-segment`") else 0)
    row = "`export`" if command == "`export`" else "`dump-segment` as table"
    counted = ROW_GROUPS if command == "`export`" else 0
    assert peak < bound(row, len(bodies)) + counted, peak >> 20


def test_cells_are_of_the_types_of_columns() -> None:
    """By hand: a place for each struct, two for decimals, one more for each 16 bytes of a name."""
    inner = pa.struct([("a", pa.int64()), ("b", pa.decimal128(9, 2)), ("c" * 35, pa.string())])
    assert cells.cells_of(pa.struct([("s", inner), ("l", pa.list_(inner))])) == 1 + 6 + 2
    assert cells.cells_of_items(pa.list_(inner)) == 1 + 1 + 2 + 1 + 2
    assert cells.cells_of_items(pa.map_(pa.string(), inner)) == 8
