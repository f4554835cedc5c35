"""Reads the metadata image of a `__cluster_metadata-0`: a snapshot, then the log after it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from formats.constants import INT64_MAX
from formats.file_names import LEADER_EPOCHS, DirectoryState, FileKind
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.files.payloads.control_records import control_record
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.files.text_files import read_leader_epochs
from kafkalog.io.jit import fast_path
from kafkalog.log.batches.selection import (
    Selection,
    plan_files,
    plan_size,
    planned_batches,
    planned_records,
)
from kafkalog.log.defects import make_defect
from kafkalog.model import Batch, Defect, Record
from kafkalog.node.cluster_image.model import SNAPSHOT_EMPTY, ClusterImage, Provenance, Source
from kafkalog.node.cluster_image.replay import MetadataTransactions
from kafkalog.node.cluster_image.replay import replay as apply_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir


# All but frame version 1, type 20 (no-op) and 21 (ZooKeeper migration): most records of a log are
# no-ops.
_WANTED: Final = re.compile(rb"\A(?!\x01[\x14\x15])")
_VOTERS: Final = 6
"""Of `ControlRecordType`."""


class ImageReader:
    """Reads an image as of one offset after the other; use `begin`, then `advance`.

    Damage goes to `image.defects`, and reading goes on.

    Args:
        directory: the partition, in the view that counts.
        progress: called with numbers of bytes as they are read.

    Attributes:
        image: as of the last offset asked for.
        start: the offset after the snapshot that the image began with; 0 without one.
    """

    def __init__(
        self, directory: PartitionDir, progress: Callable[[int], None] | None = None
    ) -> None:
        self._directory = directory
        self._progress = progress
        self._transactions = MetadataTransactions[tuple[str, dict[str, Any], Source]]()
        self._passed_over: list[Defect] = []
        self.image = ClusterImage()
        self.start = 0
        self._reached = 0
        self._begun = 0

    @property
    def pending_count(self) -> int:
        """How many records of an open metadata transaction are held back."""
        return len(self._transactions.pending or ())

    @property
    def pending_from(self) -> int | None:
        """The offset at which an open metadata transaction begins, None if none is open."""
        return None if self._transactions.pending is None else self._begun

    def begin(self, to_offset: int | None = None) -> None:
        """Apply the newest sound snapshot that ends at an offset or before it.

        The defects of newer ones that are damaged, or of another history than the log, stay in
        `image.defects`.
        """
        snapshots, foreign = snapshots_of(self._directory)
        self._passed_over += foreign
        for snapshot in reversed(snapshots):
            end = snapshot.name.offset or 0
            if to_offset is not None and end > to_offset:
                continue
            self.begin_with(snapshot)
            if self.image.is_whole:
                self.image.defects[:0] = self._passed_over
                return
            self._passed_over += self.image.defects
        self.image, self.start, self._reached = ClusterImage(), 0, 0
        self.image.defects += self._passed_over

    def begin_with(self, snapshot: FileEntry, to_offset: int | None = None) -> None:
        """Apply a snapshot, whatever it is like; all of it, or up to an offset in it, exclusive."""
        end = snapshot.name.offset or 0
        self.image, self.start, self._reached = ClusterImage(), end, end
        self.image.snapshot = snapshot.name.name
        # Even one of an empty cluster begins with a header, in a batch of its own.
        if not self._apply(snapshot, Selection(to_offset=to_offset), snapshot.name.name):
            self.image.defects.append(empty_snapshot(snapshot.path))

    def advance(self, to_offset: int | None = None) -> None:
        """Apply the log up to an offset, exclusive; None for all of it."""
        wanted = Selection(from_offset=self._reached, to_offset=to_offset)
        self._apply(self._directory, wanted, None)
        self._reached = self._reached if to_offset is None else max(to_offset, self._reached)

    def advance_in(self, directory: PartitionDir, to_offset: int) -> None:
        """Apply the sound batches of another copy of the log up to an offset, exclusive."""
        wanted = Selection(from_offset=self._reached, to_offset=to_offset, sound=True)
        self._apply(directory, wanted, None)
        self._reached = max(to_offset, self._reached)

    def _apply(
        self, target: PartitionDir | FileEntry, selection: Selection, snapshot: str | None
    ) -> bool:
        """Apply records; return whether anything was read, be it damage."""
        is_read = False
        try:
            for item in _items(target, selection, self._progress):
                is_read = True
                if isinstance(item, Defect):
                    self.image.defects.append(item)
                elif item.batch.is_control:
                    self._take_control(item)
                else:
                    self._take(item, snapshot)
        except DataError as error:
            self.image.defects.append(
                make_defect("file-unreadable", error.path or target.path, error.message)
            )
            return True
        return is_read

    def _take_control(self, record: Record) -> None:
        with suppress(DataError):  # reported where the log is checked
            control = control_record(record)
            if control.type_id == _VOTERS and control.fields is not None:
                voters: Any = control.fields["voters"]
                self.image.voters = voters

    def _take(self, record: Record, snapshot: str | None) -> None:
        value = decode(PayloadKind.CLUSTER_METADATA, record.key, record.value).value
        if value is None:
            self.image.unknown += 1
            return
        kind, source = value["type"], Source(record.offset, record.timestamp, snapshot)
        if self._transactions.pending is None:
            self._begun = record.offset
        for change in self._transactions.take(kind, (kind, value["data"], source)):
            apply_record(self.image, *change)


def last_batch(
    target: PartitionDir | FileEntry, to_offset: int | None = None, *, data: bool = False
) -> Provenance:
    """Return the last batch that begins below an offset; with `data`, control batches are none.

    An image of a record within a batch ends with that record.
    """
    found = Provenance()
    selection = Selection(to_offset=to_offset, data=data)
    for batch in planned_batches(plan_files(target, selection)):
        if isinstance(batch, Batch):
            last = batch.last_offset if to_offset is None else min(batch.last_offset, to_offset - 1)
            found = Provenance(last, batch.leader_epoch, batch.max_timestamp)
    return found


def snapshots_of(directory: PartitionDir) -> tuple[list[FileEntry], list[Defect]]:
    """Return the snapshots of the history of a metadata log, by their ends, and the other ones.

    A start would load these, but what the log has since is of another history. What
    leader-epoch-checkpoint says decides; without it all of them count.

    Returns:
        The snapshots, and a defect for each other one.
    """
    found, entries = directory.live(FileKind.KRAFT_SNAPSHOT), []
    with suppress(DataError):  # reported where it is checked
        entries = read_leader_epochs(directory.place_of(LEADER_EPOCHS))
    if not found or not entries or not directory.segments:
        return found, []
    from kafkalog.node.quorum.lineage import Lineage, Position, Standing, foreign_snapshot

    log = Lineage.of(directory.segments[0].base_offset, entries, INT64_MAX)
    newest = max(found, key=Position.of)
    foreign = [one for one in found if log.standing(Position.of(one)) == Standing.FOREIGN]
    own = [one for one in found if one not in foreign]
    return own, [foreign_snapshot(one, log, is_loaded=one is newest) for one in foreign]


def metadata_partition(log_dir: LogDirListing) -> PartitionDir | None:
    """Return the directory of `__cluster_metadata-0` in a log directory, None if it has none."""
    return next(
        (
            partition
            for partition in log_dir.partitions
            if partition.topic == CLUSTER_METADATA and partition.state == DirectoryState.LIVE
        ),
        None,
    )


def read_cluster_image(log_dir: LogDirListing) -> ClusterImage | None:
    """Read the image from `__cluster_metadata-0` in a log directory; None if it has none."""
    directory = metadata_partition(log_dir)
    return None if directory is None else read_image(directory)


def read_image(directory: PartitionDir) -> ClusterImage | None:
    """Read the image from a metadata log: the newest sound snapshot, then the log after it.

    Records that cannot be read are skipped: the checks of batches report them.

    Returns:
        The image, or None if there is neither a log nor a snapshot, or if the log starts neither
        at offset 0 nor at a snapshot.

    Cost:
        Decodes the newest snapshot and the log after it: with Kafka's defaults at most an hour or
        20 MB of records.
    """
    segments = directory.segments
    if not segments and not directory.live(FileKind.KRAFT_SNAPSHOT):
        return None
    reader = ImageReader(directory)
    reader.begin()
    if segments and segments[0].base_offset > reader.start:
        return None
    reader.advance()
    return reader.image


def _items(
    target: PartitionDir | FileEntry,
    selection: Selection,
    progress: Callable[[int], None] | None,
) -> Iterator[Record | Defect]:
    """Yield the records that can say something, and all defects on the way."""
    return records_in(target, replace(selection, value_regex=_WANTED), progress)


def records_in(
    target: PartitionDir | FileEntry,
    selection: Selection,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Record | Defect]:
    """Yield the records that are selected, and all defects on the way, fast if there are many."""
    plan = plan_files(target, selection)
    if not fast_path.is_worth_it(plan_size(plan)):
        yield from planned_records(plan, progress)
        return
    from kafkalog.log.columns.pipeline import Restored, read_contents

    for content in read_contents(plan, Restored(), progress, batches=False):
        if isinstance(content, Defect):
            yield content
        else:
            yield from content


def empty_snapshot(path: str) -> Defect:
    """Return the defect of a snapshot without any batch."""
    return make_defect(SNAPSHOT_EMPTY, path, "The snapshot has no batch.")
