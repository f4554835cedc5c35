"""Logs that grow: which offsets are new, how many of them make so many bytes, and their splits.

What was read up to is noted as partition directory to next offset, so that reading goes on exactly
there, whatever was written, rolled or deleted meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.errors import RefusedError, UsageError
from kafkalog.model import Isolation
from kafkalog.tables.model import TableName
from kafkalog.tables.planning import plan_splits, wanted_partitions
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.indexes import OffsetIndex
    from kafkalog.tables.model import Request, Split

Offsets = dict[str, int]
_TABLES: Final = (TableName.RECORDS, TableName.BATCHES)


class Tail:
    """The logs of some directories, looked at again and again.

    Args:
        paths: as those of `plan_splits`.
        request: which rows; bounds of offsets are not used.
        fails_on_loss: whether it is an error that a log begins or ends before what is to be read.

    Raises:
        UsageError: rows of this table do not come in the order of offsets.
    """

    def __init__(
        self, paths: Sequence[str], request: Request, *, fails_on_loss: bool = True
    ) -> None:
        if request.table not in _TABLES:
            raise UsageError(
                f"The table {request.table} cannot be followed: only records, batches."
            )
        self._paths = tuple(paths)
        self._request = request
        self._fails_on_loss = fails_on_loss

    def beginning(self) -> Offsets:
        """First offsets."""
        return {path: log.log_start_offset for path, log in self._logs().items()}

    def end(self) -> Offsets:
        """Where the logs end now; with read_committed the last stable offsets."""
        return {path: self._end_of(log) for path, log in self._logs().items()}

    def advance(self, start: Mapping[str, int], end: Mapping[str, int], size: int) -> Offsets:
        """Offsets up to which there are about so many bytes; each log has its share of them.

        Args:
            start: where to begin; a log that is not in it begins at its first offset.
            end: offsets not to go beyond.
            size: bytes; every log that has something goes on by a batch at least.
        """
        logs = {path: log for path, log in self._logs().items() if path in end}
        firsts = {path: start.get(path, log.log_start_offset) for path, log in logs.items()}
        sizes = {path: _size_between(log, firsts[path], end[path]) for path, log in logs.items()}
        total = sum(sizes.values())
        if total <= size:
            return {**start, **end}
        shares = {path: size * one // total for path, one in sizes.items()}
        found = {
            path: _offset_behind(log, firsts[path], end[path], shares[path])
            for path, log in logs.items()
        }
        return {**start, **found}

    def splits(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Split]:
        """The splits of what lies between.

        Raises:
            RefusedError: a part of it has been deleted, or was cut off.
        """
        found: list[Split] = []
        for path, log in self._logs().items():
            first, last = start.get(path, log.log_start_offset), end.get(path)
            if last is None or first >= last:
                continue
            if self._fails_on_loss and not log.log_start_offset <= first <= last <= self._end_of(
                log
            ):
                raise RefusedError(
                    f"Offsets {first} to {last} are wanted, and the log has {log.log_start_offset} "
                    f"to {self._end_of(log)}.",
                    path=path,
                    hint="With failOnDataLoss=false reading goes on with what there is.",
                )
            bounds = replace(self._request.bounds, from_offset=first, to_offset=last)
            found += plan_splits([path], replace(self._request, bounds=bounds))
        return found

    def _logs(self) -> dict[str, UnifiedLog]:
        partitions = wanted_partitions(self._paths, self._request)
        return {partition.path: UnifiedLog(partition) for partition in partitions}

    def _end_of(self, log: UnifiedLog) -> int:
        if self._request.isolation == Isolation.READ_COMMITTED:
            return log.fetch_bounds(self._request.isolation)[1]
        return log.log_end_offset


def _size_between(log: UnifiedLog, start: int, end: int) -> int:
    """About how many bytes lie between two offsets."""
    total = 0
    for segment in log.segments:
        following = segment.next_base_offset
        if segment.base_offset >= end or (following is not None and following <= start):
            continue
        with log.open_segment(segment) as opened:
            first, last = opened.index_entry(start), None
            if following is None or following > end:
                last = opened.index_entry(end)
            size = opened.source.size_bytes if last is None else last.position
            total += max(size - (first.position if first else 0), 1)
    return total


def _offset_behind(log: UnifiedLog, start: int, end: int, size: int) -> int:
    """An offset with about so many bytes between it and the start; behind the start, if it can."""
    for segment in log.segments:
        following = segment.next_base_offset
        if start >= end:
            break
        if following is not None and following <= start:
            continue
        with log.open_segment(segment) as opened:
            entry = opened.index_entry(start)
            position = (entry.position if entry else 0) + size
            if opened.offset_index is not None:
                offset = _indexed_offset(opened.offset_index, position, start)
                if offset is not None:
                    return min(offset, end)
            size = position - opened.source.size_bytes
        if following is None or size <= 0:
            return end if following is None else min(following, end)
        start = following
    return end


def _indexed_offset(index: OffsetIndex, position: int, start: int) -> int | None:
    """The first offset behind an entry at or behind a position that is behind the start."""
    for number in range(index.first_at(position), index.entry_count):
        if index.entry(number).offset >= start:
            return index.entry(number).offset + 1
    return None
