"""Rows by a template (`-f`): `'{partition}\\t{offset}\\t{value.user}\\n'`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.errors import UsageError
from kafkalog.io.wording import printable
from kafkalog_cli.output.layout import near
from kafkalog_cli.output.objects import ABSENT
from kafkalog_cli.output.text import bytes_cell, dumps
from kafkalog_cli.values import is_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog_cli.output.objects import Field, View

T = TypeVar("T")
_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|\\(.?)|([{}])", re.DOTALL)
_ESCAPES: Final = {"t": "\t", "n": "\n", "0": "\0", "\\": "\\"}


def template(view: View[T]) -> Callable[[T], str]:
    """Return a function that writes a value by the template of a view's layout.

    A row ends with a newline unless the template ends with one, or with `\\0`.

    Raises:
        UsageError: the template is missing or malformed, or names what is no field of the values.
    """
    text = view.style.layout.template
    if text is None:
        raise UsageError("There is no template.", hint="Give it with -f.")
    parts: list[str | Callable[[T], str]] = []
    at = 0
    for match in _PART.finditer(text):
        parts.append(text[at : match.start()])
        parts.append(_part(match, view))
        at = match.end()
    parts.append(text[at:])
    literals = [part for part in parts if part != ""]
    if not literals or not (isinstance(literals[-1], str) and literals[-1][-1] in "\n\0"):
        parts.append("\n")

    def row(value: T) -> str:
        return "".join(part if isinstance(part, str) else part(value) for part in parts)

    return row


def _part(match: re.Match[str], view: View[T]) -> str | Callable[[T], str]:
    escaped, name, stray = match[2], match[1], match[3]
    if stray is not None:
        raise UsageError(f"A {stray!r} in the template stands alone.", hint=f"Write {stray * 2}.")
    if escaped is not None:
        if escaped not in _ESCAPES:
            raise UsageError(
                f"'\\{escaped}' in the template means nothing.",
                hint=r"There are \t, \n, \0 and \\.",
            )
        return _ESCAPES[escaped]
    return match[0][0] if name is None else _field(name, view)


def _field(text: str, view: View[T]) -> Callable[[T], str]:
    """Return a function that gives a field, or what is inside it, as text."""
    path, _, form = text.partition(":")
    fields = view.fields
    if not fields:
        return _of_column(path, form, view)
    name, *inner = path.split(".")
    if name not in fields:
        raise UsageError(f"There is no field {name!r}.", hint=near(name, [*fields]))
    field, style = fields[name], view.style
    get, kind, forms = field.getter(), field.kind, dict(field.kind.forms)
    if form and (form not in forms or inner):
        known = [f"{name}:{one}" for one in forms]
        raise UsageError(
            f"{{{text}}} is no form of {name!r}.",
            hint=f"There are {', '.join(known)}." if known and not inner else "Leave it out.",
        )
    write = forms.get(form)

    def shown(value: T) -> str:
        found = get(value)
        if found is None or found is ABSENT:
            return ""
        if write is not None:
            return printable(write(found, style))
        if inner:
            return printable(_text(_inside(_as_json(found, field, view), inner)))
        if isinstance(found, bytes):
            form_of_bytes = style.key_form if name == "key" else style.value_form
            return printable(bytes_cell(found, form_of_bytes)) if found else ""
        return printable(_text(found if kind.to_json is None else kind.to_json(found, style)))

    return shown


def _of_column(path: str, form: str, view: View[T]) -> Callable[[T], str]:
    """Return what `_field` does for rows of a query, whose columns are its own."""
    names = [column.title for column in view.columns]
    name, *inner = [path] if path in names else path.split(".")
    if name not in names or form:
        raise UsageError(f"There is no column {path!r}.", hint=near(name, names))

    def shown(value: T) -> str:
        found = view.row(value)[name]
        if inner:
            found = _inside(_json(found) if isinstance(found, str) else found, inner)
        return printable(_text(found))

    return shown


class _Number(float):
    """A number of JSON with its digits: as a float it could lose some."""

    __slots__ = ("digits",)
    digits: str

    def __new__(cls, digits: str) -> _Number:
        made = super().__new__(cls, digits)
        made.digits = digits
        return made


def _json(text: str | bytes) -> object:
    try:
        return json.loads(text, parse_float=_Number)
    except (ValueError, RecursionError):
        return None


def _as_json(found: object, field: Field[Any], view: View[Any]) -> object:
    """Return a field as JSON: bytes are parsed."""
    if isinstance(found, bytes):
        return _json(found)
    to_json = field.kind.to_json
    return found if to_json is None else to_json(found, view.style)


def _inside(found: object, path: list[str]) -> object:
    """Return what a path leads to; None if it leads to nothing.

    A step is a name, the number of an item, or the key of one among `headers`.
    """
    for step in path:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and is_number(step):
            found = found[int(step)] if int(step) < len(found) else None
        elif isinstance(found, list):
            named = [one for one in found if isinstance(one, dict) and one.get("key") == step]
            found = named[0].get("value") if named else None
        else:
            return None
    return found


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return value.digits if isinstance(value, _Number) else dumps(value)
