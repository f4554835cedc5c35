"""The batches of producers as rows, stamped with the gaps between their offsets.

Only trustworthy batches count: with a right checksum, offsets that rise within the bounds of the
segment, and no unreadable marker. Anything else is a blind spot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from formats.constants import ABORT, COMMIT
from formats.late_classes import dataclass
from kafkalog.check.batches import Found, running_max
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.header_table import (
    COORDINATOR_EPOCH,
    EMPTIED,
    MARKER_TYPE,
    NO_MARKER,
    UNREADABLE,
)
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from kafkalog.log.columns.headers import BatchColumns, PlainRun

    Column = NDArray[np.int64]
    Table = NDArray[np.int64]
    from collections.abc import Sequence

    from kafkalog.check.producer_states import History

_RANGES_MAX: Final = 1 << 20


class RemovedOffsets:
    """Ranges of offsets without a batch, added in rising order.

    Memory is bounded: beyond a million ranges the older half is dropped, and every offset up to its
    end counts as removed.

    Args:
        start: everything below it counts as removed.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._first = np.empty(16, np.int64)
        self._end = np.empty(16, np.int64)
        self._count = 0

    def add(self, first: NDArray[np.int64], end: NDArray[np.int64]) -> None:
        needed = self._count + len(first)
        if needed > _RANGES_MAX:
            self._forget()
            needed = self._count + len(first)
        if needed > len(self._first):
            self._first = np.resize(self._first, 2 * needed)
            self._end = np.resize(self._end, 2 * needed)
        self._first[self._count : needed] = first
        self._end[self._count : needed] = end
        self._count = needed

    def _forget(self) -> None:
        half = self._count // 2
        if half:
            self._start = max(self._start, int(self._end[half - 1]))
        self._count -= half
        self._first = self._first[half : half + self._count].copy()
        self._end = self._end[half : half + self._count].copy()

    def hold(self, offsets: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each offset is known to have no batch; false for negative offsets."""
        wanted = np.asarray(offsets, np.int64)
        at = np.searchsorted(self._first[: self._count], wanted, "right") - 1
        inside = at >= 0
        inside[inside] = wanted[inside] < self._end[at[inside]]
        return (inside | (wanted < self._start)) & (wanted >= 0)


# Rows of a table of producers' batches: one column per batch.
(NUMBER, PRODUCER_ID, PRODUCER_EPOCH, KIND, BASE_OFFSET, LAST_OFFSET, BASE_SEQUENCE, LAST_SEQUENCE,
 TIMESTAMP, COORDINATOR, TYPE, IS_THINNED, GAP, BLIND, FIELDS) = range(15)  # fmt: skip

PLAIN: Final = 0
"""KIND of a data batch outside transactions."""
TRANSACTIONAL: Final = 1
"""KIND of a data batch of a transaction."""
MARKER: Final = 2
"""KIND of a control batch with a record; TYPE gives the marker's type."""


@dataclass(frozen=True, slots=True)
class Believed:
    """Trustworthy batches, in order.

    Attributes:
        headers: their columns of the header table.
        markers: their columns of the marker table.
        numbers: their numbers among the batches that were read.
        unknown: number of unreadable places in the partition before each.
    """

    headers: Table
    markers: Table
    numbers: Column
    unknown: Column

    @property
    def base_offsets(self) -> Column:
        """First offsets; the last offset for a legacy message."""
        return _base_offsets(self.headers)

    def part(self, start: int, end: int) -> Believed:
        """Return a range of the batches."""
        return Believed(
            self.headers[:, start:end],
            self.markers[:, start:end],
            self.numbers[start:end],
            self.unknown[start:end],
        )


class Timeline:
    """How far a partition has been read, and what was missing on the way.

    Args:
        log_start_offset: everything below it counts as removed.

    Attributes:
        removed: the offsets that have no batch.
        next_offset: the offset after what has been read.
        gap: counts the places where offsets are missing or unknown.
        blind: counts those of them that hold something unreadable.

    Two batches with the same `gap` have nothing removed between them. Both are 0 while everything
    from offset 0 on has been seen.
    """

    def __init__(self, log_start_offset: int) -> None:
        self.removed = RemovedOffsets(log_start_offset)
        self.next_offset = 0
        self.gap = 0
        self.blind = 0
        self._sights_lost = 0
        self._unknown = 0
        self._last_offset = -1
        self._position = 0

    def begin(self, previous_size_bytes: int) -> None:
        """End the previous segment, of this size (0 if there was none), and start the next."""
        # Bytes at the end of a segment that are no batch may have been one.
        self._unknown += previous_size_bytes != self._position
        self._position = 0

    def goes_on(self, run: PlainRun, limit: int) -> bool:
        """Return whether a run is trustworthy, and begins where what was read before ends."""
        is_next = run.position == self._position and run.first_offset > self._last_offset
        return is_next and run.next_offset <= limit

    def pass_by(self, run: PlainRun) -> None:
        """Advance over a run that goes on here, without producers: as `believed` and `rows` do."""
        blind = self._unknown + self._sights_lost
        if run.first_offset > self.next_offset:
            self.removed.add(np.array([self.next_offset]), np.array([run.first_offset]))
        self.gap += run.first_offset > self.next_offset or blind != self.blind
        self.next_offset, self.blind = run.next_offset, blind
        self._last_offset, self._position = run.next_offset - 1, run.end_position

    def believed(self, columns: BatchColumns, limit: int) -> Believed:
        """Return the trustworthy batches with offsets below `limit`."""
        headers = columns.headers
        last, base = headers[h.LAST_OFFSET], _base_offsets(headers)
        good = columns.crc_valid & (last >= base) & (last < limit)
        good &= ~is_malformed(headers, columns.markers)
        highest = running_max(self._last_offset, np.where(good, last, -1))
        good &= base > highest[:-1]
        ends = headers[h.POSITION] + headers[h.SIZE]
        unseen = headers[h.POSITION] != np.concatenate(([self._position], ends[:-1]))
        unknown = self._unknown + np.cumsum(unseen.astype(np.int64) + ~good)
        self._last_offset, self._position = int(highest[-1]), int(ends[-1])
        self._unknown = int(unknown[-1])
        if good.all():
            return Believed(headers, columns.markers, np.arange(columns.count), unknown)
        numbers = np.flatnonzero(good)
        return Believed(headers[:, good], columns.markers[:, good], numbers, unknown[good])

    def advance_to(self, offset: int, ahead: Believed | None) -> None:
        """Advance to an offset that no batch precedes any more; `ahead` holds the next ones."""
        if offset > self.next_offset:
            self.removed.add(np.array([self.next_offset]), np.array([offset]))
            self.gap += 1
            self.next_offset = offset
            unknown = self._unknown if ahead is None else int(ahead.unknown[0])
            self.blind = unknown + self._sights_lost

    def lose_sight(self) -> None:
        """Note that a broker need not know anything before this point."""
        self._sights_lost += 1
        self.blind += 1
        self.gap += 1

    def rows(self, part: Believed) -> Table:
        """Advance over some batches, and return those of producers as a table."""
        base, end = part.base_offsets, part.headers[h.LAST_OFFSET] + 1
        expected = np.concatenate(([self.next_offset], end[:-1]))
        missing = base > expected
        if missing.any():
            self.removed.add(expected[missing], base[missing])
        blind = part.unknown + self._sights_lost
        emptied = part.markers[MARKER_TYPE] == EMPTIED  # its transaction has been removed
        gap = self.gap + np.cumsum(missing | emptied | (np.diff(blind, prepend=self.blind) != 0))
        self.next_offset, self.gap, self.blind = int(end[-1]), int(gap[-1]), int(blind[-1])
        return _rows(part, gap, blind)


def is_malformed(headers: Table, markers: Table) -> NDArray[np.bool_]:
    """Return which batches hold unreadable transaction markers, or markers without a producer."""
    types, has_producer = markers[MARKER_TYPE], headers[h.PRODUCER_ID] >= 0
    is_end = (types == ABORT) | (types == COMMIT)
    odd: NDArray[np.bool_] = (types == UNREADABLE) | ((types >= 0) & (is_end != has_producer))
    return odd


def _base_offsets(headers: Table) -> Column:
    # The first offset of a compressed message is inside it, and old messages have no producer.
    base: Column = np.where(headers[h.MAGIC] < 2, headers[h.LAST_OFFSET], headers[h.BASE_OFFSET])
    return base


def _rows(part: Believed, gap: Column, blind: Column) -> Table:
    types = part.markers[MARKER_TYPE]
    mine = (part.headers[h.PRODUCER_ID] >= 0) & (part.headers[h.MAGIC] >= 2) & (types != EMPTIED)
    if not mine.any():
        return np.empty((FIELDS, 0), np.int64)
    headers, markers = part.headers, part.markers
    if not mine.all():
        headers, markers = headers[:, mine], markers[:, mine]
        gap, blind = gap[mine], blind[mine]
    table = np.empty((FIELDS, headers.shape[1]), np.int64)
    table[NUMBER] = part.numbers[mine]
    for to, of in _COPIED:
        table[to] = headers[of]
    is_transactional = headers[h.ATTRIBUTES] & c.TRANSACTIONAL_MASK != 0
    table[KIND] = np.where(markers[MARKER_TYPE] != NO_MARKER, MARKER, is_transactional)
    delta = headers[h.LAST_OFFSET] - headers[h.BASE_OFFSET]
    last_sequence = headers[h.BASE_SEQUENCE] + delta
    # Sequences go back to 0 after 2^31 - 1, as in DefaultRecordBatch.incrementSequence.
    last_sequence -= (last_sequence > c.INT32_MAX) * (c.INT32_MAX + 1)
    table[LAST_SEQUENCE] = np.where(headers[h.BASE_SEQUENCE] == -1, -1, last_sequence)
    table[TYPE] = markers[MARKER_TYPE]
    table[COORDINATOR] = markers[COORDINATOR_EPOCH]
    # The cleaner has removed some records, perhaps the one with the largest timestamp.
    table[IS_THINNED] = headers[h.COUNT] <= delta
    table[GAP], table[BLIND] = gap, blind
    return table


_COPIED: Final = (
    (PRODUCER_ID, h.PRODUCER_ID),
    (PRODUCER_EPOCH, h.PRODUCER_EPOCH),
    (BASE_OFFSET, h.BASE_OFFSET),
    (LAST_OFFSET, h.LAST_OFFSET),
    (BASE_SEQUENCE, h.BASE_SEQUENCE),
    (TIMESTAMP, h.MAX_TIMESTAMP),
)


@dataclass(frozen=True, slots=True)
class ProducerWindow:
    """Batches of one segment between two snapshot offsets.

    Attributes:
        headers: the header table of the batches.
        rows: the batches of producers.
        history: the same by producer, with what came before; None without producers.
        timeline: how far the partition has been read, these batches included.
        snapshots: the producer snapshots by number, to name the origin of a state.
    """

    path: str
    headers: NDArray[np.int64]
    part: Believed
    rows: NDArray[np.int64]
    history: History | None
    timeline: Timeline
    snapshots: Sequence[str]

    def found(self, name: str, row: int, detail: str, origin: int = -1) -> Found:
        """Return the defect of a row, or of the snapshot whose state contradicts the row."""
        number = int(self.rows[NUMBER, row])
        if origin < 0:
            return self.at(name, number, detail)
        offset = int(self.rows[BASE_OFFSET, row])
        detail = f"The log goes on otherwise at offset {offset}. {detail}"
        path = self.snapshots[origin]
        return number, make_defect("producer-snapshot-wrong", path, detail, offset=offset)

    def at(self, name: str, number: int, detail: str) -> Found:
        """Return the defect of one of the batches."""
        position, offset = self.headers[[h.POSITION, h.BASE_OFFSET], number].tolist()
        return number, make_defect(name, self.path, detail, position=position, offset=offset)
