"""Replaces old segments by a new one, so that any crash leaves either the old log or the new.

Follows `LocalLog.replaceSegments` of Kafka 4.3, whose loader completes or undoes an interrupted
swap. Kafka trusts the file system to keep the order of renames; here the directory is synced
wherever that order matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.compaction.new_files import file_name
from kafkalog.names import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.compaction.new_files import NewFiles
    from kafkalog.log_dir import PartitionDir, Segment
    from kafkalog.storage import Changes


def touched_names(partition: PartitionDir, end_offset: int) -> list[str]:
    """Return the names of the files that a compaction below an offset replaces or removes."""
    segments = [one for one in partition.segments if one.base_offset < end_offset]
    names = [name for segment in segments for name in _names(segment)]
    return names + _snapshots(partition, [one.base_offset for one in segments[1:]])


def swap_in(
    files: NewFiles, group: Sequence[Segment], partition: PartitionDir, changes: Changes
) -> None:
    """Replace a group by a new segment, complete as `.cleaned` and synced.

    On disk after a crash, once Kafka's loader (or `recover`) has run:

    - before all of `.cleaned` is `.swap`: the old segments; the new files are dropped;
    - before the new log has its name: the new segment, from the `.swap` files; remaining old
    segments
      are dropped, or stay if the new log ends before them, and are cleaned again;
    - afterwards: the new segment; the rest of the `.swap` files get their names;
    - at the end `.deleted` files and snapshots that belong to no segment are dropped.

    The log is renamed first, alone: an index under its final name next to a `.log.swap` would be
    taken for one of an old segment and dropped, and nobody would notice a missing `.txnindex`.

    Raises:
        UnwritableError: a step failed; a start completes or undoes the swap.
    """
    changes.sync_directory()
    for suffix in files.suffixes:
        name = file_name(files.base_offset, suffix)
        changes.rename(name + file_names.CLEANED, name + file_names.SWAP)
    changes.sync_directory()
    _retire(files, group, changes)
    for number, suffix in enumerate(files.suffixes):
        name = file_name(files.base_offset, suffix)
        changes.rename(name + file_names.SWAP, name)
        if number == 0:
            changes.sync_directory()
    changes.sync_directory()
    for name in [name for segment in group for name in _names(segment)]:
        changes.remove(name + file_names.DELETED)
    for name in _snapshots(partition, [segment.base_offset for segment in group[1:]]):
        changes.remove(name, missing_ok=True)
    changes.sync_directory()


def _retire(files: NewFiles, group: Sequence[Segment], changes: Changes) -> None:
    """Rename old files to `.deleted`; logs first, so that no log remains without its `.txnindex`.

    If the new log ends before an old one, a loader revives the old one. Then those before it must
    stay gone, or a value could come back whose tombstone is gone: so the directory is synced after
    each.
    """
    for segment in group:
        changes.rename(segment.log.name.name, segment.log.name.name + file_names.DELETED)
        if segment.base_offset >= files.next_offset:
            changes.sync_directory()
    changes.sync_directory()
    for segment in group:
        for name in _names(segment):
            if name != segment.log.name.name:
                changes.rename(name, name + file_names.DELETED)
    changes.sync_directory()


def _names(segment: Segment) -> Iterator[str]:
    files = (segment.log, segment.offset_index, segment.time_index, segment.transaction_index)
    return (entry.name.name for entry in files if entry is not None)


def _snapshots(partition: PartitionDir, bases: Sequence[int]) -> list[str]:
    """Return the producer snapshots at these offsets, except the newest, which a start uses."""
    found = partition.live(FileKind.PRODUCER_SNAPSHOT)
    return [entry.name.name for entry in found[:-1] if entry.name.offset in bases]
