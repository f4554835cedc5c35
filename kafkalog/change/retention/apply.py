"""Performs retention without a broker: planned file by file, with the log whole at every moment.

Follows `UnifiedLog.deleteSegments` and `LeaderEpochFileCache.truncateFromStartAsyncFlush` of Kafka
4.3, and `LocalLog.deleteSegmentFiles` in the names of the files and their order. The active segment
stays, because rolling a log is the broker's business. What Kafka leaves to the file system is
synced here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from formats import file_names
from formats.file_names import INDEX_KINDS, FileKind, FileState, segment_file_name
from formats.late_classes import dataclass
from kafkalog.change.journal.requirements import (
    log_dir_around,
    mode_to_judge_by,
    require_live,
    require_own_files,
    require_settled,
    require_start,
)
from kafkalog.change.retention import PartitionRetention, SegmentFacts, judge_partition
from kafkalog.errors import CorruptDataError, RefusedError
from kafkalog.files.log_dir import PartitionDir, open_partition
from kafkalog.files.offsets import OffsetSource
from kafkalog.files.text_files import checkpoint_text, read_leader_epochs
from kafkalog.io.paths import file_system
from kafkalog.io.storage import require_writable
from kafkalog.log.living import about_a_partition
from kafkalog.node.recovery import (
    StartMode,
    Verdict,
    epochs_from_start,
    predict_start,
    start_config,
)
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.change.journal import Run
    from kafkalog.model import EpochEntry
    from kafkalog.node.configs import TopicConfigs


_ALLOWED = (Verdict.NOTHING, Verdict.TIDY)  # .deleted files may exist already
_KINDS = (FileKind.LOG, *INDEX_KINDS, FileKind.PRODUCER_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class TrimPlan:
    """The files that one partition loses, and what is left.

    Attributes:
        found: the result of `judge_partition`, with its configs and marks.
        segments: the segments that are deleted, oldest first.
        files: names of each segment's files, in deletion order: log, indexes, producer snapshot.
        left_overs: names of the files left by earlier deletions, which are deleted, too.
        keeps_deleted: whether `.deleted` files stay, old and new.
        log_start_before: first readable offset now.
        log_start_offset: first readable offset afterwards.
        leader_epochs_before: entries of `leader-epoch-checkpoint`.
        leader_epochs: the entries afterwards.
    """

    found: PartitionRetention
    segments: tuple[SegmentFacts, ...]
    files: tuple[tuple[str, ...], ...]
    left_overs: tuple[str, ...]
    keeps_deleted: bool
    log_start_before: int
    log_start_offset: int
    leader_epochs_before: tuple[EpochEntry, ...]
    leader_epochs: tuple[EpochEntry, ...]

    @property
    def partition(self) -> PartitionDir:
        return self.found.partition

    @property
    def is_empty(self) -> bool:
        is_same = self.log_start_offset == self.log_start_before
        return is_same and not self.segments and not self.left_overs

    @property
    def active_stays(self) -> bool:
        """Whether a broker would roll the log and delete the active segment, too."""
        return self.found.outcome.rolled

    @property
    def first_base_offset(self) -> int:
        """Base offset of the first remaining segment."""
        return self.found.log.segments[len(self.segments)].base_offset

    @property
    def log_start_checkpoint(self) -> int | None:
        """The checkpoint's log start offset afterwards; None for no entry, as in Kafka.

        A broker records a log start only if it lies inside the first segment.
        """
        if self.log_start_offset > self.first_base_offset:
            return self.log_start_offset
        return None

    @property
    def freed_bytes(self) -> int:
        """Size of the `.log` files that are deleted."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def freed_side_bytes(self) -> int:
        """Size of the indexes and producer snapshots that are deleted with them."""
        return sum(segment.side_bytes for segment in self.segments)


@about_a_partition
def trim_of(
    partition: PartitionDir,
    found: PartitionRetention,
    *,
    log_start_before: int | None = None,
    keep_deleted: bool = False,
) -> TrimPlan | None:
    """Return what retention deletes without a broker; None of what only a broker deletes.

    Args:
        found: what `judge_partition` says of the partition.
        log_start_before: first readable offset now, if known.
        keep_deleted: as for `plan_trim`.
    """
    try:
        require_live(partition)
        _require_local(found)
    except RefusedError:
        return None
    count = min(len(found.outcome.deleted), len(found.log.segments) - 1)
    segments = found.log.segments[:count]
    first_base = found.log.segments[count].base_offset
    before = log_start_before
    if before is None:
        before = UnifiedLog(partition).log_start_offset
    start = max(before, found.log.log_start_offset, first_base)
    epochs = leader_epochs_of(partition)
    return TrimPlan(
        found=found,
        segments=segments,
        files=tuple(_files_of(partition, segment.base_offset) for segment in segments),
        left_overs=() if keep_deleted else _left_overs(partition),
        keeps_deleted=keep_deleted,
        log_start_before=before,
        log_start_offset=start,
        leader_epochs_before=epochs,
        leader_epochs=epochs_from_start(epochs, start),
    )


def plan_trim(
    partition: PartitionDir,
    configs: TopicConfigs,
    now_ms: int,
    *,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
    keep_deleted: bool = False,
) -> TrimPlan:
    """Plan what retention deletes from a partition; the caller keeps brokers off meanwhile.

    Args:
        configs: the configs of its topic, from `ConfigSources`.
        high_watermark: overrides the checkpoint's: an offset, or `end`.
        log_start_offset: new log start, as DeleteRecords would set it; None keeps the present one.
        keep_deleted: whether `.deleted` files stay; a broker's start removes them.

    Raises:
        RefusedError: it is not safe, or not our business: symbolic links, a start that would change
            something, leftovers of a crash, a tiered topic, no high watermark.
        UnreadableError, CorruptDataError: as `judge_partition`.

    Cost:
        As `judge_partition`, and the end of the active segment.
    """
    require_live(partition)
    require_own_files(partition)
    require_settled(partition)
    log_dir = log_dir_around(partition)
    config, _ = start_config(partition, configs, now_ms)
    # What a start would cut or rebuild is not yet what is judged here.
    predicted = predict_start(partition, mode_to_judge_by(log_dir), config=config)
    loaded = require_start(predicted, partition, _ALLOWED)
    found = judge_partition(
        partition, configs, now_ms, high_watermark=high_watermark, log_start_offset=log_start_offset
    )
    _require_local(found)
    if log_dir is not None:
        # Retention stops at the high watermark; without an entry it would be the log start, and
        # nothing would go: better said.
        _require_watermark(found, high_watermark)
    if log_start_offset is not None:
        _require_deletable(found, configs)
        _require_replicated(found, high_watermark)
    plan = trim_of(
        partition, found, log_start_before=loaded.log_start_offset, keep_deleted=keep_deleted
    )
    assert plan is not None, "the partition is live and local"
    # Only a checkpoint can say that a log starts inside a segment.
    is_inside = plan.log_start_offset > plan.first_base_offset
    if is_inside and (partition.partition is None or log_dir is None):
        raise RefusedError(
            "The partition is not in a log directory that could record the new log start offset "
            f"{plan.log_start_offset}.",
            path=partition.path,
        )
    return plan


def leader_epochs_of(partition: PartitionDir) -> tuple[EpochEntry, ...]:
    """Return the entries of a partition's `leader-epoch-checkpoint`, none without the file."""
    path = os.path.join(partition.path, file_names.LEADER_EPOCHS)
    return tuple(read_leader_epochs(path)) if file_system.is_there(path) else ()


def _left_overs(partition: PartitionDir) -> tuple[str, ...]:
    """Return the leftovers of interrupted deletions, by a broker or by a run like this one.

    These are the `.deleted` files, and the side files of segments whose logs were already renamed.
    """
    first = partition.segments[0].base_offset
    renamed = [
        entry
        for kind in _KINDS
        for entry in partition.live(kind)
        # Their logs are gone: a start would remove them as orphans.
        if entry.name.offset is not None and entry.name.offset < first
    ]
    return tuple(sorted(entry.name.name for entry in (*partition.left_overs, *renamed)))


def _files_of(partition: PartitionDir, base_offset: int) -> tuple[str, ...]:
    """Return the files of a segment in the order of their deletion.

    The log comes first: a start removes indexes without a log, but rebuilds those of a log.
    """
    there = {entry.name.name for entry in partition.files}
    names = (segment_file_name(base_offset, kind) for kind in _KINDS)
    return tuple(name for name in names if name in there)


def _require_local(found: PartitionRetention) -> None:
    if any(config.name == "remote.storage.enable" for config in found.configs):
        raise RefusedError(
            "The topic is tiered: what was uploaded, and so may be deleted, is not known here.",
            path=found.partition.path,
        )


def _require_watermark(found: PartitionRetention, given: int | Literal["end"] | None) -> None:
    if given is None and found.marks[1].source == OffsetSource.LOG:
        raise RefusedError(
            f"{file_names.HIGH_WATERMARKS} has no entry: what is replicated, and so may be "
            "deleted, is not known.",
            path=found.partition.path,
            hint="--high-watermark end declares all of it replicated.",
        )


def _require_deletable(found: PartitionRetention, configs: TopicConfigs) -> None:
    """Check that the topic may lose records: otherwise a broker never moves a log's start."""
    # As DeleteRecords: refused for compact without delete, allowed with an empty policy.
    words = configs.words("cleanup.policy")
    if words and "delete" not in words:
        raise RefusedError(
            "The topic is compacted only: a broker refuses to move the start of its logs.",
            path=found.partition.path,
            hint="Leave out --log-start-offset.",
        )


def _require_replicated(found: PartitionRetention, given: int | Literal["end"] | None) -> None:
    """Check that the log will not start above the high watermark, which no start may raise."""
    watermark = UnifiedLog(
        found.partition, high_watermark=given, log_end_offset=found.log.log_end_offset
    ).high_watermark
    if found.log.log_start_offset > watermark:
        raise RefusedError(
            f"The log would start at {found.log.log_start_offset}, above the high watermark "
            f"{watermark}.",
            path=found.partition.path,
        )


def perform_trim(run: Run, plan: TrimPlan) -> None:
    """Perform a plan; do nothing if it is empty.

    The new log start is recorded first, so that after a crash at any later step a start finds the
    new log, whatever files of the old segments are left; without a log directory to record it in,
    the log has lost some of the deleted segments, oldest first. Then, segment by segment, the log
    and its side files get `.deleted` names; the leader epochs are trimmed; the rest is read again
    and compared with the plan; only then are the files removed, with those of earlier deletions,
    and with the record of the log start if the log begins with a segment. After a crash the next
    run finishes it.

    Not guaranteed: anything on a file system that ignores syncs.

    Args:
        run: has held the lock since before the plan was made.
        plan: from `plan_trim`.

    Raises:
        UnwritableError: the directory is read-only, or a step failed; completed steps stay, as
            after
            a crash.
        CorruptDataError: the rest is not what was planned; the `.deleted` files are kept.
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
            # Durable before a log goes: a start that finds some of the old segments hides them by
            # it.
            changing.set_offset(file_names.LOG_STARTS, plan.log_start_offset)
        for log, *others in plan.files:
            changes.rename(log, log + file_names.DELETED)
            changes.sync_directory()  # segments must be deleted in this order
            for name in others:
                changes.rename(name, name + file_names.DELETED)
        changes.sync_directory()
        if plan.leader_epochs != plan.leader_epochs_before:
            entries = [(entry.leader_epoch, entry.start_offset) for entry in plan.leader_epochs]
            changes.replace(file_names.LEADER_EPOCHS, checkpoint_text(entries))
        # While all can still be undone by renames: only what follows destroys anything.
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
        # Last: until the old files are gone, only this entry keeps them out of the log.
        changing.set_offset(file_names.LOG_STARTS, plan.log_start_checkpoint)


def _differences(plan: TrimPlan) -> Iterator[str]:
    """Yield how the directory, read again, differs from the plan."""
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
            yield f"{name} has {there.get(name)} bytes, not {before.get(name)}"
    loaded = predict_start(after, StartMode.CLEAN).loaded
    if loaded is None:
        yield "a broker would not load it"
        return
    wanted = (plan.log_start_offset, plan.found.log.log_end_offset)
    if (loaded.log_start_offset, loaded.log_end_offset) != wanted:
        yield f"a broker would load {loaded.log_start_offset} to {loaded.log_end_offset}"
    if leader_epochs_of(after) != plan.leader_epochs:
        yield "the leader epochs are others"
