"""Salvage: every sound batch past any damage, in a new log; the rest kept and accounted for."""

from kafkalog.salvage.model import (
    MANIFEST,
    CopiedRange,
    FailedPartition,
    Fate,
    LostRange,
    SalvagedFile,
    SalvagedPartition,
    SalvagedSegment,
    SalvageSummary,
    manifest_object,
)
from kafkalog.salvage.run import salvage

__all__ = [
    "MANIFEST",
    "CopiedRange",
    "FailedPartition",
    "Fate",
    "LostRange",
    "SalvageSummary",
    "SalvagedFile",
    "SalvagedPartition",
    "SalvagedSegment",
    "manifest_object",
    "salvage",
]
