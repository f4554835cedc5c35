"""The rows of a listing: facts about log directories, partitions, segments and files."""

from __future__ import annotations

import os
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, TypeVar

from formats import file_names
from formats.file_names import OFFSET_CHECKPOINTS, DirectoryState, FileKind, FileState
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError, GoneError, KafkaLogError
from kafkalog.files.log_dir import (
    FileEntry,
    LogDirListing,
    PartitionDir,
    Segment,
    list_partition,
)
from kafkalog.files.text_files import (
    MetaProperties,
    read_meta_properties,
    read_offset_checkpoint,
)
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.living import CHANGES, answered, listed_now
from kafkalog.model import Defect, LogView, Severity
from kafkalog.node.identity import is_formatted_only, topic_id_of
from kafkalog.node.outcome import View
from kafkalog.node.targets import partitions_of
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.errors import Listener
    from kafkalog.node.targets import Target

    Errors = tuple[type[KafkaLogError], ...]

T = TypeVar("T")
_HOSTED: Final = (DirectoryState.LIVE, DirectoryState.FUTURE)


@dataclass(frozen=True, slots=True)
class LogDirRow:
    """A log directory: its ids, its size, and how many entries its checkpoints have.

    `logs` counts what a broker counts to choose the directory of a new partition.
    """

    path: str
    meta: MetaProperties | None
    was_started: bool
    clean_shutdown: bool
    partitions: int
    size_bytes: int
    checkpoints: dict[str, int | None]
    other_directories: tuple[str, ...]
    defects: tuple[Defect, ...] = field(default=())
    logs: int = 0
    next_new_partition: bool | None = None

    @property
    def last_stop(self) -> str:
        """How its node stopped."""
        if not self.was_started:
            return "never started"
        return "closed cleanly" if self.clean_shutdown else "not shut down cleanly"


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition directory; None for values that are unknown or missing.

    `kafkalog.change.compaction.candidates` adds what the cleaner has not compacted yet. The log
    ends at `log_end_offset` or after it where `unscanned_bytes` would have to be scanned to know.
    """

    path: str
    topic: str
    partition: int | None
    state: str
    topic_id: str | None
    segments: int
    size_bytes: int
    modified_timestamp: int
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    cleaner_offset: int | None
    odd_files: dict[str, int]
    disk_bytes: int = 0
    dirty_bytes: int | None = None
    dirty_ratio: float | None = None
    cleaner_stuck: str | None = None
    cleaner_state: str | None = None
    unscanned_bytes: int = 0
    recovery_point: int | None = None
    unflushed_records: int | None = None
    unflushed_bytes: int | None = None

    @property
    def log_dir(self) -> str:
        """The directory around it: a log directory."""
        return os.path.dirname(self.path) or os.curdir


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment; sizes of missing indexes are None."""

    path: str
    state: str
    topic: str
    partition: int | None
    base_offset: int
    next_base_offset: int | None
    size_bytes: int
    modified_timestamp: int
    max_timestamp: int | None
    index_bytes: int | None
    timeindex_bytes: int | None
    txnindex_bytes: int | None
    is_active: bool

    @property
    def log_dir(self) -> str:
        """The directory around its partition: a log directory."""
        return os.path.dirname(os.path.dirname(self.path)) or os.curdir


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file and the meaning of its name."""

    path: str
    kind: FileKind
    state: FileState
    offset: int | None
    size_bytes: int
    modified_timestamp: int
    error: str | None


def list_log_dirs(targets: Iterable[Target]) -> Iterator[LogDirRow]:
    """Yield a row for each log directory among the targets.

    Of the directories of a node, as far as they are among the targets, those with the fewest logs
    are next to get a new partition: `LogManager.nextLogDirs`, which takes the first of them in
    `log.dirs`.
    """
    rows = [_log_dir_row(target) for target in targets if isinstance(target, LogDirListing)]
    fewest: dict[tuple[str | None, int | None], list[int]] = {}
    for row in rows:
        if row.meta is not None:
            fewest.setdefault((row.meta.cluster_id, row.meta.node_id), []).append(row.logs)
    for row in rows:
        counts = [] if row.meta is None else fewest[row.meta.cluster_id, row.meta.node_id]
        is_next = row.logs == min(counts) if len(counts) > 1 else None
        yield replace(row, next_new_partition=is_next)


_OF_FORMATTING: Final = (file_names.META_PROPERTIES, file_names.BOOTSTRAP)


def _log_dir_row(log_dir: LogDirListing) -> LogDirRow:
    defects = [_defect(path, error) for path, error in log_dir.errors.items()]
    meta = None
    if entry := log_dir.file(file_names.META_PROPERTIES):
        try:
            meta = read_meta_properties(entry.path)
        except DataError as error:
            defects.append(_defect(entry.path, error))
    checkpoints: dict[str, int | None] = {}
    for name in OFFSET_CHECKPOINTS:
        if entry := log_dir.file(name):
            try:
                checkpoints[name] = len(read_offset_checkpoint(entry.path))
            except DataError as error:
                checkpoints[name] = None
                defects.append(_defect(entry.path, error))
    sizes = (entry.size_bytes for entry in log_dir.files)
    used = sum(_used_bytes(partition) for partition in log_dir.partitions)
    return LogDirRow(
        path=log_dir.path,
        meta=meta,
        was_started=any(one.name.name not in _OF_FORMATTING for one in log_dir.files)
        or not all(map(is_formatted_only, log_dir.partitions)),
        clean_shutdown=log_dir.file(file_names.CLEAN_SHUTDOWN) is not None,
        partitions=len(log_dir.partitions),
        size_bytes=sum(sizes) + used,
        checkpoints=checkpoints,
        other_directories=log_dir.others,
        defects=tuple(defects),
        # The metadata log is no log of the LogManager; nor is one that waits for its deletion.
        logs=sum(
            one.state in _HOSTED and one.topic != CLUSTER_METADATA for one in log_dir.partitions
        ),
    )


def _defect(path: str, error: KafkaLogError) -> Defect:
    return Defect(error.reference, Severity.DAMAGE, path, error.message, hint=error.hint)


def list_partitions(
    targets: Iterable[Target],
    view: LogView = LogView.RECOVERED,
    listener: Listener | None = None,
    views: Callable[[PartitionDir, LogView], View] = show,
) -> Iterator[PartitionRow]:
    """Yield a row for each partition directory; a file among the targets stands for its partition.

    Segments and offsets are those of the view, sizes and other files those on disk; the listener
    hears of each difference between the two. `views` makes the views.
    """
    for partition in partitions_of(targets):
        yield from _living(partition, _partition_row, view, listener, views)


def _living(
    partition: PartitionDir,
    rows: Callable[[PartitionDir, View, Errors], Iterator[T]],
    view: LogView,
    listener: Listener | None,
    views: Callable[[PartitionDir, LogView], View] = show,
) -> list[T]:
    """Return the rows of a partition, listing it again if its files change meanwhile.

    If they keep changing, return no rows for a directory that disappeared, and the rows of the last
    listing for any other. `rows` is called with the errors that it must not suppress.
    """

    def first(partition: PartitionDir = partition) -> list[T]:
        shown = views(partition, view)
        found = list(rows(partition, shown, CHANGES))
        if listener is not None and (difference := shown.difference_so_far) is not None:
            listener.hear(difference)
        return found

    try:
        return answered(first, lambda: first(listed_now(partition)))
    except GoneError:
        return []
    except CHANGES:
        # Its files keep changing: what the last listing says is better than nothing.
        return list(rows(partition, View(partition, partition.segments), ()))


def _partition_row(partition: PartitionDir, shown: View, changes: Errors) -> Iterator[PartitionRow]:
    log = UnifiedLog(shown.partition)
    has_log = bool(shown.segments) or shown.partition.loaded is not None
    frontier = shown.frontier
    try:
        if frontier is not None:
            end: int | None = frontier.end_min
        else:
            end = log.log_end_offset if has_log else None
    except changes:
        raise  # a new listing knows it
    except DataError:
        end = None
    odd: dict[str, int] = {}
    for entry in partition.files:
        if entry.error or entry.name.kind == FileKind.UNKNOWN:
            odd["unknown"] = odd.get("unknown", 0) + 1
        elif entry.name.state != FileState.LIVE:
            odd[entry.name.state] = odd.get(entry.name.state, 0) + 1
    unscanned_bytes = 0 if frontier is None else frontier.unscanned_bytes
    point, unflushed_bytes = _unflushed(partition, shown, changes)
    unflushed = 0 if unflushed_bytes == 0 else None
    # An end that is a lower bound would be one here, too.
    if point is not None and unflushed_bytes and end is not None and not unscanned_bytes:
        unflushed = max(0, end - max(point, log.log_start_offset))
    yield PartitionRow(
        path=partition.path,
        topic=partition.topic,
        partition=partition.partition,
        state=partition.state,
        topic_id=topic_id_of(partition),
        segments=len(shown.segments),
        size_bytes=_used_bytes(partition),
        modified_timestamp=max((entry.modified_timestamp for entry in partition.files), default=0),
        log_start_offset=log.log_start_offset if has_log else None,
        log_end_offset=end,
        high_watermark=log.checkpoint(file_names.HIGH_WATERMARKS),
        cleaner_offset=log.checkpoint(file_names.CLEANER_OFFSETS),
        odd_files=odd,
        disk_bytes=sum(entry.disk_bytes for entry in partition.files),
        unscanned_bytes=unscanned_bytes,
        recovery_point=point,
        unflushed_records=unflushed,
        unflushed_bytes=unflushed_bytes,
    )


def _unflushed(
    partition: PartitionDir, shown: View, changes: Errors
) -> tuple[int | None, int | None]:
    """Return the recovery point of a log, and the bytes of the view above it; None if not known.

    Only these may be lost in a power failure: a broker has flushed what is below.

    Cost:
        An index lookup and a few headers, in the segment that holds the recovery point.
    """
    # A store loses nothing with the power, and KRaft flushes its log itself, without a checkpoint.
    if is_object(partition.path) or partition.topic == CLUSTER_METADATA:
        return None, None
    own = partition.local()  # its indexes lead to offsets, too, that a start would scan
    log = UnifiedLog(own)
    point = log.checkpoint(file_names.RECOVERY_POINTS)
    if point is None and own.state in _HOSTED:
        # A log gets its entry at the next checkpoint, up to a minute after it was created.
        log_dir = os.path.dirname(file_system.absolute(own.path))
        is_noted = file_system.exists(os.path.join(log_dir, file_names.RECOVERY_POINTS))
        point = 0 if is_noted else None
    if point is None or log.was_closed:
        return point, None if point is None else 0
    ends = {segment.log.path: segment.log.size_bytes for segment in shown.segments}
    size_bytes = 0
    try:
        for segment in reversed(own.segments):
            end = ends.get(segment.log.path, segment.log.size_bytes)
            is_last = segment.base_offset <= point
            size_bytes += max(0, end - (_position_of(log, segment, point) if is_last else 0))
            if is_last:
                break
    except changes:
        raise  # a new listing knows it
    except DataError:
        return point, None
    return point, size_bytes


def _position_of(log: UnifiedLog, segment: Segment, offset: int) -> int:
    """Return where the batch that holds an offset begins in a segment, or where the log ends."""
    if offset == segment.base_offset:
        return 0
    with log.open_segment(segment) as opened:
        batch = opened.find_batch(opened.start_before(offset), offset)
    return segment.log.size_bytes if batch is None else batch.position


def _used_bytes(partition: PartitionDir) -> int:
    return sum(entry.used_bytes for entry in partition.files)


def list_segments(
    targets: Iterable[Target],
    view: LogView = LogView.RECOVERED,
    listener: Listener | None = None,
) -> Iterator[SegmentRow]:
    """Yield a row for each segment of the view, by partition and base offset.

    The listener hears of each difference between view and files.
    """
    for partition in partitions_of(targets):
        yield from _living(partition, _segment_rows, view, listener)


def _segment_rows(partition: PartitionDir, shown: View, changes: Errors) -> Iterator[SegmentRow]:
    for segment in shown.segments:
        is_stale = segment.time_index is not None and segment.time_index.is_stale
        try:
            with OpenSegment(segment) as opened:
                largest = opened.largest_timestamp(recovered=segment.is_active or is_stale)[0]
        except changes:
            raise  # a new listing knows it
        except DataError:
            largest = None
        indexes = (segment.offset_index, segment.time_index, segment.transaction_index)
        sizes = [entry.used_bytes if entry else None for entry in indexes]
        yield SegmentRow(
            path=segment.log.path,
            state=state_of(segment.log.path),
            topic=partition.topic,
            partition=partition.partition,
            base_offset=segment.base_offset,
            next_base_offset=segment.next_base_offset,
            size_bytes=segment.log.size_bytes,
            modified_timestamp=segment.log.modified_timestamp,
            max_timestamp=largest,
            index_bytes=sizes[0],
            timeindex_bytes=sizes[1],
            txnindex_bytes=sizes[2],
            is_active=segment.is_active and not partition.is_remote,
        )


def list_files(targets: Iterable[Target]) -> Iterator[FileRow]:
    """Yield a row for each file of the targets; files at the top of a log directory come first."""
    for target in targets:
        for entry in _files(target):
            yield FileRow(
                path=entry.path,
                kind=entry.name.kind,
                state=entry.name.state,
                offset=entry.name.offset,
                size_bytes=entry.size_bytes,
                modified_timestamp=entry.modified_timestamp,
                error=entry.error,
            )


def _files(target: Target) -> Iterator[FileEntry]:
    if isinstance(target, FileEntry):
        yield target
        return
    yield from target.files
    if isinstance(target, LogDirListing):
        if file_names.REMOTE_INDEX_CACHE in target.others:
            cache = os.path.join(target.path, file_names.REMOTE_INDEX_CACHE)
            yield from list_partition(cache).files
        for partition in target.partitions:
            yield from partition.files
