"""Logs whose older part is in remote storage: which of its segments belong to a local log.

What is in remote storage is known from the topic `__remote_log_metadata`, or, without it, from the
segments themselves.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import (
    INDEX_KINDS,
    DirectoryName,
    DirectoryState,
    FileKind,
    parse_file_name,
    segment_file_name,
)
from formats.late_classes import dataclass
from kafkalog.errors import DataError, UsageError
from kafkalog.files.listing import Late
from kafkalog.files.log_dir import LogDirListing, PartitionDir, Segment, list_partition
from kafkalog.files.payloads.kinds import PayloadKind, payload_kind
from kafkalog.files.remote_metadata import (
    COPY_FINISHED,
    Known,
    RemoteSegment,
    RemoteSegments,
    is_within,
    note,
)
from kafkalog.files.text_files import read_leader_epochs
from kafkalog.files.tiers import Tier, segments_in
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.model import Defect
from kafkalog.node.choice import metadata_logs, paths_of_others
from kafkalog.node.identity import topic_id_of
from kafkalog.node.targets import Target, best_replicas, open_targets, partitions_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from kafkalog.files.listing import FileEntry
    from kafkalog.files.remote_metadata import Epochs

_OF_LOG: Final = (
    FileKind.LOG,
    *INDEX_KINDS,
    FileKind.PRODUCER_SNAPSHOT,
    FileKind.LEADER_EPOCH_CHECKPOINT,
)


def metadata_of(targets: Iterable[Target]) -> list[PartitionDir]:
    """Return the partitions of `__remote_log_metadata` at targets. Raises as `paths_of_others`."""
    found = [
        one
        for one in partitions_of(targets)
        if payload_kind(one.topic) is PayloadKind.REMOTE_LOG_METADATA
    ]
    others = paths_of_others(found, lambda: metadata_logs(targets))
    return [one for one in found if one.path not in others]


def segments_known(metadata: Iterable[PartitionDir]) -> Known | None:
    """Return what partitions of the metadata say; None if they are damaged.

    Cost:
        Reads them, unless that was done before and their files are the same.
    """
    return _segments_known(tuple(metadata))


@lru_cache(2)
def _segments_known(metadata: tuple[PartitionDir, ...]) -> Known | None:
    from kafkalog.files.payloads.internal_topics import decode
    from kafkalog.log.batches.selection import Selection
    from kafkalog.node.reader import read_records

    known: Known = {}
    for partition in best_replicas(metadata):
        try:
            for record in read_records(partition, Selection(data=True)):
                if isinstance(record, Defect):
                    return None
                found = decode(PayloadKind.REMOTE_LOG_METADATA, record.key, record.value)
                if found.value is not None:
                    note(known, found.value["data"])
        except DataError:
            return None
    return known


def joined(targets: Sequence[Target], topics: Collection[str] | None = None) -> list[Target]:
    """Return targets whose logs have what is in remote storage of them; no other target has it.

    Args:
        targets: log directories, where the metadata may be, and partitions of tiers among others.
        topics: only the logs of these topics; None for all.

    Cost:
        Nothing unless there are both. Reads the metadata; without them the last batches of each
        remote segment.
    """
    remote = [one for one in targets if isinstance(one, PartitionDir) and one.is_remote]
    if topics is not None:
        remote = [one for one in remote if one.topic in topics]
    if not remote or len(remote) == len(targets):
        return list(targets)
    metadata = metadata_of(targets)
    known = (segments_known(metadata) if metadata else None) or {}
    places = [one.path for one in metadata]
    taken: set[str] = set()

    def whole(local: PartitionDir) -> PartitionDir:
        parts = [] if local.state != DirectoryState.LIVE else parts_of(local, remote)
        taken.update(part.path for part in parts)
        return _join(local, parts, known, places) if parts else local

    found: list[Target] = []
    for one in targets:
        if isinstance(one, LogDirListing):
            found.append(replace(one, partitions=tuple(map(whole, one.partitions))))
        else:
            found.append(whole(one) if isinstance(one, PartitionDir) else one)
    return [one for one in found if one.path not in taken]


def with_remote_parts(
    targets: Sequence[Target], tiers: Iterable[str | os.PathLike[str]]
) -> list[Target]:
    """Return log directories and partitions as if all that is in tiers were in them.

    Partitions that only a tier has come last, under the names that they would have.

    Raises:
        UsageError: a path is no tier.
        KafkaLogError: as `open_path`.
    """
    remote: list[Target] = []
    for path in tiers:
        found = open_targets([path])
        if not all(isinstance(one, PartitionDir) and one.is_remote for one in found):
            raise UsageError("This is not a tier.", path=os.fspath(path))
        remote += found
    local: list[Target] = []
    for one in joined([*targets, *remote]):
        if isinstance(one, LogDirListing):
            local.append(replace(one, partitions=tuple(map(_as_local, one.partitions))))
        else:
            local.append(_as_local(one) if isinstance(one, PartitionDir) else one)
    return local


def _as_local(partition: PartitionDir) -> PartitionDir:
    if partition.tier is not None:
        return replace(partition.joined(), tier=None)
    if not partition.is_remote or partition.name is None:
        return partition
    name = partition.name
    files = tuple(
        one for one in partition.files if one.name.segment_id is None and one.name.kind in _OF_LOG
    )
    named = f"{name.topic}-{name.partition}"
    local = DirectoryName(named, name.topic, name.partition, DirectoryState.LIVE, name.uid)
    return replace(partition, name=local, files=files)


def parts_of(local: PartitionDir, remote: Sequence[PartitionDir]) -> list[PartitionDir]:
    """Return the partitions of tiers that are of the same topic, by its id if that is known."""
    of_name = [
        one for one in remote if (one.topic, one.partition) == (local.topic, local.partition)
    ]
    topic_id = topic_id_of(local)
    ids = {one.name.uid for one in of_name if one.name is not None}
    if topic_id is None:
        return of_name if len(ids) == 1 else []
    return [one for one in of_name if one.name is not None and one.name.uid == topic_id]


def with_tiers(local: PartitionDir, tiers: Sequence[str], metadata: Sequence[str]) -> PartitionDir:
    """List what is in remote storage of a log, and return it with that.

    Args:
        local: the log.
        tiers: the directories in tiers that may belong to it.
        metadata: the partitions of `__remote_log_metadata`.

    Raises:
        NotFoundError, UnreadableError: one of them cannot be listed.
    """
    parts = parts_of(local, [list_partition(one) for one in tiers])
    listed = [list_partition(one) for one in metadata]
    known = (segments_known(listed) if listed else None) or {}
    return _join(local, parts, known, metadata) if parts else local


def _join(
    local: PartitionDir,
    parts: Sequence[PartitionDir],
    known: Known,
    metadata: Sequence[str],
) -> PartitionDir:
    lineage = lineage_in(local.place_of(file_names.LEADER_EPOCHS))
    name = parts[0].name
    assert name is not None, "a directory is remote by its name"
    told = known.get((str(name.uid), name.partition))
    found = _all_uploaded(parts, told, lineage)
    is_sketch = told is not None and any(part.sketch is not None for part in parts)
    on_lineage = [one for one in found.values() if is_within(one.segment, lineage)]
    end = local.segments[0].base_offset if local.segments else None
    again = partial(with_tiers, tiers=[one.path for one in parts], metadata=metadata)
    by_themselves = {one: found[one].segment for one in found} if told is None else None

    def files() -> tuple[FileEntry, ...]:
        whole = _all_uploaded(parts, told, lineage, by_names=False) if is_sketch else found
        wanted = [one for one in whole.values() if is_within(one.segment, lineage)]
        return tuple(_below(_covering(wanted), end))

    tier = Tier(
        files=Late(files),
        sketch=tuple(_below(_covering(on_lineage), end, cuts=False)) if is_sketch else None,
        end_offset=max((one.segment.end_offset + 1 for one in on_lineage), default=0),
        join=again,
        path=parts[0].path,
        segments=told if told is not None else RemoteSegments(by_themselves),
        logs={one: found[one].files[FileKind.LOG].path for one in found},
    )
    return replace(local, tier=tier)


@dataclass(frozen=True, slots=True)
class _Uploaded:
    """A remote segment that is there, and its files by kind."""

    segment: RemoteSegment
    files: Mapping[FileKind, FileEntry]

    def opened(self) -> OpenSegment:
        offsets, times, transactions = (self.files.get(kind) for kind in INDEX_KINDS)
        log = self.files[FileKind.LOG]
        start = self.segment.start_offset
        return OpenSegment(Segment(start, log, offsets, times, transactions, None))


def _all_uploaded(
    parts: Iterable[PartitionDir],
    told: Mapping[str, RemoteSegment] | None,
    lineage: Epochs,
    *,
    by_names: bool = True,
) -> dict[str, _Uploaded]:
    """Return the segments whose upload is finished, by their ids.

    Args:
        parts: the partition in tiers.
        told: what the metadata say; None without them.
        lineage: the leader epochs of the log.
        by_names: whether what names tell of files is enough, if there are metadata.
    """
    found: dict[str, _Uploaded] = {}
    for part in parts:
        is_enough = by_names and told is not None and part.sketch is not None
        files = part.sketch if is_enough else None
        found.update(_uploaded(part.files if files is None else files, told, lineage))
    return found


def _uploaded(
    listed: Iterable[FileEntry], told: Mapping[str, RemoteSegment] | None, lineage: Epochs
) -> Iterator[tuple[str, _Uploaded]]:
    """Yield the segments whose upload is finished; without metadata those that have a log."""
    for (offset, segment_id), files in segments_in(listed).items():
        if FileKind.LOG not in files:
            continue
        if told is None:
            one = _Uploaded(RemoteSegment(offset, offset, ()), files)
            yield segment_id, _by_itself(one, lineage)
        elif segment_id in told and told[segment_id].state == COPY_FINISHED:
            yield segment_id, _Uploaded(told[segment_id], files)


def _by_itself(one: _Uploaded, lineage: Epochs) -> _Uploaded:
    """Read end, leader epochs and largest timestamp of a segment; epochs may be those of the log.

    What is damaged stays unknown.
    """
    start = end = one.segment.start_offset
    log = one.files[FileKind.LOG]
    latest = -1
    with suppress(DataError), one.opened() as opened:
        end = max(start, opened.next_offset() - 1)
        if opened.time_index is not None:
            latest = opened.time_index.last_slot_timestamp()
    checkpoint = one.files.get(FileKind.LEADER_EPOCH_CHECKPOINT)
    told = (lineage_in(checkpoint.path) if checkpoint is not None else ()) or lineage
    at = max(bisect_right([first for _, first in told], start) - 1, 0)
    segment = replace(
        one.segment,
        end_offset=end,
        epochs=tuple((epoch, max(start, first)) for epoch, first in told[at:] if first <= end),
        size_bytes=log.size_bytes,
        max_timestamp=latest if latest >= 0 else log.modified_timestamp,
    )
    return replace(one, segment=segment)


def lineage_in(path: str) -> Epochs:
    """Return the leader epochs in a checkpoint; none if it cannot be read."""
    with suppress(DataError):  # `verify` reports it
        return tuple((one.leader_epoch, one.start_offset) for one in read_leader_epochs(path))
    return ()


def _covering(found: Iterable[_Uploaded]) -> list[_Uploaded]:
    """Return segments in order that together have all offsets, none of them within another.

    A new leader uploads again what it is not sure of, and may have rolled elsewhere.
    """
    chosen: list[_Uploaded] = []
    for one in sorted(found, key=_order):
        if not chosen or one.segment.end_offset > chosen[-1].segment.end_offset:
            chosen.append(one)
    return chosen


def _order(one: _Uploaded) -> tuple[int, int, int]:
    return one.segment.start_offset, -one.segment.end_offset, -one.segment.changed_ms


def _below(
    segments: Sequence[_Uploaded], end: int | None, *, cuts: bool = True
) -> Iterator[FileEntry]:
    """Yield the files of segments, each cut off where the next one, or the local log, begins."""
    starts: list[int | None] = [*(one.segment.start_offset for one in segments[1:]), None]
    for one, following in zip(segments, starts, strict=True):
        start = one.segment.start_offset
        if end is not None and start >= end:
            return
        stop = min((some for some in (following, end) if some is not None), default=None)
        cut = None
        if cuts and stop is not None and one.segment.end_offset >= stop:
            cut = _position_of(one, stop)
        for kind in (FileKind.LOG, *INDEX_KINDS):
            if (entry := one.files.get(kind)) is not None:
                named = replace(entry, name=parse_file_name(segment_file_name(start, kind)))
                yield named if cut is None else _cut_off(named, cut)


def _position_of(one: _Uploaded, offset: int) -> int | None:
    """Return where the batch begins that has an offset; None if it is not found."""
    with suppress(DataError), one.opened() as opened:
        for found in opened.scan_from(offset):
            if not isinstance(found, Defect) and found.base_offset >= offset:
                return found.position
    return None


def _cut_off(entry: FileEntry, position: int) -> FileEntry:
    if entry.name.kind == FileKind.LOG:
        return replace(entry, size_bytes=position, end=position)
    return replace(entry, is_stale=True)
