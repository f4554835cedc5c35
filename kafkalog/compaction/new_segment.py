"""A segment that is being made: its size, and what its indexes hold.

Follows `LogSegment.append` and `onBecomeInactiveSegment` of Kafka 4.3.
"""

from __future__ import annotations

import struct

from formats import constants as c

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")


class NewSegment:
    """The bytes of the indexes of a log of batches of magic 2 that are appended.

    Args:
        base_offset: of the segment.
        index_interval_bytes: `index.interval.bytes` of the topic.
    """

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        self.next_offset = base_offset
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self._interval = index_interval_bytes
        self._since_entry = 0
        self._largest = (-1, -1)
        self._indexed_time = -1

    def extend(self, batches: bytes | memoryview) -> None:
        """Whole batches follow, one after the other."""
        at = 0
        while at < len(batches):
            at += self._append(batches, at)

    def _append(self, data: bytes | memoryview, at: int) -> int:
        """The batch at a position of some bytes follows; its size."""
        base_offset = _INT64.unpack_from(data, at)[0]
        size: int = c.LOG_OVERHEAD + _INT32.unpack_from(data, at + c.LENGTH_POSITION)[0]
        last_offset = base_offset + _INT32.unpack_from(data, at + c.LAST_OFFSET_DELTA_POSITION)[0]
        timestamp = _INT64.unpack_from(data, at + c.MAX_TIMESTAMP_POSITION)[0]
        self.next_offset = last_offset + 1
        if timestamp > self._largest[0]:
            self._largest = timestamp, last_offset
        if self._since_entry > self._interval:
            self.offset_index += _OFFSET_ENTRY.pack(last_offset - self.base_offset, self.size_bytes)
            self._index_time()
            self._since_entry = 0
        self.size_bytes += size
        self._since_entry += size
        return size

    def close(self) -> None:
        """No batch follows: the time index gets its last entry."""
        self._index_time()

    def _index_time(self) -> None:
        timestamp, offset = self._largest
        if timestamp > self._indexed_time:
            self.time_index += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            self._indexed_time = timestamp
