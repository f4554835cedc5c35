"""Copies one partition, and judges the copy as a broker's recovery does."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import (
    INDEX_KINDS,
    FileKind,
    parse_directory_name,
    parse_file_name,
    segment_file_name,
)
from kafkalog.change.rescue.log_copy import copy_file, logs_of
from kafkalog.change.rescue.partition import PartitionCopy
from kafkalog.change.resurrection.model import LOG_ROOT, Copy
from kafkalog.errors import CorruptDataError, DataError, RefusedError
from kafkalog.files.log_dir import PartitionDir, list_partition
from kafkalog.files.text_files import read_leader_epochs, read_topic_id, topic_id_text
from kafkalog.io.paths import file_system, uris
from kafkalog.io.paths.source import Source
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import batch_columns
from kafkalog.log.defects import make_defect
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.model import Defect, Level, Severity
from kafkalog.node.cluster_image.model import TORN_TAIL
from kafkalog.node.recovery import (
    DeleteSegment,
    RemoveFile,
    SplitSegment,
    StartInProgress,
    StartMode,
    TruncateLog,
    WriteFile,
)
from kafkalog.node.recovery.segment_state import count_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.change.rescue.model import Row as SalvageRow
    from kafkalog.change.resurrection.choice import Candidate
    from kafkalog.files.log_dir import FileEntry, Segment
    from kafkalog.io.storage import NewDirectory
    from kafkalog.node.recovery import PredictedStart

_MAGIC_MAX: Final = 2
_SMALL: Final = (FileKind.PRODUCER_SNAPSHOT, FileKind.LEADER_EPOCH_CHECKPOINT)
_WAITING_MAX: Final = 16 << 20
_COMPARED: Final = 4 << 20


@dataclass(slots=True)
class Judged:
    """What a broker's recovery makes of a log.

    Attributes:
        log_start_offset, log_end_offset: of the log.
        first_unstable_offset: of a transaction without an end; None if there is none.
        records, size_bytes: of the batches.
        leader_epoch: the latest, -1 without one.
        producer_id: the largest, -1 without one.
        cut_bytes: of an incomplete batch at the end.
        last_epoch: the largest in a batch, -1 without one.
        last_timestamp: the largest of a batch, -1 without one.
        has_falling_epochs: whether a later batch has an earlier epoch.
        damage: what is wrong; None if nothing is.
        how: how it was copied, or `there`.
        remote_from: where the old log started, if offsets from there on are in remote storage only.
        log_dir: the log directory of the copy.
    """

    log_start_offset: int = 0
    log_end_offset: int = 0
    first_unstable_offset: int | None = None
    records: int = 0
    size_bytes: int = 0
    leader_epoch: int = -1
    producer_id: int = -1
    cut_bytes: int = 0
    last_epoch: int = -1
    last_timestamp: int = -1
    has_falling_epochs: bool = False
    damage: CorruptDataError | None = None
    how: str = "copied"
    remote_from: int | None = None
    log_dir: str = ""


@dataclass
class PartitionCopier:
    """Copies partitions into a new directory.

    Attributes:
        directory: the new directory; None only judges.
        copy: how files are copied.
        tell: called with the rows of salvages.
        progress: called with numbers of bytes as they are judged.
    """

    directory: NewDirectory | None
    copy: Copy
    tell: Callable[[SalvageRow], None]
    progress: Callable[[int], None]
    _cannot_clone: bool = field(default=False, init=False)

    def run(self, one: Candidate, topic_id: str, name: str, log_start: int) -> Judged:
        """Copy a partition under a name, and judge it.

        Raises:
            RefusedError: blocks cannot be shared, as asked for.
            UnreadableError, UnwritableError: the work cannot go on.
        """
        if self.directory is None:
            copied, known = _as_copied(one.directory)
            copy = _with_indexes(replace(copied, name=parse_directory_name(name)), one.directory)
            return judge(copy, log_start, None, self.progress, known)
        place = f"{LOG_ROOT}/{name}"
        self.directory.make(place)
        is_cloned = True
        copied, known = _as_copied(one.directory)
        for entry in copied.files:
            is_cloned &= self._copy(self.directory, entry, f"{place}/{entry.name.name}")
        self._identify(self.directory, place, topic_id)
        judged = judge(
            _with_indexes(list_partition(self.directory.place(place)), one.directory),
            log_start,
            Writer(self.directory, place),
            self.progress,
            known,
        )
        judged.how = Copy.REFLINK if is_cloned else "copied"
        if judged.damage is None:
            return judged
        # The next copy, or a salvage, gets the same place.
        self.directory.remove_tree(place)
        judged.damage.path = judged.damage.path and os.path.join(
            one.path, os.path.relpath(judged.damage.path, self.directory.place(place))
        )
        return judged

    def salvaged(self, one: Candidate, topic_id: str, name: str, copies: Sequence[str]) -> Judged:
        """Salvage a damaged partition under a name, with what copies lend; judge the result."""
        if self.directory is None:
            return Judged(how="salvaged")
        place = f"{LOG_ROOT}/{name}"
        copy = PartitionCopy(one.directory, self.directory, self.tell, self.progress, name, copies)
        new = copy.run()
        self.tell(new)
        self._identify(self.directory, place, topic_id)
        judged = judge(
            list_partition(self.directory.place(place)),
            new.log_start_offset,
            Writer(self.directory, place),
            self.progress,
        )
        judged.how = "salvaged"
        return judged

    def _identify(self, directory: NewDirectory, place: str, topic_id: str) -> None:
        directory.write(f"{place}/{file_names.PARTITION_METADATA}", topic_id_text(topic_id))

    def _copy(self, directory: NewDirectory, entry: FileEntry, target: str) -> bool:
        """Copy a file; return whether blocks are shared."""
        if uris.is_object(entry.path) or file_system.is_part(entry.path) or entry.end is not None:
            if self.copy == Copy.REFLINK:
                raise _cannot_share(entry.path)
            copy_file(entry.path, directory, target, entry.end)
            return False
        clones = self.copy != Copy.COPY and not self._cannot_clone and entry.size_bytes > 0
        shared = directory.copy(
            entry.path,
            target,
            entry.modified_timestamp,
            clones=clones,
            copies=self.copy != Copy.REFLINK or not entry.size_bytes,
        )
        if shared is None:
            raise _cannot_share(entry.path)
        # Asked once: a file system that cannot share one file's blocks shares none.
        self._cannot_clone |= clones and not shared and self.copy == Copy.AUTO
        return shared or not entry.size_bytes


def _cannot_share(path: str) -> RefusedError:
    return RefusedError(
        "The new files cannot share blocks with the old ones.",
        path=path,
        hint="That needs one file system with reflinks (XFS, Btrfs); --copy auto copies the bytes.",
    )


@dataclass(slots=True)
class Writer:
    """Writes what a recovery would change in a new partition.

    Files wait until the recovery ends: it writes some of them several times.
    """

    directory: NewDirectory
    place: str
    _waiting: dict[str, bytes] = field(default_factory=dict)
    _size: int = 0

    def __call__(self, name: str, data: bytes) -> None:
        self._waiting[name] = data
        self._size += len(data)
        if self._size > _WAITING_MAX:
            self._flush()

    def finish(self, predicted: PredictedStart) -> None:
        """Write what waits; remove and cut files as the recovery would."""
        removed: set[str] = set()
        for action in predicted.actions:
            if isinstance(action, RemoveFile):
                removed.add(action.name)
            elif isinstance(action, WriteFile):
                # A start may remove a snapshot and write it again.
                removed.discard(action.name)
            elif isinstance(action, TruncateLog):
                log = segment_file_name(action.base_offset, FileKind.LOG)
                self.directory.truncate(f"{self.place}/{log}", action.position)
        for name in removed:
            self._waiting.pop(name, None)
            self.directory.remove(f"{self.place}/{name}")
        self._flush()

    def _flush(self) -> None:
        for name, data in self._waiting.items():
            self.directory.write(f"{self.place}/{name}", data)
        self._waiting.clear()
        self._size = 0


def size_if_same(path: str, one: Candidate, topic_id: str) -> int | None:
    """Return the size of a log if it is one that copying a candidate could have made, else None.

    Raises:
        UnreadableError: a file cannot be read.
    """
    there = list_partition(path)
    metadata = os.path.join(path, file_names.PARTITION_METADATA)
    if not file_system.is_there(metadata) or read_topic_id(metadata) != topic_id:
        return None
    old = {log.base_offset: log for log in logs_of(one.directory)}
    new = {segment.base_offset: segment.log for segment in there.segments}
    if old.keys() != new.keys() or there.other_logs or there.directories:
        return None
    # By content: what an earlier run put here is a copy of these bytes.
    if not all(_begins_with(old[base].path, log.path, log.size_bytes) for base, log in new.items()):
        return None
    return sum(log.size_bytes for log in new.values())


def _begins_with(path: str, other: str, size_bytes: int) -> bool:
    """Return whether a file begins with another one; they differ in length at a torn end."""
    with Source(path, size_bytes) as one, Source(other) as two:
        for position in range(0, size_bytes, _COMPARED):
            size = min(_COMPARED, size_bytes - position)
            if one.read(position, size) != two.read(position, size):
                return False
    return True


def _as_copied(partition: PartitionDir) -> tuple[PartitionDir, Judged]:
    """Return what of a partition is copied, under the names it gets: indexes are rebuilt.

    And what its small files say: those that are not sound are left out.
    """
    known = Judged()
    by_path = {entry.path: entry for entry in partition.files}
    files = []
    for log in logs_of(partition):
        name = segment_file_name(log.base_offset, FileKind.LOG)
        files.append(replace(by_path[log.path], name=parse_file_name(name)))
    for kind in _SMALL:
        files += (
            entry
            for entry in partition.live(kind)
            if entry.error is None and _is_sound(entry, known)
        )
    return replace(partition, files=tuple(files), directories=()), known


def _with_indexes(new: PartitionDir, old: PartitionDir) -> PartitionDir:
    """Return a copy with the indexes of its source: a start scans a log without indexes twice."""
    bases = {segment.base_offset for segment in new.segments}
    files = list(new.files)
    for kind in INDEX_KINDS:
        files += (
            entry
            for entry in old.live(kind)
            if entry.name.offset in bases and entry.error is None and not entry.is_stale
        )
    return replace(new, files=tuple(sorted(files, key=lambda entry: entry.name.name)))


def _is_sound(entry: FileEntry, known: Judged) -> bool:
    """Return whether a small file is sound, and note what it says.

    A start removes or rebuilds one that is not.
    """
    try:
        return _note_small(entry, known)
    except DataError:
        return False


def _note_small(entry: FileEntry, known: Judged) -> bool:
    """Note the largest producer id of a snapshot, or the last epoch of a checkpoint.

    Returns:
        Whether epochs and offsets rise; if not, nothing is noted.
    """
    if entry.name.kind == FileKind.PRODUCER_SNAPSHOT:
        states = read_producer_snapshot(entry.path)
        known.producer_id = max([known.producer_id, *(one.producer_id for one in states)])
        return True
    epochs = read_leader_epochs(entry.path)
    is_rising = all(
        one.leader_epoch < other.leader_epoch and one.start_offset < other.start_offset
        for one, other in pairwise(epochs)
    )
    if is_rising:
        known.leader_epoch = max([known.leader_epoch, *(one.leader_epoch for one in epochs)])
    return is_rising


def judge(
    partition: PartitionDir,
    log_start: int,
    write: Writer | None,
    progress: Callable[[int], None],
    known: Judged | None = None,
) -> Judged:
    """Judge a log as the recovery of a broker does, and read what the metadata need.

    Args:
        log_start: the log start offset in the checkpoint, 0 without an entry.
        write: writes what the recovery would change; None changes nothing.
        progress: called with numbers of bytes as they are read.
        known: what its small files say, if they have been read.
    """
    found = known or Judged()
    for kind in _SMALL if known is None else ():
        for entry in partition.live(kind):  # the recovery may remove them
            _note_small(entry, found)
    start = StartInProgress(
        partition, StartMode.FULL, recovery_point=0, log_start_checkpoint=log_start, tell=write
    )
    torn: set[int] = set()
    for segment in partition.segments:
        start.begin(segment.log.path, segment.base_offset)
        for defect in _walk(segment, start, found, progress):
            # What a killed broker leaves at the very end, and a start cuts off. Anywhere else it is
            # damage.
            if defect.reference == TORN_TAIL and segment.is_active:
                torn.add(segment.base_offset)
            elif found.damage is None:
                found.damage = _damage(defect.detail, defect.path, defect.position)
    predicted = start.end()
    found.damage = found.damage or _unexpected(partition, predicted, torn)
    loaded = predicted.loaded
    if found.damage is not None or loaded is None:
        return found
    if write is not None:
        write.finish(predicted)
    found.log_start_offset, found.log_end_offset = loaded.log_start_offset, loaded.log_end_offset
    found.first_unstable_offset = loaded.first_unstable_offset
    found.cut_bytes = predicted.lost_bytes if torn else 0
    found.size_bytes = sum(one.size_bytes for one in loaded.segments)
    epochs = [one.leader_epoch for one in loaded.leader_epochs]
    found.leader_epoch = max([found.leader_epoch, *epochs])
    return found


def _walk(
    segment: Segment, start: StartInProgress, found: Judged, progress: Callable[[int], None]
) -> Iterator[Defect]:
    """Feed the batches of a segment to the start, up to its first damage; yield what is wrong."""
    is_fed = True
    with Source(segment.log.path) as source:
        for one in batch_columns(source, Level.STANDARD):
            if isinstance(one, Defect):
                if one.severity == Severity.DAMAGE:
                    yield one
                is_fed = False
                continue
            if is_fed:
                start.feed(one)
            if not one.crc_valid.all():
                is_fed = False
                position = int(one.headers[h.POSITION, int(one.crc_valid.argmin())])
                detail = "The checksum of a batch is wrong."
                yield make_defect("batch-crc-mismatch", segment.log.path, detail, position=position)
            if int(one.headers[h.MAGIC].max()) > _MAGIC_MAX:
                position = int(one.headers[h.POSITION, int(one.headers[h.MAGIC].argmax())])
                detail = "A batch has a format that no consumer knows."
                yield make_defect("magic-unknown", segment.log.path, detail, position=position)
            _follow_epochs(one.headers[h.EPOCH].tolist(), found)
            found.records += count_of(source, one)
            found.producer_id = max(found.producer_id, int(one.headers[h.PRODUCER_ID].max()))
            latest = int(one.headers[h.MAX_TIMESTAMP].max())
            found.last_timestamp = max(found.last_timestamp, latest)
            progress(one.size_bytes)


def _follow_epochs(epochs: list[int], found: Judged) -> None:
    """Take the epochs of some batches into account, in order."""
    for epoch in epochs:
        found.has_falling_epochs |= 0 <= epoch < found.last_epoch
        found.last_epoch = max(found.last_epoch, epoch)
    found.leader_epoch = max(found.leader_epoch, found.last_epoch)


def _unexpected(
    partition: PartitionDir, predicted: PredictedStart, torn: set[int]
) -> CorruptDataError | None:
    """Return what is wrong with a log that a start would refuse, split, or cut into."""
    if predicted.refusal is not None:
        return _damage(f"A broker would not load it: {predicted.refusal.message}", partition.path)
    active = partition.segments[-1].base_offset if partition.segments else None
    for action in predicted.actions:
        if isinstance(action, SplitSegment):
            return _damage(action.why, partition.path)
        if isinstance(action, DeleteSegment):
            return _damage(action.why, partition.path)
        is_end = isinstance(action, TruncateLog) and action.base_offset == active
        if isinstance(action, TruncateLog) and not (
            is_end and (action.base_offset in torn or not action.lost_records)
        ):
            return _damage(action.why, partition.path)
    return None


def _damage(detail: str, path: str, position: int | None = None) -> CorruptDataError:
    return CorruptDataError(
        f"The partition is damaged: {detail}",
        path=path,
        position=position,
        hint="--salvage takes every sound batch of it; `kafkalog salvage` shows what is lost.",
    )
