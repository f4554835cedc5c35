"""Walks over a log as a start performs them: batch by batch, or by columns where it is regular.

Follows `FileLogInputStream`, `DefaultRecordBatch`, `AbstractLegacyRecordBatch`, `FileRecords` and
`LogSegment` of Kafka. Both walks agree; irregular batches are read exactly as Kafka reads them,
as in `batches.frames`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from formats import constants as c
from formats.constants import MESSAGE_FIELD, MESSAGE_HEADER
from formats.late_classes import dataclass
from kafkalog.errors import CorruptDataError
from kafkalog.io.jit import fast_path
from kafkalog.log.batches.framing import UP_TO_MAGIC, WORTH_A_SEEK, batch_of_header, crc_valid
from kafkalog.log.batches.records import resolve_batch
from kafkalog.model import Batch, Level, wrap_int64
from kafkalog.node.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.io.paths.source import Source
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.node.recovery.indexes import IndexBuild


class CorruptRecordError(StartRefusedError):
    """Kafka's `CorruptRecordException` or `InvalidRecordException`: recovery cuts the log here."""


class Frame:
    """One batch as the scanner finds it; its header is read on demand.

    The first 17 bytes alone decide where it ends, and whether it is taken for magic 2 or a legacy
    message; they are outside the checksum of magic 2.
    """

    __slots__ = ("_batch", "_source", "magic", "offset", "position", "size_bytes")

    def __init__(
        self, source: Source, position: int, size_bytes: int, offset: int, magic: int
    ) -> None:
        self._source = source
        self._batch: Batch | None = None
        self.position = position
        self.size_bytes = size_bytes
        self.offset = offset
        self.magic = magic

    @property
    def end_position(self) -> int:
        """Position of the byte after the batch."""
        return self.position + self.size_bytes

    @property
    def batch(self) -> Batch:
        """The header.

        Raises:
            StartRefusedError: the file ends inside it.
        """
        if self._batch is None:
            self._batch = self._read_header()
        return self._batch

    @property
    def base_offset(self) -> int:
        """First offset; a compressed legacy message is decompressed for it, as Kafka does."""
        if self.magic >= 2 or not self.batch.compression:
            return self.offset
        # CompressionType.forId throws IllegalArgumentException, which is no CorruptRecordException:
        # nobody catches it, and the start fails.
        if self.batch.compression >= len(c.COMPRESSION_NAMES):
            raise StartRefusedError(
                "IllegalArgumentException", f"Unknown compression type id: {self.batch.compression}"
            )
        if self.magic < 0:
            raise StartRefusedError(
                "InvalidRecordException",
                f"Invalid wrapper magic found in legacy deep record iterator {self.magic}",
            )
        self._require_value()
        try:
            return resolve_batch(self._source, self.batch).base_offset
        except CorruptDataError as error:
            raise CorruptRecordError("InvalidRecordException", error.message) from error

    def _require_value(self) -> None:
        """Raise as Kafka's `Utils.sizeDelimited` unless the value lies within the message."""
        if self.batch.compression == c.ZSTD:
            return  # not a codec of these, and already reported
        at = MESSAGE_HEADER.size if self.magic == 1 else c.LEGACY_TIMESTAMP_POSITION
        key_size = self._int32(at, "key")
        at += MESSAGE_FIELD.size + max(key_size, 0)
        value_size, left = self._int32(at, "value"), self.size_bytes - at - MESSAGE_FIELD.size
        if value_size > left:
            raise StartRefusedError(
                "IllegalArgumentException", f"newLimit > capacity: ({value_size} > {left})"
            )

    def _int32(self, at: int, what: str) -> int:
        """Read the size of a key or value, which must lie within the message."""
        if at + MESSAGE_FIELD.size > self.size_bytes:
            raise StartRefusedError("IndexOutOfBoundsException", f"The {what}'s size is missing.")
        field = self._source.read_exactly(self.position + at, MESSAGE_FIELD.size)
        return int(MESSAGE_FIELD.struct.unpack(field)[0])

    @property
    def last_offset(self) -> int:
        return self.batch.last_offset if self.magic >= 2 else self.offset

    @property
    def next_offset(self) -> int:
        """The offset after the last; it wraps as a Java long does."""
        return wrap_int64(self.last_offset + 1)

    def ensure_valid(self, *, check_crc: bool = True) -> None:
        """Raise `CorruptRecordError` unless size and checksum are right."""
        if self.magic >= 2 and self.size_bytes < c.RECORD_BATCH_OVERHEAD:
            raise CorruptRecordError(
                "CorruptRecordException",
                f"Record batch is corrupt (the size {self.size_bytes} is smaller than the minimum "
                f"allowed overhead {c.RECORD_BATCH_OVERHEAD})",
            )
        if check_crc and not crc_valid(self._source, self.batch):
            raise CorruptRecordError(
                "CorruptRecordException", f"Record is corrupt (stored crc = {self.batch.crc})"
            )

    def _read_header(self) -> Batch:
        size = c.RECORD_BATCH_OVERHEAD
        if self.magic < 2:
            size = c.LEGACY_ATTRIBUTES_POSITION + 1
            if self.magic == 1:
                size = MESSAGE_HEADER.size
        header = self._source.read(self.position, size)
        if len(header) < size:
            raise StartRefusedError(
                "KafkaException", f"Failed to load record batch at position {self.position}"
            )
        return batch_of_header(
            self._source.path, self.position, self.size_bytes, self.offset, self.magic, header
        )


def frames(source: Source, position: int, end: int) -> Iterator[Frame]:
    """Yield the batches from `position` up to `end`, positions in the file.

    Raises:
        CorruptRecordError: a length field is smaller than any message.
        UnreadableError: the file became shorter after it was listed.
    """
    # 17 bytes or fewer are a quiet end, even zeros; from 18 on a size of 0 is an error
    # (FileLogInputStream.nextBatch).
    while position < end - c.HEADER_SIZE_UP_TO_MAGIC:
        offset, length, _, magic = UP_TO_MAGIC.unpack(
            source.read_exactly(position, c.HEADER_SIZE_UP_TO_MAGIC)
        )
        if length < c.MESSAGE_V0_LENGTH_MIN:
            raise CorruptRecordError(
                "CorruptRecordException",
                f"Found record size {length} smaller than minimum record overhead "
                f"({c.MESSAGE_V0_LENGTH_MIN}) at position {position}",
            )
        # A torn batch, or a damaged length: nothing tells them apart here.
        if position > end - c.LOG_OVERHEAD - length:
            return
        frame = Frame(source, position, c.LOG_OVERHEAD + length, offset, magic)
        position = frame.end_position
        yield frame


# Bytes read batch by batch before columns are tried, at first and after an irregular batch: most
# walks are short, and a log that is irregular throughout must not start over at each batch.
_ONE_BY_ONE: Final = 256
_BYTES_ONE_BY_ONE: Final = 4 << 20


class Walker(ABC):
    """Processes batches in the order of the log."""

    @abstractmethod
    def columns(self, columns: BatchColumns) -> int:
        """Process batches; return how many, fewer than given if the next must come by itself."""

    @abstractmethod
    def frame(self, source: Source, frame: Frame) -> bool:
        """Process one batch; return False if no more are wanted."""


def walk(source: Source, position: int, end: int, level: Level, walker: Walker) -> None:
    """Pass the batches from `position` up to `end`, positions in the file, to a walker.

    Args:
        position: position of the first batch.
        end: where the log ends.
        level: quick reads headers, standard also verifies the checksums of columns; nothing is
            verified for a batch that comes by itself.
        walker: receives the batches.

    Raises:
        CorruptRecordError: a length field is smaller than any message; or what the walker raises.

    Cost:
        That of `regular_columns`; a read of 4 KiB per batch if batches are large and only their
        headers are read.
    """
    while True:
        begin, count, is_over = position, 0, True
        for frame in frames(source, position, end):
            position = frame.end_position
            if not walker.frame(source, frame):
                return
            count += 1
            if count == _ONE_BY_ONE or position - begin > _BYTES_ONE_BY_ONE:
                is_over = False
                break
        if is_over:
            return
        # Columns read every byte, headers alone 61 of a batch: large batches are skipped over.
        is_sparse = level == Level.QUICK and position - begin > count * WORTH_A_SEEK
        if not is_sparse and fast_path.is_worth_it(end - position):
            position = _in_columns(source, position, end, level, walker)


def _in_columns(source: Source, position: int, end: int, level: Level, walker: Walker) -> int:
    from kafkalog.log.columns.headers import regular_columns

    found = regular_columns(source, level, position, end)
    try:
        for columns in found:
            count = walker.columns(columns)
            # The next batch comes by itself; `walk` begins with it, then tries columns again.
            if count < columns.count:
                return position + (columns.part(0, count).size_bytes if count else 0)
            position += columns.size_bytes
    finally:
        found.close()
    return position


@dataclass(frozen=True, slots=True)
class Found:
    """The first batch that a read from an offset returns, and its position in the log."""

    position: int
    base_offset: int


class Search(Walker):
    """Finds the batch that holds an offset, or the next one: `searchForOffsetFromPosition`.

    Attributes:
        found: that batch, once the walk is over; positions are those in the file.
    """

    def __init__(self, offset: int) -> None:
        self.found: Found | None = None
        self._offset = offset
        self._previous: tuple[Found, int] | None = None  # with its last offset

    def columns(self, columns: BatchColumns) -> int:
        """Skip batches that begin below the offset; return how many."""
        from kafkalog.log.columns import header_table as h

        headers = columns.headers
        # The first offset of a compressed legacy message is inside it.
        passed = (headers[h.MAGIC] >= 2) | (headers[h.ATTRIBUTES] & c.COMPRESSION_MASK == 0)
        passed &= headers[h.BASE_OFFSET] < self._offset
        count = columns.count if passed.all() else int(passed.argmin())
        if count:
            position, base, last = headers[
                [h.POSITION, h.BASE_OFFSET, h.LAST_OFFSET], count - 1
            ].tolist()
            self._previous = Found(position, base), last
        return count

    def frame(self, _source: Source, frame: Frame) -> bool:
        """Examine one batch; return whether the search goes on."""
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
        return self.found or self._holder()

    def _holder(self) -> Found | None:
        if self._previous is not None and self._previous[1] >= self._offset:
            # FileRecords.searchForOffsetFromPosition compares the last offset of the previous batch
            # only.
            return self._previous[0]
        return None


class ToTheEnd(Walker):
    """Finds the offset and position after the last batch, and whether that has a leader epoch."""

    def __init__(self, base_offset: int) -> None:
        self.next_offset = base_offset
        self.end_position: int | None = None
        self.has_epoch = False

    def columns(self, columns: BatchColumns) -> int:
        from kafkalog.log.columns import header_table as h

        last = columns.headers[:, -1].tolist()
        self.next_offset = wrap_int64(last[h.LAST_OFFSET] + 1)
        self.end_position = last[h.POSITION] + last[h.SIZE]
        self.has_epoch = last[h.MAGIC] >= 2 and last[h.EPOCH] >= 0
        return columns.count

    def frame(self, _source: Source, frame: Frame) -> bool:
        self.next_offset = frame.next_offset
        self.end_position = frame.end_position
        self.has_epoch = frame.magic >= 2 and frame.batch.leader_epoch >= 0
        return True


class Indexing(Walker):
    """Builds the indexes of a log, and looks at nothing else in it."""

    def __init__(self, indexes: IndexBuild, start: int) -> None:
        self._indexes = indexes
        self._start = start

    def columns(self, columns: BatchColumns) -> int:
        """Add the entries that are due at batches; return how many batches were processed."""
        from kafkalog.log.columns import header_table as h

        times, offsets, positions = columns.headers[[h.MAX_TIMESTAMP, h.LAST_OFFSET, h.POSITION]]
        is_plain = self._indexes.columns(times, offsets, positions - self._start)
        return columns.count if is_plain else 0

    def frame(self, _source: Source, frame: Frame) -> bool:
        """Add the entries that are due at one batch."""
        position = frame.position - self._start
        self._indexes.batch(frame.batch.max_timestamp, frame.last_offset, position)
        return True
