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
    from kafkalog.lake.model import Codec as Codec
    from kafkalog.lake.model import ExportedPart as ExportedPart
    from kafkalog.lake.model import ExportRequest as ExportRequest
    from kafkalog.lake.model import ExportSummary as ExportSummary
    from kafkalog.lake.model import FileFormat as FileFormat
    from kafkalog.lake.model import Writing as Writing
    from kafkalog.lake.run import Export as Export

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
        raise AttributeError(f"module 'kafkalog.lake' has no attribute {name!r}")
    return getattr(import_module(f"kafkalog.lake.{_HOMES[name]}"), name)
