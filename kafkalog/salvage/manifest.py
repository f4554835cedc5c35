"""The manifest of a salvage: one JSON object a line, in the order in which things were done."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from kafkalog.model import Defect
from kafkalog.salvage.model import (
    CopiedRange,
    FailedPartition,
    Fate,
    LostRange,
    SalvagedFile,
    SalvagedPartition,
    SalvagedSegment,
    SalvageSummary,
)

if TYPE_CHECKING:
    from kafkalog.salvage.model import Row

MANIFEST = "manifest.ndjson"
_TYPES: dict[type, str] = {
    CopiedRange: "copied_range",
    LostRange: "lost_range",
    SalvagedSegment: "salvage",
    SalvagedFile: "salvaged_file",
    SalvagedPartition: "salvaged_partition",
    FailedPartition: "failed_partition",
    SalvageSummary: "salvage_summary",
    Defect: "defect",
}
_NAMES = {"size_bytes": "size", "target": "to", "crc": "crc32c", "crc_copied": "crc32c_copied"}
_DEFECT_FIELDS = ("reference", "severity", "path", "position", "offset", "size", "detail", "hint")


def manifest_object(row: Row) -> dict[str, object]:
    """The object for a row: its type, then its fields."""
    fields = {_NAMES.get(name, name): value for name, value in asdict(row).items()}
    if isinstance(row, Defect):
        fields = {name: fields[name] for name in _DEFECT_FIELDS}
    elif isinstance(row, LostRange):
        fields = {("reason" if name == "reference" else name): fields[name] for name in fields}
    elif isinstance(row, SalvageSummary):
        fields["files"] = {fate.value: row.files[fate] for fate in Fate}
    return {"type": _TYPES[type(row)], **fields}


def manifest_line(row: Row) -> bytes:
    """The line of the manifest for a row; ASCII, whatever is in the names of files."""
    return json.dumps(manifest_object(row), separators=(",", ":")).encode() + b"\n"
