"""The views of a partition directory: its files, or what a broker's next start would make of them.

`started` is what recovery predicts (`kafkalog.node.recovery`, which follows `LogLoader` of
Kafka 4.3):

- With a clean shutdown mark and without leftovers of a swap, it is the files as they are, and only
  the end of the log is read, on a disk also the small files that a start reads. If something other
  than batches is at the end, a start may take an earlier offset for the log end: what comes after
  it is not shown, and the `Difference` counts it.
- In a log directory without the mark, everything from the recovery point on is read, as a start
  does. What the start would cut off is not shown, and the `Difference` counts it. A reader that may
  stop early gets a `Frontier` with the view: it reads no further than the reader does.
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
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import TOP_FILES, DirectoryState, FileKind, FileState, parse_file_name
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import CorruptDataError, DataError
from kafkalog.files.indexes import ENTRY_SIZES, aborted_transactions, read_aborted_transactions
from kafkalog.files.listing import Late
from kafkalog.files.log_dir import PartitionDir, Segment, list_partition
from kafkalog.files.text_files import checkpointed, read_leader_epochs
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source, read_file
from kafkalog.io.paths.uris import is_object
from kafkalog.io.wording import counted
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.living import CHANGES, answered, listed_again
from kafkalog.model import LogView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import FileEntry
    from kafkalog.model import Batch
    from kafkalog.node.configs.sources import LogDirConfigs
    from kafkalog.node.recovery.directory import Content
    from kafkalog.node.recovery.model import Action, PredictedStart, StartConfig
    from kafkalog.node.recovery.start import Behind, StartInProgress


_LITTLE: Final = 3 << 16
"""Scan this much at once: a reader hardly notices."""
_NO_INDEX: Final = 1 << 20
"""Below this size, searching headers takes no more reads than searching an index."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How the view of a start differs from the files under final names.

    Attributes:
        path: the partition directory.
        swapped: number of `.swap` segments that become live.
        replaced: number of segments under final names that they replace.
        cut_at: the offset at which the log is cut; None if it is not.
        ends_at: the log end offset after a clean shutdown, if batches follow it, which stay on disk
            and are never served; otherwise None.
        records_hidden: number of records cut off, or behind the log end, according to the headers
            of their batches.
        bytes_hidden: bytes of logs that are cut off, or of batches behind the log end.
        refusal: why the outcome of a start is unknown and the files are shown as they are, or as a
            swap leaves them; None if it is known.
        shown: names of the logs of which a reader may have shown what does not stay; see
            `Frontier`.
        unscanned_bytes: bytes that a start would scan, and nobody has, as no reader needed them.
    """

    path: str
    swapped: int = 0
    replaced: int = 0
    cut_at: int | None = None
    ends_at: int | None = None
    records_hidden: int = 0
    bytes_hidden: int = 0
    refusal: str | None = None
    shown: tuple[str, ...] = ()
    unscanned_bytes: int = 0

    @property
    def is_known(self) -> bool:
        """Whether something is known to differ, not only that a start may cut the log."""
        return not self.unscanned_bytes or self.swapped > 0

    @property
    def detail(self) -> str:
        """The whole difference, in one line."""
        also = (
            f"; records of {', '.join(self.shown)} may have been shown before" if self.shown else ""
        )
        if self.refusal is not None:
            how = "with the swap completed" if self.swapped else "as they are"
            return f"{self.refusal}; showing the files {how}{also}"
        return _actions([self]) + also


@dataclass(frozen=True, slots=True)
class Shown:
    """A partition directory in a view.

    Attributes:
        partition: the directory with the files of the view, each under its name there.
        segments: the segments to read, in order: those of the log, and in `all` also leftovers.
        difference: how that differs from the files under final names, None if it does not.
        frontier: what scans the log for its reader; None if all of it is known.
    """

    partition: PartitionDir
    segments: Sequence[Segment]
    difference: Difference | None = None
    frontier: Frontier | None = None

    @property
    def known(self) -> Shown:
        """The view as far as it is known by now: the final one once everything was scanned."""
        if self.frontier is None or self.frontier.unscanned_bytes:
            return self
        return self.frontier.settle()

    @property
    def told(self) -> Difference | None:
        """The difference as far as it is known by now, with how much was not scanned."""
        difference = self.known.difference
        if self.frontier is None or not (unscanned := self.frontier.unscanned_bytes):
            return difference
        difference = difference or Difference(self.partition.path)
        return replace(difference, unscanned_bytes=unscanned)


class Frontier:
    """How far the scan of a start has got that goes no further than a reader of its view does.

    The view has the files as they are; a reader asks at each position whether a start accepts what
    is there. Once one does not, the rest of the start is predicted, and the view is final.

    A scan may throw away what it has accepted: if offsets go back at a batch for which an index
    entry is due, nothing of the segment stays. Then it is named in `Difference.shown`.

    Args:
        partition: the directory.

    Attributes:
        settled: the final view, once it is known.
        scanned_bytes: how much was scanned for parts.
    """

    def __init__(self, partition: PartitionDir) -> None:
        self.settled: Shown | None = None
        self._partition = partition
        self._start, self._written = _begun(partition, None)
        self._first = self.end_min
        logs = [one.log for one in partition.segments if one.base_offset >= self._first]
        self._hole_bytes = sum(log.hole_bytes for log in logs)  # preallocated
        self._shown: dict[str, int] = {}
        self.scanned_bytes = 0

    def can_wait(self) -> bool:
        """Return whether there is much to scan, and what comes before it is known to stay."""
        start = self._start
        while (scan := start.scan) is not None and start.scans_the_end:
            # A log that ends below its log start offset is dropped.
            if scan.reached[1] >= start.log_start_checkpoint:
                return start.unread_bytes - self._hole_bytes > _LITTLE
            if not start.advance():
                break
        return False

    @property
    def unscanned_bytes(self) -> int:
        """How much of the log a start would scan, and was not."""
        return 0 if self.settled is not None else self._start.unread_bytes

    @property
    def end_min(self) -> int:
        """An offset at which, or after which, the log ends after the start."""
        return 0 if self._start.scan is None else self._start.scan.segment.base_offset

    def view(self) -> Shown:
        """Return the view with nothing scanned."""
        start = self._start
        shown = _shown(self._partition, start.tidying, start.contents, None)
        files = tuple(map(self._unproven, shown.partition.files))
        partition = replace(shown.partition, files=files)
        return Shown(partition, partition.segments, shown.difference, self)

    def cut_at(self, segment: Segment, position: int) -> int | None:
        """Return where a start ends a segment if it does not accept what is at a position."""
        path = segment.log.path
        with self._contained():
            if self.settled is None and self._start.accepts(segment.base_offset, position):
                self._shown[path] = position
                return None
        there = (one.log for one in self.settle().segments if one.log.path == path)
        return next((log.end for log in there), 0)

    def final_at(self, segment: Segment) -> Sequence[Segment] | None:
        """Return the segments of the final view if that is known, or has to be to read one."""
        self.cut_at(segment, 0)
        return None if self.settled is None else self.settled.segments

    def part(self, size_bytes: int) -> PartitionDir | None:
        """Scan `size_bytes`; return the log as far as a start accepts it, None if that is all.

        It ends with batches that the start accepts, and has those of all segments before.
        """
        start = self._start
        with self._contained():
            while self.settled is None and self.scanned_bytes < size_bytes:
                before = start.unread_bytes
                if not start.advance():
                    return None
                self.scanned_bytes += before - start.unread_bytes
        if self.settled is not None or start.scan is None:
            return None
        position, end = start.scan.reached
        base, files = start.scan.segment.base_offset, []
        for entry in self.view().partition.files:
            kind, offset = entry.name.kind, entry.name.offset or 0
            is_log = kind == FileKind.LOG and entry.name.state == FileState.LIVE
            if is_log and offset == base:
                files.append(replace(entry, size_bytes=position, end=position))
            elif offset < base or not (is_log or (kind in ENTRY_SIZES and position < _NO_INDEX)):
                files.append(entry)
        return replace(self._partition, files=tuple(files), end_offset=end)

    def is_followed(self, batch: Batch) -> bool:
        """Return whether those two batches are accepted, too, by which `Order` judges one."""
        scan = self._start.scan
        if scan is None or scan.segment.log.path != batch.path:
            return True
        with Source(batch.path, scan.reached[0]) as source:
            return len(list(islice(scan_batches(source, batch.end_position), 2))) == 2

    @contextmanager
    def _contained(self) -> Iterator[None]:
        """Show the files as they are if the block cannot read them."""
        try:
            yield
        except CHANGES:
            raise  # a new listing knows more
        except DataError as error:
            self.settled = _unknown(self._partition, error)

    def settle(self) -> Shown:
        """Return the final view. Raises as `show`.

        Cost:
            Scans what was not scanned. All of it is scanned, maybe again, if the topic's configs
            for indexes, which the metadata log has, are not the usual ones.
        """
        from kafkalog.node.recovery.start import usual_config

        with self._contained():
            if self.settled is not None:
                return self.settled
            config = start_config_of(self._partition)
            if config not in (None, usual_config(self._partition)):
                self._start, self._written = _begun(self._partition, config)
            shown = _outcome(self._partition, self._start, self._written)
            ends = {one.log.path: one.log.size_bytes for one in shown.segments}
            lost = [path for path, seen in self._shown.items() if ends.get(path, 0) < seen]
            if lost and shown.difference is not None:
                names = tuple(os.path.basename(path) for path in lost)
                shown = replace(shown, difference=replace(shown.difference, shown=names))
            self.settled = shown
        assert self.settled is not None, "errors settle it, too"
        return self.settled

    def _unproven(self, entry: FileEntry) -> FileEntry:
        """Return a file of the view; a start writes the indexes of what it scans again."""
        is_scanned = (entry.name.offset or 0) >= self._first
        return replace(entry, is_stale=is_scanned) if entry.name.kind in ENTRY_SIZES else entry


def show(
    partition: PartitionDir, view: LogView = LogView.STARTED, *, lazily: bool = False
) -> Shown:
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


def _show(partition: PartitionDir, view: LogView, *, lazily: bool = False) -> Shown:
    if view == LogView.ALL:
        others = tuple(map(_left_over, partition.other_logs))
        return Shown(partition, partition.segments + others)
    found = None
    if view == LogView.STARTED:
        try:
            found = _started(partition, lazily=lazily)
        except CHANGES:
            raise  # a new listing knows more
        except DataError as error:
            found = _unknown(partition, error)
    return found or Shown(partition, Late(lambda: partition.segments))


def show_now(
    partition: PartitionDir, view: LogView = LogView.STARTED, *, lazily: bool = False
) -> Shown:
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


def summary(differences: Sequence[Difference]) -> str | None:
    """Summarize the differences of all partitions in one line; None if there are none."""
    if len(differences) < 2:
        return f"{differences[0].path}: {differences[0].detail}" if differences else None
    told = _actions(differences)
    refused = [one.detail for one in differences if one.refusal is not None]
    if refused:
        told += f"; {counted(len(refused), 'partition')} of them: {refused[0]}"
    return f"{differences[0].path} and {counted(len(differences) - 1, 'other partition')}: {told}"


def _actions(differences: Sequence[Difference]) -> str:
    told = []
    swapped = sum(one.swapped for one in differences)
    if swapped:
        replaced = sum(one.replaced for one in differences)
        place = f" in place of {replaced}" if replaced else ""
        told.append(f"make {counted(swapped, '.swap segment')} live{place}")
    hidden = [one for one in differences if one.bytes_hidden]
    cut = [one for one in hidden if one.ends_at is None]
    if cut:
        one_log = f"truncate the log at offset {cut[0].cut_at}"
        logs = one_log if len(differences) == 1 else f"cut {counted(len(cut), 'log')}"
        told.append(f"{logs} and drop {_hidden(cut)}")
    short = [one for one in hidden if one.ends_at is not None]
    if short:
        one_log = f"end the log at offset {short[0].ends_at}"
        logs = one_log if len(differences) == 1 else f"end {counted(len(short), 'log')} too early"
        told.append(f"{logs} and never serve {_hidden(short)} after that")
    unscanned = counted(sum(one.unscanned_bytes for one in differences), "byte")
    is_whole = not any(one.unscanned_bytes for one in differences)
    rest = f"not closed cleanly; {unscanned} that a start scans, and may cut, were not read"
    if not told:
        return "the next start would not load them" if is_whole else rest
    hint = "--view files shows the files under final names"
    also = "" if is_whole else f"; {rest}"
    return f"the next start would {', and '.join(told)}; {hint}{also}"


def _hidden(differences: Sequence[Difference]) -> str:
    records = sum(one.records_hidden for one in differences)
    size = sum(one.bytes_hidden for one in differences)
    return f"{counted(records, 'record')} ({counted(size, 'byte')})"


def _left_over(log: FileEntry) -> Segment:
    """Return a segment that is not live, without its indexes."""
    return Segment(log.name.offset or 0, log, None, None, None, None)


def _unknown(partition: PartitionDir, error: DataError) -> Shown:
    return _as_it_is(partition, f"what the next start would show is unknown: {error.message}")


def _as_it_is(partition: PartitionDir, why: str) -> Shown:
    return Shown(partition, partition.segments, Difference(partition.path, refusal=why))


def _started(partition: PartitionDir, *, lazily: bool) -> Shown | None:
    """Return the view of a start, or None if it is the files as they are."""
    if partition.state in (DirectoryState.DELETE, DirectoryState.STRAY, DirectoryState.REMOTE):
        return None
    log_dir = os.path.dirname(file_system.absolute(partition.path))
    is_swapped = any(entry.name.state == FileState.SWAP for entry in partition.files)
    is_closed = file_system.exists(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN))
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
            return Shown(shown, shown.segments)
    has_top_files = any(file_system.exists(os.path.join(log_dir, name)) for name in TOP_FILES)
    is_running = is_broker_running(log_dir)
    if has_top_files and not is_running:
        if lazily and not is_closed:
            frontier = Frontier(partition)
            return frontier.view() if frontier.can_wait() else frontier.settle()
        recovered = _outcome(partition, *_begun(partition, start_config_of(partition)))
        return None if changes_nothing and recovered.difference is None else recovered
    if not is_swapped:
        return None
    tidied = _tidied(partition)
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
_METADATA: Final = re.compile(rb"version: 0\ntopic_id: (?!A{22})[\w-]{22}")


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
        return any(min(one.epoch, one.start_offset) < 0 for one in read_leader_epochs(path))
    except CorruptDataError:
        return True


def _begun(
    partition: PartitionDir, config: StartConfig | None
) -> tuple[StartInProgress, dict[str, bytes]]:
    """Return a start that has begun, and where the transaction indexes are that it writes."""
    from kafkalog.node.recovery import StartInProgress

    written: dict[str, bytes] = {}

    def keep(name: str, data: bytes) -> None:
        if name.endswith(file_names.TRANSACTION_INDEX):
            written[name] = data

    return StartInProgress(partition, config=config, tell=keep), written


def _outcome(partition: PartitionDir, start: StartInProgress, written: dict[str, bytes]) -> Shown:
    """Return the view after all steps of a start."""
    from kafkalog.node.recovery.model import RenameFile

    predicted = start.end()
    if predicted.refusal is not None:
        refusal = predicted.refusal
        why = f"a broker would not load it ({refusal.error}: {refusal.message})"
        if not any(isinstance(action, RenameFile) for action in start.tidying):
            return _as_it_is(partition, why)
        tidied = _tidied(partition)  # what a broker leaves that gives up
        difference = tidied.difference or Difference(partition.path)
        return replace(tidied, difference=replace(difference, refusal=why))
    shown = _shown(partition, predicted.actions, start.contents, predicted)
    aborted = tuple(
        (parse_file_name(name).offset or 0, tuple(aborted_transactions(data)))
        for name, data in sorted(written.items())
        if name in start.contents
    )
    return replace(shown, partition=replace(shown.partition, aborted=aborted))


def start_config_of(partition: PartitionDir) -> StartConfig | None:
    """Return the topic configs that a start depends on, from the metadata log next to it."""
    from kafkalog.node.recovery.start import start_config

    log_dir = os.path.dirname(file_system.absolute(partition.path))
    try:
        metadata = list_partition(os.path.join(log_dir, f"{CLUSTER_METADATA}-0")).files
    except DataError:
        return None
    try:
        configs = _configs_in(log_dir, metadata).of_topic(partition.topic)
        return start_config(partition, configs)[0]
    except DataError:
        return None  # `verify` reports what is wrong with it


@lru_cache(4)
def _configs_in(log_dir: str, _metadata: tuple[FileEntry, ...]) -> LogDirConfigs:
    """Return the configs in a log directory, read once for all its partitions."""
    from kafkalog.node.configs import ConfigSources

    return ConfigSources().in_log_dir(log_dir)


def _tidied(partition: PartitionDir) -> Shown:
    """Return the view after the first step of a start, which judges files by their names."""
    from kafkalog.node.recovery.directory import Directory
    from kafkalog.node.recovery.loader import settle_left_overs
    from kafkalog.node.recovery.model import StartRefusedError
    from kafkalog.node.recovery.start import usual_config

    directory = Directory(partition)
    try:
        settle_left_overs(directory, usual_config(partition))
    except StartRefusedError as error:
        return _as_it_is(partition, f"a broker would not load it ({error.error}: {error.message})")
    return _shown(partition, tuple(directory.actions), directory.contents, None)


def _shown(
    partition: PartitionDir,
    actions: tuple[Action, ...],
    contents: dict[str, Content],
    predicted: PredictedStart | None,
) -> Shown:
    files = _files(partition, actions, contents)
    behind = None
    if predicted is not None:
        from kafkalog.node.recovery.start import behind_the_end

        behind = behind_the_end(predicted)
    if behind is not None:
        files = (_without(entry, behind) for entry in files)
    loaded = predicted.loaded if predicted else None
    started = replace(partition, files=tuple(files), loaded=loaded)
    difference = _difference(partition, actions, contents, predicted, behind)
    return Shown(started, started.segments, difference)


def _files(
    partition: PartitionDir, actions: tuple[Action, ...], contents: dict[str, Content]
) -> Iterator[FileEntry]:
    """Yield the files that exist after a start, with the bytes that are on disk now.

    A segment that a start would split is shown whole, since its records are the same.
    """
    from kafkalog.node.recovery.model import RebuildIndexes, RemoveFile, RenameFile

    there = {entry.name.name: entry for entry in partition.files if entry.error is None}
    by_path = {entry.path: entry for entry in there.values()}
    changed: set[str] = set()
    for action in actions:
        if isinstance(action, RenameFile) and action.name in there:
            there[action.new_name] = there.pop(action.name)
        elif isinstance(action, RemoveFile):
            there.pop(action.name, None)
        elif isinstance(action, RebuildIndexes):
            changed.update(action.changed)
    ends: dict[str, int] = {}
    for content in contents.values():
        if content.path is not None:
            ends[content.path] = max(ends.get(content.path, 0), content.end)
    for name, content in sorted(contents.items()):
        if content.path is None:
            entry = there.get(name) if name.endswith(file_names.INDEXES) else None
            if entry is not None:
                yield replace(entry, name=parse_file_name(name), is_stale=name in changed)
        elif not content.start:
            entry = by_path[content.path]
            end = ends[content.path] if ends[content.path] < entry.size_bytes else None
            if end is not None:
                entry = replace(entry, size_bytes=end, end=end)
            yield replace(entry, name=parse_file_name(name))


def _difference(
    partition: PartitionDir,
    actions: tuple[Action, ...],
    contents: dict[str, Content],
    predicted: PredictedStart | None,
    behind: Behind | None,
) -> Difference | None:
    from kafkalog.node.recovery.model import RemoveFile, RenameFile

    def is_log(name: str) -> bool:
        return name.endswith(file_names.LOG)

    renamed = [one for one in actions if isinstance(one, RenameFile) and is_log(one.new_name)]
    removed = [one for one in actions if isinstance(one, RemoveFile) and is_log(one.name)]
    lost = _cuts(predicted, contents) if predicted is not None else []
    if behind is not None:
        lost.append((behind.offset, behind.records, behind.size_bytes))
    if not renamed and not lost:
        return None
    return Difference(
        partition.path,
        swapped=len(renamed),
        replaced=len(removed),
        cut_at=None if behind else min((offset for offset, _, _ in lost), default=None),
        ends_at=behind.offset if behind else None,
        records_hidden=sum(records for _, records, _ in lost),
        bytes_hidden=sum(size for _, _, size in lost),
    )


def _cuts(predicted: PredictedStart, contents: dict[str, Content]) -> list[tuple[int, int, int]]:
    """Return the start offset, records and bytes of each cut, leaving out preallocated zeros."""
    from kafkalog.node.recovery.model import TruncateLog

    found = []
    for cut in predicted.cuts:
        if not isinstance(cut, TruncateLog):
            if cut.size_bytes:
                found.append((cut.base_offset, cut.records_lost, cut.size_bytes))
            continue
        log = contents.get(file_names.segment_file(cut.base_offset, file_names.LOG))
        if not cut.records_lost and log is not None and log.path is not None:
            with Source(log.path) as source:
                if source.is_zero_from(log.start + cut.position):
                    continue  # preallocated
        found.append((cut.offset, cut.records_lost, cut.bytes_lost))
    return found


def _without(entry: FileEntry, behind: Behind) -> FileEntry:
    """Return a file of the view, cut off where a start ends the log; indexes may point past it."""
    if entry.path == behind.path:
        return replace(entry, size_bytes=behind.position, end=behind.position)
    if entry.name.kind in ENTRY_SIZES and entry.name.offset == behind.base_offset:
        return replace(entry, is_stale=True)
    return entry
