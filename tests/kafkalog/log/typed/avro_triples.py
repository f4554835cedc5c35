"""Random schemas of a writer and a reader, and bytes; and how a column shows what they become."""

from __future__ import annotations

import copy
import json
import struct
from base64 import b64decode
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.builders import varint

if TYPE_CHECKING:
    from random import Random

PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
         "string": ("bytes",), "bytes": ("string",)}  # fmt: skip
MOMENTS = ("timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis",
           "local-timestamp-micros", "local-timestamp-nanos")  # fmt: skip
TEXTS = ("", "a", "ä€", "𝄞" * 5, '"\\', "x" * 70)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def logical(kind: str, what: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": what, **more}


class Schemas:
    """Draws schemas. Names are full ones; `dressed` writes them in the ways that Avro knows."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        # Within a namespace no name without one can be used.
        self.spaces = rng.choice((("",), ("a", "a.b", "c")))
        self._count = 0
        self._open: list[str] = []  # records around the place
        self._done: list[str] = []  # named types before it

    def name(self, letter: str) -> str:
        self._count += 1
        space = self.rng.choice(self.spaces)
        return f"{space}.{letter}{self._count}".lstrip(".")

    def record(self, depth: int) -> Any:
        name = self.name("R")
        self._open.append(name)
        fields = [self.field(depth) for _ in range(self.rng.choice((0, 1, 2, 3, 3, 4)))]
        self._open.pop()
        self._done.append(name)
        return {"type": "record", "name": name, "fields": fields}

    def field(self, depth: int) -> Any:
        self._count += 1
        # Some differ in case only.
        letter = self.rng.choice("fF")
        return {"name": f"{letter}{self._count}", "type": self.type(depth + 1)}

    def type(self, depth: int, *, in_union: bool = False) -> Any:
        rng = self.rng
        chance = rng.random()
        if chance < 0.35 or depth > 3:
            return rng.choice(PRIMITIVES)
        if chance < 0.5:
            return self.logical()
        if chance < 0.54:
            return "null"
        if chance < 0.6 and self._open:
            name = rng.choice(self._open)
            return rng.choice((["null", name], {"type": "array", "items": name},
                               {"type": "map", "values": name}) if not in_union else
                              ({"type": "array", "items": name},))  # fmt: skip
        if chance < 0.64 and self._done and not in_union:
            return rng.choice(self._done)
        if chance < 0.7:
            return {"type": "array", "items": self.type(depth + 1)}
        if chance < 0.75:
            return {"type": "map", "values": self.type(depth + 1)}
        if chance < 0.83:
            return self.record(depth)
        if chance < 0.87:
            return self._named({"type": "enum", "name": self.name("E"), "symbols": ["A", "B", "C"]})
        if chance < 0.9:
            return self._named(
                {"type": "fixed", "name": self.name("X"), "size": rng.choice((0, 1, 4))}
            )
        return self.logical() if in_union else self.union(depth)

    def _named(self, node: Any) -> Any:
        self._done.append(node["name"])
        return node

    def logical(self) -> Any:
        rng = self.rng
        return rng.choice((
            lambda: logical("int", "date"), lambda: logical("int", "time-millis"),
            lambda: logical("long", "time-micros"), lambda: logical("long", rng.choice(MOMENTS)),
            lambda: logical("long", rng.choice(MOMENTS)), lambda: logical("string", "uuid"),
            lambda: logical("bytes", "decimal", precision=rng.choice((4, 18, 20, 38, 50)), scale=2),
            lambda: logical("bytes", "decimal", precision=2, scale=5),
            lambda: logical("bytes", "big-decimal"), lambda: logical("int", "nothing"),
            lambda: self._named(logical("fixed", "uuid", name=self.name("U"), size=16)),
            lambda: self._named(logical("fixed", "duration", name=self.name("D"), size=12)),
            lambda: self._named(logical("fixed", "decimal", name=self.name("F"), size=6,
                                        precision=rng.choice((9, 14, 30)), scale=3)),
        ))()  # fmt: skip

    def union(self, depth: int) -> Any:
        branches: list[Any] = ["null"] * (self.rng.random() < 0.6)
        for _ in range(self.rng.choice((1, 1, 2, 3, 4))):
            one = self.type(depth + 1, in_union=True)
            is_new = branch_key(one) not in map(branch_key, branches)
            # Of two decimals, or two times of day, Java cannot say which branch one is of.
            if is_new and not (family(one) and family(one) in map(family, branches)):
                branches.append(one)
        self.rng.shuffle(branches)
        return branches or ["null"]


def family(node: Any) -> str:
    what = node.get("logicalType", "") if isinstance(node, dict) else ""
    return str(what.removeprefix("big-").partition("-")[0])


def branch_key(node: Any) -> str:
    """Return what a union can have once."""
    if isinstance(node, str):
        return node
    kind: str = node["type"]
    return node.get("name", kind)


class Changes:
    """Makes the reader's schema of a writer's."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._rng = schemas.rng
        self._names: dict[str, str] = {}

    def made(self, tree: Any) -> Any:
        found = self._changed(copy.deepcopy(tree))
        return renamed(found, self._names)

    def _changed(self, node: Any) -> Any:
        rng = self._rng
        if isinstance(node, list):
            node = [self._changed(one) for one in node]
            if rng.random() < 0.2:
                rng.shuffle(node)
            if rng.random() < 0.1 and len(node) > 1:
                node.pop()
            if rng.random() < 0.1 and "string" not in map(branch_key, node):
                node.append("string")
            keys = [branch_key(one) for one in node]
            return [one for i, one in enumerate(node) if branch_key(one) not in keys[:i]]
        if isinstance(node, str):
            if node in WIDER and rng.random() < 0.15:
                return rng.choice(WIDER[node])
            return node
        kind = node["type"]
        if "name" in node and rng.random() < 0.15:
            old = node["name"]
            # Mostly with an alias, as one should.
            self._names[old] = self._schemas.name(kind[0].upper())
            if rng.random() < 0.3 and "." in old:
                self._names[old] = f"z.{old}"
            if rng.random() < 0.85:
                node["aliases"] = [old]
        if kind == "record":
            self._change_fields(node["fields"])
        if kind == "enum" and rng.random() < 0.4:
            node["symbols"] = rng.choice((["B", "A"], ["Z", "C", "A", "B"]))
            if rng.random() < 0.6:
                node["default"] = node["symbols"][0]
        for key in ("items", "values"):
            if key in node:
                node[key] = self._changed(node[key])
        return node

    def _change_fields(self, fields: list[Any]) -> None:
        rng = self._rng
        for one in fields:
            one["type"] = self._changed(one["type"])
            if not isinstance(one["type"], list) and one["type"] != "null" and rng.random() < 0.1:
                one["type"] = rng.choice((["null", one["type"]], [one["type"]]))
            if rng.random() < 0.1:
                one["aliases"] = [one["name"]]
                one["name"] = f"n{one['name']}"
        if fields and rng.random() < 0.2:
            fields.pop(rng.randrange(len(fields)))
        if rng.random() < 0.35:
            new = self._schemas.field(2)
            new["default"] = default_of(new["type"], rng)
            if new["default"] is not ...:
                fields.insert(rng.randint(0, len(fields)), new)


def renamed(node: Any, names: dict[str, str]) -> Any:
    """Replace the names of types, also where they are used."""
    if isinstance(node, str):
        return names.get(node, node)
    if isinstance(node, list):
        return [renamed(one, names) for one in node]
    found = {key: renamed(one, names) if key in ("items", "values") else one
             for key, one in node.items()}  # fmt: skip
    if "name" in node:
        found["name"] = names.get(node["name"], node["name"])
    if "fields" in node:
        found["fields"] = [{**one, "type": renamed(one["type"], names)} for one in node["fields"]]
    return found


def default_of(node: Any, rng: Random) -> Any:
    """Return a default in JSON, or `...` if the type has none here."""
    if isinstance(node, list):
        found = default_of(rng.choice(node), rng)
        # Java makes 1.5 an integer if there is a branch for those, and loses the half.
        has_integers = any(one in ("int", "long") or "logicalType" in one for one in node)
        return 7 if isinstance(found, float) and has_integers else found
    tree = {"type": node} if isinstance(node, str) else node
    kind = tree["type"]
    if kind == "record":
        found = {one["name"]: default_of(one["type"], rng) for one in tree["fields"]}
        for one in tree["fields"]:
            if found[one["name"]] is not ... and rng.random() < 0.3:
                one["default"] = found.pop(one["name"])  # the field's own default
        return ... if ... in found.values() else found
    if kind == "array":
        item = default_of(tree["items"], rng)
        return [] if item is ... else [item] * rng.randrange(3)
    if kind == "map":
        item = default_of(tree["values"], rng)
        return {} if item is ... or rng.random() < 0.3 else {"ä": item}
    if tree.get("logicalType") == "big-decimal":
        return "\u0004\u00ff\u0001\u0006"
    return {
        "null": None, "boolean": True, "int": 7, "long": 8, "float": 1.5, "double": 2.5,
        "string": "dé",
        "bytes": "\u0001\u0086", "enum": "B", "fixed": "\u00fe" * tree.get("size", 0),
    }.get(kind, ...)  # fmt: skip


def dressed(node: Any, rng: Random, space: str = "") -> Any:
    """Return the schema with names as people write them: with a namespace, or without it."""
    if isinstance(node, list):
        return [dressed(one, rng, space) for one in node]
    if isinstance(node, str):
        around, _, short = node.rpartition(".")
        return short if around and around == space and rng.random() < 0.7 else node
    found = dict(node)
    if "name" in node:
        around, _, short = node["name"].rpartition(".")
        if around != space or rng.random() < 0.3:
            found["name"], found["namespace"] = short, around
        else:
            found["name"] = short
        if around and rng.random() < 0.3:
            found["name"] = node["name"]
            found.pop("namespace", None)
        # An alias without a namespace is in that of its type.
        found["aliases"] = [one for one in node.get("aliases", ()) if "." in one or not around]
        space = around
    for key in ("items", "values"):
        if key in node:
            found[key] = dressed(node[key], rng, space)
    if "fields" in node:
        found["fields"] = [
            {**one, "type": dressed(one["type"], rng, space)} for one in node["fields"]
        ]
    return found


def definitions(tree: Any, found: dict[str, Any] | None = None) -> dict[str, Any]:
    """Map the names in a schema to their definitions."""
    found = {} if found is None else found
    if isinstance(tree, list):
        for one in tree:
            definitions(one, found)
    elif isinstance(tree, dict):
        if "name" in tree:
            found[tree["name"]] = tree
        for one in (*(tree[key] for key in ("items", "values") if key in tree),
                    *(one["type"] for one in tree.get("fields", ()))):  # fmt: skip
            definitions(one, found)
    return found


def is_whole(tree: Any) -> bool:
    """Return whether a schema defines all names that it uses."""
    names = definitions(tree)
    rest = [tree]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            if one != "null" and one not in PRIMITIVES and one not in names:
                return False
        elif isinstance(one, list):
            rest += one
        else:
            rest += [one[key] for key in ("items", "values") if key in one]
            rest += [each["type"] for each in one.get("fields", ())]
    return True


def data_of(node: Any, names: dict[str, Any], rng: Random, depth: int = 0) -> bytes:
    """Return bytes of a random value."""
    if isinstance(node, list):
        places = [i for i, one in enumerate(node) if one == "null"] if depth > 6 else []
        place = rng.choice(places or range(len(node)))
        return varint(place) + data_of(node[place], names, rng, depth + 1)
    tree = names.get(node, {"type": node}) if isinstance(node, str) else node
    kind = tree["type"]
    if kind == "record":
        return b"".join(data_of(one["type"], names, rng, depth + 1) for one in tree["fields"])
    if kind in ("array", "map"):
        count = rng.choice((0, 1, 2, 5)) if depth < 7 else 0
        items = [
            (sized(rng.choice("abcd").encode()) if kind == "map" else b"")
            + data_of(tree["items" if kind == "array" else "values"], names, rng, depth + 1)
            for _ in range(count)
        ]
        if count and rng.random() < 0.2:  # a block with its size, and another one
            first = items.pop(0)
            rest = varint(len(items)) + b"".join(items) if items else b""
            return varint(-1) + varint(len(first)) + first + rest + varint(0)
        return (varint(count) if count else b"") + b"".join(items) + varint(0)
    if kind == "enum":
        return varint(rng.randrange(len(tree["symbols"])))
    if kind == "fixed":
        return rng.randbytes(tree["size"])
    if kind in ("int", "long"):
        return varint(number_of(tree.get("logicalType", ""), kind, rng))
    return {
        "null": lambda: b"", "boolean": lambda: rng.choice((b"\0", b"\1")),
        "float": lambda: struct.pack("<f", rng.choice((0.1, -2.5, float("nan"), float("inf")))),
        "double": lambda: struct.pack("<d", rng.choice((0.1, -1e-300, 7.0, float("-inf")))),
        "string": lambda: sized(rng.choice(TEXTS).encode()),
        "bytes": lambda: sized(bytes_of(tree, rng)),
    }[kind]()  # fmt: skip


def bytes_of(tree: Any, rng: Random) -> bytes:
    if tree.get("logicalType") == "big-decimal":
        return sized(rng.randbytes(rng.randint(1, 12))) + varint(rng.randint(-5, 20))
    if tree.get("logicalType") == "decimal":
        size = max(1, int(tree["precision"] / 2.5) + rng.choice((0, 0, 0, 1)))
        return rng.randbytes(rng.randint(1, size))
    return rng.choice((b"", b"a", b"\xff\0", "€".encode()))


def number_of(name: str, kind: str, rng: Random) -> int:
    if name == "date":
        return rng.randint(-800_000, 2_900_000)
    if name.startswith("time-"):
        return rng.randrange(86_400_000) * (1000 if name == "time-micros" else 1)
    if name.startswith(("timestamp-", "local-timestamp-")):
        scale = {"millis": 1, "micros": 1000, "nanos": 1_000_000}[name.rpartition("-")[2]]
        number = rng.randint(-2 * 10**12, 4 * 10**12) * scale + rng.randrange(scale)
        return number if rng.random() < 0.9 else number // 1000 * 1000
    bits = rng.randrange(32 if kind == "int" else 64)
    number = rng.getrandbits(bits)
    return rng.choice((number, -number - 1))


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def damaged(data: bytes, rng: Random) -> bytes:
    """Return the value cut, lengthened, or with another byte."""
    place = rng.randrange(len(data) + 1)
    if rng.random() < 0.3:
        return data[:place]
    if rng.random() < 0.3:
        return data[:place] + rng.randbytes(rng.randint(1, 4)) + data[place:]
    return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]


# What a column shows, in the words of ResolvedValues.java -----------------------------------------


def shown(value: Any, node: Any, names: dict[str, Any], *, is_json: bool = False,
          above: tuple[str, ...] = ()) -> Any:  # fmt: skip
    """Return a value of a column, or of the JSON in it, as Java shows what it stands for."""
    if isinstance(node, list):
        return shown_branch(value, node, names, is_json=is_json, above=above)
    tree = names.get(node, {"type": node}) if isinstance(node, str) else node
    kind, what = tree["type"], tree.get("logicalType", "")
    if kind == "null":
        return None
    if not is_json and (is_null_only(tree) or tree.get("name") in above):
        value, is_json = parsed(value), True
    if kind == "record":
        above = (*above, tree["name"])
        columns = iter(value.values() if is_json else struct_values(value, tree, names))
        return {
            one["name"]: None if not is_json and is_only_null(one["type"]) else
            shown(next(columns), one["type"], names, is_json=is_json, above=above)
            for one in tree["fields"]
        }  # fmt: skip
    if kind == "array":
        return [shown(one, tree["items"], names, is_json=is_json, above=above) for one in value]
    if kind == "map":
        pairs = value.items() if is_json else value
        return {key: shown(one, tree["values"], names, is_json=is_json, above=above)
                for key, one in sorted(pairs)}  # fmt: skip
    return shown_scalar(value, tree, kind, what, is_json=is_json)


def struct_values(value: dict[str, Any], tree: Any, names: dict[str, Any]) -> list[Any]:
    """Return the values of a record's fields; in a column they may have other names."""
    wanted = [one for one in tree["fields"] if not is_only_null(one["type"])]
    if not wanted:
        assert value == {"_present": True}
        return []
    assert len(value) == len(wanted), (value, names)
    assert len({key.lower() for key in value}) == len(value)
    return list(value.values())


def is_only_null(node: Any) -> bool:
    return node in ("null", ["null"], [])


def is_null_only(tree: Any) -> bool:
    """Return whether an array or a map has only nulls, and is JSON for that."""
    return is_only_null(tree.get("items", tree.get("values", "int")))


def parsed(text: str) -> Any:
    return json.loads(text, parse_float=Number, parse_constant=lambda one: 1 // len(one[:0]))


class Number(str):
    """The digits of a number in JSON."""

    __slots__ = ()


def shown_branch(value: Any, node: list[Any], names: dict[str, Any], *, is_json: bool,
                 above: tuple[str, ...]) -> Any:  # fmt: skip
    others = [one for one in node if one != "null"]
    if value is None:
        return None
    kinds = {one if isinstance(one, str) else str(one.get("logicalType", "")) for one in others}
    if len(others) == 1 or kinds in ({"int", "long"}, {"float", "double"}):
        one = "double" if kinds == {"float", "double"} else others[0]
        return shown(value, one, names, is_json=is_json, above=above)
    [name] = [key for key, one in value.items() if one is not None]
    places = [i for i, one in enumerate(node) if branch_name(one, node) == name]
    [place] = places
    inner = shown(value[name], node[place], names, is_json=is_json, above=above)
    return {"branch": place, "value": inner}


def branch_name(node: Any, union: list[Any]) -> str:
    def short(one: Any) -> str:
        return branch_key(one).rpartition(".")[2]

    is_alone = [short(one) for one in union].count(short(node)) == 1
    return short(node) if is_alone else branch_key(node).replace(".", "_")


def shown_scalar(value: Any, tree: Any, kind: str, what: str, *, is_json: bool) -> Any:
    is_valid = what == "big-decimal" or (
        what == "decimal" and tree["scale"] <= tree["precision"]
        and ("size" not in tree or tree["precision"] <= 14)
    )  # fmt: skip
    if kind in ("bytes", "fixed") and is_valid:
        return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if what == "duration":
        return f"{value['months']} {value['days']} {value['millis']}"
    if what == "uuid":
        return value
    if kind in ("bytes", "fixed"):
        return "x" + (b64decode(value) if is_json else value).hex()
    if kind in ("float", "double"):
        number = float(value)
        return "f" + ("7ff8000000000000" if number != number else struct.pack(">d", number).hex())
    if what == "date":
        day = date.fromisoformat(value) if is_json else value
        return (day - date(1970, 1, 1)).days
    if what.startswith("time-"):
        clock, _, decimals = value.partition(".")
        hours, minutes, seconds = map(int, clock.split(":"))
        return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int(decimals.ljust(9, "0"))
    if "timestamp" in what:
        if is_json:
            assert value.endswith("Z") == (not what.startswith("local-"))
            value = datetime.fromisoformat(value)
        return (value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    return value
