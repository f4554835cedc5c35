"""Our own JSON: how a line is written, and strict reading by a schema for each kind of document.

Anybody who can write to a backup, an export or a log directory can put anything there. So what a
schema does not name is refused too: unknown fields, repeated fields, numbers out of bounds.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import field, is_dataclass
from dataclasses import fields as dataclass_fields
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, get_args, get_origin, get_type_hints

from formats.constants import INT64_MAX
from formats.late_classes import dataclass
from kafkalog.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_SHOWN_MAX: Final = 80


class Schema(Protocol):
    """Describes which JSON values are allowed."""

    def check(self, value: Any, place: str) -> None:
        """Raise `ValueError` with the place in the document unless the value follows the schema."""


@dataclass(frozen=True, slots=True)
class Text:
    """A string that a pattern or a function accepts."""

    takes: re.Pattern[str] | Callable[[str], object] | None = None
    length_max: int = 4096

    def check(self, value: Any, place: str) -> None:
        takes = self.takes.fullmatch if isinstance(self.takes, re.Pattern) else self.takes
        if (
            not isinstance(value, str)
            or len(value) > self.length_max
            or (takes is not None and not takes(value))
        ):
            raise _mismatch(place, value)


@dataclass(frozen=True, slots=True)
class Number:
    """An integer within bounds."""

    least: int = 0
    most: int = INT64_MAX

    def check(self, value: Any, place: str) -> None:
        # Not bool, which is an int.
        if type(value) is not int or not self.least <= value <= self.most:
            raise _mismatch(place, value)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the listed values."""

    values: tuple[object, ...]

    def check(self, value: Any, place: str) -> None:
        if isinstance(value, bool) or value not in self.values:  # True equals 1
            raise _mismatch(place, value)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def check(self, value: Any, place: str) -> None:
        if not isinstance(value, bool):
            raise _mismatch(place, value)


@dataclass(frozen=True, slots=True)
class Anything:
    """Any value: one that is only compared with another."""

    def check(self, value: Any, place: str) -> None:
        """Do what `Schema` describes."""


@dataclass(frozen=True, slots=True)
class Maybe:
    """Null, or a value."""

    inner: Schema

    def check(self, value: Any, place: str) -> None:
        if value is not None:
            self.inner.check(value, place)


@dataclass(frozen=True, slots=True)
class Either:
    """A value that follows at least one of several schemas."""

    inner: tuple[Schema, ...]

    def check(self, value: Any, place: str) -> None:
        for schema in self.inner:
            with suppress(ValueError):
                schema.check(value, place)
                return
        raise _mismatch(place, value)


@dataclass(frozen=True, slots=True)
class Items:
    """A list of values of one kind."""

    inner: Schema
    count_min: int = 0

    def check(self, value: Any, place: str) -> None:
        if not isinstance(value, list) or len(value) < self.count_min:
            raise _mismatch(place, value)
        for number, one in enumerate(value):
            self.inner.check(one, f"{place}/{number}")


@dataclass(frozen=True, slots=True)
class Row:
    """A list of fixed length, with a schema per element."""

    inner: tuple[Schema, ...]

    def check(self, value: Any, place: str) -> None:
        if not isinstance(value, list) or len(value) != len(self.inner):
            raise _mismatch(place, value)
        for number, (schema, one) in enumerate(zip(self.inner, value, strict=True)):
            schema.check(one, f"{place}/{number}")


@dataclass(frozen=True, slots=True)
class Entries:
    """An object whose keys are data as well."""

    key: Schema
    inner: Schema

    def check(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _mismatch(place, value)
        for name, one in value.items():
            self.key.check(name, f"{place}/")
            self.inner.check(one, f"{place}/{name[:_SHOWN_MAX]}")


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with these fields, of which some may be missing, and no others except `others`."""

    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)
    others: Schema | None = None

    def check(self, value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise _mismatch(place, value)
        for name in self.required:
            if name not in value:
                raise ValueError(f"{place}/{name} is missing")
        for name, one in value.items():
            schema = self.required.get(name) or self.optional.get(name) or self.others
            if schema is None:
                raise ValueError(f"{place}/{name[:_SHOWN_MAX]!a} is not known")
            schema.check(one, f"{place}/{name}")


def json_line(document: object) -> bytes:
    """Return a document as one line of ASCII, whatever the names in it contain."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def schema_of(model: type, *, optional: Collection[str] = ()) -> Fields:
    """Derive the schema of a dataclass, as `asdict` writes it, from the types of its fields.

    Supports numbers, flags, strings, bytes (as strings, a letter for each), string enumerations,
    dataclasses, tuples and dictionaries, each of them also as `… | None`. Fields in `optional` may
    be missing.
    """
    hints = get_type_hints(model)
    found = {one.name: _schema_of_type(hints[one.name]) for one in dataclass_fields(model)}
    return Fields(
        {name: schema for name, schema in found.items() if name not in optional},
        {name: found[name] for name in optional},
    )


def _schema_of_type(kind: Any) -> Schema:
    arguments = get_args(kind)
    if isinstance(kind, UnionType) and type(None) in arguments:
        [inner] = (one for one in arguments if one is not type(None))
        return Maybe(_schema_of_type(inner))
    if get_origin(kind) is tuple:
        if arguments[-1] is ...:
            return Items(_schema_of_type(arguments[0]))
        return Row(tuple(map(_schema_of_type, arguments)))
    if get_origin(kind) is dict:
        return Entries(*map(_schema_of_type, arguments))
    if is_dataclass(kind):
        return schema_of(cast("type", kind))
    if issubclass(kind, StrEnum):
        return OneOf(tuple(map(str, kind)))
    text = Text(length_max=1 << 20)
    plain: dict[Any, Schema] = {
        bool: Flag(), int: Number(-INT64_MAX - 1, INT64_MAX), str: text, bytes: text,
    }  # fmt: skip
    return plain[kind]


def parsed(data: bytes | str) -> Any:
    """Parse a JSON text strictly.

    Raises:
        ValueError: it is not JSON, repeats a field, has a number that JSON does not know or that
            has
            thousands of digits, or is nested deeper than any of our documents.
    """
    try:
        return json.loads(
            data.decode() if isinstance(data, bytes) else data,
            object_pairs_hook=_object,
            parse_constant=_refuse,
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_document(data: bytes | str, schema: Schema, path: str, what: str) -> Any:
    """Parse a document and check it against a schema.

    Args:
        data: the text.
        schema: the schema to check.
        path: where the text was found, for the error.
        what: what it should be, such as `a plan of an export`.

    Raises:
        CorruptDataError: it does not follow the schema.
    """
    try:
        value = parsed(data)
        schema.check(value, "")
    except ValueError as error:
        raise CorruptDataError(
            f"This is not {what}: {error}.", path=path, hint="Was it edited?"
        ) from error
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is repeated")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _mismatch(place: str, value: Any) -> ValueError:
    if isinstance(value, list | dict):
        shown = "a list" if isinstance(value, list) else "an object"
    elif isinstance(value, int) and not isinstance(value, bool):
        # Python prints only so many digits.
        shown = str(value) if abs(value) < 1 << 128 else "a huge number"
    else:
        shown = ascii(value if not isinstance(value, str) else value[:_SHOWN_MAX])
    return ValueError(f"{place or '/'} cannot be {shown}")
