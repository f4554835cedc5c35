"""Predictions of a broker's next start in a short form, for reports."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.io.paths import file_system
from kafkalog.node.recovery.model import (
    Consequence,
    PredictedStart,
    Refusal,
    StartMode,
    Verdict,
    refusal_line,
    start_line,
    stray_line,
)
from kafkalog.node.recovery.node_start import NodeStart, absences_line
from kafkalog.node.recovery.start import NO_TOPIC_ID, start_mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.files.log_dir import LogDirListing, PartitionDir


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
        lost_records: records that are cut off, according to the headers of their batches.
        hidden_records: records behind a log end that is too early, by these headers.
        lost_bytes: bytes of logs that are cut off.
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
    lost_records: int
    hidden_records: int
    lost_bytes: int
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
            lost_records=predicted.lost_records,
            hidden_records=predicted.hidden_records,
            lost_bytes=predicted.lost_bytes,
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
        place = partition.path, partition.topic, partition.partition
        return cls._plain(*place, mode, Verdict.STRAY, stray_line(reason))

    @classmethod
    def of_promoted(cls, node: NodeStart) -> Iterator[NextStart]:
        """Summarize the starts of future copies that take the places of their partitions."""
        for one in node.promoted:
            place, name = (one.path, one.topic, one.partition), f"{one.topic}-{one.partition}"
            detail = f"rename the directory to {name}: the partition is assigned here"
            mode = start_mode(os.path.dirname(file_system.absolute(one.path)))
            yield cls._plain(*place, mode, Verdict.TIDY, detail)

    def as_stray(self, reason: str) -> NextStart:
        """Return the same prediction for a directory that becomes a stray once it is loaded."""
        if self.verdict in (Verdict.REFUSE, Verdict.STRAY):
            return self
        notes = tuple(note for note in self.notes if note != NO_TOPIC_ID)
        detail = stray_line(reason, self.detail)
        return replace(self, verdict=Verdict.STRAY, detail=detail, notes=notes)

    def followed_by(self, later: NextStart) -> NextStart:
        """Return the same prediction, with what happens once the log is loaded."""
        if self.verdict == Verdict.REFUSE:
            return self
        return replace(self, detail=f"{self.detail}; then {later.detail}")

    @classmethod
    def of_log_dir(cls, log_dir: LogDirListing, refusal: Refusal) -> NextStart:
        """Summarize the start of a log directory that is refused."""
        mode = start_mode(log_dir.path)
        start = cls._plain(log_dir.path, None, None, mode, Verdict.REFUSE, refusal_line(refusal))
        return replace(start, error=refusal.error, consequence=refusal.consequence)

    @classmethod
    def of_node(cls, node: NodeStart) -> Iterator[NextStart]:
        """Summarize what belongs to no partition here: refusals, metadata, logs created."""
        for one in node.refusals:
            yield cls.of_log_dir(one.log_dir, one.refusal)
        if node.home is not None and node.metadata_detail is not None:
            path = node.home.log_dir.path
            mode = start_mode(path)
            yield cls._plain(path, None, None, mode, Verdict.HIDE, node.metadata_detail)
        if node.absent:
            path = node.absent[0].home.path
            line = absences_line(node.absent)
            yield cls._plain(path, None, None, start_mode(path), Verdict.CREATE, line)

    @classmethod
    def _plain(
        cls,
        path: str,
        topic: str | None,
        partition: int | None,
        mode: StartMode,
        verdict: Verdict,
        detail: str,
    ) -> NextStart:
        return cls(
            path=path,
            topic=topic,
            partition=partition,
            mode=mode,
            verdict=verdict,
            truncate_to=None,
            lost_records=0,
            hidden_records=0,
            lost_bytes=0,
            rebuilt_segments=(),
            error=None,
            consequence=None,
            detail=detail,
            assumptions=(),
            notes=(),
        )
