"""What the next start of a broker would make of a partition directory, without writing anything.

Follows `LogManager.loadLog`, `UnifiedLog.create` and `LogLoader` of Kafka 4.3.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats.constants import INT64_MAX
from kafkalog.checkpoints import read_offset_checkpoint
from kafkalog.errors import CorruptDataError, NotFoundError
from kafkalog.log_dir import CLUSTER_METADATA_TOPIC, open_partition
from kafkalog.names import DirectoryState, FileKind
from kafkalog.recovery.directory import LEADER_EPOCHS, PARTITION_METADATA, Directory, text_lines
from kafkalog.recovery.epochs import LeaderEpochs
from kafkalog.recovery.loader import Loader
from kafkalog.recovery.model import (
    CreateSegment,
    DeleteSegment,
    LoadedLog,
    LoadedSegment,
    PredictedStart,
    RebuildIndexes,
    RemoveFile,
    RenameFile,
    StartConfig,
    StartMode,
    StartRefusedError,
    Verdict,
    WriteFile,
)
from kafkalog.recovery.producer_replay import segments_between

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log_dir import PartitionDir
    from kafkalog.recovery.segment_state import SegmentState

_CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_LOG_STARTS = "log-start-offset-checkpoint"
CHECKPOINTS = (_RECOVERY_POINTS, _LOG_STARTS)
_UUID_TEXT_MAX = 24


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """How the broker comes to the log, and what of that was assumed."""

    mode: StartMode
    recovery_point: int
    log_start: int
    assumptions: tuple[str, ...]


def predict_start(
    partition: PartitionDir | str,
    mode: StartMode | None = None,
    *,
    recovery_point: int | None = None,
    log_start_checkpoint: int | None = None,
    config: StartConfig | None = None,
    tell: Callable[[str, bytes], None] | None = None,
) -> PredictedStart:
    """What a broker's next start would do with a partition directory. Nothing is written.

    Args:
        partition: the directory, or its path.
        mode: how the broker comes to it; None: as the log directory around it says.
        recovery_point: where an unclean start begins to scan; None: from the checkpoint.
        log_start_checkpoint: the log start offset; None: from the checkpoint.
        config: what the outcome depends on; None: Kafka's defaults.
        tell: called with name and bytes of each file the start would write, in the order of the
            actions that write them; nobody else keeps the bytes.

    Returns:
        The prediction; a log that cannot be loaded is a `Refusal` in it.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: the directory cannot be read.

    Cost:
        After a clean shutdown the end of the active segment and what the newest producer snapshot
        does not cover; else each byte from the recovery point on. Memory for the producers and the
        indexes of a few segments.
    """
    found = open_partition(partition) if isinstance(partition, str) else partition
    around = _circumstances(found, mode, recovery_point, log_start_checkpoint)
    wanted = config or _usual_config(found)
    directory = Directory(found, tell)
    refusal, loaded = None, None
    notes: list[str] = []
    assumptions = list(around.assumptions)
    try:
        loader = _load(directory, found, around, wanted)
        loaded = _loaded(loader)
        if found.state != DirectoryState.DELETE:
            notes = _notes(loader)
    except StartRefusedError as error:
        refusal = error.refusal()
    if PARTITION_METADATA not in directory:
        notes.append(
            f"{PARTITION_METADATA} is missing: a KRaft broker takes the partition for a stray"
        )
    if config is None and any(isinstance(action, RebuildIndexes) for action in directory.actions):
        assumptions.append("index.interval.bytes and segment.index.bytes are Kafka's defaults")
    return PredictedStart(
        found.path,
        around.mode,
        around.recovery_point,
        around.log_start,
        tuple(assumptions),
        tuple(notes),
        tuple(directory.actions),
        refusal,
        loaded,
    )


def _usual_config(partition: PartitionDir) -> StartConfig:
    """Kafka's defaults, with room for the largest index that is there."""
    kinds = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    sizes = [entry.size_bytes for kind in kinds for entry in partition.live(kind)]
    usual = StartConfig()
    return dataclasses.replace(usual, segment_index_bytes=max([usual.segment_index_bytes, *sizes]))


def start_line(predicted: PredictedStart) -> str:
    """One line for people: what the start comes to."""
    verdict = predicted.verdict
    if predicted.refusal is not None:
        refusal = predicted.refusal
        return f"refuse: {refusal.error}: {refusal.message}; {refusal.consequence}"
    if verdict == Verdict.TRUNCATE:
        return _truncation_line(predicted)
    if verdict == Verdict.REBUILD:
        return f"rebuild the indexes of {_counted(len(set(predicted.rebuilt)), 'segment')}"
    if verdict == Verdict.TIDY:
        return f"tidy up: {_tidying_words(predicted)}"
    return "nothing"


def _tidying_words(predicted: PredictedStart) -> str:
    actions = predicted.tidying
    removed = sum(isinstance(action, RemoveFile) for action in actions)
    renamed = sum(isinstance(action, RenameFile) for action in actions)
    words = []
    if removed:
        words.append(f"remove {_counted(removed, 'file')}")
    if renamed:
        words.append(f"complete a swap of {_counted(renamed, 'file')}")
    words += sorted({f"write {action.name}" for action in actions if isinstance(action, WriteFile)})
    words += ["create an empty segment" for action in actions if isinstance(action, CreateSegment)]
    return ", ".join(words)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _truncation_line(predicted: PredictedStart) -> str:
    assert predicted.loaded, "a log that is cut is loaded"
    end = predicted.loaded.log_end_offset
    segments = sum(isinstance(cut, DeleteSegment) for cut in predicted.cuts)
    size = _counted(predicted.bytes_lost, "byte")
    if segments:
        size += f", with {_counted(segments, 'whole segment')}"
    return f"truncate to offset {end}, losing {_counted(predicted.records_lost, 'record')} ({size})"


def _circumstances(
    partition: PartitionDir,
    mode: StartMode | None,
    recovery_point: int | None,
    log_start: int | None,
) -> _Circumstances:
    """What the broker would read around the partition, with what is given in its place."""
    assumptions = []
    parent = os.path.dirname(os.path.abspath(partition.path))
    if partition.topic == CLUSTER_METADATA_TOPIC:
        return _Circumstances(StartMode.FULL, 0, 0, ())  # KRaft trusts no mark and no checkpoint
    if log_start is None:
        log_start = _checkpointed(parent, _LOG_STARTS, partition) or 0
    if mode is None:
        is_clean = os.path.lexists(os.path.join(parent, _CLEAN_SHUTDOWN))
        mode = StartMode.CLEAN if is_clean else StartMode.UNCLEAN
    if recovery_point is None and mode != StartMode.FULL:
        recovery_point = _checkpointed(parent, _RECOVERY_POINTS, partition)
        if recovery_point is None and mode == StartMode.UNCLEAN:
            assumptions.append(
                f"no entry in {_RECOVERY_POINTS} beside the partition: recovery point 0"
            )
    return _Circumstances(mode, recovery_point or 0, log_start, tuple(assumptions))


def _checkpointed(log_dir: str, name: str, partition: PartitionDir) -> int | None:
    """The partition's entry in a checkpoint; None without one, or where the file is malformed."""
    try:
        entries = read_offset_checkpoint(os.path.join(log_dir, name))
    except (NotFoundError, CorruptDataError):
        return None
    for entry in reversed(entries):
        if (entry.topic, entry.partition) == (partition.topic, partition.partition):
            return entry.offset
    return None


def _load(
    directory: Directory, partition: PartitionDir, around: _Circumstances, config: StartConfig
) -> Loader:
    epochs = LeaderEpochs(directory)
    loader = Loader(
        directory,
        epochs,
        config,
        now_ms=time.time_ns() // 1_000_000 if config.now_ms is None else config.now_ms,
        is_clean=around.mode == StartMode.CLEAN,
        recovery_point=around.recovery_point,
        log_start_checkpoint=around.log_start,
    )
    for _ in loader.load(is_deleted=partition.state == DirectoryState.DELETE):
        pass
    _check_partition_metadata(directory)
    return loader


def _loaded(loader: Loader) -> LoadedLog:
    producers = loader.producers
    start = loader.log_start_offset
    producers.drop_replicated(start)  # a start knows no high watermark but the log's start
    return LoadedLog(
        log_start_offset=start,
        log_end_offset=loader.log_end_offset,
        recovery_point=max(loader.recovery_point, start),
        first_unstable_offset=_first_unstable_offset(loader),
        segments=tuple(_segment(loader.segments[base]) for base in sorted(loader.segments)),
        producers=tuple(producers.states[who] for who in sorted(producers.states)),
        leader_epochs=loader.epochs.entries,
        snapshots=tuple(sorted(producers.snapshots)),
    )


def _first_unstable_offset(loader: Loader) -> int | None:
    """Base offset of the batch that the earliest undecided transaction begins with.

    The transaction may have begun before the log's start, or its batch may be gone: then that of
    the next batch, as `UnifiedLog.maybeIncrementFirstUnstableOffset` reads it from the log.
    """
    offset = loader.producers.first_unstable_offset
    if offset is None:
        return None
    offset = max(offset, loader.log_start_offset)
    if loader.log_end_offset <= offset or offset < min(loader.segments):
        return offset
    for segment in segments_between(loader.segments, offset, INT64_MAX):
        found = segment.find(offset)
        if found is not None:
            return found.base_offset
    return loader.log_end_offset


def _segment(segment: SegmentState) -> LoadedSegment:
    return LoadedSegment(
        segment.base_offset,
        segment.log.path,
        segment.log.start,
        segment.size_bytes,
        segment.offset_index.entry_count,
        segment.time_index.entry_count,
        segment.aborted_count,
        segment.max_timestamp[0],
    )


def _notes(loader: Loader) -> list[str]:
    """What the start leaves as it is and does not tell."""
    notes = []
    active = loader.segments[max(loader.segments)]
    if active.size_bytes and loader.log_end_offset == active.base_offset:
        notes.append(
            f"no batch is found where the index of segment {active.base_offset} ends: the log end "
            "offset falls back to the base offset, and offsets in use would be given again"
        )
    elif active.size_bytes:
        left = active.size_bytes - active.end_of_batches
        if left:
            notes.append(
                f"the last {left} bytes of segment {active.base_offset} are no batch and stay: the "
                "next append goes behind them"
            )
    if active.has_epochs and not loader.epochs.entries:
        notes.append(f"{LEADER_EPOCHS} is empty, and a clean start does not fill it from the log")
    return notes


def _check_partition_metadata(directory: Directory) -> None:
    """Raise `StartRefusedError` where Kafka cannot read partition.metadata."""
    content = directory.contents.get(PARTITION_METADATA)
    if content is None or content.path is None:
        return
    try:
        lines = text_lines(content.path)
    except UnicodeDecodeError as error:
        raise _metadata_error("it is not UTF-8") from error
    version = _metadata_value(lines, 0)
    if not re.fullmatch(r"\+?\d{1,9}", version):
        raise _metadata_error(f"version {version!r}")
    topic_id = _metadata_value(lines, 1)
    try:
        if not re.fullmatch(r"[A-Za-z0-9_-]*={0,2}", topic_id) or len(topic_id) > _UUID_TEXT_MAX:
            raise binascii.Error
        decoded = base64.urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4))
    except binascii.Error:
        decoded = b""
    if len(decoded) != 16:
        raise StartRefusedError(
            "IllegalArgumentException", f"{topic_id[:_UUID_TEXT_MAX]!r} is no topic id"
        )
    if not any(decoded):
        raise _metadata_error("the topic id is zero")


def _metadata_value(lines: list[str], number: int) -> str:
    """What a line says behind its colon."""
    if number >= len(lines):
        raise StartRefusedError(
            "NullPointerException", f"{PARTITION_METADATA} ends before line {number + 1}"
        )
    fields = re.split(r":\s+", lines[number])
    if len(fields) != 2 or not fields[1]:
        raise _metadata_error(f"line {number + 1} is malformed")
    return fields[1]


def _metadata_error(detail: str) -> StartRefusedError:
    return StartRefusedError(
        "KafkaStorageException",
        f"Error while reading partition metadata file {PARTITION_METADATA}: {detail}",
        is_storage=True,
    )
