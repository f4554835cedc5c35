"""Offsets within and across segments: they rise, none is missing; no file lacks its segment.

No checksum covers base offsets. Follows `UnifiedLog.append`, which assigns offsets without gaps,
and `LogLoader.loadSegmentFiles` of Kafka. Only the cleaner makes gaps; a replica that copies a
compacted log has them too.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from formats import file_names
from formats.file_names import INDEX_KINDS, FileKind, FileState
from formats.topic_names import INTERNAL_TOPICS
from kafkalog.check.batches import (
    CheckedLog,
    CheckedPartition,
    PartitionCheck,
    SegmentCheck,
    directory_check,
    partition_check,
    segment_check,
)
from kafkalog.errors import DataError
from kafkalog.files.log_dir import list_partition
from kafkalog.io.paths.source import Source
from kafkalog.io.wording import counted
from kafkalog.log.batches.order import NOWHERE, Order
from kafkalog.log.batches.segment import OpenSegment, gaps_between
from kafkalog.log.batches.selection import resolved
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import BatchColumns, batch_columns
from kafkalog.log.defects import make_defect
from kafkalog.log.living import answered
from kafkalog.model import Batch, Defect, Level
from kafkalog.node.configs import ConfigsAround, ConfigSources
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.check.batches import Found
    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.log.columns.headers import PlainRun
    from kafkalog.model import LogView
    from kafkalog.node.configs.sources import LogDirConfigs

    Table = NDArray[np.int64]

(FIRST, LAST, PLACE, END_PLACE, IS_SOUND, IS_KNOWN, SPAN_FIELDS) = range(7)
"""Rows of a table of spans: first and last offset of a batch, its position and the next one, 1 if
the checksum is right, and 1 if the first offset is known. The first offset of a compressed
message of magic 0 or 1 is known only if the message was decoded.
"""


def spans_of(columns: BatchColumns) -> Table:
    """Return the spans of all batches."""
    headers, facts = columns.headers, columns.facts
    spans = np.empty((SPAN_FIELDS, columns.count), np.int64)
    spans[FIRST], spans[LAST] = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
    spans[PLACE], spans[END_PLACE] = headers[h.POSITION], headers[h.POSITION] + headers[h.SIZE]
    spans[IS_SOUND], spans[IS_KNOWN] = columns.crc_valid, 1
    wrappers = headers[h.MAGIC] < 2
    wrappers &= headers[h.ATTRIBUTES] & c.COMPRESSION_MASK != 0
    if wrappers.any():
        spans[IS_KNOWN, wrappers] = 0
        if facts is not None:
            decoded = wrappers & (facts[h.FOUND] > 0)
            spans[FIRST, decoded], spans[IS_KNOWN, decoded] = facts[h.FIRST, decoded], 1
    return spans


@segment_check
class OffsetsIncrease(SegmentCheck):
    """Every batch starts after the one before it, in its segment, and ends before the next segment.

    `Order` judges what contradicts the batches around it, once the next one is known.
    """

    def __init__(self, log: CheckedLog) -> None:
        super().__init__(log)
        assert log.base_offset is not None, "the check applies"
        self._held = np.empty((SPAN_FIELDS, 0), np.int64)
        self._expected, self._tied = log.base_offset, NOWHERE
        self._high = log.next_base_offset

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        return log.base_offset is not None

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if columns.plain is not None and self._goes_on(columns.plain):
            return
        shift = 1 - self._held.shape[1]
        spans = np.concatenate([self._held, spans_of(columns)], axis=1)
        self._held = spans[:, -1:]
        for i, defect in self._judge(spans[:, :-1], spans[FIRST, 1:]):
            yield i + shift, defect

    def _goes_on(self, run: PlainRun) -> bool:
        if self._held.shape[1] or run.first_offset != self._expected:
            return False
        self._expected = run.next_offset
        return True

    def end(self) -> Iterator[Defect]:
        """Yield the defects of the last batch, which may reach into the next segment."""
        next_base = self.log.next_base_offset
        if self._held.shape[1]:
            length = int(self._held[LAST, 0]) - int(self._held[FIRST, 0]) + 1
            # Unless it is the batch that is out of place, it is the segment that is too long.
            self._high = next_base if self._expected + length == next_base else None
            following = np.array([c.INT64_MAX if next_base is None else next_base])
            for _, defect in self._judge(self._held, following):
                yield defect
        if next_base is not None and self._expected > next_base:
            yield make_defect(
                "segments-overlap",
                self.log.path,
                f"The segment ends at offset {self._expected - 1}, the next one starts at "
                f"{next_base}.",
                offset=next_base,
            )

    def _judge(self, spans: Table, following: NDArray[np.int64]) -> Iterator[tuple[int, Defect]]:
        """Yield the defects of some batches, given the first offsets of those after them."""
        first, last, is_sound = spans[FIRST], spans[LAST], spans[IS_SOUND] == 1
        rises = (first <= last) & (last < following)
        odd = np.append(np.flatnonzero(~rises), len(first))
        i = 0
        while i < len(first):
            if rises[i] and first[i] >= self._expected and spans[PLACE, i] != self._tied:
                i = int(odd[np.searchsorted(odd, i)])
                self._expected = int(last[i - 1]) + 1
                continue
            defect = self._judged(int(spans[PLACE, i])) if is_sound[i] else None
            if defect is not None:
                yield i, defect
            i += 1

    def _judged(self, position: int) -> Defect | None:
        """Return what readers say of the offsets of a batch."""
        assert self.log.base_offset is not None, "the check applies"
        with suppress(DataError), Source(self.log.path) as source:
            order = Order(
                source, None, self.log.base_offset, self._high, is_log=False, check_crc=False
            )
            order.next_offset, order.tied = self._expected, self._tied
            found = order.at(position)
            self._expected, self._tied = order.next_offset, order.tied
            if isinstance(found, Batch) and found.crc_valid is not False:
                defect = resolved(source, found).header_defect
                if defect is not None and "offset" in defect.reference:
                    return defect
        return None


_SEGMENT_SIZE_MAX: Final = c.INT32_MAX  # an offset index has four bytes for a position


@partition_check
class OffsetsAreComplete(PartitionCheck):
    """A log that was never compacted has every offset from its first segment's name on.

    Signs of compaction: an entry in cleaner-offset-checkpoint, a topic that is always compacted, a
    batch that lost records or has a delete horizon, a segment that lost all its records, several
    gaps; and for a gap also the topic's cleanup.policy, if the log directory has a metadata log to
    look it up in. A batch that is out of order or has a wrong checksum is no evidence of a gap, nor
    is damage between or after batches: other checks report them. The first gap is reported with its
    offsets, the others only as a number.

    Attributes:
        is_compacted: whether a sign of compaction has been seen.
    """

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        cleaned_to = partition.log.checkpoint(file_names.CLEANER_OFFSETS)
        self._directory = partition.directory
        topic = partition.directory.topic
        self.is_compacted = cleaned_to is not None or topic in INTERNAL_TOPICS
        self._expected: int | None = None
        self._is_in_order = True
        self._held = np.empty((SPAN_FIELDS, 0), np.int64)
        self._end_position = 0
        self._sizes = {
            segment.log.path: segment.log.size_bytes for segment in partition.directory.segments
        }
        self._gaps = 0
        self._first_gap: tuple[str, int, int, int] | None = None

    def begin(self, log: CheckedLog) -> None:
        assert log.base_offset is not None, "it is a segment"
        if self._expected is None:
            self._expected = log.base_offset
        else:
            self._release(log.base_offset)
            self.is_compacted = self.is_compacted or self._was_emptied()
            # Batches that are lost in damage are reported there, and are no gap.
            if not self.is_compacted and self._is_damaged_at_its_end():
                self._expected, self._is_in_order = log.base_offset, True
        self._end_position = 0
        super().begin(log)

    def _was_emptied(self) -> bool:
        times = self.log.time_index
        # A roll adds an entry for the largest timestamp: a log that someone truncated still has it.
        return not self._sizes[self.log.path] and times is not None and not times.size_bytes

    def _is_damaged_at_its_end(self) -> bool:
        """Return whether anything but zeros follows the last batch of the last segment."""
        if self._end_position == self._sizes[self.log.path]:
            return False
        with suppress(DataError), Source(self.log.path) as source:
            return not source.is_zero_from(self._end_position)
        return True

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        run = columns.plain
        self.is_compacted = self.is_compacted or (run is None and is_cleaned(columns))
        if not self.is_compacted and not (run is not None and self._goes_on(run)):
            spans = spans_of(columns)
            spans = spans[:, spans[IS_SOUND] == 1]
            if spans.shape[1]:
                spans = np.concatenate([self._held, spans], axis=1)
                self._judge(spans[:, :-1], spans[FIRST, 1:])
                self._held = spans[:, -1:]
        return iter(())

    def _goes_on(self, run: PlainRun) -> bool:
        if self._held.shape[1] or run.first_offset != self._expected:
            return False
        self._expected, self._is_in_order = run.next_offset, True
        self._end_position = run.end_position
        return True

    def _release(self, following: int) -> None:
        if not self._held.shape[1]:
            return
        self._judge(self._held, np.full(self._held.shape[1], following))
        self._held = self._held[:, :0]

    def _judge(self, spans: Table, following: Table) -> None:
        if not spans.shape[1]:
            return
        assert self._expected is not None, "a segment has begun"
        first, last = spans[FIRST], spans[LAST]
        expected = np.concatenate(([self._expected], last[:-1] + 1))
        in_order = (first >= expected) & (last >= first)
        after_order = np.concatenate(([self._is_in_order], in_order[:-1]))
        gaps = (first > expected) & in_order & after_order & (following > last)
        gaps &= spans[PLACE] == np.append(self._end_position, spans[END_PLACE, :-1])
        gaps &= spans[IS_KNOWN] == 1
        self._expected, self._is_in_order = int((last + 1)[-1]), bool(in_order[-1])
        self._end_position = int(spans[END_PLACE, -1])
        found = np.flatnonzero(gaps)
        if len(found) and self._first_gap is None:
            i = found[0]
            self._first_gap = self.log.path, int(spans[PLACE, i]), int(expected[i]), int(first[i])
        self._gaps += len(found)

    def end(self) -> Iterator[Defect]:
        """Yield the gap of a log without any sign of compaction; a note if there are several."""
        self._release(c.INT64_MAX)
        if self.is_compacted or self._first_gap is None or has_compact_policy(self.partition):
            return
        path, position, expected, first = self._first_gap
        detail = f"Offsets {expected} to {first - 1} are missing"
        reference = "offsets-missing"
        if self._gaps > 1:
            reference, detail = (
                "offsets-with-gaps",
                f"{detail}, and at {counted(self._gaps - 1, 'more place')}",
            )
        for entry in self.partition.directory.files:
            copied = file_names.copied_by_rsync(entry.name.name)
            if copied is None or copied.kind != FileKind.LOG:
                continue
            if expected <= (copied.offset or 0) < first:
                detail += f"; {entry.name.name}, which rsync did not finish, belongs there"
                break
        yield make_defect(reference, path, f"{detail}.", position=position, offset=expected)


def missing_offsets(
    partition: PartitionDir,
    segments: Sequence[Segment],
    from_offset: int | None = None,
    to_offset: int | None = None,
) -> Iterator[Defect]:
    """Yield what `verify` finds about gaps between segments, if wanted offsets are in one.

    Readers of a whole log use it: a segment that was lost is no damage in any other.

    Raises:
        KafkaLogError: a file cannot be read.

    Cost:
        A few reads per segment; all headers only if there is a gap, and no sign of compaction.
    """
    if next(gaps_between(segments, from_offset, to_offset), None) is not None:
        yield from _gaps(partition, segments)


def lacks_offsets(partition: PartitionDir, segments: Sequence[Segment]) -> bool:
    """Return whether a log lacks offsets that no cleaner took, also inside segments.

    Several gaps may be a cleaner's if nobody knows the topic's policy.

    Raises:
        KafkaLogError: a file cannot be read.

    Cost:
        All headers, unless there is a sign of compaction.
    """
    found = [one.reference for one in _gaps(partition, segments)]
    if not found or found == ["offsets-missing"]:
        return bool(found)
    with suppress(DataError):
        return _configs_of(partition).metadata is not None
    return False


def _configs_of(partition: PartitionDir) -> LogDirConfigs:
    return ConfigsAround(ConfigSources(), partition.log_dirs).of_log_dir_of(partition.path)


def _gaps(partition: PartitionDir, segments: Sequence[Segment]) -> Iterator[Defect]:
    with suppress(DataError):  # without configs, the log itself may show it
        configs = _configs_of(partition).of_topic(partition.topic)
        if has_compact_policy(CheckedPartition(partition, configs=configs)):
            return
    check = OffsetsAreComplete(CheckedPartition(partition))
    for segment in segments:
        with OpenSegment(segment) as opened:
            base, following = segment.base_offset, segment.next_base_offset
            path, times = segment.log.path, opened.time_index
            check.begin(CheckedLog(path, base, time_index=times, next_base_offset=following))
            for columns in batch_columns(opened.source, Level.QUICK):
                if not isinstance(columns, Defect):
                    list(check.batches(columns))
                if check.is_compacted:
                    return
    yield from check.end()


def missing_from(
    directory: str, log_dirs: tuple[str, ...], view: LogView, offset: int
) -> Sequence[Defect]:
    """Return what `missing_offsets` finds of a partition, if its first gap begins at this offset.

    So only one of all who read its segments reports it.
    """

    def judged() -> tuple[int, list[Defect]]:
        partition = replace(list_partition(directory), log_dirs=log_dirs)
        return _judged(partition, show_now(partition, view).segments)

    first, found = answered(judged, judged)  # a broker may clean the log meanwhile
    return found if first == offset else ()


@lru_cache(1)
def _judged(partition: PartitionDir, segments: tuple[Segment, ...]) -> tuple[int, list[Defect]]:
    """Return where the first gap begins, -1 without one, and the finding about it."""
    first, _ = next(gaps_between(segments), (-1, -1))
    return first, list(missing_offsets(partition, segments))


def has_compact_policy(partition: CheckedPartition) -> bool:
    """Return whether the log directory's metadata log says that the topic is compacted."""
    if partition.configs is None:
        return False
    try:
        return "compact" in partition.configs.words("cleanup.policy")
    except DataError:
        return False  # another check reports its defects


def has_stated_policy(partition: CheckedPartition) -> bool:
    """Return whether a config says whether the topic is compacted, even one that is damaged."""
    try:
        return partition.configs is not None and partition.configs.is_set("cleanup.policy")
    except DataError:
        return True


def is_cleaned(columns: BatchColumns) -> bool:
    """Return whether the cleaner has rewritten one of the batches of magic 2."""
    headers = columns.headers
    # Producers write offsets without gaps inside a batch, and only the cleaner sets a horizon.
    lost = headers[h.COUNT] < headers[h.LAST_OFFSET] - headers[h.BASE_OFFSET] + 1
    lost |= headers[h.ATTRIBUTES] & c.DELETE_HORIZON_MASK != 0
    return bool((lost & (headers[h.MAGIC] >= 2) & columns.crc_valid).any())


@directory_check
def files_have_their_segment(partition: CheckedPartition) -> Iterator[Defect]:
    """An index has a log, and no log is larger than 2 GiB."""
    directory = partition.directory
    for segment in directory.segments:
        if segment.log.size_bytes > _SEGMENT_SIZE_MAX:
            detail = f"The size {segment.log.size_bytes} is above {_SEGMENT_SIZE_MAX}."
            yield make_defect("segment-too-large", segment.log.path, detail)
    with_log = {segment.base_offset for segment in directory.segments}
    # A deletion or a swap that was interrupted leaves some of the files of a segment.
    unfinished = {
        entry.name.offset for entry in directory.files if entry.name.state != FileState.LIVE
    }
    for kind in INDEX_KINDS:
        for entry in directory.live(kind):
            if entry.name.offset not in with_log | unfinished:
                detail = "The index has no log: it was lost or renamed."
                yield make_defect("index-without-log", entry.path, detail)
