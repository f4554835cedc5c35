"""A planned trim performed, with the log whole at every moment.

Follows `LocalLog.deleteSegmentFiles` of Kafka 4.3 in the names and their order. What Kafka
leaves to the file system is synced here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.checkpoints import checkpoint_text
from kafkalog.errors import CorruptDataError
from kafkalog.log_dir import open_partition
from kafkalog.names import FileState
from kafkalog.recovery import StartMode, predict_start
from kafkalog.storage import require_writable
from kafkalog.trimming.plan import leader_epochs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.runs import Run
    from kafkalog.trimming.plan import TrimPlan


def perform_trim(run: Run, plan: TrimPlan) -> None:
    """Do what a plan says; nothing where it is empty.

    The new log start is noted first, so that after a crash at any later step a start finds the new
    log, whatever files of the old segments are left; without a log directory to note it in, the log
    has lost some of the segments that go, oldest first. Then, segment after segment, the log and
    its side files get `.deleted` names; the leader epochs are trimmed; what is left is read again
    and compared with the plan; only then the files go, with those that an earlier deletion left,
    and the note where the log begins with a segment. After a crash the next run finishes it.

    Not guaranteed: what a file system does that ignores syncs.

    Args:
        run: holds the lock since before the plan was made.
        plan: from `plan_trim`.

    Raises:
        UnwritableError: the directory is read-only, or a step failed; what was done stays, as after
            a crash.
        CorruptDataError: what is left is not what was planned; the `.deleted` files are kept.
    """
    if plan.is_empty:
        return
    require_writable(plan.partition.path)
    names = [name for group in plan.files for name in group]
    dead = [name + file_names.DELETED for name in names]
    replaced = [entry.name.name for entry in plan.partition.left_overs]
    touched = dict.fromkeys((*names, *dead, *replaced, *plan.left_overs, file_names.LEADER_EPOCHS))
    dead = list(dict.fromkeys((*dead, *plan.left_overs)))
    with run.partition(plan.partition, touched) as changing:
        changes = changing.changes
        if plan.log_start_offset > plan.log_start_before:
            changing.set_offset(file_names.LOG_STARTS, plan.log_start_offset)
        for log, *others in plan.files:
            changes.rename(log, log + file_names.DELETED)
            changes.sync_directory()  # segments must not go in another order
            for name in others:
                changes.rename(name, name + file_names.DELETED)
        changes.sync_directory()
        if plan.leader_epochs != plan.leader_epochs_before:
            entries = [(entry.epoch, entry.start_offset) for entry in plan.leader_epochs]
            changes.replace(file_names.LEADER_EPOCHS, checkpoint_text(entries))
        for difference in _differences(plan):
            raise CorruptDataError(
                f"What is left is not what was planned: {difference}.",
                path=plan.partition.path,
                hint=f"The segments still exist, under names that end in {file_names.DELETED}.",
            )
        if not plan.keeps_deleted:
            for name in dead:
                changes.remove(name)
            changes.sync_directory()
        changing.set_offset(file_names.LOG_STARTS, plan.log_start_checkpoint)


def _differences(plan: TrimPlan) -> Iterator[str]:
    """How the directory, read again, differs from the plan."""
    after = open_partition(plan.partition.path)
    gone = {name for group in plan.files for name in group}
    before = {
        entry.name.name: entry.size_bytes
        for entry in plan.partition.files
        if entry.name.state == FileState.LIVE
        and entry.name.name not in {*gone, file_names.LEADER_EPOCHS}
    }
    there = {
        entry.name.name: entry.size_bytes
        for entry in after.files
        if entry.name.state == FileState.LIVE and entry.name.name != file_names.LEADER_EPOCHS
    }
    for name in sorted(before.keys() | there.keys()):
        if before.get(name) != there.get(name):
            yield f"{name} is of {there.get(name)} bytes, not {before.get(name)}"
    loaded = predict_start(after, StartMode.CLEAN).loaded
    if loaded is None:
        yield "a broker would not load it"
        return
    wanted = (plan.log_start_offset, plan.found.log.log_end_offset)
    if (loaded.log_start_offset, loaded.log_end_offset) != wanted:
        yield f"a broker would load {loaded.log_start_offset} to {loaded.log_end_offset}"
    if leader_epochs_of(after) != plan.leader_epochs:
        yield "the leader epochs are others"
