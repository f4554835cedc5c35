"""Avro by columns, compared with Avro value by value: the same rows and reasons."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from kafkalog.log.typed import Framing, TypedColumn, TypedForm, avro, columns
from kafkalog.log.typed.columns import typed_column

PLAIN: tuple[Any, ...] = (
    "boolean", "int", "long", "float", "double", "bytes", "string",
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
)  # fmt: skip
SEEDS = 40


def schema_of(rng: Random, depth: int = 0) -> Any:
    """Return a record schema, sometimes one that cannot be read by columns."""
    fields = []
    for number in range(rng.randint(1, 6)):
        kind: Any = rng.choice(PLAIN)
        if rng.random() < 0.15:
            name = f"E{rng.randrange(1 << 60)}"
            kind = {"type": "enum", "name": name, "symbols": ["A", "B", "C"]}
        elif depth < 2 and rng.random() < 0.2:
            kind = schema_of(rng, depth + 1)
        elif rng.random() < 0.03:
            kind = {"type": "array", "items": kind}
        if rng.random() < 0.3:
            kind = rng.choice((["null", kind], [kind, "null"], [kind]))
        fields.append({"name": f"f{number}", "type": kind})
    return {"type": "record", "name": f"R{rng.randrange(1 << 60)}", "fields": fields}


def value_of(node: Any, rng: Random) -> Any:
    if isinstance(node, list):
        return value_of(rng.choice(node), rng)
    if isinstance(node, str):
        node = {"type": node}
    kind = node["type"]
    if kind == "record":
        return {one["name"]: value_of(one["type"], rng) for one in node["fields"]}
    if kind == "array":
        return [value_of(node["items"], rng) for _ in range(rng.randrange(3))]
    if kind == "enum":
        return rng.choice(node["symbols"])
    bits = rng.randrange(31 if kind == "int" else 63)
    number = rng.getrandbits(bits) if bits else 0
    return {
        "null": None, "boolean": rng.random() < 0.5, "bytes": rng.randbytes(rng.randrange(20)),
        "string": rng.choice(("", "a", "ß€𝄞", "x" * 200)), "float": rng.choice((0.5, 2.0**60)),
        "double": rng.random() * 10 ** rng.randrange(-9, 9),
    }.get(kind, rng.choice((number, -number)))  # fmt: skip


def encoded(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    fastavro.schemaless_writer(file, fastavro.parse_schema(plain), value)
    return file.getvalue()


def damaged(data: bytes, rng: Random) -> bytes:
    """Return the value cut, lengthened, or with another byte."""
    place = rng.randrange(len(data) + 1)
    if rng.random() < 0.3:
        return data[:place]
    if rng.random() < 0.3:
        return data[:place] + rng.randbytes(rng.randint(1, 12)) + data[place:]
    return data[:place] + rng.choice((b"\xff", b"\x80", b"\0", b"\2")) + data[place + 1 :]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_ways_say_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    monkeypatch.setattr(columns, "_ROWS_AT_ONCE", rng.choice((7, 1 << 15)))
    monkeypatch.setattr(columns, "_OBJECTS_AT_ONCE", rng.choice((3, 4096)))
    schema = schema_of(rng)
    older = {**schema, "fields": schema["fields"][:-1]}
    other = {**schema, "name": "Other"}
    values: list[bytes | None] = []
    for _ in range(60):
        data = encoded(schema, value_of(schema, rng))
        data = damaged(data, rng) if rng.random() < 0.25 else data
        number = rng.choice((7, 7, 7, 7, 8, 9, 10))
        values.append(None if rng.random() < 0.05 else bytes([0, 0, 0, 0, number]) + data)
    values.append(b"\0\0")
    text = json.dumps(schema)
    column = TypedColumn(
        "value", TypedForm.AVRO, text.encode(), framing=Framing.CONFLUENT,
        writers=((7, (text,)), (8, (json.dumps(older),)), (9, (json.dumps(other),))),
    )  # fmt: skip
    array = pa.array([b"before", *values], pa.binary())[1:]
    decoder, slow = column.decoder(), column.decoder()
    slow.by_columns = lambda _: None  # type: ignore[attr-defined]
    found, failures, _ = typed_column(column, decoder, array)
    wanted, reasons, _ = typed_column(column, slow, array)
    found.validate(full=True)
    assert found.to_pylist() == wanted.to_pylist()
    assert sorted(failures, key=lambda one: one.row) == sorted(reasons, key=lambda one: one.row)


def test_most_values_are_read_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read without a Python object of any, whatever their content."""
    rng = Random(1)
    fields = [{"name": f"f{n}", "type": ["null", kind]} for n, kind in enumerate(PLAIN[:7])]
    schema = {"type": "record", "name": "R", "fields": fields}
    rows = [value_of(schema, rng) for _ in range(300)]
    values = [encoded(schema, row) for row in rows]
    column = TypedColumn("value", TypedForm.AVRO, json.dumps(schema).encode())
    monkeypatch.setattr(avro.AvroDecoder, "decode", lambda *_: 1 // 0)
    array, failures, _ = typed_column(column, column.decoder(), pa.array(values, pa.binary()))
    assert not failures
    assert array.to_pylist() == rows


def test_a_number_of_more_than_64_bits_is_odd() -> None:
    """The tenth byte of a number has one bit; the kernel must not lose what more there is."""
    column = TypedColumn("value", TypedForm.AVRO, b'"long"')
    decoder = column.decoder()
    found = decoder.by_columns(None)  # type: ignore[attr-defined]
    values = [b"\xff" * 9 + last for last in (b"\1", b"\2", b"\x7f", b"\xff")]
    ends = np.arange(1, len(values) + 1) * 10
    data = np.frombuffer(b"".join(values), np.uint8)
    array, is_right = found.decode(data, ends - 10, ends)
    assert is_right.tolist() == [True, False, False, False]
    assert array[0].as_py() == decoder.decode(values[0]) == -(1 << 63)
    for value in values[1:]:
        with pytest.raises(ValueError, match="more than 64 bits"):
            decoder.decode(value)


def test_without_kernels_values_are_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps by columns are kernels, which not every processor has."""
    monkeypatch.setattr(avro, "kernels_work", lambda: False)
    column = TypedColumn("value", TypedForm.AVRO, b'"long"')
    array, failures, _ = typed_column(column, column.decoder(), pa.array([b"\4", b""], pa.binary()))
    assert array.to_pylist() == [2, None]
    assert [one.row for one in failures] == [1]


def test_long_and_few_arrays_are_left_to_python() -> None:
    """A step for each item of one array would take minutes; arrays of many values do not."""
    column = TypedColumn("value", TypedForm.AVRO, b'{"type":"array","items":"int"}')
    decoder = column.decoder()
    found = decoder.by_columns(None)  # type: ignore[attr-defined]
    short, long = b"\4\2\2\0", b"\xc8\1" + b"\2" * 100 + b"\0"
    for values, wanted in (
        ([long], [False]),
        ([short] * 100 + [long], [True] * 100 + [False]),
        ([long] * 100, [True] * 100),
    ):
        data = np.frombuffer(b"".join(values), np.uint8)
        sizes = np.array([len(one) for one in values])
        array, is_right = found.decode(data, sizes.cumsum() - sizes, sizes.cumsum())
        assert is_right.tolist() == wanted
        rows = [decoder.decode(one) for one in values]
        assert [one for one, there in zip(array.to_pylist(), wanted, strict=True) if there] == [
            one for one, there in zip(rows, wanted, strict=True) if there
        ]
