"""Index entries and snapshots as columns, and time indexes compared with a large log in one pass.

Snapshots follow `ProducerStateManager.readSnapshot` of Kafka. The comparison is the twin of the
plain loop in `batches.index_matches`, which still judges each irregular entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from formats import constants as c
from formats import decoder
from formats.constants import (
    ABORTED_TRANSACTION,
    OFFSET_INDEX_ENTRY,
    PRODUCER_SNAPSHOT_ENTRY,
    PRODUCER_SNAPSHOT_HEADER,
    TIME_INDEX_ENTRY,
)
from kafkalog.errors import DataError, KafkaLogError
from kafkalog.io.codecs import crc32c
from kafkalog.io.paths.source import Source, read_file
from kafkalog.log.batches.framing import read_batch
from kafkalog.log.batches.index_matches import TimeMatches, match_time
from kafkalog.log.columns import header_table as h
from kafkalog.model import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from formats.constants import Layout
    from kafkalog.files.indexes import OffsetIndex, TimeIndex
    from kafkalog.log.columns.chunks import Chunk

    Column = NDArray[np.int64]


_OFFSET_ENTRY: Final = np.dtype(OFFSET_INDEX_ENTRY.dtype())
_TIME_ENTRY: Final = np.dtype(TIME_INDEX_ENTRY.dtype())
_ABORTED_TXN: Final = np.dtype(ABORTED_TRANSACTION.dtype())
_ENTRIES_AT_ONCE: Final = 1 << 16


def offset_columns(index: OffsetIndex) -> Iterator[tuple[int, Column, Column]]:
    """Yield blocks of entries: the number of the first, their offsets and positions.

    Offsets beyond the largest possible one are clipped to it.
    """
    for first, block in index.blocks(at_once=_ENTRIES_AT_ONCE):
        slots = _entries(block, OFFSET_INDEX_ENTRY, _OFFSET_ENTRY)
        yield first, _absolute(slots["relative_offset"], index), slots["position"].astype(np.int64)


def time_columns(
    index: TimeIndex, *, padding: bool = False
) -> Iterator[tuple[int, Column, Column]]:
    """Yield blocks of entries: the number of the first, timestamps, offsets."""
    for first, block in index.blocks(padding=padding, at_once=_ENTRIES_AT_ONCE):
        slots = _entries(block, TIME_INDEX_ENTRY, _TIME_ENTRY)
        yield first, slots["timestamp"].astype(np.int64), _absolute(slots["relative_offset"], index)


def _absolute(relative: NDArray[np.int32], index: OffsetIndex | TimeIndex) -> Column:
    room = c.INT64_MAX - index.base_offset
    return np.minimum(relative.astype(np.int64), room) + index.base_offset


def aborted_columns(source: Source) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield blocks of entries: the number of the first, and fields as in `AbortedTransaction`.

    A partial last entry is left out.
    """
    count = source.size_bytes // c.ABORTED_TXN_SIZE
    for first in range(0, count, _ENTRIES_AT_ONCE):
        size = min(_ENTRIES_AT_ONCE, count - first) * c.ABORTED_TXN_SIZE
        block = source.read(first * c.ABORTED_TXN_SIZE, size)
        yield first, _entries(block, ABORTED_TRANSACTION, _ABORTED_TXN)


def _entries(data: bytes | memoryview, layout: Layout, dtype: np.dtype[Any]) -> NDArray[Any]:
    if decoder.BY_SCHEMA:
        return np.array(list(layout.struct.iter_unpack(data)), dtype)
    return np.frombuffer(data, dtype)


_VERSION: Final = 1
_COUNT: Final = PRODUCER_SNAPSHOT_HEADER.size
_ENTRIES: Final = _COUNT + 4
_ENTRY: Final = np.dtype(PRODUCER_SNAPSHOT_ENTRY.dtype())


def snapshot_columns(path: str) -> NDArray[np.int64] | None:
    """Return one row per field in file order, one column per producer, by producer id.

    If a producer occurs twice, the last entry counts. None if the file cannot be read or is not
    sound: `read_producer_snapshot` reports why.
    """
    try:
        data = read_file(path, size_max=1 << 30)
    except DataError:
        return None
    if len(data) < _ENTRIES:
        return None
    if PRODUCER_SNAPSHOT_HEADER.struct.unpack_from(data) != (_VERSION, crc32c(data[_COUNT:])):
        return None
    count = int.from_bytes(data[_COUNT:_ENTRIES], "big", signed=True)
    if not 0 <= count <= (len(data) - _ENTRIES) // _ENTRY.itemsize:
        return None
    if not count:
        return np.empty((len(_ENTRY.names or ()), 0), np.int64)
    stored = memoryview(data)[_ENTRIES : _ENTRIES + count * _ENTRY.itemsize]
    entries = _entries(stored, PRODUCER_SNAPSHOT_ENTRY, _ENTRY)
    columns = np.array([entries[name] for name in _ENTRY.names or ()], np.int64)
    columns = columns[:, np.argsort(columns[0], kind="stable")]
    # As in a map: ProducerStateManager puts each entry over an earlier one.
    is_last = np.append(columns[0, 1:] != columns[0, :-1], True)
    return columns[:, is_last]


_OFFSET_ENTRIES_MAX: Final = 1 << 23  # the entries of a larger index are looked up one by one
_ROWS: Final = 1 << 14
_OFFSET_LIMIT: Final = 1 << 62  # beyond this, sums of offsets could overflow
_JUMP: Final = 1 << 22
# States of an entry: no batch found; batch found; only the reference decoder can decide.
_NONE, _FOUND, _ODD = range(3)


def match_times(
    index: TimeIndex, offsets: OffsetIndex | None, log: Source
) -> Iterator[TimeMatches]:
    """Do what `index_matches.match_times` does, for base offsets that leave room for sums."""
    places = _Places(offsets)
    previous = -1
    for first, timestamps, targets in time_columns(index, padding=True):
        skipped = np.flatnonzero(targets == index.base_offset)
        skipped = skipped[skipped + first > 0]
        count = int(skipped[0]) if len(skipped) else len(targets)
        timestamps, targets = timestamps[:count], targets[:count]
        if count:
            yield from _Block(timestamps, targets, offsets, log, places).matches(previous)
            previous = int(timestamps[-1])
        if len(skipped):
            return


class _Places:
    """The positions at which the offset index starts the search for an offset."""

    def __init__(self, index: OffsetIndex | None) -> None:
        self._index = index
        self._offsets = self._positions = np.empty(0, np.int64)
        if index is not None and index.entry_count <= _OFFSET_ENTRIES_MAX:
            blocks = list(offset_columns(index))
            if blocks:
                self._offsets = np.concatenate([offsets for _, offsets, _ in blocks])
                self._positions = np.concatenate([positions for _, _, positions in blocks])

    def of(self, targets: Column) -> Column:
        """Return a position for each target, by the steps of `OffsetIndex.lookup` on all at once.

        In an unordered index they lead where that binary search leads.
        """
        index, count = self._index, len(self._offsets)
        if index is None:
            return np.zeros(len(targets), np.int64)
        if index.entry_count > count:
            entries = map(index.lookup, targets.tolist())
            return np.array([entry.position if entry else 0 for entry in entries], np.int64)
        low, high = np.zeros(len(targets), np.int64), np.full(len(targets), count)
        found = np.full(len(targets), -1)
        while (going := low < high).any():
            middle = (low + high) // 2
            below = going & (self._offsets[np.minimum(middle, count - 1)] <= targets)
            found = np.where(below, middle, found)
            low = np.where(below, middle + 1, low)
            high = np.where(going & ~below, middle, high)
        return np.where(found >= 0, self._positions[found], 0) if count else low


class _Block:
    """A block of entries of a time index that are being judged.

    They are processed by rising offset, so that the log is read in one direction; each is judged
    individually, so that a wrong entry spoils no other. An entry is `_FOUND` or `_NONE` only if
    sound batches follow from its position on, which the reference would have read, too.
    """

    def __init__(
        self,
        timestamps: Column,
        targets: Column,
        offsets: OffsetIndex | None,
        log: Source,
        places: _Places,
    ) -> None:
        self._timestamps, self._targets = timestamps, targets
        self._offsets, self._log = offsets, log
        order = np.argsort(targets, kind="stable")
        self._order = order
        self._sorted = targets[order]
        self._starts = places.of(self._sorted)
        self._on_batch = np.zeros(len(order), np.bool_)
        self._state = np.zeros(len(order), np.int64)
        self._last = np.full(len(order), -1)
        self._largest = np.full(len(order), -1)
        from kafkalog.log.columns.chunks import ChunkReader, Workspace  # loads the kernels

        self._reader = ChunkReader(log, 0, log.size_bytes)
        self._space = Workspace(_ROWS)
        # For the stream that is being read: the first entry that is not judged yet, and the highest
        # offset so far.
        self._cursor = 0
        self._highest = 0

    def matches(self, previous: int) -> Iterator[TimeMatches]:
        """Yield the block in one piece, or up to the entry whose batch cannot be decoded."""
        while self._cursor < len(self._order):
            try:
                self._stream()
            except DataError:  # the reference reports the place of the failure
                self._judged(len(self._order), _ODD)
        back = np.empty_like(self._order)
        back[self._order] = np.arange(len(back))
        state, last, self._largest = self._state[back], self._last[back], self._largest[back]
        self._is_found = (state == _FOUND) & (last == self._targets)
        self._instead = dict(enumerate(last.tolist()))
        for i in np.flatnonzero(state == _ODD).tolist():
            try:
                self._instead[i], found = match_time(
                    int(self._targets[i]), self._offsets, self._log
                )
            except KafkaLogError:
                yield self._told(i, previous)
                raise
            if found is not None:
                self._is_found[i], self._largest[i] = True, found
        yield self._told(len(back), previous)

    def _told(self, count: int, previous: int) -> TimeMatches:
        """Return the matches of the first entries."""
        times, targets = self._timestamps[:count], self._targets[:count]
        found, largest = self._is_found[:count], self._largest[:count]
        before = np.concatenate(([previous], times))[:count]
        wrong, late = found & (largest != times), found & (times <= before)
        return TimeMatches(
            _pairs(times, targets),
            [(int(targets[i]), self._instead[i]) for i in np.flatnonzero(~found).tolist()],
            _pairs(times[wrong], largest[wrong]),
            _pairs(times[late], before[late]),
        )

    def _stream(self) -> None:
        """Read on from the position of the next entry, up to damage or a gap."""
        reader = self._reader
        reader.resume(int(self._starts[self._cursor]))
        self._highest = -c.INT64_MAX - 1
        self._on_batch[:] = False
        if not 0 <= reader.position < reader.end:
            self._judged(self._cursor + 1, _ODD)
            return
        while self._cursor < len(self._order):
            # A gap this long is jumped over, not read.
            if self._starts[self._cursor] > reader.position + _JUMP:
                return
            chunk = reader.read(self._space) if reader.position < reader.end else None
            if not (self._pass_by() if chunk is None else self._chunk(chunk)):
                return

    def _judged(self, end: int, state: int | Column) -> None:
        self._state[self._cursor : end] = state
        self._cursor = max(self._cursor, end)

    def _pass_by(self) -> bool:
        """Skip an irregular batch; return False if the reader's position holds no batch at all."""
        reader = self._reader
        position = reader.position
        self._on_batch |= self._starts == position
        if position < reader.end:
            batch = read_batch(self._log, position, reader.end)
            if isinstance(batch, Batch):
                self._highest = max(self._highest, batch.last_offset)
                self._judged(int(np.searchsorted(self._sorted, self._highest, "right")), _ODD)
                reader.resume(batch.end_position)
                return True
            beyond = self._starts[self._cursor :] > position
            stop = self._cursor + int(beyond.argmax()) if beyond.any() else len(self._order)
        else:
            stop = len(self._order)
        # None of these entries has been reached: all batches so far are below.
        stop = max(stop, self._cursor + 1)
        self._judged(stop, np.where(self._on_batch[self._cursor : stop], _NONE, _ODD))
        return False

    def _chunk(self, chunk: Chunk) -> bool:
        """Judge the entries whose batch is in the chunk; return whether the next may follow."""
        headers, cursor = chunk.headers, self._cursor
        positions = headers[h.POSITION]
        starts = self._starts[cursor:]
        here = cursor + np.flatnonzero((starts >= positions[0]) & (starts <= positions[-1]))
        at = np.searchsorted(positions, self._starts[here])
        self._on_batch[here] = positions[at] == self._starts[here]
        rising = np.maximum(np.maximum.accumulate(headers[h.LAST_OFFSET]), self._highest)
        self._highest = int(rising[-1])
        done = int(np.searchsorted(self._sorted, self._highest, "right"))
        batch = np.searchsorted(rising, self._sorted[cursor:done])
        # An entry whose search begins after the first batch with its offset is searched separately.
        behind = positions[batch] < self._starts[cursor:done]
        if behind.any():
            done = cursor + int(behind.argmax())
            batch = batch[: done - cursor]
        now = slice(cursor, done)
        last = headers[h.LAST_OFFSET, batch]
        plain = self._on_batch[now] & (np.abs(headers[h.BASE_OFFSET, batch]) < _OFFSET_LIMIT)
        wanted = np.zeros(chunk.count, np.bool_)
        wanted[batch[plain & (last == self._sorted[now])]] = True
        largest, odd = _largest_timestamps(chunk, wanted)
        self._last[now], self._largest[now] = last, largest[batch]
        self._judged(done, np.where(plain & ~odd[batch], _FOUND, _ODD))
        return not behind.any()


def _largest_timestamps(
    chunk: Chunk, wanted: NDArray[np.bool_]
) -> tuple[Column, NDArray[np.bool_]]:
    """Return each wanted batch's largest timestamp, and which ones the reference must judge."""
    from kafkalog.log.columns import kernels as k
    from kafkalog.log.columns.chunks import Rows

    largest = np.full(chunk.count, -c.INT64_MAX - 1)
    filled, odd = np.zeros(chunk.count, np.bool_), np.zeros(chunk.count, np.bool_)
    if wanted.any():
        for rows in chunk.decode(wanted):
            assert isinstance(rows, Rows), "no batch is left over, and none waits"
            odd[[failure.ordinal for failure in rows.failures]] = True
            ordinals = rows.table[k.ORDINAL]
            if len(ordinals):
                begins = np.flatnonzero(np.diff(ordinals, prepend=-1))
                batches = ordinals[begins]
                highest = np.maximum.reduceat(rows.table[k.TIMESTAMP], begins)
                largest[batches] = np.maximum(largest[batches], highest)
                filled[batches] = True
    largest[~filled] = -1
    return largest, odd


def _pairs(first: Column, second: Column) -> list[tuple[int, int]]:
    return list(zip(first.tolist(), second.tolist(), strict=True))
