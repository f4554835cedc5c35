"""Offset and time index of a segment as a scan of its batches makes them anew.

Follows `LogSegment.recover` of Kafka 4.3: an entry where more than index.interval.bytes lie behind
the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import INT32_MAX, INT64_MAX, NO_TIMESTAMP
from kafkalog.recovery.index_slots import OffsetSlots, TimeSlots

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafkalog.recovery.model import StartConfig


class IndexBuild:
    """The indexes so far.

    Attributes:
        offsets: the offset index.
        times: the time index.
        max_timestamp: the largest timestamp, and the last offset of the batch that has it.
    """

    def __init__(self, base_offset: int, config: StartConfig) -> None:
        self.offsets = OffsetSlots(base_offset, None, config.segment_index_bytes)
        self.times = TimeSlots(base_offset, None, config.segment_index_bytes)
        self.max_timestamp = NO_TIMESTAMP, base_offset
        self._base_offset = base_offset
        self._interval = config.index_interval_bytes
        self._last_entry = 0

    def batch(self, max_timestamp: int, last_offset: int, position: int) -> None:
        """Add the entries that are due at a batch; its position is that in the log.

        Raises:
            InvalidOffsetError: offsets go back where an entry is due.
            StartRefusedError: an index is full.
        """
        if max_timestamp > self.max_timestamp[0]:
            self.max_timestamp = max_timestamp, last_offset
        if position - self._last_entry > self._interval:
            self.offsets.append(last_offset, position)
            self.times.maybe_append(*self.max_timestamp)
            self._last_entry = position

    def columns(
        self,
        max_timestamps: NDArray[np.int64],
        last_offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
    ) -> bool:
        """As `batch` for each of some; false where that would raise: then nothing has changed."""
        import numpy as np

        largest, of_largest = self.max_timestamp
        running = np.maximum.accumulate(np.concatenate(([largest], max_timestamps)))
        rises = np.where(max_timestamps > running[:-1], np.arange(1, len(running)), 0)
        holders = np.concatenate(([of_largest], last_offsets))[np.maximum.accumulate(rises)]
        due = self._due(positions)
        if due:
            offsets = np.concatenate(([self.offsets.last_offset], last_offsets[due]))
            times = np.concatenate(([self.times.last[0]], running[1:][due]))
            later = times[1:] > times[:-1]
            of_times = np.concatenate(([self.times.last[1]], holders[due][later]))
            if not self._is_plain(offsets, of_times, len(due)):
                return False
            self._extend(offsets[1:], positions[due], times[1:][later], of_times[1:])
            self._last_entry = int(positions[due[-1]])
        self.max_timestamp = int(running[-1]), int(holders[-1])
        return True

    def end(self) -> None:
        """Add the entry of the time index that a segment ends with."""
        self.times.maybe_append(*self.max_timestamp, at_end=True)

    def _due(self, positions: NDArray[np.int64]) -> list[int]:
        """Ordinals of the batches that entries are due at."""
        behind = positions.searchsorted(positions + self._interval, "right").tolist()
        due = []
        ordinal = int(positions.searchsorted(self._last_entry + self._interval, "right"))
        while ordinal < len(behind):
            due.append(ordinal)
            ordinal = behind[ordinal]
        return due

    def _is_plain(
        self, offsets: NDArray[np.int64], of_times: NDArray[np.int64], count: int
    ) -> bool:
        """Whether entries with these offsets can be appended; the first of each is the last now."""
        first = 0 if self.offsets.entry_count else 1
        if not (offsets[first + 1 :] > offsets[first:-1]).all():
            return False
        first = 0 if self.times.entry_count else 1
        if not (of_times[first + 1 :] >= of_times[first:-1]).all():
            return False
        limit = min(self._base_offset + INT32_MAX, INT64_MAX)
        for column in (offsets[1:], of_times[1:]):
            if len(column) and not self._base_offset <= column.min() <= column.max() <= limit:
                return False
        return (
            self.offsets.entry_count + count <= self.offsets.capacity
            and self.times.entry_count + count < self.times.capacity
        )

    def _extend(
        self,
        offsets: NDArray[np.int64],
        positions: NDArray[np.int64],
        times: NDArray[np.int64],
        of_times: NDArray[np.int64],
    ) -> None:
        import numpy as np

        entries = np.empty((len(offsets), 2), ">i4")
        entries[:, 0], entries[:, 1] = offsets - self._base_offset, positions
        self.offsets.extend(entries.tobytes(), int(offsets[-1]))
        if len(times):
            slots = np.empty(len(times), [("timestamp", ">i8"), ("offset", ">i4")])
            slots["timestamp"], slots["offset"] = times, of_times - self._base_offset
            self.times.extend(slots.tobytes(), (int(times[-1]), int(of_times[-1])))
