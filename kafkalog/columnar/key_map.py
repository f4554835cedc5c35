"""Which records the last ones of their keys are, by a keyed hash of 128 bits of the key.

The seed is secret and new in each map: nobody can make keys that collide, and of a thousand million
keys two do by chance with 2^-69. (Kafka's own map knows keys by their MD5 digest, for which anybody
can make two keys that are taken for one.)
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.columnar import kernels as k
from kafkalog.columnar import map_kernels as m
from kafkalog.columnar.hash_kernels import hash_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Rows

    Column = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_PARTS: Final = 16  # a part that grows is there twice for a moment
_SLOTS_MIN: Final = 1 << 8
_FULL: Final = 0.8
_BITS_MIN: Final = 1 << 13


class Keys:
    """Keys of some rows, hashed and sorted by the part of the map they belong to."""

    def __init__(self, rows: Rows, wanted: Mask | None, seed: tuple[int, int]) -> None:
        table = rows.table
        self.rows = table.shape[1]
        sizes = table[k.KEY_SIZE] if wanted is None else np.where(wanted, table[k.KEY_SIZE], -1)
        self.low = np.empty(self.rows, np.int64)
        self.high = np.empty(self.rows, np.int64)
        hash_keys(rows.arena, table[k.KEY_POSITION], sizes, *seed, self.low, self.high)
        self.order = np.empty(self.rows, np.int64)
        ends = np.empty(_PARTS, np.int64)
        m.sort_into_parts(sizes, self.low, self.high, self.order, ends)
        self.ends: list[int] = ends.tolist()

    def leave_out(self, rows: Mask) -> None:
        """Rows whose keys do not count after all."""
        self.low[rows] = self.high[rows] = 0


class KeyMap:
    """Keys that were met, each with the number of the record that had it last.

    Records are counted from 0 in the order they are put, those without a key as well.

    Cost:
        30 to 60 bytes a key, a tenth more while a part of the map grows, and a bit a record.
    """

    def __init__(self) -> None:
        self._seed = secrets.randbits(63), secrets.randbits(63)
        self._slots = [np.zeros((_SLOTS_MIN, m.SLOT_FIELDS), np.int64) for _ in range(_PARTS)]
        self._counts = [0] * _PARTS
        self._superseded = np.zeros(_BITS_MIN, np.uint8)
        self.rows = 0

    def __len__(self) -> int:
        return sum(self._counts)

    def keys(self, rows: Rows, wanted: Mask | None = None) -> Keys:
        """The keys of the wanted rows (None: all); rows without a key are left out."""
        return Keys(rows, wanted, self._seed)

    def put(self, keys: Keys) -> None:
        """Rows with these keys follow."""
        start, self.rows = self.rows, self.rows + keys.rows
        size = len(self._superseded)
        if self.rows > 8 * size:
            more = max(size, (self.rows + 7) // 8 - size)
            self._superseded = np.concatenate((self._superseded, np.zeros(more, np.uint8)))
        first = 0
        for part, last in enumerate(keys.ends):
            if first < last:
                self._reserve(part, last - first)
                self._counts[part] += m.put_numbers(
                    keys.order, keys.low, keys.high, first, last, start, self._slots[part],
                    self._superseded,
                )  # fmt: skip
            first = last

    def superseded(self, start: int, count: int) -> Mask:
        """Of so many records from a number on: whether one with the same key followed."""
        flags = np.empty(count, np.bool_)
        m.expand_bits(self._superseded, start, flags)
        return flags

    def holds(self, keys: Keys) -> Mask:
        """Of each row, whether its key is in the map."""
        found = np.zeros(keys.rows, np.bool_)
        first = 0
        for part, last in enumerate(keys.ends):
            if first < last:
                slots = self._slots[part]
                m.find_keys(keys.order, keys.low, keys.high, first, last, slots, found)
            first = last
        return found

    def _reserve(self, part: int, count: int) -> None:
        """Room for so many keys more."""
        slots = self._slots[part]
        wanted = self._counts[part] + count
        size = len(slots)
        while wanted > _FULL * size:
            size *= 2
        if size > len(slots):
            self._slots[part] = np.zeros((size, m.SLOT_FIELDS), np.int64)
            m.move_slots(slots, self._slots[part])
