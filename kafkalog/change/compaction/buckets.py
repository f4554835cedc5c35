"""Which records are superseded by a later one with their key: by a map, or by buckets on disk.

A row is three 64-bit numbers, little-endian: the hash of the key, LOW and HIGH, and the number of
the record, counted from the first of the log. If the key does not count, because the record is in
the clean part, aborted or a marker, the row holds the number's complement: it supersedes nothing,
but can be superseded. Rows of a bucket are in log order; all rows of a key are in one bucket.

Follows `Cleaner.shouldRetainRecord` of Kafka, as far as it uses the offset map.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

import numpy as np

from formats import constants as c
from kafkalog.change.compaction.key_map import KeyMap, Keys
from kafkalog.change.compaction.model import read_otherwise
from kafkalog.change.compaction.offset_map import DirtyKeys, MapBuilding, discardable_among
from kafkalog.change.compaction.transactions import TransactionState, collect_aborted
from kafkalog.io.paths.source import Source
from kafkalog.log.columns import kernels as k

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.change.compaction.model import Cleanable
    from kafkalog.io.storage import Changes
    from kafkalog.log.columns.chunks import Rows
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.node.unified_log import UnifiedLog

    Table = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    from collections.abc import Mapping

    from kafkalog.change.compaction.chunks import Opened


NUMBER: Final = np.dtype("<i8")
_FIELDS: Final = 3
# 24 MB, so that with 256 buckets a write to each still has 96 kB
_ROWS_WAITING: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 18
_KEY_SIZE: Final = 64  # memory per key in a map, including its number
_BUCKETS_MIN: Final = 4
_BUCKETS_MAX: Final = 256
_MEMORY_MIN: Final = 1 << 20


def bucket_count(offsets: int, memory: int) -> int:
    """Return the number of buckets needed for each one's keys to fit into a task's memory.

    Assumes a key per offset, the worst case. There are at most 256 buckets: beyond that a task
    takes the memory that it needs.
    """
    wanted = -(-offsets * _KEY_SIZE // max(memory, _MEMORY_MIN))
    return min(max(wanted, _BUCKETS_MIN), _BUCKETS_MAX)


def bucket_name(number: int) -> str:
    """Return the name of a bucket's file."""
    return f"bucket-{number}"


class SpilledKeys(Keys):
    """Hashes of the keys of some rows, and which of them count."""

    def __init__(self, rows: Rows, wanted: Mask | None, seed: tuple[int, int]) -> None:
        super().__init__(rows, None, seed)
        self.counts = np.ones(len(self), np.bool_) if wanted is None else wanted.copy()

    def leave_out(self, rows: Mask) -> None:
        """Do not count the keys of these rows after all."""
        self.counts[rows] = False


class KeySpill:
    """Writes keys into buckets: a `KeySink`.

    Args:
        files: one per bucket, open for writing.

    Attributes:
        rows: number of records put, including those without a key.
        failure: the error of a failed write, even if the judge of the log suppressed it.

    Cost:
        About 100 MB of memory; 24 bytes of disk per record with a key.
    """

    def __init__(self, files: Sequence[BinaryIO]) -> None:
        self.rows = 0
        self.failure: OSError | None = None
        # As for `KeyMap`: nobody can construct keys that collide, or that all fall into one bucket.
        self._seed = secrets.randbits(63), secrets.randbits(63)
        self._files = files
        self._waiting: list[Table] = []
        self._waiting_rows = 0

    def keys(self, rows: Rows, wanted: Mask | None = None) -> SpilledKeys:
        """Return the keys of some rows; only the wanted ones count."""
        return SpilledKeys(rows, wanted, self._seed)

    def put(self, keys: Keys) -> None:
        """Add rows with these keys."""
        assert isinstance(keys, SpilledKeys), "they were made here"
        numbers = np.arange(self.rows, self.rows + len(keys))
        self.rows += len(keys)
        # 0 is a record without a key, which supersedes nothing and is dropped by itself.
        found = (keys.low != 0) | (keys.high != 0)
        numbers = np.where(keys.counts, numbers, ~numbers)
        self._waiting.append(np.stack((keys.low, keys.high, numbers), axis=1)[found])
        self._waiting_rows += len(self._waiting[-1])
        if self._waiting_rows >= _ROWS_WAITING:
            self.write()

    def write(self) -> None:
        """Write the waiting rows to their buckets."""
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting).astype(NUMBER, copy=False)
        self._waiting, self._waiting_rows = [], 0
        buckets = (rows[:, 1] >> 20 & 0x7FFFFFFF) % len(self._files)  # the map uses other bits
        # Stable: within a bucket the log order decides which record of a key is the last.
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=len(self._files)))
        rows, first = rows[order], 0
        try:
            for file, end in zip(self._files, ends.tolist(), strict=True):
                file.write(rows[first:end].data)
                first = end
        except OSError as error:
            self.failure = error
            raise


@contextmanager
def spilling(changes: Changes, count: int) -> Iterator[KeySpill]:
    """Spill into COUNT new files of a directory, and sync them when the block ends."""
    with ExitStack() as held:
        names = map(bucket_name, range(count))
        spill = KeySpill([held.enter_context(changes.create(name)) for name in names])
        yield spill
        # The judge of the log reports damage and goes on; a full disk must not end in a short
        # bucket.
        if spill.failure is not None:
            raise spill.failure
        spill.write()


class SpilledLog(DirtyKeys):
    """Passes the keys of everything that is cleaned to a spill, while the log is judged.

    Args:
        log: the partition.
        cleanable: which part is dirty.
        sink: the spill.

    Attributes:
        firsts: path of each cleaned log to the number of its first record.
        states: path of each cleaned log to the transactions that are open where it begins, as a
            cleaner knows them.
    """

    def __init__(self, log: UnifiedLog, cleanable: Cleanable, sink: KeySpill) -> None:
        super().__init__(log, cleanable, sink, takes_clean=True)
        self.firsts: dict[str, int] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self._rows = sink
        self._all = log.segments
        self._lower = log.log_start_offset
        upper = cleanable.first_uncleanable_offset
        # Including empty segments, which bring no batch: their transaction indexes count
        # nevertheless.
        self._coming = [one for one in log.segments if one.base_offset < upper]
        self._open = TransactionState()

    def take(self, path: str, columns: BatchColumns) -> None:
        """Record where the log begins, and put the records of some batches into the spill."""
        if path not in self.firsts:
            self._begin(path)
        with Source(path) as source:
            discardable_among(self._open, source, columns.headers, columns.markers, path)
        super().take(path, columns)

    def close(self) -> None:
        """Begin the remaining logs, which are empty, after the last batch."""
        self._begin(None)

    def _begin(self, path: str | None) -> None:
        """Begin a log, and the empty logs before it."""
        while self._coming and path not in self.firsts:
            segment = self._coming.pop(0)
            here = segment.log.path
            self.firsts[here] = self._rows.rows
            self.states[here] = self._open.to_json()
            upper = segment.next_base_offset
            assert upper is not None, "the active segment is not cleaned"
            # As Cleaner.cleanSegments does for each source: entries that are known already do no
            # harm.
            self._open.expect(collect_aborted(self._all, segment.base_offset, self._lower, upper))


def superseded_in(path: str) -> tuple[int, Iterator[Table]]:
    """Return the number of keys in a bucket, and the rising numbers of its superseded records.

    Args:
        path: path of the bucket.

    Cost:
        A map of its keys, 8 bytes per record that counts, and 6 MB at a time.
    """
    keys = KeyMap()
    numbers = [np.zeros(0, np.int64)]
    for rows in _rows_of(path):
        # Two passes over the bucket: a record can be superseded by any later one, so all keys come
        # first.
        counted = rows[rows[:, 2] >= 0]
        # The map keeps its arrays until they are inserted: a view would hold on to the whole piece.
        keys.put(Keys.of(counted[:, 0].copy(), counted[:, 1].copy()))
        numbers.append(counted[:, 2].copy())
    keys.settle()
    return len(keys), _superseded(path, keys, np.concatenate(numbers))


def _superseded(path: str, keys: KeyMap, numbers: Table) -> Iterator[Table]:
    for rows in _rows_of(path):
        own = np.where(rows[:, 2] >= 0, rows[:, 2], ~rows[:, 2])
        last = keys.latest(Keys.of(rows[:, 0].copy(), rows[:, 1].copy()))
        is_known = last >= 0
        is_followed = np.zeros(len(rows), np.bool_)
        is_followed[is_known] = numbers[last[is_known]] > own[is_known]
        yield own[is_followed]


def _rows_of(path: str) -> Iterator[Table]:
    size = _FIELDS * NUMBER.itemsize
    with Source(path) as source:
        for at in range(0, source.size_bytes, _ROWS_AT_ONCE * size):
            data = source.read(at, min(_ROWS_AT_ONCE * size, source.size_bytes - at))
            yield np.frombuffer(data, NUMBER).astype(np.int64).reshape(-1, _FIELDS)


def numbers_between(path: str, first: int, end: int) -> Table:
    """Return the numbers within a range from a file of rising numbers, reading no others."""
    size = NUMBER.itemsize
    with Source(path) as source:

        def number(at: int) -> int:
            return int.from_bytes(source.read(at * size, size), "little", signed=True)

        places = range(source.size_bytes // size)
        start, stop = (bisect_left(places, wanted, key=number) for wanted in (first, end))
        data = source.read(start * size, (stop - start) * size)
    return np.frombuffer(data, NUMBER).astype(np.int64)


class Superseded(Protocol):
    """Reports which records are superseded by a later one with their key."""

    @property
    def keys(self) -> int:
        """Number of keys in the dirty part."""

    def begin(self, path: str) -> int:
        """Begin the records of this log; return the number of the first."""

    def known(self, path: str, headers: Table, start: int) -> Mask | None:
        """Return whether each record is superseded, as far as that needs no keys; in any thread.

        Args:
            path: the log.
            headers: headers of consecutive batches.
            start: number of their first record.

        Returns:
            The bits, one per record; None if the keys have to be looked up.
        """

    def among(self, part: Opened, starts: Table) -> Mask:
        """Return whether each record of some batches is superseded; may be called in any thread.

        Args:
            part: the batches, with their records.
            starts: number of the first record of each batch.
        """


class SupersededByMap:
    """Uses the map of the dirty part in memory.

    Args:
        building: has seen all of the dirty part.
        cleanable: which part is dirty.
    """

    def __init__(self, building: MapBuilding, cleanable: Cleanable) -> None:
        self._map = building.map
        self._map.settle()
        self._starts = building.starts
        self._first = cleanable.first_dirty_offset

    @property
    def keys(self) -> int:
        return len(self._map)

    def begin(self, path: str) -> int:
        """Return the number of a log's first record; 0 in the clean part, which has no numbers."""
        return self._starts.get(path, 0)

    def known(self, path: str, headers: Table, start: int) -> Mask | None:
        """Return the map's bits if all records of the batches are in it."""
        total = int(headers[k.COUNT].sum())
        is_early = int(headers[k.BASE_OFFSET, 0]) < self._first
        # A record that the map took for aborted may still be kept; such a record has no bit.
        has_odd = (headers[k.ATTRIBUTES] & c.TRANSACTIONAL_MASK).any()
        if path not in self._starts or has_odd or is_early:
            return None
        if start < 0 or not 0 <= total <= self._map.rows - start:
            raise read_otherwise(path)
        return self._map.superseded(start, total)

    def among(self, part: Opened, starts: Table) -> Mask:
        """Use the map's bits if all records of the part are in it, else their keys."""
        known = self.known(part.chunk.path, part.headers, int(starts[0]))
        if known is not None:
            return _of_opened(part, known)
        rows = part.rows()
        numbers = np.full(rows.table.shape[1], -1)
        if part.chunk.path in self._starts:
            total = int(part.headers[k.COUNT].sum())
            numbers = _of_opened(part, np.arange(starts[0], starts[0] + total))
        return self._map.latest(self._map.keys(rows)) > numbers


class SupersededByNumbers:
    """Uses the numbers of superseded records on disk.

    The bits of one segment are in memory while it is cleaned, a byte per record.

    Args:
        paths: files of rising numbers that together hold all of them.
        starts: path of each log to the number of its first record, in log order.
        rows: number of records.
        keys: number of keys in the dirty part.
    """

    def __init__(
        self, paths: Sequence[str], starts: Mapping[str, int], rows: int, keys: int
    ) -> None:
        self.keys = keys
        self._paths = paths
        self._starts = starts
        self._ends = dict(zip(starts, [*starts.values(), rows][1:], strict=True))
        self._first = 0
        self._bits = np.zeros(0, np.bool_)

    def begin(self, path: str) -> int:
        """Read the bits of a log; return the number of its first record."""
        self._first, end = self._starts[path], self._ends[path]
        self._bits = np.zeros(end - self._first, np.bool_)
        for column in self._paths:
            self._bits[numbers_between(column, self._first, end) - self._first] = True
        return self._first

    def known(self, path: str, headers: Table, start: int) -> Mask:
        """Return the bits of the records of some batches."""
        total = int(headers[k.COUNT].sum())
        if start < self._first or not 0 <= total <= len(self._bits) - (start - self._first):
            raise read_otherwise(path)
        return self._bits[start - self._first :][:total]

    def among(self, part: Opened, starts: Table) -> Mask:
        """Return the bits of the records of a part."""
        return _of_opened(part, self.known(part.chunk.path, part.headers, int(starts[0])))


def _of_opened(part: Opened, column: NDArray[Any]) -> NDArray[Any]:
    """Return the values, one per record of some batches, of the batches whose records are read."""
    is_opened = part.bodies[0] >= 0
    return column if is_opened.all() else column[np.repeat(is_opened, part.headers[k.COUNT])]
