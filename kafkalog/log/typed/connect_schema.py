"""Reads the schemas of Kafka Connect, as its JsonConverter writes them into each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalog.log.typed.connect_names import logical_of
from kafkalog.log.typed.json_schema import ShapeDecoder, schema_tree
from kafkalog.log.typed.json_shapes import FLOAT32, FLOAT64, Decimals, Members, Shape
from kafkalog.log.typed.schema_size import SchemaSize

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTEGERS: Final = ("int8", "int16", "int32", "int64")
_FLOATS: Final = {"float": FLOAT32, "double": FLOAT64}
_SCALARS: Final = (*_INTEGERS, *_FLOATS, "boolean", "string", "bytes")


class ConnectSchemaError(ValueError):
    """A text is not a schema of Kafka Connect."""


def connect_decoder(texts: Sequence[str]) -> ShapeDecoder:
    """Return the decoder of payloads with a schema, given its text.

    Raises:
        ConnectSchemaError, RecursionError: the text is no schema.
        UsageError: it describes too much, or is no JSON.
    """
    tree = schema_tree(texts[-1])
    if tree is None:
        return ShapeDecoder(Shape(text="the message has no schema"))
    return ShapeDecoder(_Shapes().of(tree, ""))


class _Shapes:
    """Makes the shapes of JSON that values of types have."""

    def __init__(self) -> None:
        self._size = SchemaSize()

    def of(self, tree: Any, path: str) -> Shape:
        kind = tree.get("type") if isinstance(tree, dict) else None
        if not isinstance(kind, str):
            raise ConnectSchemaError(f"{path or 'the schema'} has no type")
        with self._size.inside(path or "the top"):
            if kind in _SCALARS:
                return _scalar(kind, tree, path)
            if kind == "array":
                items = self.of(tree.get("items"), f"{path}[]")
                return Shape(frozenset(("array",)), items=items)
            if kind == "map":
                return self._map(tree, path)
            if kind == "struct":
                return self._struct(tree, path)
        raise ConnectSchemaError(f"{kind!r:.40} is no type of Kafka Connect")

    def _map(self, tree: Any, path: str) -> Shape:
        keys = self.of(tree.get("keys"), f"{path}{{}}.key")
        values = self.of(tree.get("values"), f"{path}{{}}")
        kind = tree["keys"]["type"]
        if kind == "string":
            return Shape(frozenset(("object",)), members=Members(rest=values))
        if kind not in _SCALARS:
            return Shape(text=f"the keys of the map are each of type {kind}")
        pair = Shape(frozenset(("array",)), members=Members({"key": keys, "value": values}))
        return Shape(frozenset(("array",)), items=pair, is_map=True)

    def _struct(self, tree: Any, path: str) -> Shape:
        fields = tree.get("fields")
        if not isinstance(fields, list):
            raise ConnectSchemaError(f"{path or 'the struct'} has no list of fields")
        named: dict[str, Shape] = {}
        for one in fields:
            name = one.get("field") if isinstance(one, dict) else None
            if not isinstance(name, str):
                raise ConnectSchemaError(f"a field of {path or 'the struct'} has no name")
            if name in named:
                raise ConnectSchemaError(f"two fields are called {name!r:.40}")
            named[name] = self.of(one, f"{path}.{name}" if path else name)
        logical = logical_of("struct", tree.get("name"))
        return Shape(frozenset(("object",)), members=Members(named), numbers=logical or None)


def _scalar(kind: str, tree: Any, path: str) -> Shape:
    logical = logical_of(kind, tree.get("name"))
    if kind in _INTEGERS:
        return Shape(frozenset(("integer",)), numbers=logical or None)
    if kind in _FLOATS:
        return Shape(frozenset(("integer", "number")), numbers=_FLOATS[kind])
    if logical == "connect-decimal":
        found = Decimals.of(tree.get("parameters"))
        if found is None:
            raise ConnectSchemaError(
                f"the decimal {path or 'at the top'} has no whole number as scale"
            )
        return Shape(frozenset(("integer", "number")), numbers=found)
    if kind == "bytes":
        return Shape(frozenset(("string",)), strings="base64")
    strings = "date-time" if logical == "zoned-timestamp" else None
    return Shape(frozenset((kind,)), strings=strings)
