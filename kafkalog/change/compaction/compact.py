"""The compaction of one partition in this process: pass after pass, planned or performed.

Follows `Cleaner.clean` and `LogCleaner.cleanLog` of Kafka.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from formats import file_names
from kafkalog.change.compaction.candidates import find_cleanable
from kafkalog.change.compaction.cleaning import Pass
from kafkalog.change.compaction.model import Compaction, Group, Skip, Tally
from kafkalog.change.compaction.plan import SoundLog, require_known_layout, require_sound
from kafkalog.change.compaction.swap import (
    check_new_files,
    clean_group,
    discard,
    read_back,
    swap_in,
    touched_names,
)
from kafkalog.errors import RefusedError
from kafkalog.files.log_dir import PartitionDir, Segment, open_partition
from kafkalog.io.engine import Crew
from kafkalog.io.jit.fast_path import kernels_work
from kafkalog.io.storage import Changes, require_space, require_writable
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from kafkalog.change.compaction.buckets import Superseded
    from kafkalog.change.compaction.model import (
        Candidate,
        Cleanable,
        CompactionConfig,
        CompactionRequest,
    )
    from kafkalog.change.compaction.swap import Cleaning, NewFiles, ReadBack
    from kafkalog.change.compaction.transactions import TransactionState
    from kafkalog.change.journal.run import PartitionRun, Run


class WrittenPass:
    """A pass whose new segments are written on demand."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning

    def groups(self) -> list[list[Segment]]:
        return self._cleaning.groups()

    def require_room(self, directory: str, sizes: Sequence[int]) -> None:
        """Raise `UnwritableError` if the largest group may not fit; few records grow."""
        largest = max(sizes, default=0)
        # One group at a time: the old segments go before the next group is written. An eighth is
        # for batches that grow under another codec level, and for the indexes.
        require_space(os.path.join(directory, "new"), largest + largest // 8)

    def put(self, group: Sequence[Segment], changes: Changes | None) -> NewFiles:
        """Write the group's new segment as `.cleaned` and verify it by reading it back.

        It is read from the page cache while it is being synced.

        With `changes=None`, only compute what would be written.

        Raises:
            CorruptDataError, UnwritableError: it does not read back, or cannot be written; then
                there is no `.cleaned` file.
        """
        if changes is None:
            return clean_group(self._cleaning, group, None)
        checks: list[Future[ReadBack]] = []
        # Reads back while the file is synced: the page cache still has it.
        with Crew(1, "kafkalog-check") as pool:

            def check(path: str) -> None:
                base_offset, config = group[0].base_offset, self._cleaning.config
                checks.append(pool.submit(read_back, path, base_offset, config))

            files = clean_group(self._cleaning, group, changes, check)
            try:
                check_new_files(files, checks[0].result(), changes)
            except BaseException:  # raised again, so that even Ctrl-C leaves no half-written group
                discard(files, changes)
                raise
        return files

    @property
    def tally(self) -> Tally:
        """The counts of what was read and kept in the groups written."""
        return self._cleaning.tally

    @property
    def keys(self) -> int:
        return self._cleaning.keys

    @property
    def end_offset(self) -> int:
        return self._cleaning.end_offset


class LocalPasses:
    """Makes passes over a partition that is sound.

    Args:
        request: supplies the clock.
        sound: what was found out about the log.
        progress: called with the number of bytes read since the last call.
        superseded: reports the superseded records in the first pass, if known.
        transactions: those open where its first group begins; if None, at the log's beginning.
    """

    def __init__(
        self,
        candidate: Candidate,
        request: CompactionRequest,
        sound: SoundLog,
        progress: Callable[[int], None] | None = None,
        superseded: Superseded | None = None,
        transactions: TransactionState | None = None,
    ) -> None:
        self.sound = sound
        self._config: CompactionConfig = candidate.config
        self._high_watermark = candidate.high_watermark
        self._now_ms = request.now_ms
        self._progress = progress
        self._superseded = superseded
        self._transactions = transactions

    def begin(self, partition: PartitionDir, cleanable: Cleanable) -> WrittenPass:
        """Return the next pass; `partition` was listed after the previous one."""
        log = UnifiedLog(partition, high_watermark=self._high_watermark)
        producers = self.sound.producers
        common = (log, self._config, self._now_ms, cleanable, producers, self._progress)
        # The kernels' map has no limit of keys: a limited one must stop at the very record where
        # Kafka's does.
        suits_kernels = self.sound.suits_kernels and kernels_work()
        if self._config.keys_max is not None or not suits_kernels:
            return WrittenPass(Pass(*common))
        from kafkalog.change.compaction.columns import ColumnPass

        # It describes the log before the first pass: later ones build their own.
        superseded, self._superseded = self._superseded, None
        return WrittenPass(ColumnPass(*common, superseded, self._transactions))


def judged_passes(
    candidate: Candidate,
    request: CompactionRequest,
    progress: Callable[[int], None] | None = None,
    map_size_max: int | None = None,
) -> LocalPasses:
    """Read and judge a partition as `require_sound` does, and build the map of its first pass.

    Raises:
        MapOutgrownError: the map takes more memory than allowed.
    """
    cleanable = candidate.cleanable
    assert cleanable is not None, "there is something to clean"
    if candidate.config.keys_max is not None or not kernels_work():
        sound = require_sound(candidate, request, progress)
        return LocalPasses(candidate, request, sound, progress)
    from kafkalog.change.compaction.buckets import SupersededByMap
    from kafkalog.change.compaction.offset_map import MapBuilding

    log = UnifiedLog(candidate.partition, high_watermark=candidate.high_watermark)
    building = MapBuilding(log, cleanable, map_size_max)
    sound = require_sound(candidate, request, progress, building)
    superseded = SupersededByMap(building, cleanable)
    return LocalPasses(candidate, request, sound, progress, superseded)


class CleaningPass(Protocol):
    """A pass, and the new segments it makes."""

    @property
    def tally(self) -> Tally:
        """The counts of what was read and kept, once all groups have been put."""

    @property
    def keys(self) -> int:
        """Number of keys in the map."""

    @property
    def end_offset(self) -> int:
        """The offset at which the pass ends."""

    def groups(self) -> list[list[Segment]]:
        """Return the groups of segments."""

    def require_room(self, directory: str, sizes: Sequence[int]) -> None:
        """Raise `UnwritableError` if there is too little room for the new segments.

        Args:
            directory: the partition directory.
            sizes: sizes of the logs of each group, in bytes.
        """

    def put(self, group: Sequence[Segment], changes: Changes | None) -> NewFiles:
        """Put a group's new segment in place as `.cleaned`, verified; groups must come in order.

        With `changes=None`, only compute what it would be.
        """


class Passes(Protocol):
    """Makes the passes over a partition."""

    def begin(self, partition: PartitionDir, cleanable: Cleanable) -> CleaningPass:
        """Return the next pass over the partition as it is listed."""


class PartitionWork:
    """The passes over one partition, and their result."""

    def __init__(self, candidate: Candidate, request: CompactionRequest, passes: Passes) -> None:
        assert candidate.cleanable is not None, "there is something to clean"
        self._candidate = candidate
        self._request = request
        self._passes = passes
        self._partition = candidate.partition
        self._cleanable: Cleanable = candidate.cleanable
        self._end = self._cleanable.first_dirty_offset
        self._count_of_passes = 0
        self._keys = 0
        self._tally = Tally()
        self._groups: list[Group] = []

    def touched(self) -> list[str]:
        """Return the names of the files that are removed or replaced."""
        upper = self._cleanable.first_uncleanable_offset
        left_overs = [entry.name.name for entry in self._partition.left_overs]
        return touched_names(self._partition, upper) + left_overs

    def plan(self) -> None:
        """Compute the first pass without writing a file."""
        cleaning = self._passes.begin(self._partition, self._cleanable)
        for group in cleaning.groups():
            self._count(cleaning.put(group, None), group)
        self._conclude(cleaning)

    def perform(self, changing: PartitionRun) -> None:
        """Perform all passes; set the cleaner offset after the last one.

        Files with the names that a swap gives to old files are removed first, as at a start.
        """
        left_overs = self._partition.left_overs
        for entry in left_overs:
            changing.changes.remove(entry.name.name)
        # Durable before the swap makes new `.deleted` files of the same names.
        if left_overs:
            changing.changes.sync_directory()
        while self._cleanable.cleanable_bytes:
            cleaning = self._passes.begin(self._partition, self._cleanable)
            groups = cleaning.groups()
            cleaning.require_room(self._partition.path, [_size_of(group) for group in groups])
            for group in groups:
                self._replace(cleaning, group, changing)
            before = self._end
            self._conclude(cleaning)
            # A full map that got no further than before would loop for ever.
            if self._request.single_pass or self._end <= before:
                break
            self._look_again()
        # Last: too low an offset only repeats work, too high a one leaves duplicates for ever.
        changing.set_offset(file_names.CLEANER_OFFSETS, self._cleaner_offset())

    def result(self, *, is_done: bool) -> Compaction:
        before = _size_of(self._candidate.partition.segments)
        # A later pass rewrites what an earlier one made; the last sizes count.
        last = {group.base_offset: group for group in self._groups}
        after = before
        if is_done:
            after = _size_of(open_partition(self._partition.path).segments)
        else:
            after += sum(group.after_bytes - group.before_bytes for group in last.values())
        return Compaction(
            self._candidate,
            is_done,
            self._count_of_passes,
            self._keys,
            self._tally,
            self._end,
            before,
            after,
            tuple(self._groups),
        )

    def _replace(
        self, cleaning: CleaningPass, group: Sequence[Segment], changing: PartitionRun
    ) -> None:
        files = cleaning.put(group, changing.changes)
        swap_in(files, group, self._partition, changing.changes)
        self._count(files, group)

    def _count(self, files: NewFiles, group: Sequence[Segment]) -> None:
        bases = tuple(segment.base_offset for segment in group)
        self._groups.append(Group(files.base_offset, bases, _size_of(group), files.size_bytes))

    def _conclude(self, cleaning: CleaningPass) -> None:
        self._count_of_passes += 1
        self._keys += cleaning.keys
        self._tally.add(cleaning.tally)
        # An empty map ends at 0 in Kafka (latestOffset -1): that is no progress backwards.
        self._end = max(self._end, cleaning.end_offset)

    def _look_again(self) -> None:
        """Find what is left to clean after a pass."""
        self._partition = open_partition(self._partition.path)
        log = UnifiedLog(self._partition, high_watermark=self._candidate.high_watermark)
        up_to = self._request.up_to_offset
        now_ms = self._request.now_ms
        self._cleanable = find_cleanable(log, self._candidate.config, now_ms, self._end, up_to)

    def _cleaner_offset(self) -> int:
        """Return where the next cleaning begins; a valid recorded offset never decreases."""
        log = UnifiedLog(self._partition, high_watermark=self._candidate.high_watermark)
        noted = log.checkpoint(file_names.CLEANER_OFFSETS)
        # Out of range, Kafka ignores it as well (LogCleanerManager.cleanableOffsets).
        if noted is None or not log.log_start_offset <= noted <= log.log_end_offset:
            return self._end
        return max(noted, self._end)


def left_as_it_is(candidate: Candidate) -> Compaction:
    """Return the result for a partition that is skipped."""
    size = _size_of(candidate.partition.segments)
    return Compaction(candidate, False, 0, 0, Tally(), None, size, size, ())


def _size_of(segments: Sequence[Segment]) -> int:
    return sum(segment.log.size_bytes for segment in segments)


_HINTS = {
    Skip.NOT_COMPACTED: "If the topic is compacted, add --config cleanup.policy=compact.",
    Skip.NO_HIGH_WATERMARK: "Give --high-watermark N, or `end` if every record is replicated.",
    Skip.REMOTE: "Part of the log is in remote storage; leave it to a broker.",
    Skip.METADATA: "Brokers and controllers maintain it themselves.",
    Skip.NOT_LIVE: "To compact it, copy it elsewhere and rename the copy to TOPIC-PARTITION.",
}


def require_compactable(candidate: Candidate) -> None:
    """Raise `RefusedError` if a partition that was named must not be compacted."""
    if candidate.skip in _HINTS:
        raise RefusedError(
            f"The partition is not compacted: {candidate.skip}.",
            path=candidate.partition.path,
            hint=_HINTS[candidate.skip],
        )


def compact_partition(
    candidate: Candidate,
    request: CompactionRequest,
    run: Run | None = None,
    progress: Callable[[int], None] | None = None,
) -> Compaction:
    """Compact a partition, or compute exactly what would result.

    The whole log is read and judged before anything is written. `.deleted` files that a broker left
    are removed, as at a broker's start. Then each group of segments is written as `.cleaned`,
    synced, read back, and swapped in; the cleaner offset is written last. After a crash, a broker's
    start finds each group whole, old or new; finished groups stay, and the next run cleans the
    rest.

    Args:
        candidate: the partition, as `find_candidate` returned it.
        request: as for `find_candidate`.
        run: holds the lock of the log directory, if there is one. If None, nothing is written; if
            a limited map takes several passes, only the first is reported.
        progress: called with the number of bytes read since the last call. The log is read once to
            judge it, which also builds the map, and again for the new segments; with a limited map,
            old formats or batches above 64 MB, its dirty part is read once more for the map.

    Raises:
        CorruptDataError: a batch is damaged, or what was written does not read back; the group
            concerned stays as it was.
        RefusedError: the layout is unknown, or a start would change something.
        UnwritableError: there is no room, or a step failed.

    Cost:
        Reads what it cleans twice, and the new segments once. Memory: 30 to 60 bytes per key, up
        to 50 MB of them ahead (with a limited map, old formats or batches above 64 MB the keys
        themselves, and a batch), a bit per record of the dirty part, about 10 MB per thread, and
        the indexes of a group.
    """
    if candidate.skip is not None or candidate.cleanable is None:
        return left_as_it_is(candidate)
    require_known_layout(candidate.partition)
    if run is not None:
        require_writable(candidate.partition.path)
    passes = judged_passes(candidate, request, progress)
    work = PartitionWork(candidate, request, passes)
    if run is None:
        work.plan()
    else:
        with run.partition(candidate.partition, work.touched()) as changing:
            work.perform(changing)
    return work.result(is_done=run is not None)
