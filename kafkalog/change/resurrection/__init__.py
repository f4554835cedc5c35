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
    """Make a new log directory, as `kafkalog.resurrect` describes with `to`; raises as it does.

    The result is the log directory `log`, `server.properties`, and the manifest. Of several copies
    of a partition the one with the latest leader epoch is taken, then the longest.

    Args:
        paths, options, from_tier: as there.
        destination: the new directory: a free name, or an empty directory; None to only report
            what would be done.
        dry_run: only report what would be done; nothing is written.
        tell: called with each row of the manifest.
        progress: called with the number of bytes judged since the last call.
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
    """Move partitions into a log directory, as `kafkalog.resurrect` describes with `into`.

    The topics must be in the metadata of the cluster, which stay as they are: the partitions get
    the topic ids of the metadata. A partition appears whole or not at all, and replaces at most one
    without a record.

    Args:
        paths: as for `resurrect`; not the log directory itself, but partitions in it may be.
        log_dir: the log directory. `as_of_metadata` in the options names the one with the metadata
            log, if it is another one of the broker.
        options: what is taken. `topic_ids` agrees to another id; `retention` to the topic's own.
        dry_run, tell, progress, from_tier: as for `resurrect`.
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
        dry_run, tell, progress: as for `resurrect`.
        arguments: of the command, for the journal alone.
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
