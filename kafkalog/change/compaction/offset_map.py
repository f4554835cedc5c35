"""The latest offset of each key: built record by record, or by the kernels.

Follows `SkimpyOffsetMap` and `Cleaner.buildOffsetMap` of Kafka, with two differences: keys are
identified by themselves, not by their MD5 digest; and the kernels' map numbers the records instead
of storing offsets, and notes of each record whether another with its key follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.change.compaction.candidates import segments_between
from kafkalog.change.compaction.key_map import KeyMap, Keys
from kafkalog.change.compaction.model import Cleanable, MapOutgrownError, read_otherwise
from kafkalog.change.compaction.transactions import TransactionState, collect_aborted
from kafkalog.io.paths.source import Readable, Source
from kafkalog.log.batches.records import decode_records
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.chunks import Chunk, ChunkReader, Rows, Workspace
from kafkalog.log.columns.headers import BatchColumns, batch_columns
from kafkalog.log.columns.record_facts import markers_of_chunk
from kafkalog.model import Batch, Level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from kafkalog.files.log_dir import Segment
    from kafkalog.node.unified_log import UnifiedLog

    Mask = NDArray[np.bool_]
    Table = NDArray[np.int64]


class OffsetMap:
    """Offsets by key, as far as the log has been read.

    Args:
        keys_max: the number of keys it takes, None without a limit.
    """

    def __init__(self, keys_max: int | None) -> None:
        self._keys_max = keys_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is accepted, not even a key that is present: Kafka does the same."""
        return self._keys_max is not None and len(self._offsets) >= self._keys_max

    def put(self, key: bytes, offset: int) -> None:
        """Record the offset of a record with the key."""
        self._offsets[key] = offset
        self.latest_offset = offset

    def get(self, key: bytes) -> int:
        """Return the latest offset of the key, -1 if none."""
        return self._offsets.get(key, -1)


def build_map(
    log: UnifiedLog,
    segments: list[Segment],
    cleanable: Cleanable,
    transactions: TransactionState,
    keys_max: int | None,
    progress: Callable[[int], None] | None = None,
) -> OffsetMap:
    """Build the map of the dirty part, up to the point where it is full.

    Args:
        log: the partition.
        segments: the segments of the dirty part.
        cleanable: the bounds of the dirty part.
        transactions: knows the aborted transactions of these segments.
        keys_max: the number of keys that the map takes.
        progress: called with the number of bytes read since the last call.

    Raises:
        CorruptDataError, LimitExceededError: a batch cannot be decoded.
    """
    found = OffsetMap(keys_max)
    first = cleanable.first_dirty_offset
    for segment, following in zip(segments, [*segments, None][1:], strict=True):
        with log.open_segment(segment) as opened:
            for batch in opened.scan_from(first):
                if not isinstance(batch, Batch):
                    raise read_otherwise(batch.path, batch)
                if progress is not None:
                    progress(batch.size_bytes)
                is_discardable = transactions.is_discardable(opened.source, batch)
                has_no_keys = is_discardable or batch.is_control
                # Aborted data must not supersede committed values, and the key of a marker is its
                # type.
                for record in () if has_no_keys else decode_records(opened.source, batch):
                    if record.key is None or record.offset < first:
                        continue
                    # Before the put, for a known key, too: the map ends in the middle of a batch,
                    # at the last record that was put (Cleaner.buildOffsetMapForSegment).
                    if found.is_full:
                        return found
                    found.put(record.key, record.offset)
                if batch.last_offset >= first:
                    # Also for the offsets behind its last record: a batch keeps its end when
                    # records go.
                    found.latest_offset = batch.last_offset
        bound = cleanable.first_uncleanable_offset if following is None else following.base_offset
        # Also over the gap to the next segment, else a log that ends in a gap would stay dirty for
        # ever.
        found.latest_offset = bound - 1
    return found


_ROWS_AT_ONCE = 8192
_ODD = c.TRANSACTIONAL_MASK | c.CONTROL_MASK


@dataclass(frozen=True, slots=True)
class _Seen:
    """The keys of some records, and each record's batch if one may have been aborted."""

    keys: Keys
    ordinals: Table | None


class KeySink(Protocol):
    """Takes the keys of records, in log order: `KeyMap`, or a spill to disk."""

    rows: int

    def keys(self, rows: Rows, wanted: Mask | None = None) -> Keys:
        """Return the keys of some rows; only the wanted ones count (all if None). In any thread."""

    def put(self, keys: Keys) -> None:
        """Add rows with these keys."""


class DirtyKeys:
    """Feeds the keys of the dirty part of a log of magic 2 to a sink.

    Args:
        log: the partition.
        cleanable: which part is dirty.
        sink: takes the keys.
        takes_clean: whether it also gets the clean part, whose keys do not count.

    Attributes:
        starts: path of a segment's log to the number of its first record, counted from the first
            record that is passed on.
    """

    def __init__(
        self, log: UnifiedLog, cleanable: Cleanable, sink: KeySink, *, takes_clean: bool = False
    ) -> None:
        self.starts: dict[str, int] = {}
        self._sink = sink
        self._first = cleanable.first_dirty_offset
        upper = cleanable.first_uncleanable_offset
        below = [one for one in log.segments if one.base_offset < upper]
        dirty = segments_between(log.segments, self._first, upper)
        self._paths = [segment.log.path for segment in dirty]
        self._clean = {one.log.path for one in below if takes_clean} - {*self._paths}
        self._log = log
        self._dirty = dirty
        self._start = 0  # position in this log from which on transactions are followed
        self._transactions = TransactionState()
        if dirty:
            start, lower = dirty[0].base_offset, log.log_start_offset
            self._transactions.expect(collect_aborted(log.segments, start, lower, upper))

    def look(self, chunk: Chunk, rows: Rows) -> object:
        """Hash the keys of some records; in any thread."""
        if chunk.path in self._clean:
            # Clean records supersede nothing, but their numbers are needed to tell which are
            # superseded.
            return _Seen(self._sink.keys(rows, np.zeros(rows.table.shape[1], np.bool_)), None)
        if chunk.path not in self._paths:
            return None
        attributes = chunk.headers[k.ATTRIBUTES]
        ordinals = rows.table[k.ORDINAL]
        wanted: Mask | None = None
        if (attributes & c.CONTROL_MASK).any():
            wanted = (attributes & c.CONTROL_MASK == 0)[ordinals]
        if chunk.headers[k.BASE_OFFSET, 0] < self._first:
            late = rows.table[k.OFFSET] >= self._first
            wanted = late if wanted is None else wanted & late
        has_odd = bool((attributes & _ODD).any())
        return _Seen(self._sink.keys(rows, wanted), ordinals.copy() if has_odd else None)

    def take(self, path: str, columns: BatchColumns) -> None:
        """Put the records of some batches into the map; in log order."""
        if path not in self._paths and path not in self._clean:
            return
        if path not in self.starts:
            self.starts[path] = self._sink.rows
            self._start = 0 if path in self._clean else self._position_to_begin(path)
        # Some of them came from the reference reader, which shows no records: they are read once
        # more.
        if columns.seen is None:
            first = int(columns.headers[h.POSITION, 0])
            self._read(path, first, first + columns.size_bytes)
            return
        odd = bool((columns.headers[h.ATTRIBUTES] & _ODD).any())
        if not odd or path in self._clean:
            self._put(columns.seen, None)
            return
        with Source(path) as source:
            discardable = discardable_among(
                self._transactions, source, columns.headers, columns.markers, path, self._start
            )
            self._put(columns.seen, discardable)

    def _position_to_begin(self, path: str) -> int:
        """Return where Kafka begins to read: earlier markers end no transactions for it."""
        segment = self._dirty[self._paths.index(path)]
        if segment.base_offset >= self._first:
            return 0
        with self._log.open_segment(segment) as opened:
            entry = opened.index_entry(self._first)
        return entry.position if entry else 0

    def read(self, progress: Callable[[int], None] | None = None) -> None:
        """Read the dirty part, which is known to be sound; `progress` is called with bytes."""
        for path in (*sorted(self._clean), *self._paths):
            with Source(path) as source:
                for found in batch_columns(source, Level.DEEP, look=self.look):
                    if not isinstance(found, BatchColumns):
                        raise read_otherwise(path, found)
                    self.take(path, found)
                    if progress is not None:
                        progress(found.size_bytes)

    def _read(self, path: str, position: int, end: int) -> None:
        space = Workspace(_ROWS_AT_ONCE)
        with Source(path) as source:
            reader = ChunkReader(source, position, end)
            for chunk in reader.chunks(space):
                discardable = None
                if path not in self._clean:
                    markers = markers_of_chunk(chunk)
                    discardable = discardable_among(
                        self._transactions, chunk, chunk.headers, markers, path, self._start
                    )
                for rows in chunk.decode(np.ones(chunk.count, np.bool_)):
                    assert isinstance(rows, Rows), "no batch is left over"
                    self._put(((0, self.look(chunk, rows)),), discardable)
            if reader.position < reader.end:
                raise read_otherwise(path)

    def _put(self, seen: tuple[tuple[int, object], ...], discardable: Mask | None) -> None:
        for first, one in seen:
            assert isinstance(one, _Seen), "it is of a dirty segment"
            if discardable is not None and one.ordinals is not None:
                one.keys.leave_out(discardable[first + one.ordinals])
            self._sink.put(one.keys)


class MapBuilding(DirtyKeys):
    """The map of the dirty part of a log of magic 2, with all its keys.

    Args:
        log: the partition.
        cleanable: which part is dirty.
        size_max: bytes of memory that the map may take; None for as many as it needs.

    Attributes:
        map: the keys; records are counted from the first of the first dirty segment on.

    Raises:
        MapOutgrownError: it would need more memory, raised while keys are added.
    """

    def __init__(self, log: UnifiedLog, cleanable: Cleanable, size_max: int | None = None) -> None:
        offsets = cleanable.first_uncleanable_offset - cleanable.first_dirty_offset
        self.map = KeyMap(offsets, None if size_max is None else size_max // 2)
        self._size_max = size_max
        super().__init__(log, cleanable, self.map)

    def take(self, path: str, columns: BatchColumns) -> None:
        """Put the records of some batches into the map; in log order."""
        if self._size_max is not None and self.map.size_bytes > self._size_max:
            self.map.settle()
            raise MapOutgrownError("The keys do not fit into the memory of a task.")
        super().take(path, columns)


def discardable_among(
    transactions: TransactionState,
    source: Readable,
    headers: Table,
    markers: Table,
    path: str,
    start: int = 0,
) -> Mask:
    """Return which batches were aborted, or are markers of transactions without data, in order.

    Batches before position `start` are skipped together with their markers.
    """
    found = np.zeros(headers.shape[1], np.bool_)
    odd = (headers[h.ATTRIBUTES] & _ODD != 0) & (headers[h.POSITION] >= start)
    for i in np.flatnonzero(odd).tolist():
        kind = int(markers[h.MARKER_TYPE, i])
        found[i] = transactions.is_discardable(source, h.batch_at(headers, i, path), kind)
    return found
