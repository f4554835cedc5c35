"""Performs a predicted start on a copy of a partition, and closes it as a broker does."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import TYPE_CHECKING, Any

from kafkalog.errors import CorruptDataError
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.node.recovery import (
    CreateSegment,
    DeleteSegment,
    PredictedStart,
    RebuildIndexes,
    RemoveFile,
    RenameFile,
    SplitSegment,
    StartConfig,
    StartMode,
    TruncateLog,
    WriteFile,
    predict_start,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.model import ProducerState
    from kafkalog.node.recovery import Action

ENTRY_SIZES = {".index": 8, ".timeindex": 12}
SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")


def predict_and_perform(
    partition: Path, mode: StartMode, config: StartConfig, *, trims: bool = True, **options: Any
) -> PredictedStart:
    """Predict the start of a copy, and perform it with the bytes that it gives.

    Args:
        trims: whether the close cuts all indexes to whole entries, as it did up to Kafka 4.3; later
            it does so for the active segment only.
    """
    told: deque[tuple[str, bytes]] = deque()
    predicted = predict_start(
        str(partition), mode, config=config, tell=lambda *file: told.append(file), **options
    )
    for action in predicted.actions:
        perform(partition, action, told)
    assert not told, "each file that is told of belongs to an action"
    if predicted.loaded is not None:
        close(partition, "" if trims else name_of(predicted.loaded.segments[-1].base_offset, ""))
    return predicted


def perform(partition: Path, action: Action, told: deque[tuple[str, bytes]]) -> None:
    match action:
        case RemoveFile(name):
            (partition / name).unlink()
        case RenameFile(name, new_name):
            (partition / name).replace(partition / new_name)
        case WriteFile(name, size_bytes):
            told_name, data = told.popleft()
            assert (told_name, len(data)) == (name, size_bytes)
            (partition / name).write_bytes(data)
        case TruncateLog(base_offset, position, _, lost_bytes):
            path = partition / name_of(base_offset)
            assert path.stat().st_size == position + lost_bytes
            with path.open("r+b") as file:
                file.truncate(position)
        case RebuildIndexes(base_offset):
            written: set[str] = set()
            mine = {name_of(base_offset, suffix) for suffix in SEGMENT_FILES[1:]}
            while told and told[0][0] in mine - written:
                name, data = told.popleft()
                (partition / name).write_bytes(data)
                written.add(name)
            assert len(written) >= 2
        case DeleteSegment(base_offset):
            remove_segment(partition, base_offset)
        case CreateSegment(base_offset):
            for suffix in SEGMENT_FILES[:3]:
                (partition / name_of(base_offset, suffix)).write_bytes(b"")
        case SplitSegment(base_offset, parts):
            data = (partition / name_of(base_offset)).read_bytes()
            remove_segment(partition, base_offset)
            for part in parts:
                path = partition / name_of(part.base_offset)
                path.write_bytes(data[part.start : part.end])
            assert [p.start for p in parts[1:]] == [p.end for p in parts[:-1]]
        case _:
            raise AssertionError(action)


def name_of(base_offset: int, suffix: str = ".log") -> str:
    """Return the name as Java writes it: 20 digits after the sign, if there is one."""
    sign = "-" if base_offset < 0 else ""
    return f"{sign}{abs(base_offset):020}{suffix}"


def remove_segment(partition: Path, base_offset: int) -> None:
    for suffix in SEGMENT_FILES:
        (partition / name_of(base_offset, suffix)).unlink(missing_ok=True)


def close(partition: Path, prefix: str) -> None:
    """Do what the shutdown after the start does: cut indexes of a name to whole entries."""
    for path in partition.glob(f"{prefix}*"):
        size = ENTRY_SIZES.get(path.suffix)
        if size and path.stat().st_size % size:
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // size * size)


def files(partition: Path) -> dict[str, list[Any]]:
    """Map name to size and digest; a producer snapshot has no digest, since Java orders it."""
    return {
        path.name: [path.stat().st_size, digest(path)]
        for path in sorted(partition.iterdir())
        if path.is_file()
    }


def digest(path: Path) -> str:
    if path.suffix == ".snapshot":
        return "-"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def producer(state: ProducerState) -> dict[str, Any]:
    """Return a producer in the form of the recorded facts."""
    return {
        "producerId": state.producer_id,
        "epoch": state.producer_epoch,
        "lastSequence": state.last_sequence,
        "lastDataOffset": state.last_offset,
        "lastTimestamp": state.last_timestamp,
        "coordinatorEpoch": state.coordinator_epoch,
        "currentTxnFirstOffset": state.current_txn_first_offset,
    }


def snapshots(partition: Path) -> dict[str, Any]:
    """Return the producer snapshots by name, with the producers by id, as Kafka reads them.

    For Kafka a negative last offset, which damage can cause, means that the producer has no batch.
    A corrupt snapshot, which stays if a newer one is sound, is compared by its bytes.
    """
    found: dict[str, Any] = {}
    for path in sorted(partition.glob("*.snapshot")):
        try:
            states = [producer(state) for state in read_producer_snapshot(str(path))]
        except CorruptDataError:
            found[path.name] = path.read_bytes()
            continue
        for fields in states:
            if fields["lastDataOffset"] < 0:
                fields |= {"lastDataOffset": -1, "lastSequence": -1}
        found[path.name] = sorted(states, key=lambda fields: fields["producerId"])
    return found


def loaded_facts(predicted: PredictedStart) -> dict[str, Any]:
    """Return the loaded log in the form of the recorded facts."""
    log = predicted.loaded
    assert log is not None
    return {
        "logStartOffset": log.log_start_offset,
        "logEndOffset": log.log_end_offset,
        "firstUnstableOffset": log.first_unstable_offset,
        "recoveryPoint": log.recovery_point,
        "producers": [producer(state) for state in log.producers],
        "leaderEpochs": [[entry.leader_epoch, entry.start_offset] for entry in log.leader_epochs],
        "snapshots": list(log.snapshots),
        "segments": [
            {
                "base": segment.base_offset,
                "size": segment.size_bytes,
                "indexEntries": segment.offset_index_entries,
                "timeIndexEntries": segment.time_index_entries,
                "txnIndexEntries": segment.transaction_index_entries,
                "maxTimestampSoFar": segment.max_timestamp,
            }
            for segment in log.segments
        ],
    }
