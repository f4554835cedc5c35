"""A compacted log against its original: nothing added, nothing changed, nothing lost that counts.

Keys are compared by a hash with a secret of the run: nobody can construct data that collides, as
they can for the MD5 of Kafka's `SkimpyOffsetMap`. Among 2^40 keys two collide by chance with
probability 2^-49.

Follows `Cleaner.shouldRetainRecord` of Kafka. Two things are legitimate and not judged: records
of aborted transactions, which are in no map; and the older of two records with one key, if both lie
below the first dirty offset (or the log start), where no pass has looked.

Follows `Cleaner` and `MemoryRecords.filterTo` of Kafka in what may be dropped and what a batch
keeps.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.change.audit.log_walk import (
    Bounds,
    Finding,
    Reason,
    Transactions,
    Walked,
    record_at,
    walk,
)
from kafkalog.model import Batch, Record, TimestampType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.node.unified_log import UnifiedLog


_DIGEST_SIZE = 16


class LatestOffsets:
    """Holds the latest offset of each key.

    Memory:
        About 200 bytes per distinct key, regardless of its length.
    """

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> int | None:
        """Record a key's offset; return the offset of the previous record with the key, or None."""
        digest = self._digest(key)
        before = self._offsets.get(digest)
        self._offsets[digest] = offset
        return before

    def get(self, key: bytes) -> int:
        """Return the latest offset of the key, -1 if none."""
        return self._offsets.get(self._digest(key), -1)

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, digest_size=_DIGEST_SIZE, key=self._secret).digest()


def find_stale(
    log: UnifiedLog, bounds: Bounds, transactions: Transactions, latest: LatestOffsets
) -> Iterator[Finding]:
    """Yield the records below the cleaner offset that the cleaner should have removed.

    Args:
        log: the compacted log.
        bounds: which part was compacted.
        transactions: the transactions of that log.
        latest: filled with the offsets of the keys.

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


def compare(after: UnifiedLog, original: UnifiedLog, bounds: Bounds) -> Iterator[Finding]:
    """Yield what is wrong with a compacted log, judged by the log before the cleaning.

    Args:
        after: the compacted log.
        original: the log before, whole or compacted up to a lower offset.
        bounds: which part was compacted, and when.

    Raises:
        CorruptDataError, LimitExceededError: a batch is damaged or out of place.

    Cost:
        Reads the original three times, the other log once. Memory for its distinct keys, as
        `LatestOffsets`, and for one batch of each.
    """
    transactions = Transactions.of(original)
    latest = _latest(original, bounds, transactions)
    judge = _Judge(bounds, transactions, transactions.last_batches(bounds), latest)
    yield from changed_marks(after, original)
    rest = walk(after)
    following = next(rest, None)
    for walked in walk(original):
        is_judged = walked.batch.last_offset >= after.log_start_offset
        has_match = False
        while following is not None and following.batch.base_offset < walked.batch.next_offset:
            if following.batch.base_offset < walked.batch.base_offset or (has_match and is_judged):
                yield judge.added(following)
            elif is_judged:
                has_match = True
                yield from judge.batch(walked, following)
            following = next(rest, None)
        if is_judged and not has_match:
            yield from judge.batch(walked, None)
    while following is not None:
        yield judge.added(following)
        following = next(rest, None)


def _latest(log: UnifiedLog, bounds: Bounds, transactions: Transactions) -> LatestOffsets:
    """Return the latest committed record of each key below the cleaner offset."""
    found = LatestOffsets()
    for walked in walk(log, bounds.cleaner_offset):
        if walked.batch.is_control or transactions.is_aborted(walked.batch):
            continue
        for record in walked.records():
            if record.key is not None and record.offset < bounds.cleaner_offset:
                found.put(record.key, record.offset)
    return found


def changed_marks(after: UnifiedLog, original: UnifiedLog) -> Iterator[Finding]:
    """Yield findings about the log as a whole; anything appended after the original is ignored."""
    path = after.partition.path
    pairs = (
        (Reason.LOG_START_CHANGED, "log start offset", after.log_start_offset,
         original.log_start_offset),
        (Reason.LOG_END_CHANGED, "log end offset", after.log_end_offset,
         original.log_end_offset),
        (Reason.LAST_STABLE_CHANGED, "last stable offset", after.last_stable_offset,
         original.last_stable_offset),
    )  # fmt: skip
    for reason, name, now, before in pairs:
        if now != before:
            yield Finding(reason, f"The {name} is {now}; it was {before}", path)
    epochs, were = _epochs(after, original), _epochs(original, original)
    if epochs != were:
        detail = f"The leader epochs and their first offsets are {epochs}, they were {were}"
        yield Finding(Reason.EPOCHS_CHANGED, detail, path)


def _epochs(log: UnifiedLog, original: UnifiedLog) -> list[tuple[int, int]]:
    """Return the leader epochs that begin before the end of the original log."""
    end = original.log_end_offset
    return [
        (entry.leader_epoch, entry.start_offset)
        for entry in log.leader_epochs
        if entry.start_offset < end
    ]


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges what happened to each part of the original."""

    bounds: Bounds
    transactions: Transactions
    last_batches: set[int]
    latest: LatestOffsets

    def added(self, walked: Walked) -> Finding:
        """Return the finding for a batch that the original does not have."""
        batch = walked.batch
        detail = f"A batch of offsets {batch.base_offset} to {batch.last_offset} was not there"
        return Finding(Reason.RECORD_ADDED, detail, batch.path, batch.position, batch.base_offset)

    def batch(self, before: Walked, left: Walked | None) -> Iterator[Finding]:
        """Yield findings about a batch of the original, given what is left of it."""
        if left is not None:
            yield from _changed_batch(before.batch, left.batch)
        elif before.batch.base_offset in self.last_batches:
            yield self._finding(
                Reason.PRODUCER_LOST,
                f"The batch is the last of producer {before.batch.producer_id}, which is active: "
                "its epoch and sequence go with it",
                before.batch,
            )
        held = left.held_records() if left is not None else []
        kept = {record.offset: record for record in held}
        del held
        for record in before.records():
            now = kept.pop(record.offset, None)
            if now is None:
                yield from self._dropped(before.batch, record)
            elif (what := _difference(record, now)) is not None:
                yield self._finding(
                    Reason.RECORD_CHANGED, f"The {what} of the record differs", now.batch, record
                )
        for record in kept.values():
            yield self._finding(Reason.RECORD_ADDED, "The record is new", record.batch, record)

    def _dropped(self, batch: Batch, record: Record) -> Iterator[Finding]:
        """Yield a finding unless the cleaner was allowed to drop this record."""
        if batch.is_control:
            yield from self._dropped_marker(batch, record)
            return
        if self.transactions.is_aborted(batch):
            return
        if record.offset >= self.bounds.cleaner_offset:
            detail = f"The record is at or above the cleaner offset {self.bounds.cleaner_offset}"
            yield self._finding(Reason.RECORD_LOST, detail, batch, record)
            return
        if record.key is None or self.latest.get(record.key) > record.offset:
            return
        if record.value is not None:
            detail = "The record is the latest of its key, and no later one replaces it"
            yield self._finding(Reason.LIVE_KEY_LOST, detail, batch, record)
        elif batch.magic >= 2 and not self._has_passed(batch):
            detail = f"The record is a tombstone, the latest of its key, with {_horizon(batch)}"
            yield self._finding(Reason.TOMBSTONE_TOO_EARLY, detail, batch, record)

    def _dropped_marker(self, batch: Batch, record: Record) -> Iterator[Finding]:
        if batch.base_offset not in self.transactions.lone_markers:
            detail = "Batches of its transaction were in the log"
        elif not self._has_passed(batch):
            detail = f"The marker has {_horizon(batch)}"
        else:
            return
        yield self._finding(Reason.MARKER_TOO_EARLY, detail, batch, record)

    def _has_passed(self, batch: Batch) -> bool:
        horizon = batch.delete_horizon_timestamp
        return horizon is not None and horizon <= self.bounds.now_ms

    def _finding(
        self, reason: Reason, detail: str, batch: Batch, record: Record | None = None
    ) -> Finding:
        offset = batch.base_offset if record is None else record.offset
        key = None if record is None or batch.is_control else record.key
        later = self.latest.get(key) if key is not None else -1
        return Finding(
            reason,
            detail,
            batch.path,
            batch.position,
            offset,
            key,
            later if later > offset else None,
        )


def _horizon(batch: Batch) -> str:
    horizon = batch.delete_horizon_timestamp
    return "no delete horizon" if horizon is None else f"delete horizon {horizon}"


def _changed_batch(before: Batch, after: Batch) -> Iterator[Finding]:
    """Yield changes of header fields that every kept batch must preserve, except in old formats."""
    if before.magic < 2:
        return
    names = (
        "base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch",
        "base_sequence", "is_transactional", "is_control", "timestamp_type",
    )  # fmt: skip
    for name in names:
        now, was = getattr(after, name), getattr(before, name)
        if now != was:
            detail = f"The {name} of the batch is {now}; it was {was}"
            yield Finding(
                Reason.BATCH_CHANGED, detail, after.path, after.position, after.base_offset
            )
    is_set = before.delete_horizon_timestamp is not None and after.records > 0
    if is_set and after.delete_horizon_timestamp != before.delete_horizon_timestamp:
        detail = f"The batch has {_horizon(after)}; it had {_horizon(before)}"
        yield Finding(Reason.HORIZON_CHANGED, detail, after.path, after.position, after.base_offset)


def _difference(before: Record, after: Record) -> str | None:
    """Return which field of a record differs; magic 2 writes the missing time of magic 0 as -1."""
    if before.key != after.key:
        return "key"
    if before.value != after.value:
        return "value"
    if before.headers != after.headers:
        return "list of headers"
    has_timestamp = before.timestamp_type != TimestampType.NO_TIMESTAMP_TYPE
    if after.timestamp != (before.timestamp if has_timestamp else -1):
        return "timestamp"
    return None
