"""What no checksum covers in a batch's header: base offset, length, leader epoch and magic.

Offsets rise: `UnifiedLog.append` of Kafka gives a batch the offsets after those of the batch
before it, and only the cleaner leaves gaps. Leader epochs never fall. A length or a magic is wrong
if the checksum is right with another one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from formats import constants as c
from kafkalog.errors import BytesUnreadableError
from kafkalog.log.batches.framing import (
    UP_TO_MAGIC,
    Frames,
    batch_of_header,
    crc_valid,
    length_min,
    read_batch,
)
from kafkalog.log.defects import make_defect
from kafkalog.model import Batch, Defect, wrap_int64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.io.paths.source import Source

_MAGIC: Final = 2
_OFFSET_AND_LENGTH: Final = c.MESSAGE_HEADER.part("offset", "size")
_NO_HEADERS: Final = ("zero-tail", "bytes-unreadable")
_EFFORT_FACTOR: Final = 4
_SIZE_MAX: Final = 1 << 27
"""A batch that is larger than any broker takes is not looked for in a hole of the file."""
_WITNESSES: Final = 2
_LOOKS_MAX: Final = 16
"""How many places after a batch are looked at for witnesses, whatever damage lies between."""
NOWHERE: Final = -1
"""A position that no batch has."""


class Span(NamedTuple):
    """What `settle` needs of a batch; the header of a wrapper has only its last offset."""

    base_offset: int
    last_offset: int
    is_wrapper: bool


Place = Literal["claimed", "next", "tied", "unknown"]
"""Where a batch belongs: where it claims, at the next offset, or nobody knows; a tied one
contradicts the one after it as much as that one it."""


def settle(
    batch: Batch | Span, after: Batch | Span | None, next_offset: int, limit: int | None,
    high: int | None, end: int | None,
) -> Place:  # fmt: skip
    """Decide where a batch belongs, before `after`, the next sound one.

    It begins at `next_offset` or above, and ends below `high`, and below `limit` if `after` is
    right; `after` ends below `end`.
    """
    first, last, length = batch.base_offset, batch.last_offset, length_of(batch)
    fits = limit == next_offset + length and not batch.is_wrapper  # only one place is left for it
    bound = limit if after is None else high
    if next_offset <= first <= last and _is_below(last, bound):
        if after is None or last < after.base_offset:
            return "claimed"
        if _is_below(last + length_of(after), end):  # `after` could be the one that moves
            after_fits = end == last + 1 + length_of(after) and not after.is_wrapper
            could_move = _is_below(next_offset + length - 1, limit)
            if first == next_offset or not could_move or (after_fits and not fits):
                return "claimed"
            if after_fits or not fits:
                return "tied"
    return "next" if fits else "unknown"


class Order:
    """Judges the batches of a segment, or of a part of one, in the order of the file.

    A batch begins at `next_offset` or above, and ends below the batch after it. Where two batches
    contradict each other, the ones around them decide which of the two is out of place, and whether
    there is only one place for it. A batch with a wrong checksum does not count then.

    Three displacements contradict nobody, 226 of the 19,992 flipped bits of the header sweep: of a
    batch within a gap that the cleaner left (40), of a compressed message of magic 0 or 1 into the
    gap before it, if it is read from its own offset on (10), and of the last batch of a log to an
    offset that its indexes can reach, unless a clean stop says where the log ends (176).

    Attributes:
        next_offset: the lowest offset that the next batch can have.
        high: the offset that no batch reaches; None if unknown.
        end_limit: returns the offset that the last batch of the log does not reach, if `high` is
            unknown; called for a last batch after a gap only, since it may read files.
        noted_epoch: returns the epoch of an offset by leader-epoch-checkpoint, None if it does not
            say; called at the first batch, at a last one of another epoch, and at contradictions.
        is_log: whether it is one; a KRaft snapshot has its epoch in its name, and no broker looks
            at those of its batches.
        epoch: of the batch before, `NO_EPOCH` if unknown.
        tied: position of a batch that contradicts the one before it as much as that one it.

    Args:
        source: the log.
        end: where it ends; None for the end of the file.
        low: the lowest offset that can be there.
        high: see above.
        check_crc: verify every checksum; if not, only of batches that contradict others.
        cut_at: returns where a start ends the log, if it does not accept what is at a position or
            before it, otherwise None; None if it accepts everything.
    """

    def __init__(
        self,
        source: Source,
        end: int | None,
        low: int,
        high: int | None,
        *,
        end_limit: Callable[[], int] | None = None,
        noted_epoch: Callable[[int], int | None] = lambda _: None,
        is_log: bool = True,
        check_crc: bool = True,
        cut_at: Callable[[int], int | None] | None = None,
    ) -> None:
        self.next_offset, self.high, self.tied = low, high, NOWHERE
        self.end_limit, self._noted_epoch, self.epoch = end_limit, noted_epoch, c.NO_EPOCH
        self._source, self._low, self.is_log = source, low, is_log
        self.frames = Frames(source, end, check_crc=check_crc)
        # What lies ahead is looked at twice, which must not use up the effort for searches.
        self._ahead = Frames(source, end, check_crc=True)
        # Headers that claim the same bytes again and again cost a checksum of them each.
        self._effort = _EFFORT_FACTOR * self.frames.end
        self._check_crc, self._cut_at = check_crc, cut_at
        self._after: tuple[int, Batch | None] = NOWHERE, None

    def end_at(self, position: int) -> int:
        """Return where the log ends, as far as it must be known to read what is at a position."""
        end = None if self._cut_at is None else self._cut_at(position)
        if end is not None and end < self.frames.end:
            self._source.size_bytes, self.high = end, None
            self.frames = Frames(self._source, end, check_crc=self._check_crc)
            self._ahead = Frames(self._source, end, check_crc=True)
            self._after = NOWHERE, None
        return self.frames.end

    def at(self, position: int) -> Batch | Defect:
        """Return what is at a position: a batch, with its true offsets and epoch if they are known.

        Positions must be requested in ascending order.
        """
        found = self._placed(position)
        if self.is_log and isinstance(found, Batch) and found.is_sound:
            return self._aged(found)
        return found

    def _placed(self, position: int) -> Batch | Defect:
        """Return what is at a position, with its true offsets if these are known."""
        found = self.framed(position)
        if isinstance(found, Defect):
            return found
        after = self._header_after(found)  # as it stands
        limit = self._limit_by(found, self._witnesses(found) if after is None else [after])
        is_high_enough = self.next_offset <= found.base_offset <= found.last_offset
        if is_high_enough and position != self.tied and _is_below(found.last_offset, limit):
            return self._taken(found)
        is_wrong = found.crc_valid is False
        if is_wrong or (found.crc_valid is None and not crc_valid(self._source, found)):
            return replace(found, crc_valid=False)
        return self._judged(found, self._witnesses(found))

    def framed(self, position: int) -> Batch | Defect:
        """Return what is at a position, its length and magic corrected, with the offsets it has."""
        found = self.frames.at(position)
        if (
            isinstance(found, Batch)
            and found.end_position < self.frames.end
            and (self._header_after(found) is None)
        ):  # the length may be wrong
            found = self._ahead.at(position)
        if isinstance(found, Defect) or found.crc_valid is False or found.magic > _MAGIC:
            return self._reframed(found)
        return found

    def scan(self, position: int) -> Iterator[Batch | Defect]:
        """Yield what is from a position on, in the order of the file."""
        while position < self.end_at(position):
            found = self.at(position)
            yield found
            position += found.size_bytes or 0

    def _reframed(self, found: Batch | Defect) -> Batch | Defect:
        """Return the batch whose length or magic is wrong, if its checksum proves it."""
        position, size = found.position or 0, found.size_bytes or 0
        if isinstance(found, Defect) and found.reference in _NO_HEADERS:
            return found
        with suppress(BytesUnreadableError):
            header = self._source.read(position, c.RECORD_BATCH_OVERHEAD)
            if len(header) < c.RECORD_BATCH_OVERHEAD:
                return found
            offset, length, _, magic = UP_TO_MAGIC.unpack_from(header)
            # With the length as it is, or with all that is before the next batch. The checksum of
            # magic 0 and 1 covers the magic.
            room = min(self.frames.end - position, _SIZE_MAX)
            if isinstance(found, Batch) and self._header_after(found) is None:
                size = room  # the last one there: its length may be too small
            frames = (_MAGIC, c.LOG_OVERHEAD + length), (_MAGIC, size), (min(magic, _MAGIC), size)
            for right, end in dict.fromkeys(frames):
                size_min = c.LOG_OVERHEAD + length_min(right)
                if right < 0 or not size_min <= end <= room or self._effort < end:
                    continue
                self._effort -= end
                batch = batch_of_header(self._source.path, position, end, offset, right, header)
                if crc_valid(self._source, batch):
                    defect = _misframed(batch, length, magic)
                    return replace(batch, crc_valid=True, header_defect=defect)
        return found

    def _header_after(self, batch: Batch) -> Batch | None:
        """Return the header after a batch; asked for again and again, it is read once."""
        end = self.end_at(batch.end_position)
        if self._after[0] != batch.end_position:
            after = None
            if batch.end_position < end:  # else it would be a defect, of an end as it should be
                with suppress(BytesUnreadableError):
                    after = read_batch(self._source, batch.end_position, end)
            self._after = batch.end_position, after if isinstance(after, Batch) else None
        return self._after[1]

    def _limit_by(self, batch: Batch, witnesses: list[Batch]) -> int | None:
        if witnesses:
            return _lower(witnesses[0].base_offset, self.high)
        is_last_after_gap = self.high is None and batch.base_offset != self.next_offset
        if is_last_after_gap and self.end_limit is not None:
            limit = self.end_limit()
            # Where the log has grown past that in another way, it says nothing.
            return limit if self.next_offset + length_of(batch) <= limit else None
        return self.high

    def _witnesses(self, batch: Batch) -> list[Batch]:
        """Return the next sound batches, whatever damage is before them."""
        found: list[Batch] = []
        position = batch.end_position
        for _ in range(_LOOKS_MAX):
            if len(found) == _WITNESSES or position >= self.end_at(position):
                break
            one = self._ahead.at(position)
            if isinstance(one, Batch) and one.crc_valid:
                found.append(one)
            position += one.size_bytes or 0
        return found

    def _judged(self, batch: Batch, witnesses: list[Batch]) -> Batch:
        limit = self._limit_by(batch, witnesses)
        after = witnesses[0] if witnesses else None
        end = self.high if len(witnesses) < 2 else _lower(witnesses[1].base_offset, self.high)
        is_tied, self.tied = batch.position == self.tied, NOWHERE
        place: Place = "unknown"
        if not is_tied:
            place = settle(batch, after, self.next_offset, limit, self.high, end)
        first, last = batch.base_offset, batch.last_offset
        # Damage between the two has offsets, too.
        if place == "next" and (after is None or after.position == batch.end_position):
            defect = _displaced(batch, self.next_offset)
            first, last = self.next_offset, self.next_offset + length_of(batch) - 1
            batch = replace(batch, base_offset=first, last_offset=last, header_defect=defect)
            return self._taken(batch)
        if place == "claimed":
            return self._taken(batch)
        if place == "tied" and after is not None:
            self.tied = after.position
        goes_on = len(witnesses) == _WITNESSES and (
            last < witnesses[0].base_offset <= witnesses[0].last_offset < witnesses[1].base_offset
        )
        header_defect = self._out_of_order(batch, None if witnesses else limit)
        if goes_on and witnesses[1].base_offset < self.next_offset:
            self.next_offset = last + 1  # an earlier batch was too high: these three agree
        return replace(batch, header_defect=header_defect)

    def _aged(self, batch: Batch) -> Batch:
        """Return the batch with its true leader epoch, if that is known."""
        epoch, low = batch.leader_epoch, self.epoch
        if epoch == c.NO_EPOCH:  # old messages may follow newer ones: they start again
            self.epoch = epoch
            return batch
        after = self._header_after(batch)
        high = c.NO_EPOCH if after is None else after.leader_epoch
        high = c.INT32_MAX if high == c.NO_EPOCH else high
        is_right = low <= epoch and (epoch <= high or high < low)
        if low <= epoch and not is_right and after is not None:
            second = self._header_after(after)
            is_right = second is not None and epoch <= second.leader_epoch
        if is_right and (epoch in (low, high) or self.agrees(batch.base_offset, epoch)):
            self.epoch = epoch
            return batch
        right = low if low == high else self._noted_epoch(batch.base_offset)
        if right is None or not low <= right <= high:
            right = None
        return replace(
            batch,
            leader_epoch=epoch if right is None else right,
            header_defect=batch.header_defect or _wrong_epoch(batch, right),
        )

    def agrees(self, offset: int, epoch: int) -> bool:
        """Return whether leader-epoch-checkpoint has this epoch for an offset, or does not say."""
        # A leader notes its epoch before its first batch.
        return epoch == c.NO_EPOCH or self._noted_epoch(offset) in (None, epoch)

    def _taken(self, batch: Batch) -> Batch:
        low, self.next_offset = self.next_offset, batch.last_offset + 1
        return replace(batch, low=low) if batch.is_wrapper else batch

    def _out_of_order(self, batch: Batch, limit: int | None) -> Defect:
        first, last = batch.base_offset, batch.last_offset
        reference = "batch-offset-not-increasing"
        detail = f"The batch has offsets {first} to {last}, after {self.next_offset - 1}."
        if first < self._low:
            reference = "batch-below-base-offset"
            detail = f"The batch starts at offset {first}, the segment at {self._low}."
        elif self.next_offset <= first <= last:
            detail = f"The batch has offsets {first} to {last}, and lower ones follow."
            if limit is not None:
                detail = f"The batch has offsets {first} to {last}, but the log ends at {limit}."
        return make_defect(
            reference,
            batch.path,
            detail,
            position=batch.position,
            offset=first,
            size_bytes=batch.size_bytes,
        )


def batch_defects(batch: Batch) -> Iterator[Defect]:
    """Yield what is wrong with a batch: its base offset, or its checksum if it was computed."""
    if batch.header_defect is not None:
        yield batch.header_defect
    if batch.crc_valid is False:
        yield make_defect(
            "batch-crc-mismatch",
            batch.path,
            f"Batch at base offset {batch.base_offset} does not match its checksum "
            f"(stored {batch.crc:#010x}).",
            position=batch.position,
            offset=batch.base_offset,
            size_bytes=batch.size_bytes,
        )


def put_header(
    data: bytearray | memoryview, offset: int, size_bytes: int, epoch: int, magic: int
) -> None:
    """Write what no checksum covers of a batch's header over its first bytes.

    Args:
        data: the batch, or its beginning.
        offset: its base offset; the last one of a compressed message of magic 0 or 1.
        size_bytes: of the batch.
        epoch: its leader epoch, which messages of magic 0 and 1 do not have.
        magic: of the batch.
    """
    length = size_bytes - c.LOG_OVERHEAD
    if magic >= _MAGIC:
        UP_TO_MAGIC.pack_into(data, 0, offset, length, epoch, magic)
    else:  # their checksum is in place of the epoch
        _OFFSET_AND_LENGTH.pack_into(data, 0, offset, length)


def _wrong_epoch(batch: Batch, right: int | None) -> Defect:
    detail = f"The batch has leader epoch {batch.leader_epoch}, unlike its neighbours"
    return make_defect(
        "batch-leader-epoch-wrong",
        batch.path,
        f"{detail}." if right is None else f"{detail}; {right} is right.",
        position=batch.position,
        offset=batch.base_offset,
    )


def _displaced(batch: Batch, first: int) -> Defect:
    return make_defect(
        "batch-offset-displaced",
        batch.path,
        f"The batch has base offset {batch.base_offset}; between its neighbours {first} is right.",
        position=batch.position,
        offset=batch.base_offset,
        size_bytes=batch.size_bytes,
    )


def _misframed(batch: Batch, length: int, magic: int) -> Defect:
    reference = "magic-unknown"
    detail = f"The header says magic {magic}; by its checksum {batch.magic} is right."
    if magic == batch.magic:
        reference = "batch-length-invalid"
        detail = f"The length field says {length}; by its checksum "
        detail += f"{batch.size_bytes - c.LOG_OVERHEAD} is right."
    return make_defect(
        reference,
        batch.path,
        detail,
        position=batch.position,
        offset=batch.base_offset,
        size_bytes=batch.size_bytes,
    )


def length_of(batch: Batch | Span) -> int:
    """Return how many offsets a batch takes, at least."""
    return wrap_int64(batch.last_offset - batch.base_offset) + 1


def _is_below(offset: int, limit: int | None) -> bool:
    return limit is None or offset < limit


def _lower(offset: int, limit: int | None) -> int:
    return offset if limit is None else min(offset, limit)
