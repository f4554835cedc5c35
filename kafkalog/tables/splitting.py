"""The splits of one log: its segments, cut where batches begin according to their offset indexes.

Names and sizes say most of it. Of a segment that is wanted whole, and is no larger than a split,
nothing is read.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kafkalog.errors import DataError
from kafkalog.files.tiers import is_remote
from kafkalog.io.paths.source import Source
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.condition import condition_of
from kafkalog.log.batches.segment import OpenSegment, checked_position, cut_positions, gaps_between
from kafkalog.log.batches.selection import Selection, start_position
from kafkalog.model import Isolation, computed_once
from kafkalog.node.claims import Claim
from kafkalog.node.identity import home_of
from kafkalog.tables.merged_log import MergedLog
from kafkalog.tables.model import OF_LOGS, Split, TableName, has_bounds, log_of, plain_split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import Segment
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.tables.model import Request
    from kafkalog.tables.planning import Target


def splits_of(
    target: Target,
    request: Request,
    at_ms: int,
    *,
    looks_for_gaps: bool,
) -> tuple[Iterable[Split], int | None, PartitionOffsets | None, bool]:
    """Return the splits of one log, and what a listener and a stream have to know of it.

    That is the first offset that a row can have, None if rows have none; the bounds of the log, if
    they decide; and whether wanted rows are missing.

    Args:
        target: the log.
        request: the rows to read.
        at_ms: a time before it was listed.
        looks_for_gaps: whether to look for what is missing between segments.
    """
    partition, segments = target.partition, target.segments
    seen = Claim.of(target.listed, at_ms)
    plain = replace(plain_split(partition, request), seen=seen)
    if request.table in OF_LOGS:
        splits = _LogSplits(target, request, plain)
        # A reader that comes to the end of a segment reports the gap after it.
        unseen = [one for one in segments if not (splits.are_for_gaps and one.log.size_bytes)]
        has_gaps = looks_for_gaps and not target.is_file and splits.have_gaps(unseen)
        return splits.of(segments), splits.first, splits.end, has_gaps
    if request.table in (TableName.SEGMENTS, TableName.PRODUCERS):
        return [plain], None, None, False
    return _of_indexes(segments, plain), None, None, False


def _home_of(log: str, log_dirs: tuple[str, ...]) -> tuple[str, ...]:
    own = os.path.dirname(os.path.dirname(log))
    home = _home(own, log_dirs)
    return () if home == own else (home,)


_home = lru_cache(64)(home_of)  # once per log directory: it takes requests


def _of_indexes(segments: Iterable[Segment], plain: Split) -> Iterator[Split]:
    for segment in segments:
        index = {
            TableName.OFFSET_INDEX: segment.offset_index,
            TableName.TIME_INDEX: segment.time_index,
            TableName.TRANSACTIONS: segment.transaction_index,
        }[plain.table]
        if index is not None:
            one = replace(
                plain, path=index.path, base_offset=segment.base_offset, end=index.size_bytes
            )
            seen = plain.seen
            yield one if seen is None else replace(one, seen=_seen_file(seen, index.path))


def _seen_file(seen: Claim, path: str) -> Claim:
    with Source(path) as source:
        return seen.of_part(source, 0, source.size_bytes)


class _LogSplits:
    """The splits of the logs of one partition.

    Attributes:
        first: the first offset that a row can have, whatever is wanted.
        end: the bounds of the log, if they decide which rows are returned.
        are_for_gaps: whether readers look for gaps between segments.
    """

    def __init__(self, target: Target, request: Request, plain: Split) -> None:
        bounds = request.bounds
        self._request = request
        self._disorder_ms = bounds.disorder_ms
        self._log = log_of(target, request)
        self._committed = request.isolation == Isolation.READ_COMMITTED
        start, end = bounds.from_offset, bounds.to_offset
        self.first = self._log.first_offset
        self.end: PartitionOffsets | None = None
        if has_bounds(request):
            self.first = self._log.log_start_offset
            start = max(_known(start, self.first))
            is_whole = request.ends_as_given  # then nobody asks where the log ends
            if not is_whole or self._log.first_offset < self.first:
                self.end = self._log.offsets.of_partition(request.isolation)
            if not is_whole:
                end = min(_known(end, self._log.fetch_bounds(request.isolation)[1]))
        self._selection = Selection(
            from_offset=start, to_offset=end, from_time=bounds.from_time, to_time=bounds.to_time,
            where=None if plain.where is None else condition_of(plain.where),
        )  # fmt: skip
        self._plain = replace(
            plain,
            from_offset=start,
            to_offset=end,
            from_time=bounds.from_time,
            to_time=bounds.to_time,
            committed=self._committed,
        )
        self.are_for_gaps = (
            request.gaps_when_read
            and is_object(target.partition.path)
            and not (target.is_file or target.copies)
            and not (target.partition.is_remote or target.partition.tier)
        )
        self._aborted = self._log.hidden_transactions() if self._committed else []

    @computed_once
    def _log_end(self) -> int | None:
        """Return where the log ends now; None if that is unknown."""
        with suppress(DataError):
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
            # Before its size: what is appended between the two is not promised.
            following = self._offset_after(segment)
            if (size := self._size_if_whole(segment)) is not None:
                yield from self._cut(segment, [0, size], [segment.base_offset], [following], size)
                continue
            with OpenSegment(segment) as opened:
                start = start_position(opened, self._selection)
                end = self._end(opened)
                size = self._request.split_bytes
                bounds = [start, *cut_positions(opened, start, end, size), end]
                offsets = [
                    opened.base_offset_at(position) if position else segment.base_offset
                    for position in bounds[:-1]
                ]
                ends = [*offsets[1:], following]
                size = opened.source.size_bytes
                for split in self._cut(segment, bounds, offsets, ends, size):
                    seen = self._seen(opened.source, split.start, split.end)
                    yield split if seen is None else replace(split, seen=seen)
                if end < size:
                    return

    def _size_if_whole(self, segment: Segment) -> int | None:
        """Return the size of a segment in a store that is one split, as its listing says.

        None if more has to be known of it. That is what opening it would say, without a request.
        """
        log, wanted, following = segment.log, self._selection, segment.next_base_offset
        if log.error is not None or not is_object(log.path) or is_remote(log.path):
            return None
        size = log.size_bytes if log.end is None else min(log.size_bytes, log.end)
        is_cut = (
            size > self._request.split_bytes
            or (wanted.from_offset or 0) > segment.base_offset
            or (wanted.from_time, wanted.to_time) != (None, None)
            or self._ends_before(self._log.partition.end_offset if following is None else following)
        )
        return None if is_cut else size

    def _ends_before(self, limit: int | None) -> bool:
        """Return whether what is wanted may end before an offset; None if that is unknown."""
        to_offset = self._selection.to_offset
        return to_offset is not None and (limit is None or to_offset < limit)

    def _offset_after(self, segment: Segment) -> int | None:
        following = segment.next_base_offset
        return self._log_end if following is None else following

    def _cut(
        self,
        segment: Segment,
        bounds: Sequence[int],
        offsets: Sequence[int | None],
        ends: Sequence[int | None],
        size: int,
    ) -> Iterator[Split]:
        """Yield the splits of a segment of some size between the positions in it."""
        following, is_active = segment.next_base_offset, segment.is_active
        aborted = tuple(
            (one.producer_id, one.first_offset, one.last_offset)
            for one in self._aborted
            if one.last_offset >= segment.base_offset
            and (following is None or one.first_offset < following)
        )
        parts = zip(itertools.pairwise(bounds), offsets, ends, strict=True)
        for (first, last), first_offset, next_offset in parts:
            if last > first:
                looks_for_gap = self.are_for_gaps and last == size and not is_active
                log_dirs = self._log.partition.log_dirs if looks_for_gap else ()
                yield replace(
                    self._plain, path=segment.log.path, base_offset=segment.base_offset,
                    start=first, end=last, aborted=aborted, first_offset=first_offset,
                    next_offset=next_offset, seen=None,
                    looks_for_gap=looks_for_gap, log_dirs=_home_of(segment.log.path, log_dirs),
                    high=following if last == bounds[-1] else next_offset,
                )  # fmt: skip

    def _seen(self, source: Source, start: int, end: int) -> Claim | None:
        seen = None if is_remote(source.path) else self._plain.seen
        return None if seen is None else seen.of_part(source, start, end)

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
        end, following = opened.source.size_bytes, opened.segment.next_base_offset
        behind = []
        to_offset = self._selection.to_offset
        # What ends at the end of the log, or of the segment, needs no look at an index.
        limit = self._log.partition.end_offset if following is None else following
        if to_offset is not None and self._ends_before(limit):
            behind.append(to_offset)
        if self._selection.to_time is not None and self._disorder_ms is not None:
            times = opened.time_index
            late = self._selection.to_time + self._disorder_ms
            last = None if times is None else times.lookup(late - 1)
            number = 0 if last is None else last.entry + 1
            if times is not None and number < times.entry_count:
                behind.append(times.entry(number).offset + 1)
        index = opened.offset_index if behind else None
        if index is None:
            return end
        for offset in behind:
            # An entry's batch can begin before its offset, but the next entry's batch cannot.
            last_entry = index.lookup(offset)
            number = 0 if last_entry is None else last_entry.entry + 1
            if number + 1 < index.entry_count:
                end = min(end, checked_position(opened, index.entry(number + 1).position) or end)
        return end


def _known(*some: int | None) -> list[int]:
    return [one for one in some if one is not None]
