"""The plan of a recovery: a predicted start, and the files it changes. Nothing is written."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import DirectoryState, FileKind, segment_file
from formats.topic_names import CLUSTER_METADATA
from kafkalog.change.journal.log_dir_files import has_mark
from kafkalog.change.repair.model import (
    Fate,
    FileChange,
    RecoveryPlan,
    Untouched,
    contents_of,
    is_left_over,
    whole_entries,
)
from kafkalog.files.text_files import topic_id_text
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.io.wording import counted
from kafkalog.model import present_ms
from kafkalog.node.recovery import (
    DeleteSegment,
    RebuildIndexes,
    RemoveFile,
    RenameFile,
    StartInProgress,
    StartMode,
    TruncateLog,
    checkpointed,
    predict_start,
    usual_config,
)
from kafkalog.node.recovery.directory import Content
from kafkalog.node.recovery.segment_state import count_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.recovery import Hosting, PredictedStart, StartConfig

_LEFT_OVER = "left by a killed repair"
_PADDING = "nothing after its last entry is needed"
_NEW_PART = "it is new"  # why a segment that a split creates gets indexes, without a scan


def plan_recovery(
    partition: PartitionDir,
    mode: StartMode | None,
    config: StartConfig | None = None,
    *,
    hosting: Hosting | None = None,
    progress: Callable[[int], None] | None = None,
) -> RecoveryPlan:
    """Plan what a recovery would do to a partition directory.

    Args:
        mode: the kind of broker start that the recovery follows; None for that of the mark.
        config: the configs that the outcome depends on; None for Kafka's defaults.
        hosting: the partitions assigned to the broker; None assumes that this one is.
        progress: called with the bytes that scans have read since the last call.

    Raises:
        UnreadableError: a file cannot be read.

    Cost:
        That of `predict_start`.
    """
    _require_readable(partition)
    config = with_clock(config or usual_config(partition))
    told = _Differences(partition)
    start = recovery_start(partition, mode, config, hosting=hosting, tell=told, progress=progress)
    predicted = start.end()
    before = contents_of(partition)
    untouched = _untouched(partition)
    changes: list[FileChange] = []
    topic_id = None
    if hosting is not None and predicted.loaded is not None and untouched is None:
        epochs = [one.leader_epoch for one in predicted.loaded.leader_epochs]
        topic_id = hosting.missing_id(partition, max(epochs, default=0))
    if predicted.refusal is None and untouched is None:
        after = whole_entries(start.contents)
        reasons = _reasons(predicted)
        renamed = {action.name for action in predicted.actions if isinstance(action, RenameFile)}
        for name, content in before.items():
            if name in renamed and name not in after:
                changes.append(FileChange(name, Fate.REMOVED, 0))
            elif name not in after or is_left_over(name):
                changes.append(_removed(name, content, reasons.get(name, _LEFT_OVER)))
        for name, content in after.items():
            fate = _fate(name, before.get(name), content, told.numbers)
            if fate == Fate.CUT:
                changes.append(_cut(name, before[name], content, reasons.get(name)))
            elif fate is not None:
                changes.append(FileChange(name, fate, content.size_bytes))
        if topic_id is not None:
            size = len(topic_id_text(topic_id))
            changes.append(FileChange(file_names.PARTITION_METADATA, Fate.WRITTEN, size))
    parent = os.path.dirname(os.path.abspath(partition.path))
    stray, predicted = predicted.stray, _identified(predicted, topic_id)
    plan = RecoveryPlan(
        partition,
        config,
        predicted,
        start.refusal,
        start.tidying,
        tuple(sorted(changes, key=lambda change: change.name)),
        _bytes_to_scan(predicted, before),
        checkpointed(parent, file_names.HIGH_WATERMARKS, partition),
        has_mark(parent),
        untouched,
        topic_id=topic_id,
        stray=stray,
    )
    # With the mark in place a broker would not scan: what it would do then is told, too.
    if not plan.drops_mark:
        return plan
    marked = predict_start(partition, StartMode.CLEAN, config=config, hosting=hosting)
    return dataclasses.replace(plan, while_marked=marked)


def _require_readable(partition: PartitionDir) -> None:
    """Raise `UnreadableError` if a log cannot be opened: a start opens each, and scans few."""
    for entry in partition.live(FileKind.LOG):
        with Source(entry.path):
            pass


def _identified(predicted: PredictedStart, topic_id: str | None) -> PredictedStart:
    """Return a start after an id was written: it makes no stray for want of one."""
    return predicted if topic_id is None else dataclasses.replace(predicted, stray=None)


def recovery_start(
    partition: PartitionDir,
    mode: StartMode | None,
    config: StartConfig,
    *,
    recovery_point: int | None = None,
    log_start_checkpoint: int | None = None,
    hosting: Hosting | None = None,
    tell: Callable[[str, bytes], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> StartInProgress:
    """Return the start of a broker as a recovery performs it: whatever can be rebuilt is."""
    return StartInProgress(
        partition,
        mode,
        recovery_point=recovery_point,
        log_start_checkpoint=log_start_checkpoint,
        config=config,
        hosting=hosting,
        tell=tell,
        # Where Kafka would make do with an empty index, or refuse a damaged epochs file, a repair
        # builds it from the log: nothing is lost by that.
        trusts_swaps=False,
        rebuilds_epochs=True,
        progress=progress,
    )


def _untouched(partition: PartitionDir) -> Untouched | None:
    if partition.topic == CLUSTER_METADATA:
        return Untouched(
            "only the broker recovers KRaft's own log, at each start", "Start the broker."
        )
    if partition.state == DirectoryState.DELETE:
        records = sum(
            _records(Content(entry.path, 0, entry.size_bytes), entry.name.name)
            for entry in partition.files
            if entry.error is None
        )
        return Untouched(
            f"a broker deletes the directory, with {counted(records, 'record')}",
            f"`kafkalog salvage {partition.path} --to NEW` copies its records.",
        )
    return None


def _reasons(predicted: PredictedStart) -> dict[str, str]:
    """Return why files are removed or logs cut, by the names of the files."""
    found = {}
    for action in predicted.actions:
        if isinstance(action, RemoveFile):
            found[action.name] = action.why
        elif isinstance(action, TruncateLog):
            found[segment_file(action.base_offset, file_names.LOG)] = action.why
        elif isinstance(action, DeleteSegment):
            found |= {
                segment_file(action.base_offset, one): action.why
                for one in (file_names.LOG, *file_names.INDEXES)
            }
    return found


def _removed(name: str, content: Content, why: str) -> FileChange:
    return FileChange(name, Fate.REMOVED, 0, content.size_bytes, _records(content, name), why)


def _cut(name: str, old: Content, new: Content, why: str | None) -> FileChange:
    gone = Content(new.path, new.end, old.end)
    size = new.size_bytes
    return FileChange(name, Fate.CUT, size, gone.size_bytes, _records(gone, name), why or _PADDING)


def _records(content: Content, name: str) -> int:
    """Count the records in a part of a file, if that is a log, in whatever state."""
    # Also `.log.deleted` and `.log.swap`: they hold records.
    if content.path is None or f"{file_names.LOG}." not in f"{name}.":
        return 0
    with Source(content.path) as source:
        return count_records(source, content.start, content.end)


def with_clock(config: StartConfig) -> StartConfig:
    """Return the config with a fixed clock, so that all readings of a partition agree."""
    if config.now_ms is not None:
        return config
    return dataclasses.replace(config, now_ms=present_ms())


class _Differences:
    """Takes the files that a prediction reports, and notes which differ on disk.

    Attributes:
        numbers: their ordinals among the reported files.
    """

    def __init__(self, partition: PartitionDir) -> None:
        self.numbers: set[int] = set()
        self._path = partition.path
        self._count = 0

    def __call__(self, name: str, data: bytes) -> None:
        if not is_same(os.path.join(self._path, name), data):
            self.numbers.add(self._count)
        self._count += 1


def is_same(path: str, data: bytes) -> bool:
    """Return whether a file has exactly these bytes."""
    if not file_system.is_there(path):
        return False
    with Source(path) as source:
        return source.size_bytes == len(data) and source.read(0, len(data)) == data


def _fate(name: str, old: Content | None, new: Content, differing: set[int]) -> Fate | None:
    """Return what happens to the file of that name; None if it stays as it is."""
    if new.path is None:
        is_changed = old is None or new.told in differing or (new.told is None and old.size_bytes)
        return Fate.WRITTEN if is_changed else None
    if os.path.basename(new.path) != name:
        return Fate.RENAMED if new.start == 0 else Fate.WRITTEN
    if old is not None and (new.start, new.end) == (old.start, old.end):
        return None
    return Fate.WRITTEN if new.start else Fate.CUT


def _bytes_to_scan(predicted: PredictedStart, before: dict[str, Content]) -> int:
    """Return the bytes of logs that are scanned; each counts once per scan."""
    size = 0
    for action in predicted.actions:
        if isinstance(action, RebuildIndexes) and action.why != _NEW_PART:
            name = segment_file(action.base_offset, file_names.LOG)
            log = before.get(name + file_names.SWAP) or before.get(name)
            size += log.size_bytes if log is not None else 0
    return size
