"""One segment during a start: its log, its indexes, and searches in them.

Follows `LogSegment` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import constants as c
from formats import file_names
from formats.constants import ABORTED_TRANSACTION
from formats.file_names import segment_file
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.selection import resolved
from kafkalog.model import Batch, Defect, Level
from kafkalog.node.recovery.directory import Content, Directory
from kafkalog.node.recovery.indexes import IndexBuild, OffsetSlots, TimeSlots
from kafkalog.node.recovery.model import RebuildIndexes, StartConfig, StartRefusedError, TruncateLog
from kafkalog.node.recovery.walk import (
    Found,
    Frame,
    Indexing,
    Search,
    ToTheEnd,
    Walker,
    frames,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log.columns.headers import BatchColumns


class SegmentState:
    """A segment whose files are in a `Directory`, or will be.

    Args:
        directory: the files.
        config: index sizes and density.
        log: its log; None for the file of that name in the directory.
    """

    def __init__(
        self, directory: Directory, base_offset: int, config: StartConfig, log: Content | None
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        if log is None:
            log = directory.contents.get(self.name(file_names.LOG), Content(None, 0, 0, b""))
        # FileRecords keeps sizes as an int, and refuses to open a larger file.
        if log.size_bytes > c.INT32_MAX:
            raise StartRefusedError(
                "KafkaException",
                f"The size of segment {base_offset} ({log.size_bytes}) is larger than the maximum "
                f"allowed segment size of {c.INT32_MAX}",
            )
        self.log = log
        self._offset_index: OffsetSlots | None = None
        self._time_index: TimeSlots | None = None
        self._max_timestamp: tuple[int, int] | None = None
        self.end_of_batches = 0  # where the walk of `next_offset` ended
        self.has_epochs = False  # whether its last batch has a leader epoch
        self._next_offset: int | None = None  # if a scan has found it

    def name(self, suffix: str) -> str:
        return segment_file(self.base_offset, suffix)

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def offset_index(self) -> OffsetSlots:
        """The offset index, as it is on disk or as it was rebuilt."""
        if self._offset_index is None:
            self._offset_index = OffsetSlots(
                self.base_offset,
                self.directory.contents.get(self.name(file_names.OFFSET_INDEX)),
                self.config.segment_index_bytes,
            )
        return self._offset_index

    @property
    def time_index(self) -> TimeSlots:
        """The time index, as it is on disk or as it was rebuilt."""
        if self._time_index is None:
            self._time_index = TimeSlots(
                self.base_offset,
                self.directory.contents.get(self.name(file_names.TIME_INDEX)),
                self.config.segment_index_bytes,
            )
        return self._time_index

    def use_indexes(self, offsets: OffsetSlots, times: TimeSlots | None = None) -> None:
        """Use these indexes instead of those under the segment's name."""
        self._offset_index = offsets
        self._time_index = times
        self._next_offset = None

    @property
    def aborted_count(self) -> int:
        """Number of entries in the transaction index."""
        content = self.directory.contents.get(self.name(file_names.TRANSACTION_INDEX))
        return content.size_bytes // ABORTED_TRANSACTION.struct.size if content else 0

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and its offset: from a scan, else from the time index."""
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last
        return self._max_timestamp

    def fits(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= c.INT32_MAX

    def find(self, offset: int) -> Found | None:
        """Return the position at which a read of `offset` begins; None after the last batch."""
        search = Search(offset)
        self.walk(search, max(self.offset_index.position_below(offset), 0))
        found = search.end()
        return Found(found.position - self.log.start, found.base_offset) if found else None

    def frames(self) -> Iterator[Frame]:
        if self.log.path is None:
            return  # a new log has none
        with Source(self.log.path) as source:
            yield from frames(source, self.log.start, self.log.end)

    def walk(self, walker: Walker, position: int = 0, end: int | None = None) -> None:
        """Pass the batches between two positions in the log to a walker; only headers are read."""
        if self.log.path is None:
            return
        stop = self.log.end if end is None else self.log.start + end
        with Source(self.log.path) as source:
            walk(source, self.log.start + position, stop, Level.QUICK, walker)

    def next_offset(self) -> int:
        """Return the offset after the last batch, found through the index; else the base offset.

        Raises:
            StartRefusedError: a header on the way there is corrupt.
        """
        if self._next_offset is not None:
            return self._next_offset
        # LogSegment.readNextOffset begins at the last entry: one beyond the data finds no batch,
        # and the end falls back to the base offset.
        found = self.find(self.offset_index.last_offset)
        self.end_of_batches = 0
        if found is None:
            return self.base_offset
        last = ToTheEnd(self.base_offset)
        self.walk(last, found.position)
        if last.end_position is not None:
            self.end_of_batches = last.end_position - self.log.start
            self.has_epochs = last.has_epoch
        return last.next_offset

    def check_transaction_index(self) -> bool:
        """Return whether no entry is below the base offset, the only check of an index at a start.

        Raises:
            StartRefusedError: an entry has an unknown version.
        """
        content = self.directory.contents.get(self.name(file_names.TRANSACTION_INDEX))
        if content is None or content.path is None:
            return True
        with Source(content.path) as source:
            for position in range(
                0,
                content.size_bytes - ABORTED_TRANSACTION.struct.size + 1,
                ABORTED_TRANSACTION.struct.size,
            ):
                entry = source.read_exactly(position, ABORTED_TRANSACTION.struct.size)
                fields = ABORTED_TRANSACTION.struct.unpack(entry)
                self._check_version(fields[0])
                # TransactionIndex.sanityCheck: CorruptIndexException, which is caught and answered
                # by a rebuild.
                if fields[3] < self.base_offset:
                    return False
        return True

    def _check_version(self, stored: int) -> None:
        """Raise `StartRefusedError` if Kafka does not know the version of an entry."""
        if not stored:
            return
        is_whole = self.directory.release.reads_aborted_versions_whole
        version = stored if is_whole else stored >> 8
        if is_whole or version > 0:
            known = "supported version range is 0 to 0" if is_whole else "current version is 0"
            raise StartRefusedError(
                "KafkaException",
                f"Unexpected aborted transaction version {version} in transaction index "
                f"{self.name(file_names.TRANSACTION_INDEX)}, {known}",
            )

    def set_max_timestamp(self, largest: tuple[int, int]) -> None:
        """Set the largest timestamp and its offset, as a scan found them."""
        self._max_timestamp = largest

    def set_end(self, next_offset: int, position: int, *, has_epochs: bool) -> None:
        """Set where the last batch ends, as a scan found it, whose index leads there."""
        self._next_offset, self.end_of_batches, self.has_epochs = next_offset, position, has_epochs

    def build_indexes(self, why: str) -> None:
        """Write the indexes of a segment that a split created; it has no transaction index yet."""
        indexes = IndexBuild(self.base_offset, self.config)
        self.use_indexes(indexes.offsets, indexes.times)
        self.walk(Indexing(indexes, self.log.start))
        indexes.end()
        self._max_timestamp = indexes.max_timestamp
        self.write_indexes(None, why)

    def built_indexes(self) -> dict[str, bytes]:
        """Build offset and time index of the log, by suffix, as a split does."""
        indexes = IndexBuild(self.base_offset, self.config)
        self.walk(Indexing(indexes, self.log.start))
        indexes.end()
        return {
            file_names.OFFSET_INDEX: indexes.offsets.data(),
            file_names.TIME_INDEX: indexes.times.data(),
        }

    def truncate_to_base(self, reason: str) -> int:
        """Empty a segment whose offsets go back; return the number of bytes cut off."""
        found = self.find(self.base_offset)
        self.offset_index.truncate_to(self.base_offset)
        self.time_index.truncate_to(self.base_offset)
        truncated = 0
        if found is not None:
            truncated = self.size_bytes - found.position
            if truncated:
                self.truncate(found.position, self.base_offset, reason)
        self._max_timestamp = None
        self.write_indexes(b"", reason)
        return truncated

    def forget_entries(self) -> None:
        """Drop rebuilt indexes, once later segments are being processed."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.forget()

    def count_records(self, start: int) -> int:
        """Count the records in the batches from a position on."""
        if self.log.path is None:
            return 0
        with Source(self.log.path) as source:
            return count_records(source, self.log.start + start, self.log.end)

    def truncate(self, size_bytes: int, offset: int, reason: str) -> None:
        """Cut the log; it continues with the given offset."""
        self.directory.actions.append(
            TruncateLog(
                self.base_offset,
                size_bytes,
                offset,
                self.size_bytes - size_bytes,
                self.count_records(size_bytes),
                reason,
            )
        )
        self._next_offset = None
        self.log = Content(self.log.path, self.log.start, self.log.start + size_bytes)
        self.directory.contents[self.name(file_names.LOG)] = self.log

    def write_indexes(self, aborted: bytes | None, why: str) -> None:
        """Rewrite all indexes.

        The transaction index is created with its first entry, and emptied if it exists. With None
        it is left alone.
        """
        assert self._offset_index, "made by who calls"
        assert self._time_index, "made by who calls"
        new = {
            file_names.OFFSET_INDEX: self._offset_index.data(),
            file_names.TIME_INDEX: self._time_index.data(),
        }
        is_there = self.name(file_names.TRANSACTION_INDEX) in self.directory
        if aborted or (aborted is not None and is_there):
            new[file_names.TRANSACTION_INDEX] = aborted
        changed = tuple(
            self.name(suffix)
            for suffix, data in new.items()
            if not _is_same(self.directory.contents.get(self.name(suffix)), data)
        )
        are_there = all(name in self.directory for name in changed)
        self.directory.actions.append(
            RebuildIndexes(
                self.base_offset,
                self._offset_index.entry_count,
                self._time_index.entry_count,
                len(aborted or b"") // ABORTED_TRANSACTION.struct.size,
                changed,
                why,
                routine=self.directory.is_metadata and are_there,
            )
        )
        for suffix, data in new.items():
            self.directory.make(self.name(suffix), data)


def _is_same(content: Content | None, data: bytes) -> bool:
    """Return whether a file holds these entries, followed only by preallocated zeros."""
    if content is None or content.size_bytes < len(data):
        return False
    if content.path is None:
        return content.size_bytes == len(data)
    with Source(content.path) as source:
        return source.read(0, len(data)) == data and source.is_zero_from(len(data))


def count_records(source: Source, position: int, end: int) -> int:
    """Count the records in the batches that begin between two positions, by their headers.

    Compressed messages of magic 0 and 1 do not say how many there are in them: they are decoded.
    """
    if not fast_path.is_worth_it(end - position):
        found = scan_batches(source, position, end)
        return sum(max(resolved(source, one).records, 0) for one in found if isinstance(one, Batch))
    from kafkalog.log.columns.headers import batch_columns

    read = batch_columns(source, Level.QUICK, position=position, end=end)
    return sum(count_of(source, one) for one in read if not isinstance(one, Defect))


def count_of(source: Source, columns: BatchColumns) -> int:
    """Count the records in some batches of a log, as `count_records` does."""
    from kafkalog.log.columns import header_table as h
    from kafkalog.log.columns.chunks import is_wrapper
    from kafkalog.log.columns.headers import batch_columns

    if not is_wrapper(columns.headers).any():
        return int(columns.headers[h.COUNT].clip(0).sum())
    start = int(columns.headers[h.POSITION, 0])
    count = 0
    for one in batch_columns(source, Level.DEEP, position=start, end=start + columns.size_bytes):
        if isinstance(one, Defect):
            continue
        counts = one.headers[h.COUNT].clip(0)
        if one.facts is not None:  # of one that cannot be decoded, nothing else is known
            decoded = is_wrapper(one.headers) & (one.facts[h.FOUND] > 0)
            counts[decoded] = one.facts[h.FOUND, decoded]
        count += int(counts.sum())
    return count
