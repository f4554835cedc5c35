"""Where a log begins and ends for its readers, by what that is known, and what they do not get."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from formats.late_classes import dataclass
from kafkalog.errors import EventKind
from kafkalog.io.wording import counted, some_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class OffsetSource(StrEnum):
    """By what an offset of a log is known."""

    GIVEN = "given"
    CHECKPOINT = "checkpoint"
    LOG = "log"
    RECOVERY_POINT = "recovery-point"
    IN_SYNC = "in-sync"
    """The smallest end of the copies that the metadata say are in sync: what a leader computes."""
    TRANSACTION = "transaction"
    REMOTE = "remote-storage"


@dataclass(frozen=True, slots=True)
class LogOffset:
    """A named offset of a log; the value is None if nothing records it.

    Attributes:
        name: what it is called.
        value: the offset.
        source: by what it is known.
        above: how many records a reader that stops there leaves out, up to the log end.
        reason: why a high watermark that leaves records out is no better known.
        missing: how many offsets below the high watermark that is noted the log does not reach.
    """

    name: str
    value: int | None
    source: OffsetSource
    above: int = 0
    reason: str = ""
    missing: int = 0

    @property
    def left_out(self) -> str:
        """What a reader that stops there leaves out."""
        why = f"; the checkpoint counts: {self.reason}" if self.reason else ""
        return f"{counted(self.above, 'record')} above the {self.name} {self.value} left out{why}"

    @property
    def known(self) -> int:
        """The value, which every log has."""
        assert self.value is not None, f"a log has a {self.name}"
        return self.value


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Where the records of a partition begin and end.

    Attributes:
        topic, partition: the partition; -1 if the directory's name has no number.
        first: base offset of the first segment.
        start: the log start offset, never below that.
        high_watermark: the high watermark, within the log.
        last_stable: the last stable offset; None unless only committed records are wanted.
        end: the log end offset.
    """

    kind = EventKind.NOTE

    topic: str
    partition: int
    first: int
    start: LogOffset
    high_watermark: LogOffset
    last_stable: LogOffset | None
    end: LogOffset

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild them from the result of `asdict`."""

        def offset(one: Any) -> Any:
            return LogOffset(**one) if isinstance(one, dict) else one

        return cls(**{name: offset(one) for name, one in fields.items()})

    @property
    def name(self) -> str:
        """`topic-partition`."""
        return name_of(self.topic, self.partition)


def name_of(topic: str, partition: int | None) -> str:
    """Return `topic-partition`; the topic alone if the directory's name has no number."""
    return topic if partition is None or partition < 0 else f"{topic}-{partition}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The records that are in logs but not in a result.

    Attributes:
        without_watermark: partitions without a known high watermark: their records end with
            the log.
        above_watermark: partitions that have records above the high watermark, with that offset.
        above_last_stable: partitions that have records between the last stable offset, which is
            included, and the high watermark.
        below_log_start: partitions that have records below the log start offset, with that offset.
        records_above_watermark: how many that are.
        watermark_reasons: why these high watermarks are no better known.
        below_watermark: partitions whose log ends below the high watermark that is noted, with it.
    """

    without_watermark: tuple[str, ...] = ()
    above_watermark: Mapping[str, int] = field(default_factory=dict)
    above_last_stable: Mapping[str, int] = field(default_factory=dict)
    below_log_start: Mapping[str, int] = field(default_factory=dict)
    records_above_watermark: Mapping[str, int] = field(default_factory=dict)
    watermark_reasons: Mapping[str, str] = field(default_factory=dict)
    below_watermark: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def by(cls, found: Iterable[PartitionOffsets]) -> Self:
        """Collect what these offsets leave out."""
        found = list(found)
        cut = [(one.name, one.high_watermark) for one in found if one.high_watermark.above]
        stable = [(one, one.last_stable.known) for one in found if one.last_stable is not None]
        return cls(
            tuple(one.name for one in found if one.high_watermark.source == OffsetSource.LOG),
            {name: mark.known for name, mark in cut},
            {one.name: offset for one, offset in stable if offset < one.high_watermark.known},
            {
                one.name: one.start.known
                for one in found
                if one.first < min(one.start.known, one.end.known)
            },
            {name: mark.above for name, mark in cut},
            {name: mark.reason for name, mark in cut if mark.reason},
            {
                one.name: one.end.known + one.high_watermark.missing
                for one in found
                if one.high_watermark.missing
            },
        )

    @property
    def is_lacking(self) -> bool:
        """Whether records are missing that consumers could have read."""
        return bool(self.below_watermark)

    def lines(self, hint: str = "") -> Iterator[str]:
        """Yield a line per bound that leaves records of a log out.

        Args:
            hint: how to get those above high watermarks.
        """
        by_reason: dict[str, list[str]] = {}
        for name, offset in self.above_watermark.items():
            count = counted(self.records_above_watermark[name], "record")
            reason = self.watermark_reasons.get(name, "")
            by_reason.setdefault(reason, []).append(f"{name} from {offset}, {count}")
        for reason, names in by_reason.items():
            why = f"; the checkpoint counts: {reason}" if reason else ""
            yield f"records above the high watermark left out{hint}: {some_of(names)}{why}"
        if self.above_last_stable:
            names = [f"{name} from {offset}" for name, offset in self.above_last_stable.items()]
            what = "records of open transactions and after them left out (read_committed)"
            yield f"{what}: {some_of(names)}"
        if self.below_log_start:
            names = [f"{name} up to {offset}" for name, offset in self.below_log_start.items()]
            yield f"records below the log start offset left out: {some_of(names)}"
        if self.below_watermark:
            names = [f"{name} up to {offset}" for name, offset in self.below_watermark.items()]
            what = "the log ends before its high watermark, so records are missing"
            yield f"{what}: {some_of(names)}"
