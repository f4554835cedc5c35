"""What of a partition can be cleaned, by its configs and marks, and which partition comes first.

Follows `LogCleanerManager.grabFilthiestCompactedLog` of Kafka 4.3. Nothing is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from kafkalog.compaction.cleanable import compaction_delay_ms, find_cleanable
from kafkalog.compaction.model import Candidate, CompactionConfig, Skip
from kafkalog.errors import UsageError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC
from kafkalog.marks import Mark, Marks
from kafkalog.names import DirectoryState
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.compaction.model import CompactionRequest
    from kafkalog.configs import ConfigValue, TopicConfigs
    from kafkalog.log_dir import PartitionDir

_ASKED: Final = (
    "cleanup.policy",
    "delete.retention.ms",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "producer.id.expiration.ms",
    "remote.storage.enable",
    "segment.bytes",
    "segment.index.bytes",
)


def find_candidate(
    partition: PartitionDir, configs: TopicConfigs, request: CompactionRequest
) -> Candidate:
    """What of a partition can be cleaned, or why nothing is.

    Without a noted high watermark nothing is: a record that is not replicated may be lost again,
    and must not have taken the place of one that is.

    Args:
        partition: the directory.
        configs: of its topic, from `ConfigSources`.
        request: what is asked for.

    Raises:
        UsageError: the offset map holds no key.
        UnreadableError: a file cannot be read.
        CorruptDataError: a config is not valid.

    Cost:
        A few index lookups a segment, the tail of the active one, and what the newest producer
        snapshot does not cover.
    """
    config = _config_of(configs, request)
    found = Candidate(partition, config, _used(configs))
    if skip := _skip_by_name(partition) or _skip_by_configs(configs):
        return replace(found, skip=skip)
    if not partition.segments:
        return replace(found, skip=Skip.NOTHING)
    marks = Marks(partition, high_watermark=request.high_watermark)
    start, end, cleaned = marks.log_start_offset, marks.high_watermark, _cleaner_offset(
        marks, request
    )  # fmt: skip
    is_noted = request.high_watermark is not None or (
        marks.log.checkpoint(file_names.HIGH_WATERMARKS) is not None
    )
    if not is_noted:
        return replace(found, marks=(start, cleaned), skip=Skip.NO_HIGH_WATERMARK)
    log = UnifiedLog(partition, high_watermark=end.value)
    cleanable = find_cleanable(log, config, request.now_ms, cleaned.value, request.up_to_offset)
    delay = compaction_delay_ms(
        log, cleanable, configs.number("max.compaction.lag.ms"), request.now_ms
    )
    stable = Mark("last stable offset", log.last_stable_offset, "open transactions in the log")
    return replace(
        found,
        marks=(start, end, stable, cleaned),
        high_watermark=end.value,
        cleanable=cleanable,
        delay_ms=delay,
        skip=None if cleanable.cleanable_bytes else Skip.NOTHING,
    )


def filthiest_first(candidates: Iterable[Candidate], *, take_all: bool) -> list[Candidate]:
    """The partitions of a log directory in the order a cleaner takes them.

    Args:
        candidates: of all partitions.
        take_all: also those that a cleaner would leave for now, because too little is dirty.

    Returns:
        First those to compact, by falling dirty ratio, then those to skip.
    """
    taken, skipped = [], []
    for one in candidates:
        if one.skip is not None or one.cleanable is None:
            skipped.append(one)
        elif take_all or one.delay_ms or one.cleanable.ratio > one.config.min_cleanable_dirty_ratio:
            taken.append(one)
        else:
            skipped.append(replace(one, skip=Skip.CLEAN_ENOUGH))
    taken.sort(key=lambda one: -(one.cleanable.ratio if one.cleanable else 0))
    return taken + skipped


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
        producer_id_expiration_ms=configs.number("producer.id.expiration.ms"),
        map_memory=request.map_memory,
        load_factor=request.load_factor,
    )
    if config.keys_max == 0:
        raise UsageError(
            f"An offset map of {request.map_memory} bytes holds no key.",
            hint="A key takes 24 bytes, and --load-factor leaves a part of the map free.",
        )
    return config


def _used(configs: TopicConfigs) -> tuple[ConfigValue, ...]:
    return tuple(configs[name] for name in _ASKED)


def _skip_by_name(partition: PartitionDir) -> Skip | None:
    if partition.topic == CLUSTER_METADATA_TOPIC:
        return Skip.METADATA
    return None if partition.state == DirectoryState.LIVE else Skip.NOT_LIVE


def _skip_by_configs(configs: TopicConfigs) -> Skip | None:
    if "compact" not in configs.words("cleanup.policy"):
        return Skip.NOT_COMPACTED
    return Skip.REMOTE if configs["remote.storage.enable"].value else None


def _cleaner_offset(marks: Marks, request: CompactionRequest) -> Mark:
    if request.first_dirty_offset is None:
        return marks.cleaner_offset
    return Mark("cleaner offset", request.first_dirty_offset, "--first-dirty-offset")
