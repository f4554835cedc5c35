"""The compaction of one partition, planned or done: pass after pass, group after group.

Follows `Cleaner.clean` and `LogCleaner.cleanLog` of Kafka 4.3.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.compaction.cleanable import find_cleanable
from kafkalog.compaction.cleaning import Pass
from kafkalog.compaction.model import Compaction, Group, Skip, Tally
from kafkalog.compaction.new_files import check_new_files, clean_group, discard
from kafkalog.compaction.soundness import require_known_layout, require_sound
from kafkalog.compaction.swap import swap_in, touched_names
from kafkalog.errors import RefusedError
from kafkalog.log_dir import open_partition
from kafkalog.storage import require_space, require_writable
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.compaction.map_building import MapBuilding
    from kafkalog.compaction.model import Candidate, Cleanable, CompactionRequest
    from kafkalog.compaction.new_files import Cleaning, NewFiles
    from kafkalog.compaction.soundness import SoundLog
    from kafkalog.log_dir import Segment
    from kafkalog.runs.run import PartitionRun, Run

CLEANER_OFFSETS = "cleaner-offset-checkpoint"

_HINTS = {
    Skip.NOT_COMPACTED: "If it is compacted, say so: --config cleanup.policy=compact.",
    Skip.NO_HIGH_WATERMARK: "Give --high-watermark N, or end where every record is replicated.",
    Skip.REMOTE: "A part of the log is in remote storage: leave it to a broker.",
    Skip.METADATA: "Brokers and controllers look after it themselves.",
    Skip.NOT_LIVE: "Rename a copy of it to TOPIC-PARTITION, elsewhere, if you want it.",
}


def require_compactable(candidate: Candidate) -> None:
    """Raise `RefusedError` where a partition that was asked for by name must not be compacted."""
    if candidate.skip in _HINTS:
        raise RefusedError(
            f"It is not compacted: {candidate.skip}.",
            path=candidate.partition.path,
            hint=_HINTS[candidate.skip],
        )


def compact_partition(
    candidate: Candidate,
    request: CompactionRequest,
    run: Run | None = None,
    progress: Callable[[int], None] | None = None,
) -> Compaction:
    """Compact a partition, or say exactly what would come of it.

    All of the log is read and judged before anything is written. `.deleted` files that a broker
    left go, as they do when one starts. Then each group of segments is
    written as `.cleaned`, synced, read back, and swapped in; the cleaner offset comes last. After
    a crash a start of a broker finds each group whole, old or new; what was done is done, and the
    rest is cleaned by the next run.

    Args:
        candidate: the partition, as `find_candidate` gave it.
        request: as for `find_candidate`.
        run: holds the lock of the log directory, if there is one. None: nothing is written; where
            a limited map takes several passes, only the first is told.
        progress: called with the number of bytes read since the last call: the log is read to
            judge it, which gives the map, and for the new segments; with a limited map, old formats
            or batches above 64 MB its dirty part also for the map.

    Raises:
        CorruptDataError: a batch is damaged, or what was written does not read back; the group it
            would have been in is as it was.
        RefusedError: the layout is not known, or a start would change something.
        UnwritableError: there is no room, or a step failed.

    Cost:
        Reads what it cleans twice, and the new segments once. Memory: 30 to 60 bytes a key (with
        a limited map, old formats or batches above 64 MB the keys themselves, and a batch), a bit
        for each record of the dirty part, some 10 MB a thread, and the indexes of a group.
    """
    if candidate.skip is not None or candidate.cleanable is None:
        size = _size_of(candidate.partition.segments)
        return Compaction(candidate, False, 0, 0, Tally(), None, size, size, ())
    require_known_layout(candidate.partition)
    if run is not None:
        require_writable(candidate.partition.path)
    building = _building_of(candidate)
    sound = require_sound(candidate, request, progress, building)
    work = _Work(candidate, request, sound, progress, building)
    if run is None:
        work.plan()
    else:
        upper = candidate.cleanable.first_uncleanable_offset
        touched = touched_names(candidate.partition, upper)
        touched += [entry.name.name for entry in candidate.partition.left_overs]
        with run.partition(candidate.partition, touched) as changing:
            work.perform(changing)
    return work.result(is_done=run is not None)


def _building_of(candidate: Candidate) -> MapBuilding | None:
    """What builds the map while the log is judged; None where the kernels do not."""
    if candidate.config.keys_max is not None or candidate.cleanable is None:
        return None
    from kafkalog.compaction.map_building import MapBuilding

    log = UnifiedLog(candidate.partition, high_watermark=candidate.high_watermark)
    return MapBuilding(log, candidate.cleanable)


class _Work:
    """The passes over one partition, and what they come to."""

    def __init__(
        self,
        candidate: Candidate,
        request: CompactionRequest,
        sound: SoundLog,
        progress: Callable[[int], None] | None,
        building: MapBuilding | None,
    ) -> None:
        assert candidate.cleanable is not None, "there is something to clean"
        self._candidate = candidate
        self._request = request
        self._sound = sound
        self._progress = progress
        self._building = building
        self._partition = candidate.partition
        self._cleanable: Cleanable = candidate.cleanable
        self._end = self._cleanable.first_dirty_offset
        self._passes = 0
        self._keys = 0
        self._tally = Tally()
        self._groups: list[Group] = []

    def plan(self) -> None:
        """The first pass, without a file."""
        cleaning = self._begin()
        for group in cleaning.groups():
            self._count(clean_group(cleaning, group, None), group)
        self._conclude(cleaning)

    def perform(self, changing: PartitionRun) -> None:
        """All passes; the cleaner offset is set when the last has ended.

        What has the name that a swap gives to old files goes first, as at a start.
        """
        left_overs = self._partition.left_overs
        for entry in left_overs:
            changing.changes.remove(entry.name.name)
        if left_overs:
            changing.changes.sync_directory()
        while self._cleanable.cleanable_bytes:
            cleaning = self._begin()
            groups = cleaning.groups()
            sizes = [_size_of(group) for group in groups]
            require_space(os.path.join(self._partition.path, "new"), _room_for(sizes))
            for group in groups:
                self._replace(cleaning, group, changing)
            before = self._end
            self._conclude(cleaning)
            if self._request.single_pass or self._end <= before:
                break
            self._look_again()
        changing.set_offset(CLEANER_OFFSETS, self._cleaner_offset())

    def result(self, *, is_done: bool) -> Compaction:
        """What it came to."""
        before = _size_of(self._candidate.partition.segments)
        last = {group.base_offset: group for group in self._groups}
        after = before
        if is_done:
            after = _size_of(open_partition(self._partition.path).segments)
        else:
            after += sum(group.bytes_after - group.bytes_before for group in last.values())
        return Compaction(
            self._candidate,
            is_done,
            self._passes,
            self._keys,
            self._tally,
            self._end,
            before,
            after,
            tuple(self._groups),
        )

    def _begin(self) -> Cleaning:
        log = UnifiedLog(self._partition, high_watermark=self._candidate.high_watermark)
        config, producers = self._candidate.config, self._sound.producers
        now_ms = self._request.now_ms
        if config.keys_max is not None or not self._sound.suits_kernels:
            return Pass(log, config, now_ms, self._cleanable, producers, self._progress)
        from kafkalog.compaction.columns import ColumnPass

        building, self._building = self._building, None
        return ColumnPass(log, config, now_ms, self._cleanable, producers, self._progress, building)

    def _replace(
        self, cleaning: Cleaning, group: Sequence[Segment], changing: PartitionRun
    ) -> None:
        files = clean_group(cleaning, group, changing.changes)
        try:
            check_new_files(files, changing.changes, cleaning.config)
        except BaseException:  # raised again: Ctrl-C leaves no half of a group either
            discard(files, changing.changes)
            raise
        swap_in(files, group, self._partition, changing.changes)
        self._count(files, group)

    def _count(self, files: NewFiles, group: Sequence[Segment]) -> None:
        bases = tuple(segment.base_offset for segment in group)
        self._groups.append(Group(files.base_offset, bases, _size_of(group), files.size_bytes))

    def _conclude(self, cleaning: Cleaning) -> None:
        self._passes += 1
        self._keys += cleaning.keys
        self._tally.add(cleaning.tally)
        self._end = max(self._end, cleaning.end_offset)

    def _look_again(self) -> None:
        """What is left to clean after a pass."""
        self._partition = open_partition(self._partition.path)
        log = UnifiedLog(self._partition, high_watermark=self._candidate.high_watermark)
        up_to = self._request.up_to_offset
        now_ms = self._request.now_ms
        self._cleanable = find_cleanable(log, self._candidate.config, now_ms, self._end, up_to)

    def _cleaner_offset(self) -> int:
        """Where the next cleaning begins; a right one that is noted never falls."""
        log = UnifiedLog(self._partition, high_watermark=self._candidate.high_watermark)
        noted = log.checkpoint(CLEANER_OFFSETS)
        if noted is None or not log.log_start_offset <= noted <= log.log_end_offset:
            return self._end
        return max(noted, self._end)


def _size_of(segments: Sequence[Segment]) -> int:
    return sum(segment.log.size_bytes for segment in segments)


def _room_for(sizes: Sequence[int]) -> int:
    """Bytes that the largest group may need, with its indexes; few records grow."""
    largest = max(sizes, default=0)
    return largest + largest // 8
