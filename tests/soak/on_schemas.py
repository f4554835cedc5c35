"""Targets of typed columns: schemas of any shape, and any bytes for sound schemas."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from google.protobuf import descriptor_pb2

from kafkalog.errors import UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.columns import typed_column
from tests.builders import varint
from tests.soak.mutations import mutated, number
from tests.soak.target import Place, Target

if TYPE_CHECKING:
    from random import Random

    from tests.soak.real import Files

_ODD: tuple[Any, ...] = (None, True, -1, 0, 2**62, 1e308, "", "x", [], {}, ["null"], [[]], "\ud800")
_LOGICAL = ("decimal", "big-decimal", "date", "time-millis", "time-micros", "timestamp-millis",
            "timestamp-nanos", "local-timestamp-micros", "uuid", "x")  # fmt: skip


def _avro(rng: Random, depth: int = 0) -> Any:
    if rng.random() < 0.03:
        return rng.choice(_ODD)
    kind = rng.randrange(9 if depth < 5 else 3)
    if kind < 2:
        return rng.choice(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
    if kind == 2:
        return {"type": rng.choice(("int", "long", "bytes", "string")),
                "logicalType": rng.choice(_LOGICAL), "precision": _small(rng),
                "scale": _small(rng)}  # fmt: skip
    if kind == 3:
        return {"type": "fixed", "name": f"F{rng.randrange(99)}", "size": _small(rng)}
    if kind == 4:
        return {"type": "enum", "name": f"E{rng.randrange(99)}", "symbols": ["A", "B"][: _bit(rng)]}
    if kind == 5:
        return {"type": "array", "items": _avro(rng, depth + 1)}
    if kind == 6:
        return {"type": "map", "values": _avro(rng, depth + 1)}
    if kind == 7:
        return [_avro(rng, depth + 1) for _ in range(rng.randrange(4))] + ["null"]
    fields = [{"name": f"f{i}", "type": _avro(rng, depth + 1)} for i in range(rng.randrange(4))]
    return {"type": "record", "name": f"R{rng.randrange(99)}", "fields": fields}


def _small(rng: Random) -> Any:
    return rng.choice((1, 2, 4, 9, 16, 38)) if rng.random() < 0.8 else rng.choice(_ODD)


def _bit(rng: Random) -> int:
    return rng.choice((0, 1, 2, 2))


_WORDS = (
    "format", "contentEncoding", "connect.type", "connect.parameters", "connect.index", "items",
    "prefixItems", "properties", "additionalProperties", "patternProperties", "$id", "id",
    "$anchor", "$dynamicAnchor", "$recursiveRef", "$dynamicRef", "$schema", "const", "enum",
    "dependencies", "dependentSchemas", "allOf", "type",
)  # fmt: skip
_WORD_VALUES: tuple[Any, ...] = (
    *_ODD, "date", "date-time", "base64", "bytes", "map", "decimal", "#", "#a", "http://x/y",
    "http://[::1", "http://json-schema.org/draft-04/schema#", {"scale": "5"}, {"scale": "-1"},
    {"scale": 999}, {"a": {"type": "integer"}}, [{"type": "string"}, 5], {"a": 5, "b": ["c"]},
)  # fmt: skip
_REFERENCES = ("#", "#/$defs/a", "#/$defs/b/properties/a", "#a", "x", "#/allOf/0", "%", "", "#/a/9")


def _json(rng: Random, depth: int = 0) -> Any:
    if rng.random() < 0.03:
        return rng.choice(_ODD)
    kind = rng.randrange(10 if depth < 5 else 3)
    if kind < 2:
        return {"type": rng.choice(("string", "integer", "number", "boolean", ["null", "string"]))}
    if kind == 2:
        names = rng.sample(_WORDS, rng.randint(1, 5))
        return {"type": rng.choice(("string", "number", "array", "object")),
                **{name: rng.choice(_WORD_VALUES) for name in names}}  # fmt: skip
    if kind > 5:
        return _json_of_several(rng, depth)
    if kind == 3:
        return {"type": "array", "items": _json(rng, depth + 1)}
    if kind == 4:
        return {"enum": rng.choice((["a", "b"], [1], 7, "ab"))}
    return {"type": "object", "properties": _named_json(rng, depth + 1),
            "additionalProperties": _json(rng, depth + 1)}  # fmt: skip


def _named_json(rng: Random, depth: int) -> Any:
    names = ("a", "b", "", "\u00e9", "\x00", "A")
    return {rng.choice(names): _json(rng, depth) for _ in range(rng.randrange(4))}


def _json_of_several(rng: Random, depth: int) -> Any:
    found = {}
    for word in rng.sample(("$ref", "allOf", "oneOf", "anyOf", "then", "$defs"), 2):
        if word == "$ref":
            found[word] = rng.choice(_REFERENCES)
        elif word == "$defs":
            found[word] = _named_json(rng, depth + 1)
        elif word == "then":
            found |= {"if": {}, word: _json(rng, depth + 1)}
        else:
            found[word] = [_json(rng, depth + 1) for _ in range(rng.randint(1, 3))]
    return found


def _protobuf(rng: Random) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(
        name="a.proto", syntax=rng.choice(("proto2", "proto3"))
    )
    for level in range(rng.randint(1, 4)):
        one = file.message_type.add(name=f"M{level}")
        for i in range(1, rng.randint(2, 5)):
            field = one.field.add(
                name=f"f{i}", number=i if rng.random() < 0.95 else number(rng, 32)
            )
            field.label = rng.choice((1, 1, 3))
            field.type = rng.randint(1, 18)
            if field.type in {10, 11, 14} or rng.random() < 0.03:
                field.type_name = f".M{rng.randrange(5)}"
    data = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return mutated(data, rng, data) if rng.random() < 0.2 else data


def schema_input(rng: Random) -> Files:
    """Return one schema of one of the three kinds."""
    form = rng.choice(tuple(TypedForm))
    if form == TypedForm.PROTOBUF:
        return {form: _protobuf(rng)}
    data = json.dumps(_avro(rng) if form == TypedForm.AVRO else _json(rng)).encode()
    return {form: mutated(data, rng, data) if rng.random() < 0.2 else data}


def check_schema(files: Files, rng: Random, _place: Place) -> None:
    """Expect a usage error, or a decoder that accepts any bytes."""
    [(form, schema)] = files.items()
    framing = rng.choice(tuple(Framing))
    column = TypedColumn("value", TypedForm(form), schema, "M0", framing)
    if framing != Framing.NONE and rng.random() < 0.5:
        is_binary = form == TypedForm.PROTOBUF
        text = b64encode(schema).decode() if is_binary else schema.decode("utf-8", "replace")
        number = str(UUID(int=0)) if framing == Framing.GLUE else 7
        column = replace(column, schema=b"", writers=((number, (text,)),), versions=(number,))
    try:
        decoder = column.decoder()
    except UsageError as error:
        if form == TypedForm.JSON and "The schema is not JSON" not in error.message:
            raise  # whatever is JSON has a column
        return
    values = [None, b"", *(_value(rng, framing) for _ in range(8))]
    array, failures, _ = typed_column(column, decoder, pa.array(values, pa.binary()))
    array.validate(full=True)
    assert array.type == decoder.type, (column, array.type, decoder.type)
    assert len(array) == len(values)
    assert len(failures) <= array.null_count
    assert len({one.row for one in failures}) == len(failures)
    assert all(one.reason and not array[one.row].is_valid for one in failures)


_TEXTS = (
    b"{}", b"[]", b"null", b'"x"', b"1", b"-1e400", b"true", b'{"a":1,"b":[2,{"a":"\\ud800"}]}',
    b"[" * 3000, b"9" * 5000,
)  # fmt: skip


_HEADS = {
    Framing.NONE: b"",
    Framing.CONFLUENT: b"\0\0\0\0\7",
    Framing.APICURIO: b"\0\0\0\0\0\0\0\0\7",
    Framing.APICURIO4: b"\0\0\0\0\7",
    Framing.GLUE: b"\3\5" + bytes(16),
}


def _value(rng: Random, framing: Framing) -> bytes:
    head = _HEADS[framing]
    if rng.random() < 0.4:
        data = rng.choice(_TEXTS)
        return head + (mutated(data, rng, data) if rng.random() < 0.5 else data)
    pieces = [varint(number(rng)), rng.randbytes(rng.randrange(12)), varint(rng.randrange(4))]
    return head + b"".join(rng.choice(pieces) for _ in range(rng.randrange(9)))


TARGETS = (Target("typed_columns", 3_000, schema_input, check_schema),)
