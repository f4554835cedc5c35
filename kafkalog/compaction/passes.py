"""The passes of a compaction that are done in this process: judged, cleaned, written, read back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.columnar.rule import kernels_work
from kafkalog.compaction.cleaning import Pass
from kafkalog.compaction.new_files import check_new_files, clean_group, discard
from kafkalog.compaction.soundness import require_sound
from kafkalog.storage import require_space
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.compaction.model import (
        Candidate,
        Cleanable,
        CompactionConfig,
        CompactionRequest,
        Tally,
    )
    from kafkalog.compaction.new_files import Cleaning, NewFiles
    from kafkalog.compaction.soundness import SoundLog
    from kafkalog.compaction.superseded import Superseded
    from kafkalog.compaction.transactions import TransactionState
    from kafkalog.log_dir import PartitionDir, Segment
    from kafkalog.storage import Changes


class WrittenPass:
    """A pass whose new segments are made when they are asked for."""

    def __init__(self, cleaning: Cleaning) -> None:
        self._cleaning = cleaning

    def groups(self) -> list[list[Segment]]:
        """The segments as they are put together."""
        return self._cleaning.groups()

    def require_room(self, directory: str, sizes: Sequence[int]) -> None:
        """Raise `UnwritableError` where the largest group may not fit; few records grow."""
        largest = max(sizes, default=0)
        require_space(os.path.join(directory, "new"), largest + largest // 8)

    def put(self, group: Sequence[Segment], changes: Changes | None) -> NewFiles:
        """Write the new segment of a group as `.cleaned`, and read it back; None: only say it.

        Raises:
            CorruptDataError, UnwritableError: it does not read back, or cannot be written; then
                there is no `.cleaned` file.
        """
        files = clean_group(self._cleaning, group, changes)
        if changes is None:
            return files
        try:
            check_new_files(files, changes, self._cleaning.config)
        except BaseException:  # raised again: Ctrl-C leaves no half of a group either
            discard(files, changes)
            raise
        return files

    @property
    def tally(self) -> Tally:
        """What was read and kept of the groups that were made."""
        return self._cleaning.tally

    @property
    def keys(self) -> int:
        """How many keys are in the map."""
        return self._cleaning.keys

    @property
    def end_offset(self) -> int:
        """Where the pass ends."""
        return self._cleaning.end_offset


class LocalPasses:
    """Makes passes over a partition that is sound.

    Args:
        candidate: the partition.
        request: the clock.
        sound: what is known of it.
        progress: called with the number of bytes read since the last call.
        superseded: what is superseded in the first pass, where that is known.
        transactions: open ones where its first group begins; None: at the log's beginning.
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
        """The next pass; `partition` is listed after the one before."""
        log = UnifiedLog(partition, high_watermark=self._high_watermark)
        producers = self.sound.producers
        common = (log, self._config, self._now_ms, cleanable, producers, self._progress)
        suits_kernels = self.sound.suits_kernels and kernels_work()
        if self._config.keys_max is not None or not suits_kernels:
            return WrittenPass(Pass(*common))
        from kafkalog.compaction.columns import ColumnPass

        superseded, self._superseded = self._superseded, None
        return WrittenPass(ColumnPass(*common, superseded, self._transactions))


def judged_passes(
    candidate: Candidate,
    request: CompactionRequest,
    progress: Callable[[int], None] | None = None,
    map_size_max: int | None = None,
) -> LocalPasses:
    """Read and judge a partition, and build the map of its first pass; as `require_sound`.

    Raises:
        MapOutgrownError: the map takes more than so many bytes of memory.
    """
    cleanable = candidate.cleanable
    assert cleanable is not None, "there is something to clean"
    if candidate.config.keys_max is not None or not kernels_work():
        sound = require_sound(candidate, request, progress)
        return LocalPasses(candidate, request, sound, progress)
    from kafkalog.compaction.map_building import MapBuilding
    from kafkalog.compaction.superseded import SupersededByMap

    log = UnifiedLog(candidate.partition, high_watermark=candidate.high_watermark)
    building = MapBuilding(log, cleanable, map_size_max)
    sound = require_sound(candidate, request, progress, building)
    superseded = SupersededByMap(building, cleanable)
    return LocalPasses(candidate, request, sound, progress, superseded)
