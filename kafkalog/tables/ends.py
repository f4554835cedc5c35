"""Where the records of logs begin and end for whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog import places
from kafkalog.errors import NotFoundError
from kafkalog.living import about_a_log
from kafkalog.model import Isolation, LogView
from kafkalog.tables.model import End, PartitionEnd, TableName
from kafkalog.unified_log import END, UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.log_dir import PartitionDir
    from kafkalog.tables.model import Request
    from kafkalog.tables.planning import Target


def consumers_log(partition: PartitionDir, request: Request) -> UnifiedLog:
    """Return the log of a partition with the high watermark that a request wants."""
    return UnifiedLog(partition, high_watermark=END if request.end == End.LOG else None)


def partition_ends(targets: Iterable[Target], request: Request) -> list[PartitionEnd]:
    """Return the bounds of the logs whose records they decide."""
    if not has_bounds(request):
        return []
    found = []
    for target in targets:
        try:
            log = consumers_log(target.partition, request)
            found.append(about_a_log(partition_end)(log, request))
        except NotFoundError:
            if places.exists(target.listed.path):
                raise  # else it was deleted: nothing of it is given
    return found


def has_bounds(request: Request) -> bool:
    """Whether the high watermark and the like decide what is given."""
    is_committed = request.isolation == Isolation.READ_COMMITTED
    left_overs = request.view == LogView.ALL and not is_committed
    is_asked = request.table == TableName.RECORDS and request.isolation != Isolation.LOG
    return is_asked and not left_overs


def partition_end(log: UnifiedLog, request: Request) -> PartitionEnd:
    """Return the bounds of a log that `consumers_log` gave."""
    partition = log.partition
    is_noted = request.end == End.LOG or log.checkpoint(file_names.HIGH_WATERMARKS) is not None
    is_committed = request.isolation == Isolation.READ_COMMITTED
    return PartitionEnd(
        partition.topic,
        -1 if partition.partition is None else partition.partition,
        log.high_watermark if is_noted else None,
        log.log_end_offset,
        log.last_stable_offset if is_committed else None,
        log.first_offset,
        log.log_start_offset,
    )
