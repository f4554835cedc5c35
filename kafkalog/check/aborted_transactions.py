"""Checks transaction indexes against the aborted transactions in the log.

Follows `ProducerStateManager.lastStableOffset`, `TransactionIndex` and, for what compaction leaves,
`CleanedTransactionMetadata` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from formats.constants import ABORT, ABORTED_TXN_SIZE, INT64_MAX
from formats.file_names import FileKind, FileState
from formats.late_classes import dataclass
from kafkalog.check import producer_rows as r
from kafkalog.check import producer_states as p
from kafkalog.errors import DataError
from kafkalog.io.paths.source import Source
from kafkalog.io.wording import counted
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.side_files import aborted_columns
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batches import Found
    from kafkalog.check.producer_rows import ProducerWindow, Timeline
    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.model import Defect

    Column = NDArray[np.int64]

(_PRODUCER_ID, _FIRST, _LAST, _STABLE) = range(4)


@dataclass(frozen=True, slots=True)
class _Transactions:
    """Transactions around some batches, as columns by first offset.

    Attributes:
        number: number of its first batch in the batch columns, -1 if it is before them.
        end: offset of its marker, INT64_MAX if it is open.
    """

    first: Column
    producer_id: Column
    number: Column
    end: Column


class _Waiting(NamedTuple):
    """An entry whose last stable offset is above its marker."""

    stable: int
    entry: int
    marker: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class _Ended:
    """The abort markers of some batches, as columns by offset.

    Attributes:
        number: number of the batch in the batch columns.
        producer_id, offset: those of the marker.
        first: first offset of the transaction, -1 if the log does not show one.
        is_known: whether a broker must have known the transaction.
        is_stale: whether something unknown lies inside the transaction.
        stable: the last stable offset after the marker.
        blind: number of blind spots up to the marker.
    """

    number: Column
    producer_id: Column
    offset: Column
    first: Column
    is_known: NDArray[np.bool_]
    is_stale: NDArray[np.bool_]
    stable: Column
    blind: Column


class AbortedTransactions:
    """Compares the transaction indexes of a partition, one segment after the other.

    Memory: the entries of one index.
    """

    def __init__(self, directory: PartitionDir, timeline: Timeline, log_start_offset: int) -> None:
        self._timeline = timeline
        self._log_start_offset = log_start_offset
        # After a swap that a crash interrupted, the index may still have its `.swap` name.
        self._swapped = {
            entry.name.offset
            for entry in directory.files
            if entry.name.kind == FileKind.TRANSACTION_INDEX and entry.name.state == FileState.SWAP
        }
        self._path: str | None = None
        self._log_path = ""
        self._entries: Column | None = None
        self._used = 0
        self._missing: list[tuple[int, int]] = []
        # Entries that only the beginning of another producer's transaction can explain.
        self._waiting: list[_Waiting] = []

    @property
    def has_entries(self) -> bool:
        """Whether the index of the segment has entries that can be compared."""
        return self._entries is not None and self._entries.size > 0

    def begin(self, segment: Segment) -> None:
        index = segment.transaction_index
        self._log_path = segment.log.path
        self._path = None if index is None else index.path
        self._used = 0
        if segment.base_offset in self._swapped:
            self._entries = None
        elif index is None:
            # Kafka makes the file with its first entry: a missing one is compared as an empty one.
            self._entries = np.empty((4, 0), np.int64)
        else:
            self._entries = _read(index.path, segment.base_offset)

    def close(self, limit: int) -> Iterator[Defect]:
        """Yield the defects that show at the end of a segment, whose offsets are below `limit`."""
        if self._missing:
            (producer_id, offset), count = self._missing[0], len(self._missing)
            rest = f", like {counted(count - 1, 'more transaction')}" if count > 1 else ""
            detail = f"The transaction of producer {producer_id} aborted at offset {offset} is "
            yield make_defect(
                "aborted-transaction-missing",
                self._path or self._log_path,
                f"{detail}missing from the index{rest}.",
                offset=offset,
            )
            self._missing = []
        if self._entries is not None:
            last = self._entries[_LAST]
            for i in np.flatnonzero(last >= limit).tolist():
                if i >= self._used:
                    detail = f"Entry {i} has offset {last[i]}, the segment ends at {limit}."
                    yield self._defect("index-entry-beyond-log", i, detail)
        for one in self._waiting:
            if not self._was_removed(one.stable, limit):
                yield self._wrong(one.entry, "last stable offset", one.stable, one.marker + 1)
        self._waiting = []

    def window(self, window: ProducerWindow, before: NDArray[np.int64]) -> Iterator[Found]:
        """Compare the markers of some batches, given the producers' states before them."""
        if self._entries is None or not (self._entries.size or window.rows.size):
            return
        stop = int(np.searchsorted(self._entries[_LAST], self._timeline.next_offset))
        waiting = bool(self._waiting)
        aborts = window.rows[r.TYPE] == ABORT
        if window.history is None or not (stop > self._used or waiting or aborts.any()):
            yield from self._unexplained(window, np.arange(self._used, stop))
            self._used = stop
            return
        transactions = _transactions(window, before)
        ended = _ended(window, transactions)
        at = np.searchsorted(self._entries[_LAST], ended.offset)
        hits = np.append(self._entries[_LAST], -1)[at] == ended.offset
        # Below the log start no reader needs the entry.
        must = ~hits & ended.is_known & (ended.offset >= self._log_start_offset)
        self._missing += zip(
            ended.producer_id[must].tolist(), ended.offset[must].tolist(), strict=True
        )
        yield from self._compared(ended, hits, at)
        mine = np.arange(self._used, stop)
        yield from self._unexplained(window, mine[~np.isin(mine, at[hits])])
        self._used = stop
        yield from self._explained(transactions)

    def _compared(self, ended: _Ended, hits: NDArray[np.bool_], at: Column) -> Iterator[Found]:
        assert self._entries is not None, "window() looked"
        entries = self._entries[:, at[hits]]
        offset, first = ended.offset[hits], ended.first[hits]
        has_batch = ~self._timeline.removed.hold(entries[_FIRST])
        # The cleaner removes the data of aborted transactions: the log then shows a later
        # beginning, or none.
        is_cut = ~has_batch & ((first < 0) | (entries[_FIRST] < first)) | ended.is_stale[hits]
        odd = (entries[_PRODUCER_ID] != ended.producer_id[hits]) | (
            (entries[_FIRST] != first) & ~is_cut
        )
        stable, blind = ended.stable[hits], ended.blind[hits]
        odd |= entries[_STABLE] != stable
        for i in np.flatnonzero(odd).tolist():
            entry, number = int(at[hits][i]), int(ended.number[hits][i])
            found, wanted = int(entries[_STABLE, i]), int(stable[i])
            if entries[_PRODUCER_ID, i] != ended.producer_id[hits][i]:
                whose = int(ended.producer_id[hits][i])
                yield number, self._wrong(entry, "producer", int(entries[_PRODUCER_ID, i]), whose)
            elif entries[_FIRST, i] != first[i] and not is_cut[i]:
                yield number, self._wrong(entry, "first offset", int(entries[_FIRST, i]), first[i])
            elif found == wanted or blind[i]:
                continue
            elif found > wanted == offset[i] + 1:
                producer_id = int(ended.producer_id[hits][i])
                self._waiting.append(_Waiting(found, entry, int(offset[i]), producer_id))
            elif found > wanted or not self._timeline.removed.hold([found])[0]:
                yield number, self._wrong(entry, "last stable offset", found, wanted)

    def _unexplained(self, window: ProducerWindow, entries: Column) -> Iterator[Found]:
        """Yield the entries that point to no abort marker, unless compaction removed the marker."""
        assert self._entries is not None, "window() looked"
        last = self._entries[_LAST, entries]
        odd = ~self._timeline.removed.hold(last)
        at = np.searchsorted(window.part.headers[h.LAST_OFFSET], last[odd])
        for entry, batch in zip(entries[odd].tolist(), at.tolist(), strict=True):
            detail = f"Entry {entry}: no abort marker is at its last offset "
            detail += f"{self._entries[_LAST, entry]}."
            number = int(window.part.numbers[min(batch, len(window.part.numbers) - 1)])
            yield number, self._defect("aborted-transaction-wrong", entry, detail)

    def _explained(self, transactions: _Transactions) -> Iterator[Found]:
        """Yield the waiting entries that the next transaction of another producer does not explain.

        A follower takes all batches of a fetch into account before it completes their transactions,
        so its entries may know the next transaction already, unless it is of the same producer.
        Compaction may have removed the batch in which that one began.
        """
        left = []
        for one in self._waiting:
            after = int(np.searchsorted(transactions.first, one.marker, "right"))
            others = np.flatnonzero(transactions.producer_id[after:] != one.producer_id)
            if not len(others):
                left.append(one)
                continue
            i = after + int(others[0])
            first = int(transactions.first[i])
            if first != one.stable and not self._was_removed(one.stable, first):
                wrong = self._wrong(one.entry, "last stable offset", one.stable, one.marker + 1)
                yield int(transactions.number[i]), wrong
        self._waiting = left

    def _was_removed(self, offset: int, limit: int) -> bool:
        """Return whether an offset below `limit`, up to which the log was read, has no batch."""
        is_after_all = offset >= self._timeline.next_offset
        return offset < limit and (is_after_all or bool(self._timeline.removed.hold([offset])[0]))

    def _wrong(self, entry: int, field: str, found: int, wanted: int) -> Defect:
        detail = f"Entry {entry} has {field} {found}, "
        detail += f"the log says {wanted}." if wanted >= 0 else "the log has no batch of it."
        return self._defect("aborted-transaction-wrong", entry, detail)

    def _defect(self, name: str, entry: int, detail: str) -> Defect:
        assert self._entries is not None, "there are entries"
        assert self._path is not None, "they are of a file"
        return make_defect(
            name,
            self._path,
            detail,
            position=entry * ABORTED_TXN_SIZE,
            offset=int(self._entries[_LAST, entry]),
        )


def _read(path: str, base_offset: int) -> NDArray[np.int64] | None:
    """Return the entries as four rows; None if they are malformed, which another check reports."""
    names = ("producer_id", "first_offset", "last_offset", "last_stable_offset", "version")
    try:
        with Source(path) as source:
            blocks = [
                np.array([block[name] for name in names], np.int64)
                for _, block in aborted_columns(source)
            ]
    except DataError:
        return None
    table = np.concatenate([np.empty((5, 0), np.int64), *blocks], axis=1)
    odd = (table[-1] != 0) | (table[_FIRST] < 0) | (table[_FIRST] > table[_LAST])
    odd |= table[_LAST] < base_offset
    return None if odd.any() or (np.diff(table[_LAST]) <= 0).any() else table[:-1]


def _transactions(window: ProducerWindow, before: NDArray[np.int64]) -> _Transactions:
    history = window.history
    assert history is not None, "there are producers"
    started_before = history.before(history.started)
    end = np.full(len(history.row), INT64_MAX)
    closing = np.flatnonzero(history.is_marker & (started_before >= 0))
    end[started_before[closing]] = window.rows[r.BASE_OFFSET, history.row[closing]]
    begin = np.flatnonzero((history.kind == r.TRANSACTIONAL) & (started_before < 0))
    elsewhere = (before[p.TXN_FIRST] >= 0) & ~np.isin(before[p.PRODUCER_ID], history.producer_id)
    others = before[p.TXN_FIRST, elsewhere]
    row = history.row[begin]
    number = np.where(row >= 0, window.rows[r.NUMBER, row], -1)
    first = np.concatenate((others, history.get(p.FIRST_OF_TRANSACTION, begin)))
    order = np.argsort(first, kind="stable")
    none = np.full(len(others), -1)
    return _Transactions(
        first[order],
        np.concatenate((before[p.PRODUCER_ID, elsewhere], history.producer_id[begin]))[order],
        np.concatenate((none, number))[order],
        np.concatenate((np.full(len(others), INT64_MAX), end[begin]))[order],
    )


def _ended(window: ProducerWindow, transactions: _Transactions) -> _Ended:
    history = window.history
    assert history is not None, "there are producers"
    which = np.flatnonzero(history.is_marker)
    which = which[window.rows[r.TYPE, history.row[which]] == ABORT]
    which = which[np.argsort(history.row[which])]
    rows = window.rows[:, history.row[which]]
    offset, started = rows[r.BASE_OFFSET], history.before(history.started)[which]
    first = history.get(p.FIRST_OF_TRANSACTION, started)
    # Compaction may have removed everything of a transaction that only a snapshot knows.
    is_seen = (started >= 0) & ~window.timeline.removed.hold(first)
    is_stale = (started >= 0) & (history.blind(started) != rows[r.BLIND])
    # The first transaction that is open after the marker is the first to end after it.
    at = np.searchsorted(np.maximum.accumulate(transactions.end), offset, "right")
    open_first = np.append(transactions.first, INT64_MAX)[at]
    return _Ended(
        rows[r.NUMBER],
        rows[r.PRODUCER_ID],
        offset,
        first,
        is_seen & ~is_stale,
        is_stale,
        np.where(open_first < offset, open_first, offset + 1),
        rows[r.BLIND],
    )
