"""Salvage copies every sound batch past any damage to a new log, and accounts for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.change.rescue.model import (
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
from kafkalog.files.log_dir import open_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.change.rescue.model import Row
    from kafkalog.errors import KafkaLogError
    from kafkalog.files.log_dir import AnyPath

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


def salvage(
    target: AnyPath,
    destination: str | None = None,
    *,
    dry_run: bool = False,
    tell: Callable[[Row], None] | None = None,
    failed: Callable[[KafkaLogError], None] | None = None,
    progress: Callable[[int], None] | None = None,
    from_tier: Sequence[str] = (),
    copies: Sequence[AnyPath] = (),
) -> SalvageSummary:
    """Do what `kafkalog.salvage` describes, and raise as it does; return the last manifest row.

    Args:
        target: a log directory, a partition directory or one log; its path, or what is there.
        destination, from_tier: as `to` and `from_tier` there; `copies` are its other paths; None to
            only report what would be done.
        dry_run: only report what would be done; nothing is written, and nothing locked.
        tell: called with each row of the manifest.
        failed: called with the error that ended the work on one partition.
        progress: called with the number of bytes done since the last call; a byte counts when it
            is read, and again when its copy is checked.
    """
    from kafkalog.change.rescue.run import run_salvage

    return run_salvage(
        open_path(target), destination, dry_run=dry_run, tell=tell, failed=failed,
        progress=progress, from_tier=from_tier, copies=[*map(open_path, copies)],
    )  # fmt: skip
