"""Decodes JSON by the types in a JSON Schema."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from kafkalog.errors import UsageError
from kafkalog.log.typed.schema_size import SchemaSize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.lake_types import Remark

_KNOWN: Final = "type, properties, items, additionalProperties as a schema, and enum of strings"
_NOT_TYPES: Final = ("$ref", "oneOf", "anyOf", "allOf", "not", "if", "prefixItems")
_ONE_OF: Final = ("oneOf", "anyOf", "allOf")
_STEPS_MAX: Final = 64  # a `$ref` can lead back to itself
_INT64: Final = (-(1 << 63), (1 << 63) - 1)


class JsonDecoder:
    """Decodes JSON: objects become structs of the properties in the schema; missing ones are null.

    `integer` becomes int64, `number` float64, `string` a string, whatever its format; an object
    without properties but with a schema as `additionalProperties` becomes a map. Values of another
    type than the schema's, numbers out of range, and malformed JSON do not decode. Required
    properties, patterns and ranges are ignored.

    Args:
        references: the schemas that a `$ref` of it or of one of them can name.

    Raises:
        UsageError: the schema is not JSON, or uses more than types.
    """

    def __init__(self, schema: bytes, references: Mapping[str, str] | None = None) -> None:
        trees = {name: _parsed(text) for name, text in (references or {}).items()}
        tree = _parsed(schema)
        self.remarks: list[Remark] = []
        self.losses: Counter[str] = Counter()
        self.type, self._convert = _node(_Node(tree, tree, trees), "#", SchemaSize())

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:  # noqa: ARG002 # one schema
        try:
            # Python reads NaN and Infinity, which are not JSON.
            return self._convert(json.loads(data, parse_constant=_refuse))
        except RecursionError as error:
            raise ValueError("too deep") from error


class AnyJsonDecoder:
    """Takes any JSON; the column has its text."""

    type = pa.string()

    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self.losses: Counter[str] = Counter()

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:  # noqa: ARG002 # no schema
        try:
            json.loads(data, parse_constant=_refuse)
        except RecursionError as error:
            raise ValueError("too deep") from error
        return data.decode("utf-8")


def decoder_of_texts(texts: Sequence[str]) -> JsonDecoder:
    """Return the decoder of a schema that follows names and texts of those that it refers to."""
    return JsonDecoder(texts[-1].encode(), dict(zip(texts[:-1:2], texts[1::2], strict=True)))


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"The schema is not JSON: {error}.") from error


class _Node(NamedTuple):
    """A part of a schema, the document that it is part of, and those that are referred to."""

    tree: Any
    document: Any
    references: Mapping[str, Any]

    def at(self, tree: Any) -> _Node:
        return self._replace(tree=tree)

    def referred(self) -> _Node | None:
        """Return the part that this one stands for: by a `$ref`, or as the one that is not null."""
        if not isinstance(self.tree, dict):
            return None
        target = self.tree.get("$ref")
        if isinstance(target, str):
            return self._of_reference(target)
        for name in _ONE_OF:
            choices = self.tree.get(name)
            if isinstance(choices, list):
                wanted = [one for one in choices if one != {"type": "null"}]
                return self.at(wanted[0]) if len(wanted) == 1 else None
        return None

    def _of_reference(self, target: str) -> _Node | None:
        place, _, pointer = target.partition("#")
        document = self.references.get(place) if place else self.document
        found = document
        for part in pointer.split("/")[1:]:
            # In this order, by RFC 6901: `~01` is `~1`.
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, dict) else None
        return None if found is None else _Node(found, document, self.references)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _node(part: _Node, place: str, size: SchemaSize) -> tuple[Any, Callable[[Any], Any]]:
    """Return the Arrow type of a schema, and a function that checks and converts a value."""
    for _ in range(_STEPS_MAX):
        other = part.referred()
        if other is None:
            break
        part = other
    node = part.tree
    if not isinstance(node, dict) or any(name in node for name in _NOT_TYPES):
        raise _unknown(node, place)
    kinds = node.get("type")
    enum = node.get("enum")
    if kinds is None and isinstance(enum, list) and all(isinstance(one, str) for one in enum):
        kinds = "string"
    names = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _unknown(node, place)
    wanted = [name for name in names if name != "null"]
    if len(wanted) != 1:
        raise _unknown(node, place)
    with size.inside(place):
        kind, convert = _typed(wanted[0], part, place, size)
    return kind, lambda value: None if value is None else convert(value)


def _typed(
    name: str, part: _Node, place: str, size: SchemaSize
) -> tuple[Any, Callable[[Any], Any]]:
    node = part.tree
    if name in _SCALARS:
        return _SCALARS[name]
    if name == "array" and "items" in node:
        item, convert = _node(part.at(node["items"]), f"{place}/items", size)
        return pa.list_(item), lambda value: [convert(one) for one in _of(list, value)]
    properties = node.get("properties")
    if name == "object" and properties and isinstance(properties, dict):
        fields = {
            key: _node(part.at(one), f"{place}/properties/{key}", size)
            for key, one in properties.items()
        }
        kind = pa.struct([pa.field(key, one) for key, (one, _) in fields.items()])

        def struct(value: Any) -> Any:
            found = _of(dict, value)
            return {key: convert(found.get(key)) for key, (_, convert) in fields.items()}

        return kind, struct
    if name == "object" and isinstance(node.get("additionalProperties"), dict):
        values = part.at(node["additionalProperties"])
        item, convert = _node(values, f"{place}/additionalProperties", size)
        return pa.map_(pa.string(), item), lambda value: [
            (key, convert(one)) for key, one in _of(dict, value).items()
        ]
    raise _unknown(node, place)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:  # not isinstance: a Python bool is an int
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _integer(value: Any) -> int:
    if type(value) is float and value.is_integer():  # 1.0 is an integer in JSON Schema
        value = int(value)
    if not _INT64[0] <= _of(int, value) <= _INT64[1]:
        raise ValueError("out of range")
    return int(value)


def _number(value: Any) -> float:
    if type(value) is int:
        try:
            value = float(value)
        except OverflowError as error:
            raise ValueError("out of range") from error
    return float(_of(float, value))


def _text(value: Any) -> str:
    """Return the text; raise for lone surrogates, which JSON can hold but no text."""
    text: str = _of(str, value)
    text.encode()
    return text


_SCALARS: Final[dict[str, tuple[Any, Callable[[Any], Any]]]] = {
    "string": (pa.string(), _text),
    "integer": (pa.int64(), _integer),
    "number": (pa.float64(), _number),
    "boolean": (pa.bool_(), lambda value: _of(bool, value)),
}


def _unknown(node: Any, place: str) -> UsageError:
    return UsageError(
        f"The schema at {place} says no type that a column can have: {json.dumps(node)[:80]}.",
        hint=f"Supported: {_KNOWN}, and $ref; one type each, or that type and null.",
    )
