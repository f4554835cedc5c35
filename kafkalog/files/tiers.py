"""Segments in remote storage (tiered storage), shown as the log that they are.

Follows `RemoteLogSegmentFileset`, `RemoteTopicPartitionDirectory` and `RemoteLogManager` of Kafka
4.3. `LocalTieredStorage` puts the files of a partition's segments into one directory, each named
by base offset and segment id; so does Aiven's plugin, but it packs them
(`kafkalog.io.paths.chunked`). Here they get the names that they had in a log directory, so that all
readers find segments, indexes, snapshots and leader epochs where they look for them.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from dataclasses import field, replace
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import (
    INDEXES_OBJECT,
    LOG,
    MANIFEST,
    FileKind,
    FileName,
    is_in_remote_storage,
    is_of_aivens_plugin,
    is_topic_directory,
    parse_file_name,
    parse_remote_directory_name,
    plugin_directory,
    remote_suffix,
    segment_file_name,
)
from formats.late_classes import dataclass
from kafkalog.errors import (
    CorruptDataError,
    DataError,
    KafkaLogError,
    NotFoundError,
    UnreadableError,
    UnsupportedDataError,
)
from kafkalog.files.listing import list_names
from kafkalog.files.text_files import read_leader_epochs
from kafkalog.io.paths import file_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.files.listing import FileEntry
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.files.remote_metadata import RemoteSegments
    from kafkalog.io.paths.chunked import Manifest

    _Files = dict[FileKind, FileEntry]


@dataclass(frozen=True, slots=True)
class Tier:
    """The part of a log that is in remote storage, beside its local one.

    Attributes:
        files: of the segments before the local ones, under the names that they had in the log.
        sketch: what names tell of these, if manifests would have to be read.
        end_offset: the end of what is in remote storage, which local segments may have, too.
        join: lists this part again, and joins it to a new listing of the partition.
        path: the directory of the partition in the tier; the first one, if there are several.
        segments: all remote segments of the partition, by the metadata, or else by themselves.
        logs: the paths of the logs that are there, by the ids of their segments.
    """

    files: Sequence[FileEntry]
    sketch: tuple[FileEntry, ...] | None
    end_offset: int
    join: Callable[[PartitionDir], PartitionDir] = field(compare=False, repr=False)
    path: str
    segments: RemoteSegments = field(compare=False, repr=False)
    logs: Mapping[str, str] = field(compare=False, repr=False)


def partitions_below(path: str, directories: Sequence[str]) -> list[str]:
    """Return the paths of the directories in a tier that hold remote segments of a partition.

    In the layout of Aiven's plugin a tier has a directory for each topic, and that one for each
    partition.
    """
    found = [os.path.join(path, one) for one in directories if parse_remote_directory_name(one)]
    below = [os.path.join(path, one) for one in directories if is_topic_directory(one)]
    below = [one for one in below if one not in found and any(_partitions_of_topic(one))]
    own = [os.path.join(path, one) for one in directories]
    own = [one for one in own if plugin_directory(file_system.absolute(one))]
    return sorted([*found, *below, *own])


def _partitions_of_topic(path: str) -> Iterator[str]:
    try:
        names = list_names(path)
    except DataError:
        names = []
    for one in names:
        if one.isdecimal():
            yield os.path.join(path, one)


def holds_segments(files: Iterable[FileEntry]) -> bool:
    """Return whether files are those of remote segments, by their names, and no others."""
    of_segments = [entry.name for entry in files if entry.name.offset is not None]
    return bool(of_segments) and all(map(is_in_remote_storage, of_segments))


def require_layout(path: str, names: Iterable[str]) -> None:
    """Refuse segments in the layout of Aiven's plugin outside the directories that it makes.

    Args:
        path: a directory of segments, or a file of one.
        names: the names beside it, and its own.

    Raises:
        UnsupportedDataError: there is a file that only that plugin writes.
    """
    if any(map(is_of_aivens_plugin, names)):
        raise UnsupportedDataError(
            "These are segments that Aiven's plugin for tiered storage uploaded, and the names of "
            "their directories are missing.",
            path=path,
            hint="The plugin puts them into TOPIC-TOPICID/PARTITION.",
        )


def unpacked(files: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """Return the files of segments that Aiven's plugin uploaded, as the log that they are.

    An object stands for the files that are in it. An upload without a manifest was not finished:
    its objects belong to no segment. A manifest that cannot be used has an error.

    Raises:
        UnsupportedDataError: a manifest is of another version, or in Iceberg mode.

    Cost:
        Reads each manifest once, those of an object store many at a time.
    """
    there = {entry.path: entry for entry in files}
    manifests = [path for path in there if os.path.splitext(path)[1] == MANIFEST]
    read = _read_manifests(manifests) if manifests else {}
    found: dict[str, FileEntry] = {}
    for entry in files:
        stem, suffix = os.path.splitext(entry.path)
        if suffix != MANIFEST:
            if stem + MANIFEST not in there:
                found[entry.path] = _without_manifest(entry)
            continue
        found[entry.path] = replace(entry, name=FileName(entry.name.name, FileKind.MANIFEST))
        manifest = read[entry.path]
        if isinstance(manifest, KafkaLogError):
            found[entry.path] = replace(entry, error=manifest.message)
            continue
        for kind in (FileKind.LOG, *manifest.indexes):
            one = there.get(stem + (LOG if kind == FileKind.LOG else INDEXES_OBJECT))
            if one is not None:
                path = stem + remote_suffix(kind)
                name = parse_file_name(os.path.basename(path))
                found[path] = replace(one, path=path, name=name, size_bytes=manifest.size_of(kind))
    whole = tuple(found.values())
    return as_log(whole) if holds_segments(whole) else whole


def sketched(files: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """Return what names tell of `unpacked` files: all but sizes and transaction indexes.

    Cost:
        Reads the manifests of segments that were uploaded twice.
    """
    from kafkalog.io.paths.chunked import INDEX_FIELDS

    always = {FileKind.LOG, *INDEX_FIELDS} - {FileKind.TRANSACTION_INDEX}
    there = {entry.path: entry for entry in files}
    stems: dict[int, list[str]] = {}
    for entry in files:
        stem, suffix = os.path.splitext(entry.path)
        offset = parse_file_name(os.path.basename(stem + LOG)).offset
        if suffix == MANIFEST and stem + LOG in there and offset is not None:
            stems.setdefault(offset, []).append(stem)
    again = [stem for found in stems.values() if len(found) > 1 for stem in found]
    exact = [one for one in files if os.path.splitext(one.path)[0] in again]
    sketch: list[FileEntry] = []
    for stem in (found[0] for found in stems.values() if len(found) == 1):
        for kind in always:
            held = there.get(stem + (LOG if kind == FileKind.LOG else INDEXES_OBJECT))
            if held is not None:
                path = stem + remote_suffix(kind)
                name = parse_file_name(os.path.basename(path))
                sketch.append(replace(held, path=path, name=name))
    return as_log([*sketch, *(unpacked(exact) if exact else ())])


def packed_between(
    files: Sequence[FileEntry], from_offset: int | None, to_offset: int | None
) -> tuple[FileEntry, ...]:
    """Return those of `unpacked` files whose segments, by their names, may hold some offsets.

    The first segment behind them is there, too: it tells where the last of the others ends.
    """
    stems = {entry.path: os.path.splitext(entry.path) for entry in files}
    offsets = {
        path: parse_file_name(os.path.basename(stem + LOG)).offset
        for path, (stem, _) in stems.items()
    }
    bases = sorted({
        offset
        for path, (stem, suffix) in stems.items()
        if suffix == MANIFEST and stem + LOG in stems and (offset := offsets[path]) is not None
    })  # fmt: skip
    low = 0 if from_offset is None else max(bisect_right(bases, from_offset) - 1, 0)
    high = len(bases) if to_offset is None else bisect_left(bases, to_offset) + 1
    wanted = set(bases[low:high])
    return tuple(one for one in files if offsets[one.path] in wanted)


def _read_manifests(paths: list[str]) -> dict[str, Manifest | KafkaLogError]:
    from kafkalog.io.engine import in_order

    at_once = file_system.requests_at_once(paths[0])
    return dict(zip(paths, in_order(_manifest_or_error, paths, at_once), strict=True))


def _manifest_or_error(path: str) -> Manifest | KafkaLogError:
    from kafkalog.io.paths.chunked import manifest_at

    try:
        return manifest_at(path)
    except (CorruptDataError, NotFoundError, UnreadableError) as error:
        return error


def _without_manifest(entry: FileEntry) -> FileEntry:
    return replace(entry, name=FileName(entry.name.name, FileKind.UNKNOWN))


def is_half_uploaded(entry: FileEntry) -> bool:
    """Return whether a file of a tier belongs to no segment, because its manifest is not there."""
    name = os.path.basename(entry.path)
    is_of_segment = is_of_aivens_plugin(name) or is_in_remote_storage(parse_file_name(name))
    return entry.error is None and entry.name.kind == FileKind.UNKNOWN and is_of_segment


def is_remote(path: str) -> bool:
    """Return whether a file is in remote storage, by its name."""
    return is_in_remote_storage(parse_file_name(os.path.basename(path)))


def as_log(files: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """Return the files of remote segments under the names that they had in a log directory.

    Of several segments with one base offset (a new leader uploads again what it is not sure of) the
    one with the latest leader epoch becomes part of the log, of those the longest. The files of the
    others, and files of segments without a log, keep their names, and belong to no segment.
    """
    chosen: dict[int, _Files] = {}
    for (offset, _), found in sorted(segments_in(files).items()):
        if FileKind.LOG in found:
            other = chosen.get(offset)
            chosen[offset] = found if other is None else max(other, found, key=_rank)
    renamed = dict(_renamed(sorted(chosen.items())))
    shown = (
        replace(one, name=parse_file_name(renamed[one.path])) if one.path in renamed else one
        for one in files
    )
    return tuple(sorted(shown, key=lambda entry: entry.name.name))


def segments_in(files: Iterable[FileEntry]) -> dict[tuple[int, str], _Files]:
    """Return the files of remote segments by kind, for each base offset and segment id."""
    found: dict[tuple[int, str], _Files] = {}
    for entry in files:
        if entry.error is not None or entry.name.kind == FileKind.UNKNOWN:
            continue
        name = parse_file_name(os.path.basename(entry.path))
        if is_in_remote_storage(name) and name.offset is not None:
            found.setdefault((name.offset, str(name.segment_id)), {})[name.kind] = entry
    return found


def _renamed(segments: Sequence[tuple[int, _Files]]) -> Iterator[tuple[str, str]]:
    """Yield the path of each file of the log with its name there.

    The snapshot of a segment is that of its end, as the next segment found it. The checkpoint of a
    segment has the leader epochs up to its end, so the last one's has all.
    """
    following = [*(offset for offset, _ in segments[1:]), None]
    for (offset, found), end in zip(segments, following, strict=True):
        for kind, entry in found.items():
            if kind == FileKind.PRODUCER_SNAPSHOT:
                if end is not None:
                    yield entry.path, segment_file_name(end, kind)
            elif kind == FileKind.LEADER_EPOCH_CHECKPOINT:
                if end is None:
                    yield entry.path, file_names.LEADER_EPOCHS
            else:
                yield entry.path, segment_file_name(offset, kind)


def _rank(files: _Files) -> tuple[int, int]:
    latest = -1
    if (entry := files.get(FileKind.LEADER_EPOCH_CHECKPOINT)) is not None:
        try:
            latest = max((one.leader_epoch for one in read_leader_epochs(entry.path)), default=-1)
        except DataError:
            latest = -1  # `verify` reports it
    return latest, files[FileKind.LOG].size_bytes
