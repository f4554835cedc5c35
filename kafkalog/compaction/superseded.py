"""Which records of a log another with their key follows: by a map of keys, or by bits from disk.

Follows `Cleaner.shouldRetainRecord` of Kafka 4.3, as far as it asks the offset map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.compaction.buckets import numbers_between

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from kafkalog.columnar.compacting import Opened
    from kafkalog.compaction.map_building import MapBuilding
    from kafkalog.compaction.model import Cleanable

    Mask = NDArray[np.bool_]
    Table = NDArray[np.int64]


class Superseded(Protocol):
    """Tells which records are not the last of their keys."""

    @property
    def keys(self) -> int:
        """How many keys the dirty part has."""

    def begin(self, path: str) -> int:
        """The records of this log come; the number of the first."""

    def among(self, part: Opened, starts: Table) -> Mask:
        """Of each record of some batches whether one with its key follows; in any thread.

        Args:
            part: the batches, with their records.
            starts: numbers of the first record of each batch.
        """


class SupersededByMap:
    """By the map of the dirty part, which is in memory.

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
        """How many keys are in the map."""
        return len(self._map)

    def begin(self, path: str) -> int:
        """The number of the first record of a log; 0 in the clean part, where they have none."""
        return self._starts.get(path, 0)

    def among(self, part: Opened, starts: Table) -> Mask:
        """By the map's bits where all records of the part are in it, else by their keys."""
        rows = part.rows
        count = rows.table.shape[1]
        counts = part.headers[k.COUNT]
        total = int(counts.sum())
        is_dirty = part.chunk.path in self._starts
        is_early = int(part.headers[k.BASE_OFFSET, 0]) < self._first
        # What the map took for aborted can be kept all the same: then it has no bit of its own.
        is_plain = not (part.headers[k.ATTRIBUTES] & c.TRANSACTIONAL_MASK).any()
        if is_dirty and is_plain and not is_early:
            bits = self._map.superseded(int(starts[0]), total)
            return bits if count == total else bits[_opened(part)]
        numbers = np.full(count, -1)
        if is_dirty:
            numbers = np.arange(starts[0], starts[0] + total)[_opened(part)]
        return self._map.latest(self._map.keys(rows)) > numbers


class SupersededByNumbers:
    """By the numbers of superseded records, which lie on disk.

    A segment's bits are in memory while that is cleaned, a byte a record.

    Args:
        paths: of files of rising numbers, which together have all.
        starts: path of each log to the number of its first record, in the order of the log.
        rows: how many records there are.
        keys: how many keys the dirty part has.
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
        """Read the bits of a log; the number of its first record."""
        self._first, end = self._starts[path], self._ends[path]
        self._bits = np.zeros(end - self._first, np.bool_)
        for column in self._paths:
            self._bits[numbers_between(column, self._first, end) - self._first] = True
        return self._first

    def among(self, part: Opened, starts: Table) -> Mask:
        """The bits of the records of a part."""
        total = int(part.headers[k.COUNT].sum())
        start = int(starts[0]) - self._first
        bits = self._bits[start : start + total]
        return bits if part.rows.table.shape[1] == total else bits[_opened(part)]


def _opened(part: Opened) -> Mask:
    """Of each record of the batches whether it was read."""
    return np.repeat(part.bodies[0] >= 0, part.headers[k.COUNT])
