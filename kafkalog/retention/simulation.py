"""A run of `simulate-retention` over the partitions at several paths."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

from kafkalog.configs import ConfigSources
from kafkalog.errors import UsageError, contained
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir
from kafkalog.paths import file_system
from kafkalog.retention.simulate import PartitionRetention, judge_partition
from kafkalog.targets import Listener, open_targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalog.configs import LogDirConfigs


def simulate_retention(
    *targets: str | os.PathLike[str] | LogDirListing | PartitionDir | FileEntry,
    configs: Mapping[str, str] | ConfigSources | None = None,
    now_ms: int | None = None,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
    listener: Listener | None = None,
) -> Iterator[PartitionRetention]:
    """Predict what a broker's retention would delete, when and why, or what prevents it.

    Args:
        targets: log directories and partitions.
        configs: configs of topics by name, or their sources.
        now_ms: the broker's clock in milliseconds; None for the current time.
        high_watermark: overrides the checkpoint's: an offset, or `end`.
        log_start_offset: overrides the checkpoint's.
        listener: receives everything reported besides the results; it may let the run continue
            after a failure.

    Yields:
        The result for each partition that has a log.

    Raises:
        UsageError: a target is a file.
        KafkaLogError: see `judge_partition`.
    """
    hears = listener or Listener()
    sources = ConfigSources.of(configs)
    known: dict[str, LogDirConfigs] = {}
    clock = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    for target in targets:
        for partition in _partitions(target, hears):
            around = os.path.dirname(file_system.absolute(partition.path))
            found = None
            with contained(partition.path, hears.failed):
                if around not in known:
                    known[around] = sources.in_log_dir(around)
                    hears.configured(known[around])
                found = judge_partition(
                    partition,
                    known[around].of_topic(partition.topic),
                    clock,
                    high_watermark=high_watermark,
                    log_start_offset=log_start_offset,
                )
            if found is not None:
                yield found


def _partitions(
    target: str | os.PathLike[str] | LogDirListing | PartitionDir | FileEntry, listener: Listener
) -> Iterator[PartitionDir]:
    """Yield the partitions of a target that have a log."""
    if not isinstance(target, LogDirListing | PartitionDir | FileEntry):
        for found in open_targets([target], failed=listener.failed):
            yield from _partitions(found, listener)
        return
    if isinstance(target, FileEntry):
        error = UsageError(
            "This is a file, not a partition or log directory.",
            path=target.path,
            hint="Retention judges all segments of a partition together.",
        )
        listener.failed(error)
        return
    for partition in target.partitions if isinstance(target, LogDirListing) else (target,):
        if partition.segments:
            yield partition
