"""Exports tables of log directories to files for other programs: planned, resumable, exactly once.

with Export(ExportRequest(("/var/lib/kafka",)), "lake") as export:
    export.run(LocalEngine())
    print(export.summary().rows)

Names are loaded on first use: reading the options loads no pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.export.model import Codec as Codec
    from kafkalog.export.model import ExportedPart as ExportedPart
    from kafkalog.export.model import ExportRequest as ExportRequest
    from kafkalog.export.model import ExportSummary as ExportSummary
    from kafkalog.export.model import FileFormat as FileFormat
    from kafkalog.export.model import Writing as Writing
    from kafkalog.export.run import Export as Export

_MODULES = {
    "model": (
        "Codec",
        "ExportRequest",
        "ExportSummary",
        "ExportedPart",
        "FileFormat",
        "Writing",
    ),
    "run": ("Export",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 # computed from the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog.export' has no attribute {name!r}")
    return getattr(import_module(f"kafkalog.export.{_HOMES[name]}"), name)
