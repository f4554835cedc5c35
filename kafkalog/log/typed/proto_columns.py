"""The columns of Protobuf messages: types from descriptors, and values from parsed messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa
from google.protobuf import message, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from kafkalog.log.typed.cells import COUNTER, cells_of, cells_of_items, cells_of_text
from kafkalog.log.typed.lake_types import (
    JSON,
    NAME_KEY,
    PRESENT,
    TEXT,
    column_names,
    json_text,
    struct_type,
)
from kafkalog.log.typed.proto_cells import MessageCells
from kafkalog.log.typed.proto_known import (
    CONFLUENT_DECIMAL,
    SCALARS,
    Known,
    is_any,
    known_message,
    shortest,
    text_of,
)
from kafkalog.log.typed.reasons import step
from kafkalog.log.typed.remarks import Remark

Convert = Callable[[Any], Any]
_ColumnOf = Callable[[Any, str, Any], tuple[Any, Convert]]

DEFAULT_KEY: Final = b"kafkalog:default"
"""In the metadata of a field: the default that its schema has, as JSON. Values have null."""
# Beyond these a message is JSON: few bytes can describe columns without end.
_DEPTH_MAX: Final = 64
_FIELDS_MAX: Final = 10_000
# Messages in messages of type `Any`, each of which is a copy of the bytes inside.
_ANY_DEPTH_MAX: Final = 8
_FIELD_META: Final = "confluent.field_meta"
_TYPE: Final = "@type"
_UNSET: Final = object()
# Not methods of the messages: a field can have their names.
_HAS_FIELD: Final = Empty.HasField
_HAS_EXTENSION: Final = Empty.HasExtension
_EXTENSIONS: Final = Empty.Extensions.__get__
is_complete: Final = Empty.IsInitialized
"""Returns whether a message, and those that it holds, have all that is required."""
_BYTE_SIZE: Final = Empty.ByteSize
_DISCARD_UNKNOWN: Final = Empty.DiscardUnknownFields


@dataclass(slots=True)
class Seen:
    """What a message has that its column lacks.

    Attributes:
        has_lost_digits: whether a time has fewer digits.
        has_unknown: whether it has fields, or symbols of a closed enum, that the schema lacks.
    """

    has_lost_digits: bool = False
    has_unknown: bool = False


class MessageColumns:
    """Makes the types of columns for messages, and what converts messages to values of these.

    Args:
        pool: has all messages.
        names: the name of the column, and the name that the schema gives, by a message's full name
            and a field's number; it gets those of further fields.

    Attributes:
        remarks: the parts that are JSON.
        seen: what the messages had since it was reset.
        cells: counts those of messages before they are parsed.
    """

    def __init__(self, pool: Any, names: dict[tuple[str, int], tuple[str, str]]) -> None:
        self.remarks: list[Remark] = []
        self.seen = Seen()
        self.cells = MessageCells(pool)
        self._pool = pool
        self._names = names
        self._count = self._any_depth = 0
        self._trees: dict[str, Convert] = {}
        self._symbols: dict[str, Convert] = {}

    def column(
        self, descriptor: Any, path: str = "", around: tuple[str, ...] = (), holder: Any = None
    ) -> tuple[Any, Convert]:
        """Return the type of a message's column, and what converts it.

        Args:
            descriptor: of the message.
            path: of the column, as in `Remark`.
            around: full names of the messages that hold it.
            holder: the field that holds it.
        """
        known = self.known(descriptor, holder)
        if known is not None:
            if known.reason:
                self.remarks.append(Remark(path, "json", known.reason))
            return known.type, self.one_value(descriptor, holder)
        count = len(descriptor.fields) + len(self._pool.FindAllExtensions(descriptor))
        if is_any(descriptor):
            reason = "it is a message of any type"
        elif descriptor.full_name in around:
            reason = f"{descriptor.full_name} contains itself"
        elif len(around) == _DEPTH_MAX:
            reason = f"it is nested more than {_DEPTH_MAX} levels deep"
        elif self._count + count > _FIELDS_MAX:
            reason = f"the schema describes more than {_FIELDS_MAX} fields"
        else:
            self._count += count
            return self._struct(descriptor, path, (*around, descriptor.full_name))
        self.remarks.append(Remark(path, "json", reason))
        return JSON, self.one_value(descriptor, holder)

    def known(self, descriptor: Any, holder: Any) -> Known | None:
        """Return what a message means in the field that holds it, as `known_message` does."""
        is_decimal = holder is not None and descriptor.full_name == CONFLUENT_DECIMAL
        return known_message(descriptor, self._params(holder) if is_decimal else {})

    def one_value(self, descriptor: Any, holder: Any) -> Convert:
        """Return what converts a message whose column is not a struct: what it means, or JSON."""
        known = self.known(descriptor, holder)
        if known is not None:
            return self._watched(known.value, known)
        tree = self._tree(descriptor)
        return lambda found: json_text(tree(found))

    def _struct(self, descriptor: Any, path: str, around: tuple[str, ...]) -> tuple[Any, Convert]:
        seen = self.seen
        columns: list[Any] = []
        getters: list[tuple[str, Convert]] = []
        kinds: dict[str, Any] = {}

        def column_of(one: Any, inner: str, holder: Any) -> tuple[Any, Convert]:
            return self.column(one, inner, around, holder)

        for name, field in self.named(descriptor):
            kind, convert = self._field(field, f"{path}.{name}".lstrip("."), column_of)
            _, given = self._names[descriptor.full_name, field.number]
            metadata = {NAME_KEY: given.encode()} if given != name else {}
            if field.has_default_value:
                default = self._scalar(field, True)
                text = json_text(default(field.default_value) if default else field.default_value)
                metadata[DEFAULT_KEY] = text.encode()
            columns.append(pa.field(name, kind, metadata=metadata or None))
            getters.append((name, _getter(field, convert)))
            kinds[name] = kind

        def converted(found: Any) -> Any:
            if len(UnknownFieldSet(found)):
                seen.has_unknown = True
            values = {}
            name = ""
            try:
                for name, get in getters:
                    values[name] = get(found)
            except ValueError as error:
                error.add_note(step(name, kinds[name]))
                raise
            return values

        def present(found: Any) -> Any:
            converted(found)
            return {PRESENT: True}

        return (pa.struct(columns), converted) if columns else (struct_type(()), present)

    def named(self, descriptor: Any) -> list[tuple[str, Any]]:
        """Return the fields of a message, and the extensions that the files have, by column."""
        fields = list(descriptor.fields)
        given = {field.number: field.name for field in fields}
        taken = set(given.values())
        for field in sorted(self._pool.FindAllExtensions(descriptor), key=lambda one: one.number):
            is_taken = field.name in taken
            given[field.number] = field.full_name.replace(".", "_") if is_taken else field.name
            taken.add(given[field.number])
            fields.append(field)
        # Fields that another version named first: their columns are settled.
        keys = {number: (descriptor.full_name, number) for number in given}
        order = sorted(given, key=lambda number: keys[number] not in self._names)
        names = column_names(self._names.get(keys[number], (given[number],))[0] for number in order)
        columns = dict(zip(order, names, strict=True))
        for field in fields:
            self._names.setdefault(keys[field.number], (columns[field.number], field.name))
        return [(columns[field.number], field) for field in fields]

    def _tree(self, descriptor: Any) -> Convert:
        """Return what converts a message to what `json_text` takes."""
        known = known_message(descriptor, {})
        if known is not None:
            return self._watched(known.as_json, replace(known, is_lossy=None))
        if is_any(descriptor):
            return self._any
        made = self._trees.get(descriptor.full_name)
        if made is None:
            made = self._trees[descriptor.full_name] = self._new_tree(descriptor)
        return made

    def _new_tree(self, descriptor: Any) -> Convert:
        seen = self.seen
        getters: list[tuple[str, Convert]] | None = None
        width = 0

        def column_of(one: Any, _path: str, _holder: Any) -> tuple[Any, Convert]:
            return JSON, self._tree(one)

        def tree(found: Any) -> Any:
            nonlocal getters, width
            if getters is None:  # not before it is needed: messages can contain themselves
                getters = [
                    (
                        name,
                        _getter(field, self._field(field, "", column_of, is_json=True)[1], _UNSET),
                    )
                    for name, field in self.named(descriptor)
                ]
                width = 1 + sum(1 + cells_of_text(len(name)) for name, _ in getters)
            COUNTER.add(1, width)
            if len(UnknownFieldSet(found)):
                seen.has_unknown = True
            values = ((name, get(found)) for name, get in getters)
            return {name: value for name, value in values if value is not _UNSET}

        return tree

    def _any(self, found: Any) -> Any:
        """Return an `Any` as JSON, with the bytes of a message that is unknown or damaged."""
        url = text_of(found.type_url)
        if not url and not found.value:
            return {}
        as_bytes = {_TYPE: url, "value": found.value}
        if self._any_depth == _ANY_DEPTH_MAX:
            return as_bytes
        try:
            descriptor = self._pool.FindMessageTypeByName(url.rpartition("/")[2])
            self.cells.require_few(descriptor, found.value)
            inside = message_factory.GetMessageClass(descriptor).FromString(found.value)
        except (KeyError, message.DecodeError, RecursionError):
            return as_bytes
        if not is_complete(inside):
            return as_bytes
        self._any_depth += 1
        try:
            tree = self._tree(descriptor)(inside)
        finally:
            self._any_depth -= 1
        is_one_value = is_any(descriptor) or known_message(descriptor, {}) is not None
        return {_TYPE: url, "value": tree} if is_one_value else {_TYPE: url, **tree}

    def _watched(self, convert: Convert, known: Known) -> Convert:
        """Return what converts a known message, and looks for what the column lacks."""
        seen, is_lossy = self.seen, known.is_lossy

        def deep(found: Any) -> Any:
            size = _BYTE_SIZE(found)
            _DISCARD_UNKNOWN(found)
            if _BYTE_SIZE(found) != size:
                seen.has_unknown = True
            return convert(found)

        def flat(found: Any) -> Any:
            if len(UnknownFieldSet(found)):
                seen.has_unknown = True
            if is_lossy is not None and is_lossy(found):
                seen.has_lost_digits = True
            return convert(found)

        return deep if known.reason else flat

    def _field(
        self, field: Any, path: str, column_of: _ColumnOf, *, is_json: bool = False
    ) -> tuple[Any, Convert | None]:
        """Return the type of a field, and what converts its value; None for the value itself.

        Args:
            field: its descriptor.
            path: of its column.
            column_of: returns the same for a message, given its descriptor, path and field.
            is_json: whether the value becomes JSON.
        """

        def single(one: Any, inner: str) -> tuple[Any, Convert | None]:
            if one.message_type is not None:
                return column_of(one.message_type, inner, field)
            return SCALARS.get(one.type, TEXT), self._scalar(one, is_json)

        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            keys, values = inner.fields_by_name["key"], inner.fields_by_name["value"]
            key, key_convert = single(keys, f"{path}{{}}")
            value, convert = single(values, f"{path}{{}}")
            one = convert or _same
            entries = pa.map_(key, value)
            width = cells_of_items(entries)

            # Protobuf leaves the order open: sorted, the same message gives the same bytes.
            def pairs(found: Any) -> Any:
                COUNTER.add(len(found), width)
                names = sorted(map(key_convert, found) if key_convert else found)
                return [(name, one(found[name])) for name in names]

            def tree(found: Any) -> Any:
                return {_key_text(name): value for name, value in pairs(found)}

            return entries, tree if is_json else pairs
        kind, convert = single(field, f"{path}[]" if field.is_repeated else path)
        if not field.is_repeated:
            return kind, convert
        width = cells_of(kind)

        def items(found: Any) -> Any:
            COUNTER.add(len(found), width)
            return list(found) if convert is None else [convert(each) for each in found]

        return pa.list_(kind), items

    def _scalar(self, field: Any, is_json: bool) -> Convert | None:
        """Return what converts a value that is no message; None for the value itself."""
        enum = field.enum_type
        if enum is not None:
            # Once for each enum: many fields can have one of many symbols.
            if enum.full_name not in self._symbols:
                self._symbols[enum.full_name] = _symbols(enum)
            return self._symbols[enum.full_name]
        if field.type == FieldDescriptorProto.TYPE_STRING:
            return text_of
        return shortest if is_json and field.type == FieldDescriptorProto.TYPE_FLOAT else None

    def _params(self, field: Any) -> dict[str, str]:
        """Return what Confluent's `field_meta` says about a field."""
        try:
            extension = self._pool.FindExtensionByName(_FIELD_META)
            options = self._pool.FindMessageTypeByName("google.protobuf.FieldOptions")
            # The options belong to the pool of the library, which lacks the extension.
            data = field.GetOptions().SerializeToString()
            found = message_factory.GetMessageClass(options).FromString(data)
            return {str(name): str(one) for name, one in found.Extensions[extension].params.items()}
        # Any schema can have an option of that name.
        except (KeyError, AttributeError, TypeError, ValueError, message.DecodeError):
            return {}


def symbols(enum: Any) -> dict[int, str]:
    """Return the names of an enum's numbers."""
    # Reversed: of names with one number, the first.
    return {one.number: one.name for one in reversed(enum.values)}


def _symbols(enum: Any) -> Convert:
    names = symbols(enum)
    return lambda number: COUNTER.add_text(names.get(number) or str(number))


def _same(value: Any) -> Any:
    return value


def _key_text(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _getter(field: Any, convert: Convert | None, unset: Any = None) -> Convert:
    """Return what takes the value of a field out of a message, or `unset`."""
    get: Convert
    if field.is_extension:
        has, key = _HAS_EXTENSION, field

        def get(found: Any) -> Any:
            return _EXTENSIONS(found)[field]
    else:
        has, key = _HAS_FIELD, field.name
        get = attrgetter(field.name)
    one = convert
    if not field.has_presence:
        return get if one is None else lambda found: one(get(found))
    if one is None:
        return lambda found: get(found) if has(found, key) else unset
    return lambda found: one(get(found)) if has(found, key) else unset
