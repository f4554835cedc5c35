"""Types that hold the values of two others; what neither can hold together gets a field of its own.

Fields of structs are the same if their schemas give them one name, and one type holds the values of
both. If none does, the second becomes a field next to the first, its name followed by its type, as
in `price__string`: a conflict field. So every value is in the field of its own type, at any depth.
Items of lists and values of maps have no name: there the whole list or map is such a field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kafkalog.log.typed.lake_types import (
    JSON_KEY,
    NAME_KEY,
    aliases_of,
    column_names,
    given_name,
    is_json_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Rule = Callable[[Any, Any], Any]

ONE_OF_KEY: Final = b"kafkalog:one-of"
"""In the metadata of a struct: each of its fields is one type that the value may have."""
_OF_ONE: Final = (ONE_OF_KEY, JSON_KEY)
_FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())
# How pyiceberg holds them in memory says nothing.
_PLAIN: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
# A large integer that float64 has not exactly does not decode.
_JOINED: Final = {
    frozenset((pa.float32(), pa.float64())): pa.float64(),
    frozenset((pa.int64(), pa.float64())): pa.float64(),
}
_NAMES: Final = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int32, "int"),
    (pa.types.is_integer, "long"),
    (pa.types.is_float32, "float"),
    (pa.types.is_floating, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_date, "date"),
    (pa.types.is_list, "list"),
    (pa.types.is_large_list, "list"),
    (pa.types.is_map, "map"),
    (pa.types.is_struct, "struct"),
)


def type_name(one: Any) -> str:
    """Return the name of a field's type, as the name of a conflict field ends with it."""
    kind = _PLAIN.get(one.type, one.type)
    if is_json_text(one) and not pa.types.is_nested(kind):
        return "json"
    if pa.types.is_decimal(kind):
        return f"decimal_{kind.precision}_{kind.scale}"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return next((name for is_it, name in _NAMES if is_it(kind)), "binary")


def type_words(one: Any) -> str:
    """Return the name of a field's type, of a list or a map with those of what is in it."""
    kind = one.type
    if is_list(kind):
        return f"list of {type_words(one.with_type(kind.value_type))}"
    if pa.types.is_map(kind):
        key = type_name(kind.key_field)
        words = type_words(one.with_type(kind.item_type))
        return f"map of {words}" if key == "string" else f"map of {key} to {words}"
    return type_name(one)


# Which type holds the values of two --------------------------------------------------------------


def kept(here: Any, other: Any) -> Any:
    """Return the type here if it holds all values of another, or else None.

    It also holds decimals of another scale, those that it has exactly.
    """
    if here == other or _holds(here, other):
        return here
    is_decimal = pa.types.is_decimal(here) and pa.types.is_decimal(other)
    return here if is_decimal and here.scale != other.scale else None


def widened(here: Any, other: Any) -> Any:
    """Return the wider one of two types; None if neither holds the values of the other."""
    return kept(here, other) or (other if _holds(other, here) else None)


def common_type(here: Any, other: Any) -> Any:
    """Return the type for the values of both that a new column has; None without one."""
    if pa.types.is_decimal(here):
        return widened(here, other)
    return here if here == other else _JOINED.get(frozenset((here, other)))


def _holds(wide: Any, narrow: Any) -> bool:
    """Return whether every value of one type is one of the other, exactly."""
    is_ = pa.types
    if is_.is_signed_integer(wide) and is_.is_signed_integer(narrow):
        return bool(wide.bit_width >= narrow.bit_width)
    if wide in _FLOATS and narrow in _FLOATS:
        return bool(wide.bit_width >= narrow.bit_width)
    if is_.is_decimal128(wide) and is_.is_decimal128(narrow):
        # Another scale would move the decimal point in values that are already stored.
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return False


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def fits(here: Any, other: Any, rule: Rule) -> bool:
    """Return whether one field can have the values of both, if conflicts below them have theirs."""
    is_alike = is_json_text(here) == is_json_text(other)
    return _fits(here.type, other.type, rule, is_alike=is_alike)


def _fits(here: Any, other: Any, rule: Rule, *, is_alike: bool) -> bool:
    is_ = pa.types
    if is_.is_struct(here) or is_.is_struct(other):
        return bool(is_.is_struct(here) and is_.is_struct(other))
    if is_list(here) and is_list(other):
        return _fits(here.value_type, other.value_type, rule, is_alike=is_alike)
    if is_.is_map(here) and is_.is_map(other):
        keys = here.key_type, other.key_type
        is_same = _PLAIN.get(keys[0], keys[0]) == _PLAIN.get(keys[1], keys[1])
        return is_same and _fits(here.item_type, other.item_type, rule, is_alike=is_alike)
    here, other = _PLAIN.get(here, here), _PLAIN.get(other, other)
    if here == other:
        return is_alike or not is_.is_string(here)
    return rule(here, other) is not None


def refusal(here: Any, other: Any, path: str) -> str:
    """Return why values of one field do not fit into another one."""
    return f"{path or 'it'} is {type_words(other)}, and {type_words(here)} in the column"


# Which fields are the same -----------------------------------------------------------------------


class Source(NamedTuple):
    """A field of a struct, or one of the types that it may have.

    Attributes:
        place: where it is in the struct.
        part: which one of the types it is; None for the field itself.
        field: its `pyarrow.Field`.
    """

    place: int
    part: int | None
    field: Any


def sources(fields: Sequence[Any]) -> list[Source]:
    """Return the fields of a struct, with one for each type that a field may have."""
    found = []
    for place, one in enumerate(fields):
        if ONE_OF_KEY not in (one.metadata or {}):
            found.append(Source(place, None, one))
            continue
        for part, inner in enumerate(one.type):
            # The mark of JSON is on the inner one, the names are those of the outer one.
            notes = {key: one.metadata[key] for key in one.metadata if key not in _OF_ONE}
            notes |= inner.metadata or {}
            found.append(Source(place, part, pa.field(one.name, inner.type, metadata=notes)))
    return found


def column_name(one: Any) -> str:
    """Return the name of a field, whatever its schema calls it."""
    return str(one.name)


def paired(
    here: Sequence[Any],
    others: Sequence[Source],
    rule: Rule,
    name_of: Callable[[Any], str] = given_name,
) -> list[int | None]:
    """Return for each of some sources which field here has its values; None if none can.

    The same are those for which `name_of` returns the same. No two have one field, but for the
    types that one field may have, of which each value has one.
    """
    names: dict[str, list[int]] = {}
    for i, one in enumerate(here):
        names.setdefault(name_of(one), []).append(i)
    found: list[int | None] = [None] * len(others)
    used: dict[int, int] = {}

    def take(is_it: Callable[[Any, Any], bool]) -> None:
        for number, source in enumerate(others):
            if found[number] is not None:
                continue
            for i in group(source):
                is_free = used.get(i, source.place) == source.place
                one = here[i]
                if is_free and is_it(one, source.field) and fits(one, source.field, rule):
                    found[number], used[i] = i, source.place
                    break

    def group(source: Source) -> list[int]:
        given = [name_of(source.field), *aliases_of(source.field)]
        return [i for one in given for i in names.get(one, ())]

    take(lambda one, other: bool(one.type == other.type and one.name == other.name))
    take(lambda one, other: bool(one.type == other.type))
    take(lambda one, other: bool(one.name == other.name))
    take(lambda _one, _other: True)
    return found


# The type of both --------------------------------------------------------------------------------


class Conflict(NamedTuple):
    """A field whose values have a field of another type next to theirs.

    Attributes:
        path: where they are, as in `Remark`.
        base: the field of the other type.
        field: theirs.
    """

    path: str
    base: Any
    field: Any


@dataclass
class Merger:
    """Makes the fields for the values of two types, and notes how they differ from the first.

    Args:
        rule: `kept`, `widened` or `common_type`: which scalar holds the values of two.
        refuse: called with a path and the two fields of a conflict, before it gets a field.
        name_of: as for `paired`.
        renames: whether the first get the names of the second, where these have aliases for theirs.

    Attributes:
        added, widened, absent: paths of fields that the first lacks, that it has with a narrower
            type, and that the second lacks.
        conflicts: the fields of the second that are conflict fields.
        old: paths of fields by the aliases of others, with the names that these have in the second.
        renamed: likewise, of those that have got these names.
    """

    rule: Rule
    refuse: Callable[[str, Any, Any], None] = lambda _path, _here, _other: None
    name_of: Callable[[Any], str] = given_name
    renames: bool = False
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    old: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def fields(
        self,
        here: Sequence[Any],
        others: Sequence[Any],
        prefix: str = "",
        *,
        are_columns: bool = False,
    ) -> list[Any]:
        """Return the fields here with those of another struct.

        Args:
            prefix: the path of the structs with a dot.
            are_columns: whether they are columns of tables, whose names are settled.
        """
        given = sources(others)
        same: dict[int | None, list[Source]] = {}
        pairs = paired(here, given, self.rule, self.name_of)
        for source, to in zip(given, pairs, strict=True):
            same.setdefault(to, []).append(source)
        bases: dict[str, Any] = {}
        for one in here:
            bases.setdefault(self.name_of(one), one)
        found = []
        for i, one in enumerate(here):
            path = f"{prefix}{one.name}"
            if i not in same:
                self.absent.append(path)
                # Null in the rows of the others, so no longer required.
                found.append(one.with_nullable(True))
                continue
            for source in same[i]:
                other = source.field
                self._note(path, bases, one, other)
                is_nullable = one.nullable or other.nullable
                one = one.with_type(self.type(one, other, path)).with_nullable(is_nullable)
            if self.renames and path in self.old and self._is_free(one, path, (*here, *found)):
                self.renamed[path] = self.old.pop(path)
                one = one.with_name(self.renamed[path])
                bases.setdefault(one.name, one)  # of what else its new name is that of
            found.append(one)
        new = [
            (source, base, self._new(base, source.field, prefix))
            for source in self._distinct(same.get(None, []), prefix)
            for base in [self._base(bases, source.field)]
        ]
        names = column_names(one.name for one in (*found, *(one for _, _, one in new)))
        for (source, base, one), name in zip(new, names[len(found) :], strict=True):
            made = one if are_columns and base is None else renamed(one, name)
            path = f"{prefix}{made.name}"
            self.added.append(path)
            if base is not None:
                self.conflicts.append(Conflict(path, base, source.field))
            found.append(made)
        return found

    def _distinct(self, new: Sequence[Source], prefix: str) -> list[Source]:
        """Return sources without a field; two types of one value, if they fit, are one of them."""
        found: list[Source] = []
        places: dict[int, list[int]] = {}
        for one in new:
            of_value = places.setdefault(one.place, [])
            for i in of_value:
                first = found[i].field
                if fits(first, one.field, self.rule):
                    kind = self.type(first, one.field, prefix + first.name)
                    found[i] = found[i]._replace(field=first.with_type(kind))
                    break
            else:
                of_value.append(len(found))
                found.append(one)
        return found

    def _note(self, path: str, bases: Mapping[str, Any], one: Any, other: Any) -> None:
        if self.name_of(other) != self.name_of(one):
            self.old[path] = given_name(other)
            return
        base = self._base(bases, other)
        if base is not None and base.name != one.name:
            self.conflicts.append(Conflict(path, base, other))

    def _is_free(self, one: Any, path: str, others: Sequence[Any]) -> bool:
        """Return whether a field can have its new name: the old one was given, the new is free."""
        names = {other.name.casefold() for other in others}
        return given_name(one) == one.name and self.old[path].casefold() not in names

    def _base(self, bases: Mapping[str, Any], other: Any) -> Any:
        """Return the field with whose type another one is in conflict; None without one."""
        base = bases.get(self.name_of(other))
        # Messages whose numbers changed have two fields with one given name.
        is_same = base is not None and base.type == other.type and fits(base, other, self.rule)
        return None if is_same else base

    def _new(self, base: Any, other: Any, prefix: str) -> Any:
        """Return a field that is null in all values so far."""
        if base is None:
            return other.with_nullable(True)
        self.refuse(f"{prefix}{base.name}", base, other)
        return renamed(other, f"{base.name}__{type_name(other)}").with_nullable(True)

    def type(self, here: Any, other: Any, path: str) -> Any:
        """Return the type for the values of two fields that fit."""
        return self._type(here.type, other.type, path)

    def _type(self, here: Any, other: Any, path: str) -> Any:
        is_ = pa.types
        if is_.is_struct(here):
            return pa.struct(self.fields(list(here), list(other), f"{path}." if path else ""))
        if is_list(here):
            item = self._item(here.value_field, other.value_field, f"{path}[]")
            return pa.large_list(item) if is_.is_large_list(here) else pa.list_(item)
        if is_.is_map(here):
            return pa.map_(here.key_field, self._item(here.item_field, other.item_field,
                                                      f"{path}{{}}"))  # fmt: skip
        found = here if here == other else self.rule(here, other)
        if found != here:
            self.widened.append(path)
        return found

    def _item(self, here: Any, other: Any, path: str) -> Any:
        kind = self._type(here.type, other.type, path)
        return here.with_type(kind).with_nullable(here.nullable or other.nullable)


def renamed(one: Any, name: str) -> Any:
    """Return a field with another name, whose metadata has the given one."""
    given = given_name(one)
    found = one.with_name(name)
    if given == name:
        return found
    return found.with_metadata({**(one.metadata or {}), NAME_KEY: given.encode()})
