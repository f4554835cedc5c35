"""The work on one partition: pass after pass, group after group, and what it comes to.

Follows `LogCleaner.cleanLog` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from formats import file_names
from kafkalog.compaction.cleanable import find_cleanable
from kafkalog.compaction.model import Compaction, Group, Tally
from kafkalog.compaction.swap import swap_in, touched_names
from kafkalog.log_dir import open_partition
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.compaction.model import Candidate, Cleanable, CompactionRequest
    from kafkalog.compaction.new_files import NewFiles
    from kafkalog.log_dir import PartitionDir, Segment
    from kafkalog.runs.run import PartitionRun
    from kafkalog.storage import Changes


class CleaningPass(Protocol):
    """A pass, and the new segments it gives."""

    @property
    def tally(self) -> Tally:
        """What was read and kept, when all groups were put."""

    @property
    def keys(self) -> int:
        """How many keys are in the map."""

    @property
    def end_offset(self) -> int:
        """Where the pass ends."""

    def groups(self) -> list[list[Segment]]:
        """The segments as they are put together."""

    def require_room(self, directory: str, sizes: Sequence[int]) -> None:
        """Raise `UnwritableError` where there is too little for the new segments.

        Args:
            directory: of the partition.
            sizes: of the logs of each group, bytes.
        """

    def put(self, group: Sequence[Segment], changes: Changes | None) -> NewFiles:
        """Have the new segment of a group there as `.cleaned`, checked; groups come in order.

        None: only say what it would be.
        """


class Passes(Protocol):
    """Makes the passes over a partition."""

    def begin(self, partition: PartitionDir, cleanable: Cleanable) -> CleaningPass:
        """The next pass over the partition as it is listed."""


class PartitionWork:
    """The passes over one partition, and what they come to."""

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
        """Names of the files that are removed or replaced."""
        upper = self._cleanable.first_uncleanable_offset
        left_overs = [entry.name.name for entry in self._partition.left_overs]
        return touched_names(self._partition, upper) + left_overs

    def plan(self) -> None:
        """The first pass, without a file."""
        cleaning = self._passes.begin(self._partition, self._cleanable)
        for group in cleaning.groups():
            self._count(cleaning.put(group, None), group)
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
            cleaning = self._passes.begin(self._partition, self._cleanable)
            groups = cleaning.groups()
            cleaning.require_room(self._partition.path, [_size_of(group) for group in groups])
            for group in groups:
                self._replace(cleaning, group, changing)
            before = self._end
            self._conclude(cleaning)
            if self._request.single_pass or self._end <= before:
                break
            self._look_again()
        changing.set_offset(file_names.CLEANER_OFFSETS, self._cleaner_offset())

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
        noted = log.checkpoint(file_names.CLEANER_OFFSETS)
        if noted is None or not log.log_start_offset <= noted <= log.log_end_offset:
            return self._end
        return max(noted, self._end)


def left_as_it_is(candidate: Candidate) -> Compaction:
    """What comes of a partition that is skipped."""
    size = _size_of(candidate.partition.segments)
    return Compaction(candidate, False, 0, 0, Tally(), None, size, size, ())


def _size_of(segments: Sequence[Segment]) -> int:
    return sum(segment.log.size_bytes for segment in segments)
