"""What a report says about the next start of a broker: of one partition, or of a log directory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog.recovery.model import Verdict
from kafkalog.recovery.start import NO_TOPIC_ID
from kafkalog.recovery.words import refusal_line, start_line, stray_line

if TYPE_CHECKING:
    from kafkalog.log_dir import LogDir, PartitionDir
    from kafkalog.recovery.model import Consequence, PredictedStart, Refusal, StartMode


@dataclass(frozen=True, slots=True)
class NextStart:
    """One prediction in short.

    Attributes:
        path: the partition directory or the log directory.
        topic: the topic; None for a log directory.
        partition: its number; None for a log directory, and where the name has none.
        mode: how the broker comes to it.
        verdict: what the start comes to.
        truncate_to: the log end offset after the start where the log is cut, else None.
        records_lost: records that go, by what the headers of their batches say.
        bytes_lost: bytes of logs that go.
        rebuilt_segments: base offsets of the segments with an index that changes.
        error: simple name of Kafka's exception, None where it succeeds.
        consequence: how far a refusal reaches, None where it succeeds.
        detail: all that in one line.
        assumptions: what could not be read and was assumed, in words.
        notes: what the start would not notice, and someone should know.
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
        """Whether there is something to say."""
        return self.verdict != Verdict.NOTHING or bool(self.notes)

    @classmethod
    def of_partition(cls, partition: PartitionDir, predicted: PredictedStart) -> NextStart:
        """That of a partition."""
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
        """That of a partition which is loaded as it is, and then taken away from the broker."""
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
        """The same, of a directory that becomes a stray once it is loaded."""
        if self.verdict in (Verdict.REFUSE, Verdict.STRAY):
            return self
        notes = tuple(note for note in self.notes if note != NO_TOPIC_ID)
        detail = stray_line(reason, self.detail)
        return replace(self, verdict=Verdict.STRAY, detail=detail, notes=notes)

    @classmethod
    def of_log_dir(cls, log_dir: LogDir, mode: StartMode, refusal: Refusal) -> NextStart:
        """That of a log directory which stops the start."""
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
