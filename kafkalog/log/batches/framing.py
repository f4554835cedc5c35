"""Finds the batches in the bytes of a segment, and continues after damage.

The frame rules are those of `FileLogInputStream` of Kafka. Where Kafka stops at the first thing
that it cannot read, this scanner reports a defect and searches for the next sound batch: a
plausible header whose checksum matches.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from formats import constants as c
from formats.constants import MESSAGE_FIELD, MESSAGE_HEADER, RECORD_BATCH_HEADER
from formats.late_patterns import pattern
from kafkalog.errors import BytesUnreadableError
from kafkalog.io.codecs import crc32, crc32c
from kafkalog.io.wording import counted
from kafkalog.log.defects import make_defect
from kafkalog.model import Batch, Defect, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.io.paths.source import Readable, Source


_HEADER = RECORD_BATCH_HEADER.struct
UP_TO_MAGIC = RECORD_BATCH_HEADER.part(
    "base_offset", "batch_length", "partition_leader_epoch", "magic"
)
_LEGACY = MESSAGE_HEADER.part("crc", "attributes")
_LEGACY_TIME = MESSAGE_HEADER.part("magic", "timestamp")

WORTH_A_SEEK: Final = 1 << 15
"""Batches this large are cheaper to skip than to read, for their headers."""

# Possible headers of magic 0, 1 or 2: offset and length not negative, length no smaller than the
# smallest message, known attribute bits only. A regular expression tests this at memory speed.
_PLAUSIBLE = pattern(
    rb"(?s)(?=[\x00-\x7f].{7}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{7}"
    rb"(?:\x02.{4}\x00[\x00-\x7f]|[\x00\x01][\x00-\x0b]))"
)
# The search begins small, since the next batch is mostly near, and doubles its steps.
_CHUNK_SIZE_MIN = 1 << 12
_CHUNK_SIZE_MAX = 1 << 20
_BLOCK_SIZE = 1 << 12  # the unit in which a disk returns bytes or fails
# Plausible headers inside each other would otherwise cost a checksum each over the same bytes.
_CHECKSUM_BUDGET_FACTOR = 4
_CANDIDATE_COST_BYTES = 256


def read_batch(source: Readable, position: int, end: int) -> Batch | Defect:
    """Return the batch at `position`, or the defect that is there instead.

    `end` is where the log ends, normally the size of the file. The frame is checked, the checksum
    is not. Magic 3 and above are taken for magic 2, as Kafka's file scanner does.
    """
    left = end - position
    # 17 bytes or fewer are an end for FileLogInputStream, whatever they are.
    if left <= c.HEADER_SIZE_UP_TO_MAGIC:
        return _damage(
            "torn-tail",
            source,
            position,
            left,
            f"The file ends {counted(left, 'byte')} into a header.",
        )
    header = source.read(position, min(left, c.RECORD_BATCH_OVERHEAD))
    offset, length, _, magic = UP_TO_MAGIC.unpack_from(header)
    minimum = length_min(magic)
    if length < minimum:
        detail = (
            f"The length field says {length}, but a batch of magic {magic} has at least {minimum}."
        )
        return _damage("batch-length-invalid", source, position, left, detail)
    # Kafka's scanner takes a negative magic for a legacy message, which then has no such format.
    if magic < 0:
        return _damage("magic-unknown", source, position, left, f"Magic {magic} is unknown.")
    size = c.LOG_OVERHEAD + length
    if size > left:
        detail = f"The batch should have {size} bytes, but the file ends after {left}."
        return _damage("torn-tail", source, position, left, detail)
    return batch_of_header(source.path, position, size, offset, magic, header)


def length_min(magic: int) -> int:
    """Return the smallest length field that a batch of a format can have, in bytes.

    Kafka's scanner asks for 14 in all formats. It takes a negative magic for a legacy message.
    """
    if magic >= 2:
        return c.BATCH_LENGTH_MIN
    return c.MESSAGE_V1_LENGTH_MIN if magic == 1 else c.MESSAGE_V0_LENGTH_MIN


def batch_of_header(
    path: str, position: int, size: int, offset: int, magic: int, header: bytes
) -> Batch:
    """Return a batch whose frame is known; a header of magic 2 or above is read as magic 2."""
    if magic < 2:
        crc, attributes = _LEGACY.unpack_from(header, c.LEGACY_CRC_POSITION)
        # Magic 0 has no timestamps.
        timestamp = -1
        if magic == 1:
            timestamp = _LEGACY_TIME.unpack_from(header, c.MAGIC_POSITION)[1]
        fields = (attributes, crc, -1, timestamp, timestamp, -1, -1, -1, 1)
        return Batch(path, position, size, offset, offset, magic, *fields)
    _, _, epoch, _, crc, attributes, delta, *rest = _HEADER.unpack(header)
    # As Java's long: a damaged header must not lead to a number that no other reader sees.
    last_offset = wrap_int64(offset + delta)
    return Batch(path, position, size, offset, last_offset, magic, attributes, crc, epoch, *rest)


def scan_batches(
    source: Source, start: int = 0, end: int | None = None, *, check_crc: bool = False
) -> Iterator[Batch | Defect]:
    """Yield every batch from `start` to `end`, with a defect for each range without one.

    Args:
        source: the segment.
        start: position of a batch, or anywhere: reading resumes at the next sound batch.
        end: where the log ends; None for the end of the file.
        check_crc: verify checksums, set `Batch.crc_valid`, and use them to distinguish a wrong
            length
            field from wrong content. Without it a header walk reads headers only.

    Yields:
        Batches and defects in the order of their positions; together they cover every byte.
    """
    frames = Frames(source, end, check_crc=check_crc)
    position = start
    while position < frames.end:
        found = frames.at(position)
        yield found
        position += found.size_bytes or 0


class Frames:
    """Finds the batch or defect at each position of a segment; arguments as for `scan_batches`.

    Positions must be requested in ascending order: the total effort of searching is bounded by the
    size of the log up to `end`. So the results do not depend on where reading starts.
    """

    def __init__(self, source: Source, end: int | None = None, *, check_crc: bool = False) -> None:
        self.end = source.size_bytes if end is None else min(end, source.size_bytes)
        self._source = source
        self._check_crc = check_crc
        self._search = _Search(source, 0, self.end)

    def at(self, position: int) -> Batch | Defect:
        """Return the batch that begins here, or a defect that reaches to where reading resumes."""
        try:
            return self._at(position)
        except BytesUnreadableError as error:
            resumed = self._search.next_batch(position + 1)
            detail = f"{error.message} The next batch is at position {resumed}."
            if resumed >= self.end:
                detail = f"{error.message} No batch follows."
            size = resumed - position
            return _damage("bytes-unreadable", self._source, position, size, detail)

    def _at(self, position: int) -> Batch | Defect:
        found = read_batch(self._source, position, self.end)
        if isinstance(found, Batch):
            if self._check_crc:
                found = _checked(self._source, found, self.end, self._search)
            if isinstance(found, Batch):
                return found
        source, end = self._source, self.end
        zeros = end == source.size_bytes and source.is_zero_from(position)
        resumed = end if zeros else self._search.next_batch(position + 1)
        return _until(source, found, resumed, end)


def crc_valid(source: Source, batch: Batch) -> bool:
    """Verify the stored checksum: CRC-32C for magic 2, otherwise CRC-32.

    Raises:
        FileChangedError: the file is shorter than when the batch was found in it.
    """
    checksum, position = (crc32, batch.position + c.MAGIC_POSITION)
    if batch.magic >= 2:
        checksum, position = (crc32c, batch.position + c.ATTRIBUTES_POSITION)
    computed = 0
    while position < batch.end_position:
        piece = source.read_exactly(position, min(_CHUNK_SIZE_MAX, batch.end_position - position))
        computed = checksum(piece, computed)
        position += len(piece)
    return computed == batch.crc


def find_batch(source: Source, start: int, end: int) -> int:
    """Return the position of the first sound batch at or after `start`, or `end`.

    Sound means a plausible header, a frame that fits and a checksum that matches. The work is
    bounded: at most four times the bytes searched are fed to checksums, however hostile they are.
    """
    return _Search(source, start, end).next_batch(start)


class _Search:
    """The search for sound batches up to `end`; no range is searched twice."""

    def __init__(self, source: Source, start: int, end: int) -> None:
        self._source = source
        self._end = end
        self._budget = _CHECKSUM_BUDGET_FACTOR * (end - start) + _CHUNK_SIZE_MAX
        self._searched_from, self._found = end, start - 1  # nothing yet

    def next_batch(self, start: int) -> int:
        """Return the position of the first sound batch at or after `start`, or the end."""
        # The last search passed over these bytes, and found what it found: nothing in between
        # begins a batch.
        if not self._searched_from <= start <= self._found:
            self._found = self._search(start)
            self._searched_from = start
        return self._found

    def _search(self, position: int) -> int:
        size = _CHUNK_SIZE_MIN
        while position < self._end:
            # A batch that begins in a hole has at least its magic or its length after it.
            position = max(position, self._source.next_data(position) - c.RECORD_BATCH_OVERHEAD)
            wanted = min(size + c.RECORD_BATCH_OVERHEAD, self._end - position)
            try:
                chunk = self._source.read_exactly(position, wanted)
            except BytesUnreadableError:
                if size > _CHUNK_SIZE_MIN:
                    # Smaller steps, to get as close to the unreadable block as possible.
                    size = max(size // 4, _CHUNK_SIZE_MIN)
                    continue
                chunk = self._rest_of_block(position)
                if not chunk:
                    position = self._source.next_readable(position)
                    continue
            step = min(size, len(chunk))
            # Zeros match the expression nowhere, and stripping tells so much faster.
            for match in _PLAUSIBLE.finditer(chunk) if chunk.strip(b"\0") else ():
                # Behind it begins the next step, which sees its whole header.
                if match.start() >= step:
                    break
                if self._is_sound(position + match.start()):
                    return position + match.start()
                # Given up: hostile bytes may make any search as long as they like.
                if self._budget < 0:
                    return self._end
            position += step
            size = min(2 * size, _CHUNK_SIZE_MAX)
        return self._end

    def _rest_of_block(self, position: int) -> bytes:
        """Return the bytes up to the next block, which may be unreadable; none if these are."""
        try:
            return self._source.read(position, _BLOCK_SIZE - position % _BLOCK_SIZE)
        except BytesUnreadableError:
            return b""

    def _is_sound(self, position: int) -> bool:
        """Return whether a sound batch begins at a position with a plausible header."""
        self._budget -= _CANDIDATE_COST_BYTES
        try:
            candidate = read_batch(self._source, position, self._end)
            if not isinstance(candidate, Batch) or not _is_likely(self._source, candidate):
                return False
            self._budget -= candidate.size_bytes
            sound = self._budget >= 0 and crc_valid(self._source, candidate)
            # The inner messages of a legacy set look like those of a log, with checksums of their
            # own.
            return sound and (candidate.magic >= 2 or self._is_followed(candidate))
        except BytesUnreadableError:
            return False

    def _is_followed(self, batch: Batch) -> bool:
        """Return whether a message is not inside another, which snappy may leave uncompressed."""
        if self._source.is_zero_from(batch.end_position):
            return True  # or it is the last
        following = read_batch(self._source, batch.end_position, self._end)
        return isinstance(following, Batch) and _is_likely(self._source, following)


def is_dense(source: Source, position: int, end: int) -> bool:
    """Return whether the batch at a position is so small that reading beats seeking past it."""
    with suppress(BytesUnreadableError):  # the scanner decides where reading resumes
        first = read_batch(source, position, end)
        return isinstance(first, Batch) and first.size_bytes < WORTH_A_SEEK
    return False


def align(source: Source, position: int) -> int:
    """Return the position of the batch at `position`, or else of the next sound one.

    A batch with a wrong checksum counts if the next batch, or the end, follows it.
    """
    end = source.size_bytes
    with suppress(BytesUnreadableError):
        batch = read_batch(source, position, end)
        if isinstance(batch, Batch) and _is_likely(source, batch):
            follows = batch.end_position == end or isinstance(
                read_batch(source, batch.end_position, end), Batch
            )
            if follows or crc_valid(source, batch):
                return position
    return find_batch(source, position, end)


def _is_likely(source: Source, batch: Batch) -> bool:
    """Return whether the header is plausible; verifying all checksums would cost too much."""
    if batch.magic >= 2:
        delta = wrap_int64(batch.last_offset - batch.base_offset)
        numbers = (batch.leader_epoch, batch.producer_id, batch.producer_epoch)
        return (
            batch.magic == 2
            # After a cleaning there are fewer records than offsets, never more.
            and 0 <= batch.records <= delta + 1
            and batch.compression <= 4
            and min(*numbers, batch.base_sequence) >= -1
        )
    position = batch.position + c.LOG_OVERHEAD
    position += length_min(batch.magic)
    position -= 2 * MESSAGE_FIELD.size
    for _ in ("key", "value"):
        field = source.read(position, MESSAGE_FIELD.size)
        size = MESSAGE_FIELD.struct.unpack(field)[0] if len(field) == MESSAGE_FIELD.size else -2
        if size < -1:
            return False
        position += MESSAGE_FIELD.size + max(size, 0)
    return position == batch.end_position


def _checked(source: Source, batch: Batch, end: int, search: _Search) -> Batch | Defect:
    """Return the batch with its checksum verified, or a defect if its length cannot be trusted."""
    valid = crc_valid(source, batch)
    if not valid:
        at_end = batch.end_position == end
        following = None if at_end else read_batch(source, batch.end_position, end)
        # With a likely batch behind it the length is right, and only the content is damaged.
        if not isinstance(following, Batch) or not _is_likely(source, following):
            inner = search.next_batch(batch.position + 1)
            if inner < batch.end_position or (isinstance(following, Defect) and inner < end):
                detail = "Neither the checksum nor the length of the batch is right."
                return _damage(
                    "batch-length-invalid", source, batch.position, batch.size_bytes, detail
                )
    return dataclasses.replace(batch, crc_valid=valid)


def _damage(reference: str, source: Readable, position: int, size: int, detail: str) -> Defect:
    return make_defect(reference, source.path, detail, position=position, size_bytes=size)


def _until(source: Source, found: Batch | Defect, resumed: int, end: int) -> Defect:
    """Extend a defect up to where reading resumes."""
    assert isinstance(found, Defect), "only defects end here"
    position = found.position or 0
    size = resumed - position
    if resumed < end:
        detail = f"{found.detail} Reading resumes at position {resumed}."
        # With batches behind it, it is not the tail: the length field leads too far.
        reference = "batch-length-invalid" if found.reference == "torn-tail" else found.reference
        return _damage(reference, source, position, size, detail)
    # A few zero bytes are the beginning of an offset rather than preallocated space.
    preallocated = size > c.HEADER_SIZE_UP_TO_MAGIC and end == source.size_bytes
    if preallocated and source.is_zero_from(position):
        detail = f"The rest is zero ({counted(size, 'byte')}): preallocated or never written."
        return _damage("zero-tail", source, position, size, detail)
    return dataclasses.replace(found, size_bytes=size)
