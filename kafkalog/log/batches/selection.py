"""Which batches and records of which segments are wanted, and how such a plan is read.

Selections are pushed down: offsets and times to the indexes and the batch headers, so that nothing
else is read. A plan knows segments; `batches.reader` chooses which view of a partition they are.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from formats.file_names import FileKind, FileState
from formats.late_classes import dataclass
from kafkalog.errors import DataError, FileChangedError, KafkaLogError
from kafkalog.files.log_dir import FileEntry, PartitionDir, Segment, list_partition, open_path
from kafkalog.io.paths import file_system
from kafkalog.log.batches.framing import align
from kafkalog.log.batches.order import batch_defects
from kafkalog.log.batches.records import decode_records, resolve_batch
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.defects import kind_of, make_defect
from kafkalog.log.living import CHANGES, LivingWalk, answered, is_being_written
from kafkalog.model import AbortedTransaction, Batch, Defect, Isolation, LogView, Record

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.io.paths.source import Readable, Source
    from kafkalog.log.batches.condition import Condition
    from kafkalog.log.batches.order import Order
    from kafkalog.node.frontier import Frontier
    from kafkalog.node.outcome import Difference


@dataclass(frozen=True, slots=True)
class Selection:
    """Which batches and records are wanted; None leaves a bound open.

    Attributes:
        from_offset: first offset, inclusive.
        to_offset: last offset, exclusive.
        from_time: earliest record timestamp, inclusive, milliseconds.
        to_time: latest record timestamp, exclusive, milliseconds.
        from_position: byte position in the file to start at; reading resumes at the next batch.
        limit: maximum number of rows.
        max_bytes: read at most this many bytes of each `.log`.
        producer_id: batches of this producer only.
        leader_epoch: batches appended in this leader epoch only.
        key: records with exactly this key.
        key_regex: records whose key holds a match.
        value_regex: records whose value holds a match.
        header: records with a header of this name and, unless None, this value.
        where: records that meet this condition. What it says of offsets, times, a key, a header, a
            producer or an epoch tightens the attributes for these.
        control: control batches only.
        data: no control batches; messages of magic 0 and 1 are data.
        sound: no records of batches with a wrong checksum; their defects are still reported.
        isolation: what a consumer of this level gets: from the log start offset up to the high
            watermark, for read_committed up to the last stable offset and without aborted
            transactions; by default the whole log.
        view: the view of a partition directory given by its path. A `PartitionDir` is read as it
            is: `kafkalog.show` makes a view of one.
    """

    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    from_position: int | None = None
    limit: int | None = None
    max_bytes: int | None = None
    producer_id: int | None = None
    leader_epoch: int | None = None
    key: bytes | None = None
    key_regex: re.Pattern[bytes] | None = None
    value_regex: re.Pattern[bytes] | None = None
    header: tuple[bytes, bytes | None] | None = None
    where: Condition | None = None
    control: bool = False
    data: bool = False
    sound: bool = False
    isolation: Isolation = Isolation.LOG
    view: LogView = LogView.RECOVERED

    def __post_init__(self) -> None:
        for name, bound in () if self.where is None else self.where.narrow(self):
            object.__setattr__(self, name, bound)

    @property
    def read_committed(self) -> bool:
        """Whether records of aborted transactions are left out."""
        return self.isolation == Isolation.READ_COMMITTED


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a reader has to go through: the rules by which both decoders select.

    Attributes:
        segments: those that can hold wanted offsets, in order.
        selection: what is wanted; within the bounds of its isolation.
        aborted: the aborted transactions by producer, empty without `read_committed`.
        difference: how the view of the partition differs from its files, None if it does not.
        again: makes a plan from a new listing, from an offset on; None if nothing can be listed.
        reached: called with the offset after each batch that was used, or after several, and with
            the leader epoch of the last one.
        is_unchanged: whether positions in the selection still fit the file; None if nothing was
            planned by position.
        low: the lowest offset that can be there; None if only the segments' names say it.
        frontier: what knows how far a start accepts the segments; None if all of them is accepted.
    """

    segments: tuple[Segment, ...]
    selection: Selection
    aborted: dict[int, list[AbortedTransaction]]
    difference: Difference | None = None
    again: Callable[[int | None], ReadPlan] | None = None
    reached: Callable[[int, int], object] | None = None
    is_unchanged: Callable[[], bool] | None = None
    low: int | None = None
    frontier: Frontier | None = None

    def order(self, opened: OpenSegment) -> Order:
        """Return what judges the offsets of the batches of a segment."""
        frontier = self.frontier
        cut_at = None if frontier is None else partial(frontier.cut_at, opened.segment)
        order = opened.order(low=self.low, end=self.selection.max_bytes, cut_at=cut_at)
        if self.selection.from_position is not None:
            order.high = opened.segment.next_base_offset  # of the part
        return order

    def counts(self, defect: Defect, source: Source) -> bool:
        """Return whether a defect is real, not the effect of `max_bytes` or of an append."""
        if defect.reference != "torn-tail":
            return True
        end = self.selection.max_bytes
        if end is not None and end < source.size_bytes:
            # Where a batch begins, the one before it ends: then its length is wrong.
            return align(source, end) == end
        # The last batch of a log that a broker appends to may be there by half.
        return not is_being_written(source, os.path.dirname(os.path.dirname(source.path)))

    def wanted(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """Return the segments that can hold wanted offsets."""
        return tuple(segment for segment in segments if not _skips(segment, self.selection))

    def is_behind(self, batch: Batch) -> bool:
        """Return whether the batch, and so all that follow, is after the last wanted offset."""
        if self.selection.to_offset is None or batch.base_offset < self.selection.to_offset:
            return False
        if not batch.is_sound:
            return False  # nobody knows where it belongs
        return not batch.is_wrapper  # else only the last offset is known

    def wants(self, batch: Batch) -> bool:
        """Return whether the batch can hold wanted records, according to its header."""
        return _batch_matches(batch, self.selection) and not _is_hidden(
            batch, self.selection, self.aborted
        )


def plan_files(target: PartitionDir | FileEntry, selection: Selection) -> ReadPlan:
    """Plan to read the files of a partition as they are, or one of them: no view, no bounds.

    `isolation` is ignored. Raises as `read_records`.
    """
    if isinstance(target, FileEntry):
        segments, _ = segments_of(target)
        return plan_segments(segments, selection)

    def again(_next_offset: int | None = None) -> ReadPlan:
        return plan_segments(list_partition(target.path).segments, selection)

    def first() -> ReadPlan:
        return plan_segments(target.segments, selection)

    return replace(answered(first, again), again=again)


def plan_segments(segments: tuple[Segment, ...], selection: Selection) -> ReadPlan:
    """Plan to read the segments that can hold wanted offsets."""
    if selection.limit == 0:
        return ReadPlan((), selection, {})
    plan = ReadPlan((), selection, {})
    return replace(plan, segments=plan.wanted(segments))


def segments_of(target: PartitionDir | FileEntry) -> tuple[tuple[Segment, ...], PartitionDir]:
    """Return the segments of a target, and the partition directory around them."""
    if isinstance(target, PartitionDir):
        return target.segments, target
    parent = open_path(os.path.dirname(file_system.absolute(target.path)))
    if not isinstance(parent, PartitionDir):
        parent = PartitionDir(os.path.dirname(file_system.absolute(target.path)), None, ())
    if target.name.kind == FileKind.LOG and target.name.state == FileState.LIVE:
        for segment in parent.segments:
            if segment.base_offset == target.name.offset:
                return (replace(segment, log=target),), parent
    # The offset in the name of a KRaft snapshot is its end offset.
    base = 0 if target.name.kind == FileKind.KRAFT_SNAPSHOT else target.name.offset or 0
    return (Segment(base, target, None, None, None, None),), parent


def planned_batches(
    plan: ReadPlan, progress: Callable[[int], None] | None = None
) -> Iterator[Batch | Defect]:
    """Yield the batches of a plan, with a defect for each damaged range; as `read_batches`."""
    rows = 0
    for batch, opened in _selected(LivingWalk(plan), progress):
        if isinstance(batch, Batch):
            batch = resolved(opened.source, batch)
            yield batch
            yield from batch_defects(batch)
            rows += 1
            if rows == plan.selection.limit:
                return
        else:
            yield batch


def planned_records(
    plan: ReadPlan, progress: Callable[[int], None] | None = None
) -> Iterator[Record | Defect]:
    """Yield the records of a plan, with a defect for any damage; as `read_records`."""
    rows = 0
    walk = LivingWalk(plan)
    for batch, opened in _selected(walk, progress):
        if isinstance(batch, Defect):
            yield batch
            continue
        yield from batch_defects(batch)
        if plan.selection.sound and not batch.is_sound:
            continue
        next_offset = batch.base_offset
        try:
            for record in decode_records(opened.source, batch):
                if record_matches(record, walk.plan.selection):
                    yield record
                    rows += 1
                    if rows == plan.selection.limit:
                        return
                next_offset = record.offset + 1
        except FileChangedError as error:
            walk.interrupt(error, next_offset)
        except DataError as error:
            yield defect_of(error, batch)


def plan_size(plan: ReadPlan) -> int:
    """Return roughly how many bytes of logs a plan goes through, according to the indexes.

    Holes of sparse files do not count, nor do files that cannot be opened.
    """
    selection = plan.selection
    total = 0
    for segment in plan.segments:
        with suppress(DataError), OpenSegment(segment) as opened:
            end = opened.source.size_bytes
            if selection.max_bytes is not None:
                end = min(end, selection.max_bytes)
            start = selection.from_position
            if start is None:
                start = start_position(opened, selection)
            if selection.to_offset is not None and opened.offset_index is not None:
                last = opened.offset_index.lookup(selection.to_offset)
                if last is not None and last.entry + 1 < opened.offset_index.entry_count:
                    end = min(end, opened.offset_index.entry(last.entry + 1).position)
            total += max(min(end - start, opened.source.stored_bytes), 0)
    return total


def defect_of(error: KafkaLogError, batch: Batch) -> Defect:
    """Return the defect for a batch that could not be decoded."""
    return make_defect(
        kind_of(error),
        batch.path,
        error.message,
        position=batch.position,
        offset=batch.base_offset,
        size_bytes=batch.size_bytes,
    )


def resolved(source: Readable, batch: Batch) -> Batch:
    """Return a batch with its true base offset; if its records do not decode, the one it has."""
    try:
        return resolve_batch(source, batch)
    except DataError as error:
        is_misplaced = error.reference == "batch-offset-not-increasing"
        return replace(batch, header_defect=defect_of(error, batch)) if is_misplaced else batch


def _selected(
    walk: LivingWalk, progress: Callable[[int], None] | None
) -> Iterator[tuple[Batch | Defect, OpenSegment]]:
    """Yield the batches that can hold selected records, and all defects on the way."""
    while (segment := walk.take()) is not None:
        try:
            with OpenSegment(segment) as opened:
                yield from _selected_of(opened, walk, progress)
        except CHANGES as error:
            walk.go_on(error)


def _selected_of(
    opened: OpenSegment, walk: LivingWalk, progress: Callable[[int], None] | None
) -> Iterator[tuple[Batch | Defect, OpenSegment]]:
    plan = walk.plan
    walk.require_unchanged(opened.source)
    start = start_position(opened, plan.selection)
    for found in plan.order(opened).scan(start):
        if progress is not None:
            progress(found.size_bytes or 0)
        if isinstance(found, Defect):
            if plan.counts(found, opened.source):
                yield found, opened
            continue
        # Offsets rise: nothing behind it is wanted.
        if plan.is_behind(found):
            if found.header_defect is not None:
                yield found.header_defect, opened
            walk.stop()
            return
        if plan.wants(found):
            yield found, opened
        elif not found.has_place:  # its records may be wanted ones
            for defect in batch_defects(found):
                yield defect, opened
        next_offset = found.next_offset if found.has_place else None
        walk.check(next_offset, found.leader_epoch)


def start_position(opened: OpenSegment, selection: Selection) -> int:
    """Return where to start so that no wanted record is missed, by the indexes."""
    if selection.from_position == 0:
        return 0  # also if what begins there is damaged, which must be reported
    if selection.from_position is not None:
        position = align(opened.source, selection.from_position)
        if position != selection.from_position:  # unless a batch with a wrong length begins there
            found = opened.order(end=selection.max_bytes).framed(selection.from_position)
            if isinstance(found, Batch) and found.header_defect is not None:
                return found.position
        return position
    offset = selection.from_offset
    if selection.from_time is not None and opened.time_index is not None:
        # Up to the offset of that entry no record is as late as the requested time.
        entry = opened.time_index.lookup(selection.from_time - 1)
        if entry is not None:
            offset = max(offset or 0, entry.offset)
    if offset is None or offset <= opened.segment.base_offset:
        return 0
    return opened.start_before(offset)


def record_matches(record: Record, selection: Selection) -> bool:
    """Return whether the record itself is wanted."""
    if selection.from_offset is not None and record.offset < selection.from_offset:
        return False
    if selection.to_offset is not None and record.offset >= selection.to_offset:
        return False
    if selection.from_time is not None and record.timestamp < selection.from_time:
        return False
    if selection.to_time is not None and record.timestamp >= selection.to_time:
        return False
    if selection.key is not None and record.key != selection.key:
        return False
    if selection.key_regex and not (record.key and selection.key_regex.search(record.key)):
        return False
    if selection.value_regex and not (record.value and selection.value_regex.search(record.value)):
        return False
    if selection.header is not None:
        name, value = selection.header
        if not any(
            header.key == name and (value is None or header.value == value)
            for header in record.headers
        ):
            return False
    return selection.where is None or selection.where.matches(record)


def _skips(segment: Segment, selection: Selection) -> bool:
    """Return whether no offset of the segment is wanted."""
    if selection.to_offset is not None and segment.base_offset >= selection.to_offset:
        return selection.from_position is None  # a part that was planned may be all damage
    return (
        selection.from_offset is not None
        and segment.next_base_offset is not None
        and segment.next_base_offset <= selection.from_offset
    )


def _batch_matches(batch: Batch, selection: Selection) -> bool:
    if selection.from_offset is not None and batch.last_offset < selection.from_offset:
        return False
    # The largest timestamp is that of all records with LogAppendTime, and an upper bound otherwise.
    # The base timestamp is no lower bound, as it may be a delete horizon: so `to_time` is not
    # tested.
    if selection.from_time is not None and batch.max_timestamp < selection.from_time:
        return False
    if selection.producer_id is not None and batch.producer_id != selection.producer_id:
        return False
    if selection.leader_epoch is not None and batch.leader_epoch != selection.leader_epoch:
        return False
    return batch.is_control if selection.control else not (selection.data and batch.is_control)


def _is_hidden(
    batch: Batch, selection: Selection, aborted: dict[int, list[AbortedTransaction]]
) -> bool:
    """Return whether the batch is hidden from a read_committed consumer."""
    if not selection.read_committed or not batch.is_transactional:
        return False
    if batch.is_control:
        # A consumer never sees markers, unless they are what was asked for.
        return not selection.control
    return any(
        transaction.first_offset <= batch.base_offset <= transaction.last_offset
        for transaction in aborted.get(batch.producer_id, ())
    )
