"""Parses bytes with a schema and notes which field each byte belongs to.

The schemas themselves do the parsing: a copy of their tree is made in which each node reports where
it began and ended. Bytes of a node that none of its parts took are its own, such as the content
after a length. So the fields that a trace returns tile the bytes that were parsed.
"""

from __future__ import annotations

from typing import Any, Final

from formats.constructs import (
    Adapter,
    Array,
    Construct,
    ConstructError,
    Container,
    ExplicitError,
    GreedyRange,
    Renamed,
    Restreamed,
    Subconstruct,
    Transformed,
)
from formats.late_classes import dataclass

Path = tuple[str | int, ...]

_WHOLE: Final = (Adapter, Transformed, Restreamed)
"""Nodes that are one field, whatever they are made of."""
_COUNTERS: Final = {
    "length": "length",
    "lengthfield": "length",
    "count": "count",
    "flag": "present",
    "tags": "tags",
    "tag": "tag",
    "size": "size",
}
"""Attributes of nodes that hold the schema of a number about what follows, and its name."""
_ELEMENTS: Final = ("element", "header")
"""Attributes that hold the schema of each element."""


@dataclass(frozen=True, slots=True)
class TracedField:
    """A field, and where it lies.

    Attributes:
        path: names and ordinals that lead to it.
        position: of its first byte in the stream.
        length: number of its bytes, above 0.
        value: the parsed value.
        codec: its part of the schema, None for what a node has between its parts.
    """

    path: Path
    position: int
    length: int
    value: Any
    codec: Construct | None

    @property
    def end(self) -> int:
        """The position after it."""
        return self.position + self.length


@dataclass(frozen=True, slots=True)
class Trace:
    """The fields of some bytes.

    Attributes:
        fields: in order of their positions; they tile the bytes from the first one on.
        value: what the schema returned; None if it did not come to the end.
        error: why the bytes could not be parsed.
        is_cut: whether elements were left out because of the limit.
    """

    fields: tuple[TracedField, ...]
    value: Any = None
    error: ConstructError | None = None
    is_cut: bool = False


class _EnoughError(ExplicitError):  # type: ignore[misc] # construct has no types
    """The limit of elements is reached; no schema catches this."""


@dataclass(slots=True)
class _Node:
    """A node that is being parsed; `construct_path` is construct's own path to it."""

    path: Path
    construct_path: str
    first: int  # of its fields
    elements: int = 0


class Tracer:
    """Traces one schema; not for several threads at once.

    Args:
        schema: any schema of `formats`.
        limit: maximum number of elements of each array.
    """

    def __init__(self, schema: Construct, limit: int | None = None) -> None:
        self.limit = limit
        self.fields: list[TracedField] = []
        self.nodes: list[_Node] = []
        self._schema = self._noted(schema)

    def trace(self, stream: Any) -> Trace:
        """Parse a stream from where it is (`tell`); positions are the stream's."""
        self.fields, self.nodes = [], [_Node((), "(parsing)", 0)]
        value, error, is_cut = None, None, False
        try:
            value = self._schema.parse_stream(stream)
        except _EnoughError:
            is_cut = True
        except ConstructError as raised:
            error = raised
        return Trace(tuple(self.fields), value, error, is_cut)

    def _noted(self, node: Construct, name: str = "", *, is_element: bool = False) -> Construct:
        """Return a copy of a tree whose nodes report what they parse."""
        if isinstance(node, Renamed):  # the name is in construct's path
            return Renamed(self._noted(node.subcon, is_element=is_element), node.name, node.docs)
        # Not `copy.copy`: nodes have constructors with arguments of their own.
        copy = object.__new__(type(node))
        vars(copy).update(vars(node))
        if not isinstance(node, _WHOLE):
            has_elements = isinstance(node, Array | GreedyRange)
            for attribute, value in vars(node).items():
                if not attribute.startswith("_"):
                    vars(copy)[attribute] = self._replaced(attribute, value, has_elements)
        return _Noted(copy, self, name, is_element)

    def _replaced(self, attribute: str, value: Any, has_elements: bool) -> Any:
        if isinstance(value, Construct):
            is_element = has_elements or attribute in _ELEMENTS
            return self._noted(value, _COUNTERS.get(attribute, ""), is_element=is_element)
        if isinstance(value, list | tuple):
            return type(value)(self._replaced("", one, has_elements) for one in value)
        if isinstance(value, dict):
            return {key: self._replaced("", one, has_elements) for key, one in value.items()}
        return value


class _Noted(Subconstruct):  # type: ignore[misc] # construct has no types
    """A node that reports to a tracer; `name` is what its parent calls it."""

    def __init__(self, node: Construct, tracer: Tracer, name: str, is_element: bool) -> None:
        super().__init__(node)
        self.tracer = tracer
        self.called = name
        self.is_element = is_element
        self.is_leaf = isinstance(node, _WHOLE) or not any(map(_has_parts, vars(node).values()))

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        tracer = self.tracer
        parent = tracer.nodes[-1]
        names: list[str | int] = [*path[len(parent.construct_path) :].split(" -> ")[1:]]
        if isinstance(self.subcon, Array) and names == ["items"]:
            names = []  # of a PrefixedArray
        if self.is_element:
            if parent.elements == tracer.limit:
                raise _EnoughError("enough", path=path)
            names.append(parent.elements)
            parent.elements += 1
        if self.called:
            names.append(self.called)
        node = _Node((*parent.path, *names), path, len(tracer.fields))
        tracer.nodes.append(node)
        start = stream.tell()
        try:
            value = self.subcon._parsereport(stream, context, path)  # noqa: SLF001 # construct's own protocol
        except ConstructError:
            if len(tracer.fields) > node.first:  # what lies between the parts so far
                self._note(node, start, tracer.fields[-1].end, {})
            raise
        finally:
            tracer.nodes.pop()
        self._note(node, start, stream.tell(), value)
        return value

    def _note(self, node: _Node, start: int, end: int, value: Any) -> None:
        fields = self.tracer.fields
        if self.is_leaf:
            if end > start:
                fields.append(TracedField(node.path, start, end - start, value, self.subcon))
            return
        parts = [one for one in fields[node.first :] if one.position < end]
        del fields[node.first :]
        position = start
        for part in parts:
            if part.position > position:
                fields.append(self._own(node, position, part.position, value))
            fields.append(part)
            position = part.end
        if position < end:
            fields.append(self._own(node, position, end, value))

    def _own(self, node: _Node, start: int, end: int, value: Any) -> TracedField:
        """Return the field of bytes that no part of this node took."""
        if isinstance(value, dict | list):
            return TracedField((*node.path, "unknown"), start, end - start, None, None)
        return TracedField(node.path, start, end - start, value, self.subcon)


def _has_parts(value: Any) -> bool:
    """Return whether an attribute of a node holds schemas."""
    if isinstance(value, list | tuple):
        return any(map(_has_parts, value))
    if isinstance(value, Container):
        return False
    if isinstance(value, dict):
        return any(map(_has_parts, value.values()))
    return isinstance(value, Construct)


@dataclass(frozen=True, slots=True)
class Bits:
    """A part of a bit field: the lowest of its bits, and how many there are."""

    name: str
    lowest: int
    width: int
    value: int


def bits_of(codec: Construct | None, value: Any) -> list[Bits]:
    """Return the parts of a field of bits, from the highest on; none for any other field."""
    if not isinstance(codec, Transformed | Restreamed):
        return []
    struct = codec.subcon
    parts = [(one.name, getattr(one.subcon, "length", 1)) for one in struct.subcons]
    lowest = sum(width for _, width in parts)
    found = []
    for name, width in parts:
        lowest -= width
        found.append(Bits(name, lowest, width, int(value[name])))
    return found
