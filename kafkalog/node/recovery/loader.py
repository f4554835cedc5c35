"""The steps by which a broker loads a partition, leftovers first, each on a `Directory`.

Follows `LogLoader` and `LocalLog.splitOverflowedSegment` of Kafka.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from formats import file_names
from formats.constants import INT32_MAX, INT64_MAX
from formats.file_names import segment_file
from kafkalog.node.recovery.directory import Content, Directory, offset_from_name
from kafkalog.node.recovery.indexes import InvalidOffsetError, OffsetSlots
from kafkalog.node.recovery.model import (
    CreateSegment,
    DeleteSegment,
    SegmentPart,
    SplitSegment,
    StartRefusedError,
)
from kafkalog.node.recovery.producer_replay import rebuild_producers, segments_between
from kafkalog.node.recovery.producers import LeaderEpochs, ProducerStates
from kafkalog.node.recovery.segment_recovery import OffsetOverflowError, SegmentRecovery
from kafkalog.node.recovery.segment_state import SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from kafkalog.node.recovery.model import StartConfig


_KRAFT_SNAPSHOT_DELETED = ".checkpoint.deleted"


def settle_left_overs(
    directory: Directory, config: StartConfig, *, trusts_swaps: bool = True
) -> None:
    """Remove leftovers, and put the files of a complete swap in place.

    Args:
        directory: the files.
        config: the sizes of indexes.
        trusts_swaps: whether the log of a swap without its indexes gets empty ones, as in a broker;
            otherwise they are built.

    Raises:
        StartRefusedError: Kafka would throw.
    """
    swaps = _remove_temporary(directory)
    _complete_swap(directory, config, swaps, trusts_swaps=trusts_swaps)


def _remove_temporary(directory: Directory) -> list[str]:
    """Remove leftovers and incomplete swaps, as the first pass does; return the remaining names."""
    swaps, cleaned = [], []
    least_cleaned = INT64_MAX
    # By file, not by segment, as LogLoader.removeTempFilesAndCollectSwapFiles: the files of a
    # segment are renamed one by one, so a half renamed one still has some `.cleaned` file of its
    # offset.
    for name in directory.names():
        if name.endswith(file_names.DELETED) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
            directory.remove(name, "a deletion was interrupted")
        elif name.endswith(file_names.CLEANED):
            least_cleaned = min(least_cleaned, offset_from_name(name))
            cleaned.append(name)
        elif name.endswith(file_names.SWAP):
            swaps.append(name)
    # Renames go from the highest base offset down: with any `.cleaned` left, higher ones are
    # `.swap`.
    undone = [name for name in swaps if offset_from_name(name) >= least_cleaned]
    for name in undone:
        directory.remove(name, "a swap was interrupted before all its files were ready")
    for name in cleaned:
        directory.remove(name, "a cleaning or split was interrupted")
    return [name for name in swaps if name not in undone]


def _complete_swap(
    directory: Directory, config: StartConfig, swaps: list[str], *, trusts_swaps: bool
) -> None:
    """Delete the segments that complete swap files replace, then rename the swap files."""
    least, most = INT64_MAX, -INT64_MAX - 1
    for name in swaps:
        # Without the log there is no range: it has its name already, and only indexes are still to
        # be renamed.
        if not name.removesuffix(file_names.SWAP).endswith(file_names.LOG):
            continue
        base_offset = offset_from_name(name)
        least = min(least, base_offset)
        most = max(
            most, _next_offset_of_swap(directory, config, base_offset, trusts_swaps=trusts_swaps)
        )
    # One range for all swaps, and any kind of file in it goes, as in
    # LogLoader.completeSwapOperations: a `.snapshot` or a stranger's backup with such a number,
    # too.
    for name in directory.names():
        if name.endswith(file_names.SWAP):
            continue
        try:
            offset = offset_from_name(name)
        except StartRefusedError:
            continue
        if least <= offset < most:
            directory.remove(name, "its segment is replaced by a swap file")
    for name in directory.names(file_names.SWAP):
        directory.rename(
            name, name.removesuffix(file_names.SWAP), "an interrupted swap is completed"
        )


def _next_offset_of_swap(
    directory: Directory, config: StartConfig, base_offset: int, *, trusts_swaps: bool
) -> int:
    log_name = segment_file(base_offset, file_names.LOG + file_names.SWAP)
    if log_name not in directory:
        # Kafka opens the name that it would give, and so makes an empty file next to the real one.
        directory.write(log_name, b"", "the name of a swap file has no 20 digits")
    segment = SegmentState(directory, base_offset, config, directory.contents[log_name])
    if not trusts_swaps:
        _complete_indexes(directory, segment)
    index_name = segment_file(base_offset, file_names.OFFSET_INDEX + file_names.SWAP)
    index = directory.contents.get(index_name)
    segment.use_indexes(OffsetSlots(base_offset, index, config.segment_index_bytes))
    # Opening an index that is missing preallocates it (AbstractIndex); the rename makes it the real
    # one, full of zero entries that a clean start believes.
    if index is None:
        capacity = config.segment_index_bytes // OffsetSlots.entry.size
        zeros = bytes(capacity * OffsetSlots.entry.size)
        why = "the index of a swap file is missing: it becomes one of zeros"
        directory.write(index_name, zeros, why, keep=True)
    return segment.next_offset()


def _complete_indexes(directory: Directory, segment: SegmentState) -> None:
    """Write the indexes that are missing next to a swap file."""
    built = None
    for suffix in (file_names.OFFSET_INDEX, file_names.TIME_INDEX):
        name = segment.name(suffix + file_names.SWAP)
        if name not in directory:
            built = built or segment.built_indexes()
            why = "it is missing beside the log of a swap"
            directory.write(name, built[suffix], why, keep=True)


_INDEXES_KEPT = 2  # number of recent segments that a scan may still look into


class Loader:
    """One load of a partition.

    Args:
        directory: its files.
        epochs: its leader epochs.
        config: the configs that the outcome depends on.
        is_clean: whether the broker was shut down cleanly.
        recovery_point: from the checkpoint.
        log_start_checkpoint: from the checkpoint.
        check_crc: whether scans verify checksums, as a broker's do.
        trusts_swaps: whether the log of a swap without its indexes gets empty ones, as in a broker;
            otherwise they are built.
        progress: called with the bytes that scans have read since the last call.

    After `load`, `segments`, `producers`, `log_end_offset` and `recovery_point` hold the outcome,
    and `tidying_count` is the number of actions before the segments were examined. `is_loaded` is
    set once all segments are known, and only what may not have been flushed is left to scan.
    """

    def __init__(
        self,
        directory: Directory,
        epochs: LeaderEpochs,
        config: StartConfig,
        *,
        now_ms: int,
        is_clean: bool,
        recovery_point: int,
        log_start_checkpoint: int,
        check_crc: bool = True,
        trusts_swaps: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.directory = directory
        self.epochs = epochs
        self.config = config
        self.now_ms = now_ms
        self.is_clean = is_clean
        self.recovery_point = recovery_point
        self.log_start_checkpoint = log_start_checkpoint
        self.check_crc = check_crc
        self.trusts_swaps = trusts_swaps
        self._progress = progress
        self.tidying_count = 0
        self.is_loaded = False
        self.producers = ProducerStates(directory, config, now_ms)
        self.segments: dict[int, SegmentState] = {}
        self._made: dict[int, SegmentState] = {}  # those with indexes that are not on disk
        self._recent: deque[SegmentState] = deque()
        self._split_bases: set[int] = set()
        self.log_end_offset = 0
        self.log_start_offset = log_start_checkpoint

    def load(self, *, is_deleted: bool) -> Iterator[SegmentRecovery]:
        """Run all steps; `is_deleted` for a directory that awaits deletion.

        Yields:
            Each scan of a segment before it runs, so that a caller that reads the log anyway can
            feed it.

        Raises:
            StartRefusedError: Kafka would throw.
        """
        settle_left_overs(self.directory, self.config, trusts_swaps=self.trusts_swaps)
        self.tidying_count = len(self.directory.actions)
        yield from self._until_no_overflow(self._load_segments)
        self.is_loaded = True
        if is_deleted:
            if not self.segments:
                self._create_segment(0)
            self.recovery_point = self.log_end_offset = 0
        else:
            yield from self._until_no_overflow(self._recover_log)
            active = self.segments[max(self.segments)]
            # Room for appends; refused if an index has more entries than segment.index.bytes allows
            # by now.
            active.offset_index.resize()
            active.time_index.resize()
        self.epochs.truncate_from_end(self.log_end_offset)
        self.log_start_offset = max(self.log_start_checkpoint, min(self.segments))
        self.epochs.truncate_from_start(self.log_start_checkpoint)
        self.producers.remove_strays(sorted(self.segments))
        rebuild_producers(
            self.producers,
            self.segments,
            self.log_start_offset,
            self.log_end_offset,
            is_clean=self.is_clean,
        )

    def _until_no_overflow(
        self, step: Callable[[], Iterator[SegmentRecovery]]
    ) -> Iterator[SegmentRecovery]:
        while True:
            try:
                yield from step()
            except OffsetOverflowError as overflow:
                self._split(overflow.segment, overflow.aborted)
            else:
                return

    def _load_segments(self) -> Iterator[SegmentRecovery]:
        """Load the segments; recover those whose indexes are missing or below the base offset."""
        self.segments = {}
        for name in self.directory.names():
            if name.endswith(file_names.INDEXES):
                if segment_file(offset_from_name(name), file_names.LOG) not in self.directory:
                    self.directory.remove(name, "an index without a log")
            elif name.endswith(file_names.LOG):
                yield from self._load_segment(offset_from_name(name))

    def _load_segment(self, base_offset: int) -> Iterator[SegmentRecovery]:
        segment = self._made.get(base_offset)
        if segment is None:
            segment = SegmentState(self.directory, base_offset, self.config, None)
        if segment.name(file_names.LOG) not in self.directory:
            self.directory.write(
                segment.name(file_names.LOG), b"", "a .log whose name has no 20 digits"
            )
        # LogSegment.sanityCheck asks only whether it exists, and does not look into it.
        if segment.name(file_names.OFFSET_INDEX) not in self.directory:
            yield from self._recover_segment(segment, "its offset index is missing")
        else:
            # Opening creates it, and nothing fills it: retention goes by the time of the file then.
            if segment.name(file_names.TIME_INDEX) not in self.directory:
                self.directory.write(
                    segment.name(file_names.TIME_INDEX), b"", "it is missing", keep=True
                )
            if not segment.check_transaction_index():
                why = "its transaction index has entries below the base"
                yield from self._recover_segment(segment, why)
        self.segments[base_offset] = segment

    def _recover_segment(
        self, segment: SegmentState, why: str
    ) -> Generator[SegmentRecovery, None, int]:
        # States of its own: a transaction may have begun in an earlier segment.
        producers = ProducerStates(self.directory, self.config, self.now_ms)
        rebuild_producers(
            producers, self.segments, self.log_start_checkpoint, segment.base_offset, is_clean=False
        )
        recovery = SegmentRecovery(
            segment, producers, self.epochs, check_crc=self.check_crc, progress=self._progress
        )
        yield recovery
        truncated = recovery.end(why)
        producers.take_snapshot()
        self._made[segment.base_offset] = segment
        self._recent.append(segment)
        if len(self._recent) > _INDEXES_KEPT:
            self._recent.popleft().forget_entries()
        return truncated

    def _recover_log(self) -> Iterator[SegmentRecovery]:
        """Scan what may not have been flushed, then find the log end."""
        if not self.is_clean:
            yield from self._recover_unflushed()
        end_offset = self._end_offset()
        if not self.segments:
            self._create_segment(self.log_start_checkpoint)
        if self.is_clean and end_offset is not None:
            self.recovery_point = self.log_end_offset = end_offset
            return
        if end_offset is None:
            end_offset = self.segments[max(self.segments)].next_offset()
        self.log_end_offset = end_offset
        self.recovery_point = min(self.recovery_point, end_offset)

    def _recover_unflushed(self) -> Iterator[SegmentRecovery]:
        unflushed = segments_between(self.segments, self.recovery_point, INT64_MAX)
        for number, segment in enumerate(unflushed):
            try:
                why = "it may not have been flushed"
                truncated = yield from self._recover_segment(segment, why)
            # Kafka catches this and I/O errors around the scan, and empties the whole segment.
            except InvalidOffsetError as error:
                truncated = segment.truncate_to_base(f"{error.error}: {error.message}")
            # Offsets behind a cut would leave a hole; LogLoader.recoverLog drops all later
            # segments.
            if truncated > 0:
                self._delete(unflushed[number + 1 :], "it lies after the end of the truncated log")
                return

    def _end_offset(self) -> int | None:
        """Return the log end offset; drop all segments if it is below the checkpointed start."""
        if not self.segments:
            return None
        end_offset = self.segments[max(self.segments)].next_offset()
        if end_offset >= self.log_start_checkpoint:
            return end_offset
        self._delete(
            list(self.segments.values()),
            f"the log's end {end_offset} is below its checkpointed start "
            f"{self.log_start_checkpoint}",
        )
        self.epochs.clear()
        self.producers.truncate_fully(self.log_start_checkpoint)
        return None

    def _create_segment(self, base_offset: int) -> None:
        segment = SegmentState(self.directory, base_offset, self.config, Content(None, 0, 0, b""))
        for suffix in (file_names.LOG, file_names.OFFSET_INDEX, file_names.TIME_INDEX):
            self.directory.contents[segment.name(suffix)] = Content(None, 0, 0, b"")
        is_first = self.directory.is_formatted_only
        self.directory.actions.append(CreateSegment(base_offset, "no segment is left", is_first))
        self.segments[base_offset] = segment

    def _delete(self, segments: list[SegmentState], why: str) -> None:
        for segment in segments:
            self.directory.actions.append(
                DeleteSegment(
                    segment.base_offset, segment.size_bytes, segment.count_records(0), why
                )
            )
            self._forget(segment)
        for segment in segments:
            self.producers.remove_with_segment(segment.base_offset)

    def _forget(self, segment: SegmentState) -> None:
        self.segments.pop(segment.base_offset, None)
        self._made.pop(segment.base_offset, None)
        for suffix in (file_names.LOG, *file_names.INDEXES):
            self.directory.contents.pop(segment.name(suffix), None)

    def _split(self, segment: SegmentState, aborted: bytes) -> None:
        """Replace a segment by several that can hold its offsets.

        Raises:
            StartRefusedError: its last offset fits, so the segment is not to blame.
        """
        next_offset = segment.next_offset()
        # An offset below the base, or a negative one, is taken for an overflow too, but not split:
        # the start fails, each time (LocalLog.splitOverflowedSegment).
        if next_offset <= segment.base_offset or segment.fits(next_offset - 1):
            raise StartRefusedError(
                "IllegalArgumentException",
                "Split operation is only permitted for segments with overflow, and the problem "
                f"path is {segment.name(file_names.LOG)}",
            )
        # The first part begins at the same base: if that does not fit either, Kafka's loop has no
        # end.
        if segment.base_offset in self._split_bases:
            raise StartRefusedError(
                "LogSegmentOffsetOverflowException",
                f"The start splits {segment.name(file_names.LOG)} again and again and never ends",
            )
        self._split_bases.add(segment.base_offset)
        parts = self._split_parts(segment)
        self.directory.actions.append(
            SplitSegment(
                segment.base_offset,
                tuple(
                    SegmentPart(part.base_offset, part.log.start, part.log.end) for part in parts
                ),
                "its offsets do not fit into one segment",
            )
        )
        is_listed = segment.base_offset in self.segments
        left_over = aborted or segment.name(file_names.TRANSACTION_INDEX) in self.directory
        self._forget(segment)
        for part in parts:
            self.directory.contents[part.name(file_names.LOG)] = part.log
            part.build_indexes("it is new")
            self.segments[part.base_offset] = self._made[part.base_offset] = part
        if segment.base_offset not in self.segments:
            self.producers.remove_with_segment(segment.base_offset)
        elif left_over and not is_listed:
            # Kafka deletes the old files only of a segment that it has already loaded; otherwise
            # they are replaced, except this one.
            why = "left from the segment before it was split"
            self.directory.write(segment.name(file_names.TRANSACTION_INDEX), aborted, why)

    def _split_parts(self, segment: SegmentState) -> list[SegmentState]:
        log = segment.log
        bounds: list[tuple[int, int]] = []  # base offset and position
        end = log.start
        for frame in segment.frames():
            if not bounds or not _fits(frame.last_offset, bounds[-1][0]):
                bounds.append((frame.base_offset, frame.position))
                if not _fits(frame.last_offset, frame.base_offset):
                    raise StartRefusedError(
                        "IllegalStateException",
                        f"Failed to append records from position {frame.position}",
                    )
            end = frame.end_position
        if end != log.end:
            raise StartRefusedError(
                "NoSuchElementException",
                f"No batch at position {end} of {segment.name(file_names.LOG)}",
            )
        ends = [position for _, position in bounds[1:]] + [log.end]
        return [
            SegmentState(self.directory, base, self.config, Content(log.path, start, stop))
            for (base, start), stop in zip(bounds, ends, strict=True)
        ]


def _fits(offset: int, base_offset: int) -> bool:
    return 0 <= offset - base_offset <= INT32_MAX
