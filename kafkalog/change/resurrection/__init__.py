"""Resurrect makes a log directory that a broker starts on from the disks of others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.change.resurrection.model import (
    Copy,
    LeftOutDirectory,
    Loser,
    MetadataRecord,
    Missing,
    ResurrectedPartition,
    ResurrectedTopic,
    ResurrectOptions,
    ResurrectSummary,
    Retention,
    manifest_object,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.change.resurrection.model import Row
    from kafkalog.files.log_dir import AnyPath

__all__ = [
    "Copy",
    "LeftOutDirectory",
    "Loser",
    "MetadataRecord",
    "Missing",
    "ResurrectOptions",
    "ResurrectSummary",
    "ResurrectedPartition",
    "ResurrectedTopic",
    "Retention",
    "manifest_object",
    "resurrect",
    "resurrect_in_place",
    "resurrect_into",
]


def resurrect(
    paths: str | os.PathLike[str] | Iterable[AnyPath],
    destination: str | None = None,
    options: ResurrectOptions | None = None,
    *,
    dry_run: bool = False,
    tell: Callable[[Row], None] | None = None,
    progress: Callable[[int], None] | None = None,
    from_tier: Iterable[str | os.PathLike[str]] = (),
) -> ResurrectSummary:
    """Make a new log directory that a broker starts on, from what is left of others.

    The sources are only read, under locks that keep brokers off them. After a crash, `destination`
    holds nothing or the whole result: the log directory `log`, `server.properties`, and the
    manifest. Of several copies of a partition the one with the latest leader epoch is taken, then
    the longest.

    Args:
        paths: log directories, partition directories, and directories that hold log directories,
            such as the result of a salvage.
        destination: the new directory: a free name, or an empty directory; None to only report
            what would be done.
        options: what is taken, and under which names and ids.
        dry_run: only report what would be done; nothing is written.
        tell: called with each row of the manifest.
        progress: called with the number of bytes judged since the last call.
        from_tier: tiers whose remote segments are taken as local ones.

    Returns:
        Totals, with the command that starts Kafka on the result.

    Raises:
        NotFoundError: there is no partition.
        UsageError: an option makes no sense, or the destination lies inside a source.
        RefusedError: partitions are missing, it is not clear which copy counts, or the metadata are
            of a later Kafka than the one that is to start.
        DestinationExistsError, LogDirInUseError, UnwritableError: refused, or the disk is full.
        PartlyDoneError: all is there, but for `properties_out`.
        UnsupportedError: the metadata are of a later Kafka.
        CorruptDataError: a partition or the metadata log is damaged.

    Cost:
        Reads each log once, and copies it unless the file system can share its blocks.
    """
    from kafkalog.change.resurrection.run import run_resurrection
    from kafkalog.change.resurrection.sources import open_sources

    places = [paths] if isinstance(paths, str | os.PathLike) else paths
    return run_resurrection(
        open_sources(places, from_tier, (options or ResurrectOptions()).topics),
        destination,
        options or ResurrectOptions(),
        dry_run=dry_run,
        tell=tell,
        progress=progress,
    )


def resurrect_into(
    paths: str | os.PathLike[str] | Iterable[AnyPath],
    log_dir: str,
    options: ResurrectOptions | None = None,
    *,
    dry_run: bool = False,
    tell: Callable[[Row], None] | None = None,
    progress: Callable[[int], None] | None = None,
    from_tier: Iterable[str | os.PathLike[str]] = (),
) -> ResurrectSummary:
    """Move partitions into the log directory of a cluster that exists; its broker must be down.

    The sources are only read. The topics must be in the metadata of the cluster, which stay as they
    are: the partitions get the topic ids of the metadata. A partition appears whole or not at all,
    and replaces at most one without a record. A call that was interrupted can be repeated.

    Args:
        paths: as for `resurrect`; not the log directory itself, but partitions in it may be.
        log_dir: the log directory. `as_of_metadata` in the options names the one with the metadata
            log, if it is another one of the broker.
        options: what is taken. `topic_ids` agrees to another id; `retention` to the topic's own.
        dry_run: only report what would be done; nothing is written.
        tell: called with each row.
        progress: called with the number of bytes judged since the last call.
        from_tier: tiers whose remote segments are taken as local ones.

    Returns:
        Totals, without a command to start.

    Raises:
        NotFoundError: there is no partition, or no metadata log.
        UsageError: an option makes no sense.
        RefusedError: a partition does not agree with the metadata.
        DestinationExistsError: a partition is there, and not empty.
        LogDirInUseError, UnwritableError: refused, or the disk is full.
        PartlyDoneError: some partitions are in place, and another one failed.
        UnsupportedError: the metadata are of a later Kafka.
        CorruptDataError: a partition, a checkpoint or the metadata log is damaged.

    Cost:
        Reads each log once, and copies it unless the file system can share its blocks.
    """
    from kafkalog.change.resurrection.into import run_into
    from kafkalog.change.resurrection.sources import open_sources

    places = [paths] if isinstance(paths, str | os.PathLike) else paths
    return run_into(
        open_sources(places, from_tier, (options or ResurrectOptions()).topics),
        log_dir,
        options or ResurrectOptions(),
        dry_run=dry_run,
        tell=tell,
        progress=progress,
    )


def resurrect_in_place(
    log_dir: str,
    options: ResurrectOptions | None = None,
    *,
    backup: str | None = None,
    dry_run: bool = False,
    tell: Callable[[Row], None] | None = None,
    progress: Callable[[int], None] | None = None,
    arguments: Iterable[str] = (),
) -> ResurrectSummary:
    """Make a log directory one that a broker starts on; its partitions stay where they are.

    Written are `meta.properties`, `bootstrap.checkpoint`, the checkpoints and `server.properties`,
    and `partition.metadata` where it has another topic id; a metadata log is emptied, and the mark
    of a clean shutdown removed. The logs are only read. After a crash no broker starts on it until
    the same call is repeated, or undone.

    Args:
        log_dir: the log directory. All that is in it is taken.
        options: which ids it gets. `cluster_id` is needed if it belongs to a cluster.
        backup: a new directory for the originals, as `undo` takes it; needed unless `dry_run`.
        dry_run: only report what would be done; nothing is written.
        tell: called with each row.
        progress: called with the number of bytes judged since the last call.
        arguments: of the command, for the journal alone.

    Returns:
        Totals, with the command that starts Kafka on it.

    Raises:
        NotFoundError: there is no partition.
        UsageError: an option makes no sense, or `backup` is missing.
        RefusedError: partitions are missing, or something would be lost or keeps a broker from
            starting: directories that are stray or moving, unfinished cleanings, metadata of a
            later Kafka than the one that is to start.
        DestinationExistsError, LogDirInUseError, UnwritableError: refused, or the disk is full.
        PartlyDoneError: it failed after the first change.
        UnsupportedError: the metadata are of a later Kafka.
        CorruptDataError: a partition, a checkpoint or the metadata log is damaged.

    Cost:
        Reads each log once.
    """
    from kafkalog.change.resurrection.in_place import run_in_place

    return run_in_place(
        log_dir,
        options or ResurrectOptions(),
        backup=backup,
        dry_run=dry_run,
        tell=tell,
        progress=progress,
        arguments=list(arguments),
    )
