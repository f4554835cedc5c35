"""The views of a partition directory: its files, or what a broker's next start would make of them.

`started` is what recovery predicts (`kafkalog.node.recovery`, which follows `LogLoader` of
Kafka):

- With a clean shutdown mark and without leftovers of a swap, it is the files as they are, and only
  the end of the log is read, on a disk also the small files that a start reads. If something other
  than batches is at the end, a start may take an earlier offset for the log end: what comes after
  it is not shown, and the `Difference` counts it.
- In a log directory without the mark, everything from the recovery point on is read, as a start
  does; so is all of `__cluster_metadata-0`, for which KRaft trusts no mark. What the start would
  cut off is not shown, and the `Difference` counts it. A reader that may stop early gets a
  `Frontier` with the view: it reads no further than the reader does.
- With a running broker (another process holds `.lock`), and for a partition directory outside any
  log directory (a copy: no checkpoint, no `meta.properties` and no mark around it), only swaps are
  completed, from the names of the files, and nothing is cut off: the broker has not recovered what
  it writes, and the copy may well have been closed cleanly.
- A log in remote storage is shown as it is: no broker starts on it.
- A `-delete` or `-stray` directory whose path was given is shown as it is, since a start would show
  nothing of it. So is a log that a start would refuse to load, but for a swap that it completes
  before; the `Difference` says why.

A single file is always read as it is.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import TOP_FILES, DirectoryState, FileKind, FileState, parse_file_name
from formats.late_patterns import pattern
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import CorruptDataError, DataError
from kafkalog.files.indexes import read_aborted_transactions
from kafkalog.files.listing import Late
from kafkalog.files.log_dir import Segment
from kafkalog.files.text_files import checkpointed, read_leader_epochs
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import read_file
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.living import CHANGES, answered, listed_again
from kafkalog.model import LogView
from kafkalog.node.outcome import View, unknown_outcome

if TYPE_CHECKING:
    from kafkalog.files.log_dir import FileEntry, PartitionDir


def show(
    partition: PartitionDir, view: LogView = LogView.RECOVERED, *, lazily: bool = False
) -> View:
    """Return a partition directory in a view. Nothing is written.

    With `lazily`, what a start would scan may be left to the `frontier` of the view.

    Raises:
        NotFoundError, FileChangedError: a broker has changed the files since they were listed.

    Cost:
        A few small reads if the log was closed cleanly. Without a clean shutdown mark, a read of
        everything from the recovery point on, as `predict_start` does; after an interrupted swap
        only, a read of the ends of its segments.
    """
    if partition.tier is None:
        return _show(partition, view, lazily=lazily)
    shown = _show(partition.local(), view)
    whole, others = shown.partition.joined(), shown.segments[len(shown.partition.segments) :]
    return replace(shown, partition=whole, segments=Late(lambda: (*whole.segments, *others)))


def _show(partition: PartitionDir, view: LogView, *, lazily: bool = False) -> View:
    if view == LogView.ALL:
        others = tuple(map(_left_over, partition.other_logs))
        return View(partition, partition.segments + others)
    found = None
    if view == LogView.RECOVERED:
        try:
            found = _start_view(partition, lazily=lazily)
        except CHANGES:
            raise  # a new listing knows more
        except DataError as error:
            found = unknown_outcome(partition, error)
    return found or View(partition, Late(lambda: partition.segments))


def show_now(
    partition: PartitionDir, view: LogView = LogView.RECOVERED, *, lazily: bool = False
) -> View:
    """Do what `show` does, with a new listing if the files have changed since the last one."""
    return answered(
        lambda: show(partition, view, lazily=lazily),
        lambda: show(listed_again(partition), view, lazily=lazily),
    )


def state_of(path: str) -> str:
    """Return the state of a log by the names of file and directory: `live`, `stray` …."""
    state = parse_file_name(os.path.basename(path)).state
    if state != FileState.LIVE:
        return str(state)
    directory = file_names.partition_of(os.path.dirname(file_system.absolute(path)))
    return str(directory.state if directory else FileState.LIVE)


def _left_over(log: FileEntry) -> Segment:
    """Return a segment that is not live, without its indexes."""
    return Segment(log.name.offset or 0, log, None, None, None, None)


def _start_view(partition: PartitionDir, *, lazily: bool) -> View | None:
    """Return the view of a start, or None if it is the files as they are."""
    if partition.state in (DirectoryState.DELETE, DirectoryState.STRAY, DirectoryState.REMOTE):
        return None
    log_dir = os.path.dirname(file_system.absolute(partition.path))
    is_swapped = any(entry.name.state == FileState.SWAP for entry in partition.files)
    is_marked = file_system.exists(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN))
    is_closed = is_marked and partition.topic != CLUSTER_METADATA
    changes_nothing = is_closed and not (is_swapped or _needs_a_look(partition, log_dir))
    if changes_nothing:
        end = None
        for active in partition.segments[-1:]:
            with OpenSegment(active) as opened:
                end = opened.sound_end()
        if not partition.segments or (end is not None and not is_object(partition.path)):
            return None
        if end is not None:  # on a disk it is read again: a log may have grown
            shown = replace(partition, end_offset=end)
            return View(shown, shown.segments)
    has_top_files = any(file_system.exists(os.path.join(log_dir, name)) for name in TOP_FILES)
    is_running = is_broker_running(log_dir)
    if (is_running or not has_top_files) and not is_swapped:
        return None
    from kafkalog.node.frontier import Frontier, predict, tidy

    if has_top_files and not is_running:
        if lazily and not is_closed:
            frontier = Frontier(partition)
            return frontier.view() if frontier.can_wait() else frontier.settle()
        recovered = predict(partition)
        return None if changes_nothing and recovered.difference is None else recovered
    tidied = tidy(partition)
    # A running broker completes the swap itself.
    return replace(tidied, difference=None) if is_running else tidied


def _needs_a_look(partition: PartitionDir, log_dir: str) -> bool:
    """Return whether even a start after a clean shutdown may change the segments, or refuse them.

    It recovers segments without an offset index, drops a log that ends before its log start offset,
    and reads the small files.
    """
    segments = partition.segments
    if not all(segment.offset_index for segment in segments) or any(map(_is_odd, partition.files)):
        return True
    name = file_names.LOG_STARTS
    start = checkpointed(log_dir, name, partition.topic, partition.partition)
    return start is not None and bool(segments) and start > segments[-1].base_offset


_NUMBERED: Final = (file_names.LOG, *file_names.INDEXES, file_names.SNAPSHOT)
_METADATA: Final = pattern(rb"version: 0\ntopic_id: (?!A{22})[\w-]{22}")


def _is_odd(entry: FileEntry) -> bool:
    """Return whether a start may stumble over a file; in a store, only its name is looked at."""
    kind, path = entry.name.kind, entry.path
    if kind == FileKind.UNKNOWN:
        return path.endswith(_NUMBERED)
    if entry.name.state != FileState.LIVE or is_object(path):
        return False
    if kind == FileKind.TRANSACTION_INDEX and entry.size_bytes:
        base = entry.name.offset or 0
        return any(one.version or one.last_offset < base for one in read_aborted_transactions(path))
    if kind == FileKind.PARTITION_METADATA:
        return _METADATA.fullmatch(read_file(path)) is None
    if kind != FileKind.LEADER_EPOCH_CHECKPOINT:
        return False
    try:
        return any(min(one.leader_epoch, one.start_offset) < 0 for one in read_leader_epochs(path))
    except CorruptDataError:
        return True
