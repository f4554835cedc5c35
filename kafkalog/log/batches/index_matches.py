"""Index entries compared with the log, as `kafka-dump-log.sh` compares them.

Follows `dumpIndex` and `dumpTimeIndex` of `DumpLogSegments` of Kafka.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from formats import constants as c
from formats.constants import OFFSET_INDEX_ENTRY, RECORD_BATCH_HEADER
from formats.late_classes import dataclass
from kafkalog.errors import KafkaLogError
from kafkalog.files.indexes import ENTRIES_A_BLOCK, OffsetIndex, TimeIndex
from kafkalog.log.batches.framing import read_batch
from kafkalog.model import Defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.io.paths.source import Source

# Base offset, length, magic and last offset delta: enough for an ordinary batch.
_ORDINARY = RECORD_BATCH_HEADER.part("base_offset", "batch_length", "magic", "last_offset_delta")


@dataclass(frozen=True, slots=True)
class OffsetMatches:
    """Consecutive entries of an offset index.

    Attributes:
        entries: offset and position of each.
        mismatches: an entry's offset and the last offset of the batch at its position, if they
            differ.
        defect: the defect of the next entry, which points to no batch; nothing comes after it.
    """

    entries: list[tuple[int, int]]
    mismatches: list[tuple[int, int]]
    defect: Defect | None = None


@dataclass(frozen=True, slots=True)
class TimeMatches:
    """Consecutive entries of a time index.

    Attributes:
        entries: timestamp and offset of each.
        not_found: an entry's offset that is not the last of any batch, and the last offset of the
            batch that was found instead, -1 for none.
        wrong: an entry's timestamp and the largest one of the batch's records, if they differ.
        unordered: a timestamp that is not larger than the previous one, and that one.
    """

    entries: list[tuple[int, int]] = field(default_factory=list)
    not_found: list[tuple[int, int]] = field(default_factory=list)
    wrong: list[tuple[int, int]] = field(default_factory=list)
    unordered: list[tuple[int, int]] = field(default_factory=list)


def match_offsets(index: OffsetIndex, log: Source, size_max: int) -> Iterator[OffsetMatches]:
    """Yield the entries that Kafka's tool sees, with zero padding up to the first it skips.

    Args:
        index: the offset index.
        log: the segment's log.
        size_max: bytes of the log that are visible from an entry's position.

    Raises:
        UnreadableError: index or log cannot be read.

    Cost:
        Reads a batch header per entry. A plain loop, because numpy takes longer to load than
        this takes for the index of a large segment.
    """
    for first, block in index.blocks(padding=True):
        found = OffsetMatches([], [])
        try:
            ending = _match_block(index, log, size_max, first, block, found)
        except KafkaLogError:
            yield found
            raise
        if isinstance(ending, Defect):
            found = replace(found, defect=ending)
        yield found
        if ending is not None:
            return


def _match_block(
    index: OffsetIndex, log: Source, size_max: int, first: int, block: bytes, found: OffsetMatches
) -> Defect | bool | None:
    """Compare the entries of a block into `found`; return what ends the index, None to continue."""
    entries, mismatches = found.entries, found.mismatches
    read = log.read_apart
    base_offset, end, size = index.base_offset, log.size_bytes, _ORDINARY.size
    for relative, position in OFFSET_INDEX_ENTRY.struct.iter_unpack(block):
        # dumpIndex stops at the first slot but the first whose offset is the base: padding.
        if relative == 0 and (first or entries):
            return True
        offset = base_offset + relative
        left = min(end - position, size_max)
        if position >= 0 and left > size:
            base, length, magic, delta = _ORDINARY.unpack(read(position, size))
            if magic == 2 and c.BATCH_LENGTH_MIN <= length <= left - c.LOG_OVERHEAD:
                if base + delta != offset:
                    mismatches.append((offset, base + delta))
                entries.append((offset, position))
                continue
        if position == 0 and index.entry_count == 0 and end == 0:
            return True  # padding of an index over an empty log, on which Kafka's tool fails
        batch = read_batch(log, position, position + left)
        if isinstance(batch, Defect):
            number = first + len(entries)
            return replace(
                batch,
                path=index.path,
                detail=f"Entry {number} points to position {position}, where the log holds no "
                "batch.",
                reference="index-entry-misses-batch",
                position=number * index.entry_size,
            )
        if batch.last_offset != offset:
            mismatches.append((offset, batch.last_offset))
        entries.append((offset, position))
    return None


def match_times(
    index: TimeIndex, offsets: OffsetIndex | None, log: Source
) -> Iterator[TimeMatches]:
    """Yield the entries that Kafka's tool sees, with zero padding up to the first it skips.

    Args:
        index: the time index.
        offsets: the segment's offset index; None to search the log from its beginning.
        log: the segment's log.

    Raises:
        UnreadableError: a file cannot be read.
        CorruptDataError, LimitExceededError: the batch of an entry cannot be decoded; the entries
            before it have been yielded.

    Cost:
        Each batch that an entry names is decoded.
    """
    previous = -1
    block = TimeMatches()
    for entry in index.entries(padding=True):
        # The same rule as for an offset index; a genuine second entry at the base offset ends it,
        # too.
        if entry.entry > 0 and entry.offset == index.base_offset:
            break
        try:
            found, largest = match_time(entry.offset, offsets, log)
        except KafkaLogError:
            yield block
            raise
        if largest is None:
            block.not_found.append((entry.offset, found))
        else:
            if largest != entry.timestamp:
                block.wrong.append((entry.timestamp, largest))
            if entry.timestamp <= previous:
                block.unordered.append((entry.timestamp, previous))
        previous = entry.timestamp
        block.entries.append((entry.timestamp, entry.offset))
        if len(block.entries) == ENTRIES_A_BLOCK:
            yield block
            block = TimeMatches()
    yield block


def match_time(offset: int, offsets: OffsetIndex | None, log: Source) -> tuple[int, int | None]:
    """Return last offset and largest record timestamp of the batch that an offset leads to.

    The timestamp is None if the offset is not the last of the batch, the last offset -1 if there is
    no batch. Raises as `match_times`.
    """
    from kafkalog.log.batches.records import decode_records

    below = offsets.lookup(offset) if offsets else None
    position = below.position if below else 0
    while position < log.size_bytes:
        batch = read_batch(log, position, log.size_bytes)
        if isinstance(batch, Defect):
            break
        if batch.last_offset >= offset:
            if batch.last_offset > offset:
                return batch.last_offset, None
            return offset, max((one.timestamp for one in decode_records(log, batch)), default=-1)
        position = batch.end_position
    return -1, None
