"""Values of several versions of a schema by columns, compared with the same value by value."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.merging import common_type
from kafkalog.log.typed.placing import Placing
from tests.kafkalog.log.typed.both_ways import both

PROTO = (
    "float a = 1; repeated N n = 2; map<string, N> m = 3; message N { int32 x = 1; }",
    "double a = 1; repeated N n = 2; map<string, N> m = 3;message N { string y = 2; int32 x = 1; }",
    "N b = 4; message N { } int64 a = 1;",
)
VALUES = {
    "float": "0dcdcccc3d 1202 0805 1200 1a05 0a016b 1200", "none": "", "inner": "2200",
    "double": "099a9999999999b93f 1207 0801 1203616263", "integer": "0880808080808080 8001",
    "exact": "0805", "damaged": "0d01",
}  # fmt: skip


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


JSON = (
    object_of(a={"type": "number", "connect.type": "float32"}, n={"type": "integer"},
              l={"type": "array", "items": object_of(x={"type": "integer"})}),
    object_of(a={"type": "number"}, l={"type": "array", "items": object_of(
        x={"type": "number"}, y={"type": "string", "format": "date"})}),
    object_of(A={"type": "number"}),
    object_of(m={"type": "object", "additionalProperties": object_of(x={"type": "integer"})},
              n={"type": "number"}),
)  # fmt: skip
TEXTS = (
    '{"a": 0.1, "n": 9007199254740993, "l": [{"x": 1}, null, {}]}', '{"a": 0.1, "l": null}', "null",
    '{"l": [{"x": 9007199254740993, "y": "2024-02-29"}]}', '{"m": {"k": {"x": 3}, "l": null}}',
    '{"n": 5, "other": 1}', '{"n": 9007199254740993}', "{", '{"a": 0.1000000000000000055}',
)  # fmt: skip


def framed(ids: int, values: list[bytes], middle: bytes = b"") -> Any:
    """Return all values with all ids, and with one that is unknown."""
    some = [
        b"\0\0\0\0" + bytes([number]) + middle + value
        for value in values * 3
        for number in range(1, ids + 2)
    ]
    return pa.array([*some, b"\0\0", None], pa.binary())


def test_versions_of_json() -> None:
    """Fields that one lacks are null, numbers widen to what another has, or do not decode."""
    writers = tuple((n, (json.dumps(tree),)) for n, tree in enumerate(JSON, 1))
    column = TypedColumn("value", TypedForm.JSON, b"", None, Framing.CONFLUENT, None, writers,
                         (1, 2, 3, 4))  # fmt: skip
    found, wanted, _ = both(column, framed(4, [one.encode() for one in TEXTS]))
    assert found == wanted
    assert "0.10000000149011612" in found.values  # that of the float32, as for other forms
    assert found.losses


def test_versions_of_protobuf() -> None:
    """Likewise; and a float becomes the double that it is."""
    texts = [f'syntax = "proto3"; package p; message M {{ {one} }}' for one in PROTO]
    writers = tuple((n, (text,)) for n, text in enumerate(texts, 1))
    column = TypedColumn("value", TypedForm.PROTOBUF, b"", "p.M", Framing.CONFLUENT, None, writers,
                         (1, 2, 3))  # fmt: skip
    values = [bytes.fromhex(one) for one in VALUES.values()]
    found, wanted, _ = both(column, framed(3, values, b"\0"))
    assert found == wanted
    assert "0.10000000149011612" in found.values


def test_lists_and_maps_that_are_placed() -> None:
    """Nulls and slices stay as they are at any depth."""
    narrow = pa.struct({"l": pa.list_(pa.struct({"x": pa.float32()})),
                        "m": pa.map_(pa.string(), pa.int64())})  # fmt: skip
    wide = pa.struct({
        "new": pa.bool_(), "m": pa.map_(pa.string(), pa.float64()),
        "l": pa.list_(pa.struct({"y": pa.string(), "x": pa.float64()})),
    })  # fmt: skip
    rows = [
        {"l": [{"x": 0.5}, None], "m": None}, None, {"l": None, "m": [("a", 1), ("b", None)]},
        {"l": [], "m": []},
    ]  # fmt: skip
    wanted = [
        {"new": None, "m": None, "l": [{"y": None, "x": 0.5}, None]}, None,
        {"new": None, "m": [("a", 1.0), ("b", None)], "l": None}, {"new": None, "m": [], "l": []},
    ]  # fmt: skip
    for start in range(4):
        change = Placing(pa.field("", narrow), pa.field("", wide), common_type).array
        assert change is not None
        found = change(pa.array(rows, narrow).slice(start))
        found.validate(full=True)
        assert found.type == wide
        assert found.to_pylist() == wanted[start:]
