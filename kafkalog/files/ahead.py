"""Where questions about partitions begin to read, in order: a store fetches it before its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from formats.file_names import FileKind
from kafkalog.io.paths.uris import is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.files.log_dir import PartitionDir

AT_END: Final = -1


def ends_of(partitions: Iterable[PartitionDir]) -> Iterator[tuple[str, int]]:
    """Yield what says where the logs end, and which topics they are of."""
    for partition in _listed(partitions):
        if partition.segments:
            yield partition.segments[-1].log.path, AT_END
        yield from ((entry.path, 0) for entry in partition.live(FileKind.PARTITION_METADATA))


def segments_of(partitions: Iterable[PartitionDir]) -> Iterator[tuple[str, int]]:
    """Yield what tells the largest timestamps of segments, and where the logs end."""
    for partition in _listed(partitions):
        if partition.segments:
            yield partition.segments[-1].log.path, AT_END
        for segment in partition.segments:
            times = segment.time_index
            if times is not None and times.size_bytes:
                yield times.path, AT_END
            elif not segment.is_active:
                yield segment.log.path, 0


def files_of(partitions: Iterable[PartitionDir]) -> Iterator[tuple[str, int]]:
    """Yield the beginnings of all files."""
    for partition in _listed(partitions):
        yield from ((entry.path, 0) for entry in partition.files if entry.error is None)


def _listed(partitions: Iterable[PartitionDir]) -> Iterator[PartitionDir]:
    """Yield partitions in stores whose files are known from a listing alone."""
    for partition in partitions:
        if is_object(partition.path) and partition.sketch is None and partition.tier is None:
            yield partition
