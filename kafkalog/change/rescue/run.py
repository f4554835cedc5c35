"""A salvage from beginning to end: every sound batch past any damage, in a new directory.

No clean shutdown mark and no recovery points are written: so a broker scans the whole log once, and
proves it, before it uses it.

The new directory holds `log`, a log directory for a broker; `lost+found`, the bytes that are not in
it; and the manifest, which accounts for every byte of every log.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from formats import file_names
from formats.file_names import DirectoryState, FileKind, FileState
from formats.late_classes import dataclass
from kafkalog.change.rescue.log_copy import (
    file_checksum,
    log_dir_of,
    logs_of,
    partitions_of,
)
from kafkalog.change.rescue.model import (
    MANIFEST,
    FailedPartition,
    Fate,
    SalvagedFile,
    SalvagedSegment,
    SalvageSummary,
    manifest_object,
)
from kafkalog.change.rescue.partition import (
    LOG_ROOT,
    LOST_ROOT,
    PartitionCopy,
    keep_file,
    lose_file,
    records_in,
)
from kafkalog.check.verify import Verification
from kafkalog.errors import (
    CorruptDataError,
    DataError,
    KafkaLogError,
    OffsetsMissingError,
    UnwritableError,
    UsageError,
    contained,
)
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_path
from kafkalog.files.text_files import checkpoint_text, read_meta_properties, read_offset_checkpoint
from kafkalog.io.documents import json_line
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.io.storage import (
    LogDirLock,
    NewDirectory,
    require_outside,
    require_space,
    require_vacant,
)
from kafkalog.model import Defect, Level, Severity
from kafkalog.node.choice import metadata_logs, paths_of_others
from kafkalog.node.recovery import StartMode, Verdict, predict_start, start_line
from kafkalog.node.remote_logs import with_remote_parts
from kafkalog.node.targets import best_replica, unlisted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.change.rescue.model import Row, SalvagedPartition
    from kafkalog.files.log_dir import Target


def copy_top_files(
    log_dir: LogDirListing, directory: NewDirectory | None, tell: Callable[[Row], None]
) -> None:
    """Copy the files that identify the log directory; checkpoints are written by `Checkpoints`."""
    for name in log_dir.others:
        tell(_other_directory(f"{log_dir.path}/{name}"))
    for entry in log_dir.files:
        tell(_top_file(entry, directory))


def _other_directory(path: str) -> SalvagedFile:
    detail, records = "This is a directory, but not a partition.", 0
    # Somebody may have moved a partition out of the broker's way: `orders-0.bak`.
    with suppress(DataError):
        found = open_path(path)
        if isinstance(found, PartitionDir):
            records = sum(records_in(log.path) for log in logs_of(found))
    return SalvagedFile(path, None, Fate.SKIPPED, detail, records)


def _top_file(entry: FileEntry, directory: NewDirectory | None) -> SalvagedFile:
    kind = entry.name.kind
    if entry.error is not None or kind == FileKind.UNKNOWN or entry.name.state != FileState.LIVE:
        detail = entry.error or "The file is a leftover, or not one of Kafka's files."
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
        for name, entries in self._entries.items():
            if entries:
                target = f"{LOG_ROOT}/{name}"
                directory.write(target, checkpoint_text(entries))
                detail = "Old entries that lie within the new logs."
                tell(SalvagedFile(None, target, Fate.REBUILT, detail))


def _within(offset: int | None, start: int, end: int) -> int | None:
    return None if offset is None else max(start, min(offset, end))


def check_copies(directory: NewDirectory, checksums: Mapping[str, int]) -> None:
    """Compare the logs on disk with what was copied, by CRC-32C of whole files.

    Raises:
        CorruptDataError: one differs.
    """
    for name, checksum in checksums.items():
        path = directory.place(name)
        if file_checksum(path) != checksum:
            raise CorruptDataError(
                "The written data reads back differently.",
                path=path,
                hint="Check the destination disk, and choose another one.",
            )


def check_partition(directory: NewDirectory, place: str) -> None:
    """Check that a broker would change nothing in a new partition after a clean shutdown.

    Raises:
        CorruptDataError: it would change something.
    """
    path = directory.place(place)
    predicted = predict_start(path, StartMode.CLEAN)
    if predicted.verdict != Verdict.NOTHING:
        raise CorruptDataError(f"A broker would change it: {start_line(predicted)}.",
                               path=path)  # fmt: skip


def findings(
    directory: NewDirectory, place: str, progress: Callable[[int], None]
) -> Iterator[Defect]:
    """Yield what `verify` reports about the new log at level deep, except notes.

    Missing offsets are left out: the source's gaps and the lost ranges account for them.

    A log with a hole can have findings that follow from the hole, such as a transaction whose
    marker is lost. They are reported under the final names, in the directory
    as given.
    """
    run = Verification(Level.DEEP, progress)
    for defect in run.verify(open_path(directory.place(place))):
        if defect.severity != Severity.NOTE and defect.reference != OffsetsMissingError.reference:
            relative = os.path.relpath(defect.path, directory.building)
            yield replace(defect, path=os.path.join(directory.given, relative))


def run_salvage(
    target: Target,
    destination: str | None,
    *,
    dry_run: bool,
    tell: Callable[[Row], None] | None,
    failed: Callable[[KafkaLogError], None] | None,
    progress: Callable[[int], None] | None,
    from_tier: Sequence[str] = (),
    copies: Sequence[Target] = (),
) -> SalvageSummary:
    """Do what `kafkalog.salvage` describes."""
    targets = [target, *copies]
    log_dirs = dict.fromkeys(map(log_dir_of, targets))
    if destination is not None:
        for one in targets:
            require_outside(destination, [*_sources(one.path, log_dir_of(one)), *from_tier])
    partitions, lenders = partitions_of(target), _Lenders({}, ())
    if copies:
        partitions, lenders = _of_copies(targets, from_tier)
    if from_tier:
        whole, *others = with_remote_parts([target], from_tier)
        partitions = partitions_of(whole)
        if isinstance(whole, LogDirListing):
            partitions += tuple(one for one in others if isinstance(one, PartitionDir))
    with ExitStack() as held:
        directory, manifest = None, None
        summary = SalvageSummary(destination, dry_run or destination is None)
        unlisted = bool(next(unlisted_of(targets), None))
        if not unlisted and not any(map(logs_of, partitions)):
            return summary
        if destination is not None and dry_run:
            require_vacant(os.path.realpath(destination))
        elif destination is not None:
            for log_dir in log_dirs:
                held.enter_context(LogDirLock(log_dir))
            require_space(destination, _size_to_copy(partitions))
            directory = held.enter_context(NewDirectory(destination, _home_of(target)))
            manifest = held.enter_context(directory.create(MANIFEST))
            summary.left_over_removed = directory.left_over_removed
        run = _Run(directory, manifest, summary, tell, progress)
        run.copy(targets, partitions, lenders, failed or (lambda _: None))
        run.check(is_log_dir=isinstance(target, LogDirListing))
        run.row(run.summary)
    return run.summary


@dataclass(frozen=True, slots=True)
class _Lenders:
    """Which directories lend to which partition, and those of other topics with the same name."""

    paths: dict[str, list[str]]
    others: tuple[PartitionDir, ...]


def _of_copies(
    targets: Sequence[Target], from_tier: Sequence[str]
) -> tuple[tuple[PartitionDir, ...], _Lenders]:
    """Return the best copy of each partition, and what lends to it.

    Raises:
        UsageError: several logs or tiers cannot be merged.
    """
    if from_tier or any(isinstance(one, FileEntry) for one in targets):
        raise UsageError("Only directories are merged, and without --from-tier.")
    found = [one for target in targets for one in partitions_of(target)]
    others = paths_of_others(found, lambda: metadata_logs(targets), dead=True)
    groups: dict[tuple[object, ...], list[PartitionDir]] = defaultdict(list)
    for one in found:
        if one.path not in others:
            name = (one.topic, one.partition) if one.is_served else (one.path,)
            groups[name].append(one)
    best = {best_replica(some).path: some for some in groups.values()}
    return (
        tuple(one for some in groups.values() for one in some if one.path in best),
        _Lenders(
            {path: [one.path for one in some if one.path != path] for path, some in best.items()},
            tuple(one for one in found if one.path in others),
        ),
    )


def _home_of(target: Target) -> str:
    """Return the directory whose owner and permissions the result gets."""
    if file_system.is_directory(target.path):
        return target.path
    return os.path.dirname(target.path) or "."


def _sources(path: str, log_dir: str) -> list[str]:
    """Return where nothing may be written: the source, and among a log directory's partitions."""
    signs = (os.path.join(log_dir, name) for name in (file_names.LOCK, file_names.META_PROPERTIES))
    return [path, log_dir] if any(map(file_system.is_there, signs)) else [path]


def _size_to_copy(partitions: Sequence[PartitionDir]) -> int:
    """Return the size of the logs without the holes of preallocated ones."""
    size = 0
    for partition in partitions:
        for log in logs_of(partition):
            with suppress(DataError), Source(log.path, log.end) as source:
                size += min(source.size_bytes, source.stored_bytes)
    return size


class _Run:
    """The work on all partitions, and the callbacks that report it."""

    def __init__(
        self,
        directory: NewDirectory | None,
        manifest: BinaryIO | None,
        summary: SalvageSummary,
        tell: Callable[[Row], None] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.summary = summary
        self._directory = directory
        self._manifest = manifest
        self._tell = tell
        self._progress = progress or (lambda _: None)
        self._checksums: dict[str, int] = {}  # of the new logs
        self._places: list[str] = []  # of the new partitions

    def copy(
        self,
        targets: Sequence[Target],
        partitions: Sequence[PartitionDir],
        lenders: _Lenders,
        failed: Callable[[KafkaLogError], None],
    ) -> None:
        """Copy all partitions, then the files next to them. Raises as `kafkalog.salvage`."""
        checkpoints = Checkpoints()
        errors: list[KafkaLogError] = []
        for one, why in unlisted_of(targets):
            errors.append(why)
            self.row(FailedPartition(one.path, why.reference, why.message))
        for partition in lenders.others:
            detail = "It is another topic's."
            self.row(SalvagedFile(partition.path, None, Fate.SKIPPED, detail))
        for partition in partitions:
            if logs_of(partition):
                lent = lenders.paths.get(partition.path, ())
                errors += self._copy_partition(partition, checkpoints, lent)
            else:
                self.row(SalvagedFile(partition.path, None, Fate.SKIPPED, "It contains no log."))
        # With nothing to show for it, the run fails as a whole.
        if errors and not self._places:
            raise errors[0]
        for error in errors:
            failed(error)
        if isinstance(targets[0], LogDirListing):
            copy_top_files(targets[0], self._directory, self.row)
        if self._directory is not None:
            checkpoints.write(self._directory, self.row)

    def _copy_partition(
        self, partition: PartitionDir, checkpoints: Checkpoints, copies: Sequence[str]
    ) -> list[KafkaLogError]:
        """Copy one partition; if an error ends that, only a row about it stays.

        Raises:
            UnwritableError: the others could not be written either.
        """
        errors: list[KafkaLogError] = []
        copy = PartitionCopy(partition, self._directory, self.row, self._progress, copies=copies)
        summary = deepcopy(self.summary)
        position = self._manifest.tell() if self._manifest else 0
        with contained(partition.path, errors.append):
            new = copy.run()
            self.row(new)
            self._places.append(new.target)
            checkpoints.add(copy, new)
        for error in errors:
            # A full disk stays full: going on would fail for each partition.
            if isinstance(error, UnwritableError):
                raise error
            copy.discard()
            self.summary = summary
            self._checksums = {
                name: crc for name, crc in self._checksums.items() if not copy.wrote(name)
            }
            if self._manifest is not None:
                # Rows of files that are no longer there must not stay in the manifest.
                self._manifest.seek(position)
                self._manifest.truncate()
            self.row(FailedPartition(partition.path, error.reference, error.message))
        return errors

    def check(self, *, is_log_dir: bool) -> None:
        """Read back everything that was written.

        Raises:
            CorruptDataError: it differs from what was intended.
        """
        if self._directory is None:
            return
        # From the disk, before the directory gets its name: a result that reads back wrong is never
        # seen.
        check_copies(self._directory, self._checksums)
        for place in self._places:
            check_partition(self._directory, place)
        for place in (LOG_ROOT,) if is_log_dir else self._places:
            for defect in findings(self._directory, place, self._progress):
                self.row(defect)

    def row(self, row: Row) -> None:
        self.summary.count(row)
        if isinstance(row, SalvagedSegment) and row.target and row.crc_copied is not None:
            self._checksums[row.target] = row.crc_copied
        if self._manifest is not None:
            self._manifest.write(json_line(manifest_object(row)))
        if self._tell is not None:
            self._tell(row)
