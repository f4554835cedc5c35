"""Predicts what a broker's start makes of `__cluster_metadata-0`: the log, then the snapshots.

Follows `KafkaRaftLog`, `KRaftControlRecordStateMachine`, `RecordsSnapshotReader`, `MetadataLoader`
and `BatchFileReader` of Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats.constants import (
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MESSAGE_V0_LENGTH_MIN,
    RECORD_BATCH_HEADER,
)
from formats.file_names import FileKind
from formats.late_classes import dataclass
from kafkalog.io.paths.source import Source
from kafkalog.node.recovery.model import StartMode, StartRefusedError
from kafkalog.node.recovery.start import StartInProgress
from kafkalog.node.recovery.walk import CorruptRecordError, frames

if TYPE_CHECKING:
    from kafkalog.files.log_dir import FileEntry, PartitionDir
    from kafkalog.node.cluster_image import ClusterImage
    from kafkalog.node.recovery.model import LoadedLog

_OVERHEAD: Final = RECORD_BATCH_HEADER.part("base_offset", "batch_length")


@dataclass(frozen=True, slots=True)
class StartedMetadata:
    """What a start makes of the metadata log and its snapshots.

    Attributes:
        image: the cluster image that it leaves; None if it leaves none.
        refusal: Kafka's exception, its message and the finding about it; None if it goes well, or
            if the log itself cannot be loaded, which its own prediction says.
        detail: what it does that leaves the node with other metadata than its log has, in words
            that follow "the next start would"; None if it does nothing of the kind.
    """

    image: ClusterImage | None = None
    refusal: tuple[str, str, str | None] | None = None
    detail: str | None = None


def start_metadata(directory: PartitionDir, best: ClusterImage | None) -> StartedMetadata:
    """Return what a start makes of a metadata log.

    Args:
        directory: the partition.
        best: the image that all of its files give; taken where a start sees the same.

    Cost:
        Scans the log; where it is damaged, reads the image.
    """
    predicted = StartInProgress(directory, StartMode.FULL).end()
    log = predicted.loaded
    if log is None:
        return StartedMetadata()
    start = max(log.log_start_offset, log.segments[0].base_offset)
    snapshots = [one for one in directory.live(FileKind.KRAFT_SNAPSHOT) if _end_of(one) >= start]
    if not snapshots and start > 0:
        words = "there must be a snapshot at an offset larger than the current log start offset"
        words = f"Inconsistent snapshot state: {words} {start}"
        return StartedMetadata(refusal=("IllegalStateException", words, None))
    newest = to_offset = detail = None
    is_emptied = False
    if snapshots:
        from kafkalog.node.quorum.lineage import Lineage, Position, Standing

        newest = max(snapshots, key=Position.of)
        lineage = Lineage.of(start, log.leader_epochs, log.log_end_offset)
        standing, name = lineage.standing(Position.of(newest)), newest.name.name
        is_emptied = standing == Standing.BEYOND
        if is_emptied and lineage.spans:
            detail = f"drop the metadata log up to offset {lineage.end}: {name} is newer"
        elif standing == Standing.FOREIGN:
            detail = f"load {name}, of a history that the metadata log has given up, and apply "
            detail += f"nothing that the log has below offset {_end_of(newest)}"
        try:
            to_offset = _whole_part(newest)
        except StartRefusedError as error:
            # It loads the schemas of the log's records.
            from kafkalog.node.cluster_image.model import SNAPSHOT_EMPTY

            finding = None if newest.size_bytes else SNAPSHOT_EMPTY
            if isinstance(error, CorruptRecordError):
                finding = "batch-crc-mismatch"
            words = f"the newest snapshot is {name}: {error.message}"
            return StartedMetadata(refusal=(error.error, words, finding))
    is_whole = to_offset is None and not predicted.cuts and not is_emptied
    is_newest = best is not None and best.snapshot == (newest.name.name if newest else None)
    if best is not None and best.is_whole and is_newest and is_whole:
        image = best
    else:
        image = _read_image(directory, newest, to_offset, None if is_emptied else log)
    # The one that formatting writes may hold voters only: the levels are in a file of their own.
    if newest is not None and _end_of(newest) and image.metadata_version is None:
        words = f"Unknown metadata version for FeaturesImage: {newest.name.name} is not whole"
        return StartedMetadata(refusal=("IllegalStateException", words, None))
    return StartedMetadata(image, detail=detail)


def _read_image(
    directory: PartitionDir,
    snapshot: FileEntry | None,
    to_offset: int | None,
    log: LoadedLog | None,
) -> ClusterImage:
    """Read the image that a start leaves.

    Args:
        directory: the partition.
        snapshot: its newest snapshot, or None.
        to_offset: the offset up to which that is read.
        log: what the start leaves of the log; None if it empties it.
    """
    from kafkalog.node.cluster_image import ImageReader  # with the schemas of its records

    reader = ImageReader(directory if log is None else _left_of(directory, log))
    if snapshot is not None:
        reader.begin_with(snapshot, to_offset)
        reader.image.defects.clear()  # what a start has judged to be whole is whole
    if log is not None and log.log_end_offset > reader.start:
        reader.advance(log.log_end_offset)
    return reader.image


def _left_of(directory: PartitionDir, log: LoadedLog) -> PartitionDir:
    """Return what a start leaves of a log, without indexes."""
    ends: dict[str | None, int] = {}
    for one in log.segments:
        ends[one.path] = max(ends.get(one.path, 0), one.start + one.size_bytes)
    files = [
        replace(one, size_bytes=ends[one.path], end=ends[one.path])
        for one in directory.files
        if one.path in ends
    ]
    return replace(directory, files=tuple(files))


def _end_of(snapshot: FileEntry) -> int:
    return snapshot.name.offset or 0


def _whole_part(snapshot: FileEntry) -> int | None:
    """Return the offset up to which batches of a torn snapshot are whole; None if all are.

    Raises:
        StartRefusedError: a start fails on it.
    """
    with Source(snapshot.path) as source:
        position, offset = 0, None
        for frame in frames(source, 0, source.size_bytes):
            if frame.magic not in range(3):
                words = f"Invalid magic found in record: {frame.magic}"
                raise CorruptRecordError("CorruptRecordException", words)
            frame.ensure_valid()
            if offset is None and not frame.batch.is_control:
                words = "First batch is not a control batch with at least one record"
                raise StartRefusedError("IllegalStateException", words)
            position, offset = frame.end_position, frame.next_offset
        rest = source.size_bytes - position
        if LOG_OVERHEAD <= rest <= HEADER_SIZE_UP_TO_MAGIC:  # `frames` ends before these
            _, length = _OVERHEAD.unpack(source.read_exactly(position, LOG_OVERHEAD))
            if length < MESSAGE_V0_LENGTH_MIN:
                words = f"Record size {length} is less than the minimum record overhead"
                raise CorruptRecordError("CorruptRecordException", words)
        if offset is None and 0 < rest < HEADER_SIZE_UP_TO_MAGIC:
            raise StartRefusedError("NullPointerException", "it is too short for a batch's header")
        if offset is None:
            raise StartRefusedError("NoSuchElementException", "it has no whole batch")
        return offset if rest else None


def bootstrap_refusal(bootstrap: FileEntry) -> tuple[str, str] | None:
    """Return Kafka's exception and its message for `bootstrap.checkpoint`; None if it can be read.

    Nobody compares its checksums.
    """
    with Source(bootstrap.path) as source:
        try:
            if any(not one.batch.is_control for one in frames(source, 0, source.size_bytes)):
                return None
        except StartRefusedError as error:
            return error.error, f"{bootstrap.path}: {error.message}"
    words = "No FeatureLevelRecord for metadata.version was found in"
    return "RuntimeException", f"{words} {bootstrap.path}"
