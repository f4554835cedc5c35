"""What the next start of a broker would make of a whole log directory.

Follows `KafkaRaftServer.initializeLogDirs` and `LogManager.loadLogs` of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.errors import KafkaLogError
from kafkalog.metadata_files import read_meta_properties
from kafkalog.names import DirectoryState, FileKind
from kafkalog.recovery.checkpoint_reading import checkpoint_lines
from kafkalog.recovery.hosting import read_hosting
from kafkalog.recovery.model import (
    Consequence,
    PredictedStart,
    Refusal,
    StartConfig,
    StartMode,
    StartRefusedError,
)
from kafkalog.recovery.start import CHECKPOINTS, predict_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.log_dir import LogDir


@dataclass(frozen=True, slots=True)
class PredictedLogDirStart:
    """What the next start would make of a log directory.

    Attributes:
        path: the directory.
        refusals: what stops the start and belongs to no partition.
        partitions: the predictions for its partition directories, by name.
    """

    path: str
    refusals: tuple[Refusal, ...]
    partitions: tuple[PredictedStart, ...]

    @property
    def consequence(self) -> Consequence | None:
        """What becomes of the directory or the broker, the gravest; None: the start succeeds.

        With a single log directory the broker stops in either case.
        """
        inner = (start.refusal for start in self.partitions if start.refusal is not None)
        found = {refusal.consequence for refusal in (*self.refusals, *inner)}
        if Consequence.BROKER_FAILS in found:
            return Consequence.BROKER_FAILS
        return Consequence.LOG_DIR_OFFLINE if found else None


def predict_log_dir_start(
    log_dir: LogDir, mode: StartMode | None = None, *, config: StartConfig | None = None
) -> PredictedLogDirStart:
    """What a broker's next start would do with a log directory. Nothing is written.

    Args:
        log_dir: the directory.
        mode: how the broker comes to it; None: by its mark of a clean shutdown.
        config: what the outcome depends on; None: Kafka's defaults.

    Raises:
        UnreadableError: a partition directory cannot be read.

    Cost:
        That of `predict_start` for each partition.
    """
    hosting = read_hosting(log_dir)
    starts = [
        predict_start(partition, mode, config=config, hosting=hosting)
        for partition in log_dir.partitions
    ]
    return PredictedLogDirStart(log_dir.path, log_dir_refusals(log_dir), tuple(starts))


def log_dir_refusals(log_dir: LogDir) -> tuple[Refusal, ...]:
    """What stops a start on a log directory and belongs to no partition."""
    return (*_identity_refusals(log_dir), *_checkpoint_refusals(log_dir), *_name_refusals(log_dir))


def missing_identity(log_dir: LogDir) -> str | None:
    """What `meta.properties` lacks for a start, in words; None if nothing.

    Also None for partitions without any file beside them, which are no log directory, and for a
    directory of ZooKeeper's times that names its broker alone.
    """
    entry = log_dir.file(file_names.META_PROPERTIES)
    if entry is None:
        is_broker_s = any(entry.name.kind != FileKind.UNKNOWN for entry in log_dir.files)
        return (
            f"{file_names.META_PROPERTIES} is missing"
            if is_broker_s and log_dir.partitions
            else None
        )
    try:
        found = read_meta_properties(entry.path)
    except KafkaLogError:
        return None  # the finding about the file tells
    return f"{file_names.META_PROPERTIES} names no node" if found.node_id is None else None


def _identity_refusals(log_dir: LogDir) -> Iterator[Refusal]:
    missing = missing_identity(log_dir)
    if missing is not None:
        yield Refusal("RuntimeException", missing, Consequence.BROKER_FAILS)


def _checkpoint_refusals(log_dir: LogDir) -> Iterator[Refusal]:
    """A malformed checkpoint is an I/O error, but a wrong number in it is only logged."""
    for name in CHECKPOINTS:
        entry = log_dir.file(name)
        if entry is None or entry.error is not None:
            continue
        path = os.path.join(log_dir.path, name)
        try:
            deque(checkpoint_lines(path, name, 3), 0)
        except StartRefusedError as error:
            if error.is_storage or error.error == "OutOfMemoryError":
                yield error.refusal()


def _name_refusals(log_dir: LogDir) -> Iterator[Refusal]:
    for name in log_dir.others:
        if name != file_names.REMOTE_INDEX_CACHE:
            message = f"Found directory {name!r}, which is not in the form of topic-partition"
            yield Refusal("KafkaException", message, Consequence.BROKER_FAILS)
    seen: set[tuple[str, int | None]] = set()
    for partition in log_dir.partitions:
        if partition.state == DirectoryState.LIVE:
            key = (partition.topic, partition.partition)
            if key in seen:
                message = f"Duplicate log directories found for {partition.topic}-{key[1]}"
                yield Refusal("IllegalStateException", message, Consequence.BROKER_FAILS)
            seen.add(key)
