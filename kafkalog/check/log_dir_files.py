"""Checks of small files, second copies, leftovers and unknown names in log directories.

Follows `CheckpointFile`, `PartitionMetadataFile`, `PropertiesUtils`, `CleanShutdownFileHandler`,
`FileQuorumStateStore`, `LogManager.loadLog`, `LogLoader` and `LogFileUtils` of Kafka. Their
readers accept more than their writers write; such a difference is a note.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import INDEX_KINDS, FileKind, FileState, segment_file_name
from formats.late_patterns import pattern
from kafkalog.check.batches import CheckedPartition, directory_check, log_dir_check
from kafkalog.errors import DataError
from kafkalog.files import text_files
from kafkalog.files.text_files import (
    read_clean_shutdown,
    read_leader_epochs,
    read_meta_properties,
    read_offset_checkpoint,
    read_properties,
    read_quorum_state,
    read_topic_id,
)
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import read_file
from kafkalog.log.defects import make_defect
from kafkalog.log.producers import read_producer_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.files.log_dir import FileEntry, LogDirListing
    from kafkalog.model import Defect

READERS: Final[dict[FileKind, Callable[[str], object]]] = {
    FileKind.PRODUCER_SNAPSHOT: read_producer_snapshot,
    FileKind.OFFSET_CHECKPOINT: read_offset_checkpoint,
    FileKind.LEADER_EPOCH_CHECKPOINT: read_leader_epochs,
    **text_files.READERS,
}
"""The reader for each kind of file; it raises if it cannot read the file."""

_PROPERTIES: Final = {
    0: {"version", "cluster.id", "broker.id", "directory.id"},
    1: {"version", "cluster.id", "node.id", "directory.id"},
}
_DATE: Final = pattern(
    r"#(Sun|Mon|Tue|Wed|Thu|Fri|Sat) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    r"(\d\d) ([01]\d|2[0-3]):[0-5]\d:[0-6]\d (?:[A-Z]{2,5}|GMT[+-]\d\d:\d\d) (20\d\d)"
)
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


@directory_check
def partition_files_are_as_written(partition: CheckedPartition) -> Iterator[Defect]:
    """The small files of a partition are as Kafka writes them."""
    yield from _as_written(partition.directory.files)


@log_dir_check
def top_files_are_as_written(
    log_dir: LogDirListing, partitions: Sequence[CheckedPartition]
) -> Iterator[Defect]:
    """The small files of a log directory are as Kafka writes them."""
    del partitions  # partitions are checked by themselves
    yield from _as_written(log_dir.files)


def _as_written(files: Sequence[FileEntry]) -> Iterator[Defect]:
    for entry in files:
        judge = _JUDGES.get(entry.name.kind)
        if judge is None or entry.error is not None or entry.name.state != FileState.LIVE:
            continue
        try:
            position = judge(entry.path)
        except (DataError, UnicodeDecodeError):
            continue  # reported by the check that reads the file
        if position is not None:
            yield make_defect(
                "file-not-as-written",
                entry.path,
                f"Kafka writes other bytes from position {position} on.",
                position=position,
            )


def _offset_checkpoint(path: str) -> int | None:
    entries = read_offset_checkpoint(path)
    return _checkpoint(path, [f"{e.topic} {e.partition} {e.offset}" for e in entries])


def _leader_epochs(path: str) -> int | None:
    return _checkpoint(
        path, [f"{e.leader_epoch} {e.start_offset}" for e in read_leader_epochs(path)]
    )


def _checkpoint(path: str, lines: list[str]) -> int | None:
    """Compare a checkpoint; without entries it may be empty, as before its first write."""
    data = read_file(path)
    if not data:
        return None
    return _difference(data, _text(["0", str(len(lines)), *lines], data))


def _text(lines: list[str], like: bytes) -> bytes:
    """Return the lines with the line ends of the platform that wrote the file."""
    end = "\r\n" if b"\r\n" in like else "\n"
    return "".join(line + end for line in lines).encode()


def _partition_metadata(path: str) -> int | None:
    data = read_file(path)
    # Kafka writes no line end after the last line.
    written = _text(["version: 0", f"topic_id: {read_topic_id(path)}"], data)
    return _difference(data, written.rstrip(b"\r\n"))


def _clean_shutdown(path: str) -> int | None:
    data = read_file(path)
    mark = read_clean_shutdown(path)
    # Brokers before 3.7 left the file empty.
    if not mark:
        return 0 if data else None
    return _difference(data, b'{"version":0,"brokerEpoch":%d}' % mark["brokerEpoch"])


def _quorum_state(path: str) -> int | None:
    from formats.text_files import QuorumState

    return _difference(read_file(path), QuorumState.build(read_quorum_state(path)))


def _meta_properties(path: str) -> int | None:
    """Return the first wrong position; keys come in any order after an empty comment and a date."""
    # Not `splitlines`: it would also split at bytes such as 0x85, which a UTF-8 character can have.
    lines = re.findall(r"[^\n]*\n|[^\n]+", read_file(path).decode("iso-8859-1"))
    found = read_meta_properties(path)
    if found.node_id is None:
        return None  # another check reports that a broker does not start with it
    keys = _PROPERTIES[found.version]
    wanted = {f"{key}={value}" for key, value in read_properties(path).items() if key in keys}
    position = 0
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        if number == 0:
            is_sound = text == "#"
        elif number == 1:
            is_sound = _is_date(text)
        else:
            # Properties.store escapes `:` and `=`; `read_properties` returns values without that.
            is_sound = text.replace("\\", "") in wanted
            wanted.discard(text.replace("\\", ""))
        if not is_sound or line == text:
            return position
        position += len(line)
    return position if wanted or len(lines) <= 2 else None


def _is_date(line: str) -> bool:
    """Return whether a comment holds `Date.toString` with a weekday that matches its date."""
    match = _DATE.fullmatch(line)
    if match is None:
        return False
    weekday, month, day, _, year = match.groups()
    try:
        date = dt.date(int(year), _MONTHS.index(month) + 1, int(day))
    except ValueError:
        return False
    return _DAYS[date.weekday()] == weekday


def _difference(data: bytes, written: bytes) -> int | None:
    if data == written:
        return None
    pairs = zip(data, written, strict=False)
    return next(
        (i for i, (one, other) in enumerate(pairs) if one != other), min(len(data), len(written))
    )


_JUDGES: Final[dict[FileKind, Callable[[str], int | None]]] = {
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint,
    FileKind.LEADER_EPOCH_CHECKPOINT: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.META_PROPERTIES: _meta_properties,
}

_NUMBERED: Final = (FileKind.LOG, *INDEX_KINDS, FileKind.PRODUCER_SNAPSHOT)
_READ_BY_SUFFIX: Final = (
    *(f".{kind}" for kind in _NUMBERED),
    *(file_names.CLEANED, file_names.SWAP),
)


def unknown_file(path: str) -> Defect:
    copied = file_names.copied_by_rsync(os.path.basename(path))
    if copied is None:
        return make_defect("file-unknown", path, "Kafka has no file with this name.")
    is_there = file_system.exists(os.path.join(os.path.dirname(path), copied.name))
    state = "may be older than its original" if is_there else "is missing"
    return make_defect("copy-unfinished", path, f"rsync stopped: {copied.name} {state}.")


@directory_check
def partition_names_are_canonical(partition: CheckedPartition) -> Iterator[Defect]:
    """Files that a start takes for segments have names in Kafka's form."""
    directory = partition.directory
    for entry in directory.files:
        if not directory.is_remote and _is_misnamed(entry):
            detail = f"A start takes {entry.name.name!r} for the file of a segment."
            yield make_defect("file-name-not-canonical", entry.path, detail)
    for name in directory.directories:
        path = os.path.join(directory.path, name)
        yield make_defect("directory-in-partition", path, "Kafka creates no directory there.")


def _is_misnamed(entry: FileEntry) -> bool:
    name = entry.name
    if name.kind == FileKind.UNKNOWN:
        return name.name.endswith(_READ_BY_SUFFIX)
    is_segment = name.kind in _NUMBERED and name.segment_id is None
    return is_segment and not name.name.startswith(segment_file_name(name.offset or 0, name.kind))
