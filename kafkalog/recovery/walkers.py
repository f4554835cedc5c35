"""Walks over a log for one answer: where an offset is, what is at the end, its indexes.

Follows `FileRecords` and `LogSegment` of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.recovery.batches import wrap_int64
from kafkalog.recovery.walk import Walker

if TYPE_CHECKING:
    from kafkalog.columnar.headers import Stretch
    from kafkalog.recovery.batches import Frame
    from kafkalog.recovery.index_build import IndexBuild
    from kafkalog.source import Source


@dataclass(frozen=True, slots=True)
class Found:
    """The batch that a read from an offset on begins with; its position in the log."""

    position: int
    base_offset: int


class Search(Walker):
    """The batch that holds an offset, or the next one: `searchForOffsetFromPosition`.

    Attributes:
        found: that batch, when the walk is over; positions are those in the file.
    """

    def __init__(self, offset: int) -> None:
        self.found: Found | None = None
        self._offset = offset
        self._previous: tuple[Found, int] | None = None  # with its last offset

    def columns(self, stretch: Stretch) -> int:
        """Pass over batches that begin below the offset; how many."""
        from kafkalog.columnar import header_table as h

        headers = stretch.headers
        # Of a compressed legacy message the first offset is inside it.
        passed = (headers[h.MAGIC] >= 2) | (headers[h.ATTRIBUTES] & c.COMPRESSION_MASK == 0)
        passed &= headers[h.BASE_OFFSET] < self._offset
        count = stretch.count if passed.all() else int(passed.argmin())
        if count:
            position, base, last = headers[
                [h.POSITION, h.BASE_OFFSET, h.LAST_OFFSET], count - 1
            ].tolist()
            self._previous = Found(position, base), last
        return count

    def frame(self, _source: Source, frame: Frame) -> bool:
        """Look at one batch; whether it is not yet the place."""
        base_offset = frame.base_offset
        here = Found(frame.position, base_offset)
        if base_offset == self._offset:
            self.found = here
        elif base_offset > self._offset:
            self.found = self._holder() or here
        else:
            self._previous = here, frame.last_offset
        return self.found is None

    def end(self) -> Found | None:
        """What was found, now that there are no more batches."""
        return self.found or self._holder()

    def _holder(self) -> Found | None:
        if self._previous is not None and self._previous[1] >= self._offset:
            return self._previous[0]
        return None


class ToTheEnd(Walker):
    """What is behind the last batch, and whether that has a leader epoch."""

    def __init__(self, base_offset: int) -> None:
        self.next_offset = base_offset
        self.end_position: int | None = None
        self.has_epoch = False

    def columns(self, stretch: Stretch) -> int:
        """Take in batches; all of them."""
        from kafkalog.columnar import header_table as h

        last = stretch.headers[:, -1].tolist()
        self.next_offset = wrap_int64(last[h.LAST_OFFSET] + 1)
        self.end_position = last[h.POSITION] + last[h.SIZE]
        self.has_epoch = last[h.MAGIC] >= 2 and last[h.EPOCH] >= 0
        return stretch.count

    def frame(self, _source: Source, frame: Frame) -> bool:
        """Take in one batch."""
        self.next_offset = frame.next_offset
        self.end_position = frame.end_position
        self.has_epoch = frame.magic >= 2 and frame.batch.partition_leader_epoch >= 0
        return True


class Indexing(Walker):
    """The indexes of a log, without a look at what else is in it."""

    def __init__(self, indexes: IndexBuild, start: int) -> None:
        self._indexes = indexes
        self._start = start

    def columns(self, stretch: Stretch) -> int:
        """Add the entries that are due at batches; how many were taken in."""
        from kafkalog.columnar import header_table as h

        times, offsets, positions = stretch.headers[[h.MAX_TIMESTAMP, h.LAST_OFFSET, h.POSITION]]
        is_plain = self._indexes.columns(times, offsets, positions - self._start)
        return stretch.count if is_plain else 0

    def frame(self, _source: Source, frame: Frame) -> bool:
        """Add the entries that are due at one batch."""
        position = frame.position - self._start
        self._indexes.batch(frame.batch.max_timestamp, frame.last_offset, position)
        return True
