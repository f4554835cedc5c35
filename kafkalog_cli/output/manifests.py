"""The objects of the manifests of `salvage` and `resurrect`, from the library's dataclasses.

Annotations give the types of fields, the section `Attributes:` of the docstring their meanings.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from kafkalog.change.rescue import model as rescue
from kafkalog.change.resurrection import model as resurrection
from kafkalog_cli.maintenance import WORK_DONE
from kafkalog_cli.output.kinds import ARRAY, BOOL, INT, OBJECT, TEXT
from kafkalog_cli.output.objects import Field, ObjectType

if TYPE_CHECKING:
    from kafkalog_cli.output.kinds import Kind

_ATTRIBUTE: Final = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", re.MULTILINE)
_NAMES: Final = {
    "target": "to",
    "crc": "crc32c",
    "crc_copied": "copy_crc32c",
}


def object_types() -> dict[str, ObjectType[Any]]:
    """Return the types of all objects in manifests, by name."""
    found = [
        _object_type("copied_range", "salvage", rescue.CopiedRange),
        _object_type("lost_range", "salvage", rescue.LostRange, {"reference": "reason"}),
        _object_type("salvage", "salvage", rescue.SalvagedSegment),
        _object_type("salvaged_file", "salvage", rescue.SalvagedFile),
        _object_type("salvaged_partition", "salvage", rescue.SalvagedPartition),
        _object_type("failed_partition", "salvage", rescue.FailedPartition),
        _object_type("salvage_summary", "salvage", rescue.SalvageSummary),
        _object_type("resurrected_partition", "resurrect", resurrection.ResurrectedPartition),
        _object_type("resurrected_topic", "resurrect", resurrection.ResurrectedTopic),
        _object_type("left_out_directory", "resurrect", resurrection.LeftOutDirectory),
        _object_type(
            "metadata_record", "resurrect", resurrection.MetadataRecord,
            {"name": "record", "fields": "data"},
        ),
        _object_type("resurrect_summary", "resurrect", resurrection.ResurrectSummary),
    ]  # fmt: skip
    return {one.name: one for one in found}


def _object_type(
    name: str, command: str, row: type[Any], names: Mapping[str, str] | None = None
) -> ObjectType[Any]:
    text = (inspect.getdoc(row) or "").replace("None", "null")
    meaning, _, attributes = text.partition("\n\nAttributes:\n")
    meanings = {
        one: " ".join(said.split()).removesuffix(".")
        for listed, said in _ATTRIBUTE.findall(attributes)
        for one in listed.split(", ")
    }
    names = _NAMES | dict(names or {})
    hints = get_type_hints(row)
    if unknown := meanings.keys() - hints.keys():
        raise AssertionError(f"{row} has no {unknown}")
    declared = [
        Field[Any](names.get(one.name, one.name), _kind(hints[one.name]),
                   meanings.get(one.name, ""))
        for one in fields(row)
    ]  # fmt: skip
    if name.endswith("_summary"):  # the command adds to what is in the manifest
        declared += WORK_DONE
    return ObjectType(name, f"`{command}`", " ".join(meaning.split()), *declared)


def _kind(hint: Any) -> Kind:
    if isinstance(hint, types.UnionType):
        [of] = (one for one in get_args(hint) if one is not types.NoneType)
        return _kind(of) | None
    made_of = get_origin(hint) or hint
    if issubclass(made_of, bool):
        return BOOL
    if issubclass(made_of, int):
        return INT
    if issubclass(made_of, str | StrEnum):
        return TEXT
    return OBJECT if issubclass(made_of, Mapping) else ARRAY
