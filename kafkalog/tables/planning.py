"""Splits of tables: which files and which parts of them have to be read for a request.

Names, checkpoints, indexes and single headers are read, no records. Logs are cut where batches
begin, as their offset indexes tell.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog import places
from kafkalog.cuts import checked_position, cut_positions
from kafkalog.errors import UsageError
from kafkalog.log_dir import FileEntry, LogDir, PartitionDir, open_path
from kafkalog.lookup import lookup_timestamp
from kafkalog.model import Isolation
from kafkalog.names import DirectoryState, FileKind
from kafkalog.payloads import payload_kind
from kafkalog.reader import Selection, start_position
from kafkalog.segment import OpenSegment
from kafkalog.tables.model import OF_LOGS, Replicas, Split, TableName
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.log_dir import Segment
    from kafkalog.tables.model import Bounds, Request


def plan_splits(paths: Sequence[str], request: Request) -> list[Split]:
    """The splits of a table, by path, topic, partition, segment and position.

    Args:
        paths: log directories, partition directories, or single logs.
        request: what is asked for.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`, or a log cannot be read.
        UsageError: splits would be empty, or a file is no live log.

    Cost:
        A few reads a segment; for read_committed those of the last stable offset.
    """
    if request.split_bytes < 1:
        raise UsageError("A split has at least one byte.")
    targets = list(_partitions(paths, request))
    if request.replicas == Replicas.BEST:
        targets = _best(targets)
    return [
        split
        for partition, segments in targets
        for split in _of_partition(partition, segments, request)
    ]


def wanted_partitions(paths: Sequence[str], request: Request) -> list[PartitionDir]:
    """The partitions that a request is about. Raises as `plan_splits`."""
    targets = list(_partitions(paths, request))
    return [
        partition
        for partition, _ in (_best(targets) if request.replicas == Replicas.BEST else targets)
    ]


Target = tuple[PartitionDir, tuple["Segment", ...]]


def _partitions(paths: Iterable[str], request: Request) -> Iterator[Target]:
    """The partitions that are meant, each with its segments."""
    for path in paths:
        found = open_path(path)
        if isinstance(found, LogDir):
            for error in found.errors.values():
                raise error
            for partition in found.partitions:
                if partition.state == DirectoryState.LIVE and _is_wanted(partition, request):
                    yield partition, partition.segments
        elif isinstance(found, PartitionDir):
            if _is_within(found, request.bounds):
                yield found, found.segments
        else:
            parent, segment = _one_segment(found)
            if _is_within(parent, request.bounds):
                yield parent, (segment,)


def _is_wanted(partition: PartitionDir, request: Request) -> bool:
    named = request.bounds.topics is not None or request.internal
    return _is_within(partition, request.bounds) and (
        named or payload_kind(partition.topic) is None
    )


def _is_within(partition: PartitionDir, bounds: Bounds) -> bool:
    if bounds.topics is not None and partition.topic not in bounds.topics:
        return False
    return bounds.partitions is None or partition.partition in bounds.partitions


def _one_segment(log: FileEntry) -> tuple[PartitionDir, Segment]:
    parent = open_path(os.path.dirname(places.absolute(log.path)))
    if isinstance(parent, PartitionDir) and log.name.kind == FileKind.LOG:
        for segment in parent.segments:
            if segment.log.name == log.name:
                return parent, segment
    raise UsageError(
        "This is no live log of a partition.",
        path=log.path,
        hint="Give log directories, partition directories, or .log files in one.",
    )


def _best(targets: Sequence[Target]) -> list[Target]:
    """Of each partition the replica that knows most; of equal ones the first."""
    found: dict[tuple[str, int | None], tuple[tuple[int, int], Target]] = {}
    for target in targets:
        partition, _ = target
        log = UnifiedLog(partition)
        epoch = log.leader_epochs[-1].epoch if log.leader_epochs else -1
        worth = (epoch, log.log_end_offset)
        name = (partition.topic, partition.partition)
        if name not in found or worth > found[name][0]:
            found[name] = (worth, target)
    return [target for _, target in found.values()]


def _of_partition(
    partition: PartitionDir, segments: Sequence[Segment], request: Request
) -> Iterator[Split]:
    plain = Split(
        request.table,
        os.path.dirname(places.absolute(partition.path)),
        partition.topic,
        -1 if partition.partition is None else partition.partition,
        partition.path,
    )
    if request.table in OF_LOGS:
        yield from _LogSplits(partition, request, plain).of(segments)
    elif request.table in (TableName.SEGMENTS, TableName.PRODUCERS):
        yield plain
    else:
        for segment in segments:
            index = {
                TableName.OFFSET_INDEX: segment.offset_index,
                TableName.TIME_INDEX: segment.time_index,
                TableName.TRANSACTIONS: segment.transaction_index,
            }[request.table]
            if index is not None:
                path, size = index.path, index.size_bytes
                yield replace(plain, path=path, base_offset=segment.base_offset, end=size)


class _LogSplits:
    """The splits of the logs of one partition."""

    def __init__(self, partition: PartitionDir, request: Request, plain: Split) -> None:
        bounds = request.bounds
        self._request = request
        self._disorder_ms = bounds.disorder_ms
        self._log = UnifiedLog(partition)
        self._committed = request.isolation == Isolation.READ_COMMITTED
        start = _larger(bounds.from_offset, self._offset_of(bounds.begin_time))
        end = _smaller(bounds.to_offset, self._offset_of(bounds.end_time))
        if request.table == TableName.RECORDS and request.isolation != Isolation.LOG:
            start = _larger(start, self._log.log_start_offset)
            if self._committed:
                end = _smaller(end, self._log.fetch_bounds(request.isolation)[1])
        self._selection = Selection(
            from_offset=start, to_offset=end, from_time=bounds.from_time, to_time=bounds.to_time
        )
        self._plain = replace(
            plain,
            from_offset=start,
            to_offset=end,
            from_time=bounds.from_time,
            to_time=bounds.to_time,
            committed=self._committed,
        )
        self._aborted = self._log.aborted_transactions() if self._committed else []

    def of(self, segments: Sequence[Segment]) -> Iterator[Split]:
        """Segment by segment, until the time is over that is wanted."""
        for segment in segments:
            if self._skips(segment):
                continue
            with OpenSegment(segment) as opened:
                start = start_position(opened, self._selection)
                end = self._end(opened)
                size = self._request.split_bytes
                bounds = [start, *cut_positions(opened, start, end, size), end]
                following = segment.next_base_offset
                aborted = tuple(
                    (one.producer_id, one.first_offset, one.last_offset)
                    for one in self._aborted
                    if one.last_offset >= segment.base_offset
                    and (following is None or one.first_offset < following)
                )
                for first, last in itertools.pairwise(bounds):
                    if last > first:
                        yield replace(
                            self._plain, path=segment.log.path, base_offset=segment.base_offset,
                            start=first, end=last, aborted=aborted,
                        )  # fmt: skip
                if end < opened.source.size_bytes:
                    return

    def _offset_of(self, timestamp: int | None) -> int | None:
        """The offset at which a consumer that seeks to a time begins."""
        if timestamp is None:
            return None
        offset = lookup_timestamp(self._log, timestamp).offset
        return self._log.log_end_offset if offset is None else offset

    def _skips(self, segment: Segment) -> bool:
        wanted, following = self._selection, segment.next_base_offset
        if wanted.to_offset is not None and segment.base_offset >= wanted.to_offset:
            return True
        return (
            wanted.from_offset is not None
            and following is not None
            and following <= wanted.from_offset
        )

    def _end(self, opened: OpenSegment) -> int:
        """Position behind which nothing is wanted, as the indexes tell; else the end."""
        end, index = opened.source.size_bytes, opened.offset_index
        if index is None:
            return end
        behind = []
        if self._selection.to_offset is not None:
            behind.append(self._selection.to_offset)
        if self._selection.to_time is not None and self._disorder_ms is not None:
            times = opened.time_index
            late = self._selection.to_time + self._disorder_ms
            last = None if times is None else times.lookup(late - 1)
            number = 0 if last is None else last.entry + 1
            if times is not None and number < times.entry_count:
                behind.append(times.entry(number).offset + 1)
        for offset in behind:
            # The batch of an entry can begin before its offset, that of the next one cannot.
            last_entry = index.lookup(offset)
            number = 0 if last_entry is None else last_entry.entry + 1
            if number + 1 < index.entry_count:
                end = min(end, checked_position(opened, index.entry(number + 1).position) or end)
        return end


def _larger(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _smaller(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)
