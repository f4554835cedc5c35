"""The four offset checkpoints of a log directory against the logs in it.

Follows `LogManager`, `ReplicaManager.checkpointHighWatermarks` and `LogCleanerManager` of Kafka
4.3. A broker that shut down cleanly has written them last, so they agree with the logs; the files
of one that was killed, or runs, lag behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from formats import file_names
from kafkalog.checkpoints import read_offset_checkpoint
from kafkalog.defects import make_defect
from kafkalog.errors import KafkaLogError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC
from kafkalog.names import OFFSET_CHECKPOINTS, DirectoryState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.check.batch_checks import CheckedPartition
    from kafkalog.log_dir import FileEntry, LogDir
    from kafkalog.model import CheckpointEntry, Defect

_OF_EVERY_LOG: Final = (file_names.RECOVERY_POINTS, file_names.HIGH_WATERMARKS)

_NAMED_MAX: Final = 5

_Key = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class _Log:
    """What a checkpoint is held against.

    Attributes:
        start: base offset of the first segment.
        log_start: where the log starts, by the checkpoint too.
        active: base offset of the active segment.
        end: the log end offset.
        was_closed: whether the broker shut down cleanly.
    """

    start: int
    log_start: int
    active: int
    end: int
    was_closed: bool


def checkpoints_fit_logs(
    log_dir: LogDir, partitions: Sequence[CheckedPartition]
) -> Iterator[Defect]:
    """Every checkpointed offset is within its log; of a closed log it is what a shutdown wrote."""
    by_key: dict[_Key, CheckedPartition] = {}
    for partition in partitions:
        directory = partition.directory
        key = directory.topic, directory.partition
        if directory.state == DirectoryState.LIVE or (
            directory.state == DirectoryState.FUTURE and key not in by_key
        ):
            by_key[key] = partition
    logs = {key: _log(partition) for key, partition in by_key.items()}
    for name in OFFSET_CHECKPOINTS:
        file = log_dir.file(name)
        if file is None or file.error is not None:
            continue
        try:
            entries = read_offset_checkpoint(file.path)
        except KafkaLogError:
            continue  # told where the file was read
        yield from _entries(file, entries, logs)
        if name in _OF_EVERY_LOG:
            yield from _missing(file, {(e.topic, e.partition) for e in entries}, by_key)


def _log(partition: CheckedPartition) -> _Log | None:
    """None where no segment could be listed, or the batches were not judged."""
    segments = partition.directory.segments
    if not segments or not partition.is_judged:
        return None
    return _Log(
        segments[0].base_offset,
        partition.log.log_start_offset,
        segments[-1].base_offset,
        partition.end_offset,
        partition.log.was_closed and partition.directory.state == DirectoryState.LIVE,
    )


def _entries(
    file: FileEntry, entries: Sequence[CheckpointEntry], logs: dict[_Key, _Log | None]
) -> Iterator[Defect]:
    judge = _JUDGES[file.name.name]
    seen: set[_Key] = set()
    for entry in entries:
        key = entry.topic, entry.partition
        what = f"{entry.topic}-{entry.partition}"
        if key in seen:
            detail = f"There are several entries of {what}."
            yield make_defect("checkpoint-entry-repeated", file.path, detail, offset=entry.offset)
        seen.add(key)
        if key not in logs:
            detail = f"The log directory has no partition {what}."
            yield make_defect("checkpoint-entry-left", file.path, detail, offset=entry.offset)
            continue
        log = logs[key]
        found = judge(entry.offset, log) if log is not None else None
        if found is not None:
            reference, detail = found
            said = f"The {OFFSET_CHECKPOINTS[file.name.name]} of {what} is {entry.offset}, "
            yield make_defect(reference, file.path, said + detail, offset=entry.offset)


def _missing(
    file: FileEntry, seen: set[_Key], by_key: dict[_Key, CheckedPartition]
) -> Iterator[Defect]:
    """A shutdown writes an entry for every log but that of the quorum."""
    lost = [
        f"{topic}-{number}"
        for (topic, number), partition in sorted(by_key.items())
        if (topic, number) not in seen
        and partition.log.was_closed
        and partition.directory.state == DirectoryState.LIVE
        and topic != CLUSTER_METADATA_TOPIC
    ]
    if lost:
        named = ", ".join(lost[:_NAMED_MAX]) + (" and others" if lost[_NAMED_MAX:] else "")
        detail = f"After a clean shutdown {len(lost)} partitions have no entry: {named}."
        yield make_defect("checkpoint-entry-missing", file.path, detail)


_Judgement = tuple[str, str] | None


def _recovery_point(offset: int, log: _Log) -> _Judgement:
    if offset > log.end or offset < 0:
        return "checkpoint-outside-log", f"the log ends at {log.end}."
    if log.was_closed and offset != log.end:
        detail = f"the log ends at {log.end}, after a clean shutdown."
        return "recovery-point-not-at-end", detail
    return None


def _high_watermark(offset: int, log: _Log) -> _Judgement:
    if offset > log.end or offset < 0:
        return "checkpoint-outside-log", f"the log ends at {log.end}."
    if offset < log.log_start and log.was_closed:
        return "checkpoint-outside-log", f"the log starts at {log.log_start}."
    return None


def _log_start(offset: int, log: _Log) -> _Judgement:
    if offset > log.end or offset < 0:
        return "log-start-beyond-log", f"the log ends at {log.end}."
    if log.was_closed and offset <= log.start:
        return "checkpoint-entry-left", f"the first segment begins at {log.start}."
    return None


def _first_dirty(offset: int, log: _Log) -> _Judgement:
    if offset > log.active or offset < 0:
        return "checkpoint-outside-log", f"the active segment begins at {log.active}."
    if offset < log.start:
        return "checkpoint-entry-left", f"the first segment begins at {log.start}."
    return None


_JUDGES: Final[dict[str, Callable[[int, _Log], _Judgement]]] = {
    file_names.RECOVERY_POINTS: _recovery_point,
    file_names.HIGH_WATERMARKS: _high_watermark,
    file_names.LOG_STARTS: _log_start,
    file_names.CLEANER_OFFSETS: _first_dirty,
}
