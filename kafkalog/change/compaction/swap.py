"""A new segment: written next to the old ones as `.cleaned`, read back, and swapped in.

Follows `Cleaner.cleanSegments`, `LogSegment.append` and `LogSegment.onBecomeInactiveSegment` of
Kafka.

Follows `LocalLog.replaceSegments` of Kafka, whose loader completes or undoes an interrupted
swap. Kafka trusts the file system to keep the order of renames; here the directory is synced
wherever that order matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from formats import constants as c
from formats import file_names
from formats.constants import RECORD_BATCH_HEADER
from formats.file_names import FileKind, segment_file
from formats.late_classes import dataclass
from kafkalog.errors import CorruptDataError
from kafkalog.files.indexes import aborted_transaction_bytes
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.io.paths.source import Source
from kafkalog.io.storage import Changes, written
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.headers import BatchColumns, batch_columns
from kafkalog.model import AbortedTransaction, Level
from kafkalog.node.recovery import StartConfig
from kafkalog.node.recovery.indexes import IndexBuild
from kafkalog.node.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.change.compaction.model import CompactionConfig, Tally
    from kafkalog.files.log_dir import PartitionDir, Segment


_INDEXED = RECORD_BATCH_HEADER.part(
    "base_offset", "batch_length", "last_offset_delta", "max_timestamp"
)
_BATCHES_AT_ONCE = 1 << 12
_FEW_BYTES = 1 << 16  # up to this size, batches are processed one by one


class NewSegment:
    """Builds the indexes of a log of magic 2 while batches are appended to it.

    Args:
        index_interval_bytes: `index.interval.bytes` of the topic.
    """

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.size_bytes = 0
        self.next_offset = base_offset
        # Grouping already limits the indexes, so there is no limit here.
        self._build = IndexBuild(base_offset, StartConfig(index_interval_bytes, c.INT32_MAX))

    @property
    def offset_index(self) -> bytes:
        return self._build.offsets.data()

    @property
    def time_index(self) -> bytes:
        return self._build.times.data()

    def extend(self, batches: bytes | memoryview) -> None:
        """Append whole consecutive batches."""
        at = 0
        if len(batches) > _FEW_BYTES and kernels_work():
            at = self._extend_columns(batches)
        while at < len(batches):
            at += self._append(batches, at)

    def _extend_columns(self, batches: bytes | memoryview) -> int:
        """Do what `_append` does for each batch, up to one that must be appended by itself."""
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
        """Append the batch at a position of some bytes; return its size."""
        base_offset, length, delta, timestamp = _INDEXED.unpack_from(data, at)
        size: int = c.LOG_OVERHEAD + length
        last_offset = base_offset + delta
        self.next_offset = last_offset + 1
        self._build.batch(timestamp, last_offset, self.size_bytes)
        self.size_bytes += size
        return size

    def close(self) -> None:
        """Add the last entry of the time index, after the last batch."""
        self._build.end()


class Cleaning(Protocol):
    """A pass over a log: `cleaning.Pass`, or its twin on the kernels."""

    tally: Tally
    config: CompactionConfig
    end_offset: int

    @property
    def keys(self) -> int:
        """Number of keys in the map."""

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The entries of the transaction index of the last cleaned group."""

    def groups(self) -> list[list[Segment]]:
        """Return the groups of segments."""

    def clean(self, group: Sequence[Segment]) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a group's new segment, whole batches at a time."""


SUFFIXES: Final = (file_names.LOG, *file_names.INDEXES)


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The required contents of a new segment's files.

    Attributes:
        next_offset: the offset after its last batch; the base offset if it has none.
        next_base_offset: base offset of the next segment, which its offsets stay below.
        indexes: suffix to bytes of `.index`, `.timeindex` and, if it has entries, `.txnindex`.
    """

    base_offset: int
    next_offset: int
    next_base_offset: int
    size_bytes: int
    records: int
    indexes: dict[str, bytes]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of all its files, in the order in which Kafka renames them."""
        return (file_names.LOG, *self.indexes)


def clean_group(
    cleaning: Cleaning,
    group: Sequence[Segment],
    changes: Changes | None,
    at_end: Callable[[str], object] | None = None,
) -> NewFiles:
    """Make the new segment of a group; groups must come in order.

    Args:
        group: consecutive segments, none of them active.
        changes: changes to the partition directory, where the files are written as `.cleaned` and
            synced, with owner and permissions of the first source and the time of the last; if
            None, only compute their contents. A failure leaves none of them.
        at_end: called with the path of the log once it is written, before it is synced.

    Raises:
        UnwritableError: they cannot be written.

    Cost:
        A piece of the log at a time, and the indexes.
    """
    first, last = group[0], group[-1]
    assert last.next_base_offset is not None, "the active segment is not cleaned"
    segment = NewSegment(first.base_offset, cleaning.config.index_interval_bytes)
    kept = cleaning.tally.kept_records
    if changes is None:
        for piece in cleaning.clean(group):
            segment.extend(memoryview(piece))
    else:
        name = segment_file(first.base_offset, file_names.LOG) + file_names.CLEANED
        with changes.create(
            name, like=first.log.path, modified_timestamp=last.log.modified_timestamp
        ) as log:
            for data in written(log, cleaning.clean(group)):
                segment.extend(data)
            log.flush()
            if at_end is not None:
                # Before the sync, which takes long: reading back goes on meanwhile.
                at_end(changes.path(name))
    segment.close()
    indexes = {
        file_names.OFFSET_INDEX: segment.offset_index,
        file_names.TIME_INDEX: segment.time_index,
    }
    # A `.txnindex` exists only with entries: TransactionIndex makes the file with the first one.
    if cleaning.aborted:
        indexes[file_names.TRANSACTION_INDEX] = b"".join(
            map(aborted_transaction_bytes, cleaning.aborted)
        )
    files = NewFiles(
        first.base_offset,
        segment.next_offset,
        last.next_base_offset,
        segment.size_bytes,
        cleaning.tally.kept_records - kept,
        indexes,
    )
    if changes is not None:
        _write_indexes(files, group, changes)
    return files


def _write_indexes(files: NewFiles, group: Sequence[Segment], changes: Changes) -> None:
    try:
        for suffix, data in files.indexes.items():
            name = segment_file(files.base_offset, suffix) + file_names.CLEANED
            # As LogSegment.setLastModified: log, index and time index get the time of the last
            # source, by which logs without timestamps are judged; the transaction index does not.
            modified_timestamp = (
                None if suffix == file_names.TRANSACTION_INDEX else group[-1].log.modified_timestamp
            )
            with changes.create(
                name, like=group[0].log.path, modified_timestamp=modified_timestamp
            ) as index:
                index.write(data)
    except BaseException:  # not even Ctrl-C leaves `.cleaned` files behind
        discard(files, changes)
        raise


def discard(files: NewFiles, changes: Changes) -> None:
    """Remove the new segment's `.cleaned` files."""
    for suffix in files.suffixes:
        changes.remove(
            segment_file(files.base_offset, suffix) + file_names.CLEANED, missing_ok=True
        )


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What the log of a new segment holds; its attributes are those of `NewFiles`."""

    next_offset: int
    size_bytes: int
    records: int
    indexes: dict[str, bytes]


def read_back(path: str, base_offset: int, config: CompactionConfig) -> ReadBack:
    """Read the log of a new segment: every checksum, its offsets and records.

    Its indexes are rebuilt from it, by the code that predicts a broker's recovery.

    Raises:
        CorruptDataError: a batch is wrong.
    """
    # Grouping already limits the indexes.
    build = IndexBuild(base_offset, StartConfig(config.index_interval_bytes, c.INT32_MAX))
    records, end, next_offset = 0, 0, base_offset
    with Source(path) as source:
        for found in batch_columns(source, Level.STANDARD):
            if not isinstance(found, BatchColumns):
                raise _wrong(found.detail, path)
            headers = found.headers
            firsts, lasts = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
            floor = np.concatenate(([next_offset], lasts[:-1] + 1))
            if not (found.crc_valid.all() and (firsts >= floor).all() and (lasts >= firsts).all()):
                raise _wrong("A checksum or an offset of a batch is wrong.", path)
            try:
                is_plain = build.columns(headers[h.MAX_TIMESTAMP], lasts, headers[h.POSITION])
            except StartRefusedError as error:
                raise _wrong(error.message, path) from error
            if not is_plain:
                raise _wrong("Its offsets do not fit into an index.", path)
            records += int(headers[h.COUNT].sum())
            end, next_offset = end + found.size_bytes, int(lasts[-1]) + 1
    build.end()
    made = {
        file_names.OFFSET_INDEX: build.offsets.data(),
        file_names.TIME_INDEX: build.times.data(),
    }
    return ReadBack(next_offset, end, records, made)


def check_new_files(files: NewFiles, found: ReadBack, changes: Changes) -> None:
    """Compare a new segment with what was intended, and read its indexes.

    Raises:
        CorruptDataError: it differs.
    """
    if (found.size_bytes, found.records) != (files.size_bytes, files.records) or (
        not found.next_offset == files.next_offset <= files.next_base_offset
    ):
        path = changes.path(segment_file(files.base_offset, file_names.LOG) + file_names.CLEANED)
        raise _wrong("The log does not hold the records that were written.", path)
    for suffix, data in files.indexes.items():
        name = changes.path(segment_file(files.base_offset, suffix) + file_names.CLEANED)
        with Source(name) as source:
            stored = source.read(0, source.size_bytes)
        if stored != data or found.indexes.get(suffix, data) != data:
            raise _wrong("The index is not that of this log.", name)


def _wrong(what: str, path: str) -> CorruptDataError:
    return CorruptDataError(
        f"The written data reads back differently: {what}",
        path=path,
        note="The old segments are untouched.",
        hint="Check the disk.",
    )


def touched_names(partition: PartitionDir, end_offset: int) -> list[str]:
    """Return the names of the files that a compaction below an offset replaces or removes."""
    segments = [one for one in partition.segments if one.base_offset < end_offset]
    names = [name for segment in segments for name in _names(segment)]
    return names + _snapshots(partition, [one.base_offset for one in segments[1:]])


def swap_in(
    files: NewFiles, group: Sequence[Segment], partition: PartitionDir, changes: Changes
) -> None:
    """Replace a group by a new segment, complete as `.cleaned` and synced.

    On disk after a crash, once Kafka's loader (or `recover`) has run:

    - before all of `.cleaned` is `.swap`: the old segments; the new files are dropped;
    - before the new log has its name: the new segment, from the `.swap` files; remaining old
    segments
      are dropped, or stay if the new log ends before them, and are cleaned again;
    - afterwards: the new segment; the rest of the `.swap` files get their names;
    - at the end `.deleted` files and snapshots that belong to no segment are dropped.

    The log is renamed first, alone: an index under its final name next to a `.log.swap` would be
    taken for one of an old segment and dropped, and nobody would notice a missing `.txnindex`.

    Raises:
        UnwritableError: a step failed; a start completes or undoes the swap.
    """
    try:
        # The names of the `.cleaned` files: without them a later rename could survive a crash
        # alone.
        changes.sync_directory()
    except BaseException:  # not even Ctrl-C leaves `.cleaned` files behind
        discard(files, changes)
        raise
    # Log first, then indexes: a loader that finds any `.cleaned` file drops all `.swap` files from
    # its offset on (LogLoader.removeTempFilesAndCollectSwapFiles), so a half renamed segment is
    # undone.
    for suffix in files.suffixes:
        name = segment_file(files.base_offset, suffix)
        changes.rename(name + file_names.CLEANED, name + file_names.SWAP)
    # All `.swap` before any old file goes: from here on a loader completes the swap.
    changes.sync_directory()
    # Not removed: should a step fail now, everything is still there, under another suffix.
    _retire(files, group, changes)
    for number, suffix in enumerate(files.suffixes):
        name = segment_file(files.base_offset, suffix)
        changes.rename(name + file_names.SWAP, name)
        if number == 0:
            changes.sync_directory()
    changes.sync_directory()
    # A broker waits file.delete.delay.ms for readers that have the files open; here nobody reads.
    for name in [name for segment in group for name in _names(segment)]:
        changes.remove(name + file_names.DELETED)
    # As UnifiedLog.replaceSegments: a snapshot whose segment is gone is a stray for the next start.
    for name in _snapshots(partition, [segment.base_offset for segment in group[1:]]):
        changes.remove(name, missing_ok=True)
    changes.sync_directory()


def _retire(files: NewFiles, group: Sequence[Segment], changes: Changes) -> None:
    """Rename old files to `.deleted`; logs first, so that no log remains without its `.txnindex`.

    If the new log ends before an old one, a loader revives the old one. Then those before it must
    stay gone, or a value could come back whose tombstone is gone: so the directory is synced after
    each.
    """
    for segment in group:
        changes.rename(segment.log.name.name, segment.log.name.name + file_names.DELETED)
        if segment.base_offset >= files.next_offset:
            changes.sync_directory()
    changes.sync_directory()
    for segment in group:
        for name in _names(segment):
            if name != segment.log.name.name:
                # After the logs: an index without a log is removed as an orphan
                # (LogLoader.loadSegmentFiles).
                changes.rename(name, name + file_names.DELETED)
    changes.sync_directory()


def _names(segment: Segment) -> Iterator[str]:
    files = (segment.log, segment.offset_index, segment.time_index, segment.transaction_index)
    return (entry.name.name for entry in files if entry is not None)


def _snapshots(partition: PartitionDir, bases: Sequence[int]) -> list[str]:
    """Return the producer snapshots at these offsets, except the newest, which a start uses."""
    found = partition.live(FileKind.PRODUCER_SNAPSHOT)
    # The newest one is what a start loads: without any, a clean start forgets all producers and
    # open transactions (ProducerStateManager, UnifiedLog.rebuildProducerState).
    return [entry.name.name for entry in found[:-1] if entry.name.offset in bases]
