"""The life of a key in each partition: every record of it that is on the disk, in offset order.

Leftovers of compactions and deletions have records that the log has no more, and an end that a
broker's next start cuts off has some that it never will have. They count for nobody, but they show
what there was. A compacted log has lost most of a life; what is left is shown.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from formats.file_names import DirectoryState
from kafkalog.answers.search.scanning import Occurrence, plan_of, records_of
from kafkalog.log.batches.selection import ReadPlan, Selection, plan_segments
from kafkalog.model import AbortedTransaction, Defect, LogView, Record
from kafkalog.node.unified_log import OpenTransaction, UnifiedLog
from kafkalog.tables.planning import Target, missing_in, shown_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.answers.search.run import Search


def history(search: Search) -> Iterator[Occurrence | Defect]:
    """Yield the occurrences of a key, by topic, partition and offset, and defects.

    Args:
        search: a search for one key; without leftovers unless its view is `all`.
    """

    def found_in(target: Target) -> Iterator[Occurrence | Defect]:
        wanted = search.selection
        yield from _Life(search, target).occurrences()
        yield from missing_in(target, wanted.view, wanted.from_offset, wanted.to_offset)

    return search.in_each(found_in)


class _Life:
    """The life of a key in one partition directory or file."""

    def __init__(self, search: Search, target: Target) -> None:
        self._search = search
        self._target = target
        served = (DirectoryState.LIVE, DirectoryState.REMOTE)
        self._is_served = target.is_file or target.partition.state in served
        self._start = 0 if target.is_file else UnifiedLog(target.partition).log_start_offset

    def occurrences(self) -> Iterator[Occurrence | Defect]:
        """Yield them by offset. One that counts waits for the next that does."""
        waiting: list[Occurrence] = []
        before: Record | None = None
        for one in self._merged():
            if isinstance(one, Defect):
                yield one
                continue
            record, is_live = one
            is_live = is_live and record.offset >= self._start
            found = Occurrence(
                self._search.of(self._target, record), before, None, is_live,
                self._transaction_of(record),
            )  # fmt: skip
            if found.counts:
                before = record
                if waiting:
                    yield replace(waiting[0], superseded_by=record.offset)
                    yield from waiting[1:]
                waiting = [found]
            elif waiting:
                waiting.append(found)
            else:
                yield found
        yield from waiting

    def _merged(self) -> Iterator[tuple[Record, bool] | Defect]:
        """Yield the records of the log and of its leftovers by offset, each once."""
        last: list[tuple[Record, bool]] = []  # those at one offset
        for record, is_live in self._by_offset():
            if isinstance(record, Defect):
                yield record
                continue
            if last and last[0][0].offset != record.offset:
                yield from last
                last = []
            same = [one for one, _ in last if _is_same(one, record)]
            if not same:
                last.append((record, is_live))
        yield from last

    def _by_offset(self) -> Iterator[tuple[Record | Defect, bool]]:
        """Yield all records by offset, at each the live one first; a file is opened when needed."""
        waiting = sorted(self._readings(), key=lambda one: one[0])
        numbers = count()  # breaks ties in the heap: records have no order
        heads: list[tuple[int, bool, int, Record, Iterator[Record | Defect]]] = []
        while waiting or heads:
            if waiting and (not heads or waiting[0][0] <= heads[0][0]):
                _, is_left, records = waiting.pop(0)
            else:
                _, is_left, _, record, records = heapq.heappop(heads)
                yield record, not is_left
            for following in records:
                if not isinstance(following, Defect):
                    item = (following.offset, is_left, next(numbers), following, records)
                    heapq.heappush(heads, item)
                    break
                yield following, not is_left

    def _readings(self) -> Iterator[tuple[int, bool, Iterator[Record | Defect]]]:
        """Yield what is to be read: the first offset, whether it is left over, and its records."""
        search, target = self._search, self._target
        selection = search.selection
        if target.is_file or selection.view != LogView.ALL:
            yield 0, not self._is_served, self._read(plan_of(target, selection))
            return
        started = target
        if self._is_served:
            started = shown_now(target.listed, LogView.RECOVERED)
            yield 0, False, self._read(plan_of(started, selection))
        # Of a file that the next start cuts, only what lies behind the cut is left over; of one
        # that it keeps whole, nothing; of one that it removes, everything.
        shown = {one.log.path: one.log.end for one in started.segments} if self._is_served else {}
        for segment in target.segments:
            path = segment.log.path
            cut = shown.get(path, 0)
            if cut is not None:
                wanted = replace(selection, from_position=cut) if path in shown else selection
                plan = plan_segments((segment,), wanted)
                yield segment.base_offset, True, self._read(plan)

    def _read(self, plan: ReadPlan) -> Iterator[Record | Defect]:
        return records_of(plan, self._search.progress, bulk=self._search.bulk)

    def _transaction_of(self, record: Record) -> str | None:
        if not record.batch.is_transactional:
            return None
        who, offset = record.batch.producer_id, record.offset
        if any(one.producer_id == who and one.first_offset <= offset <= one.last_offset
               for one in self._transactions[0]):  # fmt: skip
            return "aborted"
        is_open = any(
            one.producer_id == who and one.first_offset <= offset for one in self._transactions[1]
        )
        return "open" if is_open else "committed"

    @cached_property
    def _transactions(self) -> tuple[list[AbortedTransaction], list[OpenTransaction]]:
        log = UnifiedLog(self._target.partition)
        return log.hidden_transactions(), log.open_transactions()


def _is_same(one: Record, other: Record) -> bool:
    return (one.timestamp, one.key, one.value, one.headers) == (
        other.timestamp, other.key, other.value, other.headers,
    )  # fmt: skip


def wanted_for_history(selection: Selection) -> Selection:
    """Return the selection that a history reads: data, in all files of a partition directory."""
    return replace(selection, data=True, view=LogView.ALL)
