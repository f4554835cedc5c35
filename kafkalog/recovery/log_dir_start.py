"""Predicts a broker's next start on a whole log directory, in a form for reports.

Follows `LogManager.loadLogs`, `LogManager.loadLog`, `LogManager.isStrayKraftReplica` and
`KafkaRaftServer.initializeLogDirs` of Kafka 4.3.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import DirectoryState, FileKind
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.paths import file_system
from kafkalog.recovery.directory import checkpoint_lines
from kafkalog.recovery.model import (
    Consequence,
    PredictedStart,
    Refusal,
    StartConfig,
    StartMode,
    StartRefusedError,
    Verdict,
    refusal_line,
    start_line,
    stray_line,
)
from kafkalog.recovery.start import CHECKPOINTS, NO_TOPIC_ID, predict_start
from kafkalog.text_files import read_meta_properties, read_topic_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.cluster_image import ClusterImage
    from kafkalog.log_dir import LogDirListing, PartitionDir


_LOADED: Final = (DirectoryState.LIVE, DirectoryState.FUTURE)


@dataclass(frozen=True, slots=True)
class Hosting:
    """The partition assignments of a cluster, as one of its brokers sees them.

    Attributes:
        node_id: the broker.
        image: the cluster metadata.
    """

    node_id: int
    image: ClusterImage

    def stray_reason(self, partition: PartitionDir) -> str | None:
        """Return why the start makes the directory a stray; None if it does not.

        As in Kafka, the topic id counts and not the name. Also None if the metadata could not be
        read to the end: then anything missing from it proves nothing.
        """
        is_judged = partition.state in _LOADED and partition.topic != CLUSTER_METADATA
        if not is_judged or not self.image.is_whole:
            return None
        path = os.path.join(partition.path, file_names.PARTITION_METADATA)
        if not file_system.exists(path):
            return f"it has no {file_names.PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(path)
        except DataError:
            return None  # the log cannot be loaded anyway
        if topic_id in self.image.removed:
            return f"the topic with id {topic_id} was deleted"
        if topic_id not in self.image.names:
            return f"the cluster's metadata has no topic with id {topic_id}"
        known = self.image.partition(topic_id, partition.partition or 0)
        if known is None:
            return f"the topic has no partition {partition.partition} in the cluster's metadata"
        if self.node_id not in known.replicas:
            nodes = ", ".join(map(str, known.replicas)) or "no node"
            return f"its replicas are on {nodes}, not on node {self.node_id}"
        return None


def read_hosting(
    log_dir: LogDirListing, metadata_dir: LogDirListing | None = None
) -> Hosting | None:
    """Read the assignments, from `meta.properties` of a log directory and the cluster metadata.

    Args:
        log_dir: the directory.
        metadata_dir: the log directory that holds `__cluster_metadata-0`; None for the same one.

    Returns:
        None if one of them is missing or incomplete, as in a directory from a ZooKeeper cluster.

    Cost:
        That of `read_cluster_image`.
    """
    entry = log_dir.file(file_names.META_PROPERTIES)
    if entry is None or entry.error is not None:
        return None
    try:
        node_id = read_meta_properties(entry.path).node_id
    except DataError:
        return None
    if node_id is None:
        return None
    from kafkalog.cluster_image import read_cluster_image  # with the schemas of its records

    image = read_cluster_image(metadata_dir or log_dir)
    return None if image is None else Hosting(node_id, image)


@dataclass(frozen=True, slots=True)
class PredictedLogDirStart:
    """What the next start would do to a log directory.

    Attributes:
        path: the directory.
        refusals: errors that stop the start and belong to no partition.
        partitions: the predictions for its partition directories, by name.
    """

    path: str
    refusals: tuple[Refusal, ...]
    partitions: tuple[PredictedStart, ...]

    @property
    def consequence(self) -> Consequence | None:
        """The worst consequence for the directory or the broker; None if the start succeeds.

        With a single log directory the broker stops in either case.
        """
        inner = (start.refusal for start in self.partitions if start.refusal is not None)
        found = {refusal.consequence for refusal in (*self.refusals, *inner)}
        if Consequence.BROKER_FAILS in found:
            return Consequence.BROKER_FAILS
        return Consequence.LOG_DIR_OFFLINE if found else None


def predict_log_dir_start(
    log_dir: LogDirListing, mode: StartMode | None = None, *, config: StartConfig | None = None
) -> PredictedLogDirStart:
    """Predict what a broker's next start would do to a log directory. Nothing is written.

    Args:
        log_dir: the directory.
        mode: how the broker starts; None derives it from the clean shutdown mark.
        config: the configs that the outcome depends on; None for Kafka's defaults.

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


def log_dir_refusals(log_dir: LogDirListing) -> tuple[Refusal, ...]:
    """Return the reasons, apart from partitions, why a broker would not start on a directory."""
    return (*_identity_refusals(log_dir), *_checkpoint_refusals(log_dir), *_name_refusals(log_dir))


def missing_identity(log_dir: LogDirListing) -> str | None:
    """Describe what `meta.properties` lacks for a start; None if nothing.

    Also None for partitions without other files next to them, which are not a log directory, and
    for a directory from a ZooKeeper cluster, which names only its broker.
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
    except DataError:
        return None  # the finding about the file reports it
    return f"{file_names.META_PROPERTIES} names no node" if found.node_id is None else None


def _identity_refusals(log_dir: LogDirListing) -> Iterator[Refusal]:
    missing = missing_identity(log_dir)
    if missing is not None:
        yield Refusal("RuntimeException", missing, Consequence.BROKER_FAILS)


def _checkpoint_refusals(log_dir: LogDirListing) -> Iterator[Refusal]:
    """Yield malformed checkpoints, which are I/O errors; a wrong number in one is only logged."""
    for name in CHECKPOINTS:
        entry = log_dir.file(name)
        if entry is None or entry.error is not None:
            continue
        path = os.path.join(log_dir.path, name)
        try:
            # Only its errors count: all lines are read, none is kept.
            deque(checkpoint_lines(path, name, 3), 0)
        except StartRefusedError as error:
            # LogManager.loadLogs catches exceptions and goes on without entries; an I/O error has
            # marked the directory offline by then, and an Error is not caught.
            if error.is_storage or error.error == "OutOfMemoryError":
                yield error.refusal()


def _name_refusals(log_dir: LogDirListing) -> Iterator[Refusal]:
    for name in log_dir.others:
        # The one directory that LogManager.loadLogs leaves out by its name.
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


@dataclass(frozen=True, slots=True)
class NextStart:
    """A short form of one prediction.

    Attributes:
        path: the partition directory or the log directory.
        topic: the topic; None for a log directory.
        partition: its number; None for a log directory, or if the name has none.
        mode: how the broker starts.
        verdict: the outcome of the start.
        truncate_to: the log end offset after the start if the log is cut, else None.
        records_lost: records that are cut off, according to the headers of their batches.
        bytes_lost: bytes of logs that are cut off.
        rebuilt_segments: base offsets of the segments with an index that changes.
        error: simple name of Kafka's exception, None if the start succeeds.
        consequence: how far a refusal reaches, None if the start succeeds.
        detail: everything above in one line.
        assumptions: what could not be read and was assumed, as phrases.
        notes: what the start would not notice, but an operator should know.
    """

    path: str
    topic: str | None
    partition: int | None
    mode: StartMode
    verdict: Verdict
    truncate_to: int | None
    records_lost: int
    bytes_lost: int
    rebuilt_segments: tuple[int, ...]
    error: str | None
    consequence: Consequence | None
    detail: str
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_remarkable(self) -> bool:
        """Whether there is anything to report."""
        return self.verdict != Verdict.NOTHING or bool(self.notes)

    @classmethod
    def of_partition(cls, partition: PartitionDir, predicted: PredictedStart) -> NextStart:
        """Summarize the prediction for a partition."""
        is_cut = predicted.verdict == Verdict.TRUNCATE and predicted.loaded is not None
        refusal = predicted.refusal
        return cls(
            path=partition.path,
            topic=partition.topic,
            partition=partition.partition,
            mode=predicted.mode,
            verdict=predicted.verdict,
            truncate_to=predicted.loaded.log_end_offset if is_cut and predicted.loaded else None,
            records_lost=predicted.records_lost,
            bytes_lost=predicted.bytes_lost,
            rebuilt_segments=tuple(sorted(set(predicted.rebuilt))),
            error=refusal.error if refusal else None,
            consequence=refusal.consequence if refusal else None,
            detail=start_line(predicted),
            assumptions=predicted.assumptions,
            notes=predicted.notes,
        )

    @classmethod
    def of_stray(cls, partition: PartitionDir, mode: StartMode, reason: str) -> NextStart:
        """Summarize the start of a partition that is loaded unchanged and then becomes a stray."""
        return cls(
            path=partition.path,
            topic=partition.topic,
            partition=partition.partition,
            mode=mode,
            verdict=Verdict.STRAY,
            truncate_to=None,
            records_lost=0,
            bytes_lost=0,
            rebuilt_segments=(),
            error=None,
            consequence=None,
            detail=stray_line(reason),
            assumptions=(),
            notes=(),
        )

    def as_stray(self, reason: str) -> NextStart:
        """Return the same prediction for a directory that becomes a stray once it is loaded."""
        if self.verdict in (Verdict.REFUSE, Verdict.STRAY):
            return self
        notes = tuple(note for note in self.notes if note != NO_TOPIC_ID)
        detail = stray_line(reason, self.detail)
        return replace(self, verdict=Verdict.STRAY, detail=detail, notes=notes)

    @classmethod
    def of_log_dir(cls, log_dir: LogDirListing, mode: StartMode, refusal: Refusal) -> NextStart:
        """Summarize the start of a log directory that is refused."""
        return cls(
            path=log_dir.path,
            topic=None,
            partition=None,
            mode=mode,
            verdict=Verdict.REFUSE,
            truncate_to=None,
            records_lost=0,
            bytes_lost=0,
            rebuilt_segments=(),
            error=refusal.error,
            consequence=refusal.consequence,
            detail=refusal_line(refusal),
            assumptions=(),
            notes=(),
        )
