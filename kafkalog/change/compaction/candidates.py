"""How dirty a log is, which part of it can be cleaned by its configs and offsets, in which order.

Follows `LogToClean` and, in `LogCleanerManager`, `cleanableOffsets` and `grabFilthiestCompactedLog`
of Kafka. Nothing is written. A listing reads no configs: there, a log counts as compacted if
the cleaner noted an offset for it, or brokers create its topic compacted.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.constants import INT64_MAX
from formats.file_names import DirectoryState, FileKind, FileState
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.change.compaction.model import (
    BrokerLimits,
    Candidate,
    Cleanable,
    CompactionConfig,
    Skip,
)
from kafkalog.errors import DataError, UsageError
from kafkalog.files.offsets import LogOffset, OffsetSource
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.io.paths import file_system
from kafkalog.io.wording import counted
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch
from kafkalog.node.configs.sources import COMPACTED_TOPICS
from kafkalog.node.unified_log import LogOffsets, UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.change.compaction.model import CompactionRequest
    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.node.configs import ConfigValue, TopicConfigs
    from kafkalog.node.inventory import PartitionRow


def find_cleanable(
    log: UnifiedLog,
    config: CompactionConfig,
    now_ms: int,
    checkpoint: int | None,
    up_to_offset: int | None = None,
) -> Cleanable:
    """Return the dirty part of a log below its last stable offset.

    Args:
        log: with the high watermark to use; nothing above it is cleaned.
        config: supplies min_compaction_lag_ms.
        checkpoint: where the last cleaning ended, None if none.
        up_to_offset: the segment that holds it and later ones are not cleaned; None for no limit.
    """
    start, end = log.log_start_offset, log.log_end_offset
    first_dirty = start if checkpoint is None else checkpoint
    # As LogCleanerManager.cleanableOffsets: an entry outside the log counts as none, so that all of
    # the log is dirty again.
    is_wrong = not start <= first_dirty <= end
    if is_wrong:
        first_dirty = start
    active = log.segments[-1]
    # Beyond the last stable offset a transaction may still be aborted; the active segment is
    # appended to, and never rewritten.
    limits = [log.last_stable_offset, active.base_offset]
    if up_to_offset is not None:
        limits.append(up_to_offset)
    if config.min_compaction_lag_ms > 0 and first_dirty <= active.base_offset:
        youngest = now_ms - config.min_compaction_lag_ms
        limits += [
            segment.base_offset
            for segment in segments_between(log.segments, first_dirty, active.base_offset)
            if largest_timestamp(log, segment) > youngest
            # Only the first one limits; lags count by segment, as by its largest timestamp.
        ][:1]
    not_beyond = max(first_dirty, min(limits))
    first_uncleanable = _aligned_down(log.segments, not_beyond)
    cleanable = segments_between(
        log.segments, min(first_dirty, first_uncleanable), first_uncleanable
    )
    # A segment with the first dirty offset inside counts as clean and as dirty, as in LogToClean.
    clean = [s.log.size_bytes for s in log.segments if s.base_offset < first_dirty]
    return Cleanable(
        first_dirty,
        first_uncleanable,
        sum(clean),
        sum(segment.log.size_bytes for segment in cleanable),
        is_wrong,
    )


def compaction_delay_ms(
    log: UnifiedLog, cleanable: Cleanable, max_compaction_lag_ms: int, now_ms: int
) -> int:
    """Return how long cleaning has been overdue: `LogCleanerManager.maxCompactionDelay`.

    Above 0 the log is cleaned, however small its dirty part is.
    """
    dirty = segments_between(
        log.segments,
        min(cleanable.first_dirty_offset, log.segments[-1].base_offset),
        log.segments[-1].base_offset,
    )
    # The default of max.compaction.lag.ms: no limit, so no segment has to be opened.
    if not dirty or max_compaction_lag_ms == INT64_MAX:
        return 0
    firsts = [_first_timestamp(log, segment) for segment in dirty]
    # 0 and -1 say nothing about age: LogCleanerManager.maxCompactionDelay leaves them out.
    earliest = min((first for first in firsts if first > 0), default=None)
    return 0 if earliest is None else max(0, now_ms - max_compaction_lag_ms - earliest)


def _first_timestamp(log: UnifiedLog, segment: Segment) -> int:
    """Return the max timestamp of the first batch, -1 if there is no batch."""
    with log.open_segment(segment) as opened:
        first = next(scan_batches(opened.source, 0), None)
    return first.max_timestamp if isinstance(first, Batch) else -1


def segments_between(segments: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """Return the segments from that of `start` up to base offset `end`: `LogSegments.values`."""
    if start == end:
        return []
    # The segment that holds `start` is part of the range, however little of it is.
    floor = max((s.base_offset for s in segments if s.base_offset <= start), default=start)
    return [segment for segment in segments if floor <= segment.base_offset < end]


def largest_timestamp(log: UnifiedLog, segment: Segment) -> int:
    """Return the time index's last timestamp (ms), or without one the file's modification time."""
    with log.open_segment(segment) as opened:
        # After a clean stop a broker reads the last entry of the time index; after a crash recovery
        # finds the largest timestamp in the log. Neither looks at records otherwise.
        if log.was_closed:
            timestamp = -1 if opened.time_index is None else opened.time_index.last_slot_timestamp()
        else:
            timestamp, _ = opened.largest_timestamp(recovered=True)
    # As LogSegment.largestTimestamp: logs of magic 0 have no timestamps, and empty segments no
    # entry.
    return timestamp if timestamp >= 0 else segment.log.modified_timestamp


def _aligned_down(segments: Sequence[Segment], offset: int) -> int:
    """Return the base offset of the segment that holds the offset, or of the active segment."""
    # As LogToClean: downwards, so that a last stable offset inside a segment leaves all of it
    # alone.
    below = [s.base_offset for s in segments[:-1] if s.base_offset <= offset]
    following = next((s.base_offset for s in segments if s.base_offset > offset), None)
    if below and following is not None:
        return below[-1]
    return segments[-1].base_offset


_ASKED: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.decompressed.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "producer.id.expiration.ms",
    "remote.storage.enable",
    "segment.bytes",
    "segment.index.bytes",
)
_OF_CLEANER: Final = (
    "log.cleaner.threads",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.max.bytes.per.second",
)


def find_candidate(
    partition: PartitionDir, configs: TopicConfigs, request: CompactionRequest
) -> Candidate:
    """Return which part of a partition can be cleaned, or why none can.

    Without a known high watermark none can: a record that is not replicated may yet be lost, and
    must not supersede one that is.

    Args:
        configs: the configs of its topic, from `ConfigSources`.
        request: what was requested.

    Raises:
        UsageError: the offset map is too small for a single key.
        UnreadableError: a file cannot be read.
        CorruptDataError: a config is not valid.

    Cost:
        A few index lookups per segment, the tail of the active one, and what the newest producer
        snapshot does not cover.
    """
    config = _config_of(configs, request)
    found = Candidate(partition, config, _used(configs), limits=_limits(configs))
    if skip := _skip_by_name(partition) or _skip_by_configs(configs):
        return replace(found, skip=skip)
    if not partition.segments:
        return replace(found, skip=Skip.NOTHING)
    log = UnifiedLog(partition, high_watermark=request.high_watermark)
    marks = log.offsets
    start, end, cleaned = marks.log_start_offset, marks.high_watermark, _cleaner_offset(
        marks, request
    )  # fmt: skip
    # A missing entry reads as the log start, below which nothing is cleaned: say so instead.
    if end.source == OffsetSource.LOG:
        return replace(found, marks=(start, cleaned), skip=Skip.NO_HIGH_WATERMARK)
    cleanable = find_cleanable(log, config, request.now_ms, cleaned.value, request.up_to_offset)
    delay = compaction_delay_ms(
        log, cleanable, configs.number("max.compaction.lag.ms"), request.now_ms
    )
    return replace(
        found,
        marks=(start, end, marks.last_stable_offset, cleaned),
        high_watermark=end.value,
        cleanable=cleanable,
        delay_ms=delay,
        skip=None if cleanable.cleanable_bytes else Skip.NOTHING,
    )


def filthiest_first(candidates: Iterable[Candidate], *, take_all: bool) -> list[Candidate]:
    """Return the partitions of a log directory in the order in which a cleaner takes them.

    Args:
        candidates: all partitions.
        take_all: whether to include those that a cleaner would postpone, because too little of
            them is dirty.

    Returns:
        First the partitions to compact, by falling dirty ratio, then those to skip.
    """
    taken, skipped = [], []
    for one in candidates:
        if one.skip is not None or one.cleanable is None:
            skipped.append(one)
        elif take_all or one.delay_ms or one.cleanable.ratio > one.config.min_cleanable_dirty_ratio:
            taken.append(one)
        else:
            skipped.append(replace(one, skip=Skip.CLEAN_ENOUGH))
    return sorted(taken, key=cleaning_order) + skipped


def cleaning_order(candidate: Candidate) -> tuple[bool, float]:
    """Return by what a cleaner orders candidates; those that it skips come last."""
    if candidate.skip is not None or candidate.cleanable is None:
        return True, 0.0
    # grabFilthiestCompactedLog takes the highest ratio, also among those that are overdue.
    return False, -candidate.cleanable.ratio


def _config_of(configs: TopicConfigs, request: CompactionRequest) -> CompactionConfig:
    ratio = configs["min.cleanable.dirty.ratio"].value
    assert isinstance(ratio, float), "it is a double"
    config = CompactionConfig(
        segment_bytes=configs.number("segment.bytes"),
        segment_index_bytes=configs.number("segment.index.bytes"),
        index_interval_bytes=configs.number("index.interval.bytes"),
        delete_retention_ms=configs.number("delete.retention.ms"),
        min_compaction_lag_ms=configs.number("min.compaction.lag.ms"),
        min_cleanable_dirty_ratio=ratio,
        max_decompressed_message_bytes=configs.number("max.decompressed.message.bytes"),
        producer_id_expiration_ms=configs.number("producer.id.expiration.ms"),
        map_memory=request.map_memory,
        load_factor=request.load_factor,
        keeps_end_of_round=configs.release.keeps_end_of_round,
    )
    # Kafka's Cleaner refuses such a map, too: a pass that maps no key would never get on.
    if config.keys_max == 0:
        raise UsageError(
            f"An offset map of {request.map_memory} bytes holds no key.",
            hint="A key takes 24 bytes, and --load-factor leaves a part of the map free.",
        )
    return config


def _used(configs: TopicConfigs) -> tuple[ConfigValue, ...]:
    return tuple(
        configs[name] for name in (*_ASKED, *_OF_CLEANER) if name in _ASKED or configs.is_set(name)
    )


def _limits(configs: TopicConfigs) -> BrokerLimits:
    threads, buffer_bytes, load_factor, rate = (configs[name].value for name in _OF_CLEANER)
    assert isinstance(threads, int)
    assert isinstance(buffer_bytes, int)
    assert isinstance(load_factor, float)
    assert isinstance(rate, float)
    return BrokerLimits.of(threads, buffer_bytes, load_factor, rate)


def _skip_by_name(partition: PartitionDir) -> Skip | None:
    if partition.topic == CLUSTER_METADATA:
        return Skip.METADATA
    return None if partition.state == DirectoryState.LIVE else Skip.NOT_LIVE


def _skip_by_configs(configs: TopicConfigs) -> Skip | None:
    # Configs are in the cluster metadata, not in the directory: without them nothing may be
    # dropped.
    if "compact" not in configs.words("cleanup.policy"):
        return Skip.NOT_COMPACTED
    return Skip.REMOTE if configs["remote.storage.enable"].value else None


def _cleaner_offset(marks: LogOffsets, request: CompactionRequest) -> LogOffset:
    if request.first_dirty_offset is None:
        return marks.cleaner_offset
    return LogOffset("cleaner offset", request.first_dirty_offset, OffsetSource.GIVEN)


# A cleaner looks again every log.cleaner.backoff.ms (15 s): hours are no delay but a standstill.
_HOUR_MS: Final = 3_600_000
# Every 5 s (replica.high.watermark.checkpoint.interval.ms) and 60 s, so they tell when the broker
# was last alive.
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
    with suppress(DataError):  # what is unreadable is reported by who reads it
        row = replace(row, cleaner_state=cleaner_state(partition))
        if (dirt := dirt_of(partition)) is not None:
            return replace(
                row, dirty_bytes=dirt.dirty_bytes, dirty_ratio=dirt.ratio, cleaner_stuck=dirt.stuck
            )
    return row


class CleanerState(StrEnum):
    """What unfinished files prove of the cleaner's work on a log.

    A cleaning that was aborted leaves no files, and one that is paused has none yet.
    """

    IN_PROGRESS = "in_progress"
    INTERRUPTED = "interrupted"
    UNCLEANABLE = "uncleanable"


def cleaner_state(partition: PartitionDir) -> CleanerState | None:
    """Return the state of the cleaner's work on a live log, None without unfinished files."""
    logs = [entry for entry in partition.files if entry.name.kind == FileKind.LOG]
    new = [one for one in logs if one.name.state in (FileState.CLEANED, FileState.SWAP)]
    if not new or partition.state != DirectoryState.LIVE:
        return None
    log_dir = os.path.dirname(file_system.absolute(partition.path))
    # Of all failures only an abort removes the new segment. The others leave it until the next
    # start, and the broker leaves the partition alone until then: it counts as uncleanable.
    is_swapped = any(one.name.state == FileState.SWAP for one in new)
    age_ms = _last_sign(log_dir) - max(one.modified_timestamp for one in new)
    if not is_swapped and age_ms >= _HOUR_MS:
        return CleanerState.UNCLEANABLE
    return CleanerState.IN_PROGRESS if is_broker_running(log_dir) else CleanerState.INTERRUPTED


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
    # The clock counts only with min.compaction.lag.ms, which is 0 here.
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
    if cleaner_state(log.partition) == CleanerState.UNCLEANABLE:
        why += "; a cleaning failed, and left .cleaned files: it is uncleanable until a restart"
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
            return segment.log.modified_timestamp
    return None


def _last_sign(log_dir: str) -> int:
    """Return when the broker last wrote a checkpoint, milliseconds; 0 if it is not known."""
    times = [0]
    for name in _NOTED_OFTEN:
        with suppress(OSError):
            times.append(file_system.stat(os.path.join(log_dir, name)).st_mtime_ns // 1_000_000)
    return max(times)
