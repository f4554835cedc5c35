"""The scan that recovers one segment: it ends at the first defect.

Follows `LogSegment.recover` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from formats.constants import INT32_MAX, INT64_MAX
from kafkalog.io.paths.source import Source
from kafkalog.model import Level
from kafkalog.node.recovery.indexes import AbortedList, IndexBuild
from kafkalog.node.recovery.model import INCOMPLETE, StartRefusedError
from kafkalog.node.recovery.producer_replay import AppendsOneByOne, StoppedError, readable_markers
from kafkalog.node.recovery.walk import CorruptRecordError, Frame, Walker, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.node.recovery.producers import LeaderEpochs, ProducerStates
    from kafkalog.node.recovery.segment_state import SegmentState


# How far a scan goes ahead of a reader: columns are worth it for many batches only.
_STEP_MIN: Final = 1 << 15
_STEP_MAX: Final = 1 << 26


class OffsetOverflowError(Exception):
    """A batch does not fit into its segment: Kafka splits the segment and starts again.

    `aborted` holds the transaction index entries up to that point.
    """

    def __init__(self, segment: SegmentState, aborted: bytes) -> None:
        super().__init__(segment.base_offset)
        self.segment = segment
        self.aborted = aborted


class SegmentRecovery(Walker):
    """One scan. A caller that reads the log anyway may feed it; it reads the rest itself.

    Args:
        segment: the segment to scan; it gets the new indexes.
        producers: their states at the base offset; updated to the end.
        epochs: gets the epochs of the batches.
        check_crc: whether checksums are verified; otherwise they are assumed to be right.
        progress: called with the number of bytes processed.
    """

    def __init__(
        self,
        segment: SegmentState,
        producers: ProducerStates,
        epochs: LeaderEpochs,
        *,
        check_crc: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.segment = segment
        self._producers = producers
        self._epochs = epochs
        self._check_crc = check_crc
        self._progress = progress
        self._indexes = IndexBuild(segment.base_offset, segment.config)
        self._aborted = AbortedList()
        self._appends = AppendsOneByOne(producers, self._aborted)
        self._valid = 0  # bytes of sound batches
        self._next_offset = segment.base_offset
        self._has_epoch = False  # of the last batch
        self._has_legacy = False
        # The parts of a split begin inside a file: a reader of the whole file cannot feed them.
        self._is_fed = segment.log.path is not None and not segment.log.start
        self._refusal: StartRefusedError | OffsetOverflowError | None = None
        segment.use_indexes(self._indexes.offsets, self._indexes.times)

    def feed(self, columns: BatchColumns) -> None:
        """Process batches that the caller has read, with their checksums.

        They must be consecutive from the beginning of the file on; after the first irregularity
        nothing more is accepted.
        """
        if not self._is_fed or self._refusal is not None:
            return
        size_bytes = self.segment.size_bytes
        from kafkalog.log.columns import header_table as h

        positions = columns.headers[h.POSITION]
        ends = positions + columns.headers[h.SIZE]
        wanted = columns.crc_valid & (ends <= size_bytes)
        count = columns.count if wanted.all() else int(wanted.argmin())
        # One gap, and the rest is read here: the scan must end at the first defect, whatever
        # follows.
        self._is_fed = count == columns.count and int(positions[0]) == self._valid
        if not count or int(positions[0]) != self._valid:
            return
        try:
            self._is_fed &= self.columns(columns.part(0, count)) == count == columns.count
        except StartRefusedError as error:
            self._refusal = error

    @property
    def unread_bytes(self) -> int:
        """How much of the log it has not gone through."""
        return self.segment.size_bytes - self._valid

    @property
    def reached(self) -> tuple[int, int]:
        """The position in the log and the offset after the last batch it has accepted."""
        return self._valid, self._next_offset

    def advance(self, position: int) -> bool:
        """Scan on until a batch is accepted that ends behind a position, or is the last.

        Returns False if a batch on the way is not accepted: `end` says then what follows from it.
        """
        log, step = self.segment.log, _STEP_MIN
        if self._valid > 8 * step:
            step = min(self._valid, _STEP_MAX)
        while self._valid <= position and self.unread_bytes:
            before, stop = self._valid, min(max(self._valid, position) + step, log.size_bytes)
            try:
                self._scan(log.start + stop)
            except (StartRefusedError, OffsetOverflowError) as error:
                self._refusal = error
            if self._refusal is not None or (self._valid == before and stop == log.size_bytes):
                return False
            step *= 2  # a batch may be larger
        return True

    def columns(self, columns: BatchColumns) -> int:
        """Process batches with right checksums; return how many were accepted."""
        from kafkalog.log.columns import header_table as h

        base_offset = self.segment.base_offset
        last_offsets = columns.headers[h.LAST_OFFSET]
        plain = readable_markers(columns)
        plain &= (last_offsets >= base_offset) & (columns.headers[h.BASE_OFFSET] >= 0)
        # INT64_MAX has no offset after it; such a batch is left to `frame`, which wraps as Java
        # does.
        plain &= last_offsets <= min(base_offset + INT32_MAX, INT64_MAX - 1)
        count = columns.count if plain.all() else int(plain.argmin())
        if not count:
            return 0
        part = columns.part(0, count)
        headers = part.headers
        if not self._indexes.columns(
            headers[h.MAX_TIMESTAMP],
            headers[h.LAST_OFFSET],
            headers[h.POSITION] - self.segment.log.start,
        ):
            return 0
        try:
            self._appends.columns(part)
        except StoppedError as stopped:
            # Kafka assigns the epoch of a batch before its producer is looked at.
            self._note_epochs(part.part(0, stopped.ordinal + 1))
            raise stopped.refusal from stopped
        self._note_epochs(part)
        self._take(part.size_bytes)
        self._next_offset = int(headers[h.LAST_OFFSET, -1]) + 1
        # Legacy messages have no producers: the states do not change.
        of_producers = headers[h.LAST_OFFSET, headers[h.MAGIC] >= 2]
        if len(of_producers):
            self._producers.end_offset = int(of_producers[-1]) + 1
        self._has_legacy |= len(of_producers) < count
        self._has_epoch = int(headers[h.EPOCH, -1]) >= 0
        return count

    def _take(self, size_bytes: int) -> None:
        self._valid += size_bytes
        if self._progress is not None:
            self._progress(size_bytes)

    def _note_epochs(self, part: BatchColumns) -> None:
        import numpy as np

        from kafkalog.log.columns import header_table as h

        epochs, latest = part.headers[h.EPOCH], self._epochs.latest
        before = np.maximum.accumulate(np.concatenate(([-1 if latest is None else latest], epochs)))
        for i in np.flatnonzero(epochs > before[:-1]).tolist():
            self._epochs.assign(int(epochs[i]), int(part.headers[h.BASE_OFFSET, i]))

    def frame(self, source: Source, frame: Frame) -> bool:
        """Process one batch, whose checksum has not been verified."""
        # The only checks there are: neither records nor the order of offsets is looked at.
        frame.ensure_valid(check_crc=self._check_crc)
        if not self.segment.fits(frame.last_offset):
            raise OffsetOverflowError(self.segment, bytes(self._aborted.data))
        self._indexes.batch(frame.batch.max_timestamp, frame.last_offset, self._valid)
        self._take(frame.size_bytes)
        self._next_offset = frame.next_offset
        self._has_legacy |= frame.magic < 2
        if frame.magic >= 2:
            epoch, latest = frame.batch.leader_epoch, self._epochs.latest
            self._has_epoch = epoch >= 0
            # The checksum does not cover it: a damaged high epoch hides all later ones. So it does
            # in Kafka.
            if epoch >= 0 and (latest is None or epoch > latest):
                self._epochs.assign(epoch, frame.batch.base_offset)
            self._appends.frame(source, frame)
            self._producers.end_offset = frame.next_offset
        return True

    def end(self, why: str) -> int:
        """Scan what was not fed, cut the log at the first defect, and write the indexes.

        Args:
            why: the broker's reason.

        Returns:
            The number of bytes cut off.

        Raises:
            OffsetOverflowError: an offset does not fit into the segment.
            StartRefusedError: any error that Kafka does not catch, including `InvalidOffsetError`.
        """
        segment = self.segment
        reason = INCOMPLETE
        try:
            self._scan(segment.log.end)
        except CorruptRecordError as error:
            reason = f"{error.error}: {error.message}"
        # Even if the start fails: LeaderEpochFileCache.assign has written the file by then.
        finally:
            self._epochs.write()
        self._appends.finish()
        truncated = segment.size_bytes - self._valid
        if truncated > 0:
            segment.truncate(self._valid, self._next_offset, reason)
        self._indexes.end()
        segment.write_indexes(bytes(self._aborted.data), why)
        segment.set_max_timestamp(self._indexes.max_timestamp)
        # A search for the end may refuse old messages, and finds nothing where offsets went back.
        leads_there = segment.offset_index.last_offset < self._next_offset
        if self._valid and not self._has_legacy and leads_there:
            segment.set_end(self._next_offset, self._valid, has_epochs=self._has_epoch)
        return truncated

    def _scan(self, end: int) -> None:
        """Scan what was not fed, up to the last batch that ends at `end` or before it."""
        if self._refusal is not None:
            raise self._refusal
        log = self.segment.log
        if log.path is None or self._valid == log.size_bytes:
            return  # a new log has no batches
        level = Level.STANDARD if self._check_crc else Level.QUICK
        with Source(log.path, end) as source:
            walk(source, log.start + self._valid, end, level, self)
