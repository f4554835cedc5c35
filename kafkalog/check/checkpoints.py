"""Checks of what a broker leaves behind when it stops: offset checkpoints, and leftovers.

Follows `LogManager`, `ReplicaManager.checkpointHighWatermarks` and `LogCleanerManager` of Kafka
4.3. A broker writes them last in a clean shutdown, so they agree with the logs then; those of a
running or killed broker lag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from formats import file_names
from formats.file_names import OFFSET_CHECKPOINTS, DirectoryState
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.check.batches import PartitionCheck, log_dir_check, partition_check
from kafkalog.check.segments import has_compact_policy, has_stated_policy, is_cleaned
from kafkalog.errors import DataError
from kafkalog.files.text_files import read_offset_checkpoint
from kafkalog.io.wording import counted, utc_text
from kafkalog.log.columns import header_table as h
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.check.batches import CheckedPartition, Found
    from kafkalog.files.log_dir import FileEntry, LogDirListing
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.model import Batch, CheckpointEntry, Defect

ENDS_READING: Final = frozenset(
    {
        "batch-length-invalid",
        "decompression-failed",
        "magic-unknown",
        "record-malformed",
        "records-count-invalid",
        "records-left-over",
        "torn-tail",
        "unknown-codec",
        "zero-tail",
    }
)
"""References of the damage on which the cleaner throws. A wrong checksum is not among them: the
cleaner does not verify checksums, and rewrites the batch with a right one. Follows
`MemoryRecordsBuilder`, `ByteBufferLogInputStream` and `DefaultRecordBatch` of Kafka. A batch of
magic 2 that keeps all its records is copied regardless of their content; a batch that is rewritten
must pass the checks of a leader's append. A full offset map is not a failure: the cleaner makes
another pass.
"""

EMPTY_BATCH: Final = "Empty batches are only supported for magic v2 and above"
"""The cleaner's message if the last batch to clean has an old format and loses all records."""


def why_not_rewritten(batch: Batch, records: Iterable[tuple[int, int]]) -> str | None:
    """Return why Kafka cannot rewrite a batch with these of its records, or None if it can.

    Args:
        batch: the batch before cleaning.
        records: offset and timestamp of each record that is kept.
    """
    for offset, timestamp in records:
        if timestamp < c.NO_TIMESTAMP:
            return f"Invalid negative timestamp {timestamp} (offset {offset})"
    if batch.magic < 2 or batch.producer_id == -1:
        return None
    if batch.producer_epoch == -1:
        return f"Invalid negative producer epoch (batch at offset {batch.base_offset})"
    if batch.base_sequence < 0 and not batch.is_control:
        return f"Invalid negative sequence number used (batch at offset {batch.base_offset})"
    return None


_OF_EVERY_LOG: Final = (file_names.RECOVERY_POINTS, file_names.HIGH_WATERMARKS)

_NAMED_MAX: Final = 5

_Key = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class _Log:
    """The offsets that a checkpoint is compared with.

    Attributes:
        start: base offset of the first segment.
        log_start: the log start offset, also by the checkpoint.
        active: base offset of the active segment.
        end: the log end offset.
    """

    start: int
    log_start: int
    active: int
    end: int
    was_closed: bool


@log_dir_check
def checkpoints_fit_logs(
    log_dir: LogDirListing, partitions: Sequence[CheckedPartition]
) -> Iterator[Defect]:
    """Every checkpointed offset is within its log, and after a clean shutdown exact."""
    by_key: dict[_Key, CheckedPartition] = {}
    for partition in partitions:
        directory = partition.directory
        key = directory.topic, directory.partition
        if directory.state == DirectoryState.LIVE or (
            directory.state == DirectoryState.FUTURE and key not in by_key
        ):
            by_key[key] = partition
    logs: dict[_Key, _Log | None] = {(one.topic, one.partition): None for one in log_dir.unlisted}
    logs |= {key: _log(partition) for key, partition in by_key.items()}
    for name in OFFSET_CHECKPOINTS:
        file = log_dir.file(name)
        if file is None or file.error is not None:
            continue
        try:
            entries = read_offset_checkpoint(file.path)
        except DataError:
            continue  # reported by the check that reads the file
        yield from _entries(file, entries, logs)
        if name in _OF_EVERY_LOG:
            yield from _missing(file, {(e.topic, e.partition) for e in entries}, by_key)


def _log(partition: CheckedPartition) -> _Log | None:
    """Return a partition's offsets; None if its batches were not judged."""
    segments = partition.directory.segments
    if not partition.is_judged:
        return None
    if not segments:
        # A start creates an empty log there (LogLoader.recoverLog).
        start = partition.log.log_start_offset
        return _Log(start, start, start, start, was_closed=False)
    return _Log(
        segments[0].base_offset,
        partition.log.log_start_offset,
        segments[-1].base_offset,
        partition.end_offset,
        # A move may be anywhere when the broker stops: only live logs end at their checkpoints.
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
    """Yield a defect if logs lack the entry that a shutdown writes; the quorum's has none."""
    lost = [
        f"{topic}-{number}"
        for (topic, number), partition in sorted(by_key.items())
        if (topic, number) not in seen
        # A running broker writes checkpoints at intervals: a new log may have no entry yet.
        and partition.log.was_closed
        and partition.directory.state == DirectoryState.LIVE
        and topic != CLUSTER_METADATA
    ]
    if lost:
        named = ", ".join(lost[:_NAMED_MAX]) + (" and others" if lost[_NAMED_MAX:] else "")
        detail = f"After a clean shutdown {counted(len(lost), 'entry')} missing: {named}."
        yield make_defect("checkpoint-entry-missing", file.path, detail)


_Judgement = tuple[str, str] | None


def _recovery_point(offset: int, log: _Log) -> _Judgement:
    if offset > log.end or offset < 0:
        return "checkpoint-outside-log", f"the log ends at {log.end}."
    # A clean shutdown flushes each log, then writes its end (LogManager.shutdown).
    if log.was_closed and offset != log.end:
        detail = f"the log ends at {log.end}, after a clean shutdown."
        return "recovery-point-not-at-end", detail
    return None


def _high_watermark(offset: int, log: _Log) -> _Judgement:
    if offset > log.end or offset < 0:
        return "checkpoint-outside-log", f"the log ends at {log.end}."
    # A running broker writes each checkpoint at its own interval: one may be behind the other.
    if offset < log.log_start and log.was_closed:
        return "checkpoint-outside-log", f"the log starts at {log.log_start}."
    return None


def _log_start(offset: int, log: _Log) -> _Judgement:
    if offset > log.end or offset < 0:
        return "log-start-beyond-log", f"the log ends at {log.end}."
    # LogManager writes an entry only above the first segment's base offset.
    if log.was_closed and offset <= log.start:
        return "checkpoint-entry-left", f"the first segment begins at {log.start}."
    return None


def _first_dirty(offset: int, log: _Log) -> _Judgement:
    # The cleaner never cleans the active segment.
    if offset > log.active or offset < 0:
        return "checkpoint-outside-log", f"the active segment begins at {log.active}."
    # Retention has deleted the segments that it was about.
    if offset < log.start:
        return "checkpoint-entry-left", f"the first segment begins at {log.start}."
    return None


_JUDGES: Final[dict[str, Callable[[int, _Log], _Judgement]]] = {
    file_names.RECOVERY_POINTS: _recovery_point,
    file_names.HIGH_WATERMARKS: _high_watermark,
    file_names.LOG_STARTS: _log_start,
    file_names.CLEANER_OFFSETS: _first_dirty,
}

_WORDS = "A broker's cleaner fails on this partition"


@partition_check
class CleanerGetsThrough(PartitionCheck):
    """No closed segment of a compacted topic has a batch on which a broker's cleaner fails.

    Where no config says whether the topic is compacted, batches that a cleaner has written do.
    Only the first is reported: the cleaner gets no further. Records are read at level deep only.
    """

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        self._defect: Defect | None = None
        self._is_compacted = has_compact_policy(partition)

    @classmethod
    def applies(cls, partition: CheckedPartition) -> bool:
        is_live = partition.directory.state == DirectoryState.LIVE
        return is_live and (has_compact_policy(partition) or not has_stated_policy(partition))

    def damage(self, defect: Defect) -> None:
        self._unreadable(defect.reference, defect.position, defect.offset)

    def batches(self, columns: BatchColumns) -> Iterator[Found]:
        """Report nothing here: `end` reports the first batch on which the cleaner fails."""
        headers = columns.headers
        self._is_compacted = self._is_compacted or (columns.plain is None and is_cleaned(columns))
        for i in np.flatnonzero(headers[h.MAGIC] > 2)[:1].tolist():
            self._unreadable("magic-unknown", *_place(columns, i))
        for i, error in columns.refusals:
            self._unreadable(error.reference, *_place(columns, i))
        if columns.facts is not None:
            for i in np.flatnonzero(_stopping(columns))[:1].tolist():
                offset = int(columns.facts[h.INVALID_TIME, i])
                why = " as soon as it has to write this batch again: the record at offset "
                self._note(f"{why}{offset} has a negative timestamp.", *_place(columns, i))
        return iter(())

    def end(self) -> Iterator[Defect]:
        if self._defect is not None and self._is_compacted:
            yield self._defect

    def _unreadable(self, reference: str, position: int | None, offset: int | None) -> None:
        if reference in ENDS_READING:
            self._note(f": it cannot read past here ({reference}).", position, offset)

    def _note(self, why: str, position: int | None, offset: int | None) -> None:
        # The cleaner does not read the active segment.
        if self._defect is None and self.log.next_base_offset is not None:
            self._defect = make_defect(
                "cleaner-stuck", self.log.path, _WORDS + why, position=position, offset=offset
            )


def _stopping(columns: BatchColumns) -> NDArray[np.bool_]:
    """Return which batches the cleaner will rewrite although Kafka cannot write one of their times.

    A batch of magic 2 with a single record that has a value is copied or dropped, not rewritten.
    """
    headers, facts = columns.headers, columns.facts
    assert facts is not None, "the level is deep"
    is_written: NDArray[np.bool_] = (facts[h.FOUND] > 1) | (facts[h.TOMBSTONE] >= 0)
    is_written |= (headers[h.MAGIC] < 2) | (headers[h.ATTRIBUTES] & c.CONTROL_MASK != 0)
    is_written &= facts[h.INVALID_TIME] >= 0
    return is_written


def _place(columns: BatchColumns, ordinal: int) -> tuple[int, int]:
    headers = columns.headers
    return int(headers[h.POSITION, ordinal]), int(headers[h.BASE_OFFSET, ordinal])


_LATE_MS: Final = 60_000
_LEFT: Final = {
    DirectoryState.DELETE: "A deleted partition whose files are to be removed.",
    DirectoryState.STRAY: "A partition that is not assigned to the broker.",
}


@log_dir_check
def leftovers_of_partitions(
    log_dir: LogDirListing, partitions: Sequence[CheckedPartition]
) -> Iterator[Defect]:
    """Directories that await removal, and logs younger than the shutdown."""
    for partition in partitions:
        detail = _LEFT.get(partition.directory.state)
        if detail is not None:
            yield make_defect("leftover-directory", partition.directory.path, detail)
    mark = log_dir.file(file_names.CLEAN_SHUTDOWN)
    if mark is None or mark.error is not None:
        return
    for partition in partitions:
        for segment in partition.directory.segments:
            late = segment.log.modified_timestamp - mark.modified_timestamp
            if late > _LATE_MS:
                when = utc_text(segment.log.modified_timestamp)
                detail = f"The file was changed at {when}, after the clean shutdown."
                yield make_defect("changed-after-shutdown", segment.log.path, detail)
                return
