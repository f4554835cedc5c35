"""The messages of `messages.txt` and `requests.txt` as values: their fields, and in which versions.

The heads of the tables explain their notation. Follows the message definitions of Kafka 4.4 and
`org.apache.kafka.message.FieldSpec`, which defines how they are read. What an older release knows
otherwise is in a table of its own, `messages-4.3.txt` say.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Final

from formats.late_classes import dataclass
from formats.late_patterns import pattern
from formats.packaged import packaged_text
from formats.releases import newest

_OPEN: Final = 1 << 15
"""End of an open range of versions, exclusive: versions are 16-bit numbers."""

_TOKEN: Final = pattern(r"@tag\d+|\[v[\d+-]+\]|\[\]|\?[\d+-]*|[{};]|=[^\s;}]+|\w+")
_LACKING: Final = pattern(r"(?m)^- (\w+)$")
_DEFAULTS: Final[dict[str, object]] = {
    "str": "",
    "bytes": b"",
    "bool": False,
    "f64": 0.0,
    "uuid": "A" * 22,
    "records": None,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        name: name in lowerCamel, as Kafka's tools print it.
        type: a type name of the table, or `struct`.
        array: whether the field is an array of `type`.
        nullable: whether null is allowed.
        nullable_in: the versions that allow null, if not all do.
        versions: versions of the message that have the field.
        tag: number of a tagged field, None for the others.
        default: value of the field if it is absent; None is null. A struct's is {}.
        struct: the fields of a struct, None for the other types.
    """

    name: str
    type: str
    array: bool
    nullable: bool
    versions: range
    tag: int | None
    default: object
    struct: Struct | None
    nullable_in: range = range(_OPEN)


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in the order of the definition."""

    fields: tuple[Field, ...]

    def fields_of(self, version: int) -> tuple[Field, ...]:
        """Return the fields that `version` has, including tagged ones."""
        return tuple(
            field if version in field.nullable_in else replace(field, nullable=False)
            for field in self.fields
            if version in field.versions
        )


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the table.

    Attributes:
        family: the group of messages it belongs to, e.g. `offsets`, or the API's name.
        api_key: record type, apiKey or control record type; None for messages without one.
        part: `key` or `value`, `-` for messages inside other messages, `request` or `response`.
        name: the definition's name.
        versions: versions that the release knows.
        flexible_versions: versions in the flexible encoding, open-ended, maybe empty.
        struct: the fields.
    """

    family: str
    api_key: int | None
    part: str
    name: str
    versions: range
    flexible_versions: range
    struct: Struct

    @property
    def enum_name(self) -> str:
        """The name in Kafka's enums of record types, e.g. `TOPIC_RECORD`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.name).upper()


def messages(release: str | None = None) -> dict[str, Message]:
    """Return all messages of `messages.txt` by name.

    Args:
        release: as which release knows them, 4.3 say; None for the newest.
    """
    return _messages(release)


@cache  # which takes `messages()` and `messages(None)` for two calls
def _messages(release: str | None) -> dict[str, Message]:
    if release is None:
        return _by_name(packaged_text("messages.txt"))
    if release == newest().name:
        return messages()
    text = packaged_text(f"messages-{release}.txt")
    lacking = set(_LACKING.findall(text))
    found = messages() | _by_name(_LACKING.sub("", text))
    return {name: one for name, one in found.items() if name not in lacking}


@cache
def requests() -> dict[str, Message]:
    """Return all requests and responses of `requests.txt` by name, e.g. `FetchRequest`."""
    return _by_name(packaged_text("requests.txt"))


def _by_name(text: str) -> dict[str, Message]:
    return {found.name: found for found in parse_table(text)}


def parse_table(text: str) -> list[Message]:
    """Parse the notation of `messages.txt`; raises ValueError if the text does not follow it."""
    entries: list[list[str]] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            entries.append([line])
        elif entries:
            entries[-1].append(line)
        else:
            raise ValueError(f"fields before the first message: {line!r}")
    return [_parse_message(head, " ".join(body)) for head, *body in entries]


def _parse_message(head: str, body: str) -> Message:
    family, key, part, name, versions, flexible = head.split()
    tokens = _TOKEN.findall(body)
    # `findall` passes over what it does not know: nothing of a definition may be lost.
    if "".join(tokens) != "".join(body.split()):
        raise ValueError(f"message {name} has text that is no field: {body!r}")
    tokens.reverse()
    struct = _parse_struct(tokens)
    if tokens:
        raise ValueError(f"message {name} has text after its fields: {tokens[-1]!r}")
    return Message(
        family=family,
        api_key=None if key == "-" else int(key),
        part=part,
        name=name,
        versions=_parse_range(versions),
        flexible_versions=range(0) if flexible == "-" else range(int(flexible), _OPEN),
        struct=struct,
    )


def _parse_range(text: str) -> range:
    first, dash, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return range(int(first), _OPEN)
    return range(int(first), int(last if dash else first) + 1)


def _parse_struct(tokens: list[str]) -> Struct:
    """Pop the fields up to the closing brace from the end of the reversed `tokens`."""
    fields = []
    while tokens and tokens[-1] != "}":
        fields.append(_parse_field(tokens))
        if tokens and tokens[-1] == ";":
            tokens.pop()
    return Struct(tuple(fields))


def _parse_field(tokens: list[str]) -> Field:
    tag = int(tokens.pop().removeprefix("@tag")) if tokens[-1].startswith("@") else None
    versions = range(_OPEN)
    if tokens[-1].startswith("[v"):
        versions = _parse_range(tokens.pop()[2:-1])
    name = tokens.pop()
    nullable = bool(tokens) and tokens[-1].startswith("?")
    nullable_in = _parse_range(tokens.pop()[1:] or "0+") if nullable else range(_OPEN)
    array = _take(tokens, "[]")
    type_name, struct = tokens.pop(), None
    if type_name == "{":
        type_name, struct = "struct", _parse_struct(tokens)
        if not _take(tokens, "}"):
            raise ValueError(f"struct {name} is not closed")
    stated = tokens.pop()[1:] if tokens and tokens[-1].startswith("=") else None
    return Field(
        name=name[0].lower() + name[1:],
        type=type_name,
        array=array,
        nullable=nullable,
        versions=versions,
        tag=tag,
        default=_default(type_name, stated, array=array),
        struct=struct,
        nullable_in=nullable_in,
    )


def _take(tokens: list[str], token: str) -> bool:
    found = bool(tokens) and tokens[-1] == token
    if found:
        tokens.pop()
    return found


def _default(type_name: str, stated: str | None, *, array: bool) -> object:
    if stated == "null":
        return None
    if array:
        return []
    if type_name == "struct":
        return {}
    if type_name == "bool":
        return stated == "true"
    return _DEFAULTS.get(type_name, 0) if stated is None else int(stated)
