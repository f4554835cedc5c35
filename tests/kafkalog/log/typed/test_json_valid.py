"""Drawn schemas, and values that another implementation says are valid: the column has them.

Objects name all their members, and lists their items: of others the types are taken to say more
than they do.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import jsonschema
import pyarrow as pa
import pytest

from kafkalog.log.typed.json_schema import JsonDecoder
from tests.kafkalog.log.typed.json_suite import compare
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from random import Random

DEFINITIONS = 3
NAMES = ("a", "b", "A", "bc")
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, 1, -5, 1.0, 2.5, 1e15, 2**62, "", "x", "2024-01-02", "\u00e9",
)  # fmt: skip


def value(rng: Random, depth: int = 0) -> Any:
    kind = rng.randrange(10 if depth < 3 else 4)
    if kind < 4:
        return rng.choice(SCALARS)
    if kind < 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {rng.choice(NAMES): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def near(rng: Random, tree: Any, root: Any, depth: int = 0) -> Any:
    """Return a value that often fits a schema: of one of its types, or of one that it refers to."""
    if not isinstance(tree, dict) or depth > 8 or rng.random() < 0.05:
        return value(rng, depth)
    if "enum" in tree:
        return rng.choice(tree["enum"])
    for word in rng.sample(("oneOf", "anyOf", "allOf", "$ref"), 4):
        if word in tree and rng.random() < 0.6:
            some = root["$defs"][tree[word][-1]] if word == "$ref" else rng.choice(tree[word])
            return near(rng, some, root, depth + 1)
    kinds = tree.get("type")
    kind = rng.choice(kinds) if isinstance(kinds, list) else kinds
    if kind == "object":
        more = tree.get("additionalProperties")
        schemas = tree.get("properties", {}) | ({"b": more, "A": more} if more else {})
        return {name: near(rng, one, root, depth + 1) for name, one in schemas.items()
                if rng.random() < 0.6}  # fmt: skip
    if kind == "array":
        [item] = tree.get("prefixItems", [tree.get("items")])
        return [near(rng, item, root, depth + 1) for _ in range(rng.randrange(2))]
    scalars = {"null": (None,), "boolean": (True, False), "string": ("", "x", "\u00e9"),
               "integer": (0, -5, 1.0, 2**62), "number": (1, 2.5, -1e-300)}  # fmt: skip
    return rng.choice(scalars[kind]) if kind else value(rng, depth)


def schema(rng: Random, depth: int = 0, least: int = 0) -> Any:
    """Return a schema of a type, or of others, or of both.

    Args:
        least: the first definition that it may refer to: none refers to itself for one value.
    """
    draw = rng.random()
    if draw < 0.04:
        return rng.choice((True, True, False, {}))
    if draw < 0.1:
        return {"enum": [value(rng, 2) for _ in range(rng.randint(1, 3))]}
    if draw < 0.18 and least < DEFINITIONS:
        return {"$ref": f"#/$defs/{rng.randrange(least, DEFINITIONS)}"}
    found: dict[str, Any] = {}
    if draw < 0.8 or depth > 3:
        found = _of_type(rng, depth)
    if rng.random() < 0.3 and depth < 4:
        for word in rng.sample(("oneOf", "anyOf", "allOf", "if", "not", "$ref"), 2):
            found |= _more(rng, word, depth + 1, least)
    return found


def _more(rng: Random, word: str, depth: int, least: int) -> dict[str, Any]:
    if word == "$ref":
        is_there = least < DEFINITIONS
        return {word: f"#/$defs/{rng.randrange(least, DEFINITIONS)}"} if is_there else {}
    if word in ("if", "not"):
        some = rng.choice(({"type": "null"}, {"minimum": 1}, {"required": ["a"]}))
        ends = [one for one in ("then", "else") if word == "if" and rng.random() < 0.7]
        return {word: some, **{end: schema(rng, depth, least) for end in ends}}
    some = [schema(rng, depth, least) for _ in range(rng.randint(1, 3))]
    return {word: [*some, {"type": "null"}] if rng.random() < 0.3 and word != "allOf" else some}


def _of_type(rng: Random, depth: int) -> dict[str, Any]:
    kinds = ("string", "integer", "number", "boolean", "null", "object", "object", "array")
    kind = rng.choice(kinds)
    found: dict[str, Any] = {"type": kind}
    if rng.random() < 0.25:
        found["type"] = [kind, rng.choice(kinds)]
    if kind == "array" or "array" in found["type"]:
        found |= rng.choice((
            {"items": schema(rng, depth + 1)},
            {"prefixItems": [schema(rng, depth + 1)], "items": False},
            {},
        ))  # fmt: skip
    if kind == "object" or "object" in found["type"]:
        names = rng.sample(NAMES, rng.randrange(4))
        found["properties"] = {name: schema(rng, depth + 1) for name in names}
        found["additionalProperties"] = rng.choice((False, False, schema(rng, depth + 1)))
        if rng.random() < 0.1:
            found["patternProperties"] = {"^b": schema(rng, depth + 1)}
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_valid_values_of_drawn_schemas() -> None:
    """They decode, and what the column has of them is as it was."""
    rng = drawn_for("schemas of JSON")
    counts: Counter[str] = Counter()
    for number in range(2000 if tries_everything() else 100):
        tree = schema(rng)
        if not isinstance(tree, dict):
            continue
        tree["$schema"] = "https://json-schema.org/draft/2020-12/schema"
        tree["$defs"] = {str(n): schema(rng, 1, n + 1) for n in range(DEFINITIONS)}
        validator = jsonschema.Draft202012Validator(tree)
        decoder = JsonDecoder(json.dumps(tree).encode())
        texts = {one.path for one in decoder.remarks if one.type == "json"}
        for _ in range(20):
            given = near(rng, tree, tree)
            if not validator.is_valid(given):
                continue
            try:
                [there] = pa.array(
                    [decoder.decode(json.dumps(given).encode())], decoder.type
                ).to_pylist(maps_as_pydicts="strict")
                compare(decoder.type, there, given, "", texts)
            except (AssertionError, ValueError) as error:
                error.add_note(f"{number}: {json.dumps(tree)} of {given!r}: {decoder.type}")
                raise
            counts["text" if "" in texts else "typed"] += 1
    print(counts)
    assert counts["typed"] > counts["text"] // 2 > 0
