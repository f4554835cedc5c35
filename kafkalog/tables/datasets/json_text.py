"""Lets DuckDB's JSON functions read bytes as text.

To DuckDB, bytes are a JSON string with escapes such as `\\x22`: every path into it is NULL. So what
these functions are given is passed through a macro that decodes bytes and leaves other types alone.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXT: Final = "kafkalog_text"
_LISTED: Final = "kafkalog_listed_text"
_NAMED: Final = "kafkalog_named_text"
_OVERLOADS: Final = f"""
    (x BLOB) AS {_TEXT}(x),
    (x STRUCT("key" VARCHAR, "value" BLOB)[]) AS {{0}},
    (x STRUCT("key" VARCHAR, "value" VARCHAR)[]) AS {{0}},
    (x) AS x
"""
_LIST: Final = f"list_transform(x, lambda h: {{'key': h.key, 'value': {_TEXT}(h.value)}})"
# Nothing in a list has a name: a name means that of a header, whose first value counts.
_MEMBERS: Final = (
    f"list_transform(x, lambda h: to_json(h.key) || ':' || coalesce(to_json({_TEXT}(h.value)), "
    "'null'))"
)
MACROS: Final = (
    # What is no UTF-8 gets escapes, which are no JSON.
    f"CREATE MACRO {_TEXT}(x BLOB) AS coalesce(try(decode(x)), x::VARCHAR), (x) AS x",
    f"CREATE MACRO {_LISTED}{_OVERLOADS.format(_LIST)}",
    f"CREATE MACRO {_NAMED}"
    + _OVERLOADS.format(f"'{{' || array_to_string({_MEMBERS}, ',') || '}}'"),
)
_EXPLAINS: Final = re.compile(r"\s*explain\b", re.IGNORECASE)
_MAY_READ: Final = re.compile(r"json|->", re.IGNORECASE)


def with_text(connection: Any, query: str, *, has_bytes: bool) -> str:
    """Return a statement whose JSON functions and casts get text in place of bytes.

    Args:
        connection: a database with the macros.
        query: the statement.
        has_bytes: whether keys and values are bytes.

    Raises:
        UsageError: they are, and the statement may use them where a macro cannot stand.
    """
    if _EXPLAINS.match(query) or not _MAY_READ.search(query):
        return query
    with connection.cursor() as cursor:
        tree = _tree(cursor, query)
        if tree is None:
            if has_bytes:
                _require_decoded(query)
            return query
        parsed = {name: _tree(cursor, f"SELECT {name}(x)") for name in (_LISTED, _NAMED)}
        calls = {
            name: one["statements"][0]["node"]["select_list"][0] for name, one in parsed.items()
        }
        if has_bytes and _is_in_from(tree):
            _require_decoded(query)
        if not _wrap_all(tree, calls):
            return query
        return _answer(cursor, "SELECT json_deserialize_sql(?::JSON)", json.dumps(tree))


def _require_decoded(query: str) -> None:
    """Raise where bytes may be meant to be JSON, and cannot be passed through a macro."""
    if "decode" not in query.lower():
        raise UsageError(
            "key_bytes and value_bytes are bytes, in which JSON functions find nothing.",
            hint="Write key and value, or decode(value_bytes).",
        )


def _answer(cursor: Any, query: str, *values: str) -> str:
    [[text]] = cursor.execute(query, values).fetchall()
    return str(text)


def _tree(cursor: Any, query: str) -> Any:
    """Return a query as DuckDB parses it; None for other statements."""
    tree = json.loads(_answer(cursor, "SELECT json_serialize_sql(?)", query))
    return None if tree["error"] else tree


def _wrap_all(tree: Any, calls: dict[str, Any]) -> bool:
    """Wrap what JSON functions and casts to JSON are given; return whether there was any."""
    found = False
    for node in _nodes(tree):
        for holder, name in _given(node):
            # `value->'a'->>'b'` is parsed as `value->('a'->>'b')`, and put right by the binder.
            if holder[name]["class"] != "CONSTANT":
                call = deepcopy(calls[_macro_for(node)])
                call["arguments"][0]["expression"] = holder[name]
                holder[name] = call
                found = True
    return found


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a tree outside of table functions, where DuckDB 2.0 fails on macros."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting += [] if node.get("type") == "TABLE_FUNCTION" else node.values()
            yield node
        elif isinstance(node, list):
            waiting += node


def _is_in_from(tree: Any) -> bool:
    """Return whether a table function of JSON is given something."""
    return any(
        _given(node["function"]) for node in _nodes(tree) if node.get("type") == "TABLE_FUNCTION"
    )


def _macro_for(node: dict[str, Any]) -> str:
    """Return the macro for what a JSON function, an arrow or a cast is given."""
    function = node.get("function_name", "").lower()
    path = node["expr"] if node["class"] == "LAMBDA" else None
    if function == "->>":
        path = node["arguments"][1]["expression"]
    while path is not None and path["class"] in ("LAMBDA", "FUNCTION"):  # the rest of a chain
        path = path["lhs"] if path["class"] == "LAMBDA" else path["arguments"][0]["expression"]
    literal = {} if path is None else path.get("literal", {})
    is_name = literal.get("kind") == "STRING" and not literal["text"].startswith(("$", "/"))
    return _NAMED if is_name else _LISTED


def _given(node: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return where a node of the tree holds what a JSON function or cast is given."""
    kind = node.get("class")
    if kind == "LAMBDA" and node["syntax_type"] == "SINGLE_ARROW":
        return [(node, "lhs")]
    if kind == "CAST" and node["type_expr"].get("type_name", "").lower() == "json":
        return [(node, "child")]
    if kind == "FUNCTION" and re.search("json|->>", node["function_name"], re.IGNORECASE):
        return [(one, "expression") for one in node["arguments"]]
    return []
