"""Salvage copies every sound batch past any damage to a new log, and accounts for the rest."""

from kafkalog.rescue.model import (
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
from kafkalog.rescue.run import salvage

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
