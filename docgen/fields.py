"""The fields of objects, each explained once: where it comes first in the page.

An object extends an earlier one if it has all its fields, but for a few. Of other fields that an
earlier object has, with the same type and meaning, it has only the names, behind a link to that
object. Neighbours of the same type and meaning share a line, and a field whose name says it all has
no meaning. All of that follows from the declarations in `kafkalog_cli/output/`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog_cli.output.objects import Field, ObjectType

_LACKING_MAX: Final = 2
_FIELDS_OF_A_BASE_MIN: Final = 5
_SHORT_WORDS: Final = 2
"""A meaning that is no longer stands again: a link would not be shorter."""


@dataclass(frozen=True, slots=True)
class Explained:
    """How the page explains the fields of an object.

    Attributes:
        extends: the object whose fields it has, but for those that it lacks.
        lacking: names of fields of that object which it lacks.
        links: names of fields that other objects explain, by the names of these.
        own: the fields that it explains itself.
    """

    extends: ObjectType[Any] | None
    lacking: tuple[str, ...]
    links: dict[str, list[str]]
    own: list[Field[Any]]


def explained(objects: Iterable[ObjectType[Any]]) -> dict[str, Explained]:
    """Return how each object is explained, in the order of the page."""
    found: dict[str, Explained] = {}
    earlier: list[ObjectType[Any]] = []
    explained_by: dict[tuple[str, str, str], str] = {}
    for one in objects:
        keys = {_key(field) for field in one.fields.values()}
        base = _base(keys, earlier)
        inherited = set() if base is None else {_key(field) for field in base.fields.values()}
        links: dict[str, list[str]] = {}
        own = []
        for field in one.fields.values():
            key = _key(field)
            if key in inherited:
                continue
            if key in explained_by and len(field.meaning.split()) > _SHORT_WORDS:
                links.setdefault(explained_by[key], []).append(field.name)
            else:
                explained_by.setdefault(key, one.name)
                own.append(field)
        lacking = () if base is None else _lacking(keys, base)
        found[one.name] = Explained(base, lacking, links, own)
        earlier.append(one)
    return found


def field_lines(one: Explained) -> str:
    """List the fields of an object: those that others explain, then its own."""
    lines = []
    if one.extends is not None:
        but = f" but {_named(one.lacking)}" if one.lacking else ""
        lines.append(f"- all of {_link(one.extends.name)}{but}\n")
    lines += [f"- {_link(owner)}: {_named(names)}\n" for owner, names in one.links.items()]
    for (kind, meaning), fields in groupby(one.own, key=lambda one: (_type(one), one.meaning)):
        said = f": {meaning}" if meaning else ""
        lines.append(f"- {_named(one.name for one in fields)} {kind}{said}\n")
    return "".join(lines)


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _type(field: Field[Any]) -> str:
    """Return the JSON type of a field, with a question mark if it can be null."""
    name = field.kind.name
    return f"{name.removesuffix(' or null')}?" if name.endswith(" or null") else name


def _link(name: str) -> str:
    return f"[`{name}`](#{name})"


def _key(field: Field[Any]) -> tuple[str, str, str]:
    """Return what the page says of a field: where that is the same, one place says it."""
    return field.name, field.kind.name, field.meaning


def _base(
    keys: set[tuple[str, str, str]], earlier: list[ObjectType[Any]]
) -> ObjectType[Any] | None:
    """Return the earlier object that has the most fields in common, if nearly all of its own."""
    best, most = None, _FIELDS_OF_A_BASE_MIN - 1
    for one in earlier:
        common = sum(_key(field) in keys for field in one.fields.values())
        if common > most and len(one.fields) - common <= _LACKING_MAX:
            best, most = one, common
    return best


def _lacking(keys: set[tuple[str, str, str]], base: ObjectType[Any]) -> tuple[str, ...]:
    return tuple(name for name, field in base.fields.items() if _key(field) not in keys)
