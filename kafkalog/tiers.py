"""Segments in remote storage (tiered storage), shown as the log that they are.

Follows `RemoteLogSegmentFileset`, `RemoteTopicPartitionDirectory` and `RemoteLogManager` of Kafka
4.3. `LocalTieredStorage` puts the files of a partition's segments into one directory, each named
by base offset and segment id. Here they get the names that they had in a log directory, so that all
readers find segments, indexes, snapshots and leader epochs where they look for them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import (
    FileKind,
    is_in_remote_storage,
    is_of_aivens_plugin,
    is_topic_directory,
    parse_file_name,
    parse_remote_directory_name,
    segment_file_name,
)
from kafkalog.errors import KafkaLogError, UnsupportedError
from kafkalog.listing import list_names
from kafkalog.text_files import read_leader_epochs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.listing import FileEntry

    _Files = dict[FileKind, FileEntry]


def partitions_below(path: str, directories: Sequence[str]) -> list[str]:
    """Return the paths of the directories in a tier that hold remote segments of a partition."""
    return [os.path.join(path, one) for one in directories if parse_remote_directory_name(one)]


def first_below(path: str, directories: Sequence[str]) -> Iterator[str]:
    """Yield where Aiven's plugin would have put segments: the first `TOPIC-ID/PARTITION` below."""
    topics = [os.path.join(path, one) for one in directories if is_topic_directory(one)]
    if is_topic_directory(os.path.basename(path)):
        topics = [path]
    for topic in topics[:1]:
        for partition in [one for one in list_names(topic) if one.isdecimal()][:1]:
            yield os.path.join(topic, partition)


def holds_segments(files: Iterable[FileEntry]) -> bool:
    """Return whether files are those of remote segments, by their names, and no others."""
    of_segments = [entry.name for entry in files if entry.name.offset is not None]
    return bool(of_segments) and all(map(is_in_remote_storage, of_segments))


def require_layout(path: str, names: Iterable[str]) -> None:
    """Refuse segments in the layout of Aiven's plugin: chunks that are compressed or encrypted.

    Args:
        path: a directory of segments, or a file of one.
        names: the names beside it, and its own.

    Raises:
        UnsupportedError: there is a file that only that plugin writes.
    """
    if any(map(is_of_aivens_plugin, names)):
        raise UnsupportedError(
            "These are segments in the layout of Aiven's plugin for tiered storage, which is not "
            "read.",
            path=path,
            hint="A broker with that plugin reads them.",
        )


def is_remote(path: str) -> bool:
    """Return whether a file is in remote storage, by its name."""
    return is_in_remote_storage(parse_file_name(os.path.basename(path)))


def as_log(files: Sequence[FileEntry]) -> tuple[FileEntry, ...]:
    """Return the files of remote segments under the names that they had in a log directory.

    Of several segments with one base offset (a new leader uploads again what it is not sure of) the
    one with the latest leader epoch becomes part of the log, of those the longest. The files of the
    others, and files of segments without a log, keep their names, and belong to no segment.
    """
    of_segments: dict[tuple[int, str], _Files] = {}
    for entry in files:
        name = entry.name
        if is_in_remote_storage(name) and name.offset is not None and entry.error is None:
            of_segments.setdefault((name.offset, str(name.segment_id)), {})[name.kind] = entry
    chosen: dict[int, _Files] = {}
    for (offset, _), found in sorted(of_segments.items()):
        if FileKind.LOG in found:
            other = chosen.get(offset)
            chosen[offset] = found if other is None else max(other, found, key=_rank)
    renamed = dict(_renamed(sorted(chosen.items())))
    shown = (replace(one, name=parse_file_name(renamed.get(one.path, one.name.name)))
             for one in files)  # fmt: skip
    return tuple(sorted(shown, key=lambda entry: entry.name.name))


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
            latest = max((one.epoch for one in read_leader_epochs(entry.path)), default=-1)
        except KafkaLogError:
            latest = -1  # `verify` reports it
    return latest, files[FileKind.LOG].size_bytes
