"""What a compacted log alone tells: below the cleaner offset no key comes twice.

Follows `Cleaner.shouldRetainRecord` of Kafka 4.3. Legitimately there, and not judged: records of
aborted transactions, which no map holds; and of two records with one key the older one, if both lie
below the first dirty offset (or the log start), where no pass has looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.audit.log_walk import record_at, walk
from kafkalog.audit.model import Finding, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.audit.latest import LatestOffsets
    from kafkalog.audit.log_walk import Transactions
    from kafkalog.audit.model import Bounds
    from kafkalog.unified_log import UnifiedLog


def find_stale(
    log: UnifiedLog, bounds: Bounds, transactions: Transactions, latest: LatestOffsets
) -> Iterator[Finding]:
    """The records below the cleaner offset that the cleaner should not have left.

    Args:
        log: the compacted log.
        bounds: which part was compacted.
        transactions: of that log.
        latest: is filled with the offsets of the keys.

    Raises:
        CorruptDataError, LimitExceededError: a batch is damaged.
    """
    for walked in walk(log, bounds.cleaner_offset):
        batch = walked.batch
        if batch.is_control or transactions.is_aborted(batch):
            continue
        for record in walked.records():
            if record.offset >= bounds.cleaner_offset:
                continue
            if record.key is None:
                yield Finding(
                    Reason.NO_KEY,
                    f"A record without a key lies below the cleaner offset {bounds.cleaner_offset}",
                    batch.path,
                    batch.position,
                    record.offset,
                )
                continue
            before = latest.put(record.key, record.offset)
            if before is None or record.offset < bounds.first_dirty_offset:
                continue
            older = record_at(log, before)
            if older is None or older.key != record.key:
                continue  # a collision of the hash
            yield Finding(
                Reason.STALE_KEY,
                f"The record at offset {record.offset} has the same key, and both lie below the "
                f"cleaner offset {bounds.cleaner_offset}",
                older.batch.path,
                older.batch.position,
                before,
                record.key,
                record.offset,
            )
