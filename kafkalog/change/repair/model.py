"""The result of a repair of a partition, file by file, and conditions that forbid it."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import is_staged
from formats.late_classes import dataclass
from kafkalog.change.journal.requirements import require_own_files
from kafkalog.errors import CorruptDataError, RefusedError
from kafkalog.files.text_files import read_offset_checkpoint
from kafkalog.io.paths import file_system
from kafkalog.io.storage import require_writable
from kafkalog.io.wording import counted
from kafkalog.model import Level
from kafkalog.node.recovery import SplitSegment, StartMode, TruncateLog, Verdict, start_line
from kafkalog.node.recovery.directory import Content
from kafkalog.node.recovery.indexes import IndexBuild, OffsetSlots, TimeSlots
from kafkalog.node.recovery.model import refusal_line
from kafkalog.node.recovery.walk import Indexing, walk

if TYPE_CHECKING:
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.io.paths.source import Source
    from kafkalog.node.recovery import Action, PredictedStart, Refusal, StartConfig


class Fate(StrEnum):
    """The fate of a file."""

    REMOVED = "removed"
    """It is removed."""
    CUT = "cut"
    """It is cut at its end, in place."""
    RENAMED = "renamed"
    """Another file gets this name."""
    WRITTEN = "written"
    """It is written, replacing a file of that name if there is one."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that will change.

    Attributes:
        fate: what happens to it.
        size_bytes: its size after the change.
        removed_bytes: number of bytes that a removed or cut file loses.
        removed_records: records that can be read in these bytes, by the headers of their batches.
        reason: why it is removed or cut; None for others, and if it is only renamed.
    """

    name: str
    fate: Fate
    size_bytes: int
    removed_bytes: int = 0
    removed_records: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Untouched:
    """Why a recovery leaves a partition to the broker.

    Attributes:
        reason: the reason, as a phrase for a message.
        hint: what to do instead.
    """

    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The plan of a recovery of a partition.

    Attributes:
        partition: the directory as it is.
        config: the configs the outcome depends on; the clock is fixed.
        predicted: the start of a broker, once the recovery has repaired what would stop it.
        refusal: why a start on the directory as it is would fail; None if it would not.
        tidying: the actions of the start that finish or roll back what a crash left.
        changes: the files that will change, by name.
        scan_bytes: size of the segments that are scanned.
        high_watermark: the entry in the checkpoint of high watermarks, None if none.
        has_mark: whether the log directory has the clean shutdown mark.
        untouched: why nothing is changed, whatever a start would do; None for most partitions.
        topic_id: what is written as `partition.metadata`, which is missing; None if nothing is.
        stray: why a start on the directory as it is would make it a stray; None if it would not.
        while_marked: what the next start does if nothing is recovered, while the directory is
            marked as closed cleanly; None if that is the same, or there is no mark.
    """

    partition: PartitionDir
    config: StartConfig
    predicted: PredictedStart
    refusal: Refusal | None
    tidying: tuple[Action, ...]
    changes: tuple[FileChange, ...]
    scan_bytes: int
    high_watermark: int | None
    has_mark: bool
    untouched: Untouched | None = None
    while_marked: PredictedStart | None = None
    topic_id: str | None = None
    stray: str | None = None

    @property
    def lost_from(self) -> int | None:
        """Offset of the first record that may be lost, None if no log loses a byte."""
        offsets = [
            cut.offset if isinstance(cut, TruncateLog) else cut.base_offset
            for cut in self.predicted.cuts
            if isinstance(cut, TruncateLog) or cut.size_bytes
        ]
        if self.predicted.behind is not None:
            offsets.append(self.predicted.behind.offset)
        return min(offsets, default=None)

    @property
    def committed_lost(self) -> tuple[int, int] | None:
        """The first and last offset below the high watermark that may be lost; None if none is."""
        start, watermark = self.lost_from, self.high_watermark
        if start is None and self.changes and self.missing is not None:
            return self.missing  # replicas would be cut to this log if it led
        if start is None or watermark is None or start >= watermark:
            return None
        return start, watermark - 1

    @property
    def missing(self) -> tuple[int, int] | None:
        """The first and last offset below the high watermark that the log ends before."""
        loaded, watermark = self.predicted.loaded, self.high_watermark
        if loaded is None or watermark is None or loaded.log_end_offset >= watermark:
            return None
        return loaded.log_end_offset, watermark - 1

    @property
    def touched(self) -> tuple[str, ...]:
        """Names of the existing files that will be removed, replaced or cut."""
        there = {entry.name.name for entry in self.partition.files}
        changed = {change.name for change in self.changes}
        return tuple(sorted(there & changed))

    @property
    def changed_segments(self) -> frozenset[int]:
        """Base offsets of the segments that the scan changes, without those a swap brings."""
        predicted = self.predicted
        others = (cut.base_offset for cut in predicted.cuts)
        splits = (
            action.base_offset for action in predicted.actions if isinstance(action, SplitSegment)
        )
        return frozenset(max(0, base) for base in (*predicted.rebuilt, *others, *splits))

    @property
    def drops_mark(self) -> bool:
        """Whether the clean shutdown mark is removed: it is wrong if a scan repairs something."""
        predicted = self.predicted
        is_routine = predicted.refusal is None and predicted.change == Verdict.NOTHING
        is_routine &= not self.changed_segments
        is_clean = predicted.mode == StartMode.CLEAN or self.untouched is not None
        return self.has_mark and not is_routine and not is_clean

    @property
    def is_loadable(self) -> bool:
        """Whether a broker can load the log, at least after a recovery."""
        return self.predicted.verdict != Verdict.REFUSE

    @property
    def verdict(self) -> Verdict:
        """The outcome of a start on the directory as it is."""
        return Verdict.REFUSE if self.refusal is not None else self._as_it_is.verdict

    @property
    def _as_it_is(self) -> PredictedStart:
        return dataclasses.replace(self.predicted, stray=self.stray)

    @property
    def going(self) -> tuple[FileChange, ...]:
        """The files that are removed or cut."""
        return tuple(one for one in self.changes if one.reason is not None)

    @property
    def detail(self) -> str:
        """What a start would do, and what a recovery leaves out or adds, in one line."""
        if self.untouched is not None:
            return f"{self._start_words}; left alone: {self.untouched.reason}"
        if self.refusal is not None and self.is_loadable:
            return f"{self._start_words}; the file is rebuilt from the log"
        if self.topic_id is not None:
            return f"{self._start_words}; the id in the cluster's metadata is written again"
        return self._start_words

    @property
    def _start_words(self) -> str:
        if self.refusal is not None:
            return refusal_line(self.refusal)
        if self._as_it_is.verdict == Verdict.NOTHING and self.changes:
            counts = Counter(change.fate for change in self.changes)
            words = [f"{counted(number, 'file')} {fate}" for fate, number in sorted(counts.items())]
            return f"nothing unusual: {', '.join(words)}"
        return start_line(self._as_it_is)


_ENTRY_SIZES = {
    file_names.OFFSET_INDEX: OffsetSlots.entry.size,
    file_names.TIME_INDEX: TimeSlots.entry.size,
}


def is_left_over(name: str) -> bool:
    """Return whether a file was left by a repair that was killed."""
    return is_staged(name)


def contents_of(partition: PartitionDir) -> dict[str, Content]:
    return {
        entry.name.name: Content(entry.path, 0, entry.size_bytes)
        for entry in partition.files
        if entry.error is None
    }


def whole_entries(contents: dict[str, Content]) -> dict[str, Content]:
    """Return the files with indexes cut to whole entries, as a shutdown of Kafka 4.3 does."""
    found = dict(contents)
    for name, content in contents.items():
        for suffix, size in _ENTRY_SIZES.items():
            # AbstractIndex cut them when it was closed; later releases do so for active segments.
            rest = content.size_bytes % size if name.endswith(suffix) else 0
            if rest:
                found[name] = dataclasses.replace(content, end=content.end - rest)
    return found


def require_performable(plan: RecoveryPlan, *, forced: bool) -> None:
    """Check that the plan may be performed.

    Args:
        plan: the plan of the recovery.
        forced: whether records below the high watermark may be lost.

    Raises:
        CorruptDataError: a broker could not load the log.
        RefusedError: it is left to the broker, committed records would be lost, or it holds links.
        UnwritableError: the directory is read-only.
    """
    partition, refusal = plan.partition, plan.predicted.refusal
    if refusal is not None:
        raise CorruptDataError(
            f"A broker cannot load this log: {refusal.error}: {refusal.message.rstrip('.')}.",
            path=partition.path,
            hint=f"`kafkalog salvage {partition.path} --to NEW` copies what is sound.",
        )
    if plan.untouched is not None:
        words = f"The partition is not recovered: {plan.untouched.reason}."
        raise RefusedError(words, path=partition.path, hint=plan.untouched.hint)
    if plan.committed_lost is not None and not forced:
        first, last = plan.committed_lost
        fate = "would be hidden" if plan.predicted.behind is not None else "are missing"
        if plan.predicted.cuts:
            fate = "would be lost"
        raise RefusedError(
            f"Offsets {first} to {last}, which are below the high watermark "
            f"{plan.high_watermark}, {fate}.",
            path=partition.path,
            note="Other replicas may have them, and lose them if this one becomes the leader.",
            hint=_INSTEAD.format(partition.path),
        )
    if plan.lost_from is not None and plan.high_watermark is None and not forced:
        _require_watermarks(plan)
    if plan.changes:
        require_own_files(partition)
        require_writable(partition.path)


_INSTEAD: Final = (
    "Move the partition directory away and let the broker replicate it again; or `kafkalog salvage "
    "{} --to NEW`; or --allow-loss."
)


def _require_watermarks(plan: RecoveryPlan) -> None:
    """Raise `RefusedError` if the checkpoint that had the high watermark is malformed."""
    log_dir = os.path.dirname(os.path.abspath(plan.partition.path))
    path = os.path.join(log_dir, file_names.HIGH_WATERMARKS)
    if not file_system.is_there(path):
        return
    try:
        read_offset_checkpoint(path)
    except CorruptDataError as error:
        raise RefusedError(
            f"Offsets from {plan.lost_from} on would be lost, and no high watermark is known: "
            f"{file_names.HIGH_WATERMARKS} is malformed: {error.message}",
            path=plan.partition.path,
            hint=_INSTEAD.format(plan.partition.path),
        ) from error


def index_data(
    source: Source, start: int, end: int, base_offset: int, config: StartConfig
) -> dict[str, bytes]:
    """Build offset and time index, by suffix, for a segment that begins at a log's `start`.

    Raises:
        StartRefusedError: offsets go back, or do not fit into the segment.

    Cost:
        Reads the headers of the batches; memory for the entries.
    """
    indexes = IndexBuild(base_offset, config)
    walk(source, start, end, Level.QUICK, Indexing(indexes, start))
    indexes.end()
    return {
        file_names.OFFSET_INDEX: indexes.offsets.data(),
        file_names.TIME_INDEX: indexes.times.data(),
    }
