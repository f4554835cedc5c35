"""Protobuf schemas and messages at random, and what a column has for a message.

Schemas are compiled by Google's compiler; messages are filled, written and parsed by Google's
library. `Wanted` says what a parsed message is in a column, by rules that it states itself.
"""

from __future__ import annotations

import json
import math
import re
import struct
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message,
    message_factory,
)
from grpc_tools import protoc

if TYPE_CHECKING:
    from random import Random

FIELD = descriptor_pb2.FieldDescriptorProto
BASE = descriptor_pb2.FileDescriptorSet
"""A class whose methods are called for messages that have fields of their names."""
KNOWN = [
    "any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers",
]  # fmt: skip
INTEGERS = {
    "int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1),
    "uint32": (0, (1 << 32) - 1), "uint64": (0, (1 << 64) - 1),
}  # fmt: skip
WORDS = {1: "int32", 2: "int64", 3: "uint32", 4: "uint64"}  # by Google's kind in C++
SCALARS = [
    "int32", "sint32", "sfixed32", "uint32", "fixed32", "int64", "sint64", "sfixed64", "uint64",
    "fixed64", "float", "double", "bool", "string", "bytes",
]  # fmt: skip
KEYS = [one for one in SCALARS if one not in {"float", "double", "bytes"}]
MEANT = [
    "Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue", "Any", "Empty",
    "DoubleValue", "FloatValue", "Int64Value", "UInt64Value", "Int32Value", "UInt32Value",
    "BoolValue", "StringValue", "BytesValue",
]  # fmt: skip
# Names that Google's classes have themselves, or Python.
ODD_NAMES = [
    "HasField", "Extensions", "DESCRIPTOR", "FromString", "class", "fields", "_present", "ByteSize",
    "HasExtension", "self", "ListFields", "WhichOneof",
]  # fmt: skip


def compiled(text: str, *more: str) -> descriptor_pb2.FileDescriptorSet:
    """Return the files of a schema, with those that it imports."""
    with TemporaryDirectory() as home:
        (Path(home) / "a.proto").write_text(text)
        known = str(Path(protoc.__file__).parent / "_proto")
        words = ["protoc", f"-I{home}", f"-I{known}", *more, "--include_imports"]
        assert protoc.main([*words, f"-o{home}/a.set", "a.proto"]) == 0, text
        return descriptor_pb2.FileDescriptorSet.FromString((Path(home) / "a.set").read_bytes())


def class_of(files: descriptor_pb2.FileDescriptorSet, name: str) -> Any:
    """Return the class of a message, in a pool of its own."""
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def random_schema(rng: Random) -> str:
    """Return a file with messages `p.M0`, `p.M1` and so on, of which any can hold any other."""
    return _Text(rng).file()


class _Text:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.syntax = rng.choice(["proto2", "proto3", "2023"])
        self.is_open = self.syntax == "proto3" or (self.syntax == "2023" and rng.random() < 0.5)
        self.messages = [f"M{number}" for number in range(rng.randint(1, 4))]

    def file(self) -> str:
        rng = self.rng
        word = "edition" if self.syntax == "2023" else "syntax"
        lines = [f'{word} = "{self.syntax}";', "package p;"]
        lines += [f'import "google/protobuf/{name}.proto";' for name in KNOWN]
        if self.syntax == "2023" and not self.is_open:
            lines.append("option features.enum_type = CLOSED;")
        lines.append("enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; BIG = 99; }")
        first = "FIRST = 0;" if self.is_open else ""
        lines.append(f"enum F {{ {first} LOW = -7; HIGH = 2147483647; }}")
        lines += [self.message(name, rng.randint(0, 8)) for name in self.messages]
        if self.syntax != "proto3":
            more = self.fields(rng.randint(1, 4), 1000, "x", True)
            lines.append(f"extend M0 {{ {more} }}")
        return "\n".join(lines)

    def message(self, name: str, count: int) -> str:
        ranges = "" if self.syntax == "proto3" else "extensions 1000 to max;"
        odd = self.rng.choice(ODD_NAMES)
        more = f"repeated int32 {odd} = 400;" if self.rng.random() < 0.4 else ""
        oneof = ""
        if self.rng.random() < 0.4:
            members = " ".join(f"{self.kind()} o{n} = {300 + n};" for n in range(3))
            oneof = f"oneof choice {{ {members} }}"
        return f"message {name} {{ {ranges} {more} {oneof} {self.fields(count, 1, 'f', False)} }}"

    def kind(self) -> str:
        rng = self.rng
        drawn = rng.random()
        if drawn < 0.5:
            return rng.choice(SCALARS)
        if drawn < 0.6:
            return rng.choice("EF")
        return rng.choice(self.messages) if drawn < 0.8 else f"google.protobuf.{rng.choice(MEANT)}"

    def fields(self, count: int, first: int, prefix: str, is_extension: bool) -> str:
        return " ".join(
            self.field(f"{prefix}{number}", number, is_extension)
            for number in range(first, first + count)
        )

    def field(self, name: str, number: int, is_extension: bool) -> str:
        rng, kind = self.rng, self.kind()
        drawn = rng.random()
        if drawn < 0.2 and not is_extension:
            kind = "E" if kind == "F" else kind  # the first symbol is zero
            return f"map<{rng.choice(KEYS)}, {kind}> {name} = {number};"
        if drawn < 0.4:
            return f"repeated {kind} {name} = {number};"
        if self.syntax == "proto2":
            if drawn < 0.5:
                label = "optional" if is_extension or drawn < 0.48 else "required"
                return f"{label} group G{number} = {number} {{ optional {kind} z = 1; }}"
            if kind in INTEGERS and drawn < 0.6:
                return f"optional {kind} {name} = {number} [default = 5];"
            label = "optional" if is_extension or drawn < 0.9 else "required"
            return f"{label} {kind} {name} = {number};"
        if self.syntax == "proto3":
            return f"{'optional ' if drawn < 0.6 else ''}{kind} {name} = {number};"
        feature = ""
        if kind in self.messages and drawn < 0.7:
            feature = " [features.message_encoding = DELIMITED]"
        elif kind in SCALARS and drawn < 0.7 and not is_extension:
            presence = rng.choice(["IMPLICIT", "LEGACY_REQUIRED", "EXPLICIT"])
            feature = f" [features.field_presence = {presence}]"
        return f"{kind} {name} = {number}{feature};"


def other_writer(files: descriptor_pb2.FileDescriptorSet) -> descriptor_pb2.FileDescriptorSet:
    """Return the schema of a writer that packs what is not packed, and the other way round.

    Its messages have a field more, its enums a symbol more, and nothing is required.
    """
    found = descriptor_pb2.FileDescriptorSet.FromString(files.SerializeToString())
    file = found.file[-1]
    is_edition = file.syntax == "editions"
    for enum in file.enum_type:
        enum.value.add(name=f"MORE_{enum.name}", number=77)
    waiting = list(file.message_type)
    features = descriptor_pb2.FeatureSet
    for one in waiting:
        if one.options.map_entry:
            continue
        waiting += one.nested_type
        one.field.add(name="more", number=900, label=1, type=FIELD.TYPE_STRING)
        for field in one.field:
            if field.label == FIELD.LABEL_REQUIRED:
                field.label = FIELD.LABEL_OPTIONAL
            own = field.options.features
            if own.field_presence == features.LEGACY_REQUIRED:
                own.field_presence = features.EXPLICIT
            is_long = field.type in {FIELD.TYPE_STRING, FIELD.TYPE_BYTES, FIELD.TYPE_MESSAGE,
                                     FIELD.TYPE_GROUP}  # fmt: skip
            if field.label != FIELD.LABEL_REPEATED or is_long:
                continue
            if is_edition:
                own.repeated_field_encoding = features.EXPANDED
            else:
                field.options.packed = file.syntax != "proto3"
    return found


def filled(one: Any, rng: Random, depth: int = 0) -> Any:
    """Set fields of a message at random."""
    pool = type(one).DESCRIPTOR.file.pool
    name = type(one).DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        limits = [-62_135_596_800, 253_402_300_799, 0, 1_700_000_000, -1]
        one.seconds = (
            rng.choice(limits) if rng.random() < 0.95 else rng.choice([1 << 62, -(1 << 40)])
        )
        one.nanos = rng.choice([0, 1, 999_999_999, 1000, 123_456_000])
    elif name == "google.protobuf.Duration":
        one.seconds = rng.choice([0, 5, -5, 315_576_000_000, -315_576_000_000])
        one.nanos = rng.choice([0, 1, 999_999_999]) * (-1 if one.seconds < 0 else 1)
        if rng.random() < 0.02:
            one.nanos = rng.choice([-1, 1 << 30])
    elif name in {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}:
        tree = {"b": [1, 2.5, None, "ü", True, {"x": -0.5}], "a": 1e300, "": {}}
        values = {"Struct": tree, "ListValue": [tree, 7], "Value": rng.choice([tree, None, 3, "x"])}
        json_format.ParseDict(values[type(one).DESCRIPTOR.name], one)
    elif name == "google.protobuf.Any":
        one.type_url = rng.choice(["type.googleapis.com/p.M0", "x/no.Such", "p.M0",
                                   "type.googleapis.com/google.protobuf.Duration"])  # fmt: skip
        inside = one.type_url.rpartition("/")[2]
        if inside == "no.Such" or depth > 2:
            one.value = b"\xff\x01"
        else:
            made = message_factory.GetMessageClass(pool.FindMessageTypeByName(inside))()
            one.value = BASE.SerializePartialToString(filled(made, rng, depth + 1))
    else:
        fields = [*type(one).DESCRIPTOR.fields, *pool.FindAllExtensions(type(one).DESCRIPTOR)]
        for field in fields:
            if rng.random() < (0.7 if depth < 2 else 0.3 if depth < 4 else 0):
                _fill(one, field, rng, depth)
    return one


def _fill(one: Any, field: Any, rng: Random, depth: int) -> None:
    def is_map(kind: Any) -> bool:
        return kind is not None and bool(kind.GetOptions().map_entry)

    if is_map(field.message_type):
        keys, values = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        there = getattr(one, field.name)
        for _ in range(rng.randrange(3)):
            key = _scalar(keys, rng)
            if values.message_type is not None:
                filled(there[key], rng, depth + 1)
            else:
                there[key] = _scalar(values, rng)
    elif field.is_repeated:
        there = (
            BASE.Extensions.__get__(one)[field] if field.is_extension else getattr(one, field.name)
        )
        for _ in range(rng.randrange(4)):
            if field.message_type is not None:
                filled(there.add(), rng, depth + 1)
            else:
                there.append(_scalar(field, rng))
    elif field.message_type is not None:
        inner = (
            BASE.Extensions.__get__(one)[field] if field.is_extension else getattr(one, field.name)
        )
        BASE.SetInParent(inner)
        filled(inner, rng, depth + 1)
    elif field.is_extension:
        BASE.Extensions.__get__(one)[field] = _scalar(field, rng)
    else:
        setattr(one, field.name, _scalar(field, rng))


def _scalar(field: Any, rng: Random) -> Any:
    if field.enum_type is not None:
        numbers = [number.number for number in field.enum_type.values]
        return rng.choice(numbers if field.enum_type.is_closed else [*numbers, 12345])
    if field.cpp_type in {field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT}:
        return rng.choice([0.0, -0.0, 0.5, float("inf"), float("nan"), 0.1, 3.0e38])
    if field.cpp_type == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.type == FIELD.TYPE_BYTES:
        return rng.choice([b"", b"\xff\x00", b"abc"])
    if field.type == FIELD.TYPE_STRING:
        return rng.choice(["", "ä", "x\x00y", '"\\', "\U0001f600"])
    low, high = INTEGERS[WORDS[field.cpp_type]]
    return rng.choice([low, high, 0, 1, high // 3])


class RejectedError(Exception):
    """No column has this value."""


class Wanted:
    """What a column has for a message.

    Attributes:
        has_lost_digits: whether a time in a column had more than six digits.
        has_unknown: whether a message in an `Any` had fields that its schema lacks.
    """

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.has_lost_digits = self.has_unknown = False

    def value(self, one: Any, around: tuple[str, ...] = ()) -> Any:
        """Return what the column has, as Arrow returns it to Python; floats as their text."""
        name = type(one).DESCRIPTOR.full_name
        if name in around or name.rpartition(".")[2] in {"Any", "Struct", "Value", "ListValue"}:
            return Json(self.json(one))
        if name == "google.protobuf.Timestamp":
            self.json(one)
            self.has_lost_digits |= bool(one.nanos % 1000)
            return one.ToMicroseconds()
        if name.startswith("google.protobuf.") and name.endswith("Value"):
            return self.scalar(type(one).DESCRIPTOR.fields[0], one.value)
        if name in {"google.protobuf.Duration", "google.protobuf.FieldMask"}:
            return self.json(one)
        fields = self.fields(one)
        if not fields:
            return {"_present": True}
        return {
            short: self.field(field, value, lambda inner: self.value(inner, (*around, name)))
            if is_there
            else None
            for short, field, value, is_there in fields
        }

    def json(self, one: Any) -> Any:
        """Return what a JSON parser returns for it, with numbers as decimals."""
        name = type(one).DESCRIPTOR.full_name
        if name in {"google.protobuf.Timestamp", "google.protobuf.Duration"}:
            try:
                text: str = one.ToJsonString()
            except ValueError as error:
                raise RejectedError from error
            return Time(text) if text.endswith("Z") else Decimal(text.removesuffix("s"))
        if name == "google.protobuf.FieldMask":
            return ",".join(one.paths)
        if name.rpartition(".")[2] in {"Struct", "Value", "ListValue"}:
            if name.endswith(".Value") and one.WhichOneof("kind") is None:
                return None
            return doubles(json_format.MessageToDict(one))
        if name == "google.protobuf.Any":
            return self.any(one)
        if name.startswith("google.protobuf.") and name.endswith("Value"):
            return self.scalar(type(one).DESCRIPTOR.fields[0], one.value, is_json=True)
        return {
            short: self.field(field, value, self.json, is_json=True)
            for short, field, value, is_there in self.fields(one)
            if is_there
        }

    def any(self, one: Any) -> Any:
        if not one.type_url and not one.value:
            return {}
        as_bytes = {"@type": one.type_url, "value": b64encode(one.value).decode()}
        try:
            kind = self.pool.FindMessageTypeByName(one.type_url.rpartition("/")[2])
            inside = message_factory.GetMessageClass(kind).FromString(one.value)
        except (KeyError, message.DecodeError):
            return as_bytes
        if not BASE.IsInitialized(inside):
            return as_bytes
        tree = self.json(inside)
        self.has_unknown |= has_unknown(inside)
        if kind.full_name.startswith("google.protobuf.") and kind.name != "Empty":
            return {"@type": one.type_url, "value": tree}
        return {"@type": one.type_url, **tree}

    def fields(self, one: Any) -> list[tuple[str, Any, Any, bool]]:
        """Return name, descriptor, value of each field, and whether it is there."""
        listed = dict(message_fields(one))
        found = []
        extensions = self.pool.FindAllExtensions(type(one).DESCRIPTOR)
        extensions = sorted(extensions, key=lambda field: int(field.number))
        for field in [*type(one).DESCRIPTOR.fields, *extensions]:
            is_there = field.number in listed or not field.has_presence
            empty = {} if is_a_map(field) else [] if field.is_repeated else field.default_value
            found.append((field.name, field, listed.get(field.number, empty), is_there))
        return found

    def field(self, field: Any, value: Any, of_message: Any, is_json: bool = False) -> Any:
        def single(one: Any, inner: Any) -> Any:
            return of_message(inner) if one.message_type else self.scalar(one, inner, is_json)

        if is_a_map(field):
            keys, values = (field.message_type.fields_by_name[n] for n in ("key", "value"))
            if any(isinstance(key, bytes) for key in value):  # text that is not UTF-8
                raise RejectedError
            pairs = {key: single(values, value[key]) for key in value}
            if is_json:
                words = {key: next(iter(json.loads(json.dumps({key: 0})))) for key in pairs}
                return {words[key]: one for key, one in pairs.items()}
            return [(self.scalar(keys, key), pairs[key]) for key in sorted(pairs)]
        return [single(field, one) for one in value] if field.is_repeated else single(field, value)

    def scalar(self, field: Any, value: Any, is_json: bool = False) -> Any:
        if field.enum_type is not None:
            names = [one.name for one in field.enum_type.values if one.number == value]
            return names[0] if names else str(value)
        if field.type == FIELD.TYPE_STRING and isinstance(value, bytes):
            raise RejectedError
        if field.cpp_type == field.CPPTYPE_UINT64 and not is_json:
            return Decimal(value)
        if is_json and field.cpp_type == field.CPPTYPE_FLOAT:
            return Float32(value)
        return value


class Float32(float):
    """A number that JSON has in any way that is read as the same float32."""


class Time(str):
    """A time that JSON has with any number of zeros at its end."""

    __slots__ = ()

    def stripped(self) -> str:
        return re.sub(r"\.?0*Z$", "Z", self) if "." in self else str(self)


class Json:
    """What a text in a column is as JSON."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree


def doubles(tree: Any) -> Any:
    """Return a tree of Google's JSON, which prints the numbers of `Value` as integers."""
    if isinstance(tree, dict):
        return {name: doubles(one) for name, one in tree.items()}
    if isinstance(tree, list):
        return [doubles(one) for one in tree]
    return float(tree) if isinstance(tree, int) and not isinstance(tree, bool) else tree


def difference(found: Any, wanted: Any, path: str = "") -> str:
    """Return where the value of a column differs; empty if it does not."""
    if isinstance(wanted, Json):
        tree = json.loads(found, parse_float=Decimal, parse_int=Decimal)
        return difference_of_json(tree, wanted.tree, f"{path}=")
    if isinstance(wanted, dict) and isinstance(found, dict) and list(wanted) == list(found):
        return "".join(difference(found[one], wanted[one], f"{path}.{one}") for one in wanted)
    if isinstance(wanted, list | tuple) and len(wanted) == len(found):
        pairs = zip(found, wanted, strict=True)
        return "".join(difference(*pair, f"{path}[{n}]") for n, pair in enumerate(pairs))
    if isinstance(found, datetime):
        found = (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    is_same = type(found) is type(wanted) and repr(found) == repr(wanted)
    if isinstance(wanted, Decimal) and isinstance(found, Decimal):
        is_same = found == wanted
    return "" if is_same else f"{path}: {found!r}, not {wanted!r} "


def difference_of_json(found: Any, wanted: Any, path: str) -> str:
    """Return where a tree differs, whose numbers are decimals."""
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.keys() == found.keys():
        return "".join(
            difference_of_json(found[one], wanted[one], f"{path}.{one}") for one in wanted
        )
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = zip(found, wanted, strict=True)
        return "".join(difference_of_json(*pair, f"{path}[{n}]") for n, pair in enumerate(pairs))
    if isinstance(wanted, float) and math.isnan(wanted):
        is_same = found == "NaN"
    elif isinstance(wanted, float) and math.isinf(wanted):
        is_same = found == ("Infinity" if wanted > 0 else "-Infinity")
    elif isinstance(wanted, Float32):
        is_same = struct.pack("<f", found) == struct.pack("<f", wanted)
    elif isinstance(wanted, float):
        is_same = isinstance(found, Decimal) and repr(float(found)) == repr(wanted)
    elif isinstance(wanted, bytes):
        is_same = found == b64encode(wanted).decode()
    elif isinstance(wanted, Time):
        is_same = Time(found).stripped() == wanted.stripped()
    elif isinstance(wanted, bool) or wanted is None:
        is_same = found is wanted
    else:
        is_same = found == wanted and isinstance(found, str) == isinstance(wanted, str)
    return "" if is_same else f"{path}: {found!r}, not {wanted!r} "


def is_a_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def has_unknown(one: Any) -> bool:
    """Drop what a message has and its schema lacks; return whether there was any."""
    size = BASE.ByteSize(one)
    BASE.DiscardUnknownFields(one)
    return bool(BASE.ByteSize(one) != size)


def message_fields(one: Any) -> list[tuple[int, Any]]:
    """Return the numbers and values of the fields that are set."""
    return [(field.number, value) for field, value in BASE.ListFields(one)]
