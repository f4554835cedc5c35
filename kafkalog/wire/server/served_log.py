"""One partition's log as consumers are served it: which bytes of which file answer a fetch.

Follows `UnifiedLog.read`, `LocalLog.read`, `LogSegment.read` and `TransactionIndex` of Kafka:
the bytes of one segment, from the batch with the offset on, up to a size, the last batch maybe cut.
In difference to a broker every batch is checked before it is sent, once.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from formats import constants as c
from formats import file_names
from formats.constants import RECORD_BATCH_HEADER
from kafkalog.errors import BytesUnreadableError, DataError, Note, ShortageError
from kafkalog.io.codecs import crc32c
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.framing import read_batch
from kafkalog.log.batches.order import batch_defects, put_header
from kafkalog.log.batches.segment import batch_for
from kafkalog.log.batches.selection import resolved
from kafkalog.log.living import answered, listed_again
from kafkalog.model import Batch, Defect, Isolation, LogView
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show_now
from kafkalog.tables.merged_log import lineage_of
from kafkalog.tables.merging import Copies, copied_note
from kafkalog.tables.planning import Target, missing_in
from kafkalog.wire.server.model import FileRange, OnDamage, Watermark
from kafkalog.wire.server.open_files import ServedSegment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import AbortedTransaction
    from kafkalog.tables.merging import Piece
    from kafkalog.wire.server.model import ServeListener, ServeOptions
    from kafkalog.wire.server.open_files import OpenFiles

_WINDOW_SIZE: Final = 1 << 20
_TAILS: Final = ("torn-tail", "zero-tail")
_HEADER: Final = RECORD_BATCH_HEADER.part(
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "last_offset_delta",
)

_windows = threading.local()


def _window(size: int) -> memoryview:
    """Return memory of this thread: fresh memory costs more than what is read into it."""
    if not hasattr(_windows, "memory"):
        _windows.memory = memoryview(bytearray(_WINDOW_SIZE))
    memory: memoryview = _windows.memory
    return memory[:size]


class OutOfRangeError(Exception):
    """The offset is not in the log."""


class InvalidSizeError(Exception):
    """Less than nothing is wanted."""


class DamagedError(Exception):
    """The batch with the offset is damaged."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What a fetch of a partition gets.

    Attributes:
        records: bytes of batches.
        aborted: the aborted transactions in them; None unless they were asked for.
        is_end: whether there was nothing left to read.
    """

    records: FileRange | bytes
    aborted: tuple[AbortedTransaction, ...] | None
    is_end: bool = False


class ServedLog:
    """The log of a partition, opened.

    Args:
        files: what keeps segments open.
        copies: directories of other copies, which help where this one is damaged.

    Raises:
        KafkaLogError: the log cannot be read.
    """

    def __init__(
        self,
        directory: PartitionDir,
        options: ServeOptions,
        listener: ServeListener,
        files: OpenFiles,
        copies: Sequence[str] = (),
    ) -> None:
        self._paths_of_copies = copies
        self._met: list[Defect] = []  # what copies may have
        self._options = options
        self._listener = listener
        self._files = files
        self._lock = threading.RLock()
        self._directory = directory
        self._told: set[tuple[str, int]] = set()
        self._show(directory)
        mark = self.log.offsets.high_watermark
        if mark.above and not self.log.may_grow:
            listener.hear(Note(f"{directory.path}: {mark.left_out}"))

    def _show(self, directory: PartitionDir) -> None:
        self._directory = directory
        shown = show_now(directory)
        if shown.difference is not None:
            self._listener.hear(Note(f"{directory.path}: {shown.difference.detail}"))
        self.log = UnifiedLog(
            shown.partition,
            high_watermark="end" if self._options.high_watermark == Watermark.END else None,
        )
        self._copies = None
        if self._paths_of_copies:
            lineage = lineage_of(self.log) or None
            self._copies = Copies(self._paths_of_copies, LogView.RECOVERED, lineage)
        self._bases = [segment.base_offset for segment in self.log.segments]
        self._stamp = self._stamp_now()
        self.__dict__.pop("_hidden", None)
        self.__dict__.pop("_lacking", None)

    @property
    def path(self) -> str:
        """The directory that is served now."""
        return self._directory.path

    @property
    def weight(self) -> int:
        """How much memory it takes, roughly: the number of its files."""
        return len(self.log.partition.files) + 1

    def bounds(self, isolation: Isolation) -> tuple[int, int, int]:
        """Return the log start offset, the end for an isolation level, and the log end offset."""
        with self._lock:
            return (*self.log.fetch_bounds(isolation), self.log.log_end_offset)

    def refresh(self) -> bool:
        """List the files again if they have changed; return whether they had.

        Raises:
            KafkaLogError: the log cannot be read any more.
        """
        with self._lock:
            if self._stamp_now() == self._stamp:
                return False
            self._show(listed_again(self._directory))
            return True

    def _stamp_now(self) -> object:
        """Return what changes when a broker changes the log: directory, active segment, marks.

        With a tier also its directory.
        """
        path, tier = self._directory.path, self._directory.tier
        last = self.log.segments[-1].log.path if self.log.segments else path
        watched = [path, last, os.path.join(os.path.dirname(path), file_names.HIGH_WATERMARKS)]
        if tier is not None:
            watched.append(os.path.join(os.path.dirname(path), file_names.LOG_STARTS))
            watched += sorted({os.path.dirname(one.path) for one in tier.files})
        stamps: list[tuple[int, int, int] | None] = []
        for one in watched:
            try:
                status = file_system.stat(one)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(stamps)

    def read(
        self, offset: int, size: int, isolation: Isolation, *, at_least_one: bool = True
    ) -> Slice:
        """Return the bytes that answer a fetch.

        Args:
            size: how many bytes at most; the last batch may be cut.
            at_least_one: whether the first batch is returned whole, however large.

        Raises:
            OutOfRangeError: the offset is not in the log.
            InvalidSizeError: the size is negative.
            DamagedError: the batch with the offset is damaged.
            KafkaLogError: the files cannot be read.
        """
        with self._lock:

            def again() -> Slice:
                self._show(listed_again(self._directory))
                return self._read(offset, size, isolation, at_least_one)

            # A broker may replace, or delete, what is read.
            return answered(lambda: self._read(offset, size, isolation, at_least_one), again)

    def has_ahead(self, sent: FileRange) -> bool:
        """Return whether `check_ahead` has something to do."""
        opened = _segment_of(sent)
        return opened.sound[1] < _end_ahead(sent, opened)

    def check_ahead(self, sent: FileRange) -> None:
        """Check what the next fetch will probably want, while a client is busy with this one.

        Damage is reported when somebody wants it.
        """
        opened = _segment_of(sent)
        with self._lock, suppress(DataError, ShortageError, OSError):
            self._checked(opened, opened.sound[1], _end_ahead(sent, opened), opened.low)

    def _read(self, offset: int, size: int, isolation: Isolation, at_least_one: bool) -> Slice:
        start, end = self.log.fetch_bounds(isolation)
        if offset >= end:
            for defect in self.log.damage.values():  # it may hide what comes after the end
                self._tell(defect)
        if not start <= offset <= self.log.log_end_offset:
            raise OutOfRangeError
        wants_aborted = isolation == Isolation.READ_COMMITTED
        nothing = Slice(b"", () if wants_aborted else None, is_end=True)
        first = bisect_right(self._bases, offset) - 1
        if offset >= end or first < 0:
            return nothing
        if size < 0:
            raise InvalidSizeError
        self._met = []
        found = self._sound_from(first, offset, size, end)
        if self._met and (found is None or found[1].base_offset > offset):
            stop = end if found is None else found[1].base_offset
            found = self._lent(offset, stop, size) or found
            for defect in self._met:
                self._report(defect)
        if found is not None and found[0].segment.base_offset > offset:
            for defect in self._lacking:  # consumers skip what is missing, and do not notice
                self._tell(defect)
        if found is None:
            return Slice(b"", None, is_end=True)
        opened, batch, following = found
        wanted = max(size, batch.size_bytes) if at_least_one else size
        # As a broker: no batch but the first one of a response is sent if it does not fit.
        if 0 < wanted < batch.size_bytes:
            return Slice(b"", None)
        records: FileRange | bytes = b""
        if wanted:
            records = self._records(opened, batch, min(following, batch.position + wanted))
        aborted = None
        if wants_aborted:
            aborted = self._aborted(opened, offset, batch.position, len(records))
        return Slice(records, aborted)

    def _sound_from(
        self, first: int, offset: int, size: int, end: int
    ) -> tuple[ServedSegment, Batch, int] | None:
        """Return the first sound batch for an offset, and where those end that follow it."""
        for segment in self.log.segments[first:]:
            opened = self._files.open(segment, self._meet)
            position, low = self._position(opened, offset)
            if position is None:
                continue
            stop = self._stop_position(opened, end)
            sound = self._sound_range(opened, position, stop, size, low)
            if sound is not None:
                return opened, *sound
        return None

    def _lent(self, offset: int, end: int, size: int) -> tuple[ServedSegment, Batch, int] | None:
        """Return what a copy has for an offset, and forget the damage here if it has all of it."""
        assert self._copies is not None, "else what is damaged is reported at once"
        pieces, missing = self._copies.fill(offset, end)
        if not missing:
            self._met = []
        for piece in pieces:
            opened = self._files.open(piece.segment, self._tell)
            found: list[Batch] = []
            for one in piece.batches(opened):
                if one.next_offset <= offset:
                    continue
                is_large = found and one.end_position > found[0].position + size
                is_wrong = one.header_defect is not None  # a response of its own: it is rebuilt
                if is_large or (found and is_wrong):
                    break
                found.append(one)
                if is_wrong:
                    break
            if found:
                self._note_copy(piece)
                return opened, found[0], found[-1].end_position
        return None

    def _note_copy(self, piece: Piece) -> None:
        place = piece.path, piece.first_offset
        if place not in self._told:
            self._told.add(place)
            name = os.path.basename(self._directory.path)
            note = copied_note(name, self._directory.path, piece).detail
            self._listener.hear(Note(note))

    def _position(self, opened: ServedSegment, offset: int) -> tuple[int | None, int | None]:
        """Return the position of the batch with an offset, or of the next one in the segment.

        With it comes the lowest offset that this batch can have; None if unknown.
        """
        hint = opened.hints.get(offset)
        if hint is not None:
            return hint if hint < opened.source.size_bytes else None, offset
        if is_object(
            opened.segment.log.path
        ):  # the batches around it would be requests of their own
            entry = opened.index_entry(offset)
            batch = opened.find_batch(entry.position if entry else 0, offset)
            return None if batch is None else batch.position, None
        batch = batch_for(offset, self._batches(opened, opened.start_before(offset)))
        if batch is None:
            return None, None
        return batch.position, batch.base_offset if batch.low is None else batch.low

    def _batches(self, opened: ServedSegment, start: int) -> Iterator[Batch]:
        for found in opened.order(check_crc=False).scan(start):
            is_sound = isinstance(found, Batch) and found.is_sound
            for defect in batch_defects(found) if isinstance(found, Batch) else (found,):
                (self._tell if is_sound else self._meet)(defect)
            if isinstance(found, Batch) and is_sound:
                yield found

    def _stop_position(self, opened: ServedSegment, end: int) -> int:
        following = opened.segment.next_base_offset
        size = opened.source.size_bytes
        # A broker may have appended since the log end was read.
        has_grown = following is None and size > opened.segment.log.size_bytes
        if end >= (self.log.log_end_offset if following is None else following) and not has_grown:
            return size
        position, _ = self._position(opened, end)
        return size if position is None else position

    def _sound_range(
        self, opened: ServedSegment, position: int, stop: int, size: int, low: int | None
    ) -> tuple[Batch, int] | None:
        """Return the first sound batch, and where those end that follow it; None: all are bad."""
        while position < stop:
            first = read_batch(opened, position, opened.source.size_bytes)
            if isinstance(first, Batch):
                needed = max(size, first.size_bytes)
                following = self._checked(opened, position, min(stop, position + needed), low)
                if following > position:
                    return first, following
            found = _judged(opened, position, low, c.NO_EPOCH)
            if isinstance(found, Batch):
                if found.is_sound and found.header_defect is not None:
                    self._tell(found.header_defect)
                    opened.hint(found.next_offset, found.end_position)
                    return found, found.end_position
                defect = next(batch_defects(found), None)
                if defect is None:  # its disk gives it this time
                    return found, found.end_position
                found = defect
            self._meet(found)
            position += found.size_bytes or 1
        return None

    def _meet(self, defect: Defect) -> None:
        """Report damage, once per place; raise `DamagedError` if fetches stop there."""
        if defect.reference in _TAILS and defect.path == self.log.segments[-1].log.path:
            return  # a broker takes it for the end of the log
        if self._copies is not None:
            self._met.append(defect)
            return
        self._report(defect)

    def _report(self, defect: Defect) -> None:
        self._tell(defect)
        if self._options.on_damage == OnDamage.STOP:
            raise DamagedError

    def _tell(self, defect: Defect) -> None:
        place = (defect.path, defect.position or 0)
        if place not in self._told:
            self._told.add(place)
            self._listener.hear(defect)

    def _checked(self, opened: ServedSegment, position: int, end: int, low: int | None) -> int:
        """Return where the sound batches end that begin at a position: at `end`, or before it."""
        before, at = opened.sound
        # The range that is known to be sound does not reach the position.
        if not before <= position <= at:
            before = at = position
            opened.epoch = c.NO_EPOCH
        if position == at and low is not None:
            opened.low = low
        if at >= end:
            return end
        source = opened.source
        try:
            while at < end:
                window = _window(min(_WINDOW_SIZE, end - at))
                source.read_into(at, window)
                opened.hold(at, window)
                reached = self._walk(opened, window, at)
                if reached == at:
                    batch = read_batch(opened, at, source.size_bytes)
                    if not isinstance(batch, Batch):
                        return at
                    if batch.end_position > end:  # only a part of it is sent
                        opened.sound = before, at
                        # Its end is checked when somebody wants the whole of it.
                        return end
                    found = _judged(opened, at, opened.low, opened.epoch)
                    if isinstance(found, Defect) or not found.is_sound or found.header_defect:
                        return at
                    reached, opened.low = found.end_position, found.next_offset
                    opened.epoch = found.leader_epoch
                    opened.hint(found.next_offset, reached)
                at = reached
        except BytesUnreadableError:
            return at
        finally:
            opened.sound = before, at
        return end

    def _walk(self, opened: ServedSegment, window: memoryview, start: int) -> int:
        """Return the position up to which the batches in a window are whole and sound.

        Of two batches that contradict each other, `Order` has to say which one is out of place: the
        walk ends before both. It ends, too, before one of another leader epoch, and before a last
        one after a gap.
        """
        inner, size, low, newest = 0, len(window), opened.low, opened.epoch
        before = inner, low
        high = c.INT64_MAX if opened.high is None else opened.high
        is_file = not is_object(opened.segment.log.path)  # else a look around costs requests
        while inner + c.RECORD_BATCH_OVERHEAD <= size:
            base_offset, length, epoch, magic, crc, delta = _HEADER.unpack_from(window, inner)
            if low is not None and base_offset < low:
                inner, low = before
                break
            following = inner + c.LOG_OVERHEAD + length
            if magic != 2 or length < c.BATCH_LENGTH_MIN or following > size:
                break
            if newest == c.NO_EPOCH and not is_file:
                newest = epoch
            is_last = is_file and start + following == opened.source.size_bytes
            if base_offset + delta >= high or epoch != newest or (is_last and base_offset != low):
                break
            if crc32c(window[inner + c.ATTRIBUTES_POSITION : following]) != crc:
                break
            before = inner, low
            low = base_offset + delta + 1
            inner = following
        else:
            # The header of the next batch is not here, and may contradict the last one.
            if is_file and start + inner < opened.source.size_bytes:
                inner, low = before
        if inner and low is not None:
            opened.hint(low, start + inner)
        opened.low, opened.epoch = low, newest
        return start + inner

    def _records(self, opened: ServedSegment, first: Batch, end: int) -> FileRange | bytes:
        """Return bytes of a segment, batches of old magics rebuilt in today's."""
        source = opened.source
        batch: Batch | Defect = first
        if first.header_defect is not None and first.magic >= 2:
            data = bytearray(source.read(first.position, first.size_bytes))
            epoch = first.leader_epoch
            put_header(data, first.base_offset, first.size_bytes, epoch, first.magic)
            return bytes(data)
        # Today's clients need magic 2 (docs/guide/serve.md).
        if first.magic >= 2:
            held = opened.held_at(first.position, end - first.position)
            if held is not None:
                # Where the next fetch begins.
                known = opened.low, opened.epoch
                opened.low, opened.epoch = None, first.leader_epoch
                self._walk(opened, memoryview(held), first.position)
                opened.low, opened.epoch = known
            return FileRange(source, first.position, end - first.position, opened, held)
        from kafkalog.change.compaction.cleaning import rewritten
        from kafkalog.log.batches.records import hold_records

        parts: list[bytes] = []
        while isinstance(batch, Batch) and batch.magic < 2:
            if parts and batch.end_position > end:
                break
            records = hold_records(source, batch)
            if records:
                parts.append(rewritten(batch, records, None))
            batch = read_batch(source, batch.end_position, source.size_bytes)
        return b"".join(parts)

    @cached_property
    def _lacking(self) -> Sequence[Defect]:
        """The findings about gaps between segments, within what consumers may read."""
        target = Target(self.log.partition, tuple(self.log.segments), self._directory)
        bounds = self.log.fetch_bounds(Isolation.READ_UNCOMMITTED)
        with suppress(DataError):  # a fetch of what cannot be read reports it
            return missing_in(target, LogView.RECOVERED, *bounds)
        return ()

    @cached_property
    def _hidden(self) -> tuple[list[AbortedTransaction], list[int]]:
        """The aborted transactions by their last offsets, and these."""
        found = sorted(self.log.hidden_transactions(), key=lambda one: one.last_offset)
        return found, [one.last_offset for one in found]

    def _aborted(
        self, opened: ServedSegment, offset: int, position: int, size: int
    ) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that may have records in a range of a segment.

        Its end is where the offset index says so, as in a broker.
        """
        upper = self._upper_offset(opened, position + size)
        found, ends = self._hidden
        wanted = []
        for one in found[bisect_left(ends, offset) :]:
            if one.first_offset < upper:
                wanted.append(one)
            if one.last_stable_offset >= upper:
                break
        return tuple(wanted)

    def _upper_offset(self, opened: ServedSegment, position: int) -> int:
        index, following = opened.offset_index, opened.segment.next_base_offset
        if index is not None:
            number = index.first_at(position)
            if number == 0 and index.entry_count and index.entry(0).position == position:
                number = 1  # `AbstractIndex.binarySearch` never looks at its first entry
            if number < index.entry_count:
                return index.entry(number).offset
        return self.log.log_end_offset if following is None else following


def _judged(opened: ServedSegment, position: int, low: int | None, epoch: int) -> Batch | Defect:
    """Return what is at a position, as readers see it that know what comes before it."""
    order = opened.order(low=low)
    order.epoch = epoch
    found = order.at(position)
    return resolved(opened.source, found) if isinstance(found, Batch) else found


def _segment_of(sent: FileRange) -> ServedSegment:
    assert isinstance(sent.owner, ServedSegment), "it is one of a log"
    return sent.owner


def _end_ahead(sent: FileRange, opened: ServedSegment) -> int:
    return min(sent.position + 2 * sent.size, opened.source.size_bytes)
