"""What a repair of a partition comes to, file by file, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kafkalog.recovery import SplitSegment, StartMode, TruncateLog, Verdict

if TYPE_CHECKING:
    from kafkalog.log_dir import PartitionDir
    from kafkalog.recovery import Action, PredictedStart, StartConfig


class Fate(StrEnum):
    """What becomes of a file."""

    REMOVED = "removed"
    """It goes."""
    CUT = "cut"
    """Its end goes; it is changed in place."""
    RENAMED = "renamed"
    """It is another file, which gets this name."""
    WRITTEN = "written"
    """It is a new file, in place of one of that name where there is one."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that will not be as it is; size in bytes, after the change."""

    name: str
    fate: Fate
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a recovery of a partition will do.

    Attributes:
        partition: the directory as it is.
        config: the configs the outcome depends on; the clock is fixed.
        predicted: what the start of a broker does.
        tidying: the actions of the start that finish or roll back what a crash left.
        changes: the files that will not be as they are, by name.
        bytes_to_scan: bytes of the segments that are scanned.
        high_watermark: what the checkpoint of high watermarks says, None without an entry.
        has_mark: whether the log directory has the mark of a clean shutdown.
    """

    partition: PartitionDir
    config: StartConfig
    predicted: PredictedStart
    tidying: tuple[Action, ...]
    changes: tuple[FileChange, ...]
    bytes_to_scan: int
    high_watermark: int | None
    has_mark: bool

    @property
    def lost_from(self) -> int | None:
        """Offset of the first record that may go, None where no byte of a log goes."""
        offsets = (
            cut.offset if isinstance(cut, TruncateLog) else cut.base_offset
            for cut in self.predicted.cuts
            if isinstance(cut, TruncateLog) or cut.size_bytes
        )
        return min(offsets, default=None)

    @property
    def committed_lost(self) -> tuple[int, int] | None:
        """First and last offset below the high watermark that may go; None: none does."""
        start, watermark = self.lost_from, self.high_watermark
        if start is None or watermark is None or start >= watermark:
            return None
        return start, watermark - 1

    @property
    def touched(self) -> tuple[str, ...]:
        """Names of the files there are that will be removed, replaced or cut."""
        there = {entry.name.name for entry in self.partition.files}
        changed = {change.name for change in self.changes}
        return tuple(sorted(there & changed))

    @property
    def changed_segments(self) -> frozenset[int]:
        """Base offsets of the segments that the scan changes; what a swap brings is sound."""
        predicted = self.predicted
        others = (cut.base_offset for cut in predicted.cuts)
        splits = (
            action.base_offset for action in predicted.actions if isinstance(action, SplitSegment)
        )
        return frozenset(max(0, base) for base in (*predicted.rebuilt, *others, *splits))

    @property
    def drops_mark(self) -> bool:
        """Whether the mark of a clean shutdown goes: it is not true of what a scan repairs."""
        is_routine = self.predicted.change == Verdict.NOTHING and not self.changed_segments
        is_routine &= self.is_loadable
        return self.has_mark and not is_routine and self.predicted.mode != StartMode.CLEAN

    @property
    def is_loadable(self) -> bool:
        """Whether a broker can load the log at all."""
        return self.predicted.verdict != Verdict.REFUSE
