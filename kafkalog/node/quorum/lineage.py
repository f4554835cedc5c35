"""Which leader epoch wrote which offsets of a metadata log: what logs and snapshots have in common.

By Raft a log holds everything before a batch that any log has with that offset and epoch. So logs
are compared by their epochs alone, and a snapshot belongs to a log if that wrote its last offset in
its epoch. Follows `KafkaRaftLog.truncateToLatestSnapshot` and `OffsetAndEpoch` of Kafka.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from formats.late_classes import dataclass
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.files.log_dir import FileEntry
    from kafkalog.model import Defect, EpochEntry


class Span(NamedTuple):
    """Offsets that one leader epoch wrote, from `start` up to `end`, exclusive."""

    epoch: int
    start: int
    end: int


class Position(NamedTuple):
    """How far a log or a snapshot goes: the later epoch counts before the larger offset."""

    epoch: int
    end: int

    @classmethod
    def of(cls, snapshot: FileEntry) -> Position:
        """Return how far a snapshot goes, by the name of its file."""
        return cls(snapshot.name.epoch or 0, snapshot.name.offset or 0)


class Standing(StrEnum):
    """What a snapshot is to a log."""

    OWN = "own"
    """It is of offsets that the log has, had, or goes on from."""
    BEYOND = "beyond"
    """It is newer than the log: a start drops the log, and goes on from the snapshot."""
    FOREIGN = "foreign"
    """It is of a history that the log has given up."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The epochs of a log.

    Attributes:
        start: its first offset.
        spans: by offset, and so by epoch; what lies between two of them could not be read.
    """

    start: int
    spans: tuple[Span, ...] = ()

    @classmethod
    def of(cls, start: int, entries: Iterable[EpochEntry], end: int) -> Lineage:
        """Return the lineage of a whole log from the entries of its leader epochs."""
        spans: list[Span] = []
        for one in reversed([*entries]):
            spans.insert(0, Span(one.leader_epoch, max(one.start_offset, start), end))
            end = one.start_offset
        return cls(start, tuple(span for span in spans if span.start < span.end))

    @property
    def end(self) -> int:
        """The offset after its last one."""
        return self.spans[-1].end if self.spans else self.start

    @property
    def position(self) -> Position:
        """Its last epoch, 0 without any, and its end."""
        return Position(self.spans[-1].epoch if self.spans else 0, self.end)

    @property
    def whole_end(self) -> int:
        """The end of its first part without a gap."""
        end = self.start
        for span in self.spans:
            if span.start != end:
                break
            end = span.end
        return end

    def epoch_of(self, offset: int) -> int | None:
        """Return the epoch that wrote an offset; None if the log does not say."""
        return next((one.epoch for one in self.spans if one.start <= offset < one.end), None)

    def up_to(self, end: int) -> Lineage:
        """Return its part below an offset."""
        spans = (one._replace(end=min(one.end, end)) for one in self.spans)
        return Lineage(min(self.start, end), tuple(one for one in spans if one.start < one.end))

    def fork(self, other: Lineage) -> int:
        """Return the offset at which two logs part: where the first of them ends if they do not."""
        ends = min(self.end, other.end)
        places = {one.start for log in (self, other) for one in log.spans}
        places |= {one.end for log in (self, other) for one in log.spans}
        for place in sorted(one for one in places if one < ends):
            epochs = self.epoch_of(place), other.epoch_of(place)
            if None not in epochs and epochs[0] != epochs[1]:
                return place
        # Where both are not known at one place, epochs of earlier offsets must not be later ones.
        for log, later in (self, other), (other, self):
            for span in log.spans:
                first = next((one for one in later.spans if one.start >= span.end), None)
                if first is not None and first.epoch < span.epoch:
                    return min(span.start, ends)
        return ends

    def standing(self, snapshot: Position) -> Standing:
        """Return what a snapshot is to the log."""
        if snapshot > self.position:
            return Standing.BEYOND
        if snapshot.end > self.end:
            return Standing.FOREIGN
        before = [one.epoch for one in self.spans if one.start < snapshot.end]
        after = [one.epoch for one in self.spans if one.end >= snapshot.end]
        if before and self.epoch_of(snapshot.end - 1) is not None:
            return Standing.OWN if before[-1] == snapshot.epoch else Standing.FOREIGN
        lowest, highest = before[-1] if before else 0, after[0] if after else snapshot.epoch
        return Standing.OWN if lowest <= snapshot.epoch <= highest else Standing.FOREIGN


def foreign_snapshot(snapshot: FileEntry, log: Lineage, *, is_loaded: bool) -> Defect:
    """Return the defect of a snapshot of a history that its node's log has given up.

    Args:
        snapshot: its file.
        log: the lineage of the log.
        is_loaded: whether a start loads it before any other.
    """
    epoch, end = Position.of(snapshot)
    words = f"The snapshot is of epoch {epoch} up to offset {end}; "
    if end > log.end:
        words += f"the log is of epoch {log.position.epoch} and ends at {log.end}."
    else:
        words += f"in the log that offset is of epoch {log.epoch_of(end - 1)}."
    if is_loaded:
        words += " A start loads it."
    return make_defect("foreign-snapshot", snapshot.path, words, offset=end)
