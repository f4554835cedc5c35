"""What lies around in log directories: second copies, leftovers, names that Kafka does not give.

Follows `LogManager.loadLog`, `LogLoader` and `LogFileUtils` of Kafka 4.3.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from formats import file_names
from kafkalog.defects import make_defect
from kafkalog.names import DirectoryState, FileKind, segment_file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.check.batch_checks import CheckedPartition
    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.log_dir import FileEntry, LogDir
    from kafkalog.model import Defect

_INDEXES: Final = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
_NUMBERED: Final = (FileKind.LOG, *_INDEXES, FileKind.PRODUCER_SNAPSHOT)
_READ_BY_SUFFIX: Final = (
    *(f".{kind}" for kind in _NUMBERED),
    *(file_names.CLEANED, file_names.SWAP),
)
_LATE_MS: Final = 60_000
_LEFT: Final = {
    DirectoryState.DELETE: "A deleted partition whose files are to be removed.",
    DirectoryState.STRAY: "A partition that is not assigned to the broker.",
}


def partition_names_are_canonical(partition: CheckedPartition) -> Iterator[Defect]:
    """Files that a start takes for segments have the names that Kafka gives."""
    directory = partition.directory
    for entry in directory.files:
        if _is_misnamed(entry):
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


def leftovers_of_partitions(
    log_dir: LogDir, partitions: Sequence[CheckedPartition]
) -> Iterator[Defect]:
    """Directories that wait for their removal, and logs younger than the shutdown."""
    for partition in partitions:
        detail = _LEFT.get(partition.directory.state)
        if detail is not None:
            yield make_defect("leftover-directory", partition.directory.path, detail)
    mark = log_dir.file(file_names.CLEAN_SHUTDOWN)
    if mark is None or mark.error is not None:
        return
    for partition in partitions:
        for segment in partition.directory.segments:
            late = segment.log.mtime_ms - mark.mtime_ms
            if late > _LATE_MS:
                detail = f"It was changed {late // 1000} s after the clean shutdown."
                yield make_defect("changed-after-shutdown", segment.log.path, detail)
                return


def partitions_are_in_one_place(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """A broker has a partition in one log directory, and a future one only of such a partition."""
    seen: dict[tuple[object, ...], str] = {}
    identities: set[str] = set()
    futures: list[tuple[tuple[object, ...], CheckedPartition]] = []
    for found in log_dirs:
        identity = found.properties.directory_id if found.properties else None
        if identity in identities:
            continue  # a copy of a directory that is there already
        if identity is not None:
            identities.add(identity)
        for partition in found.partitions:
            directory = partition.directory
            broker = found.broker or found.log_dir.path
            key: tuple[object, ...] = (broker, directory.topic, directory.partition)
            if directory.state == DirectoryState.FUTURE:
                futures.append((key, partition))
            elif directory.state == DirectoryState.LIVE and key in seen:
                detail = f"The broker has the partition in {seen[key]}, too."
                yield make_defect("partition-in-two-places", directory.path, detail)
            elif directory.state == DirectoryState.LIVE:
                seen[key] = directory.path
    for of_future, partition in futures:
        if of_future not in seen:
            detail = "A replica being moved here, of a partition that no given directory holds."
            yield make_defect("leftover-directory", partition.directory.path, detail)
