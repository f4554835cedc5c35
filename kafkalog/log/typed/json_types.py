"""Reads a JSON Schema: what the values that it allows look like, of any draft from 4 on.

A schema restricts; it does not say what a column has. So each part of it becomes a `Shape`, the
kinds of JSON values that it allows with what is known of each. `allOf` and `$ref` meet, which
leaves the values that both sides allow; `oneOf`, `anyOf`, `then`, `else` and `dependentSchemas`
are alternatives, of which any may hold.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import (
    DRAFT4,
    DRAFT6,
    DRAFT7,
    DRAFT202012,
    lookup_recursive_ref,
    specification_with,
)

from kafkalog.log.typed.connect_names import logical_of
from kafkalog.log.typed.json_shapes import FLOAT32, FLOAT64, Decimals, Members, Shape
from kafkalog.log.typed.schema_size import DEPTH_MAX, MALFORMED, NODES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_KINDS: Final = frozenset(("null", "boolean", "integer", "number", "string", "array", "object"))
_NUMBERS: Final = frozenset(("integer", "number"))
# Drafts in which what stands next to a `$ref` does not count.
_REFERENCES_ALONE: Final = (DRAFT4.name, DRAFT6.name, DRAFT7.name)
_DECIMALS_OF_NET: Final = 9
# How many parts may lead to one: each property, item, reference and alternative on the way.
_TRAIL_MAX: Final = 256
# How often names of fields are compared: alternatives of alternatives multiply.
_WORK_MAX: Final = 1_000_000


_ANY: Final = Shape()
_NEVER: Final = Shape(frozenset())


def shape_of(tree: Any, references: Mapping[str, Any]) -> Shape:
    """Return what values a schema allows.

    Args:
        references: the schemas that it can refer to, by name. Others are never looked for.
    """
    try:
        return _Reader(tree, references).shape()
    except _TooLargeError:
        return Shape(text=f"the schema describes more than {NODES_MAX} fields")


class _TooLargeError(Exception):
    """A schema describes a type without end, or nearly."""


class _Trail(NamedTuple):
    """The parts of a schema that lead to one: the last, those before, and how many there are."""

    node: int
    before: _Trail | None
    length: int

    def has(self, node: int) -> bool:
        one: _Trail | None = self
        while one is not None:
            if one.node == node:
                return True
            one = one.before
        return False


class _Part(NamedTuple):
    """A part of a schema, what resolves its references, and what led to it."""

    tree: Any
    resolver: Any
    trail: _Trail


class _Reader:
    """Reads a schema.

    Args:
        tree: the schema, of which nothing is certain but that it was JSON.
    """

    def __init__(self, tree: Any, references: Mapping[str, Any]) -> None:
        self._specification = _specification(tree, _draft_of(tree))
        self._is_alone = self._specification.name in _REFERENCES_ALONE
        root = Resource(tree, self._specification)
        others = {
            name: Resource(one, _specification(one, self._specification))
            for name, one in references.items()
        }

        def retrieve(uri: str) -> Resource[Any]:
            # The names of references are relative to any schema's own address.
            for name, one in others.items():
                if name and f"/{uri}".endswith(f"/{name}"):
                    return one
            raise NoSuchResource(uri)

        base = root.id() or ""
        known = [*others.items(), ("", root), (base, root)]
        registry: Registry[Any] = Registry(retrieve=retrieve)
        self._tree = tree
        self._nodes = self._depth = self._work = 0
        try:
            self._resolver: Any = registry.with_resources(known).crawl().resolver(base)
        except MALFORMED:  # an address that is none: no reference can be resolved
            self._resolver = Registry().resolver()

    def shape(self) -> Shape:
        return self._met([_Part(self._tree, self._resolver, _Trail(0, None, 0))], frozenset())

    def _met(self, parts: Iterable[_Part], here: frozenset[int]) -> Shape:
        """Return the shape of values that all parts allow.

        Args:
            here: parts that the same values have to fit, and that are read already.
        """
        if self._depth == DEPTH_MAX:
            return Shape(text=f"it is nested more than {DEPTH_MAX} levels deep")
        self._depth += 1
        try:
            return self._met_here(parts, here)
        finally:
            self._depth -= 1

    def _met_here(self, parts: Iterable[_Part], here: frozenset[int]) -> Shape:
        shape = _ANY
        seen = set(here)
        nodes: list[_Part] = []
        todo = deque(parts)
        while todo:
            part = todo.popleft()
            self._nodes += 1
            if self._nodes > NODES_MAX:
                raise _TooLargeError
            node = part.tree
            if node is False:
                shape = _NEVER
            if not isinstance(node, dict) or id(node) in seen:
                continue
            if part.trail.has(id(node)):
                return Shape(text="it contains itself")
            if part.trail.length == _TRAIL_MAX:
                return Shape(text=f"more than {_TRAIL_MAX} parts of the schema lead to it")
            seen.add(id(node))
            trail = _Trail(id(node), part.trail, part.trail.length + 1)
            part = part._replace(trail=trail)
            for word in ("$ref", "$dynamicRef", "$recursiveRef"):
                if isinstance(node.get(word), str):
                    target = self._resolved(part, word)
                    if target is None:
                        return Shape(text=f"the reference {node[word]!r:.80} cannot be resolved")
                    todo.append(target)
            if isinstance(node.get("$ref"), str) and self._is_alone:
                continue
            todo.extend(self._child(part, one) for one in _list(node.get("allOf")))
            nodes.append(part)
        for part in nodes:
            shape = self._meet(shape, _own(part.tree))
        shape = self._meet(shape, self._inner(nodes))
        read = frozenset(seen)
        for part in nodes:
            for group in _alternatives(part.tree):
                shape = self._one_of(shape, [self._child(part, one) for one in group], read)
        return _guessed(shape)

    def _one_of(self, shape: Shape, group: list[_Part], here: frozenset[int]) -> Shape:
        """Return the shape of values that fit a shape and one of several parts."""
        found = _NEVER
        for part in group:
            found = self._join(found, self._meet(shape, self._met([part], here)))
            if found.text:
                break
        return found

    def _inner(self, nodes: list[_Part]) -> Shape:
        """Return what parts say of the items of arrays and of the members of objects."""
        named: dict[str, list[_Part]] = {}
        items: list[_Part] = []
        rest: Shape | None = None
        is_tuple = is_closed = False
        for part in nodes:
            node = part.tree
            given = node.get("items")
            if "prefixItems" in node or isinstance(given, list):
                is_tuple = True
            elif isinstance(given, dict):
                items.append(self._child(part, given))
            for name, one in _in_order(_dict(node.get("properties"))):
                named.setdefault(name, []).append(self._child(part, one))
            is_closed |= node.get("additionalProperties") is False
            others = self._rest(part)
            if others:
                rest = self._meet(rest, others) if rest else others
        members = {name: self._met(some, frozenset()) for name, some in named.items()}
        return Shape(
            items=self._met(items, frozenset()) if items else None,
            is_tuple=is_tuple,
            members=Members(members, rest, is_closed),
        )

    def _rest(self, part: _Part) -> Shape | None:
        """Return the shape of members without a name, None if nothing is known of them."""
        node = part.tree
        given = node.get("additionalProperties")
        patterns = list(_dict(node.get("patternProperties")).values())
        schemas = [*patterns, given] if isinstance(given, dict) else patterns
        if not schemas:
            return None
        # Beyond the pattern of a map nothing is meant to be; what else has patterns says more.
        is_map = len(patterns) == 1 and not _dict(node.get("properties"))
        if not (is_map or given is False or isinstance(given, dict)):
            return _ANY
        shape = _NEVER
        for one in schemas:
            shape = self._join(shape, self._met([self._child(part, one)], frozenset()))
        return shape

    def _resolved(self, part: _Part, word: str) -> _Part | None:
        try:
            if word == "$recursiveRef":
                found = lookup_recursive_ref(part.resolver)
            else:
                found = part.resolver.lookup(part.tree[word])
        except (Unresolvable, NoSuchResource, *MALFORMED):
            return None
        if not isinstance(found.contents, (dict, bool)):
            return None
        return part._replace(tree=found.contents, resolver=found.resolver)

    def _child(self, part: _Part, tree: Any) -> _Part:
        resolver = part.resolver
        if isinstance(tree, dict) and ("$id" in tree or "id" in tree):
            try:
                resolver = resolver.in_subresource(self._specification.create_resource(tree))
            except MALFORMED:  # an address that is none: references stay relative to the outer one
                resolver = part.resolver
        return part._replace(tree=tree, resolver=resolver)

    def _count(self, names: int) -> None:
        self._work += names
        if self._work > _WORK_MAX:
            raise _TooLargeError

    def _meet(self, one: Shape, other: Shape) -> Shape:
        """Return the shape of values that fit both."""
        if one is other or other is _ANY or one.text:
            return one
        if one is _ANY or other.text:
            return other
        kinds, is_implied = one.kinds, one.is_implied
        if kinds is None or (one.is_implied and other.kinds is not None and not other.is_implied):
            kinds, is_implied = other.kinds, other.is_implied
        elif other.kinds is not None and one.is_implied == other.is_implied:
            kinds = kinds | other.kinds if is_implied else kinds & other.kinds
        mine, its = one.members, other.members
        self._count(1 + min(len(mine.named), len(its.named)))
        named = mine.named
        if its.named:
            named = {**mine.named, **its.named}
            for name in mine.named.keys() & its.named.keys():
                named[name] = self._meet(mine.named[name], its.named[name])
        return Shape(
            kinds,
            is_implied,
            "",
            one.strings or other.strings,
            one.numbers or other.numbers,
            _either(self._meet, one.items, other.items),
            one.is_tuple or other.is_tuple,
            one.is_map or other.is_map,
            Members(
                named,
                _either(self._meet, mine.rest, its.rest),
                mine.is_closed or its.is_closed,
            ),
        )

    def _join(self, one: Shape, other: Shape) -> Shape:
        """Return the shape of values that fit one of both."""
        one, other = _guessed(one), _guessed(other)
        if one is other or one.text or other.kinds == frozenset():
            return one
        if other.text or one.kinds == frozenset():
            return other
        if one.kinds is None or other.kinds is None:
            return _ANY
        self._count(1)
        mine, its = one.kinds, other.kinds

        def of(kind: str, name: str) -> Any:
            """Return what one side knows of values that only it allows, or what both know."""
            if kind not in mine:
                return getattr(other, name)
            if kind not in its or getattr(one, name) == getattr(other, name):
                return getattr(one, name)
            return None

        has_arrays = "array" in mine and "array" in its
        array = one if "array" in mine else other
        items = array.items
        if has_arrays:
            items = one.items and other.items and self._join(one.items, other.items)
        return Shape(
            mine | its,
            one.is_implied or other.is_implied,
            "",
            of("string", "strings"),
            of("integer", "numbers"),
            items,
            one.is_tuple or other.is_tuple if has_arrays else array.is_tuple,
            one.is_map and other.is_map if has_arrays else array.is_map,
            self._joined_members(one.members, other.members)
            if "object" in mine and "object" in its
            else (one if "object" in mine else other).members,
        )

    def _joined_members(self, one: Members, other: Members) -> Members:
        if one is other:
            return one
        for mine, its in ((one, other), (other, one)):
            if mine.is_closed and not mine.named and mine.rest is None:  # `{}` alone
                return replace(its, is_closed=its.is_closed)
        if bool(one.named) != bool(other.named):
            return Members()  # any object, or a map, and one with fields
        self._count(len(one.named) + len(other.named))
        named: dict[str, Shape] = {}
        for name in (*one.named, *other.named):
            # What only one side names is one of the others of the other side.
            found = _either(
                self._join, one.named.get(name) or one.rest, other.named.get(name) or other.rest
            )
            named[name] = found or _ANY
        rest = _either(self._join, one.rest, other.rest)
        if (one.rest is None) != (other.rest is None):
            lacking = one if one.rest is None else other
            if not lacking.is_closed:
                rest = _ANY if one.named else None
        return Members(named, rest, one.is_closed and other.is_closed)


def _either(
    combine: Callable[[Shape, Shape], Shape], one: Shape | None, other: Shape | None
) -> Shape | None:
    return combine(one, other) if one and other else one or other


def _guessed(shape: Shape) -> Shape:
    """Return the shape with the kinds that its properties or items imply."""
    if shape.kinds is not None or shape.text:
        return shape
    kinds = {"object"} if shape.members.named else set()
    if shape.items is not None:
        kinds.add("array")
    return replace(shape, kinds=frozenset(kinds), is_implied=True) if kinds else _ANY


def _specification(tree: Any, default: Specification[Any]) -> Specification[Any]:
    dialect = tree.get("$schema") if isinstance(tree, dict) else None
    found = specification_with(dialect, default) if isinstance(dialect, str) else default
    return _tolerant(found)


def _tolerant(specification: Specification[Any]) -> Specification[Any]:
    """Return a specification that passes over what has no meaning in a schema."""

    def id_of(tree: Any) -> str | None:
        found = specification.id_of(tree) if _has_text_ids(tree) else None
        return found if isinstance(found, str) else None

    def subresources_of(tree: Any) -> Iterator[Any]:
        if isinstance(tree, dict):
            try:
                found = list(specification.subresources_of(tree))
            except MALFORMED:
                return
            yield from (one for one in found if isinstance(one, dict))

    def anchors_in(_: Specification[Any], tree: Any) -> list[Any]:
        if not _has_text_ids(tree):
            return []
        return [one for one in specification.anchors_in(tree) if isinstance(one.name, str)]

    return Specification(
        name=specification.name,
        id_of=id_of,
        subresources_of=subresources_of,
        anchors_in=anchors_in,
        maybe_in_subresource=specification.maybe_in_subresource,
    )


def _has_text_ids(tree: Any) -> bool:
    return isinstance(tree, dict) and all(
        isinstance(tree.get(word, ""), str) for word in ("$id", "id")
    )


def _own(node: Mapping[str, Any]) -> Shape:
    """Return what a part of a schema says of values without looking into them."""
    kinds = _kinds(node.get("type"))
    for values in (node.get("enum"), [node["const"]] if "const" in node else None):
        if isinstance(values, list) and values:
            found = frozenset(map(_kind_of, values))
            kinds = found if kinds is None else kinds & found
    connect = node.get("connect.type")
    strings = node.get("format")
    if node.get("contentEncoding") == "base64" or connect == "bytes":
        strings = "base64"
    # The title is the name of the type, as Kafka Connect's converter for JSON Schema has it.
    logical = logical_of(
        str(connect or (kinds and "object" in kinds and "struct")), node.get("title")
    )
    numbers: str | Decimals | None = None
    if connect == "bytes":
        numbers = Decimals.of(node.get("connect.parameters"))
    elif connect in (FLOAT32, FLOAT64):
        numbers = connect
    elif logical == "zoned-timestamp":
        strings = "date-time"
    elif logical:
        numbers = logical
    elif node.get("format") == "decimal":
        numbers = Decimals(_DECIMALS_OF_NET)
    return Shape(
        kinds,
        strings=strings if strings in ("date", "date-time", "base64") else None,
        numbers=numbers,
        is_map=connect == "map",
    )


def _draft_of(tree: Any) -> Specification[Any]:
    """Return the draft of a schema without `$schema`: the last one, unless it shows an older one.

    Such schemas are mostly of Pydantic, or use what all drafts have.
    """
    if isinstance(tree, dict) and isinstance(tree.get("id"), str) and "$id" not in tree:
        return DRAFT4
    waiting, left = [tree], NODES_MAX
    while waiting and left:
        node, left = waiting.pop(), left - 1
        if isinstance(node, dict):
            # An anchor, until draft 7.
            if isinstance(node.get("$id"), str) and node["$id"].startswith("#"):
                return DRAFT7
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return DRAFT202012


def _kinds(given: Any) -> frozenset[str] | None:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names:
        return None
    if not all(isinstance(one, str) and one in _KINDS for one in names):
        return None  # of no draft: it says nothing
    found = frozenset(names)
    return found | _NUMBERS if "number" in found else found


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in (
        (bool, "boolean"), (int, "integer"), (str, "string"), (list, "array"), (dict, "object"),
    ):  # fmt: skip
        if isinstance(value, kind):
            return name
    return "integer" if isinstance(value, float) and value.is_integer() else "number"


def _alternatives(node: Mapping[str, Any]) -> Iterator[list[Any]]:
    for word in ("oneOf", "anyOf"):
        group = _list(node.get(word))
        if group:
            yield group
    if "if" in node and ("then" in node or "else" in node):
        yield [node.get("then", True), node.get("else", True)]
    for word in ("dependentSchemas", "dependencies"):
        for one in _dict(node.get(word)).values():
            if isinstance(one, dict):
                yield [one, True]


def _in_order(properties: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return properties in the order that Kafka Connect numbers them in, others last."""

    def index(one: tuple[str, Any]) -> float:
        number = _dict(one[1]).get("connect.index")
        return number if type(number) is int else float("inf")

    return sorted(properties.items(), key=index)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
