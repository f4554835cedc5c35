"""Salvages one partition: its logs are copied, its side files copied or rebuilt."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import INDEX_KINDS, DirectoryState, FileKind, FileState
from kafkalog.change.rescue.log_copy import (
    EpochsInLog,
    LogCopy,
    Place,
    copy_file,
    logs_of,
    next_epoch,
)
from kafkalog.change.rescue.model import Fate, Row, SalvagedFile, SalvagedPartition, SalvagedSegment
from kafkalog.change.rescue.pieces import Bounds
from kafkalog.check.segments import missing_offsets
from kafkalog.errors import CorruptDataError, DataError
from kafkalog.files.log_dir import FileEntry, PartitionDir, open_partition
from kafkalog.files.text_files import READERS, checkpoint_text, noted_epoch, read_leader_epochs
from kafkalog.io.paths.source import Source
from kafkalog.log.columns.headers import batch_columns
from kafkalog.model import Defect, EpochEntry, Level, LogView, Severity
from kafkalog.node.recovery import (
    DeleteSegment,
    RebuildIndexes,
    RemoveFile,
    SplitSegment,
    StartMode,
    TruncateLog,
    WriteFile,
    predict_start,
)
from kafkalog.node.recovery.segment_state import count_records
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.tables.merged_log import lineage_of
from kafkalog.tables.merging import Copies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.change.rescue.log_copy import SourceLog
    from kafkalog.io.storage import NewDirectory
    from kafkalog.node.recovery import PredictedStart
    from kafkalog.tables.soundness import Lineage

LOG_ROOT = "log"
LOST_ROOT = "lost+found"

_DELETE, _STRAY = file_names.DELETE_DIRECTORY, file_names.STRAY_DIRECTORY
_DERIVED = (*INDEX_KINDS, FileKind.PRODUCER_SNAPSHOT)


class PartitionCopy:
    """Salvages one partition directory.

    Args:
        directory: the new directory; if None, nothing is written.
        tell: called with each row of the manifest.
        progress: called with the number of bytes done since the last call.
        name: name of the new directory; None keeps the old one.
        copies: other directories of the partition, which lend what is damaged here.

    Attributes:
        name: name of the new directory. `-delete` becomes `-stray`, which brokers leave alone.
        log: the source's offsets.
    """

    def __init__(
        self,
        partition: PartitionDir,
        directory: NewDirectory | None,
        tell: Callable[[Row], None],
        progress: Callable[[int], None],
        name: str | None = None,
        copies: Sequence[str] = (),
    ) -> None:
        self.partition = partition
        self.name = name or os.path.basename(os.path.abspath(partition.path))
        if name is None and partition.name is not None:
            self.name = partition.name.name
        # A broker deletes what ends in `-delete` soon after its start, and leaves `-stray` where it
        # is.
        if name is None and partition.state == DirectoryState.DELETE:
            self.name = self.name.removesuffix(_DELETE) + _STRAY
        self.log = UnifiedLog(partition)
        self._copies = Copies(copies, LogView.AS_IS, _lineage(self.log)) if copies else None
        self._has_gap = False  # between segments, without damage that explains it
        self._directory = directory
        self._tell = tell
        self._progress = progress
        self._place = Place(
            f"{LOG_ROOT}/{self.name}",
            f"{LOST_ROOT}/{self.name}",
            partition.topic,
            partition.partition,
        )

    def run(self) -> SalvagedPartition:
        """Copy what is sound, and rebuild the rest.

        Raises:
            UnreadableError, UnwritableError: the work cannot go on.
            CorruptDataError: a broker would not accept the new log.
        """
        logs = logs_of(self.partition)
        epochs = EpochsInLog()
        if self._directory is not None:
            self._directory.make(self._place.log)
        first, end_offset = self._copy_logs(logs, epochs)
        if self._has_gap:
            for defect in missing_offsets(self.partition, self.partition.segments):
                if defect.severity != Severity.NOTE:
                    self._tell(defect)
        known: list[EpochEntry] = []
        for entry in self.partition.files:
            if entry.name.kind == FileKind.LEADER_EPOCH_CHECKPOINT:
                known += self._old_epochs(entry)
            else:
                self._side_file(entry, {log.path for log in logs})
        for name in self.partition.directories:
            path = os.path.join(self.partition.path, name)
            detail = "Kafka creates no directory in a partition."
            self._tell(SalvagedFile(path, None, Fate.SKIPPED, detail))
        self._identify()
        # Never above the end: a start would drop all segments (LogLoader.recoverLog).
        start_offset = min(max(first, self.log.checkpoint(file_names.LOG_STARTS) or 0), end_offset)
        unstable = None
        if self._directory is not None and logs:
            # Before the rebuild: a scan only adds epochs above the latest that the file has.
            lines = [(entry.leader_epoch, entry.start_offset) for entry in epochs.entries(known)]
            target = f"{self._place.log}/{file_names.LEADER_EPOCHS}"
            self._directory.write(target, checkpoint_text(lines))
            self._tell(
                SalvagedFile(None, target, Fate.REBUILT, "From the batches and old entries.")
            )
            predicted = rebuild(self._directory, self._place.log, start_offset, self._tell)
            assert predicted.loaded, "what is refused is raised"
            end_offset = predicted.loaded.log_end_offset
            unstable = predicted.loaded.first_unstable_offset
        return SalvagedPartition(
            self.partition.path,
            self._place.log,
            self.partition.topic,
            self.partition.partition,
            start_offset,
            end_offset,
            unstable,
        )

    def _identify(self) -> None:
        """Write the topic id of a log that only a tier has."""
        name = self.partition.name
        if name is None or name.uid is None or self.partition.state != DirectoryState.LIVE:
            return
        target = f"{self._place.log}/{file_names.PARTITION_METADATA}"
        if self._directory is not None:
            self._directory.write(target, f"version: 0\ntopic_id: {name.uid}".encode())
        self._tell(SalvagedFile(None, target, Fate.REBUILT, "From its directory in the tier."))

    def wrote(self, name: str) -> bool:
        return name.startswith(f"{self._place.log}/")

    def discard(self) -> None:
        if self._directory is not None:
            self._directory.remove_tree(self._place.log)
            self._directory.remove_tree(self._place.lost)

    def _copy_logs(self, logs: list[SourceLog], epochs: EpochsInLog) -> tuple[int, int]:
        """Copy the logs; return the base offset of the first, and the offset after the last batch.

        A log of which nothing is left yields no segment: Kafka would take the modification time of
        an empty one for its largest timestamp, and find nothing by time in or after it. The same is
        true of an empty log after a hole at the end, where consumers would wait for a log end that
        no record reaches. If nothing at all is left, the last log stays, so that no offset is
        assigned twice.
        """
        kept: list[int] = []
        end_offset = 0
        empty: list[SalvagedSegment] = []  # those at the end so far
        has_hole = False
        for i, log in enumerate(logs):
            following = logs[i + 1 :]
            next_base = following[0].base_offset if following else None
            bounds = Bounds(log.base_offset, next_base, next_epoch(following), self._noted_epoch)
            known_end = self._known_end() if next_base is None else next_base
            copy = LogCopy(
                log, bounds, known_end, self._place, self._directory, self._tell, self._progress,
                self._copies,
            )  # fmt: skip
            segment = copy.run(epochs)
            self._has_gap |= copy.next_offset < (next_base or 0) and not copy.ends_in_loss
            # Empty logs before one with batches stay, so that the order of segments is that of the
            # source.
            if segment.batches:
                kept += [each.base_offset for each in [*empty, segment]]
                for each in [*empty, segment]:
                    self._tell(each)
                empty, has_hole, end_offset = [], copy.ends_in_loss, copy.next_offset
            elif copy.ends_in_loss and (following or kept):
                has_hole = True
                self._leave_out(segment)
            else:
                empty.append(segment)
        for segment in empty:
            if has_hole and kept:
                self._leave_out(segment)
            else:
                kept.append(segment.base_offset)
                end_offset = segment.base_offset
                self._tell(segment)
        return min(kept, default=0), end_offset

    def _noted_epoch(self, offset: int) -> int | None:
        with suppress(DataError):
            return noted_epoch(self.partition.path, offset)
        return None

    def _leave_out(self, segment: SalvagedSegment) -> None:
        if self._directory is not None and segment.target is not None:
            self._directory.remove(segment.target)
        self._tell(replace(segment, target=None))

    def _known_end(self) -> int | None:
        """Return the highest offset that the log has reached, by the checkpoints and the copies."""
        names = (file_names.RECOVERY_POINTS, file_names.HIGH_WATERMARKS)
        ends = [self.log.checkpoint(name) or 0 for name in names]
        return max(*ends, self._copies.end_offset() if self._copies else 0) or None

    def _old_epochs(self, entry: FileEntry) -> list[EpochEntry]:
        if entry.name.state != FileState.LIVE or entry.error is not None:
            detail = entry.error or "The file is a leftover."
            self._tell(SalvagedFile(entry.path, None, Fate.SKIPPED, detail))
            return []
        try:
            return read_leader_epochs(entry.path)
        except CorruptDataError as error:
            self._tell(lose_file(entry, self._directory, self._place.lost, error.message))
            return []

    def _side_file(self, entry: FileEntry, logs: set[str]) -> None:
        """Handle a file that is not a copied log."""
        kind, state = entry.name.kind, entry.name.state
        # Indexes and snapshots are built again from the batches: old ones describe bytes that
        # may be gone.
        if entry.path in logs or (kind in _DERIVED and state == FileState.LIVE):
            return
        if kind == FileKind.UNKNOWN or entry.error is not None:
            detail = entry.error or "Kafka has no file with this name."
            self._tell(SalvagedFile(entry.path, None, Fate.SKIPPED, detail))
        elif state != FileState.LIVE or kind == FileKind.LOG:
            records = 0
            if kind == FileKind.LOG:
                records = records_in(entry.path)
            detail = "The file is a leftover: it was replaced."
            self._tell(SalvagedFile(entry.path, None, Fate.SKIPPED, detail, records))
        else:
            self._tell(keep_file(entry, self._directory, self._place.log, self._place.lost))


def records_in(path: str) -> int:
    """Count the records in a log, by the headers of its batches."""
    with Source(path) as source:
        return count_records(source, 0, source.size_bytes)


def _lineage(log: UnifiedLog) -> Lineage | None:
    with suppress(DataError):
        return lineage_of(log) or None
    return None


def keep_file(
    entry: FileEntry, directory: NewDirectory | None, place: str, lost: str
) -> SalvagedFile:
    """Copy a small file or a KRaft snapshot if it can be read, otherwise move it to `lost`."""
    try:
        if entry.name.kind == FileKind.KRAFT_SNAPSHOT:
            _check_snapshot(entry)
        elif reader := READERS.get(entry.name.kind):
            reader(entry.path)
    except CorruptDataError as error:
        return lose_file(entry, directory, lost, error.message)
    target = f"{place}/{entry.name.name}"
    if directory is not None:
        copy_file(entry.path, directory, target)
    return SalvagedFile(entry.path, target, Fate.COPIED, "The file can be read.")


def lose_file(
    entry: FileEntry, directory: NewDirectory | None, lost: str, detail: str
) -> SalvagedFile:
    """Copy an unusable file to `lost`."""
    target = f"{lost}/{entry.name.name}"
    if directory is not None:
        copy_file(entry.path, directory, target)
    return SalvagedFile(entry.path, target, Fate.LOST, detail)


def _check_snapshot(entry: FileEntry) -> None:
    """Raise `CorruptDataError` unless a KRaft snapshot is completely sound."""
    with Source(entry.path) as source:
        for found in batch_columns(source, Level.DEEP):
            if isinstance(found, Defect):
                if found.severity == Severity.DAMAGE:
                    raise CorruptDataError(found.detail, path=entry.path)
            elif found.refusals or not found.crc_valid.all():
                raise CorruptDataError("The snapshot holds a damaged batch.", path=entry.path)


def rebuild(
    directory: NewDirectory, place: str, log_start_offset: int, tell: Callable[[Row], None]
) -> PredictedStart:
    """Write what a broker that scans the whole log would write: indexes, snapshots, epochs.

    Raises:
        CorruptDataError: a broker would not accept the log.
    """
    path = directory.place(place)

    def write(name: str, data: bytes) -> None:
        directory.write(f"{place}/{name}", data)

    predicted = predict_start(
        open_partition(path),
        # As after a crash with nothing flushed: no index is believed, every byte is read.
        StartMode.FULL,
        recovery_point=0,
        log_start_checkpoint=log_start_offset,
        tell=write,
    )
    # Only sound batches were copied: a scan that cuts any of them found a mistake of ours.
    wrong = [action for action in predicted.actions if isinstance(action, _UNWANTED)]
    if predicted.refusal is not None or wrong:
        reason = predicted.refusal.message if predicted.refusal else str(wrong[0])
        raise CorruptDataError(f"A broker would not accept the salvaged log: {reason}", path=path)
    made: dict[str, None] = {}
    for action in predicted.actions:
        if isinstance(action, RemoveFile):
            directory.remove(f"{place}/{action.name}")
            made.pop(action.name, None)
        elif isinstance(action, WriteFile):
            made[action.name] = None
        elif isinstance(action, RebuildIndexes):
            made |= dict.fromkeys(action.changed)
    for name in sorted(made.keys() - {file_names.LEADER_EPOCHS}):
        detail = "As a broker's recovery makes it."
        tell(SalvagedFile(None, f"{place}/{name}", Fate.REBUILT, detail))
    return predicted


_UNWANTED = (TruncateLog, DeleteSegment, SplitSegment)
