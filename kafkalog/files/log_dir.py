"""Log directories, partition directories and segments as they are on disk, in any state.

Follows `LogManager`, `LogLoader` and `LogSegments` of Kafka in which files belong together.
Listing never fails because of one odd entry: an entry that cannot be read is listed with its error.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from formats import file_names
from formats.file_names import (
    INDEX_KINDS,
    DirectoryName,
    DirectoryState,
    FileKind,
    FileState,
    is_in_remote_storage,
    is_of_aivens_plugin,
    parse_directory_name,
    parse_file_name,
    partition_of,
    plugin_directory,
)
from formats.late_classes import dataclass
from kafkalog.errors import (
    DataError,
    NotAKafkaFileError,
    NotFoundError,
    UnreadableError,
    UsageError,
)
from kafkalog.files import tiers
from kafkalog.files.listing import FileEntry as FileEntry  # noqa: PLC0414 # a part of what is here
from kafkalog.files.listing import Late, file_entry, list_files, list_names
from kafkalog.files.parents import Parent, is_partition, log_dirs_below, may_be_partition
from kafkalog.files.payloads.kinds import payload_kind
from kafkalog.files.text_files import read_topic_id
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import announced, reading_error
from kafkalog.io.paths.uris import is_object

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kafkalog.model import AbortedTransaction
    from kafkalog.node.recovery.model import LoadedLog

_TOP = (FileKind.META_PROPERTIES, FileKind.OFFSET_CHECKPOINT, FileKind.CLEAN_SHUTDOWN)


@dataclass(frozen=True, slots=True)
class Segment:
    """One live segment: its log and its existing indexes.

    `next_base_offset` is the base offset of the segment that follows, None for the active segment.
    """

    _in_repr = ("base_offset", "next_base_offset", "log.size_bytes")
    _row = ("base_offset", "next_base_offset", "log.size_bytes", "is_active", "log.path")

    base_offset: int
    log: FileEntry
    offset_index: FileEntry | None
    time_index: FileEntry | None
    transaction_index: FileEntry | None
    next_base_offset: int | None

    @property
    def is_active(self) -> bool:
        """Whether this is the segment that a broker appends to."""
        return self.next_base_offset is None

    @property
    def files(self) -> list[FileEntry]:
        """Its log, then its existing indexes."""
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        return [self.log, *(entry for entry in indexes if entry is not None)]


@dataclass(frozen=True)
class PartitionDir:
    """One partition directory.

    Attributes:
        name: its parsed name, None if it is not a partition's name (a copy, say).
        files: every file in it, by name; where manifests tell of them, these are read when somebody
            looks.
        directories: names of the directories in it, which Kafka never makes.
        loaded: what a broker would know of the log, if a view shows it as after a start.
        aborted: by base offset of their segment, the contents of the transaction indexes that a
            start would rewrite with other bytes.
        end_offset: where the log ends, if a view of it in a store has seen that.
        tier: the part of the log in remote storage, if it was joined (`kafkalog.node.remote_logs`);
            a view shows its files, too.
        sketch: where manifests tell of files, what names tell of them: all but sizes and
            transaction indexes.
        packed: the files as they are in the directory, where manifests tell of others in them.
        log_dirs: the log directories of the run that listed it, where its other copies may be.
        topic_id: the id in its `partition.metadata` when it was listed; None in a store, too.
    """

    _in_repr = ("path",)

    path: str
    name: DirectoryName | None
    files: Sequence[FileEntry]
    directories: tuple[str, ...] = ()
    loaded: LoadedLog | None = None
    aborted: tuple[tuple[int, tuple[AbortedTransaction, ...]], ...] = ()
    end_offset: int | None = None
    tier: tiers.Tier | None = None
    sketch: Sequence[FileEntry] | None = field(default=None, compare=False, repr=False)
    packed: tuple[FileEntry, ...] = field(default=(), compare=False, repr=False)
    log_dirs: tuple[str, ...] = field(default=(), compare=False, repr=False)
    topic_id: str | None = field(default=None, compare=False, repr=False)

    @property
    def log_dir(self) -> str:
        """The directory around it, as the path was given, unless that does not name it."""
        if os.path.basename(self.path) in ("", os.curdir, os.pardir):
            return os.path.dirname(file_system.absolute(self.path))
        return os.path.dirname(self.path) or os.curdir

    @property
    def topic(self) -> str:
        """The topic; the directory's whole name if that is not a partition's name."""
        return self.name.topic if self.name else os.path.basename(file_system.absolute(self.path))

    @property
    def partition(self) -> int | None:
        """The partition's number, None if the name has none."""
        return self.name.partition if self.name else None

    @property
    def state(self) -> DirectoryState:
        """Whether the partition is live, being deleted, moving here, or stray."""
        return self.name.state if self.name else DirectoryState.LIVE

    @property
    def is_served(self) -> bool:
        """Whether a broker would serve it, or it is a log in remote storage."""
        return self.name is not None and self.state in (DirectoryState.LIVE, DirectoryState.REMOTE)

    def place_of(self, name: str) -> str:
        """Return where the file is, or would be, that has a name in the log."""
        there = (entry.path for entry in self.files if entry.name.name == name)
        return next(there, os.path.join(self.path, name))

    def live(self, kind: FileKind) -> list[FileEntry]:
        """Return the live files of one kind, by offset, then by name."""
        return _by_offset(self._live(kind)[kind])

    def _live(self, *kinds: FileKind) -> dict[FileKind, list[FileEntry]]:
        """Return the live files of some kinds, in the order of the listing."""
        found: dict[FileKind, list[FileEntry]] = {kind: [] for kind in kinds}
        for entry in self.files:
            name = entry.name
            if name.kind in found and name.state == FileState.LIVE and name.segment_id is None:
                found[name.kind].append(entry)
        return found

    @property
    def other_logs(self) -> list[FileEntry]:
        """The logs of segments that are not live, by offset, then by name."""
        return _by_offset(
            entry
            for entry in self.files
            if entry.name.kind == FileKind.LOG and entry.name.state != FileState.LIVE
        )

    def joined(self) -> PartitionDir:
        """Return it with the files of its part in remote storage."""
        if self.tier is None:
            return self
        above, sketch, own = self.tier.files, self.tier.sketch, self.local().files
        return replace(
            self,
            files=Late(lambda: (*above, *own)),
            sketch=None if sketch is None else Late(lambda: (*sketch, *own)),
        )

    def local(self) -> PartitionDir:
        """Return it without the files of its part in remote storage."""
        if self.tier is None:
            return self
        own = tuple(one for one in self.files if not tiers.is_remote(one.path))
        return replace(self, files=own, sketch=None)

    def between(self, from_offset: int | None, to_offset: int | None) -> PartitionDir:
        """Return it with no more segments than may hold some offsets, and the one behind them.

        Only where manifests would have to be read of the others; elsewhere, and where names tell
        too little, all segments stay. What the whole log tells, such as its end, is not known then.

        Cost:
            Reads the manifests of the segments that stay.
        """
        if not self.packed or (from_offset is None and to_offset is None):
            return self
        part = _unpacking(self, tiers.packed_between(self.packed, from_offset, to_offset))
        first = part.segments[0].base_offset if part.segments else None
        # A manifest that cannot be used leaves its segment out, and another may have the offset.
        return part if first is not None and first <= (from_offset or first) else self

    @property
    def is_remote(self) -> bool:
        """Whether its segments are in remote storage, and nothing but they is known of the log."""
        return self.state == DirectoryState.REMOTE

    @property
    def left_overs(self) -> list[FileEntry]:
        """The `.deleted` files: nothing reads them, and the next start of a broker removes them.

        They stay when a broker stops within `file.delete.delay.ms` of a deletion or a compaction.
        """
        return [entry for entry in self.files if entry.name.name.endswith(file_names.DELETED)]

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """The live segments by base offset."""
        live = self._live(FileKind.LOG, *INDEX_KINDS)
        indexes = {kind: {entry.name.offset: entry for entry in live[kind]} for kind in INDEX_KINDS}
        logs = _by_offset(live[FileKind.LOG])
        following = [*(entry.name.offset for entry in logs[1:]), None]
        return tuple(
            Segment(
                base_offset=log.name.offset or 0,
                log=log,
                offset_index=indexes[FileKind.OFFSET_INDEX].get(log.name.offset),
                time_index=indexes[FileKind.TIME_INDEX].get(log.name.offset),
                transaction_index=indexes[FileKind.TRANSACTION_INDEX].get(log.name.offset),
                next_base_offset=next_base,
            )
            for log, next_base in zip(logs, following[: len(logs)], strict=True)
        )

    @property
    def size_bytes(self) -> int:
        """Length of all files in bytes, including the holes of sparse files."""
        return sum(entry.size_bytes for entry in self.files)


@dataclass(frozen=True)
class LogDirListing:
    """What is in one log directory, an entry of `log.dirs`.

    Attributes:
        files: the files at its top, by name.
        partitions: its partition directories, by name.
        others: its other directories, such as `remote-log-index-cache`.
        errors: path to error of the entries that could not be listed.
        passed_over: partition directories of topics that nobody asked for, which were not listed.
    """

    path: str
    files: tuple[FileEntry, ...]
    partitions: tuple[PartitionDir, ...]
    others: tuple[str, ...] = ()
    errors: dict[str, DataError] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()

    @property
    def unlisted(self) -> tuple[PartitionDir, ...]:
        """The partition directories that could not be listed, as empty ones."""
        return tuple(PartitionDir(path, partition_of(path), ()) for path in self.errors)

    def file(self, name: str) -> FileEntry | None:
        """Return the file with a name at the top of the directory, or None."""
        return next((entry for entry in self.files if entry.name.name == name), None)


@dataclass(frozen=True, slots=True)
class LogDirTop:
    """A log directory whose partitions are not listed: the files and directories at its top."""

    path: str
    files: tuple[FileEntry, ...]
    directories: tuple[str, ...]


Target = LogDirListing | PartitionDir | FileEntry
AnyPath: TypeAlias = "str | os.PathLike[str] | Target"
"""A path, or what is open there."""


def open_path(path: AnyPath) -> Target:
    """Open the log directory, the partition directory or the single file at a path, unless it is.

    Raises:
        NotFoundError: the path does not exist.
        UnreadableError: it cannot be listed.
        NotAKafkaFileError: it exists, but it is nothing that Kafka writes, or it is a parent of log
            directories.
    """
    return path if isinstance(path, Target) else open_one(os.fspath(path))


def open_one(path: str, topics: Collection[str] | None = None) -> Target:
    """Open what is at a path as `open_path` does; `topics` is as for `open_any`."""
    found = open_any(path, topics)
    if isinstance(found, Parent):
        raise found.too_many()
    return found


def open_any(path: str, topics: Collection[str] | None = None) -> Target | Parent:
    """Open what is at a path as `open_path` does, or return that it is a parent.

    Args:
        topics: the only ones that are listed of a log directory, besides internal ones.
    """
    return _log_dir(found, topics) if isinstance(found := look_at(path), LogDirTop) else found


def look_at(path: str) -> LogDirTop | PartitionDir | FileEntry | Parent:
    """Say what is at a path without listing the partitions of a log directory.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.
    """
    path = file_system.normalize(path)
    if file_system.is_part(path):
        return _part(path)
    try:
        status = file_system.stat(path)
    except OSError as error:
        raise reading_error(error, path) from error
    except ValueError as error:
        raise NotFoundError("The path cannot name a file.", path=path) from error
    return _directory(path) if stat.S_ISDIR(status.st_mode) else _file(path)


def _part(path: str) -> FileEntry:
    """Return a file of a segment that Aiven's plugin packed, under its own name."""
    for entry in list_partition(os.path.dirname(path) or os.curdir).files:
        if entry.path == path:
            return replace(entry, name=parse_file_name(os.path.basename(path)))
    raise NotFoundError("No manifest has such a file.", path=path)


def _file(path: str) -> FileEntry:
    entry = file_entry(path, os.path.basename(path))
    if entry is None:
        raise NotFoundError("No such file or directory.", path=path)
    if entry.error is not None:
        raise NotAKafkaFileError(entry.error, path=path)
    is_remote = is_in_remote_storage(entry.name) or is_of_aivens_plugin(entry.name.name)
    if is_remote and plugin_directory(os.path.dirname(file_system.absolute(path))) is None:
        tiers.require_layout(path, list_names(os.path.dirname(path) or os.curdir))
    if entry.name.kind == FileKind.UNKNOWN:
        raise NotAKafkaFileError(
            "Kafka gives no file this name.",
            path=path,
            hint="Segments are called 00000000000000000000.log and so on; a copy needs the "
            "original name.",
        )
    return entry


def _directory(path: str) -> LogDirTop | PartitionDir | Parent:
    files, directories = list_files(path)
    partition = _partition(path, files, directories)
    name, partitions = partition.name, _partition_names(directories)
    top = LogDirTop(path, files, directories)
    if any(entry.name.kind in _TOP for entry in files):
        return top
    if any(entry.name.offset is not None for entry in files):
        return partition
    if not partitions and (remote := tiers.partitions_below(path, directories)):
        file_system.prefetch_listing(path)
        return Parent(path, tuple(remote), "tiered log")
    # Folders of brokers may have names like partitions, such as broker-1.
    if not any(is_partition(os.path.join(path, one)) for one in partitions):
        is_known = any(entry.name.kind != FileKind.UNKNOWN for entry in files)
        has_cache = file_names.REMOTE_INDEX_CACHE in directories
        if not (is_known or has_cache) and (below := log_dirs_below(path, directories)):
            return Parent(path, tuple(below))
    # An empty directory with a partition's name: a broker has just made it.
    if name is not None and not partitions:
        return partition
    if file_names.REMOTE_INDEX_CACHE in directories or any(
        may_be_partition(os.path.join(path, one)) for one in partitions
    ):
        return top
    raise NotAKafkaFileError(
        "The directory holds neither partitions nor segments.",
        path=path,
        hint="Give a log directory (an entry of log.dirs), a partition directory such as orders-0, "
        "or one file.",
    )


def open_partition(path: AnyPath) -> PartitionDir:
    """Return the partition directory at a path. Raises the errors of `open_path`."""
    found = open_path(path)
    if isinstance(found, PartitionDir):
        return found
    one_log(found)
    raise UsageError(
        "This is a file, not a partition directory.",
        path=found.path,
        hint="Give its partition directory.",
    )


def list_partition(path: str) -> PartitionDir:
    """List a directory that is known to be a partition's, whatever it contains.

    Raises:
        NotFoundError, UnreadableError: it cannot be listed.
    """
    return _partition(path, *list_files(path))


def _partition(
    path: str, files: tuple[FileEntry, ...], directories: tuple[str, ...]
) -> PartitionDir:
    absolute = file_system.absolute(path)
    name = partition_of(absolute)
    if plugin_directory(absolute):
        return _unpacking(PartitionDir(path, name, (), directories), files)
    tiers.require_layout(path, (entry.name.name for entry in files))
    for entry in files:
        if entry.error and entry.name.kind == FileKind.LOG and entry.name.state == FileState.LIVE:
            announced(UnreadableError(entry.error, path=entry.path))
    if tiers.holds_segments(files):
        files = tiers.as_log(files)
    return PartitionDir(path, name, files, directories, topic_id=_topic_id(files))


def _topic_id(files: Iterable[FileEntry]) -> str | None:
    for entry in files:
        if entry.name.kind == FileKind.PARTITION_METADATA and not is_object(entry.path):
            with suppress(DataError):  # `verify` reports it
                return read_topic_id(entry.path)
    return None


def _unpacking(partition: PartitionDir, packed: tuple[FileEntry, ...]) -> PartitionDir:
    """Return a partition with the files that manifests tell of, read when somebody looks."""
    return replace(
        partition,
        files=Late(lambda: tiers.unpacked(packed)),
        sketch=Late(lambda: tiers.sketched(packed)),
        packed=packed,
    )


def one_log(target: Target) -> PartitionDir | FileEntry:
    """Return the target if it stands for a single log.

    Raises:
        UsageError: it is a log directory, which holds many logs.
    """
    if isinstance(target, LogDirListing):
        raise UsageError(
            "This is a log directory: name one of its partitions, or a file.",
            path=target.path,
            hint=f"`kafkalog ls {target.path}` lists them.",
        )
    return target


def _by_offset(entries: Iterable[FileEntry]) -> list[FileEntry]:
    return sorted(entries, key=lambda entry: (entry.name.offset or 0, entry.name.name))


def _partition_names(directories: tuple[str, ...]) -> list[str]:
    return [name for name in directories if parse_directory_name(name)]


def _log_dir(top: LogDirTop, topics: Collection[str] | None) -> LogDirListing:
    path, files, directories = top.path, top.files, top.directories
    partitions, others, errors, passed_over = [], [], {}, []
    if _partition_names(directories):
        file_system.prefetch_listing(path)
    for directory in directories:
        name = parse_directory_name(directory)
        if name is None:
            others.append(directory)
            continue
        inner = os.path.join(path, directory)
        if topics is not None and name.topic not in topics and payload_kind(name.topic) is None:
            passed_over.append(inner)
            continue
        try:
            partitions.append(list_partition(inner))
        except DataError as error:
            if file_system.exists(inner):  # if it is gone, a broker deleted or renamed it meanwhile
                errors[inner] = error
    return LogDirListing(path, files, tuple(partitions), tuple(others), errors, tuple(passed_over))
