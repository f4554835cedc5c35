"""How dirty a compacted log is, and whether the broker's cleaner has left it alone for too long.

Follows `LogToClean` and `LogCleanerManager` of Kafka 4.3. No configs are read: a log counts as
compacted if the cleaner noted an offset for it, or brokers create its topic compacted.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from kafkalog.compaction.candidates import find_cleanable, segments_between
from kafkalog.compaction.model import CompactionConfig
from kafkalog.configs.sources import COMPACTED_TOPICS
from kafkalog.errors import KafkaLogError
from kafkalog.names import DirectoryState
from kafkalog.paths import file_system
from kafkalog.unified_log import UnifiedLog
from kafkalog.wording import counted

if TYPE_CHECKING:
    from kafkalog.compaction.model import Cleanable
    from kafkalog.inventory import PartitionRow
    from kafkalog.log_dir import PartitionDir

_HOUR_MS: Final = 3_600_000
_NOTED_OFTEN: Final = (file_names.HIGH_WATERMARKS, file_names.RECOVERY_POINTS)


@dataclass(frozen=True, slots=True)
class Dirt:
    """The dirty part of a compacted log.

    Attributes:
        dirty_bytes: bytes of the segments that the cleaner may compact.
        ratio: their share of these and the clean ones: what `min.cleanable.dirty.ratio` is about.
        stuck: why the cleaner seems not to work on it any more; None if it does not.
    """

    dirty_bytes: int
    ratio: float
    stuck: str | None


def with_dirt(row: PartitionRow, partition: PartitionDir) -> PartitionRow:
    """Return the row of a partition with what is dirty in it, if that can be read."""
    with suppress(KafkaLogError):  # what is unreadable is reported by who reads it
        if (dirt := dirt_of(partition)) is not None:
            return replace(
                row,
                dirty_bytes=dirt.dirty_bytes,
                dirty_ratio=dirt.ratio,
                cleaner_stuck=dirt.stuck,
            )
    return row


def dirt_of(partition: PartitionDir) -> Dirt | None:
    """Return the dirty part of a live log, None if it is not known to be compacted.

    Raises:
        UnreadableError: a file cannot be read.

    Cost:
        What the newest producer snapshot does not cover, to find open transactions.
    """
    if partition.state != DirectoryState.LIVE or not partition.segments:
        return None
    log = UnifiedLog(partition)
    noted = log.checkpoint(file_names.CLEANER_OFFSETS)
    if noted is None and partition.topic not in COMPACTED_TOPICS:
        return None
    config = CompactionConfig()
    cleanable = find_cleanable(log, config, 0, noted)
    stuck = _why_stuck(log, cleanable, noted, config.min_cleanable_dirty_ratio)
    return Dirt(cleanable.cleanable_bytes, cleanable.ratio, stuck)


def _why_stuck(
    log: UnifiedLog, cleanable: Cleanable, noted: int | None, ratio_max: float
) -> str | None:
    """Return what shows that the cleaner should have cleaned the log long ago.

    A cleaner that works takes a log within seconds once its dirty ratio is above the limit. The
    times are those of files, as the broker left them: a copy that did not keep them shows nothing.
    """
    since = _above_since(log, cleanable, ratio_max)
    if since is None:
        return None
    log_dir = os.path.dirname(file_system.absolute(log.partition.path))
    hours = (_last_sign(log_dir) - since) // _HOUR_MS
    if hours < 1:
        return None
    if not file_system.exists(os.path.join(log_dir, file_names.CLEANER_OFFSETS)):
        why = f"{file_names.CLEANER_OFFSETS} is missing"
    elif noted is None:
        why = f"it has no entry in {file_names.CLEANER_OFFSETS}, and so was never cleaned"
    elif cleanable.checkpoint_is_wrong:
        why = f"its entry {noted} in {file_names.CLEANER_OFFSETS} lies outside the log"
    else:
        why = f"its last cleaning ended at offset {noted}"
    return (
        f"{100 * cleanable.ratio:.0f}% of it is dirty, and has been enough to clean for "
        f"{counted(hours, 'hour')}; {why}"
    )


def _above_since(log: UnifiedLog, cleanable: Cleanable, ratio_max: float) -> int | None:
    """Return when the dirty ratio rose above a limit, None if it did not: ms."""
    dirty = 0
    start = min(cleanable.first_dirty_offset, cleanable.first_uncleanable_offset)
    for segment in segments_between(log.segments, start, cleanable.first_uncleanable_offset):
        dirty += segment.log.size_bytes
        if dirty and dirty / (cleanable.clean_bytes + dirty) > ratio_max:
            return segment.log.mtime_ms
    return None


def _last_sign(log_dir: str) -> int:
    """Return when the broker last wrote a checkpoint, milliseconds; 0 if it is not known."""
    times = [0]
    for name in _NOTED_OFTEN:
        with suppress(OSError):
            times.append(file_system.stat(os.path.join(log_dir, name)).st_mtime_ns // 1_000_000)
    return max(times)
