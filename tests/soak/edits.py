"""Edits of a document of JSON lines: names and values changed, fields removed, added or doubled."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from tests.soak.mutations import mutated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

ROOT = "@ROOT@"
"""Stands in documents for the directory that an input is laid out in."""
PARTITION = "orders-0"
_NAMES = (
    "", ".", "..", "../outside", "../../outside", f"{ROOT}/outside", "a/b", "a\0b",
    "orders 0", "x\n0 0 0", "x" * 300, "\ud800", "\udcff", "other-1", "orders-0.2", PARTITION,
    "checkpoints", "journal.ndjson", "00000000000000000000.log", "authorized_keys",
    f"{ROOT}/log", f"{ROOT}/log/orders-0", f"{ROOT}/outside/orders-0", f"{ROOT}/log/../outside",
    f"{ROOT}/link/orders-0", f"orders-0.{'0' * 32}-delete", "../outside/authorized_keys",
    "replication-offset-checkpoint", "meta.properties", "run", "partition", "undoing", "done",
)  # fmt: skip
_VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 1.5, [], {}, [[]], {"": {}},
    float("inf"), float("nan"),
)  # fmt: skip


# Documents that somebody has edited -------------------------------------------------------------


def edited(text: str, rng: Random) -> str:
    """Return a JSON text after one to four edits."""
    value = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _edited_value(value, rng)
    found = json.dumps(value)
    kind = rng.randrange(12)
    if kind == 0:
        return mutated(found.encode("utf-8", "replace"), rng).decode("utf-8", "replace")
    if kind == 1 and found.startswith("{") and len(value) > 0:  # a field twice
        name = rng.choice(list(value))
        return f"{{{json.dumps(name)}:{json.dumps(rng.choice(_NAMES))},{found[1:]}"
    if kind == 2:
        return found.replace("0", "9" * rng.choice((20, 5000)), 1)
    if kind == 3:
        depth = rng.choice((20, 100_000))
        return found.replace("null", "[" * depth + "]" * depth, 1)
    return found


def _edited_value(value: Any, rng: Random) -> Any:
    places = list(_places(value)) if isinstance(value, dict | list) else []
    if not places:
        return deepcopy(rng.choice(_VALUES))
    holder, key = rng.choice(places)
    kind = rng.randrange(10)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(_NAMES)] = holder.pop(key)
    elif kind == 2 and isinstance(holder, list):
        holder.append(holder[key])
    elif kind == 3 and isinstance(holder, dict):
        holder[rng.choice((*_NAMES, "extra"))] = deepcopy(rng.choice((*_VALUES, *_NAMES)))
    elif kind == 4 and isinstance(holder[key], str):
        way = rng.choice(("../", "/", "\n", "\0", "x"))
        holder[key] = rng.choice((way + holder[key], holder[key] + way))
    elif kind <= 7 or isinstance(holder[key], str):
        holder[key] = rng.choice(_NAMES)
    else:
        holder[key] = deepcopy(rng.choice(_VALUES))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in list(inner):
        yield value, key
        if isinstance(one, dict | list):
            yield from _places(one)


# Trees ------------------------------------------------------------------------------------------
