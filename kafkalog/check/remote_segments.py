"""Whether remote storage holds what the topic `__remote_log_metadata` says, and nothing else.

Follows `RemoteLogMetadataCache` and `RemoteLogSegmentState` of Kafka 4.3.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from formats.file_names import FileKind, parse_file_name
from kafkalog.batches.reader import read_records
from kafkalog.batches.selection import Selection
from kafkalog.check.batches import copies_check
from kafkalog.defects import make_defect
from kafkalog.errors import KafkaLogError
from kafkalog.model import Defect
from kafkalog.payloads.internal_topics import PayloadKind, decode, payload_kind
from kafkalog.targets import best_replicas
from kafkalog.wording import counted, utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.listing import FileEntry
    from kafkalog.log_dir import PartitionDir

_COPY_STARTED, _COPY_FINISHED, _DELETE_STARTED, _DELETE_FINISHED = range(4)
_STATES: Final = {
    _COPY_STARTED: "its upload was begun",
    _DELETE_STARTED: "its deletion was begun",
    _DELETE_FINISHED: "it was deleted",
}
_NEEDED: Final = (
    FileKind.LOG,
    FileKind.PRODUCER_SNAPSHOT,
    FileKind.LEADER_EPOCH_CHECKPOINT,
)
"""Files that an upload always has. Other checks miss indexes, if the log needs them."""

_Place = tuple[str, int]
"""A topic id and the number of a partition."""


@dataclass
class _Metadata:
    """What the metadata say of a remote segment: its first record, and its last state."""

    start_offset: int
    end_offset: int
    size_bytes: int
    state: int
    changed_ms: int


@dataclass
class _Uploaded:
    """The files of a segment in a tier, by kind."""

    base_offset: int
    files: dict[FileKind, FileEntry] = field(default_factory=dict)


@copies_check
def tiers_hold_what_the_metadata_say(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """Each segment whose upload is finished is in the tier, whole, and no other is."""
    directories = [one.directory for found in log_dirs for one in found.partitions]
    remote = [one for one in directories if one.is_remote]
    metadata = [
        one for one in directories if payload_kind(one.topic) is PayloadKind.REMOTE_LOG_METADATA
    ]
    known = _segments(best_replicas(metadata)) if remote and metadata else None
    for directory in remote if known is not None else ():
        name = directory.name
        assert name is not None, "a directory is remote by its name"
        assert known is not None
        yield from _compared(directory, known.get((str(name.uid), name.partition), {}))


def _segments(metadata: Iterable[PartitionDir]) -> dict[_Place, dict[str, _Metadata]] | None:
    """Return the segments of each partition by their ids; None if the metadata are damaged."""
    known: dict[_Place, dict[str, _Metadata]] = {}
    for partition in metadata:
        try:
            for record in read_records(partition, Selection(data=True)):
                if isinstance(record, Defect):
                    return None
                found = decode(PayloadKind.REMOTE_LOG_METADATA, record.key, record.value)
                if found.value is not None:
                    _note(known, found.value["data"])
        except KafkaLogError:
            return None
    return known


def _note(known: dict[_Place, dict[str, _Metadata]], fields: dict[str, Any]) -> None:
    """Take a record about a segment; those about whole partitions are about their deletion."""
    if "remoteLogSegmentId" not in fields:
        return
    partition = fields["remoteLogSegmentId"]["topicIdPartition"]
    segment_id = fields["remoteLogSegmentId"]["id"]
    segments = known.setdefault((partition["id"], partition["partition"]), {})
    state, changed_ms = fields["remoteLogSegmentState"], fields["eventTimestampMs"]
    if "startOffset" in fields:
        segments[segment_id] = _Metadata(
            start_offset=fields["startOffset"],
            end_offset=fields["endOffset"],
            size_bytes=fields["segmentSizeInBytes"],
            state=state,
            changed_ms=changed_ms,
        )
    elif segment_id in segments:
        segments[segment_id].state = state
        segments[segment_id].changed_ms = changed_ms


def _compared(directory: PartitionDir, known: dict[str, _Metadata]) -> Iterator[Defect]:
    uploaded: dict[str, _Uploaded] = {}
    for entry in directory.files:
        name = parse_file_name(os.path.basename(entry.path))
        if name.segment_id is not None and name.offset is not None:
            found = uploaded.setdefault(name.segment_id, _Uploaded(name.offset))
            found.files[name.kind] = entry
    for segment_id, told in sorted(known.items(), key=lambda one: (one[1].start_offset, one[0])):
        if told.state == _COPY_FINISHED:
            there = uploaded.get(segment_id, _Uploaded(told.start_offset)).files
            yield from _finished(directory, segment_id, told, there)
    for segment_id, found in uploaded.items():
        state = known[segment_id].state if segment_id in known else None
        if state != _COPY_FINISHED:
            yield _orphan(found, known.get(segment_id))


def _finished(
    directory: PartitionDir,
    segment_id: str,
    told: _Metadata,
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


def _orphan(found: _Uploaded, told: _Metadata | None) -> Defect:
    entry = found.files.get(FileKind.LOG) or next(iter(found.files.values()))
    if told is None:
        detail = "The metadata do not know the segment."
    else:
        what = _STATES.get(told.state, "its state changed")
        detail = f"The last that the metadata say is that {what}, at {utc_text(told.changed_ms)}."
    return make_defect("remote-segment-orphan", entry.path, detail, offset=found.base_offset)
