"""Message definitions in Kafka's jars, in the notation of `formats/messages.txt`."""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

Definition = dict[str, Any]
"""A message or a field, as its JSON has it."""

WIDTH = 100
_TYPES = {
    "string": "str", "bytes": "bytes", "records": "records", "bool": "bool", "int8": "i8",
    "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "float64": "f64",
    "uuid": "uuid",
}  # fmt: skip


def read_definitions(jars: Iterable[Path]) -> dict[str, Definition]:
    """Return the definitions of all messages in some jars, by name."""
    definitions = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"common/\w+/\w+\.json|message/\w+\.json", name):
                    text = archive.read(name).decode()
                    parsed = json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text))
                    definitions[parsed["name"]] = parsed
    return definitions


def offered(definitions: Mapping[str, Definition]) -> dict[str, Definition]:
    """Return the definitions with the versions that a broker offers: no unstable ones."""
    stable = {}
    for name, one in definitions.items():
        request = definitions.get(name.replace("Response", "Request"), one)
        if request.get("latestVersionUnstable"):
            versions = _span(one["validVersions"])[:-1]
            if versions:
                stable[name] = {**one, "validVersions": f"{versions[0]}-{versions[-1]}"}
        else:
            stable[name] = one
    return stable


def write_message(
    family: str, key: int | None, part: str, definition: Definition, widths: tuple[int, ...]
) -> str:
    """Return a message's entry: its head, in columns of these widths, and its fields."""
    versions, flexible = definition["validVersions"], definition["flexibleVersions"]
    cells = (
        family, ("-" if key is None else str(key)).rjust(2), part, definition["name"], versions,
        "-" if flexible == "none" else flexible.rstrip("+"),
    )  # fmt: skip
    head = " ".join(map(str.ljust, cells, widths))
    common = {one["name"]: one["fields"] for one in definition.get("commonStructs", ())}
    fields = _fields(definition["fields"], common, _span(versions))
    return "\n".join([head, *_lines(fields, 4)])


class _Field:
    """A field with its inner ones; `within` are the versions that have what it is in."""

    def __init__(
        self, field: Definition, common: Mapping[str, Sequence[Definition]], within: range
    ) -> None:
        kind = field["type"].removeprefix("[]")
        self.versions = _overlap(_span(_stated(field)), within)
        self.head = "".join(_head(field, self.versions, within))
        self.type = _TYPES.get(kind, "")
        self.default = _default(kind, field)
        inner = None if kind in _TYPES else field.get("fields") or common[kind]
        self.inner = None if inner is None else _fields(inner, common, self.versions)

    def flat(self) -> str:
        """Return the field in one line."""
        if self.inner is None:
            return f"{self.head}{self.type}{self.default}"
        inner = "; ".join(one.flat() for one in self.inner)
        return f"{self.head}{{ {inner} }}{self.default}"


def _fields(
    fields: Iterable[Definition], common: Mapping[str, Sequence[Definition]], within: range
) -> list[_Field]:
    """Return the fields that any of the versions has: an unstable one is not among them."""
    all_fields = [_Field(one, common, within) for one in fields]
    return [one for one in all_fields if one.versions]


def _head(field: Definition, versions: range, within: range) -> Iterator[str]:
    """Yield what comes before the type: tag, versions, name, null, array."""
    if field.get("taggedVersions", "none") != "none":
        yield f"@tag{field['tag']} "
    if versions != within:
        yield f"[v{_stated(field)}] "
    yield f"{field['name']} "
    nullable = _overlap(_span(field.get("nullableVersions", "none")), versions)
    if nullable:
        yield "?" if nullable == versions else f"?{field['nullableVersions']}"
    if field["type"].startswith("[]"):
        yield "[]"


def _stated(field: Definition) -> str:
    versions: str = field.get("versions") or field["taggedVersions"]
    return versions


def _default(kind: str, field: Definition) -> str:
    """Return the default, where it is not the type's own."""
    stated = field.get("default")
    if stated == "null":
        return "=null"
    if stated is None or kind not in _TYPES or field["type"].startswith("[]"):
        return ""
    if kind == "bool":
        return "=true" if str(stated).lower() == "true" else ""
    if kind.startswith(("int", "uint")):
        number = int(str(stated), 0)
        return f"={number}" if number else ""
    return ""


def _lines(fields: Sequence[_Field], indent: int) -> Iterator[str]:
    """Yield fields in lines no longer than `WIDTH`; a struct that does not fit is spread."""
    line = ""
    for at, field in enumerate(fields):
        end = ";" if at + 1 < len(fields) else ""
        flat = field.flat() + end
        if indent + len(line) + bool(line) + len(flat) <= WIDTH:
            line = f"{line} {flat}".lstrip()
            continue
        if line and (field.inner is None or indent + len(flat) <= WIDTH):
            yield " " * indent + line
            line = flat
            continue
        if field.inner is None or indent + len(flat) <= WIDTH:
            line = flat
            continue
        opening = f"{field.head}{{"
        if line and indent + len(line) + 1 + len(opening) > WIDTH:
            yield " " * indent + line
            line = ""
        yield " " * indent + f"{line} {opening}".lstrip()
        yield from _lines(field.inner, indent + 2)
        line = f"}}{field.default}{end}"
    if line:
        yield " " * indent + line


def _span(text: str) -> range:
    """Parse a range of versions: `none`, `3`, `0-4` or `2+`."""
    if text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    return range(int(first), 1 << 15 if text.endswith("+") else int(last if dash else first) + 1)


def _overlap(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
