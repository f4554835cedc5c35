"""Splits of tables: which files, and which parts of them, must be read for a request.

Reads names, checkpoints, indexes and single headers, but no records. Logs are split where batches
begin, according to their offset indexes.
"""

from __future__ import annotations

import os
import warnings
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from formats.file_names import DirectoryState, FileKind, is_staging
from formats.late_classes import dataclass
from kafkalog.errors import DataError, GoneError, KafkaLogError, UsageError
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_path
from kafkalog.files.payloads.kinds import payload_kind
from kafkalog.io.engine import in_order
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.log.living import answered, listed_again
from kafkalog.model import LogView, Replicas, present_ms
from kafkalog.node.choice import metadata_logs, note_hosting, paths_of_others
from kafkalog.node.remote_logs import joined
from kafkalog.node.targets import open_targets, passed_over, require_topics, unlisted_of
from kafkalog.node.view import show, summary
from kafkalog.tables.merged_log import best_targets
from kafkalog.tables.model import Split, TableName, fail
from kafkalog.tables.splitting import splits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import Segment
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.node.targets import Target as Listed
    from kafkalog.node.view import Difference
    from kafkalog.tables.model import Failed, Request


@dataclass(frozen=True, slots=True)
class Target:
    """A log to read: its partition directory as the view shows it, and the part to read.

    `listed` is the directory as it is on disk. If `is_file`, only a single file is read. `copies`
    are those that help where this one has no sound batches.
    """

    partition: PartitionDir
    segments: tuple[Segment, ...]
    listed: PartitionDir
    difference: Difference | None = None
    is_file: bool = False
    copies: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedLog:
    """The splits of a log and where it ends; if wanted rows are missing, the log and its view."""

    splits: list[Split]
    end: PartitionOffsets | None = None
    with_gaps: tuple[Target, LogView] | None = None


def plan_splits(
    paths: Sequence[str],
    request: Request,
    *,
    ends: Callable[[PartitionOffsets], object] | None = None,
    differences: Callable[[Difference], object] | None = None,
    gaps: Callable[[Target], object] | None = None,
    before_each: Callable[[], object] = lambda: None,
    failed: Failed = fail,
    log_dirs: tuple[str, ...] = (),
) -> list[Split]:
    """Return the splits of a table, by path, topic, partition, segment and position.

    Args:
        paths: log directories, parents of them, partition directories, or single logs.
        request: the rows to read.
        ends: called with the bounds of each partition whose records they decide.
        differences: called with how the view of a partition differs from its files; if None, a
            `UserWarning` reports it.
        gaps: called with each log that has gaps between its segments where rows are wanted;
            `kafkalog.check.segments.missing_offsets` judges them.
        before_each: called before each look at a log; what it raises stops the planning.
        failed: called with each log that cannot be read, which is left out.
        log_dirs: as for `open_targets`.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`; without `failed` also
            for a log.
        UsageError: splits would be empty, a file is not a live log, or a required topic is missing.

    Cost:
        A few reads per segment; for read_committed also the last stable offset; the view's cost.
        In a store a request per thousand objects, and four or five per partition; per segment only
        for times, for gaps, and to split large ones.
    """
    at_ms = present_ms()
    with file_system.listings_held(paths):
        targets = find_targets(paths, request, before_each, failed, log_dirs)
        tell_differences(targets, differences)
        splits = []
        with closing(each_planned(targets, lambda _: request, at_ms, gaps, failed)) as planned:
            for _ in targets:
                before_each()
                found, end = next(planned)
                splits += found
                if ends is not None and end is not None:
                    ends(end)
    return splits


def each_planned(
    targets: Sequence[Target],
    requests: Callable[[Target], Request | None],
    at_ms: int,
    gaps: Callable[[Target], object] | None = None,
    failed: Failed = fail,
) -> Generator[tuple[list[Split], PartitionOffsets | None], None, None]:
    """Yield what `living_splits` returns for each log, in their order; logs of a store together.

    Args:
        targets: the logs.
        requests: returns the request for a log; None if nothing of it is wanted.
        at_ms: a time before they were listed.
        gaps, failed: as in `plan_splits`; called in the order of the logs.
    """

    def planned(target: Target) -> PlannedLog | DataError:
        request = requests(target)
        if request is None:
            return PlannedLog([])
        try:
            return living_splits(target, request, at_ms, looks_for_gaps=gaps is not None)
        except DataError as error:
            return error

    with closing(in_order(planned, targets, _at_once(targets))) as results:
        for target, found in zip(targets, results, strict=True):
            if isinstance(found, DataError):
                failed(target.listed, found)
                yield [], None
                continue
            if gaps is not None and found.with_gaps is not None:
                _tell(gaps, *found.with_gaps)
            yield found.splits, found.end


def _tell(gaps: Callable[[Target], object], target: Target, view: LogView) -> None:
    """Call `gaps` with a log: if its files change meanwhile, with a new listing."""
    with suppress(GoneError):  # a partition that was deleted meanwhile lacks nothing
        answered(
            lambda: gaps(target),
            lambda: gaps(_shown(listed_again(target.listed), view)),
        )


def living_splits(
    target: Target, request: Request, at_ms: int, *, looks_for_gaps: bool = False
) -> PlannedLog:
    """Return the splits and the end of one log that was listed after a time.

    If its files change during planning, it is listed again; a log that a broker has deleted since
    has no splits.
    """

    def planned(target: Target, at_ms: int) -> PlannedLog:
        ends: list[PartitionOffsets] = []
        with_gaps: list[Target] = []
        gaps = with_gaps.append if looks_for_gaps else None
        splits = list(splits_of(target, request, at_ms, ends=ends.append, gaps=gaps))
        end = ends[0] if ends else None
        return PlannedLog(splits, end, (with_gaps[0], request.view) if with_gaps else None)

    def again() -> PlannedLog:
        if target.is_file:
            return planned(target, at_ms)
        now = present_ms()
        return planned(_shown(listed_again(target.listed), request.view), now)

    try:
        return answered(lambda: planned(target, at_ms), again)
    except GoneError:
        return PlannedLog([])


def find_targets(
    paths: Iterable[str],
    request: Request,
    before_each: Callable[[], object] = lambda: None,
    failed: Failed = fail,
    log_dirs: tuple[str, ...] = (),
) -> list[Target]:
    """Return the logs that a request covers; arguments and errors are those of `plan_splits`."""
    if request.split_bytes < 1:
        raise UsageError("A split has at least one byte.")
    view = request.view
    if request.table == TableName.DEFECTS and view == LogView.STARTED:
        view = LogView.FILES  # a start cuts off damage
    lacking: list[tuple[PartitionDir, KafkaLogError]] = []
    meant = _meant(paths, request, lambda *one: lacking.append(one), log_dirs)
    targets = []
    with closing(each_shown(meant, view)) as each:
        for found in meant:
            before_each()
            shown = next(each)
            if isinstance(shown, Target):
                targets.append(shown)
            else:
                lacking.append((found.partition if isinstance(found, Target) else found, shown))
    is_best = request.replicas == Replicas.BEST
    named = {(one.partition.topic, one.partition.partition) for one in targets if is_best}
    for partition, error in lacking:
        if (partition.topic, partition.partition) not in named:  # no other copy stands in for it
            failed(partition, error)
    return best_targets(targets, merges=request.merges_copies) if is_best else targets


def targets_among(
    found: Sequence[Target], of: Request, paths: Sequence[str], request: Request
) -> list[Target]:
    """Do what `find_targets` does, from what it has found in a store for another request.

    Args:
        found: what it has found, all copies of each log.
        of: that request, for any partition. If `request` asks for other logs, they are searched.
        paths, request: as in `find_targets`, whose errors are raised.
    """
    same = replace(
        of, table=request.table, replicas=request.replicas, bounds=request.bounds,
        split_bytes=request.split_bytes, gaps_when_read=request.gaps_when_read,
    )  # fmt: skip
    is_same = (same, of.joins_tiers) == (request, request.joins_tiers)
    is_all = of.replicas == Replicas.ALL and of.bounds.topics is None
    is_other = request.bounds.topics is not None or request.table == TableName.DEFECTS
    if is_other or not (is_all and is_same and all(map(is_object, paths))):
        return find_targets(paths, request)  # on a disk they are looked at when the plan is made
    wanted = [one for one in found if _is_wanted(one.partition, request, is_named=True)]
    if request.replicas != Replicas.BEST:
        return wanted
    return best_targets(wanted, merges=request.merges_copies)


def _at_once(found: Sequence[PartitionDir | Target]) -> int:
    """Return how many logs are best looked at together."""
    partitions = (one.partition if isinstance(one, Target) else one for one in found)
    return max((file_system.requests_at_once(one.path) for one in partitions), default=1)


def each_shown(
    found: Sequence[PartitionDir | Target], view: LogView
) -> Generator[Target | KafkaLogError, None, None]:
    """Yield the view of each log, or the error of one that has none; those in a store together."""

    def shown(one: PartitionDir | Target) -> Target | KafkaLogError:
        if isinstance(one, Target):
            return one
        try:
            return shown_now(one, view)
        except DataError as error:
            return error

    return in_order(shown, found, _at_once(found))


def meant_names(paths: Iterable[str], request: Request) -> set[tuple[str, int | None]]:
    """Return topic and partition of the logs that a request covers. Raises as `plan_splits`."""
    partitions: list[PartitionDir] = []
    meant = _meant(paths, request, lambda partition, _: partitions.append(partition))
    partitions += (one.partition if isinstance(one, Target) else one for one in meant)
    return {(partition.topic, partition.partition) for partition in partitions}


def tell_differences(
    targets: Iterable[Target], differences: Callable[[Difference], object] | None
) -> None:
    """Report how views differ from files, as `plan_splits` does."""
    found = [target.difference for target in targets if target.difference is not None]
    if differences is None:
        if (text := summary(found)) is not None:
            warnings.warn(text, stacklevel=3)
        return
    for difference in found:
        differences(difference)


def _shown(partition: PartitionDir, view: LogView) -> Target:
    shown = show(partition, view)
    return Target(shown.partition, tuple(shown.segments), partition, shown.difference)


def shown_now(partition: PartitionDir, view: LogView) -> Target:
    """Return the view of a partition, from a new listing if its files have changed."""
    try:
        return answered(
            lambda: _shown(partition, view),
            lambda: _shown(listed_again(partition), view),
        )
    except GoneError:
        return Target(partition, (), partition)  # it was deleted


def _meant(
    paths: Iterable[str], request: Request, failed: Failed, log_dirs: tuple[str, ...] = ()
) -> list[PartitionDir | Target]:
    """List the wanted partitions of one topic per name; a single log is a target as it is."""
    topics = request.bounds.topics
    # Splits are read elsewhere: their paths do not depend on the working directory.
    targets = open_targets(map(file_system.absolute, paths), topics=topics, log_dirs=log_dirs)
    meant = [
        (one.partition if isinstance(one, Target) else one, one, named)
        for one, named in _partitions(targets, request)
    ]
    unlisted = [one for one in unlisted_of(targets) if is_shown(one[0], request.view)]
    there = [*(partition for partition, *_ in meant), *(partition for partition, _ in unlisted)]
    unopened = (one for target in targets for one in passed_over(target))
    require_topics(request.required_topics, (one.topic for one in (*there, *unopened)))
    request.require_assigned((partition.topic, partition.partition) for partition in there)
    if request.notes_hosting:
        note_hosting(targets, lambda one: _is_wanted(one, request, is_named=False))
    for partition, error in unlisted:
        if _is_wanted(partition, request, is_named=False):
            failed(partition, error)
    wanted = [
        (partition, one)
        for partition, one, is_named in meant
        if _is_wanted(partition, request, is_named=is_named)
    ]
    others = paths_of_others(
        [partition for partition, _ in wanted],
        lambda: metadata_logs(targets),
        dead=request.view == LogView.ALL,
    )
    return [one for partition, one in wanted if partition.path not in others]


def _partitions(
    targets: Sequence[Listed], request: Request
) -> Iterator[tuple[PartitionDir | Target, bool]]:
    """Yield the partitions of a view, each with whether a path names it."""
    for found in joined(targets, request.bounds.topics) if request.joins_tiers else targets:
        if isinstance(found, LogDirListing):
            yield from ((one, False) for one in found.partitions if is_shown(one, request.view))
        elif isinstance(found, PartitionDir):
            yield found, True
        else:
            parent, segment = _one_segment(found)
            yield Target(parent, (segment,), parent, is_file=True), True


def is_shown(partition: PartitionDir, view: LogView) -> bool:
    """Return whether a view of a log directory has a partition directory."""
    if view == LogView.ALL:
        is_ours = is_staging(os.path.basename(partition.path))
        return partition.state != DirectoryState.FUTURE and not is_ours
    return partition.state == DirectoryState.LIVE


def _is_wanted(partition: PartitionDir, request: Request, *, is_named: bool) -> bool:
    bounds = request.bounds
    named = is_named or bounds.topics is not None or request.internal
    if not named and payload_kind(partition.topic) is not None:
        return False
    is_topic = bounds.topics is None or partition.topic in bounds.topics
    is_wanted = bounds.partitions is None or partition.partition in bounds.partitions
    return is_topic and is_wanted and request.names(partition.topic, partition.partition)


def _one_segment(log: FileEntry) -> tuple[PartitionDir, Segment]:
    parent = open_path(os.path.dirname(log.path))
    if isinstance(parent, PartitionDir) and log.name.kind == FileKind.LOG:
        for segment in parent.segments:
            if segment.log.name == log.name:
                return parent, segment
    raise UsageError(
        "This is no live log of a partition.",
        path=log.path,
        hint="Give log directories, partition directories, or .log files in one.",
    )
