"""Whether remote storage holds what the topic `__remote_log_metadata` says, and nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import (
    INDEXES_OBJECT,
    LOG,
    DirectoryState,
    FileKind,
    parse_file_name,
    remote_file_name,
)
from kafkalog.check.batches import copies_check, directory_check
from kafkalog.files.remote_metadata import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    RemoteSegments,
    is_within,
)
from kafkalog.files.tiers import is_half_uploaded, segments_in
from kafkalog.io.paths import file_system
from kafkalog.io.paths.chunked import manifest_at
from kafkalog.io.wording import counted, utc_text
from kafkalog.log.defects import make_defect
from kafkalog.model import present_ms
from kafkalog.node.remote_logs import lineage_in, metadata_of, parts_of, segments_known
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from formats.file_names import FileName
    from kafkalog.check.batches import CheckedPartition
    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.files.listing import FileEntry
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.files.remote_metadata import RemoteSegment
    from kafkalog.io.paths.chunked import Manifest
    from kafkalog.model import Defect

_STATES: Final = {
    COPY_STARTED: "its upload was begun",
    DELETE_STARTED: "its deletion was begun",
    DELETE_FINISHED: "it was deleted",
}
_UNDER_WAY_MS: Final = 3_600_000
"""How long an upload or a deletion counts as under way."""
CONTRADICTS: Final = "remote-manifest-contradicts"
_NEEDED: Final = (
    FileKind.LOG,
    FileKind.PRODUCER_SNAPSHOT,
    FileKind.LEADER_EPOCH_CHECKPOINT,
)
"""Files that an upload always has. Other checks miss indexes, if the log needs them."""


@directory_check
def manifests_say_what_is_there(partition: CheckedPartition) -> Iterator[Defect]:
    """A manifest of Aiven's plugin is of its segment, and its objects have the sizes in it."""
    directory = partition.directory
    for entry in directory.files if directory.is_remote else ():
        if entry.name.kind == FileKind.MANIFEST and entry.error is None:
            stem, _ = os.path.splitext(entry.path)
            manifest = manifest_at(entry.path)
            yield from _of_another_segment(
                directory, manifest, parse_file_name(os.path.basename(stem) + LOG)
            )
            # All indexes are in one object, whose size is where the last one ends.
            indexes = max((sum(place) for place in manifest.indexes.values()), default=0)
            for path, size in ((stem + LOG, manifest.starts[-1]), (stem + INDEXES_OBJECT, indexes)):
                try:
                    there = file_system.stat(path).st_size
                except FileNotFoundError:
                    detail = f"The manifest says it has {counted(size, 'byte')}; it is missing."
                    yield make_defect(CONTRADICTS, path, detail)
                    continue
                if there != size:
                    detail = f"The object has {counted(there, 'byte')}, the manifest says {size}."
                    yield make_defect(CONTRADICTS, path, detail)


def _of_another_segment(
    directory: PartitionDir, manifest: Manifest, name: FileName
) -> Iterator[Defect]:
    claims, place = manifest.claims, directory.name
    if claims is None or place is None:
        return
    # A prefix of keys that does not end in a slash becomes a part of the topic's name.
    topic = claims.topic if place.topic.endswith(claims.topic) else place.topic
    said = (claims.topic, claims.partition, claims.topic_id, claims.segment_id, claims.start_offset)
    named = (topic, place.partition, place.uid, name.segment_id, name.offset)
    if said != named:
        detail = f"The manifest is of {_segment_text(*said)}; "
        detail += f"by its name it is of {_segment_text(*named)}."
        yield make_defect(CONTRADICTS, manifest.path, detail)


def _segment_text(*of: object) -> str:
    topic, partition, topic_id, segment_id, offset = of
    return f"{topic}-{partition}, topic id {topic_id}, segment {segment_id} at offset {offset}"


@copies_check
def tiers_hold_what_the_metadata_say(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """Each segment whose upload is finished is in the tier, whole, and no other is.

    Uploads and deletions that began a short time ago may be under way.
    """
    directories = [one.directory for found in log_dirs for one in found.partitions]
    remote = [one for one in directories if one.is_remote]
    metadata = metadata_of(directories)
    # None: without the metadata topic nothing says which segments there should be.
    known = segments_known(metadata) if remote and metadata else None
    for directory in remote:
        name = directory.name
        assert name is not None, "a directory is remote by its name"
        told = (known or {}).get((str(name.uid), name.partition)) or RemoteSegments()
        yield from _half_uploaded(directory, told)
        if known is not None:
            yield from _compared(directory, told)


@copies_check
def tiers_end_where_logs_begin(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """All offsets of a log are in its tier, by the metadata, or local."""
    directories = [one.directory for found in log_dirs for one in found.partitions]
    remote = [one for one in directories if one.is_remote]
    metadata = metadata_of(directories)
    known = (segments_known(metadata) if remote and metadata else None) or {}
    told: set[tuple[str, int | None, int]] = set()
    for local in directories if known else ():
        if local.state != DirectoryState.LIVE or not local.segments:
            continue
        for part in parts_of(local, remote):
            assert part.name is not None, "a directory is remote by its name"
            segments = known.get((str(part.name.uid), part.name.partition), {}).values()
            for start, end in _between(local, segments):
                if (local.topic, local.partition, start) not in told:
                    told.add((local.topic, local.partition, start))
                    detail = f"Offsets {start} to {end - 1} are neither in the tier nor local."
                    yield make_defect("remote-lineage-gap", part.path, detail, offset=start)


def _between(local: PartitionDir, known: Iterable[RemoteSegment]) -> Iterator[tuple[int, int]]:
    """Yield the offsets that no segment has whose upload is finished, below the local ones."""
    lineage = lineage_in(local.place_of(file_names.LEADER_EPOCHS))
    found = [one for one in known if one.state == COPY_FINISHED and is_within(one, lineage)]
    starts = sorted((one.start_offset, one.end_offset + 1) for one in found)
    first = local.segments[0].base_offset
    at = UnifiedLog(local).checkpoint(file_names.LOG_STARTS)
    # Without a checkpoint, the log starts at its first segment, in the tier or local.
    at = min([first, *(start for start, _ in starts)]) if at is None else at
    for start, end in [*starts, (first, first)]:
        if at < min(start, first):
            yield at, min(start, first)
        at = max(at, end)


def _half_uploaded(directory: PartitionDir, known: Mapping[str, RemoteSegment]) -> Iterator[Defect]:
    for entry in filter(is_half_uploaded, directory.files):
        stem, _ = os.path.splitext(os.path.basename(entry.path))
        segment_id = str(parse_file_name(stem + LOG).segment_id)
        if not _is_under_way(known.get(segment_id)):
            detail = "The remote segment has no manifest."
            yield make_defect("remote-segment-orphan", entry.path, detail)


def _is_under_way(told: RemoteSegment | None) -> bool:
    """Return whether a broker may be uploading or deleting a segment now."""
    if told is None or told.state not in (COPY_STARTED, DELETE_STARTED):
        return False
    return present_ms() - told.changed_ms < _UNDER_WAY_MS


def _compared(directory: PartitionDir, known: Mapping[str, RemoteSegment]) -> Iterator[Defect]:
    uploaded = {
        segment_id: files for (_, segment_id), files in segments_in(directory.files).items()
    }
    for segment_id, one in sorted(known.items(), key=lambda one: (one[1].start_offset, one[0])):
        if one.state == COPY_FINISHED:
            yield from _finished(directory, segment_id, one, uploaded.get(segment_id, {}))
    for segment_id, files in uploaded.items():
        told = known.get(segment_id)
        if (told is None or told.state != COPY_FINISHED) and not _is_under_way(told):
            yield _orphan(files, told)


def _finished(
    directory: PartitionDir,
    segment_id: str,
    told: RemoteSegment,
    there: dict[FileKind, FileEntry],
) -> Iterator[Defect]:
    missing = [kind for kind in _NEEDED if kind not in there]

    def place_of(kind: FileKind) -> str:
        name = remote_file_name(told.start_offset, segment_id, kind)
        return os.path.join(directory.path, name)

    if FileKind.LOG in missing:
        yield make_defect(
            "remote-segment-missing",
            place_of(FileKind.LOG),
            f"The upload of offsets {told.start_offset} to {told.end_offset} "
            f"({counted(told.size_bytes, 'byte')}) is finished, and its log is not there.",
            offset=told.start_offset,
            size_bytes=told.size_bytes,
        )
        return
    for kind in missing:
        yield make_defect(
            "remote-segment-missing",
            place_of(kind),
            "The upload of the segment is finished, and this file is not there.",
            offset=told.start_offset,
        )
    size = there[FileKind.LOG].size_bytes
    if size != told.size_bytes:
        detail = f"The log has {counted(size, 'byte')}, the metadata say {told.size_bytes}."
        yield make_defect("remote-size-wrong", there[FileKind.LOG].path, detail)
    place = place_of(FileKind.MANIFEST)
    if not any(one.path == place and one.error is None for one in directory.files):
        return
    claims = manifest_at(place).claims
    if claims is not None and claims.end_offset != told.end_offset:
        detail = (
            f"The segment ends at offset {claims.end_offset}; by the metadata at {told.end_offset}."
        )
        yield make_defect(CONTRADICTS, place, detail, offset=claims.end_offset)


def _orphan(files: dict[FileKind, FileEntry], told: RemoteSegment | None) -> Defect:
    entry = files.get(FileKind.LOG) or next(iter(files.values()))
    if told is None:
        detail = "The metadata do not know the segment."
    else:
        what = _STATES.get(told.state, "its state changed")
        detail = f"The last that the metadata say is that {what}, at {utc_text(told.changed_ms)}."
    offset = parse_file_name(os.path.basename(entry.path)).offset
    return make_defect("remote-segment-orphan", entry.path, detail, offset=offset)
