"""A recovery of a partition in place: what an unclean start does, before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.log_dir import open_partition
from kafkalog.recovery import (
    SplitSegment,
    StartInProgress,
    StartMode,
    Verdict,
    checkpointed,
)
from kafkalog.repair.outcome import contents_of, whole_entries
from kafkalog.repair.plan import recovery_start
from kafkalog.repair.refusals import require_performable
from kafkalog.repair.settling import Settlement
from kafkalog.repair.splitting import write_parts
from kafkalog.repair.staging import Staging, remove_left_over
from kafkalog.repair.tidying import tidy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log_dir import PartitionDir
    from kafkalog.recovery import PredictedStart
    from kafkalog.repair.model import RecoveryPlan
    from kafkalog.runs import PartitionRun, Run


@dataclass(frozen=True, slots=True)
class RecoveryDone:
    """A recovery that was performed.

    Attributes:
        log_end_offset: offset the next record gets.
        after: what the next start of a broker would do now: one after a clean shutdown where that
            was assumed, else one from the recovery point on.
    """

    log_end_offset: int
    after: PredictedStart

    @property
    def is_settled(self) -> bool:
        """Whether that start finds nothing to do any more.

        Kafka's own second scan may: where the head of a log is deleted, the first one has dropped
        the producer snapshot at its start, and the second one begins with no open transactions.
        """
        return self.after.verdict == Verdict.NOTHING


def recover(
    plan: RecoveryPlan,
    run: Run,
    *,
    forced: bool = False,
    progress: Callable[[int], None] | None = None,
) -> RecoveryDone:
    """Perform what is planned, then read the directory again.

    Args:
        plan: the plan; the directory is as it was when it was made.
        run: holds the lock of the log directory.
        forced: whether records below the high watermark may go.
        progress: called with the bytes that scans have read since the last call.

    On disk after a crash: the partition as it was, or nearer to what is planned; the same recovery,
    or the start of a broker in the same mode, brings it there. Before the first change the mark of
    a clean shutdown is removed, and the recovery point goes down to the first segment that is
    changed, so that a broker scans it. Not guaranteed: that a start in another mode comes to the
    same, or that the leader epochs are the same where the checkpoint held some beyond the log.

    Raises:
        CorruptDataError, RefusedError: see `require_performable`; nothing was changed.
        UnwritableError: a step failed; nothing was changed before the new files were written.

    Cost:
        The scan of the start, and that of the next one to check it, where anything changes; disk
        space for the indexes that change; memory as `predict_start`, and some 300 bytes a file.
    """
    require_performable(plan, forced=forced)
    partition = plan.partition
    if plan.changes:
        with run.partition(partition, _touched(plan)) as changing:
            end = _Recovery(plan, changing, progress).perform()
            partition = open_partition(partition.path)
    else:
        assert plan.predicted.loaded is not None, "else it is refused"
        end = plan.predicted.loaded.log_end_offset
    mode = StartMode.CLEAN if plan.predicted.mode == StartMode.CLEAN else StartMode.UNCLEAN
    if mode == plan.predicted.mode and not plan.changes:
        return RecoveryDone(end, plan.predicted)
    after = StartInProgress(
        partition,
        mode,
        log_start_checkpoint=plan.predicted.log_start_checkpoint,
        config=plan.config,
        progress=progress,
    ).end()
    return RecoveryDone(end, after)


def _start(
    plan: RecoveryPlan,
    partition: PartitionDir,
    tell: Staging | None = None,
    progress: Callable[[int], None] | None = None,
) -> StartInProgress:
    """The start that was planned, on the directory as it is now."""
    return recovery_start(
        partition,
        plan.predicted.mode,
        plan.config,
        recovery_point=plan.predicted.recovery_point,
        log_start_checkpoint=plan.predicted.log_start_checkpoint,
        tell=tell,
        progress=progress,
    )


def _touched(plan: RecoveryPlan) -> set[str]:
    """Names of the files there are that may not stay as they are."""
    names = [entry.name.name for entry in plan.partition.files]
    if any(isinstance(action, SplitSegment) for action in plan.predicted.actions):
        return set(names)  # what lies between the parts goes, whatever it is
    return set(plan.touched)


class _Recovery:
    """The steps on one partition."""

    def __init__(
        self,
        plan: RecoveryPlan,
        changing: PartitionRun,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._changing = changing
        self._changes = changing.changes
        self._path = plan.partition.path

    def perform(self) -> int:
        """Do all; the log end offset."""
        plan = self._plan
        remove_left_over(self._changes, plan.partition)
        recovery_point = self._lower_checkpoints()
        tidy(self._changes, plan.tidying, plan.config)
        while self._splits:
            start = _start(plan, self._reopened())
            actions = start.end().actions
            tidy(self._changes, start.tidying, plan.config)
            split = next((action for action in actions if isinstance(action, SplitSegment)), None)
            if split is None:
                break
            write_parts(self._changes, split, plan.config)
        end = self._settle()
        if recovery_point is not None:
            self._changing.set_offset(file_names.RECOVERY_POINTS, min(recovery_point, end))
        return end

    @property
    def _splits(self) -> bool:
        return any(isinstance(action, SplitSegment) for action in self._plan.predicted.actions)

    def _reopened(self) -> PartitionDir:
        return open_partition(self._plan.partition.path)

    def _lower_checkpoints(self) -> int | None:
        """Say nothing that is not true of what a crash may leave; the recovery point before."""
        plan = self._plan
        assert plan.predicted.loaded is not None, "else it is refused"
        end = plan.predicted.loaded.log_end_offset
        cleaned = self._noted(file_names.CLEANER_OFFSETS)
        if plan.predicted.cuts and cleaned is not None and cleaned > end:
            self._changing.set_offset(file_names.CLEANER_OFFSETS, end)
        if plan.predicted.mode == StartMode.CLEAN:
            return None
        if plan.drops_mark:
            self._changing.forget_clean_shutdown()
        recovery_point = self._noted(file_names.RECOVERY_POINTS)
        if recovery_point is not None:
            first = min(plan.changed_segments, default=recovery_point)
            self._changing.set_offset(file_names.RECOVERY_POINTS, min(first, recovery_point))
        return recovery_point

    def _noted(self, checkpoint: str) -> int | None:
        log_dir = self._changing.log_dir
        return checkpointed(log_dir, checkpoint, self._plan.partition) if log_dir else None

    def _settle(self) -> int:
        partition = self._reopened()
        staging = Staging(self._changes, partition)
        try:
            start = _start(self._plan, partition, staging, self._progress)
            loaded = start.end().loaded
            assert loaded is not None, "the plan says so"
            after = whole_entries(start.contents)
            for name, content in after.items():
                if content.path is None and content.told is None:
                    staging.make_empty(name)
            Settlement(self._changes, contents_of(partition), after, staging).perform()
        finally:
            staging.discard()
        return loaded.log_end_offset
