"""The files at the top of a salvaged log directory: its identity and its checkpoints.

No clean shutdown mark and no recovery points are written: so a broker scans the whole log once, and
proves it, before it uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.errors import CorruptDataError
from kafkalog.names import DirectoryState, FileKind, FileState
from kafkalog.rescue.model import Fate, SalvagedFile
from kafkalog.rescue.partition import (
    LOG_ROOT,
    LOST_ROOT,
    keep_file,
    lose_file,
)
from kafkalog.text_files import checkpoint_text, read_meta_properties, read_offset_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log_dir import FileEntry, LogDirListing
    from kafkalog.rescue.model import Row, SalvagedPartition
    from kafkalog.rescue.partition import PartitionCopy
    from kafkalog.storage import NewDirectory


def copy_top_files(
    log_dir: LogDirListing, directory: NewDirectory | None, tell: Callable[[Row], None]
) -> None:
    """Copy the files that identify the log directory; checkpoints are written by `Checkpoints`."""
    for name in log_dir.others:
        path = f"{log_dir.path}/{name}"
        tell(SalvagedFile(path, None, Fate.SKIPPED, "It is a directory, but not a partition."))
    for entry in log_dir.files:
        tell(_top_file(entry, directory))


def _top_file(entry: FileEntry, directory: NewDirectory | None) -> SalvagedFile:
    kind = entry.name.kind
    if entry.error is not None or kind == FileKind.UNKNOWN or entry.name.state != FileState.LIVE:
        detail = entry.error or "It is a leftover, or not one of Kafka's files."
        return SalvagedFile(entry.path, None, Fate.SKIPPED, detail)
    try:
        if kind == FileKind.OFFSET_CHECKPOINT:
            read_offset_checkpoint(entry.path)
        elif kind == FileKind.META_PROPERTIES:
            read_meta_properties(entry.path)
    except CorruptDataError as error:
        return lose_file(entry, directory, LOST_ROOT, error.message)
    if kind in (FileKind.META_PROPERTIES, FileKind.KRAFT_SNAPSHOT):
        return keep_file(entry, directory, LOG_ROOT, LOST_ROOT)
    detail = "A broker has to find out itself what is there."
    if entry.name.name in (
        file_names.HIGH_WATERMARKS,
        file_names.LOG_STARTS,
        file_names.CLEANER_OFFSETS,
    ):
        detail = "Its entries within the logs are kept."
    return SalvagedFile(entry.path, None, Fate.SKIPPED, detail)


class Checkpoints:
    """The checkpoints of the new log directory: old entries, limited to the new logs."""

    def __init__(self) -> None:
        self._entries: dict[str, list[tuple[str, int, int]]] = {
            file_names.HIGH_WATERMARKS: [],
            file_names.LOG_STARTS: [],
            file_names.CLEANER_OFFSETS: [],
        }

    def add(self, copy: PartitionCopy, new: SalvagedPartition) -> None:
        """Take over the old checkpoints' entries for a partition."""
        if new.partition is None or copy.partition.state != DirectoryState.LIVE:
            return
        start, end = new.log_start_offset, new.log_end_offset
        old = {name: copy.log.checkpoint(name) for name in self._entries}
        offsets = {
            file_names.HIGH_WATERMARKS: _within(old[file_names.HIGH_WATERMARKS], start, end),
            file_names.LOG_STARTS: None if old[file_names.LOG_STARTS] is None else start,
            file_names.CLEANER_OFFSETS: _within(old[file_names.CLEANER_OFFSETS], start, end),
        }
        for name, offset in offsets.items():
            if offset is not None:
                self._entries[name].append((new.topic, new.partition, offset))

    def write(self, directory: NewDirectory, tell: Callable[[Row], None]) -> None:
        """Write the checkpoints that have entries."""
        for name, entries in self._entries.items():
            if entries:
                target = f"{LOG_ROOT}/{name}"
                directory.write(target, checkpoint_text(entries))
                detail = "Old entries that lie within the new logs."
                tell(SalvagedFile(None, target, Fate.REBUILT, detail))


def _within(offset: int | None, start: int, end: int) -> int | None:
    return None if offset is None else max(start, min(offset, end))
