"""Conditions over records in CEL, Google's Common Expression Language: `value.cents > 100`.

A record for which the expression has no answer does not match: a field is missing or of another
type, a number is too large, a division is by zero. Nothing is raised after an expression is
compiled.

Handing a whole value over to the engine costs ten times as much as one field of it. So each path
of constant names, such as `value.cents`, becomes a variable of its own, and only what those paths
lead to is handed over; a variable without a value is as good an error to CEL as a missing field.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from formats.constants import NO_TIMESTAMP
from formats.file_names import partition_of
from formats.late_patterns import pattern
from kafkalog.errors import DataError, UnsupportedError, UsageError
from kafkalog.files.log_dir import PartitionDir
from kafkalog.io.paths import file_system
from kafkalog.io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.log.batches.selection import Selection
    from kafkalog.model import Header, Record

Reader: TypeAlias = Callable[[bytes, "tuple[Header, ...]"], Any]
"""Decodes a key or a value of a record with these headers; raises a `DataError` if it cannot."""

DEPTH_MAX: Final = 200
"""Maximum nesting of a value: the engine converts values recursively, on the stack."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BOUND_LIMIT: Final = 1 << 62  # a bound below it can be counted up without an overflow

_TOKEN: Final = pattern(
    r"""
    (?P<gap>\s+|//[^\n]*)
    |(?P<text>(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
        |[bB]?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}
            |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>0x[0-9a-fA-F]+[uU]?|(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||[=!<>]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN_TEXT: Final = pattern(r"""(["'])([^"'\\\n]+)\1""")
_RFC_3339: Final = pattern(r"[0-9-]+T[0-9:]+(\.\d{1,3})?(Z|[+-]\d\d:\d\d)")
_MACROS: Final = frozenset(("all", "exists", "exists_one", "filter", "map"))
_METHODS: Final = _MACROS | {
    "contains", "endsWith", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
    "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
    "matches", "size", "startsWith",
}  # fmt: skip
_FUNCTIONS: Final = frozenset((
    "bytes", "double", "duration", "dyn", "has", "int", "size", "string", "timestamp", "type",
    "uint",
))  # fmt: skip
_WORDS: Final = frozenset((
    "bool", "bytes", "double", "false", "in", "int", "list", "map", "null", "null_type", "string",
    "true", "type", "uint",
))  # fmt: skip
_SWAPPED: Final = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HINTS: Final = {
    "=": "Write == to compare.",
    "and": "Write && for and.",
    "or": "Write || for or.",
    "not": "Write ! for not.",
    "like": 'Write value.item.contains("tea").',
}
_EXAMPLE: Final = 'value.cents > 100 && headers["source"] == "web"'


class Content(NamedTuple):
    """What most conditions look at; a `Record` has it, too."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Path(NamedTuple):
    """A path of constant names in an expression.

    Attributes:
        root: the field of the record.
        steps: what leads from there to the value.
        asks: whether the expression asks if there is such a field, not for its value.
    """

    root: str
    steps: tuple[str | int, ...]
    asks: bool


class Bounds(NamedTuple):
    """What indexes, headers and kernels can decide of a condition, named as in `Selection`.

    Every record that matches the condition is within them; others can be.
    """

    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    producer_id: int | None = None
    leader_epoch: int | None = None
    key: bytes | None = None
    header: tuple[bytes, bytes | None] | None = None


class Condition:
    """A condition over the fields of a record.

    Args:
        expression: in CEL. Its fields are those of `FIELDS`; `key` and `value` are a JSON object
            or array where the bytes are one, else text if they are UTF-8, else bytes. `headers`
            is a map from names to texts; of several headers of a name the last one counts.
        read_key, read_value: decode in another way.

    Attributes:
        undecodable: how many records had no answer so far since a key or a value did not decode of
            which the expression asks for a part. Threads that read ahead count, too.

    Raises:
        UsageError: the expression has an error in its syntax, or a name that is not known.
        UnsupportedError: the engine is not installed.
    """

    def __init__(
        self,
        expression: str,
        *,
        read_key: Reader | None = None,
        read_value: Reader | None = None,
    ) -> None:
        self.expression = expression
        self._readers = {"key": read_key, "value": read_value}
        self.undecodable = 0
        self._counting = Lock()
        tokens = _tokens(expression)
        _compile(expression, tokens)
        _require_names(tokens)
        text, paths = _with_variables(expression, tokens)
        self._execute = _compile(text, tokens).execute
        self._fields = {
            root: [(name, path) for name, path in paths.items() if path.root == root]
            for root in dict.fromkeys(path.root for path in paths.values())
        }
        self._roots_with_parts = {path.root for path in paths.values() if path.steps} - {"headers"}
        self.bounds = _bounds(tokens, reads_keys=read_key is not None)

    def __reduce__(self) -> Any:
        return _condition, (self.expression, *self._readers.values())

    def __repr__(self) -> str:
        return f"Condition({self.expression!r})"

    @property
    def is_about_content(self) -> bool:
        """Whether a `Content` is enough to decide."""
        return not any(self._readers.values()) and self._fields.keys() <= _OF_CONTENT

    @property
    def note(self) -> str | None:
        """What to say of keys and values that did not decode; None if all did."""
        return note_of(self.undecodable)

    @property
    def roots(self) -> Collection[str]:
        """The fields of a record that it looks at."""
        return self._fields.keys()

    def matches(self, record: Record | Content) -> bool:
        """Return whether a record meets the condition; never raises for what is in it."""
        variables: dict[str, Any] = {}
        is_decoded = True
        for root, paths in self._fields.items():
            found = self._read(root, record) if root in self._readers else FIELDS[root](record)
            if root in self._roots_with_parts and found.__class__ not in (dict, list):
                is_decoded &= found is None
            for name, (_, steps, asks) in paths:
                reached = found
                for step in steps[:-1] if asks else steps:
                    kind: Any = dict if step.__class__ is str else list
                    if reached.__class__ is not kind:
                        break
                    try:
                        reached = reached[step]
                    except LookupError:
                        break
                else:
                    if not asks:
                        variables[name] = reached
                    elif reached.__class__ is dict:
                        variables[name] = steps[-1] in reached
        try:
            return self._execute(variables) is True
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 # the engine has a dozen kinds for "no answer"
            if not is_decoded:
                with self._counting:
                    self.undecodable += 1
            return False

    def _read(self, root: str, record: Record | Content) -> Any:
        data: bytes | None = getattr(record, root)
        reader = self._readers[root]
        if data is None or reader is None:
            return None if data is None else json_or_text(data)
        try:
            return reader(data, () if isinstance(record, Content) else record.headers)
        except DataError:
            return data

    def narrow(self, selection: Selection) -> Iterator[tuple[str, Any]]:
        """Yield the attributes of a selection that the bounds of the condition tighten."""
        for name, bound in self.bounds._asdict().items():
            given = getattr(selection, name)
            if bound is None or bound == given:
                continue
            if given is None:
                yield name, bound
            elif name in ("from_offset", "from_time"):
                yield name, max(bound, given)
            elif name in ("to_offset", "to_time"):
                yield name, min(bound, given)


def note_of(undecodable: int) -> str | None:
    """Return what to say of keys and values that did not decode; None if all did."""
    if not undecodable:
        return None
    return f"--where has no answer for {counted(undecodable, 'value')} that did not decode"


@lru_cache(16)
def condition_of(expression: str) -> Condition:
    """Return the condition of an expression: one for all pieces of work, so that it counts."""
    return Condition(expression)


def _condition(expression: str, read_key: Reader | None, read_value: Reader | None) -> Condition:
    return Condition(expression, read_key=read_key, read_value=read_value)


def json_or_text(data: bytes) -> Any:
    """Return a JSON object or array as such, other UTF-8 as text, and the rest as it is.

    A number in JSON stays text: else the type of a key would depend on its letters.
    """
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return data
    start = text.lstrip(" \t\r\n")
    if not start.startswith(("{", "[")):
        return text
    try:
        found, end = _JSON.raw_decode(start)
    except (ValueError, RecursionError):
        return text
    if end != len(start) and start[end:].strip(" \t\r\n"):
        return text
    return text if len(text) > DEPTH_MAX and _is_deep(found) else found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_refuse)


def _is_deep(found: Any) -> bool:
    level = [found]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _time(record: Any) -> datetime | None:
    if record.timestamp == NO_TIMESTAMP:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=record.timestamp)
    except OverflowError:  # later than any calendar
        return None


def _headers(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for header in record.headers:
        try:
            value = None if header.value is None else str(header.value, "utf-8")
        except UnicodeDecodeError:
            found[str(header.key, "utf-8", "replace")] = header.value
        else:
            found[str(header.key, "utf-8", "replace")] = value
    return found


@lru_cache(64)
def _around(path: str) -> PartitionDir:
    """Return the partition directory around a log by its name, not listed."""
    directory = os.path.dirname(file_system.absolute(path))
    return PartitionDir(directory, partition_of(directory), ())


def _size(name: str) -> Callable[[Any], int | None]:
    def size(record: Any) -> int | None:
        data = getattr(record, name)
        return None if data is None else len(data)

    return size


FIELDS: Final[dict[str, Callable[[Any], Any]]] = {
    "offset": attrgetter("offset"),
    "timestamp": attrgetter("timestamp"),
    "time": _time,
    "key": attrgetter("key"),
    "value": attrgetter("value"),
    "key_size_bytes": _size("key"),
    "value_size_bytes": _size("value"),
    "headers": _headers,
    "topic": lambda record: _around(record.batch.path).topic,
    "partition": lambda record: _around(record.batch.path).partition,
    "sequence": attrgetter("sequence"),
    "producer_id": attrgetter("batch.producer_id"),
    "producer_epoch": attrgetter("batch.producer_epoch"),
    "leader_epoch": attrgetter("batch.leader_epoch"),
    "is_transactional": attrgetter("batch.is_transactional"),
    "is_control": attrgetter("batch.is_control"),
}
"""The fields of a record that expressions know, and how to get them."""
_OF_CONTENT: Final = frozenset((*list(FIELDS)[:7],))
_WITH_PARTS: Final = ("key", "value", "headers")


@cache
def _engine() -> Any:
    """Return the module of the engine; its package loads a command line of half a second."""
    from importlib.machinery import PathFinder
    from importlib.util import find_spec, module_from_spec

    name = "cel.cel"
    if name in sys.modules:
        return sys.modules[name]
    package = find_spec("cel")
    spec = package and PathFinder.find_spec(name, package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise UnsupportedError(
            "Conditions need the Python package common-expression-language.",
            hint="pip install 'kafkalog[data]'",
        )
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module  # it cannot be loaded twice, should somebody import the package
    return module


def _compile(expression: str, tokens: Sequence[_Token]) -> Any:
    """Return the program for an expression; raises `UsageError` with the place of an error."""
    try:
        return _engine().compile(expression)
    except ValueError as error:
        found = re.search(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]*)", str(error))
        words = (token.text for token in tokens if token.text in _HINTS)
        hint = _HINTS.get(next(words, ""), f"An example: {_EXAMPLE}")
        if found is None:
            raise UsageError("This is not a condition.", hint=hint) from error
        line, column, reason = found.groups()
        place = f"character {column}" if line == "1" else f"line {line}, character {column}"
        reason = reason.partition(" expecting ")[0]
        raise UsageError(f"The condition has an error at {place}: {reason}.", hint=hint) from None


def _tokens(expression: str) -> list[_Token]:
    return [
        _Token(str(found.lastgroup), found[0], *found.span())
        for found in _TOKEN.finditer(expression)
        if found.lastgroup != "gap"
    ]


def _require_names(tokens: Sequence[_Token]) -> None:
    """Raise `UsageError` for a field or a function that is not known: it would never match."""
    texts = ["", *(token.text for token in tokens), "", ""]
    own: set[str] = set()
    for at, token in enumerate(tokens, 1):
        if token.text in _MACROS and texts[at - 1] == "." and texts[at + 1] == "(":
            own.add(texts[at + 2])
            if texts[at + 2] in FIELDS:
                raise UsageError(
                    f"{texts[at + 2]} is a field of the record.",
                    hint=f"Give the variable of {token.text} another name.",
                )
    for at, token in enumerate(tokens, 1):
        if token.kind != "name":
            continue
        is_member, is_called = texts[at - 1] == ".", texts[at + 1] == "("
        known, kind = _WORDS | own | FIELDS.keys(), "field"
        if is_called:
            known, kind = _METHODS if is_member else _FUNCTIONS, "function"
        elif is_member:
            continue
        if token.text not in known:
            near = difflib.get_close_matches(token.text, sorted(known), 1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(sorted(known))}."
            if kind == "field" and not near:
                hint = f"A field of the value is value.{token.text}. There are {', '.join(FIELDS)}."
            raise UsageError(
                f"There is no {kind} {token.text} at character {token.start + 1} of the condition.",
                hint=_HINTS.get(token.text, hint),
            )


def _with_variables(expression: str, tokens: Sequence[_Token]) -> tuple[str, dict[str, _Path]]:
    """Return the expression with a variable for each path, and the paths by variable."""
    names: dict[_Path, str] = {}
    mark = "_"
    while mark in expression:  # else the name may be one of a macro's variable
        mark += "_"
    pieces, done, at = [], 0, 0
    while at < len(tokens):
        path, start, end = _path_at(tokens, at)
        if path is None:
            at += 1
            continue
        name = names.setdefault(path, path.root if not path.steps else f"{mark}{len(names)}")
        pieces += [expression[done : tokens[start].start], name]
        done, at = tokens[end - 1].end, end
    return "".join((*pieces, expression[done:])), {name: path for path, name in names.items()}


def _path_at(tokens: Sequence[_Token], at: int) -> tuple[_Path | None, int, int]:
    """Return the path that begins at a token, and from where to where it goes; `has` included."""
    if at + 2 < len(tokens) and [one.text for one in tokens[at : at + 2]] == ["has", "("]:
        path, _, end = _path_at(tokens, at + 2)
        is_whole = end < len(tokens) and tokens[end].text == ")"
        if path is not None and path.steps and is_whole and tokens[end - 1].kind == "name":
            return path._replace(asks=True), at, end + 1
    token = tokens[at]
    is_member = at > 0 and tokens[at - 1].text == "."
    if token.kind != "name" or is_member or token.text not in FIELDS:
        return None, at, at
    if at + 1 < len(tokens) and tokens[at + 1].text == "(":
        return None, at, at  # the function `timestamp`
    steps: list[str | int] = []
    end = at + 1
    while token.text in _WITH_PARTS:
        following = [one.text for one in tokens[end : end + 3]] + ["", "", ""]
        kinds = [one.kind for one in tokens[end : end + 2]] + ["", ""]
        if following[0] == "." and kinds[1] == "name" and following[2] != "(":
            steps.append(following[1])
            end += 2
        elif following[0] == "[" and following[2] == "]" and kinds[1] in ("text", "number"):
            step = _constant(following[1])
            if step is None:
                break
            steps.append(step)
            end += 3
        else:
            break
    return _Path(token.text, tuple(steps), asks=False), at, end


def _constant(text: str) -> str | int | None:
    """Return the value of a plain text or of a whole number; None for others."""
    if text.isdecimal():
        return int(text)
    plain = _PLAIN_TEXT.fullmatch(text)
    return None if plain is None else plain[2]


def _bounds(tokens: Sequence[_Token], *, reads_keys: bool) -> Bounds:
    """Return the bounds that the comparisons of a conjunction set."""
    bounds = Bounds()
    for part in _conjuncts(list(tokens)):
        for name, bound in _bound_by(part):
            given = getattr(bounds, name)
            if name == "key" and reads_keys:
                continue
            if given is not None and name in ("from_offset", "from_time"):
                bound = max(bound, given)
            elif given is not None and name in ("to_offset", "to_time"):
                bound = min(bound, given)
            bounds = bounds._replace(**{name: bound})
    return bounds


def _conjuncts(tokens: list[_Token]) -> Iterator[list[_Token]]:
    """Yield the parts of a conjunction, which all have to be true; or the whole."""
    parts: list[list[_Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if not depth and token.text in ("||", "?"):
            return
        if not depth and token.text == "&&":
            parts.append([])
        else:
            parts[-1].append(token)
    for part in parts:
        inner = part[1:-1]
        if part and part[0].text == "(" and part[-1].text == ")" and _is_balanced(inner):
            yield from _conjuncts(inner)
        else:
            yield part


def _is_balanced(tokens: list[_Token]) -> bool:
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth < 0:
            return False
    return True


def _bound_by(part: list[_Token]) -> Iterator[tuple[str, Any]]:
    """Yield the bounds that one comparison of a field with a constant sets."""
    at = next((i for i, token in enumerate(part) if token.text in _SWAPPED), None)
    if at is None:
        return
    sign = part[at].text
    left, right = part[:at], part[at + 1 :]
    path, _, end = _path_at(left, 0) if left else (None, 0, 0)
    if path is None or end != len(left):
        left, right, sign = right, left, _SWAPPED[sign]
        path, _, end = _path_at(left, 0) if left else (None, 0, 0)
    if path is None or end != len(left) or path.asks:
        return
    text = "".join(token.text for token in right)
    value = _constant(text) if len(right) == 1 else None
    if path.root == "time":
        value = _milliseconds(text)
    if isinstance(value, int) and not path.steps and value < _BOUND_LIMIT:
        yield from _number_bounds(path.root, sign, value)
    elif isinstance(value, str) and sign == "==":
        if path.root == "key" and not path.steps:
            yield "key", value.encode()
        elif path.root == "headers" and len(path.steps) == 1 and isinstance(path.steps[0], str):
            yield "header", (path.steps[0].encode(), value.encode())


def _number_bounds(field: str, sign: str, value: int) -> Iterator[tuple[str, Any]]:
    if field in ("producer_id", "leader_epoch") and sign == "==":
        yield field, value
    name = {"offset": "offset", "timestamp": "time", "time": "time"}.get(field)
    if name is None:
        return
    if sign in ("==", ">", ">="):
        yield f"from_{name}", value + (sign == ">")
    if sign in ("==", "<", "<="):
        yield f"to_{name}", value + (sign != "<")


def _milliseconds(text: str) -> int | None:
    """Return the constant time of `timestamp("2024-01-01T00:00:00Z")` if it has whole ones."""
    found = re.fullmatch(r"timestamp\((.*)\)", text)
    plain = found and _PLAIN_TEXT.fullmatch(found[1])
    if not plain or not _RFC_3339.fullmatch(plain[2]):
        return None
    try:
        time = _engine().evaluate(text)
    except (RuntimeError, ValueError):  # there is no such day: no record has an answer
        return None
    value = (time - _EPOCH) // timedelta(milliseconds=1)
    return value if value >= 0 else None
