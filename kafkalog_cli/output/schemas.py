"""JSON Schemas of all rows, from their declarations: draft 2020-12."""

from __future__ import annotations

import json
import re
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UsageError
from kafkalog_cli.output import (
    anatomy,
    compactions,
    compared,
    disk_usage,
    explanations,
    exported,
    findings,
    found,
    groups,
    listing,
    lookups,
    manifests,
    metadata,
    objects,
    overviews,
    profiles,
    quorums,
    records,
    repairs,
    replayed,
    retention,
    rolls,
    side_files,
    trims,
    undone,
)
from kafkalog_cli.output.objects import ObjectType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog_cli.output.objects import Field

VERSION: Final = 1
"""It changes when a field is removed or means something else."""
_WORD: Final = r"`[^`() ]+`(?: \([^)]*\))?"
_FIXED_WORDS: Final = re.compile(rf"(?:[a-z, ]+: )?{_WORD}(?:, {_WORD})*,? or {_WORD}|"
                                 rf"(?:[a-z, ]+: )?{_WORD}(?:, {_WORD})+")  # fmt: skip


def object_types() -> dict[str, ObjectType[Any]]:
    """Return every type of row that the commands print, by name."""
    families = (
        listing, records, side_files, anatomy, lookups, objects, findings, explanations, repairs,
        retention, trims, rolls, compactions, disk_usage, undone, replayed, profiles, exported,
        groups, found, compared, metadata, quorums, overviews,
    )  # fmt: skip
    declared = [one for family in families for one in vars(family).values()]
    types = [one for one in declared if isinstance(one, ObjectType)]
    return {one.name: one for one in types} | manifests.object_types()


def schema_of(one: ObjectType[Any]) -> dict[str, Any]:
    fields = one.fields.values()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kafkalog:{VERSION}:{one.name}",
        "description": one.meaning,
        "type": "object",
        "properties": {"type": {"const": one.name}} | {each.name: _value(each) for each in fields},
        "required": ["type", *(each.name for each in fields if each.only_if is None)],
        "additionalProperties": True,
    }


def schema_named(name: str) -> dict[str, Any]:
    """Return the schema of a type of row.

    Raises:
        UsageError: there is no such type; the hint names similar ones.
    """
    types = object_types()
    if name not in types:
        near = get_close_matches(name, types) or sorted(types)
        raise UsageError(f"No row has the type {name!r}.", hint=f"There are {', '.join(near)}.")
    return schema_of(types[name])


def _value(field: Field[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": field.meaning} if field.meaning else {}
    kinds = field.kind.name.replace(" or ", ", ").split(", ")
    if kinds != ["any"]:
        schema["type"] = kinds[0] if len(kinds) == 1 else kinds
    if kinds[0] == "string" and _FIXED_WORDS.fullmatch(field.meaning):
        words = re.findall(r"`([^`]+)`", re.sub(r"\(.*?\)", "", field.meaning))
        schema["enum"] = [*words, None] if "null" in kinds else words
    return schema


def print_schemas(names: Sequence[str]) -> None:
    """Print the schemas of these types, of all without a name: a single one for people to read."""
    found = [schema_named(name) for name in names] or [*map(schema_of, object_types().values())]
    indent = 2 if len(found) == 1 else None
    for one in found:
        sys.stdout.buffer.write(f"{json.dumps(one, ensure_ascii=False, indent=indent)}\n".encode())
