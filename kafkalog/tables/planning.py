"""Splits of tables: which files, and which parts of them, must be read for a request.

Reads names, checkpoints, indexes and single headers, but no records. Logs are split where batches
begin, according to their offset indexes.
"""

from __future__ import annotations

import itertools
import os
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from formats.file_names import DirectoryState, FileKind, is_staging
from kafkalog.batches.lookup import lookup_timestamp
from kafkalog.batches.segment import OpenSegment, checked_position, cut_positions, gaps_between
from kafkalog.batches.selection import Selection, start_position
from kafkalog.errors import KafkaLogError, NotFoundError, UsageError
from kafkalog.lfs_pointers import require_contents
from kafkalog.living import answered
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir, open_path
from kafkalog.model import Isolation, LogView
from kafkalog.paths import file_system
from kafkalog.paths.source import Source
from kafkalog.payloads.internal_topics import payload_kind
from kafkalog.remote_logs import joined
from kafkalog.sightings import Sighting, now_ms
from kafkalog.tables.merged_log import MergedLog, best_targets
from kafkalog.tables.model import (
    OF_LOGS,
    PartitionEnd,
    Replicas,
    Split,
    TableName,
    has_bounds,
    log_of,
    partition_end,
)
from kafkalog.targets import open_targets, require_topics
from kafkalog.tiers import is_remote
from kafkalog.view import show, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.log_dir import Segment
    from kafkalog.tables.model import Request
    from kafkalog.view import Difference


@dataclass(frozen=True, slots=True)
class Target:
    """A log to read: its partition directory as the view shows it, and the part to read.

    `listed` is the directory as it is on disk. If `is_file`, only a single file is read. `copies`
    are those that help where this one has no sound batches.
    """

    partition: PartitionDir
    segments: tuple[Segment, ...]
    listed: PartitionDir
    difference: Difference | None = None
    is_file: bool = False
    copies: tuple[Target, ...] = ()


def plan_splits(
    paths: Sequence[str],
    request: Request,
    *,
    ends: Callable[[PartitionEnd], object] | None = None,
    differences: Callable[[Difference], object] | None = None,
    gaps: Callable[[Target], object] | None = None,
    before_each: Callable[[], object] = lambda: None,
) -> list[Split]:
    """Return the splits of a table, by path, topic, partition, segment and position.

    Args:
        paths: log directories, parents of them, partition directories, or single logs.
        request: the rows to read.
        ends: called with the bounds of each partition whose records they decide.
        differences: called with how the view of a partition differs from its files; if None, a
            `UserWarning` reports it.
        gaps: called with each log that has gaps between its segments where rows are wanted;
            `kafkalog.check.segments.missing_offsets` judges them.
        before_each: called before each look at a log; what it raises stops the planning.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`, or a log cannot be read.
        UsageError: splits would be empty, a file is not a live log, or a required topic is missing.
        CorruptDataError: there are Git LFS pointers in place of files.

    Cost:
        A few reads per segment; for read_committed also the last stable offset; the view's cost.
    """
    at_ms = now_ms()
    targets = find_targets(paths, request, before_each)
    tell_differences(targets, differences)
    splits = []
    for target in targets:
        before_each()
        found, end = living_splits(target, request, at_ms, gaps)
        splits += found
        if ends is not None and end is not None:
            ends(end)
    return splits


def living_splits(
    target: Target,
    request: Request,
    at_ms: int,
    gaps: Callable[[Target], object] | None = None,
) -> tuple[list[Split], PartitionEnd | None]:
    """Return the splits and the end of one log that was listed after a time.

    If its files change during planning, it is listed again; a log that a broker has deleted since
    has no splits. `gaps` is as in `plan_splits`.
    """

    def planned(target: Target, at_ms: int) -> tuple[list[Split], PartitionEnd | None]:
        ends: list[PartitionEnd] = []
        splits = list(splits_of(target, request, at_ms, ends=ends.append, gaps=gaps))
        return splits, ends[0] if ends else None

    def again() -> tuple[list[Split], PartitionEnd | None]:
        if target.is_file:
            return planned(target, at_ms)
        now = now_ms()
        return planned(_shown(target.listed.listed_again(), request.view), now)

    try:
        return answered(lambda: planned(target, at_ms), again)
    except NotFoundError:
        if file_system.exists(target.listed.path):
            raise
        return [], None


def find_targets(
    paths: Iterable[str], request: Request, before_each: Callable[[], object] = lambda: None
) -> list[Target]:
    """Return the logs that a request covers; arguments and errors are those of `plan_splits`."""
    if request.split_bytes < 1:
        raise UsageError("A split has at least one byte.")
    view = request.view
    if request.table == TableName.DEFECTS and view == LogView.STARTED:
        view = LogView.FILES  # a start cuts off damage
    meant = _meant(paths, request)
    for found in meant:
        if isinstance(found, PartitionDir):
            require_contents(found.path, found.files)
        else:
            require_contents(found.partition.path, (one.log for one in found.segments))
    targets = []
    failed: list[tuple[PartitionDir, KafkaLogError]] = []
    for found in meant:
        before_each()
        try:
            targets.append(found if isinstance(found, Target) else shown_now(found, view))
        except KafkaLogError as error:
            if request.replicas != Replicas.BEST or isinstance(found, Target):
                raise
            failed.append((found, error))
    if request.replicas != Replicas.BEST:
        return targets
    return best_targets(targets, failed, merges=request.merges_copies)


def meant_names(paths: Iterable[str], request: Request) -> set[tuple[str, int | None]]:
    """Return topic and partition of the logs that a request covers. Raises as `plan_splits`."""
    partitions = (
        one.partition if isinstance(one, Target) else one for one in _meant(paths, request)
    )
    return {(partition.topic, partition.partition) for partition in partitions}


def tell_differences(
    targets: Iterable[Target], differences: Callable[[Difference], object] | None
) -> None:
    """Report how views differ from files, as `plan_splits` does."""
    found = [target.difference for target in targets if target.difference is not None]
    if differences is None:
        if (text := summary(found)) is not None:
            warnings.warn(text, stacklevel=3)
        return
    for difference in found:
        differences(difference)


def _shown(partition: PartitionDir, view: LogView) -> Target:
    shown = show(partition, view)
    return Target(shown.partition, shown.segments, partition, shown.difference)


def shown_now(partition: PartitionDir, view: LogView) -> Target:
    """Return the view of a partition, from a new listing if its files have changed."""
    try:
        return answered(
            lambda: _shown(partition, view),
            lambda: _shown(partition.listed_again(), view),
        )
    except NotFoundError:
        if file_system.exists(partition.path):
            raise
        return Target(partition, (), partition)  # it was deleted


def _meant(paths: Iterable[str], request: Request) -> list[PartitionDir | Target]:
    """List the wanted partitions; a single log is a target as it is."""
    found = list(_partitions(paths, request))
    meant = [
        (one.partition if isinstance(one, Target) else one, one, named) for one, named in found
    ]
    require_topics(request.required_topics, (partition.topic for partition, *_ in meant))
    request.require_assigned((partition.topic, partition.partition) for partition, *_ in meant)
    return [
        one
        for partition, one, is_named in meant
        if _is_wanted(partition, request, is_named=is_named)
    ]


def _partitions(
    paths: Iterable[str], request: Request
) -> Iterator[tuple[PartitionDir | Target, bool]]:
    """List the partitions of a view, each with whether a path names it."""
    targets = open_targets(map(file_system.absolute, paths))  # splits are read elsewhere
    for found in joined(targets, request.bounds.topics) if request.merges_copies else targets:
        if isinstance(found, LogDirListing):
            for error in found.errors.values():
                raise error
            yield from ((one, False) for one in found.partitions if is_shown(one, request.view))
        elif isinstance(found, PartitionDir):
            yield found, True
        else:
            parent, segment = _one_segment(found)
            yield Target(parent, (segment,), parent, is_file=True), True


def is_shown(partition: PartitionDir, view: LogView) -> bool:
    """Return whether a view of a log directory has a partition directory."""
    if view == LogView.ALL:
        is_ours = is_staging(os.path.basename(partition.path))
        return partition.state != DirectoryState.FUTURE and not is_ours
    return partition.state == DirectoryState.LIVE


def _is_wanted(partition: PartitionDir, request: Request, *, is_named: bool) -> bool:
    bounds = request.bounds
    named = is_named or bounds.topics is not None or request.internal
    if not named and payload_kind(partition.topic) is not None:
        return False
    is_topic = bounds.topics is None or partition.topic in bounds.topics
    is_wanted = bounds.partitions is None or partition.partition in bounds.partitions
    return is_topic and is_wanted and request.names(partition.topic, partition.partition)


def _one_segment(log: FileEntry) -> tuple[PartitionDir, Segment]:
    parent = open_path(os.path.dirname(log.path))
    if isinstance(parent, PartitionDir) and log.name.kind == FileKind.LOG:
        for segment in parent.segments:
            if segment.log.name == log.name:
                return parent, segment
    raise UsageError(
        "This is no live log of a partition.",
        path=log.path,
        hint="Give log directories, partition directories, or .log files in one.",
    )


def splits_of(
    target: Target,
    request: Request,
    at_ms: int,
    *,
    ends: Callable[[PartitionEnd], object] | None = None,
    gaps: Callable[[Target], object] | None = None,
) -> Iterator[Split]:
    """Yield the splits of one log that was listed after a time; the rest as in `plan_splits`."""
    partition, segments = target.partition, target.segments
    seen = Sighting.of(target.listed, at_ms)
    plain = Split(
        request.table,
        os.path.dirname(partition.path),
        partition.topic,
        -1 if partition.partition is None else partition.partition,
        partition.path,
        seen=seen,
        view=request.view,
    )
    if request.table in OF_LOGS:
        splits = _LogSplits(target, request, plain)
        if ends is not None and splits.end is not None:
            ends(splits.end)
        if gaps is not None and not target.is_file and splits.have_gaps(segments):
            gaps(target)
        yield from splits.of(segments)
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
                one = replace(
                    plain, path=index.path, base_offset=segment.base_offset, end=index.size_bytes
                )
                yield one if seen is None else replace(one, seen=_seen_file(seen, index.path))


def _seen_file(seen: Sighting, path: str) -> Sighting:
    with Source(path) as source:
        return seen.of_part(source, 0, source.size_bytes)


class _LogSplits:
    """The splits of the logs of one partition."""

    def __init__(self, target: Target, request: Request, plain: Split) -> None:
        bounds = request.bounds
        self._request = request
        self._disorder_ms = bounds.disorder_ms
        self._log = log_of(target, request)
        self._committed = request.isolation == Isolation.READ_COMMITTED
        start = max(_known(bounds.from_offset, self._offset_of(bounds.begin_time)), default=None)
        end = min(_known(bounds.to_offset, self._offset_of(bounds.end_time)), default=None)
        self.end: PartitionEnd | None = None
        if has_bounds(request):
            self.end = partition_end(self._log, request)
            given = self._log.fetch_bounds(request.isolation)
            start, end = max(_known(start, given[0])), min(_known(end, given[1]))
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
        self._aborted = self._log.hidden_transactions() if self._committed else []

    @cached_property
    def _log_end(self) -> int | None:
        """Return where the log ends now; None if that is unknown."""
        with suppress(KafkaLogError):
            return self._log.log_end_offset
        return None

    def have_gaps(self, segments: Sequence[Segment]) -> bool:
        """Return whether wanted offsets are missing between segments."""
        wanted = self._selection
        found = gaps_between(segments, wanted.from_offset, wanted.to_offset)
        return any(self._log.lacks(start, end) for start, end in found)

    def of(self, segments: Sequence[Segment]) -> Iterator[Split]:
        """Yield splits by segment, up to the end of the wanted time range."""
        if isinstance(self._log, MergedLog):
            wanted = replace(self._plain, aborted=tuple(
                (one.producer_id, one.first_offset, one.last_offset) for one in self._aborted
            ))  # fmt: skip
            yield from self._log.planned(wanted, self._request.split_bytes)
            return
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
                offsets = [opened.base_offset_at(position) for position in bounds[:-1]]
                offsets[0] = segment.base_offset if start == 0 else offsets[0]
                ends = [*offsets[1:], self._log_end if following is None else following]
                parts = zip(itertools.pairwise(bounds), offsets, ends, strict=True)
                for (first, last), first_offset, next_offset in parts:
                    if last > first:
                        yield replace(
                            self._plain, path=segment.log.path, base_offset=segment.base_offset,
                            start=first, end=last, aborted=aborted, first_offset=first_offset,
                            next_offset=next_offset, seen=self._seen(opened.source, first, last),
                        )  # fmt: skip
                if end < opened.source.size_bytes:
                    return

    def _seen(self, source: Source, start: int, end: int) -> Sighting | None:
        seen = None if is_remote(source.path) else self._plain.seen
        return None if seen is None else seen.of_part(source, start, end)

    def _offset_of(self, timestamp: int | None) -> int | None:
        """Return the offset at which a consumer that seeks to a time begins."""
        if timestamp is None:
            return None
        offset = lookup_timestamp(self._log, timestamp).offset
        return self._log.log_end_offset if offset is None else offset

    def _skips(self, segment: Segment) -> bool:
        wanted, following = self._selection, segment.next_base_offset
        if wanted.to_offset is not None and segment.base_offset >= wanted.to_offset:
            # If a log ends where its active segment begins, that one is empty, or all damage.
            return following is not None or wanted.to_offset != self._log_end
        return (
            wanted.from_offset is not None
            and following is not None
            and following <= wanted.from_offset
        )

    def _end(self, opened: OpenSegment) -> int:
        """Return the position after which nothing is wanted, by the indexes; else the log's end."""
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
            # An entry's batch can begin before its offset, but the next entry's batch cannot.
            last_entry = index.lookup(offset)
            number = 0 if last_entry is None else last_entry.entry + 1
            if number + 1 < index.entry_count:
                end = min(end, checked_position(opened, index.entry(number + 1).position) or end)
        return end


def _known(*some: int | None) -> list[int]:
    return [one for one in some if one is not None]
