"""A segment that is being made: its size, and what its indexes hold.

Follows `LogSegment.append` and `onBecomeInactiveSegment` of Kafka 4.3.
"""

from __future__ import annotations

import struct

import numpy as np

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.recovery import StartConfig
from kafkalog.recovery.indexes import IndexBuild

_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_BATCHES_AT_ONCE = 1 << 12
_FEW_BYTES = 1 << 16  # so many are gone through batch by batch


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
        # A limit of the indexes is that of the groups: here is none.
        self._build = IndexBuild(base_offset, StartConfig(index_interval_bytes, c.INT32_MAX))

    @property
    def offset_index(self) -> bytes:
        """The bytes of the `.index`."""
        return self._build.offsets.data()

    @property
    def time_index(self) -> bytes:
        """The bytes of the `.timeindex`."""
        return self._build.times.data()

    def extend(self, batches: bytes | memoryview) -> None:
        """Whole batches follow, one after the other."""
        at = 0
        if len(batches) > _FEW_BYTES:
            at = self._extend_columns(batches)
        while at < len(batches):
            at += self._append(batches, at)

    def _extend_columns(self, batches: bytes | memoryview) -> int:
        """As `_append` for each batch, up to one that has to be appended by itself."""
        data = np.frombuffer(batches, np.uint8)
        table = np.empty((k.HEADER_FIELDS, _BATCHES_AT_ONCE), np.int64)
        start = self.size_bytes
        at = 0
        while at < len(data):
            count, after, _ = k.scan_headers(data, at, len(data), start, len(data), table)
            headers = table[:, :count]
            lasts = headers[k.LAST_OFFSET]
            columns = headers[k.MAX_TIMESTAMP], lasts, headers[k.POSITION]
            if not count or not self._build.columns(*columns):
                break
            self.next_offset = int(lasts[-1]) + 1
            at = after
            self.size_bytes = start + at
        return at

    def _append(self, data: bytes | memoryview, at: int) -> int:
        """The batch at a position of some bytes follows; its size."""
        base_offset = _INT64.unpack_from(data, at)[0]
        size: int = c.LOG_OVERHEAD + _INT32.unpack_from(data, at + c.LENGTH_POSITION)[0]
        last_offset = base_offset + _INT32.unpack_from(data, at + c.LAST_OFFSET_DELTA_POSITION)[0]
        timestamp = _INT64.unpack_from(data, at + c.MAX_TIMESTAMP_POSITION)[0]
        self.next_offset = last_offset + 1
        self._build.batch(timestamp, last_offset, self.size_bytes)
        self.size_bytes += size
        return size

    def close(self) -> None:
        """No batch follows: the time index gets its last entry."""
        self._build.end()
