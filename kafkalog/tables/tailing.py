"""Logs that grow: which offsets are new, how many of them fit a size limit, and their splits.

A position is an offset and the leader epoch of the record before it, kept per topic id and
partition. So reading resumes exactly there, whatever was written, rolled, deleted or moved to
another directory meanwhile. A log that was cut and refilled under another leader is recognized by
its epochs, as `LeaderEpochFileCache.endOffsetFor` of Kafka does for consumers.
"""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog.errors import (
    CorruptDataError,
    DataError,
    GoneError,
    KafkaLogError,
    Listener,
    NotFoundError,
    RefusedError,
    UsageError,
)
from kafkalog.files.offsets import name_of
from kafkalog.log.batches.segment import gaps_between
from kafkalog.log.living import CHANGES, answered, listed_again, listing_again
from kafkalog.model import Defect, Replicas
from kafkalog.node.identity import stated_topic_id
from kafkalog.node.outcome import Difference
from kafkalog.tables.listeners import LOSS_HINT
from kafkalog.tables.model import Loss, LossReason, TableName, has_bounds, log_of
from kafkalog.tables.planning import (
    find_targets,
    plan_logs,
    tell_differences,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.errors import Event
    from kafkalog.files.indexes import OffsetIndex
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.node.unified_log import UnifiedLog
    from kafkalog.tables.model import Offsets, Request, Split
    from kafkalog.tables.planning import Target

T = TypeVar("T")

_TABLES: Final = (TableName.RECORDS, TableName.BATCHES)


class LossWarnings(Listener):
    """Issues a `UserWarning` for each loss, and for how views differ from files, once."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def hear(self, event: Event) -> None:
        """Warn of an event, unless that was done before; raise an error."""
        if isinstance(event, Loss | Difference):
            text, path = event.detail, event.path
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text if path is None else f"{text} [{path}]", stacklevel=4)
        super().hear(event)


class Tail:
    """The logs of some directories, polled repeatedly.

    Args:
        paths: as for `plan_splits`.
        request: which rows; its offset bounds are ignored.
        listener: hears of records to be read that are missing, or that were read and that the log
            no longer has, of logs that cannot be read, which are neither read nor missed, and at
            each listing of views that differ from files; if None, as for `plan_splits`, and a loss
            is refused.

    Attributes:
        lacking: topic and partition of those logs, as in the keys.
        seen_end: where the logs ended when `advance` looked last; None before.
        targets: the logs as they were listed last.

    Raises:
        UsageError: rows of this table are not in offset order.
    """

    def __init__(
        self,
        paths: Sequence[str],
        request: Request,
        listener: Listener | None = None,
    ) -> None:
        if request.table not in _TABLES:
            raise UsageError(
                f"The table {request.table} cannot be streamed; only records and batches can."
            )
        self._paths = tuple(paths)
        self._first_request = request
        self._request = replace(  # they can be deleted later
            request, named=None, requires_assigned=False
        )
        self._is_new = True
        self._listener = listener
        self.lacking: set[str] = set()
        self.seen_end: Offsets | None = None
        self.targets: list[Target] = []

    def _lose(self, loss: Loss) -> None:
        if self._listener is None:
            raise RefusedError(loss.detail, path=loss.path, hint=LOSS_HINT)
        self._listener.hear(loss)

    @listing_again
    def beginning(self, offset_in: Callable[[UnifiedLog], int] | None = None) -> Offsets:
        """Return the first offsets, or those that somebody chooses. Raises as `plan_splits`."""
        logs = self._logs(self._first_request)
        if offset_in is not None:
            return self._of_each(logs, lambda _, log: _position(log, offset_in(log)))
        return {key: [log.log_start_offset, -1] for key, log in logs.items()}

    @listing_again
    def end(self, *, is_first: bool = False) -> Offsets:
        """Return where consumers' view of the logs ends now.

        Args:
            is_first: whether required topics must exist.
        """
        logs = self._logs(self._first_request if is_first else self._request)
        return self._of_each(logs, lambda _, log: _position(log, self._end_of(log)))

    @listing_again
    def ends(self) -> list[PartitionOffsets]:
        """Return the bounds of the logs that no running broker may append to."""
        logs = self._logs(self._request) if has_bounds(self._request) else {}
        bounds = self._of_each(logs, lambda _, log: self._bounds_of(log))
        return [one for one in bounds.values() if one is not None]

    def _bounds_of(self, log: UnifiedLog) -> PartitionOffsets | None:
        return None if log.may_grow else log.offsets.of_partition(self._request.isolation)

    @listing_again
    def advance(
        self,
        start: Mapping[str, list[int]],
        end: Offsets | None,
        size: int | None = None,
        count: int | None = None,
    ) -> Offsets:
        """Return how far the next batch goes.

        Args:
            start: where it begins; a log that is not in it begins at its first offset.
            end: not to go beyond, None for the end of the logs now.
            size: approximate limit in bytes, shared by the logs; a log with new data advances by at
                least one batch. None for no limit.
            count: limit of offsets, likewise; a log with new data advances by at least one.

        Raises:
            RefusedError: as `splits`.
        """
        logs = self._logs(self._request)
        found = self._still_there(start, logs, self._lose)
        seen = self.seen_end = self._of_each(logs, lambda _, log: [self._end_of(log), -1])

        def bounds(key: str, log: UnifiedLog) -> tuple[int, int]:
            first = _first(key, log, found.get(key), self._lose)
            last = seen[key][0] if end is None else end.get(key, [first])[0]
            return first, max(first, min(last, log.log_end_offset))

        def position(key: str, log: UnifiedLog) -> list[int]:
            before = found.get(key)
            is_same = before is not None and before[0] == ends[key] == firsts[key]
            return before if before is not None and is_same else _position(log, ends[key])

        ranges = self._of_each(logs, bounds)
        firsts = {key: first for key, (first, _) in ranges.items()}
        ends = {key: last for key, (_, last) in ranges.items()}
        if size is not None:
            ends = self._shared(logs, firsts, ends, size)
        if count is not None:
            ends = _counted(firsts, ends, count)
        return found | self._of_each(logs, position)

    def splits(
        self,
        start: Mapping[str, list[int]],
        end: Mapping[str, list[int]],
        split_bytes: int | None = None,
    ) -> list[Split]:
        """Return the splits between two positions, of another size than that of the request.

        Raises:
            RefusedError: a part of it was deleted or cut off, or the log was refilled from an
                earlier offset on.
        """
        request = self._request
        if split_bytes is not None:
            request = replace(request, split_bytes=split_bytes)
        found = self._between(start, end, request)
        for loss in found.losses:
            self._lose(loss)
        return found.splits

    @listing_again
    def _between(
        self, start: Mapping[str, list[int]], end: Mapping[str, list[int]], request: Request
    ) -> _Between:
        found = _Between()
        logs = self._logs(self._request)
        start = self._still_there(start, logs, found.losses.append)
        end = self._still_there(end, logs, found.losses.append)

        def between(key: str, log: UnifiedLog) -> _Between:
            of_log = _Between()
            if key not in end:
                return of_log
            first, last = _first(key, log, start.get(key), of_log.losses.append), end[key][0]
            if (cut := _divergence(log, end[key])) is not None:
                words = f"The log is another one from offset {cut} on; it had {last}."
                of_log.losses.append(_loss(key, cut, last, _reason_of(cut, log), words, log))
                last = min(last, cut)  # the next batch continues there
            if first < last:
                self._add(of_log, key, log, (first, last), request)
            return of_log

        for of_log in self._of_each(logs, between).values():
            found.splits.extend(of_log.splits)
            found.losses.extend(of_log.losses)
        return found

    def _add(
        self,
        found: _Between,
        key: str,
        log: UnifiedLog,
        wanted: tuple[int, int],
        request: Request,
    ) -> None:
        """Plan the offsets of one log; some may be gone since they were chosen."""
        first, last = wanted
        bounds = replace(request.bounds, from_offset=first, to_offset=last)
        # The high watermark can change later.
        request = replace(request, bounds=bounds, has_decided_end=True, internal=True)
        heard = _Heard(self)
        for planned in plan_logs([listed_again(log.partition), *log.copies], request, heard):
            found.splits.extend(planned.splits)
            if planned.first is None:
                if _name_of(log.partition) not in self.lacking:
                    raise GoneError("The partition is not here any more.", path=log.partition.path)
            elif planned.first > first:
                end = min(planned.first, last)
                found.losses.append(_deleted(key, first, end, planned.first, log))
        if heard.has_gaps:
            found.losses.extend(_missing(key, wanted, log))

    def _logs(self, request: Request) -> dict[str, UnifiedLog]:
        request = replace(request, notes_hosting=self._is_new)
        self.targets = find_targets(self._paths, request, _Heard(self))
        self._is_new = False
        tell_differences(self.targets, self._listener)
        return {self._key_of(one.listed): log_of(one, request) for one in self.targets}

    def lack(self, partition: PartitionDir, error: KafkaLogError) -> None:
        """Go on without a partition; its error is reported once."""
        name = _name_of(partition)
        if name not in self.lacking:
            (self._listener or Listener()).hear(error)
            self.lacking.add(name)

    def _of_each(
        self, logs: dict[str, UnifiedLog], question: Callable[[str, UnifiedLog], T]
    ) -> dict[str, T]:
        """Return what a question about each log is answered.

        A log whose files change is listed again without the others: a broker changes one of many
        logs more often than a busy machine lists them all.
        """

        def again(key: str) -> T:
            logs[key] = logs[key].listed_again(self._request.view)
            if self._key_of(logs[key].partition) != key:
                raise NotFoundError("The topic was made again.", path=logs[key].partition.path)
            return question(key, logs[key])

        found = {}
        for key in list(logs):
            try:
                found[key] = answered(partial(question, key, logs[key]), partial(again, key))
            except DataError as error:
                if isinstance(error, CHANGES):
                    raise
                self.lack(logs[key].partition, error)
        return found

    def _shared(
        self,
        logs: dict[str, UnifiedLog],
        firsts: dict[str, int],
        ends: dict[str, int],
        size: int,
    ) -> dict[str, int]:
        """Return end offsets such that all logs together have about `size` bytes to read."""
        sizes = self._of_each(logs, lambda key, log: _size_between(log, firsts[key], ends[key]))
        total = sum(sizes.values())
        if total <= size:
            return ends
        return self._of_each(
            logs,
            lambda key, log: _offset_behind(
                log, firsts[key], ends[key], size * sizes[key] // total
            ),
        )

    def _key_of(self, partition: PartitionDir) -> str:
        name = _name_of(partition)
        # By topic id, if it has one: a topic that was made again begins at its start.
        # Not if its disk fails: it may have one, and would seem to be another topic.
        with suppress(NotFoundError, CorruptDataError):
            name += f"@{stated_topic_id(partition)}"
        several = self._request.replicas == Replicas.ALL
        return f"{name} {os.path.dirname(partition.path)}" if several else name

    def _end_of(self, log: UnifiedLog) -> int:
        if self._request.table == TableName.BATCHES:
            return log.log_end_offset
        return log.fetch_bounds(self._request.isolation)[1]

    def _still_there(
        self,
        start: Mapping[str, list[int]],
        logs: Mapping[str, UnifiedLog],
        lose: Callable[[Loss], object],
    ) -> Offsets:
        """Return the positions by the names that the logs have now.

        Raises:
            UsageError: they are malformed.
        """
        found: Offsets = {}
        for key, position in start.items():
            if not isinstance(position, list) or len(position) != 2:
                raise UsageError(
                    f"The stream's checkpoint has no offset and epoch for {key}.",
                    hint="Another release wrote it; start with a new checkpoint.",
                )
            found[key] = position
        for key in [key for key in found if key not in logs]:
            topic, name = key.partition(" ")[0], key.partition("@")[0]
            if name.partition(" ")[0] in self.lacking:
                continue
            same_name = [
                one
                for one in logs
                if one.partition("@")[0] == name and one.partition(" ")[0] != topic
            ]
            if same_name and "@" not in key:
                found.setdefault(same_name[0], found.pop(key))  # it has since been given a topic id
                continue
            reason = "is another topic of that name now" if same_name else "is not here any more"
            words = f"The partition {key} {reason}; {found[key][0]} was to be read next."
            lose(_loss(key, found[key][0], None, LossReason.GONE, words))
            if same_name:
                del found[key]  # a deleted topic never comes back
        return found


class _Heard(Listener):
    """Passes on what planning one log reports, except views: its tail has reported those."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self.has_gaps = False

    def hear(self, event: Event) -> None:
        if isinstance(event, Defect):
            self.has_gaps = True
        elif isinstance(event, KafkaLogError):
            assert event.partition is not None, "it is about one"
            self._tail.lack(event.partition, event)


@dataclass(frozen=True, slots=True)
class _Between:
    """What there is between two positions, and what is missing."""

    splits: list[Split] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


def _name_of(partition: PartitionDir) -> str:
    return name_of(partition.topic, partition.partition)


def _first(
    key: str, log: UnifiedLog, position: list[int] | None, lose: Callable[[Loss], object]
) -> int:
    start = log.log_start_offset
    if position is None:
        return start
    offset = position[0]
    if (cut := _divergence(log, position)) is not None:
        words = (
            f"The log is another one from offset {cut} on: it was cut there, and {offset} was to "
            "be read next."
        )
        lose(_loss(key, cut, offset, _reason_of(cut, log), words, log))
        return max(cut, start)
    if start > offset:
        lose(_deleted(key, offset, start, start, log))
    return max(offset, start)


def _deleted(key: str, first: int, end: int, start: int, log: UnifiedLog) -> Loss:
    words = f"The log starts at offset {start}, and {first} was to be read next."
    return _loss(key, first, end, LossReason.DELETED, words, log)


def _missing(key: str, wanted: tuple[int, int], log: UnifiedLog) -> Iterator[Loss]:
    for first, after in gaps_between(log.segments, *wanted):
        start, end = max(first, wanted[0]), min(after, wanted[1])
        if log.lacks(start, end):
            words = f"The log lacks the offsets {start} to {end - 1}: a segment was lost."
            yield _loss(key, start, end, LossReason.MISSING, words, log)


def _loss(
    key: str,
    first: int,
    end: int | None,
    reason: LossReason,
    message: str,
    log: UnifiedLog | None = None,
) -> Loss:
    return Loss(key, first, end, reason, message, None if log is None else log.partition.path)


def _reason_of(cut: int, log: UnifiedLog) -> LossReason:
    return LossReason.CUT if cut < log.log_end_offset else LossReason.SHORT


def _position(log: UnifiedLog, offset: int) -> list[int]:
    """Return an offset with the leader epoch of the record before it."""
    if log.leader_epochs:
        below = [one.leader_epoch for one in log.leader_epochs if one.start_offset < offset]
        return [offset, below[-1] if below else -1]
    return [offset, _epoch_in_log(log, offset - 1)]


def _epoch_in_log(log: UnifiedLog, offset: int) -> int:
    """Return the leader epoch of the batch that holds an offset, -1 if none does."""
    for batch, _ in log.batches_from(max(offset, 0)):
        return batch.leader_epoch if batch.base_offset <= offset else -1
    return -1


def _divergence(log: UnifiedLog, position: list[int]) -> int | None:
    """Return the offset from which the log differs from the position's; None if nowhere."""
    offset, epoch = position
    end = log.log_end_offset
    if epoch >= 0 and log.leader_epochs:
        if log.leader_epochs[-1].leader_epoch < epoch:
            return min(end, offset)  # this log was never under that leader
        # An epoch ends where the next one starts.
        later = (one.start_offset for one in log.leader_epochs if one.leader_epoch > epoch)
        end = min(end, next(later, end))
    elif epoch >= 0 and offset <= end and _epoch_in_log(log, offset - 1) > epoch:
        batches = log.batches_from(log.log_start_offset)
        end = next(one.base_offset for one, _ in batches if one.leader_epoch > epoch)
    return end if end < offset else None


def _counted(firsts: dict[str, int], ends: dict[str, int], count: int) -> dict[str, int]:
    """Return end offsets such that all logs together advance by a number of offsets."""
    total = sum(ends[key] - firsts[key] for key in ends)
    if total <= count:
        return ends
    return {  # as Spark's own source: what is below one is rounded up, the rest down
        key: min(firsts[key] + (share // total or bool(share)), ends[key])
        for key in ends
        for share in [count * (ends[key] - firsts[key])]
    }


def _size_between(log: UnifiedLog, start: int, end: int) -> int:
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
    """Return an offset about `size` bytes after the start, and past the start if possible."""
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
    for number in range(index.first_at(position), index.entry_count):
        if index.entry(number).offset >= start:
            return index.entry(number).offset + 1
    return None
