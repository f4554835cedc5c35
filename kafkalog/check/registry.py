"""The checks, in the order in which they tell what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafkalog.check.against_log import IndexesMatchLog
from kafkalog.check.checkpoints import checkpoints_fit_logs
from kafkalog.check.cleaner import CleanerGetsThrough
from kafkalog.check.contained import ContainedCheck
from kafkalog.check.headers_alone import (
    AttributesAreKnown,
    ChecksumsMatch,
    ControlRecordsAreReadable,
    HeaderFieldsAgree,
    MagicIsKnown,
)
from kafkalog.check.identity import (
    log_dir_is_formatted,
    log_dirs_fit_together,
    metadata_is_there,
    partitions_are_assigned,
    shutdown_fits_metadata,
    topic_ids_fit,
)
from kafkalog.check.in_records import (
    MaxTimestampsAreRight,
    RecordOffsetsFitBatches,
    RecordsDecode,
)
from kafkalog.check.leader_epochs import EpochsMatchFile
from kafkalog.check.log_dirs import (
    leftovers_of_partitions,
    partition_names_are_canonical,
    partitions_are_in_one_place,
)
from kafkalog.check.offset_order import OffsetsIncrease
from kafkalog.check.producer_history import ProducerHistory
from kafkalog.check.replicas import replicas_agree
from kafkalog.check.segments import (
    IndexesAreThere,
    OffsetsAreComplete,
    OffsetsFitTheirSegment,
    files_have_their_segment,
)
from kafkalog.check.small_files import (
    partition_files_are_as_written,
    top_files_are_as_written,
)
from kafkalog.model import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.check.batch_checks import (
        BatchCheck,
        CheckedLog,
        CheckedPartition,
        PartitionCheck,
        SegmentCheck,
    )
    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.log_dir import LogDir
    from kafkalog.model import Defect

SEGMENT_CHECKS: Final[tuple[type[SegmentCheck], ...]] = (
    # These judge each batch when they have seen the next: first, for the order of the file.
    OffsetsIncrease,
    IndexesMatchLog,
    ChecksumsMatch,
    MagicIsKnown,
    AttributesAreKnown,
    HeaderFieldsAgree,
    ControlRecordsAreReadable,
    OffsetsFitTheirSegment,
    RecordsDecode,
    RecordOffsetsFitBatches,
    MaxTimestampsAreRight,
)
"""Of the batches of one log file."""

PARTITION_CHECKS: Final[tuple[type[PartitionCheck], ...]] = (
    OffsetsAreComplete,
    EpochsMatchFile,
    ProducerHistory,
    IndexesAreThere,
    CleanerGetsThrough,
)
"""Of all batches of a partition."""

DIRECTORY_CHECKS: Final[tuple[Callable[[CheckedPartition], Iterator[Defect]], ...]] = (
    files_have_their_segment,
    partition_files_are_as_written,
    partition_names_are_canonical,
)
"""Of the files of a partition, when its batches have been walked over."""

LOG_DIR_CHECKS: Final[
    tuple[Callable[[LogDir, Sequence[CheckedPartition]], Iterator[Defect]], ...]
] = (
    log_dir_is_formatted,
    top_files_are_as_written,
    checkpoints_fit_logs,
    leftovers_of_partitions,
)
"""Of a log directory, when its partitions have been walked over."""

TOGETHER_CHECKS: Final[tuple[Callable[[Sequence[CheckedLogDir]], Iterator[Defect]], ...]] = (
    log_dirs_fit_together,
    partitions_are_in_one_place,
    topic_ids_fit,
    metadata_is_there,
    partitions_are_assigned,
    shutdown_fits_metadata,
)
"""Of all log directories of a run, when it ends."""

COPY_CHECKS: Final[tuple[Callable[[Sequence[CheckedLogDir]], Iterator[Defect]], ...]] = (
    replicas_agree,
)
"""Of the same, and of the partitions that were given by themselves."""


def segment_checks(log: CheckedLog, level: Level) -> list[BatchCheck]:
    """Those that apply to a log, ready for its first batch."""
    return [
        ContainedCheck(check(log), log.path)
        for check in SEGMENT_CHECKS
        if _is_made(check, level) and check.applies(log)
    ]


def partition_checks(partition: CheckedPartition, level: Level) -> list[PartitionCheck]:
    """Those that apply to a partition, ready for its first segment."""
    return [
        ContainedCheck(check(partition), partition.directory.path)
        for check in PARTITION_CHECKS
        if _is_made(check, level) and check.applies(partition)
    ]


def _is_made(check: type[BatchCheck], level: Level) -> bool:
    levels = list(Level)
    return levels.index(check.level) <= levels.index(level)
