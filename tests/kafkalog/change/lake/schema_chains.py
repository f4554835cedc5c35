"""Random chains of versions of an Avro schema, and what a table has of a value of each.

A field has one identity, however often it is renamed. What Avro's classes for Java resolve to the
newest version is that; what they refuse is what they read by the version of the value itself.
"""

from __future__ import annotations

import copy
import json
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.builders import varint
from tests.kafkalog.log.typed.avro_triples import definitions, logical, shown, sized
from tests.kafkalog.log.typed.test_avro_java import Case, answers

if TYPE_CHECKING:
    from random import Random

VERSIONS = 5
SCALARS: tuple[Any, ...] = (
    "boolean", "int", "long", "float", "double", "bytes", "string", logical("int", "date"),
    logical("long", "timestamp-millis"), logical("long", "local-timestamp-micros"),
    logical("int", "time-millis"), logical("string", "uuid"),
)  # fmt: skip
PROMOTIONS = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
              "string": ("bytes",), "bytes": ("string",)}  # fmt: skip
DEFAULTS = {"boolean": True, "int": 7, "long": 8, "float": 1.5, "double": 2.5, "string": "d",
            "bytes": "b"}  # fmt: skip
KINDS = {"date": "date", "timestamp-millis": "timestamp",
         "local-timestamp-micros": "timestamp_ntz", "time-millis": "string",
         "uuid": "string"}  # fmt: skip


class Chain:
    """Draws versions of a record; each has the fields of the one before, and some changes."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._count = 0
        tree = {"type": "record", "name": "Top", "fields": [self._field() for _ in range(4)]}
        self.versions: list[Any] = [tree]
        for _ in range(VERSIONS - 1):
            tree = copy.deepcopy(tree)
            self._change(tree)
            self.versions.append(tree)

    def _number(self) -> int:
        self._count += 1
        return self._count

    def _field(self) -> dict[str, Any]:
        number = self._number()
        kind = self._type(1)
        made = {"name": f"f{number}", "id": number, "names": [f"f{number}"], "type": kind,
                "raw": raw_of(kind)}  # fmt: skip
        if isinstance(kind, str) and self.rng.random() < 0.5:
            return {**made, "default": DEFAULTS[kind]}
        if not isinstance(kind, list):
            made["type"] = ["null", kind]
        return {**made, "default": None} if "null" in made["type"][:1] else made

    def _type(self, depth: int) -> Any:
        rng = self.rng
        chance = rng.random()
        if chance < 0.5 or depth > 2:
            return rng.choice(SCALARS)
        if chance < 0.58:
            return decimal(rng.choice((6, 9)))
        if chance < 0.66:
            symbols = {"symbols": ["A", "B", "C"], "default": "A"}
            return {"type": "enum", "name": f"E{self._number()}", **symbols}
        if chance < 0.76:
            items = rng.choice(SCALARS) if rng.random() < 0.6 else self._record()
            return {"type": "array", "items": items}
        if chance < 0.82:
            return {"type": "map", "values": rng.choice(SCALARS)}
        if chance < 0.88:
            return ["null", *rng.sample(["int", "string", "boolean", "double"], 2)]
        return self._record()

    def _record(self) -> Any:
        name = f"R{self._number()}"
        return {"type": "record", "name": name, "fields": [self._field() for _ in range(2)]}

    def _change(self, record: Any) -> None:
        rng = self.rng
        fields = record["fields"]
        for one in list(fields):
            below = records(one["type"])
            if below and rng.random() < 0.6:
                self._change(rng.choice(below))
        for _ in range(rng.choice((1, 2, 2))):
            one = rng.choice(fields)
            chance = rng.random()
            if chance < 0.2:
                fields.insert(rng.randint(0, len(fields)), self._field())
            elif chance < 0.3 and len(fields) > 1:
                fields.remove(one)
            elif chance < 0.45:
                one["aliases"] = [*one.get("aliases", ()), one["name"]]
                one["name"] = f"f{self._number()}"
                one["names"].append(one["name"])
            else:
                self._retype(one)

    def _retype(self, one: dict[str, Any]) -> None:
        rng = self.rng
        kind = plain(one["type"])
        chance = rng.random()
        if isinstance(kind, dict) and kind["type"] == "enum" and chance < 0.5:
            kind["symbols"] = rng.choice((["B", "A"], ["Z", "C", "A", "B"]))
            return
        if isinstance(kind, dict) and kind.get("logicalType") == "decimal" and chance < 0.5:
            kind["precision"] += 3
            return
        if isinstance(kind, str) and kind in PROMOTIONS and chance < 0.3:
            new = rng.choice(PROMOTIONS[kind])
        elif chance < 0.4:
            is_scalar = isinstance(kind, str) or kind in SCALARS
            new = {"type": "array", "items": kind} if is_scalar else "int"
        elif chance < 0.5:
            new = ["null", "int", rng.choice(("boolean", "double"))]
        elif chance < 0.6:
            new = kind  # whether it can be null may change
        else:
            new = self._type(1)
        while raw_of(new) not in ("", one["raw"] or raw_of(new)):  # bytes that are no text
            new = self._type(1)
        one["raw"] = one["raw"] or raw_of(new)
        if isinstance(new, list):
            one["type"], one["default"] = new, None
        elif rng.random() < 0.5 and isinstance(new, str):
            one["type"], one["default"] = new, DEFAULTS[new]
        else:
            one["type"], one["default"] = ["null", new], None


def decimal(precision: int) -> Any:
    return logical("bytes", "decimal", precision=precision, scale=2)


def raw_of(node: Any) -> str:
    """Return whether a type has texts, or bytes that are none: Avro takes one for the other."""
    if isinstance(node, list):
        return next(filter(None, map(raw_of, node)), "")
    if isinstance(node, str):
        return "text" if node in ("string", "bytes") else ""
    if node.get("logicalType") == "decimal":
        return "decimal"
    return raw_of(node.get("items", node.get("values", node["type"])))


def plain(node: Any) -> Any:
    """Return the type without null, if it has one other."""
    return node[1] if isinstance(node, list) and len(node) == 2 and node[0] == "null" else node


def records(node: Any) -> list[Any]:
    """Return the records that a type is, or has as items."""
    node = plain(node)
    if isinstance(node, dict) and node["type"] == "array":
        return records(node["items"])
    return [node] if isinstance(node, dict) and node["type"] == "record" else []


# Values ------------------------------------------------------------------------------------------


def value_of(node: Any, rng: Random) -> Any:
    """Return a value; of unions the branch with it."""
    if isinstance(node, list):
        place = rng.choice((0, *range(1, len(node)), *range(1, len(node))))
        return place, value_of(node[place], rng)
    tree = {"type": node} if isinstance(node, str) else node
    kind, what = tree["type"], tree.get("logicalType", "")
    if kind == "record":
        return [value_of(one["type"], rng) for one in tree["fields"]]
    if kind == "array":
        return [value_of(tree["items"], rng) for _ in range(rng.choice((0, 1, 2)))]
    if kind == "map":
        return {key: value_of(tree["values"], rng) for key in rng.choice(("", "a", "ab"))}
    if kind == "enum":
        return rng.randrange(len(tree["symbols"]))
    if what == "decimal":
        return rng.randint(-30000, 30000).to_bytes(4, "big", signed=True)
    if what in ("date", "time-millis"):
        return rng.randrange(10000)
    if what == "uuid":
        return str(rng.randrange(10**12)).encode() + b"-4b6f-4b6f-8b6f-4b6f4b6f4b6f"
    if what:
        return rng.randrange(10**12)
    return {
        "null": None, "boolean": rng.random() < 0.5, "int": rng.randrange(1 << 20),
        "long": rng.randrange(1 << 40), "float": rng.choice((0.5, 0.1, -3.0)),
        "double": rng.choice((0.1, 1e300)), "bytes": b"xy"[: rng.randrange(3)],
        "string": rng.choice(("", "ä", "zz")).encode(),
    }[kind]  # fmt: skip


def data_of(node: Any, value: Any) -> bytes:
    """Return the bytes of a value."""
    if isinstance(node, list):
        return varint(value[0]) + data_of(node[value[0]], value[1])
    tree = {"type": node} if isinstance(node, str) else node
    kind = tree["type"]
    if kind == "record":
        pairs = zip(tree["fields"], value, strict=True)
        return b"".join(data_of(one["type"], each) for one, each in pairs)
    if kind == "array":
        items = b"".join(data_of(tree["items"], one) for one in value)
        return (varint(len(value)) + items if value else b"") + varint(0)
    if kind == "map":
        pairs = ((sized(key.encode()), one) for key, one in value.items())
        items = b"".join(key + data_of(tree["values"], one) for key, one in pairs)
        return (varint(len(value)) + items if value else b"") + varint(0)
    if kind in ("int", "long", "enum"):
        return varint(value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    return {"null": bytes, "boolean": lambda: bytes([value])}.get(kind, lambda: sized(value))()


# What is expected --------------------------------------------------------------------------------


@dataclass
class Java:
    """Collects what to ask Java, and asks it once."""

    _cases: list[Case] = field(default_factory=list)
    _found: list[str] = field(default_factory=list)

    def ask(self, writer: Any, reader: Any, data: bytes) -> int:
        self._cases.append(Case(json.dumps(writer), writer, json.dumps(reader), [data]))
        return len(self._cases) - 1

    def __getitem__(self, number: int) -> str:
        if not self._found:
            self._found = answers(self._cases)
        return self._found[number]


@dataclass
class Leaf:
    """A value without parts, as Java reads it; or what it is by its own schema."""

    node: Any
    answer: int
    own: Any


Wanted = Any
"""None, a `Leaf`, a list of these, or a dictionary of them by the identity of fields."""


def wanted(writer: Any, reader: Any, value: Any, java: Java) -> Wanted:
    """Return what a table has of a value of a writer, while the newest version is the reader."""
    data = data_of(writer, value)
    one, other = writer, plain(reader)
    while isinstance(one, list):
        one, value = one[value[0]], value[1]
        if value is None:
            return None  # every column has it
    if is_kind(one, "record") and is_kind(other, "record"):
        return wanted_fields(one, other, value, java)
    if is_kind(one, "array") and is_kind(other, "array") and records(one) and records(other):
        return [wanted(one["items"], other["items"], item, java) for item in value]
    own = None if one is reader else wanted(one, one, value, java)
    return Leaf(reader, java.ask(writer, reader, data), own)


def wanted_fields(writer: Any, reader: Any, value: list[Any], java: Java) -> dict[int, Wanted]:
    written = {one["id"]: (one["type"], each)
               for one, each in zip(writer["fields"], value, strict=True)}  # fmt: skip
    found: dict[int, Wanted] = {}
    for one in reader["fields"]:
        if one["id"] in written:
            kind, each = written[one["id"]]
            found[one["id"]] = wanted(kind, one["type"], each, java)
        elif one["default"] is not None:
            empty, alone = ({"type": "record", "name": "D", "fields": f} for f in ([], [one]))
            found[one["id"]] = Leaf((alone, one["type"]), java.ask(empty, alone, b""), None)
    return found


def is_kind(node: Any, kind: str) -> bool:
    return isinstance(node, dict) and node["type"] == kind


def kind_of(node: Any) -> Any:
    """Return the type that a column has, as names of conflict columns end; of lists, with items."""
    node = plain(node)
    if isinstance(node, list):
        return "struct"
    tree = {"type": node} if isinstance(node, str) else node
    kind, what = tree["type"], tree.get("logicalType", "")
    if what == "decimal":
        return f"decimal_{tree['precision']}_{tree['scale']}"
    if kind == "array":
        return "list", kind_of(tree["items"])
    if kind == "map":
        return "map", kind_of(tree["values"])
    if kind == "record":
        return "struct"
    return KINDS.get(what) or {"int": "long", "bytes": "binary", "enum": "string"}.get(kind, kind)


def kind_of_arrow(kind: Any) -> Any:
    is_ = pa.types
    if is_.is_decimal(kind):
        return f"decimal_{kind.precision}_{kind.scale}"
    if is_.is_list(kind) or is_.is_large_list(kind):
        return "list", kind_of_arrow(kind.value_type)
    if is_.is_map(kind):
        return "map", kind_of_arrow(kind.item_type)
    if is_.is_struct(kind):
        return "struct"
    if is_.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    name = str(kind).removeprefix("large_").partition("[")[0]
    return {"bool": "boolean", "int64": "long", "date32": "date"}.get(name, name)


def has_place(kind: Any, column: Any) -> bool:
    """Return whether a column has the values of a type: only wider numbers have those of others."""
    if isinstance(kind, tuple) and isinstance(column, tuple):
        return kind[0] == column[0] and has_place(kind[1], column[1])
    if (kind, column) == ("float", "double") or kind == column:
        return True
    numbers = [re.fullmatch(r"decimal_(\d+)_(\d+)", str(one)) for one in (kind, column)]
    if None in numbers:
        return False
    (narrow, its), (wide, scale) = [[int(one) for one in m.groups()] for m in numbers if m]
    return its == scale and narrow <= wide


# The comparison ----------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Compares rows of a table with what is expected.

    Attributes:
        names: of fields by their identity.
        has_null_lists: whether the reader tells lists and maps that are null from empty ones.
        conflicts: the conflict columns that had values.
        refused: how many values Java refused, by the field.
    """

    java: Java
    names: dict[int, list[str]]
    has_null_lists: bool
    conflicts: set[str] = field(default_factory=set)
    refused: int = 0

    def fields(self, row: dict[str, Any], kind: Any, want: dict[int, Wanted], path: str) -> None:
        """Check the fields of a struct; what nothing is expected of is null."""
        left = set(row)
        for number, names in self.names.items():
            columns = [one for one in kind if one.name.partition("__")[0] in names]
            if columns:
                left -= {one.name for one in columns}
                self.field(row, columns, want.get(number), f"{path}.{names[0]}")
        assert all(row[one] is None for one in left), (path, left, row)  # of a union

    def field(self, row: dict[str, Any], columns: list[Any], want: Wanted, path: str) -> None:
        answer = ""
        while isinstance(want, Leaf):
            answer = self.java[want.answer]
            if answer == "null":
                want = None
            if not answer.startswith("!"):
                break
            self.refused += 1
            assert want.own is not None, (path, answer)
            want = want.own
        there = [one for one in columns if not self.is_null(row[one.name])]
        if want is None or self.is_empty(want, answer):
            assert there == [], (path, row)
            return
        assert len(there) == 1, (path, [one.name for one in there], row, want)
        [column] = there
        node = want.node if isinstance(want, Leaf) else None
        if isinstance(node, tuple):  # a default
            node = node[1]
        self.column(column, want, node, path)
        value = row[column.name]
        if isinstance(want, Leaf):
            found, java = shown(value, node, definitions(node)), json.loads(answer)
            if isinstance(want.node, tuple):
                [java] = java.values()
            assert found == java, (path, column.name, value, java)
        elif isinstance(want, dict):
            self.fields(value, column.type, want, path)
        else:
            assert len(value) == len(want), (path, value, want)
            for item, each in zip(value, want, strict=True):
                self.item(item, column.type.value_type, each, f"{path}[]")

    def item(self, item: Any, kind: Any, want: Wanted, path: str) -> None:
        if isinstance(want, dict):
            self.fields(item, kind, want, path)
        elif isinstance(want, list):
            for one, each in zip(item, want, strict=True):
                self.item(one, kind.value_type, each, f"{path}[]")
        else:
            assert (want, item) == (None, None), path

    def column(self, column: Any, want: Wanted, node: Any, path: str) -> None:
        """Check that a value is in a column of its type, whose name says so."""
        here = kind_of_arrow(column.type)
        _, _, name = column.name.partition("__")
        if isinstance(want, Leaf):
            kind = kind_of(node)
            assert has_place(kind, here), (path, kind, here)
        else:
            assert here == (("list", "struct") if isinstance(want, list) else "struct"), path
        if name:
            self.conflicts.add(f"{path}: {column.name}")
            kind_name = here[0] if isinstance(here, tuple) else here
            is_same = re.sub(r"_\d$", "", name) == re.sub(r"_\d$", "", kind_name)
            # Iceberg widens a conflict column, too, which keeps its name.
            assert is_same or has_place(name, kind_name), (path, name, here)

    def is_null(self, value: Any) -> bool:
        return value is None or (not self.has_null_lists and value == [])

    def is_empty(self, want: Wanted, answer: str) -> bool:
        return not self.has_null_lists and (want == [] or answer in ("[]", "{}"))


def names_of(versions: list[Any]) -> dict[int, list[str]]:
    """Map the identities of all fields to their names."""
    found: dict[int, list[str]] = {}
    for version in versions:
        rest = [version]
        while rest:
            for one in rest.pop()["fields"]:
                found[one["id"]] = one["names"]
                kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
                rest += [each for kind in kinds for each in records(kind)]
    return found
