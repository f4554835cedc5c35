"""Recovers a partition in place: does what an unclean start does, before the broker starts.

Follows `LogLoader.removeTempFilesAndCollectSwapFiles`, `completeSwapOperations` and `recoverLog`
and `LogSegment.recover` of Kafka in the result, but not in the order of the steps: here a crash
at any moment leaves a state with the same outcome, while in Kafka a crash between two steps can
leave segments after a cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import segment_file
from formats.late_classes import dataclass
from kafkalog.change.repair.model import contents_of, index_data, require_performable, whole_entries
from kafkalog.change.repair.plan import recovery_start
from kafkalog.change.repair.staging import Staging, remove_left_over, write_parts
from kafkalog.files.log_dir import PartitionDir, open_partition
from kafkalog.files.text_files import topic_id_text
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.node.recovery import (
    RemoveFile,
    RenameFile,
    SplitSegment,
    StartInProgress,
    StartMode,
    Verdict,
    WriteFile,
    checkpointed,
)
from kafkalog.node.recovery.directory import Content, offset_from_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kafkalog.change.journal import PartitionRun, Run
    from kafkalog.change.repair.model import RecoveryPlan
    from kafkalog.io.storage import Changes
    from kafkalog.node.recovery import Action, PredictedStart, StartConfig


def tidy(changes: Changes, actions: Sequence[Action], config: StartConfig) -> None:
    """Perform the actions on the directory.

    After a crash the directory is as before or in a later state with the same outcome: an index
    that a swap lacks exists before anything else happens to it; swap files that are rolled back are
    gone before the `.cleaned` files that cause this; segments that a swap replaces are gone before
    its files are renamed; a log is renamed before its indexes, and one segment is finished before
    the next begins, because a start deletes files in the range of the logs that are still called
    `.swap`.
    """
    swapping = next(
        (number for number, action in enumerate(actions) if isinstance(action, RenameFile)),
        len(actions),
    )
    removed = _removed(actions[:swapping])
    _remove(changes, [name for name in removed if name.endswith(file_names.SWAP)])
    _remove(changes, [name for name in removed if name.endswith(file_names.CLEANED)])
    for action in actions[:swapping]:
        # Another file may be written here, that of the leader epochs, but it can wait.
        if isinstance(action, WriteFile) and action.name.endswith(file_names.SWAP):
            changes.replace(action.name, _data(changes, action.name, config))
    _remove(
        changes,
        [name for name in removed if not name.endswith((file_names.SWAP, file_names.CLEANED))],
    )
    for rename in sorted(_renames(actions), key=_place):
        changes.rename(rename.name, rename.new_name)
        if rename.new_name.endswith(file_names.LOG):
            # After each log: one that is still `.swap` after a crash would have a start delete the
            # indexes that have their names by then.
            changes.sync_directory()
    changes.sync_directory()


def _removed(actions: Sequence[Action]) -> list[str]:
    return [action.name for action in actions if isinstance(action, RemoveFile)]


def _data(changes: Changes, name: str, config: StartConfig) -> bytes:
    """Return a swap's missing file: an index; or the log, if its name does not have 20 digits."""
    base_offset = offset_from_name(name)
    log = changes.path(segment_file(base_offset, file_names.LOG + file_names.SWAP))
    suffix = name.removesuffix(file_names.SWAP)[name.index(".") :]
    if suffix == file_names.LOG:
        return b""
    with Source(log) as source:
        return index_data(source, 0, source.size_bytes, base_offset, config)[suffix]


def _renames(actions: Sequence[Action]) -> list[RenameFile]:
    return [action for action in actions if isinstance(action, RenameFile)]


def _remove(changes: Changes, names: Sequence[str]) -> None:
    """Remove the files if present, and sync the directory."""
    for name in names:
        changes.remove(name, missing_ok=True)
    if names:
        changes.sync_directory()


def _place(rename: RenameFile) -> tuple[int, bool, str]:
    """Sort key: segment by segment, the log first."""
    return offset_from_name(rename.name), not rename.new_name.endswith(file_names.LOG), rename.name


class Settlement:
    """The steps from the present files to those a start would leave.

    Args:
        changes: changes to the partition directory.
        before: the files as they are.
        after: the files as they shall be: unchanged, cut, new, or gone.
        staging: the new files.

    Each step is synced before the next begins:

    1. segments after a cut are removed, the last one first, while the cause of the cut still
    exists;
    2. logs and indexes are cut in place;
    3. producer snapshots and leader epochs are put in place;
    4. time, transaction and offset indexes follow; the missing or unsound index that made the start
       rebuild them is replaced last;
    5. if no segment is left, an empty one is put in place, its log last; then unneeded files are
       removed.

    After a crash a start finds what this one found, and has the same outcome.
    """

    def __init__(
        self,
        changes: Changes,
        before: dict[str, Content],
        after: dict[str, Content],
        staging: Staging,
    ) -> None:
        self._changes = changes
        self._before = before
        self._after = after
        self._staging = staging
        self._removed = [name for name in before if name not in after]
        self._made = [name for name, content in after.items() if content.path is None]
        self._new = [name for name in self._made if after[name].told is None]

    def perform(self) -> None:
        if self._new:
            self._put([file_names.LEADER_EPOCHS])  # a start without any segment would keep an entry
        # Logs first: an index without a log is removed by a start, a log without an index rebuilt.
        logs = [name for name in self._removed if name.endswith(file_names.LOG)]
        self._remove(sorted(logs, key=offset_from_name, reverse=True))
        self._cut()
        self._put([name for name in self._made if name.endswith(file_names.SNAPSHOT)])
        self._put([file_names.LEADER_EPOCHS])
        self._put_indexes()
        self._put([name for name in self._made if name not in self._new])
        self._put(sorted(self._new, key=lambda name: (name.endswith(file_names.LOG), name)))
        self._remove([name for name in self._removed if name not in logs])

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._changes.remove(name)
        if names:
            self._changes.sync_directory()

    def _cut(self) -> None:
        """Cut logs before indexes; replace a file with a second name, as in a backup, by a copy."""
        cut = [
            name
            for name, content in self._after.items()
            if content.path is not None and content.end < self._before[name].end
        ]
        for name in sorted(cut, key=lambda name: (not name.endswith(file_names.LOG), name)):
            # The backup shares its bytes.
            if file_system.status(self._changes.path(name)).st_nlink > 1:
                self._staging.shorten(name, self._after[name].end)
                self._changes.sync_directory()
            else:
                self._changes.truncate(name, self._after[name].end)

    def _put(self, names: list[str]) -> None:
        """Put new files in place that are not there yet."""
        count = 0
        for name in names:
            if name in self._after:
                count += self._staging.put(self._after[name].told, name)
        if count:
            self._changes.sync_directory()

    def _put_indexes(self) -> None:
        made = set(self._made).difference(self._new)
        indexes = sorted(name for name in made if name.endswith(file_names.INDEXES))
        # As long as it is missing or unsound, a start rebuilds all three, even after a clean
        # shutdown.
        last = [name for name in indexes if self._is_trigger(name)]
        self._put([name for name in indexes if name not in last])
        self._put(last)

    def _is_trigger(self, name: str) -> bool:
        """Return whether the file, as it is, makes a start rebuild indexes."""
        offset_index = segment_file(offset_from_name(name), file_names.OFFSET_INDEX)
        if offset_index not in self._before:
            return name == offset_index
        return name.endswith(file_names.TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True)
class RecoveryDone:
    """A recovery that was performed.

    Attributes:
        log_end_offset: offset that the next record gets.
        after: what the next start of a broker would do now: one after a clean shutdown if that was
            assumed, otherwise one from the recovery point on.
    """

    log_end_offset: int
    after: PredictedStart

    @property
    def is_settled(self) -> bool:
        """Whether that start finds nothing left to do.

        Even Kafka's own second scan may: if the head of a log was deleted, the first one has
        dropped the producer snapshot at its start, and the second one begins without open
        transactions.
        """
        return self.after.verdict == Verdict.NOTHING


def perform_recovery(
    plan: RecoveryPlan,
    run: Run,
    *,
    forced: bool = False,
    progress: Callable[[int], None] | None = None,
) -> RecoveryDone:
    """Perform a plan, then read the directory again.

    Args:
        plan: the plan; the directory must not have changed since it was made.
        run: holds the lock of the log directory.
        forced: whether records below the high watermark may be lost.
        progress: called with the bytes that scans have read since the last call.

    On disk after a crash: the partition as it was, or closer to the plan; the same recovery, or the
    start of a broker in the same mode, completes it. Before the first change the clean shutdown
    mark is removed, and the recovery point is lowered to the first segment that changes, so that a
    broker scans it. Not guaranteed: that a start in another mode has the same outcome, or that the
    leader epochs are the same if the checkpoint held some beyond the log.

    Raises:
        CorruptDataError, RefusedError: see `require_performable`; nothing was changed.
        UnwritableError: a step failed; nothing was changed before the new files were written.

    Cost:
        If anything changes, the scan of the start and that of the next one to check it; disk space
        for the indexes that change; memory as `predict_start`, and about 300 bytes per file.
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
    # Predicted anew on what is on disk now: the proof that nothing is left to do.
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
    """Return the start that was planned, on the directory as it is now."""
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
    """Return the names of the existing files that may change."""
    names = [entry.name.name for entry in plan.partition.files]
    if any(isinstance(action, SplitSegment) for action in plan.predicted.actions):
        return set(names)  # everything between the parts is removed
    return set(plan.touched)


class _Recovery:
    """The steps on one partition."""

    def __init__(
        self, plan: RecoveryPlan, changing: PartitionRun, progress: Callable[[int], None] | None
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._changing = changing
        self._changes = changing.changes
        self._path = plan.partition.path

    def perform(self) -> int:
        """Perform all steps; return the log end offset."""
        plan = self._plan
        remove_left_over(self._changes, plan.partition)
        if plan.topic_id is not None:
            name = file_names.PARTITION_METADATA
            self._changes.replace(name, topic_id_text(plan.topic_id))
        # Before any file changes: should we die, a broker scans from the first changed segment on.
        recovery_point = self._lower_checkpoints()
        tidy(self._changes, plan.tidying, plan.config)
        # A split is put in place first, as in Kafka, and everything else planned again on the
        # parts.
        while self._splits:
            start = _start(plan, self._reopened())
            actions = start.end().actions
            tidy(self._changes, start.tidying, plan.config)
            split = next((action for action in actions if isinstance(action, SplitSegment)), None)
            if split is None:
                break
            write_parts(self._changes, split, plan.config)
        end = self._settle()
        # Last, when all files are durable; never above the new end (LogLoader.recoverLog takes the
        # minimum, too).
        if recovery_point is not None:
            self._changing.set_offset(file_names.RECOVERY_POINTS, min(recovery_point, end))
        return end

    @property
    def _splits(self) -> bool:
        return any(isinstance(action, SplitSegment) for action in self._plan.predicted.actions)

    def _reopened(self) -> PartitionDir:
        return open_partition(self._plan.partition.path)

    def _lower_checkpoints(self) -> int | None:
        """Lower the checkpoints to values that hold after any crash, the recovery point first."""
        plan = self._plan
        assert plan.predicted.loaded is not None, "else it is refused"
        end = plan.predicted.loaded.log_end_offset
        cleaned = self._noted(file_names.CLEANER_OFFSETS)
        # Records appended below it later would count as clean, and never be cleaned.
        if plan.predicted.cuts and cleaned is not None and cleaned > end:
            self._changing.set_offset(file_names.CLEANER_OFFSETS, end)
        # With the mark kept, no scan comes and the recovery point is not read.
        if plan.predicted.mode == StartMode.CLEAN:
            return None
        # The mark first: with it, a broker would not look at the recovery point at all.
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
