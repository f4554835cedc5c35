"""Which records are the last of their keys, by a keyed 128-bit hash of the key.

The seed is secret and new in each map: nobody can construct keys that collide, and among a billion
keys two collide by chance with probability 2^-69. (Kafka's own map identifies keys by their MD5
digest, for which anybody can construct colliding keys.)
"""

from __future__ import annotations

import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.change.compaction import kernels as m
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.byte_kernels import hash_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kafkalog.log.columns.chunks import Rows

    Column = NDArray[np.int64]
    Mask = NDArray[np.bool_]


_PARTS: Final = 8  # a part that grows exists twice for a moment; large ones get huge pages
_SLOTS_MIN: Final = 1 << 8
_SLOTS_AHEAD: Final = 1 << 18  # a part grows up to here at once, if its keys are likely to need it
# of linear probing: beyond, the runs of occupied slots grow fast
_FULL: Final = 0.8
_BITS_MIN: Final = 1 << 13
_ROWS_AT_ONCE: Final = 1 << 17  # to group the keys of a part


class Keys:
    """Hashes of the keys of some rows; 0 for a row without a key."""

    def __init__(self, rows: Rows, wanted: Mask | None, seed: tuple[int, int]) -> None:
        table = rows.table
        sizes = table[k.KEY_SIZE] if wanted is None else np.where(wanted, table[k.KEY_SIZE], -1)
        self.low, self.high = np.empty((2, len(sizes)), np.int64)
        hash_keys(rows.arena, table[k.KEY_POSITION], sizes, *seed, self.low, self.high)
        if len(zeros := np.flatnonzero(self.low == 0)):  # without a key, or by a rare chance
            self.low[zeros[(self.high[zeros] == 0) & (sizes[zeros] >= 0)]] = 1  # 0 is a free slot

    @classmethod
    def of(cls, low: Column, high: Column) -> Keys:
        """Wrap existing hashes."""
        found = cls.__new__(cls)
        found.low, found.high = low, high
        return found

    @classmethod
    def joined(cls, several: Sequence[Keys]) -> Keys:
        """Concatenate the keys of consecutive rows."""
        low = np.concatenate([keys.low for keys in several])
        return cls.of(low, np.concatenate([keys.high for keys in several]))

    def __len__(self) -> int:
        return len(self.low)

    def leave_out(self, rows: Mask) -> None:
        """Do not count the keys of these rows after all."""
        self.low[rows] = self.high[rows] = 0


class KeyMap:
    """Maps each key to the number of the latest record that had it.

    Records are counted from 0 in the order they are put, including those without a key.

    Args:
        rows_expected: about how many records will be put; 0 if unknown.
        size_ahead: bytes that the map may take before its keys need them.

    Attributes:
        rows: number of records put.

    Cost:
        30 to 60 bytes per key, or up to 50 MB ahead of its keys; a tenth more while a part of the
        map grows, a bit per record, and 2 MB.
    """

    def __init__(self, rows_expected: int = 0, size_ahead: int | None = None) -> None:
        self.rows = 0
        self._rows_expected = rows_expected
        self._slots_ahead = _SLOTS_AHEAD
        # Room ahead is a guess, and must not by itself outgrow the memory of a task.
        if size_ahead is not None:
            slots = size_ahead // (_PARTS * m.SLOT_FIELDS * 8)
            self._slots_ahead = min(self._slots_ahead, slots // 2)  # it grows to a power of 2
        self._seed = secrets.randbits(63), secrets.randbits(63)
        self._slots = [np.zeros(_SLOTS_MIN * m.SLOT_FIELDS, np.int64) for _ in range(_PARTS)]
        self._counts = [0] * _PARTS
        self._superseded = np.zeros(_BITS_MIN, np.uint8)
        self._waiting: list[Keys] = []
        self._handed_over = 0  # number of rows
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: Future[None] | None = None

    def __len__(self) -> int:
        """Return the number of keys, once everything put is settled."""
        return sum(self._counts)

    @property
    def size_bytes(self) -> int:
        """Memory taken by its keys and bits."""
        return sum(slots.nbytes for slots in self._slots) + self._superseded.nbytes

    def keys(self, rows: Rows, wanted: Mask | None = None) -> Keys:
        """Return the keys of the wanted rows (all if None); rows without a key are left out."""
        return Keys(rows, wanted, self._seed)

    def put(self, keys: Keys) -> None:
        """Append rows with these keys; a thread of the map's own inserts them, until `settle`."""
        # Batches are small: a call of the kernel per batch would cost more than its work.
        self._waiting.append(keys)
        self.rows += len(keys)
        if self.rows - self._handed_over >= _ROWS_AT_ONCE:
            self._hand_over()

    def settle(self) -> None:
        """Wait until everything put is inserted; must be called before the map is queried."""
        self._hand_over()
        self._wait()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _hand_over(self) -> None:
        """Hand the waiting rows to the thread, once it has finished the previous ones."""
        # One piece at a time: a later record of a key must be inserted after the earlier one.
        self._wait()
        if self._waiting:
            # Only when there is something to do: a plan of a clean log starts no thread.
            self._pool = self._pool or ThreadPoolExecutor(1, "kafkalog-map")
            self._under_way = self._pool.submit(self._take, self._waiting, self._handed_over)
            self._waiting, self._handed_over = [], self.rows

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()
            self._under_way = None

    def _take(self, waiting: list[Keys], start: int) -> None:
        """Insert rows, given the number of the first."""
        low = np.concatenate([keys.low for keys in waiting])
        high = np.concatenate([keys.high for keys in waiting])
        size = len(self._superseded)
        if start + len(low) > 8 * size:
            # At least doubled, so that all copies together stay linear.
            more = max(size, (start + len(low) + 7) // 8 - size)
            self._superseded = np.concatenate((self._superseded, np.zeros(more, np.uint8)))
        order, parts = _sorted(low, high)
        for part, first, last in parts:
            self._reserve(part, last - first, start)
            self._counts[part] += m.put_numbers(
                order, low, high, first, last, start, self._slots[part], self._superseded
            )

    def superseded(self, start: int, count: int) -> Mask:
        """Return, for COUNT records from a number on, whether one with the same key followed."""
        flags = np.empty(count, np.bool_)
        m.expand_bits(self._superseded, start, flags)
        return flags

    def latest(self, keys: Keys) -> Column:
        """Return, per row, the number of the latest record with its key; -1 if none."""
        found = np.full(len(keys), -1, np.int64)
        order, parts = _sorted(keys.low, keys.high)
        for part, first, last in parts:
            m.find_keys(order, keys.low, keys.high, first, last, self._slots[part], found)
        return found

    def _reserve(self, part: int, count: int, rows: int) -> None:
        """Make room for this many more keys, after a number of rows."""
        slots = self._slots[part]
        wanted = self._counts[part] + count
        size = before = len(slots) // m.SLOT_FIELDS
        while wanted > _FULL * size:
            size *= 2
        if size > before:  # each key is moved whenever a part grows
            foreseen = self._counts[part] * self._rows_expected // max(rows, 1)
            while size < self._slots_ahead and foreseen > _FULL * size:
                size *= 2
        if size > before:
            self._slots[part] = np.zeros(size * m.SLOT_FIELDS, np.int64)
            m.move_slots(slots, self._slots[part])


def _sorted(low: Column, high: Column) -> tuple[Column, list[tuple[int, int, int]]]:
    """Return the keys' indexes grouped by part, and the start and end of each part in use."""
    order = np.empty(len(low), np.int64)
    ends = np.empty(_PARTS, np.int64)
    m.sort_into_parts(low, high, order, ends)
    bounds = [0, *ends.tolist()]
    parts = [(i, bounds[i], bounds[i + 1]) for i in range(_PARTS) if bounds[i] < bounds[i + 1]]
    return order, parts
