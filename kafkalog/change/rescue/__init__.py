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
    """Copy every sound batch of some logs into a new directory, and account for the rest.

    The source is only read, under a lock that keeps brokers off its log directory. After a crash,
    `destination` holds nothing or the whole result, which was read back and checked first.

    Args:
        target: a log directory, a partition directory or one log; its path, or what is there.
        destination: the new directory: a free name, or an empty directory; None to only report
            what would be done.
        dry_run: only report what would be done; nothing is written, and nothing locked.
        tell: called with each row of the manifest.
        failed: called with the error that ended the work on one partition, which is then missing
            from the result; the manifest says so.
        progress: called with the number of bytes done since the last call; a byte counts when it
            is read, and again when its copy is checked.
        from_tier: tiers whose remote segments become local ones; of a log directory, also the logs
            that only they have.
        copies: more directories; of several copies of a partition there is one in the result, each
            batch from one that has it.

    Returns:
        Totals, which are the last row of the manifest. Nothing is written if there is no log.

    Raises:
        UsageError: the target is a file but not a log, or the destination lies inside the source.
        UnreadableError: nothing of the source can be read.
        DestinationExistsError, LogDirInUseError, UnwritableError: refused, or the disk is full.
        CorruptDataError: the result would not be what it should; it was not kept.
        KafkaLogError: each partition failed; the first error.

    Cost:
        Reads the source once and the copy once; memory does not grow with the logs, except for some
        200 bytes per segment.
    """
    from kafkalog.change.rescue.run import run_salvage

    return run_salvage(
        open_path(target), destination, dry_run=dry_run, tell=tell, failed=failed,
        progress=progress, from_tier=from_tier, copies=[*map(open_path, copies)],
    )  # fmt: skip
