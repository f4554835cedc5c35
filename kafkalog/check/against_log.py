"""Invariants of a segment's batches, and of its indexes against them, in one pass over the log.

Each check is fed the batches in file order and keeps only what it needs of the past, so that
memory does not grow with the segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkalog.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.indexes import OffsetIndex, TimeIndex
    from kafkalog.log_dir import Segment
    from kafkalog.model import Batch, Defect


class SegmentCheck(Protocol):
    """A check that sees every batch of a segment."""

    def batch(self, batch: Batch) -> Iterator[Defect]:
        """What is wrong with this batch, given those before it."""
        ...

    def end(self) -> Iterator[Defect]:
        """What is wrong now that all batches have been seen."""
        ...


class OffsetsIncrease:
    """Every batch starts after the one before it, and not below the segment's base offset."""

    def __init__(self, segment: Segment) -> None:
        self._base_offset = segment.base_offset
        self._last_offset = -1

    def batch(self, batch: Batch) -> Iterator[Defect]:
        """What is wrong with this batch, given those before it."""
        first = batch.last_offset if batch.magic < 2 else batch.base_offset
        if first < self._base_offset:
            detail = f"The batch starts at offset {first}, the segment at {self._base_offset}."
            yield make_defect(
                "batch-below-base-offset", batch.path, detail, position=batch.position, offset=first
            )
        elif first <= self._last_offset or batch.last_offset < first:
            detail = f"The batch has offsets {first} to {batch.last_offset}, "
            detail += f"after {self._last_offset}."
            yield make_defect(
                "batch-offset-not-increasing",
                batch.path,
                detail,
                position=batch.position,
                offset=first,
            )
        self._last_offset = max(self._last_offset, batch.last_offset)

    def end(self) -> Iterator[Defect]:
        """Nothing is left to say."""
        return iter(())


class OffsetIndexHitsBatches:
    """Each entry's position is the start of a batch, and no batch before it reaches its offset.

    Entries made for a whole append by Kafka up to 3.9.0, and 4.0.0, hold the last offset of the
    append at the position of its first batch: they are legal.
    """

    def __init__(self, index: OffsetIndex) -> None:
        self._index = index
        self._entries = index.entries()
        self._next = next(self._entries, None)
        self._last_offset = index.base_offset - 1

    def batch(self, batch: Batch) -> Iterator[Defect]:
        """What is wrong with this batch, given those before it."""
        while self._next is not None and self._next.position < batch.position:
            yield self._missed("no batch starts at position {position}")
        if self._next is not None and self._next.position == batch.position:
            if self._next.offset <= self._last_offset:
                yield self._missed("a batch before position {position} reaches offset {offset}")
            else:
                self._next = next(self._entries, None)
        self._last_offset = max(self._last_offset, batch.last_offset)

    def _missed(self, problem: str) -> Defect:
        entry = self._next
        assert entry is not None, "called with an entry at hand"
        text = problem.format(position=entry.position, offset=entry.offset)
        self._next = next(self._entries, None)
        return make_defect(
            "index-entry-misses-batch",
            self._index.path,
            f"Entry {entry.entry} (offset {entry.offset}, position {entry.position}): {text}.",
            position=entry.entry * self._index.entry_size,
            offset=entry.offset,
        )

    def end(self) -> Iterator[Defect]:
        """Entries behind the last batch, and a last entry that the log does not reach."""
        while self._next is not None:
            yield self._missed("no batch starts at position {position}")
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


class TimeIndexMatchesLog:
    """Each entry's timestamp is the largest of all batches up to the one that holds its offset."""

    def __init__(self, index: TimeIndex) -> None:
        self._index = index
        self._entries = index.entries()
        self._next = next(self._entries, None)
        self._largest = -1
        self._last_offset = index.base_offset - 1

    def batch(self, batch: Batch) -> Iterator[Defect]:
        """What is wrong with this batch, given those before it."""
        before = self._largest
        self._largest = max(self._largest, batch.max_timestamp)
        self._last_offset = max(self._last_offset, batch.last_offset)
        while self._next is not None and self._next.offset <= batch.last_offset:
            entry = self._next
            self._next = next(self._entries, None)
            # Magic 0 has no timestamps, yet a topic with LogAppendTime indexes the broker's clock.
            if entry.timestamp == self._largest or batch.magic == 0:
                continue
            if entry.timestamp == before and entry.offset < batch.base_offset:
                continue
            yield make_defect(
                "time-index-entry-wrong",
                self._index.path,
                f"Entry {entry.entry} says {entry.timestamp} up to offset {entry.offset}, the log "
                f"says {self._largest}.",
                position=entry.entry * self._index.entry_size,
                offset=entry.offset,
            )

    def end(self) -> Iterator[Defect]:
        """Entries with an offset that the log does not reach."""
        while self._next is not None:
            entry = self._next
            self._next = next(self._entries, None)
            if entry.timestamp == self._largest:
                continue
            yield make_defect(
                "index-entry-beyond-log",
                self._index.path,
                f"Entry {entry.entry} has offset {entry.offset}, the log ends at "
                f"{self._last_offset}.",
                position=entry.entry * self._index.entry_size,
                offset=entry.offset,
            )
