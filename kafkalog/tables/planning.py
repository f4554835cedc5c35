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

from formats.file_names import DirectoryState, is_staging
from formats.late_classes import dataclass
from kafkalog.errors import DataError, GoneError, Listener, UsageError
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir
from kafkalog.files.topics import is_meant
from kafkalog.io.engine import in_order
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.segment import gaps_between
from kafkalog.log.batches.selection import segments_of
from kafkalog.log.defects import Tolerant
from kafkalog.log.living import answered, listed_again, listed_now
from kafkalog.model import LogView, Replicas, present_ms
from kafkalog.node.choice import metadata_logs, note_hosting, paths_of_others
from kafkalog.node.outcome import summary
from kafkalog.node.remote_logs import joined
from kafkalog.node.targets import Target as Listed
from kafkalog.node.targets import (
    open_targets,
    passed_over,
    path_of,
    require_numbers,
    require_topics,
    unlisted_of,
)
from kafkalog.node.view import show
from kafkalog.tables.merged_log import best_targets
from kafkalog.tables.model import Request, Split, TableName, log_of
from kafkalog.tables.splitting import splits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import Segment
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.model import Defect
    from kafkalog.node.outcome import Difference
    from kafkalog.node.targets import AnyPath


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
    """The splits of a log.

    Attributes:
        splits: its splits.
        first: the first offset that a row of it can have, at the time of its listing; None if it
            cannot be read, or a broker has deleted it.
        end: where it ends, if that decides which rows are returned.
        with_gaps: the log and its view, if wanted rows are missing.
    """

    splits: list[Split]
    first: int | None = None
    end: PartitionOffsets | None = None
    with_gaps: tuple[Target, LogView] | None = None


def one_segment(log: FileEntry) -> list[Target]:
    """Return the segment of a live log as a target.

    Raises:
        UsageError: it is none.
    """
    (segment,), parent = segments_of(log)
    if any(one.log.name == log.name for one in parent.segments):
        return [Target(parent, (segment,), parent, is_file=True)]
    raise UsageError(
        "This is no live log of a partition.",
        path=log.path,
        hint="Give log directories, partition directories, or .log files in one.",
    )


def plan_splits(
    paths: Sequence[AnyPath],
    request: Request,
    listener: Listener | None = None,
    *,
    before_each: Callable[[], object] = lambda: None,
) -> list[Split]:
    """Return the splits of a table, by path, topic, partition, segment and position.

    Args:
        paths: log directories, parents of them, partition directories, or single logs; or what is
            open already.
        request: the rows to read.
        listener: hears of each log that cannot be read, which is left out, of the bounds of each
            whose records they decide, of offsets that are missing between segments where rows are
            wanted, and of views that differ from files; if None, errors and grave defects are
            raised, and a `UserWarning` reports views.
        before_each: called before each look at a log; what it raises stops the planning.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: as `open_path`.
        UsageError: splits would be empty, or a file is not a live log.
        NothingFoundError: a required topic is missing.

    Cost:
        A few reads per segment; for read_committed also the last stable offset; the view's cost.
        In a store a request per thousand objects, and four or five per partition; per segment only
        for times, for gaps, and to split large ones.
    """
    logs = plan_logs(paths, request, listener, before_each=before_each)
    return [split for one in logs for split in one.splits]


def plan_logs(
    paths: Sequence[AnyPath],
    request: Request,
    listener: Listener | None = None,
    *,
    before_each: Callable[[], object] = lambda: None,
) -> list[PlannedLog]:
    """Do what `plan_splits` does; return the splits by log, and where each log begins."""
    at_ms = present_ms()
    with file_system.listings_held(map(path_of, paths)):
        targets = find_targets(paths, request, listener, before_each)
        tell_differences(targets, listener)
        logs = []
        hearer = listener or Tolerant()
        with closing(each_planned(targets, lambda _: request, at_ms, hearer)) as planned:
            for _ in targets:
                before_each()
                logs.append(next(planned))
    return logs


def each_planned(
    targets: Sequence[Target],
    requests: Callable[[Target], Request | None],
    at_ms: int,
    listener: Listener,
) -> Generator[PlannedLog, None, None]:
    """Yield the splits of each log, in their order; logs of a store are looked at together.

    Args:
        targets: the logs.
        requests: returns the request for a log; None if nothing of it is wanted.
        at_ms: a time before they were listed.
        listener: as for `plan_splits`, but for views; hears of the logs in their order.
    """

    def planned(target: Target) -> PlannedLog | DataError:
        request = requests(target)
        if request is None:
            return PlannedLog([])
        try:
            return living_splits(target, request, at_ms, looks_for_gaps=True)
        except DataError as error:
            return error

    with closing(in_order(planned, targets, _at_once(targets))) as results:
        for target, found in zip(targets, results, strict=True):
            if isinstance(found, DataError):
                _fail(target.listed, found, listener)
                yield PlannedLog([])
                continue
            for defect in () if found.with_gaps is None else missing_in(*found.with_gaps):
                listener.hear(defect)
            if found.end is not None:
                listener.hear(found.end)
            yield found


def _fail(partition: PartitionDir, error: DataError, listener: Listener) -> None:
    error.partition = partition
    listener.hear(error)


def missing_in(target: Target, view: LogView, *wanted: int | None) -> Sequence[Defect]:
    """Return the findings about offsets that are missing between the segments of a log.

    If its files change meanwhile, they are those of a new listing.

    Args:
        target: the log.
        view: what of it is shown.
        wanted: the first offset, and the one after the last; if given, others may be missing.
    """

    def missing(target: Target) -> list[Defect]:
        segments = target.partition.segments
        gaps = gaps_between(segments, *wanted)
        if target.copies:
            log = log_of(target, Request(view=view))
            gaps = (one for one in gaps if log.lacks(*one))
        if next(gaps, None) is None:
            return []
        from kafkalog.check.segments import missing_offsets  # it loads what the columns need

        return list(missing_offsets(target.partition, segments, *wanted))

    if target.is_file:
        return ()
    with suppress(GoneError):  # a partition that was deleted meanwhile lacks nothing
        return answered(
            lambda: missing(target), lambda: missing(_shown(listed_again(target.listed), view))
        )
    return ()


def living_splits(
    target: Target, request: Request, at_ms: int, *, looks_for_gaps: bool = False
) -> PlannedLog:
    """Return the splits and the end of one log that was listed after a time.

    If its files change during planning, it is listed again; a log that a broker has deleted since
    has no splits.
    """

    def planned(target: Target, at_ms: int) -> PlannedLog:
        splits, first, end, has_gaps = splits_of(
            target, request, at_ms, looks_for_gaps=looks_for_gaps
        )
        return PlannedLog(list(splits), first, end, (target, request.view) if has_gaps else None)

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
    paths: Iterable[AnyPath],
    request: Request,
    listener: Listener | None = None,
    before_each: Callable[[], object] = lambda: None,
) -> list[Target]:
    """Return the logs that a request covers; arguments and errors are those of `plan_splits`."""
    if request.split_bytes < 1:
        raise UsageError("A split has at least one byte.")
    targets = _opened(paths, request)
    return logs_among(targets, request, listener or Listener(), before_each)


def _opened(paths: Iterable[AnyPath], request: Request) -> list[Listed]:
    # Splits are read elsewhere: their paths do not depend on the working directory.
    places = (
        one if isinstance(one, Listed) else file_system.absolute(path_of(one)) for one in paths
    )
    return open_targets(places, topics=request.bounds.topics)


def logs_among(
    opened: Sequence[Listed],
    request: Request,
    listener: Listener,
    before_each: Callable[[], object] = lambda: None,
    *,
    of_file: Callable[[FileEntry], Iterable[Target]] = one_segment,
) -> list[Target]:
    """Do what `find_targets` does among what is open; `of_file` makes single files logs."""
    view = request.view
    if request.table == TableName.DEFECTS and view == LogView.RECOVERED:
        view = LogView.AS_IS  # a start cuts off damage
    meant, unlisted = _meant(opened, request, of_file)
    if request.notes_hosting:
        note_hosting(opened, lambda one: _is_wanted(one, request, is_named=False))
    lacking = [*unlisted]
    targets = []

    def shown_of(one: PartitionDir | Target) -> Target | DataError:
        try:
            return one if isinstance(one, Target) else shown_now(one, view)
        except DataError as error:
            return error

    with closing(in_order(shown_of, meant, _at_once(meant))) as each:
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
            _fail(partition, error, listener)
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


def meant_names(paths: Iterable[str], request: Request) -> set[tuple[str, int | None]]:
    """Return topic and partition of the logs that a request covers. Raises as `plan_splits`."""
    meant, unlisted = _meant(_opened(paths, request), request, one_segment)
    partitions = [one.partition if isinstance(one, Target) else one for one in meant]
    partitions += (partition for partition, _ in unlisted)
    return {(partition.topic, partition.partition) for partition in partitions}


def tell_differences(targets: Iterable[Target], listener: Listener | None) -> None:
    """Report how views differ from files, as `plan_splits` does."""
    found = [target.difference for target in targets if target.difference is not None]
    if listener is None:
        if (text := summary(found)) is not None:
            warnings.warn(text, stacklevel=3)
        return
    for difference in found:
        listener.hear(difference)


def _shown(partition: PartitionDir, view: LogView) -> Target:
    shown = show(partition, view)
    return Target(shown.partition, tuple(shown.segments), partition, shown.difference)


def shown_now(partition: PartitionDir, view: LogView) -> Target:
    """Return the view of a partition, from a new listing if its files have changed.

    If the topic was deleted and created again meanwhile, it is the view of the new one.
    """
    try:
        return answered(
            lambda: _shown(partition, view),
            lambda: _shown(listed_now(partition), view),
        )
    except GoneError:
        return Target(partition, (), partition)  # it was deleted


def _meant(
    targets: Sequence[Listed], request: Request, of_file: Callable[[FileEntry], Iterable[Target]]
) -> tuple[list[PartitionDir | Target], list[tuple[PartitionDir, DataError]]]:
    """Return the wanted partitions of one topic per name, and those that cannot be listed.

    A single log is a target as it is.
    """
    meant = [
        (one.partition if isinstance(one, Target) else one, one, named)
        for one, named in _partitions(targets, request, of_file)
    ]
    unlisted = [one for one in unlisted_of(targets) if _is_shown(one[0], request.view)]
    there = [*(partition for partition, *_ in meant), *(partition for partition, _ in unlisted)]
    unopened = (one for target in targets for one in passed_over(target))
    if request.named is not None:
        topics, numbers = request.named.topics, request.named.partitions
        require_topics(topics, (one.topic for one in (*there, *unopened)))
        require_numbers(
            numbers, (one.partition for one in there if topics is None or one.topic in topics)
        )
    request.require_assigned((partition.topic, partition.partition) for partition in there)
    unlisted = [one for one in unlisted if _is_wanted(one[0], request, is_named=False)]
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
    return [one for partition, one in wanted if partition.path not in others], unlisted


def _partitions(
    targets: Sequence[Listed], request: Request, of_file: Callable[[FileEntry], Iterable[Target]]
) -> Iterator[tuple[PartitionDir | Target, bool]]:
    """Yield the partitions of a view, each with whether a path names it."""
    for found in joined(targets, request.bounds.topics) if request.joins_tiers else targets:
        if isinstance(found, LogDirListing):
            yield from ((one, False) for one in found.partitions if _is_shown(one, request.view))
        elif isinstance(found, PartitionDir):
            yield found, True
        else:
            yield from ((one, True) for one in of_file(found))


def _is_shown(partition: PartitionDir, view: LogView) -> bool:
    """Return whether a view of a log directory has a partition directory."""
    if view == LogView.ALL:
        is_ours = is_staging(os.path.basename(partition.path))
        return partition.state != DirectoryState.FUTURE and not is_ours
    return partition.state == DirectoryState.LIVE


def _is_wanted(partition: PartitionDir, request: Request, *, is_named: bool) -> bool:
    bounds = request.bounds
    if not is_meant(partition.topic, bounds.topics, internal=is_named or request.internal):
        return False
    is_wanted = bounds.partitions is None or partition.partition in bounds.partitions
    return is_wanted and request.names(partition.topic, partition.partition)
