"""Kafka's own walk over a log file: it stops quietly or throws where ours would go on.

Follows `FileLogInputStream`, `DefaultRecordBatch` and `AbstractLegacyRecordBatch` of Kafka 4.3.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from formats import constants as c
from formats.layouts import MESSAGE_HEADER, RECORD_BATCH_HEADER
from kafkalog.errors import CorruptDataError
from kafkalog.framing import crc_valid
from kafkalog.model import Batch
from kafkalog.records import resolve_batch
from kafkalog.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.source import Source

_UP_TO_MAGIC = RECORD_BATCH_HEADER.part("base_offset", "batch_length", "magic")
_HEADER = RECORD_BATCH_HEADER.struct
_LEGACY = MESSAGE_HEADER.part("crc", "attributes")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class CorruptRecordError(StartRefusedError):
    """Kafka's `CorruptRecordException` or `InvalidRecordException`: recovery cuts the log here."""


class Frame:
    """One batch as the scanner finds it: the header is read when it is asked for.

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
        if self.batch.compression >= len(c.COMPRESSION_NAMES):
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Unknown compression type id: {self.batch.compression}",
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
        """Stop where `Utils.sizeDelimited` of Kafka does: the value is not within the message."""
        if self.batch.compression == c.ZSTD:
            return  # which is no codec of these, and told before
        at = c.LEGACY_TIMESTAMP_POSITION + (_INT64.size if self.magic == 1 else 0)
        key_size = self._int32(at, "key")
        at += _INT32.size + max(key_size, 0)
        value_size, left = self._int32(at, "value"), self.size_bytes - at - _INT32.size
        if value_size > left:
            raise StartRefusedError(
                "IllegalArgumentException", f"newLimit > capacity: ({value_size} > {left})"
            )

    def _int32(self, at: int, what: str) -> int:
        """The size of a key or value, which must lie within the message."""
        if at + _INT32.size > self.size_bytes:
            raise StartRefusedError("IndexOutOfBoundsException", f"The {what}'s size is missing.")
        return int(_INT32.unpack(self._source.read_exactly(self.position + at, _INT32.size))[0])

    @property
    def last_offset(self) -> int:
        """Last offset."""
        return self.batch.last_offset if self.magic >= 2 else self.offset

    @property
    def next_offset(self) -> int:
        """Offset after the last; it wraps as a Java long does."""
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
                "CorruptRecordException",
                f"Record is corrupt (stored crc = {self.batch.crc})",
            )

    def _read_header(self) -> Batch:
        is_legacy = self.magic < 2
        size = _HEADER.size
        if is_legacy:
            size = c.LEGACY_ATTRIBUTES_POSITION + 1
            if self.magic == 1:
                size = c.LEGACY_TIMESTAMP_POSITION + _INT64.size
        header = self._source.read(self.position, size)
        if len(header) < size:
            raise StartRefusedError(
                "KafkaException", f"Failed to load record batch at position {self.position}"
            )
        if is_legacy:
            crc, attributes = _LEGACY.unpack_from(header, c.LEGACY_CRC_POSITION)
            timestamp = -1
            if self.magic == 1:
                timestamp = _INT64.unpack_from(header, c.LEGACY_TIMESTAMP_POSITION)[0]
            fields = (attributes, crc, -1, timestamp, timestamp, -1, -1, -1, 1)
            last_offset = self.offset
        else:
            (_, _, epoch, _, crc, attributes, delta, *rest) = _HEADER.unpack(header)
            fields = (attributes, crc, epoch, *rest)
            last_offset = wrap_int64(self.offset + delta)
        return Batch(
            self._source.path,
            self.position,
            self.size_bytes,
            self.offset,
            last_offset,
            self.magic,
            *fields,
        )


def frames(source: Source, position: int, end: int) -> Iterator[Frame]:
    """The batches from `position` up to `end`, positions in the file.

    Raises:
        CorruptRecordError: a length field is smaller than any message.
        UnreadableError: the file became shorter since it was listed.
    """
    while position < end - c.HEADER_SIZE_UP_TO_MAGIC:
        offset, length, magic = _UP_TO_MAGIC.unpack(
            source.read_exactly(position, c.HEADER_SIZE_UP_TO_MAGIC)
        )
        if length < c.MESSAGE_V0_LENGTH_MIN:
            raise CorruptRecordError(
                "CorruptRecordException",
                f"Found record size {length} smaller than minimum record overhead "
                f"({c.MESSAGE_V0_LENGTH_MIN}) at position {position}",
            )
        if position > end - c.LOG_OVERHEAD - length:
            return
        frame = Frame(source, position, c.LOG_OVERHEAD + length, offset, magic)
        position = frame.end_position
        yield frame


def wrap_int64(number: int) -> int:
    """The number as a Java long, which damaged offsets can exceed."""
    return (number + 2**63) % 2**64 - 2**63
