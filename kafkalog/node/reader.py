"""Reads selected batches and records of segments and partitions, with damage reported in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from formats.file_names import FileKind
from kafkalog.errors import UsageError
from kafkalog.files.log_dir import FileEntry, PartitionDir, one_log, open_path
from kafkalog.log.batches.selection import (
    EVERYTHING,
    ReadPlan,
    Selection,
    plan_segments,
    planned_batches,
    planned_records,
    segments_of,
)
from kafkalog.log.defects import make_defect
from kafkalog.log.living import answered, listed_again
from kafkalog.model import AbortedTransaction, Batch, Defect, Isolation, Record
from kafkalog.node.outcome import View
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Readable: TypeAlias = "str | Path | PartitionDir | FileEntry | View | ReadPlan"


def read_batches(
    path: Readable,
    selection: Selection = EVERYTHING,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Batch | Defect]:
    """Yield the batches of a partition directory or a log file, with a defect for any damage.

    If a path is given whose view differs from its files, a `view-differs` comes first. Checksums
    are computed (`Batch.crc_valid`). A batch is selected as a whole if, according to its header, it
    can hold a selected record; keys, values and headers are not examined. `progress` is called with
    the number of bytes read since the last call.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.
    """
    plan = plan_reading(path, selection)
    yield from untold_differences(path, plan)
    yield from planned_batches(plan, progress)


def read_records(
    path: Readable,
    selection: Selection = EVERYTHING,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Record | Defect]:
    """Yield the records of a partition directory or a log file, with a defect for any damage.

    If a path is given whose view differs from its files, a `view-differs` comes first. Records come
    in log order; those of a batch with a wrong checksum come after its defect, as far as they can
    be decoded. `progress` is called with the number of bytes read since the last call.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.
    """
    plan = plan_reading(path, selection)
    yield from untold_differences(path, plan)
    yield from planned_records(plan, progress)


def untold_differences(path: Readable, plan: ReadPlan) -> Iterator[Defect]:
    """Yield the defect of a view that is not the files, unless the caller made the view."""
    difference = plan.difference
    if difference is not None and not isinstance(path, ReadPlan | View):
        yield make_defect(
            "view-differs",
            difference.path,
            difference.detail,
            size_bytes=difference.hidden_bytes,
        )


def plan_reading(path: Readable, selection: Selection) -> ReadPlan:
    """Plan what to read for a selection; a plan is returned as it is. Raises as `read_records`."""
    if isinstance(path, ReadPlan):
        return path
    if selection.from_position is not None and selection.from_position < 0:
        raise UsageError("A position cannot be negative.")
    target = path if isinstance(path, View) else one_log(open_path(path))
    if isinstance(target, FileEntry):
        require_log(target)
        return _plan(target, selection)
    listed = target.partition if isinstance(target, View) else target

    def first() -> ReadPlan:
        is_given = isinstance(path, PartitionDir | View)
        return _plan(target if is_given else show(listed, selection.view), selection)

    def again(_next_offset: int | None = None) -> ReadPlan:
        return _plan(show(listed_again(listed), selection.view), selection)

    return replace(answered(first, again), again=again)


def require_log(target: PartitionDir | FileEntry) -> None:
    """Raise `UsageError` for a file that holds no batches."""
    kinds = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT)
    if isinstance(target, FileEntry) and target.name.kind not in kinds:
        raise UsageError(
            "This file holds no records.",
            path=target.path,
            hint=f"`kafkalog dump-segment {target.path}` shows what it holds.",
        )


def _plan(path: PartitionDir | FileEntry | View, selection: Selection) -> ReadPlan:
    frontier = None
    if isinstance(path, View):
        segments, partition, difference = path.segments, path.partition, path.difference
        frontier = path.frontier
    else:
        (segments, partition), difference = segments_of(path), None
    aborted: dict[int, list[AbortedTransaction]] = {}
    # High watermark and aborted transactions cost reads, which a limit of 0 does not need.
    if selection.isolation != Isolation.LOG and selection.limit != 0:
        log = UnifiedLog(partition)
        start, end = log.fetch_bounds(selection.isolation)
        if selection.from_offset is not None:
            start = max(start, selection.from_offset)
        if selection.to_offset is not None:
            end = min(end, selection.to_offset)
        selection = replace(selection, from_offset=start, to_offset=end)
        for transaction in log.hidden_transactions() if selection.read_committed else ():
            aborted.setdefault(transaction.producer_id, []).append(transaction)
    plan = plan_segments(tuple(segments), selection)
    return replace(plan, aborted=aborted, difference=difference, frontier=frontier)
