"""Avro's schemas: parsed, with names and aliases resolved by their namespaces."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from formats.constants import INT32_MAX
from kafkalog.log.typed.connect_names import logical_of, whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

PRIMITIVES: Final = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)
_REFERENCE: Final = "reference"  # to a name, in `aliases`: with the namespace around it, and as is
_DURATION_SIZE: Final = 12
_UUID_SIZE: Final = 16
_LOGICAL: Final = {
    "int": ("date", "time-millis"),
    "long": ("time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
             "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    "bytes": ("decimal", "big-decimal"),
    "string": ("uuid",),
    "fixed": ("decimal", "uuid", "duration"),
}  # fmt: skip


class SchemaError(ValueError):
    """A text is not a schema of Avro."""


@dataclass(slots=True, eq=False)
class Node:
    """A type of a schema; a record can be within itself.

    Attributes:
        kind: `record` also for errors, `union`, `array`, and so on.
        name: the full name of a record, enum or fixed; empty for others.
        aliases: full names that it also has.
        fields: those of a record.
        symbols, default: those of an enum.
        size: of a fixed, in bytes.
        parts: the branches of a union; the one type of items or values of an array or a map.
        logical: its logical type if that is valid, or what Kafka Connect says of it; else empty.
        precision, scale: of a decimal.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: list[Field] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    default: str | None = None
    size: int = 0
    parts: list[Node] = field(default_factory=list)
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def short(self) -> str:
        """Its name without a namespace; of what has no name, its kind."""
        return self.name.rpartition(".")[2] or self.kind


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record; `default` is as in the schema, and one field can be without any."""

    name: str
    type: Node
    aliases: tuple[str, ...]
    default: Any
    has_default: bool


def parse(texts: Sequence[str | bytes]) -> Node:
    """Return the last of some schemas, of which each can refer to names in those before it.

    Raises:
        SchemaError: one of them is malformed, or refers to what is nowhere.
        RecursionError: it is nested too deeply.
    """
    names = _Names()
    nodes = [names.node(_json(text), "") for text in texts]
    names.settle()
    return _settled(nodes[-1])


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SchemaError(str(error)) from error


class _Names:
    """The named types of some schemas. A type may be used before the place that defines it."""

    def __init__(self) -> None:
        self._known: dict[str, Node] = {}
        self._made: list[Node] = []

    def node(self, tree: Any, space: str) -> Node:
        if isinstance(tree, str):
            return self._referred(tree, space)
        if isinstance(tree, list):
            return self._union(tree, space)
        if not isinstance(tree, dict) or "type" not in tree:
            raise SchemaError(f"no type: {json.dumps(tree):.60}")
        kind = tree["type"]
        if not isinstance(kind, str):
            return self.node(kind, space)
        if kind in ("array", "map"):
            items = tree.get("items" if kind == "array" else "values")
            return self._kept(Node(kind, parts=[self.node(items, space)]))
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(tree, "record" if kind == "error" else kind, space)
        if kind in PRIMITIVES:
            return _logical(Node(kind), tree)
        return self._referred(kind, space)

    def settle(self) -> None:
        """Replace references by what they stand for.

        Raises:
            SchemaError: a name is not defined, or a union has two branches of one type.
        """
        for one in self._made:
            if one.kind == _REFERENCE:
                found = [self._known[name] for name in one.aliases if name in self._known]
                if not found:
                    raise SchemaError(f"{one.name!r:.60} is not defined")
                one.parts = found[:1]
        for one in self._made:
            if one.kind != _REFERENCE:
                one.parts = [_settled(part) for part in one.parts]
                for each in one.fields:
                    each.type = _settled(each.type)
        for one in self._made:
            kinds = [part.name or part.kind for part in one.parts]
            if one.kind == "union" and len({*kinds}) < len(kinds):
                raise SchemaError("a union has two branches of one type")

    def _referred(self, name: str, space: str) -> Node:
        if name in PRIMITIVES:
            return Node(name)
        full = _full(name, space)
        return self._kept(Node(_REFERENCE, name, (full, name)))

    def _union(self, tree: list[Any], space: str) -> Node:
        parts = [self.node(one, space) for one in tree]
        if any(one.kind == "union" for one in parts):
            raise SchemaError("a union within a union")
        return self._kept(Node("union", parts=parts))

    def _named(self, tree: Any, kind: str, space: str) -> Node:
        given, said = tree.get("name"), tree.get("namespace", space)
        if not isinstance(given, str) or not given or not isinstance(said, str):
            raise SchemaError(f"a {kind} without a name")
        name = _full(given, said)
        space = name.rpartition(".")[0]
        if name in self._known or name in PRIMITIVES:
            raise SchemaError(f"{name!r:.60} is defined twice")
        aliases = tuple(_full(one, space) for one in _texts(tree, "aliases"))
        node = self._kept(Node(kind, name, aliases))
        self._known[name] = node
        if kind == "record":
            node.fields = self._fields(tree, space)
        elif kind == "enum":
            node.symbols = _texts(tree, "symbols", needed=True)
            node.default = tree.get("default")
            if len({*node.symbols}) < len(node.symbols):
                raise SchemaError(f"{name!r:.60} has a symbol twice")
            if node.default is not None and node.default not in node.symbols:
                raise SchemaError(f"the default of {name!r:.60} is no symbol of it")
        else:
            node.size = _count(tree.get("size"))
        return _logical(node, tree)

    def _kept(self, node: Node) -> Node:
        self._made.append(node)
        return node

    def _fields(self, tree: Any, space: str) -> list[Field]:
        trees = tree.get("fields")
        if not isinstance(trees, list) or not all(isinstance(one, dict) for one in trees):
            raise SchemaError("a record without fields")
        fields = []
        for one in trees:
            name = one.get("name")
            if not isinstance(name, str) or not name or "type" not in one:
                raise SchemaError("a field without a name or a type")
            node = self.node(one["type"], space)
            aliases = tuple(_texts(one, "aliases"))
            fields.append(Field(name, node, aliases, one.get("default"), "default" in one))
        if len({one.name for one in fields}) < len(fields):
            raise SchemaError("a record has two fields of one name")
        return fields


def _settled(node: Node) -> Node:
    return node.parts[0] if node.kind == _REFERENCE else node


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _texts(tree: Any, key: str, *, needed: bool = False) -> list[str]:
    found = tree.get(key, None if needed else [])
    if found is None and not needed:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise SchemaError(f"{key} is no list of names")
    return found


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= INT32_MAX:
        raise SchemaError(f"a fixed of {number!r:.30} bytes")
    return number


def _logical(node: Node, tree: Any) -> Node:
    """Set the logical type; one that is not valid is ignored, as Avro specifies it."""
    name = tree.get("logicalType")
    if not isinstance(name, str) or name not in _LOGICAL.get(node.kind, ()):
        name = ""
    size = node.size if node.kind == "fixed" else None
    wanted = {"uuid": _UUID_SIZE, "duration": _DURATION_SIZE}.get(name, size)
    if size is not None and size != wanted:
        name = ""
    if name == "decimal":
        node.precision, node.scale = tree.get("precision"), tree.get("scale", 0)
        most = INT32_MAX if size is None else math.floor(math.log10(2) * (8 * size - 1))
        if not (type(node.precision) is type(node.scale) is int
                and 0 < node.precision <= most and 0 <= node.scale <= node.precision):  # fmt: skip
            name, node.precision, node.scale = "", 0, 0
    if not name:
        name = logical_of(node.kind, tree.get("connect.name"))
        if name == "connect-decimal":
            node.scale = _connect_scale(tree)
        fields = [(one.name, one.type.kind) for one in node.fields]
        if name == "scaled-decimal" and fields != [("scale", "int"), ("value", "bytes")]:
            name = ""
    node.logical = name
    return node


def _connect_scale(tree: Any) -> int:
    """Return the scale of Kafka Connect's Decimal, which is a text among its parameters."""
    more = tree.get("connect.parameters")
    found = more.get("scale", 0) if isinstance(more, dict) else tree.get("scale", 0)
    return whole_number(found) or 0
