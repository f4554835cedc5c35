"""The outcome of a start for a partition directory: the files it leaves, what it cuts off."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from formats import file_names
from formats.file_names import parse_file_name
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError
from kafkalog.files.indexes import ENTRY_SIZES, aborted_transactions
from kafkalog.files.log_dir import list_partition
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import FileEntry, PartitionDir, Segment
    from kafkalog.node.configs.sources import LogDirConfigs
    from kafkalog.node.frontier import Frontier
    from kafkalog.node.recovery.directory import Content
    from kafkalog.node.recovery.model import Action, PredictedStart, StartConfig
    from kafkalog.node.recovery.start import Behind, StartInProgress


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
        logs_in_doubt: names of the logs of which a reader may have shown what does not stay; see
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
    logs_in_doubt: tuple[str, ...] = ()
    unscanned_bytes: int = 0

    @property
    def is_known(self) -> bool:
        """Whether something is known to differ, not only that a start may cut the log."""
        return not self.unscanned_bytes or self.swapped > 0

    @property
    def detail(self) -> str:
        """The whole difference, in one line."""
        logs = ", ".join(self.logs_in_doubt)
        also = f"; records of {logs} may have been shown before" if logs else ""
        if self.refusal is not None:
            how = "with the swap completed" if self.swapped else "as they are"
            return f"{self.refusal}; showing the files {how}{also}"
        return _actions([self]) + also


@dataclass(frozen=True, slots=True)
class View:
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
    def so_far(self) -> View:
        """The view as far as it is known by now: the final one once everything was scanned."""
        if self.frontier is None or self.frontier.unscanned_bytes:
            return self
        return self.frontier.settle()

    @property
    def difference_so_far(self) -> Difference | None:
        """The difference as far as it is known by now, with how much was not scanned."""
        difference = self.so_far.difference
        if self.frontier is None or not (unscanned := self.frontier.unscanned_bytes):
            return difference
        difference = difference or Difference(self.partition.path)
        return replace(difference, unscanned_bytes=unscanned)


def summary(differences: Sequence[Difference]) -> str | None:
    """Summarize the differences of all partitions in one line; None if there are none."""
    if len(differences) < 2:
        return f"{differences[0].path}: {differences[0].detail}" if differences else None
    line = _actions(differences)
    refused = [one.detail for one in differences if one.refusal is not None]
    if refused:
        line += f"; {counted(len(refused), 'partition')} of them: {refused[0]}"
    return f"{differences[0].path} and {counted(len(differences) - 1, 'other partition')}: {line}"


def _actions(differences: Sequence[Difference]) -> str:
    actions = []
    swapped = sum(one.swapped for one in differences)
    if swapped:
        replaced = sum(one.replaced for one in differences)
        place = f" in place of {replaced}" if replaced else ""
        actions.append(f"make {counted(swapped, '.swap segment')} live{place}")
    hidden = [one for one in differences if one.bytes_hidden]
    cut = [one for one in hidden if one.ends_at is None]
    if cut:
        one_log = f"truncate the log at offset {cut[0].cut_at}"
        logs = one_log if len(differences) == 1 else f"cut {counted(len(cut), 'log')}"
        actions.append(f"{logs} and drop {_hidden(cut)}")
    short = [one for one in hidden if one.ends_at is not None]
    if short:
        one_log = f"end the log at offset {short[0].ends_at}"
        logs = one_log if len(differences) == 1 else f"end {counted(len(short), 'log')} too early"
        actions.append(f"{logs} and never serve {_hidden(short)} after that")
    unscanned = counted(sum(one.unscanned_bytes for one in differences), "byte")
    is_whole = not any(one.unscanned_bytes for one in differences)
    rest = f"not closed cleanly; {unscanned} that a start scans, and may cut, were not read"
    if not actions:
        return "the next start would not load them" if is_whole else rest
    hint = "--view files shows the files under final names"
    also = "" if is_whole else f"; {rest}"
    return f"the next start would {', and '.join(actions)}; {hint}{also}"


def _hidden(differences: Sequence[Difference]) -> str:
    records = sum(one.records_hidden for one in differences)
    size = sum(one.bytes_hidden for one in differences)
    return f"{counted(records, 'record')} ({counted(size, 'byte')})"


def unknown_outcome(partition: PartitionDir, error: DataError) -> View:
    """Return the view of a directory of which a start could not be predicted."""
    return _as_it_is(partition, f"what the next start would show is unknown: {error.message}")


def _as_it_is(partition: PartitionDir, why: str) -> View:
    return View(partition, partition.segments, Difference(partition.path, refusal=why))


def begin_start(
    partition: PartitionDir, config: StartConfig | None
) -> tuple[StartInProgress, dict[str, bytes]]:
    """Return a start that has begun, and where the transaction indexes are that it writes."""
    from kafkalog.node.recovery import StartInProgress

    written: dict[str, bytes] = {}

    def keep(name: str, data: bytes) -> None:
        if name.endswith(file_names.TRANSACTION_INDEX):
            written[name] = data

    return StartInProgress(partition, config=config, tell=keep), written


def outcome_of(partition: PartitionDir, start: StartInProgress, written: dict[str, bytes]) -> View:
    """Return the view after all steps of a start."""
    from kafkalog.node.recovery.model import RenameFile

    predicted = start.end()
    if predicted.refusal is not None:
        refusal = predicted.refusal
        why = f"a broker would not load it ({refusal.error}: {refusal.message})"
        if not any(isinstance(action, RenameFile) for action in start.tidying):
            return _as_it_is(partition, why)
        tidied = tidy(partition)  # what a broker leaves that gives up
        difference = tidied.difference or Difference(partition.path)
        return replace(tidied, difference=replace(difference, refusal=why))
    shown = view_of(partition, predicted.actions, start.contents, predicted)
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


def tidy(partition: PartitionDir) -> View:
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
    return view_of(partition, tuple(directory.actions), directory.contents, None)


def view_of(
    partition: PartitionDir,
    actions: tuple[Action, ...],
    contents: dict[str, Content],
    predicted: PredictedStart | None,
) -> View:
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
    return View(started, started.segments, difference)


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
                entry = replace(entry, size_bytes=end, end=end, survey=None)
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
        return replace(entry, size_bytes=behind.position, end=behind.position, survey=None)
    if entry.name.kind in ENTRY_SIZES and entry.name.offset == behind.base_offset:
        return replace(entry, is_stale=True)
    return entry
