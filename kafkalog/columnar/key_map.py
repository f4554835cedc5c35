"""The latest offset of each key, by a keyed hash of 128 bits of the key.

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

_PARTS: Final = 16  # a part that grows is there twice for a moment
_SLOTS_MIN: Final = 1 << 8
_FULL: Final = 0.8


class Keys:
    """Keys of some rows, hashed: columns that have one element per row."""

    def __init__(self, rows: Rows, wanted: NDArray[np.bool_], seed: tuple[int, int]) -> None:
        table = rows.table
        self.offsets: Column = np.ascontiguousarray(table[k.OFFSET])
        sizes = np.where(wanted, table[k.KEY_SIZE], -1)
        self.low = np.empty(len(sizes), np.int64)
        self.high = np.empty(len(sizes), np.int64)
        positions = np.ascontiguousarray(table[k.KEY_POSITION])
        hash_keys(rows.arena, positions, sizes, *seed, self.low, self.high)
        self.low[(self.low == 0) & (self.high == 0)] = 1  # marks a free slot
        part = np.where(sizes >= 0, self.low & (_PARTS - 1), _PARTS).astype(np.uint8)
        self.order: Column = np.argsort(part, kind="stable")
        self.ends = np.searchsorted(part[self.order], np.arange(_PARTS), "right").tolist()


class KeyMap:
    """Offsets by key.

    Cost:
        30 to 60 bytes a key, and a tenth more while a part of the map grows.
    """

    def __init__(self) -> None:
        self._seed = secrets.randbits(63), secrets.randbits(63)
        self._slots = [np.zeros((_SLOTS_MIN, m.SLOT_FIELDS), np.int64) for _ in range(_PARTS)]
        self._counts = [0] * _PARTS

    def __len__(self) -> int:
        return sum(self._counts)

    def keys(self, rows: Rows, wanted: NDArray[np.bool_]) -> Keys:
        """The keys of the wanted rows; rows without a key are left out."""
        return Keys(rows, wanted, self._seed)

    def put(self, keys: Keys) -> None:
        """Rows with these keys were met, in order."""
        first = 0
        for part, last in enumerate(keys.ends):
            if first < last:
                self._reserve(part, last - first)
                self._counts[part] += m.put_offsets(
                    keys.order, keys.low, keys.high, keys.offsets, first, last, self._slots[part]
                )
            first = last

    def get(self, keys: Keys) -> Column:
        """The latest offset of each row's key, -1 without one."""
        found = np.full(len(keys.offsets), -1, np.int64)
        first = 0
        for part, last in enumerate(keys.ends):
            if first < last:
                slots = self._slots[part]
                m.get_offsets(keys.order, keys.low, keys.high, first, last, slots, found)
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
