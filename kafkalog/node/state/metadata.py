"""Reads the metadata of a cluster as of an offset or a time, and what changed between two.

Follows `MetadataLoader` of Kafka: an image is a snapshot and the log after it. How far the
quorum had committed is not on disk: what lies below the end of a snapshot was committed, and all
that the only voter of a quorum wrote.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from formats.file_names import FileKind
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError, NotFoundError, UnsupportedDataError, UsageError
from kafkalog.files.log_dir import (
    FileEntry,
    LogDirListing,
    PartitionDir,
    open_path,
)
from kafkalog.files.payloads.control_records import control_record
from kafkalog.log.batches.selection import Selection, plan_files, planned_batches, planned_records
from kafkalog.log.events import reporting
from kafkalog.model import Batch, Defect, Record
from kafkalog.node.cluster_image.model import Provenance
from kafkalog.node.cluster_image.reader import (
    ImageReader,
    last_batch,
    metadata_partition,
    snapshots_of,
)
from kafkalog.node.state.image_tree import image_tree, leaves
from kafkalog.node.state.metadata_model import Metadata, changes_of
from kafkalog.node.state.model import Moment, moment_of
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import Target
    from kafkalog.io.times import Time
    from kafkalog.node.outcome import View


# Of `ControlRecordType`.
_SNAPSHOT_HEADER: Final = 3
_LEADER_CHANGE: Final = 2


def metadata(
    path: str | os.PathLike[str],
    *,
    at: Time | Moment | None = None,
    since: Time | Moment | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Metadata:
    """Return the metadata of a cluster: topics, configs, brokers, ACLs and the rest.

    Args:
        path: a log directory with `__cluster_metadata-0`, that partition, or a snapshot.
        at: as of a time; `Moment(partition=0,
            offset=N)` is as of the records below an offset.
        since: also return what has changed since this moment.
        on_event: is passed each defect, and what was read; without it the first one is raised.
        progress: whether to draw a bar.

    Raises:
        NotFoundError: no metadata log is there.
        UnsupportedDataError: the moment is before what the directory still has.
        CorruptDataError, UnreadableError: the log is damaged.
    """
    target = open_path(path)
    with reporting(on_event, progress=progress) as report:
        return read_metadata(
            target, at=moment_of(at), since=moment_of(since), defects=report.hear,
            progress=report.advance,
        )  # fmt: skip


def read_metadata(
    target: Target,
    *,
    at: Moment | None = None,
    since: Moment | None = None,
    defects: Callable[[Defect], object] | None = None,
    progress: Callable[[int], None] | None = None,
    shown: Callable[[PartitionDir], View] | None = None,
) -> Metadata:
    """Read the metadata of a cluster.

    Args:
        target: a log directory, `__cluster_metadata-0`, or a snapshot.
        at: as of this moment; None for the end of the log.
        since: compare with the image of this moment.
        defects: called with each defect; reading goes on.
        progress: called with numbers of bytes as they are read.
        shown: returns the view of the partition; None for what the next start would show.

    Raises:
        NotFoundError: no metadata log is there.
        UnsupportedDataError: the moment is before what the directory still has.
        UsageError: a snapshot has only one moment; an offset is after the end of the log; or
            `since` is after `at`.

    Cost:
        Memory for the image; the log is read in chunks.
    """
    if isinstance(target, FileEntry):
        found = _snapshot(target, progress, has_moment=at is not None or since is not None)
    else:
        view = (shown or show_now)(_partition(target))
        found = _MetadataLog(view.partition, progress).at(at, since)
    if defects is not None:
        for defect in found.image.defects:
            defects(defect)
    return found


def _partition(target: LogDirListing | PartitionDir) -> PartitionDir:
    """Return the partition of the metadata log."""
    found = metadata_partition(target) if isinstance(target, LogDirListing) else target
    if found is None or found.topic != CLUSTER_METADATA:
        raise NotFoundError(
            f"There is no {CLUSTER_METADATA}-0 here.",
            path=target.path,
            hint="Give the node's `metadata.log.dir`, or its first log directory.",
        )
    return found


def _snapshot(
    file: FileEntry, progress: Callable[[int], None] | None, *, has_moment: bool
) -> Metadata:
    if file.name.kind != FileKind.KRAFT_SNAPSHOT:
        raise UsageError(
            "This file is not a snapshot.",
            path=file.path,
            hint="Give a log directory, __cluster_metadata-0, or a `.checkpoint` file in it.",
        )
    if has_moment:
        raise UsageError("A snapshot has only one moment.", path=file.path)
    reader = ImageReader(PartitionDir(os.path.dirname(file.path), None, (file,)), progress)
    reader.begin_with(file)
    # As the shell does, which reads a snapshot like a log: offsets within the file.
    reader.image.provenance = last_batch(file, data=True)
    end = file.name.offset or 0
    return Metadata(file.path, reader.image, end, end, 0, [])


class _MetadataLog:
    """The directory of a metadata log, in the view that counts."""

    def __init__(self, partition: PartitionDir, progress: Callable[[int], None] | None) -> None:
        self._partition = partition
        self._progress = progress
        self._log = UnifiedLog(partition)
        self._snapshots, _ = snapshots_of(partition)
        if not partition.segments and not self._snapshots:
            raise NotFoundError("There is neither a log nor a snapshot.", path=partition.path)

    @cached_property
    def _ends(self) -> list[int]:
        """The ends of all snapshots, in order."""
        return [snapshot.name.offset or 0 for snapshot in self._snapshots]

    @cached_property
    def _end(self) -> int:
        return max(self._log.log_end_offset, *self._ends, 0)

    def at(self, at: Moment | None, since: Moment | None) -> Metadata:
        """Return the metadata as of a moment."""
        end = self._end if at is None else self._offset_of(at)
        first = end if since is None else self._offset_of(since)
        if first > end:
            raise UsageError("The moment to compare with is after the other one.")
        reader = ImageReader(self._partition, self._progress)
        reader.begin(first)
        self._require_log(reader.start, end)
        before = {}
        if since is not None:
            reader.advance(first)
            before = dict(leaves(image_tree(reader.image), "/image"))
        reader.advance(end)
        image = reader.image
        image.provenance = self._provenance(reader, end)
        committed = self._committed(end, self._voters(reader))
        found = Metadata(self._partition.path, image, end, committed, reader.pending_count, [])
        if since is not None:
            found.changes = list(changes_of(before, found))
        return found

    def _voters(self, reader: ImageReader) -> list[dict[str, Any]]:
        """Return the voters of the last record of them, or else of the last leader's message."""
        known = reader.image.voters
        voters: list[dict[str, Any]] = self._leader_change.get("voters", [])
        return voters if known is None else known

    def _provenance(self, reader: ImageReader, end: int) -> Provenance:
        """Return the last batch of an image, which ends before an open metadata transaction."""
        if reader.pending_from is not None:
            end = reader.pending_from
        found = last_batch(self._partition, end)
        for snapshot in self._snapshots if found.offset < reader.start else ():
            if snapshot.name.offset == reader.start:
                last = _header(snapshot).get("lastContainedLogTimestamp", -1)
                return Provenance(reader.start - 1, snapshot.name.epoch or 0, last)
        return found

    def _require_log(self, start: int, end: int) -> None:
        """Raise `UnsupportedDataError` unless the log goes on where an image begins."""
        log_start = self._log.first_offset
        if start == end or (start >= log_start and self._partition.segments):
            return
        earliest = next((one for one in self._ends if one >= log_start), None)
        where = "in no snapshot here" if earliest is None else "only in later snapshots"
        raise UnsupportedDataError(
            "The directory does not go back that far: records before offset "
            f"{log_start} were deleted, and what they added up to is {where}.",
            path=self._partition.path,
            hint=None if earliest is None else f"The earliest offset is {earliest}.",
        )

    def _offset_of(self, moment: Moment) -> int:
        """Return the end offset of the records that count at a moment."""
        end = self._end
        if moment.time_ms is None:
            if moment.offset > end:
                raise UsageError(
                    f"The log ends at offset {end}, before {moment.offset}.",
                    path=self._partition.path,
                    hint="For a time give ISO 8601 (2026-11-21T04:00:00Z), or -2h.",
                )
            return moment.offset
        for batch in planned_batches(plan_files(self._partition, Selection())):
            if isinstance(batch, Batch) and batch.max_timestamp > moment.time_ms:
                end = batch.base_offset
                break
        is_first = end == self._log.first_offset > 0
        if is_first and not self._has_snapshot(end, moment.time_ms):
            return end - 1  # what a snapshot of this end holds may be later
        return end

    def _has_snapshot(self, end: int, time_ms: int) -> bool:
        """Return whether there is a snapshot with this end, with nothing later than a time."""
        for snapshot in self._snapshots:
            if snapshot.name.offset == end:
                last = _header(snapshot).get("lastContainedLogTimestamp")
                return isinstance(last, int) and last <= time_ms
        return False

    def _committed(self, end: int, voters: Sized) -> int:
        """Return an offset below which everything was committed."""
        if len(voters) == 1:
            return end
        return max((one for one in self._ends if one <= self._end), default=0)

    @cached_property
    def _leader_change(self) -> dict[str, Any]:
        """The last leader's message, empty if it is not there."""
        epochs = self._log.leader_epochs
        if not epochs:
            return {}
        first = epochs[-1].start_offset
        wanted = Selection(from_offset=first, to_offset=first + 1, control=True)
        return _control(self._partition, wanted).get(_LEADER_CHANGE, {})


def _header(snapshot: FileEntry) -> dict[str, Any]:
    """Return the header of a snapshot, empty if it cannot be read."""
    return _control(snapshot, Selection(control=True, limit=1)).get(_SNAPSHOT_HEADER, {})


def _control(target: PartitionDir | FileEntry, selection: Selection) -> dict[int, dict[str, Any]]:
    """Return the content of control records by their type."""
    found = {}
    for record in planned_records(plan_files(target, selection)):
        if isinstance(record, Record) and record.batch.is_control:
            try:
                control = control_record(record)
            except DataError:
                continue  # reported where the log is checked
            found[control.type_id] = control.fields or {}
    return found
