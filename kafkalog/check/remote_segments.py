"""Whether remote storage holds what the topic `__remote_log_metadata` says, and nothing else.

`kafkalog.remote_logs` reads the topic.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import DirectoryState, FileKind, parse_file_name
from kafkalog.check.batches import copies_check
from kafkalog.defects import make_defect
from kafkalog.remote_logs import (
    COPY_FINISHED,
    COPY_STARTED,
    DELETE_FINISHED,
    DELETE_STARTED,
    is_within,
    lineage_in,
    metadata_of,
    parts_of,
    segments_known,
)
from kafkalog.tiers import segments_in
from kafkalog.unified_log import UnifiedLog
from kafkalog.wording import counted, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.listing import FileEntry
    from kafkalog.log_dir import PartitionDir
    from kafkalog.model import Defect
    from kafkalog.remote_logs import RemoteSegment

_STATES: Final = {
    COPY_STARTED: "its upload was begun",
    DELETE_STARTED: "its deletion was begun",
    DELETE_FINISHED: "it was deleted",
}
_NEEDED: Final = (
    FileKind.LOG,
    FileKind.PRODUCER_SNAPSHOT,
    FileKind.LEADER_EPOCH_CHECKPOINT,
)
"""Files that an upload always has. Other checks miss indexes, if the log needs them."""


@copies_check
def tiers_hold_what_the_metadata_say(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """Each segment whose upload is finished is in the tier, whole, and no other is."""
    directories = [one.directory for found in log_dirs for one in found.partitions]
    remote = [one for one in directories if one.is_remote]
    metadata = metadata_of(directories)
    known = segments_known(metadata) if remote and metadata else None
    for directory in remote if known is not None else ():
        name = directory.name
        assert name is not None, "a directory is remote by its name"
        assert known is not None
        yield from _compared(directory, known.get((str(name.uid), name.partition), {}))


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
    at = min([first, *(start for start, _ in starts)]) if at is None else at
    for start, end in [*starts, (first, first)]:
        if at < min(start, first):
            yield at, min(start, first)
        at = max(at, end)


def _compared(directory: PartitionDir, known: dict[str, RemoteSegment]) -> Iterator[Defect]:
    uploaded = {
        segment_id: files for (_, segment_id), files in segments_in(directory.files).items()
    }
    for segment_id, told in sorted(known.items(), key=lambda one: (one[1].start_offset, one[0])):
        if told.state == COPY_FINISHED:
            yield from _finished(directory, segment_id, told, uploaded.get(segment_id, {}))
    for segment_id, files in uploaded.items():
        state = known[segment_id].state if segment_id in known else None
        if state != COPY_FINISHED:
            yield _orphan(files, known.get(segment_id))


def _finished(
    directory: PartitionDir,
    segment_id: str,
    told: RemoteSegment,
    there: dict[FileKind, FileEntry],
) -> Iterator[Defect]:
    missing = [kind for kind in _NEEDED if kind not in there]
    stem = f"{told.start_offset:020d}-{segment_id}"
    if FileKind.LOG in missing:
        yield make_defect(
            "remote-segment-missing",
            os.path.join(directory.path, f"{stem}.log"),
            f"The upload of offsets {told.start_offset} to {told.end_offset} "
            f"({counted(told.size_bytes, 'byte')}) is finished, and its log is not there.",
            offset=told.start_offset,
            size_bytes=told.size_bytes,
        )
        return
    for kind in missing:
        yield make_defect(
            "remote-segment-missing",
            os.path.join(directory.path, f"{stem}.{kind.replace('-', '_')}"),
            "The upload of the segment is finished, and this file is not there.",
            offset=told.start_offset,
        )
    size = there[FileKind.LOG].size_bytes
    if size != told.size_bytes:
        detail = f"The log has {counted(size, 'byte')}, the metadata say {told.size_bytes}."
        yield make_defect("remote-size-wrong", there[FileKind.LOG].path, detail)


def _orphan(files: dict[FileKind, FileEntry], told: RemoteSegment | None) -> Defect:
    entry = files.get(FileKind.LOG) or next(iter(files.values()))
    if told is None:
        detail = "The metadata do not know the segment."
    else:
        what = _STATES.get(told.state, "its state changed")
        detail = f"The last that the metadata say is that {what}, at {utc_text(told.changed_ms)}."
    offset = parse_file_name(os.path.basename(entry.path)).offset
    return make_defect("remote-segment-orphan", entry.path, detail, offset=offset)
