"""The plans of what makes or restores whole directories: salvage, resurrect, undo."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kafkalog.change.plan import Plan
from kafkalog.errors import UsageError, raised
from kafkalog.log.events import reporting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.change.journal import PartitionUndo, Undo
    from kafkalog.change.rescue import SalvagedPartition, SalvageSummary
    from kafkalog.change.resurrection import (
        ResurrectedPartition,
        ResurrectOptions,
        ResurrectSummary,
    )
    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import AnyPath


def salvage(
    *paths: AnyPath,
    to: str | os.PathLike[str],
    from_tier: Sequence[str] = (),
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Plan[SalvagedPartition, SalvageSummary]:
    """Plan to copy every sound batch of some logs into a new directory, and account for the rest.

    The source is only read, under a lock that keeps brokers off its log directory. After a crash
    the directory holds nothing or the whole result, which was read back and checked first.

    Args:
        paths: a log directory, a partition directory or one log, then more that have copies: each
            batch comes from a copy that has it.
        to: the new directory: a free name, or an empty directory.
        from_tier: tiers whose remote segments become local ones; of a log directory, also the logs
            that only they have.
        on_event: is passed each row of the manifest, what was read, and the error that ended the
            work on one partition, which is then missing; without it such an error is raised.
        progress: whether to draw a bar.

    Raises:
        UsageError: the path is a file but not a log, or the destination lies inside the source.
        UnreadableError: nothing of the source can be read.
        DestinationExistsError, LogDirInUseError, UnwritableError: refused, or the disk is full.
        CorruptDataError: the result would not be what it should; it was not kept.

    Cost:
        The plan reads the source once, `apply` again, and the copy.
    """
    from kafkalog.change import rescue

    if not paths:
        raise UsageError("No path is given.")

    def work(*, dry_run: bool) -> tuple[list[SalvagedPartition], SalvageSummary]:
        rows: list[SalvagedPartition] = []
        with reporting(on_event or raised, progress=progress) as report:

            def take(row: Any) -> None:
                report.done(row)
                if isinstance(row, rescue.SalvagedPartition):
                    rows.append(row)

            summary = rescue.salvage(
                paths[0], os.fspath(to), dry_run=dry_run, tell=take, failed=report.hear,
                progress=report.advance, from_tier=from_tier, copies=paths[1:],
            )  # fmt: skip
        return rows, summary

    rows, summary = work(dry_run=True)
    return Plan(
        "salvage", rows, rescue.SalvagedPartition, apply=lambda _: work(dry_run=False)[1],
        summary=summary, keeps_originals=False,
    )  # fmt: skip


def resurrect(
    *paths: str | os.PathLike[str],
    to: str | os.PathLike[str] | None = None,
    into: str | os.PathLike[str] | None = None,
    options: ResurrectOptions | None = None,
    from_tier: Sequence[str | os.PathLike[str]] = (),
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Plan[ResurrectedPartition, ResurrectSummary]:
    """Plan a log directory that a broker starts on, from what is left of others.

    With `to` it is a new one; with `into` the partitions go to the one of a cluster that exists,
    whose broker must be down; without both the one path becomes it, in place. The sources are only
    read; with `to` or `into`, what cannot be read is left out: with `to` whole topics, unless
    missing partitions are agreed to. After a crash there is nothing or the whole result.

    Args:
        paths: log directories, parents of several, partition directories, results of a salvage.
        to: the new directory: a free name, or an empty directory.
        into: a log directory of the cluster.
        options: what is taken, and under which names and ids.
        from_tier: tiers whose remote segments are taken as local ones.
        on_event: is passed each row of the manifest, and what was judged.
        progress: whether to draw a bar.

    Raises:
        NotFoundError: there is no partition, or with `into` no metadata log.
        UsageError: an option makes no sense; in place, the backup is missing.
        RefusedError: partitions are missing, it is not clear which copy counts, or something would
            be lost or keeps a broker from starting.
        DestinationExistsError, LogDirInUseError, UnwritableError: refused, or the disk is full.
        PartlyDoneError: it failed after the first change.
        UnsupportedError: the metadata are of a later Kafka.
        CorruptDataError: a partition or the metadata log is damaged.

    Cost:
        Reads each log once for the plan and once again, and copies it unless the file system can
        share its blocks.
    """
    from kafkalog.change import resurrection as run

    if to is not None and into is not None:
        raise UsageError("Partitions go to a new directory, or into one that exists, not to both.")
    is_in_place = to is None and into is None
    if is_in_place and (len(paths) != 1 or from_tier):
        raise UsageError("In place takes one log directory, and nothing from a tier.")

    def work(backup: str | None, *, dry_run: bool) -> tuple[list[Any], ResurrectSummary]:
        rows: list[Any] = []
        with reporting(on_event or raised, progress=progress) as report:

            def take(row: Any) -> None:
                report.done(row)
                if isinstance(row, run.ResurrectedPartition):
                    rows.append(row)

            common: dict[str, Any] = {"dry_run": dry_run, "tell": take}
            common["progress"] = report.advance
            if is_in_place:
                place = os.fspath(paths[0])
                summary = run.resurrect_in_place(place, options, backup=backup, **common)
            elif into is not None:
                place = os.fspath(into)
                summary = run.resurrect_into(paths, place, options, from_tier=from_tier, **common)
            else:
                place = os.fspath(to or "")
                summary = run.resurrect(paths, place, options, from_tier=from_tier, **common)
        return rows, summary

    rows, summary = work(None, dry_run=True)
    return Plan(
        "resurrect", rows, run.ResurrectedPartition, summary=summary,
        apply=lambda backup: work(backup, dry_run=False)[1], keeps_originals=is_in_place,
    )  # fmt: skip


def undo(
    path: str | os.PathLike[str], *, on_event: OnEvent | None = None
) -> Plan[PartitionUndo, Undo]:
    """Plan to restore the bytes, owners and times of each partition that a run changed.

    Each must be as the run left it, at whatever point that was interrupted, or as it was before.
    If one is not, nothing is changed. After a crash each partition is the old log or the new one,
    whole, and applying this again continues.

    Args:
        path: the journal, or the backup it is in.
        on_event: is passed each step on the disk.

    Raises:
        NotFoundError: the journal, the log directory or a partition is missing.
        CorruptDataError: the journal is malformed, or a checkpoint.
        RefusedError: the journal names something that is not a log directory, or lies below a link.
        ChangedSinceError: a partition or its backup has changed since the run.
        LogDirInUseError: a broker, or another run, has the log directory.
        UnsupportedError: the file system cannot exchange two names at once.
        UnwritableError: a step failed.
    """
    from kafkalog.change import journal

    def work(*, in_place: bool) -> Undo:
        with reporting(on_event or raised, progress=False) as report:
            return journal.undo(path, in_place=in_place, observe=report.done)

    planned = work(in_place=False)
    return Plan(
        "undo", planned.partitions, journal.PartitionUndo, summary=planned,
        apply=lambda _: work(in_place=True), keeps_originals=False,
    )  # fmt: skip
