"""Files of Protobuf that schemas import, and registries do not keep: of Google and of Confluent."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

_GOOGLE: Final = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
    "timestamp", "type", "wrappers",
)  # fmt: skip
_GOOGLE_TYPES: Final = (
    "calendar_period", "color", "date", "datetime", "dayofweek", "decimal", "expr", "fraction",
    "interval", "latlng", "localized_text", "money", "month", "phone_number", "postal_address",
    "quaternion", "timeofday",
)  # fmt: skip
_META: Final = "confluent/meta.proto"
_DECIMAL: Final = "confluent/type/decimal.proto"
_DESCRIPTOR: Final = "google/protobuf/descriptor.proto"
_META_NUMBER: Final = 1088
_EXTENDED: Final = ("File", "Message", "Field", "Enum", "EnumValue")
_FIELD: Final = FieldDescriptorProto


def builtin_file(name: str) -> Any:
    """Return the descriptor of a file; None if it is not one of these, or its package is missing.

    Args:
        name: as schemas import it, such as `google/protobuf/timestamp.proto`.
    """
    if name == _META:
        return _meta()
    if name == _DECIMAL:
        return _decimal()
    place, _, stem = name.removesuffix(".proto").rpartition("/")
    if (place, stem) not in _MODULES or not name.endswith(".proto"):
        return None
    try:
        module = import_module(f"{place.replace('/', '.')}.{stem}_pb2")
    except ModuleNotFoundError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def builtin_files() -> list[Any]:
    """Return the descriptors of all of these files that the compiler does not have."""
    names = [_META, _DECIMAL, *(f"google/type/{stem}.proto" for stem in _GOOGLE_TYPES)]
    return [found for found in map(builtin_file, names) if found is not None]


_MODULES: Final = {
    *(("google/protobuf", stem) for stem in _GOOGLE),
    *(("google/type", stem) for stem in _GOOGLE_TYPES),
}


def _decimal() -> Any:
    file = FileDescriptorProto(name=_DECIMAL, package="confluent.type", syntax="proto3")
    one = file.message_type.add(name="Decimal")
    _add(one, "value", 1, _FIELD.TYPE_BYTES)
    _add(one, "precision", 2, _FIELD.TYPE_UINT32)
    _add(one, "scale", 3, _FIELD.TYPE_INT32)
    return file


def _meta() -> Any:
    file = FileDescriptorProto(
        name=_META, package="confluent", syntax="proto3", dependency=[_DESCRIPTOR]
    )
    meta, rule = file.message_type.add(name="Meta"), file.message_type.add(name="Rule")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        _add(entry, name, number, _FIELD.TYPE_STRING)
    _add(meta, "doc", 1, _FIELD.TYPE_STRING)
    _add(meta, "params", 2, _FIELD.TYPE_MESSAGE, ".confluent.Meta.ParamsEntry")
    _add(meta, "tags", 3, _FIELD.TYPE_STRING)
    _add(meta, "rules", 4, _FIELD.TYPE_MESSAGE, ".confluent.Rule")
    for field in meta.field[1:]:
        field.label = _FIELD.LABEL_REPEATED
    for number, name in enumerate(("name", "doc", "expr", "sql"), 1):
        _add(rule, name, number, _FIELD.TYPE_STRING)
    for extended in _EXTENDED:
        name = "enum_value_meta" if extended == "EnumValue" else f"{extended.lower()}_meta"
        file.extension.add(
            name=name, number=_META_NUMBER, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_MESSAGE,
            type_name=".confluent.Meta", extendee=f".google.protobuf.{extended}Options",
        )  # fmt: skip
    return file


def _add(one: Any, name: str, number: int, kind: Any, type_name: str | None = None) -> None:
    one.field.add(
        name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL, type_name=type_name
    )
