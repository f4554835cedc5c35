"""Audits one partition from beginning to end, or the cleaned ones of a log directory."""

from __future__ import annotations

import os
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from formats import file_names
from formats.late_classes import dataclass
from kafkalog.change.audit.against_original import LatestOffsets, changed_marks, compare, find_stale
from kafkalog.change.audit.log_walk import Bounds, Finding, Transactions
from kafkalog.errors import DataError, UsageError, contained, raised
from kafkalog.files.log_dir import LogDirListing, PartitionDir, look_at, open_partition, open_path
from kafkalog.io.jit import fast_path
from kafkalog.io.rows import Rows
from kafkalog.io.times import clock_ms
from kafkalog.log.columns.budget import logs_to_decode
from kafkalog.log.producers import EXPIRATION_MS
from kafkalog.node.unified_log import END, UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import AnyPath
    from kafkalog.io.times import Time


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        partition: the directory that was judged.
        original: the directory it was judged by, None if none.
        bounds: which part was judged.
        source: where the cleaner offset comes from.
        keys: distinct keys below the cleaner offset, as far as they were read.
        findings: the first counterexamples, as many as requested; without any, it is proved.
    """

    _row = (
        "partition.path", "partition.topic", "partition.partition",
        "bounds.first_dirty_offset", "bounds.cleaner_offset", "cleaner_offset_source=source",
        "now_timestamp=bounds.now_ms", "keys",
    )  # fmt: skip

    partition: PartitionDir
    original: PartitionDir | None
    bounds: Bounds
    source: str
    keys: int
    findings: tuple[Finding, ...]


def audit_partition(
    partition: PartitionDir,
    original: PartitionDir | None = None,
    *,
    now_ms: int,
    cleaner_offset: int | None = None,
    first_dirty_offset: int | None = None,
    producer_expiration_ms: int = EXPIRATION_MS,
    findings_max: int = 1,
) -> Audit:
    """Prove that a log is correctly compacted, or find the first counterexamples.

    Without the original: below the cleaner offset no key occurs twice and each record has one. With
    it also: nothing was added or changed; the latest committed record of each key exists, unless it
    was a tombstone whose delete horizon had passed; markers, delete horizons, fields of batches,
    last batches of active producers, log start and end, leader epochs and last stable offset are
    unchanged. Aborted transactions are determined from the markers, not from the transaction index.
    The original must be the log as the cleaning found it: a tombstone or marker that got its
    horizon and was then dropped by a second cleaning counts as dropped too early.

    Args:
        partition: the compacted log.
        original: the log before.
        now_ms: the time of the cleaning, or any later time.
        cleaner_offset: end of the compacted part; None reads it from the checkpoint.
        first_dirty_offset: where the cleanings began; None for the log start.
        producer_expiration_ms: `producer.id.expiration.ms` of the broker.
        findings_max: maximum number of counterexamples.

    Raises:
        UsageError: the end of the compacted part is unknown, or an argument is wrong. A checkpoint
            outside the log counts as the log start, as for Kafka's cleaner.
        CorruptDataError, LimitExceededError: a batch is damaged.

    Cost:
        Reads the log twice, with an original once more, and the original three times. Larger logs
        are first read by the kernels: memory for the distinct keys below the cleaner offset, 30 to
        60 bytes each, a bit per record, and about 10 MB. If anything is suspicious, the reference
        reads the log again: about 200 bytes per key, and one batch.
    """
    log = UnifiedLog(partition, high_watermark=END)
    source = "--cleaner-offset"
    if cleaner_offset is None:
        source = file_names.CLEANER_OFFSETS
        cleaner_offset = log.checkpoint(file_names.CLEANER_OFFSETS)
    if cleaner_offset is None:
        raise UsageError(
            f"{file_names.CLEANER_OFFSETS} has no entry: the cleaner offset is unknown.",
            path=partition.path,
            hint="Give --cleaner-offset N.",
        )
    if not log.log_start_offset <= cleaner_offset <= log.log_end_offset:
        if source != file_names.CLEANER_OFFSETS:
            raise UsageError(
                f"The log goes from {log.log_start_offset} to {log.log_end_offset}: "
                f"{source} {cleaner_offset} lies outside.",
                path=partition.path,
            )
        source = f"log start: {source} {cleaner_offset} lies outside the log"
        # As `cleanableOffsets` of `LogCleanerManager`: the whole log is dirty again.
        cleaner_offset = log.log_start_offset
    first = max(log.log_start_offset, first_dirty_offset or 0)
    bounds = Bounds(first, cleaner_offset, now_ms, producer_expiration_ms)
    before = UnifiedLog(original, high_watermark=END) if original is not None else None
    keys = _proved_keys(log, before, bounds)
    if keys is not None:
        return Audit(partition, original, bounds, source, keys, ())
    latest = LatestOffsets()
    findings = tuple(islice(_findings(log, before, bounds, latest), findings_max))
    return Audit(partition, original, bounds, source, len(latest), findings)


def _proved_keys(log: UnifiedLog, original: UnifiedLog | None, bounds: Bounds) -> int | None:
    """Return the number of distinct keys if the kernels prove the log compacted, else None."""
    size = sum(segment.log.size_bytes for segment in log.segments)
    # Small files may hold much compressed.
    if size < fast_path.FAST_SIZE_MIN:
        size = logs_to_decode(segment.log.path for segment in log.segments)
    if not fast_path.is_worth_it(size):
        return None
    try:
        if original is not None and next(changed_marks(log, original), None) is not None:
            return None
    except DataError:
        return None  # the reference reports the damage
    from kafkalog.change.audit.proof import proved_keys

    return proved_keys(log, original, bounds)


def _findings(
    log: UnifiedLog, original: UnifiedLog | None, bounds: Bounds, latest: LatestOffsets
) -> Iterator[Finding]:
    yield from find_stale(log, bounds, Transactions.of(log), latest)
    if original is not None:
        yield from compare(log, original, bounds)


def audit_compaction(
    path: AnyPath,
    original: str | os.PathLike[str] | None = None,
    *,
    now: Time | None = None,
    cleaner_offset: int | None = None,
    first_dirty_offset: int | None = None,
    producer_expiration_ms: int = EXPIRATION_MS,
    findings_max: int = 1,
    on_event: OnEvent | None = None,
) -> Rows[Audit]:
    """Prove that logs are correctly compacted, or find the first counterexamples.

    Args:
        path: a compacted partition, or a log directory.
        original: the same partition or log directory before one cleaning.
        now: the time of that cleaning, or any later time; the present if None.
        cleaner_offset: end of the compacted part of a partition; None reads it from the checkpoint.
        first_dirty_offset: where the cleanings of a partition began; None for the log start.
        producer_expiration_ms: `producer.id.expiration.ms` of the broker.
        findings_max: maximum number of counterexamples per partition.
        on_event: is passed the error of a partition of a log directory that cannot be audited; the
            others are still audited. Without it the error is raised.

    Returns:
        One audit per partition, except those without an entry in the cleaner offset checkpoint.

    Raises:
        UsageError: an argument is wrong, or offsets are given for a log directory.
        KafkaLogError: as `audit_partition`.

    Cost:
        That of `audit_partition` for each partition.
    """
    target = open_path(path)
    if original is not None:
        look_at(os.fspath(original))  # also if no log was compacted
    judge = partial(
        audit_partition,
        now_ms=clock_ms(now),
        cleaner_offset=cleaner_offset,
        first_dirty_offset=first_dirty_offset,
        producer_expiration_ms=producer_expiration_ms,
        findings_max=findings_max,
    )
    if not isinstance(target, LogDirListing):
        partition = open_partition(target)
        before = None if original is None else open_partition(os.fspath(original))
        is_audited = cleaner_offset is not None or _was_cleaned(partition)
        return Rows([judge(partition, before)] if is_audited else [], Audit)
    if cleaner_offset is not None or first_dirty_offset is not None:
        raise UsageError("Offsets can only be given for one partition.", path=target.path)
    take = on_event or raised
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
    return Rows(found, Audit)


def _was_cleaned(partition: PartitionDir) -> bool:
    return UnifiedLog(partition).checkpoint(file_names.CLEANER_OFFSETS) is not None
