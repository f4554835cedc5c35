"""Invariants of a segment's indexes against its batches, in one pass over the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from formats.constants import INT64_MAX
from kafkalog.check.batch_checks import CheckedLog, SegmentCheck, running_max
from kafkalog.columnar import header_table as h
from kafkalog.columnar.index_columns import offset_columns, time_columns
from kafkalog.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import Found
    from kafkalog.columnar.headers import Stretch
    from kafkalog.indexes import OffsetIndex, TimeIndex
    from kafkalog.model import Defect

    Columns = tuple[int, NDArray[np.int64], NDArray[np.int64]]


class _Entries:
    """The entries of an index that is in order, taken as far as the log has been read."""

    def __init__(self, blocks: Iterator[Columns]) -> None:
        self._blocks = blocks
        self._block = next(blocks, None)

    def up_to(self, limit: int) -> Iterator[Columns]:
        """The next entries whose second column is not above the limit, after the first's number."""
        while self._block is not None:
            number, one, two = self._block
            count = int(np.searchsorted(two, limit, "right"))
            if count:
                yield number, one[:count], two[:count]
            if count < len(two):
                self._block = number + count, one[count:], two[count:]
                return
            self._block = next(self._blocks, None)


class OffsetIndexHitsBatches(SegmentCheck):
    """Each entry's position is the start of a batch, and no batch before it reaches its offset.

    Entries made for a whole append by Kafka up to 3.9.0, and 4.0.0, hold the last offset of the
    append at the position of its first batch: they are legal.
    """

    def __init__(self, log: CheckedLog) -> None:
        super().__init__(log)
        assert log.offset_index is not None, "the check applies"
        self._index: OffsetIndex = log.offset_index
        self._entries = _Entries(offset_columns(self._index))
        self._last_offset = self._index.base_offset - 1

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        """Whether the log has all that the check compares."""
        return log.offset_index is not None

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        positions = stretch.headers[h.POSITION]
        highest = running_max(self._last_offset, stretch.headers[h.LAST_OFFSET])
        self._last_offset = int(highest[-1])
        for number, offsets, places in self._entries.up_to(int(positions[-1])):
            batch = np.searchsorted(positions, places)
            misses = positions[batch] != places
            for i in np.flatnonzero(misses | (offsets <= highest[batch])).tolist():
                offset, place = int(offsets[i]), int(places[i])
                problem = f"no batch starts at position {place}"
                if not misses[i]:
                    problem = f"a batch before position {place} reaches offset {offset}"
                yield int(batch[i]), self._missed(number + i, offset, place, problem)

    def _missed(self, number: int, offset: int, place: int, problem: str) -> Defect:
        return make_defect(
            "index-entry-misses-batch",
            self._index.path,
            f"Entry {number} (offset {offset}, position {place}): {problem}.",
            position=number * self._index.entry_size,
            offset=offset,
        )

    def end(self) -> Iterator[Defect]:
        """Entries behind the last batch, and a last entry that the log does not reach."""
        for number, offsets, places in self._entries.up_to(INT64_MAX):
            pairs = zip(offsets.tolist(), places.tolist(), strict=True)
            for i, (offset, place) in enumerate(pairs, number):
                yield self._missed(i, offset, place, f"no batch starts at position {place}")
        count = self._index.entry_count
        last = self._index.entry(count - 1) if count else None
        if last is not None and last.offset > self._last_offset:
            yield make_defect(
                "index-entry-beyond-log",
                self._index.path,
                f"The last entry has offset {last.offset}, the log ends at {self._last_offset}.",
                position=last.entry * self._index.entry_size,
                offset=last.offset,
            )


class TimeIndexMatchesLog(SegmentCheck):
    """Each entry's timestamp is the largest of all batches up to the one that holds its offset."""

    def __init__(self, log: CheckedLog) -> None:
        super().__init__(log)
        assert log.time_index is not None, "the check applies"
        self._index: TimeIndex = log.time_index
        self._entries = _Entries(time_columns(self._index))
        self._largest = -1
        self._last_offset = self._index.base_offset - 1

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        """Whether the log has all that the check compares."""
        return log.time_index is not None

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers = stretch.headers
        # No batch before the stretch reaches an entry that is left.
        reached = np.maximum.accumulate(headers[h.LAST_OFFSET])
        largest = running_max(self._largest, headers[h.MAX_TIMESTAMP])
        self._largest = int(largest[-1])
        self._last_offset = max(self._last_offset, int(reached[-1]))
        for number, timestamps, offsets in self._entries.up_to(int(reached[-1])):
            batch = np.searchsorted(reached, offsets)
            # Magic 0 has no timestamps, yet a topic with LogAppendTime indexes the broker's clock.
            right = (timestamps == largest[1:][batch]) | (headers[h.MAGIC, batch] == 0)
            right |= (timestamps == largest[batch]) & (offsets < headers[h.BASE_OFFSET, batch])
            for i in np.flatnonzero(~right).tolist():
                yield (
                    int(batch[i]),
                    make_defect(
                        "time-index-entry-wrong",
                        self._index.path,
                        f"Entry {number + i} says {timestamps[i]} up to offset {offsets[i]}, the "
                        f"log says {largest[batch[i] + 1]}.",
                        position=(number + i) * self._index.entry_size,
                        offset=int(offsets[i]),
                    ),
                )

    def end(self) -> Iterator[Defect]:
        """Entries with an offset that the log does not reach."""
        for number, timestamps, offsets in self._entries.up_to(INT64_MAX):
            for i in np.flatnonzero(timestamps != self._largest).tolist():
                yield make_defect(
                    "index-entry-beyond-log",
                    self._index.path,
                    f"Entry {number + i} has offset {offsets[i]}, the log ends at "
                    f"{self._last_offset}.",
                    position=(number + i) * self._index.entry_size,
                    offset=int(offsets[i]),
                )
