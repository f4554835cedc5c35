"""A run of `audit-compaction` over a partition, or over the cleaned ones of a log directory."""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.audit.audit import Audit, audit_partition
from kafkalog.errors import KafkaLogError, UsageError, contained
from kafkalog.log_dir import LogDirListing, open_partition, open_path
from kafkalog.producers import EXPIRATION_MS
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log_dir import PartitionDir


def audit_compaction(
    path: str | os.PathLike[str],
    original: str | os.PathLike[str] | None = None,
    *,
    now_ms: int | None = None,
    cleaner_offset: int | None = None,
    first_dirty_offset: int | None = None,
    producer_expiration_ms: int = EXPIRATION_MS,
    findings_max: int = 1,
    failed: Callable[[KafkaLogError], None] | None = None,
) -> list[Audit]:
    """Prove that logs are correctly compacted, or find the first counterexamples.

    Args:
        path: a compacted partition, or a log directory.
        original: the same partition or log directory before one cleaning.
        now_ms: the time of that cleaning, or any later time; the present if None.
        cleaner_offset: end of the compacted part of a partition; None reads it from the checkpoint.
        first_dirty_offset: where the cleanings of a partition began; None for the log start.
        producer_expiration_ms: `producer.id.expiration.ms` of the broker.
        findings_max: maximum number of counterexamples per partition.
        failed: called with the error of a partition of a log directory that cannot be audited;
            the others are still audited. If None, the error is raised.

    Returns:
        One audit per partition, except those without an entry in the cleaner offset checkpoint.

    Raises:
        UsageError: an argument is wrong, or offsets are given for a log directory.
        KafkaLogError: as `audit_partition`.

    Cost:
        That of `audit_partition` for each partition.
    """
    target = open_path(os.fspath(path))
    judge = partial(
        audit_partition,
        now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
        cleaner_offset=cleaner_offset,
        first_dirty_offset=first_dirty_offset,
        producer_expiration_ms=producer_expiration_ms,
        findings_max=findings_max,
    )
    if not isinstance(target, LogDirListing):
        partition = open_partition(target.path)
        before = None if original is None else open_partition(os.fspath(original))
        is_audited = cleaner_offset is not None or _was_cleaned(partition)
        return [judge(partition, before)] if is_audited else []
    if cleaner_offset is not None or first_dirty_offset is not None:
        raise UsageError("Offsets can only be given for one partition.", path=target.path)
    take = failed or _raise
    for error in target.errors.values():
        take(error)
    found = []
    for partition in target.partitions:
        with contained(partition.path, take):
            if _was_cleaned(partition):
                name, before = os.path.basename(partition.path), None
                if original is not None:
                    before = open_partition(os.path.join(original, name))
                found.append(judge(partition, before))
    return found


def _was_cleaned(partition: PartitionDir) -> bool:
    """Return whether the cleaner offset checkpoint has an entry for the partition."""
    return UnifiedLog(partition).checkpoint(file_names.CLEANER_OFFSETS) is not None


def _raise(error: KafkaLogError) -> None:
    raise error
