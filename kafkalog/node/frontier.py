"""The view of a start: predicted at once, or along a frontier that its reader moves.

Views need this module only where a start does more than to load the files.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import FileKind, FileState, parse_file_name
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.files.indexes import ENTRY_SIZES, aborted_transactions
from kafkalog.files.log_dir import FileEntry, PartitionDir, Segment, list_partition
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.living import CHANGES
from kafkalog.node.configs import ConfigSources
from kafkalog.node.identity import home_of
from kafkalog.node.outcome import Difference, View, as_it_is, unknown_outcome
from kafkalog.node.recovery import StartInProgress
from kafkalog.node.recovery.directory import Content, Directory
from kafkalog.node.recovery.loader import settle_left_overs
from kafkalog.node.recovery.model import (
    Action,
    Behind,
    PredictedStart,
    RebuildIndexes,
    RemoveFile,
    RenameFile,
    StartConfig,
    StartRefusedError,
    TruncateLog,
)
from kafkalog.node.recovery.start import start_config, usual_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.model import Batch
    from kafkalog.node.configs.sources import LogDirConfigs


_LITTLE: Final = 3 << 16
"""Scan this much at once: a reader hardly notices."""
_NO_INDEX: Final = 1 << 20
"""Below this size, searching headers takes no more reads than searching an index."""


class Frontier:
    """How far the scan of a start has got that goes no further than a reader of its view does.

    The view has the files as they are; a reader asks at each position whether a start accepts what
    is there. Once one does not, the rest of the start is predicted, and the view is final.

    A scan may throw away what it has accepted: if offsets go back at a batch for which an index
    entry is due, nothing of the segment stays. Then it is named in `Difference.logs_in_doubt`.

    Args:
        partition: the directory.

    Attributes:
        final: the final view, once it is known.
        scanned_bytes: how much was scanned for parts.
    """

    def __init__(self, partition: PartitionDir) -> None:
        self.final: View | None = None
        self._partition = partition
        self._start, self._written = _begin(partition, None)
        self._first = self.end_min
        logs = [one.log for one in partition.segments if one.base_offset >= self._first]
        self._hole_bytes = sum(log.hole_bytes for log in logs)  # preallocated
        self._positions: dict[str, int] = {}
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
        return 0 if self.final is not None else self._start.unread_bytes

    @property
    def end_min(self) -> int:
        """An offset at which, or after which, the log ends after the start."""
        return 0 if self._start.scan is None else self._start.scan.segment.base_offset

    def view(self) -> View:
        """Return the view with nothing scanned."""
        start = self._start
        shown = _view_of(self._partition, start.tidying, start.contents, None)
        files = tuple(map(self._in_view, shown.partition.files))
        partition = replace(shown.partition, files=files)
        return View(partition, partition.segments, shown.difference, self)

    def cut_at(self, segment: Segment, position: int) -> int | None:
        """Return where a start ends a segment if it does not accept what is at a position."""
        path = segment.log.path
        with self._contained():
            if self.final is None and self._start.accepts(segment.base_offset, position):
                self._positions[path] = position
                return None
        there = (one.log for one in self.settle().segments if one.log.path == path)
        return next((log.end for log in there), 0)

    def final_at(self, segment: Segment) -> Sequence[Segment] | None:
        """Return the segments of the final view if that is known, or has to be to read one."""
        self.cut_at(segment, 0)
        return None if self.final is None else self.final.segments

    def part(self, size_bytes: int) -> PartitionDir | None:
        """Scan `size_bytes`; return the log as far as a start accepts it, None if that is all.

        It ends with batches that the start accepts, and has those of all segments before.
        """
        start = self._start
        with self._contained():
            while self.final is None and self.scanned_bytes < size_bytes:
                before = start.unread_bytes
                if not start.advance():
                    return None
                self.scanned_bytes += before - start.unread_bytes
        if self.final is not None or start.scan is None:
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
            self.final = unknown_outcome(self._partition, error)

    def settle(self) -> View:
        """Return the final view. Raises as `show`.

        Cost:
            Scans what was not scanned. All of it is scanned, maybe again, if the topic's configs
            for indexes, which the metadata log has, are not the usual ones.
        """
        with self._contained():
            if self.final is not None:
                return self.final
            config = _start_config_of(self._partition)
            if config not in (None, usual_config(self._partition)):
                self._start, self._written = _begin(self._partition, config)
            shown = _outcome_of(self._partition, self._start, self._written)
            ends = {one.log.path: one.log.size_bytes for one in shown.segments}
            lost = [path for path, seen in self._positions.items() if ends.get(path, 0) < seen]
            if lost and shown.difference is not None:
                names = tuple(os.path.basename(path) for path in lost)
                shown = replace(shown, difference=replace(shown.difference, logs_in_doubt=names))
            self.final = shown
        assert self.final is not None, "errors settle it, too"
        return self.final

    def _in_view(self, entry: FileEntry) -> FileEntry:
        """Return a file of the view; a start writes the indexes of what it scans again."""
        is_scanned = (entry.name.offset or 0) >= self._first
        return replace(entry, is_stale=is_scanned) if entry.name.kind in ENTRY_SIZES else entry


def predict(partition: PartitionDir) -> View:
    """Return the view of a start, of which all is scanned that a start scans."""
    return _outcome_of(partition, *_begin(partition, _start_config_of(partition)))


def _begin(
    partition: PartitionDir, config: StartConfig | None
) -> tuple[StartInProgress, dict[str, bytes]]:
    """Return a start that has begun, and where the transaction indexes are that it writes."""
    written: dict[str, bytes] = {}

    def keep(name: str, data: bytes) -> None:
        if name.endswith(file_names.TRANSACTION_INDEX):
            written[name] = data

    return StartInProgress(partition, config=config, tell=keep), written


def _outcome_of(partition: PartitionDir, start: StartInProgress, written: dict[str, bytes]) -> View:
    """Return the view after all steps of a start."""
    predicted = start.end()
    if predicted.refusal is not None:
        refusal = predicted.refusal
        why = f"a broker would not load it ({refusal.error}: {refusal.message})"
        if not any(isinstance(action, RenameFile) for action in start.tidying):
            return as_it_is(partition, why)
        tidied = tidy(partition)  # what a broker leaves that gives up
        difference = tidied.difference or Difference(partition.path)
        return replace(tidied, difference=replace(difference, refusal=why))
    shown = _view_of(partition, predicted.actions, start.contents, predicted)
    aborted = tuple(
        (parse_file_name(name).offset or 0, tuple(aborted_transactions(data)))
        for name, data in sorted(written.items())
        if name in start.contents
    )
    return replace(shown, partition=replace(shown.partition, aborted=aborted))


def _start_config_of(partition: PartitionDir) -> StartConfig | None:
    """Return the topic configs that a start depends on, from the metadata log of its node."""
    log_dir = home_of(os.path.dirname(file_system.absolute(partition.path)), partition.log_dirs)
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
    return ConfigSources().in_log_dir(log_dir)


def tidy(partition: PartitionDir) -> View:
    """Return the view after the first step of a start, which judges files by their names."""
    directory = Directory(partition)
    try:
        settle_left_overs(directory, usual_config(partition))
    except StartRefusedError as error:
        return as_it_is(partition, f"a broker would not load it ({error.error}: {error.message})")
    return _view_of(partition, tuple(directory.actions), directory.contents, None)


def _view_of(
    partition: PartitionDir,
    actions: tuple[Action, ...],
    contents: dict[str, Content],
    predicted: PredictedStart | None,
) -> View:
    files = _files(partition, actions, contents)
    behind = predicted.behind if predicted is not None else None
    if behind is not None:
        files = (_without(entry, behind) for entry in files)
    loaded = predicted.loaded if predicted else None
    started = replace(partition, files=tuple(files), loaded=loaded)
    difference = _difference(partition, actions, contents, predicted, behind)
    return View(started, started.segments, difference)


def _files(
    partition: PartitionDir, actions: tuple[Action, ...], contents: dict[str, Content]
) -> Iterator[FileEntry]:
    """Yield the files that exist after a start, with the bytes that are on disk now.

    A segment that a start would split is shown whole, since its records are the same.
    """
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
        hidden_records=sum(records for _, records, _ in lost),
        hidden_bytes=sum(size for _, _, size in lost),
    )


def _cuts(predicted: PredictedStart, contents: dict[str, Content]) -> list[tuple[int, int, int]]:
    """Return the start offset, records and bytes of each cut, leaving out preallocated zeros."""
    found = []
    for cut in predicted.cuts:
        if not isinstance(cut, TruncateLog):
            if cut.size_bytes:
                found.append((cut.base_offset, cut.lost_records, cut.size_bytes))
            continue
        log = contents.get(file_names.segment_file(cut.base_offset, file_names.LOG))
        if not cut.lost_records and log is not None and log.path is not None:
            with Source(log.path) as source:
                if source.is_zero_from(log.start + cut.position):
                    continue  # preallocated
        found.append((cut.offset, cut.lost_records, cut.lost_bytes))
    return found


def _without(entry: FileEntry, behind: Behind) -> FileEntry:
    """Return a file of the view, cut off where a start ends the log; indexes may point past it."""
    if entry.path == behind.path:
        return replace(entry, size_bytes=behind.position, end=behind.position)
    if entry.name.kind in ENTRY_SIZES and entry.name.offset == behind.base_offset:
        return replace(entry, is_stale=True)
    return entry
