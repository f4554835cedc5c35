"""How an object of NDJSON and JSON output is described: its type, its fields and their types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INT, TEXT, BOOL = "integer", "string", "boolean"
BYTES = "string, object or null"


def maybe(kind: str) -> str:
    """The type of a field that can be null."""
    return f"{kind} or null"


@dataclass(frozen=True)
class ObjectType:
    """One `type` of object: what prints it, what it is, its fields as (JSON type, meaning)."""

    printed_by: str
    meaning: str
    fields: dict[str, tuple[str, str]]
    optional: frozenset[str] = field(default=frozenset())


def documented(*types: Any) -> dict[str, ObjectType]:
    """Describe types that the command line declares."""
    return {
        one.name: ObjectType(
            one.printed_by,
            one.meaning,
            {name: (field.kind.name, field.meaning) for name, field in one.fields.items()},
            frozenset(name for name, field in one.fields.items() if field.only_if is not None),
        )
        for one in types
    }
