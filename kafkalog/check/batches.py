"""Checks of batches: their interface, and those that judge one batch by itself or by its records.

A check receives the columns of consecutive batches in file order and reports defects. It keeps only
the state it needs, so that memory does not grow with the log.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.errors import BytesUnreadableError
from kafkalog.io.wording import utc_text
from kafkalog.log.batches.order import batch_defects
from kafkalog.log.batches.selection import defect_of
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.header_table import batch_at
from kafkalog.log.defects import make_defect
from kafkalog.model import Defect, Level
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.files.indexes import OffsetIndex, TimeIndex
    from kafkalog.files.log_dir import LogDirListing, PartitionDir
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.node.configs import TopicConfigs

T = TypeVar("T")

# The number of the batch at which a defect shows, and the defect.
Found = tuple[int, "Defect"]


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A log and the files that belong to it; None for a file that is missing or cannot be compared.

    Attributes:
        base_offset: base offset of the segment, None for a log that is not a live segment.
        offset_index: the offset index, if its entries are in order.
        time_index: the time index, if its entries are in order.
        next_base_offset: base offset of the next segment, None for an active segment.
        is_closed: whether nothing is appended to it any more: another segment follows, or the
            broker was shut down cleanly.
        size_bytes: its length when it was listed; None if that is not known.
    """

    path: str
    base_offset: int | None = None
    offset_index: OffsetIndex | None = None
    time_index: TimeIndex | None = None
    next_base_offset: int | None = None
    is_closed: bool = False
    size_bytes: int | None = None


@dataclass
class CheckedPartition:
    """A partition directory that the checks walk over.

    Attributes:
        end_offset: the offset after all batches walked so far.
        configs: the configs of its topic; None if they cannot be read.
        is_judged: whether its batches were checked and no check failed; otherwise its end proves
            nothing.
    """

    directory: PartitionDir
    end_offset: int = 0
    configs: TopicConfigs | None = None
    is_judged: bool = True

    @cached_property
    def log(self) -> UnifiedLog:
        """The partition's log, as the files around its batches describe it."""
        return UnifiedLog(self.directory)


class BatchCheck(ABC):
    """One invariant of batches; the first line of a check's docstring is its claim.

    Attributes:
        level: the lowest level at which the check runs.
    """

    level: ClassVar[Level] = Level.QUICK

    @abstractmethod
    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        """Yield the defects of the next batches, ordered by batch number."""

    def damage(self, defect: Defect) -> None:  # noqa: B027 # most need not know
        """Note damage between batches, or after the last one."""

    def end(self) -> Iterator[Defect]:
        """Yield the defects that show once all batches have been seen."""
        return iter(())


class SegmentCheck(BatchCheck):
    """An invariant of one segment, or of any log file."""

    def __init__(self, log: CheckedLog) -> None:
        self.log = log

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:  # noqa: ARG003 # most hold for any log
        """Return whether the log has everything that the check compares."""
        return True


class PartitionCheck(BatchCheck):
    """An invariant of a whole partition: it sees the segments one after another.

    Attributes:
        log: the segment whose batches are being read.
    """

    log: CheckedLog

    def __init__(self, partition: CheckedPartition) -> None:
        self.partition = partition

    @classmethod
    def applies(cls, partition: CheckedPartition) -> bool:  # noqa: ARG003 # most hold for any
        """Return whether the partition has everything that the check compares."""
        return True

    def begin(self, log: CheckedLog) -> None:
        """Start a segment, whose batches follow."""
        self.log = log


class Checks(Generic[T]):
    """The checks of one kind; each declares itself by this decorator, where it is written."""

    def __init__(self) -> None:
        self._declared: list[T] = []

    def __call__(self, check: T) -> T:
        self._declared.append(check)
        return check

    def in_order(self, modules: Sequence[str]) -> tuple[T, ...]:
        """Return the checks in the order of their modules, then as they follow in a module."""
        return tuple(sorted(self._declared, key=lambda check: modules.index(check.__module__)))


segment_check: Final[Checks[type[SegmentCheck]]] = Checks()
"""Checks of the batches of one log file."""

partition_check: Final[Checks[type[PartitionCheck]]] = Checks()
"""Checks of all batches of a partition."""

directory_check: Final[Checks[Callable[[CheckedPartition], Iterator[Defect]]]] = Checks()
"""Checks of the files of a partition, run once its batches have been walked over."""

log_dir_check: Final[
    Checks[Callable[[LogDirListing, Sequence[CheckedPartition]], Iterator[Defect]]]
] = Checks()
"""Checks of a log directory, run once its partitions have been walked over."""

joint_check: Final[Checks[Callable[[Sequence[CheckedLogDir]], Iterator[Defect]]]] = Checks()
"""Checks of all log directories of a run, run at its end."""

copies_check: Final[Checks[Callable[[Sequence[CheckedLogDir]], Iterator[Defect]]]] = Checks()
"""Checks of the same, and of the partitions that were given individually."""


def defects_of_batches(checks: Sequence[BatchCheck], columns: BatchColumns) -> Iterator[Defect]:
    """Yield the defects of all checks, ordered by batch number, then by check."""
    found = [check.batches(columns) for check in checks]
    for _, defect in heapq.merge(*found, key=itemgetter(0)):
        yield defect


def unread_range(defect: Defect) -> range | None:
    """Return the positions that the disk does not return; None for any other damage."""
    if defect.reference != BytesUnreadableError.reference:
        return None
    position = defect.position or 0
    return range(position, position + (defect.size_bytes or 0))


def running_max(before: int, column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest value before each batch and after the last, starting from `before`."""
    return np.maximum.accumulate(np.concatenate(([before], column)))


_KNOWN_ATTRIBUTES: Final = 0x7F  # codec (3 bits), time type, transactional, control, delete horizon
_COMMIT: Final = 1
_KRAFT_VOTERS: Final = 6  # the largest of ControlRecordType


@segment_check
class ChecksumsMatch(SegmentCheck):
    """The bytes of every batch match its checksum."""

    level = Level.STANDARD

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if columns.plain is not None:
            return
        for i in np.flatnonzero(~columns.crc_valid).tolist():
            batch = h.batch_at(columns.headers, i, self.log.path, crc_valid=False)
            for defect in batch_defects(batch):
                yield i, defect


@segment_check
class MagicIsKnown(SegmentCheck):
    """No batch that is framed as magic 2 claims a later magic."""

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if columns.plain is not None:
            return
        headers = columns.headers
        for i in np.flatnonzero(headers[h.MAGIC] > 2).tolist():
            detail = f"Magic {headers[h.MAGIC, i]} is unknown."
            yield i, defect_at(self.log.path, columns, i, "magic-unknown", detail)


@segment_check
class AttributesAreKnown(SegmentCheck):
    """Every batch names a codec that its magic has, and sets no attribute bit without a meaning."""

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if columns.plain is not None:
            return
        headers = columns.headers
        attributes = headers[h.ATTRIBUTES]
        codec = attributes & c.COMPRESSION_MASK
        no_codec = codec > np.where(headers[h.MAGIC] < 2, c.LEGACY_CODEC_MAX, c.CODEC_MAX)
        more = attributes & ~_KNOWN_ATTRIBUTES
        for i in np.flatnonzero((no_codec | (more != 0)) & columns.crc_valid).tolist():
            if no_codec[i]:
                detail = f"Codec {codec[i]} is unknown to magic {headers[h.MAGIC, i]}."
                yield i, defect_at(self.log.path, columns, i, "unknown-codec", detail)
            if more[i]:
                detail = f"Bits {more[i] & 0xFFFF:#06x} of the attributes have no meaning."
                yield i, defect_at(self.log.path, columns, i, "attributes-unknown", detail)


@segment_check
class HeaderFieldsAgree(SegmentCheck):
    """Count, producer, flags and marker of a batch of magic 2 do not contradict each other.

    Values that clients may choose freely are not judged: without a producer id, epoch and sequence
    may be anything (-1 by Java clients, 0 by some others and by Kafka's own coordinators).
    """

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if columns.plain is not None:
            return
        found = list(_contradictions(columns))
        wrong_at_all = np.any([wrong for wrong, _ in found], axis=0)
        for i in np.flatnonzero(wrong_at_all & _judged(columns)).tolist():
            details = [detail for wrong, detail in found if wrong[i]]
            detail = f"{'; '.join(details)}."
            detail = detail[0].upper() + detail[1:]
            yield i, defect_at(self.log.path, columns, i, "batch-header-contradictory", detail)


def _judged(columns: BatchColumns) -> NDArray[np.bool_]:
    judged: NDArray[np.bool_] = columns.crc_valid & (columns.headers[h.MAGIC] == 2)
    return judged


def _contradictions(columns: BatchColumns) -> Iterator[tuple[NDArray[np.bool_], str]]:
    headers, marker = columns.headers, columns.markers[h.MARKER_TYPE]
    attributes, count = headers[h.ATTRIBUTES], headers[h.COUNT]
    delta = headers[h.LAST_OFFSET] - headers[h.BASE_OFFSET]
    producer_id, sequence = headers[h.PRODUCER_ID], headers[h.BASE_SEQUENCE]
    has_producer = producer_id >= 0
    is_transactional = attributes & c.TRANSACTIONAL_MASK != 0
    is_control = attributes & c.CONTROL_MASK != 0
    ends_transaction = (marker >= 0) & (marker <= _COMMIT)
    yield (delta >= 0) & (count > delta + 1), "more records than offsets"
    yield producer_id < -1, "the producer id is below -1"
    yield has_producer & (headers[h.PRODUCER_EPOCH] < 0), "a producer has no epoch"
    yield has_producer & ~is_control & (sequence < 0), "records of a producer have no sequence"
    yield is_transactional & ~has_producer, "a transaction has no producer id"
    yield is_control & (attributes & c.COMPRESSION_MASK != 0), "control records are compressed"
    yield ends_transaction & ~is_transactional, "a transaction's marker is not transactional"
    yield ends_transaction & (count != 1), "a transaction's marker is not alone in its batch"
    of_kraft = (marker > _COMMIT) & (marker <= _KRAFT_VOTERS)
    yield of_kraft & is_transactional, "a control record of KRaft is transactional"
    yield of_kraft & has_producer, "a control record of KRaft has a producer"
    has_horizon = attributes & c.DELETE_HORIZON_MASK != 0
    yield has_horizon & (count == 0), "a batch without records has a delete horizon"


@segment_check
class ControlRecordsAreReadable(SegmentCheck):
    """The first record of every control batch has a key that states its type."""

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        if columns.plain is not None:
            return
        unreadable = (columns.markers[h.MARKER_TYPE] == h.UNREADABLE) & _judged(columns)
        refused = {ordinal for ordinal, _ in columns.refusals}
        for i in np.flatnonzero(unreadable).tolist():
            if i not in refused:
                detail = "The control record of the batch cannot be read."
                yield i, defect_at(self.log.path, columns, i, "control-record-malformed", detail)


def defect_at(
    path: str, columns: BatchColumns, ordinal: int, reference: str, detail: str
) -> Defect:
    headers = columns.headers
    return make_defect(
        reference,
        path,
        detail,
        position=int(headers[h.POSITION, ordinal]),
        offset=int(headers[h.BASE_OFFSET, ordinal]),
        size_bytes=int(headers[h.SIZE, ordinal]),
    )


_NO_TIMESTAMP: Final = -1


@segment_check
class OffsetsFitTheirSegment(SegmentCheck):
    """Every offset is at most 2147483647 above the segment's base offset.

    An index entry has four bytes for the difference. No broker since 2.0 writes a larger one
    (`LocalLog.append`, `LogSegment.canConvertToRelativeOffset`).
    """

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        return log.base_offset is not None

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        run, base_offset = columns.plain, self.log.base_offset or 0
        if run is not None and run.next_offset - 1 - base_offset <= c.INT32_MAX:
            return
        last = columns.headers[h.LAST_OFFSET]
        too_far = (last - self.log.base_offset > c.INT32_MAX) & columns.crc_valid
        for i in np.flatnonzero(too_far).tolist():
            detail = f"Offset {last[i]} is too far above {self.log.base_offset}."
            yield i, defect_at(self.log.path, columns, i, "segment-offset-overflow", detail)


@segment_check
class RecordsDecode(SegmentCheck):
    """The records of every batch with a right checksum can be read, as many as its header says."""

    level = Level.DEEP

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        for i, error in columns.refusals:
            # The header check has already reported an unknown codec.
            if error.reference != "unknown-codec":
                yield i, defect_of(error, batch_at(columns.headers, i, self.log.path))


@segment_check
class RecordOffsetsFitBatches(SegmentCheck):
    """Offsets rise from record to record, within the offsets of the batch.

    A batch of magic 0 or 1 states only its last offset, that of its last message.
    """

    level = Level.DEEP

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        headers, facts = columns.headers, columns.facts
        if facts is None:
            return
        is_old = headers[h.MAGIC] < 2
        first, last = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
        outside = (facts[h.FIRST] < first) & ~is_old
        # Offset 0 of an old compressed message says nothing: some producers left it unset.
        outside |= np.where(is_old & (last != 0), facts[h.LAST] != last, facts[h.LAST] > last)
        disorder = facts[h.DISORDER] >= 0
        for i in np.flatnonzero((outside | disorder) & _decoded(columns)).tolist():
            detail = f"The records have offsets {facts[h.FIRST, i]} to {facts[h.LAST, i]}, "
            detail += f"the batch {first[i]} to {last[i]}."
            if disorder[i]:
                detail = f"Record {facts[h.DISORDER, i]} of the batch does not follow the offset "
                detail += "of the one before it."
            yield i, defect_at(self.log.path, columns, i, "record-offset-invalid", detail)


@segment_check
class MaxTimestampsAreRight(SegmentCheck):
    """The largest timestamp in a batch is the one in its header.

    The broker sets it on append (`LogValidator`), and the cleaner when it drops records
    (`MemoryRecords.filterTo`); a batch that lost all its records keeps the old one. With
    LogAppendTime there is only the header. Messages of magic 0 inside one of magic 1 have no
    timestamps. All of them search for the largest from -1 up, so -1 is right for records below it.
    """

    level = Level.DEEP

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        headers, facts = columns.headers, columns.facts
        if facts is None:
            return
        magic, largest = headers[h.MAGIC], facts[h.TIME_MAX]
        judged = (headers[h.ATTRIBUTES] & c.TIMESTAMP_TYPE_MASK == 0) & (magic > 0)
        judged &= _decoded(columns) & ((magic > 1) | (largest != -1))
        said = np.maximum(largest, _NO_TIMESTAMP)
        for i in np.flatnonzero(judged & (said != headers[h.MAX_TIMESTAMP])).tolist():
            detail = f"The header says {headers[h.MAX_TIMESTAMP, i]}, its records {largest[i]}."
            yield i, defect_at(self.log.path, columns, i, "max-timestamp-wrong", detail)


_CENTURY: Final = range(946_684_800, 4_102_444_800)
"""The seconds from 2000 up to 2100."""
_UNITS: Final = {"seconds": 1, "microseconds": 10**6, "nanoseconds": 10**9}


@partition_check
class TimestampsAreMilliseconds(PartitionCheck):
    """No producer's timestamp is of this century in another unit only; the first is reported."""

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        self._is_reported = False

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        times = columns.headers[h.MAX_TIMESTAMP]
        usual = _CENTURY.start * 1000 <= times.min() and times.max() < _CENTURY.stop * 1000
        if self._is_reported or usual:
            return
        by_producer = columns.headers[h.ATTRIBUTES] & c.TIMESTAMP_TYPE_MASK == 0
        for unit, count in _UNITS.items():
            is_odd = (times >= _CENTURY.start * count) & (times < _CENTURY.stop * count)
            for i in np.flatnonzero(is_odd & by_producer & columns.crc_valid)[:1].tolist():
                time = int(times[i])
                detail = f"Timestamp {time} is {utc_text(time)}; in {unit} it would be "
                detail += f"{utc_text(time * 1000 // count)}."
                self._is_reported = True
                yield i, defect_at(self.log.path, columns, i, "timestamp-unit-suspected", detail)
                return


def _decoded(columns: BatchColumns) -> NDArray[np.bool_]:
    assert columns.facts is not None, "the level is deep"
    found: NDArray[np.bool_] = columns.facts[h.FOUND] > 0
    found[[ordinal for ordinal, _ in columns.refusals]] = False
    return found
