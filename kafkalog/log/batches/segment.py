"""One segment, open for reading through its indexes, and positions to split its log at.

Follows `LogSegment.translateOffset`, `LogSegment.readNextOffset` and `LogSegment.largestTimestamp`
of Kafka.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Self

from formats import constants as c
from formats.file_names import FileKind
from kafkalog.errors import DataError, FileChangedError
from kafkalog.files.indexes import OffsetIndex, Probe, TimeIndex
from kafkalog.files.text_files import closed_end, noted_epoch
from kafkalog.io.paths.source import Source
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.framing import align, read_batch, scan_batches
from kafkalog.log.batches.order import Order, batch_defects
from kafkalog.log.batches.records import resolve_batch
from kafkalog.model import Batch, Defect, OffsetIndexEntry, TimeIndexEntry, computed_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.files.log_dir import Segment


_TAIL_SIZE: Final = 1 << 17


def cut_positions(opened: OpenSegment, start: int, end: int, size_bytes: int) -> Iterator[int]:
    """Yield positions of batches between two others, so that parts have about the requested size.

    Without an offset index there are none. An entry that does not point to a sound batch, whose
    offsets are in order, is skipped.
    """
    index = opened.offset_index if start + size_bytes < end else None
    if index is None:
        return
    before = start
    while before + size_bytes < end:
        number = index.first_at(before + size_bytes)
        while number < index.entry_count and not opened.leads_to(number):
            number += 1
        if number >= index.entry_count or index.entry(number).position >= end:
            return
        before = index.entry(number).position
        yield before


def checked_position(opened: OpenSegment, position: int) -> int | None:
    """Return the position if a sound batch begins there, else None."""
    with suppress(DataError):
        if 0 < position < opened.source.size_bytes and align(opened.source, position) == position:
            return position
    return None


def gaps_between(
    segments: Iterable[Segment], from_offset: int | None = None, to_offset: int | None = None
) -> Iterator[tuple[int, int]]:
    """Yield the wanted offsets that are missing between segments: the first, and the one after.

    Compaction makes such gaps, too; `kafkalog.check.segments.missing_offsets` tells them apart.

    Cost:
        A few reads per segment but the last one.
    """
    for segment in segments:
        following = segment.next_base_offset
        is_wanted = to_offset is None or segment.base_offset < to_offset
        if following is None or not is_wanted or following <= (from_offset or 0):
            continue
        with OpenSegment(segment) as opened:
            # The index would be a request of its own.
            if is_object(segment.log.path) and offset_at_end(opened.source) == following:
                continue
            end = opened.next_offset()
        if end < following and (to_offset is None or end < to_offset):
            yield end, following


def offset_at_end(source: Source) -> int | None:
    """Return the offset after the last batch of a log; None if none begins in its last bytes.

    After reading a log in an object store to its end, that takes no request and no index.
    """
    start = align(source, max(0, source.size_bytes - _TAIL_SIZE))
    following = None
    for found in scan_batches(source, start):
        following = found.next_offset if isinstance(found, Batch) else following
    return following


class OpenSegment:
    """A segment whose files are opened on first use.

    Args:
        segment: the segment.
        use_index: whether offset lookups may use the offset index.
        damaged: called with the defects that reading batches passes over.
    """

    def __init__(
        self,
        segment: Segment,
        *,
        use_index: bool = True,
        damaged: Callable[[Defect], object] | None = None,
    ) -> None:
        self.segment = segment
        self.use_index = use_index
        self._damaged = damaged
        self._files = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @computed_once
    def source(self) -> Source:
        """The `.log` file. Raises `FileChangedError` if it is not the file that was listed."""
        log = self.segment.log
        source = self._files.enter_context(Source(log.path, log.end))
        is_other = 0 not in (log.inode, source.inode) and log.inode != source.inode
        # Some file systems give a file another number each time.
        if is_other and (log.size_bytes, log.modified_timestamp) != (
            source.file_bytes,
            source.modified_timestamp,
        ):
            raise FileChangedError("The file was replaced after it was listed.", path=log.path)
        return source

    @property
    def high(self) -> int | None:
        """The offset that no batch reaches; None if unknown, as after a cleaning meanwhile."""
        is_as_listed = self.source.file_bytes == self.segment.log.size_bytes
        return self.segment.next_base_offset if is_as_listed else None

    @computed_once
    def end_limit(self) -> int:
        """The offset that the last batch does not reach, whatever its header says.

        After a clean shutdown the log ends at its recovery point; no segment has offsets that do
        not fit in its indexes.
        """
        limit = self.segment.base_offset + c.INT32_MAX + 1
        with suppress(DataError):
            noted = closed_end(os.path.dirname(self.segment.log.path))
            if noted is not None and self.segment.next_base_offset is None:
                return min(noted, limit)
        return limit

    def order(
        self,
        *,
        low: int | None = None,
        end: int | None = None,
        check_crc: bool = True,
        cut_at: Callable[[int], int | None] | None = None,
    ) -> Order:
        """Return what judges the batches from `low` on, or from the segment's base offset on."""
        return Order(
            self.source,
            end,
            max(self.segment.base_offset, low or 0),
            self.high,
            end_limit=lambda: self.end_limit,
            noted_epoch=self._noted_epoch,
            is_log=self.segment.log.name.kind != FileKind.KRAFT_SNAPSHOT,
            check_crc=check_crc,
            cut_at=cut_at,
        )

    def _noted_epoch(self, offset: int) -> int | None:
        path = self.segment.log.path
        if not is_object(path):  # where it would be a request of its own
            with suppress(DataError):
                return noted_epoch(os.path.dirname(path), offset)
        return None

    @computed_once
    def offset_index(self) -> OffsetIndex | None:
        """The `.index` file, None if it is missing, unreadable or must not be used."""
        entry = self.segment.offset_index
        if entry is not None and self.use_index:
            with suppress(DataError):  # a derived file must not hide records
                return self._files.enter_context(OffsetIndex(entry.path, self.segment.base_offset))
        return None

    @computed_once
    def time_index(self) -> TimeIndex | None:
        """The `.timeindex` file, None if it is missing, unreadable or must not be used."""
        entry = self.segment.time_index
        if entry is not None and not entry.is_stale:
            with suppress(DataError):
                return self._files.enter_context(TimeIndex(entry.path, self.segment.base_offset))
        return None

    def index_entry(
        self, offset: int, probes: list[Probe[OffsetIndexEntry]] | None = None
    ) -> OffsetIndexEntry | None:
        """Return the index entry where a search for `offset` starts; None for position 0.

        An entry that does not point to a batch is not used: damage in an index must not hide
        records.
        """
        entry = self.offset_index.lookup(offset, probes) if self.offset_index else None
        if entry is None or not 0 <= entry.position < self.source.size_bytes:
            return None
        hit = read_batch(self.source, entry.position, self.source.size_bytes)
        # Entries of brokers up to 3.9.0 and 4.0.0 may name the last offset of a later batch of the
        # same append, so the batch may end before it.
        return entry if isinstance(hit, Batch) and hit.base_offset <= entry.offset else None

    def leads_to(self, number: int) -> bool:
        """Return whether an index entry points to a sound batch with offsets in order.

        The batches from the entry before it on, and the one after it, are the witnesses.
        """
        assert self.offset_index is not None, "it has the entry"
        entry = self.offset_index.entry(number)
        if checked_position(self, entry.position) is None:
            return False
        start = self.offset_index.entry(number - 1).position if number else 0
        order = self.order(check_crc=False)
        order.is_log = False  # leader epochs do not matter
        for found in order.scan(min(start, entry.position)):
            if isinstance(found, Defect) or found.header_defect or not found.is_sound:
                return False
            if found.position >= entry.position and found.last_offset > entry.offset:
                return found.position > entry.position
        return True

    def base_offset_at(self, position: int) -> int | None:
        """Return the base offset of the batch at a position; None at damage."""
        with suppress(DataError):
            found = read_batch(self.source, position, self.source.size_bytes)
            if isinstance(found, Batch):
                return resolve_batch(self.source, found).base_offset
        return None

    def start_before(self, offset: int) -> int:
        """Return where to start to read what is at `offset`: an index entry before the one below.

        A batch before the wanted one says whether that has its true offset.
        """
        below = self.index_entry(offset)
        earlier = None if below is None else self.index_entry(below.offset - 1)
        return earlier.position if earlier else 0

    def scan_from(self, offset: int) -> Iterator[Batch | Defect]:
        """Yield batches and defects from the index entry below `offset` on."""
        entry = self.index_entry(offset)
        return scan_batches(self.source, entry.position if entry else 0)

    def batches(self, start: int) -> Iterator[Batch]:
        """Yield the batches from a position on, with their true offsets; pass over defects."""
        yield from self.sound_batches(self.order(check_crc=False).scan(start))

    def sound_batches(self, scan: Iterable[Batch | Defect]) -> Iterator[Batch]:
        """Yield the sound batches of a scan, and pass over defects."""
        for found in scan:
            defects = batch_defects(found) if isinstance(found, Batch) else (found,)
            for defect in defects:
                if self._damaged is not None:
                    self._damaged(defect)
            if isinstance(found, Batch) and found.is_sound:
                yield found

    def find_batch(self, start: int, offset: int) -> Batch | None:
        """Return the batch that a fetch of `offset` returns, searched from position `start` on.

        It has the offsets of its header.
        """
        return batch_for(offset, self.sound_batches(scan_batches(self.source, start)))

    def next_offset(self) -> int:
        """Return the offset after the last batch; the base offset of an empty segment."""
        following = self.segment.base_offset
        for found in self.batches(self.start_before(self._last_indexed_offset())):
            following = found.next_offset
        return following

    def sound_end(self) -> int | None:
        """Return where a log ends if its index leads to a batch, and only batches follow; or None.

        A start takes preallocated slots for entries that lead to the first batch. A clean shutdown
        cuts them off, but it may not have been the last to write the index.
        """
        index, position = self.offset_index, 0
        if index is not None and index.entry_count:
            last = index.entry(index.entry_count - 1)
            if self.index_entry(last.offset) != last:
                return None
            # Entry 0 of a padded index: a start begins its search at the first batch then.
            if not index.is_padded:
                position = last.position
        end = self.segment.base_offset
        for found in scan_batches(self.source, position):
            if not isinstance(found, Batch):
                return None
            end = found.next_offset
        return end

    def _last_indexed_offset(self) -> int:
        """Return the offset of the last entry of the offset index, the base offset without one."""
        index = self.offset_index
        if index is None or not index.entry_count:
            return self.segment.base_offset
        return index.entry(index.entry_count - 1).offset

    def largest_timestamp(self, *, recovered: bool, end: int | None = None) -> tuple[int, int]:
        """Return the largest timestamp and its offset, (-1, base offset) if unknown.

        It is the last entry of the time index, as for a broker that loads a cleanly closed log.
        With `recovered` the batches after the index count too, as after the recovery of a log that
        was not closed. Each entry of the offset index brought the time index up to date before the
        next one was written, so only batches after the last but one can be later.

        Args:
            recovered: whether batches after the index count.
            end: a log end that was determined earlier; later appends do not count.
        """
        # Before the time index is opened, which may be newer.
        settled = self._settled_offset(end) if recovered else self.segment.base_offset
        last = self._last_entry_below(end)
        timestamp, offset = (
            (last.timestamp, last.offset) if last else (-1, self.segment.base_offset)
        )
        if recovered:
            start = settled if last else self.segment.base_offset
            for found in self.sound_batches(self.scan_from(start)):
                if end is not None and found.base_offset >= end:
                    break
                if found.max_timestamp > timestamp:
                    timestamp, offset = found.max_timestamp, found.last_offset
        return timestamp, offset

    def _settled_offset(self, end: int | None) -> int:
        """Return the offset of the second to last entry of the offset index below a log end."""
        index = self.offset_index
        if index is None or not index.entry_count:
            return self.segment.base_offset
        last = index.entry(index.entry_count - 1) if end is None else index.lookup(end - 1)
        if last is None or not last.entry:
            return self.segment.base_offset
        return index.entry(last.entry - 1).offset

    def _last_entry_below(self, end: int | None) -> TimeIndexEntry | None:
        """Return the last entry of the time index whose batch existed at a log end."""
        index = self.time_index
        if index is None:
            return None
        for number in reversed(range(index.entry_count)):
            entry = index.entry(number)
            if end is None or entry.offset < end or not self._holds(entry.offset):
                return entry  # an entry without its batch is damage, not an append
        return None

    def _holds(self, offset: int) -> bool:
        """Return whether a batch contains an offset."""
        batches = (found for found in self.scan_from(offset) if isinstance(found, Batch))
        return any(one.base_offset <= offset <= one.last_offset for one in batches)


def batch_for(offset: int, batches: Iterable[Batch]) -> Batch | None:
    """Return the batch that a fetch of an offset returns.

    Follows `FileRecords.searchForOffsetFromPosition`: only headers are read.
    """
    previous = None
    for found in batches:
        # The base offset is compared first, as since Kafka 4.1: that decides where offsets go back.
        if found.base_offset == offset and not found.is_wrapper:
            return found
        if found.last_offset >= offset and found.is_wrapper:
            return found
        if found.base_offset > offset:
            if previous and previous.last_offset >= offset:
                return previous
            return found
        previous = found
    return previous if previous and previous.last_offset >= offset else None
