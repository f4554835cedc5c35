"""Copies one log batch by batch past its damage, while it is judged, and its leader epochs.

Which files are the log follows `LogLoader` of Kafka in what an interrupted swap means. Bytes
are copied while they are still in memory from being judged: a disk reads them once.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from formats import constants as c
from formats.file_names import (
    FileKind,
    FileState,
    copied_by_rsync,
    partition_of,
    segment_file_name,
)
from kafkalog.change.rescue.model import CopiedRange, LostRange, Row, SalvagedSegment
from kafkalog.change.rescue.pieces import (
    BASE_OFFSET,
    EPOCH,
    FIELDS,
    IS_CORRECTED,
    IS_SOUND,
    IS_WRAPPER,
    LAST_OFFSET,
    MAGIC,
    POSITION,
    RECORDS,
    SIZE,
    Bounds,
    decided_pieces,
)
from kafkalog.errors import BytesUnreadableError, UsageError
from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.codecs import crc32c
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import UP_TO_MAGIC, find_batch, read_batch
from kafkalog.log.batches.order import put_header
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.model import Batch, EpochEntry
from kafkalog.node.recovery import RemoveFile, RenameFile, StartMode, predict_start
from kafkalog.tables.merging import After

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.change.rescue.pieces import Decided, Table
    from kafkalog.files.log_dir import Target
    from kafkalog.io.storage import NewDirectory
    from kafkalog.tables.merging import Copies


@dataclass(frozen=True, slots=True)
class SourceLog:
    """A log file, and the base offset of its segment; `end` cuts it off there."""

    path: str
    base_offset: int
    size_bytes: int
    end: int | None = None


def partitions_of(target: Target) -> tuple[PartitionDir, ...]:
    """Return the partitions of a target; a single log counts as a partition of one segment.

    Raises:
        UsageError: it is a file, but not a log.
    """
    if isinstance(target, PartitionDir):
        return (target,)
    if isinstance(target, LogDirListing):
        return target.partitions
    if target.name.kind != FileKind.LOG:
        raise UsageError(
            "Only logs are salvaged; all other files are rebuilt from them.",
            path=target.path,
            hint="Give a log directory, a partition directory or a .log file.",
        )
    directory = os.path.dirname(os.path.abspath(target.path))
    return (PartitionDir(directory, partition_of(directory), (target,)),)


def log_dir_of(target: Target) -> str:
    """Return the log directory that a target is, or would be in."""
    path = os.path.realpath(target.path)
    depth = 0 if isinstance(target, LogDirListing) else 1 if isinstance(target, PartitionDir) else 2
    for _ in range(depth):
        path = os.path.dirname(path)
    return path


def logs_of(partition: PartitionDir) -> list[SourceLog]:
    """Return the logs of a partition by base offset.

    After an interrupted swap, these are the logs that a broker's start would find once the swap is
    completed; if there are none, the `.deleted` logs, else the `.cleaned` ones. A single file
    counts regardless of its suffix. Where a log is missing that rsync did not finish, this is what
    rsync has copied of it.
    """
    logs = [entry for entry in partition.files if entry.name.kind == FileKind.LOG]
    # A log that was named by itself is its partition's only file: nothing beside it says what to
    # do.
    if len(partition.files) > 1:
        found = {entry.name.name: entry for entry in logs if entry.name.state == FileState.LIVE}
        swaps = {entry.name.name: entry for entry in logs if entry.name.state == FileState.SWAP}
        if swaps:
            for action in predict_start(partition, StartMode.CLEAN).actions:
                if isinstance(action, RemoveFile):
                    found.pop(action.name, None)
                elif isinstance(action, RenameFile) and action.name in swaps:
                    found[action.new_name] = swaps[action.name]
        # `.deleted` first: they hold all records; `.cleaned` ones are of an unfinished cleaning.
        for state in (FileState.DELETED, FileState.CLEANED):
            if not found:
                found = {one.name.name: one for one in logs if one.name.state == state}
        logs = list(found.values())
    listed = [SourceLog(log.path, log.name.offset or 0, log.size_bytes, log.end) for log in logs]
    known = {log.base_offset for log in listed}
    for entry in partition.files:
        copied = copied_by_rsync(entry.name.name)
        if copied is None or (copied.kind, copied.state) != (FileKind.LOG, FileState.LIVE):
            continue
        if copied.offset not in known and entry.error is None:
            known.add(copied.offset or 0)
            listed.append(SourceLog(entry.path, copied.offset or 0, entry.size_bytes))
    return sorted(listed, key=lambda log: log.base_offset)


def next_epoch(following: Sequence[SourceLog]) -> int | None:
    """Return the leader epoch of the first sound batch in some logs; None without a sound batch.

    Cost:
        A few kilobytes, and the logs up to there if they begin with damage.
    """
    for log in following:
        with Source(log.path, log.end) as source:
            position = find_batch(source, 0, source.size_bytes)
            found = read_batch(source, position, source.size_bytes)
        if isinstance(found, Batch):
            return found.leader_epoch if found.leader_epoch >= 0 else None
    return None


class EpochsInLog:
    """The start of each leader epoch in the copied batches, in log order."""

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._first: list[int] = []
        self._last: list[int] = []

    def add(self, pieces: Table) -> None:
        """Add some batches; an epoch that goes back, between segments, is ignored."""
        # -1 is none: messages of magic 0 and 1 have no epoch.
        dated = pieces[:, pieces[EPOCH] >= 0]
        if not dated.shape[1]:
            return
        epochs = dated[EPOCH]
        starts = np.flatnonzero(np.diff(epochs, prepend=-1))
        ends = np.append(starts[1:], len(epochs)) - 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            epoch, last = int(epochs[start]), int(dated[LAST_OFFSET, end])
            if not self._epochs or epoch > self._epochs[-1]:
                self._epochs.append(epoch)
                self._first.append(int(dated[BASE_OFFSET, start]))
                self._last.append(last)
            elif epoch == self._epochs[-1]:
                self._last[-1] = last

    def entries(self, known: Sequence[EpochEntry]) -> list[EpochEntry]:
        """Return the entries of the new file: old entries that no batch contradicts are kept.

        An epoch may begin before its first batch, or have no batch. If the old entries do not
        increase, none of them counts.
        """
        starts = dict(zip(self._epochs, self._first, strict=True))
        rising = all(
            one.leader_epoch < other.leader_epoch and one.start_offset < other.start_offset
            for one, other in itertools.pairwise(known)
        )
        for entry in known if rising else ():
            if self._fits(entry):
                starts[entry.leader_epoch] = entry.start_offset
        return [EpochEntry(epoch, starts[epoch]) for epoch in sorted(starts)]

    def _fits(self, entry: EpochEntry) -> bool:
        at = bisect_left(self._epochs, entry.leader_epoch)
        is_behind = at == 0 or self._last[at - 1] < entry.start_offset
        is_before = at == len(self._epochs) or entry.start_offset <= self._first[at]
        return entry.leader_epoch >= 0 and entry.start_offset >= 0 and is_behind and is_before


_CHUNK: Final = 1 << 20
_BLOCK: Final = 1 << 12  # the unit in which a disk returns bytes or fails


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of a partition go, relative to the new directory."""

    log: str
    lost: str
    topic: str
    partition: int | None


class LogCopy:
    """Judges and copies one log.

    Args:
        bounds: what is known about its batches.
        end_offset: offset after its last batch by other evidence; None without any.
        place: where the result goes.
        directory: the new directory; if None, nothing is written.
        tell: called with each range, in file order.
        progress: called with the number of bytes done since the last call.
        copies: of the partition, which lend what is lost here.
    """

    def __init__(
        self,
        log: SourceLog,
        bounds: Bounds,
        end_offset: int | None,
        place: Place,
        directory: NewDirectory | None,
        tell: Callable[[Row], None],
        progress: Callable[[int], None],
        copies: Copies | None = None,
    ) -> None:
        self._log = log
        self._copies = copies
        self._filled = 0
        self._bounds = bounds
        self._end_offset = end_offset
        self._place = place
        self._directory = directory
        self._tell = tell
        self._progress = progress
        self._crc = self._crc_copied = 0
        self._copied: CopiedRange | None = None
        self._lost: LostRange | None = None
        self._next_offset = log.base_offset
        self._written = self._batches = self._records = 0
        self._ends_in_loss = False
        self._is_whole = True  # every byte could be read

    @property
    def next_offset(self) -> int:
        """The offset after the last batch that was copied; the base offset without one."""
        return self._next_offset

    @property
    def ends_in_loss(self) -> bool:
        """Whether anything but padding is lost after the last batch that was copied."""
        return self._ends_in_loss

    def run(self, epochs: EpochsInLog) -> SalvagedSegment:
        """Copy the log; `epochs` receives the batches.

        Raises:
            UnreadableError: the log cannot be read.
            UnwritableError: the copy cannot be written.
        """
        name = segment_file_name(self._log.base_offset, FileKind.LOG)
        target = f"{self._place.log}/{name}"
        with Source(self._log.path, self._log.end) as source, ExitStack() as files:
            out = None
            if self._directory is not None:
                # With its time: a broker judges a log without timestamps by it
                # (LogSegment.largestTimestamp).
                out = files.enter_context(self._directory.create(target, source.modified_timestamp))
            for decided in decided_pieces(source, self._bounds):
                for pieces in _runs(decided.table):
                    if pieces[IS_SOUND, 0]:
                        base = int(pieces[BASE_OFFSET, 0])
                        self._end_lost(source, base, self._fill(base, out, epochs))
                        self._keep(source, pieces, out)
                        epochs.add(pieces)
                    else:
                        self._lose(source, pieces, decided)
                    self._progress(_size_of(pieces))
            self._end_copied()
            after = After(self._log.path, source.size_bytes) if self._lost is None else None
            missing = self._fill(self._end_offset, out, epochs, after)
            self._ends_in_loss = self._end_lost(source, self._end_offset, missing) and missing != []
            size = source.size_bytes
        return SalvagedSegment(
            path=self._log.path,
            target=target,
            topic=self._place.topic,
            partition=self._place.partition,
            base_offset=self._log.base_offset,
            size_bytes=size,
            copied_bytes=self._written - self._filled,
            lost_bytes=size - self._written + self._filled,
            from_copies_bytes=self._filled,
            batches=self._batches,
            records=self._records,
            # With zeros in place of unreadable bytes it would not be that of the file.
            crc=None if self._directory is None or not self._is_whole else self._crc,
            crc_copied=None if self._directory is None else self._crc_copied,
        )

    def _fill(
        self, end: int | None, out: BinaryIO | None, epochs: EpochsInLog, after: After | None = None
    ) -> list[tuple[int, int]] | None:
        """Take offsets up to another one from copies, if something is lost or `after` is given.

        Returns:
            Those that no copy has; None if none was asked.
        """
        if self._copies is None or end is None or end <= self._next_offset:
            return None
        if self._lost is None and after is None:  # the cleaner made this hole
            return None
        self._end_copied()
        pieces, _ = self._copies.fill(self._next_offset, end, after)
        missing = []
        for piece in pieces:
            with OpenSegment(piece.segment) as opened:
                for batch in piece.batches(opened):
                    if batch.last_offset >= end or batch.base_offset < self._next_offset:
                        continue
                    if batch.base_offset > self._next_offset:
                        missing.append((self._next_offset, batch.base_offset))
                    self._borrow(opened.source, batch, out)
                    epochs.add(_table_of(batch))
        return missing + ([(self._next_offset, end)] if self._next_offset < end else [])

    def _borrow(self, source: Source, batch: Batch, out: BinaryIO | None) -> None:
        """Copy a batch of another log."""
        corrected, header = None, b""
        if batch.header_defect is not None:
            corrected, header = _corrected(
                source, batch.position, batch.base_offset, batch.size_bytes,
                batch.leader_epoch, batch.magic,
            )  # fmt: skip
        self._tell(
            CopiedRange(
                source.path, batch.position, batch.size_bytes, self._written, batch.base_offset,
                batch.last_offset, 1, batch.records, corrected,
            )
        )  # fmt: skip
        if out is not None:
            for chunk in _chunks(source, batch.position, batch.size_bytes):
                chunk[: len(header)], header = header, b""
                out.write(chunk)
                self._crc_copied = crc32c(chunk, self._crc_copied)
        self._written += batch.size_bytes
        self._filled += batch.size_bytes
        self._batches += 1
        self._records += batch.records
        self._next_offset = batch.last_offset + 1

    def _keep(self, source: Source, pieces: Table, out: BinaryIO | None) -> None:
        corrected, header, first = None, b"", int(pieces[BASE_OFFSET, 0])
        position, size = int(pieces[POSITION, 0]), _size_of(pieces)
        if pieces[IS_CORRECTED, 0]:
            self._end_copied()
            offset = int(pieces[LAST_OFFSET if pieces[IS_WRAPPER, 0] else BASE_OFFSET, 0])
            epoch, magic = pieces[[EPOCH, MAGIC], 0].tolist()
            corrected, header = _corrected(source, position, offset, size, epoch, magic)
        count, records = pieces.shape[1], int(pieces[RECORDS].sum())
        last_offset = int(pieces[LAST_OFFSET, -1])
        if self._copied is None:
            self._copied = CopiedRange(
                self._log.path, position, size, self._written, first, last_offset, count, records,
                corrected,
            )  # fmt: skip
        else:
            before = self._copied
            self._copied = replace(
                before,
                size_bytes=before.size_bytes + size,
                last_offset=last_offset,
                batches=before.batches + count,
                records=before.records + records,
            )
        if out is not None:
            for chunk in _chunks(source, position, size):
                self._crc = crc32c(chunk, self._crc)
                chunk[: len(header)], header = header, b""
                out.write(chunk)
                # Of the bytes as they were read, so that `check_copies` finds what the disk made of
                # them.
                self._crc_copied = crc32c(chunk, self._crc_copied)
        if corrected is not None:
            self._end_copied()
        self._written += size
        self._batches += count
        self._records += records
        self._next_offset = last_offset + 1

    def _lose(self, source: Source, pieces: Table, decided: Decided) -> None:
        self._end_copied()
        if self._lost is None:
            position = int(pieces[POSITION, 0])
            first = decided.wrong[position]
            self._lost = LostRange(
                source.path, position, 0, None, first.reference, first.detail, 0, None, None
            )
        self._lost = replace(
            self._lost,
            size_bytes=self._lost.size_bytes + _size_of(pieces),
            defects=self._lost.defects + pieces.shape[1],
        )

    def _end_copied(self) -> None:
        if self._copied is not None:
            self._tell(self._copied)
        self._copied = None

    def _end_lost(
        self, source: Source, next_offset: int | None, missing: list[tuple[int, int]] | None
    ) -> bool:
        """Report the lost range that ends here; return whether it held more than padding."""
        lost, self._lost = self._lost, None
        if lost is None:
            return False
        first, last = self._next_offset, None if next_offset is None else next_offset - 1
        if missing:
            first, last = missing[0][0], missing[-1][1] - 1
        is_empty = last is not None and last < first
        has_zeros = False
        # What cannot be read is not known to be zero.
        with suppress(BytesUnreadableError):
            has_zeros = source.is_zero_from(lost.position)
        if has_zeros and next_offset is None:
            is_empty = True  # preallocated: nothing indicates a later batch
        name = f"{self._place.lost}/{self._log.base_offset:020d}-{lost.position}-{lost.size_bytes}"
        lost = replace(
            lost,
            file=None if has_zeros else f"{name}.bin",
            first_offset=None if is_empty else first,
            last_offset=None if is_empty else last,
            in_copies=missing == [],
        )
        if self._directory is not None:
            if lost.file is None:
                self._add_zeros(lost.size_bytes)
            else:
                with self._directory.create(lost.file) as out:
                    for chunk in self._around(source, lost.position, lost.size_bytes):
                        out.write(chunk)
                        self._crc = crc32c(chunk, self._crc)
        self._tell(lost)
        return not lost.is_padding

    def _around(self, source: Source, position: int, size_bytes: int) -> Iterator[bytes]:
        """Yield the bytes of a range, with zeros in place of unreadable bytes."""
        end, step = position + size_bytes, _CHUNK
        while position < end:
            size, rest = min(step, end - position), _BLOCK - position % _BLOCK
            try:
                chunk = source.read_exactly(position, size)
                step = min(2 * step, _CHUNK)
            except BytesUnreadableError:
                if size > rest:
                    # In quarters down to a single block: as much as possible around a bad sector is
                    # kept.
                    step = max(size // 4, rest)
                    continue
                self._is_whole = False
                chunk = bytes(min(source.next_readable(position), end) - position)
            yield chunk
            position += len(chunk)

    def _add_zeros(self, size_bytes: int) -> None:
        """Extend the checksum over zeros, which are not read from holes."""
        zeros = bytes(min(_CHUNK, size_bytes))
        for position in range(0, size_bytes, _CHUNK):
            self._crc = crc32c(memoryview(zeros)[: size_bytes - position], self._crc)


def file_checksum(path: str) -> int:
    """Return the CRC-32C of a whole file. Raises as `Source`."""
    checksum = 0
    with Source(path) as source:
        for chunk in _chunks(source, 0, source.size_bytes):
            checksum = crc32c(chunk, checksum)
    return checksum


def copy_file(path: str, directory: NewDirectory, name: str, end: int | None = None) -> None:
    """Copy a file, up to a position, into the new directory. Raises as `Source` and
    `NewDirectory.create`.
    """
    with Source(path, end) as source, directory.create(name) as out:
        for chunk in _chunks(source, 0, source.size_bytes):
            out.write(chunk)


def _chunks(source: Source, position: int, size_bytes: int) -> Iterator[memoryview]:
    """Yield the bytes of a range; each chunk must be used before the next is requested."""
    buffer = memoryview(bytearray(min(_CHUNK, size_bytes)))
    end = position + size_bytes
    while position < end:
        chunk = buffer[: end - position]
        source.read_into(position, chunk)
        yield chunk
        position += len(chunk)


def _runs(table: Table) -> list[Table]:
    """Group consecutive pieces with the same verdict; what is corrected stays alone."""
    corrected = table[IS_CORRECTED] != 0
    stops = np.flatnonzero((np.diff(table[IS_SOUND]) != 0) | corrected[1:] | corrected[:-1]) + 1
    return np.split(table, stops, axis=1)


_FIELDS: Final = ("base offset", "length", "leader epoch", "magic")


def _corrected(
    source: Source, position: int, offset: int, size_bytes: int, epoch: int, magic: int
) -> tuple[str, bytes]:
    """Return what is wrong in the header of a batch, and how it should begin."""
    stored = source.read(position, c.HEADER_SIZE_UP_TO_MAGIC)
    header = bytearray(stored)
    put_header(header, offset, size_bytes, epoch, magic)
    pairs = zip(_FIELDS, UP_TO_MAGIC.unpack(stored), UP_TO_MAGIC.unpack(header), strict=True)
    words = [f"{name} {wrong}: {right} is right" for name, wrong, right in pairs if wrong != right]
    return ", ".join(words), bytes(header)


def _table_of(batch: Batch) -> Table:
    table = np.zeros((FIELDS, 1), np.int64)
    for field, value in (
        (BASE_OFFSET, batch.base_offset),
        (LAST_OFFSET, batch.last_offset),
        (EPOCH, batch.leader_epoch),
    ):
        table[field] = value
    return table


def _size_of(pieces: Table) -> int:
    return int(pieces[POSITION, -1] + pieces[SIZE, -1] - pieces[POSITION, 0])
