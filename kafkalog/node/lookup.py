"""Finds a record: by offset as a fetch does, by time as ListOffsets does.

Follows `UnifiedLog.read`, `UnifiedLog.fetchOffsetByTimestamp`, `LogSegment.findOffsetByTimestamp`,
`FileRecords` and `Partition.fetchOffsetForTimestamp` of Kafka.
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from formats.file_names import parse_file_name
from formats.late_classes import dataclass, one_line
from kafkalog.files import tiers
from kafkalog.log.batches.records import decode_records, resolve_batch
from kafkalog.log.batches.segment import batch_for
from kafkalog.log.batches.timestamps import is_recovered, largest_timestamps
from kafkalog.log.living import about_a_log
from kafkalog.model import Batch, Isolation, Record, Special
from kafkalog.node.sketches import searched
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.files.indexes import Probe
    from kafkalog.log.batches.segment import OpenSegment

# Appends between the two lookups look like a difference; three times in a row they hardly do.
_COMPARISONS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a lookup: what was examined, and the outcome.

    `probes` are the steps of a binary search, in order.
    """

    action: str
    path: str | None
    detail: str
    probes: tuple[Probe[Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer to one query; anything that was not found is None.

    Attributes:
        query: an offset, a timestamp or a special timestamp.
        found: whether there is an answer. The offset at the end of the log is in range but holds
            nothing yet: not found.
        reason: why nothing was found.
        segment: path of the `.log` file.
        batch: the batch that a fetch would start with, resolved.
        offset: offset of the first record that answers the query.
        timestamp: timestamp of that record; -1 for `latest` and `earliest`, as in ListOffsets.
        leader_epoch: leader epoch of the batch, or of the log for `latest` and `earliest`.
        record: the record itself, if one answers.
        read_bytes: bytes of headers and batches that the answer needed, including index entries.
        steps: how it was found.
    """

    query: int | Special
    by_timestamp: bool
    found: bool = False
    reason: str | None = None
    segment: str | None = None
    batch: Batch | None = None
    offset: int | None = None
    timestamp: int | None = None
    leader_epoch: int | None = None
    record: Record | None = None
    read_bytes: int = 0
    steps: tuple[Step, ...] = field(default=())

    def __repr__(self) -> str:
        if self.reason is not None:
            return one_line("Lookup", repr(self.reason))
        parts = {"offset": self.offset, "position": self.batch and self.batch.position}
        if self.segment is not None:
            parts["segment"] = parse_file_name(os.path.basename(self.segment)).offset
        return one_line("Lookup", *(f"{name}={value}" for name, value in parts.items()))

    def agrees_with(self, other: Lookup) -> bool:
        """Return whether both give the same answer, even if found in different ways."""
        return (self.offset, self.batch) == (other.offset, other.batch)


class _Search:
    """One lookup in progress: the log, and the steps taken so far."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.steps: list[Step] = []
        self.read_bytes = 0

    def note(self, action: str, path: str | None, detail: str, probes: list[Any] | None) -> None:
        self.steps.append(Step(action, path, detail, tuple(probes or ())))

    def finish(self, answer: Lookup) -> Lookup:
        return replace(answer, steps=tuple(self.steps), read_bytes=self.read_bytes)

    def start_position(self, opened: OpenSegment, offset: int) -> int:
        """Return the position where the scan for `offset` starts, according to the offset index."""
        index = opened.offset_index
        if index is None:
            detail = "not used" if not opened.use_index else "there is none"
            self.note("offset-index", None, f"{detail}: the scan starts at position 0", None)
            return 0
        probes: list[Any] = []
        entry = opened.index_entry(offset, probes)
        self.read_bytes += len(probes) * index.entry_size
        where = f"entry {entry.entry}: offset {entry.offset}" if entry else "no entry"
        position = entry.position if entry else 0
        detail = f"greatest entry at or below offset {offset}: {where}, position {position}"
        self.note("offset-index", index.path, detail, probes)
        return position

    def first_record(self, opened: OpenSegment, batch: Batch, offset: int) -> Record | None:
        """Return the first record of the batch with an offset at or above `offset`."""
        self.read_bytes += batch.size_bytes
        records = decode_records(opened.source, batch)
        return next((record for record in records if record.offset >= offset), None)


@about_a_log
def lookup_offset(
    log: UnifiedLog, offset: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Lookup:
    """Return where a fetch of `offset` starts, and the first record at or above it.

    Raises:
        CorruptDataError: the batch that holds the offset cannot be decoded.
        UnreadableError: a file cannot be read.
    """
    return searched(log, lambda one: _lookup_offset(one, offset, isolation))


def _lookup_offset(log: UnifiedLog, offset: int, isolation: Isolation) -> Lookup:
    search = _Search(log)
    answer = Lookup(query=offset, by_timestamp=False)
    limit = log.fetch_bounds(isolation)[1]
    # UnifiedLog.read: the log end itself is in range, and has nothing yet.
    if not log.log_start_offset <= offset <= log.log_end_offset:
        reason = f"out of range: the log has {log.log_start_offset} to {log.log_end_offset - 1}"
        return search.finish(replace(answer, reason=reason))
    if offset >= limit:
        reason = f"nothing to fetch yet: the readable part of the log ends at {limit}"
        return search.finish(replace(answer, reason=reason))
    first = log.floor_segment(offset)
    if first is None:
        return search.finish(replace(answer, reason="out of range: below the first segment"))
    for segment in log.segments[first:]:
        detail = f"base offset {segment.base_offset} is the greatest at or below {offset}"
        if segment is not log.segments[first]:
            detail = "nothing at or above the offset before: the next segment"
        search.note("segment", segment.log.path, detail, None)
        with log.open_segment(segment) as opened:
            position = search.start_position(opened, offset)
            batch = batch_for(offset, opened.batches(opened.start_before(offset)))
            # Also by compaction: a segment may end in a gap, and Kafka goes on in the next one.
            if batch is None:
                search.note("scan", segment.log.path, f"no batch from position {position}", None)
                continue
            search.read_bytes += batch.position - position
            detail = f"from position {position} to the batch at {batch.position}"
            search.note("scan", segment.log.path, detail, None)
            answer = replace(
                answer,
                found=True,
                segment=segment.log.path,
                batch=resolve_batch(opened.source, batch),
                leader_epoch=_epoch(batch),
            )
            # The batch of the answer may have lost its records: the first record may be in a later
            # one.
            record = _first_record(search, offset, limit)
            if record is not None:
                answer = replace(
                    answer, offset=record.offset, timestamp=record.timestamp, record=record
                )
            return search.finish(answer)
    return search.finish(replace(answer, reason="no batch at or above the offset"))


def _first_record(search: _Search, offset: int, limit: int) -> Record | None:
    """Return the first record from `offset` up to `limit`, across emptied batches and segments."""
    for batch, opened in search.log.batches_from(offset):
        record = search.first_record(opened, batch, offset)
        if record is not None:
            return record if record.offset < limit else None
    return None


@about_a_log
def lookup_timestamp(
    log: UnifiedLog, timestamp: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Lookup:
    """Return what ListOffsets answers for a timestamp: a segment's first record that reaches it.

    Exactly one segment is searched, as in the broker: the first whose largest timestamp is at or
    above the target. A segment without timestamps counts with its file's modification time.

    Raises:
        CorruptDataError: the batch that would answer cannot be decoded.
        UnreadableError: a file cannot be read.
    """
    return searched(log, lambda one: _lookup_timestamp(one, timestamp, isolation))


def _lookup_timestamp(log: UnifiedLog, timestamp: int, isolation: Isolation) -> Lookup:
    search = _Search(log)
    answer = Lookup(query=timestamp, by_timestamp=True)
    for segment, (largest, source) in largest_timestamps(log, timestamp):
        comparison = "at or above" if largest >= timestamp else "below"
        detail = f"largest timestamp {largest} ({source}) is {comparison} {timestamp}"
        search.note("segment", segment.log.path, detail, None)
        if largest < timestamp:
            continue
        with log.open_segment(segment) as opened:
            record = _record_at_or_after(search, opened, timestamp)
            if record is None:
                # As in Kafka: later segments are not tried, even if they have a match.
                reason = "the first segment that reaches the timestamp holds no such record"
                return search.finish(replace(answer, reason=reason))
            answer = _record_answer(answer, opened, record)
            return search.finish(_below(log, answer, isolation))
    return search.finish(replace(answer, reason="no segment reaches the timestamp"))


@about_a_log
def lookup_special(
    log: UnifiedLog, special: Special, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> Lookup:
    """Return what ListOffsets answers for a special timestamp.

    Raises as `lookup_timestamp`.
    """
    if special == Special.MAX_TIMESTAMP:
        search, answer = _Search(log), Lookup(query=special, by_timestamp=True)
        return search.finish(_below(log, _max_timestamp(search, answer), isolation))
    return searched(log, lambda one: _lookup_special(one, special, isolation), shortens=False)


def _lookup_special(log: UnifiedLog, special: Special, isolation: Isolation) -> Lookup:
    search = _Search(log)
    answer = Lookup(query=special, by_timestamp=True)
    if special in (
        Special.EARLIEST_LOCAL,
        Special.LATEST_TIERED,
        Special.EARLIEST_PENDING_UPLOAD,
    ):
        return search.finish(_border(log, answer))
    epochs = log.leader_epochs
    if special == Special.EARLIEST:
        offset = log.log_start_offset
        # UnifiedLog.fetchOffsetByTimestamp: only if the first known epoch covers the log start.
        epoch = epochs[0].leader_epoch if epochs and epochs[0].start_offset <= offset else None
        search.note("log-start-offset", None, f"the log starts at offset {offset}", None)
    else:
        offset = log.fetch_bounds(isolation)[1]
        epoch = epochs[-1].leader_epoch if epochs else None
        search.note("log-end-offset", None, f"the readable log ends at offset {offset}", None)
    return search.finish(
        replace(answer, found=True, offset=offset, timestamp=-1, leader_epoch=epoch)
    )


def _border(log: UnifiedLog, answer: Lookup) -> Lookup:
    """Answer where the local log begins, or where the log in remote storage ends.

    What is not uploaded yet begins after that.
    """
    if answer.query == Special.EARLIEST_LOCAL:
        local = [one for one in log.segments if not tiers.is_remote(one.log.path)]
        if not local:
            return replace(answer, reason="no segment in a log directory is here")
        offset = max(log.log_start_offset, local[0].base_offset)
    elif (end := _end_of_remote(log)) is None:
        return replace(answer, reason="no segment in remote storage is here")
    elif answer.query == Special.LATEST_TIERED:
        offset = end - 1
    else:
        offset = max(end, log.log_start_offset)
    epochs = [entry.leader_epoch for entry in log.leader_epochs if entry.start_offset <= offset]
    epoch = epochs[-1] if epochs else None
    return replace(answer, found=True, offset=offset, timestamp=-1, leader_epoch=epoch)


def _end_of_remote(log: UnifiedLog) -> int | None:
    """Return the end of what is in remote storage, which local segments may have, too."""
    if log.partition.tier is not None:
        return log.partition.tier.end_offset or None
    remote = [one for one in log.segments if tiers.is_remote(one.log.path)]
    if not remote:
        return None
    with log.open_segment(remote[-1]) as opened:
        return opened.next_offset()


def compared(log: UnifiedLog, question: Callable[[UnifiedLog], Lookup]) -> tuple[Lookup, Lookup]:
    """Look up with and without indexes; while a broker writes, only a repeated difference counts.

    Raises as the question.
    """
    for _ in range(_COMPARISONS_MAX):
        found, control = map(question, _both_ways(log))
        if found.agrees_with(control) or not log.may_grow:
            break
        log = log.listed_again()
    return found, control


@about_a_log
def _both_ways(log: UnifiedLog) -> tuple[UnifiedLog, UnifiedLog]:
    """Return the log with indexes and without, both ending at the present log end."""
    end = log.log_end_offset if log.may_grow else None
    with_indexes, scanned = (
        UnifiedLog(
            log.partition,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=end,
            use_index=use_index,
        )
        for use_index in (True, False)
    )
    with_indexes.damage = scanned.damage = log.damage
    return with_indexes, scanned


def _max_timestamp(search: _Search, answer: Lookup) -> Lookup:
    """Search up to the log end that was determined first, ignoring later appends.

    Without any timestamp it is -1, which records of magic 1 and 2 have that were given none.
    """
    log = search.log
    end = log.log_end_offset
    local = log.partition.local().segments  # a broker looks no further
    best, best_segment = (-1, 0), local[0] if local else None
    for segment in local:
        with log.open_segment(segment) as opened:
            largest = opened.largest_timestamp(recovered=is_recovered(log, opened), end=end)
        search.note("segment", segment.log.path, f"largest timestamp {largest[0]}", None)
        # Strict: of equal timestamps the earliest segment answers.
        if largest[0] > best[0]:
            best, best_segment = largest, segment
    if best_segment is None:
        return replace(answer, reason="there is no segment")
    with log.open_segment(best_segment) as opened:
        start = search.start_position(opened, best[1])
        for batch in opened.batches(opened.start_before(best[1])):
            if batch.position < start or batch.max_timestamp != best[0]:
                continue
            # Magic 0 has no timestamp to match.
            if not batch.magic:
                break
            records = decode_records(opened.source, batch)
            record = next((record for record in records if record.timestamp == best[0]), None)
            search.read_bytes += batch.end_position - start
            if record is not None:
                return _record_answer(answer, opened, record)
            break
    return replace(answer, reason="the batch with the largest timestamp holds no such record")


def _record_at_or_after(search: _Search, opened: OpenSegment, timestamp: int) -> Record | None:
    log = search.log
    offset = opened.segment.base_offset
    if opened.time_index is not None:
        probes: list[Any] = []
        entry = opened.time_index.lookup(timestamp, probes)
        search.read_bytes += len(probes) * opened.time_index.entry_size
        where = f"entry {entry.entry}: offset {entry.offset}" if entry else "no entry"
        detail = f"greatest entry at or below timestamp {timestamp}: {where}"
        search.note("time-index", opened.time_index.path, detail, probes)
        if entry is not None and opened.use_index:
            offset = entry.offset
    # Records below the log start are no answer, though they lie in the segment.
    offset = max(offset, log.log_start_offset)
    start = search.start_position(opened, offset)
    for batch in opened.batches(opened.start_before(offset)):
        # The header is believed: a record that is later than its batch says is passed over by
        # Kafka, too.
        if batch.position < start or batch.max_timestamp < timestamp:
            continue
        for record in decode_records(opened.source, batch):
            if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                search.read_bytes += batch.end_position - start
                detail = f"from position {start} to the batch at {batch.position}"
                search.note("scan", opened.segment.log.path, detail, None)
                return record
    search.note("scan", opened.segment.log.path, f"no record from position {start}", None)
    return None


def _record_answer(answer: Lookup, opened: OpenSegment, record: Record) -> Lookup:
    return replace(
        answer,
        found=True,
        segment=opened.segment.log.path,
        batch=resolve_batch(opened.source, record.batch),
        offset=record.offset,
        timestamp=record.timestamp,
        leader_epoch=_epoch(record.batch),
        record=record,
    )


def _below(log: UnifiedLog, answer: Lookup, isolation: Isolation) -> Lookup:
    """Return the answer, or nothing if it is not below the last readable offset."""
    limit = log.fetch_bounds(isolation)[1]
    if answer.offset is None or answer.offset < limit:
        return answer
    reason = (
        f"the record at offset {answer.offset} is not readable yet: {isolation} ends at {limit}"
    )
    return Lookup(query=answer.query, by_timestamp=answer.by_timestamp, reason=reason)


def _epoch(batch: Batch) -> int | None:
    return batch.leader_epoch if batch.leader_epoch >= 0 else None
